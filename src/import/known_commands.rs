//! Which commands of a file or stream an import runs: those that change data.
//!
//! A file is data, and whoever wrote it is not to command the server: ACL SETUSER, CONFIG SET, CLIENT PAUSE or SHUTDOWN in it do nothing.
//! What changes data the target says itself, by the flags in its answer to COMMAND.

use std::collections::HashMap;

use redis_protocol::resp2::types::BytesFrame;

use super::commands::Judgement;
use crate::base::excerpt;
use crate::resp::request::Argv;

/// Those that Redis writes to its files and streams although they are not flagged as writes: they make others write, tell
/// subscribers, or bring what later ones call.
const RUN_AS_WELL: [&[u8]; 7] = [b"eval", b"evalsha", b"fcall", b"publish", b"spublish", b"pfcount", b"script|load"];

/// Flagged as a write, and talks to another server.
const MIGRATE: &[u8] = b"migrate";

/// The commands that a target has.
#[derive(Default)]
pub(super) struct KnownCommands(HashMap<Vec<u8>, Kind>);

#[derive(Clone, Copy)]
enum Kind {
    /// Whether it runs.
    Command(bool),
    /// Its first argument names one of several, whose names begin with its own and `|`.
    Container,
}

impl KnownCommands {
    /// Those of an answer to COMMAND; `None` if it is none.
    pub(super) fn of(table: BytesFrame) -> Option<KnownCommands> {
        let BytesFrame::Array(entries) = table else { return None };
        let mut known = KnownCommands::default();
        entries.into_iter().try_for_each(|entry| known.add(entry))?;
        Some(known)
    }

    fn add(&mut self, entry: BytesFrame) -> Option<()> {
        const FLAGS: usize = 2;
        const SUBCOMMANDS: usize = 9;
        let BytesFrame::Array(mut fields) = entry else { return None };
        let name = text(fields.first()?)?.to_ascii_lowercase();
        let BytesFrame::Array(flags) = fields.get(FLAGS)? else { return None };
        let is_write = flags.iter().any(|flag| text(flag) == Some(b"write"));
        let subcommands = match fields.get_mut(SUBCOMMANDS) {
            Some(BytesFrame::Array(subcommands)) => std::mem::take(subcommands),
            _ => Vec::new(),
        };
        let runs = is_write && name != MIGRATE || RUN_AS_WELL.contains(&&*name);
        let kind = if subcommands.is_empty() { Kind::Command(runs) } else { Kind::Container };
        self.0.insert(name, kind);
        subcommands.into_iter().try_for_each(|entry| self.add(entry))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decides whether a command is run.
    pub(super) fn judge(&self, argv: Argv<'_>) -> Judgement {
        let mut name = argv[0].to_ascii_lowercase();
        let mut shown = argv[0].to_vec();
        let mut kind = self.0.get(&name);
        if let (Some(Kind::Container), Some(subcommand)) = (kind, argv.get(1)) {
            name.push(b'|');
            name.extend(subcommand.to_ascii_lowercase());
            shown.push(b' ');
            shown.extend_from_slice(subcommand);
            kind = self.0.get(&name);
        }
        match kind {
            Some(Kind::Command(true)) => Judgement::Runs,
            Some(Kind::Command(false) | Kind::Container) => {
                Judgement::Idle(excerpt::of_bytes(&shown.to_ascii_uppercase()))
            }
            // As it is written there, so that it can be found.
            None => Judgement::Unknown(excerpt::of_bytes(&shown)),
        }
    }
}

fn text(frame: &BytesFrame) -> Option<&[u8]> {
    match frame {
        BytesFrame::BulkString(text) | BytesFrame::SimpleString(text) => Some(text),
        _ => None,
    }
}
