//! Client-side caching: the table of clients that may cache keys and must be told when the keys change.
//!
//! A client that tracks keys ([`CachingClient`]) is remembered in a [table](TrackingTable) for each key that it reads,
//! until that key changes: it gets one invalidation, and must read the key again to get another. A client in broadcast
//! mode gets every change of keys that begin with its prefixes, whether it has read them or not, and takes no place in
//! the table.
//!
//! Keys have no database here, as in Redis: a change of an equal name in another database is reported, too. A client
//! that leaves stays in the table until the key changes, or until the list of the key's clients would grow.

use std::collections::{BTreeMap, HashMap};

use crate::base::dense_table::DenseTable;
use crate::base::fit::fit_map;
use crate::base::hasher::hash_bytes;
use crate::base::rng::Rng;
use crate::engine::limits::{TRACKED_KEYS_OVERRUN, TRACKING_LIMIT_KEYS_AT_ONCE};
use crate::keyspace::effect::Place;
use crate::keyspace::limits::FREE_AT_ONCE_ELEMENTS;
use crate::session::caching::CachingClient;

/// The ids of one key's clients, in order, each once. Most keys are cached by one.
#[derive(Debug)]
pub(in crate::engine) enum Clients {
    One(u64),
    Many(Vec<u64>),
}

impl Clients {
    pub(in crate::engine) fn as_slice(&self) -> &[u64] {
        match self {
            Clients::One(id) => std::slice::from_ref(id),
            Clients::Many(ids) => ids,
        }
    }

    /// Adds a client; before the list grows, clients that are gone are removed.
    fn add(&mut self, id: u64, is_there: impl Fn(u64) -> bool) {
        match self {
            Clients::One(known) if *known == id => {}
            Clients::One(known) if is_there(*known) => {
                *self = Clients::Many(vec![id.min(*known), id.max(*known)]);
            }
            Clients::One(known) => *known = id,
            Clients::Many(ids) => {
                let Err(mut place) = ids.binary_search(&id) else { return };
                if ids.len() == ids.capacity() {
                    ids.retain(|id| is_there(*id));
                    place = ids.partition_point(|known| *known < id);
                }
                ids.insert(place, id);
            }
        }
    }
}

/// A key that clients may cache.
#[derive(Debug)]
struct Cached {
    key: Box<[u8]>,
    clients: Clients,
}

/// An invalidation that clients must get.
#[derive(Debug)]
pub(in crate::engine) enum Gone {
    /// These clients may cache this key no longer.
    Key(Box<[u8]>, Clients),
    /// No client may cache anything any longer.
    All,
}

/// See the file's header.
pub struct TrackingTable {
    keys: DenseTable<Cached>,
    items: usize,
    /// The broadcast clients, by prefix.
    prefixes: Prefixes,
    /// The number of clients that track keys.
    clients: usize,
    /// Whether some do, or did until a moment ago.
    reads_changes: bool,
    /// How often in a row the table was still too large after keys were removed.
    overruns: usize,
    rng: Rng,
    /// The place up to which the current unit's touches were noted: its last read.
    pub(in crate::engine) seen: Place,
    /// The invalidations due when the unit is over.
    pub(in crate::engine) due: Vec<Gone>,
}

impl Default for TrackingTable {
    fn default() -> TrackingTable {
        TrackingTable {
            keys: DenseTable::new(),
            items: 0,
            prefixes: Prefixes::default(),
            clients: 0,
            reads_changes: false,
            overruns: 0,
            // The choice of keys that a full table loses need not be secret.
            rng: Rng::seeded(0),
            seen: Place::default(),
            due: Vec::new(),
        }
    }
}

impl TrackingTable {
    /// Whether changes must be read for tracking clients. Ends a little after the last client stops tracking.
    #[inline]
    pub(in crate::engine) fn reads_changes(&self) -> bool {
        self.reads_changes
    }

    /// The number of clients that track keys.
    pub fn clients(&self) -> usize {
        self.clients
    }

