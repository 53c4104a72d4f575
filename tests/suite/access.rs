//! Users and their rights. Tests of client-visible behaviour run against Redis, too. ACL files and `user` lines run on
//! the server under test alone. Randomly drawn lists of rules are compared with Redis 8.0: the output of ACL GETUSER,
//! and whether ACL DRYRUN lets calls through.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::crowd::on_both;
use crate::differential::generate::Dice;
use crate::harness::{Program, Raw, Server, Value, sorted, until};
use crate::oracle::REDIS_SERVER_8;

on_both!(
    a_user_may_run_only_the_calls_that_its_rules_allow,
    exec_checks_the_rules_that_hold_when_it_runs,
    scripts_run_with_the_rights_of_their_caller,
    a_waiting_call_is_checked_again_when_it_is_woken,
    a_client_that_loses_its_user_or_channel_is_disconnected,
    a_new_password_applies_to_new_connections_only,
    sort_reads_other_keys_only_if_the_user_may_read_all,
    refused_calls_are_logged,
);

fn words(raw: &mut Raw, line: &str) -> Value {
    raw.command(&line.split(' ').collect::<Vec<_>>())
}

/// Whether a call is refused, and how.
fn is_error(value: &Value, start: &str) -> bool {
    matches!(value, Value::Error(text) if text.starts_with(start.as_bytes()))
}

fn set_user(raw: &mut Raw, line: &str) {
    assert_eq!(words(raw, &format!("ACL SETUSER {line}")), Value::ok(), "{line}");
}

fn signed_in(server: &Server, name: &str) -> Raw {
    let mut raw = server.raw();
    assert_eq!(raw.command(&["AUTH", name, "pw"]), Value::ok());
    raw
}

fn a_user_may_run_only_the_calls_that_its_rules_allow(program: Program) {
    let (server, mut raw) = Server::with_client(program);
    set_user(&mut raw, "ann on >pw ~app:* %R~shared:* &news:* +@all -@dangerous +config|get");
    let mut ann = signed_in(&server, "ann");
    assert_eq!(words(&mut ann, "ACL WHOAMI"), Value::bulk("ann"));
    for (line, refusal) in [
        ("SET app:1 v", ""),
        ("GET shared:1", ""),
        ("SET shared:1 v", "NOPERM No permissions to access a key"),
        ("COPY shared:1 app:2", ""),
        ("COPY app:1 shared:2", "NOPERM No permissions to access a key"),
        ("MGET app:1 other", "NOPERM No permissions to access a key"),
        ("FLUSHALL", "NOPERM User ann has no permissions to run the 'flushall' command"),
        ("CONFIG GET port", ""),
        ("CONFIG SET port 1", "NOPERM User ann has no permissions to run the 'config|set' command"),
        ("PUBLISH news:1 m", ""),
        ("PUBLISH other m", "NOPERM No permissions to access a channel"),
        ("EVAL return(1) 1 other", "NOPERM No permissions to access a key"),
    ] {
        let reply = words(&mut ann, line);
        match refusal {
            "" => assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}"),
            // Redis 7.0 words it differently.
            _ if program == Program::Redis => assert!(is_error(&reply, "NOPERM"), "{line}: {reply:?}"),
            text => assert_eq!(reply, Value::error(text), "{line}"),
        }
    }
    assert_eq!(
        words(&mut raw, "ACL SETUSER ann ~more:* +nosuch"),
        Value::error("ERR Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL")
    );
    assert!(is_error(&words(&mut ann, "GET more:1"), "NOPERM"), "a list of rules is applied completely or not at all");
    assert_eq!(words(&mut raw, "AUTH ann wrong"), wrong_password());
    assert_eq!(words(&mut raw, "AUTH nobody pw"), wrong_password());
    set_user(&mut raw, "ann off");
    assert_eq!(words(&mut raw, "AUTH ann pw"), wrong_password());
    assert_eq!(words(&mut ann, "RESET"), Value::status("RESET"));
    assert_eq!(words(&mut ann, "ACL WHOAMI"), Value::bulk("default"));
}

