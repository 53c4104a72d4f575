//! One grant, and what it is of.

use std::sync::Arc;

/// What the grants are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One holder, or several who share.
    Lock,
    /// So many units at a time.
    Gate,
    /// So many units in all.
    Stock,
}

impl Kind {
    /// What TYPE answers.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Lock => "lock",
            Kind::Gate => "gate",
            Kind::Stock => "stock",
        }
    }
}

/// One grant, as it is read or given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant<'a> {
    /// Who holds it.
    pub holder: &'a [u8],
    /// Larger than those of all grants before it.
    pub token: u64,
    /// How many units it holds, 1 or more.
    pub units: u64,
    /// When it was given, Unix ms.
    pub since_ms: i64,
    /// When its lease ends, Unix ms.
    pub until_ms: i64,
    /// How often a lock was entered by its holder.
    pub entered: u64,
    /// Whether others may hold the lock as well.
    pub shared: bool,
    /// What the holder said about it. Of a stock's hold: the subject for which it is held, empty for none.
    pub note: &'a [u8],
}

impl Grant<'_> {
    /// The same grant with another end and note. It borrows nothing from where it was.
    pub fn renewed<'a>(self, holder: &'a [u8], until_ms: i64, note: &'a [u8]) -> Grant<'a> {
        let Grant { token, units, since_ms, entered, shared, .. } = self;
        Grant { holder, token, units, since_ms, until_ms, entered, shared, note }
    }
}

/// A grant that is kept elsewhere.
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
    /// The grant, to read it.
    pub fn as_grant(&self) -> Grant<'_> {
        let &OwnedGrant { token, units, since_ms, until_ms, entered, shared, .. } = self;
        Grant { holder: &self.holder, token, units, since_ms, until_ms, entered, shared, note: &self.note }
    }

    /// Bytes that it takes outside of itself.
    pub fn heap_bytes(&self) -> usize {
        2 * size_of::<usize>() + self.holder.len() + self.note.len()
    }
}
