//! `GET /api/stream`: the state of topics and its changes, as server-sent events.
//!
//! A page has one stream, and asks for a new one when it shows something else: `?overview&events&db=0&who=t:KEY&...`,
//! where `t:` is in front of text and `x:` in front of hexadecimal digits. Each topic has an event of its own, which
//! brings its whole state first and then changes. The event `tick` comes once a second, whatever the engine does; it
//! says whether the engine serves, from the engine's last note and not by asking it.

use std::collections::HashSet;
use std::convert::Infallible;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use hyper::body::Frame;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::interval;

use super::super::limits::{WATCH_BEHIND_MAX, WATCH_EVERY, WATCHED_BYTES_MAX, WATCHED_KEYS_MAX};
use super::guard::{Refused, refusal};
use super::reply::bytes_of;
use super::session::Session;
use super::shared::Console;
use super::topic::{Keys, Topic};
use super::viewers::Viewer;
use super::watch::{event, now_ms};
use crate::session::registry::Readiness;

/// See the file's header.
pub(super) async fn stream(
    State(console): State<Arc<Console>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let session = match console.sessions.of(&headers) {
        Ok((session, _)) => session,
        Err(why) => return refusal(why),
    };
    let Some(topics) = topics(query.as_deref().unwrap_or_default()) else { return refusal(Refused::Body) };
    let Some(viewer) = console.viewers.enter(&session.user) else { return refusal(Refused::Crowded) };
    let (sender, receiver) = mpsc::channel(WATCH_BEHIND_MAX);
    for topic in topics {
        let (console, session, sender) = (Arc::clone(&console), Arc::clone(&session), sender.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = forward(&console, &session, &topic, &sender) => {}
                () = session.is_over() => {}
                () = sender.closed() => {}
            }
        });
    }
    tokio::spawn(tick(console, session, sender, viewer));
    let head = [(CONTENT_TYPE, "text/event-stream")];
    (head, Body::new(Events(receiver))).into_response()
}

/// Reads which topics are wanted.
fn topics(query: &str) -> Option<Vec<Topic>> {
    if query.len() > 4 * WATCHED_BYTES_MAX {
        return None;
    }
    let (mut topics, mut db, mut bytes) = (Vec::new(), 0, 0);
    let (mut who, mut stocks, mut queues) = (Vec::new(), Vec::new(), Vec::new());
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let list = match &*name {
            "overview" => {
                topics.push(Topic::Overview);
                continue;
            }
            "events" => {
                topics.push(Topic::Events);
                continue;
            }
            "db" => {
                db = value.parse().ok()?;
                continue;
            }
            "who" => &mut who,
            "stocks" => &mut stocks,
            "queues" => &mut queues,
            _ => return None,
        };
        let key = match value.split_once(':')? {
            ("t", text) => text.as_bytes().to_vec(),
            ("x", digits) => bytes_of(&json!({ "hex": digits }))?,
            _ => return None,
        };
        bytes += key.len();
        list.push(key);
    }
    let is_too_much = |names: &Vec<Vec<u8>>| names.len() > WATCHED_KEYS_MAX || !are_different(names);
    if !are_different(&topics) || [&who, &stocks, &queues].into_iter().any(is_too_much) {
        return None;
    }
    let keys = |names: Vec<Vec<u8>>| Some(Keys { db, names }).filter(|keys| !keys.names.is_empty());
    topics.extend(keys(who).map(Topic::Who));
    topics.extend(keys(stocks).map(Topic::Stocks));
    topics.extend(keys(queues).map(Topic::Queues));
    (bytes <= WATCHED_BYTES_MAX).then_some(topics)
}

fn are_different<T: Eq + Hash>(items: &[T]) -> bool {
    items.iter().collect::<HashSet<_>>().len() == items.len()
}

/// Sends the state of a topic, until the page has left.
async fn forward(console: &Console, session: &Arc<Session>, topic: &Topic, sender: &mpsc::Sender<Bytes>) {
    loop {
        let mut state = console.watches.subscribe(session, topic.clone());
        let mut sent = 0;
        loop {
            let now = Arc::clone(&state.borrow_and_update());
            // A page that did not read for a while has missed some changes.
            let event = if now.version == sent + 1 && sent > 0 { &now.change } else { &now.whole };
            if now.version > sent && sender.send(event.clone()).await.is_err() {
                return;
            }
            sent = now.version;
            if state.changed().await.is_err() {
                // The session by which the topic was asked for is over. This one goes on.
                break;
            }
        }
    }
}

/// Says once a second how the engine is, until the page leaves or its session is over.
async fn tick(console: Arc<Console>, session: Arc<Session>, sender: mpsc::Sender<Bytes>, viewer: Viewer) {
    let mut seconds = interval(WATCH_EVERY);
    loop {
        tokio::select! {
            _ = seconds.tick() => {}
            () = session.is_over() => {
                // The page need not try again.
                let _ = sender.try_send(event("over", &json!({})));
                break;
            }
            () = sender.closed() => break,
        }
        session.is_used();
        let state = match console.registry.readiness() {
            Readiness::Loading => "loading",
            Readiness::Unlogged => "unlogged",
            Readiness::Following => "following",
            Readiness::Ready => "ready",
            Readiness::Busy => "busy",
        };
        let running_ms = console.registry.running_for().map(|time| time.as_millis() as u64);
        let said = json!({ "now-ms": now_ms(), "state": state, "running-ms": running_ms });
        if sender.send(event("tick", &said)).await.is_err() {
            break;
        }
    }
    drop(viewer);
}

/// The body of the response.
struct Events(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_read_and_bounded() {
        let keys = |db, names: &[&[u8]]| Keys { db, names: names.iter().map(|name| name.to_vec()).collect() };
        assert_eq!(topics(""), Some(vec![]));
        assert_eq!(topics("overview&events"), Some(vec![Topic::Overview, Topic::Events]));
        assert_eq!(topics("who=t:a%20b&db=3&who=x:ff00"), Some(vec![Topic::Who(keys(3, &[b"a b", b"\xff\x00"]))]));
        let many: String = (0..WATCHED_KEYS_MAX + 1).map(|number| format!("who=t:{number}&")).collect();
        for bad in ["nosuch", "who=a", "who=x:f", "db=x", &many, "who=t:k&who=x:6b", "events&events"] {
            assert_eq!(topics(bad), None, "{bad}");
        }
        assert_eq!(topics(&format!("who=t:{}", "k".repeat(WATCHED_BYTES_MAX + 1))), None);
    }
}
