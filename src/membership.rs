//! `tidegate node`: shows and changes the nodes of a group. It asks one node, finds the leader through it, and does all
//! steps of a task there; a task that was interrupted goes on when it is called again.

use std::thread::sleep;
use std::time::{Duration, Instant};

use redis_protocol::resp2::types::BytesFrame;
use url::Url;

use crate::base::node_address::NodeAddress;
use crate::client::{Address, ClientError, Connection, TIDEGATE_AUTH};

/// Time limit of connecting, of writing and of reading. A change waits until more than half of the nodes have it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long another node may take to lead after the leader has handed over.
const TRANSFER_MAX: Duration = Duration::from_secs(10);

/// How long a node that does not answer is asked again: it may just have handed over.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// How long a group may take to begin once its nodes run.
const FOUNDING_MAX: Duration = Duration::from_secs(5);

/// The pause between two looks at the group.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often a task that takes longer reports.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// What to do with the nodes of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Show them.
    List,
    /// Add a node that asks to join, and let it vote once it has caught up, unless it is to follow only.
    Add {
        /// The number of the node.
        node: u64,
        /// It follows, and does not vote.
        only_follows: bool,
    },
    /// Let a node vote that has followed so far.
    Promote(u64),
    /// Remove a node, after another one has taken over if it leads.
    Remove(u64),
    /// Hand leadership over to a node.
    Transfer(u64),
}

/// Why a task is not done.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// A node can't be asked, or refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The server is of another kind.
    #[error("{0} does not answer NODE LIST as a node does")]
    NotANode(String),
    /// The node has no data and knows no group.
    #[error("the group is not founded yet: all of its first nodes must run and reach each other")]
    NotFounded,
    /// No node leads now.
    #[error("the group has no leader now: more than half of its voters must run and reach each other")]
    NoLeader,
    /// The group has no such node.
    #[error("node {0} is not a member of the group")]
    NoMember(u64),
    /// The node is a voter already.
    #[error("node {0} is a voter already")]
    Voter(u64),
    /// No other node can lead.
    #[error("node {0} leads, and no other voter is connected that could take over")]
    NoHeir(u64),
    /// Another node than the one that was asked for leads, or none.
    #[error("node {0} has not taken over within {seconds} s", seconds = TRANSFER_MAX.as_secs())]
    NotTaken(u64),
    /// The leader is not reachable by way of this address.
    #[error("node {0} leads: give its address, because a unix socket leads to this node only")]
    Elsewhere(u64),
}

/// Does a task, and tells about it line by line.
pub fn run(server: Address<'_>, task: Task, say: &mut dyn FnMut(&str)) -> Result<(), MembershipError> {
    let group = Group { server };
    match task {
        Task::List => {
            show(&group.known()?, say);
            Ok(())
        }
        Task::Add { node, only_follows } => group.add(node, only_follows, say),
        Task::Promote(node) => {
            group.at_leader("PROMOTE", node)?;
            say(&format!("node {node} votes"));
            Ok(())
        }
        Task::Remove(node) => group.remove(node, say),
        Task::Transfer(node) => {
            group.transfer(node)?;
            say(&format!("node {node} leads"));
            Ok(())
        }
    }
}

/// A row of NODE LIST.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    number: u64,
    address: String,
    role: String,
    link: String,
    /// Entries that it lacks, if the leader was asked.
    missing: Option<u64>,
}

impl Node {
    fn leads(&self) -> bool {
        self.role == "leader"
    }

    fn is_here(&self) -> bool {
        self.link == "self"
    }

    fn is_reachable(&self) -> bool {
        self.is_here() || self.link == "connected"
    }

    /// Reads a row, a flat list of names and values; those of a later version are passed over.
    fn read(row: &BytesFrame) -> Option<Node> {
        let BytesFrame::Array(fields) = row else { return None };
        let field = |name: &str| {
            fields.chunks_exact(2).find(|pair| text(&pair[0]).as_deref() == Some(name)).map(|pair| &pair[1])
        };
        let number = |frame: &BytesFrame| match frame {
            BytesFrame::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        Some(Node {
            number: number(field("id")?)?,
            address: text(field("address")?)?,
            role: text(field("role")?)?,
            link: text(field("link")?)?,
            missing: field("missing").and_then(number),
        })
    }
}

fn text(frame: &BytesFrame) -> Option<String> {
    match frame {
        BytesFrame::BulkString(bytes) | BytesFrame::SimpleString(bytes) => String::from_utf8(bytes.to_vec()).ok(),
        _ => None,
    }
}

/// A group, as reached through one of its nodes.
struct Group<'a> {
    server: Address<'a>,
}

