//! Idempotent production: a producer that repeats a request because it never saw the reply must not append twice.
//!
//! Each producer names its requests. A name maps to the entry that the request appended, for a limited time
//! (`duration_s`, counted from the time in the entry's id) and for a limited number of each producer's latest requests
//! (`max_iids`). The names of a producer are kept in the order of arrival, so that the oldest go first, and in a hash
//! table of their numbers in that order.
//!
//! Expired requests are no longer found. They are removed step by step as others are added, which keeps memory in
//! proportion to the requests remembered.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;

use hashbrown::HashTable;
use slab::Slab;

use super::id::StreamId;
use crate::base::hasher::hash_bytes;

/// The requests of a stream's producers. See the module's header.
#[derive(Clone)]
pub struct Idempotency {
    /// The time for which a request is remembered, in seconds.
    pub duration_s: u32,
    /// The number of requests remembered per producer.
    pub max_iids: u32,
    added: u64,
    duplicates: u64,
    producers: Slab<Producer>,
    by_name: BTreeMap<Box<[u8]>, usize>,
}

#[derive(Clone)]
struct Producer {
    name: Box<[u8]>,
    requests: VecDeque<Request>,
    /// The number of the first request.
    first: u64,
    /// The numbers of requests by name.
    by_iid: HashTable<u64>,
}

/// A request. An empty name marks one that was removed out of turn.
#[derive(Clone, Debug)]
struct Request {
    iid: Box<[u8]>,
    id: StreamId,
}

impl Idempotency {
    pub(super) fn new(duration_s: u32, max_iids: u32) -> Idempotency {
        let (producers, by_name) = (Slab::new(), BTreeMap::new());
        Idempotency { duration_s, max_iids, added: 0, duplicates: 0, producers, by_name }
    }

    /// The number of requests ever recorded.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// The number of repeated requests recognized.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// The number of producers, and of requests in all, remembered at `now_ms`.
    pub fn tracked(&self, now_ms: u64) -> (usize, usize) {
        let live = |producer: &Producer| producer.named().filter(|request| !self.has_expired(request, now_ms)).count();
        let counts = self.producers.iter().map(|(_, producer)| live(producer)).filter(|count| *count > 0);
        counts.fold((0, 0), |(producers, requests), count| (producers + 1, requests + count))
    }

    /// The entry that a request appended, if the request is still remembered at `now_ms`.
    pub fn find(&self, producer: &[u8], iid: &[u8], now_ms: u64) -> Option<StreamId> {
        let producer = &self.producers[*self.by_name.get(producer)?];
        let request = producer.find(iid).filter(|request| !self.has_expired(request, now_ms))?;
        Some(request.id)
    }

    /// Arguments for `forget` before a request of `producer` is added at `now_ms`: the numbers of its expired requests,
    /// and of those of another producer, a different one each time.
    pub fn expired(&self, producer: &[u8], now_ms: u64) -> Vec<(Box<[u8]>, u64)> {
        let slots = self.producers.capacity().max(1) as u64;
        let other = self.producers.get((self.added % slots) as usize).filter(|other| *other.name != *producer);
        let this = self.by_name.get(producer).map(|&number| &self.producers[number]);
        let expired = |producer: &Producer| {
            let requests = producer.named().take_while(|request| self.has_expired(request, now_ms));
            (producer.name.clone(), requests.count() as u64)
        };
        this.into_iter().chain(other).map(expired).filter(|(_, count)| *count > 0).collect()
    }

    fn has_expired(&self, request: &Request, now_ms: u64) -> bool {
        request.id.ms.saturating_add(u64::from(self.duration_s) * 1_000) <= now_ms
    }

    /// Changes the bounds. Any difference forgets all requests.
    pub(super) fn configure(&mut self, duration_s: u32, max_iids: u32) {
        if (self.duration_s, self.max_iids) != (duration_s, max_iids) {
            let (added, duplicates) = (self.added, self.duplicates);
            *self = Idempotency { added, duplicates, ..Idempotency::new(duration_s, max_iids) };
        }
    }

    pub(super) fn count_duplicate(&mut self) {
        self.duplicates = self.duplicates.saturating_add(1);
    }

    pub(super) fn set_counters(&mut self, added: u64, duplicates: u64) {
        (self.added, self.duplicates) = (added, duplicates);
    }

