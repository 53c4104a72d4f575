//! The two threads of a journal: one writes what is handed over, the other prepares segments.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::shared::Shared;
use super::types::State;

/// The threads of one journal, or none, where its owner does their work.
#[derive(Default)]
pub(super) struct Threads(Vec<JoinHandle<()>>);

impl Threads {
    /// Starts both. `write` does one round of writing, and returns the journal's state and whether anything advanced.
    pub(super) fn start(
        &mut self,
        shared: &Arc<Shared>,
        write: impl FnMut() -> (State, bool) + Send + 'static,
    ) -> io::Result<()> {
        let writing = Arc::clone(shared);
        self.0.push(thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&writing, write))?);
        let preparing = Arc::clone(shared);
        self.0.push(thread::Builder::new().name("log-files".to_owned()).spawn(move || prepare_all(&preparing))?);
        Ok(())
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ends them.
    pub(super) fn stop(&mut self, shared: &Shared) {
        shared.close();
        for thread in self.0.drain(..) {
            // A thread that has panicked has ended, too.
            let _ = thread.join();
        }
    }
}

fn write_all(shared: &Shared, mut write: impl FnMut() -> (State, bool)) {
    let mut is_stuck = false;
    while shared.wait_for_work(is_stuck) {
        let (state, has_advanced) = write();
        is_stuck = state == State::Full;
        if has_advanced {
            shared.notify();
        }
    }
}

fn prepare_all(shared: &Shared) {
    while shared.wait_for_chores() {
        let mut began = shared.clock.monotonic();
        while !shared.is_closing() && shared.do_chore() {
            shared.rest_after_chore(shared.clock.monotonic().saturating_sub(began));
            began = shared.clock.monotonic();
        }
    }
}
