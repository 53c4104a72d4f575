//! Sentinel's port of the nodes of a group: beside a Sentinel of Redis, and while leaders come and go.

use std::collections::BTreeMap;
use std::fs::write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::group::{Group, PORT};
use crate::harness::{Program, Raw, Server, Value, free_port, launch_command, until};
use crate::oracle::{REDIS_SERVER, REDIS_SERVER_8};

/// A port that no server on all addresses is likely to have.
const SENTINEL_PORT: u16 = 26_376;

fn group() -> Group {
    Group::with(&["--sentinel-port", "26376"], false)
}

/// Sends a line of words to a client.
fn call(client: &mut Raw, line: &str) -> Value {
    client.command(&line.split(' ').collect::<Vec<_>>())
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_else(|| panic!("{value:?} is no text"))).into_owned()
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) | Value::Push(items) => items,
        other => panic!("{other:?} is no array"),
    }
}

/// The fields of a description, in RESP2 or RESP3.
fn fields(value: Value) -> BTreeMap<String, String> {
    match value {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (text(name), text(value))).collect(),
        flat => items(flat).chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect(),
    }
}

/// The leader's host that a Sentinel names; `None` if it knows none.
fn leader(client: &mut Raw) -> Option<String> {
    match call(client, "SENTINEL get-master-addr-by-name mymaster") {
        Value::Null => None,
        address => {
            let address = items(address);
            assert_eq!(address[1], Value::bulk(&PORT.to_string()));
            Some(text(&address[0]))
        }
    }
}

/// The next message, as its channel and its text.
fn message(client: &mut Raw) -> (String, String) {
    let message = items(client.reply().value);
    let [.., channel, what] = &message[..] else { panic!("{message:?} is no message") };
    (text(channel), text(what))
}

