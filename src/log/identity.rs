//! The identity of a directory, and its owner.

use std::fmt;
use std::num::NonZeroU64;

use sha2::{Digest as _, Sha256};

use super::replicated::members::Birth;
use super::replicated::types::{GroupId, NodeId};
use crate::base::rng::Rng;

/// Identity of a directory, which each of its files states.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DirectoryId([u8; 16]);

impl DirectoryId {
    /// Makes an identity of random bytes.
    pub const fn new(bytes: [u8; 16]) -> DirectoryId {
        DirectoryId(bytes)
    }

    /// Draws an identity.
    pub(crate) fn random(rng: &mut Rng) -> DirectoryId {
        let id = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        DirectoryId(id.to_be_bytes())
    }

    pub(super) fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns the number by which the group knows the directory of a node. The identity does not follow from it.
    pub(crate) fn birth(&self) -> Birth {
        let digest: [u8; 32] = Sha256::digest([b"tidegate birth ", &self.0[..]].concat()).into();
        let number = digest.first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
        Birth(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
    }

    /// Parses the output of [`fmt::Display`].
    pub(super) fn parse(text: &str) -> Option<DirectoryId> {
        let bytes = u128::from_str_radix(text, 16).ok()?.to_be_bytes();
        (DirectoryId(bytes).to_string() == text).then_some(DirectoryId(bytes))
    }
}

impl fmt::Display for DirectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Who writes a directory, from its first file to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A single server.
    Server,
    /// A node of a group. With another number it would answer for votes that it does not know.
    Node { group: GroupId, node: NodeId },
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Server => f.write_str("a single server"),
            Owner::Node { group, node } => write!(f, "node {node} of group {}", group.0),
        }
    }
}

/// The content of the file that says whose directory this is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) id: DirectoryId,
    pub(super) owner: Owner,
}

const SERVER: &str = "tidegate directory 1 ";
const NODE: &str = "tidegate directory 2 ";

impl Identity {
    /// Returns the text of the file.
    pub(super) fn text(&self) -> String {
        match self.owner {
            Owner::Server => format!("{SERVER}{}\n", self.id),
            Owner::Node { group, node } => format!("{NODE}{} group {} node {node}\n", self.id, group.0),
        }
    }

    /// Reads the text of the file.
    pub(super) fn parse(text: &str) -> Option<Identity> {
        let line = text.strip_suffix('\n')?;
        let identity = match line.strip_prefix(SERVER) {
            Some(id) => Identity { id: DirectoryId::parse(id)?, owner: Owner::Server },
            None => {
                let (id, owner) = line.strip_prefix(NODE)?.split_once(" group ")?;
                let (group, node) = owner.split_once(" node ")?;
                let owner = Owner::Node { group: GroupId(group.parse().ok()?), node: NodeId::new(node.parse().ok()?)? };
                Identity { id: DirectoryId::parse(id)?, owner }
            }
        };
        // Numbers have one form only.
        (identity.text() == text).then_some(identity)
    }
}

/// The identity is the key to the checksums, so it must not appear in debugging output.
impl fmt::Debug for DirectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectoryId(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_has_its_own_birth() {
        // The first bytes that `sha256sum` gives, as a little-endian number.
        assert_eq!(DirectoryId::new([0x11; 16]).birth().0.get(), 0x7e8c_7bc9_0542_7058);
        assert_ne!(DirectoryId::new([0x12; 16]).birth().0.get(), 0x7e8c_7bc9_0542_7058);
    }

    #[test]
    fn the_text_of_an_identity_reads_back_in_one_form_only() {
        let id = DirectoryId::new([0xab; 16]);
        let hex = "ab".repeat(16);
        let node = |group, node| Owner::Node { group: GroupId(group), node: NodeId::new(node).unwrap() };
        let texts = [
            (Owner::Server, format!("tidegate directory 1 {hex}\n")),
            (node(0, 3), format!("tidegate directory 2 {hex} group 0 node 3\n")),
            (node(7, u64::MAX), format!("tidegate directory 2 {hex} group 7 node 18446744073709551615\n")),
        ];
        for (owner, text) in texts {
            let identity = Identity { id, owner };
            assert_eq!(identity.text(), text);
            assert!(Identity::parse(&text) == Some(identity), "{text}");
        }
        for end in
            ["", "\n", " group 0 node 0\n", " group 0 node 03\n", " group +0 node 3\n", " group 0\n", " node 3\n"]
        {
            assert!(Identity::parse(&format!("tidegate directory 2 {hex}{end}")).is_none(), "{end:?}");
        }
        assert!(Identity::parse(&format!("tidegate directory 3 {hex}\n")).is_none());
    }
}
