//! The scripts bundled with the server: `lua/*.lua`, compiled into the program.
//!
//! They are loaded at start and stay after SCRIPT FLUSH, so that EVALSHA finds them at once on every server. Each
//! file's header is its contract. Its first line is `-- name: summary`.
//!
//! Programs that need not run on Redis should use the commands of `docs/coordination` instead; each script names those
//! for its job.
//!
//! The scripts are also functions of the library [`LIBRARY`]: FCALL runs the script itself, and a Redis that has loaded
//! [`library_code`] gives equal replies.

use std::fmt::Write;

use super::program::Sha1Hex;
use super::store::sha1_hex;

/// A script of `lua/`.
#[derive(Clone, Copy, Debug)]
pub struct Bundled {
    /// Its name: the file's, without the extension.
    pub name: &'static str,
    /// Its text, byte for byte.
    pub body: &'static str,
    /// The commands to use instead on this server.
    pub commands: &'static [&'static str],
}

macro_rules! bundled {
    ($($name:literal $($command:literal),+;)*) => {
        /// All bundled scripts in the order of their names.
        pub const BUNDLED: &[Bundled] = &[$(Bundled {
            name: $name,
            body: include_str!(concat!("../../lua/", $name, ".lua")),
            commands: &[$($command),+],
        }),*];
    };
}

bundled! {
    "daily_limit" "LIMIT.TAKE";
    "funnel" "LIMIT.TAKE";
    "gate_acquire" "GATE.ACQUIRE";
    "gate_release" "GATE.RELEASE";
    "lease_gate_acquire" "GATE.ACQUIRE";
    "lease_gate_release" "GATE.RELEASE";
    "lease_gate_renew" "GATE.RENEW";
    "lock_acquire" "LOCK.ACQUIRE";
    "lock_extend" "LOCK.EXTEND";
    "lock_release" "LOCK.RELEASE";
    "next_id" "ID.NEXT";
    "seckill_v1" "STOCK.RESERVE", "STOCK.COMMIT";
    "seckill_v2" "STOCK.RESERVE", "STOCK.COMMIT";
    "stock_deduct" "STOCK.RESERVE", "STOCK.COMMIT";
    "stock_refill" "STOCK.ADD";
}

/// The library whose functions are the scripts.
pub const LIBRARY: &str = "tidegate";

/// The text of that library, made from the files.
pub fn library_code() -> String {
    let mut code = format!("#!lua name={LIBRARY}\n");
    for script in BUNDLED {
        let Bundled { name, body, .. } = script;
        // The first lines are plain ASCII text, which Lua and Rust quote alike.
        let summary = script.summary();
        let head = format!("redis.register_function{{function_name = '{name}', description = {summary:?},");
        // Writing to a string does not fail.
        let _ = write!(code, "\n{head} callback = function(KEYS, ARGV)\n{body}end}}\n");
    }
    code
}

impl Bundled {
    /// The script of this name.
    pub fn named(name: &str) -> Option<&'static Bundled> {
        BUNDLED.iter().find(|script| script.name == name)
    }

    /// Its name for EVALSHA.
    pub fn sha1(&self) -> Sha1Hex {
        sha1_hex(self.body.as_bytes())
    }

    /// Its summary: the first line of its header, without the name.
    pub fn summary(&self) -> &'static str {
        let line = self.body.lines().next().unwrap_or_default();
        line.split_once(": ").map_or(line, |(_, summary)| summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_listed_and_says_its_name() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/lua");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .expect("the folder is part of the package")
            .map(|file| file.expect("readable").file_name().to_string_lossy().into_owned())
            .collect();
        files.sort();
        let listed: Vec<String> = BUNDLED.iter().map(|script| format!("{}.lua", script.name)).collect();
        assert_eq!(files, listed);
        for script in BUNDLED {
            assert!(script.body.starts_with(&format!("-- {}: ", script.name)), "{}", script.name);
            let line = script.body.lines().next().unwrap_or_default();
            assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{} in plain ASCII", script.name);
            assert!(script.body.ends_with('\n'), "{}", script.name);
        }
    }
}