#[test]
fn clients_find_the_leader_and_follow_it() {
    let mut group = group();
    let (first, _) = group.increment();
    let others: Vec<usize> = (1..=3).filter(|number| *number != first).collect();
    let host = |number: usize| group.hosts[number - 1].clone();
    let (first_host, [one_host, other_host]) = (host(first), [0, 1].map(|at| host(others[at])));
    for number in 1..=3 {
        let mut sentinel = group.raw(number, SENTINEL_PORT);
        until(|| leader(&mut sentinel).as_ref() == Some(&first_host), "the leader is named");
        let master = fields(call(&mut sentinel, "SENTINEL MASTER mymaster"));
        assert_eq!([&master["ip"], &master["flags"], &master["quorum"]], [&first_host, "master", "2"]);
        until(
            || call(&mut sentinel, "SENTINEL CKQUORUM mymaster") == Value::status(QUORUM_OF_ALL),
            "all nodes are connected",
        );
        let replicas: Vec<_> =
            items(call(&mut sentinel, "SENTINEL REPLICAS mymaster")).into_iter().map(fields).collect();
        assert_eq!(replicas.len(), 2);
        for replica in replicas {
            assert!([&one_host, &other_host].contains(&&replica["ip"]), "{replica:?}");
            assert_eq!([&replica["flags"], &replica["master-host"]], ["slave", &first_host]);
        }
        sentinel.hello3();
        until(|| items(call(&mut sentinel, "SENTINEL SENTINELS mymaster")).len() == 2, "both others are known");
        let ids: Vec<String> = items(call(&mut sentinel, "SENTINEL SENTINELS mymaster"))
            .into_iter()
            .map(|sentinel| fields(sentinel)["runid"].clone())
            .chain([text(&call(&mut sentinel, "SENTINEL MYID"))])
            .collect();
        assert!(ids.iter().all(|id| id.len() == 40 && id.bytes().all(|digit| digit.is_ascii_hexdigit())), "{ids:?}");
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[2] != ids[0], "{ids:?}");
    }

    let [mut early, mut late] = [0, 0].map(|_| group.raw(others[0], SENTINEL_PORT));
    let mut all = group.raw(others[1], SENTINEL_PORT);
    assert_eq!(call(&mut late, "PING"), Value::status("PONG"));
    call(&mut early, "SUBSCRIBE +switch-master");
    all.hello3();
    assert_eq!(call(&mut all, "PSUBSCRIBE *"), Value::Push(subscribed("psubscribe", "*")));
    group.end(first, libc::SIGKILL);
    let (next, _) = group.increment();
    let next_host = group.hosts[next - 1].clone();
    let switch = ("+switch-master".to_owned(), format!("mymaster {first_host} {PORT} {next_host} {PORT}"));
    assert_eq!(message(&mut early), switch);
    // A client that was connected when the leader changed may have missed the message. A later one has not.
    call(&mut late, "SUBSCRIBE +switch-master");
    assert_eq!(message(&mut late), switch);
    let mut later = group.raw(others[0], SENTINEL_PORT);
    assert_eq!(call(&mut later, "SUBSCRIBE +switch-master"), Value::Array(subscribed("subscribe", "+switch-master")));
    assert_eq!(call(&mut later, "PING"), Value::Array(vec![Value::bulk("pong"), Value::bulk("")]));
    let mut by_pattern = group.raw(others[0], SENTINEL_PORT);
    call(&mut by_pattern, "PSUBSCRIBE +sw*");
    assert_eq!(message(&mut by_pattern), switch);

    let follows = |host: &str| format!("slave {host}:{PORT} {host} {PORT} @ mymaster {next_host} {PORT}");
    // The node may count as down before or after another one leads.
    let mut seen: Vec<(String, String)> = Vec::new();
    let mut sees = |channel: &str, what: &str| {
        while !seen.iter().any(|(on, about)| on == channel && about.contains(what)) {
            seen.push(message(&mut all));
        }
    };
    sees("+switch-master", &switch.1);
    sees("+slave", &follows(&first_host));
    sees("+sdown", &format!("{first_host} {PORT}"));
    let mut sentinel = group.raw(others[0], SENTINEL_PORT);
    let mut gone = || {
        let replicas = items(call(&mut sentinel, "SENTINEL SLAVES mymaster")).into_iter().map(fields);
        replicas.into_iter().find(|replica| replica["ip"] == first_host).expect("it is a member still")
    };
    until(|| gone()["flags"] == "s_down,slave,disconnected", "the node counts as down");
    assert_eq!(gone()["master-link-status"], "err");
    let quorum_of_two = Value::status(&QUORUM_OF_ALL.replace('3', "2"));
    until(|| call(&mut sentinel, "SENTINEL CKQUORUM mymaster") == quorum_of_two, "two nodes are connected");
    group.start(first);
    sees("-sdown", &format!("slave {first_host}:{PORT} "));
    until(
        || leader(&mut group.raw(first, SENTINEL_PORT)).as_ref() == Some(&next_host),
        "the restarted node names the leader",
    );

    // A planned change closes connections at the leader's other port only.
    let (mut data, mut sentinel) = (group.raw(next, PORT), group.raw(next, SENTINEL_PORT));
    assert_eq!(call(&mut data, "SET key value"), Value::ok());
    assert_eq!(call(&mut sentinel, "SENTINEL FAILOVER mymaster"), Value::ok());
    assert!(data.read_to_end().is_empty());
    until(|| leader(&mut sentinel).is_some_and(|host| host != next_host), "the successor is named");
    let refusal = text(&call(&mut sentinel, "SENTINEL FAILOVER mymaster"));
    assert!(refusal.starts_with("ERR this node does not lead: send SENTINEL FAILOVER to node "), "{refusal}");

    // A node that is left alone names nobody.
    let left = others[0];
    (1..=3).filter(|number| *number != left).for_each(|number| group.end(number, libc::SIGKILL));
    let mut sentinel = group.raw(left, SENTINEL_PORT);
    until(|| leader(&mut sentinel).is_none(), "no leader is named");
    let master = fields(call(&mut sentinel, "SENTINEL MASTER mymaster"));
    assert_eq!([&master["ip"], &master["port"], &master["flags"]], ["?", "0", "s_down,o_down,master,disconnected"]);
    let refusal = text(&call(&mut sentinel, "SENTINEL CKQUORUM mymaster"));
    assert!(refusal.starts_with("NOQUORUM 1 usable Sentinels. Not enough"), "{refusal}");
    // The port is open before the node has met the others.
    group.end(left, libc::SIGKILL);
    group.start(left);
    until(|| std::net::TcpStream::connect((group.hosts[left - 1].as_str(), SENTINEL_PORT)).is_ok(), "it listens");
    let mut sentinel = group.raw(left, SENTINEL_PORT);
    assert_eq!((leader(&mut sentinel), call(&mut sentinel, "PING")), (None, Value::status("PONG")));
}

