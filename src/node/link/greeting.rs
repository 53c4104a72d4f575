//! The greeting with which a connection begins, in both directions. The node that dials speaks first.
//!
//! | Offset | Bytes | Field |
//! |--:|--:|---|
//! | 0 | 8 | `TIDEGATE` |
//! | 8 | 2 | bytes that follow; a later version may append fields, which this one passes over |
//! | 10 | 1 | purpose of the connection: 1 messages, 2 a snapshot |
//! | 11 | 1 | verdict, in the answer: 0 welcome, 1 not a peer, 2 another purpose, 3 another birth |
//! | 12 | 12 | oldest and newest version of the protocol, of the log and of the effects, 2 bytes each |
//! | 24 | 4 | group |
//! | 28 | 8 | node that speaks |
//! | 36 | 8 | node that it means to speak to |
//! | 44 | 8 | birth of the node that speaks |
//! | 52 | 16 | history of the group; zeros while unknown |
//! | 68 | 6 | ports of the node that speaks: for clients, for nodes, of Sentinel (0: none), 2 bytes each |
//! | 74 | 1 + n | bytes of its host, and the host |
//!
//! All numbers are little-endian. Both ends compare the two greetings in the same way, so both know why they do not fit
//! and can say so. Only what one end alone can know is told by the verdict.

use std::fmt;
use std::num::NonZeroU64;

use super::limits::GREETING_MAX_BYTES;
use super::settings::{Agreed, Contact, Identity, LinkSettings, VersionRange, Versions};
use crate::base::node_address::NodeAddress;
use crate::log::replicated::members::{Birth, History};
use crate::log::replicated::types::{GroupId, NodeId};

const MAGIC: [u8; 8] = *b"TIDEGATE";

/// Bytes up to the length, and bytes that this version knows behind it, without the host.
pub(super) const HEAD_BYTES: usize = 10;
const BODY_BYTES: usize = 65;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It carries messages of consensus.
    Messages,
    /// It carries one snapshot.
    Snapshot,
    /// A purpose of a later version.
    Unknown(u8),
}

impl Purpose {
    fn code(self) -> u8 {
        match self {
            Purpose::Messages => 1,
            Purpose::Snapshot => 2,
            Purpose::Unknown(code) => code,
        }
    }

    fn of(code: u8) -> Purpose {
        let known = [Purpose::Messages, Purpose::Snapshot];
        known.into_iter().find(|purpose| purpose.code() == code).unwrap_or(Purpose::Unknown(code))
    }
}

/// Why bytes are not a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GreetingError {
    #[error("the other end is no node of Tidegate, or only one of the two uses TLS")]
    Magic,
    #[error("the greeting has {0} bytes")]
    Length(usize),
    #[error("the greeting names node 0")]
    Node,
    #[error("the greeting states no birth")]
    Birth,
    #[error("the greeting states no address")]
    Address,
}

/// Why two nodes can't talk. The text is right at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Mismatch {
    #[error(
        "node {node} has version {theirs} of {subject}, and this node version {own}: upgrade the one that is behind, \
         by way of a release that has a version in common with both"
    )]
    Version { subject: &'static str, own: VersionRange, node: NodeId, theirs: VersionRange },
    #[error("node {node} belongs to group {}, and this node to group {}: correct its address", theirs.0, own.0)]
    Group { own: GroupId, node: NodeId, theirs: GroupId },
    #[error("node {0} belongs to another group with the same number: correct its address, or give each group its own")]
    History(NodeId),
    #[error("the connection is meant for node {meant}, but leads to node {is}: correct the addresses of the nodes")]
    Node { meant: NodeId, is: NodeId },
}

/// How a node that was dialled answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Welcome,
    NoPeer,
    Purpose,
    Birth,
    /// A reason of a later version.
    Unknown(u8),
}

impl Verdict {
    fn code(self) -> u8 {
        match self {
            Verdict::Welcome => 0,
            Verdict::NoPeer => 1,
            Verdict::Purpose => 2,
            Verdict::Birth => 3,
            Verdict::Unknown(code) => code,
        }
    }

