//! Cluster mode: a group of three processes, or a single server, as a cluster of one shard. Replies are compared with
//! those of a node of Redis Cluster that owns all slots.

use std::collections::HashSet;
use std::net::TcpStream;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::group::{Group, NODE_PORT, PORT};
use crate::harness::{Program, REPLY_DEADLINE, Raw, Server, Value, until};
use crate::oracle::{REDIS_CLI, REDIS_SERVER_8};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const FLAGS: [&str; 2] = ["--cluster-enabled", "yes"];

fn text(value: &Value) -> String {
    String::from_utf8(value.bytes().unwrap_or_else(|| panic!("a text, not {value:?}")).to_vec()).expect("UTF-8")
}

fn connect(group: &Group, number: usize) -> Option<Raw> {
    TcpStream::connect((group.host(number), PORT)).ok().map(Raw::over)
}

/// Returns the replies to commands, written as in redis-cli; a `~` stands for a blank, a `^` for the end of a line.
/// `None` if the connection ends.
fn replies<'l>(of: &mut Raw, lines: impl IntoIterator<Item = &'l str>) -> Option<Vec<Value>> {
    let reply = |line: &str| {
        let word = |word: &str| word.replace('~', " ").replace('^', "\n");
        of.send_command(&line.split(' ').map(word).collect::<Vec<_>>());
        of.try_reply(REPLY_DEADLINE).ok().map(|reply| reply.value)
    };
    lines.into_iter().map(reply).collect()
}

/// The shard of a group, as all of its nodes show it.
#[derive(PartialEq)]
struct Shown {
    /// The number of the leader.
    leader: usize,
    /// The lines of CLUSTER NODES, the leader's first, without saying which node was asked.
    lines: Vec<String>,
}

impl Shown {
    /// Returns the lines of CLUSTER NODES at a node, if that has its data.
    fn lines(group: &Group, number: usize) -> Option<Vec<String>> {
        let replies = replies(&mut connect(group, number)?, ["CLUSTER NODES"])?;
        let Value::Bulk(all) = &replies[0] else { return None };
        let all = String::from_utf8_lossy(all);
        assert_eq!(all.matches("myself,").count(), 1, "{all}");
        Some(all.replace("myself,", "").lines().map(str::to_owned).collect())
    }

    /// Waits until these nodes, and no others, are connected and agree which of them leads.
    fn by(group: &Group, numbers: &[usize]) -> Shown {
        let begun = Instant::now();
        loop {
            let all: Vec<Vec<String>> = numbers.iter().filter_map(|number| Shown::lines(group, *number)).collect();
            let is_agreed = all.len() == numbers.len()
                && all.iter().all(|lines| *lines == all[0])
                && all[0].iter().filter(|line| line.contains(" connected")).count() == numbers.len();
            let leads = |number: &usize| {
                let place = format!(" {}:{PORT}@{NODE_PORT} master - 0 0 ", group.host(*number));
                all[0][0].contains(&place) && all[0][0].ends_with(" connected 0-16383")
            };
            if is_agreed && let Some(leader) = numbers.iter().copied().find(leads) {
                return Shown { leader, lines: all[0].clone() };
            }
            assert!(begun.elapsed() < PATIENCE, "the nodes don't agree: {all:#?}\n{}", group.logs());
            sleep(Duration::from_millis(5));
        }
    }

    /// Asks something of the group while nothing changes: on a busy machine another node may begin to lead, and then it
    /// is asked again.
    fn steadily<T>(group: &Group, numbers: &[usize], mut ask: impl FnMut(&Shown) -> Option<T>) -> (Shown, T) {
        for _ in 0..20 {
            let shown = Shown::by(group, numbers);
            let answer = ask(&shown);
            if let Some(answer) = answer.filter(|_| Shown::by(group, numbers) == shown) {
                return (shown, answer);
            }
        }
        panic!("the group does not come to rest: {}", group.logs());
    }

    fn names(&self) -> HashSet<&str> {
        self.lines.iter().map(|line| &line[..40]).collect()
    }

    fn epoch(&self) -> u64 {
        self.lines[0].split(' ').nth(6).and_then(|epoch| epoch.parse().ok()).expect("an epoch")
    }

    /// Returns the replies that a transcript shows, each behind its command.
    fn expected(&self, group: &Group, transcript: &'static str) -> Vec<(&'static str, String)> {
        let moved = format!("(error) MOVED 6680 {}:{PORT}", group.host(self.leader));
        let lines = transcript.trim().lines().filter_map(|line| line.split_once(" => "));
        lines.map(|(command, reply)| (command, reply.replace("MOVED", &moved))).collect()
    }
}

