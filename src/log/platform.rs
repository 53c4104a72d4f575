//! What the log and its snapshots run on: a disk, a clock, threads.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use super::disk::{Clock, Disk, RealClock, RealDisk};
use super::group_commit::Options;
use crate::base::limits::{SAVE_SLICE_BYTES, SNAPSHOT_PART_MIN_BYTES};

/// The real ones are the [`Default`]; a simulation has its own.
#[derive(Clone)]
pub struct Platform {
    /// Where files are.
    pub disk: Arc<dyn Disk>,
    /// Time for syncs.
    pub clock: Arc<dyn Clock>,
    /// The log's sizes. When it syncs says the configuration.
    pub options: Options,
    /// Bytes of effects that a snapshot copies in one slice, between other work.
    pub slice_bytes: usize,
    /// Bytes of a value from which on a snapshot copies it in parts.
    pub part_min_bytes: usize,
    /// Whether there are threads. Without them whoever asks for something does it, or somebody calls
    /// [`Log::step`](super::group_commit::Log::step), [`Log::do_chore`](super::group_commit::Log::do_chore) and
    /// [`SnapshotWriter::step`](super::snapshot::writer::SnapshotWriter::step).
    pub has_threads: bool,
}

impl Default for Platform {
    fn default() -> Platform {
        Platform {
            disk: Arc::new(RealDisk),
            clock: Arc::new(RealClock::default()),
            options: Options::default(),
            slice_bytes: SAVE_SLICE_BYTES,
            part_min_bytes: SNAPSHOT_PART_MIN_BYTES,
            has_threads: true,
        }
    }
}

/// Something that a thread does because it may take as long as a disk does.
pub struct Job<T>(Receiver<Result<T, String>>);

impl Platform {
    /// Has a thread of this name do `work`, and then call `done`. Fails if the system has no thread.
    pub fn begin<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
        done: impl FnOnce() + Send + 'static,
    ) -> io::Result<Job<T>> {
        let (sender, receiver) = channel();
        let run = move || {
            // Whoever asked may have lost interest.
            let _ = sender.send(work());
            done();
        };
        if self.has_threads {
            thread::Builder::new().name(name.to_owned()).spawn(run)?;
        } else {
            run();
        }
        Ok(Job(receiver))
    }
}

impl<T> Job<T> {
    /// Waits until its thread is done.
    pub fn wait(self) {
        // One that was dropped has ended as well.
        let _ = self.0.recv();
    }

    /// What has come of it; `None` while it is under way. To be asked until it has answered once.
    pub fn outcome(&self) -> Option<Result<T, String>> {
        match self.0.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err("its thread has ended before".to_owned())),
        }
    }
}
