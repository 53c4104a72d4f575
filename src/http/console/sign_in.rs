//! Signing in and out.
//!
//! The engine checks the password: it gets HELLO with AUTH, as from any client, over a connection that becomes the
//! anchor of the [session](super::sessions). So the users, their passwords, the line of the audit for a refusal and ACL
//! LOG are those of the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant as Clock;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{AppendHeaders, IntoResponse as _, Response};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, timeout_at};

use super::super::limits::{CALL_PATIENCE, SMALL_BODY_MAX_BYTES};
use super::super::serve::Caller;
use super::answer::{answer, not_now};
use super::body::json_of;
use super::brakes::{Guess, Pair};
use super::guard::{Refused, is_secure, refusal};
use super::line::LineError;
use super::reply::{error_of, field};
use super::sessions::{Given, Newcomer};
use super::shared::Console;
use crate::base::excerpt;
use crate::base::os::logging::AUDIT;
use crate::net::inside::Like;

/// The user of those who give only a password, or none.
pub(super) const DEFAULT_USER: &str = "default";

/// `POST /api/sign-in` with `{"user": ..., "password": ...}`. Both may be missing: a new server asks for neither.
pub(super) async fn sign_in(
    State(console): State<Arc<Console>>,
    Extension(Caller { address, .. }): Extension<Caller>,
    request: Request,
) -> Response {
    let (is_secure, browser) = (is_secure(request.headers()), console.browsers.name_in(request.headers()));
    let fields = match json_of(request, SMALL_BODY_MAX_BYTES).await {
        Ok(Value::Object(fields)) => fields,
        Ok(_) => return refusal(Refused::Body),
        Err(why) => return refusal(why),
    };
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let (user, password) = (Some(text("user")).filter(|user| !user.is_empty()), text("password"));
    let auth = (user.is_some() || !password.is_empty())
        .then(|| (user.unwrap_or(DEFAULT_USER).as_bytes(), password.as_bytes()));
    let deadline = Instant::now() + CALL_PATIENCE;
    let Ok(Ok(_signing_in)) = timeout_at(deadline, console.signing_in.acquire()).await else {
        return refusal(Refused::Crowded);
    };
    let user = user.unwrap_or(DEFAULT_USER);
    // Without a password there is nothing to guess.
    let pair = auth.map(|(user, _)| console.browsers.pair(browser.as_deref(), address.ip(), user));
    let begun = match pair.map(|pair| guess(&console, pair, address)).transpose() {
        Ok(begun) => begun,
        Err(why) => return refusal(why),
    };
    let undecided = || begun.iter().for_each(|guess| console.brakes.undecided(guess));
    let said = async {
        let mut line = console.lines.open(user, address, None)?;
        let reply = line.hello(auth, deadline).await?;
        Ok::<_, LineError>((line, reply))
    };
    let (line, reply) = match said.await {
        Ok(said) => said,
        Err(error) => {
            undecided();
            return not_now(&error.to_string());
        }
    };
    match error_of(&reply) {
        // Asked without a password, a server that wants one says so.
        Some(text) if auth.is_none() && text.starts_with("NOAUTH") => return refusal(Refused::Password),
        Some(text) if text.starts_with("WRONGPASS") => return refusal(Refused::Password),
        Some(text) => {
            undecided();
            return not_now(text);
        }
        None => begun.iter().for_each(|guess| console.brakes.succeeded(guess)),
    }
    let Some(client) = field(&reply, "id").and_then(Value::as_u64) else { return not_now("the server is not known") };
    tracing::info!(target: AUDIT, client, %address, user = excerpt::of_text(user), "signed in to the console");
    let anchor = Like { client, password: Sha256::digest(password).into() };
    let newcomer = Newcomer { user: user.to_owned(), anchor, address, is_secure };
    let begun = console.browsers.remember(browser.as_deref(), user, is_secure);
    match begun.and_then(|known| Ok((console.sessions.begin(newcomer, line)?, known))) {
        Ok((Given { cookie, token }, known)) => {
            let said = answer(StatusCode::OK, &json!({ "user": user, "token": token }));
            (AppendHeaders([(SET_COOKIE, cookie), (SET_COOKIE, known)]), said).into_response()
        }
        Err(error) => not_now(&error.to_string()),
    }
}

/// Begins to try a password, unless too many have failed.
pub(super) fn guess(console: &Console, pair: Pair, address: SocketAddr) -> Result<Guess, Refused> {
    console.brakes.begin(pair, Clock::now()).map_err(|wait| {
        tracing::info!(target: AUDIT, %address, "sign-in to the console delayed, since too many have failed");
        Refused::Slow(wait.as_secs() + 1)
    })
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
            let cookie = console.sessions.forgetful_cookie(is_secure(&headers));
            ([(SET_COOKIE, cookie)], answer(StatusCode::OK, &json!({}))).into_response()
        }
        Err(why) => refusal(why),
    }
}