impl Group<'_> {
    /// Asks the node at an address for the nodes of its group.
    fn nodes(&self, url: &str) -> Result<Vec<Node>, MembershipError> {
        let mut connection = self.connect(url)?;
        let reply = connection.call(&[b"NODE", b"LIST"])?;
        let nodes = match reply {
            BytesFrame::Array(rows) => rows.iter().map(Node::read).collect::<Option<Vec<Node>>>(),
            _ => None,
        };
        nodes.ok_or_else(|| MembershipError::NotANode(connection.peer().to_owned()))
    }

    /// Returns the nodes as the one that is asked knows them. Waits a while for a node that has just started.
    fn known(&self) -> Result<Vec<Node>, MembershipError> {
        let begin = Instant::now();
        loop {
            match self.nodes(self.server.url) {
                Ok(nodes) if !nodes.is_empty() => return Ok(nodes),
                Ok(_) if begin.elapsed() >= FOUNDING_MAX => return Err(MembershipError::NotFounded),
                Err(error) if begin.elapsed() >= RETRY_MAX => return Err(error),
                _ => sleep(LOOK_EVERY),
            }
        }
    }

    fn connect(&self, url: &str) -> Result<Connection<'static>, MembershipError> {
        Ok(Connection::open(Address { url, ..self.server }, TIDEGATE_AUTH, TIMEOUT)?)
    }

    /// Returns the address of a node for clients, reached in the same way as the first one.
    fn url_of(&self, node: &Node) -> Result<String, MembershipError> {
        if node.is_here() { Ok(self.server.url.to_owned()) } else { self.url_elsewhere(node) }
    }

    /// As [`url_of`](Self::url_of), for a node that is not the first one.
    fn url_elsewhere(&self, node: &Node) -> Result<String, MembershipError> {
        let elsewhere = || MembershipError::Elsewhere(node.number);
        let mut url = Url::parse(self.server.url).ok().filter(|url| url.scheme() != "unix").ok_or_else(elsewhere)?;
        let address: NodeAddress = node.address.parse().map_err(|_| elsewhere())?;
        let host = match address.host().contains(':') {
            true => format!("[{}]", address.host()),
            false => address.host().to_owned(),
        };
        url.set_host(Some(&host)).map_err(|_| elsewhere())?;
        url.set_port(Some(address.port)).map_err(|()| elsewhere())?;
        Ok(url.into())
    }

    /// Returns the nodes of the group as its leader sees them, and the leader's address. Waits a while for a leader.
    fn led(&self) -> Result<(Vec<Node>, String), MembershipError> {
        let begin = Instant::now();
        loop {
            let nodes = match self.nodes(self.server.url) {
                Err(error) if begin.elapsed() >= RETRY_MAX => return Err(error),
                nodes => nodes.unwrap_or_default(),
            };
            if let Some(leader) = nodes.iter().find(|node| node.leads()) {
                let url = self.url_of(leader)?;
                let nodes = if leader.is_here() { Ok(nodes) } else { self.nodes(&url) };
                // The leader may have gone since.
                if let Ok(nodes) = nodes
                    && nodes.iter().any(|node| node.leads() && node.is_here())
                {
                    return Ok((nodes, url));
                }
            }
            if begin.elapsed() >= TRANSFER_MAX {
                return Err(MembershipError::NoLeader);
            }
            sleep(LOOK_EVERY);
        }
    }

    /// Calls a subcommand of NODE at the leader.
    fn at_leader(&self, subcommand: &str, node: u64) -> Result<(), MembershipError> {
        let (_, url) = self.led()?;
        self.connect(&url)?.call(&[b"NODE", subcommand.as_bytes(), node.to_string().as_bytes()])?;
        Ok(())
    }

    fn add(&self, number: u64, only_follows: bool, say: &mut dyn FnMut(&str)) -> Result<(), MembershipError> {
        let (nodes, _) = self.led()?;
        match nodes.iter().find(|node| node.number == number).map(|node| node.role.as_str()) {
            Some("learner") => {}
            Some("leader" | "voter") => return Err(MembershipError::Voter(number)),
            _ => {
                self.at_leader("ADD", number)?;
                say(&format!("node {number} is a member, and follows"));
            }
        }
        if only_follows {
            return Ok(());
        }
        let mut report_at = Instant::now() + REPORT_EVERY;
        loop {
            let (nodes, _) = self.led()?;
            let node = nodes.iter().find(|node| node.number == number).ok_or(MembershipError::NoMember(number))?;
            let wait = match node.missing {
                // It may write faster than it follows. Then the leader refuses, and it is tried again.
                Some(_) if node.is_reachable() => match self.at_leader("PROMOTE", number) {
                    Ok(()) => {
                        say(&format!("node {number} votes"));
                        return Ok(());
                    }
                    Err(MembershipError::Client(ClientError::Refused(_, why))) => why,
                    Err(error) => return Err(error),
                },
                _ => format!("node {number} is {}", node.link),
            };
            if Instant::now() >= report_at {
                report_at += REPORT_EVERY;
                say(&match node.missing {
                    Some(entries) => format!("node {number} lacks {entries} entries of the log"),
                    None => format!("waiting: {wait}"),
                });
            }
            sleep(LOOK_EVERY);
        }
    }

    fn remove(&self, number: u64, say: &mut dyn FnMut(&str)) -> Result<(), MembershipError> {
        let (nodes, _) = self.led()?;
        let node = nodes.iter().find(|node| node.number == number && node.role != "waiting");
        if node.ok_or(MembershipError::NoMember(number))?.leads() {
            let can_lead = |other: &&Node| other.role == "voter" && other.is_reachable();
            let heir = nodes.iter().filter(can_lead).min_by_key(|other| other.missing.unwrap_or(u64::MAX));
            let heir = heir.ok_or(MembershipError::NoHeir(number))?;
            self.transfer(heir.number)?;
            say(&format!("node {} leads", heir.number));
        }
        self.at_leader("REMOVE", number)?;
        say(&format!("node {number} is no member any more: end it, and do not use its number again"));
        Ok(())
    }

    /// Hands leadership over, and waits until the other node leads.
    fn transfer(&self, number: u64) -> Result<(), MembershipError> {
        let (nodes, leader) = self.led()?;
        let heir = nodes.iter().find(|node| node.number == number).ok_or(MembershipError::NoMember(number))?;
        let url = self.url_elsewhere(heir)?;
        match self.connect(&leader)?.call(&[b"NODE", b"TRANSFER", number.to_string().as_bytes()]) {
            // The reply may be lost: the connection ends with the reign.
            Ok(_) | Err(ClientError::Io(..)) => {}
            Err(error) => return Err(error.into()),
        }
        let begin = Instant::now();
        while begin.elapsed() < TRANSFER_MAX {
            if let Ok(nodes) = self.nodes(&url)
                && nodes.iter().any(|node| node.leads() && node.is_here())
            {
                return Ok(());
            }
            sleep(LOOK_EVERY);
        }
        Err(MembershipError::NotTaken(number))
    }
}

