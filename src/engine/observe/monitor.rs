//! MONITOR: the sessions that are shown all calls, and the lines that show them.
//!
//! A line holds the time, the database, the caller, and the arguments in a form that a program could read back:
//! `+1700000000.123456 [0 127.0.0.1:6000] "set" "key" "value"`. The caller of a script's commands is the script: `[0
//! lua]`.

use std::io::Write;

use crate::engine::limits::HELD_LINES_MAX_BYTES;
use crate::keyspace::DbIndex;
use crate::spec::session_key::SessionKey;

/// The sessions that see all calls, and the lines held back until the current unit is over.
#[derive(Default)]
pub(in crate::engine) struct Monitors {
    /// In the order in which they came.
    sessions: Vec<SessionKey>,
    held: Held,
}

/// Lines that are held back.
#[derive(Debug, Default)]
pub(in crate::engine) struct Held {
    pub(in crate::engine) lines: Vec<u8>,
    /// There were more lines than may be held: all of them were dropped.
    pub(in crate::engine) are_too_many: bool,
}

impl Monitors {
    /// Whether there are no monitors.
    #[inline]
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// The monitors.
    pub(in crate::engine) fn sessions(&self) -> &[SessionKey] {
        &self.sessions
    }

    /// Adds a session that is not a monitor yet.
    pub(in crate::engine) fn add(&mut self, session: SessionKey) {
        self.sessions.push(session);
    }

    /// Removes a monitor.
    pub(in crate::engine) fn remove(&mut self, session: SessionKey) {
        self.sessions.retain(|known| *known != session);
        if self.sessions.is_empty() {
            *self = Monitors::default();
        }
    }

    /// Holds a line back.
    pub(in crate::engine) fn hold(&mut self, line: &[u8]) {
        self.held.are_too_many |= self.held.lines.len() + line.len() > HELD_LINES_MAX_BYTES;
        if self.held.are_too_many {
            self.held.lines = Vec::new();
        } else {
            self.held.lines.extend_from_slice(line);
        }
    }

    /// Whether nothing is held back.
    pub(in crate::engine) fn holds_nothing(&self) -> bool {
        self.held.lines.is_empty() && !self.held.are_too_many
    }

    /// Takes the lines that were held back.
    pub(in crate::engine) fn take_held(&mut self) -> Held {
        std::mem::take(&mut self.held)
    }
}

/// The caller of a command.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Caller<'a> {
    /// The client with this address.
    Client(&'a str),
    /// A script.
    Script,
}

/// Writes the line of one call, which ended at `at_us`, Unix us.
pub(in crate::engine) fn line<'a>(
    at_us: i64,
    db: DbIndex,
    caller: Caller<'_>,
    args: impl Iterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut line = Vec::new();
    // Writing to memory does not fail.
    let _ = write!(line, "+{}.{:06} [{db} ", at_us.div_euclid(1_000_000), at_us.rem_euclid(1_000_000));
    let _ = match caller {
        Caller::Script => write!(line, "lua]"),
        Caller::Client(address) => match address.strip_suffix(":0") {
            Some(path) => write!(line, "unix:{path}]"),
            None => write!(line, "{address}]"),
        },
    };
    for arg in args {
        line.push(b' ');
        quote(&mut line, arg);
    }
    line.extend_from_slice(b"\r\n");
    line
}

/// Appends bytes in quotation marks, escaped so that they stay on one line.
fn quote(line: &mut Vec<u8>, bytes: &[u8]) {
    line.push(b'"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' => line.extend_from_slice(&[b'\\', byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            0x07 => line.extend_from_slice(b"\\a"),
            0x08 => line.extend_from_slice(b"\\b"),
            b' '..=b'~' => line.push(byte),
            _ => {
                let _ = write!(line, "\\x{byte:02x}");
            }
        }
    }
    line.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_can_be_read_back_for_any_call() {
        let args: [&[u8]; 4] = [b"set", b"a \"key\"\\", b"\r\n\t\x07\x08\x00\x7f\xff~", b""];
        let shown =
            |caller| String::from_utf8(line(1_700_000_000_000_042, 3, caller, args.into_iter())).expect("ASCII");
        let quoted = r#""set" "a \"key\"\\" "\r\n\t\a\b\x00\x7f\xff~" """#;
        assert_eq!(shown(Caller::Client("1.2.3.4:5")), format!("+1700000000.000042 [3 1.2.3.4:5] {quoted}\r\n"));
        assert_eq!(
            shown(Caller::Client("/run/x.sock:0")),
            format!("+1700000000.000042 [3 unix:/run/x.sock] {quoted}\r\n")
        );
        assert_eq!(shown(Caller::Script), format!("+1700000000.000042 [3 lua] {quoted}\r\n"));
    }

    #[test]
    fn lines_held_back_are_bounded() {
        let mut monitors = Monitors::default();
        let line = vec![b'x'; HELD_LINES_MAX_BYTES / 2];
        (0..2).for_each(|_| monitors.hold(&line));
        assert!(!monitors.holds_nothing());
        monitors.hold(b"x");
        monitors.hold(b"x");
        let held = monitors.take_held();
        assert!(held.are_too_many && held.lines.is_empty() && monitors.holds_nothing());
        monitors.hold(b"x");
        assert_eq!(monitors.take_held().lines, b"x", "the next unit begins anew");
    }
}
