//! Serving: the listeners, the connections, the clockwork, and the end of the server.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, sleep_until};

use super::conn::{Buffers, Conn};
use super::inside::Inside;
use super::io_threads::IoThreads;
use super::listener::{Listener, open_from_inside};
use super::raw_poller::RawPoller;
use super::sign_in::TlsConn;
use super::socket_table::{Connection, SocketTable};
use crate::base::limits::READ_CHUNK_BYTES;
use crate::base::lsn::Lsn;
use crate::base::os::supervisor;
use crate::engine::Engine;
use crate::engine::persistence::following::{Following, RecoveryError};
use crate::engine::persistence::recovery::{Step, count_keys};
use crate::engine::run::ending::Ends;
use crate::net::limits::{END_CHECK_EVERY, END_PATIENCE, LOAD_PAUSE, SAVE_REST_MAX};
use crate::spec::session_key::SessionKey;

/// State shared by the tasks of the one thread.
pub(crate) struct Shared {
    /// The engine. Borrowed only inside one poll of one task.
    pub engine: RefCell<Engine>,
    /// Every socket.
    pub sockets: Rc<SocketTable>,
    /// Read and reply buffers.
    pub buffers: RefCell<Buffers>,
    /// Wakes the clockwork when a call waits for an earlier deadline than the clockwork knows.
    deadline_moved: Notify,
    /// The deadline the clockwork knows, by the steady clock.
    known_deadline_ms: Cell<i64>,
    /// Notified when the journal has progressed or changed its state.
    log_moved: Arc<Notify>,
    /// Follows the group that this server is a node of.
    following: RefCell<Option<Following>>,
    /// Why the group can't be followed any more.
    failure: Cell<Option<RecoveryError>>,
    /// Notified when a snapshot has work to do.
    save_moved: Arc<Notify>,
    /// A client asked the server to stop.
    shutdown: Notify,
}

impl Shared {
    /// Makes the state around a fresh engine. Its journal notifies `log_moved` when the clockwork must act.
    pub(crate) fn new(mut engine: Engine, log_moved: Arc<Notify>, following: Option<Following>) -> Shared {
        let sockets = Rc::<SocketTable>::default();
        engine.server.network.raw_sockets = Some(Box::new(RawPoller::new(sockets.clone())));
        let save_moved = Arc::<Notify>::default();
        let (wake, wake_for_log) = (Arc::clone(&save_moved), Arc::clone(&log_moved));
        engine
            .server
            .persistence
            .saving
            .wakes(Arc::new(move || wake.notify_one()), Arc::new(move || wake_for_log.notify_one()));
        let buffers = Buffers::default();
        // Even an empty server has these buffers: they are not data.
        engine.server.memory.startup_bytes += buffers.input.len() as u64;
        Shared {
            sockets,
            engine: RefCell::new(engine),
            buffers: RefCell::new(buffers),
            deadline_moved: Notify::new(),
            known_deadline_ms: Cell::new(i64::MAX),
            log_moved,
            following: RefCell::new(following),
            failure: Cell::new(None),
            save_moved,
            shutdown: Notify::new(),
        }
    }

    /// Starts the threads that receive and send beside this one, if the configuration wants any.
    pub(crate) fn start_io_threads(&self) -> io::Result<()> {
        let server = &mut self.engine.borrow_mut().server;
        let beside = server.config.io_threads as usize - 1;
        if beside > 0 {
            let threads = Rc::new(IoThreads::start(beside)?);
            server.meters.stats.io_threads = threads.stats();
            // As with the buffers above, these are not data.
            server.memory.startup_bytes += (beside * READ_CHUNK_BYTES) as u64;
            self.sockets.set_io_threads(Rc::clone(&threads));
            spawn_local(threads.serve());
        }
        Ok(())
    }

    /// Does the work that must follow feeding the engine: informs the clockwork, and takes over new listeners and
    /// connections accepted while a script was busy.
    #[inline]
    pub(crate) fn after_feed(self: &Rc<Shared>, engine: &Engine) {
        if self.sockets.needs_tasks() {
            self.spawn_missing_tasks();
        }
        if engine.server.next_deadline_ms().is_some_and(|at_ms| at_ms < self.known_deadline_ms.get()) {
            self.deadline_moved.notify_one();
        }
        if engine.server.ending.shutdown.is_some() {
            self.shutdown.notify_one();
        }
    }

    #[cold]
    fn spawn_missing_tasks(self: &Rc<Shared>) {
        let (connections, listeners) = self.sockets.take_without_task();
        for listener in listeners {
            spawn_local(listener.accept_all(Rc::clone(self)));
        }
        for key in connections {
            let Some(connection) = self.sockets.connection(key) else { continue };
            if let Err(error) = connection.adopt() {
                // The system has no memory left for it. The connection is closed now; its task will find that, and end
                // its session.
                tracing::warn!(client = key.id, %error, "dropped a connection");
            }
            self.spawn(key, connection);
        }
    }

