//! CLIENT TRACKING: which clients receive which invalidations, in either protocol, and when.

use crate::crowd::on_both;
use crate::harness::{Program, Raw, Server, Value, encode};

on_both!(
    a_read_key_is_invalidated_once,
    invalidations_by_the_clients_own_writes_follow_the_reply,
    reads_in_transactions_are_tracked,
    every_kind_of_change_invalidates,
    broadcasts_cover_prefixes_whether_or_not_keys_were_read,
    invalidations_can_be_redirected_to_another_client,
    a_redirection_to_a_closed_client_is_reported_as_broken,
    client_caching_applies_to_one_command_or_transaction,
    a_full_table_invalidates_the_keys_that_it_drops,
    conflicting_options_are_refused,
    trackinginfo_reports_the_options_in_effect,
    a_woken_client_gets_its_reply_before_the_invalidation,
    invalidations_are_sent_even_when_replies_are_off,
);

/// A RESP3 client that tracks its reads, with these options.
fn tracking(server: &Server, options: &[&str]) -> Raw {
    let mut raw = server.raw();
    raw.hello3();
    assert_eq!(track(&mut raw, options), Value::status("OK"));
    raw
}

fn track(raw: &mut Raw, options: &[&str]) -> Value {
    raw.command(&[&["CLIENT", "TRACKING", "ON"], options].concat())
}

fn run(raw: &mut Raw, line: &str) -> Value {
    raw.command(&line.split(' ').collect::<Vec<_>>())
}

/// The invalidation message for these keys.
fn invalidate(keys: &[&str]) -> Value {
    let keys = keys.iter().map(|key| Value::bulk(key)).collect();
    Value::Push(vec![Value::bulk("invalidate"), Value::Array(keys)])
}

/// The message that all keys may have changed.
fn all_gone() -> Value {
    Value::Push(vec![Value::bulk("invalidate"), Value::Null])
}

/// All messages received before the answer to a PING.
fn messages(raw: &mut Raw) -> Vec<Value> {
    raw.send_command(&["PING", "end"]);
    let mut told = Vec::new();
    loop {
        match raw.reply().value {
            value if value == Value::bulk("end") => return told,
            value => told.push(value),
        }
    }
}

fn info(raw: &mut Raw, field: &str) -> String {
    let text = run(raw, "INFO everything");
    let text = String::from_utf8_lossy(text.bytes().expect("text")).into_owned();
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.expect("the field is there").to_owned()
}

fn a_read_key_is_invalidated_once(program: Program) {
    let server = Server::start(program, &[]);
    let (mut reader, mut other, mut writer) = (tracking(&server, &[]), tracking(&server, &[]), server.raw());
    run(&mut writer, "MSET a 1 b 2 c 3");
    run(&mut reader, "MGET a b");
    run(&mut other, "STRLEN b");
    run(&mut reader, "EXISTS missing");
    // A command that writes is not a read, even if it returns a value.
    run(&mut reader, "GETEX c");
    assert_eq!([info(&mut writer, "tracking_total_keys"), info(&mut writer, "tracking_total_items")], ["3", "4"]);
    run(&mut writer, "MSET a 1 b 1 c 1 missing 1");
    assert_eq!(messages(&mut reader), [invalidate(&["a"]), invalidate(&["b"]), invalidate(&["missing"])]);
    assert_eq!(messages(&mut other), [invalidate(&["b"])]);
    run(&mut writer, "MSET a 2 b 2 c 2 missing 2");
    assert_eq!(
        (messages(&mut reader), messages(&mut other)),
        (vec![], vec![]),
        "no more invalidations until the keys are read again"
    );
    // The database does not matter: a key of this name in another one invalidates, too.
    run(&mut reader, "GET a");
    run(&mut writer, "SELECT 1");
    run(&mut writer, "SET a 1");
    assert_eq!(messages(&mut reader), [invalidate(&["a"])]);
    // After tracking is turned off no more invalidations arrive.
    run(&mut reader, "GET a");
    run(&mut reader, "CLIENT TRACKING OFF");
    run(&mut writer, "SET a 2");
    assert_eq!(messages(&mut reader), []);
    assert_eq!(info(&mut writer, "tracking_clients"), "1");
    drop(other);
    while info(&mut writer, "tracking_clients") != "0" {}
}

