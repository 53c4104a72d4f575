//! The connections to a port of HTTP: how many, and for how long.
//!
//! A connection is silent until all of a request has arrived, and again after each response; anybody can open thousands
//! of silent ones. Only a few may be silent at a time. One more closes the one that has been silent for longest: if the
//! newest were refused, a few connections that never send a request would keep all others out. The same goes for
//! strangers, whose requests are answered without belonging to a session: one more closes the one that has been
//! answered for longest, which reads slowly. Each state has a deadline, so that a peer which sends or reads too slowly,
//! however steadily, is cut off as well.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::limits::{REQUEST_PATIENCE, SILENCE_MAX};

/// How many connections there may be.
pub(super) struct Most {
    pub(super) all: usize,
    /// Those that are silent.
    pub(super) silent: usize,
    /// Those of strangers that are answered.
    pub(super) strangers: usize,
}

/// See the file's header.
pub(super) struct Crowd {
    most: Most,
    seats: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    last_id: u64,
    all: HashMap<u64, Arc<Seat>>,
    /// The silent ones, those first that have been silent for longest.
    silent: VecDeque<u64>,
    /// Those of strangers that are answered, in the order in which their requests arrived.
    strangers: VecDeque<u64>,
}

struct Seat {
    deadline: Mutex<Instant>,
    /// Whether the request belongs to a session.
    is_known: AtomicBool,
    /// Notified when the connection must make room for another.
    leave: Notify,
    /// Notified when the deadline comes nearer.
    sooner: Notify,
}

impl Seat {
    fn deadline(&self) -> Instant {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_take(&self, time: Duration) {
        let mut deadline = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *deadline, Instant::now() + time);
        if *deadline < before {
            self.sooner.notify_one();
        }
    }
}

impl Seats {
    /// Lets a connection leave that is not of a session: a silent one, if there is one. Returns whether there is any.
    fn make_room(&mut self) -> bool {
        let first = self.silent.pop_front().or_else(|| self.strangers.pop_front());
        first.map(|id| self.close(id)).is_some()
    }

    fn close(&mut self, id: u64) {
        if let Some(seat) = self.all.remove(&id) {
            seat.leave.notify_one();
        }
    }

    /// Closes the first ones of a list beyond `most`.
    fn bound(&mut self, list: fn(&mut Seats) -> &mut VecDeque<u64>, most: usize) {
        while list(self).len() > most {
            let first = list(self).pop_front();
            first.into_iter().for_each(|id| self.close(id));
        }
    }

    fn forget(&mut self, id: u64) {
        self.silent.retain(|other| *other != id);
        self.strangers.retain(|other| *other != id);
    }
}

impl Crowd {
    pub(super) fn new(most: Most) -> Arc<Crowd> {
        Arc::new(Crowd { most, seats: Mutex::default() })
    }

    /// Admits a connection; `None` if there are too many that are being answered.
    pub(super) fn enter(self: &Arc<Crowd>) -> Option<Place> {
        let mut seats = self.seats();
        if seats.all.len() >= self.most.all && !seats.make_room() {
            return None;
        }
        seats.last_id += 1;
        let id = seats.last_id;
        let deadline = Mutex::new(Instant::now() + SILENCE_MAX);
        let (leave, sooner) = (Notify::new(), Notify::new());
        let seat = Arc::new(Seat { deadline, is_known: AtomicBool::new(false), leave, sooner });
        seats.all.insert(id, Arc::clone(&seat));
        seats.silent.push_back(id);
        seats.bound(|seats| &mut seats.silent, self.most.silent);
        Some(Place(Arc::new(Held { crowd: Arc::clone(self), id, seat })))
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection.
#[derive(Clone)]
pub(super) struct Place(Arc<Held>);

struct Held {
    crowd: Arc<Crowd>,
    id: u64,
    seat: Arc<Seat>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut seats = self.crowd.seats();
        seats.all.remove(&self.id);
        seats.forget(self.id);
    }
}

impl Place {
    /// Waits until the connection must be closed.
    pub(super) async fn must_leave(&self) {
        let overdue = async {
            loop {
                let deadline = self.0.seat.deadline();
                if deadline <= Instant::now() {
                    return;
                }
                // The deadline may move away while this waits.
                tokio::select! {
                    () = sleep_until(deadline) => {}
                    () = self.0.seat.sooner.notified() => {}
                }
            }
        };
        tokio::select! {
            () = overdue => {}
            () = self.0.seat.leave.notified() => {}
        }
    }

    /// Notes that a request begins, which is over when the value is dropped.
    pub(super) fn begins(&self) -> Answering {
        Answering(self.clone())
    }