const QUORUM_OF_ALL: &str = "OK 3 usable Sentinels. Quorum and failover authorization can be reached";

fn subscribed(verb: &str, name: &str) -> Vec<Value> {
    vec![Value::bulk(verb), Value::bulk(name), Value::Integer(1)]
}

#[test]
fn the_port_serves_its_own_commands_and_channels_only() {
    let group = group();
    let (number, _) = group.increment();
    let (mut data, mut sentinel) = (group.raw(number, PORT), group.raw(number, SENTINEL_PORT));
    for line in ["GET key", "PUBLISH +switch-master x", "CONFIG GET *", "MULTI", "EVAL x 0", "CLIENT TRACKING ON"] {
        let refusal = text(&call(&mut sentinel, line));
        assert!(refusal.starts_with("ERR unknown "), "{line}: {refusal}");
    }
    // The last name that is looked up at one port must not be remembered at the other one.
    assert_eq!(call(&mut data, "GET key"), Value::Null);
    let refusal = text(&call(&mut data, "SENTINEL MASTERS"));
    assert!(refusal.starts_with("ERR unknown command 'SENTINEL'"), "{refusal}");
    assert_eq!(call(&mut data, "COMMAND INFO sentinel"), Value::Array(vec![Value::Null]));
    assert_eq!(text(&call(&mut sentinel, "CLIENT SETNAME me")), "OK");
    let line = text(&call(&mut data, "CLIENT LIST"));
    assert!(line.contains("name=me ") && line.contains("cmd=client|setname "), "{line}");

    let mut listener = group.raw(number, SENTINEL_PORT);
    listener.hello3();
    call(&mut listener, "PSUBSCRIBE *");
    assert_eq!(call(&mut data, "PUBLISH +switch-master lies"), Value::Integer(0));
    assert_eq!(call(&mut listener, "PING"), Value::status("PONG"));
    assert_eq!(text(&call(&mut sentinel, "RESET")), "RESET");
    assert_eq!(text(&call(&mut sentinel, "QUIT")), "OK");
    assert!(sentinel.read_to_end().is_empty());

    // The rights that the documentation of Redis recommends for clients of Sentinel.
    let rights = "ACL SETUSER finder on >word allchannels -@all +auth +client|getname +client|id +client|setname \
                  +command +hello +ping +role +sentinel|get-master-addr-by-name +sentinel|master +sentinel|myid \
                  +sentinel|replicas +sentinel|sentinels +sentinel|masters +subscribe";
    assert_eq!(call(&mut data, rights), Value::ok());
    let mut finder = group.raw(number, SENTINEL_PORT);
    assert_eq!(call(&mut finder, "AUTH finder word"), Value::ok());
    assert_eq!(leader(&mut finder).as_ref(), Some(&group.hosts[number - 1]));
    assert_eq!(items(call(&mut finder, "ROLE"))[0], Value::bulk("sentinel"));
    for line in ["SENTINEL FAILOVER mymaster", "SENTINEL CKQUORUM mymaster", "INFO", "CLIENT LIST"] {
        let refusal = text(&call(&mut finder, line));
        assert!(refusal.starts_with("NOPERM "), "{line}: {refusal}");
    }
    for line in ["MONITOR a 127.0.0.1 1 2", "REMOVE mymaster", "RESET *", "SET mymaster quorum 1", "CONFIG SET a b"] {
        let refusal = text(&call(&mut group.raw(number, SENTINEL_PORT), &format!("SENTINEL {line}")));
        assert!(refusal.contains("(see docs/replication.md)"), "{line}: {refusal}");
    }
    assert_eq!(call(&mut data, "CLIENT PAUSE 60000 ALL"), Value::ok());
    assert_eq!(call(&mut listener, "PING"), Value::status("PONG"), "only clients of the data pause");
}

