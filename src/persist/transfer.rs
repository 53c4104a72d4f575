//! A transfer of all data as RDB to a client that asks like a replica: SYNC and PSYNC, which `redis-cli --rdb` uses.
//!
//! The data is walked in slices; each is made when the connection has sent most of the previous ones. So no client is
//! held up, and a slow reader delays the walk instead of filling the outbox. Only one value is held in full: the one
//! being written. Like any reply, a slice is sent only when no crash can take back the data that it shows.
//!
//! A key that exists from the beginning to the end is sent once, with its value and deadline of one instant. That
//! instant differs from key to key: a key renamed during the transfer may be sent under both names, or under neither.
//! For data of a single point in time, stop the writers. Swapping databases ends the transfer.
//!
//! The file's header names the version of Redis 7.0. Readers look at the type of each value, so newer versions read
//! newer types (hashes with fields that expire), and older ones refuse only those. Types that Redis lacks are left out,
//! and the server's log tells how many: locks, gates and stocks, and the delayed messages of streams. A reader that
//! [knows](OWN_TYPES) these types gets them. It also gets the last fencing token at the beginning, so that it issues no
//! token twice.
//!
//! This file holds a transfer; [`crate::engine::persistence::transfer_slices`] advances it.

use std::io;

use crate::base::rng::Rng;
use crate::base::version::REDIS_VERSION;
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::{DbIndex, Keyspace, WALK_END};
use crate::persist::limits::{TRANSFER_KEY_WORK_BYTES, TRANSFER_SLICE_BYTES};
use crate::rdb::file::{TOKENS_NOTE, Writer};
use crate::rdb::{VERSION, value};

/// The capability (`REPLCONF capa`) of a client that knows the types that Redis does not have.
pub(crate) const OWN_TYPES: &[u8] = b"tidegate";

/// Capabilities that a client has declared by REPLCONF.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replica {
    /// Accepts a transfer that ends with a mark instead of one whose length is known in advance.
    pub takes_mark: bool,
    /// Knows the types that Redis does not have.
    pub takes_own_types: bool,
    /// Listens on a port, so it wants to be kept in sync.
    pub listens: bool,
    /// Wants the libraries of functions and no keys.
    pub only_libraries: bool,
}

/// A transfer in progress. See the module's header.
pub struct Transfer {
    writer: Writer<Vec<u8>>,
    /// The mark that ends the file, which nothing in the file equals: 40 random hexadecimal digits.
    mark: String,
    /// The current database, and the position of the walk in it; `None` before the libraries are written.
    position: Option<(DbIndex, u64)>,
    /// Number of databases to walk.
    databases: DbIndex,
    /// Whether nothing is left out.
    is_whole: bool,
    /// Number of swaps of databases at the first slice.
    swaps: Option<u64>,
    keys: u64,
    /// Locks, gates and stocks left out.
    left_out: u64,
    /// Streams whose delayed messages were left out.
    without_delayed: u64,
}

impl Transfer {
    /// Begins to send what `replica` wants from a server with `databases` databases.
    pub(crate) fn begin(replica: Replica, databases: DbIndex, now_ms: i64) -> io::Result<Transfer> {
        let mut random = Rng::from_entropy();
        let mark: String = (0..5).map(|_| format!("{:08x}", random.next_u64() as u32)).collect();
        let mut writer = Writer::new(format!("$EOF:{mark}\r\n").into_bytes(), VERSION);
        let created_s = (now_ms / 1_000).to_string();
        for (name, text) in [("redis-ver", REDIS_VERSION), ("redis-bits", "64"), ("ctime", &created_s)] {
            writer.aux(name, text)?;
        }
        let databases = if replica.only_libraries { 0 } else { databases };
        Ok(Transfer {
            writer,
            mark,
            position: None,
            databases,
            is_whole: replica.takes_own_types,
            swaps: None,
            keys: 0,
            left_out: 0,
            without_delayed: 0,
        })
    }

    /// Writes the next slice. `libraries` are the texts of the libraries of functions. Returns the bytes to send, and
    /// the transfer itself unless it is complete.
    pub(crate) fn slice<'a>(
        mut self: Box<Self>,
        ks: &Keyspace,
        mut libraries: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<(Vec<u8>, Option<Box<Transfer>>)> {
        if self.position.is_none() {
            if self.is_whole {
                self.writer.aux(TOKENS_NOTE, &ks.last_token().to_string())?;
            }
            libraries.try_for_each(|code| self.writer.library(code))?;
        }
        // A swap would exchange databases already walked for others.
        if *self.swaps.get_or_insert(ks.swaps()) != ks.swaps() {
            return Err(io::Error::other("databases were swapped while they were sent"));
        }
        let (mut db, mut at) = self.position.unwrap_or((0, 0));
        let mut left = TRANSFER_SLICE_BYTES;
        while db < self.databases && left > 0 {
            let mut written = Ok(());
            at = ks.walk(db, at, |entry| {
                let Some(entry) = entry else {
                    left = left.saturating_sub(TRANSFER_KEY_WORK_BYTES);
                    return left > 0;
                };
                if !self.is_whole && value::is_own(value::type_code(entry.value())) {
                    self.left_out += 1;
                    left = left.saturating_sub(TRANSFER_KEY_WORK_BYTES);
                    return left > 0;
                }
                let before = self.writer.byte_len();
                self.keys += 1;
                if self.is_whole {
                    written = self.writer.whole_entry(u64::from(db), entry);
                } else {
                    written = self.writer.entry(u64::from(db), entry);
                    if let ValueRef::Stream(stream) = entry.value() {
                        self.without_delayed += u64::from(stream.delayed_len() > 0);
                    }
                }
                let bytes = usize::try_from(self.writer.byte_len() - before).unwrap_or(usize::MAX);
                left = left.saturating_sub(bytes.saturating_add(TRANSFER_KEY_WORK_BYTES));
                left > 0 && written.is_ok()
            });
            written?;
            if at == WALK_END {
                (db, at) = (db + 1, 0);
            }
        }
        if db < self.databases {
            self.position = Some((db, at));
            let made = std::mem::take(self.writer.output_mut());
            return Ok((made, Some(self)));
        }
        if self.is_whole {
            // The token again: locks may have been granted and released since the beginning.
            self.writer.aux(TOKENS_NOTE, &ks.last_token().to_string())?;
        }
        let mut rest = self.writer.finish()?;
        rest.extend_from_slice(self.mark.as_bytes());
        if self.left_out > 0 {
            tracing::warn!(
                keys = self.left_out,
                "left out of the RDB snapshot for a client: locks, gates and stocks, which Redis does not have"
            );
        }
        if self.without_delayed > 0 {
            tracing::warn!(
                streams = self.without_delayed,
                "left out of the RDB snapshot for a client: delayed messages of streams, which Redis does not have"
            );
        }
        tracing::info!(keys = self.keys, "sent a snapshot as RDB; the connection ends with it");
        Ok((rest, None))
    }
}
