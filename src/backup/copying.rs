//! Copying: from the feed of a server into a folder, or into one file.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind};
use std::path::Path;
use std::time::{Duration, Instant};

use super::error::{BackupError, io_error};
use crate::base::limits::IMPORT_PROGRESS_EVERY;
use crate::base::lsn::Lsn;
use crate::feed::{Begun, Feed};
use crate::log::block::units_in;
use crate::log::copy_file::{CopyWriter, Frame};

/// How long to wait for a change before looking at the time.
pub(super) const BLOCK: Duration = Duration::from_secs(1);

/// Bytes that are handed to standard output at once.
const OUTPUT_BYTES: usize = 256 * 1024;

/// Where a copy goes. Parts of the snapshot and blocks behind it may come in turns.
pub(super) trait Sink {
    /// Adds units of the snapshot.
    fn push(&mut self, units: &[u8]) -> Result<(), BackupError>;

    /// Declares the snapshot complete: it holds the data as of `lsn`.
    fn end_snapshot(&mut self, lsn: Lsn) -> Result<(), BackupError>;

    /// Adds units to the journal that were made at one time. They must follow its last unit.
    fn append(&mut self, first: Lsn, time_ms: i64, units: &[u8]) -> Result<(), BackupError>;

    /// Returns the last unit of the journal, or of the snapshot if nothing follows it.
    fn last(&self) -> Lsn;

    /// Returns the bytes of all units that were added.
    fn bytes(&self) -> u64;
}

/// Copies the data up to the present into what `open` makes for the snapshot that comes first, if there is one.
pub(super) fn copy<S: Sink>(
    feed: &mut Feed,
    open: impl FnOnce(Option<&Begun>) -> Result<S, BackupError>,
    print: &mut dyn FnMut(&str),
) -> Result<S, BackupError> {
    let snapshot = feed.snapshot()?;
    let mut sink = open(snapshot.as_ref())?;
    if let Some(snapshot) = snapshot {
        let mut printed = Instant::now();
        while let Some(part) = feed.part()? {
            sink.push(&part.units)?;
            // The server cuts its journal when it makes a snapshot, so what follows is fetched at the same time.
            read_on(feed, &mut sink, Duration::ZERO)?;
            if printed.elapsed() > IMPORT_PROGRESS_EVERY {
                printed = Instant::now();
                let percent = 100.0 * part.read as f64 / snapshot.bytes.max(1) as f64;
                print(&format!("{percent:.0}% of the snapshot, {:.0} MB", part.read as f64 / 1e6));
            }
        }
        sink.end_snapshot(snapshot.lsn)?;
    }
    let until = feed.state()?.last;
    while sink.last() < until {
        read_on(feed, &mut sink, BLOCK)?;
    }
    Ok(sink)
}

/// Adds the next changes, if there are any within `patience`.
pub(super) fn read_on(feed: &mut Feed, sink: &mut impl Sink, patience: Duration) -> Result<(), BackupError> {
    let blocks = feed.read(sink.last(), patience)?;
    blocks.iter().try_for_each(|block| sink.append(block.first, block.time_ms, &block.units))
}

/// Says what was copied.
pub(super) fn report(sink: &impl Sink, begun: Instant) -> String {
    let (last, megabytes, seconds) = (sink.last(), sink.bytes() as f64 / 1e6, begun.elapsed().as_secs_f64());
    format!("copied up to Lsn {last}, {megabytes:.1} MB in {seconds:.1} s")
}

/// A copy in one file, which may be a pipe.
pub(super) struct OneFile {
    writer: CopyWriter<BufWriter<File>>,
    last: Lsn,
    bytes: u64,
}

impl OneFile {
    pub(super) fn begin(out: File, snapshot: Option<&Begun>) -> Result<OneFile, BackupError> {
        let writer = CopyWriter::begin(BufWriter::with_capacity(OUTPUT_BYTES, out)).map_err(refused)?;
        let mut file = OneFile { writer, last: Lsn::NONE, bytes: 0 };
        if let Some(&Begun { lsn, time_ms, .. }) = snapshot {
            file.write(Frame::Snapshot { lsn, time_ms })?;
            file.last = lsn;
        }
        Ok(file)
    }

    /// Declares the copy complete, and makes it durable where that has a meaning.
    pub(super) fn end(self) -> Result<(), BackupError> {
        let out = self.writer.end(self.last).map_err(refused)?;
        match out.get_ref().sync_all() {
            // A pipe.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
            synced => synced.map_err(refused),
        }
    }

    fn write(&mut self, frame: Frame<'_>) -> Result<(), BackupError> {
        self.writer.write(frame).map_err(refused)
    }
}

impl Sink for OneFile {
    fn push(&mut self, units: &[u8]) -> Result<(), BackupError> {
        self.bytes += units.len() as u64;
        self.write(Frame::Part { units })
    }

    fn end_snapshot(&mut self, _lsn: Lsn) -> Result<(), BackupError> {
        Ok(())
    }

    fn append(&mut self, first: Lsn, time_ms: i64, units: &[u8]) -> Result<(), BackupError> {
        self.bytes += units.len() as u64;
        self.last = self.last.plus(units_in(units, first).count() as u64);
        self.write(Frame::Block { first, time_ms, units })
    }

    fn last(&self) -> Lsn {
        self.last
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn refused(error: io::Error) -> BackupError {
    io_error(Path::new("standard output"))(error)
}
