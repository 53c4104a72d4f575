//! The address of a node of a group.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Where clients and other nodes reach a node, written as `host:port@port`: the port for clients, then that for nodes.
/// An IPv6 address stands in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    host: Arc<str>,
    /// The port for clients.
    pub port: u16,
    /// The port for other nodes.
    pub node_port: u16,
}

impl NodeAddress {
    /// Returns the address, unless a part of it could not be one.
    pub fn new(host: &str, port: u16, node_port: u16) -> Option<NodeAddress> {
        let is_address = NodeAddress::is_host(host) && port != 0 && node_port != 0;
        is_address.then(|| NodeAddress { host: host.into(), port, node_port })
    }

    /// Whether a text can be a host: names and numbers of up to 255 bytes can.
    pub fn is_host(text: &str) -> bool {
        let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        !text.is_empty() && text.len() <= usize::from(u8::MAX) && text.bytes().all(is_sound)
    }

    /// Whether a text is a host and a port, written `host:port`. An IPv6 address stands in brackets.
    pub fn is_host_and_port(text: &str) -> bool {
        let Some((host, port)) = text.rsplit_once(':') else { return false };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = bare.map_or_else(|| !host.contains(':') && NodeAddress::is_host(host), NodeAddress::is_host);
        is_host && port.parse::<u16>().is_ok_and(|port| port != 0)
    }

    /// Returns where clients reach the node: a host and a port.
    pub fn for_clients(&self) -> String {
        self.place(self.port)
    }

    /// Returns where other nodes reach the node: a host and a port.
    pub fn for_nodes(&self) -> String {
        self.place(self.node_port)
    }

    fn place(&self, port: u16) -> String {
        let host = &self.host;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Returns the name or number of the host, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.place(self.port), self.node_port)
    }
}

/// The text is no address of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an address of a node is written host:port@port, with the port for clients and that for nodes")]
pub struct NoAddress;

impl FromStr for NodeAddress {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<NodeAddress, NoAddress> {
        let read = || {
            let (place, node_port) = text.rsplit_once('@')?;
            let (host, port) = place.rsplit_once(':')?;
            let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            // Without brackets it is unclear where an IPv6 address ends.
            let host = if host.contains(':') { in_brackets? } else { host };
            NodeAddress::new(host, port.parse().ok()?, node_port.parse().ok()?)
        };
        read().ok_or(NoAddress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_it_is_read() {
        for text in
            ["a:1@2", "10.0.0.1:6379@16379", "[::1]:6379@16379", "[fe80::1%eth0]:1@65535", "my-host.local:80@81"]
        {
            assert_eq!(text.parse::<NodeAddress>().map(|address| address.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("[::1]:6379@16379".parse::<NodeAddress>().unwrap().host(), "::1");
        let long = format!("{}:1@2", "h".repeat(256));
        for text in
            ["", "a", "a:1", "a@2", ":1@2", "a:0@2", "a:1@0", "a:1@65536", "::1:1@2", "a b:1@2", "a\n:1@2", &long]
        {
            assert_eq!(text.parse::<NodeAddress>(), Err(NoAddress), "{text:?}");
        }
    }
}