/// Runs the commands of a transcript at a node that leads, or at one that does not.
fn compare(group: &Group, numbers: &[usize], leads: bool, transcript: &'static str) {
    let commands = || transcript.trim().lines().filter_map(|line| line.split_once(" => ")).map(|(command, _)| command);
    let (shown, replies) = Shown::steadily(group, numbers, |shown| {
        let number = numbers.iter().find(|number| (**number == shown.leader) == leads).expect("such a node");
        let mut client = connect(group, *number)?;
        // A follower may be a little behind.
        until(
            || replies(&mut client, ["READONLY", "EXISTS counter"]).is_none_or(|seen| seen[1] == Value::Integer(1)),
            "the counter is here",
        );
        replies(&mut client, std::iter::once("RESET").chain(commands()))
    });
    let seen = replies[1..].iter().map(|reply| format!("{reply:?}").replace("\\'", "'"));
    for ((command, expected), seen) in shown.expected(group, transcript).into_iter().zip(seen) {
        assert_eq!(seen, expected, "{command}");
    }
}

#[test]
fn a_group_is_one_shard_whose_leader_clients_find() {
    let mut group = Group::with(&FLAGS, false);
    group.increment();
    all_forms_agree(&group);
    compare(&group, &[1, 2, 3], false, ON_A_FOLLOWER);
    compare(&group, &[1, 2, 3], true, ON_THE_LEADER);
    redis_cli_is_content(&group);

    let before = Shown::by(&group, &[1, 2, 3]);
    group.end(before.leader, libc::SIGKILL);
    let others: Vec<usize> = (1..=3).filter(|number| *number != before.leader).collect();
    group.increment();
    let after = Shown::by(&group, &others);
    assert_eq!(after.names(), before.names());
    assert!(after.epoch() > before.epoch());
    compare(&group, &others, false, "GET counter => MOVED");

    group.start(before.leader);
    assert_eq!(Shown::by(&group, &[1, 2, 3]).names(), before.names(), "a restart changes no name");
    let logs = group.logs();
    assert!(!logs.contains("panicked"), "{logs}");
}

/// CLUSTER SLOTS, SHARDS and the others say what CLUSTER NODES says.
fn all_forms_agree(group: &Group) {
    let (shown, seen) = Shown::steadily(group, &[1, 2, 3], |shown| {
        let mut follower = connect(group, shown.leader % 3 + 1)?;
        let forms = ["CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER INFO", "CLUSTER LINKS", "CLUSTER MYID"];
        let names = (1..=3).map(|number| replies(&mut connect(group, number)?, ["CLUSTER MYSHARDID"]));
        Some((replies(&mut follower, forms)?, names.collect::<Option<Vec<_>>>()?))
    });
    let (forms, shards) = seen;
    let [Value::Array(ranges), of_shards, info, Value::Array(links), own] = &forms[..] else { panic!("{forms:?}") };
    let [Value::Array(range)] = &ranges[..] else { panic!("one range: {ranges:?}") };
    assert_eq!(range[..2], [Value::Integer(0), Value::Integer(16_383)]);
    let node = |line: &String| {
        let (name, place) = line.split_once(' ').expect("two words");
        let host = place.split(':').next().unwrap_or_default();
        Value::Array(vec![Value::bulk(host), Value::Integer(PORT.into()), Value::bulk(name), Value::Array(vec![])])
    };
    assert_eq!(range[2..], shown.lines.iter().map(node).collect::<Vec<_>>());
    let of_shards = format!("{of_shards:?}");
    let count = |word: &str| of_shards.matches(word).count();
    assert_eq!(["\"online\"", "\"replica\"", "\"master\""].map(count), [3, 2, 1], "{of_shards}");
    let info = text(info);
    let epoch = format!("cluster_current_epoch:{}\r\n", shown.epoch());
    for words in ["cluster_state:ok\r\n", "cluster_known_nodes:3\r\n", &epoch] {
        assert!(info.contains(words), "{info}");
    }
    assert_eq!(links.len(), 4, "one each way, with two nodes");
    let place = format!("{} {}:{PORT}@", text(own), group.host(shown.leader % 3 + 1));
    assert!(shown.lines.iter().any(|line| line.starts_with(&place)), "{place}");
    assert!(shards.iter().all(|name| *name == shards[0]), "{shards:?}");
}

