//! Two servers that get identical calls, one call at a time (the corpus) or many at once (random sequences).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::heard::{self, Listeners};
use super::rule::{Rule, Version, double_of, rule_for};
use super::script::{Action, Args, Step, show};
use crate::harness::{Program, REPLY_DEADLINE, Raw, Reply, Server, Value, encode};

const NO_REPLY: &str = "no reply: ";
/// The callers' connection.
pub(super) const CALLER: &str = "a";

/// Two servers and their connections, by name.
pub(super) struct Pair {
    ours: Server,
    theirs: Server,
    version: Version,
    links: BTreeMap<String, Link>,
    broken: bool,
    /// Whether a sequence has changed parameters, which must be restored for the next one.
    configured: bool,
    /// Whether there are listeners, and the listeners of this server and of the oracle.
    is_heard: bool,
    listeners: Option<[Listeners; 2]>,
}

/// A client's connections to both servers.
pub(super) struct Link {
    pub(super) ours: Raw,
    pub(super) theirs: Raw,
    version: Version,
    /// The rules of the commands that MULTI has queued.
    queued: Vec<Rule>,
}

impl Pair {
    /// The server under test and the oracle.
    pub(super) fn start(version: Version) -> Pair {
        const ENABLE: [&str; 2] = ["--enable-debug-command", "yes"];
        // The oracle checks for ended waits as often as its cron runs.
        let often = [&ENABLE[..], &["--hz", "500"]].concat();
        Pair::of(Server::start(Program::Tidegate, &ENABLE), Server::start(version.program(), &often), version)
    }

    /// Like [`Self::start`], with listeners on both.
    pub(super) fn start_heard(version: Version) -> Pair {
        let ours = Server::start(Program::Tidegate, &heard::FLAGS);
        let theirs = Server::start(version.program(), &[&heard::FLAGS[..], &["--hz", "500"]].concat());
        for server in [&ours, &theirs] {
            // Only calls may discover expired keys, so that both servers do it at the same point.
            server.raw().command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        }
        Pair { is_heard: true, ..Pair::of(ours, theirs, version) }
    }

    /// Any two servers.
    pub(super) fn of(ours: Server, theirs: Server, version: Version) -> Pair {
        let links = BTreeMap::new();
        Pair { ours, theirs, version, links, broken: false, configured: false, is_heard: false, listeners: None }
    }

    /// The connection of this name; a new one if there is none yet.
    pub(super) fn link(&mut self, name: &str, resp3: bool) -> &mut Link {
        let (ours, theirs, version) = (&self.ours, &self.theirs, self.version);
        let listeners = self.listeners.as_mut().filter(|_| name == CALLER);
        self.links.entry(name.to_owned()).or_insert_with(|| {
            let mut link = Link { ours: ours.raw(), theirs: theirs.raw(), version, queued: Vec::new() };
            if resp3 {
                link.ours.hello3();
                link.theirs.hello3();
            }
            if let Some([to_ours, to_theirs]) = listeners {
                to_ours.track(&mut link.ours, resp3);
                to_theirs.track(&mut link.theirs, resp3);
            }
            link
        })
    }

    /// The version of Redis in this comparison.
    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// After a hang-up or a lost reply on one side no further comparison is possible.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Empties both servers and forgets all connections.
    pub(super) fn reset(&mut self) {
        self.links.clear();
        self.broken = false;
        for server in [&self.ours, &self.theirs] {
            let mut raw = server.raw();
            raw.command(&["FLUSHALL"]);
            raw.command(&["FUNCTION", "FLUSH"]);
            if self.configured {
                for (parameter, default) in THRESHOLDS {
                    raw.command(&["CONFIG", "SET", parameter, default]);
                }
            }
        }
        self.configured = false;
        self.listeners = self.is_heard.then(|| [&self.ours, &self.theirs].map(Listeners::start));
    }

    /// The difference between the messages to both sides' listeners since the last look, or between their events alone;
    /// `None` without listeners.
    pub(super) fn compare_heard(&mut self, events_only: bool) -> Option<String> {
        let [ours, theirs] = self.listeners.as_mut()?;
        heard::compare(ours, theirs, events_only)
    }

    /// Sends calls on one connection, as one pipeline; returns the index of the first that differs, and the difference.
    pub(super) fn compare(&mut self, name: &str, resp3: bool, calls: &[(Args, Rule)]) -> Option<(usize, String)> {
        self.configured |= calls.iter().any(|(args, _)| args[0] == b"CONFIG");
        let link = self.link(name, resp3);
        let bytes: Vec<u8> = calls.iter().flat_map(|(args, _)| encode(args)).collect();
        link.ours.send(&bytes);
        link.theirs.send(&bytes);
        let difference = calls.iter().enumerate().find_map(|(i, (args, rule))| {
            let told = link.compare_call(args, rule)?;
            Some((i, format!("{}\n{told}", show(args))))
        });
        self.broken |= difference.as_ref().is_some_and(|(_, told)| told.contains(NO_REPLY));
        difference
    }

