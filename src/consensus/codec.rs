//! The bytes of messages between nodes. Both ends are known from the connection, so no message names them.
//!
//! All numbers are little-endian. A message begins with 16 bytes:
//!
//! | Offset | Bytes | Field |
//! |--:|--:|---|
//! | 0 | 4 | group; 0 for now |
//! | 4 | 1 | kind |
//! | 5 | 1 | flags: 1 pre-vote, 2 granted, 4 forced, 8 with a round |
//! | 6 | 2 | zeros |
//! | 8 | 8 | term |
//!
//! The fields of its kind follow, 8 bytes each unless said otherwise:
//!
//! | Kind | Fields |
//! |---|---|
//! | 1 append | index and term before the entries, committed index, then the entries |
//! | 2 appended | index, committed index |
//! | 3 refused | index, index and term of the hint, committed index |
//! | 4 stand | index and term of the last entry, index and term of the last committed one |
//! | 5 vote | index and term of the last committed entry |
//! | 6 heartbeat | committed index of the follower, that of the leader, the follower's last stamp, the round if any |
//! | 7 heard | committed index, stamp, the round if any: its term and number |
//! | 8 install | index, term, Lsn, checksum (4), serial, the [members](crate::log::replicated::members) |
//! | 9 take over | none |
//!
//! An entry: kind (1: 0 the start of a reign, 1 a block, 2 a change of the members), 3 zeros, bytes of its payload (4),
//! term, payload. Nothing follows the last field.

use bytes::Bytes;