    /// The number of keys that clients may cache.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// The number of pairs of key and client.
    pub fn items(&self) -> usize {
        self.items
    }

    /// The number of prefixes with broadcast clients.
    pub fn prefixes(&self) -> usize {
        self.prefixes.clients.len()
    }

    /// Counts a client that begins to track keys.
    pub(in crate::engine) fn add_client(&mut self) {
        self.clients += 1;
        self.reads_changes = true;
    }

    /// Counts a client that tracks keys no longer.
    pub(in crate::engine) fn remove_client(&mut self, id: u64, client: &CachingClient) {
        self.clients -= 1;
        client.prefixes.iter().for_each(|prefix| self.prefixes.remove(prefix, id));
    }

    /// Adds a prefix of a broadcast client.
    pub(in crate::engine) fn add_prefix(&mut self, id: u64, client: &mut CachingClient, prefix: &[u8]) {
        if client.prefixes.insert(prefix.into()) {
            self.prefixes.add(prefix, id);
        }
    }

    /// The prefixes that a key begins with, each with its broadcast clients.
    pub(in crate::engine) fn prefixes_of<'t>(&'t self, key: &'t [u8]) -> impl Iterator<Item = (&'t [u8], &'t [u64])> {
        self.prefixes.of(key)
    }

    /// The broadcast clients of a prefix.
    pub(in crate::engine) fn clients_of(&self, prefix: &[u8]) -> &[u64] {
        self.prefixes.clients.get(prefix).map_or(&[], Vec::as_slice)
    }

    /// Remembers that a client may have cached a key. Returns whether the table holds far more than `max_keys` keys
    /// now; 0 means no limit.
    pub(in crate::engine) fn remember(
        &mut self,
        key: &[u8],
        id: u64,
        max_keys: usize,
        is_there: impl Fn(u64) -> bool,
    ) -> bool {
        let hash = hash_bytes(key);
        if let Some(cached) = self.keys.find_mut(hash, |cached| *cached.key == *key) {
            let before = cached.clients.as_slice().len();
            cached.clients.add(id, is_there);
            self.items = self.items - before + cached.clients.as_slice().len();
        } else {
            self.items += 1;
            let cached = Cached { key: key.into(), clients: Clients::One(id) };
            self.keys.insert_unique(hash, cached, |cached| hash_bytes(&cached.key));
        }
        max_keys > 0 && self.keys.len() > max_keys.saturating_add(TRACKED_KEYS_OVERRUN)
    }

    /// Takes out a changed key, with the clients that may have cached it.
    pub(in crate::engine) fn forget(&mut self, key: &[u8]) -> Option<Clients> {
        let is_it = |cached: &Cached| *cached.key == *key;
        let Cached { clients, .. } = self.keys.remove(hash_bytes(key), is_it, |cached| hash_bytes(&cached.key))?;
        self.items -= clients.as_slice().len();
        Some(clients)
    }

    /// Stops reading changes if no client tracks keys any longer. A client that turns tracking off and on again at once
    /// loses nothing.
    pub(in crate::engine) fn end_unless_used(&mut self) {
        if self.clients == 0 {
            self.forget_all();
            self.reads_changes = false;
        }
    }

    /// Forgets all keys. A large table is freed by a thread of its own.
    pub(in crate::engine) fn forget_all(&mut self) {
        let keys = std::mem::take(&mut self.keys);
        self.items = 0;
        if keys.len() > FREE_AT_ONCE_ELEMENTS {
            // Without a thread it is freed here: the closure is dropped.
            let _ = std::thread::Builder::new().name("free-tracked".to_owned()).spawn(move || drop(keys));
        }
    }

    /// Takes the invalidations due of a unit that is over.
    pub(in crate::engine) fn take_due(&mut self) -> Vec<Gone> {
        self.seen = Place::default();
        std::mem::take(&mut self.due)
    }

    /// Forgets all keys, and tells clients so when the unit is over.
    pub(in crate::engine) fn drop_all(&mut self) {
        self.forget_all();
        if !matches!(self.due.last(), Some(Gone::All)) {
            self.due.push(Gone::All);
        }
    }

    /// Takes out some of the keys in excess of `max_keys`; 0 means no limit. Takes more the more often in a row that
    /// was not enough.
    pub(in crate::engine) fn take_excess(&mut self, max_keys: usize) -> Vec<Gone> {
        let mut gone = Vec::new();
        let is_over = |table: &TrackingTable| max_keys > 0 && table.keys.len() > max_keys;
        for _ in 0..TRACKING_LIMIT_KEYS_AT_ONCE * (self.overruns + 1) {
            if !is_over(self) {
                break;
            }
            let drawn = self.keys.random(|n| self.rng.below(n)).map(|cached| cached.key.clone());
            let Some(key) = drawn else { break };
            let Some(clients) = self.forget(&key) else { break };
            gone.push(Gone::Key(key, clients));
        }
        self.overruns = if is_over(self) { self.overruns + 1 } else { 0 };
        gone
    }
}

