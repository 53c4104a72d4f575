//! Serving: the listeners, the connections, the clockwork and the end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use tokio::net::{TcpStream, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until};

use super::conn::{Buffers, Conn};
use super::listener::Listener;
use super::lookout::{Lookout, Newcomer, Roster, StdStream};
use crate::engine::Engine;

/// What the tasks of the one thread share.
pub struct Shared {
    /// The engine. Borrowed only inside one poll of one task.
    pub engine: RefCell<Engine>,
    /// Every socket, for when tokio can't look after them.
    pub roster: Rc<Roster>,
    /// Read and reply buffers.
    pub buffers: RefCell<Buffers>,
    /// Wakes the clockwork when a call waits for a nearer deadline than it knows.
    deadline_moved: Notify,
    /// The deadline the clockwork knows, Unix ms.
    known_deadline_ms: Cell<i64>,
    /// A client asked the server to stop.
    shutdown: Notify,
}

impl Shared {
    /// Around a fresh engine.
    pub fn new(mut engine: Engine) -> Shared {
        let roster = Rc::<Roster>::default();
        engine.server.bystanders = Some(Box::new(Lookout::new(roster.clone())));
        Shared {
            roster,
            engine: RefCell::new(engine),
            buffers: RefCell::default(),
            deadline_moved: Notify::new(),
            known_deadline_ms: Cell::new(i64::MAX),
            shutdown: Notify::new(),
        }
    }

    /// Does what must follow when the engine was fed: tells the clockwork, and takes over connections that were accepted
    /// while a script was busy.
    #[inline]
    pub fn after_feed(self: &Rc<Shared>, engine: &Engine) {
        if !self.roster.newcomers.borrow().is_empty() {
            self.take_over_newcomers();
        }
        if engine.server.waits.next_deadline_ms().is_some_and(|at_ms| at_ms < self.known_deadline_ms.get()) {
            self.deadline_moved.notify_one();
        }
        if engine.server.shutdown.is_some() {
            self.shutdown.notify_one();
        }
    }

    #[cold]
    fn take_over_newcomers(self: &Rc<Shared>) {
        for Newcomer { key, stream, inbox } in self.roster.newcomers.take() {
            let taken = match stream {
                StdStream::Tcp(stream) => TcpStream::from_std(stream)
                    .map(|stream| drop(spawn_local(Conn::new(self.clone(), key, stream, inbox)))),
                StdStream::Unix(stream) => UnixStream::from_std(stream)
                    .map(|stream| drop(spawn_local(Conn::new(self.clone(), key, stream, inbox)))),
            };
            if let Err(error) = taken {
                // The system is out of memory for it. The engine is in use here, so that the session goes a little later.
                tracing::warn!(client = key.id, %error, "dropped a connection");
                self.roster.connections.borrow_mut().remove(&key);
                let shared = self.clone();
                spawn_local(async move { shared.engine.borrow_mut().disconnect(key) });
            }
        }
    }

    /// Expiry, statistics and the deadlines of waiting calls.
    async fn clockwork(&self) {
        let mut next_tick = Instant::now();
        // Whether more keys are due to expire than one slice has removed.
        let mut more = false;
        loop {
            if Instant::now() >= next_tick {
                let hz = self.engine.borrow().server.config.hz.clamp(1, 500);
                next_tick = Instant::now() + Duration::from_millis(1_000 / u64::from(hz));
                more = self.engine.borrow_mut().tick();
            } else if more {
                more = self.engine.borrow_mut().reclaim_expired();
            }
            let wake_at = {
                let mut engine = self.engine.borrow_mut();
                engine.time_out_waits();
                let deadline_ms = engine.server.waits.next_deadline_ms().unwrap_or(i64::MAX);
                self.known_deadline_ms.set(deadline_ms);
                let left_ms = deadline_ms.saturating_sub(engine.server.clock.now_ms()).max(0) as u64;
                next_tick.min(Instant::now() + Duration::from_millis(left_ms.min(60_000)))
            };
            if more {
                // Others run between two slices.
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                () = sleep_until(wake_at) => {}
                () = self.deadline_moved.notified() => {}
            }
        }
    }
}

/// Serves until a signal or a client ends it. Runs on a current-thread runtime, inside a `LocalSet`.
pub async fn serve(shared: Rc<Shared>, listeners: Vec<Listener>) -> std::io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    // tokio delivers signals only between two tasks; a script in an endless loop must see them too.
    let stop_signal = shared.engine.borrow().server.stop_signal.clone();
    for number in [SIGINT, SIGTERM] {
        signal_hook::flag::register(number, stop_signal.clone())?;
    }
    let mut accepting = tokio::task::JoinSet::new();
    for listener in listeners {
        accepting.spawn_local(listener.accept_all(shared.clone()));
    }
    let reason = tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
        () = shared.shutdown.notified() => "SHUTDOWN",
        () = shared.clockwork() => unreachable!("the clockwork never ends"),
    };
    shared.engine.borrow_mut().server.send_unsent();
    tracing::info!(reason, "stopping");
    Ok(())
}
