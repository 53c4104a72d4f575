//! The state of topics for all pages that are shown it.
//!
//! A topic is asked for once a second while some page is shown it, and not at all otherwise. Pages of one user that are
//! shown the same topic share the questions; what a user may see depends on nothing else. The number of questions a
//! second is [bounded](super::pace): with very many keys the topics are asked for less often. Questions take turns, and
//! those of one turn are put in batches, each of which has a bound for its replies. One that the user may not ask is
//! not asked again for a while.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use axum::body::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::super::aside::aside;
use super::super::limits::{
    CALL_PATIENCE, STATE_COPIES, STATES_OF_USER_BYTES, STATES_TOTAL_BYTES, WATCH_BATCH, WATCH_DENIED, WATCH_EVERY,
    WATCH_TURN,
};
use super::line::{Line, LineError, Lines, Words};
use super::pace::Paces;
use super::reply::error_of;
use super::room::Rooms;
use super::session::{CallError, Session};
use super::topic::{Fields, Memory, NO_REPLY, Topic};

/// The state of a topic.
#[derive(Default)]
pub(super) struct State {
    /// Counts the changes. 0: nothing is known yet.
    pub(super) version: u64,
    fields: Fields,
    /// The whole state, as the event that pages get.
    pub(super) whole: Bytes,
    /// The change from the version before, as such an event.
    pub(super) change: Bytes,
}

impl State {
    /// The state of a topic of this name after this one; `None` if nothing has changed.
    fn next(&self, name: &str, fields: Fields) -> Option<State> {
        let changed: Fields = fields
            .iter()
            .filter(|(name, value)| self.fields.get(*name) != Some(*value))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let gone: Vec<&String> = self.fields.keys().filter(|name| !fields.contains_key(*name)).collect();
        if self.version > 0 && changed.is_empty() && gone.is_empty() {
            return None;
        }
        let change = event(name, &json!({ "set": changed, "gone": gone }));
        let whole = event(name, &json!({ "whole": fields }));
        Some(State { version: self.version + 1, fields, whole, change })
    }
}

type Watched = (String, Topic);

/// See the file's header.
pub(super) struct Watches {
    lines: Arc<Lines>,
    all: Mutex<HashMap<Watched, watch::Sender<Arc<State>>>>,
    paces: Paces,
    /// Room for the states.
    rooms: Rooms,
    /// Questions that were asked since the start.
    asked: AtomicU64,
}

impl Watches {
    pub(super) fn new(lines: Arc<Lines>) -> Arc<Watches> {
        let rooms = Rooms::new(STATES_TOTAL_BYTES, STATES_OF_USER_BYTES);
        Arc::new(Watches { lines, all: Mutex::default(), paces: Paces::new(), rooms, asked: AtomicU64::new(0) })
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
        tokio::select! {
            () = self.ask_on(&watched.1, &session, &sender) => {}
            () = session.is_over() => {}
            () = sender.closed() => {}
        }
        let mut all = self.all();
        // A page may have come in the meantime, and have its own.
        if all.get(&watched).is_some_and(|known| known.same_channel(&sender)) {
            all.remove(&watched);
        }
    }

    async fn ask_on(&self, topic: &Topic, session: &Session, sender: &watch::Sender<Arc<State>>) {
        let (mut course, mut room) = (Course::default(), self.rooms.of(&session.user).room());
        loop {
            let began = Instant::now();
            let before = Arc::clone(&sender.borrow());
            let mut fields = Cow::Borrowed(&before.fields);
            match self.ask_once(topic, session, &mut course, &mut fields).await {
                Ok(()) => {}
                Err(CallError::Over) => return,
                Err(CallError::Refused(text)) => is_old(fields.to_mut(), &text),
                Err(CallError::Line(error)) => {
                    course.line = None;
                    is_old(fields.to_mut(), &error.to_string());
                }
            }
            let fields = fields.into_owned();
            let (known, name, bytes) = (Arc::clone(&before), topic.name(), before.whole.len());
            // An error says that the process ends.
            let Ok(state) = aside(bytes, move || known.next(name, fields)).await else { return };
            let has_room = state.as_ref().is_none_or(|state| room.grow(STATE_COPIES * state.whole.len()).is_ok());
            if let Some(state) = if has_room { state } else { before.next(name, too_large(&before.fields)) } {
                sender.send_replace(Arc::new(state));
            }
            sleep_until(began + WATCH_EVERY).await;
        }
    }