/// Prefixes, each with the ids of its broadcast clients.
#[derive(Debug, Default)]
struct Prefixes {
    clients: HashMap<Box<[u8]>, Vec<u64>>,
    /// The number of prefixes of each length: only these lengths are looked up.
    lengths: BTreeMap<usize, usize>,
}

impl Prefixes {
    fn add(&mut self, prefix: &[u8], id: u64) {
        match self.clients.get_mut(prefix) {
            Some(ids) => ids.push(id),
            None => {
                self.clients.insert(prefix.into(), vec![id]);
                *self.lengths.entry(prefix.len()).or_default() += 1;
            }
        }
    }

    fn remove(&mut self, prefix: &[u8], id: u64) {
        let Some(ids) = self.clients.get_mut(prefix) else { return };
        ids.retain(|known| *known != id);
        if !ids.is_empty() {
            return;
        }
        self.clients.remove(prefix);
        fit_map(&mut self.clients);
        if let Some(count) = self.lengths.get_mut(&prefix.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
    }

    fn of<'t>(&'t self, key: &'t [u8]) -> impl Iterator<Item = (&'t [u8], &'t [u64])> {
        let found = |len: &usize| self.clients.get_key_value(&key[..*len]);
        let lengths = self.lengths.range(..=key.len()).map(|(len, _)| len);
        lengths.filter_map(found).map(|(prefix, ids)| (&**prefix, ids.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    /// A step of a test of the table.
    #[derive(Clone, Debug)]
    enum Step {
        Read { key: u8, id: u64 },
        Change { key: u8 },
        Flush,
        Limit { max_keys: usize },
        Leave { id: u64 },
        Subscribe { prefix: u8, id: u64 },
        Unsubscribe { id: u64 },
    }

    fn steps() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..12u8, 1..9u64).prop_map(|(key, id)| Step::Read { key, id }),
            4 => (0..12u8).prop_map(|key| Step::Change { key }),
            1 => Just(Step::Flush),
            1 => (0..12usize).prop_map(|max_keys| Step::Limit { max_keys }),
            1 => (1..9u64).prop_map(|id| Step::Leave { id }),
            2 => (0..6u8, 1..9u64).prop_map(|(prefix, id)| Step::Subscribe { prefix, id }),
            1 => (1..9u64).prop_map(|id| Step::Unsubscribe { id }),
        ]
    }

    /// Short names, of which some begin with others.
    fn name(number: u8) -> Vec<u8> {
        [&b""[..], b"a", b"ab", b"abc", b"b", b"ba", b"aba", b"abab", b"c", b"abcd", b"bab", b"ca"][usize::from(number)]
            .to_vec()
    }

    fn sorted(ids: &[u64]) -> BTreeSet<u64> {
        let set: BTreeSet<u64> = ids.iter().copied().collect();
        assert_eq!(set.len(), ids.len(), "each client is notified once");
        set
    }