/// Rules about databases are Valkey's (9.1), and so are the words of their refusals.
#[test]
fn users_can_be_limited_to_some_databases() {
    const REFUSED: &str = "NOPERM No permissions to access database";
    let (server, mut raw) = Server::with_client(Program::Tidegate);
    set_user(&mut raw, "ann on >pw ~* &* +@all db=0,2");
    let mut ann = signed_in(&server, "ann");
    let check = |ann: &mut Raw, lines: &[(&str, bool)]| {
        for (line, is_allowed) in lines {
            let reply = words(ann, line);
            match is_allowed {
                true => assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}"),
                false => assert_eq!(reply, Value::error(REFUSED), "{line}"),
            }
        }
    };
    check(
        &mut ann,
        &[
            ("SET a 1", true),
            ("SELECT 1", false),
            ("SELECT 2", true),
            ("SET b 1", true),
            ("MOVE b 1", false),
            ("MOVE b 0", true),
            ("COPY b a DB 1", false),
            ("COPY b a REPLACE DB 1 DB 0", false),
            ("COPY b a DB 0", true),
            ("SWAPDB 0 1", false),
            ("SWAPDB 1 0", false),
            ("SWAPDB 0 2", true),
            ("FLUSHALL", false),
            ("FLUSHDB", true),
            ("PING", true),
            ("PUBLISH channel x", true),
        ],
    );
    assert!(is_error(&words(&mut ann, "SELECT 99"), "ERR DB index is out of range"), "database 99 does not exist");
    // A user that loses access to its current database may still leave it and send HELLO.
    set_user(&mut raw, "ann db=1");
    check(&mut ann, &[("GET a", false), ("DBSIZE", false), ("KEYS *", false), ("EVAL return(1) 1 a", false)]);
    check(&mut ann, &[("MOVE a 1", false), ("COPY a b DB 1", false), ("HELLO 2", true), ("EVAL return(1) 0", false)]);
    // A transaction is checked against the databases that its own SELECTs lead to. If the user has lost access since a
    // command was queued, EXEC refuses that command.
    check(&mut ann, &[("MULTI", true), ("SELECT 1", true), ("SET c 1", true), ("EXEC", true)]);
    assert_eq!(words(&mut ann, "GET c"), Value::bulk("1"));
    check(&mut ann, &[("MULTI", true), ("GET c", true)]);
    set_user(&mut raw, "ann resetdbs");
    let Value::Array(replies) = words(&mut ann, "EXEC") else { panic!("EXEC runs") };
    assert!(is_error(&replies[0], "NOPERM ACLs rules changed between"), "{replies:?}");
    assert!(replies[0].bytes().is_some_and(|text| text.ends_with(b"following reason: no permission")), "{replies:?}");
    check(&mut ann, &[("MULTI", true), ("GET c", false)]);
    assert!(is_error(&words(&mut ann, "EXEC"), "EXECABORT"));
    // Scripts are checked at each call.
    set_user(&mut raw, "ann db=0,1");
    let eval = |ann: &mut Raw, body: &str| ann.command(&["EVAL", body, "0"]);
    assert_eq!(eval(&mut ann, "redis.call('SELECT', 0) return redis.call('SET', 'd', 1)"), Value::ok());
    let reply = eval(&mut ann, "redis.call('SET', 'e', 1) return redis.call('SELECT', 2)");
    assert!(is_error(&reply, "ERR ACL failure in script: No permissions to access database"), "{reply:?}");
    assert_eq!(eval(&mut ann, "return redis.acl_check_cmd('SELECT', 2)"), Value::Null);
    assert_eq!(eval(&mut ann, "return redis.acl_check_cmd('SELECT', 0)"), Value::Integer(1));
    // A selector's database rules do not open databases for another selector.
    set_user(&mut raw, "bob on >pw +@all ~own:* db=0 (+@read +select ~* db=0,1)");
    let mut bob = signed_in(&server, "bob");
    check(&mut bob, &[("SET own:1 x", true), ("GET other", true), ("SELECT 1", true), ("GET other", true)]);
    assert!(is_error(&words(&mut bob, "SET own:1 x"), "NOPERM"));
    assert_eq!(
        words(&mut raw, "ACL DRYRUN ann SELECT 2"),
        Value::bulk("User ann has no permissions to access database 2")
    );
    assert_eq!(words(&mut raw, "ACL DRYRUN ann SELECT 1"), Value::ok());
    for (rule, why) in [
        ("db=", "Syntax error"),
        ("db=1,", "Syntax error"),
        ("db=,1", "Syntax error"),
        ("db=1,,2", "Syntax error"),
        ("db=x", "Syntax error"),
        ("db=-1", "The provided database ID is out of range"),
        ("db=2147483648", "The provided database ID is out of range"),
    ] {
        let refusal = format!("ERR Error in ACL SETUSER modifier '{rule}': {why}");
        assert_eq!(words(&mut raw, &format!("ACL SETUSER ann {rule}")), Value::error(&refusal));
    }
    // Refusals are counted, and logged with the database.
    words(&mut raw, "ACL LOG RESET");
    words(&mut ann, "SELECT 2");
    let Value::Array(cases) = words(&mut raw, "ACL LOG") else { panic!("cases") };
    let Value::Array(fields) = &cases[0] else { panic!("fields") };
    assert_eq!(fields[3], Value::bulk("database"), "{fields:?}");
    assert_eq!(fields[7], Value::bulk("2"), "{fields:?}");
    let stats = words(&mut raw, "INFO stats");
    let stats = String::from_utf8_lossy(stats.bytes().expect("text")).into_owned();
    let counted = stats.lines().find_map(|line| line.strip_prefix("acl_access_denied_db:")?.parse::<u32>().ok());
    assert!(counted.is_some_and(|counted| counted > 10), "{stats}");
    // Rules are shown in the form in which they can be set again.
    set_user(&mut raw, "eve resetdbs");
    for (user, shown) in
        [("ann", " &* db=0,1 +@all"), ("eve", " resetdbs -@all"), ("bob", " db=0,1 -@all +@read +select)")]
    {
        let Value::Array(users) = words(&mut raw, "ACL LIST") else { panic!("users") };
        let lines: Vec<String> =
            users.iter().map(|line| String::from_utf8_lossy(line.bytes().expect("text")).into_owned()).collect();
        let line = lines.iter().find(|line| line.starts_with(&format!("user {user} "))).expect("a user");
        assert!(line.ends_with(shown), "{line}");
    }
    let fields = |raw: &mut Raw, user: &str| {
        let Value::Array(fields) = words(raw, &format!("ACL GETUSER {user}")) else { panic!("fields") };
        let mut pairs = fields.as_chunks::<2>().0.iter();
        pairs.find(|[name, _]| *name == Value::bulk("databases")).map(|[_, value]| value.clone())
    };
    assert_eq!(fields(&mut raw, "ann"), Some(Value::bulk("db=0,1")));
    assert_eq!(fields(&mut raw, "eve"), Some(Value::bulk("")));
    // For a user without database rules no such field is shown, as in Redis; Valkey always shows one.
    set_user(&mut raw, "ann alldbs");
    assert_eq!((fields(&mut raw, "ann"), fields(&mut raw, "default")), (None, None));
}