use super::entries::change_bytes;
use super::freshness::Stamp;
use super::message::{Body, Message, Round, SentEntry};
use crate::base::lsn::Lsn;
use crate::log::replicated::block::{Block, BlockError};
use crate::log::replicated::entry::Payload;
use crate::log::replicated::mark::Mark;
use crate::log::replicated::members::{MemberChange, Members};
use crate::log::replicated::types::{GroupId, Index, Link, NodeId, Position, Term};

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CodecError {
    #[error("the message ends too early")]
    Short,
    #[error("the message goes on behind its end")]
    Long,
    #[error("the message has kind {0}, which this version of Tidegate does not know")]
    Kind(u8),
    #[error("the message has an entry of kind {0}, which this version of Tidegate does not know")]
    Entry(u8),
    #[error("the message has fields that its kind does not have")]
    Flags,
    #[error("the message has an entry that is malformed: {0}")]
    Block(#[from] BlockError),
    #[error("the message names members, or a change of them, that no group has")]
    Members,
}

const PRE: u8 = 1;
const GRANTED: u8 = 2;
const FORCED: u8 = 4;
const WITH_ROUND: u8 = 8;

/// Appends the bytes of a message to `out`.
pub(crate) fn encode(group: GroupId, message: &Message, out: &mut Vec<u8>) {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let (kind, flags) = match &message.body {
        Body::Append { .. } => (1, 0),
        Body::Appended { .. } => (2, 0),
        Body::Refused { .. } => (3, 0),
        Body::Stand { pre, forced, .. } => (4, flag(*pre, PRE) | flag(*forced, FORCED)),
        Body::Vote { pre, granted, .. } => (5, flag(*pre, PRE) | flag(*granted, GRANTED)),
        Body::Heartbeat { round, .. } => (6, flag(round.is_some(), WITH_ROUND)),
        Body::Heard { round, .. } => (7, flag(round.is_some(), WITH_ROUND)),
        Body::Install(_) => (8, 0),
        Body::TakeOver => (9, 0),
    };
    out.extend(group.0.to_le_bytes());
    out.extend([kind, flags, 0, 0]);
    let mut numbers = vec![message.term.0];
    match &message.body {
        Body::Append { after, committed, .. } => numbers.extend([after.0.0, after.1.0, committed.0]),
        Body::Appended { index, committed } => numbers.extend([index.0, committed.0]),
        Body::Refused { index, hint, committed } => numbers.extend([index.0, hint.0.0, hint.1.0, committed.0]),
        Body::Stand { last, committed, .. } => numbers.extend([last.0.0, last.1.0, committed.0.0, committed.1.0]),
        Body::Vote { committed, .. } => numbers.extend([committed.0.0, committed.1.0]),
        Body::Heartbeat { committed, round, all, stamp } => {
            numbers.extend([committed.0, all.0, stamp.0]);
            numbers.extend(round.iter().flat_map(|round| [round.term.0, round.number]));
        }
        Body::Heard { committed, round, stamp } => {
            numbers.extend([committed.0, stamp.0]);
            numbers.extend(round.iter().flat_map(|round| [round.term.0, round.number]));
        }
        Body::Install(mark) => numbers.extend([mark.at.index.0, mark.at.term.0, mark.at.link.lsn.get()]),
        Body::TakeOver => {}
    }
    out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    match &message.body {
        Body::Append { entries, .. } => entries.iter().for_each(|entry| encode_entry(entry, out)),
        Body::Install(mark) => {
            out.extend(mark.at.link.crc.to_le_bytes());
            out.extend(mark.serial.to_le_bytes());
            mark.members.encode(out);
        }
        _ => {}
    }
}

fn encode_entry(entry: &SentEntry, out: &mut Vec<u8>) {
    let (kind, payload) = match &entry.payload {
        Payload::Start => (0, Bytes::new()),
        Payload::Block(block) => (1, block.body().clone()),
        Payload::Change(change) => (2, change_bytes(change)),
    };
    out.extend([kind, 0, 0, 0]);
    out.extend((payload.len() as u32).to_le_bytes());
    out.extend(entry.term.0.to_le_bytes());
    out.extend(&payload);
}

/// Reads a message that `from` has sent to `to`. Blocks share the memory of `bytes`.
pub(crate) fn decode(bytes: Bytes, from: NodeId, to: NodeId) -> Result<(GroupId, Message), CodecError> {
    let mut rest = Reader(bytes);
    let group = GroupId(rest.u32()?);
    let [kind, flags, zeros @ ..] = rest.array::<4>()?;
    let term = Term(rest.u64()?);
    let allowed = match kind {
        4 => PRE | FORCED,
        5 => PRE | GRANTED,
        6 | 7 => WITH_ROUND,
        _ => 0,
    };
    if flags & !allowed != 0 || zeros != [0, 0] {
        return Err(CodecError::Flags);
    }
    let has = |flag| flags & flag != 0;
    let body = match kind {
        1 => Body::Append { after: rest.place()?, committed: rest.index()?, entries: rest.entries()? },
        2 => Body::Appended { index: rest.index()?, committed: rest.index()? },
        3 => Body::Refused { index: rest.index()?, hint: rest.place()?, committed: rest.index()? },
        4 => Body::Stand { pre: has(PRE), last: rest.place()?, committed: rest.place()?, forced: has(FORCED) },
        5 => Body::Vote { pre: has(PRE), granted: has(GRANTED), committed: rest.place()? },
        6 => Body::Heartbeat {
            committed: rest.index()?,
            all: rest.index()?,
            stamp: Stamp(rest.u64()?),
            round: rest.round(has(WITH_ROUND))?,
        },
        7 => Body::Heard { committed: rest.index()?, stamp: Stamp(rest.u64()?), round: rest.round(has(WITH_ROUND))? },
        8 => Body::Install(rest.mark()?),
        9 => Body::TakeOver,
        kind => return Err(CodecError::Kind(kind)),
    };
    if !rest.0.is_empty() {
        return Err(CodecError::Long);
    }
    Ok((group, Message { from, to, term, body }))
}

/// Takes fields off the start of a message.
struct Reader(Bytes);

impl Reader {
    fn take(&mut self, len: usize) -> Result<Bytes, CodecError> {
        if len > self.0.len() {
            return Err(CodecError::Short);
        }
        Ok(self.0.split_to(len))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let taken = self.take(N)?;
        let mut array = [0; N];
        array.copy_from_slice(&taken);
        Ok(array)
    }

    fn u32(&mut self) -> Result<u32, CodecError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, CodecError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn index(&mut self) -> Result<Index, CodecError> {
        Ok(Index(self.u64()?))
    }

    fn place(&mut self) -> Result<(Index, Term), CodecError> {
        Ok((self.index()?, Term(self.u64()?)))
    }

    fn round(&mut self, is_there: bool) -> Result<Option<Round>, CodecError> {
        if !is_there {
            return Ok(None);
        }
        Ok(Some(Round { term: Term(self.u64()?), number: self.u64()? }))
    }

    fn entries(&mut self) -> Result<Vec<SentEntry>, CodecError> {
        let mut entries = Vec::new();
        while !self.0.is_empty() {
            let [kind, zeros @ ..] = self.array::<4>()?;
            let len = self.u32()? as usize;
            let term = Term(self.u64()?);
            let payload = self.take(len)?;
            let payload = match kind {
                0 if payload.is_empty() => Payload::Start,
                0 => return Err(CodecError::Flags),
                1 => Payload::Block(Block::read(payload)?),
                2 => Payload::Change(MemberChange::read(&payload).ok_or(CodecError::Members)?),
                kind => return Err(CodecError::Entry(kind)),
            };
            if zeros != [0; 3] {
                return Err(CodecError::Flags);
            }
            entries.push(SentEntry { term, payload });
        }
        Ok(entries)
    }

    fn mark(&mut self) -> Result<Mark, CodecError> {
        let (index, term) = self.place()?;
        let link = Link { lsn: Lsn::new(self.u64()?), crc: self.u32()? };
        let serial = self.u64()?;
        let mut bytes = &self.0[..];
        let members = Members::take(&mut bytes).ok_or(CodecError::Members)?;
        let read = self.0.len() - bytes.len();
        self.take(read)?;
        Ok(Mark { at: Position { index, term, link }, members, serial })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::log::replicated::block::tests::block;
    use crate::log::replicated::members::tests::{home_of, joining};

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn place() -> impl Strategy<Value = (Index, Term)> {
        any::<(u64, u64)>().prop_map(|(index, term)| (Index(index), Term(term)))
    }

    fn round() -> impl Strategy<Value = Option<Round>> {
        any::<Option<(u64, u64)>>().prop_map(|round| round.map(|(term, number)| Round { term: Term(term), number }))
    }

    fn payload() -> impl Strategy<Value = Payload> {
        let changes = [joining, MemberChange::Promote, MemberChange::Remove];
        let blocks = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..4).prop_map(|units| {
            let units: Vec<&[u8]> = units.iter().map(Vec::as_slice).collect();
            Payload::Block(block(5, Link { lsn: Lsn::new(8), crc: 1 }, &units))
        });
        prop_oneof![
            Just(Payload::Start),
            blocks,
            (0..3_usize, 1..u64::MAX).prop_map(move |(kind, id)| Payload::Change(changes[kind](node(id)))),
        ]
    }

    fn nodes() -> impl Strategy<Value = Vec<NodeId>> {
        prop::collection::btree_set(1..u64::MAX, 0..5).prop_map(|nodes| nodes.into_iter().map(node).collect())
    }

    fn members() -> impl Strategy<Value = Members> {
        (nodes(), nodes()).prop_map(|(voters, mut learners)| {
            learners.retain(|node| !voters.contains(node));
            let homes = learners.iter().map(|node| (*node, home_of(*node))).collect();
            Members { voters, learners, homes, ..Members::default() }
        })
    }

    fn mark() -> impl Strategy<Value = Mark> {
        (place(), any::<(u64, u32, u64)>(), members()).prop_map(|(place, numbers, members)| Mark {
            at: Position { index: place.0, term: place.1, link: Link { lsn: Lsn::new(numbers.0), crc: numbers.1 } },
            members,
            serial: numbers.2,
        })
    }

    fn body() -> impl Strategy<Value = Body> {
        let index = || any::<u64>().prop_map(Index);
        let stamp = || any::<u64>().prop_map(Stamp);
        let entry = (any::<u64>().prop_map(Term), payload()).prop_map(|(term, payload)| SentEntry { term, payload });
        let entries = prop::collection::vec(entry, 0..4);
        prop_oneof![
            (place(), entries, index()).prop_map(|(after, entries, committed)| Body::Append {
                after,
                entries,
                committed
            }),
            (index(), index()).prop_map(|(index, committed)| Body::Appended { index, committed }),
            (index(), place(), index()).prop_map(|(index, hint, committed)| Body::Refused { index, hint, committed }),
            (any::<(bool, bool)>(), place(), place()).prop_map(|((pre, forced), last, committed)| Body::Stand {
                pre,
                last,
                committed,
                forced
            }),
            (any::<(bool, bool)>(), place()).prop_map(|((pre, granted), committed)| Body::Vote {
                pre,
                granted,
                committed
            }),
            (index(), round(), index(), stamp()).prop_map(|(committed, round, all, stamp)| Body::Heartbeat {
                committed,
                round,
                all,
                stamp
            }),
            (index(), round(), stamp()).prop_map(|(committed, round, stamp)| Body::Heard { committed, round, stamp }),
            mark().prop_map(Body::Install),
            Just(Body::TakeOver),
        ]
    }

    fn encoded(group: u32, message: &Message) -> Bytes {
        let mut bytes = Vec::new();
        encode(GroupId(group), message, &mut bytes);
        bytes.into()
    }

    proptest! {
        #[test]
        fn a_message_is_read_as_it_was_written(group: u32, term: u64, body in body()) {
            let message = Message { from: node(1), to: node(2), term: Term(term), body };
            let bytes = encoded(group, &message);
            prop_assert_eq!(decode(bytes, node(1), node(2)), Ok((GroupId(group), message)));
        }

        /// A message that is cut short is refused, or, between two entries, is a message with fewer of them.
        #[test]
        fn a_message_that_is_cut_short_is_refused(body in body(), cut in 1..200_usize) {
            let message = Message { from: node(1), to: node(2), term: Term(3), body };
            let bytes = encoded(0, &message);
            let short = decode(bytes.slice(..bytes.len().saturating_sub(cut)), node(1), node(2));
            let is_append = matches!(&short, Ok((_, Message { body: Body::Append { .. }, .. })));
            prop_assert!(is_append || short.is_err(), "{:?}", short);
        }

        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0..12_u8) {
            if let Some(at) = bytes.get_mut(4..8) {
                at.copy_from_slice(&[kind, at[1] % 16, 0, 0]);
            }
            if let Ok((group, message)) = decode(bytes.clone().into(), node(1), node(2)) {
                prop_assert_eq!(&encoded(group.0, &message)[..], &bytes[..], "each message has one form");
            }
        }
    }

    #[test]
    fn what_no_node_sends_is_refused() {
        let message = |body| Message { from: node(1), to: node(2), term: Term(3), body };
        let heard = encoded(0, &message(Body::Heard { committed: Index(1), round: None, stamp: Stamp(2) })).to_vec();
        let read = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = heard.clone();
            change(&mut bytes);
            decode(bytes.into(), node(1), node(2)).err()
        };
        assert_eq!(read(&|_| {}), None);
        assert_eq!(read(&|bytes| bytes[4] = 10), Some(CodecError::Kind(10)));
        assert_eq!(read(&|bytes| bytes[5] = PRE), Some(CodecError::Flags));
        assert_eq!(read(&|bytes| bytes[5] = WITH_ROUND), Some(CodecError::Short));
        assert_eq!(read(&|bytes| bytes.push(0)), Some(CodecError::Long));
        let members = Members { voters: vec![node(5), node(4)], ..Members::default() };
        let install = encoded(0, &message(Body::Install(Mark { members, ..Mark::default() })));
        assert_eq!(decode(install, node(1), node(2)), Err(CodecError::Members), "nodes out of order");
        let payload = Payload::Start;
        let entries = vec![SentEntry { term: Term(1), payload }];
        let append = Body::Append { after: Default::default(), entries, committed: Index(0) };
        let mut bytes = encoded(0, &message(append)).to_vec();
        bytes[40] = 7;
        assert_eq!(decode(bytes.into(), node(1), node(2)), Err(CodecError::Entry(7)));
    }
}