    /// The remembered requests with their producers, the oldest of each producer first.
    pub fn requests(&self) -> impl Iterator<Item = (&[u8], &[u8], StreamId)> {
        self.producers
            .iter()
            .flat_map(|(_, producer)| producer.named().map(|request| (&*producer.name, &*request.iid, request.id)))
    }

    /// The number of elements in the first `producers` producers: the producers themselves and their requests.
    pub fn weight(&self, producers: usize) -> usize {
        self.producers.iter().take(producers).map(|(_, producer)| 1 + producer.requests.len()).sum()
    }

    /// The producers after this name in byte order, or all producers for `None`, each with its requests, the oldest
    /// first.
    pub fn producers_after(
        &self,
        name: Option<&[u8]>,
    ) -> impl Iterator<Item = (&[u8], impl Iterator<Item = (&[u8], StreamId)>)> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_name
            .range::<[u8], _>((from, Bound::Unbounded))
            .map(|(name, &number)| (&**name, self.producers[number].named().map(|request| (&*request.iid, request.id))))
    }

    /// Records a request. Forgets the producer's oldest requests beyond the bound.
    pub(super) fn add(&mut self, producer: &[u8], iid: &[u8], id: StreamId) {
        self.added = self.added.saturating_add(1);
        let number = match self.by_name.get(producer) {
            Some(&number) => number,
            None => {
                let number = self.producers.insert(Producer::new(producer));
                self.by_name.insert(producer.into(), number);
                number
            }
        };
        let max = self.max_iids as usize;
        let producer = &mut self.producers[number];
        producer.add(iid, id);
        while producer.by_iid.len() > max && producer.drop_oldest() {}
    }

    /// Forgets the oldest `count` requests of a producer. Returns false if there is no such producer.
    pub(super) fn forget(&mut self, producer: &[u8], count: u64) -> bool {
        let Some(&number) = self.by_name.get(producer) else { return false };
        let requests = &mut self.producers[number];
        for _ in 0..count {
            if !requests.drop_oldest() {
                break;
            }
        }
        if requests.by_iid.is_empty() {
            self.producers.remove(number);
            self.by_name.remove(producer);
        }
        true
    }

    pub(super) fn mem_bytes(&self) -> usize {
        let request = |request: &Request| size_of::<Request>() + request.iid.len() + size_of::<u64>() * 2;
        let producer = |(_, producer): (usize, &Producer)| {
            size_of::<Producer>() + 2 * producer.name.len() + producer.requests.iter().map(request).sum::<usize>()
        };
        size_of::<Idempotency>() + self.producers.iter().map(producer).sum::<usize>()
    }
}

impl Producer {
    fn new(name: &[u8]) -> Producer {
        Producer { name: name.into(), requests: VecDeque::new(), first: 0, by_iid: HashTable::new() }
    }

    /// The remembered requests, oldest first.
    fn named(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| !request.iid.is_empty())
    }

    fn find(&self, iid: &[u8]) -> Option<&Request> {
        let number = self.by_iid.find(hash_bytes(iid), |&number| *self.at(number).iid == *iid)?;
        Some(self.at(*number))
    }

    fn at(&self, number: u64) -> &Request {
        &self.requests[(number - self.first) as usize]
    }

    fn add(&mut self, iid: &[u8], id: StreamId) {
        self.remove(iid);
        let number = self.first + self.requests.len() as u64;
        self.requests.push_back(Request { iid: iid.into(), id });
        let (requests, first) = (&self.requests, self.first);
        let hash_of = |&number: &u64| hash_bytes(&requests[(number - first) as usize].iid);
        self.by_iid.insert_unique(hash_bytes(iid), number, hash_of);
    }

    /// Forgets a request, whatever its turn.
    fn remove(&mut self, iid: &[u8]) {
        let (requests, first) = (&mut self.requests, self.first);
        let is_it = |&number: &u64| *requests[(number - first) as usize].iid == *iid;
        if let Ok(entry) = self.by_iid.find_entry(hash_bytes(iid), is_it) {
            let (number, _) = entry.remove();
            requests[(number - first) as usize].iid = Box::default();
        }
    }

    /// Forgets the oldest request. Returns false if there is none.
    fn drop_oldest(&mut self) -> bool {
        while let Some(request) = self.requests.pop_front() {
            let number = self.first;
            self.first += 1;
            if request.iid.is_empty() {
                continue;
            }
            if let Ok(entry) = self.by_iid.find_entry(hash_bytes(&request.iid), |&other| other == number) {
                entry.remove();
            }
            return true;
        }
        false
    }
}

