//! Random histories beside naive models: which, how many, and the log under the server to which they happen.
//!
//! A model says what must be answered, and what must be there. At every point of a history the server might be killed, so at every point
//! its [`Log`] must say what it holds: each unit is repeated on a second engine as it comes, which then must hold the same. Now and then
//! the server is killed in fact, and one that has read that log goes on with the history in its place.
//!
//! `SUITE_ROUNDS` says how many histories of each family, `SUITE_SEED` which is the first one. Locks and gates are here, and IDs; those of
//! other families are beside their other tests. All have names that end in `as_a_model_says`.

mod holding;
mod ids;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::differential::search::env_number;
use crate::in_process::{Bench, Told, Unit};

/// Runs histories from one seed after the other: `rounds`, if nothing else is said. Answers how many there were.
pub(crate) fn run(family: &str, rounds: u64, mut history: impl FnMut(u64) -> Result<(), String>) -> u64 {
    let first = env_number("SUITE_SEED").unwrap_or(1);
    let rounds = env_number("SUITE_ROUNDS").unwrap_or(rounds);
    for seed in first..first.saturating_add(rounds) {
        let repeats = format!("SUITE_SEED={seed} SUITE_ROUNDS=1 repeats this");
        match catch_unwind(AssertUnwindSafe(|| history(seed))) {
            Ok(Ok(())) => {}
            Ok(Err(told)) => panic!("{repeats}\n{told}"),
            Err(panic) => {
                eprintln!("{family}: {repeats}");
                resume_unwind(panic);
            }
        }
    }
    eprintln!("{family}: {rounds} histories, seeds from {first}");
    rounds
}

/// Histories in which something rare should have happened. Of fewer nobody asks that.
const ENOUGH: u64 = 50;

/// Fails where something has not happened as often as there were histories.
pub(crate) fn assert_often(rounds: u64, what: &str, often: u64) {
    assert!(rounds < ENOUGH || often >= rounds, "{what}: {often} in {rounds} histories");
}

/// What a server would find that starts now.
pub(crate) struct Log {
    /// With the times at which they were made.
    units: Vec<(i64, Unit)>,
    replica: Bench,
    told: Told,
    /// How often the server was killed.
    pub kills: u64,
}

impl Log {
    /// The log of a server that has done nothing yet. `told` is what must be the same in one that repeats it.
    pub(crate) fn of(bench: &mut Bench, told: Told) -> Log {
        bench.keep_units();
        Log { units: Vec::new(), replica: Bench::new(0), told, kills: 0 }
    }

    /// Takes in what the server has done since the last time. Answers these units; fails if they do not make what it holds.
    pub(crate) fn follow(&mut self, bench: &mut Bench) -> Result<&[(i64, Unit)], String> {
        let now_ms = bench.engine.ks.now_ms();
        let from = self.units.len();
        for unit in bench.take_units() {
            self.replica.repeat(&unit)?;
            self.units.push((now_ms, unit));
        }
        self.replica.look_at(now_ms);
        let [ours, theirs] = [&*bench, &self.replica].map(|bench| bench.state(self.told));
        if ours != theirs {
            return Err(format!("the units of the log make\n{theirs}\nof\n{ours}"));
        }
        Ok(&self.units[from..])
    }

    /// Kills the server; another one starts on this log and takes its place.
    pub(crate) fn kill(&mut self, bench: &mut Bench) -> Result<(), String> {
        self.kills += 1;
        self.follow(bench)?;
        bench.restart(&self.units)?;
        self.follow(bench).map(drop)
    }
}