fn wrong_password() -> Value {
    Value::error("WRONGPASS invalid username-password pair or user is disabled.")
}

fn exec_checks_the_rules_that_hold_when_it_runs(program: Program) {
    let (server, mut raw) = Server::with_client(program);
    set_user(&mut raw, "ann on >pw ~* +@all");
    let mut ann = signed_in(&server, "ann");
    for line in ["MULTI", "SET k v", "GET k"] {
        assert!(!matches!(words(&mut ann, line), Value::Error(_)), "{line}");
    }
    set_user(&mut raw, "ann -set");
    let Value::Array(replies) = words(&mut ann, "EXEC") else { panic!("EXEC runs") };
    assert!(is_error(&replies[0], "NOPERM ACLs rules changed between"), "{replies:?}");
    assert_eq!(replies[1], Value::Null);
    words(&mut ann, "MULTI");
    assert!(is_error(&words(&mut ann, "SET k v"), "NOPERM"));
    assert!(is_error(&words(&mut ann, "EXEC"), "EXECABORT"));
}

fn scripts_run_with_the_rights_of_their_caller(program: Program) {
    let (server, mut raw) = Server::with_client(program);
    set_user(&mut raw, "ann on >pw ~own:* +@all -get");
    let mut ann = signed_in(&server, "ann");
    let mut eval = |body: &str| ann.command(&["EVAL", body, "0"]);
    assert_eq!(eval("return redis.call('set', 'own:1', 'v')"), Value::ok());
    for body in ["return redis.call('set', 'other', 'v')", "return redis.call('get', 'own:1')"] {
        assert!(matches!(eval(body), Value::Error(_)), "{body}");
    }
    for (call, permitted) in [
        ("'set', 'own:1', 'v'", Value::Integer(1)),
        ("'set', 'other', 'v'", Value::Null),
        ("'get', 'own:1'", Value::Null),
        ("'ping'", Value::Integer(1)),
    ] {
        assert_eq!(eval(&format!("return redis.acl_check_cmd({call})")), permitted, "{call}");
    }
    assert!(matches!(eval("return redis.acl_check_cmd('nosuch')"), Value::Error(_)));
    assert_eq!(words(&mut raw, "EXISTS other"), Value::Integer(0));
}

