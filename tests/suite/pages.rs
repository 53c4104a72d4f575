//! The pages of `docs/coordination`: their examples are typed by redis-cli as a reader would, one page after the other, each at a server of
//! its own, and print what stands there, but for numbers that depend on the time, and connections.

use std::path::Path;
use std::process::Command;

use crate::harness::{Program, Server};
use crate::oracle::REDIS_CLI;
use crate::tour::steps;

#[test]
fn the_pages_show_what_is_printed() {
    if REDIS_CLI.is_missing() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/coordination");
    let pages = std::fs::read_dir(&folder).expect("there are pages").map(|page| page.expect("a page").path());
    let mut pages: Vec<_> = pages.filter(|page| page.extension().is_some_and(|extension| extension == "md")).collect();
    pages.sort();
    assert!(pages.len() > 6, "{pages:?}");
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page is text");
        let server = Server::start(Program::Tidegate, &[]);
        let mut typed = 0;
        for (command, shown) in text.split("```console\n").skip(1).flat_map(steps) {
            let line = command.replacen("redis-cli", &format!("redis-cli --no-raw -p {}", server.port()), 1);
            let output = Command::new("sh").args(["-c", &line]).output().expect("a shell");
            let printed = String::from_utf8(output.stdout).expect("redis-cli prints text");
            // Behind an error redis-cli prints an empty line.
            let printed = printed.trim_end().lines();
            assert_eq!(without_times(printed), without_times(shown.into_iter()), "{}: {command}", page.display());
            typed += 1;
        }
        let is_overview = page.file_name().is_some_and(|name| name == "README.md");
        assert!(is_overview || typed >= 2, "{}: {typed} examples in blocks of `console`", page.display());
    }
}

/// What was printed or shown, without what depends on the time: what is behind the name of a time, or tells a connection, and IDs,
/// those of streams among them.
fn without_times<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut is_time = false;
    let mut without = |line: &str| {
        let (front, number) = line.rsplit_once(' ').unwrap_or(("", line));
        let (text, is_digits) = (number.trim_matches('"'), |text: &str| text.bytes().all(|b| b.is_ascii_digit()));
        let is_id = text.len() > 15 && is_digits(text);
        let is_of_stream =
            text.split_once('-').is_some_and(|(ms, seq)| ms.len() == 13 && is_digits(ms) && is_digits(seq));
        let hides = is_id || is_of_stream || (is_time && number != "0");
        is_time = ["-ms\"", "\"client-id\"", "\"client-addr\""].iter().any(|name| line.ends_with(name));
        format!("{front} {}", if hides { "#" } else { number })
    };
    lines.map(&mut without).collect()
}
