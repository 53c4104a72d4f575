//! The form of a whole line: text for people, or a JSON object for programs that collect logs.
//!
//! ```text
//! 2026-11-30T09:29:10.123456Z  INFO audit: sign-in refused client=7 user="ann"
//! {"time":"2026-11-30T09:29:10.123456Z","level":"INFO","target":"audit","message":"sign-in refused",
//!  "client":7,"user":"ann"}    (in one line)
//! ```
//!
//! The JSON form of `tracing-subscriber` is not used: it has no bound for the length of a line, leaves control
//! characters beyond ASCII as they are, and names the module of each line or of none.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Format as Text, Full, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::line::{AUDIT, BY_SCRIPTS, Room};
use crate::base::limits::LOG_LINE_MAX_BYTES;

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Text for people.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// Writes lines in one form, with times from `T`.
pub(super) enum Form<T> {
    /// Text. The audit's lines have its name in front of the message.
    Text { usual: Box<Text<Full, T>>, audit: Box<Text<Full, T>> },
    /// JSON, with time and level or without.
    Json { is_dated: bool },
}

impl Form<SystemTime> {
    /// Lines with time and level.
    pub(super) fn dated(format: Format) -> Form<SystemTime> {
        Form::new(format, Text::default(), true)
    }
}

impl Form<()> {
    /// Lines without time and level, for a log that adds both.
    pub(super) fn undated(format: Format) -> Form<()> {
        Form::new(format, Text::default().without_time().with_level(false), false)
    }
}

impl<T: Clone> Form<T> {
    fn new(format: Format, text: Text<Full, T>, is_dated: bool) -> Form<T> {
        match format {
            Format::Text => {
                Form::Text { usual: Box::new(text.clone().with_target(false)), audit: Box::new(text.with_target(true)) }
            }
            Format::Json => Form::Json { is_dated },
        }
    }
}

impl<S, N, T> FormatEvent<S, N> for Form<T>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    T: FormatTime,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        match self {
            Form::Text { audit, .. } if event.metadata().target() == AUDIT => {
                audit.format_event(context, writer, event)
            }
            Form::Text { usual, .. } => usual.format_event(context, writer, event),
            Form::Json { is_dated } => {
                writer.write_char('{')?;
                if *is_dated {
                    writer.write_str("\"time\":\"")?;
                    SystemTime.format_time(&mut writer)?;
                    write!(writer, "\",\"level\":\"{}\",", event.metadata().level())?;
                }
                if let target @ (AUDIT | BY_SCRIPTS) = event.metadata().target() {
                    write!(writer, "\"target\":\"{target}\",")?;
                }
                members(&mut writer, LOG_LINE_MAX_BYTES, |visit| event.record(visit))?;
                writer.write_str("}\n")
            }
        }
    }
}

/// Writes a member of an object for each field that `record` passes, with texts of up to `max_bytes`. If that is not
/// enough, the member `cut_bytes` tells what is missing.
fn members(out: &mut dyn Write, max_bytes: usize, record: impl FnOnce(&mut dyn Visit)) -> fmt::Result {
    let mut members = Members { out, is_begun: false, room: Room::of(max_bytes), result: Ok(()) };
    record(&mut members);
    let cut_bytes = members.room.cut_bytes;
    if cut_bytes > 0 {
        members.member("cut_bytes", |members| write!(members.out, "{cut_bytes}"));
    }
    members.result
}

struct Members<'w> {
    out: &'w mut dyn Write,
    is_begun: bool,
    room: Room,
    result: fmt::Result,
}

impl Members<'_> {
    fn member(&mut self, name: &str, value: impl FnOnce(&mut Self) -> fmt::Result) {
        debug_assert!(!["time", "level", "target"].contains(&name), "a line has its {name} already");
        let comma = if std::mem::replace(&mut self.is_begun, true) { "," } else { "" };
        if self.result.is_ok() {
            self.result = write!(self.out, "{comma}\"{name}\":").and_then(|()| value(self));
        }
    }
}