fn a_waiting_call_is_checked_again_when_it_is_woken(program: Program) {
    let (server, mut raw) = Server::with_client(program);
    set_user(&mut raw, "ann on >pw ~* +@all");
    let mut ann = signed_in(&server, "ann");
    ann.send_command(&["BLPOP", "list", "0"]);
    until(
        || words(&mut raw, "INFO clients").bytes().is_some_and(|info| contains(info, "blocked_clients:1\r")),
        "the call waits",
    );
    set_user(&mut raw, "ann -blpop");
    words(&mut raw, "RPUSH list v");
    if program != Program::Redis {
        // Redis 7.0 lets the waiting call continue.
        assert!(is_error(&ann.reply().value, "NOPERM"));
        assert_eq!(words(&mut raw, "LLEN list"), Value::Integer(1));
    }
}

fn contains(text: &[u8], part: &str) -> bool {
    text.windows(part.len()).any(|window| window == part.as_bytes())
}

fn a_client_that_loses_its_user_or_channel_is_disconnected(program: Program) {
    let (server, mut raw) = Server::with_client(program);
    set_user(&mut raw, "ann on >pw ~* &* +@all");
    set_user(&mut raw, "bob on >pw ~* &* +@all");
    let (mut ann, mut listener) = (signed_in(&server, "ann"), signed_in(&server, "bob"));
    let mut bob = signed_in(&server, "bob");
    words(&mut listener, "SUBSCRIBE news:1");
    set_user(&mut raw, "bob resetchannels &news:*");
    assert_eq!(words(&mut listener, "PING"), Value::Array(vec![Value::bulk("pong"), Value::bulk("")]));
    set_user(&mut raw, "bob resetchannels &other");
    assert!(listener.read_to_end().is_empty());
    assert_eq!(words(&mut bob, "PING"), Value::status("PONG"), "a client without the lost channel stays");
    assert_eq!(words(&mut raw, "ACL DELUSER ann nobody"), Value::Integer(1));
    assert!(ann.read_to_end().is_empty());
    assert_eq!(words(&mut raw, "ACL DELUSER default"), Value::error("ERR The 'default' user cannot be removed"));
}

fn a_new_password_applies_to_new_connections_only(program: Program) {
    let (server, mut raw) = Server::with_client(program);
    assert_eq!(words(&mut raw, "CONFIG SET requirepass secret"), Value::ok());
    let mut new = server.raw();
    for (line, refusal) in [
        ("PING", "NOAUTH"),
        ("HELLO 3", "NOAUTH"),
        ("AUTH wrong", "WRONGPASS"),
        ("HELLO 3 AUTH default wrong", "WRONGPASS"),
        ("ACL WHOAMI", "NOAUTH"),
    ] {
        assert!(is_error(&words(&mut new, line), refusal), "{line}");
    }
    assert_eq!(words(&mut raw, "PING"), Value::status("PONG"), "a client that is logged in stays so");
    assert_eq!(words(&mut new, "AUTH default secret"), Value::ok());
    set_user(&mut raw, "default >another");
    assert_eq!(words(&mut server.raw(), "AUTH another"), Value::ok());
    assert_eq!(words(&mut raw, "CONFIG SET requirepass "), Value::ok());
    assert_eq!(words(&mut server.raw(), "PING"), Value::status("PONG"));
    set_user(&mut raw, "default off");
    assert!(is_error(&words(&mut server.raw(), "PING"), "NOAUTH"));
}

