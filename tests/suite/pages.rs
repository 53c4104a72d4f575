//! The pages that users read. `tests/snippets` extracts their fenced blocks, for this module and for `tests/clients`,
//! whose programs run the blocks of their languages. Here redis-cli types the blocks of `console`, page after page,
//! each page on a server of its own. It must print the text that the page shows, except for numbers that depend on the
//! time, connections, and the parts that the page omits (`...`). Each block that no test runs has its reason in
//! `tests/not-run.txt`.

use std::path::Path;
use std::process::Command;

use crate::harness::{Program, Server};
use crate::oracle::REDIS_CLI;

/// Languages whose blocks are run: here, in `pages_shell.rs`, in `tour.rs`, or by `tests/clients/run`.
const LANGUAGES: [&str; 8] = ["console", "sh", "python", "sql", "go", "java", "js", "haproxy"];

/// Pages about a server with a journal.
const WITH_JOURNAL: [&str; 2] = ["docs/feed.md", "docs/production.md"];

/// A fenced block.
pub(crate) struct Block {
    pub(crate) page: String,
    language: String,
    /// The reason it is not run; `-` if it is run.
    reason: String,
    first_line: String,
    pub(crate) text: String,
}

/// All blocks, in the order of the pages.
fn blocks() -> Vec<Block> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let status = Command::new("sh").arg(root.join("tests/snippets")).arg(folder.path()).status().expect("a shell");
    assert!(status.success(), "tests/snippets has failed");
    let index = std::fs::read_to_string(folder.path().join("index")).expect("tests/snippets writes an index");
    let block = |line: &str| {
        let columns: Vec<&str> = line.splitn(6, '\t').collect();
        let [file, page, _, language, reason, first_line] = columns[..] else { panic!("{line}") };
        let text = std::fs::read_to_string(file).expect("a block is text");
        let owned = str::to_owned;
        Block {
            page: owned(page),
            language: owned(language),
            reason: owned(reason),
            first_line: owned(first_line),
            text,
        }
    };
    index.lines().map(block).collect()
}

/// The blocks of a language that are run.
pub(crate) fn blocks_of(language: &str) -> Vec<Block> {
    blocks().into_iter().filter(|block| block.language == language && block.reason == "-").collect()
}

#[test]
fn every_block_is_run_or_has_a_reason_not_to_be() {
    let blocks = blocks();
    assert!(blocks.len() > 80, "{} blocks", blocks.len());
    for block in blocks.iter().filter(|block| block.reason == "-") {
        let Block { page, language, first_line, .. } = block;
        assert!(
            LANGUAGES.contains(&language.as_str()),
            "{page}: no test runs blocks of `{language}`. A line of tests/not-run.txt says why: {first_line}"
        );
    }
    let list = include_str!("../not-run.txt").lines().filter(|line| !line.starts_with('#'));
    for line in list {
        let columns: Vec<&str> = line.split('\t').collect();
        let [page, language, first_line, reason] = columns[..] else {
            panic!("four columns, separated by tabs: {line}")
        };
        assert!(reason.len() > 10, "{line}");
        let is_of =
            |block: &&Block| (&*block.page, &*block.language, &*block.first_line) == (page, language, first_line);
        assert_eq!(
            blocks.iter().filter(is_of).count(),
            1,
            "tests/not-run.txt lists a block that no page shows: {line}"
        );
    }
}

#[test]
fn the_pages_show_the_real_output() {
    if REDIS_CLI.is_missing() {
        return;
    }
    // tour.rs runs those of the README.
    let blocks: Vec<Block> = blocks_of("console").into_iter().filter(|block| block.page != "README.md").collect();
    let mut typed = 0;
    for page in blocks.chunk_by(|one, next| one.page == next.page) {
        let flags: &[&str] = if WITH_JOURNAL.contains(&page[0].page.as_str()) { &["--appendonly", "yes"] } else { &[] };
        let server = Server::start(Program::Tidegate, flags);
        for (command, shown) in page.iter().flat_map(|block| steps(&block.text)) {
            let line = command.replacen("redis-cli", &format!("redis-cli --no-raw -p {}", server.port()), 1);
            let output = Command::new("sh").args(["-c", &line]).output().expect("a shell");
            let printed = String::from_utf8(output.stdout).expect("redis-cli prints text");
            // redis-cli prints an empty line after an error.
            let (printed, shown) = (without_times(printed.trim_end().lines()), without_times(shown.into_iter()));
            assert!(is_shown(&printed, &shown), "{}: {command}\n{printed:#?}\n{shown:#?}", page[0].page);
            typed += 1;
        }
    }
    assert!(typed > 40, "{typed} commands in blocks of `console`");
}

/// Each command of a console block with the lines that it prints. A command goes on while a quote is open.
pub(crate) fn steps(block: &str) -> Vec<(String, Vec<&str>)> {
    let mut steps: Vec<(String, Vec<&str>)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command.to_owned(), Vec::new())),
            (None, Some((command, shown))) if shown.is_empty() && command.matches('"').count() % 2 == 1 => {
                command.push('\n');
                command.push_str(line);
            }
            (None, Some((_, shown))) => shown.push(line),
            (None, None) => panic!("a console block starts with a command, not with {line}"),
        }
    }
    steps
}

/// Whether printed lines match those that a page shows: `...` stands for any lines, or for the rest of one.
fn is_shown(printed: &[String], shown: &[String]) -> bool {
    match (printed, shown) {
        (_, [first, rest @ ..]) if first.trim() == "..." => {
            (0..=printed.len()).any(|left_out| is_shown(&printed[left_out..], rest))
        }
        ([line, printed @ ..], [first, shown @ ..]) => {
            let is_same = match first.strip_suffix("...") {
                Some(begin) => line.starts_with(begin),
                None => line == first,
            };
            is_same && is_shown(printed, shown)
        }
        (printed, shown) => printed.is_empty() && shown.is_empty(),
    }
}

/// Returns printed or shown text without the parts that vary: values of fields that hold times or describe a
/// connection, and IDs, also those of streams.
fn without_times<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut is_time = false;
    let mut without = |line: &str| {
        let line = line.trim_end();
        let (front, number) = line.rsplit_once(' ').unwrap_or(("", line));
        let (text, is_digits) = (number.trim_matches('"'), |text: &str| text.bytes().all(|b| b.is_ascii_digit()));
        let is_id_or_unix_time = text.len() > 12 && is_digits(text);
        let is_of_stream =
            text.split_once('-').is_some_and(|(ms, seq)| ms.len() == 13 && is_digits(ms) && is_digits(seq));
        // Over RESP3 redis-cli prints a field and its value on one line.
        let is_beside = front.ends_with("-ms\" => (integer)");
        let hides = is_id_or_unix_time || is_of_stream || ((is_time || is_beside) && number != "0");
        is_time = ["-ms\"", "\"client-id\"", "\"client-addr\""].iter().any(|name| line.ends_with(name));
        format!("{front} {}", if hides { "#" } else { number })
    };
    lines.map(&mut without).collect()
}
