//! The text of a log line after time and level: the message, then `name=value` for each field.
//!
//! Much of it comes from clients. So control characters are escaped, lest a client write a line of its own or drive a
//! terminal. A text that is too long is cut while it is written, lest the buffer, which is kept, grow with it.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

use crate::base::limits::LOG_LINE_MAX_BYTES;

/// The target of lines from scripts. They are meant to be read, so more of them are allowed.
pub const BY_SCRIPTS: &str = "script";

/// The target of lines that tell who tried or did something that somebody may have to account for.
pub const AUDIT: &str = "audit";

/// Writes the fields of a line.
pub(super) struct Fields;

impl<'w> FormatFields<'w> for Fields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let is_ansi = writer.has_ansi_escapes();
        write(&mut writer, is_ansi, LOG_LINE_MAX_BYTES, |visit| fields.record(visit))
    }
}

/// Returns the beginning of a line's text.
pub(super) fn beginning(event: &tracing::Event<'_>, max_bytes: usize) -> String {
    let mut text = String::new();
    // Writing to a string can't fail.
    let _ = write(&mut text, false, max_bytes, |visit| event.record(visit));
    text
}

/// Writes the fields that `record` passes, up to `max_bytes`.
fn write(out: &mut dyn Write, is_ansi: bool, max_bytes: usize, record: impl FnOnce(&mut dyn Visit)) -> fmt::Result {
    let mut text = Text { out, is_ansi, is_begun: false, room: Room::of(max_bytes), result: Ok(()) };
    record(&mut text);
    let Text { out, room: Room { cut_bytes, .. }, result, .. } = text;
    result?;
    if cut_bytes > 0 { write!(out, "... ({cut_bytes} more bytes)") } else { Ok(()) }
}

/// The length that a line's text may still have.
pub(super) struct Room {
    left_bytes: usize,
    /// Bytes that did not fit.
    pub(super) cut_bytes: usize,
}

impl Room {
    pub(super) fn of(max_bytes: usize) -> Room {
        Room { left_bytes: max_bytes, cut_bytes: 0 }
    }

    /// Returns the part of a text that fits.
    pub(super) fn cut<'t>(&mut self, text: &'t str) -> &'t str {
        let shown = &text[..text.floor_char_boundary(self.left_bytes)];
        self.cut_bytes += text.len() - shown.len();
        self.left_bytes -= shown.len();
        if shown.len() < text.len() {
            // Otherwise a later, shorter text could still fit behind the cut.
            self.left_bytes = 0;
        }
        shown
    }
}

struct Text<'w> {
    out: &'w mut dyn Write,
    is_ansi: bool,
    is_begun: bool,
    room: Room,
    result: fmt::Result,
}

impl Text<'_> {
    fn field(&mut self, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
        if std::mem::replace(&mut self.is_begun, true) {
            self.out.write_char(' ')?;
        }
        match (field.name(), self.is_ansi) {
            ("message", _) => {}
            // The name is in italics, and the sign is dimmed.
            (name, true) => write!(self.out, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?,
            (name, false) => write!(self.out, "{name}=")?,
        }
        write!(self, "{value:?}")
    }
}

impl Visit for Text<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.record_debug(field, &format_args!("{value}")),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if self.result.is_ok() {
            self.result = self.field(field, value);
        }
    }
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in self.room.cut(text).split_inclusive(char::is_control) {
            let plain = piece.trim_end_matches(char::is_control);
            self.out.write_str(plain)?;
            write!(self.out, "{}", piece[plain.len()..].escape_default())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(max_bytes: usize, parts: &[&str]) -> String {
        let mut out = String::new();
        let mut text =
            Text { out: &mut out, is_ansi: false, is_begun: false, room: Room::of(max_bytes), result: Ok(()) };
        parts.iter().for_each(|part| text.write_str(part).expect("a string takes all"));
        let cut_bytes = text.room.cut_bytes;
        format!("{out}|{cut_bytes}")
    }

    #[test]
    fn control_characters_are_escaped_and_length_is_bounded() {
        assert_eq!(written(100, &["a\r\nb\u{1b}[31m\u{9b}", "", "\0ä\n"]), "a\\r\\nb\\u{1b}[31m\\u{9b}\\u{0}ä\\n|0");
        assert_eq!(written(4, &["abcd"]), "abcd|0");
        assert_eq!(written(4, &["abc", "de", "f"]), "abcd|2");
        assert_eq!(written(4, &["abcä", "d"]), "abc|3");
        assert_eq!(written(0, &["a"]), "|1");
    }
}