fn sort_reads_other_keys_only_if_the_user_may_read_all(program: Program) {
    if program == Program::Redis {
        // Redis 7.0 does not check this.
        return;
    }
    let (server, mut raw) = Server::with_client(program);
    set_user(&mut raw, "ann on >pw ~own +@all");
    words(&mut raw, "RPUSH own 1 2");
    let mut ann = signed_in(&server, "ann");
    for (line, refusal) in [
        ("SORT own", ""),
        ("SORT own BY nosort", ""),
        ("SORT own BY w_*", "ERR BY option of SORT denied due to insufficient ACL permissions."),
        ("SORT own GET #", "ERR GET option of SORT denied due to insufficient ACL permissions."),
        ("SORT own STORE other", "NOPERM No permissions to access a key"),
        ("SORT own STORE own STORE other", "NOPERM No permissions to access a key"),
    ] {
        let reply = words(&mut ann, line);
        match refusal {
            "" => assert!(matches!(reply, Value::Array(_)), "{line}: {reply:?}"),
            text => assert_eq!(reply, Value::error(text), "{line}"),
        }
    }
    set_user(&mut raw, "ann %R~*");
    assert!(matches!(words(&mut ann, "SORT own BY w_* GET #"), Value::Array(_)));
}

fn refused_calls_are_logged(program: Program) {
    let (server, mut raw) = Server::with_client(program);
    set_user(&mut raw, "ann on >pw ~own:* resetchannels +@all -flushall");
    let mut ann = signed_in(&server, "ann");
    ["GET other", "GET other", "FLUSHALL", "PUBLISH c m"].iter().for_each(|line| drop(words(&mut ann, line)));
    ann.command(&["EVAL", "return redis.pcall('get', 'other')", "0"]);
    words(&mut ann, "AUTH ann wrong");
    let Value::Array(entries) = words(&mut raw, "ACL LOG") else { panic!("a list") };
    let seen: Vec<String> = entries.iter().map(entry_text).collect();
    assert_eq!(
        seen,
        [
            "1 auth toplevel AUTH ann",
            "1 key lua other ann",
            "1 channel toplevel c ann",
            "1 command toplevel flushall ann",
            "2 key toplevel other ann",
        ]
    );
    // For a command called by a script or a transaction, the client field shows the script or EXEC.
    words(&mut ann, "MULTI");
    words(&mut ann, "LPUSH own:list 1");
    set_user(&mut raw, "ann -lpush");
    words(&mut ann, "EXEC");
    let Value::Array(entries) = words(&mut raw, "ACL LOG") else { panic!("a list") };
    let doing: Vec<String> = entries.iter().map(command_of_client).collect();
    assert_eq!(doing, ["exec", "auth", "eval", "publish", "flushall", "get"]);
    let info = words(&mut raw, "INFO stats");
    if program != Program::Redis {
        for field in ["auth:1", "cmd:2", "key:3", "channel:1"] {
            assert!(contains(info.bytes().expect("text"), &format!("acl_access_denied_{field}\r")), "{field}");
        }
    }
    assert_eq!(words(&mut raw, "ACL LOG RESET"), Value::ok());
    assert_eq!(words(&mut raw, "ACL LOG"), Value::Array(Vec::new()));
}

/// Count, reason, context, object and user of an entry of ACL LOG.
fn entry_text(entry: &Value) -> String {
    let Value::Array(fields) = entry else { panic!("RESP2 has lists for maps") };
    let shown = |value: &Value| match value {
        Value::Integer(number) => number.to_string(),
        value => String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned(),
    };
    [1, 3, 5, 7, 9].map(|at| shown(&fields[at])).join(" ")
}

