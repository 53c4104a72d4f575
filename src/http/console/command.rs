//! `POST /api/command`: commands, as the user of the session.
//!
//! `{"db": 0, "calls": [["GET", "key"], ...]}` becomes `{"replies": [...]}`, in the form that [`reply`](super::reply)
//! gives them. The calls of a request are a pipeline on a connection of their own: what one of them leaves behind on
//! the connection (SELECT, MULTI, WATCH) is gone with the request.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_ENCODING;
use axum::response::{IntoResponse as _, Response};
use flate2::Compression;
use hyper::body::{Frame, SizeHint};
use serde_json::Value;
use tokio::time::Instant;

use super::super::gzip::{self, PLAIN_MAX_BYTES};
use super::super::limits::{BODY_MAX_BYTES, CALL_PATIENCE, CALLS_MAX};
use super::super::serve::Caller;
use super::answer::{KIND, not_now, refused};
use super::body::json_of;
use super::brakes::Pair;
use super::guard::{Refused, refusal};
use super::line::{LineError, Replies, Room, Words};
use super::reply::bytes_of;
use super::session::{CallError, Session};
use super::shared::Console;
use super::sign_in::{DEFAULT_USER, guess};

/// See the file's header.
pub(super) async fn run(
    State(console): State<Arc<Console>>,
    Extension(Caller { address, .. }): Extension<Caller>,
    request: Request,
) -> Response {
    let session = match console.sessions.of_change(request.headers()) {
        Ok(session) => session,
        Err(why) => return refusal(why),
    };
    let is_gzip = gzip::is_accepted(request.headers());
    let body = match json_of(request, BODY_MAX_BYTES).await {
        Ok(body) => body,
        Err(why) => return refusal(why),
    };
    let Some((db, calls)) = read(body) else { return refusal(Refused::Body) };
    let Ok(_calling) = session.calls.try_acquire() else { return refusal(Refused::Crowded) };
    let guesses = match begin_guesses(&console, &calls, address) {
        Ok(guesses) => guesses,
        Err(why) => return refusal(why),
    };
    match call(&console, &session, db, &calls).await {
        Ok(Replies { list, room }) => {
            end_guesses(&console, &guesses, &list);
            told(list, is_gzip, room)
        }
        Err(error) => not_made(error),
    }
}

/// The response when calls were not made.
pub(super) fn not_made(error: CallError) -> Response {
    match error {
        CallError::Over => refusal(Refused::SignedOut),
        CallError::Refused(text) => not_now(&text),
        CallError::Line(LineError::Closed) => not_now("the call closed its connection"),
        CallError::Line(error @ LineError::TooLong(_)) => {
            refused(StatusCode::BAD_GATEWAY, "too-long", &error.to_string())
        }
        CallError::Line(error) => refused(StatusCode::GATEWAY_TIMEOUT, "no-reply", &error.to_string()),
    }
}

async fn call(console: &Console, session: &Session, db: u64, calls: &[Words]) -> Result<Replies, CallError> {
    let deadline = Instant::now() + CALL_PATIENCE;
    let mut line = session.connect(&console.lines, db, deadline).await?;
    Ok(line.call(calls, deadline).await?)
}

/// The users whose passwords each call tries: AUTH and HELLO do. Of HELLO each word behind an `AUTH` counts, since one
/// of them may be the name of a connection.
fn users_tried(words: &Words) -> Vec<&[u8]> {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    match words.first() {
        Some(first) if is(first, "auth") && words.len() == 2 => vec![DEFAULT_USER.as_bytes()],
        Some(first) if is(first, "auth") => words.get(1).map(Vec::as_slice).into_iter().collect(),
        Some(first) if is(first, "hello") => {
            let pairs = words.windows(2).filter(|pair| is(&pair[0], "auth"));
            pairs.map(|pair| pair[1].as_slice()).collect()
        }
        _ => Vec::new(),
    }
}

