//! From files and flags to a [`Config`].
//!
//! `tidegate [FILE|-] [--name value...]`: first the file, in the syntax of redis.conf, or standard input for `-`; then the
//! flags, which win. A line is a name and its arguments, split at blanks; "double quotes" know \n \r \t \a \b \xHH and
//! `\` before any other byte, 'single quotes' only \'. A `#` at the start makes a comment; `include PATH` reads another
//! file in place. Every line that is wrong is reported, not only the first.

use super::kind::{Origin, Shape, system_text};
use super::{Config, PARAMETERS, Parameter, Refusal, text};
use crate::base::limits::INCLUDE_MAX_DEPTH;
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Why the configuration could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file can't be read.
    #[error("can't open config file '{path}': {reason}")]
    Open {
        /// The file.
        path: String,
        /// The system's reason.
        reason: String,
    },
    /// Lines or flags that are wrong.
    #[error("{}", lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n"))]
    Lines {
        /// At least one.
        lines: Vec<LineError>,
    },
}

/// A line or flag that is wrong.
#[derive(Debug, thiserror::Error)]
#[error("*** FATAL CONFIG FILE ERROR (Tidegate {}) ***\n{place}\n>>> '{line}'\n{fault}", env!("CARGO_PKG_VERSION"))]
pub struct LineError {
    /// Where it stands, as a sentence.
    pub place: String,
    /// The line as written.
    pub line: String,
    /// What is wrong.
    pub fault: LineFault,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// No parameter has this name.
    #[error(
        "Bad directive or wrong number of arguments\nTidegate has no parameter of this name; `tidegate --help` lists all."
    )]
    Unknown,
    /// The parameter does not take this.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A quote that is not closed, or closed within a word.
    #[error("Unbalanced quotes in configuration line")]
    Quotes,
    /// Includes that never end.
    #[error("too many includes within includes (is it a circle?)")]
    Depth,
}

/// The command line: every parameter as a flag, and the file. The caller may add subcommands.
pub fn command() -> clap::Command {
    let file = Arg::new(FILE)
        .value_name("FILE")
        .value_parser(value_parser!(OsString))
        .help("Configuration file in the syntax of redis.conf; - reads it from standard input. Flags win over it.");
    clap::Command::new("tidegate")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A coordination server that speaks the Redis protocol")
        .args_conflicts_with_subcommands(true)
        .arg(file)
        .args(PARAMETERS.iter().map(flag))
}

const FILE: &str = "FILE";

fn flag(parameter: &'static Parameter) -> Arg {
    let mut help = parameter.doc.trim().to_owned();
    if let Some(until) = parameter.until {
        help.push(' ');
        help.push_str(until);
    }
    if !parameter.default.is_empty() {
        help.push_str(&format!(" [default: {}]", parameter.default));
    }
    let arg = Arg::new(parameter.name)
        .long(parameter.name)
        .aliases(parameter.alias)
        .help(help)
        .help_heading(parameter.section)
        .action(ArgAction::Append)
        .value_parser(value_parser!(OsString));
    match (parameter.shape)() {
        Shape::One(name) => arg.value_name(name).allow_hyphen_values(true),
        Shape::Word(words) => {
            let words = words().join("|");
            // Where flags leave little room beside them clap puts their help below, but not where one leaves none.
            let is_long = parameter.name.len() + words.len() > LONG_FLAG;
            arg.value_name(words).next_line_help(is_long)
        }
        Shape::Many(name) => arg.value_name(name).num_args(1..),
    }
}

/// Characters of a flag's name and words beside which there is no room for its help.
const LONG_FLAG: usize = 50;

impl Config {
    /// The configuration that a command line (of [`command`]) asks for.
    pub fn from_matches(matches: &ArgMatches) -> Result<Config, LoadError> {
        let mut loader = Loader { config: Config::default(), faults: Vec::new() };
        if let Some(file) = matches.get_one::<OsString>(FILE) {
            if file == "-" {
                loader.standard_input()?;
            } else {
                loader.file(Path::new(file), 0)?;
            }
        }
        for parameter in PARAMETERS {
            for values in matches.get_occurrences::<OsString>(parameter.name).into_iter().flatten() {
                let args: Vec<&[u8]> = values.map(|value| value.as_bytes()).collect();
                loader.flag(parameter, &args);
            }
        }
        loader.finish()
    }

