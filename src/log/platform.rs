//! The platform that the journal and its snapshots run on: a disk, a clock, threads.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::disk::{Clock, Disk, RealClock, RealDisk};
use super::group_commit::Options;
use crate::base::limits::SNAPSHOT_PART_MIN_BYTES;
use crate::log::limits::{LOAD_PIECE_BYTES, SAVE_SLICE_BYTES};

/// The journal's platform. The [`Default`] is the real one; a simulation brings its own.
#[derive(Clone)]
pub struct Platform {
    /// The disk that holds the files.
    pub disk: Arc<dyn Disk>,
    /// The clock that times syncs.
    pub clock: Arc<dyn Clock>,
    /// The journal's sizes. The configuration says when it syncs.
    pub options: Options,
    /// Bytes of effects that a snapshot copies in one slice, between other work.
    pub slice_bytes: usize,
    /// Size in bytes from which a snapshot copies a value in parts.
    pub part_min_bytes: usize,
    /// Approximate size in bytes of the pieces in which a start reads the snapshot and the journal.
    pub load_piece_bytes: usize,
    /// Whether there are threads. Without them, the caller that asks for work does it, or a caller drives
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

/// Work that runs on a thread of its own because it may take as long as a disk does.
pub struct Job<T>(Receiver<Result<T, String>>);

/// A thread that does one piece of work after the other. It ends once this is dropped and its work is done.
pub struct Worker {
    /// `None` where there are no threads: the caller does the work.
    work: Option<Sender<Box<dyn FnOnce() + Send>>>,
}

/// The end of work on another thread. Any number of holders may wait for it; nothing but the end can be observed.
#[derive(Clone)]
pub struct Ending(Arc<Mutex<Job<()>>>);

impl Ending {
    /// Waits until the work has ended.
    pub fn wait(&self) {
        let job = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Once the work has ended, no sender is left.
        while job.0.recv().is_ok() {}
    }
}

impl Platform {
    /// Runs `work`, and then `done`, on a thread of this name. Fails if the system can't start a thread.
    pub fn begin<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
        done: impl FnOnce() + Send + 'static,
    ) -> io::Result<Job<T>> {
        let (run, job) = job(work, done);
        if self.has_threads {
            thread::Builder::new().name(name.to_owned()).spawn(run)?;
        } else {
            run();
        }
        Ok(job)
    }

    /// Starts a thread of this name for work that comes again and again. The thread calls `prepare` first. Fails if the
    /// system can't start one.
    pub fn worker(&self, name: &str, prepare: impl FnOnce() + Send + 'static) -> io::Result<Worker> {
        if !self.has_threads {
            return Ok(Worker { work: None });
        }
        let (sender, receiver) = channel::<Box<dyn FnOnce() + Send>>();
        let run = move || {
            prepare();
            receiver.into_iter().for_each(|work| work());
        };
        thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Worker { work: Some(sender) })
    }

    /// Runs `work` on a thread of this name, or on the calling thread if the system can't start one.
    pub fn begin_or_do(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Ending {
        begin_or_do(work, |work| self.begin(name, work, || {}))
    }
}

impl Worker {
    /// Runs `work`, and then `done`, behind the work it already has.
    pub fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
        done: impl FnOnce() + Send + 'static,
    ) -> Job<T> {
        let (run, job) = job(work, done);
        match &self.work {
            // Without the thread the work is dropped, and the job says that it ended early.
            Some(thread) => _ = thread.send(Box::new(run)),
            None => run(),
        }
        job
    }
}

/// Makes of `work`, and of `done` behind it, what a thread runs and what its caller keeps.
fn job<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
    done: impl FnOnce() + Send + 'static,
) -> (impl FnOnce() + Send + 'static, Job<T>) {
    let (sender, receiver) = channel();
    let run = move || {
        // The receiver may have been dropped.
        let _ = sender.send(work());
        done();
    };
    (run, Job(receiver))
}

/// Does [`Platform::begin_or_do`] with a thread that `begin` starts.
fn begin_or_do<W: FnOnce() + Send + 'static>(
    work: W,
    begin: impl FnOnce(Box<dyn FnOnce() -> Result<(), String> + Send>) -> io::Result<Job<()>>,
) -> Ending {
    // Starting a thread consumes its closure even if it fails, so the work is kept here as well.
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
    /// Returns the outcome; `None` while the work is under way. Must not be called again after it has returned an
    /// outcome.
    pub fn outcome(&self) -> Option<Result<T, String>> {
        match self.0.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err("its thread ended early".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn work_is_done_even_if_no_thread_can_be_started() {
        let done = Arc::<AtomicU32>::default();
        let count = Arc::clone(&done);
        let work = move || _ = count.fetch_add(1, Ordering::Relaxed);
        let ending = begin_or_do(work, |_| Err(io::ErrorKind::WouldBlock.into()));
        assert_eq!(done.load(Ordering::Relaxed), 1);
        ending.wait();
    }

    #[test]
    fn a_worker_does_all_that_it_has_in_order_after_its_preparation() {
        let (done, ended) = channel();
        for has_threads in [true, false] {
            let platform = Platform { has_threads, ..Platform::default() };
            let prepared = done.clone();
            let prepare = move || prepared.send(0).expect("it is awaited");
            let worker = platform.worker("test", prepare).expect("a thread");
            let jobs = [1, 2, 3].map(|number| {
                let done = done.clone();
                worker.begin(move || Ok(number), move || done.send(number).expect("it is awaited"))
            });
            drop(worker);
            // Only a thread is prepared.
            assert!(!has_threads || ended.recv() == Ok(0), "it was prepared first");
            assert_eq!([(); 3].map(|()| ended.recv().expect("all are done")), [1, 2, 3]);
            assert_eq!(jobs.map(|job| job.outcome()), [1, 2, 3].map(|number| Some(Ok(number))));
        }
    }

    #[test]
    fn every_waiter_is_notified_at_the_end() {
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
