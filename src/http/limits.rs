//! The bounds of HTTP, each with its reason.

use std::time::Duration;

/// Connections to `metrics-port`. More than a service manager, a load balancer and some scrapers ever open.
pub(super) const METRICS_CONNECTIONS_MAX: usize = 64;

/// Those of them that have not sent their request yet. One more closes the oldest. As many scrapes may wait for the
/// engine at a time.
pub(super) const METRICS_SILENT_MAX: usize = 8;

/// Bytes of the head of a request for metrics. hyper needs no less.
pub(super) const METRICS_HEAD_MAX_BYTES: usize = 8 * 1024;

/// How long the engine has to report its metrics before it is declared busy.
pub(super) const METRICS_ENGINE_PATIENCE: Duration = Duration::from_secs(2);

/// Connections to `console-port`: [`VIEWERS_MAX`], and for each some more for its calls.
pub(super) const CONSOLE_CONNECTIONS_MAX: usize = 1_024;

/// Those of them without a request. One more closes the one that has been silent for longest. A browser keeps up to six
/// for its next request, and opens others when they are closed.
pub(super) const CONSOLE_SILENT_MAX: usize = 256;

/// Bytes of the head of a request to the console: the keys that a screen shows are a part of it.
pub(super) const CONSOLE_HEAD_MAX_BYTES: usize = 64 * 1024;

/// Bytes of the body of a request to the console.
pub(super) const BODY_MAX_BYTES: usize = 1024 * 1024;

/// How long a connection may be without a request, and how long a response may take to be read.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(5);

/// How long a request may take, from its head to the end of its response: longer than [`CALL_PATIENCE`].
pub(super) const REQUEST_PATIENCE: Duration = Duration::from_secs(20);

/// How long a stream of state may be stuck because its reader is.
pub(super) const STREAM_PATIENCE: Duration = Duration::from_secs(30);

/// How long a call of the console may take. After that its connection to the engine is closed, which ends a call that
/// waits.
pub(super) const CALL_PATIENCE: Duration = Duration::from_secs(10);

/// Calls in one request: a page of rows, some calls for each.
pub(super) const CALLS_MAX: usize = 512;

/// Requests of one session that may wait for the engine at a time.
pub(super) const CALLS_AT_A_TIME: usize = 6;

/// Bytes of the replies to one request. A reply that is longer ends the connection to the engine.
pub(super) const REPLIES_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of a string in a reply that are sent to the page.
pub(super) const STRING_MAX_BYTES: usize = 64 * 1024;

/// Lists within lists in a reply. COMMAND DOCS has the deepest.
pub(super) const REPLY_MAX_DEPTH: usize = 64;

/// Sessions. One more ends the one that was idle for longest.
pub(super) const SESSIONS_MAX: usize = 512;

/// How long a session lasts without being used: without a call, and without a page that shows the state.
pub(super) const SESSION_IDLE_MAX: Duration = Duration::from_secs(30 * 60);

/// How long a session lasts at most.
pub(super) const SESSION_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// How often a session in use says so to the engine, for which `timeout` would else make it an idle client.
pub(super) const SESSION_KEEP_EVERY: Duration = Duration::from_secs(10);

/// Sign-ins that fail before the next one from their address has to wait.
pub(super) const SIGN_INS_FREE: u32 = 5;

/// The first wait, which doubles with each failure.
pub(super) const SIGN_IN_WAIT_MIN: Duration = Duration::from_secs(1);

/// The longest wait. Within an hour of guessing, some 70 passwords can be tried from one address.
pub(super) const SIGN_IN_WAIT_MAX: Duration = Duration::from_secs(60);

/// Addresses whose failures are remembered. One more forgets the one that may try again first.
pub(super) const SIGN_IN_ADDRESSES_MAX: usize = 4_096;

/// Sign-ins at a time, from all addresses: each takes a connection to the engine, and the engine's time for a hash.
pub(super) const SIGN_INS_AT_A_TIME: usize = 4;

/// Pages that are shown the state at a time.
pub(super) const VIEWERS_MAX: usize = 200;

/// Subjects that one page is shown.
pub(super) const WATCHED_TOPICS_MAX: usize = 8;

/// Keys of one subject.
pub(super) const WATCHED_KEYS_MAX: usize = 128;

/// Bytes of all keys of one page.
pub(super) const WATCHED_BYTES_MAX: usize = 32 * 1024;

/// How often the state is asked for.
pub(super) const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Questions a second to the engine, for all pages together. Beyond that they are asked less often.
pub(super) const WATCH_QUESTIONS_PER_SECOND: usize = 2_000;

/// Changes of state that a page may be behind. One that is further behind gets the whole state.
pub(super) const WATCH_BEHIND_MAX: usize = 4;

/// Remembered events that a page begins with.
pub(super) const EVENTS_SHOWN_MAX: usize = 200;

// A request that waits for the engine is answered before its connection is closed.
const _: () = assert!(CALL_PATIENCE.as_secs() < REQUEST_PATIENCE.as_secs());
const _: () = assert!(METRICS_ENGINE_PATIENCE.as_secs() < REQUEST_PATIENCE.as_secs());