/// Calls with keys or channels go to the leader, but for the reads of a client that wants them here.
const ON_A_FOLLOWER: &str = "
GET counter => MOVED
SET counter 1 => MOVED
MGET counter other => MOVED
WATCH counter => MOVED
EVAL return(1) 1 counter => MOVED
LOCK.ACQUIRE counter me PX 1000 => MOVED
PING => +PONG
EVAL return(1) 0 => 1
MULTI => +OK
GET counter => MOVED
EXEC => (error) EXECABORT Transaction discarded because of previous errors.
PUBLISH counter x => MOVED
SPUBLISH counter x => MOVED
SUBSCRIBE counter => MOVED
SSUBSCRIBE counter => MOVED
FLUSHALL => (error) READONLY You can't write against a read only replica.
SET counter => (error) ERR wrong number of arguments for 'set' command
READONLY => +OK
EXISTS counter => 1
EXISTS counter other => 1
SET counter 1 => MOVED
PUBLISH counter x => MOVED
LOCK.INFO counter => MOVED
EVAL return(redis.call('EXISTS',KEYS[1])) 1 counter => 1
EVAL_RO return(redis.call('EXISTS',KEYS[1])) 1 counter => 1
EVAL #!lua~flags=no-writes^return(1) 1 counter => 1
EVAL #!lua~flags=allow-oom^return(1) 1 counter => MOVED
EVAL_RO #!lua~flags=no-writes^return(1) 1 counter => 1
EVAL_RO #!lua~flags=allow-oom^return(1) 1 counter => MOVED
MULTI => +OK
EXISTS counter => +QUEUED
EXEC => [1]
MULTI => +OK
EXISTS counter => +QUEUED
INCR counter => MOVED
EXEC => (error) EXECABORT Transaction discarded because of previous errors.
READWRITE => +OK
EXISTS counter => MOVED
READONLY => +OK
RESET => +RESET
EXISTS counter => MOVED
CLUSTER ADDSLOTS 1 => (error) ERR one shard always owns all slots, so they can't be assigned
CLUSTER BUMPEPOCH => (error) ERR the epoch is the term of the leader, which changes by elections only
CLUSTER FAILOVER => (error) ERR the leader hands leadership over: send NODE TRANSFER to it
";

/// All keys are on the leader, so a call may use keys of several slots.
const ON_THE_LEADER: &str = "
MSET a 1 b 2 => +OK
MGET a b => [\"1\", \"2\"]
DEL a b => 2
READONLY => +OK
SET a 1 => +OK
PUBLISH counter x => 0
SELECT 1 => (error) ERR SELECT is not allowed in cluster mode
";

/// redis-cli finds nothing wrong with the cluster, and follows the errors of a follower.
fn redis_cli_is_content(group: &Group) {
    if REDIS_CLI.is_missing() {
        return;
    }
    let cli = |arguments: &[&str]| {
        let output = Command::new("redis-cli").args(arguments).output().expect("redis-cli");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (_, (check, increment)) = Shown::steadily(group, &[1, 2, 3], |shown| {
        let host = group.host(shown.leader % 3 + 1);
        let check = cli(&["--cluster", "check", &format!("{host}:{PORT}")]);
        Some((check, cli(&["-c", "-h", host, "-p", &PORT.to_string(), "INCR", "by-redis-cli"])))
    });
    let (is_sound, said) = check;
    for words in ["All nodes agree about slots configuration", "All 16384 slots covered", "2 additional replica(s)"] {
        assert!(is_sound && said.contains(words), "{said}");
    }
    let (has_run, said) = increment;
    assert!(has_run && said.trim().parse::<u64>().is_ok_and(|value| value > 0), "{said}");
}

/// Replaces what differs between two servers: names, and where they are.
fn alike(value: Value, port: u16) -> Value {
    match value {
        Value::Bulk(bytes) if bytes.len() == 40 && bytes.iter().all(u8::is_ascii_hexdigit) => Value::bulk("a name"),
        Value::Integer(number) if number == i64::from(port) => Value::bulk("the port"),
        Value::Array(items) => Value::Array(items.into_iter().map(|item| alike(item, port)).collect()),
        Value::Map(pairs) => {
            let offset = Value::bulk("replication-offset");
            let pair = |(name, value): (Value, Value)| {
                let value = if name == offset { Value::bulk("an offset") } else { alike(value, port) };
                (name, value)
            };
            Value::Map(pairs.into_iter().map(pair).collect())
        }
        other => other,
    }
}

#[test]
fn a_single_server_replies_like_a_node_that_owns_all_slots() {
    if REDIS_SERVER_8.is_missing() {
        return;
    }
    let redis = Server::start(Program::Redis8, &["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"]);
    assert_eq!(redis.raw().command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]), Value::ok());
    let is_up = || text(&redis.raw().command(&["CLUSTER", "INFO"])).contains("cluster_state:ok");
    until(is_up, "Redis notices that it owns all slots");
    let server = Server::start(Program::Tidegate, &FLAGS);
    for is_resp3 in [false, true] {
        let mut sides = [&redis, &server].map(|of| (of.raw(), of.port()));
        if is_resp3 {
            sides.iter_mut().for_each(|(raw, _)| drop(raw.hello3()));
        }
        let mut both = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            sides.each_mut().map(|(raw, port)| {
                let myself = text(&raw.command(&["CLUSTER", "MYID"]));
                let words: Vec<&str> = words.iter().map(|word| if *word == "ME" { &*myself } else { word }).collect();
                alike(raw.command(&words), *port)
            })
        };
        for line in CALLS.trim().lines() {
            let [theirs, ours] = both(line);
            assert_eq!(ours, theirs, "{line}, RESP3: {is_resp3}");
        }
        // Neither its place nor its time of a ping.
        let [theirs, ours] = both("CLUSTER NODES").map(|value| {
            let line = text(&value);
            line.split(' ').skip(2).map(str::to_owned).collect::<Vec<_>>()
        });
        assert_eq!(ours, theirs);
        for line in ["MGET a b", "EVAL return(1) 2 a b"] {
            let [theirs, ours] = both(line);
            assert_eq!(theirs, Value::error("CROSSSLOT Keys in request don't hash to the same slot"));
            assert!(!matches!(ours, Value::Error(_)), "{ours:?}");
        }
    }
}

