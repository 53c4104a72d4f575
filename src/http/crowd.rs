//! The connections to a port of HTTP: how many, and for how long.
//!
//! A connection is silent until it sends the head of a request, and again after each response; anybody can open
//! thousands of silent ones. Only a few may be silent at a time. One more closes the one that has been silent for
//! longest: if the newest were refused, a few connections that never send a request would keep all others out. Each
//! state has a deadline, so that a peer which sends or reads too slowly, however steadily, is cut off as well.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::limits::{REQUEST_PATIENCE, SILENCE_MAX};

/// See the file's header.
pub(super) struct Crowd {
    most: usize,
    most_silent: usize,
    seats: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    last_id: u64,
    all: HashMap<u64, Arc<Seat>>,
    /// The silent ones, those first that have been silent for longest.
    silent: VecDeque<u64>,
}

struct Seat {
    deadline: Mutex<Instant>,
    /// Notified when the connection must make room for another.
    leave: Notify,
}

impl Seat {
    fn deadline(&self) -> Instant {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_take(&self, time: Duration) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + time;
    }
}

impl Seats {
    /// Lets the connection leave that has been silent for longest. Returns whether there is one.
    fn make_room(&mut self) -> bool {
        let Some(oldest) = self.silent.pop_front() else { return false };
        if let Some(seat) = self.all.remove(&oldest) {
            seat.leave.notify_one();
        }
        true
    }
}

impl Crowd {
    /// Admits at most `most` connections, of which at most `most_silent` are silent.
    pub(super) fn new(most: usize, most_silent: usize) -> Arc<Crowd> {
        Arc::new(Crowd { most, most_silent, seats: Mutex::default() })
    }

    /// Admits a connection; `None` if there are too many that are being answered.
    pub(super) fn enter(self: &Arc<Crowd>) -> Option<Place> {
        let mut seats = self.seats();
        if (seats.silent.len() >= self.most_silent || seats.all.len() >= self.most) && !seats.make_room() {
            return None;
        }
        seats.last_id += 1;
        let id = seats.last_id;
        let seat = Arc::new(Seat { deadline: Mutex::new(Instant::now() + SILENCE_MAX), leave: Notify::new() });
        seats.all.insert(id, Arc::clone(&seat));
        seats.silent.push_back(id);
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
        seats.silent.retain(|other| *other != self.id);
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
                // The deadline may move while this waits.
                sleep_until(deadline).await;
            }
        };
        tokio::select! {
            () = overdue => {}
            () = self.0.seat.leave.notified() => {}
        }
    }

    /// Notes that a request has arrived, which is answered until the value is dropped.
    pub(super) fn answers(&self) -> Answering {
        self.0.crowd.seats().silent.retain(|other| *other != self.0.id);
        self.0.seat.may_take(REQUEST_PATIENCE);
        Answering(self.clone())
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
        // It may have been told to leave.
        if seats.all.contains_key(&held.id) {
            seats.silent.push_back(held.id);
            if seats.silent.len() > held.crowd.most_silent {
                seats.make_room();
            }
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

    #[tokio::test]
    async fn the_one_that_was_silent_for_longest_makes_room() {
        let crowd = Crowd::new(5, 2);
        let places: Vec<Place> = (0..2).map(|_| crowd.enter().expect("a place")).collect();
        let answering = places[0].answers();
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
    async fn a_crowd_that_is_answered_lets_no_more_in() {
        let crowd = Crowd::new(2, 2);
        let places: Vec<Place> = (0..2).map(|_| crowd.enter().expect("a place")).collect();
        let answering: Vec<Answering> = places.iter().map(Place::answers).collect();
        assert!(crowd.enter().is_none());
        drop((answering, places));
        assert!(crowd.enter().is_some());
    }

    #[tokio::test]
    async fn each_state_has_a_deadline() {
        let crowd = Crowd::new(2, 2);
        let place = crowd.enter().expect("a place");
        let left = |of: Duration| {
            let left = place.0.seat.deadline() - Instant::now();
            left <= of && left + Duration::from_secs(60) > of
        };
        assert!(left(SILENCE_MAX));
        let answering = place.answers();
        assert!(left(REQUEST_PATIENCE));
        answering.may_take(Duration::from_secs(100));
        assert!(left(Duration::from_secs(100)));
        answering.may_take(Duration::ZERO);
        place.must_leave().await;
        drop(answering);
        assert!(left(SILENCE_MAX));
    }
}
