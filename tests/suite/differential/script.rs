//! Commands as text: lines of the corpus, and how redis-cli writes a command's arguments.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::rule::Version;

/// A command: its name and its arguments.
pub(crate) type Args = Vec<Vec<u8>>;

/// One line of a corpus.
pub(crate) struct Step {
    /// The name of the connection that sends the command.
    pub connection: String,
    /// The action that the line requests.
    pub action: Action,
    /// Left out over RESP3.
    pub resp2_only: bool,
    /// Left out against the other version, whose answer differs.
    pub only: Option<Version>,
}

/// The action of a line.
pub(crate) enum Action {
    /// Send a command; `wait` for its reply; `loose`: compare only the kind of the reply.
    Run { args: Args, wait: bool, loose: bool },
    /// Read one more frame.
    Read,
    /// Let time pass.
    Sleep(Duration),
    /// Wait until this many clients are blocked.
    Blocked(usize),
}

/// The folder of the suite's data.
pub(crate) fn suite_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite")
}

/// The files of the corpus, in order.
pub(crate) fn corpus_files() -> Vec<PathBuf> {
    let folder = suite_folder().join("corpus");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("a readable folder").path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "txt"));
    files.sort();
    files
}

/// The steps of a corpus file, with their line numbers.
pub(crate) fn read_corpus(path: &Path) -> Vec<(usize, Step)> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            let step =
                parse_line(line).unwrap_or_else(|| panic!("{}:{number}: not a corpus line: {line}", path.display()));
            (number, step)
        })
        .collect()
}

fn parse_line(line: &str) -> Option<Step> {
    let marked = |line: &'_ str, mark: &str| line.strip_prefix(mark).map(str::trim).map(str::to_owned);
    let (resp2_only, line) = marked(line, "@2 ").map_or((false, line.to_owned()), |rest| (true, rest));
    let versions = [("@7 ", Version::Seven), ("@8 ", Version::Eight)];
    let only = versions.into_iter().find_map(|(mark, version)| Some((version, marked(&line, mark)?)));
    let (only, line) = only.map_or((None, line.clone()), |(version, rest)| (Some(version), rest));
    let line = line.as_str();
    let (connection, rest) = match line.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("a", line),
    };
    let rest = rest.trim();
    let action = if let Some(ms) = rest.strip_prefix("!sleep ") {
        Action::Sleep(Duration::from_millis(ms.parse().ok()?))
    } else if let Some(count) = rest.strip_prefix("!blocked ") {
        Action::Blocked(count.parse().ok()?)
    } else if rest == "?" {
        Action::Read
    } else if let Some(command) = rest.strip_prefix("& ") {
        Action::Run { args: split_line(command)?, wait: false, loose: false }
    } else if let Some(command) = rest.strip_prefix("~ ") {
        Action::Run { args: split_line(command)?, wait: true, loose: true }
    } else {
        Action::Run { args: split_line(rest)?, wait: true, loose: false }
    };
    Some(Step { connection: connection.to_owned(), action, resp2_only, only })
}

/// Splits a line as redis-cli does: words, "double quotes" with escapes, 'single quotes'. `None` if the quotes don't
/// match.
pub(crate) fn split_line(line: &str) -> Option<Args> {
    let mut args = Args::new();
    let mut rest = line.as_bytes();
    loop {
        rest = rest.trim_ascii_start();
        let Some(&first) = rest.first() else {
            return Some(args);
        };
        let mut arg = Vec::new();
        match first {
            b'"' => {
                rest = &rest[1..];
                loop {
                    let (&byte, tail) = rest.split_first()?;
                    rest = tail;
                    match byte {
                        b'"' => break,
                        b'\\' => rest = unescape(rest, &mut arg)?,
                        byte => arg.push(byte),
                    }
                }
            }
            b'\'' => {
                rest = &rest[1..];
                loop {
                    match rest {
                        [b'\\', b'\'', tail @ ..] => {
                            arg.push(b'\'');
                            rest = tail;
                        }
                        [b'\'', tail @ ..] => {
                            rest = tail;
                            break;
                        }
                        [byte, tail @ ..] => {
                            arg.push(*byte);
                            rest = tail;
                        }
                        [] => return None,
                    }
                }
            }
            _ => {
                let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                arg.extend_from_slice(&rest[..end]);
                rest = &rest[end..];
            }
        }
        args.push(arg);
    }
}

/// Decodes the escape after a backslash in double quotes into `arg`; returns the rest of the line.
fn unescape<'a>(rest: &'a [u8], arg: &mut Vec<u8>) -> Option<&'a [u8]> {
    if let [b'x', high, low, tail @ ..] = rest
        && let (Some(high), Some(low)) = ((*high as char).to_digit(16), (*low as char).to_digit(16))
    {
        arg.push((high * 16 + low) as u8);
        return Some(tail);
    }
    let (&byte, tail) = rest.split_first()?;
    arg.push(match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 7,
        b'b' => 8,
        byte => byte,
    });
    Some(tail)
}

/// A command as a line that redis-cli can read back.
pub(crate) fn show(args: &Args) -> String {
    let word = |arg: &Vec<u8>| {
        let plain = !arg.is_empty() && arg.iter().all(|b| b.is_ascii_graphic() && !b"\"'\\#".contains(b));
        if plain { String::from_utf8_lossy(arg).into_owned() } else { format!("\"{}\"", redis_escape(arg)) }
    };
    args.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn redis_escape(bytes: &[u8]) -> String {
    let escape = |&b: &u8| match b {
        b'"' | b'\\' => format!("\\{}", b as char),
        b' '..=b'~' => (b as char).to_string(),
        b => format!("\\x{b:02x}"),
    };
    bytes.iter().map(escape).collect()
}

#[test]
fn splits_lines_as_redis_cli_does() {
    let split = |line| {
        split_line(line)
            .map(|args| args.into_iter().map(|a| String::from_utf8_lossy(&a).into_owned()).collect::<Vec<_>>())
    };
    assert_eq!(
        split(r#"SET "a b" 'c\'d' "\x41\n""#).as_deref(),
        Some(["SET", "a b", "c'd", "A\n"].map(String::from).as_slice())
    );
    assert_eq!(split("SET \"open"), None);
    let args: Args = vec![b"ECHO".to_vec(), b"a\"\\\xff \n".to_vec(), Vec::new()];
    assert_eq!(split_line(&show(&args)), Some(args));
}
