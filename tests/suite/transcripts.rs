//! Replies written by hand, for features that Redis 7.0.15, the oracle of the differential tests, lacks.
//!
//! `transcripts/*.txt`, family by family: a command as redis-cli reads it, and below it the reply, in the notation of
//! [`Value`]'s `Debug`. Each file runs over RESP2 and over RESP3, against a server of its own.
//!
//! ```text
//! # comment
//! COMMAND                   optionally after [name], the connection (a when absent)
//! > REPLY                   in both protocols; `...` in it matches anything
//! 2> REPLY    3> REPLY      in one of them
//! & COMMAND                 sent only; a later  ?  reads the reply
//! !sleep MS                 !blocked N  waits until N clients are blocked
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::differential::split_line;
use crate::harness::{Program, REPLY_DEADLINE, Raw, Server};

#[test]
fn transcripts_resp2() {
    run_all(false);
}

#[test]
fn transcripts_resp3() {
    run_all(true);
}

fn run_all(resp3: bool) {
    let wanted = std::env::var("SUITE_TRANSCRIPT").ok();
    let mut faults = Vec::new();
    let mut replies = 0;
    for path in files() {
        let name = path.file_stem().expect("a file has a stem").to_string_lossy().into_owned();
        if wanted.as_ref().is_some_and(|wanted| *wanted != name) {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut run = Run { server: Server::start(Program::Tidegate, &[]), links: BTreeMap::new(), resp3 };
        let mut answer: Option<String> = None;
        for (number, line) in text.lines().enumerate() {
            let fault = match expectation(line, resp3) {
                Some(Expectation::Here(wanted)) => {
                    replies += 1;
                    match &answer {
                        Some(answer) if matches(wanted, answer) => None,
                        answer => {
                            Some(format!("wanted {wanted}\n      got {}", answer.as_deref().unwrap_or("nothing")))
                        }
                    }
                }
                Some(Expectation::Elsewhere) => None,
                None => {
                    answer = run.step(line);
                    None
                }
            };
            faults.extend(fault.map(|fault| format!("{name}.txt:{}: {fault}", number + 1)));
        }
    }
    assert!(replies > 0, "no transcript was run");
    assert!(faults.is_empty(), "{} of {replies} (RESP{}):\n{}", faults.len(), 2 + u8::from(resp3), faults.join("\n"));
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/transcripts");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    files
}

/// The expectation that a line of the file has of the last reply.
enum Expectation<'a> {
    Here(&'a str),
    /// The line is about the other protocol.
    Elsewhere,
}

fn expectation(line: &str, resp3: bool) -> Option<Expectation<'_>> {
    let (mark, wanted) = line.split_once(' ').unwrap_or((line, ""));
    match (mark, resp3) {
        (">", _) | ("2>", false) | ("3>", true) => Some(Expectation::Here(wanted)),
        ("2>" | "3>", _) => Some(Expectation::Elsewhere),
        _ => None,
    }
}

/// Whether `text` matches the wanted text, where `...` matches anything.
pub(crate) fn matches(wanted: &str, text: &str) -> bool {
    let Some((first, others)) = wanted.split_once("...") else { return wanted == text };
    let (middle, last) = others.rsplit_once("...").unwrap_or(("", others));
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    for part in middle.split("...") {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// One file against one server.
struct Run {
    server: Server,
    links: BTreeMap<String, Raw>,
    resp3: bool,
}

impl Run {
    /// Runs a line; returns the reply, if the line reads one.
    fn step(&mut self, line: &str) -> Option<String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        if let Some(ms) = line.strip_prefix("!sleep ") {
            std::thread::sleep(Duration::from_millis(ms.parse().expect("milliseconds")));
            return None;
        }
        if let Some(wanted) = line.strip_prefix("!blocked ") {
            self.wait_for_blocked(wanted);
            return None;
        }
        let (name, rest) = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")).unwrap_or(("a", line));
        let (server, resp3) = (&self.server, self.resp3);
        let link = self.links.entry(name.to_owned()).or_insert_with(|| {
            let mut link = server.raw();
            if resp3 {
                link.hello3();
            }
            link
        });
        let args = |text: &str| split_line(text).unwrap_or_else(|| panic!("unbalanced quotes: {text}"));
        let answer = match rest.strip_prefix("& ") {
            Some(command) => {
                link.send_command(&args(command));
                return None;
            }
            None if rest == "?" => link.reply().value,
            None => link.command(&args(rest)),
        };
        // Within double quotes a single quote needs no backslash.
        Some(format!("{answer:?}").replace("\\'", "'"))
    }

    fn wait_for_blocked(&self, wanted: &str) {
        let deadline = Instant::now() + REPLY_DEADLINE;
        let field = format!("blocked_clients:{wanted}\r");
        let mut raw = self.server.raw();
        while !String::from_utf8_lossy(raw.command(&["INFO", "clients"]).bytes().unwrap_or_default()).contains(&field) {
            assert!(Instant::now() < deadline, "never so many blocked clients: {wanted}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn dots_match_anything() {
    assert!(matches("[1, 2]", "[1, 2]") && !matches("[1, 2]", "[1, 23]") && !matches("1", "12"));
    assert!(matches("[1, ...]", "[1, 2, 3]") && matches("...", "") && matches("a...b...c", "axxbyc"));
    assert!(!matches("a...b", "bxa") && !matches("[1, ...]", "[2, 1, ]"));
}
