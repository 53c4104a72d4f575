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
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::super::aside::aside;
use super::super::gzip::{self, PLAIN_MAX_BYTES};
use super::super::limits::{BODY_MAX_BYTES, CALL_PATIENCE, CALLS_MAX};
use super::super::serve::Caller;
use super::answer::{KIND, not_now, refused};
use super::body::json_of;
use super::brakes::Guess;
use super::guard::{Refused, refusal};
use super::line::{LineError, Replies, Words};
use super::reply::bytes_of;
use super::room::Room;
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
    let browser = console.browsers.name_in(request.headers());
    let body = match json_of(request, BODY_MAX_BYTES).await {
        Ok(body) => body,
        Err(why) => return refusal(why),
    };
    let Some((db, calls)) = read(body) else { return refusal(Refused::Body) };
    if let [before @ .., _] = &calls[..]
        && before.iter().any(leaves_resp3)
    {
        return refused(StatusCode::BAD_REQUEST, "protocol", "no call may follow HELLO 2 or RESET");
    }
    let Ok(calling) = Arc::clone(&session.calls).try_acquire_owned() else { return refusal(Refused::Crowded) };
    let guesses = match begin_guesses(&console, &calls, browser.as_deref(), address) {
        Ok(guesses) => guesses,
        Err(why) => return refusal(why),
    };
    match call(&console, &session, db, &calls).await {
        Ok(replies) => {
            end_guesses(&console, &guesses, &calls, &replies.list);
            told(replies, is_gzip, calling).await
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
        CallError::Line(error @ (LineError::TooLong(_) | LineError::TooMany)) => {
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

/// Whether replies to later calls are no longer in RESP3. Only there are they told from messages.
fn leaves_resp3(words: &Words) -> bool {
    let is = |at: usize, name: &str| words.get(at).is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    is(0, "reset") || (is(0, "hello") && words.len() > 1 && !is(1, "3"))
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

/// Counts the passwords that calls try, as if they were sign-ins.
fn begin_guesses(
    console: &Console,
    calls: &[Words],
    browser: Option<&str>,
    address: SocketAddr,
) -> Result<Vec<Guess>, Refused> {
    let users = calls.iter().flat_map(users_tried);
    users.map(|user| guess(console, console.browsers.pair(browser, address.ip(), user), address)).collect()
}

/// Notes that a password was right. Of several calls no reply is surely that to the guess: some have none, and in a
/// transaction it says nothing yet.
fn end_guesses(console: &Console, guesses: &[Guess], calls: &[Words], replies: &[Value]) {
    if let ([guess], [_], [reply]) = (guesses, calls, replies)
        && (reply.get("status").is_some_and(|status| status == "OK") || reply.get("map").is_some())
    {
        console.brakes.succeeded(guess);
    }
}

/// The response with replies, compressed if that is wanted.
async fn told(replies: Replies, is_gzip: bool, calling: OwnedSemaphorePermit) -> Response {
    let Replies { list, room } = replies;
    let (bytes, held) = (room.bytes(), Held { _room: room, _calling: calling });
    match aside(bytes, move || (rendered(list, is_gzip), held)).await {
        Ok((response, held)) => response.map(|body| Body::new(InFlight { body, _held: held })),
        Err(error) => not_now(&error.to_string()),
    }
}

fn rendered(replies: Vec<Value>, is_gzip: bool) -> Response {
    let text = format!("{{\"replies\":{}}}", Value::Array(replies));
    let is_gzip = is_gzip && text.len() > PLAIN_MAX_BYTES;
    match is_gzip.then(|| gzip::compress(text.as_bytes(), Compression::fast())) {
        Some(Ok(bytes)) => (KIND, [(CONTENT_ENCODING, "gzip")], bytes).into_response(),
        _ => (KIND, text).into_response(),
    }
}

/// What a request takes until its response is read.
struct Held {
    _room: Room,
    _calling: OwnedSemaphorePermit,
}

/// A body that takes it.
struct InFlight {
    body: Body,
    _held: Held,
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
    fn calls_that_leave_resp3_are_noticed() {
        let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Words>();
        for (line, leaves) in
            [("HELLO 2", true), ("hello 3", false), ("HELLO", false), ("Reset", true), ("GET reset", false)]
        {
            assert_eq!(leaves_resp3(&words(line)), leaves, "{line}");
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
