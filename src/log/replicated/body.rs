//! The bodies of everything in the log of a group that has no units, and entries read from bodies. docs/log-format.md
//! is the specification.

use bytes::Bytes;

use super::block::Block;
use super::entry::{Entry, Payload};
use super::members::MemberChange;
use super::types::{Ballot, Index, NodeId, Term};
use crate::base::lsn::Lsn;
use crate::log::block::format::{BALLOT_BYTES, CHANGE_HEAD_BYTES, START_BYTES, UNITS_HEAD_BYTES};
use crate::log::block::{Damage, format, u64_at};

/// Returns the body of an entry that lies before the unit `next`.
pub(super) fn of_entry(entry: &Entry, next: Lsn) -> Bytes {
    match &entry.payload {
        Payload::Block(block) => block.body().clone(),
        Payload::Start => head::<START_BYTES>(format::START, next, entry.term).to_vec().into(),
        Payload::Change(change) => {
            let mut body = head::<CHANGE_HEAD_BYTES>(format::CHANGE, next, entry.term).to_vec();
            change.encode(&mut body);
            body.into()
        }
    }
}

/// Returns the body of a ballot that lies before the unit `next`.
pub(super) fn of_ballot(ballot: Ballot, next: Lsn) -> Bytes {
    let mut body = head::<BALLOT_BYTES>(format::BALLOT, next, ballot.term);
    body[32..40].copy_from_slice(&ballot.vote.map_or(0, NodeId::get).to_le_bytes());
    body.to_vec().into()
}

/// Returns the body of the mark of a clean end, which lies before the unit `next`.
pub(super) fn of_end(next: Lsn) -> [u8; UNITS_HEAD_BYTES] {
    let mut body = [0; UNITS_HEAD_BYTES];
    body[0] = format::UNITS;
    body[8..16].copy_from_slice(&next.get().to_le_bytes());
    body
}

fn head<const BYTES: usize>(format: u8, next: Lsn, term: Term) -> [u8; BYTES] {
    let mut body = [0; BYTES];
    body[0] = format;
    body[8..16].copy_from_slice(&next.get().to_le_bytes());
    body[24..32].copy_from_slice(&term.0.to_le_bytes());
    body
}

/// Returns the entry in this body, which lies at `index`; `None` if the body is a ballot.
pub(super) fn entry_in(body: &[u8], index: Index) -> Result<Option<Entry>, Damage> {
    let (term, payload) = match body.first() {
        Some(&format::BLOCK) => {
            let block = Block::read(Bytes::copy_from_slice(body)).map_err(|_| Damage::Units)?;
            (block.reign, Payload::Block(block))
        }
        Some(&format::START) => (Term(u64_at(whole::<START_BYTES>(body)?, 24)), Payload::Start),
        Some(&format::CHANGE) => {
            let (head, change) = body.split_first_chunk::<CHANGE_HEAD_BYTES>().ok_or(Damage::Units)?;
            (Term(u64_at(head, 24)), Payload::Change(MemberChange::read(change).ok_or(Damage::Units)?))
        }
        Some(&format::BALLOT) => return whole::<BALLOT_BYTES>(body).map(|_| None),
        _ => return Err(Damage::Units),
    };
    Ok(Some(Entry { index, term, payload }))
}

fn whole<const BYTES: usize>(body: &[u8]) -> Result<&[u8; BYTES], Damage> {
    body.try_into().map_err(|_| Damage::Units)
}

#[cfg(test)]
mod tests {
    use super::super::block::tests::block;
    use super::super::members::tests::joining;
    use super::super::types::Link;
    use super::*;

    #[test]
    fn an_entry_reads_back_from_its_body() {
        let node = NodeId::new(7).unwrap();
        let changes = [joining(node), MemberChange::Promote(node), MemberChange::Remove(node)];
        let block = block(3, Link { lsn: Lsn::new(8), crc: 5 }, &[b"one", b"two"]);
        let payloads = [Payload::Start, Payload::Block(block)].into_iter().chain(changes.map(Payload::Change));
        for payload in payloads {
            let entry = Entry { index: Index(4), term: Term(3), payload };
            assert_eq!(entry_in(&of_entry(&entry, Lsn::new(9)), Index(4)), Ok(Some(entry)));
        }
        let ballot = Ballot { term: Term(3), vote: Some(node) };
        assert_eq!(entry_in(&of_ballot(ballot, Lsn::new(9)), Index(4)), Ok(None));
    }

    #[test]
    fn other_bodies_are_damage() {
        let change = Payload::Change(MemberChange::Remove(NodeId::new(7).unwrap()));
        let body = of_entry(&Entry { index: Index(4), term: Term(3), payload: change }, Lsn::new(9)).to_vec();
        let mut unknown = body.clone();
        unknown[32] = 9;
        let mut nobody = body.clone();
        nobody[40] = 0;
        for body in [&[][..], &[9; 48], &body[..47], &body[..31], &unknown, &nobody] {
            assert_eq!(entry_in(body, Index(4)), Err(Damage::Units), "{body:?}");
        }
    }
}
