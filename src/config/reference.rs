//! `docs/configuration.md`: every parameter, from the table.

use std::fmt::Write as _;

use super::inert::INERT;
use super::kind::Shape;
use super::reason::Reason;
use super::table::{Change, PARAMETERS, Parameter};

const HEAD: &str = "\
# Configuration

`tidegate [FILE|-] [--name value...]`: a file in the syntax of redis.conf, or standard input for `-`, and flags, which win. Every
parameter below is a line of the file (`name value`), a flag (`--name value`), and what CONFIG GET and CONFIG SET know, in any case. CONFIG SET
takes several at a time, and sets all of them or none; CONFIG REWRITE writes what is set into the file, and keeps its comments, its order
and its other lines.

In the file words are separated by blanks. \"Double quotes\" know `\\n`, `\\r`, `\\t`, `\\a`, `\\b`, `\\xHH` and `\\` before any other byte, 'single
quotes' only `\\'`. A line that begins with `#` is a comment. These lines are no parameters:

- `include PATH` reads another file in place. A pattern such as `conf.d/*.conf` reads all that match, by name. A path is relative to `dir`, as
  it is at that line.
- `rename-command OLD NEW` gives a command another name; with `\"\"` for the new one it is not there at all.

Numbers of bytes take the units `k`, `m`, `g` (powers of 1,000) and `kb`, `mb`, `gb` (of 1,024).

This page is made from [the table of parameters](../src/config/table.rs) by `SUITE_WRITE=1 cargo test --test suite configuration`.
";

const WITHOUT_EFFECT: &str = "\
## Without effect

These are taken so that a redis.conf can stay as it is. Their values are checked and kept, and change nothing; they may be deleted. A start names
those that its file sets. Behind each stands Redis' default.
";

/// The whole page.
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
        push(&mut page, format_args!("\nSince {}:\n\n", reason.text()));
        for parameter in INERT.iter().filter(|parameter| parameter.inert == Some(reason)) {
            push(&mut page, format_args!("- {} ({})\n", names(parameter), default(parameter)));
        }
    }
    page
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    let _ = page.write_fmt(text);
}

fn entry(parameter: &Parameter) -> String {
    let values = match (parameter.shape)() {
        Shape::One(name) | Shape::Many(name) | Shape::Groups(name, _) => name.to_owned(),
        Shape::Word(words) => words().join("|"),
    };
    let change = match parameter.change {
        Change::AnyTime => "",
        Change::Protected => "; CONFIG SET takes it where `enable-protected-configs` allows that",
        Change::AtStart => "; only at start",
    };
    let until = parameter.until.map(|until| format!(" {until}")).unwrap_or_default();
    format!("- {} `{values}` ({}{change}).{}{until}\n", names(parameter), default(parameter), sentence(parameter.doc))
}

/// The sentences of the table, as one line.
fn sentence(doc: &str) -> String {
    doc.split_whitespace().fold(String::new(), |line, word| line + " " + word)
}

fn names(parameter: &Parameter) -> String {
    let alias = parameter.alias.map(|alias| format!(" or `{alias}`")).unwrap_or_default();
    format!("`{}`{alias}", parameter.name)
}

fn default(parameter: &Parameter) -> String {
    if parameter.default.is_empty() { "empty".to_owned() } else { format!("`{}`", parameter.default) }
}