fn invalidations_by_the_clients_own_writes_follow_the_reply(program: Program) {
    let server = Server::start(program, &[]);
    let mut client = tracking(&server, &[]);
    run(&mut client, "SET a 1");
    client.send(&[encode(&["GET", "a"]), encode(&["INCR", "a"]), encode(&["GET", "a"])].concat());
    let replies = [(); 4].map(|()| client.reply().value);
    assert_eq!(replies, [Value::bulk("1"), Value::Integer(2), invalidate(&["a"]), Value::bulk("2")]);
    // Under NOLOOP no message is sent, and yet the key no longer counts as cached.
    track(&mut client, &["NOLOOP"]);
    run(&mut client, "INCR a");
    assert_eq!(messages(&mut client), []);
    run(&mut server.raw(), "INCR a");
    assert_eq!(messages(&mut client), []);
    run(&mut client, "GET a");
    run(&mut server.raw(), "INCR a");
    assert_eq!(messages(&mut client), [invalidate(&["a"])]);
}

fn reads_in_transactions_are_tracked(program: Program) {
    let server = Server::start(program, &[]);
    let (mut client, mut writer) = (tracking(&server, &[]), server.raw());
    // A change before the read needs no invalidation; a change after it sends one.
    for line in ["MULTI", "SET a 1", "GET a", "GET b", "SET b 1", "GET c"] {
        run(&mut client, line);
    }
    assert!(matches!(run(&mut client, "EXEC"), Value::Array(replies) if replies.len() == 5));
    assert_eq!(messages(&mut client), [invalidate(&["b"])]);
    run(&mut writer, "MSET a 2 b 2 c 2");
    assert_eq!(messages(&mut client), [invalidate(&["a"]), invalidate(&["c"])]);
}

/// Makes the client read a key that is about to expire.
fn read_in_time(client: &mut Raw, writer: &mut Raw) {
    loop {
        run(writer, "SET new 1 PX 50");
        messages(client);
        if run(client, "GET new") != Value::Null {
            return;
        }
    }
}

fn every_kind_of_change_invalidates(program: Program) {
    let server = Server::start(program, &["--enable-debug-command", "yes"]);
    let (mut client, mut writer) = (tracking(&server, &[]), server.raw());
    run(&mut writer, "RPUSH list a b c");
    run(&mut writer, "SET gone 1");
    let told_of = |client: &mut Raw, writer: &mut Raw, change: &str, keys: &[&str]| {
        run(client, "MGET list gone new");
        run(writer, change);
        assert_eq!(messages(client), keys.iter().map(|key| invalidate(&[key])).collect::<Vec<_>>(), "{change}");
    };
    told_of(&mut client, &mut writer, "LPOP list", &["list"]);
    told_of(&mut client, &mut writer, "LPOP missing", &[]);
    told_of(&mut client, &mut writer, "RENAME gone new", &["gone", "new"]);
    told_of(&mut client, &mut writer, "PEXPIRE new 100000", &["new"]);
    told_of(&mut client, &mut writer, "COPY list gone", &["gone"]);
    told_of(&mut client, &mut writer, "UNLINK gone list", &["gone", "list"]);
    // Expired keys: removed by an access, and by active expiry.
    run(&mut writer, "DEBUG SET-ACTIVE-EXPIRE 0");
    read_in_time(&mut client, &mut writer);
    while run(&mut writer, "EXISTS new") == Value::Integer(1) {}
    assert_eq!(messages(&mut client), [invalidate(&["new"])]);
    run(&mut writer, "DEBUG SET-ACTIVE-EXPIRE 1");
    read_in_time(&mut client, &mut writer);
    assert_eq!(client.reply().value, invalidate(&["new"]), "no call has looked for the key");
    // All keys at once.
    for flush in ["FLUSHDB", "FLUSHALL ASYNC", "FLUSHALL"] {
        run(&mut writer, "SET a 1");
        run(&mut client, "GET a");
        run(&mut writer, flush);
        assert!(messages(&mut client).contains(&all_gone()), "{flush}");
        assert_eq!(info(&mut writer, "tracking_total_keys"), "0");
    }
    run(&mut writer, "SET a 1");
    run(&mut client, "GET a");
    for line in ["MULTI", "FLUSHDB", "PING"] {
        run(&mut client, line);
    }
    assert!(matches!(run(&mut client, "EXEC"), Value::Array(_)));
    assert_eq!(messages(&mut client), [all_gone()]);
}

