//! HOTKEYS: the keys that take the most time, and the most bytes of requests and replies.
//!
//! While a collection runs, the [command log](super::command_log) looks at every command, so a server without one pays
//! nothing. The cost of a command is divided among its keys. Each metric has a table of some hundred keys by the
//! algorithm *space-saving* (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in
//! data streams", 2005): a key without a place takes the place of the key with the least sum, and is credited with that
//! sum. So every key that takes more than its share of the table is in it. The sums shown exclude the credit, hence are
//! never more than was seen.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::base::os::process::{CpuTime, cpu_time};
use crate::base::rng::Rng;
use crate::meters::limits::{HOTKEYS_KEY_MAX_BYTES, HOTKEYS_TRACKED_PER_SHOWN};
use crate::resp::request::Argv;
use crate::spec::KeyArg;

/// The options of HOTKEYS START.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Whether time is measured.
    pub cpu: bool,
    /// Whether bytes are measured.
    pub net: bool,
    /// How many keys are shown per metric.
    pub count: usize,
    /// How long the collection lasts; without end if `None`.
    pub duration_ms: Option<i64>,
    /// One of this many commands is sampled.
    pub sample_ratio: u64,
}

/// A collection and its results.
#[derive(Debug)]
pub struct HotKeys {
    /// Its options.
    pub wanted: Wanted,
    /// When it began, Unix ms.
    pub started_ms: i64,
    /// When it began by the steady clock, from which all durations are taken.
    started_steady_ms: i64,
    cpu_at_start: CpuTime,
    /// When it ended and how much processor time it took; `None` while it runs.
    ended: Option<(i64, CpuTime)>,
    /// Ticks that all commands with keys took, sampled or not.
    pub ticks: u64,
    /// Bytes of their requests and replies.
    pub bytes: u64,
    /// Bytes of the requests and replies of sampled commands.
    pub sampled_bytes: u64,
    by_ticks: Ranking,
    by_bytes: Ranking,
    rng: Rng,
}

impl HotKeys {
    /// Begins a collection.
    pub fn start(wanted: Wanted, now_ms: i64, steady_ms: i64) -> HotKeys {
        let places = |is_wanted: bool| if is_wanted { wanted.count * HOTKEYS_TRACKED_PER_SHOWN } else { 0 };
        HotKeys {
            wanted,
            started_ms: now_ms,
            started_steady_ms: steady_ms,
            cpu_at_start: cpu_time(),
            ended: None,
            ticks: 0,
            bytes: 0,
            sampled_bytes: 0,
            by_ticks: Ranking::new(places(wanted.cpu)),
            by_bytes: Ranking::new(places(wanted.net)),
            rng: Rng::seeded(now_ms as u64),
        }
    }

    /// Bytes that it holds.
    pub(crate) fn mem_bytes(&self) -> usize {
        size_of::<HotKeys>() + self.by_ticks.mem_bytes() + self.by_bytes.mem_bytes()
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        self.ended.is_none()
    }

    /// Ends the collection, if it runs; its results stay.
    pub(crate) fn stop(&mut self, steady_ms: i64) {
        let took_ms = steady_ms - self.started_steady_ms;
        self.ended.get_or_insert_with(|| (took_ms, cpu_time().since(self.cpu_at_start)));
    }

    /// Whether its time is over.
    pub(crate) fn is_due(&self, steady_ms: i64) -> bool {
        let took_ms = steady_ms - self.started_steady_ms;
        self.is_running() && self.wanted.duration_ms.is_some_and(|duration_ms| took_ms >= duration_ms)
    }

    /// How long the collection has run, ms, and the processor time of the server during it.
    pub fn took(&self, steady_ms: i64) -> (i64, CpuTime) {
        self.ended.unwrap_or_else(|| (steady_ms - self.started_steady_ms, cpu_time().since(self.cpu_at_start)))
    }

