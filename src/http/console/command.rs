//! `POST /api/command`: commands, as the user of the session.
//!
//! `{"db": 0, "calls": [["GET", "key"], ...]}` becomes `{"replies": [...]}`, in the form that [`reply`](super::reply)
//! gives them. The calls of a request are a pipeline on a connection of their own: what one of them leaves behind on
//! the connection (SELECT, MULTI, WATCH) is gone with the request.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};

use super::super::limits::{CALL_PATIENCE, CALLS_MAX, REPLIES_MAX_BYTES};
use super::answer::{answer, not_now, refused};
use super::calls::{CallError, connect};
use super::guard::{Refused, refusal};
use super::line::{LineError, Words};
use super::reply::bytes_of;
use super::sessions::Session;
use super::shared::Console;
use crate::net::inside::Inside;

/// See the file's header.
pub(super) async fn run(State(console): State<Arc<Console>>, headers: HeaderMap, body: Bytes) -> Response {
    let session = match console.sessions.of_change(&headers) {
        Ok(session) => session,
        Err(why) => return refusal(why),
    };
    let Some((db, calls)) = serde_json::from_slice(&body).ok().and_then(read) else { return refusal(Refused::Body) };
    let Ok(_calling) = session.calls.try_acquire() else { return refusal(Refused::Crowded) };
    match call(&console.inside, &session, db, &calls).await {
        Ok(replies) => answer(StatusCode::OK, &json!({ "replies": replies })),
        Err(CallError::Over) => refusal(Refused::SignedOut),
        Err(CallError::Refused(text)) => not_now(&text),
        Err(CallError::Line(LineError::Closed)) => not_now("the call closed its connection"),
        Err(CallError::Line(error)) => refused(StatusCode::GATEWAY_TIMEOUT, "no-reply", &error.to_string()),
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

async fn call(inside: &Inside, session: &Session, db: u64, calls: &[Words]) -> Result<Vec<Value>, CallError> {
    let mut line = connect(inside, session, db).await?;
    Ok(line.call(calls, REPLIES_MAX_BYTES, CALL_PATIENCE).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
