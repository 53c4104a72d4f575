//! How a group begins. The nodes that the configuration names tell each other which directories they have, and each of
//! them waits until it knows all. The births are the group's history, so no two nodes can found different groups, and a
//! node that comes later with an empty directory is told from one that founds: if the group does not know its number,
//! it asks to join.

use std::collections::BTreeMap;

use super::link::Greeted;
use crate::base::node_address::NodeAddress;
use crate::log::replicated::members::{Home, Members};
use crate::log::replicated::types::NodeId;

/// A node whose directory has no data yet, and that is one of the founders by its configuration.
#[derive(Debug)]
pub(crate) struct Founding {
    /// The founders without a home are not heard of yet.
    founders: BTreeMap<NodeId, (NodeAddress, Option<Greeted>)>,
    own: (NodeId, Home),
}

/// Why this node can't found a group, and can't be part of the one that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "node {witness} belongs to a group that already exists, and which began without this directory. If node {own} was \
     part of it, its data is lost: remove it from the group, and let it join again under a new number"
)]
pub(crate) struct TooLate {
    witness: NodeId,
    own: NodeId,
}

impl Founding {
    /// Begins with the nodes of the configuration, this one among them.
    pub(crate) fn new(own: NodeId, home: Home, nodes: &BTreeMap<NodeId, NodeAddress>) -> Founding {
        let others = nodes.iter().filter(|(node, _)| **node != own);
        Founding {
            founders: others.map(|(node, address)| (*node, (address.clone(), None))).collect(),
            own: (own, home),
        }
    }

    /// Notes what another node has said of itself. Returns the members of the group once all founders are known.
    pub(crate) fn greeted(&mut self, greeted: Greeted) -> Result<Option<Members>, TooLate> {
        if let Some((_, known)) = self.founders.get_mut(&greeted.node) {
            *known = Some(greeted);
        }
        let Some(members) = self.members() else { return Ok(None) };
        let others = self.founders.values().filter_map(|(_, known)| known.as_ref());
        let stranger = others.into_iter().find(|other| other.identity.history.is_other_than(members.history));
        match stranger {
            Some(stranger) => Err(TooLate { witness: stranger.node, own: self.own.0 }),
            None => Ok(Some(members)),
        }
    }

    /// Returns the founders that have not been heard of.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = (NodeId, &NodeAddress)> {
        self.founders.iter().filter(|(_, (_, known))| known.is_none()).map(|(node, (address, _))| (*node, address))
    }

    fn members(&self) -> Option<Members> {
        let home = |(node, (address, known)): (&NodeId, &(NodeAddress, Option<Greeted>))| {
            known.as_ref().map(|known| (*node, Home { address: address.clone(), birth: known.identity.birth }))
        };
        let mut homes: BTreeMap<NodeId, Home> = self.founders.iter().map(home).collect::<Option<_>>()?;
        homes.insert(self.own.0, self.own.1.clone());
        Some(Members::of(homes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::replicated::members::History;
    use crate::log::replicated::members::tests::home_of;
    use crate::node::link::settings::{Agreed, Contact, Identity};

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn founding(own: u64) -> Founding {
        let nodes = (1..=3).map(|number| (node(number), home_of(node(number)).address)).collect();
        Founding::new(node(own), home_of(node(own)), &nodes)
    }

    /// What a node says that has the birth of another.
    fn born_as(number: u64, birth: u64, history: History) -> Greeted {
        let identity = Identity { birth: home_of(node(birth)).birth, history };
        let contact = Contact { address: home_of(node(number)).address, sentinel_port: 0 };
        Greeted { node: node(number), identity, contact, agreed: Agreed { protocol: 1, log: 1, effects: 1 } }
    }

    fn new(number: u64) -> Greeted {
        born_as(number, number, History::UNKNOWN)
    }

    #[test]
    fn all_founders_come_to_the_same_group() {
        let found = |own: u64, others: [u64; 2]| {
            let mut founding = founding(own);
            assert_eq!(founding.greeted(new(9)), Ok(None), "it is no founder");
            assert_eq!(founding.greeted(new(others[0])), Ok(None));
            assert_eq!(founding.awaited().map(|(node, _)| node).collect::<Vec<_>>(), [node(others[1])]);
            founding.greeted(new(others[1])).unwrap().unwrap()
        };
        let members = found(1, [2, 3]);
        assert_eq!(members.voters, [node(1), node(2), node(3)]);
        assert_eq!([found(2, [3, 1]), found(3, [1, 2])], [members.clone(), members.clone()]);
        // Another has founded the group already.
        let mut late = founding(2);
        assert_eq!(late.greeted(born_as(1, 1, members.history)), Ok(None));
        assert_eq!(late.greeted(new(3)), Ok(Some(members)));
    }

    #[test]
    fn a_founder_that_comes_with_another_directory_is_not_taken_for_the_old_one() {
        let mut first = founding(2);
        assert_eq!(first.greeted(born_as(3, 8, History::UNKNOWN)), Ok(None));
        let with_the_first = first.greeted(new(1)).unwrap().unwrap();
        let mut again = founding(2);
        assert_eq!(again.greeted(new(3)), Ok(None), "its directory was lost before it had founded");
        let too_late = TooLate { witness: node(1), own: node(2) };
        assert_eq!(again.greeted(born_as(1, 1, with_the_first.history)), Err(too_late));
    }
}
