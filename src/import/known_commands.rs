//! Selects the commands of a file or stream that an import runs: those that change data.
//!
//! A file is data, and its author must not control the server: ACL SETUSER, CONFIG SET, CLIENT PAUSE or SHUTDOWN in it
//! have no effect. The target itself identifies the commands that change data, by the flags in its reply to COMMAND.

use std::collections::HashMap;

use redis_protocol::resp2::types::BytesFrame;

use super::commands::Judgement;
use crate::base::excerpt;
use crate::resp::request::Argv;

/// Commands that Redis writes to its files and streams although they are not flagged as writes. They run other
/// commands, notify subscribers, or load code for later calls.
const RUN_AS_WELL: [&[u8]; 7] = [b"eval", b"evalsha", b"fcall", b"publish", b"spublish", b"pfcount", b"script|load"];

/// Flagged as a write, but talks to another server.
const MIGRATE: &[u8] = b"migrate";

/// The commands that a target supports.
#[derive(Default)]
pub(super) struct KnownCommands(HashMap<Vec<u8>, Kind>);

#[derive(Clone, Copy)]
enum Kind {
    /// A command, and whether the import runs it.
    Command(bool),
    /// A container whose first argument selects a subcommand; subcommand names begin with the container's name and `|`.
    Container,
}

impl KnownCommands {
    /// Parses a reply to COMMAND; `None` if it is malformed.
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
            // Spelled as in the source, so that users can find it.
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