    /// The configuration that a text in the syntax of redis.conf asks for; `place` names it in errors.
    pub fn from_text(content: &[u8], place: &str) -> Result<Config, LoadError> {
        let mut loader = Loader { config: Config::default(), faults: Vec::new() };
        loader.content(content, place, 0)?;
        loader.finish()
    }
}

struct Loader {
    config: Config,
    faults: Vec<LineError>,
}

impl Loader {
    fn finish(self) -> Result<Config, LoadError> {
        if self.faults.is_empty() { Ok(self.config) } else { Err(LoadError::Lines { lines: self.faults }) }
    }

    fn standard_input(&mut self) -> Result<(), LoadError> {
        let mut content = Vec::new();
        std::io::stdin()
            .read_to_end(&mut content)
            .map_err(|error| LoadError::Open { path: "-".into(), reason: system_text(&error) })?;
        self.content(&content, "standard input", 0)
    }

    fn file(&mut self, path: &Path, depth: usize) -> Result<(), LoadError> {
        let content = std::fs::read(path)
            .map_err(|error| LoadError::Open { path: path.display().to_string(), reason: system_text(&error) })?;
        self.content(&content, &path.display().to_string(), depth)
    }

    fn content(&mut self, content: &[u8], name: &str, depth: usize) -> Result<(), LoadError> {
        for (at, line) in content.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            if let Some(fault) = self.line(line, depth)? {
                let place = format!("Reading the configuration file {name}, at line {}", at + 1);
                self.faults.push(LineError { place, line: text(line), fault });
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8], depth: usize) -> Result<Option<LineFault>, LoadError> {
        let Some(words) = split_line(line) else { return Ok(Some(LineFault::Quotes)) };
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let Some((name, args)) = words.split_first() else { return Ok(None) };
        if name.eq_ignore_ascii_case(b"include") && args.len() == 1 {
            if depth >= INCLUDE_MAX_DEPTH {
                return Ok(Some(LineFault::Depth));
            }
            self.file(Path::new(OsStr::from_bytes(args[0])), depth + 1)?;
            return Ok(None);
        }
        Ok(match Parameter::named(name) {
            None => Some(LineFault::Unknown),
            Some(parameter) => (parameter.set)(&mut self.config, args, Origin::Load).err().map(LineFault::from),
        })
    }

    fn flag(&mut self, parameter: &Parameter, args: &[&[u8]]) {
        if let Err(refusal) = (parameter.set)(&mut self.config, args, Origin::Load) {
            let quoted: Vec<_> = args.iter().map(|arg| format!("\"{}\"", text(arg))).collect();
            self.faults.push(LineError {
                place: "Reading the command line".into(),
                line: format!("--{} {}", parameter.name, quoted.join(" ")),
                fault: refusal.into(),
            });
        }
    }
}

/// The words of a line, unquoted; `None` when a quote is not closed, or closed within a word.
fn split_line(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while let Some(&first) = rest.first() {
        let mut word = Vec::new();
        rest = match first {
            b'"' => unquote_double(&rest[1..], &mut word)?,
            b'\'' => unquote_single(&rest[1..], &mut word)?,
            _ => {
                let end = rest.iter().position(|byte| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\''));
                let (plain, rest) = rest.split_at(end.unwrap_or(rest.len()));
                word.extend_from_slice(plain);
                // A quote within a word opens a quoted part of the same word, which must end it.
                match rest.first() {
                    Some(b'"') => unquote_double(&rest[1..], &mut word)?,
                    Some(b'\'') => unquote_single(&rest[1..], &mut word)?,
                    _ => rest,
                }
            }
        };
        if rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return None;
        }
        words.push(word);
        rest = rest.trim_ascii_start();
    }
    Some(words)
}

/// Reads up to the closing quote into `word`; returns what follows it.
fn unquote_double<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    let hex = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    loop {
        rest = match rest {
            [b'"', after @ ..] => return Some(after),
            [b'\\', b'x', high, low, after @ ..] if hex(*high).is_some() && hex(*low).is_some() => {
                word.push(hex(*high)? << 4 | hex(*low)?);
                after
            }
            [b'\\', escaped, after @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    &other => other,
                });
                after
            }
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
            [] => return None,
        };
    }
}