/// Counts the passwords that calls try, as if they were sign-ins. Returns those of each call.
fn begin_guesses(console: &Console, calls: &[Words], address: SocketAddr) -> Result<Vec<Vec<Pair>>, Refused> {
    let guessed = |words: &Words| {
        let pairs: Vec<Pair> = users_tried(words).into_iter().map(|user| Pair::of(address.ip(), user)).collect();
        pairs.iter().try_for_each(|pair| guess(console, *pair, address)).map(|()| pairs)
    };
    calls.iter().map(guessed).collect()
}

/// Notes which passwords were right.
fn end_guesses(console: &Console, guesses: &[Vec<Pair>], replies: &[Value]) {
    for (pairs, reply) in guesses.iter().zip(replies) {
        // In a transaction the reply says nothing yet.
        let is_right = reply.get("status").is_some_and(|status| status == "OK") || reply.get("map").is_some();
        if let ([pair], true) = (&pairs[..], is_right) {
            console.brakes.succeeded(*pair);
        }
    }
}

/// The response with replies, compressed if that is wanted. They count as being in flight until the response is read.
fn told(replies: Vec<Value>, is_gzip: bool, room: Room) -> Response {
    let text = format!("{{\"replies\":{}}}", Value::Array(replies));
    let is_gzip = is_gzip && text.len() > PLAIN_MAX_BYTES;
    let response = match is_gzip.then(|| gzip::compress(text.as_bytes(), Compression::fast())) {
        Some(Ok(bytes)) => (KIND, [(CONTENT_ENCODING, "gzip")], bytes).into_response(),
        _ => (KIND, text).into_response(),
    };
    response.map(|body| Body::new(InFlight { body, _room: room }))
}

/// A body that takes a part of the bytes for all replies.
struct InFlight {
    body: Body,
    _room: Room,
}

impl hyper::body::Body for InFlight {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Reads the body: a database, and calls of at least one word each.
fn read(body: Value) -> Option<(u64, Vec<Words>)> {
    let db = body.get("db").map_or(Some(0), Value::as_u64)?;
    let calls = body.get("calls")?.as_array()?;
    if calls.is_empty() || calls.len() > CALLS_MAX {
        return None;
    }
    let words = |call: &Value| {
        let words = call.as_array()?.iter().map(bytes_of).collect::<Option<Words>>()?;
        Some(words).filter(|words| !words.is_empty())
    };
    Some((db, calls.iter().map(words).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn passwords_that_calls_try_are_noticed() {
        let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Words>();
        for (line, users) in [
            ("auth pass", &["default"][..]),
            ("AUTH ann pass", &["ann"]),
            ("HELLO 3 AUTH ann pass SETNAME x", &["ann"]),
            ("HELLO 3 SETNAME auth AUTH ann pass", &["AUTH", "ann"]),
            ("HELLO 3", &[]),
            ("GET auth", &[]),
        ] {
            let tried: Vec<String> =
                users_tried(&words(line)).iter().map(|user| String::from_utf8_lossy(user).into_owned()).collect();
            assert_eq!(tried, users, "{line}");
        }
    }

    #[test]
    fn bodies_are_read() {
        let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Words>();
        let body = json!({"db": 3, "calls": [["SET", "k", 7], ["GET", {"hex": "6b"}]]});
        assert_eq!(read(body), Some((3, vec![words(&["SET", "k", "7"]), words(&["GET", "k"])])));
        assert_eq!(read(json!({"calls": [["PING"]]})), Some((0, vec![words(&["PING"])])));
        for bad in [
            json!({}),
            json!({"calls": []}),
            json!({"calls": [[]]}),
            json!({"calls": ["PING"]}),
            json!({"calls": [["PING", null]]}),
            json!({"db": -1, "calls": [["PING"]]}),
            json!({"db": "x", "calls": [["PING"]]}),
            json!({"calls": vec![json!(["PING"]); CALLS_MAX + 1]}),
        ] {
            assert_eq!(read(bad.clone()), None, "{bad}");
        }
    }
}
