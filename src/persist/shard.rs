//! The group as clients in Cluster mode see it: a cluster of one shard, which owns all slots. A single server is a
//! shard of one node.
//!
//! All nodes of a group show the same shard, apart from what each knows of its links. So the names of nodes follow from
//! the identities of their directories, which the group's log has, and the epoch is the term of the leader. A node that
//! knows no leader at the moment shows the last one, as having failed: clients then try again, as with Redis.

use std::time::Instant;

use crate::base::node_address::NodeAddress;
use crate::log::replicated::types::NodeId;
use crate::persist::Persistence;
use crate::persist::group::GroupLog;
use crate::persist::journal::Journal;
use crate::persist::saving::Home;

/// See the module's header.
pub(crate) struct Shard {
    /// Its name, of 40 hexadecimal digits.
    pub(crate) name: String,
    /// The term of the leader; 0 for a single server.
    pub(crate) epoch: u64,
    /// Whether a leader is known and serves clients.
    pub(crate) is_led: bool,
    /// The leader if any was known, then the others by their numbers.
    pub(crate) nodes: Vec<ShardNode>,
}

/// A node of the shard.
pub(crate) struct ShardNode {
    /// Its name, of 40 hexadecimal digits.
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The port for other nodes; 0 for a single server.
    pub(crate) node_port: u16,
    /// Whether it is the node that is asked.
    pub(crate) is_own: bool,
    /// Whether it was the last to lead.
    pub(crate) is_leader: bool,
    /// Since when there is a connection from here to it, and one from it to here, if there are both.
    pub(crate) linked_since: Option<[Instant; 2]>,
}

impl ShardNode {
    /// Whether this node is in contact with it.
    pub(crate) fn is_reached(&self) -> bool {
        self.is_own || self.linked_since.is_some()
    }
}

impl Shard {
    /// Returns the shard of a single server, whose name and place these are.
    pub(crate) fn of_server(name: &str, (host, port): (String, u16)) -> Shard {
        let name = name.to_owned();
        let node = ShardNode {
            name: name.clone(),
            host,
            port,
            node_port: 0,
            is_own: true,
            is_leader: true,
            linked_since: None,
        };
        Shard { name, epoch: 0, is_led: true, nodes: vec![node] }
    }

    /// Returns the shard of a group. `own` is the number of this node.
    pub(crate) fn of_group(group: &GroupLog, own: u64) -> Shard {
        let (members, facts) = (group.members(), group.facts());
        let own = NodeId::new(own);
        let last_leader = group.last_leader();
        let leads = |node: NodeId| last_leader.is_some_and(|(leader, _)| leader == node);
        let mut numbers: Vec<NodeId> = members.all().collect();
        numbers.sort_by_key(|node| (!leads(*node), *node));
        let shown = |node: NodeId| {
            // A member whose home is unknown can't be reached.
            let home = members.homes.get(&node)?;
            let link = facts.peer(node).map(|peer| &peer.link);
            let NodeAddress { port, node_port, .. } = home.address;
            Some(ShardNode {
                name: home.birth.name(),
                host: home.address.host().to_owned(),
                port,
                node_port,
                is_own: own == Some(node),
                is_leader: leads(node),
                linked_since: link
                    .and_then(|link| Some([link.sending.connected_since?, link.receiving.connected_since?])),
            })
        };
        Shard {
            name: members.history.name(),
            epoch: last_leader.map_or(group.position().term, |(_, term)| term).0,
            is_led: group.leader().is_some(),
            nodes: numbers.into_iter().filter_map(shown).collect(),
        }
    }

    /// Returns the node that was the last to lead, if it is known and still a member.
    pub(crate) fn leader(&self) -> Option<&ShardNode> {
        self.nodes.first().filter(|node| node.is_leader)
    }
}

impl Persistence {
    /// Returns the shard, with the name and place of this server if it is a single one, and its number if it is a node.
    pub(crate) fn shard(&self, name: &str, place: (String, u16), number: u64) -> Shard {
        match self.journal.as_ref().and_then(Journal::member) {
            Some(group) => Shard::of_group(group, number),
            None => Shard::of_server(name, place),
        }
    }

    /// Returns a name for this server that lasts as long as its directory, if that is open.
    pub(crate) fn lasting_name(&self) -> Option<String> {
        match &self.saving.home {
            Home::Open(directory) => Some(directory.id().birth().name()),
            _ => None,
        }
    }
}