    fn of(code: u8) -> Verdict {
        let known = [Verdict::Welcome, Verdict::NoPeer, Verdict::Purpose, Verdict::Birth];
        known.into_iter().find(|verdict| verdict.code() == code).unwrap_or(Verdict::Unknown(code))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Welcome => f.write_str("welcome"),
            Verdict::NoPeer => f.write_str("it does not count the dialling node among its peers"),
            Verdict::Purpose => f.write_str("it does not know the purpose of the connection"),
            Verdict::Birth => f.write_str(
                "the directory of the node that was refused is not the one that joined the group: remove that node \
                 from the group, and let it join again under a new number",
            ),
            Verdict::Unknown(code) => write!(f, "reason {code}, which this version of Tidegate does not know"),
        }
    }
}

/// What the other end of a connection has said in its greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Greeted {
    pub(crate) node: NodeId,
    pub(crate) identity: Identity,
    pub(crate) contact: Contact,
    pub(crate) agreed: Agreed,
}

/// See the module's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) purpose: Purpose,
    pub(super) verdict: Verdict,
    versions: Versions,
    group: GroupId,
    pub(super) from: NodeId,
    to: NodeId,
    pub(super) identity: Identity,
    contact: Contact,
}

impl Greeting {
    /// Returns the greeting of this node to another.
    pub(super) fn of(
        settings: &LinkSettings,
        identity: Identity,
        to: NodeId,
        purpose: Purpose,
        verdict: Verdict,
    ) -> Greeting {
        let LinkSettings { group, node, versions, .. } = *settings;
        Greeting { purpose, verdict, versions, group, from: node, to, identity, contact: settings.contact.clone() }
    }

    /// Returns what the other end has said, by its greeting.
    pub(super) fn said(self, agreed: Agreed) -> Greeted {
        Greeted { node: self.from, identity: self.identity, contact: self.contact, agreed }
    }

    /// Compares the greeting of this node with that of the other end.
    pub(super) fn agree(&self, theirs: &Greeting) -> Result<Agreed, Mismatch> {
        let node = theirs.from;
        let common = |subject, own: VersionRange, theirs: VersionRange| {
            own.common(theirs).ok_or(Mismatch::Version { subject, own, node, theirs })
        };
        let protocol = common("the protocol", self.versions.protocol, theirs.versions.protocol)?;
        if self.group != theirs.group {
            return Err(Mismatch::Group { own: self.group, node, theirs: theirs.group });
        }
        if self.identity.history.is_other_than(theirs.identity.history) {
            return Err(Mismatch::History(node));
        }
        for (meant, is) in [(self.to, theirs.from), (theirs.to, self.from)] {
            if meant != is {
                return Err(Mismatch::Node { meant, is });
            }
        }
        let log = common("the log", self.versions.log, theirs.versions.log)?;
        let effects = common("the effects", self.versions.effects, theirs.versions.effects)?;
        Ok(Agreed { protocol, log, effects })
    }

