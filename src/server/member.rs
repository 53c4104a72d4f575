//! Starts this server as a node of a group, as the configuration asks.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::base::node_address::NodeAddress;
use crate::base::rng::Rng;
use crate::config::{AppendFsync, Config};
use crate::consensus::limits::MEMORY_BYTES;
use crate::engine::Engine;
use crate::engine::persistence::following::Following;
use crate::log::directory::{Directory, DirectoryId};
use crate::log::group_commit::{Options, SyncPolicy};
use crate::log::identity::Owner;
use crate::log::platform::Platform;
use crate::log::replicated::types::{GroupId, NodeId};
use crate::node::door::Door;
use crate::node::error::NodeError;
use crate::node::link::settings::{Contact, Deadlines, PROTOCOL, Security, VersionRange, Versions};
use crate::node::thread::{NodeSettings, NodeThread};
use crate::node::turns::Bounds;
use crate::persist::limits::DISK_STUCK_AFTER;
use crate::persist::tail::EFFECTS_FORMAT;

/// The formats of the log's bodies that this program reads and writes.
const LOG_FORMATS: VersionRange = VersionRange { oldest: 2, newest: 2 };

/// Why this server can't be a node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemberError {
    #[error("`nodes` names a group, but `node-id` does not say which of its nodes this is")]
    NoNumber,
    #[error("this is to be a node, but `nodes` names no group: give it the nodes that found the group")]
    NoNodes,
    #[error("node {0} is not in `nodes`, so it joins a group: say with `node-announce` where the others reach it")]
    NoAddress(u64),
    #[error(
        "a node has each change on disk before its reply leaves: it needs `appendonly yes` and `appendfsync always`"
    )]
    NotDurable,
    #[error(
        "a node is reached where `nodes` or `node-announce` says: leave out `cluster-announce-ip` and \
         `cluster-announce-port`"
    )]
    TwoAddresses,
    #[error("a certificate between nodes needs `node-tls-cert-file`, `node-tls-key-file` and `node-tls-ca-cert-file`")]
    HalfCertified,
    #[error("give the nodes a secret or certificates, not both")]
    TwoProofs,
    #[error(
        "`sentinel-port` names the leader of a group, and this server is in none: leave it out, or make this server a \
         node with `node-id` and `nodes`"
    )]
    NoGroup,
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// The number of this node, if the configuration makes this server one.
pub(super) fn node_of(config: &Config) -> Result<Option<NodeId>, MemberError> {
    match (NodeId::new(config.node_id), config.nodes.is_empty()) {
        (None, false) => Err(MemberError::NoNumber),
        (Some(_), true) => Err(MemberError::NoNodes),
        (None, true) if config.sentinel_port != 0 => Err(MemberError::NoGroup),
        (node, _) => Ok(node),
    }
}

/// Checks the settings of this server as a node, if it is to be one.
pub(super) fn examine(config: &Config, platform: Platform) -> Result<(), MemberError> {
    let Some(node) = node_of(config)? else { return Ok(()) };
    settings(config, node, platform)?.security.check().map_err(NodeError::from)?;
    Ok(())
}

/// Starts the node in its directory. `wake` is called when the engine has orders to follow.
pub(super) fn begin(
    engine: &mut Engine,
    node: NodeId,
    path: &Path,
    wake: Box<dyn Fn() + Send + Sync>,
) -> Result<Following, MemberError> {
    let platform = engine.server.persistence.saving.platform.clone();
    let settings = settings(&engine.server.config, node, platform.clone())?;
    let clock = engine.server.time.clock.clone();
    let id = DirectoryId::random(&mut Rng::from_entropy());
    let owner = Owner::Node { group: settings.group, node };
    let directory = Directory::open_as(owner, platform.disk, path, id);
    let (directory, door) = (Arc::new(directory.map_err(NodeError::from)?), Arc::new(Door::new(clock, wake)));
    let thread = NodeThread::start(settings, Arc::clone(&directory), Arc::clone(&door))?;
    Ok(Following::begin(engine, directory, door, Some(thread)))
}

fn settings(config: &Config, node: NodeId, platform: Platform) -> Result<NodeSettings, MemberError> {
    if !config.appendonly || config.appendfsync != AppendFsync::Always {
        return Err(MemberError::NotDurable);
    }
    if !config.cluster_announce_ip.is_empty() || config.cluster_announce_port != 0 {
        return Err(MemberError::TwoAddresses);
    }
    let founders: BTreeMap<NodeId, NodeAddress> =
        config.nodes.iter().filter_map(|(number, at)| Some((NodeId::new(*number)?, at.clone()))).collect();
    let address = founders.get(&node).or(config.node_announce.as_ref()).cloned();
    let address = address.ok_or(MemberError::NoAddress(node.get()))?;
    let one = VersionRange { oldest: EFFECTS_FORMAT.into(), newest: EFFECTS_FORMAT.into() };
    Ok(NodeSettings {
        group: GroupId(0),
        node,
        listen: address.for_nodes(),
        contact: Contact { address, sentinel_port: config.sentinel_port },
        founders,
        security: security(config)?,
        deadlines: Deadlines::default(),
        versions: Versions { protocol: PROTOCOL, log: LOG_FORMATS, effects: one },
        bounds: Bounds {
            keep_bytes: config.replication_log_keep,
            memory_bytes: MEMORY_BYTES,
            engine_stuck_after: Duration::from_millis(config.stuck_leader_timeout_ms),
            disk_stuck_after: DISK_STUCK_AFTER,
        },
        platform: Platform { options: Options { policy: SyncPolicy::Always, ..platform.options }, ..platform },
    })
}

fn security(config: &Config) -> Result<Security, MemberError> {
    let is_set = |path: &Path| !path.as_os_str().is_empty();
    let certificates = [&config.node_tls_cert_file, &config.node_tls_key_file, &config.node_tls_ca_cert_file];
    match (is_set(&config.node_secret_file), certificates.into_iter().filter(|path| is_set(path)).count()) {
        (false, 0) => Ok(Security::Plain),
        (true, 0) => Ok(Security::Secret(config.node_secret_file.clone())),
        (false, 3) => {
            let [certificate, key, authority] = certificates.map(Clone::clone);
            Ok(Security::Certificates { certificate, key, authority })
        }
        (false, _) => Err(MemberError::HalfCertified),
        (true, _) => Err(MemberError::TwoProofs),
    }
}
