//! The judge keeps what clients were told and what data each node had, and compares the two. Each method panics when it
//! finds a fault.
//!
//! Lists only grow, and so do counters. So each reply names a place in an order that all clients must see: a request
//! that began when others had ended comes behind what these have shown.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::super::simulation::{State, difference};
use super::requests::{Kind, Value};
use crate::log::replicated::types::NodeId;

/// Data that is kept to say what differs.
const NEWEST_MAX: usize = 32;

/// A request on its way.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) kind: Kind,
    /// A leader got it. Followers may show older data.
    pub(super) is_strict: bool,
    at: u64,
    /// What had been shown before it began.
    shown: Shown,
}

/// How far clients have been shown each order.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    list: u64,
    counter: u64,
    changes: u64,
    token: u64,
}

/// What has become of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Nobody knows, for now or for ever.
    Unknown,
    Done,
    Refused,
}

/// A list that only grows.
#[derive(Default)]
struct Growing {
    places: BTreeMap<u64, u64>,
    outcomes: BTreeMap<u64, Outcome>,
}

/// A write of the register, from its beginning to its acknowledgement.
struct Written {
    began: u64,
    ended: Option<u64>,
}

/// A key that is set once, for a while.
struct Kept {
    is_long: bool,
    outcome: Outcome,
    ended: u64,
    /// The earliest end of a request that has not found it any more.
    gone: Option<u64>,
}

/// The final data of a group, as clients see it.
pub(super) struct Final {
    pub(super) list: Vec<u64>,
    pub(super) left: Vec<u64>,
    pub(super) right: Vec<u64>,
    pub(super) queue: Vec<u64>,
    pub(super) counter: u64,
}

/// The judge of one run.
#[derive(Default)]
pub(super) struct Judge {
    pub(super) now: u64,
    shown: Shown,
    list: Growing,
    changes: Growing,
    counts: BTreeSet<u64>,
    unknown_counts: u64,
    register: BTreeMap<u64, Written>,
    kept: BTreeMap<u64, Kept>,
    offers: BTreeMap<u64, Outcome>,
    taken: BTreeSet<u64>,
    unknown_takes: u64,
    /// The digest of the data behind each unit, with the node that had it first.
    states: BTreeMap<u64, (NodeId, u64)>,
    /// The newest of these data.
    newest: VecDeque<(u64, State)>,
    /// Requests that were answered.
    pub(super) answered: u64,
    pub(super) refused: u64,
}

impl Growing {
    /// Notes that a client was shown an element at a place, from 0.
    fn place(&mut self, at: u64, element: u64) {
        let other = *self.places.entry(at).or_insert(element);
        assert_eq!(other, element, "at {at} of a list one client has seen {other}, and one {element}");
        let outcome = self.outcomes.get(&element).copied();
        let is_possible = matches!(outcome, Some(Outcome::Unknown | Outcome::Done));
        assert!(is_possible, "{element} is in a list: {outcome:?}");
    }

    fn end(&mut self, element: u64, outcome: Outcome) {
        assert!(
            outcome != Outcome::Refused || !self.places.values().any(|seen| *seen == element),
            "{element} was refused, and seen"
        );
        self.outcomes.insert(element, outcome);
    }

    fn finish(&self, name: &str, data: &[u64]) {
        let unique: BTreeSet<&u64> = data.iter().collect();
        assert_eq!(unique.len(), data.len(), "{name} has elements twice: {data:?}");
        for (at, element) in &self.places {
            assert_eq!(data.get(*at as usize), Some(element), "{name} at {at}, of {}", data.len());
        }
        for element in data {
            let outcome = self.outcomes.get(element);
            assert!(matches!(outcome, Some(Outcome::Done | Outcome::Unknown)), "{name} has {element}: {outcome:?}");
        }
        let lost =
            self.outcomes.iter().find(|(element, outcome)| **outcome == Outcome::Done && !unique.contains(element));
        assert_eq!(lost, None, "{name} has lost an acknowledged element");
    }
}

impl Judge {
    /// Notes that a request begins.
    pub(super) fn ask(&mut self, kind: Kind, is_strict: bool) -> Asked {
        match kind {
            Kind::Push(number) => _ = self.list.outcomes.insert(number, Outcome::Unknown),
            Kind::Change(number) => _ = self.changes.outcomes.insert(number, Outcome::Unknown),
            Kind::Write(number) => {
                self.register.insert(number, Written { began: self.now, ended: None });
            }
            Kind::Keep { number, is_long } => {
                let kept = Kept { is_long, outcome: Outcome::Unknown, ended: u64::MAX, gone: None };
                self.kept.insert(number, kept);
            }
            Kind::Offer(number) => _ = self.offers.insert(number, Outcome::Unknown),
            _ => {}
        }
        Asked { kind, is_strict, at: self.now, shown: self.shown }
    }

