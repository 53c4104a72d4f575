//! The recipes of `docs/access.md`. Their lines create users. Each user may do everything that the page allows, and
//! nothing that it forbids. Each command that names no key is either on that page, with the reason why it may
//! disclose everything, or in a list here of those that disclose nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::{Program, Raw, Server, Value};

const PAGE: &str = include_str!("../../docs/access.md");

/// A recipe: the call that creates the user, and the calls that the user may and may not make.
struct Recipe {
    rules: &'static str,
    user: &'static str,
    may: Vec<&'static str>,
    may_not: Vec<&'static str>,
}

fn recipes() -> Vec<Recipe> {
    let recipe = |section: &'static str| {
        let rules = section.lines().find(|line| line.starts_with("ACL SETUSER "))?;
        let user = rules.split(' ').nth(2).expect("a name");
        let rows: Vec<[&str; 2]> = section.lines().filter_map(calls_of_row).collect();
        let column = |at: usize| rows.iter().map(|row| row[at]).collect();
        Some(Recipe { rules, user, may: column(0), may_not: column(1) })
    };
    PAGE.split("\n## ").filter_map(recipe).map(pad).collect()
}

/// Columns of different length leave cells empty.
fn pad(mut recipe: Recipe) -> Recipe {
    recipe.may.retain(|call| !call.is_empty());
    recipe.may_not.retain(|call| !call.is_empty());
    recipe
}

/// The two calls of a row, which are in backticks.
fn calls_of_row(line: &'static str) -> Option<[&'static str; 2]> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
    let mut call = || cells.next().map(|cell| cell.trim_matches('`'));
    let row = [call()?, call()?];
    (line.contains('`') && cells.next().is_none()).then_some(row)
}

fn call(raw: &mut Raw, line: &str) -> Value {
    raw.command(&line.split(' ').collect::<Vec<_>>())
}

fn is_refused(value: &Value) -> bool {
    matches!(value, Value::Error(text) if text.starts_with(b"NOPERM"))
}

/// A server with the users of all recipes, and with data for them to see.
fn server() -> Server {
    let server = Server::start(Program::Tidegate, &["--enable-debug-command", "yes"]);
    let mut admin = server.raw();
    for Recipe { rules, .. } in recipes() {
        assert_eq!(call(&mut admin, rules), Value::ok(), "{rules}");
    }
    for line in [
        "LOCK.ACQUIRE app:held other PX 60000",
        "LOCK.ACQUIRE other:held other PX 60000",
        "STOCK.SET app:stock 10",
        "XGROUP CREATE jobs workers 0 MKSTREAM",
    ] {
        assert!(!matches!(call(&mut admin, line), Value::Error(_)), "{line}");
    }
    server
}

fn sign_in(server: &Server, user: &str) -> Raw {
    let mut raw = server.raw();
    assert_eq!(call(&mut raw, &format!("AUTH {user} change-me")), Value::ok());
    raw
}

#[test]
fn each_user_may_do_exactly_what_the_page_allows() {
    let server = server();
    let recipes = recipes();
    assert_eq!(
        recipes.iter().map(|recipe| recipe.user).collect::<Vec<_>>(),
        ["application", "worker", "viewer", "operator", "backup", "monitoring", "replica"]
    );
    for Recipe { user, may, may_not, .. } in &recipes {
        assert!(may.len() > 5 && may_not.len() > 5, "{user}");
        for line in may {
            let reply = call(&mut sign_in(&server, user), line);
            assert!(!is_refused(&reply), "{user}: {line}: {reply:?}");
            // A refusal for another reason would prove nothing.
            let is_wrong = |text: &[u8]| {
                [&b"ERR unknown"[..], b"ERR syntax", b"ERR wrong number"].iter().any(|start| text.starts_with(start))
            };
            assert!(!matches!(&reply, Value::Error(text) if is_wrong(text)), "{user}: {line}: {reply:?}");
        }
        for line in may_not {
            let reply = call(&mut sign_in(&server, user), line);
            assert!(is_refused(&reply), "{user}: {line}: {reply:?}");
        }
    }
}

/// The keys of the events that a user may see.
fn keys_of_events(raw: &mut Raw) -> BTreeSet<String> {
    let Value::Array(page) = call(raw, "EVENTS 0 COUNT 1000") else { panic!("no page") };
    let Some(Value::Array(events)) = page.last() else { panic!("{page:?}") };
    let key = |event: &Value| {
        let Value::Array(fields) = event else { panic!("{event:?}") };
        let at = fields.iter().position(|field| *field == Value::bulk("key")).expect("a key");
        text(&fields[at + 1])
    };
    events.iter().map(key).collect()
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned()
}

#[test]
fn each_user_sees_only_permitted_events() {
    let server = server();
    let all = BTreeSet::from(["app:held".to_owned(), "other:held".to_owned()]);
    let own = BTreeSet::from(["app:held".to_owned()]);
    for user in ["application", "viewer"] {
        assert_eq!(keys_of_events(&mut sign_in(&server, user)), own, "{user}");
    }
    assert_eq!(keys_of_events(&mut sign_in(&server, "operator")), all);
}

