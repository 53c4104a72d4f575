//! The bounds of HTTP, each with its reason.

use std::time::Duration;

use crate::base::limits::{CONSOLE_DESCRIPTORS, METRICS_DESCRIPTORS};
use crate::net::limits::INSIDE_RESERVED;

/// Connections to `metrics-port`. More than a service manager, a load balancer and some scrapers ever open.
pub(super) const METRICS_CONNECTIONS_MAX: usize = 64;

/// Those of them of which not all of a request has arrived yet. One more closes the oldest. As many scrapes may wait
/// for the engine at a time.
pub(super) const METRICS_SILENT_MAX: usize = 8;

/// Bytes of the head of a request for metrics. hyper needs no less.
pub(super) const METRICS_HEAD_MAX_BYTES: usize = 8 * 1024;

/// How long the engine has to report its metrics before it is declared busy.
pub(super) const METRICS_ENGINE_PATIENCE: Duration = Duration::from_secs(2);

/// Connections to `console-port`: [`VIEWERS_MAX`], those that are silent or of strangers, and some for calls.
pub(super) const CONSOLE_CONNECTIONS_MAX: usize = 512;

/// Those of them of which not all of a request has arrived. One more closes the one that has been silent for longest. A
/// browser keeps up to six for its next request, and opens others when they are closed.
pub(super) const CONSOLE_SILENT_MAX: usize = 128;

/// Those of them that are answered without belonging to a session: files of the page, and sign-ins. One more closes the
/// one that has been answered for longest.
pub(super) const CONSOLE_STRANGERS_MAX: usize = 64;

/// Bytes of the head of a request to the console: the keys that a screen shows are a part of it.
pub(super) const CONSOLE_HEAD_MAX_BYTES: usize = 64 * 1024;

/// Bytes of the body of a request with calls.
pub(super) const BODY_MAX_BYTES: usize = 1024 * 1024;

/// Bytes of the body of any other request: a sign-in, which a stranger sends, or a search.
pub(super) const SMALL_BODY_MAX_BYTES: usize = 4 * 1024;

/// How long a connection may take until all of its next request has arrived.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(5);

/// How long a request may take, from its end to the beginning of its response: longer than [`CALL_PATIENCE`].
pub(super) const REQUEST_PATIENCE: Duration = Duration::from_secs(20);

/// How long a response may be stuck because its reader is.
pub(super) const RESPONSE_PATIENCE: Duration = Duration::from_secs(30);

/// How long a response of a known length may take altogether: a slow reader holds a part of its user's share.
pub(super) const RESPONSE_MAX: Duration = Duration::from_secs(120);

/// Bytes of a response that are handed to the socket at a time. The time for the response begins anew with each.
pub(super) const PIECE_BYTES: usize = 64 * 1024;

/// Bytes from which on what becomes of them is worked out aside, on another thread.
pub(super) const ASIDE_MIN_BYTES: usize = 64 * 1024;

/// Threads that work aside for the console. More work waits for them.
pub(super) const CONSOLE_THREADS_ASIDE: usize = 2;

/// How long the calls of a request may take, with the connection to the engine that they need. After that the
/// connection is closed, which ends a call that waits.
pub(super) const CALL_PATIENCE: Duration = Duration::from_secs(10);

/// Connections of the console to the engine: one for each session, each subject that pages are shown, and each request
/// with calls.
pub(super) const LINES_MAX: usize = 512;

/// Those of them that pages which only look leave to sessions and calls.
pub(super) const LINES_KEPT: usize = 128;

/// Calls in one request: a page of rows, some calls for each.
pub(super) const CALLS_MAX: usize = 512;

/// Requests of one session at a time, from their calls until the page has the replies.
pub(super) const CALLS_AT_A_TIME: usize = 6;

/// Bytes of the replies to one request. More end the connection to the engine.
pub(super) const REPLIES_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Memory of the values of these replies beside their bytes. More end the connection as well.
pub(super) const REPLIES_VALUES_MAX_BYTES: usize = 12 * 1024 * 1024;

/// Memory of a value, in a list that grows.
pub(super) const REPLY_VALUE_BYTES: usize = 64;

/// Memory of a value that becomes an object: an error, a map, or bytes that are no text.
pub(super) const REPLY_OBJECT_BYTES: usize = 768;

/// Bytes of replies to all requests together, with their values, from the engine until the page has them.
pub(super) const REPLIES_TOTAL_BYTES: usize = 64 * 1024 * 1024;

/// Those of them to requests of one user: the longest list of clients, and something beside it.
pub(super) const REPLIES_OF_USER_BYTES: usize = 20 * 1024 * 1024;

/// Bytes of replies that do not count: those to HELLO, errors, and most others.
pub(super) const ROOM_FREE_BYTES: usize = 4 * 1024;

/// Bytes in which the others are counted.
pub(super) const ROOM_PIECE_BYTES: usize = 64 * 1024;

/// Bytes of a string in a reply that are sent to the page.
pub(super) const STRING_MAX_BYTES: usize = 64 * 1024;

/// Bytes of the reply that lists all clients: some 40,000.
pub(super) const CLIENTS_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Clients that a page is told at a time.
pub(super) const CLIENTS_SHOWN_MAX: usize = 200;

/// Lists within lists in a reply. COMMAND DOCS has the deepest.
pub(super) const REPLY_MAX_DEPTH: usize = 64;

/// Sessions. One more ends the one that was idle for longest.
pub(super) const SESSIONS_MAX: usize = 128;

