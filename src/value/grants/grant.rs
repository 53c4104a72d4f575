//! One grant, and the kinds of objects that have grants.

use std::sync::Arc;

/// The kind of object that grants belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One holder, or several that share.
    Lock,
    /// A limited number of units at a time.
    Gate,
    /// A limited number of units in all.
    Stock,
}

impl Kind {
    /// The kind's name in TYPE.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Lock => "lock",
            Kind::Gate => "gate",
            Kind::Stock => "stock",
        }
    }
}

/// One grant, as it is read or set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant<'a> {
    /// The holder's name.
    pub holder: &'a [u8],
    /// The fencing token, larger than those of all earlier grants.
    pub token: u64,
    /// The number of units held, 1 or more.
    pub units: u64,
    /// The time of the grant, Unix ms.
    pub since_ms: i64,
    /// The end of the lease, Unix ms.
    pub until_ms: i64,
    /// The number of times the holder has entered the lock.
    pub entered: u64,
    /// Whether others may hold the lock as well.
    pub shared: bool,
    /// The holder's remark. For a stock's hold: the subject that it is held for, or empty.
    pub note: &'a [u8],
}

impl Grant<'_> {
    /// The grant with another end and note. It borrows nothing from its old place.
    pub fn renewed<'a>(self, holder: &'a [u8], until_ms: i64, note: &'a [u8]) -> Grant<'a> {
        let Grant { token, units, since_ms, entered, shared, .. } = self;
        Grant { holder, token, units, since_ms, until_ms, entered, shared, note }
    }
}

/// A grant that owns its texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedGrant {
    pub(super) holder: Arc<[u8]>,
    pub(super) token: u64,
    pub(super) units: u64,
    pub(super) since_ms: i64,
    pub(super) until_ms: i64,
    pub(super) entered: u64,
    pub(super) shared: bool,
    pub(super) note: Box<[u8]>,
}

impl From<Grant<'_>> for OwnedGrant {
    fn from(grant: Grant<'_>) -> OwnedGrant {
        let Grant { holder, token, units, since_ms, until_ms, entered, shared, note } = grant;
        OwnedGrant { holder: holder.into(), token, units, since_ms, until_ms, entered, shared, note: note.into() }
    }
}

impl OwnedGrant {
    /// The grant, for reading.
    pub fn as_grant(&self) -> Grant<'_> {
        let &OwnedGrant { token, units, since_ms, until_ms, entered, shared, .. } = self;
        Grant { holder: &self.holder, token, units, since_ms, until_ms, entered, shared, note: &self.note }
    }

    /// Bytes that it takes outside the struct.
    pub fn heap_bytes(&self) -> usize {
        2 * size_of::<usize>() + self.holder.len() + self.note.len()
    }
}