    /// Returns the bytes that are sent.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let Versions { protocol, log, effects } = self.versions;
        let versions = [protocol, log, effects].into_iter().flat_map(|range| [range.oldest, range.newest]);
        let Contact { address, sentinel_port } = &self.contact;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(((BODY_BYTES + address.host().len()) as u16).to_le_bytes());
        bytes.extend([self.purpose.code(), self.verdict.code()]);
        bytes.extend(versions.flat_map(u16::to_le_bytes));
        bytes.extend(self.group.0.to_le_bytes());
        bytes.extend(self.from.get().to_le_bytes());
        bytes.extend(self.to.get().to_le_bytes());
        bytes.extend(self.identity.birth.0.get().to_le_bytes());
        bytes.extend(self.identity.history.0);
        bytes.extend([address.port, address.node_port, *sentinel_port].into_iter().flat_map(u16::to_le_bytes));
        bytes.push(address.host().len() as u8);
        bytes.extend(address.host().as_bytes());
        bytes
    }

    /// Returns the number of bytes that follow the head.
    pub(super) fn len(head: &[u8; HEAD_BYTES]) -> Result<usize, GreetingError> {
        let mut rest = &head[..];
        if take(&mut rest) != MAGIC {
            return Err(GreetingError::Magic);
        }
        let len = usize::from(u16::from_le_bytes(take(&mut rest)));
        let is_sound = (BODY_BYTES..=GREETING_MAX_BYTES).contains(&len);
        if is_sound { Ok(len) } else { Err(GreetingError::Length(len)) }
    }

    /// Reads the bytes behind the head. Those behind the known fields are passed over.
    pub(super) fn parse(body: &[u8]) -> Result<Greeting, GreetingError> {
        let (mut rest, behind) = body.split_at_checked(BODY_BYTES).ok_or(GreetingError::Length(body.len()))?;
        let [purpose, verdict] = take(&mut rest);
        let mut range = || VersionRange {
            oldest: u16::from_le_bytes(take(&mut rest)),
            newest: u16::from_le_bytes(take(&mut rest)),
        };
        let versions = Versions { protocol: range(), log: range(), effects: range() };
        let group = GroupId(u32::from_le_bytes(take(&mut rest)));
        let mut node = || NodeId::new(u64::from_le_bytes(take(&mut rest))).ok_or(GreetingError::Node);
        let (from, to) = (node()?, node()?);
        let birth = NonZeroU64::new(u64::from_le_bytes(take(&mut rest))).ok_or(GreetingError::Birth)?;
        let identity = Identity { birth: Birth(birth), history: History(take(&mut rest)) };
        let mut port = || u16::from_le_bytes(take(&mut rest));
        let [port, node_port, sentinel_port] = [port(), port(), port()];
        let [host_bytes] = take(&mut rest);
        let host = behind.get(..host_bytes.into()).and_then(|host| str::from_utf8(host).ok());
        let address = host.and_then(|host| NodeAddress::new(host, port, node_port)).ok_or(GreetingError::Address)?;
        let (purpose, contact) = (Purpose::of(purpose), Contact { address, sentinel_port });
        Ok(Greeting { purpose, verdict: Verdict::of(verdict), versions, group, from, to, identity, contact })
    }
}

