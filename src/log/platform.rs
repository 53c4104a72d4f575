//! What the log and its snapshots run on: a disk, a clock, threads.

use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::disk::{Clock, Disk, RealClock, RealDisk};
use super::group_commit::Options;
use crate::base::limits::{LOAD_PIECE_BYTES, SAVE_SLICE_BYTES, SNAPSHOT_PART_MIN_BYTES};

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
    /// Bytes that a piece takes, about, in which a start reads snapshot and log.
    pub load_piece_bytes: usize,
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
            load_piece_bytes: LOAD_PIECE_BYTES,
            has_threads: true,
        }
    }
}

/// Something that a thread does because it may take as long as a disk does.
pub struct Job<T>(Receiver<Result<T, String>>);

/// What is done beside by a thread and asked for nothing but whether it has ended, by any number of others.
#[derive(Clone)]
pub struct Ending(Arc<Mutex<Job<()>>>);

impl Ending {
    /// Waits until it has ended.
    pub fn wait(&self) {
        let job = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // When it has ended, nobody is left to send anything.
        while job.0.recv().is_ok() {}
    }
}

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

    /// Has a thread of this name do `work`; if the system has no thread, does it here.
    pub fn begin_or_do(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Ending {
        begin_or_do(work, |work| self.begin(name, work, || {}))
    }
}

/// [`Platform::begin_or_do`] with a thread that `begin` starts.
fn begin_or_do<W: FnOnce() + Send + 'static>(
    work: W,
    begin: impl FnOnce(Box<dyn FnOnce() -> Result<(), String> + Send>) -> io::Result<Job<()>>,
) -> Ending {
    // A thread that can't be started drops what it was given.
    let work = Arc::new(Mutex::new(Some(work)));
    let shared = Arc::clone(&work);
    let once = |work: &Mutex<Option<W>>| {
        let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(work) = work {
            work();
        }
    };
    let job = begin(Box::new(move || {
        once(&shared);
        Ok(())
    }));
    let job = job.unwrap_or_else(|_| {
        once(&work);
        Job(channel().1)
    });
    Ending(Arc::new(Mutex::new(job)))
}

impl<T> Job<T> {
    /// What has come of it; `None` while it is under way. To be asked until it has answered once.
    pub fn outcome(&self) -> Option<Result<T, String>> {
        match self.0.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err("its thread has ended before".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn what_no_thread_can_be_had_for_is_done_all_the_same() {
        let done = Arc::<AtomicU32>::default();
        let count = Arc::clone(&done);
        let work = move || _ = count.fetch_add(1, Ordering::Relaxed);
        let ending = begin_or_do(work, |_| Err(io::ErrorKind::WouldBlock.into()));
        assert_eq!(done.load(Ordering::Relaxed), 1);
        ending.wait();
    }

    #[test]
    fn all_who_wait_for_an_ending_wait_until_it_is_there() {
        let (end, goes_on) = channel::<()>();
        let ending = Platform::default().begin_or_do("test", move || _ = goes_on.recv());
        let waiting = [(); 2].map(|()| {
            let ending = ending.clone();
            thread::spawn(move || ending.wait())
        });
        thread::sleep(std::time::Duration::from_millis(20));
        assert!(waiting.iter().all(|thread| !thread.is_finished()));
        drop(end);
        waiting.into_iter().for_each(|thread| thread.join().expect("it only waits"));
        ending.wait();
    }
}
