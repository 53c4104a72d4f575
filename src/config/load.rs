//! Makes a [`Config`] from files and the command line.
//!
//! The file comes first, in the syntax of redis.conf, or standard input; then the command line (`arguments.rs`), which
//! wins. A line is a name and its arguments, split at blanks. "Double quotes" know \n \r \t \a \b \xHH and `\` before
//! any other byte, 'single quotes' only \'. A `#` at the start makes a comment. `include PATH` reads another file in
//! place or, if the path is a pattern, all files that match, in the order of their names. A path is relative to `dir`
//! as of that line. Every wrong line is reported, not only the first.

use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::arguments::{Arguments, advice};
use super::inert::{FORGOTTEN, REFUSED};
use super::kind::Origin;
use super::names::text;
use super::paths::system_text;
use super::refusal::Refusal;
use super::table::{Config, Parameter};
use super::words::split_line;
use crate::base::glob;
use crate::config::limits::INCLUDE_MAX_DEPTH;

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
    /// The place of the line, as a sentence.
    pub place: String,
    /// The line as written.
    pub line: String,
    /// The fault of the line.
    pub fault: LineFault,
}

/// The fault of a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// No parameter has this name. The text suggests the name that was meant.
    #[error("Bad directive or wrong number of arguments\n{0}")]
    Unknown(String),
    /// The parameter refuses this value.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A quote is not closed, or closed within a word.
    #[error("Unbalanced quotes in configuration line")]
    Quotes,
    /// Includes are nested too deeply.
    #[error("includes are nested too deeply; do they form a circle?")]
    Depth,
}

impl Config {
    /// Loads the configuration that a command line asks for.
    pub fn from_arguments(arguments: &Arguments) -> Result<Config, LoadError> {
        let mut loader = Loader { config: Config::default(), faults: Vec::new() };
        if let Some(file) = &arguments.file {
            loader.config.source.file = Some(std::path::absolute(file).unwrap_or_else(|_| file.clone()));
            loader.file(file, 0)?;
        }
        if arguments.reads_standard_input {
            loader.standard_input()?;
        }
        for line in &arguments.lines {
            loader.flag(line)?;
        }
        loader.finish()
    }

    /// Loads a configuration from a text in the syntax of redis.conf; `place` names the text in errors.
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
                self.faults.push(LineError { place, line: shown(line), fault });
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8], depth: usize) -> Result<Option<LineFault>, LoadError> {
        let Some(words) = split_line(line) else { return Ok(Some(LineFault::Quotes)) };
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        self.words(&words, depth)
    }

    /// Applies a line of these words.
    fn words(&mut self, words: &[&[u8]], depth: usize) -> Result<Option<LineFault>, LoadError> {
        let Some((name, args)) = words.split_first() else { return Ok(None) };
        if let Some(parameter) = Parameter::named(name) {
            return Ok(self.parameter(parameter, args, depth).err().map(LineFault::from));
        }
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("include") && args.len() == 1 {
            return if depth < INCLUDE_MAX_DEPTH { self.include(args[0], depth) } else { Ok(Some(LineFault::Depth)) };
        }
        if is("rename-command")
            && let [old, new] = args
        {
            self.config.source.renamed.push((old.to_vec(), new.to_vec()));
            return Ok(None);
        }
        if let Some((name, _)) = FORGOTTEN.iter().find(|(known, _)| is(known) && args.len() == 1) {
            self.note_inert(name);
            return Ok(None);
        }
        Ok(Some(match REFUSED.iter().find(|(known, _)| is(known)) {
            Some((_, advice)) => Refusal::NotHere((*advice).to_owned()).into(),
            None => LineFault::Unknown(advice(&text(name))),
        }))
    }

    fn parameter(&mut self, parameter: &'static Parameter, args: &[&[u8]], depth: usize) -> Result<(), Refusal> {
        (parameter.set)(&mut self.config, args, Origin::Load)?;
        if parameter.inert.is_some() {
            self.note_inert(parameter.name);
        }
        if depth > 0 {
            self.config.source.included.insert(parameter.name);
        }
        Ok(())
    }

    fn note_inert(&mut self, name: &'static str) {
        let noted = &mut self.config.source.inert;
        if !noted.contains(&name) {
            noted.push(name);
        }
    }

    fn include(&mut self, path: &[u8], depth: usize) -> Result<Option<LineFault>, LoadError> {
        let path = self.config.dir.join(std::ffi::OsStr::from_bytes(path));
        for file in files_like(&path) {
            self.file(&file, depth + 1)?;
        }
        Ok(None)
    }

    fn flag(&mut self, line: &[Vec<u8>]) -> Result<(), LoadError> {
        let words: Vec<&[u8]> = line.iter().map(Vec::as_slice).collect();
        if let Some(fault) = self.words(&words, 0)? {
            let name = words.first().copied().unwrap_or_default().to_vec();
            let quoted = words.iter().skip(1).map(|arg| [b" \"", *arg, b"\""].concat());
            let line: Vec<u8> = std::iter::once(name).chain(quoted).flatten().collect();
            self.faults.push(LineError { place: "Reading the command line".into(), line: shown(&line), fault });
        }
        Ok(())
    }
}