    /// The oracle's answers on a connection; an error if ours differ.
    pub(super) fn ask(&mut self, name: &str, resp3: bool, calls: &[(Args, Rule)]) -> Result<Vec<Value>, String> {
        let link = self.link(name, resp3);
        let bytes: Vec<u8> = calls.iter().flat_map(|(args, _)| encode(args)).collect();
        link.ours.send(&bytes);
        link.theirs.send(&bytes);
        let replies =
            calls.iter().map(|(args, rule)| link.next(rule).map_err(|told| format!("{}\n{told}", show(args))));
        let replies: Result<Vec<Value>, String> = replies.collect();
        self.broken |= replies.as_ref().is_err_and(|told| told.contains(NO_REPLY));
        replies
    }

    /// One step of a corpus; returns the difference.
    pub(super) fn step(&mut self, step: &Step, resp3: bool, missing: &BTreeSet<String>) -> Option<String> {
        let (shown, rule, count) = match &step.action {
            Action::Sleep(time) => {
                std::thread::sleep(*time);
                return None;
            }
            Action::Blocked(wanted) => return self.wait_for_blocked(*wanted),
            Action::Run { args, .. } if is_missing(args, missing) => return None,
            Action::Run { args, wait, loose } => {
                let scan = scan_position(args).filter(|&at| args.get(at).is_some_and(|c| c == b"0"));
                let link = self.link(&step.connection, resp3);
                if let Some(at) = scan {
                    return link.compare_scans(args, at).map(|d| format!("{}\n{d}", show(args)));
                }
                link.ours.send_command(args);
                link.theirs.send_command(args);
                let rule = if *loose { Rule::Kind } else { rule_for(args) };
                (show(args), rule, if *wait { reply_count(args) } else { 0 })
            }
            Action::Read => ("?".to_owned(), Rule::Exact, 1),
        };
        let link = self.link(&step.connection, resp3);
        let difference = (0..count).find_map(|_| link.next(&rule).err()).map(|d| format!("{shown}\n{d}"));
        if shown == "RESET" {
            link.ours.back_to_resp2();
            link.theirs.back_to_resp2();
        } else if shown == "QUIT" {
            self.links.remove(&step.connection);
        }
        self.broken = difference.as_ref().is_some_and(|d| d.contains(NO_REPLY));
        difference
    }

