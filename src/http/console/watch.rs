//! The state of topics for all pages that are shown it.
//!
//! A topic is asked for once a second while some page is shown it, and not at all otherwise. Pages of one user that are
//! shown the same topic share the questions; what a user may see depends on nothing else. The number of questions a
//! second is bounded, for each user and for all: with very many keys the topics are asked for less often.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::super::limits::{CALL_PATIENCE, WATCH_EVERY, WATCH_QUESTIONS_OF_USER, WATCH_QUESTIONS_PER_SECOND};
use super::line::{Line, LineError, Lines};
use super::session::{CallError, Session};
use super::topic::{Fields, Memory, NO_REPLY, Topic};

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
    lines: Arc<Lines>,
    all: Mutex<HashMap<Watched, watch::Sender<Arc<State>>>>,
    /// Questions of one round of all topics, by user.
    questions: Mutex<HashMap<String, usize>>,
    /// Questions that were asked since the start.
    asked: AtomicU64,
}

impl Watches {
    pub(super) fn new(lines: Arc<Lines>) -> Arc<Watches> {
        Arc::new(Watches { lines, all: Mutex::default(), questions: Mutex::default(), asked: AtomicU64::new(0) })
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
        *self.questions().entry(session.user.clone()).or_default() += questions;
        tokio::select! {
            () = self.ask_on(&watched.1, &session, &sender) => {}
            () = session.is_over() => {}
            () = sender.closed() => {}
        }
        self.forget_questions(&session.user, questions);
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
                Err(CallError::Refused(text)) => without_reply(&before.fields, &text),
                Err(CallError::Line(error)) => {
                    line = None;
                    without_reply(&before.fields, &error.to_string())
                }
            };
            if let Some(state) = before.next(fields) {
                sender.send_replace(Arc::new(state));
            }
            sleep_until(began + self.interval(&session.user)).await;
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
        let deadline = Instant::now() + CALL_PATIENCE;
        let line = match line {
            Some(line) => line,
            None if self.lines.are_scarce() => return Err(LineError::Crowded.into()),
            None => line.insert(session.connect(&self.lines, topic.db(), deadline).await?),
        };
        let questions = topic.questions(memory);
        memory.asked = self.asked.fetch_add(questions.len() as u64, Ordering::Relaxed) + questions.len() as u64;
        let replies = line.call(&questions, deadline).await?;
        Ok(topic.state(memory, before, replies.list, now_ms()))
    }

    /// The time from one question about a topic of a user to the next.
    fn interval(&self, user: &str) -> Duration {
        let questions = self.questions();
        let own = questions.get(user).copied().unwrap_or(0).div_ceil(WATCH_QUESTIONS_OF_USER);
        let all: usize = questions.values().map(|questions| (*questions).min(WATCH_QUESTIONS_OF_USER)).sum();
        let rounds = all.div_ceil(WATCH_QUESTIONS_PER_SECOND).max(own).max(1);
        WATCH_EVERY * u32::try_from(rounds).unwrap_or(u32::MAX)
    }

    fn forget_questions(&self, user: &str, count: usize) {
        let mut questions = self.questions();
        if let Some(own) = questions.get_mut(user) {
            *own -= count;
            if *own == 0 {
                questions.remove(user);
            }
        }
    }

    fn questions(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Watched, watch::Sender<Arc<State>>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of a topic of which nothing new is known: what was known before, and why.
fn without_reply(before: &Fields, text: &str) -> Fields {
    let mut fields = before.clone();
    fields.insert(NO_REPLY.to_owned(), Value::from(text));
    fields
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
        let stale = second.next(without_reply(&second.fields, "no reply")).expect("a change");
        assert_eq!(stale.change, r#"{"gone":[],"set":{"no-reply":"no reply"}}"#, "what was known stays");
        let fresh = stale.next(second.fields.clone()).expect("a change");
        assert_eq!(fresh.change, r#"{"gone":["no-reply"],"set":{}}"#);
    }
}