fn broadcasts_cover_prefixes_whether_or_not_keys_were_read(program: Program) {
    let server = Server::start(program, &[]);
    let mut client = tracking(&server, &["BCAST", "PREFIX", "user:", "PREFIX", "item:"]);
    let mut all = tracking(&server, &["BCAST", "NOLOOP"]);
    let mut writer = server.raw();
    run(&mut client, "GET other");
    run(&mut writer, "MSET user:2 1 item:1 1 user:1 1 other 1 user: 1 use 1");
    assert_eq!(messages(&mut client), [invalidate(&["item:1"]), invalidate(&["user:", "user:1", "user:2"])]);
    assert_eq!(messages(&mut all), [invalidate(&["item:1", "other", "use", "user:", "user:1", "user:2"])]);
    // One more prefix beside the others.
    track(&mut client, &["BCAST", "PREFIX", "use:"]);
    run(&mut writer, "SET use:1 1");
    assert_eq!(messages(&mut client), [invalidate(&["use:1"])]);
    assert_eq!(messages(&mut all), [invalidate(&["use:1"])]);
    assert_eq!(info(&mut writer, "tracking_total_prefixes"), "4");
    assert_eq!(info(&mut writer, "tracking_total_keys"), "0");
    // The client's own changes.
    run(&mut client, "SET user:1 2");
    assert_eq!(messages(&mut client), [invalidate(&["user:1"])]);
    assert_eq!(messages(&mut all), [invalidate(&["user:1"])]);
    run(&mut all, "SET user:1 2");
    assert_eq!(messages(&mut all), []);
    run(&mut client, "CLIENT TRACKING OFF");
    run(&mut writer, "SET user:1 1");
    messages(&mut client);
    assert_eq!(messages(&mut client), []);
    assert_eq!(info(&mut writer, "tracking_total_prefixes"), "1");
}

/// A client that receives other clients' invalidations, and its id.
fn listener(server: &Server) -> (Raw, String) {
    let mut listener = server.raw();
    let Value::Integer(id) = run(&mut listener, "CLIENT ID") else { panic!("an id") };
    (listener, id.to_string())
}

fn invalidations_can_be_redirected_to_another_client(program: Program) {
    let server = Server::start(program, &[]);
    let ((mut listener, id), mut writer) = (listener(&server), server.raw());
    run(&mut listener, "SUBSCRIBE __redis__:invalidate");
    // Clients of either protocol.
    let (mut old, mut new) = (server.raw(), tracking(&server, &["REDIRECT", &id]));
    track(&mut old, &["REDIRECT", &id]);
    assert_eq!(run(&mut old, "CLIENT GETREDIR"), Value::Integer(id.parse().expect("a number")));
    run(&mut writer, "MSET a 1 b 1");
    run(&mut old, "GET a");
    run(&mut new, "GET b");
    run(&mut writer, "MSET a 2 b 2");
    let message = |what: Value| Value::Array(vec![Value::bulk("message"), Value::bulk("__redis__:invalidate"), what]);
    assert_eq!(listener.reply().value, message(Value::Array(vec![Value::bulk("a")])));
    assert_eq!(listener.reply().value, message(Value::Array(vec![Value::bulk("b")])));
    run(&mut old, "GET a");
    run(&mut new, "CLIENT TRACKING OFF");
    run(&mut writer, "FLUSHALL");
    assert_eq!(listener.reply().value, message(Value::Null));
    track(&mut new, &["REDIRECT", &id]);
    // Asked in RESP3, it receives messages without a subscription.
    run(&mut listener, "UNSUBSCRIBE");
    listener.hello3();
    run(&mut new, "GET b");
    run(&mut writer, "SET b 1");
    assert_eq!(messages(&mut listener), [invalidate(&["b"])]);
    // Without a redirection RESP2 has no way to receive invalidations.
    run(&mut old, "CLIENT TRACKING OFF");
    track(&mut old, &[]);
    run(&mut old, "GET a");
    run(&mut writer, "SET a 1");
    assert_eq!(messages(&mut old), []);
}

