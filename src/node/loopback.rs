//! Nodes under test: on loopback, without security, with small segments and little memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use super::link::settings::{Contact, Deadlines, PROTOCOL, Security, VersionRange, Versions};
use super::thread::NodeSettings;
use super::turns::Bounds;
use crate::base::node_address::NodeAddress;
use crate::base::rng::Rng;
use crate::log::directory::{Directory, DirectoryId};
use crate::log::group_commit::Options;
use crate::log::identity::Owner;
use crate::log::platform::Platform;
use crate::log::replicated::types::{GroupId, NodeId};

/// Nodes of one group, and of one process.
const NODES_MAX: u64 = 8;

/// The addresses of one group. No other group has them, so that no two nodes listen on the same one.
pub(crate) struct Hosts(u64);

impl Hosts {
    pub(crate) fn take() -> Hosts {
        static GROUPS: AtomicU8 = AtomicU8::new(0);
        Hosts(u64::from(GROUPS.fetch_add(1, Ordering::Relaxed)))
    }

    /// Returns the address of a node, whose number is at most [`NODES_MAX`].
    pub(crate) fn address(&self, number: u64) -> NodeAddress {
        assert!((1..=NODES_MAX).contains(&number));
        let [.., high, low] = std::process::id().to_be_bytes();
        let host = u8::try_from(self.0 * NODES_MAX + number).expect("few groups");
        NodeAddress::new(&format!("127.{high}.{low}.{host}"), 6379, 16379).unwrap()
    }
}

/// Opens the directory of a node at `path`, and returns it with the node's settings.
pub(crate) fn open(
    node: NodeId,
    address: NodeAddress,
    founders: BTreeMap<NodeId, NodeAddress>,
    path: &Path,
) -> (NodeSettings, Arc<Directory>) {
    let mut rng = Rng::from_entropy();
    // That of a directory which already exists stays.
    let id = (u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())).to_be_bytes();
    let owner = Owner::Node { group: GroupId(0), node };
    let platform = Platform {
        options: Options { segment_bytes: 256 * 1024, first_segment_bytes: 64 * 1024, ..Options::default() },
        ..Platform::default()
    };
    let directory = Directory::open_as(owner, Arc::clone(&platform.disk), path, DirectoryId::new(id));
    let one = VersionRange { oldest: 1, newest: 1 };
    let settings = NodeSettings {
        group: GroupId(0),
        node,
        listen: address.for_nodes(),
        contact: Contact { address, sentinel_port: 0 },
        founders,
        security: Security::Plain,
        deadlines: Deadlines::default(),
        versions: Versions { protocol: PROTOCOL, log: one, effects: one },
        bounds: Bounds {
            keep_bytes: 0,
            // What is older is read from the files.
            memory_bytes: 1024,
            engine_stuck_after: Duration::from_secs(10),
            disk_stuck_after: Duration::from_secs(10),
        },
        platform,
    };
    (settings, Arc::new(directory.expect("nobody else has it")))
}
