//! All data as RDB for a client that asks as a replica does: SYNC and PSYNC, which `redis-cli --rdb` uses.
//!
//! The data is walked in slices, each when the connection has sent most of what was made before: so nobody is held up,
//! and a reader that is slow makes the walk wait, not the outbox grow. Only one value is held in full, the one that is
//! written. What a slice shows leaves when no crash can take it back, like any reply.
//!
//! A key that is there from the beginning to the end is sent once, with the value and the deadline of one instant. It
//! is not the same instant for all keys: one that is renamed meanwhile may be sent under both names, or under none. Who
//! wants one point in time stops the writers. Databases that are swapped end the transfer.
//!
//! The file says that it is of the version of Redis 7.0. Readers look at the type of each value, so newer ones read
//! what is newer (hashes with fields that expire), and older ones refuse just that. What Redis does not have is left
//! out, and the log says how much: locks, gates and stocks, and of streams the delayed messages. Who [knows](OWN_TYPES)
//! these types gets them, and at the beginning the last fencing token, so that it gives out none once more.
//!
//! This file holds a transfer; [`crate::engine::persistence::transfer_slices`] moves it on.

use std::io;

use crate::base::limits::{TRANSFER_KEY_WORK_BYTES, TRANSFER_SLICE_BYTES};
use crate::base::rng::Rng;
use crate::base::version::REDIS_VERSION;
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::{DbIndex, Keyspace, WALK_END};
use crate::rdb::file::{TOKENS_NOTE, Writer};
use crate::rdb::{VERSION, value};

/// What a client of this kind says that it can do (`REPLCONF capa`): it knows the types that Redis does not have.
pub(crate) const OWN_TYPES: &[u8] = b"tidegate";

/// What a client has said of itself by REPLCONF.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replica {
    /// It takes a transfer that ends with a mark instead of one whose length is known before.
    pub takes_mark: bool,
    /// It knows the types that Redis does not have.
    pub takes_own_types: bool,
    /// It listens at a port, so it wants to be kept in sync.
    pub listens: bool,
    /// It wants the libraries of functions and no keys.
    pub only_libraries: bool,
}

/// A transfer under way. See the module's header.
pub struct Transfer {
    writer: Writer<Vec<u8>>,
    /// What ends the file, which nothing in it looks like: 40 hexadecimal digits.
    mark: String,
    /// The database that is walked, and where the walk stands; `None` before the libraries are written.
    position: Option<(DbIndex, u64)>,
    /// How many databases are walked.
    databases: DbIndex,
    /// Whether nothing is left out.
    is_whole: bool,
    /// How often databases had been swapped when the first slice was made.
    swaps: Option<u64>,
    keys: u64,
    /// Locks, gates and stocks, which were left out.
    left_out: u64,
    /// Streams of which the delayed messages were left out.
    without_delayed: u64,
}

impl Transfer {
    /// Begins to send what `replica` wants of a server of so many databases.
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

    /// Writes on. `libraries` are the texts of the libraries of functions. Answers what is to be sent, and itself if
    /// that is not all.
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
        // What is walked would change places with what has been.
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
            // Those of grants that came and went meanwhile, too.
            self.writer.aux(TOKENS_NOTE, &ks.last_token().to_string())?;
        }
        let mut rest = self.writer.finish()?;
        rest.extend_from_slice(self.mark.as_bytes());
        if self.left_out > 0 {
            tracing::warn!(
                keys = self.left_out,
                "left out of what was sent as RDB: locks, gates and stocks, which Redis does not have"
            );
        }
        if self.without_delayed > 0 {
            tracing::warn!(
                streams = self.without_delayed,
                "left out of what was sent as RDB: delayed messages of streams, which Redis does not have"
            );
        }
        tracing::info!(keys = self.keys, "sent a snapshot as RDB; the link ends with it");
        Ok((rest, None))
    }
}
