//! Generates `docs/configuration.md`: every parameter, from the table.

use std::fmt::Write as _;

use super::inert::INERT;
use super::kind::Shape;
use super::reason::Reason;
use super::table::{Change, PARAMETERS, Parameter};

/// Width of the page in characters.
const WIDTH: usize = 100;

const HEAD: &str = "\
# Configuration

The server is started with `tidegate [FILE|-] [--name value...]`. FILE has the syntax of redis.conf;
`-` reads it from standard input. Flags override the file. Every parameter below is a line of the
file (`name value`), a flag (`--name value`), and a name for CONFIG GET and CONFIG SET, in any case.
CONFIG SET takes several parameters at a time, and sets all of them or none. CONFIG REWRITE writes
the present values into the file, and keeps the file's comments, order and other lines.

In the file, words are separated by blanks. Within \"double quotes\", the escapes are `\\n`, `\\r`,
`\\t`, `\\a`, `\\b`, `\\xHH`, and `\\` before any other byte, which stands for that byte; within 'single
quotes' the only escape is `\\'`. A line that begins with `#` is a comment. Two kinds of lines set no
parameter:

- `include PATH` reads another file in place. A pattern such as `conf.d/*.conf` reads all files that
  match, in the order of their names. A path is relative to `dir` as of that line.
- `rename-command OLD NEW` gives a command another name; an empty one (`\"\"`) removes the command.

Numbers of bytes take the units `k`, `m`, `g` (powers of 1,000) and `kb`, `mb`, `gb` (of 1,024).

This page is generated from [the table of parameters](../src/config/table.rs) by
`SUITE_WRITE=1 cargo test --test suite configuration`.
";

const WITHOUT_EFFECT: &str = "\
## Without effect

These parameters are accepted so that a redis.conf can stay as it is. Their values are checked and
kept, but change nothing, and their lines may be deleted. At startup the server names those that the
file sets. The values in parentheses are Redis' defaults.
";

/// Returns the whole page.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    let mut section = "";
    for parameter in PARAMETERS {
        if parameter.section != section {
            section = parameter.section;
            push(&mut page, format_args!("\n## {section}\n\n"));
        }
        push(&mut page, format_args!("{}", entry(parameter)));
    }
    push(&mut page, format_args!("\n{WITHOUT_EFFECT}"));
    for reason in Reason::ALL {
        push(&mut page, format_args!("\n{}:\n\n", wrapped(&format!("Because {}", reason.text()), "")));
        for parameter in INERT.iter().filter(|parameter| parameter.inert == Some(reason)) {
            push(&mut page, format_args!("- {} ({})\n", names(parameter), default(parameter)));
        }
    }
    page
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to memory can't fail.
    let _ = page.write_fmt(text);
}

fn entry(parameter: &Parameter) -> String {
    let values = match (parameter.shape)() {
        Shape::One(name) | Shape::Many(name) | Shape::Groups(name, _) => name.to_owned(),
        Shape::Word(words) => words().join("|"),
    };
    let change = match parameter.change {
        Change::AnyTime => "",
        Change::Protected => "; CONFIG SET changes it only if `enable-protected-configs` allows that",
        Change::AtStart => "; only at start",
    };
    let until = parameter.until.map(|until| format!(" {until}")).unwrap_or_default();
    let (names, default) = (names(parameter), default(parameter));
    wrapped(&format!("- {names} `{values}` ({default}{change}). {}{until}", parameter.doc), "  ") + "\n"
}

/// Breaks a text into lines of at most [`WIDTH`] characters. All but the first begin with `indent`.
fn wrapped(text: &str, indent: &str) -> String {
    let mut words = text.split_whitespace();
    let mut page = words.next().unwrap_or_default().to_owned();
    let mut width = page.chars().count();
    for word in words {
        let word_width = word.chars().count();
        if width + 1 + word_width > WIDTH {
            page.push('\n');
            page.push_str(indent);
            width = indent.len();
        } else {
            page.push(' ');
            width += 1;
        }
        page.push_str(word);
        width += word_width;
    }
    page
}

fn names(parameter: &Parameter) -> String {
    let alias = parameter.alias.map(|alias| format!(" or `{alias}`")).unwrap_or_default();
    format!("`{}`{alias}", parameter.name)
}

fn default(parameter: &Parameter) -> String {
    if parameter.default.is_empty() { "empty".to_owned() } else { format!("`{}`", parameter.default) }
}