/// The command shown in the client field of an ACL LOG entry.
fn command_of_client(entry: &Value) -> String {
    let Value::Array(fields) = entry else { panic!("RESP2 has lists for maps") };
    let line = String::from_utf8_lossy(fields[13].bytes().expect("a line about the client")).into_owned();
    line.split_once(" cmd=").and_then(|(_, rest)| rest.split(' ').next()).expect("a command").to_owned()
}

#[test]
fn an_acl_file_is_loaded_completely_or_not_at_all() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("users.acl");
    let path = file.to_str().expect("text");
    std::fs::write(&file, "user ann on >pw ~* +@all\n\n user bob on nopass  +ping \r\n").expect("written");
    let server = Server::start(Program::Tidegate, &["--aclfile", path]);
    let mut raw = server.raw();
    let mut ann = signed_in(&server, "ann");
    assert_eq!(words(&mut raw, "ACL USERS"), Value::Array(["ann", "bob", "default"].map(Value::bulk).to_vec()));
    std::fs::write(&file, "user ann off\nuser cid +nosuch #12\nbogus\nuser ann on\n").expect("written");
    assert_eq!(
        words(&mut raw, "ACL LOAD"),
        Value::error(&format!(
            "ERR {path}:2: Error in applying operation '+nosuch': Unknown command or category name in ACL. {path}:2: \
             The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters. \
             {path}:3 should start with user keyword followed by the username. WARNING: Duplicate user 'ann' found on \
             line 4. WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
        ))
    );
    assert_eq!(words(&mut ann, "ACL WHOAMI"), Value::bulk("ann"));
    set_user(&mut raw, "dan on >x ~a* (%R~b* +get)");
    assert_eq!(words(&mut raw, "ACL SAVE"), Value::ok());
    let saved = words(&mut raw, "ACL LIST");
    set_user(&mut raw, "dan +@all");
    assert_eq!(words(&mut raw, "ACL LOAD"), Value::ok());
    assert_eq!(words(&mut raw, "ACL LIST"), saved);
    assert_eq!(words(&mut ann, "PING"), Value::status("PONG"), "a user in both files stays unchanged");
    std::fs::write(&file, "user default on nopass ~* &* +@all\n").expect("written");
    assert_eq!(words(&mut raw, "ACL LOAD"), Value::ok());
    assert!(ann.read_to_end().is_empty());
    let names = |dir: &std::path::Path| std::fs::read_dir(dir).expect("a folder").count();
    assert_eq!(names(dir.path()), 1, "no temporary file is left");
}

#[test]
fn user_lines_of_the_configuration_define_users() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("redis.conf");
    let load = |text: &str| {
        std::fs::write(&file, text).expect("written");
        let port = crate::harness::free_port().to_string();
        let command = crate::harness::launch_command(Program::Tidegate);
        std::process::Command::new(&command[0]).arg(&file).args(["--port", &port, "--appendonly", "no"]).output()
    };
    for (text, error) in [
        ("user a on\nuser a off\n", "Error in user declaration 'a': Duplicate user found."),
        ("user a +nosuch\n", "Error in user declaration '+nosuch': Unknown command or category name in ACL"),
        ("user a on\naclfile x\n", "but not both."),
        ("aclfile nosuch.acl\n", "opening file"),
    ] {
        let output = load(text).expect("it runs");
        let told = [output.stdout, output.stderr].concat();
        assert!(!output.status.success() && contains(&told, error), "{text}: {}", String::from_utf8_lossy(&told));
    }
    let server = Server::start(Program::Tidegate, &["--user", "default on nopass ~app:* +@all -flushall"]);
    let mut raw = server.raw();
    assert!(is_error(&words(&mut raw, "FLUSHALL"), "NOPERM"));
    assert!(is_error(&words(&mut raw, "GET k"), "NOPERM"));
    assert_eq!(words(&mut raw, "GET app:k"), Value::Null);
}

/// Lists of rules for each test, and calls judged after each.
const LISTS: usize = 300;
const CALLS: usize = 20;