fn a_redirection_to_a_closed_client_is_reported_as_broken(program: Program) {
    let server = Server::start(program, &[]);
    let ((mut listener, id), mut writer) = (listener(&server), server.raw());
    let mut client = tracking(&server, &["REDIRECT", &id]);
    run(&mut client, "GET a");
    listener.send_command(&["QUIT"]);
    listener.read_to_end();
    run(&mut writer, "SET a 1");
    let broken = Value::Push(vec![Value::bulk("tracking-redir-broken"), Value::Integer(id.parse().expect("a number"))]);
    assert_eq!(messages(&mut client), [broken]);
    let list = format!("{:?}", run(&mut writer, "CLIENT LIST"));
    assert!(list.contains("flags=tR ") && list.contains(&format!("redir={id} ")), "{list}");
    let info = format!("{:?}", run(&mut client, "CLIENT TRACKINGINFO"));
    assert!(info.contains("broken_redirect"), "{info}");
    track(&mut client, &[]);
    let list = format!("{:?}", run(&mut writer, "CLIENT LIST"));
    assert!(list.contains("flags=t ") && list.contains("redir=0 "), "{list}");
    assert_eq!(run(&mut client, "RESET"), Value::status("RESET"));
    client.back_to_resp2();
    assert_eq!(run(&mut client, "CLIENT GETREDIR"), Value::Integer(-1));
}

fn client_caching_applies_to_one_command_or_transaction(program: Program) {
    let server = Server::start(program, &[]);
    let mut writer = server.raw();
    let mut touch = |client: &mut Raw| {
        run(&mut writer, "MSET a 1 b 1 c 1 d 1");
        messages(client)
    };
    let mut client = tracking(&server, &["OPTIN"]);
    for line in ["GET a", "CLIENT CACHING YES", "CLIENT GETNAME", "GET b", "GET c"] {
        run(&mut client, line);
    }
    assert_eq!(touch(&mut client), [invalidate(&["b"])]);
    for line in ["CLIENT CACHING YES", "MULTI", "GET a", "GET b", "EXEC", "GET c"] {
        run(&mut client, line);
    }
    assert_eq!(touch(&mut client), [invalidate(&["a"]), invalidate(&["b"])]);
    // A failed command uses up CACHING YES.
    for line in ["CLIENT CACHING YES", "GET", "GET a"] {
        run(&mut client, line);
    }
    assert_eq!(touch(&mut client), []);
    let mut client = tracking(&server, &["OPTOUT"]);
    for line in ["GET a", "CLIENT CACHING NO", "GET b", "GET c"] {
        run(&mut client, line);
    }
    assert_eq!(touch(&mut client), [invalidate(&["a"]), invalidate(&["c"])]);
}

fn a_full_table_invalidates_the_keys_that_it_drops(program: Program) {
    let server = Server::start(program, &[]);
    let (mut client, mut admin) = (tracking(&server, &[]), server.raw());
    let keys: Vec<String> = (0..250).map(|number| format!("key{number}")).collect();
    let mget: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
    client.command(&mget);
    run(&mut admin, "CONFIG SET tracking-table-max-keys 1");
    let mut gone: Vec<Value> = (0..249).map(|_| client.reply().value).collect();
    assert_eq!(messages(&mut client), []);
    assert_eq!(info(&mut admin, "tracking_total_keys"), "1");
    gone.sort_by_key(|value| format!("{value:?}"));
    gone.dedup();
    assert_eq!(gone.len(), 249, "each key once");
    assert!(gone.iter().all(|gone| keys.iter().any(|key| *gone == invalidate(&[key]))));
}