/// Takes an array off the start of bytes, which must be there: the lengths above are constants.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (array, behind) = rest.split_first_chunk().expect("the fields fit the length");
    *rest = behind;
    *array
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn range(oldest: u16, newest: u16) -> VersionRange {
        VersionRange { oldest, newest }
    }

    fn identity(history: u8) -> Identity {
        Identity { birth: Birth(NonZeroU64::MAX), history: History([history; 16]) }
    }

    fn greeting(from: u64, to: u64) -> Greeting {
        Greeting {
            purpose: Purpose::Messages,
            verdict: Verdict::Welcome,
            versions: Versions { protocol: range(1, 2), log: range(2, 2), effects: range(3, 9) },
            group: GroupId(7),
            from: node(from),
            to: node(to),
            identity: identity(0),
            contact: Contact { address: format!("host-{from}:1@2").parse().unwrap(), sentinel_port: 3 },
        }
    }

    fn parse(bytes: &[u8]) -> Result<Greeting, GreetingError> {
        assert_eq!(Greeting::len(bytes.first_chunk().unwrap()), Ok(bytes.len() - HEAD_BYTES));
        Greeting::parse(&bytes[HEAD_BYTES..])
    }

    #[test]
    fn a_greeting_is_read_as_it_was_written() {
        for verdict in [Verdict::Welcome, Verdict::NoPeer, Verdict::Purpose, Verdict::Birth, Verdict::Unknown(9)] {
            let greeting = Greeting { verdict, identity: identity(5), ..greeting(1, 2) };
            assert_eq!(parse(&greeting.bytes()), Ok(greeting));
        }
        for purpose in [Purpose::Messages, Purpose::Snapshot, Purpose::Unknown(9)] {
            let greeting = Greeting { purpose, ..greeting(1, 2) };
            assert_eq!(parse(&greeting.bytes()), Ok(greeting));
        }
        let mut bytes = greeting(1, 2).bytes();
        assert_eq!(bytes.len(), HEAD_BYTES + BODY_BYTES + "host-1".len());
        bytes[28..36].fill(0);
        assert_eq!(parse(&bytes), Err(GreetingError::Node));
        let mut bytes = greeting(1, 2).bytes();
        bytes[44..52].fill(0);
        assert_eq!(parse(&bytes), Err(GreetingError::Birth));
        for (at, byte) in [(68, 0), (70, 0), (74, 0), (74, 200), (75, b' '), (75, 0xff)] {
            let mut bytes = greeting(1, 2).bytes();
            bytes[at] = byte;
            assert_eq!(parse(&bytes), Err(GreetingError::Address), "{at}");
        }
    }

    #[test]
    fn fields_of_a_later_version_are_passed_over() {
        let mut bytes = greeting(1, 2).bytes();
        bytes.extend(b"more");
        bytes[8] += 4;
        assert_eq!(parse(&bytes), Ok(greeting(1, 2)));
    }

    #[test]
    fn other_bytes_are_no_greeting() {
        assert_eq!(Greeting::len(b"GET / HTTP"), Err(GreetingError::Magic));
        for len in [0, BODY_BYTES - 1, GREETING_MAX_BYTES + 1, usize::from(u16::MAX)] {
            let head = [&MAGIC[..], &(len as u16).to_le_bytes()].concat();
            assert_eq!(Greeting::len(head[..].try_into().unwrap()), Err(GreetingError::Length(len)));
        }
        assert_eq!(Greeting::parse(&[1; BODY_BYTES - 1]), Err(GreetingError::Length(BODY_BYTES - 1)));
        let mut rng = Rng::seeded(1);
        for _ in 0..1_000 {
            let bytes: Vec<u8> = (0..BODY_BYTES + 10).map(|_| rng.next_u64() as u8).collect();
            // Whatever is read fits no greeting of ours.
            assert!(Greeting::parse(&bytes).map_or(true, |theirs| greeting(1, 2).agree(&theirs).is_err()));
        }
    }

    #[test]
    fn the_newest_common_versions_are_used() {
        let mut theirs = greeting(2, 1);
        theirs.versions = Versions { protocol: range(2, 5), log: range(1, 4), effects: range(1, 3) };
        let agreed = Agreed { protocol: 2, log: 2, effects: 3 };
        assert_eq!(greeting(1, 2).agree(&theirs), Ok(agreed));
        assert_eq!(theirs.agree(&greeting(1, 2)), Ok(agreed));
    }

    #[test]
    fn both_ends_refuse_what_does_not_fit() {
        let refused = |change: &dyn Fn(&mut Greeting)| {
            let (own, mut theirs) = (greeting(1, 2), greeting(2, 1));
            change(&mut theirs);
            assert!(theirs.agree(&own).is_err());
            own.agree(&theirs).expect_err("they do not fit").to_string()
        };
        assert_eq!(
            refused(&|theirs| theirs.versions.protocol = range(3, 4)),
            "node 2 has version 3 to 4 of the protocol, and this node version 1 to 2: upgrade the one that is behind, \
             by way of a release that has a version in common with both"
        );
        assert!(refused(&|theirs| theirs.versions.log = range(1, 1)).contains("version 1 of the log"));
        assert!(refused(&|theirs| theirs.versions.effects = range(1, 2)).contains("of the effects"));
        assert!(refused(&|theirs| theirs.versions.effects = range(5, 4)).contains("of the effects"), "no range");
        assert_eq!(
            refused(&|theirs| theirs.group = GroupId(8)),
            "node 2 belongs to group 8, and this node to group 7: correct its address"
        );
        let meant_for = "the connection is meant for node 2, but leads to node 3: correct the addresses of the nodes";
        assert_eq!(refused(&|theirs| theirs.from = node(3)), meant_for);
        assert!(refused(&|theirs| theirs.to = node(5)).starts_with("the connection is meant for node 5"));
    }

    #[test]
    fn a_history_fits_itself_and_one_that_is_unknown() {
        let with = |bytes| Greeting { identity: identity(bytes), ..greeting(1, 2) };
        let theirs = |bytes| Greeting { identity: identity(bytes), ..greeting(2, 1) };
        assert!(with(5).agree(&theirs(5)).is_ok() && with(5).agree(&theirs(0)).is_ok());
        assert!(with(0).agree(&theirs(5)).is_ok() && with(0).agree(&theirs(0)).is_ok());
        assert_eq!(with(5).agree(&theirs(6)), Err(Mismatch::History(node(2))));
    }
}