/// The producers by name, without their numbers, which are an implementation detail.
impl fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let producers: Vec<_> = self.by_name.values().map(|&number| &self.producers[number]).collect();
        f.debug_struct("Idempotency")
            .field("duration_s", &self.duration_s)
            .field("max_iids", &self.max_iids)
            .field("added", &self.added)
            .field("duplicates", &self.duplicates)
            .field("producers", &producers)
            .finish()
    }
}

/// Without the hash table, whose order is an implementation detail.
impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests: Vec<_> = self.named().collect();
        f.debug_struct("Producer").field("name", &self.name).field("requests", &requests).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Add { producer: u8, iid: u8, ms: u64 },
        Forget { producer: u8, count: u64 },
        ForgetExpired { producer: u8, now_s: u64 },
        Configure { max_iids: u32 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let producer = || 0u8..3;
        prop_oneof![
            12 => (producer(), 1u8..7, 0u64..60_000).prop_map(|(producer, iid, ms)| Step::Add { producer, iid, ms }),
            1 => (producer(), 0u64..4).prop_map(|(producer, count)| Step::Forget { producer, count }),
            2 => (producer(), 0u64..70).prop_map(|(producer, now_s)| Step::ForgetExpired { producer, now_s }),
            1 => (1u32..6).prop_map(|max_iids| Step::Configure { max_iids }),
        ]
    }

    /// Producer, name and entry of each request, oldest first.
    type Model = Vec<(u8, u8, StreamId)>;

    fn forget(model: &mut Model, producer: u8, mut count: u64) {
        model.retain(|request| {
            let goes = request.0 == producer && count > 0;
            count -= u64::from(goes);
            !goes
        });
    }

    const DURATION_S: u32 = 10;

    proptest! {
        #[test]
        fn follows_a_list(steps in proptest::collection::vec(step(), 1..80)) {
            let mut known = Idempotency::new(DURATION_S, 3);
            let mut model = Model::new();
            let mut added = 0;
            let expires_ms = |id: StreamId| id.ms + u64::from(DURATION_S) * 1_000;
            for step in steps {
                match step {
                    Step::Add { producer, iid, ms } => {
                        let id = StreamId { ms, seq: added };
                        known.add(&[producer], &[iid], id);
                        added += 1;
                        model.retain(|request| (request.0, request.1) != (producer, iid));
                        model.push((producer, iid, id));
                        let of = model.iter().filter(|request| request.0 == producer).count() as u64;
                        forget(&mut model, producer, of.saturating_sub(known.max_iids.into()));
                    }
                    Step::Forget { producer, count } => {
                        let there = model.iter().any(|request| request.0 == producer);
                        prop_assert_eq!(known.forget(&[producer], count), there);
                        forget(&mut model, producer, count);
                    }
                    Step::ForgetExpired { producer, now_s } => {
                        for (name, count) in known.expired(&[producer], now_s * 1_000) {
                            let of: Vec<_> = model.iter().filter(|request| request.0 == name[0]).collect();
                            prop_assert!(of[..count as usize].iter().all(|r| expires_ms(r.2) <= now_s * 1_000));
                            known.forget(&name, count);
                            forget(&mut model, name[0], count);
                        }
                        let oldest = model.iter().find(|request| request.0 == producer);
                        prop_assert!(oldest.is_none_or(|request| expires_ms(request.2) > now_s * 1_000));
                    }
                    Step::Configure { max_iids } => {
                        if known.max_iids != max_iids {
                            model.clear();
                        }
                        known.configure(DURATION_S, max_iids);
                    }
                }
                for now_ms in [0, 30_000, 90_000] {
                    let live: Vec<_> = model.iter().filter(|request| expires_ms(request.2) > now_ms).collect();
                    for (producer, iid) in (0..3).flat_map(|producer| (1..7).map(move |iid| (producer, iid))) {
                        let request = live.iter().find(|request| (request.0, request.1) == (producer, iid));
                        prop_assert_eq!(known.find(&[producer], &[iid], now_ms), request.map(|request| request.2));
                    }
                    let producers: std::collections::BTreeSet<u8> = live.iter().map(|request| request.0).collect();
                    prop_assert_eq!(known.tracked(now_ms), (producers.len(), live.len()));
                }
                prop_assert_eq!(known.added(), added);
                prop_assert_eq!(known.producers.len(), known.by_name.len());
            }
        }
    }
}
