//! The command line of a server, in the forms that Redis accepts.
//!
//! `tidegate [FILE|-] [--name value...]`. An argument that begins with `--` names a parameter; its values follow, up to
//! the next name. The first value may begin with `--` itself, so that a password can. A name and its values may be one
//! argument (`"--maxmemory 1gb"`), or joined by `=`. `--save` alone is `--save ""`. A `-` reads the configuration from
//! standard input, at the beginning or the end. Each name with its values is then treated like a line of the file.
//!
//! clap handles the help and the subcommands. It does not parse these flags, because its grammar and its errors differ
//! from Redis'.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use clap::{Arg, ArgAction, value_parser};

use super::kind::Shape;
use super::names::all_names;
use super::table::{PARAMETERS, Parameter};
use super::words::split_line;
use crate::base::version::VERSION_LINE;

/// The parsed command line of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// The configuration file.
    pub file: Option<PathBuf>,
    /// Whether standard input holds a configuration as well.
    pub reads_standard_input: bool,
    /// Names of parameters, each followed by its values.
    pub lines: Vec<Vec<Vec<u8>>>,
}

/// The request of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Start a server.
    Server(Arguments),
    /// Show help on one page.
    ShortHelp,
    /// Show help on every parameter.
    Help,
    /// Show the version.
    Version,
}

impl Arguments {
    /// Parses the arguments after the program's name.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Asked {
        let args: Vec<Vec<u8>> = args.into_iter().map(OsString::into_vec).collect();
        let mut found = Arguments::default();
        // Whether the last name still lacks its first value.
        let mut wants_value = false;
        for (at, arg) in args.iter().enumerate() {
            let (is_first, is_last) = (at == 0, at + 1 == args.len());
            match arg.as_slice() {
                b"-h" if !wants_value => return Asked::ShortHelp,
                b"--help" if !wants_value => return Asked::Help,
                b"-V" | b"-v" | b"--version" if !wants_value => return Asked::Version,
                b"-" if (is_first || is_last) && !wants_value => found.reads_standard_input = true,
                _ if is_first && !arg.starts_with(b"-") => {
                    found.file = Some(PathBuf::from(OsString::from_vec(arg.clone())))
                }
                _ if arg.starts_with(b"--") && !wants_value => {
                    let line = name_and_values(&arg[2..]);
                    let next_is_name = args.get(at + 1).is_none_or(|next| next.starts_with(b"--"));
                    wants_value = line.len() == 1 && !is_last;
                    found.lines.push(line);
                    if let Some([name]) = found.lines.last().map(Vec::as_slice)
                        && name.eq_ignore_ascii_case(b"save")
                        && next_is_name
                    {
                        found.lines.last_mut().into_iter().for_each(|line| line.push(Vec::new()));
                        wants_value = false;
                    }
                }
                value => {
                    // Redis accepts a name without its dashes if no other name precedes it.
                    match found.lines.last_mut() {
                        Some(line) => line.push(value.to_vec()),
                        None => found.lines.push(vec![value.to_vec()]),
                    }
                    wants_value = false;
                }
            }
        }
        Asked::Server(found)
    }
}

/// Splits an argument that begins with a parameter's name into words.
fn name_and_values(arg: &[u8]) -> Vec<Vec<u8>> {
    if let Some(end) = arg.iter().position(|byte| *byte == b'=')
        && Parameter::named(&arg[..end]).is_some()
    {
        return vec![arg[..end].to_vec(), arg[end + 1..].to_vec()];
    }
    // With a quote in the middle the argument is not a name, and will be reported as it is.
    split_line(arg).filter(|words| !words.is_empty()).unwrap_or_else(|| vec![arg.to_vec()])
}

