//! The README's tour, typed by redis-cli as a reader would: every line shown must really be printed.

use std::path::Path;
use std::process::Command;

use crate::crowd::on_both;
use crate::harness::{Program, Server};
use crate::oracle::REDIS_CLI;
use crate::pages::{Block, blocks_of, steps};

on_both!(the_readme_shows_the_real_output);

fn the_readme_shows_the_real_output(program: Program) {
    if REDIS_CLI.is_missing() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let server = Server::start(program, &[]);
    let mut typed = 0;
    let is_known = |block: &Vec<(String, Vec<&str>)>| {
        program == Program::Tidegate || !block.iter().any(|(command, _)| is_for_coordination(command))
    };
    let readme: Vec<Block> = blocks_of("console").into_iter().filter(|block| block.page == "README.md").collect();
    let blocks = readme.iter().map(|block| steps(&block.text)).filter(is_known);
    for (command, shown) in blocks.flatten() {
        // On a terminal redis-cli shows types; --no-raw does so in a pipe, too.
        let line = command.replacen("redis-cli", &format!("redis-cli --no-raw -p {}", server.port()), 1);
        let output = Command::new("sh").args(["-c", &line]).current_dir(folder).output().expect("a shell");
        let printed = String::from_utf8(output.stdout).expect("redis-cli prints text");
        let printed: Vec<&str> = printed.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(printed.len(), shown.len(), "{command}: {printed:?}");
        for (printed, shown) in printed.iter().zip(&shown) {
            assert!(same(printed, shown), "{command}: printed {printed}, README has {shown}");
        }
        typed += 1;
    }
    assert!(typed >= 8, "the tour is gone from README.md");
}

/// Whether a line calls a command that Redis lacks.
fn is_for_coordination(line: &str) -> bool {
    let name = line.split(' ').skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    ["GUARD", "ONCE"].contains(&name) || ["GATE.", "LOCK.", "STOCK."].iter().any(|family| name.starts_with(family))
}

/// Equal, except for the remaining time of a lease of 30 s when the next command comes.
fn same(printed: &str, shown: &str) -> bool {
    let left_ms = |line: &str| {
        let ms: Option<u32> = line.rsplit_once("(integer) ").and_then(|(_, number)| number.parse().ok());
        ms.is_some_and(|ms| (10_000..30_000).contains(&ms))
    };
    printed == shown || (left_ms(printed) && left_ms(shown))
}