    /// Gives a connection its task.
    pub(super) fn spawn(self: &Rc<Shared>, key: SessionKey, connection: Rc<Connection>) {
        if connection.is_tls() {
            spawn_local(TlsConn::new(Rc::clone(self), key, connection));
        } else {
            spawn_local(Conn::new(Rc::clone(self), key, connection));
        }
    }

    /// Serves the connections from inside the process, without end, as one of the tasks of the engine's thread.
    pub(crate) async fn serve_inside(self: Rc<Shared>, inside: Arc<Inside>) {
        loop {
            inside.arrived().await;
            open_from_inside(&mut self.engine.borrow_mut().server, &self.sockets);
            self.spawn_missing_tasks();
        }
    }

    /// Expiry, statistics and the deadlines of waiting calls.
    async fn clockwork(self: &Rc<Shared>) {
        let mut next_tick = Instant::now();
        // Whether more is left to reclaim than one slice has done.
        let mut more = false;
        // Whether the group has given more orders than one slice has followed.
        let mut has_orders = false;
        loop {
            if Instant::now() >= next_tick {
                let hz = self.engine.borrow().server.config.hz.clamp(1, 500);
                next_tick = Instant::now() + Duration::from_millis(1_000 / u64::from(hz));
                self.buffers.borrow_mut().give_back();
                self.sockets.bound_handshakes(&mut self.engine.borrow_mut().server);
                more = self.engine.borrow_mut().tick();
                has_orders |= self.follow_group();
            } else if more || self.engine.borrow().server.memory.is_evicting() {
                more = self.engine.borrow_mut().reclaim();
            }
            // A waiting command may have run.
            if self.sockets.needs_tasks() {
                self.spawn_missing_tasks();
            }
            let (wake_at, has_waits_left) = {
                let mut engine = self.engine.borrow_mut();
                let has_waits_left = engine.time_out_waits();
                let deadline_ms = engine.server.next_deadline_ms().unwrap_or(i64::MAX);
                self.known_deadline_ms.set(deadline_ms);
                let left_ms = deadline_ms.saturating_sub(engine.server.time.clock.steady_ms()).max(0) as u64;
                (next_tick.min(Instant::now() + Duration::from_millis(left_ms.min(60_000))), has_waits_left)
            };
            if more || has_waits_left || has_orders {
                // Other tasks run between two slices, including those that wait for the journal.
                has_orders = self.follow_log();
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                () = sleep_until(wake_at) => {}
                () = self.deadline_moved.notified() => {}
                () = self.log_moved.notified() => has_orders |= self.follow_log(),
            }
        }
    }
}

impl Shared {
    /// Acts on the journal's progress. Returns whether there is more to do at once.
    fn follow_log(&self) -> bool {
        self.engine.borrow_mut().server.follow_journal();
        self.follow_group()
    }

    /// Follows the orders of the group, a slice of them. Returns whether there are more.
    fn follow_group(&self) -> bool {
        let Some(following) = &mut *self.following.borrow_mut() else { return false };
        following.step(&mut self.engine.borrow_mut()).unwrap_or_else(|error| {
            self.failure.set(Some(error));
            self.shutdown.notify_one();
            false
        })
    }
}

impl Shared {
    /// Makes snapshots, a slice at a time, between other tasks. While there are requests, these get as much time as the
    /// slices.
    async fn save(&self) {
        loop {
            let began = Instant::now();
            let more = self.engine.borrow_mut().save_slice();
            if self.engine.borrow().server.ending.shutdown.is_some() {
                self.shutdown.notify_one();
            }
            if more {
                self.leave_to_requests(began.elapsed().min(SAVE_REST_MAX)).await;
            } else {
                self.save_moved.notified().await;
            }
        }
    }

    /// Lets other tasks run: once, and then for as long as requests come, but no longer than `time`.
    async fn leave_to_requests(&self, time: Duration) {
        let began = Instant::now();
        let received = || self.engine.borrow().server.meters.stats.bytes_in;
        loop {
            let before = received();
            tokio::task::yield_now().await;
            if received() == before || began.elapsed() >= time {
                return;
            }
        }
    }
}

impl Shared {
    /// Loads the data, a slice at a time, between requests. `step` loads one slice.
    async fn load<E>(&self, mut step: impl FnMut(&mut Engine) -> Result<Step, E>) -> Result<(), E> {
        let mut loaded = 0;
        loop {
            let before = std::mem::replace(&mut loaded, count_keys(&self.engine.borrow()));
            self.rest_behind(loaded.saturating_sub(before)).await;
            let left = step(&mut self.engine.borrow_mut())?;
            match left {
                Step::More => tokio::task::yield_now().await,
                Step::Wait => sleep(LOAD_PAUSE).await,
                Step::Complete => return Ok(()),
            }
        }
    }