    /// Notes that the client of a request was disconnected before it had the reply.
    pub(super) fn lose(&mut self, asked: &Asked) {
        match asked.kind {
            Kind::Count => self.unknown_counts += 1,
            Kind::Take => self.unknown_takes += 1,
            _ => {}
        }
    }

    /// Judges a reply that a client has received.
    pub(super) fn answer(&mut self, asked: &Asked, reply: &Value) {
        self.answered += 1;
        if let Value::Error(text) = reply {
            return self.refuse(asked, text);
        }
        let Asked { kind, is_strict, at, shown } = *asked;
        match kind {
            Kind::Push(number) => {
                let len = reply.number();
                self.list.end(number, Outcome::Done);
                self.list.place(len - 1, number);
                assert!(len > shown.list, "{number} was put at {len}, and {} had been shown", shown.list);
                self.shown.list = self.shown.list.max(len);
            }
            Kind::ReadList => {
                let [len, end] = reply.items() else { panic!("{reply:?}") };
                let len = place_end(&mut self.list, len, end);
                assert!(!is_strict || len >= shown.list, "a stale read of {len}, and {} had been shown", shown.list);
                self.shown.list = self.shown.list.max(len);
            }
            Kind::Count => {
                let count = reply.number();
                assert!(self.counts.insert(count), "{count} was counted twice");
                assert!(count > shown.counter, "{count} was counted, and {} had been shown", shown.counter);
                self.shown.counter = self.shown.counter.max(count);
            }
            Kind::ReadCount => {
                let count = reply.number();
                let is_new = !is_strict || count >= shown.counter;
                assert!(is_new, "a stale read of {count}, and {} had been shown", shown.counter);
                self.shown.counter = self.shown.counter.max(count);
            }
            Kind::Change(number) => {
                let len = reply.items_or_self().last().expect("a transaction has replies").number();
                self.changes.end(number, Outcome::Done);
                self.changes.place(len - 1, number);
                assert!(len > shown.changes, "{number} was put at {len}, and {} had been shown", shown.changes);
                self.shown.changes = self.shown.changes.max(len);
            }
            Kind::ReadChanges => {
                let [left, right, stream, count, left_end, right_end] = reply.items() else { panic!("{reply:?}") };
                let len = place_end(&mut self.changes, left, left_end);
                let others = [right, stream, count].map(Value::number);
                assert!(others == [len; 3] && left_end == right_end, "half of a unit was shown: {reply:?}");
                assert!(!is_strict || len >= shown.changes, "a stale read of {len}, {} was shown", shown.changes);
                self.shown.changes = self.shown.changes.max(len);
            }
            Kind::Write(number) => {
                if let Some(written) = self.register.get_mut(&number) {
                    written.ended = Some(self.now);
                }
            }
            Kind::ReadRegister => self.read_register(reply.number(), at, is_strict),
            Kind::Keep { number, .. } => {
                if let Some(kept) = self.kept.get_mut(&number) {
                    (kept.outcome, kept.ended) = (Outcome::Done, self.now);
                }
            }
            Kind::ReadKept(number) => self.read_kept(number, reply.number(), at, is_strict),
            Kind::Offer(number) => _ = self.offers.insert(number, Outcome::Done),
            Kind::Take => {
                if let Value::Array(items) = reply {
                    self.take(items[1].number());
                }
            }
            Kind::Lock => {
                if let [Value::Integer(1), _, token, ..] = reply.items() {
                    let token = token.number();
                    // An owner that holds the lock already gets the same token again.
                    assert!(token >= shown.token, "token {token} was granted after {}", shown.token);
                    self.shown.token = self.shown.token.max(token);
                }
            }
            Kind::Other => {}
        }
    }

    fn refuse(&mut self, asked: &Asked, text: &str) {
        self.refused += 1;
        match asked.kind {
            Kind::Push(number) => self.list.end(number, Outcome::Refused),
            Kind::Change(number) => self.changes.end(number, Outcome::Refused),
            Kind::Write(number) => _ = self.register.remove(&number),
            Kind::Keep { number, .. } => {
                if let Some(kept) = self.kept.get_mut(&number) {
                    kept.outcome = Outcome::Refused;
                }
            }
            Kind::Offer(number) => {
                assert!(!self.taken.contains(&number), "{number} was refused, and taken");
                self.offers.insert(number, Outcome::Refused);
            }
            _ => {}
        }
        let words = ["READONLY", "LOADING", "TRYAGAIN", "EXECABORT", "MISCONF"];
        let is_of_role = words.iter().any(|word| text.contains(word));
        assert!(is_of_role || asked.kind == Kind::Other, "{asked:?} was refused: {text}");
    }