    /// Waits until this many clients are blocked; returns an error text if that does not happen.
    pub(super) fn wait_for_blocked(&mut self, wanted: usize) -> Option<String> {
        let deadline = Instant::now() + REPLY_DEADLINE;
        let field = format!("blocked_clients:{wanted}\r");
        for (who, server) in [("ours", &self.ours), ("redis", &self.theirs)] {
            let mut raw = server.raw();
            loop {
                let info = raw.command(&["INFO", "clients"]);
                if String::from_utf8_lossy(info.bytes().unwrap_or_default()).contains(&field) {
                    break;
                }
                if Instant::now() > deadline {
                    return Some(format!("!blocked {wanted}: {who}: {info:?}"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        None
    }

    /// Unread frames, on either side.
    pub(super) fn leftovers(&mut self, resp3: bool) -> Vec<String> {
        if self.broken {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (name, link) in &mut self.links {
            for (who, raw) in [("ours", &mut link.ours), ("redis", &mut link.theirs)] {
                raw.send_command(&["RESET"]);
                let mut extra = Vec::new();
                loop {
                    match raw.try_reply(REPLY_DEADLINE) {
                        Ok(reply) if reply.value == Value::status("RESET") => break,
                        Ok(reply) => extra.push(format!("{:?}", reply.value)),
                        Err(why) => {
                            extra.push(why);
                            break;
                        }
                    }
                }
                if !extra.is_empty() {
                    found.push(format!("[{name}] RESP{} {who}: unread: {}", 2 + u8::from(resp3), extra.join(" ")));
                }
            }
        }
        found
    }
}

/// The parameters that bound the sizes of the small encodings, with their defaults.
pub(super) const THRESHOLDS: [(&str, &str); 9] = [
    ("hash-max-listpack-entries", "512"),
    ("hash-max-listpack-value", "64"),
    ("set-max-intset-entries", "512"),
    ("zset-max-listpack-entries", "128"),
    ("zset-max-listpack-value", "64"),
    ("list-max-listpack-size", "-2"),
    ("stream-node-max-entries", "100"),
    ("stream-node-max-bytes", "4096"),
    ("hll-sparse-max-bytes", "3000"),
];

impl Link {
    /// Compares the next reply of both; the replies in EXEC's by the rules of the queued commands.
    pub(super) fn compare_call(&mut self, args: &Args, rule: &Rule) -> Option<String> {
        match args[0].as_slice() {
            b"EXEC" => {
                let rule = Rule::Each(std::mem::take(&mut self.queued));
                return self.next(&rule).err();
            }
            b"MULTI" | b"DISCARD" => self.queued.clear(),
            _ => {}
        }
        match self.next(rule) {
            Ok(Value::Status(text)) if text == b"QUEUED" => {
                self.queued.push(rule.clone());
                None
            }
            Ok(_) => None,
            Err(told) => Some(told),
        }
    }

    /// The next reply of the oracle, or the difference of ours.
    fn next(&mut self, rule: &Rule) -> Result<Value, String> {
        let (ours, theirs) = (self.ours.try_reply(REPLY_DEADLINE), self.theirs.try_reply(REPLY_DEADLINE));
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) if rule.same(&ours, &theirs, self.version) => Ok(theirs.value),
            (Ok(ours), Ok(theirs)) => Err(describe(&ours, &theirs)),
            (ours, theirs) => {
                let tell = |r: Result<Reply, String>| match r {
                    Ok(reply) => clip(&format!("{:?}", reply.value)),
                    Err(why) => format!("{NO_REPLY}{}", clip(&why)),
                };
                Err(format!("    ours:  {}\n    redis: {}", tell(ours), tell(theirs)))
            }
        }
    }

    /// A whole scan from cursor 0 on each side: equal elements, whatever the cursors and their order.
    fn compare_scans(&mut self, args: &Args, at: usize) -> Option<String> {
        let mut answers = Vec::new();
        for raw in [&mut self.ours, &mut self.theirs] {
            let mut args = args.clone();
            let mut seen = BTreeSet::new();
            let outcome = loop {
                match raw.command(&args) {
                    Value::Array(parts) if parts.len() == 2 => {
                        let Value::Array(items) = &parts[1] else {
                            break format!("{:?}", parts[1]);
                        };
                        seen.extend(scanned(&args[0], items));
                        let Some(cursor) = parts[0].bytes() else {
                            break format!("cursor {:?}", parts[0]);
                        };
                        if cursor == b"0" {
                            break format!("{seen:?}");
                        }
                        args[at] = cursor.to_vec();
                    }
                    other => break format!("{other:?}"),
                }
            };
            answers.push(outcome);
        }
        (answers[0] != answers[1])
            .then(|| format!("    ours:  {}\n    redis: {}", clip(&answers[0]), clip(&answers[1])))
    }
}

/// The elements of a scan's reply; scores as numbers, which Redis 8 writes shorter.
fn scanned(command: &[u8], items: &[Value]) -> Vec<String> {
    match command.to_ascii_uppercase().as_slice() {
        b"HSCAN" => items.chunks(2).map(|pair| format!("{pair:?}")).collect(),
        b"ZSCAN" => {
            let score = |pair: &[Value]| pair.get(1).and_then(double_of);
            items.chunks(2).map(|pair| format!("{:?} {:?}", pair[0], score(pair))).collect()
        }
        _ => items.iter().map(|item| format!("{item:?}")).collect(),
    }
}

/// The position of the cursor among a scanning command's arguments.
fn scan_position(args: &Args) -> Option<usize> {
    let name = args.first()?.to_ascii_uppercase();
    match name.as_slice() {
        b"SCAN" => Some(1),
        b"SSCAN" | b"HSCAN" | b"ZSCAN" => Some(2),
        _ => None,
    }
}

/// The number of frames in a command's answer: the subscribing ones answer once for each channel.
fn reply_count(args: &Args) -> usize {
    match args[0].to_ascii_uppercase().as_slice() {
        b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SSUBSCRIBE" | b"UNSUBSCRIBE" | b"PUNSUBSCRIBE" | b"SUNSUBSCRIBE" => {
            (args.len() - 1).max(1)
        }
        _ => 1,
    }
}

/// Whether the server lacks this command.
pub(super) fn is_missing(args: &Args, missing: &BTreeSet<String>) -> bool {
    let name = String::from_utf8_lossy(&args[0]).to_ascii_uppercase();
    let with_sub = args.get(1).map(|sub| format!("{name} {}", String::from_utf8_lossy(sub).to_ascii_uppercase()));
    missing.contains(&name) || with_sub.is_some_and(|n| missing.contains(&n))
}

fn describe(ours: &Reply, theirs: &Reply) -> String {
    let (mut left, mut right) = (format!("{:?}", ours.value), format!("{:?}", theirs.value));
    if left == right {
        (left, right) = (ours.raw.escape_ascii().to_string(), theirs.raw.escape_ascii().to_string());
    }
    format!("    ours:  {}\n    redis: {}", clip(&left), clip(&right))
}

fn clip(text: &str) -> String {
    const SHOWN: usize = 600;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}