#[test]
fn random_rules_mean_the_same_as_in_redis() {
    if REDIS_SERVER_8.is_missing() {
        return;
    }
    let servers = [Server::start(Program::Tidegate, &[]), Server::start(Program::Redis8, &[])];
    let mut raws = servers.each_ref().map(Server::raw);
    let seed = std::env::var("SUITE_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
    let mut dice = Dice(seed.unwrap_or(now));
    let begun_with = dice.0;
    let (mut permitted, mut refused) = (0, 0);
    for _ in 0..LISTS {
        let mut line = vec!["ACL".to_owned(), "SETUSER".to_owned(), "ann".to_owned()];
        if dice.once_in(2) {
            line.push("reset".to_owned());
        }
        let rules = 1 + dice.below(6);
        line.extend((0..rules).map(|_| rule(&mut dice)));
        let mut both = |command: &[String]| {
            let [ours, theirs] = raws.each_mut().map(|raw| raw.command(command));
            // Redis writes `~*` beside other patterns, which it cannot read back.
            let [shown, wanted] = [&ours, &theirs].map(|reply| format!("{reply:?}").replace("%RW~*", "~*"));
            assert_eq!(shown, wanted, "seed {begun_with}: {line:?}, then {command:?}");
            ours
        };
        both(&line);
        let of_user = |sub: &str| vec!["ACL".to_owned(), sub.to_owned(), "ann".to_owned()];
        both(&of_user("GETUSER"));
        both(&["ACL".to_owned(), "LIST".to_owned()]);
        for _ in 0..CALLS {
            let call = [of_user("DRYRUN"), call(&mut dice)].concat();
            match both(&call) {
                Value::Status(_) => permitted += 1,
                _ => refused += 1,
            }
        }
    }
    assert!(permitted > LISTS && refused > LISTS, "{permitted} calls were permitted, {refused} refused");
}

const COMMANDS: [&str; 24] = [
    "get",
    "set",
    "mget",
    "del",
    "config",
    "config|get",
    "config|set",
    "client|id",
    "client",
    "acl|whoami",
    "publish",
    "subscribe",
    "psubscribe",
    "select",
    "sort",
    "sort_ro",
    "lmove",
    "zunionstore",
    "xread",
    "eval",
    "bitfield",
    "copy",
    "hello",
    "nosuch",
];
const GLOBS: [&str; 8] = ["*", "a*", "b?", "key", "[ab]c", "", "ab", "a"];

/// One rule, occasionally an invalid one.
fn rule(dice: &mut Dice) -> String {
    match dice.below(20) {
        0 => (*dice.pick(&["on", "off", "nopass", "resetpass", "reset", "clearselectors", "sanitize-payload"]))
            .to_owned(),
        1 => (*dice.pick(&["allkeys", "resetkeys", "allchannels", "resetchannels", "allcommands", "NOCOMMANDS"]))
            .to_owned(),
        2..=4 => format!("~{}", dice.pick(&GLOBS)),
        5 | 6 => format!("%{}~{}", dice.pick(&["R", "W", "RW", "WR", "r", "X", ""]), dice.pick(&GLOBS)),
        7 | 8 => format!("&{}", dice.pick(&GLOBS)),
        9..=11 => format!("{}{}", dice.pick(&["+", "-"]), dice.pick(&COMMANDS)),
        12 => format!("{}{}|{}", dice.pick(&["+", "-"]), dice.pick(&COMMANDS), dice.pick(&["get", "0", "STOP", ""])),
        13..=15 => {
            let names = ["all", "read", "write", "string", "list", "admin", "pubsub", "fast", "CONNECTION", "nosuch"];
            format!("{}@{}", dice.pick(&["+", "-"]), dice.pick(&names))
        }
        16 => format!("{}{}", dice.pick(&[">", "<"]), dice.pick(&["x", "y"])),
        17 => format!("{}{}", dice.pick(&["#", "!"]), dice.pick(&["ab".repeat(32), "AB".repeat(32), "ab".to_owned()])),
        18 => {
            let parts: Vec<String> = (0..1 + dice.below(3)).map(|_| selector_rule(dice)).collect();
            format!("({})", parts.join(" "))
        }
        _ => (*dice.pick(&["(", "x)", "bogus", "+", "-", "+@", "~a b", "%", "()"])).to_owned(),
    }
}

fn selector_rule(dice: &mut Dice) -> String {
    match dice.below(4) {
        0 => format!("~{}", dice.pick(&GLOBS)),
        1 => format!("&{}", dice.pick(&GLOBS)),
        2 => format!("{}{}", dice.pick(&["+", "-"]), dice.pick(&COMMANDS)),
        _ => format!("+@{}", dice.pick(&["all", "read", "write", "pubsub"])),
    }
}

/// A call, usually of the right form.
fn call(dice: &mut Dice) -> Vec<String> {
    let names = ["a", "ab", "bc", "key", "zz"];
    let mut name = || *dice.pick(&names);
    let (a, b, c) = (name(), name(), name());
    let lines = [
        format!("GET {a}"),
        format!("SET {a} v"),
        format!("SET {a} v GET"),
        format!("MGET {a} {b} {c}"),
        format!("DEL {a} {b}"),
        format!("STRLEN {a}"),
        format!("TYPE {a}"),
        format!("COPY {a} {b}"),
        format!("LMOVE {a} {b} LEFT RIGHT"),
        format!("ZUNIONSTORE {a} 2 {b} {c}"),
        format!("ZUNIONSTORE {a} 9 {b} {c}"),
        format!("XREAD COUNT 1 STREAMS {a} {b} 0 0"),
        format!("EVAL x 2 {a} {b} {c}"),
        format!("BITFIELD {a} GET u8 0"),
        format!("BITFIELD {a} SET u8 0 1"),
        format!("SORT {a} STORE {b}"),
        format!("SORT_RO {a}"),
        format!("GEORADIUS {a} 0 0 1 m STORE {b}"),
        format!("MSET {a} v {b} v"),
        format!("OBJECT ENCODING {a}"),
        format!("PUBLISH {a} m"),
        format!("SPUBLISH {a} m"),
        format!("SUBSCRIBE {a} {b}"),
        format!("PSUBSCRIBE {a} a*"),
        format!("UNSUBSCRIBE {a}"),
        "SELECT 0".to_owned(),
        "SELECT 1".to_owned(),
        "CONFIG GET get".to_owned(),
        "CONFIG SET get 0".to_owned(),
        "CLIENT ID".to_owned(),
        "ACL WHOAMI".to_owned(),
        "HELLO 3".to_owned(),
        "PING".to_owned(),
        "GET".to_owned(),
        "NOSUCH a".to_owned(),
        "CONFIG NOSUCH".to_owned(),
    ];
    dice.pick(&lines).split(' ').map(str::to_owned).collect()
}

#[test]
fn acl_cat_lists_commands_and_acl_genpass_draws_passwords() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    let Value::Array(categories) = words(&mut raw, "ACL CAT") else { panic!("a list") };
    assert_eq!(categories.len(), 24);
    let Value::Array(names) = words(&mut raw, "ACL CAT scripting") else { panic!("a list") };
    assert!(sorted(names).contains(&Value::bulk("eval")));
    assert_eq!(words(&mut raw, "ACL CAT nosuch"), Value::error("ERR Unknown category 'nosuch'"));
    for (line, digits) in [("ACL GENPASS", 64), ("ACL GENPASS 5", 2), ("ACL GENPASS 4096", 1_024)] {
        let (one, other) = (words(&mut raw, line), words(&mut raw, line));
        assert_eq!(one.bytes().map(<[u8]>::len), Some(digits), "{line}");
        assert!(digits < 8 || one != other, "{line}");
    }
    for line in ["ACL GENPASS 0", "ACL GENPASS 4097", "ACL GENPASS x", "ACL GENPASS 1 2"] {
        assert!(is_error(&words(&mut raw, line), "ERR"), "{line}");
    }
}

/// Names are shown to people, in terminals.
#[test]
fn control_characters_in_names_are_refused() {
    let (_server, mut raw) = Server::with_client(Program::Tidegate);
    for name in ["a\u{1b}[31m", "a\u{7f}", "a b", "a\n", ""] {
        assert!(is_error(&raw.command(&["ACL", "SETUSER", name]), "ERR Usernames can't contain"), "{name:?}");
    }
    assert_eq!(raw.command(&["ACL", "SETUSER", "größe"]), Value::ok());
}