/// Returns advice for a name that no parameter has.
pub(super) fn advice(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    match name.trim_start_matches('-') {
        "p" => return "-p is a flag of redis-cli; the port of a server is --port.".into(),
        "a" => return "-a is a flag of redis-cli; the password of a server is --requirepass.".into(),
        "test-memory" => return "Tidegate has no memory test; use memtester.".into(),
        "check-system" => return "Tidegate has no system check; it reports problems when it starts.".into(),
        _ => {}
    }
    match nearest(&name, all_names().map(|(known, _)| known)) {
        Some(known) => {
            format!("Tidegate has no parameter of this name. Did you mean {known}? `tidegate --help` lists all.")
        }
        None => "Tidegate has no parameter of this name; `tidegate --help` lists all.".into(),
    }
}

/// Returns the known name that a mistyped one was probably meant to be.
pub fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let name = name.to_ascii_lowercase();
    let (distance, known) = known.map(|known| (distance(&name, known), known)).min()?;
    (distance <= 2 || distance * 4 <= name.len()).then_some(known)
}

/// Returns how many characters have to be added, removed or replaced to turn one text into the other.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, left) in left.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, right) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

/// Parameters that most operators set, in the order of the short help.
const COMMON: [&str; 13] = [
    "port",
    "bind",
    "dir",
    "requirepass",
    "appendonly",
    "appendfsync",
    "maxmemory",
    "maxmemory-policy",
    "io-threads",
    "tls-port",
    "metrics-port",
    "logfile",
    "daemonize",
];

/// Returns the command line for the full help: every parameter as a flag, and the file. The caller may add subcommands.
pub fn command() -> clap::Command {
    // Beside flags this long there is no room for a sentence, unless the terminal is wide.
    without_parameters().next_line_help(true).args(PARAMETERS.iter().map(flag))
}

/// Returns the command line for the short help, on one page: the parameters that most operators set.
pub fn short_command() -> clap::Command {
    let common = COMMON.iter().filter_map(|name| Parameter::named(name.as_bytes()));
    let help = Arg::new("help").short('h').long("help").action(ArgAction::Help);
    without_parameters()
        .disable_help_flag(true)
        .arg(help.help("Print this page (-h), or all parameters (--help)"))
        .args(common.map(short_flag))
        .after_help(format!(
            "Each of the {} parameters can be a flag or a line of the file; flags override the file.\n\
             `tidegate --help` lists all with their defaults; docs/configuration.md says which may change\n\
             at run time.\n\
             `tidegate COMMAND --help` explains a subcommand.",
            PARAMETERS.len()
        ))
}

fn without_parameters() -> clap::Command {
    let file = Arg::new("FILE")
        .value_parser(value_parser!(OsString))
        .help("Configuration file in the syntax of redis.conf; - reads it from standard input. Flags override it");
    clap::Command::new("tidegate")
        .version(VERSION_LINE.as_str())
        .about("A coordination server that speaks the Redis protocol")
        .args_conflicts_with_subcommands(true)
        .arg(file)
}

/// Makes a flag for one column. If its words would leave no room for the help, a name stands for them; the meaning
/// takes one sentence.
fn short_flag(parameter: &'static Parameter) -> Arg {
    let arg = flag(parameter).help_heading("Parameters that most servers set").help(short_doc(parameter));
    match (parameter.shape)() {
        Shape::Word(words) if words().len() > 2 => arg.value_name("WORD"),
        _ => arg,
    }
}