    /// Brings the state up to date.
    async fn ask_once(
        &self,
        topic: &Topic,
        session: &Session,
        Course { line, memory, denied }: &mut Course,
        fields: &mut Cow<'_, Fields>,
    ) -> Result<(), CallError> {
        let line = match line {
            Some(line) => line,
            None if self.lines.are_scarce() => return Err(LineError::Crowded.into()),
            None => {
                let mut new = session.connect(&self.lines, topic.db(), Instant::now() + CALL_PATIENCE).await?;
                new.makes_objects();
                line.insert(new)
            }
        };
        denied.forget_old();
        loop {
            let replies = self.replies(&session.user, line, denied, &topic.questions(memory)).await?;
            memory.asked = self.asked.load(Ordering::Relaxed);
            *fields = Cow::Owned(topic.state(memory, fields, replies, now_ms()));
            if !memory.has_more {
                return Ok(());
            }
        }
    }

    /// The replies to questions, when it is their turn.
    async fn replies(
        &self,
        user: &str,
        line: &mut Line,
        denied: &mut Denied,
        questions: &[Words],
    ) -> Result<Vec<Value>, LineError> {
        let asked: Vec<Words> =
            questions.iter().filter(|question| denied.reply_to(question).is_none()).cloned().collect();
        let mut new = Vec::with_capacity(asked.len());
        // One turn for many batches: what is spread over time finds nothing in the processor's caches.
        for turn in asked.chunks(WATCH_TURN) {
            self.paces.turn(user, turn.len() as u32).await;
            for batch in turn.chunks(WATCH_BATCH) {
                self.asked.fetch_add(batch.len() as u64, Ordering::Relaxed);
                new.extend(line.call(batch, Instant::now() + CALL_PATIENCE).await?.list);
            }
        }
        let mut new = new.into_iter();
        let reply_to = |question| match denied.reply_to(question) {
            Some(reply) => reply.clone(),
            None => denied.noted(question, new.next().unwrap_or_default()),
        };
        Ok(questions.iter().map(reply_to).collect())
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Watched, watch::Sender<Arc<State>>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What goes on from one round of questions to the next.
#[derive(Default)]
struct Course {
    line: Option<Line>,
    memory: Memory,
    denied: Denied,
}

/// Questions that the user may not ask, with the replies that said so, and when.
#[derive(Default)]
struct Denied(HashMap<Words, (Value, Instant)>);

impl Denied {
    fn forget_old(&mut self) {
        self.0.retain(|_, (_, at)| at.elapsed() < WATCH_DENIED);
    }

    fn reply_to(&self, question: &Words) -> Option<&Value> {
        self.0.get(question).map(|(reply, _)| reply)
    }

    /// Notes a reply if it denies its question.
    fn noted(&mut self, question: &Words, reply: Value) -> Value {
        if error_of(&reply).is_some_and(|text| text.starts_with("NOPERM")) {
            self.0.insert(question.clone(), (reply.clone(), Instant::now()));
        }
        reply
    }
}

/// Notes of a state that nothing new is known, and why. What was known stays.
fn is_old(fields: &mut Fields, text: &str) {
    fields.insert(NO_REPLY.to_owned(), Value::from(text));
}

/// The state as it was, for whose successor there is no room.
fn too_large(before: &Fields) -> Fields {
    let mut fields = before.clone();
    is_old(&mut fields, "the pages of this user show too much at once");
    fields
}

/// An event of a stream: JSON on one line.
pub(super) fn event(name: &str, value: &Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {value}\n\n"))
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
        let next = |state: &State, fields: Fields| state.next("t", fields).expect("a change");
        let first = next(&State::default(), fields(r#"{"a": 1, "b": 2}"#));
        assert_eq!((first.version, &first.whole[..]), (1, &b"event: t\ndata: {\"whole\":{\"a\":1,\"b\":2}}\n\n"[..]));
        assert!(first.next("t", fields(r#"{"a": 1, "b": 2}"#)).is_none());
        let changed = |state: &State| {
            let event = String::from_utf8_lossy(&state.change).into_owned();
            event.trim_end().rsplit_once(": ").map(|(_, change)| change.to_owned()).expect("data")
        };
        let second = next(&first, fields(r#"{"a": 1, "c": 3}"#));
        assert_eq!((second.version, &*changed(&second)), (2, r#"{"gone":["b"],"set":{"c":3}}"#));
        assert!(State::default().next("t", Fields::new()).is_some(), "that there is nothing is news, too");
        let mut old = second.fields.clone();
        is_old(&mut old, "no reply");
        let stale = next(&second, old);
        assert_eq!(changed(&stale), r#"{"gone":[],"set":{"no-reply":"no reply"}}"#, "what was known stays");
        let fresh = next(&stale, second.fields.clone());
        assert_eq!(changed(&fresh), r#"{"gone":["no-reply"],"set":{}}"#);
    }
}
