//! The site of `metrics-port`: metrics for Prometheus, and liveness and readiness checks for service managers.
//!
//! `/health` is answered here, `/ready` and `/leader` from the engine's last report, and `/metrics` by asking the
//! engine through [`Questions`], for which it has [some time](METRICS_ENGINE_PATIENCE), and [the
//! system](process_metrics). Metrics are compressed for clients that accept gzip. Each connection carries one request.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use flate2::Compression;
use tokio::sync::Semaphore;

use super::crowd::{Crowd, Most};
use super::gzip::{self, PLAIN_MAX_BYTES};
use super::limits::{METRICS_CONNECTIONS_MAX, METRICS_ENGINE_PATIENCE, METRICS_HEAD_MAX_BYTES, METRICS_SILENT_MAX};
use super::process_metrics;
use super::questions::{Answer, Questions};
use super::serve::Site;
use crate::session::registry::{Readiness, Registry};

/// Sent while the engine can't be asked.
const BUSY: &str = "# HELP tidegate_busy Whether a command or script is blocking the server, so no other metric is \
                    available.\n\
                    # TYPE tidegate_busy gauge\ntidegate_busy 1\n";

struct Probes {
    questions: Arc<Questions>,
    registry: Arc<Registry>,
    /// Scrapes that may wait for the engine at a time.
    asking: Semaphore,
}

/// Makes the site.
pub(super) fn site(questions: Arc<Questions>, registry: Arc<Registry>) -> Site {
    let probes = Probes { questions, registry, asking: Semaphore::new(METRICS_SILENT_MAX) };
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/leader", get(leader))
        .method_not_allowed_fallback(not_here)
        .fallback(not_here)
        .with_state(Arc::new(probes));
    Site {
        router,
        crowd: Crowd::new(Most {
            all: METRICS_CONNECTIONS_MAX,
            silent: METRICS_SILENT_MAX,
            strangers: METRICS_CONNECTIONS_MAX,
        }),
        head_max_bytes: METRICS_HEAD_MAX_BYTES,
        keeps_alive: false,
        // Only scrapes ask the system for what may take a while.
        threads_aside: METRICS_SILENT_MAX,
    }
}

/// Tells that the process lives.
pub(super) async fn health() -> Response {
    text(StatusCode::OK, "the server lives\n")
}

async fn ready(State(probes): State<Arc<Probes>>) -> Response {
    told_ready(probes.registry.readiness())
}

async fn leader(State(probes): State<Arc<Probes>>) -> Response {
    told(probes.registry.readiness())
}

/// Only GET and HEAD ask for something.
async fn not_here(method: Method) -> Response {
    match method {
        Method::GET | Method::HEAD => text(StatusCode::NOT_FOUND, "there are /metrics, /health, /ready and /leader\n"),
        _ => text(StatusCode::METHOD_NOT_ALLOWED, "405 Method Not Allowed\n"),
    }
}

async fn metrics(State(probes): State<Arc<Probes>>, headers: HeaderMap) -> Response {
    let Ok(_asking) = probes.asking.try_acquire() else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "too many ask at once\n");
    };
    let Some(Answer { metrics, dir }) = probes.questions.ask(METRICS_ENGINE_PATIENCE).await else {
        return text(StatusCode::SERVICE_UNAVAILABLE, BUSY);
    };
    let is_gzip = gzip::is_accepted(&headers);
    // Counting descriptors takes a while, and a disk that hangs may not answer.
    let told = tokio::task::spawn_blocking(move || with_process(metrics, &dir, is_gzip)).await;
    told.unwrap_or_else(|_| text(StatusCode::SERVICE_UNAVAILABLE, "the system's figures can't be had\n"))
}

/// Tells whether a server serves: as a leader, or following one.
pub(super) fn told_ready(readiness: Readiness) -> Response {
    match readiness {
        Readiness::Following => text(StatusCode::OK, "ready: it follows the leader of its group\n"),
        readiness => told(readiness),
    }
}

/// Tells whether a server takes changes.
fn told(readiness: Readiness) -> Response {
    let not_now = StatusCode::SERVICE_UNAVAILABLE;
    match readiness {
        Readiness::Ready => text(StatusCode::OK, "ready\n"),
        Readiness::Following => text(not_now, "another node leads the group\n"),
        Readiness::Loading => text(not_now, "the data is being loaded\n"),
        Readiness::Unlogged => text(not_now, "changes can't be saved\n"),
        Readiness::Busy => text(not_now, "a command or script holds the server\n"),
    }
}

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

fn text(status: StatusCode, text: &'static str) -> Response {
    (status, [(CONTENT_TYPE, TEXT), (VARY, "Accept-Encoding")], text).into_response()
}

/// The metrics with those of the process. Compresses fast rather than small: about a fifth of the bytes are left.
fn with_process(mut metrics: String, dir: &Path, is_gzip: bool) -> Response {
    process_metrics::write(&mut metrics, dir);
    let head = [(CONTENT_TYPE, TEXT), (VARY, "Accept-Encoding")];
    let is_gzip = is_gzip && metrics.len() > PLAIN_MAX_BYTES;
    match is_gzip.then(|| gzip::compress(metrics.as_bytes(), Compression::fast())) {
        Some(Ok(body)) => (head, [(CONTENT_ENCODING, "gzip")], body).into_response(),
        _ => (head, metrics).into_response(),
    }
}