    /// Notes that all of the request has arrived.
    pub(super) fn has_arrived(&self) {
        let held = &self.0;
        let mut seats = held.crowd.seats();
        let Some(at) = seats.silent.iter().position(|other| *other == held.id) else { return };
        seats.silent.remove(at);
        if !held.seat.is_known.load(Ordering::Relaxed) {
            seats.strangers.push_back(held.id);
            seats.bound(|seats| &mut seats.strangers, held.crowd.most.strangers);
        }
        held.seat.may_take(REQUEST_PATIENCE);
    }

    /// Notes that the request belongs to a session.
    pub(super) fn is_known(&self) {
        self.0.seat.is_known.store(true, Ordering::Relaxed);
        self.0.crowd.seats().strangers.retain(|other| *other != self.0.id);
    }
}

/// A request that is being answered.
pub(super) struct Answering(Place);

impl Answering {
    /// Gives the response this time, from now on.
    pub(super) fn may_take(&self, time: Duration) {
        self.0.0.seat.may_take(time);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let held = &self.0.0;
        let mut seats = held.crowd.seats();
        held.seat.is_known.store(false, Ordering::Relaxed);
        seats.forget(held.id);
        // It may have been told to leave.
        if seats.all.contains_key(&held.id) {
            seats.silent.push_back(held.id);
            seats.bound(|seats| &mut seats.silent, held.crowd.most.silent);
        }
        held.seat.may_take(SILENCE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn leaves(place: &Place) -> bool {
        tokio::time::timeout(Duration::from_millis(1), place.must_leave()).await.is_ok()
    }

    fn crowd(all: usize, silent: usize, strangers: usize) -> Arc<Crowd> {
        Crowd::new(Most { all, silent, strangers })
    }

    /// Sends a whole request, for a session or not.
    fn answers(place: &Place, is_known: bool) -> Answering {
        let answering = place.begins();
        if is_known {
            place.is_known();
        }
        place.has_arrived();
        answering
    }

    #[tokio::test]
    async fn the_one_that_was_silent_for_longest_makes_room() {
        let crowd = crowd(5, 2, 2);
        let places: Vec<Place> = (0..2).map(|_| crowd.enter().expect("a place")).collect();
        let answering = answers(&places[0], false);
        let third = crowd.enter().expect("a place");
        let fourth = crowd.enter().expect("a place");
        assert!(leaves(&places[1]).await, "it was silent for longest");
        assert!(!leaves(&places[0]).await && !leaves(&third).await && !leaves(&fourth).await);
        // It is silent again, as the newest.
        drop(answering);
        assert!(leaves(&third).await);
        assert!(!leaves(&places[0]).await && !leaves(&fourth).await);
    }

    #[tokio::test]
    async fn a_request_of_which_only_the_head_has_come_is_silent() {
        let crowd = crowd(5, 1, 2);
        let first = crowd.enter().expect("a place");
        let _answering = first.begins();
        first.is_known();
        let _second = crowd.enter().expect("a place");
        assert!(leaves(&first).await);
    }

    #[tokio::test]
    async fn the_stranger_who_was_answered_for_longest_makes_room() {
        let crowd = crowd(5, 5, 1);
        let places: Vec<Place> = (0..3).map(|_| crowd.enter().expect("a place")).collect();
        let _known = answers(&places[0], true);
        let _first = answers(&places[1], false);
        let _second = answers(&places[2], false);
        assert!(leaves(&places[1]).await, "it was answered for longest");
        assert!(!leaves(&places[0]).await && !leaves(&places[2]).await);
    }

    #[tokio::test]
    async fn a_crowd_of_sessions_lets_no_more_in() {
        let crowd = crowd(2, 2, 2);
        let places: Vec<Place> = (0..2).map(|_| crowd.enter().expect("a place")).collect();
        let answering: Vec<Answering> = places.iter().map(|place| answers(place, true)).collect();
        assert!(crowd.enter().is_none());
        drop((answering, places));
        assert!(crowd.enter().is_some());
    }

    #[tokio::test]
    async fn each_state_has_a_deadline() {
        let crowd = crowd(2, 2, 2);
        let place = crowd.enter().expect("a place");
        let left = |of: Duration| {
            let left = place.0.seat.deadline() - Instant::now();
            left <= of && left + Duration::from_secs(60) > of
        };
        assert!(left(SILENCE_MAX));
        let answering = answers(&place, false);
        assert!(left(REQUEST_PATIENCE));
        answering.may_take(Duration::from_secs(100));
        assert!(left(Duration::from_secs(100)));
        let shortened = async {
            tokio::task::yield_now().await;
            answering.may_take(Duration::ZERO);
        };
        let both = async { tokio::join!(place.must_leave(), shortened) };
        tokio::time::timeout(SILENCE_MAX, both).await.expect("the old deadline is not waited for");
        drop(answering);
        assert!(left(SILENCE_MAX));
    }
}