#[test]
fn a_busy_script_is_not_in_the_way() {
    let group = group();
    let (number, _) = group.increment();
    let (mut data, mut sentinel) = (group.raw(number, PORT), group.raw(number, SENTINEL_PORT));
    assert_eq!(call(&mut data, "CONFIG SET busy-reply-threshold 50"), Value::ok());
    let mut busy = group.raw(number, PORT);
    busy.send_command(&["EVAL", "while true do end", "0"]);
    until(|| text(&call(&mut data, "PING")).starts_with("BUSY"), "the script is busy");
    assert_eq!(call(&mut sentinel, "PING"), Value::status("PONG"));
    assert!(text(&call(&mut sentinel, "ACL SETUSER other on")).starts_with("BUSY"));
    // It leads until it has served nobody for too long. Its engine can't know, but it must not name itself any more.
    until(|| leader(&mut sentinel).as_ref() != Some(&group.hosts[number - 1]), "the leader is deposed");
}

/// A Sentinel of Redis that watches a master with one replica.
struct OfRedis {
    sentinel: Child,
    port: u16,
    _servers: [Server; 2],
    _folder: tempfile::TempDir,
}

impl OfRedis {
    fn start(program: Program) -> OfRedis {
        let master = Server::start(program, &[]);
        let replica = Server::start(program, &["--replicaof", &format!("127.0.0.1 {}", master.port())]);
        let (folder, port) = (tempfile::tempdir().expect("a folder"), free_port());
        let file = folder.path().join("sentinel.conf");
        let lines = format!("port {port}\nsentinel monitor mymaster 127.0.0.1 {} 1\n", master.port());
        write(&file, lines).expect("a file");
        let sentinel = Command::new(&launch_command(program)[0])
            .arg(&file)
            .arg("--sentinel")
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        until(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok(), "Redis' Sentinel listens");
        let replicas = || items(call(&mut Raw::connect(port), "SENTINEL REPLICAS mymaster"));
        until(|| replicas().len() == 1, "Redis' Sentinel has found the replica");
        OfRedis { sentinel, port, _servers: [master, replica], _folder: folder }
    }
}

impl Drop for OfRedis {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.sentinel.kill();
        let _ = self.sentinel.wait();
    }
}

/// The names of fields of a description, or the words before the colons of a text of INFO.
fn names(value: &Value) -> Vec<String> {
    match value {
        Value::Map(pairs) => pairs.iter().map(|(name, _)| text(name)).collect(),
        Value::Array(flat) => flat.iter().step_by(2).map(text).collect(),
        other => text(other).lines().map(|line| line.split(':').next().unwrap_or_default().to_owned()).collect(),
    }
}