/// Formats a line for errors, which end up in logs: without passwords.
fn shown(line: &[u8]) -> String {
    let is_end = |byte: &u8| byte.is_ascii_whitespace();
    let name = line.split(is_end).next().unwrap_or_default();
    let bare: Vec<u8> = name.iter().filter(|byte| !matches!(byte, b'"' | b'\'')).map(u8::to_ascii_lowercase).collect();
    let may_be_secret = match Parameter::named(&bare) {
        Some(parameter) => parameter.is_secret,
        // It is a parameter of another server, or misspelt.
        None => SECRET_MARKS.iter().any(|mark| memchr::memmem::find(&bare, mark).is_some()),
    };
    if may_be_secret && name.len() < line.len() { format!("{} (redacted)", text(name)) } else { text(line) }
}

/// Parts of unknown names whose values are treated as passwords.
const SECRET_MARKS: &[&[u8]] = &[b"pas", b"auth", b"secret"];

/// Returns the files that a path stands for: the path itself or, if parts of it are patterns, all matches in the order
/// of their names. As in a shell, a pattern matches a name that starts with a dot only if the pattern does so itself.
fn files_like(path: &Path) -> Vec<PathBuf> {
    let is_pattern = |part: &std::ffi::OsStr| part.as_bytes().iter().any(|byte| matches!(byte, b'*' | b'?' | b'['));
    let mut found = vec![PathBuf::new()];
    for part in path.iter() {
        if !is_pattern(part) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let matches = |name: &[u8]| {
            name.starts_with(b".") == part.as_bytes().starts_with(b".") && glob::matches(part.as_bytes(), name)
        };
        let within = |folder: &PathBuf| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let mut names: Vec<_> =
                entries.map(|entry| entry.file_name().into_vec()).filter(|name| matches(name)).collect();
            names.sort();
            names.into_iter().map(|name| folder.join(std::ffi::OsString::from_vec(name))).collect::<Vec<_>>()
        };
        found = found.iter().flat_map(within).filter(|path| path.exists()).collect();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_args(args: &[&str]) -> Result<Config, LoadError> {
        match Arguments::parse(args.iter().skip(1).map(std::ffi::OsString::from)) {
            super::super::arguments::Asked::Server(arguments) => Config::from_arguments(&arguments),
            other => panic!("{other:?}"),
        }
    }

    fn message(result: Result<Config, LoadError>) -> String {
        result.expect_err("it is wrong").to_string()
    }

    #[test]
    fn flags_are_read_as_by_redis() {
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
        assert!(wrong.ends_with(">>> 'port \"70000\"'\nargument must be between 0 and 65535 inclusive"), "{wrong}");
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
        assert!(message(from_args(&["tidegate", path])).contains("do they form a circle?"));
        std::fs::write(&file, "include /nonexistent/file\n").expect("written");
        let wrong = message(from_args(&["tidegate", path]));
        assert_eq!(wrong, "can't open config file '/nonexistent/file': No such file or directory");
    }

    #[test]
    fn includes_of_a_pattern_are_read_by_name() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let write = |name: &str, content: &str| std::fs::write(directory.path().join(name), content).expect("written");
        std::fs::create_dir(directory.path().join("pre.d")).expect("a folder");
        write("pre.d/20.conf", "hz 20\ntimeout 20\n");
        write("pre.d/10.conf", "hz 10\ntimeout 10\nrepl-timeout 7\n");
        write("pre.d/.hidden.conf", "hz 30\n");
        write("pre.d/other", "hz 40\n");
        let dir = directory.path().display();
        let read = |lines: &str| Config::from_text(lines.as_bytes(), "test");
        let config = read(&format!("include {dir}/pre.d/*.conf\ntimeout 5\n")).expect("all is right");
        assert_eq!((config.hz, config.timeout_s), (20, 5));
        assert_eq!(config.source.included.iter().copied().collect::<Vec<_>>(), ["hz", "repl-timeout", "timeout"]);
        assert_eq!(config.source.inert, ["repl-timeout"]);
        let config = read(&format!("dir {dir}\ninclude pre.?/1*.conf\n")).expect("a path is relative to dir");
        assert_eq!(config.timeout_s, 10);
        assert!(read("include /nonexistent/*.conf\n").is_ok(), "nothing matches, as in Redis");
        assert!(read(&format!("include {dir}/pre.d/*.d/x.conf\n")).is_ok());
    }

    #[test]
    fn the_file_is_read_as_by_redis() {
        let content =
            b"# comment\r\n\n  PORT 7000\t\r\nrequirepass \"a\\x41\\n\\\"b\"\nsave 60 1\nsave 70 2\nlogfile ''\n";
        let config = Config::from_text(content, "test").expect("all is right");
        assert_eq!((config.port, config.requirepass.as_slice()), (7000, &b"aA\n\"b"[..]));
        assert_eq!(config.save.len(), 2);
    }

    #[test]
    fn every_wrong_line_is_reported() {
        let wrong = message(Config::from_text(b"port abc\nhz 1\nbogus 1\nrequirepass \"x\nport 1 2\n", "x.conf"));
        for part in [
            "at line 1\n>>> 'port abc'\nargument couldn't be parsed into an integer",
            "at line 3\n>>> 'bogus 1'\nBad directive or wrong number of arguments\n",
            "at line 4\n>>> 'requirepass (redacted)'\nUnbalanced quotes in configuration line",
            "x.conf, at line 5\n>>> 'port 1 2'\nwrong number of arguments",
        ] {
            assert!(wrong.contains(part), "{part:?} is not in {wrong}");
        }
    }
}