    /// Rests after loading `keys` keys, as `key-load-delay` says; less if the parameter is changed during the rest.
    async fn rest_behind(&self, keys: usize) {
        let began = Instant::now();
        loop {
            let left = self.engine.borrow().server.config.rest_after_loading(keys).saturating_sub(began.elapsed());
            if left.is_zero() {
                return;
            }
            sleep(left.min(LOAD_PAUSE)).await;
        }
    }
}

impl Shared {
    /// Sends the remaining replies once the journal allows it: for as long as a client reads, and no longer than
    /// `shutdown-timeout`.
    async fn send_rest(&self) {
        let began = Instant::now();
        let (patience, clients) = {
            let Engine { server, ks, .. } = &mut *self.engine.borrow_mut();
            server.persist(ks, |persistence, _, _| persistence.drain());
            let is_hurried = server.ending.shutdown.is_some_and(|how| how.now);
            let patience_s = if is_hurried { 0 } else { server.config.shutdown_timeout_s };
            (Duration::from_secs(patience_s.into()), server.clients.sessions.len())
        };
        let (mut least, mut sent_at) = (usize::MAX, began);
        let unsent = loop {
            let unsent = {
                let server = &mut self.engine.borrow_mut().server;
                server.send_unsent();
                server.clients.unsent_bytes() + self.sockets.unsent()
            };
            let is_sending = unsent < least;
            if is_sending {
                (least, sent_at) = (unsent, Instant::now());
            }
            // I/O threads take a moment to send bytes that the sockets would take at once, however hurried the end is.
            let is_relaying = is_sending && self.sockets.unsent() > 0 && began.elapsed() < END_PATIENCE;
            let is_over = began.elapsed() >= patience && !is_relaying;
            if unsent == 0 || is_over || sent_at.elapsed() >= END_PATIENCE {
                break unsent;
            }
            sleep(END_CHECK_EVERY).await;
        };
        if unsent > 0 {
            tracing::warn!(unsent, "some clients did not read all of their replies");
        }
        tracing::info!(clients, "connections are closed");
    }
}

/// Serves until a signal or a client ends the server. Runs on a current-thread runtime, inside a `LocalSet`. Calls
/// `load` until it reports that all data is loaded; if `load` fails, so does this function.
pub(crate) async fn serve<E: From<std::io::Error> + From<RecoveryError>>(
    shared: Rc<Shared>,
    listeners: Vec<Rc<Listener>>,
    load: impl FnMut(&mut Engine) -> Result<Step, E>,
) -> Result<(), E> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    // tokio delivers signals only between two tasks; a script in an endless loop must see them as well.
    let stop_signal = shared.engine.borrow().server.ending.stop_signal.clone();
    for number in [SIGINT, SIGTERM] {
        signal_hook::flag::register(number, stop_signal.clone())?;
    }
    shared.sockets.listen_anew(listeners.clone(), listeners);
    shared.spawn_missing_tasks();
    let (loading, clockwork, saving) = (shared.load(load), shared.clockwork(), shared.save());
    tokio::pin!(loading, clockwork, saving);
    let mut is_loading = true;
    let reason = loop {
        let signal = tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
            () = shared.shutdown.notified() => break "SHUTDOWN",
            loaded = &mut loading, if is_loading => {
                loaded?;
                is_loading = false;
                continue;
            }
            () = &mut clockwork => unreachable!("the clockwork never ends"),
            () = &mut saving => unreachable!("there may always be another snapshot"),
        };
        if shared.engine.borrow_mut().end_by_signal(signal) == Ends::Now {
            break signal;
        }
        // Until everything is saved, the other clients, which were told to wait for the end, are served.
        stop_signal.store(false, Ordering::Relaxed);
        shared.engine.borrow_mut().server.clients.wake_all();
    };
    // From here on nothing is read and no connection is accepted.
    stop_signal.store(true, Ordering::Relaxed);
    supervisor::stopping();
    shared.sockets.stop_listening();
    shared.send_rest().await;
    // A leader hands over here.
    drop(shared.following.take());
    let closed = shared.engine.borrow_mut().server.persistence.close();
    if let Err(error) = &closed {
        tracing::error!("the journal could not be closed: {error}");
    }
    if let Some(failure) = shared.failure.take() {
        return Err(failure.into());
    }
    // Tools that start a Redis for their tests wait for these words.
    let kept = match closed {
        Ok(Lsn::NONE) => " No data is on disk".to_owned(),
        Ok(lsn) => format!(" Everything up to Lsn {lsn} is on disk"),
        Err(_) => String::new(),
    };
    tracing::info!(reason, "Tidegate is now ready to exit, bye bye...{kept}");
    Ok(())
}
