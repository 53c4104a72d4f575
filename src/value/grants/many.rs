//! Many grants: trees by token, by holder, and by lease end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::grant::{Grant, OwnedGrant};

/// See the module's header.
#[derive(Clone, Default)]
pub(super) struct Many {
    by_token: BTreeMap<u64, OwnedGrant>,
    by_holder: BTreeMap<Arc<[u8]>, u64>,
    ends: BTreeSet<(i64, u64)>,
    units: u64,
    /// The length of all holders and notes, in bytes.
    text_bytes: usize,
}

impl Many {
    /// Collects the given grants.
    pub(super) fn of<'a>(grants: impl Iterator<Item = Grant<'a>>) -> Many {
        let mut many = Many::default();
        grants.for_each(|grant| many.set(grant));
        many
    }

    /// The number of grants.
    pub(super) fn len(&self) -> usize {
        self.by_token.len()
    }

    /// Units of all grants.
    pub(super) fn units(&self) -> u64 {
        self.units
    }

    /// The grant of a holder.
    pub(super) fn get(&self, holder: &[u8]) -> Option<Grant<'_>> {
        let token = self.by_holder.get(holder)?;
        self.by_token.get(token).map(OwnedGrant::as_grant)
    }

    /// The largest token.
    pub(super) fn last_token(&self) -> u64 {
        self.by_token.last_key_value().map_or(0, |(token, _)| *token)
    }

    /// The grants with a token of `token` or more, in the order of their tokens.
    pub(super) fn from(&self, token: u64) -> impl Iterator<Item = Grant<'_>> {
        self.by_token.range(token..).map(|(_, grant)| grant.as_grant())
    }

    /// The ends of leases in ascending order, each with the token of its grant.
    pub(super) fn ends(&self) -> impl DoubleEndedIterator<Item = (i64, u64)> {
        self.ends.iter().copied()
    }

    /// The units of the grant with this token; 0 if there is none.
    pub(super) fn units_of(&self, token: u64) -> u64 {
        self.by_token.get(&token).map_or(0, |grant| grant.units)
    }

    /// The grant whose lease ends first.
    pub(super) fn first_end(&self) -> Option<Grant<'_>> {
        let (_, token) = self.ends.first()?;
        self.by_token.get(token).map(OwnedGrant::as_grant)
    }

    /// Whether a grant can be [set](Self::set): its holder has no grant with another token, and no other holder has its
    /// token.
    pub(super) fn fits(&self, grant: &Grant<'_>) -> bool {
        let of_token = self.by_token.get(&grant.token).map(|other| &*other.holder);
        let of_holder = self.by_holder.get(grant.holder);
        match (of_token, of_holder) {
            (None, None) => true,
            (Some(holder), Some(token)) => holder == grant.holder && *token == grant.token,
            _ => false,
        }
    }

    /// Gives a holder this grant. It must [fit](Self::fits).
    pub(super) fn set(&mut self, grant: Grant<'_>) {
        // The old key holds the old grant's copy of the name and would stay alive beside the new one.
        self.remove(grant.holder);
        let owned = OwnedGrant::from(grant);
        self.by_holder.insert(Arc::clone(&owned.holder), grant.token);
        self.ends.insert((grant.until_ms, grant.token));
        self.units += grant.units;
        self.text_bytes += grant.holder.len() + grant.note.len();
        self.by_token.insert(grant.token, owned);
    }

    /// Removes a holder's grant. Returns false if it has none.
    pub(super) fn remove(&mut self, holder: &[u8]) -> bool {
        let Some(token) = self.by_holder.remove(holder) else { return false };
        if let Some(grant) = self.by_token.remove(&token) {
            self.ends.remove(&(grant.until_ms, token));
            self.units -= grant.units;
            self.text_bytes -= grant.holder.len() + grant.note.len();
        }
        true
    }

    /// Bytes allocated, including the struct itself, approximately.
    pub(super) fn mem_bytes(&self) -> usize {
        // The trees' nodes are three quarters full.
        let trees =
            size_of::<OwnedGrant>() + 2 * size_of::<u64>() + size_of::<(Arc<[u8]>, u64)>() + size_of::<(i64, u64)>();
        size_of::<Many>() + self.len() * (trees * 4 / 3 + 2 * size_of::<usize>()) + self.text_bytes
    }
}
