//! Engines of the nodes of a group: real threads of nodes, sockets on loopback and files; only the sockets of clients
//! are missing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::logged::send;
use crate::base::clock::Clock;
use crate::base::node_address::NodeAddress;
use crate::base::rng::Rng;
use crate::command;
use crate::config::Config;
use crate::engine::Engine;
use crate::engine::persistence::following::Following;
use crate::log::replicated::types::NodeId;
use crate::node::door::Door;
use crate::node::loopback::{self, Hosts};
use crate::node::thread::NodeThread;
use crate::persist::journal::Journal;
use crate::persist::saving::{Progress, Purpose};
use crate::resp::reply::{Form, Reply};
use crate::resp::request::Decoder;
use crate::session::Peer;
use crate::spec::session_key::SessionKey;

/// A node with its engine and a client.
struct Server {
    engine: Engine,
    following: Following,
    client: SessionKey,
}

impl Server {
    fn leads(&self) -> bool {
        self.engine.server.persistence.journal.as_ref().is_some_and(|journal| !journal.is_follower())
            && self.engine.server.persistence.loading.is_none()
    }

    /// Runs a command given as words. The reply is in the outbox then.
    fn feed(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let bulks: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        let request = format!("*{}\r\n{bulks}", words.len());
        let mut out = Reply::new(Form::Resp2);
        self.engine.feed(self.client, &mut Decoder::new(), request.as_bytes(), &mut out);
        if let Some(session) = self.engine.server.clients.sessions.get_mut(self.client) {
            session.reply(&mut out);
        }
    }

    /// Whether the client was disconnected.
    fn is_killed(&mut self) -> bool {
        self.engine.server.clients.sessions.get_mut(self.client).is_none_or(|session| session.is_killed())
    }
}

impl Server {
    /// Whether the client is disconnected once it has its replies.
    fn is_ending(&mut self) -> bool {
        self.engine.server.clients.sessions.get_mut(self.client).is_none_or(|session| session.is_suspended())
    }
}

/// The nodes of a group.
struct Group {
    folder: TempDir,
    addresses: BTreeMap<NodeId, NodeAddress>,
    servers: BTreeMap<u64, Server>,
}

fn node(number: u64) -> NodeId {
    NodeId::new(number).expect("it is not 0")
}

impl Group {
    /// Starts three nodes, and waits until one leads.
    fn new() -> Group {
        let hosts = Hosts::take();
        let addresses = (1..=3).map(|number| (node(number), hosts.address(number))).collect();
        let mut group = Group { folder: tempfile::tempdir().expect("a folder"), addresses, servers: BTreeMap::new() };
        (1..=3).for_each(|number| group.start(number));
        group.until_led();
        group
    }

    fn start(&mut self, number: u64) {
        let path = self.folder.path().join(number.to_string());
        let address = self.addresses[&node(number)].clone();
        let (settings, directory) = loopback::open(node(number), address, self.addresses.clone(), &path);
        let door = Arc::new(Door::new(Clock::system(), Box::new(|| {})));
        let mut engine =
            Engine::new(Config::default(), command::table(), Clock::of_node(), Rng::seeded(number)).expect("memory");
        let thread = NodeThread::start(settings, Arc::clone(&directory), Arc::clone(&door)).expect("a thread");
        let following = Following::begin(&mut engine, directory, door, Some(thread));
        let client = engine.server.open_session(Peer::default());
        let server = Server { engine, following, client };
        assert!(self.servers.insert(number, server).is_none());
    }

    fn stop(&mut self, number: u64) {
        self.servers.remove(&number).expect("it runs");
    }

    fn at(&mut self, number: u64) -> &mut Server {
        self.servers.get_mut(&number).expect("it runs")
    }