fn conflicting_options_are_refused(program: Program) {
    let server = Server::start(program, &[]);
    let mut client = server.raw();
    let refused =
        |client: &mut Raw, line: &str, text: &str| assert_eq!(run(client, line), Value::error(text), "{line}");
    for (line, text) in [
        ("CLIENT TRACKING maybe", "ERR syntax error"),
        ("CLIENT TRACKING ON NOSUCH", "ERR syntax error"),
        ("CLIENT TRACKING ON REDIRECT", "ERR syntax error"),
        ("CLIENT TRACKING ON PREFIX", "ERR syntax error"),
        ("CLIENT TRACKING ON REDIRECT x", "ERR value is not an integer or out of range"),
        ("CLIENT TRACKING ON REDIRECT 99999", "ERR The client ID you want redirect to does not exist"),
        ("CLIENT TRACKING ON REDIRECT -1", "ERR The client ID you want redirect to does not exist"),
        ("CLIENT TRACKING OFF REDIRECT 0", "ERR The client ID you want redirect to does not exist"),
        ("CLIENT TRACKING ON PREFIX a", "ERR PREFIX option requires BCAST mode to be enabled"),
        ("CLIENT TRACKING ON BCAST OPTIN", "ERR OPTIN and OPTOUT are not compatible with BCAST"),
        ("CLIENT TRACKING ON OPTIN OPTOUT", "ERR You can't specify both OPTIN mode and OPTOUT mode"),
        (
            "CLIENT TRACKING ON BCAST PREFIX ab PREFIX a",
            "ERR Prefix 'ab' overlaps with another provided prefix 'a'. Prefixes for a single client must not overlap.",
        ),
        (
            "CLIENT CACHING YES",
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode \
             enabled",
        ),
    ] {
        refused(&mut client, line, text);
    }
    assert_eq!(run(&mut client, "CLIENT GETREDIR"), Value::Integer(-1));
    let Value::Integer(id) = run(&mut client, "CLIENT ID") else { panic!("an id") };
    let twice = format!("CLIENT TRACKING ON REDIRECT {id} REDIRECT {id}");
    refused(&mut client, &twice, "ERR A client can only redirect to a single other client");
    let other_mode = "before disabling tracking for this client, and then re-enabling it with a different mode.";
    assert_eq!(track(&mut client, &["OPTIN"]), Value::status("OK"));
    let opt = format!("ERR You can't switch OPTIN/OPTOUT mode {other_mode}");
    refused(&mut client, "CLIENT TRACKING ON OPTOUT", &opt);
    let broadcast = format!("ERR You can't switch BCAST mode on/off {other_mode}");
    refused(&mut client, "CLIENT TRACKING ON BCAST", &broadcast);
    refused(&mut client, "CLIENT CACHING maybe", "ERR syntax error");
    let no = "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.";
    refused(&mut client, "CLIENT CACHING NO", no);
    assert_eq!(track(&mut client, &[]), Value::status("OK"), "neither of the two may follow");
    let yes = "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.";
    refused(&mut client, "CLIENT CACHING YES", yes);
    run(&mut client, "CLIENT TRACKING OFF");
    assert_eq!(track(&mut client, &["BCAST", "PREFIX", "ab", "PREFIX", "c"]), Value::status("OK"));
    let overlap =
        "ERR Prefix 'abc' overlaps with an existing prefix 'ab'. Prefixes for a single client must not overlap.";
    refused(&mut client, "CLIENT TRACKING ON BCAST PREFIX abc", overlap);
}

