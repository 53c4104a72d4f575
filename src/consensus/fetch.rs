//! Reads entries that have left memory from the files of the log, on a thread beside the core.

use super::limits::BYTES_PER_ENTRY;
use crate::log::replicated::entry::{Entry, Payload};
use crate::log::replicated::log::EntryLog;
use crate::log::replicated::reader::{EntryReader, ReadError};
use crate::log::replicated::types::Index;

/// Entries to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    /// The number to report them by.
    pub(crate) number: u64,
    /// The entry before the first one.
    pub(crate) after: Index,
    /// The last one, if there is room for it.
    pub(crate) last: Index,
    /// Room for the entries, as messages count it. The first one needs none.
    pub(crate) bytes: u64,
}

/// The entries of a fetch are not in the files any more, or can't be read. Followers get a snapshot instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    /// The last entry that can't be read.
    pub(crate) covered: Index,
}

/// Reads for one fetch after the other. A follower that catches up needs one part after the other, so the reader is
/// kept until it has read everything that was asked for. It holds one segment in memory.
#[derive(Default)]
pub(crate) struct Fetcher {
    paused: Option<Paused>,
}

/// A reader in the middle of what a follower needs.
struct Paused {
    reader: EntryReader,
    /// Read already, but there was no room for it.
    next: Entry,
}

impl Fetcher {
    /// Reads the entries of a fetch, all of which must be durable and committed.
    pub(crate) fn read(&mut self, log: &EntryLog, fetch: &Fetch) -> Result<Vec<Entry>, Gone> {
        let mut entries = Vec::new();
        match self.read_into(&mut entries, log, fetch) {
            // What was read before the error is as good as ever; the next fetch meets the error again.
            Err(error) if entries.is_empty() => Err(gone(fetch.after.next(), error)),
            _ => Ok(entries),
        }
    }

    fn read_into(&mut self, entries: &mut Vec<Entry>, log: &EntryLog, fetch: &Fetch) -> Result<(), ReadError> {
        let (mut reader, mut next) = match self.paused.take() {
            Some(Paused { mut reader, next }) if next.index == fetch.after.next() => {
                reader.go_on_until(fetch.last);
                (reader, Some(next))
            }
            _ => {
                let mut reader = log.read_after(fetch.after, fetch.last);
                let first = reader.next_entry()?;
                (reader, first)
            }
        };
        let mut room = fetch.bytes;
        while let Some(entry) = next {
            match room.checked_sub(sent_bytes(&entry)) {
                Some(left) => room = left,
                None if entries.is_empty() => room = 0,
                None => {
                    self.paused = Some(Paused { reader, next: entry });
                    return Ok(());
                }
            }
            entries.push(entry);
            next = reader.next_entry()?;
        }
        Ok(())
    }
}

/// Returns the bytes for which an entry counts in a message.
fn sent_bytes(entry: &Entry) -> u64 {
    let data = match &entry.payload {
        Payload::Block(block) => block.body().len(),
        Payload::Start | Payload::Change(_) => 0,
    };
    (data + BYTES_PER_ENTRY) as u64
}

/// Explains why the entry `first` can't be read.
fn gone(first: Index, error: ReadError) -> Gone {
    match error {
        ReadError::Gone { covered } => Gone { covered },
        ReadError::Log(error) => {
            tracing::error!("entry {first} can't be read, and followers that need it get a snapshot: {error}");
            Gone { covered: first }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::log::disk::Disk;
    use crate::log::replicated::reader::tests::{DIRECTORY, written};

    fn fetch(after: u64, last: u64, entries: u64) -> Fetch {
        Fetch { number: 1, after: Index(after), last: Index(last), bytes: entries * BYTES_PER_ENTRY as u64 }
    }

    fn indices(read: Result<Vec<Entry>, Gone>) -> Vec<u64> {
        read.unwrap().iter().map(|entry| entry.index.0).collect()
    }

    #[test]
    fn a_part_has_as_much_as_there_is_room_for_but_one_entry_at_least() {
        let (_, log) = written();
        let mut fetcher = Fetcher::default();
        assert_eq!(indices(fetcher.read(&log, &fetch(100, 600, 10))), (101..=110).collect::<Vec<_>>());
        assert_eq!(indices(fetcher.read(&log, &fetch(200, 205, 10))), (201..=205).collect::<Vec<_>>());
        assert_eq!(indices(fetcher.read(&log, &fetch(300, 600, 0))), [301]);
    }

    #[test]
    fn the_reader_is_kept_from_part_to_part() {
        let (_, log) = written();
        let mut fetcher = Fetcher::default();
        let mut after = 1;
        while after < 600 {
            let read = indices(fetcher.read(&log, &fetch(after, 600, 7)));
            assert_eq!(read, (after + 1..=(after + 7).min(600)).collect::<Vec<_>>());
            after += read.len() as u64;
            let paused = fetcher.paused.as_ref().map(|paused| paused.next.index.0);
            assert_eq!(paused, (after < 600).then_some(after + 1));
        }
    }

    #[test]
    fn entries_that_are_retired_or_damaged_are_gone() {
        let (disk, log) = written();
        let mut fetcher = Fetcher::default();
        assert!(log.retire(Index(300), Index(300), u64::MAX) > 0);
        while log.do_chore() {}
        let covered = log.begins_behind().unwrap();
        assert_eq!(fetcher.read(&log, &fetch(1, 600, 10)), Err(Gone { covered }));
        for name in disk.list(Path::new(DIRECTORY)).unwrap() {
            disk.flip(&Path::new(DIRECTORY).join(name), 60, 1);
        }
        let first = covered.next();
        assert_eq!(fetcher.read(&log, &fetch(covered.0, 600, 10)), Err(Gone { covered: first }));
    }
}
