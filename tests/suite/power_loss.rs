//! A loss of power: data that the server has not synced is gone, or partly there. So are files that it has created,
//! renamed and removed in a directory that it has not synced.
//!
//! `power_loss.c`, which is loaded before the C library, holds back unsynced data in the server's own memory, so that
//! SIGKILL loses it. It also keeps a record of the changes of names. [`PowerLoss::strike`] then undoes some of the
//! last of them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tidegate::base::rng::Rng;

use crate::harness::Environment;

/// The machine that loses power, as one directory sees it.
pub(crate) struct PowerLoss {
    dir: PathBuf,
    journal: tempfile::TempDir,
    rng: Rng,
    /// Changes of names that were undone.
    undone: u64,
}

impl PowerLoss {
    /// Servers on `dir` must be started in its [`environment`](Self::environment) from now on.
    pub(crate) fn new(dir: &Path, seed: u64) -> PowerLoss {
        let journal = tempfile::tempdir().expect("a folder");
        PowerLoss { dir: dir.to_owned(), journal, rng: Rng::seeded(seed), undone: 0 }
    }

    /// The environment of the next server.
    pub(crate) fn environment(&mut self) -> Environment {
        let path = |path: &Path| path.to_str().expect("a path of plain text").to_owned();
        vec![
            ("LD_PRELOAD", path(library())),
            ("POWER_LOSS_DIR", path(&self.dir)),
            ("POWER_LOSS_JOURNAL", path(self.journal.path())),
            ("POWER_LOSS_SEED", self.rng.below(1 << 60).to_string()),
        ]
    }

    /// Call this when the server has been killed.
    pub(crate) fn strike(&mut self) {
        let journal = self.journal.path().join("journal");
        let changes = std::fs::read_to_string(&journal).unwrap_or_default();
        let changes: Vec<Vec<&str>> = changes.lines().map(|line| line.split('\t').collect()).collect();
        let durable = self.rng.below(changes.len() as u64 + 1) as usize;
        for change in changes[durable..].iter().rev() {
            let undone = match change[..] {
                ["create", path, ..] => std::fs::remove_file(path),
                ["mkdir", path, ..] => std::fs::remove_dir_all(path),
                ["rename", from, to, _] => std::fs::rename(to, from),
                ["replace", from, to, kept] => std::fs::rename(to, from).and_then(|()| std::fs::rename(kept, to)),
                ["unlink", path, kept, _] => std::fs::rename(kept, path),
                _ => panic!("not a change of a name: {change:?}"),
            };
            match undone {
                // The kill came between a later removal and the note of it: that removal has reached the disk.
                Err(error)
                    if error.kind() == ErrorKind::NotFound && matches!(change[0], "create" | "rename" | "replace") => {}
                Err(error) => panic!("{change:?} cannot be undone: {error}"),
                Ok(()) => {}
            }
            self.undone += 1;
        }
        if !changes.is_empty() {
            std::fs::remove_file(journal).expect("it was read");
        }
    }

    /// How many changes of names were undone.
    pub(crate) fn undone(&self) -> u64 {
        self.undone
    }
}

/// The library that is loaded before the C library.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| compile("power_loss"))
}

/// Compiles a library of this folder that is loaded before the C library. Call it once for each library.
pub(crate) fn compile(name: &str) -> PathBuf {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.so", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/suite/{name}.c"));
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .status()
        .expect("cc, which has compiled LuaJIT for this build");
    assert!(compiled.success(), "cc: {compiled}");
    library
}