fn trackinginfo_reports_the_options_in_effect(program: Program) {
    let server = Server::start(program, &[]);
    let mut client = server.raw();
    let mut info = |options: &str, after: &[&str]| {
        run(&mut client, "CLIENT TRACKING OFF");
        run(&mut client, &format!("CLIENT TRACKING {options}"));
        after.iter().for_each(|line| drop(run(&mut client, line)));
        format!("{:?}", run(&mut client, "CLIENT TRACKINGINFO"))
    };
    let answer = |flags: &str, redirect: &str, prefixes: &str| {
        format!(r#"["flags", [{flags}], "redirect", {redirect}, "prefixes", [{prefixes}]]"#)
    };
    assert_eq!(info("OFF", &[]), answer(r#""off""#, "-1", ""));
    assert_eq!(info("ON", &[]), answer(r#""on""#, "0", ""));
    assert_eq!(info("ON NOLOOP", &[]), answer(r#""on", "noloop""#, "0", ""));
    assert_eq!(info("ON OPTIN", &["CLIENT CACHING YES"]), answer(r#""on", "optin", "caching-yes""#, "0", ""));
    assert_eq!(info("ON OPTIN", &["CLIENT CACHING YES", "PING"]), answer(r#""on", "optin""#, "0", ""));
    assert_eq!(info("ON OPTOUT", &["CLIENT CACHING NO"]), answer(r#""on", "optout", "caching-no""#, "0", ""));
    assert_eq!(info("ON BCAST", &[]), answer(r#""on", "bcast""#, "0", r#""""#));
    assert_eq!(info("ON BCAST PREFIX b PREFIX a", &[]), answer(r#""on", "bcast""#, "0", r#""a", "b""#));
    client.hello3();
    let map = Value::Map(vec![
        (Value::bulk("flags"), Value::Set(vec![Value::bulk("bcast"), Value::bulk("on")])),
        (Value::bulk("prefixes"), Value::Array(vec![Value::bulk("a"), Value::bulk("b")])),
        (Value::bulk("redirect"), Value::Integer(0)),
    ]);
    assert_eq!(format!("{:?}", run(&mut client, "CLIENT TRACKINGINFO")), format!("{map:?}"));
}

fn a_woken_client_gets_its_reply_before_the_invalidation(program: Program) {
    let server = Server::start(program, &[]);
    let (mut client, mut writer) = (tracking(&server, &[]), server.raw());
    run(&mut writer, "RPUSH to a");
    run(&mut client, "LRANGE to 0 -1");
    client.send_command(&["BLMOVE", "from", "to", "LEFT", "LEFT", "0"]);
    while info(&mut writer, "blocked_clients") != "1" {}
    run(&mut writer, "RPUSH from b");
    assert_eq!(client.reply().value, Value::bulk("b"));
    assert_eq!(client.reply().value, invalidate(&["to"]));
}

/// The reads of a script count for the calling client, as in Redis 8.
#[test]
fn reads_by_scripts_are_tracked() {
    let server = Server::start(Program::Tidegate, &[]);
    let (mut client, mut writer) = (tracking(&server, &[]), server.raw());
    let script = "redis.call('set', 'a', 1) redis.call('get', 'a') redis.call('get', 'b') \
                  redis.call('set', 'b', 1) redis.call('get', 'c')";
    client.command(&["EVAL", script, "2", "x", "y"]);
    assert_eq!(messages(&mut client), [invalidate(&["b"])]);
    client.command(&["EVAL_RO", "return redis.call('get', 'd')", "1", "z"]);
    run(&mut writer, "MSET a 2 b 2 c 2 d 2 x 2 y 2 z 2");
    assert_eq!(messages(&mut client), [invalidate(&["a"]), invalidate(&["c"]), invalidate(&["d"])]);
}

/// A waiting client caches the keys that finally answered its call, as in Redis 8.
#[test]
fn keys_that_answer_a_waiting_call_are_tracked() {
    let server = Server::start(Program::Tidegate, &[]);
    let (mut client, mut writer) = (tracking(&server, &[]), server.raw());
    client.send_command(&["XREAD", "BLOCK", "0", "STREAMS", "stream", "$"]);
    while info(&mut writer, "blocked_clients") != "1" {}
    run(&mut writer, "XADD stream 1-1 f v");
    let first = [client.reply().value, client.reply().value];
    assert!(first.contains(&invalidate(&["stream"])), "{first:?}");
    run(&mut writer, "XADD stream 1-2 f v");
    assert_eq!(messages(&mut client), [invalidate(&["stream"])]);
}

fn invalidations_are_sent_even_when_replies_are_off(program: Program) {
    let server = Server::start(program, &[]);
    let (mut client, mut writer) = (tracking(&server, &[]), server.raw());
    run(&mut client, "GET a");
    client.send_command(&["CLIENT", "REPLY", "OFF"]);
    client.send_command(&["GET", "b"]);
    client.send_command(&["SET", "b", "1"]);
    assert_eq!(client.reply().value, invalidate(&["b"]));
    run(&mut writer, "SET a 1");
    assert_eq!(client.reply().value, invalidate(&["a"]));
    assert_eq!(run(&mut client, "CLIENT REPLY ON"), Value::status("OK"));
}

/// With a journal, a client is invalidated once the change is in the journal; a script that is rolled back changes
/// nothing.
#[test]
fn invalidations_wait_for_the_journal() {
    let server = Server::start(Program::Tidegate, &["--appendonly", "yes"]);
    let (mut client, mut all, mut writer) = (tracking(&server, &[]), tracking(&server, &["BCAST"]), server.raw());
    run(&mut client, "MGET a b");
    writer.command(&["EVAL", "redis.call('set', 'a', 1) error('x')", "0"]);
    assert_eq!((messages(&mut client), messages(&mut all)), (vec![], vec![]));
    run(&mut writer, "SET a 1");
    assert_eq!((messages(&mut client), messages(&mut all)), (vec![invalidate(&["a"])], vec![invalidate(&["a"])]));
    // Recording effects as whole values makes no difference: first a change before the read, then after it.
    for line in ["MULTI", "SET b 1", "APPEND b x", "GET b", "GET c", "APPEND c x", "APPEND c y", "EXEC"] {
        run(&mut client, line);
    }
    assert_eq!(messages(&mut client), [invalidate(&["b"]), invalidate(&["c"])]);
    run(&mut writer, "APPEND b y");
    assert_eq!(messages(&mut client), [invalidate(&["b"])]);
    assert_eq!(messages(&mut all), [invalidate(&["b", "c"]), invalidate(&["b"])]);
}

/// SWAPDB exchanges the data behind the names of two databases.
#[test]
fn swapdb_invalidates_keys_of_both_databases() {
    let server = Server::start(Program::Tidegate, &[]);
    let (mut client, mut writer) = (tracking(&server, &[]), server.raw());
    run(&mut writer, "SET a 1");
    run(&mut client, "GET a");
    run(&mut writer, "SWAPDB 0 1");
    assert_eq!(messages(&mut client), [all_gone()]);
}

/// The flush message is sent in the receiver's protocol, whatever protocol the tracking client speaks.
#[test]
fn a_resp2_listener_gets_the_flush_message_in_resp2() {
    let server = Server::start(Program::Tidegate, &[]);
    let ((mut listener, id), mut writer) = (listener(&server), server.raw());
    run(&mut listener, "SUBSCRIBE __redis__:invalidate");
    let _client = tracking(&server, &["REDIRECT", &id]);
    run(&mut writer, "SET a 1");
    run(&mut writer, "FLUSHALL");
    let message = [Value::bulk("message"), Value::bulk("__redis__:invalidate"), Value::Null];
    assert_eq!(listener.reply().value, Value::Array(message.to_vec()));
}

/// A client in BCAST mode hears only of keys and databases that its user may read, by the rights at the time of the
/// change.
#[test]
fn broadcasts_cover_only_keys_that_the_user_may_read() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut admin = server.raw();
    run(&mut admin, "ACL SETUSER app on nopass ~mine:* %W~written:* +@connection");
    let mut app = server.raw();
    run(&mut app, "AUTH app x");
    app.hello3();
    assert_eq!(track(&mut app, &["BCAST"]), Value::status("OK"));
    run(&mut admin, "MSET mine:1 1 other:1 1 written:1 1");
    assert_eq!(messages(&mut app), [invalidate(&["mine:1"])]);
    run(&mut admin, "SET other:2 1");
    assert_eq!(messages(&mut app), []);
    run(&mut admin, "ACL SETUSER app ~other:* resetdbs db=0");
    run(&mut admin, "MSET mine:1 1 other:1 1");
    assert_eq!(messages(&mut app), [invalidate(&["mine:1", "other:1"])]);
    run(&mut admin, "SELECT 1");
    run(&mut admin, "SET mine:1 1");
    assert_eq!(messages(&mut app), []);
    run(&mut admin, "ACL SETUSER app alldbs allkeys");
    run(&mut admin, "SET any 1");
    assert_eq!(messages(&mut app), [invalidate(&["any"])]);
}