fn short_doc(parameter: &Parameter) -> String {
    let doc = parameter.doc.trim();
    let end = doc.find(['.', ':', ';', '(']).unwrap_or(doc.len());
    match parameter.default {
        "" => doc[..end].trim_end().to_owned(),
        default => format!("{} [default: {default}]", doc[..end].trim_end()),
    }
}

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
        .help(help)
        .help_heading(parameter.section)
        .action(ArgAction::Append)
        .value_parser(value_parser!(OsString));
    match (parameter.shape)() {
        Shape::One(name) => arg.value_name(name),
        Shape::Word(words) => arg.value_name(words().join("|")),
        Shape::Many(name) | Shape::Groups(name, _) => arg.value_name(name).num_args(1..),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(args: &[&str]) -> Vec<String> {
        match Arguments::parse(args.iter().map(OsString::from)) {
            Asked::Server(found) => {
                let file = found.file.iter().map(|file| format!("file {}", file.display()));
                let input = found.reads_standard_input.then(|| "input".to_owned());
                let quoted = found.lines.iter().map(|line| {
                    line.iter().map(|word| format!("<{}>", word.escape_ascii())).collect::<Vec<_>>().join(" ")
                });
                file.chain(input).chain(quoted).collect()
            }
            other => vec![format!("{other:?}")],
        }
    }

    #[test]
    fn flags_are_read_in_the_forms_of_redis() {
        for (args, expected) in [
            (&["redis.conf", "--port", "7000"][..], &["file redis.conf", "<port> <7000>"][..]),
            (&["-", "--hz", "5"], &["input", "<hz> <5>"]),
            (&["--hz", "5", "-"], &["input", "<hz> <5>"]),
            (&["--port=7000", "--requirepass=a=b"], &["<port> <7000>", "<requirepass> <a=b>"]),
            (&["--maxmemory '700mb'", "--hz 5"], &["<maxmemory> <700mb>", "<hz> <5>"]),
            (&["--requirepass", "--secret", "--hz", "5"], &["<requirepass> <--secret>", "<hz> <5>"]),
            (&["--port", "--loglevel", "verbose"], &["<port> <--loglevel> <verbose>"]),
            (&["--save", "", "--hz", "5"], &["<save> <>", "<hz> <5>"]),
            (&["--save", "--hz", "5"], &["<save> <>", "<hz> <5>"]),
            (&["--hz", "5", "--save"], &["<hz> <5>", "<save> <>"]),
            (&["--save", "60", "1", "--save", "300 10"], &["<save> <60> <1>", "<save> <300 10>"]),
            (&["--logfile", "--save", "--save", ""], &["<logfile> <--save>", "<save> <>"]),
            (&["x.conf", "loglevel", "verbose", "--hz 5"], &["file x.conf", "<loglevel> <verbose>", "<hz> <5>"]),
            (&["--bind", "127.0.0.1", "-::1"], &["<bind> <127.0.0.1> <-::1>"]),
            (&["--port"], &["<port>"]),
            (&["--hz", "5", "--help"], &["Help"]),
            (&["-h"], &["ShortHelp"]),
            (&["--requirepass", "--help"], &["<requirepass> <--help>"]),
            (&["-v"], &["Version"]),
            (&["-p", "7000"], &["<-p> <7000>"]),
            (&[], &[]),
        ] {
            assert_eq!(lines(args), expected, "{args:?}");
        }
    }

    #[test]
    fn unknown_names_get_a_suggestion() {
        for (name, part) in [
            ("prot", "Did you mean port?"),
            ("max-clients", "Did you mean maxclients?"),
            ("append-only", "Did you mean appendonly?"),
            ("-p", "the port of a server is --port"),
            ("test-memory", "memtester"),
            ("frobnicate-all-the-things", "no parameter of this name; `tidegate --help`"),
        ] {
            assert!(advice(name).contains(part), "{name}: {}", advice(name));
        }
    }

    #[test]
    fn its_short_help_fits_80_columns() {
        short_command().debug_assert();
        assert!(COMMON.iter().all(|name| Parameter::named(name.as_bytes()).is_some()), "{COMMON:?}");
        let help = short_command().term_width(80).render_help().to_string();
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }

    #[test]
    fn its_help_is_sound_and_has_room_at_80_columns() {
        command().debug_assert();
        let help = command().term_width(80).render_help().to_string();
        let text: Vec<&str> = help.lines().filter(|line| line.starts_with("          ")).collect();
        assert!(text.len() > 100);
        assert!(help.lines().all(|line| line.chars().count() <= 80 || line.trim_start().starts_with("--")), "{help}");
        // Only the last line of a paragraph may be short.
        let is_narrow = |pair: &[&str]| {
            pair[0].len() < 60 && pair[1].starts_with("          ") && pair[0].starts_with("          ")
        };
        let lines: Vec<&str> = help.lines().collect();
        let narrow: Vec<_> = lines.windows(2).filter(|pair| is_narrow(pair)).collect();
        assert!(narrow.is_empty(), "{narrow:#?}");
    }
}