impl Visit for Members<'_> {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.member(field.name(), |members| write!(members.out, "{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.member(field.name(), |members| write!(members.out, "{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.member(field.name(), |members| write!(members.out, "{value}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.member(field.name(), |members| {
            members.out.write_char('"')?;
            write!(members, "{value:?}")?;
            members.out.write_char('"')
        });
    }
}

/// The inside of a string of JSON.
impl Write for Members<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let needs_escape = |at: char| at.is_control() || at == '"' || at == '\\';
        for piece in self.room.cut(text).split_inclusive(needs_escape) {
            let plain = piece.trim_end_matches(needs_escape);
            self.out.write_str(plain)?;
            match piece[plain.len()..].chars().next() {
                None => {}
                Some(quoted @ ('"' | '\\')) => write!(self.out, "\\{quoted}")?,
                Some('\n') => self.out.write_str("\\n")?,
                // All control characters lie below U+00A0.
                Some(control) => write!(self.out, "\\u{:04x}", u32::from(control))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::super::line::Fields;
    use super::*;

    fn written(max_bytes: usize, parts: &[&str]) -> String {
        let mut out = String::new();
        let mut members = Members { out: &mut out, is_begun: false, room: Room::of(max_bytes), result: Ok(()) };
        parts.iter().for_each(|part| members.write_str(part).expect("a string takes all"));
        out
    }

    #[test]
    fn a_text_is_the_inside_of_a_string_of_json() {
        assert_eq!(
            written(100, &["a\r\n\"b\\\"", "\u{1b}[31m\u{9b}\0ä"]),
            r#"a\u000d\n\"b\\\"\u001b[31m\u009b\u0000ä"#
        );
        assert_eq!(written(3, &["ab\"", "cd"]), r#"ab\""#);
        let text: String = (0..=0x2ff).filter_map(char::from_u32).collect();
        let read: String = serde_json::from_str(&format!("\"{}\"", written(10_000, &[&text]))).expect("JSON");
        assert_eq!(read, text);
    }

    /// A place for lines, which tests read.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no test panics with it").write(line)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged<T: FormatTime + Send + Sync + 'static>(form: Form<T>, report: impl FnOnce()) -> String {
        let lines = Lines::default();
        let (writer, layer) = (lines.clone(), fmt::layer().event_format(form).fmt_fields(Fields).with_ansi(false));
        let layer = layer.with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), report);
        let bytes = lines.0.lock().expect("no test panics with it").clone();
        String::from_utf8(bytes).expect("text")
    }

    fn report_all() {
        let error = io::Error::other("\"no\"");
        tracing::warn!(client = 7, is_late = true, below = -1, address = "::1", %error, "closed: {}", "why\n");
        tracing::info!(target: AUDIT, user = "ann", "sign-in refused");
        tracing::info!(target: BY_SCRIPTS, "said");
    }

    #[test]
    fn a_log_that_adds_time_and_level_gets_the_rest() {
        assert_eq!(
            logged(Form::undated(Format::Text), report_all),
            "closed: why\\n client=7 is_late=true below=-1 address=\"::1\" error=\"no\"\n\
             audit: sign-in refused user=\"ann\"\nsaid\n"
        );
        assert_eq!(
            logged(Form::undated(Format::Json), report_all),
            r#"{"message":"closed: why\n","client":7,"is_late":true,"below":-1,"address":"::1","error":"\"no\""}
{"target":"audit","message":"sign-in refused","user":"ann"}
{"target":"script","message":"said"}
"#
        );
    }

    #[test]
    fn a_long_line_says_how_much_is_missing() {
        let line = logged(Form::dated(Format::Json), || {
            tracing::warn!(text = "x".repeat(LOG_LINE_MAX_BYTES), number = 7, later = "y", "long");
        });
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["text"].as_str().map(str::len), Some(LOG_LINE_MAX_BYTES - "long".len()));
        assert_eq!((&line["number"], &line["later"], &line["cut_bytes"]), (&7.into(), &"".into(), &5.into()));
        let time = line["time"].as_str().expect("a text");
        assert_eq!(time.replace(|at: char| at.is_ascii_digit(), "9"), "9999-99-99T99:99:99.999999Z");
    }
}