/// Sessions of one user. One more ends the one of this user that was idle for longest.
pub(super) const SESSIONS_OF_USER_MAX: usize = 16;

/// How long a session lasts without being used: without a call, and without a page that shows the state.
pub(super) const SESSION_IDLE_MAX: Duration = Duration::from_secs(30 * 60);

/// How long a session lasts at most.
pub(super) const SESSION_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// How often it is checked that the user of a session in use may still sign in.
pub(super) const SESSION_CHECK_EVERY: Duration = Duration::from_secs(10);

/// Sign-ins as one user that fail before the next one from their address has to wait.
pub(super) const SIGN_INS_FREE: u32 = 5;

/// The first wait, which doubles with each failure.
pub(super) const SIGN_IN_WAIT_MIN: Duration = Duration::from_secs(1);

/// The longest wait. Within an hour of guessing, some 70 passwords of a user can be tried from one address.
pub(super) const SIGN_IN_WAIT_MAX: Duration = Duration::from_secs(60);

/// How long failures are remembered after the last wait.
pub(super) const SIGN_IN_REMEMBERED: Duration = Duration::from_secs(60 * 60);

/// Pairs of an address and a user whose failures are remembered. One more takes the place of the one with the fewest.
pub(super) const SIGN_IN_PAIRS_MAX: usize = 4_096;

/// Browsers that are known, since somebody has signed in by them. One more forgets the one of longest ago.
pub(super) const BROWSERS_MAX: usize = 1_024;

/// Those of one user. One more forgets the one of this user of longest ago.
pub(super) const BROWSERS_OF_USER_MAX: usize = 16;

/// How long a browser keeps the name by which it is known.
pub(super) const BROWSER_LIFETIME: Duration = Duration::from_secs(180 * 24 * 60 * 60);

/// Sign-ins at a time, from all addresses: each takes a connection to the engine, and the engine's time for a hash.
pub(super) const SIGN_INS_AT_A_TIME: usize = 4;

/// Pages that are shown the state at a time.
pub(super) const VIEWERS_MAX: usize = 200;

/// Pages of one user that are shown the state at a time.
pub(super) const VIEWERS_OF_USER_MAX: usize = 16;

/// Keys of one subject.
pub(super) const WATCHED_KEYS_MAX: usize = 128;

/// Bytes of all keys of one page.
pub(super) const WATCHED_BYTES_MAX: usize = 32 * 1024;

/// How often the state is asked for.
pub(super) const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Questions a second to the engine, for all pages together, which keeps their cost near a hundredth of a core. Beyond
/// that they are asked less often.
pub(super) const WATCH_QUESTIONS_PER_SECOND: u32 = 250;

/// Questions a second for the pages of one user: a hundred keys and the overview. Beyond that these are asked less
/// often.
pub(super) const WATCH_QUESTIONS_OF_USER: u32 = 125;

/// Questions that are put at once, when it is their turn: those of a page with a hundred keys. Others wait for what
/// these take of the second.
pub(super) const WATCH_TURN: usize = 100;

/// Questions whose replies have a bound together: keys with 20 holders and 20 waiters of the longest names and notes
/// take less.
pub(super) const WATCH_BATCH: usize = 16;

/// Memory for the state that pages are shown, of everybody together.
pub(super) const STATES_TOTAL_BYTES: usize = 256 * 1024 * 1024;

/// Memory for the state that the pages of one user are shown. Beyond that they show what they have.
pub(super) const STATES_OF_USER_BYTES: usize = 64 * 1024 * 1024;

/// Memory of a state for each byte of its text: its values, the text, the last change, and one of them on its way.
pub(super) const STATE_COPIES: usize = 4;

/// How long a question that the user may not ask is not asked again: each is noted in ACL LOG.
pub(super) const WATCH_DENIED: Duration = Duration::from_secs(60);

/// Changes of state that a page may be behind. One that is further behind gets the whole state.
pub(super) const WATCH_BEHIND_MAX: usize = 4;

/// Events that a page shows.
pub(super) const EVENTS_SHOWN_MAX: usize = 200;

/// Events that are asked for at a time: with the longest keys, names and notes they have less than
/// [`REPLIES_MAX_BYTES`].
pub(super) const EVENTS_AT_A_TIME: usize = 500;

// A request that waits for the engine is answered before its connection is closed.
const _: () = assert!(CALL_PATIENCE.as_secs() < REQUEST_PATIENCE.as_secs());
const _: () = assert!(METRICS_ENGINE_PATIENCE.as_secs() < REQUEST_PATIENCE.as_secs());
// What one request may take, its user may.
const _: () = assert!(REPLIES_MAX_BYTES + REPLIES_VALUES_MAX_BYTES <= REPLIES_OF_USER_BYTES);
const _: () = assert!(CLIENTS_MAX_BYTES + REPLIES_MAX_BYTES <= REPLIES_OF_USER_BYTES);
// Strangers leave places for those who are signed in.
const _: () = assert!(VIEWERS_MAX + CONSOLE_SILENT_MAX + CONSOLE_STRANGERS_MAX < CONSOLE_CONNECTIONS_MAX);
// Sockets, and some for listeners and tokio.
const _: () = assert!(METRICS_CONNECTIONS_MAX + 8 <= METRICS_DESCRIPTORS as usize);
const _: () = assert!(CONSOLE_CONNECTIONS_MAX + LINES_MAX + INSIDE_RESERVED + 16 <= CONSOLE_DESCRIPTORS as usize);