/// Like [`unquote_double`], for single quotes.
fn unquote_single<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'\'', after @ ..] => return Some(after),
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                after
            }
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
            [] => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_args(args: &[&str]) -> Result<Config, LoadError> {
        let matches = command().try_get_matches_from(args).expect("the flags are known");
        Config::from_matches(&matches)
    }

    fn message(result: Result<Config, LoadError>) -> String {
        result.expect_err("it is wrong").to_string()
    }

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn its_help_has_room_at_every_width() {
        for width in [80, 100, 120, 200] {
            let help = command().term_width(width).render_help().to_string();
            let indent = |line: &str| line.len() - line.trim_start().len();
            let narrow: Vec<&str> = help.lines().filter(|line| indent(line) > LONG_FLAG + 10).collect();
            assert!(help.lines().count() > 100 && narrow.is_empty(), "{width} columns: {narrow:#?}");
        }
    }

    #[test]
    fn flags_as_redis_takes_them() {
        let config = from_args(&[
            "tidegate",
            "--port",
            "7000",
            "--requirepass",
            "-secret",
            "--save",
            "60",
            "1",
            "--save",
            "300 10",
            "--appendonly",
            "yes",
            "--bind",
            "127.0.0.1 -::1",
            "--hash-max-ziplist-value",
            "1kb",
            "--slowlog-log-slower-than",
            "-1",
            "--logfile",
            "",
        ])
        .expect("all is right");
        assert_eq!((config.port, config.requirepass.as_slice()), (7000, &b"-secret"[..]));
        assert_eq!(config.save.len(), 2);
        assert_eq!(config.bind, ["127.0.0.1", "-::1"]);
        assert_eq!((config.hash_max_listpack_value, config.slowlog_log_slower_than_us), (1024, -1));
        assert!(from_args(&["tidegate", "--save", ""]).is_ok_and(|config| config.save.is_empty()));
        let wrong = message(from_args(&["tidegate", "--port", "70000"]));
        assert!(wrong.ends_with(">>> '--port \"70000\"'\nargument must be between 0 and 65535 inclusive"), "{wrong}");
    }

    #[test]
    fn flags_win_over_the_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("a.conf");
        let other = directory.path().join("b.conf");
        std::fs::write(&file, format!("port 1\nhz 20\ninclude {}\n", other.display())).expect("written");
        std::fs::write(&other, "timeout 5\n").expect("written");
        let path = file.to_str().expect("a temporary path is text");
        let config = from_args(&["tidegate", path, "--port", "2"]).expect("all is right");
        assert_eq!((config.port, config.hz, config.timeout_s), (2, 20, 5));

        std::fs::write(&other, format!("include {path}\n")).expect("written");
        assert!(message(from_args(&["tidegate", path])).contains("is it a circle?"));
        std::fs::write(&file, "include /nonexistent/file\n").expect("written");
        let wrong = message(from_args(&["tidegate", path]));
        assert_eq!(wrong, "can't open config file '/nonexistent/file': No such file or directory");
    }

    #[test]
    fn the_file_as_redis_reads_it() {
        let content =
            b"# comment\r\n\n  PORT 7000\t\r\nrequirepass \"a\\x41\\n\\\"b\"\nsave 60 1\nsave 70 2\nlogfile ''\n";
        let config = Config::from_text(content, "test").expect("all is right");
        assert_eq!((config.port, config.requirepass.as_slice()), (7000, &b"aA\n\"b"[..]));
        assert_eq!(config.save.len(), 2);
    }

    #[test]
    fn every_wrong_line_is_told() {
        let wrong = message(Config::from_text(b"port abc\nhz 1\nbogus 1\nrequirepass \"x\nport 1 2\n", "x.conf"));
        for part in [
            "at line 1\n>>> 'port abc'\nargument couldn't be parsed into an integer",
            "at line 3\n>>> 'bogus 1'\nBad directive or wrong number of arguments\n",
            "at line 4\n>>> 'requirepass \"x'\nUnbalanced quotes in configuration line",
            "x.conf, at line 5\n>>> 'port 1 2'\nwrong number of arguments",
        ] {
            assert!(wrong.contains(part), "{part:?} is not in {wrong}");
        }
    }

    #[test]
    fn words_and_quotes() {
        let split = |line: &str| {
            split_line(line.as_bytes()).map(|words| words.iter().map(|word| text(word)).collect::<Vec<_>>())
        };
        assert_eq!(split("a  b\t'c d' \"\""), Some(vec!["a".into(), "b".into(), "c d".into(), String::new()]));
        assert_eq!(split(r"'it\'s \x41'"), Some(vec![r"it's \x41".into()]));
        assert_eq!(split(r#""\q\xzz""#), Some(vec!["qxzz".into()]));
        for line in ["\"a\"b", "'a", "\"a", "'a'\"b\"", "\"a\\"] {
            assert_eq!(split(line), None, "{line}");
        }
    }
}
