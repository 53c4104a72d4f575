//! Signing in and out.
//!
//! The engine checks the password: it gets HELLO with AUTH, as from any client, over a connection that becomes the
//! anchor of the [session](super::sessions). So the users, their passwords, the line of the audit for a refusal and ACL
//! LOG are those of the server.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::super::limits::CALL_PATIENCE;
use super::super::serve::PeerAddress;
use super::answer::{answer, not_now};
use super::guard::{Refused, refusal};
use super::line::{Line, LineError};
use super::reply::{error_of, field};
use super::shared::Console;
use crate::base::excerpt;
use crate::base::os::logging::AUDIT;

/// The user of those who give only a password, or none.
const DEFAULT_USER: &str = "default";

/// `POST /api/sign-in` with `{"user": ..., "password": ...}`. Both may be missing: a new server asks for neither.
pub(super) async fn sign_in(
    State(console): State<Arc<Console>>,
    Extension(PeerAddress(address)): Extension<PeerAddress>,
    body: Bytes,
) -> Response {
    let Ok(Value::Object(fields)) = serde_json::from_slice(&body) else { return refusal(Refused::Body) };
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let (user, password) = (Some(text("user")).filter(|user| !user.is_empty()), text("password"));
    let Ok(_signing_in) = console.signing_in.acquire().await else { return refusal(Refused::Crowded) };
    if let Err(wait) = console.brakes.begin(address.ip(), Instant::now()) {
        tracing::info!(target: AUDIT, %address, "sign-in to the console delayed, since too many have failed");
        return refusal(Refused::Slow(wait.as_secs() + 1));
    }
    let auth = (user.is_some() || !password.is_empty())
        .then(|| (user.unwrap_or(DEFAULT_USER).as_bytes(), password.as_bytes()));
    let said = async {
        let mut line = Line::open(&console.inside, address, None)?;
        let reply = line.hello(auth, CALL_PATIENCE).await?;
        Ok::<_, LineError>((line, reply))
    };
    let (line, reply) = match said.await {
        Ok(said) => said,
        Err(error) => {
            console.brakes.undecided(address.ip());
            return not_now(&error.to_string());
        }
    };
    match error_of(&reply) {
        // Asked without a password, a server that wants one says so. That was no guess.
        Some(text) if auth.is_none() && text.starts_with("NOAUTH") => {
            console.brakes.undecided(address.ip());
            return refusal(Refused::Password);
        }
        Some(text) if text.starts_with("WRONGPASS") => return refusal(Refused::Password),
        Some(text) => {
            console.brakes.undecided(address.ip());
            return not_now(text);
        }
        None => console.brakes.succeeded(address.ip()),
    }
    let Some(client) = field(&reply, "id").and_then(Value::as_u64) else { return not_now("the server is not known") };
    let user = user.unwrap_or(DEFAULT_USER).to_owned();
    tracing::info!(target: AUDIT, client, %address, user = excerpt::of_text(&user), "signed in to the console");
    match console.sessions.begin(user.clone(), client, address, line) {
        Ok(given) => with_cookie(given.cookie, &json!({ "user": user, "token": given.token })),
        Err(error) => not_now(&error.to_string()),
    }
}

/// `GET /api/session`: who is signed in, and the token.
pub(super) async fn session(State(console): State<Arc<Console>>, headers: HeaderMap) -> Response {
    match console.sessions.of(&headers) {
        Ok((session, token)) => answer(StatusCode::OK, &json!({ "user": session.user, "token": token })),
        Err(why) => refusal(why),
    }
}

/// `POST /api/sign-out`
pub(super) async fn sign_out(State(console): State<Arc<Console>>, headers: HeaderMap) -> Response {
    match console.sessions.of_change(&headers) {
        Ok(session) => {
            session.end();
            with_cookie(console.sessions.forgetful_cookie(), &json!({}))
        }
        Err(why) => refusal(why),
    }
}

fn with_cookie(cookie: String, value: &Value) -> Response {
    ([(SET_COOKIE, cookie)], answer(StatusCode::OK, value)).into_response()
}
