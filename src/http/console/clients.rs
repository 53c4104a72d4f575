//! `POST /api/clients`: connections of the server, as CLIENT LIST tells them to the user of the session.
//!
//! `{"find": "text", "from": 0, "count": 200}` becomes `{"lines": [...], "found": n}`. A server may have so many
//! connections that a browser should not get them all, so they are looked through here.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::aside::aside;
use super::super::limits::{CALL_PATIENCE, CLIENTS_SHOWN_MAX, SMALL_BODY_MAX_BYTES};
use super::answer::{answer, not_now};
use super::body::json_of;
use super::command::not_made;
use super::guard::{Refused, refusal};
use super::line::Replies;
use super::reply::{bytes_of, error_of};
use super::session::{CallError, Session};
use super::shared::Console;

/// The fields of a line in which the text is looked for.
const SEARCHED: [&str; 6] = ["id", "addr", "name", "user", "cmd", "lib-name"];

/// See the file's header.
pub(super) async fn list(State(console): State<Arc<Console>>, request: Request) -> Response {
    let session = match console.sessions.of_change(request.headers()) {
        Ok(session) => session,
        Err(why) => return refusal(why),
    };
    let body = match json_of(request, SMALL_BODY_MAX_BYTES).await {
        Ok(body) => body,
        Err(why) => return refusal(why),
    };
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |name: &str| body.get(name).and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok());
    let (find, from) = (text("find"), number("from").unwrap_or(0));
    let count = number("count").unwrap_or(CLIENTS_SHOWN_MAX).min(CLIENTS_SHOWN_MAX);
    let Ok(calling) = Arc::clone(&session.calls).try_acquire_owned() else { return refusal(Refused::Crowded) };
    let Replies { list, room } = match ask(&console, &session).await {
        Ok(replies) => replies,
        Err(error) => return not_made(error),
    };
    let reply = list.into_iter().next().unwrap_or_default();
    let bytes = room.bytes();
    // Also when nobody waits for it any more, what it takes counts until it is done.
    let work = move || (told(&reply, &find, from, count), room, calling);
    match aside(bytes, work).await {
        Ok((said, ..)) => answer(StatusCode::OK, &said),
        Err(error) => not_now(&error.to_string()),
    }
}

async fn ask(console: &Console, session: &Session) -> Result<Replies, CallError> {
    let deadline = Instant::now() + CALL_PATIENCE;
    let mut line = session.connect(&console.lines, 0, deadline).await?;
    line.takes_a_long_text();
    Ok(line.call(&[vec![b"CLIENT".to_vec(), b"LIST".to_vec()]], deadline).await?)
}

fn told(reply: &Value, find: &str, from: usize, count: usize) -> Value {
    match bytes_of(reply) {
        Some(bytes) => page(&String::from_utf8_lossy(&bytes), find, from, count),
        None => json!({ "error": error_of(reply).unwrap_or("no list") }),
    }
}

/// Some of the lines that have the text in a field, and how many there are.
fn page(text: &str, find: &str, from: usize, count: usize) -> Value {
    let has = |line: &&str| {
        find.is_empty()
            || line
                .split(' ')
                .filter_map(|field| field.split_once('='))
                .any(|(name, value)| SEARCHED.contains(&name) && value.contains(find))
    };
    let found: Vec<&str> = text.lines().filter(|line| !line.is_empty()).filter(has).collect();
    let lines: Vec<&&str> = found.iter().skip(from).take(count).collect();
    json!({ "lines": lines, "found": found.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_looked_through_and_paged() {
        let text = "id=1 addr=10.0.0.1:7 name=ann cmd=get\nid=2 addr=10.0.0.2:7 name=bob cmd=set\n";
        assert_eq!(page(text, "", 1, 1)["lines"], json!(["id=2 addr=10.0.0.2:7 name=bob cmd=set"]));
        assert_eq!(page(text, "", 0, 1)["found"], json!(2));
        assert_eq!(page(text, "ann", 0, 9)["found"], json!(1));
        assert_eq!(page(text, "addr", 0, 9)["found"], json!(0), "names of fields are not searched");
    }
}