    /// Counts a call of a command with keys, by its ticks and its bytes of request and reply. `find_keys` is only
    /// called for a sampled call.
    pub(crate) fn note(&mut self, argv: Argv<'_>, find_keys: impl FnOnce() -> Vec<KeyArg>, ticks: u64, bytes: u64) {
        self.ticks += ticks;
        self.bytes += bytes;
        if self.rng.below(self.wanted.sample_ratio) > 0 {
            return;
        }
        self.sampled_bytes += bytes;
        let keys = find_keys();
        for key in keys.iter().map(|key| &argv[key.index]).filter(|key| key.len() <= HOTKEYS_KEY_MAX_BYTES) {
            self.by_ticks.add(key, ticks / keys.len() as u64);
            self.by_bytes.add(key, bytes / keys.len() as u64);
        }
    }

    /// The keys that took the most ticks, with their ticks, in descending order.
    pub fn by_ticks(&self) -> Vec<(&[u8], u64)> {
        self.by_ticks.first(self.wanted.count)
    }

    /// The keys that took the most bytes, with their bytes, in descending order.
    pub fn by_bytes(&self) -> Vec<(&[u8], u64)> {
        self.by_bytes.first(self.wanted.count)
    }
}

/// Bytes of an `Arc`'s counters.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// The keys with the largest sums, approximately. See the module's header.
#[derive(Debug)]
struct Ranking {
    max_places: usize,
    places: Vec<Place>,
    /// The place of each key.
    place_of: HashMap<Arc<[u8]>, usize>,
    /// The sums of all places, in order, so that the least is found at once.
    by_sum: BTreeSet<(u64, usize)>,
}

impl Ranking {
    fn mem_bytes(&self) -> usize {
        let keys: usize = self.places.iter().map(|place| COUNTS_BYTES + place.key.len()).sum();
        // The map has a byte for each of its places, of which it leaves an eighth free.
        let map = self.place_of.capacity() * 8 / 7 * (size_of::<(Arc<[u8]>, usize)>() + 1);
        // Nodes of a tree are about two thirds full.
        let tree = self.by_sum.len() * size_of::<(u64, usize)>() * 3 / 2;
        self.places.capacity() * size_of::<Place>() + keys + map + tree
    }
}

#[derive(Debug)]
struct Place {
    key: Arc<[u8]>,
    sum: u64,
    /// The part of the sum that belongs to other keys.
    credit: u64,
}

impl Ranking {
    /// With no places it counts nothing.
    fn new(max_places: usize) -> Ranking {
        Ranking { max_places, places: Vec::new(), place_of: HashMap::new(), by_sum: BTreeSet::new() }
    }

    fn add(&mut self, key: &[u8], amount: u64) {
        if amount == 0 || self.max_places == 0 {
            return;
        }
        if let Some(&at) = self.place_of.get(key) {
            let place = &mut self.places[at];
            self.by_sum.remove(&(place.sum, at));
            place.sum += amount;
            self.by_sum.insert((place.sum, at));
            return;
        }
        let key: Arc<[u8]> = key.into();
        let free = self.places.len();
        let (at, credit) = if free < self.max_places {
            self.places.push(Place { key: Arc::clone(&key), sum: amount, credit: 0 });
            (free, 0)
        } else {
            // All places are taken, and there is at least one.
            let Some((least, at)) = self.by_sum.pop_first() else { return };
            self.place_of.remove(&self.places[at].key);
            self.places[at] = Place { key: Arc::clone(&key), sum: least + amount, credit: least };
            (at, least)
        };
        self.place_of.insert(key, at);
        self.by_sum.insert((credit + amount, at));
    }