    /// Lets the group work until something is true.
    fn until(&mut self, what: &str, mut is_true: impl FnMut(&mut Group) -> bool) {
        let begin = Instant::now();
        loop {
            for server in self.servers.values_mut() {
                while server.following.step(&mut server.engine).expect("the orders can be followed") {}
                while server.engine.save_slice() {}
            }
            if is_true(self) {
                return;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "it did not come to this: {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn leader(&self) -> Option<u64> {
        self.servers.iter().find(|(_, server)| server.leads()).map(|(number, _)| *number)
    }

    fn until_led(&mut self) -> u64 {
        self.until("a node leads", |group| group.leader().is_some());
        self.leader().expect("one leads")
    }

    /// Runs a command, and waits for its reply; `None` if the client was disconnected instead.
    fn line(&mut self, number: u64, line: &str) -> Option<String> {
        let server = self.at(number);
        if server.is_killed() {
            server.client = server.engine.server.open_session(Peer::default());
        }
        server.feed(line);
        let mut reply = None;
        self.until(line, |group| {
            let server = group.at(number);
            let sent = send(&mut server.engine.server, server.client);
            reply = (!sent.is_empty()).then(|| sent.escape_ascii().to_string());
            reply.is_some() || server.is_killed()
        });
        reply
    }

    fn others(&self, number: u64) -> Vec<u64> {
        self.servers.keys().copied().filter(|other| *other != number).collect()
    }

    /// Waits until a command has the same reply on all nodes.
    fn until_all_say(&mut self, line: &str, reply: &str) {
        self.until("all nodes say the same", |group| {
            let numbers: Vec<u64> = group.servers.keys().copied().collect();
            numbers.into_iter().all(|number| {
                let server = group.at(number);
                server.client = server.engine.server.open_session(Peer::default());
                server.feed(line);
                let begin = Instant::now();
                let mut sent = Vec::new();
                while sent.is_empty() && begin.elapsed() < Duration::from_secs(1) {
                    let _ = server.following.step(&mut server.engine);
                    sent = send(&mut server.engine.server, server.client);
                }
                sent.escape_ascii().to_string() == reply
            })
        });
    }
}

const OK: Option<&str> = Some("+OK\\r\\n");

#[test]
fn what_the_leader_acknowledges_is_on_all_nodes() {
    let mut group = Group::new();
    let leader = group.until_led();
    assert_eq!(group.line(leader, "SET k 1").as_deref(), OK);
    assert_eq!(group.line(leader, "INCR k").as_deref(), Some(":2\\r\\n"));
    assert_eq!(
        group.line(leader, "EVAL return{redis.call('rpush',KEYS[1],1,2,3)} 1 l").as_deref(),
        Some("*1\\r\\n:3\\r\\n")
    );
    assert_eq!(group.line(leader, "SET gone v PX 1").as_deref(), OK);
    group.until_all_say("GET k", "$1\\r\\n2\\r\\n");
    group.until_all_say("LRANGE l 0 -1", "*3\\r\\n$1\\r\\n1\\r\\n$1\\r\\n2\\r\\n$1\\r\\n3\\r\\n");
    group.until_all_say("GET gone", "$-1\\r\\n");
    assert_eq!(group.line(leader, "WAIT 2 0").as_deref(), Some(":1\\r\\n"), "one other node has it for sure");
    assert_eq!(group.line(leader, "WAITAOF 1 2 0").as_deref(), Some("*2\\r\\n:1\\r\\n:1\\r\\n"));
    group.until("all say that they have it", |group| {
        let info = group.line(leader, "INFO replication").expect("a reply");
        let last = format!("offset={}", group.at(leader).engine.server.persistence.last_lsn());
        info.contains("connected_slaves:2\\r\\n")
            && info.contains("group_voters_missing:0\\r\\n")
            && info.matches(&last).count() == 2
    });
    let role = group.line(leader, "ROLE").expect("a reply");
    assert!(role.contains("master") && role.matches("$4\\r\\n6379").count() == 2, "{role}");
    let metrics = command::metrics::render(&mut group.at(leader).engine);
    for sample in [
        "tidegate_group_leads 1",
        "tidegate_group_voters_connected 3",
        "tidegate_group_reigns_total 1",
        "tidegate_node_missing_entries{node=",
    ] {
        assert!(metrics.contains(sample), "{sample}: {metrics}");
    }
    for other in group.others(leader) {
        let role = group.line(other, "ROLE").expect("a reply");
        assert!(role.contains("slave") && role.contains("connected"), "{role}");
        let info = group.line(other, "INFO replication").expect("a reply");
        assert!(info.contains("role:slave") && info.contains(&format!("group_leader:{leader}")), "{info}");
        for line in ["SET k 3", "LOCK.INFO k", "EVENTS - + COUNT 1"] {
            let refused = group.line(other, line).expect("it is refused");
            assert!(refused.starts_with("-READONLY"), "{line}: {refused}");
        }
        for call in ["incr", "lock.info"] {
            let script = format!("EVAL return{{redis.call('{call}',KEYS[1])}} 1 k");
            let refused = group.line(other, &script).expect("it is refused");
            assert!(refused.contains("READONLY"), "{call}: {refused}");
        }
    }
}

#[test]
fn the_others_go_on_when_the_leader_is_gone_and_it_catches_up() {
    let mut group = Group::new();
    for round in 1..=3 {
        let leader = group.until_led();
        assert_eq!(group.line(leader, "INCR k"), Some(format!(":{}\\r\\n", 2 * round - 1)));
        group.stop(leader);
        let next = group.until_led();
        assert_eq!(group.line(next, "INCR k"), Some(format!(":{}\\r\\n", 2 * round)));
        group.start(leader);
        group.until_all_say("GET k", &format!("$1\\r\\n{}\\r\\n", 2 * round));
    }
}

#[test]
fn a_leader_without_a_quorum_answers_nothing_and_forgets_what_it_executed() {
    let mut group = Group::new();
    let leader = group.until_led();
    assert_eq!(group.line(leader, "SET k before").as_deref(), OK);
    let others = group.others(leader);
    others.iter().for_each(|other| group.stop(*other));
    assert_eq!(group.line(leader, "SET k lost"), None, "the client is disconnected");
    group.until("the data is what was committed", |group| group.at(leader).engine.server.persistence.loading.is_none());
    assert_eq!(group.line(leader, "GET k").as_deref(), Some("$6\\r\\nbefore\\r\\n"));
    others.iter().for_each(|other| group.start(*other));
    let next = group.until_led();
    let value = group.line(next, "GET k").expect("it leads");
    // The write reached the disk of one node only: the next leader may have it or not.
    assert!(value == "$6\\r\\nbefore\\r\\n" || value == "$4\\r\\nlost\\r\\n", "{value}");
    group.until_all_say("GET k", &value);
}

#[test]
fn a_read_is_answered_by_a_leader_with_a_quorum_only() {
    let mut group = Group::new();
    let leader = group.until_led();
    assert_eq!(group.line(leader, "SET k v").as_deref(), OK);
    assert_eq!(group.line(leader, "GET k").as_deref(), Some("$1\\r\\nv\\r\\n"));
    let others = group.others(leader);
    others.iter().for_each(|other| group.stop(*other));
    assert_eq!(group.line(leader, "GET k"), None, "another node could lead by now");
}

#[test]
fn a_follower_knows_how_old_its_data_is() {
    let mut group = Group::new();
    let leader = group.until_led();
    let follower = group.others(leader)[0];
    assert_eq!(group.line(leader, "SET k v").as_deref(), OK);
    let max_ms = 2_000;
    group.at(follower).engine.server.config.max_staleness_ms = max_ms;
    group.until("the data is fresh", |group| group.line(follower, "GET k").as_deref() == Some("$1\\r\\nv\\r\\n"));
    let info = group.line(follower, "INFO replication").expect("a reply");
    let lag = info.split("slave_lag_ms:").nth(1).and_then(|rest| rest.split("\\r").next()).expect("the field");
    assert!(lag.parse::<u64>().is_ok_and(|lag| lag < 60_000), "{info}");
    // Nobody tells it more, so its data grows old.
    group.others(follower).into_iter().for_each(|other| group.stop(other));
    group.line(follower, "MULTI");
    assert_eq!(group.line(follower, "GET k").as_deref(), Some("+QUEUED\\r\\n"));
    let server = group.at(follower);
    let other = server.engine.server.open_session(Peer::default());
    let queueing = std::mem::replace(&mut server.client, other);
    let refused = "-MASTERDOWN The data of this node is older than max-staleness allows.\\r\\n";
    group.until("the data is old", |group| group.line(follower, "GET k").as_deref() == Some(refused));
    let polling = std::mem::replace(&mut group.at(follower).client, queueing);
    let reply = group.line(follower, "EXEC").expect("a reply");
    assert!(reply.starts_with("-EXECABORT") && reply.contains("MASTERDOWN"), "queued while it was fresh: {reply}");
    group.at(follower).client = polling;
    assert!(group.line(follower, "INFO replication").expect("it is allowed").contains("slave_lag_ms:"));
    group.at(follower).engine.server.config.max_staleness_ms = 0;
    assert_eq!(group.line(follower, "GET k").as_deref(), Some("$1\\r\\nv\\r\\n"));
}

#[test]
fn replies_wait_for_as_many_copies_as_the_configuration_asks_for() {
    let mut group = Group::new();
    let leader = group.until_led();
    let set = |group: &mut Group, value: &str| {
        let reply = group.line(leader, &format!("CONFIG SET min-replicas-to-write {value}"));
        assert_eq!(reply.as_deref(), OK);
    };
    group.at(leader).engine.server.config.quorum_wait_ms = 600_000;
    set(&mut group, "2");
    assert_eq!(group.line(leader, "SET k 1").as_deref(), OK, "two others have it");
    let info = group.line(leader, "INFO replication").expect("a reply");
    assert!(info.contains("min_slaves_good_slaves:2"), "{info}");
    // Which nodes follow is looked up with the orders, which nobody takes here.
    let lost = group.others(leader)[0];
    group.stop(lost);
    let server = group.at(leader);
    server.feed("SET k 2");
    let other = server.engine.server.open_session(Peer::default());
    let writer = std::mem::replace(&mut server.client, other);
    const REFUSED: Option<&str> = Some("-NOREPLICAS Not enough good replicas to write.\\r\\n");
    group.until("the lost node is missed", |group| {
        let server = &group.at(leader).engine.server;
        server.persistence.is_short_of_followers(&server.config)
    });
    assert_eq!(group.line(leader, "SET k 3").as_deref(), REFUSED);
    assert_eq!(group.line(leader, "EXISTS other").as_deref(), Some(":0\\r\\n"), "reads go on");
    assert_eq!(group.line(leader, "EVAL return(1) 0").as_deref(), Some(":1\\r\\n"), "and scripts that only read");
    let server = group.at(leader);
    assert!(send(&mut server.engine.server, writer).is_empty(), "the quorum is not enough");
    let committed = server.engine.server.persistence.last_lsn();
    group.until("the quorum has it", |group| {
        let journal = group.at(leader).engine.server.persistence.journal.as_ref();
        journal.and_then(Journal::member).is_some_and(|group| group.position().link.lsn == committed)
    });
    let server = group.at(leader);
    assert!(send(&mut server.engine.server, writer).is_empty(), "the quorum is still not enough");
    set(&mut group, "1");
    let mut sent = Vec::new();
    group.until("one other node is enough", |group| {
        sent = send(&mut group.at(leader).engine.server, writer);
        !sent.is_empty()
    });
    assert_eq!(sent, b"+OK\r\n");
    set(&mut group, "2");
    group.start(lost);
    group.until("the lost node is back", |group| group.line(leader, "SET k 4").as_deref() == OK);
    set(&mut group, "3");
    assert_eq!(group.line(leader, "SET k 5").as_deref(), REFUSED, "there are not so many");
    assert_eq!(group.line(leader, "CONFIG SET min-replicas-max-lag 0").as_deref(), OK);
    assert_eq!(group.line(leader, "SET k 5").as_deref(), OK);
}

#[test]
fn a_lease_lets_reads_leave_at_once_and_ends_with_the_quorum() {
    let mut group = Group::new();
    let leader = group.until_led();
    group.at(leader).engine.server.config.read_lease = true;
    assert_eq!(group.line(leader, "SET k v").as_deref(), OK);
    let value = "$1\\r\\nv\\r\\n";
    // Nobody follows the node's news here, so no round can free the reply.
    group.until("a read leaves at once", |group| {
        group.line(leader, "GET k");
        let server = group.at(leader);
        server.feed("GET k");
        send(&mut server.engine.server, server.client).escape_ascii().to_string() == value
    });
    group.others(leader).into_iter().for_each(|other| group.stop(other));
    // The node has stepped down, and its engine does not know it yet.
    thread::sleep(Duration::from_millis(600));
    let server = group.at(leader);
    server.feed("GET k");
    assert!(send(&mut server.engine.server, server.client).is_empty());
    assert_eq!(group.line(leader, "GET k"), None);
}

#[test]
fn a_snapshot_takes_the_place_of_the_log_on_every_node() {
    let mut group = Group::new();
    let leader = group.until_led();
    for number in 0..50 {
        assert_eq!(group.line(leader, &format!("RPUSH list {number}")), Some(format!(":{}\\r\\n", number + 1)));
    }
    group.until_all_say("LLEN list", ":50\\r\\n");
    for number in 1..=3 {
        let saved = group.line(number, "BGSAVE").expect("a reply");
        assert!(saved.starts_with("+Background"), "{saved}");
        group.until("it is saved", |group| {
            let saving = &group.at(number).engine.server.persistence.saving;
            saving.run.is_none() && saving.history(Purpose::Save).done > 0
        });
    }
    let leader = group.until_led();
    assert_eq!(group.line(leader, "RPUSH list 50").as_deref(), Some(":51\\r\\n"));
    assert_eq!(group.line(leader, "SADD set member").as_deref(), Some(":1\\r\\n"));
    (1..=3).for_each(|number| group.stop(number));
    (1..=3).for_each(|number| group.start(number));
    let leader = group.until_led();
    group.until_all_say("LLEN list", ":51\\r\\n");
    assert_eq!(group.line(leader, "RPUSH list 51").as_deref(), Some(":52\\r\\n"));
    group.until_all_say("LLEN list", ":52\\r\\n");
}

#[test]
fn a_client_that_comes_back_to_the_old_leader_is_disconnected_when_a_change_is_refused() {
    let mut group = Group::new();
    let old = group.until_led();
    assert_eq!(group.line(old, "SET key 1").as_deref(), Some("+OK\\r\\n"));
    let other = group.others(old)[0];
    group.line(old, &format!("NODE TRANSFER {other}"));
    group.until("another one leads", |group| group.leader() == Some(other));
    group.until_all_say("GET key", "$1\\r\\n1\\r\\n");
    assert!(group.line(old, "LOCK.INFO lock").is_some_and(|reply| reply.starts_with("-READONLY")));
    assert!(!group.at(old).is_ending(), "reads are served, and a question that only a leader answers changes nothing");
    assert!(group.line(old, "SET key 2").is_some_and(|reply| reply.starts_with("-READONLY")));
    assert!(group.at(old).is_ending());
    // Who comes to another follower knows that it is one.
    let third = group.others(old).into_iter().find(|number| *number != other).expect("three nodes");
    assert!(group.line(third, "SET key 2").is_some_and(|reply| reply.starts_with("-READONLY")));
    assert!(!group.at(third).is_ending());
}

#[test]
fn so_is_one_that_comes_back_to_a_leader_that_was_started_again() {
    let mut group = Group::new();
    let old = group.until_led();
    assert_eq!(group.line(old, "SET key 1").as_deref(), Some("+OK\\r\\n"));
    group.stop(old);
    let next = group.until_led();
    group.start(old);
    group.until_all_say("GET key", "$1\\r\\n1\\r\\n");
    for number in group.others(next) {
        assert!(group.line(number, "SET key 2").is_some_and(|reply| reply.starts_with("-READONLY")));
        assert_eq!(group.at(number).is_ending(), number == old);
    }
}

/// A snapshot of data that is being loaded would lack what is not loaded yet.
#[test]
fn a_scheduled_snapshot_waits_until_the_data_is_loaded() {
    let mut group = Group::new();
    let leader = group.until_led();
    let follower = group.others(leader)[0];
    assert!(group.line(follower, "LASTSAVE").is_some(), "the client is connected");
    let server = group.at(follower);
    ["BGREWRITEAOF", "BGSAVE SCHEDULE"].iter().for_each(|line| server.feed(line));
    assert!(server.engine.server.persistence.saving.is_scheduled(Purpose::Save));
    server.engine.server.set_loading(Some(Progress { began: Instant::now(), read: 0, all: 1, is_complete: false }));
    let saves = |group: &mut Group| {
        let saving = &group.at(follower).engine.server.persistence.saving;
        (saving.run.is_some(), [Purpose::Rewrite, Purpose::Save].map(|purpose| saving.history(purpose).done))
    };
    group.until("the first one is done", |group| saves(group) == (false, [1, 0]));
    for _ in 0..10 {
        group.at(follower).engine.save_slice();
        assert_eq!(saves(&mut group), (false, [1, 0]), "the data is not loaded");
    }
    group.at(follower).engine.server.set_loading(None);
    group.until("the second one is done", |group| saves(group) == (false, [1, 1]));
}

#[test]
fn a_node_that_was_away_while_the_log_was_cut_gets_the_leaders_snapshot() {
    let mut group = Group::new();
    let leader = group.until_led();
    let away = group.others(leader)[0];
    group.stop(away);
    let value = "x".repeat(40_000);
    for number in 0..40 {
        assert_eq!(group.line(leader, &format!("SET key{number} {value}")).as_deref(), OK);
    }
    assert!(group.line(leader, "BGSAVE").is_some());
    group.until("it is saved", |group| group.at(leader).engine.server.persistence.saving.run.is_none());
    assert_eq!(group.line(leader, "SET last 1").as_deref(), OK);
    group.start(away);
    group.until_all_say("GET last", "$1\\r\\n1\\r\\n");
    group.until_all_say("DBSIZE", ":41\\r\\n");
}

#[test]
fn keys_expire_on_the_leader_only() {
    let mut group = Group::new();
    let leader = group.until_led();
    assert_eq!(group.line(leader, "SET k v PX 50").as_deref(), OK);
    let other = group.others(leader)[0];
    // Without its leader's word, the key stays, although nobody is shown it.
    group.until("it has the key", |group| group.at(other).engine.ks.db(0).len() == 1);
    group.until("the key is due", |group| group.line(other, "GET k").as_deref() == Some("$-1\\r\\n"));
    assert_eq!(group.at(other).engine.ks.db(0).len(), 1);
    assert_eq!(group.line(leader, "GET k").as_deref(), Some("$-1\\r\\n"));
    group.until("the leader's word has come", |group| group.at(other).engine.ks.db(0).is_empty());
}

/// The leader records which scripts its cache drops, and a node that lacked one of them could not follow.
#[test]
fn a_script_that_only_a_follower_has_run_is_not_in_its_cache() {
    let mut group = Group::new();
    let leader = group.until_led();
    let other = group.others(leader)[0];
    assert_eq!(group.line(other, "EVAL return{1,2} 0").as_deref(), Some("*2\\r\\n:1\\r\\n:2\\r\\n"));
    let sha = "61799eb222cf8fbe0faaff0e94d0d030ac02371f";
    let exists = format!("SCRIPT EXISTS {sha}");
    assert_eq!(group.line(other, &exists).as_deref(), Some("*1\\r\\n:0\\r\\n"));
    assert_eq!(group.line(leader, "EVAL return{1,2} 0").as_deref(), Some("*2\\r\\n:1\\r\\n:2\\r\\n"));
    group.until_all_say(&exists, "*1\\r\\n:1\\r\\n");
}

#[test]
fn what_was_executed_and_never_proposed_is_forgotten_with_its_reign() {
    let mut group = Group::new();
    let leader = group.until_led();
    assert_eq!(group.line(leader, "SET k before").as_deref(), OK);
    assert_eq!(group.line(leader, "RPUSH list 1 2 3").as_deref(), Some(":3\\r\\n"));
    // Nobody sends the replies, so nothing makes a block of the changes.
    group.at(leader).feed("SET k invented");
    group.at(leader).feed("DEL list");
    let others = group.others(leader);
    others.iter().for_each(|other| group.stop(*other));
    group.until("it is deposed", |group| group.at(leader).is_killed());
    others.iter().for_each(|other| group.start(*other));
    let next = group.until_led();
    assert_eq!(group.line(next, "SET other 1").as_deref(), OK);
    group.until_all_say("GET k", "$6\\r\\nbefore\\r\\n");
    group.until_all_say("LLEN list", ":3\\r\\n");
}

#[test]
fn nothing_leaves_after_the_end_of_a_reign() {
    let mut group = Group::new();
    let leader = group.until_led();
    let others = group.others(leader);
    group.at(leader).feed("BLPOP queue 0");
    let server = group.at(leader);
    let pusher = server.engine.server.open_session(Peer::default());
    let waiter = std::mem::replace(&mut server.client, pusher);
    others.iter().for_each(|other| group.stop(*other));
    // The element is served from data that the group never gets.
    group.at(leader).feed("RPUSH queue lost");
    let server = group.at(leader);
    for client in [waiter, pusher] {
        assert!(send(&mut server.engine.server, client).is_empty());
    }
    let aside = group.servers.remove(&leader).expect("it runs");
    // The node steps down, and its engine does not know it yet.
    thread::sleep(Duration::from_millis(600));
    others.iter().for_each(|other| group.start(*other));
    let next = group.until_led();
    for number in 0..4 {
        assert_eq!(group.line(next, &format!("SET other {number}")).as_deref(), OK);
    }
    group.servers.insert(leader, aside);
    for _ in 0..3 {
        let server = group.at(leader);
        let _ = server.following.step(&mut server.engine).expect("the orders can be followed");
        for client in [waiter, pusher] {
            assert!(send(&mut server.engine.server, client).is_empty());
        }
    }
}

#[test]
fn a_call_that_waits_in_vain_is_answered_by_a_leader_with_a_quorum_only() {
    let mut group = Group::new();
    let leader = group.until_led();
    group.at(leader).feed("BLPOP queue 0.05");
    group.others(leader).into_iter().for_each(|other| group.stop(other));
    group.until("the client is disconnected", |group| {
        let server = group.at(leader);
        server.engine.time_out_waits();
        assert!(send(&mut server.engine.server, server.client).is_empty());
        server.is_killed()
    });
}

#[test]
fn a_client_that_never_stops_sending_gets_its_replies() {
    let mut group = Group::new();
    let leader = group.until_led();
    assert_eq!(group.line(leader, "SET k v").as_deref(), OK);
    let begin = Instant::now();
    let mut replies = Vec::new();
    while replies.len() < 10 * 1024 {
        assert!(begin.elapsed() < Duration::from_secs(60), "{} bytes of replies", replies.len());
        let server = group.at(leader);
        server.feed("GET k");
        replies.extend(send(&mut server.engine.server, server.client));
        let _ = server.following.step(&mut server.engine).expect("the orders can be followed");
    }
}

#[test]
fn wait_answers_for_changes_without_a_reply_of_their_own() {
    let mut group = Group::new();
    let leader = group.until_led();
    group.at(leader).feed("CLIENT REPLY SKIP");
    group.at(leader).feed("SET k v");
    group.others(leader).into_iter().for_each(|other| group.stop(other));
    assert_eq!(group.line(leader, "WAIT 1 0"), None, "no other node has it");
}