/// Calls with equal replies.
const CALLS: &str = "
SET a 1
SET {a}b 1
CLUSTER SLOTS
CLUSTER SHARDS
CLUSTER INFO
CLUSTER MYID
CLUSTER MYSHARDID
CLUSTER LINKS
CLUSTER REPLICAS ME
CLUSTER SLAVES ME
CLUSTER REPLICAS x
CLUSTER COUNT-FAILURE-REPORTS ME
CLUSTER COUNT-FAILURE-REPORTS x
CLUSTER KEYSLOT a
CLUSTER KEYSLOT {a}b
CLUSTER KEYSLOT
CLUSTER COUNTKEYSINSLOT 15495
CLUSTER COUNTKEYSINSLOT 0
CLUSTER COUNTKEYSINSLOT x
CLUSTER COUNTKEYSINSLOT 16384
CLUSTER COUNTKEYSINSLOT -1
CLUSTER GETKEYSINSLOT 15495 0
CLUSTER GETKEYSINSLOT 0 10
CLUSTER GETKEYSINSLOT 15495 -1
CLUSTER GETKEYSINSLOT x 1
CLUSTER GETKEYSINSLOT 1 x
CLUSTER GETKEYSINSLOT 16384 1
CLUSTER SAVECONFIG
CLUSTER NOSUCH
READONLY
GET a
SET a 1
READWRITE
ASKING
SELECT 0
SELECT 1
SELECT 99
SELECT x
SWAPDB 0 1
MOVE a 1
COPY a {a}b DB 1
COPY a {a}b DB 0 REPLACE
INFO cluster
";

#[test]
fn the_name_of_a_single_server_lasts_as_its_data_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().to_str().expect("a path of ASCII");
    let name = |flags: &[&str]| {
        let server = Server::start(Program::Tidegate, &[&FLAGS[..], &["--dir", dir], flags].concat());
        let mut client = server.raw();
        assert!(text(&client.command(&["INFO", "server"])).contains("redis_mode:cluster"));
        (text(&client.command(&["CLUSTER", "MYID"])), text(&client.command(&["CLUSTER", "NODES"])))
    };
    let (first, line) = name(&["--appendonly", "yes"]);
    assert!(line.contains(" 127.0.0.1:"), "{line}");
    let announced = ["--cluster-announce-ip", "tide.example", "--cluster-announce-port", "7000"];
    let (second, line) = name(&[&["--appendonly", "yes"][..], &announced].concat());
    assert_eq!(first, second);
    assert!(line.contains(" tide.example:7000@0 myself,master - 0 0 0 connected 0-16383"), "{line}");
}
