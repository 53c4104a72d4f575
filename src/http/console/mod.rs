//! The site of `console-port`: a page that shows what the server knows, and lets people act on it.
//!
//! The page is a set of files ([`page`]), which run in the browser. It asks here for what it shows:
//!
//! | Request | Does |
//! |---|---|
//! | `POST /api/sign-in` | signs in as a user of the ACL, and begins a session ([`sign_in`]) |
//! | `GET /api/session` | tells who is signed in |
//! | `POST /api/sign-out` | ends the session |
//! | `POST /api/command` | runs commands as the user of the session ([`command`]) |
//! | `POST /api/clients` | finds connections of the server ([`clients`]) |
//! | `GET /api/stream` | sends the state of subjects and its changes, once a second ([`stream`]) |
//! | `GET /ready` | as at `metrics-port` |
//!
//! Nothing here decides what a user may do. Every call is a command, sent over a connection of its own that acts as the
//! user ([`session`]), so the ACL, limits and the audit are those of any client. [`guard`] turns away requests that
//! another site made, and sets the headers that keep foreign code out of the page.

mod answer;
mod body;
mod brakes;
mod browsers;
mod clients;
mod command;
mod cookie;
mod guard;
mod line;
mod pace;
mod page;
mod reply;
mod room;
mod session;
mod sessions;
mod shared;
mod sign_in;
mod stream;
mod topic;
mod viewers;
mod watch;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};

use super::crowd::{Crowd, Most};
use super::limits::{
    CONSOLE_CONNECTIONS_MAX, CONSOLE_HEAD_MAX_BYTES, CONSOLE_SILENT_MAX, CONSOLE_STRANGERS_MAX, CONSOLE_THREADS_ASIDE,
};
use super::probes;
use super::serve::{Caller, Site};
use crate::config::Config;
use crate::net::inside::Inside;
use crate::session::registry::Registry;
use guard::{Refused, is_api, refusal, set_headers};
use page::Page;
use shared::Console;

/// Makes the site.
pub(super) fn site(inside: Arc<Inside>, registry: Arc<Registry>, config: &Config) -> Site {
    let console = Arc::new(Console::new(inside, registry, config));
    let page = Router::new()
        .route("/", get(page::index))
        .route("/assets/{digest}/{*name}", get(page::asset))
        .with_state(Arc::new(Page::new()));
    let router = Router::new()
        .route("/api/sign-in", post(sign_in::sign_in))
        .route("/api/session", get(sign_in::session))
        .route("/api/sign-out", post(sign_in::sign_out))
        .route("/api/command", post(command::run))
        .route("/api/clients", post(clients::list))
        .route("/api/stream", get(stream::stream))
        .route("/health", get(probes::health))
        .route("/ready", get(ready))
        .with_state(Arc::clone(&console))
        .merge(page)
        .fallback(async || refusal(Refused::NotHere))
        .layer(from_fn_with_state(console, pass));
    Site {
        router,
        crowd: Crowd::new(Most {
            all: CONSOLE_CONNECTIONS_MAX,
            silent: CONSOLE_SILENT_MAX,
            strangers: CONSOLE_STRANGERS_MAX,
        }),
        head_max_bytes: CONSOLE_HEAD_MAX_BYTES,
        keeps_alive: true,
        threads_aside: CONSOLE_THREADS_ASIDE,
    }
}

/// Lets a request pass, or not.
async fn pass(State(console): State<Arc<Console>>, request: Request, next: Next) -> Response {
    let is_api = is_api(&request);
    let mut response = match console.guard.check(&request) {
        Ok(()) => {
            let caller = request.extensions().get::<Caller>().filter(|_| is_api);
            if let Some(caller) = caller.filter(|_| console.sessions.of(request.headers()).is_ok()) {
                caller.place.is_known();
            }
            next.run(request).await
        }
        Err(why) => refusal(why),
    };
    set_headers(is_api, &mut response);
    response
}

async fn ready(State(console): State<Arc<Console>>) -> Response {
    probes::told_ready(console.registry.readiness())
}
