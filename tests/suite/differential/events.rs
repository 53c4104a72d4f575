//! The keyspace notifications of calls, compared with those of Redis 8.0: one call at a time, and after each the events
//! of both servers, in order.
//!
//! The calls are those of `events.txt`, written for this test, and those of the corpus that work on their own.

use std::path::PathBuf;

use super::script::{Action, Args, corpus_files, read_corpus, show, suite_folder};
use crate::harness::{Program, Raw, Server, Value};
use crate::oracle::REDIS_SERVER_8;

/// A server with a caller and a subscriber.
struct Watched {
    _server: Server,
    caller: Raw,
    listener: Raw,
}

impl Watched {
    fn start(program: Program) -> Watched {
        let server = Server::start(program, &["--notify-keyspace-events", "AKEnm", "--enable-debug-command", "yes"]);
        let (caller, mut listener) = (server.raw(), server.raw());
        for call in [["PSUBSCRIBE", "__key*"], ["SUBSCRIBE", "end"]] {
            listener.command(&call);
        }
        Watched { _server: server, caller, listener }
    }

    /// Makes a call; returns the reply and its notifications: channels and messages.
    fn call(&mut self, args: &Args) -> (Value, Vec<String>) {
        let reply = self.caller.command(args);
        self.caller.command(&["PUBLISH", "end", ""]);
        let mut told = Vec::new();
        loop {
            let Value::Array(parts) = self.listener.reply().value else { panic!("a listener reads messages") };
            let texts: Vec<_> =
                parts.iter().map(|part| String::from_utf8_lossy(part.bytes().unwrap_or_default())).collect();
            match &texts[..] {
                [kind, channel, message] if kind == "message" && channel == "end" => break assert!(message.is_empty()),
                [kind, _, channel, message] if kind == "pmessage" => told.push(format!("{channel} {message}")),
                _ => panic!("not a message: {texts:?}"),
            }
        }
        (reply, told)
    }
}

/// Calls whose effect the two servers choose freely, or that are not about keys.
fn is_left_out(args: &Args) -> bool {
    const NAMES: [&str; 30] = [
        "AUTH",
        "BLMOVE",
        "BLMPOP",
        "BLPOP",
        "BRPOP",
        "BRPOPLPUSH",
        "BZMPOP",
        "BZPOPMAX",
        "BZPOPMIN",
        "CLIENT",
        "CONFIG",
        "DEBUG",
        "DISCARD",
        "EXEC",
        "HELLO",
        "INFO",
        "MULTI",
        "PSUBSCRIBE",
        "PUBLISH",
        "QUIT",
        "RANDOMKEY",
        "RESET",
        "SCAN",
        "SELECT",
        "SPUBLISH",
        "SSUBSCRIBE",
        "SUBSCRIBE",
        "WAIT",
        "WAITAOF",
        "WATCH",
    ];
    let name = String::from_utf8_lossy(&args[0]).to_ascii_uppercase();
    NAMES.contains(&&*name) || args.iter().any(|arg| arg.eq_ignore_ascii_case(b"block"))
}

fn compare(paths: Vec<PathBuf>, least: usize) {
    if REDIS_SERVER_8.is_missing() {
        return;
    }
    let (mut ours, mut theirs) = (Watched::start(Program::Tidegate), Watched::start(Program::Redis8));
    let (mut differences, mut told_of) = (Vec::new(), 0);
    for path in paths {
        for server in [&mut ours, &mut theirs] {
            server.call(&vec![b"FLUSHALL".to_vec()]);
        }
        for (number, step) in read_corpus(&path) {
            let Action::Run { args, wait: true, .. } = step.action else { continue };
            if step.connection != "a" || step.only.is_some() || is_left_out(&args) {
                continue;
            }
            let ((_, our_events), (reply, their_events)) = (ours.call(&args), theirs.call(&args));
            let is_unknown = matches!(&reply, Value::Error(text) if text.starts_with(b"ERR unknown"));
            told_of += usize::from(!their_events.is_empty());
            if our_events != their_events && !is_unknown {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let call = show(&args);
                differences
                    .push(format!("{name}:{number}: {call}\n  ours   {our_events:?}\n  theirs {their_events:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{} calls differ:\n{}", differences.len(), differences.join("\n"));
    assert!(told_of >= least, "only {told_of} calls sent any event");
}

#[test]
fn every_call_sends_the_messages_of_redis() {
    compare(vec![suite_folder().join("differential/events.txt")], 220);
}

#[test]
fn the_corpus_sends_the_messages_of_redis() {
    compare(corpus_files(), 600);
}