    proptest! {
        /// A change is reported to the clients that have read the key since it last changed, and otherwise at most to
        /// clients that have left.
        #[test]
        fn exactly_the_clients_that_may_cache_a_key_are_invalidated(steps in prop::collection::vec(steps(), 1..200)) {
            let mut table = TrackingTable::default();
            let mut clients: BTreeMap<u64, CachingClient> = BTreeMap::new();
            let mut model: BTreeMap<Vec<u8>, BTreeSet<u64>> = BTreeMap::new();
            let mut gone: BTreeSet<u64> = BTreeSet::new();
            for step in steps {
                match step {
                    // Ids are not reused.
                    Step::Read { id, .. } if gone.contains(&id) => {}
                    Step::Read { key, id } => {
                        table.remember(&name(key), id, 0, |id| !gone.contains(&id));
                        model.entry(name(key)).or_default().insert(id);
                    }
                    Step::Change { key } => {
                        let clients = table.forget(&name(key));
                        let told = clients.map(|clients| sorted(clients.as_slice())).unwrap_or_default();
                        let must = model.remove(&name(key)).unwrap_or_default();
                        prop_assert!(told.is_subset(&must), "{told:?} {must:?}");
                        prop_assert!(must.difference(&told).all(|id| gone.contains(id)), "{told:?} {must:?}");
                    }
                    Step::Flush => {
                        table.forget_all();
                        model.clear();
                    }
                    Step::Limit { max_keys } => {
                        for gone in table.take_excess(max_keys) {
                            let Gone::Key(key, _) = gone else { panic!("a key") };
                            prop_assert!(model.remove(&*key).is_some());
                        }
                        prop_assert!(max_keys == 0 || table.keys() <= max_keys);
                    }
                    Step::Leave { id } => {
                        gone.insert(id);
                    }
                    Step::Subscribe { prefix, id } => {
                        let client = clients.entry(id).or_insert_with(|| {
                            table.add_client();
                            CachingClient::default()
                        });
                        table.add_prefix(id, client, &name(prefix));
                    }
                    Step::Unsubscribe { id } => {
                        if let Some(client) = clients.remove(&id) {
                            table.remove_client(id, &client);
                        }
                    }
                }
                prop_assert_eq!(table.keys(), model.len());
                prop_assert!(table.items() <= model.values().map(BTreeSet::len).sum::<usize>());
                prop_assert_eq!(table.clients(), clients.len());
                for number in 0..12 {
                    let key = name(number);
                    let told: BTreeMap<_, _> =
                        table.prefixes_of(&key).map(|(prefix, ids)| (prefix.to_vec(), sorted(ids))).collect();
                    let mut must: BTreeMap<Vec<u8>, BTreeSet<u64>> = BTreeMap::new();
                    for (id, client) in &clients {
                        for prefix in client.prefixes.iter().filter(|prefix| key.starts_with(prefix)) {
                            must.entry(prefix.to_vec()).or_default().insert(*id);
                        }
                    }
                    prop_assert_eq!(told, must);
                }
            }
        }
    }

    #[test]
    fn departed_clients_do_not_fill_the_table() {
        let mut table = TrackingTable::default();
        for id in 1..100_000 {
            table.remember(b"key", id, 0, |known| known + 10 > id);
        }
        assert!(table.items() < 100, "{}", table.items());
    }

    #[test]
    fn growing_numbers_of_keys_are_removed_until_the_table_fits() {
        let mut table = TrackingTable::default();
        for key in 0..1_000u32 {
            table.remember(&key.to_be_bytes(), 1, 0, |_| true);
        }
        let taken: Vec<usize> = (0..4).map(|_| table.take_excess(450).len()).collect();
        assert_eq!(taken, [100, 200, 250, 0]);
        assert_eq!(table.take_excess(449).len(), 1);
        assert!(table.take_excess(0).is_empty());
    }
}
