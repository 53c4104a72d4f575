//! Random histories beside naive models: their choice, their number, and the journal of the server on which they run.
//!
//! A model predicts the replies and the data. The server might be killed at every point of a history, so at every point
//! its [`Log`] must describe its data: each unit is repeated on a second engine as it comes, which must then hold equal
//! data. Now and then the server is killed in fact, and one started from that journal continues the history in its
//! place.
//!
//! `SUITE_ROUNDS` sets the number of histories of each family, `SUITE_SEED` the first one, `SUITE_THREADS` how many run
//! at a time instead of one. Locks, gates and IDs are here; the histories of other families are beside their other
//! tests. All have names that end in `like_the_model`.

mod holding;
mod ids;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::differential::search::env_number;
use crate::in_process::{Bench, Told, Unit};

/// Runs histories from one seed after the other, `rounds` by default. Each returns the counts of its `rare` events; the
/// test fails if one of these has happened less often, in total, than there were histories.
pub(crate) fn run<const N: usize>(
    family: &str,
    rounds: u64,
    rare: [&str; N],
    history: impl Fn(u64) -> Result<[u64; N], String> + Sync,
) {
    let first = env_number("SUITE_SEED").unwrap_or(1);
    let rounds = env_number("SUITE_ROUNDS").unwrap_or(rounds);
    let (next, has_failed) = (AtomicU64::new(first), AtomicBool::new(false));
    let run_some = || {
        let mut often = [0; N];
        while !has_failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed - first >= rounds {
                break;
            }
            let repeats = format!("SUITE_SEED={seed} SUITE_ROUNDS=1 repeats this");
            let told = catch_unwind(AssertUnwindSafe(|| history(seed)));
            has_failed.fetch_or(!matches!(told, Ok(Ok(_))), Ordering::Relaxed);
            match told {
                Ok(Ok(here)) => often.iter_mut().zip(here).for_each(|(all, here)| *all += here),
                Ok(Err(told)) => panic!("{repeats}\n{told}"),
                Err(panic) => {
                    eprintln!("{family}: {repeats}");
                    resume_unwind(panic);
                }
            }
        }
        often
    };
    let often = match env_number("SUITE_THREADS") {
        None | Some(0 | 1) => run_some(),
        Some(threads) => thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run_some)).collect();
            let often = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            often.fold([0; N], |all, here| std::array::from_fn(|at| all[at] + here[at]))
        }),
    };
    eprintln!("{family}: {rounds} histories, seeds from {first}");
    for (what, often) in rare.into_iter().zip(often) {
        assert!(rounds < ENOUGH || often >= rounds, "{what}: {often} in {rounds} histories");
    }
}

/// Histories after which each rare event must have happened. With fewer this is not checked.
const ENOUGH: u64 = 50;

/// The journal that a restarted server would find.
pub(crate) struct Log {
    /// Units with the times at which they were made.
    units: Vec<(i64, Unit)>,
    replica: Bench,
    told: Told,
    /// How often the server was killed.
    pub kills: u64,
}

impl Log {
    /// The journal of a server without changes yet. `told` selects the state that must be equal in a repetition.
    pub(crate) fn of(bench: &mut Bench, told: Told) -> Log {
        bench.keep_units();
        Log { units: Vec::new(), replica: Bench::new(0), told, kills: 0 }
    }

    /// Takes in the server's units since the last call. Returns these units; fails if they do not reproduce its data.
    pub(crate) fn follow(&mut self, bench: &mut Bench) -> Result<&[(i64, Unit)], String> {
        let now_ms = bench.engine.ks.now_ms();
        let from = self.units.len();
        for unit in bench.take_units() {
            self.replica.repeat(&unit)?;
            self.units.push((now_ms, unit));
        }
        self.replica.view_at(now_ms);
        let [ours, theirs] = [&*bench, &self.replica].map(|bench| bench.contents(self.told));
        if ours != theirs {
            return Err(format!("the units of the log make\n{theirs}\nof\n{ours}"));
        }
        Ok(&self.units[from..])
    }

    /// Kills the server; another one starts from this journal in its place.
    pub(crate) fn kill(&mut self, bench: &mut Bench) -> Result<(), String> {
        self.kills += 1;
        self.follow(bench)?;
        bench.restart(&self.units)?;
        self.follow(bench).map(drop)
    }
}