/// Commands that name no key and disclose nothing about other clients or their data. They concern the connection
/// itself, the table of commands, the time, or the program that is sent; or administrators call them, and the reply
/// describes no client. A command includes its subcommands.
const ABOUT_NOBODY_ELSE: [&str; 56] = [
    "acl|cat",
    "acl|genpass",
    "acl|whoami",
    "asking",
    "auth",
    "bgrewriteaof",
    "bgsave",
    "client|caching",
    "client|capa",
    "client|getname",
    "client|getredir",
    "client|id",
    "client|info",
    "client|no-evict",
    "client|no-touch",
    "client|reply",
    "client|setinfo",
    "client|setname",
    "client|trackinginfo",
    "cluster",
    "command",
    "discard",
    "echo",
    "exec",
    "failover",
    "hello",
    "lastsave",
    "lolwut",
    "module|load",
    "module|loadex",
    "module|unload",
    "multi",
    "pfselftest",
    "ping",
    "psubscribe",
    "publish",
    "punsubscribe",
    "quit",
    "readonly",
    "readwrite",
    "replicaof",
    "reset",
    "save",
    "script|exists",
    "script|lint",
    "script|load",
    "select",
    "shutdown",
    "slaveof",
    "subscribe",
    "ticket.cancel",
    "time",
    "unsubscribe",
    "unwatch",
    "wait",
    "waitaof",
];

/// A command that names no key.
struct Keyless {
    categories: BTreeSet<String>,
    /// Arguments that satisfy it.
    arguments: usize,
}

/// All such commands except HELP, by their full names.
fn keyless(server: &Server) -> BTreeMap<String, Keyless> {
    let mut found = BTreeMap::new();
    let Value::Array(commands) = server.raw().command(&["COMMAND"]) else { panic!("no table") };
    let mut left = commands;
    while let Some(Value::Array(fields)) = left.pop() {
        let [name, Value::Integer(arity), _, _, _, _, categories, _, Value::Array(specs), subcommands] = &fields[..]
        else {
            panic!("{fields:?}")
        };
        let name = text(name);
        match subcommands {
            Value::Array(all) if !all.is_empty() => left.extend(all.iter().cloned()),
            _ if specs.is_empty() && !name.ends_with("|help") => {
                let Value::Array(categories) = categories else { panic!("{categories:?}") };
                let arguments = arity.unsigned_abs() as usize - name.split('|').count();
                found.insert(name, Keyless { categories: categories.iter().map(text).collect(), arguments });
            }
            _ => {}
        }
    }
    found
}

/// The rows of the page's last table: commands, by their full names, the categories that it names, and the page's
/// remarks on them.
fn rows_of_last_table() -> Vec<(Vec<String>, Vec<&'static str>, &'static str)> {
    let table = PAGE.split_once("## Commands beyond key patterns").expect("the section").1;
    let quoted = |cell: &'static str| cell.split('`').skip(1).step_by(2).collect::<Vec<_>>();
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.split('|').collect();
        let [_, _, categories, note, _] = cells[..] else { panic!("{line}") };
        let names = quoted(line.split('|').nth(1)?).into_iter().map(|name| name.to_lowercase().replace(' ', "|"));
        Some((names.collect(), quoted(categories), note))
    };
    table.lines().filter_map(row).collect()
}

#[test]
fn the_page_lists_every_command_that_discloses_everything() {
    let server = server();
    let (keyless, rows) = (keyless(&server), rows_of_last_table());
    assert!(keyless.len() > 100 && rows.len() > 15, "{} commands, {} rows", keyless.len(), rows.len());
    let listed: BTreeSet<&String> = rows.iter().flat_map(|(names, ..)| names).collect();
    let is_about_nobody_else =
        |name: &str| ABOUT_NOBODY_ELSE.iter().any(|other| name == *other || name.split('|').next() == Some(other));
    let missing: Vec<_> = keyless.keys().filter(|name| !listed.contains(name) && !is_about_nobody_else(name)).collect();
    assert!(missing.is_empty(), "docs/access.md does not mention {missing:?}, which name no key");
    let mut admin = server.raw();
    for (names, categories, note) in &rows {
        for name in names {
            let command = keyless.get(name).unwrap_or_else(|| panic!("{name} names keys, or is no command"));
            for category in categories {
                assert!(command.categories.contains(*category), "{name} is in {:?}", command.categories);
            }
            let words: Vec<&str> = name.split('|').chain(std::iter::repeat_n("1", command.arguments)).collect();
            for user in ["application", "worker"] {
                let answer = admin.command(&[&["ACL", "DRYRUN", user], &words[..]].concat());
                let may = answer == Value::ok();
                assert!(note.contains("filtered") || !may, "{user} may call {name}");
            }
        }
    }
}

/// No recipe for programs has a dangerous command.
#[test]
fn recipes_for_programs_allow_no_dangerous_command() {
    let server = server();
    let mut admin = server.raw();
    let Value::Array(dangerous) = admin.command(&["ACL", "CAT", "dangerous"]) else { panic!("no commands") };
    assert!(dangerous.len() > 50);
    for name in dangerous.iter().map(text) {
        let Value::Array(info) = admin.command(&["COMMAND", "INFO", &name]) else { panic!("{name}") };
        let Some(Value::Array(fields)) = info.first() else { panic!("{name}: {info:?}") };
        let Value::Integer(arity) = fields[1] else { panic!("{name}") };
        let arguments = arity.unsigned_abs() as usize - name.split('|').count();
        let words: Vec<&str> = name.split('|').chain(std::iter::repeat_n("app:1", arguments)).collect();
        for user in ["application", "worker"] {
            let answer = admin.command(&[&["ACL", "DRYRUN", user], &words[..]].concat());
            assert!(text(&answer).contains("no permissions to run"), "{user}: {name}: {answer:?}");
        }
    }
}