#[test]
fn replies_have_the_form_of_redis_sentinel() {
    for (tool, program) in [(&REDIS_SERVER, Program::Redis), (&REDIS_SERVER_8, Program::Redis8)] {
        if tool.is_missing() {
            continue;
        }
        let redis = OfRedis::start(program);
        let group = group();
        let (number, _) = group.increment();
        for is_resp3 in [false, true] {
            let mut clients = [Raw::connect(redis.port), group.raw(number, SENTINEL_PORT)];
            if is_resp3 {
                let [theirs, ours] = clients.each_mut().map(|client| names(&client.hello3()));
                assert_eq!(ours, theirs);
            }
            for line in SAME {
                let [theirs, ours] = clients.each_mut().map(|client| {
                    client.send_command(&line.split(' ').collect::<Vec<_>>());
                    client.reply()
                });
                assert_eq!(ours.raw.escape_ascii().to_string(), theirs.raw.escape_ascii().to_string(), "{line}");
            }
            for line in ["MASTER mymaster", "MASTERS", "REPLICAS mymaster", "SLAVES mymaster"] {
                let [theirs, ours] = clients.each_mut().map(|client| {
                    let reply = call(client, &format!("SENTINEL {line}"));
                    if line.starts_with("MASTER ") { reply } else { items(reply).remove(0) }
                });
                assert_eq!(names(&ours), names(&theirs), "{line}");
                assert_eq!(matches!(ours, Value::Map(_)), is_resp3);
            }
            let [theirs, ours] = clients.each_mut().map(|client| names(&call(client, "INFO sentinel")));
            assert_eq!(ours, theirs);
            let [theirs, ours] = clients.each_mut().map(|client| {
                let sections = |name: &String| name.starts_with("# ");
                names(&call(client, "INFO")).into_iter().filter(sections).collect::<Vec<_>>()
            });
            assert_eq!(ours, theirs);
            if program == Program::Redis8 {
                let [theirs, ours] = clients.each_mut().map(|client| arities(call(client, "COMMAND INFO sentinel")));
                assert!(ours.iter().all(|sub| theirs.contains(sub)), "{ours:?} {theirs:?}");
                let [theirs, ours] = clients.each_mut().map(|client| items(call(client, "COMMAND LIST")));
                let more: Vec<_> = ours.iter().filter(|name| !theirs.contains(name)).map(text).collect();
                assert_eq!(more, ["quit", "reset"]);
            }
            // The channels of subscribers: the confirmation, then nothing else.
            for line in ["SUBSCRIBE +switch-master", "PSUBSCRIBE *", "PUNSUBSCRIBE", "UNSUBSCRIBE"] {
                let [theirs, ours] = clients.each_mut().map(|client| call(client, line));
                assert_eq!(ours, theirs, "{line}");
            }
            assert!(clients.iter_mut().all(|client| client.try_reply(Duration::from_millis(1)).is_err()));
        }
    }
}

/// The subcommands of a container with their numbers of arguments, from a reply of COMMAND INFO.
fn arities(info: Value) -> Vec<(String, Value)> {
    let container = items(items(info).remove(0));
    items(container.into_iter().last().expect("the subcommands are last"))
        .into_iter()
        .map(items)
        .map(|sub| (text(&sub[0]), sub[1].clone()))
        .collect()
}

/// Calls whose replies are the same, byte for byte.
const SAME: &[&str] = &[
    "PING",
    "PING hi",
    "GET a",
    "SELECT 0",
    "MULTI",
    "CONFIG GET x",
    "MONITOR",
    "SSUBSCRIBE x",
    "PUBSUB CHANNELS",
    "ROLE",
    "ACL WHOAMI",
    "COMMAND INFO get",
    "CLIENT NO-TOUCH on",
    "SENTINEL",
    "SENTINEL foo",
    "SENTINEL get-master-addr-by-name nope",
    "SENTINEL get-master-addr-by-name",
    "SENTINEL master nope",
    "SENTINEL masters nope",
    "SENTINEL replicas nope",
    "SENTINEL slaves nope",
    "SENTINEL sentinels nope",
    "SENTINEL ckquorum nope",
    "SENTINEL failover nope",
    "SENTINEL myid nope",
    "SENTINEL set mymaster quorum",
];
