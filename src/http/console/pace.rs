//! How many questions a second pages make: so many of everybody together, and of each user.
//!
//! Questions wait in the order in which they came. A page that leaves before its user's turn has used nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::super::limits::{WATCH_QUESTIONS_OF_USER, WATCH_QUESTIONS_PER_SECOND};

/// See the file's header.
pub(super) struct Paces {
    of_all: Pace,
    of_users: Mutex<HashMap<String, Arc<Pace>>>,
}

struct Pace {
    /// The time that a question takes of the second.
    per_question: Duration,
    /// When the next question may be asked.
    free_at: tokio::sync::Mutex<Instant>,
}

impl Pace {
    fn new(questions_per_second: u32) -> Pace {
        let per_question = Duration::from_secs(1) / questions_per_second;
        Pace { per_question, free_at: tokio::sync::Mutex::new(Instant::now()) }
    }

    async fn turn(&self, questions: u32) {
        let mut free_at = self.free_at.lock().await;
        let turn = (*free_at).max(Instant::now());
        sleep_until(turn).await;
        *free_at = turn + self.per_question * questions;
    }

    fn is_free(&self) -> bool {
        self.free_at.try_lock().is_ok_and(|free_at| *free_at <= Instant::now())
    }
}

impl Paces {
    pub(super) fn new() -> Paces {
        Paces { of_all: Pace::new(WATCH_QUESTIONS_PER_SECOND), of_users: Mutex::default() }
    }

    /// Waits until this many questions may be asked for a user.
    pub(super) async fn turn(&self, user: &str, questions: u32) {
        self.of_user(user).turn(questions).await;
        self.of_all.turn(questions).await;
    }

    fn of_user(&self, user: &str) -> Arc<Pace> {
        let mut of_users = self.of_users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pace) = of_users.get(user) {
            return Arc::clone(pace);
        }
        of_users.retain(|_, pace| Arc::strong_count(pace) > 1 || !pace.is_free());
        let pace = Arc::new(Pace::new(WATCH_QUESTIONS_OF_USER));
        of_users.insert(user.to_owned(), Arc::clone(&pace));
        pace
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn the_first_question_of_a_page_waits_as_well() {
        let (paces, began) = (Paces::new(), Instant::now());
        paces.turn("ann", WATCH_QUESTIONS_OF_USER / 2).await;
        paces.turn("ann", 1).await;
        assert!(began.elapsed() >= Duration::from_secs(1) / WATCH_QUESTIONS_OF_USER * (WATCH_QUESTIONS_OF_USER / 2));
        paces.turn("ann", 3_600 * WATCH_QUESTIONS_OF_USER).await;
        assert!(!paces.of_user("ann").is_free() && paces.of_user("bob").is_free(), "he does not wait for her");
    }

    #[tokio::test]
    async fn a_page_that_leaves_before_its_turn_has_used_nothing() {
        let pace = Pace::new(1);
        pace.turn(3_600).await;
        let before = *pace.free_at.lock().await;
        assert!(timeout(Duration::from_millis(10), pace.turn(1_000_000)).await.is_err(), "it has an hour to wait");
        assert_eq!(*pace.free_at.lock().await, before);
    }
}
