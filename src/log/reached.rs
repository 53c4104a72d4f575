//! The seeds of a simulation, and counters of the states that it must reach to be worth something: a run that leaves
//! one at zero fails.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns `SUITE_ROUNDS` seeds from `SUITE_SEED` on, or else `rounds` from 0 on.
pub(crate) fn seeds(rounds: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("SUITE_SEED").unwrap_or(0);
    first..first + number("SUITE_ROUNDS").unwrap_or(rounds)
}

/// Runs a simulation. Returns its outcome, or the words with which it has panicked: the fault that was found.
pub(crate) fn fault_of<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

/// Declares `struct Reached` with a counter for each name, and a description of what the counter counts.
macro_rules! reached {
    ($($name:ident $what:literal)*) => {
        /// Counters of how often a run has passed the places where bugs like to hide.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        struct Reached {
            $($name: u64,)*
        }

        impl Reached {
            fn missing(&self) -> Vec<&'static str> {
                [$((self.$name, $what)),*].iter().filter(|(count, _)| *count == 0).map(|(_, what)| *what).collect()
            }

            fn add(&mut self, other: &Reached) {
                $(self.$name += other.$name;)*
            }
        }
    };
}
pub(crate) use reached;
