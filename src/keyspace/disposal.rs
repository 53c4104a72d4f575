//! Frees large values on a separate thread. Freeing a million elements takes tens of milliseconds, for which no client
//! should wait.
//!
//! All code that removes or replaces a value hands the value to [`Disposal::free`]. Small values, which are nearly all,
//! are freed at once, since passing them on would cost more. The thread starts with the first large value and sleeps
//! when nothing is left to free.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::any_value::{Value, ValueRef};
use super::db::Db;
use crate::keyspace::limits::{FREE_AT_ONCE_BYTES, FREE_AT_ONCE_ELEMENTS};

/// Elements of a large value that are sampled to estimate its size.
const SIZE_SAMPLES: usize = 5;

/// Frees values at once or on the thread. See the module header.
#[derive(Default)]
pub(super) struct Disposal {
    thread: Option<Sender<Garbage>>,
    /// Whether everything is freed at once, without a thread.
    is_in_place: bool,
    handed_over: u64,
    freed: Arc<AtomicU64>,
    /// Approximate bytes handed over but not yet freed.
    pending_bytes: Arc<AtomicU64>,
}

/// A piece of work for the thread: something to free, with its number of objects as INFO counts them.
struct Garbage {
    objects: u64,
    bytes: u64,
    _what: Box<dyn Send>,
}

impl Disposal {
    /// Frees everything at once from now on. For a keyspace on which no client waits.
    pub(super) fn free_in_place(&mut self) {
        self.is_in_place = true;
    }

    /// Frees a value that has left the keyspace.
    #[inline]
    pub(super) fn free(&mut self, value: Value) {
        if is_large(value.as_ref()) {
            let bytes = value.as_ref().heap_bytes(SIZE_SAMPLES);
            self.hand_over(1, bytes, Box::new(value));
        }
    }

    /// Frees a whole database on the thread.
    pub(super) fn free_database(&mut self, db: Db) {
        // An underestimate: values outside of their entries are not included.
        self.hand_over(db.len() as u64, db.overhead_bytes(), Box::new(db));
    }

    /// Returns how many objects wait to be freed, and how many the thread has freed.
    pub(super) fn counts(&self) -> (u64, u64) {
        let freed = self.freed.load(Ordering::Relaxed);
        (self.handed_over - freed, freed)
    }

    /// Approximate bytes that wait to be freed.
    pub(super) fn pending_bytes(&self) -> u64 {
        self.pending_bytes.load(Ordering::Relaxed)
    }

    /// Counts objects as handed over and freed.
    pub(super) fn count(&mut self, objects: u64) {
        self.handed_over += objects;
        self.freed.fetch_add(objects, Ordering::Relaxed);
    }

    #[cold]
    fn hand_over(&mut self, objects: u64, bytes: usize, what: Box<dyn Send>) {
        let bytes = bytes as u64;
        let garbage = Garbage { objects, bytes, _what: what };
        if self.thread.is_none() && !self.is_in_place {
            self.thread = start(&self.freed, &self.pending_bytes);
        }
        // Without a thread, the value is freed here: either no thread is wanted, or the system could not start one.
        if let Some(thread) = &self.thread {
            self.pending_bytes.fetch_add(bytes, Ordering::Relaxed);
            match thread.send(garbage) {
                Ok(()) => self.handed_over += objects,
                Err(_) => _ = self.pending_bytes.fetch_sub(bytes, Ordering::Relaxed),
            }
        }
    }
}

/// Starts the thread, which ends when its sender is dropped.
fn start(freed: &Arc<AtomicU64>, pending_bytes: &Arc<AtomicU64>) -> Option<Sender<Garbage>> {
    let (sender, receiver) = channel::<Garbage>();
    let (freed, pending_bytes) = (Arc::clone(freed), Arc::clone(pending_bytes));
    let free_all = move || {
        for garbage in receiver {
            let (objects, bytes) = (garbage.objects, garbage.bytes);
            drop(garbage);
            pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
            freed.fetch_add(objects, Ordering::Relaxed);
        }
    };
    thread::Builder::new().name("free".to_owned()).spawn(free_all).ok().map(|_| sender)
}

#[inline]
fn is_large(value: ValueRef<'_>) -> bool {
    match value {
        ValueRef::String(string) => string.heap_bytes() > FREE_AT_ONCE_BYTES,
        ValueRef::List(list) => list.len() > FREE_AT_ONCE_ELEMENTS,
        ValueRef::Set(set) => set.stored_len() > FREE_AT_ONCE_ELEMENTS,
        ValueRef::ZSet(zset) => zset.len() > FREE_AT_ONCE_ELEMENTS,
        ValueRef::Hash(hash) => hash.stored_len() > FREE_AT_ONCE_ELEMENTS,
        ValueRef::Grants(grants) => grants.elements() > FREE_AT_ONCE_ELEMENTS,
        ValueRef::Stream(stream) => {
            // Trimming the entries leaves what groups hold.
            let held = stream.groups().map(|(_, group)| 1 + group.consumers().len() + group.pending_len());
            stream.len() + (stream.delayed_len() + held.sum::<usize>()) as u64 > FREE_AT_ONCE_ELEMENTS as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::set::{Set, SetLimits};
    use crate::value::stream::{Group, Stream, StreamId};

    fn set(members: usize) -> Value {
        let mut set = Set::new();
        (0..members).for_each(|i| {
            set.insert(format!("member-{i}").as_bytes(), &SetLimits::default());
        });
        Value::Set(set)
    }

    #[test]
    fn the_size_of_a_stream_includes_its_groups() {
        let stream = |pending: u64| {
            let mut group = Group::new(StreamId::MIN, None);
            assert!(group.add_consumer(b"c", 0, None, (0..pending).map(|ms| (StreamId { ms, seq: 0 }, 0, 1))));
            let mut stream = Stream::new();
            assert!(stream.group_insert(b"g", group));
            Value::Stream(Box::new(stream))
        };
        assert!(is_large(stream(FREE_AT_ONCE_ELEMENTS as u64).as_ref()) && !is_large(stream(9).as_ref()));
    }

    #[test]
    fn only_large_values_are_freed_on_the_thread() {
        let mut disposal = Disposal::default();
        disposal.free(set(FREE_AT_ONCE_ELEMENTS));
        assert_eq!(disposal.counts(), (0, 0));
        disposal.free(set(FREE_AT_ONCE_ELEMENTS + 1));
        disposal.free_database(Db::new());
        while disposal.counts() != (0, 1) {
            assert_eq!(disposal.counts().0 + disposal.counts().1, 1);
            thread::yield_now();
        }
        assert_eq!(disposal.pending_bytes(), 0);
    }
}