/// Prints the nodes as a table.
fn show(nodes: &[Node], say: &mut dyn FnMut(&str)) {
    let row = |node: &Node| {
        let missing = node.missing.map_or("-".to_owned(), |entries| entries.to_string());
        [node.number.to_string(), node.role.clone(), node.link.clone(), missing, node.address.clone()]
    };
    let head = ["node", "role", "link", "missing", "address"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(head).chain(nodes.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
    let [number, role, link, missing] = [0, 1, 2, 3].map(width);
    for [a, b, c, d, e] in &rows {
        say(&format!("{a:>number$}  {b:role$}  {c:link$}  {d:>missing$}  {e}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &'static str) -> BytesFrame {
        BytesFrame::BulkString(text.into())
    }

    #[test]
    fn rows_are_read_whatever_a_later_version_adds() {
        let fields = [
            bulk("id"),
            BytesFrame::Integer(2),
            bulk("mood"),
            bulk("fine"),
            bulk("address"),
            bulk("host:1@2"),
            bulk("role"),
            bulk("voter"),
            bulk("link"),
            bulk("connected"),
            bulk("missing"),
            BytesFrame::Null,
        ];
        let node = Node::read(&BytesFrame::Array(fields.to_vec())).expect("a row");
        assert_eq!((node.number, &*node.address, node.missing, node.leads()), (2, "host:1@2", None, false));
        assert_eq!(Node::read(&BytesFrame::Array(fields[2..].to_vec())), None, "it has no number");
        assert_eq!(Node::read(&BytesFrame::Integer(1)), None);
    }

    #[test]
    fn other_nodes_are_reached_in_the_same_way_as_the_first() {
        let tls = &crate::client_tls::TlsFlags::default();
        let url = |first, address: &str, link: &str| {
            let node = Node {
                number: 2,
                address: address.to_owned(),
                role: "voter".to_owned(),
                link: link.to_owned(),
                missing: None,
            };
            Group { server: Address { url: first, tls } }.url_of(&node).map_err(|error| error.to_string())
        };
        let expected = Ok("rediss://u:p@two:7002".to_owned());
        assert_eq!(url("rediss://u:p@one:7001", "two:7002@17002", "connected"), expected);
        assert_eq!(url("redis://one", "[::1]:7002@17002", "connected"), Ok("redis://[::1]:7002".to_owned()));
        assert_eq!(url("unix:///a/socket", "two:7002@17002", "self"), Ok("unix:///a/socket".to_owned()));
        let refused = url("unix:///a/socket", "two:7002@17002", "connected").expect_err("it is elsewhere");
        assert!(refused.starts_with("node 2 leads"), "{refused}");
    }

    #[test]
    fn nodes_are_shown_as_a_table() {
        let node = |number, role: &str, link: &str, missing| Node {
            number,
            address: format!("host-{number}:1@2"),
            role: role.to_owned(),
            link: link.to_owned(),
            missing,
        };
        let mut lines = Vec::new();
        let nodes = [node(1, "leader", "self", Some(0)), node(12, "learner", "connected", Some(7_000))];
        show(&nodes, &mut |line| lines.push(line.to_owned()));
        assert_eq!(
            lines,
            [
                "node  role     link       missing  address",
                "   1  leader   self             0  host-1:1@2",
                "  12  learner  connected     7000  host-12:1@2",
            ]
        );
    }
}
