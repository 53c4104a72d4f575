//! The nodes of a group, and where this one is reached.

use super::kind::{Args, Origin, Shape, only, words};
use super::refusal::Refusal;
use crate::base::node_address::NodeAddress;
use crate::base::num::parse_i64;

/// Nodes with their numbers, as `1=host:port@port`.
pub(super) struct Nodes;

impl Nodes {
    pub(super) fn shape(&self) -> Shape {
        Shape::Many("N=HOST:PORT@PORT")
    }

    pub(super) fn set(&self, field: &mut Vec<(u64, NodeAddress)>, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let mut nodes: Vec<(u64, NodeAddress)> = Vec::new();
        for word in words(args).filter(|word| !word.is_empty()) {
            let text = str::from_utf8(word).map_err(|_| Refusal::Nodes)?;
            let (number, address) = text.split_once('=').ok_or(Refusal::Nodes)?;
            let number = parse_i64(number.as_bytes()).and_then(|number| u64::try_from(number).ok());
            let number = number.filter(|number| *number > 0).ok_or(Refusal::Nodes)?;
            let address = address.parse().map_err(|_| Refusal::Nodes)?;
            if nodes.iter().any(|(other, at)| *other == number || *at == address) {
                return Err(Refusal::NodeTwice);
            }
            nodes.push((number, address));
        }
        nodes.sort_by_key(|(number, _)| *number);
        *field = nodes;
        Ok(())
    }

    pub(super) fn get(&self, field: &[(u64, NodeAddress)], out: &mut Vec<u8>) {
        let texts: Vec<String> = field.iter().map(|(number, address)| format!("{number}={address}")).collect();
        out.extend_from_slice(texts.join(" ").as_bytes());
    }
}

/// The address of one node, or none.
pub(super) struct Announced;

impl Announced {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("HOST:PORT@PORT")
    }

    pub(super) fn set(&self, field: &mut Option<NodeAddress>, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        *field = match only(args)? {
            b"" => None,
            text => {
                let address = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
                Some(address.ok_or(Refusal::Announced)?)
            }
        };
        Ok(())
    }

    pub(super) fn get(&self, field: &Option<NodeAddress>, out: &mut Vec<u8>) {
        out.extend_from_slice(field.as_ref().map_or(String::new(), ToString::to_string).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_written_as_they_are_read() {
        let read = |text: &str| {
            let mut nodes = Vec::new();
            Nodes.set(&mut nodes, &[text.as_bytes()], Origin::Load).map(|()| {
                let mut out = Vec::new();
                Nodes.get(&nodes, &mut out);
                String::from_utf8(out).unwrap()
            })
        };
        assert_eq!(read("2=b:1@2 1=[::1]:6379@16379").as_deref(), Ok("1=[::1]:6379@16379 2=b:1@2"));
        assert_eq!(read("").as_deref(), Ok(""));
        for wrong in ["1", "1=", "0=a:1@2", "-1=a:1@2", "x=a:1@2", "1=a:1", "1=a:1@0"] {
            assert_eq!(read(wrong), Err(Refusal::Nodes), "{wrong}");
        }
        for twice in ["1=a:1@2 1=b:1@2", "1=a:1@2 2=a:1@2"] {
            assert_eq!(read(twice), Err(Refusal::NodeTwice), "{twice}");
        }
    }
}