    fn first(&self, count: usize) -> Vec<(&[u8], u64)> {
        let sums = self.places.iter().map(|place| (&*place.key, place.sum - place.credit));
        let mut all: Vec<(&[u8], u64)> = sums.filter(|(_, sum)| *sum > 0).collect();
        all.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::os::allocated::{apart, apart_bytes};
    use crate::resp::request::OwnedArgv;
    use crate::spec::Access;

    fn collection(count: usize, sample_ratio: u64) -> HotKeys {
        HotKeys::start(
            Wanted { cpu: true, net: true, count, duration_ms: Some(1_000), sample_ratio },
            1_700_000_000_000,
            5_000,
        )
    }

    fn call(hot_keys: &mut HotKeys, keys: &[&[u8]], ticks: u64, bytes: u64) {
        let mut argv = OwnedArgv::default();
        argv.push(b"DEL");
        keys.iter().for_each(|key| argv.push(key));
        let found: Vec<KeyArg> = (1..=keys.len()).map(|index| KeyArg { index, access: Access::Remove }).collect();
        hot_keys.note(argv.as_argv(), || found, ticks, bytes);
    }

    #[test]
    fn the_cost_of_a_call_is_divided_among_its_keys() {
        let mut hot_keys = collection(2, 1);
        call(&mut hot_keys, &[b"a", b"b"], 10, 100);
        call(&mut hot_keys, &[b"b"], 1, 500);
        call(&mut hot_keys, &[b"c"], 20, 1);
        call(&mut hot_keys, &[b"nothing"], 0, 0);
        call(&mut hot_keys, &[&[b'x'; HOTKEYS_KEY_MAX_BYTES + 1]], 7, 7);
        assert_eq!(hot_keys.by_ticks(), [(b"c".as_slice(), 20), (b"b".as_slice(), 6)]);
        assert_eq!(hot_keys.by_bytes(), [(b"b".as_slice(), 550), (b"a".as_slice(), 50)]);
        assert_eq!((hot_keys.ticks, hot_keys.bytes, hot_keys.sampled_bytes), (38, 608, 608));
    }

    #[test]
    fn keys_with_more_than_their_share_are_found_among_very_many() {
        let mut hot_keys = collection(3, 1);
        for round in 0..20_000_u64 {
            call(&mut hot_keys, &[format!("cold:{round}").as_bytes()], 10, 10);
            let hot: &[u8] = [b"a".as_slice(), b"b", b"a", b"c", b"a", b"b"][(round % 6) as usize];
            call(&mut hot_keys, &[hot], 10, 10);
        }
        let found = hot_keys.by_bytes();
        assert_eq!(found.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [b"a".as_slice(), b"b", b"c"]);
        let seen = [100_000, 66_670, 33_330];
        assert!(found.iter().zip(seen).all(|((_, sum), seen)| *sum <= seen && *sum > seen - 1_000), "{found:?}");
        assert_eq!(hot_keys.by_bytes.place_of.len(), 3 * HOTKEYS_TRACKED_PER_SHOWN);
    }

    #[test]
    fn sampling_follows_its_ratio_and_sums_cover_all_calls() {
        let mut hot_keys = collection(1, 10);
        (0..10_000).for_each(|_| call(&mut hot_keys, &[b"a"], 1, 2));
        assert_eq!((hot_keys.ticks, hot_keys.bytes), (10_000, 20_000));
        assert!((1_500..2_500).contains(&hot_keys.sampled_bytes), "{}", hot_keys.sampled_bytes);
        assert_eq!(hot_keys.by_bytes(), [(b"a".as_slice(), hot_keys.sampled_bytes)]);
    }

    /// Exact except for the fill of the trees' nodes, which is unknown.
    #[test]
    fn the_counted_memory_is_close_to_the_memory_held() {
        apart(|| {
            let mut hot_keys = collection(1, 1);
            (0..65).for_each(|key| call(&mut hot_keys, &[format!("key:{key}").as_bytes()], 1, 1));
            let (counted, held) = (hot_keys.mem_bytes() - size_of::<HotKeys>(), apart_bytes() as usize);
            assert!((held * 4 / 5..=held * 6 / 5).contains(&counted), "{counted} of {held}");
        });
    }

    #[test]
    fn a_collection_ends_once() {
        let mut hot_keys = collection(1, 1);
        assert_eq!((hot_keys.is_due(5_999), hot_keys.is_due(6_000), hot_keys.took(5_400).0), (false, true, 400));
        hot_keys.stop(6_003);
        hot_keys.stop(9_000);
        assert_eq!((hot_keys.is_running(), hot_keys.is_due(9_000), hot_keys.took(9_000).0), (false, false, 1_003));
    }
}
