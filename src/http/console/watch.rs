//! The state of topics for all pages that are shown it.
//!
//! A topic is asked for once a second while some page is shown it, and not at all otherwise. Pages of one user that are
//! shown the same topic share the questions; what a user may see depends on nothing else. The number of questions a
//! second is bounded: with very many keys the topics are asked for less often.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::super::limits::{CALL_PATIENCE, REPLIES_MAX_BYTES, WATCH_EVERY, WATCH_QUESTIONS_PER_SECOND};
use super::calls::{CallError, connect};
use super::line::Line;
use super::sessions::Session;
use super::topic::{Fields, Memory, Topic};
use crate::net::inside::Inside;

/// The state of a topic.
#[derive(Default)]
pub(super) struct State {
    /// Counts the changes. 0: nothing is known yet.
    pub(super) version: u64,
    fields: Fields,
    /// The whole state, as a page gets it.
    pub(super) whole: String,
    /// The change from the version before, as a page gets it.
    pub(super) change: String,
}

impl State {
    /// The state after this one; `None` if nothing has changed.
    fn next(&self, fields: Fields) -> Option<State> {
        let changed: Fields = fields
            .iter()
            .filter(|(name, value)| self.fields.get(*name) != Some(*value))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let gone: Vec<&String> = self.fields.keys().filter(|name| !fields.contains_key(*name)).collect();
        if self.version > 0 && changed.is_empty() && gone.is_empty() {
            return None;
        }
        let change = json!({ "set": changed, "gone": gone }).to_string();
        let whole = json!({ "whole": fields }).to_string();
        Some(State { version: self.version + 1, fields, whole, change })
    }
}

type Watched = (String, Topic);

/// See the file's header.
pub(super) struct Watches {
    inside: Arc<Inside>,
    all: Mutex<HashMap<Watched, watch::Sender<Arc<State>>>>,
    /// Questions of one round of all topics.
    questions: AtomicUsize,
}

impl Watches {
    pub(super) fn new(inside: Arc<Inside>) -> Arc<Watches> {
        Arc::new(Watches { inside, all: Mutex::default(), questions: AtomicUsize::new(0) })
    }

    /// Shows a topic to a page of this session.
    pub(super) fn subscribe(self: &Arc<Watches>, session: &Arc<Session>, topic: Topic) -> watch::Receiver<Arc<State>> {
        let watched = (session.user.clone(), topic);
        let mut all = self.all();
        if let Some(sender) = all.get(&watched).filter(|sender| !sender.is_closed()) {
            return sender.subscribe();
        }
        let (sender, receiver) = watch::channel(Arc::<State>::default());
        all.insert(watched.clone(), sender.clone());
        tokio::spawn(Arc::clone(self).ask(watched, Arc::clone(session), sender));
        receiver
    }

    /// Asks for a topic as long as a page is shown it, and the session lasts by which it is asked.
    async fn ask(self: Arc<Watches>, watched: Watched, session: Arc<Session>, sender: watch::Sender<Arc<State>>) {
        let questions = watched.1.questions(&Memory::default()).len();
        self.questions.fetch_add(questions, Ordering::Relaxed);
        tokio::select! {
            () = self.ask_on(&watched.1, &session, &sender) => {}
            () = session.is_over() => {}
            () = sender.closed() => {}
        }
        self.questions.fetch_sub(questions, Ordering::Relaxed);
        let mut all = self.all();
        // A page may have come in the meantime, and have its own.
        if all.get(&watched).is_some_and(|known| known.same_channel(&sender)) {
            all.remove(&watched);
        }
    }

    async fn ask_on(&self, topic: &Topic, session: &Session, sender: &watch::Sender<Arc<State>>) {
        let (mut line, mut memory) = (None, Memory::default());
        loop {
            let began = Instant::now();
            let before = Arc::clone(&sender.borrow());
            let fields = match self.fields(topic, session, &mut line, &mut memory, &before.fields).await {
                Ok(fields) => fields,
                Err(CallError::Over) => return,
                Err(CallError::Refused(text)) => without_reply(&text),
                Err(CallError::Line(error)) => {
                    line = None;
                    without_reply(&error.to_string())
                }
            };
            if let Some(state) = before.next(fields) {
                sender.send_replace(Arc::new(state));
            }
            sleep_until(began + self.interval()).await;
        }
    }

    async fn fields(
        &self,
        topic: &Topic,
        session: &Session,
        line: &mut Option<Line>,
        memory: &mut Memory,
        before: &Fields,
    ) -> Result<Fields, CallError> {
        let line = match line {
            Some(line) => line,
            None => line.insert(connect(&self.inside, session, topic.db()).await?),
        };
        let replies = line.call(&topic.questions(memory), REPLIES_MAX_BYTES, CALL_PATIENCE).await?;
        Ok(topic.state(memory, before, replies, now_ms()))
    }

    /// The time from one question about a topic to the next.
    fn interval(&self) -> Duration {
        let rounds = self.questions.load(Ordering::Relaxed).div_ceil(WATCH_QUESTIONS_PER_SECOND).max(1);
        WATCH_EVERY * u32::try_from(rounds).unwrap_or(u32::MAX)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Watched, watch::Sender<Arc<State>>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of a topic of which nothing is known now.
fn without_reply(text: &str) -> Fields {
    Fields::from_iter([("no-reply".to_owned(), Value::from(text))])
}

/// The time of the clock, Unix ms.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_changed_is_sent() {
        let fields = |text: &str| serde_json::from_str::<Fields>(text).expect("an object");
        let first = State::default().next(fields(r#"{"a": 1, "b": 2}"#)).expect("the first state is news");
        assert_eq!((first.version, first.whole.as_str()), (1, r#"{"whole":{"a":1,"b":2}}"#));
        assert!(first.next(fields(r#"{"a": 1, "b": 2}"#)).is_none());
        let second = first.next(fields(r#"{"a": 1, "c": 3}"#)).expect("a change");
        assert_eq!((second.version, second.change.as_str()), (2, r#"{"gone":["b"],"set":{"c":3}}"#));
        assert!(State::default().next(Fields::new()).is_some(), "that there is nothing is news, too");
    }
}