    /// A value may be read unless another was written behind it, and before the read.
    fn read_register(&self, value: u64, at: u64, is_strict: bool) {
        if value > 0 {
            assert!(self.register.contains_key(&value), "{value} was never written, or refused");
        }
        let ended = if value == 0 { Some(0) } else { self.register[&value].ended };
        let Some(ended) = ended.filter(|_| is_strict) else { return };
        let is_later = |other: &Written| other.began > ended && other.ended.is_some_and(|other| other < at);
        let later = self.register.iter().find(|(_, other)| is_later(other)).map(|(number, _)| number);
        assert_eq!(later, None, "a stale read of {value}");
    }

    fn read_kept(&mut self, number: u64, value: u64, at: u64, is_strict: bool) {
        let now = self.now;
        let Some(kept) = self.kept.get_mut(&number).filter(|_| is_strict) else { return };
        if value == 0 {
            let must_be = kept.outcome == Outcome::Done && kept.ended < at && kept.is_long;
            assert!(!must_be, "{number} is gone before its time");
            // It may not have been there yet.
            if kept.ended < at {
                kept.gone = Some(kept.gone.map_or(now, |gone| gone.min(now)));
            }
            return;
        }
        assert_eq!(value, number, "another value was kept");
        assert!(kept.outcome != Outcome::Refused, "{number} was refused, and kept");
        assert!(kept.gone.is_none_or(|gone| gone >= at), "{number} has come back");
    }

    fn take(&mut self, element: u64) {
        assert!(self.taken.insert(element), "{element} was taken twice");
        let outcome = self.offers.get(&element);
        assert!(matches!(outcome, Some(Outcome::Done | Outcome::Unknown)), "{element} was taken: {outcome:?}");
    }

    /// Compares the data of a node behind a unit with what others had there.
    pub(super) fn has(&mut self, node: NodeId, lsn: u64, state: State) {
        let digest = digest_of(&state);
        let (first, expected) = *self.states.entry(lsn).or_insert((node, digest));
        if expected != digest {
            let known = self.newest.iter().find(|(at, _)| *at == lsn);
            let what = known.map_or_else(|| "it is long ago".to_owned(), |(_, known)| difference(known, &state));
            panic!("node {node} has other data than node {first} behind unit {lsn}: {what}");
        }
        if first == node {
            self.newest.truncate(NEWEST_MAX - 1);
            self.newest.push_front((lsn, state));
        }
    }

    /// Returns the number of units whose data was compared, or could be.
    pub(super) fn states(&self) -> u64 {
        self.states.len() as u64
    }

    /// At the end, everything that clients were told is there.
    pub(super) fn finish(&self, data: &Final) {
        self.list.finish("the list", &data.list);
        assert_eq!(data.left, data.right, "half of a unit was done");
        self.changes.finish("the changed list", &data.left);
        let (least, most) = (self.counts.len() as u64, self.counts.len() as u64 + self.unknown_counts);
        assert!((least..=most).contains(&data.counter), "counted {}, not {least} to {most}", data.counter);
        let left: BTreeSet<u64> = data.queue.iter().copied().collect();
        assert_eq!(left.len(), data.queue.len(), "the queue has elements twice");
        let again = left.intersection(&self.taken).next();
        assert_eq!(again, None, "an element is in the queue that was taken");
        let is_missing = |(element, outcome): &(&u64, &Outcome)| {
            **outcome == Outcome::Done && !left.contains(element) && !self.taken.contains(element)
        };
        let missing = self.offers.iter().filter(is_missing).count() as u64;
        assert!(missing <= self.unknown_takes, "{missing} elements are lost, {} perhaps taken", self.unknown_takes);
    }
}

fn digest_of(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Notes the end of a list, as a reply shows it. Returns its length.
fn place_end(list: &mut Growing, len: &Value, end: &Value) -> u64 {
    let (len, end) = (len.number(), end.items());
    for (index, element) in end.iter().enumerate() {
        list.place(len - end.len() as u64 + index as u64, element.number());
    }
    len
}

impl Value {
    fn items_or_self(&self) -> &[Value] {
        match self {
            Value::Array(items) => items,
            one => std::slice::from_ref(one),
        }
    }
}
