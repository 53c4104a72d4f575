//! Threads that receive and send for the engine's thread (`io-threads`), for servers with cores to spare. Without
//! pipelining, receiving a request and sending its reply takes the system many times as long as running the command.
//!
//! The engine's thread alone decodes and runs commands, connection by connection, exactly as it does without I/O
//! threads. Only the path of the bytes between the socket and the connection's task differs: they are
//! [relayed](super::relay). An I/O thread waits for the sockets of its connections, and notifies the engine's thread,
//! once for many of them, of those that have input. In return the engine's thread posts connections that have replies
//! to send, also many at a time, and wakes the I/O thread only if it sleeps.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Token};
use slab::Slab;
use socket2::Socket;
use tokio::sync::Notify;
use tokio::task::coop::poll_proceed;

use super::relay::{Number, Relay, Sent, Written};
use crate::base::limits::READ_CHUNK_BYTES;
use crate::meters::stats::IoThreadStats;
use crate::net::limits::IO_EVENTS_MAX;

/// The I/O threads, for the engine's thread.
pub(crate) struct IoThreads {
    threads: Vec<IoThread>,
    /// Wakers of the connections' tasks, indexed by the place of their relay. `None` for a task that does not wait.
    wakers: RefCell<Slab<Option<Waker>>>,
    /// Some relays have not been posted yet.
    has_unposted: Cell<bool>,
    /// Counts of the engine's thread itself, which sends some bytes directly.
    own_stats: Arc<IoThreadStats>,
    ready_list: Arc<ReadyList>,
    /// Buffer into which [`ReadyList::notified`] is swapped. Empty otherwise.
    notified: RefCell<Vec<usize>>,
    /// Bytes that all relays hold in large buffers.
    relayed_bytes: Arc<AtomicUsize>,
}

/// One I/O thread, as the engine's thread sees it.
struct IoThread {
    mailbox: Arc<Mailbox>,
    stats: Arc<IoThreadStats>,
    /// Relays that the thread is to look at, not yet posted to it.
    unposted: RefCell<Vec<Arc<Relay>>>,
    handle: Option<JoinHandle<()>>,
}

/// Notifications from the I/O threads to the engine's thread.
#[derive(Default)]
struct ReadyList {
    /// Places of relays whose tasks have something to do, in order of arrival.
    notified: Mutex<Vec<usize>>,
    /// Notified when `notified` has entries, or when posted relays wait for delivery.
    moved: Notify,
}

/// Messages from the engine's thread to an I/O thread.
struct Mailbox {
    /// Relays to look at.
    posted: Mutex<Vec<Arc<Relay>>>,
    /// The I/O thread sleeps, or is about to, and must be woken.
    is_asleep: AtomicBool,
    /// The server ends.
    is_over: AtomicBool,
    waker: mio::Waker,
}

impl Mailbox {
    fn wake(&self) {
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            // The only possible error is one of a descriptor that the waker owns, and it could not be handled here.
            let _ = self.waker.wake();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl IoThreads {
    /// Starts `number` threads.
    pub(crate) fn start(number: usize) -> io::Result<IoThreads> {
        let ready_list = Arc::<ReadyList>::default();
        let threads = (0..number).map(|at| IoThread::start(at, Arc::clone(&ready_list))).collect::<io::Result<_>>()?;
        Ok(IoThreads {
            threads,
            wakers: RefCell::default(),
            has_unposted: Cell::new(false),
            own_stats: Arc::default(),
            ready_list,
            notified: RefCell::default(),
            relayed_bytes: Arc::default(),
        })
    }

    /// Counters of the engine's thread and of each I/O thread.
    pub(crate) fn stats(&self) -> Vec<Arc<IoThreadStats>> {
        let others = self.threads.iter().map(|thread| &thread.stats);
        std::iter::once(&self.own_stats).chain(others).map(Arc::clone).collect()
    }

    /// Hands a non-blocking socket over to the I/O thread that has the fewest connections.
    pub(super) fn relay(self: &Rc<IoThreads>, socket: OwnedFd) -> Relayed {
        let by_clients = |(_, thread): &(usize, &IoThread)| thread.stats.clients.load(Ordering::Relaxed);
        let thread = self.threads.iter().enumerate().min_by_key(by_clients).map_or(0, |(at, _)| at);
        self.threads[thread].stats.clients.fetch_add(1, Ordering::Relaxed);
        let place = self.wakers.borrow_mut().insert(None);
        let relay = Arc::new(Relay::new(socket, thread, place, Arc::clone(&self.relayed_bytes)));
        self.post(&relay);
        Relayed { relay, threads: Rc::clone(self) }
    }

    /// Asks the I/O thread of `relay` to look at it soon.
    fn post(&self, relay: &Arc<Relay>) {
        if relay.begin_post() {
            self.threads[relay.thread].unposted.borrow_mut().push(Arc::clone(relay));
            if !self.has_unposted.replace(true) {
                // Runs after all tasks that are ready now, which may have more to post.
                self.ready_list.moved.notify_one();
            }
        }
    }

    /// Hands posted relays over to their I/O threads.
    fn deliver(&self) {
        if !self.has_unposted.replace(false) {
            return;
        }
        for IoThread { mailbox, unposted, .. } in &self.threads {
            let unposted = &mut *unposted.borrow_mut();
            if !unposted.is_empty() {
                lock(&mailbox.posted).append(unposted);
                mailbox.wake();
            }
        }
    }

    /// Wakes the tasks for which I/O threads have something.
    fn collect(&self) {
        let notified = &mut *self.notified.borrow_mut();
        std::mem::swap(&mut *lock(&self.ready_list.notified), notified);
        let wakers = self.wakers.borrow();
        for place in notified.drain(..) {
            // The connection may be gone by now; a new one in its place is woken needlessly.
            if let Some(Some(waker)) = wakers.get(place) {
                waker.wake_by_ref();
            }
        }
        notified.shrink_to(IO_EVENTS_MAX);
    }

    /// Delivers posted relays to the I/O threads and collects their notifications.
    pub(super) fn exchange(&self) {
        self.collect();
        self.deliver();
    }

    /// Exchanges notifications with the I/O threads for as long as the server runs.
    pub(super) async fn serve(self: Rc<IoThreads>) {
        loop {
            self.ready_list.moved.notified().await;
            self.exchange();
        }
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        self.deliver();
        for IoThread { mailbox, handle, .. } in &mut self.threads {
            mailbox.is_over.store(true, Ordering::SeqCst);
            // The thread may be about to sleep, whatever `is_asleep` says.
            let _ = mailbox.waker.wake();
            if let Some(handle) = handle.take() {
                // A thread that panicked has already reported it.
                let _ = handle.join();
            }
        }
    }
}

/// The engine's thread's end of a connection that an I/O thread serves.
pub(crate) struct Relayed {
    relay: Arc<Relay>,
    threads: Rc<IoThreads>,
}

impl Drop for Relayed {
    fn drop(&mut self) {
        self.relay.close();
        self.threads.wakers.borrow_mut().remove(self.relay.place);
        self.threads.threads[self.relay.thread].stats.clients.fetch_sub(1, Ordering::Relaxed);
        self.threads.post(&self.relay);
    }
}

impl AsFd for Relayed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.relay.as_fd()
    }
}

impl Relayed {
    /// The number of its thread, as shown by INFO and CLIENT LIST; the engine's thread is 0.
    pub(super) fn thread(&self) -> u8 {
        // There are at most 127 threads.
        self.relay.thread as u8 + 1
    }

    /// Whether there are bytes, or the end of the stream, to read.
    pub(super) fn has_incoming(&self) -> bool {
        self.relay.has_incoming()
    }

    /// How many bytes there are to read.
    pub(super) fn unread(&self) -> usize {
        self.relay.unread()
    }

    /// How many bytes wait to be sent.
    pub(super) fn unsent(&self) -> usize {
        self.relay.unsent()
    }

    /// For its task: reads available bytes; 0 at the end.
    #[inline]
    pub(super) fn poll_read(&self, cx: &mut Context<'_>, input: &mut [u8]) -> Poll<io::Result<usize>> {
        // A client that sends without end must not keep the others waiting.
        let turn = ready!(poll_proceed(cx));
        let read = self.or_wait(cx, self.read_now(input));
        if read.is_ready() {
            turn.made_progress();
        }
        read
    }

    /// For its task: sends some of `bytes`.
    #[inline]
    pub(super) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.relay.write(bytes);
        self.or_wait(cx, self.posted(written))
    }

    /// For its task: sends some of `parts`, from the beginning on.
    pub(super) fn poll_write_parts(&self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = self.relay.write_parts(parts);
        self.or_wait(cx, self.posted(written))
    }

    /// For its task: whether all bytes written have been sent.
    pub(super) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<()> {
        let sent = if self.relay.is_sent() { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        self.or_wait(cx, sent).map(drop)
    }

    /// Reads available bytes; 0 at the end.
    pub(super) fn read_now(&self, input: &mut [u8]) -> io::Result<usize> {
        let (read, has_room_again) = self.relay.read(input);
        if has_room_again {
            self.threads.post(&self.relay);
        }
        read
    }

    /// Sends some of `parts`, from the beginning on; calls `send` directly if no bytes wait before them.
    pub(super) fn send_now(
        &self,
        parts: &[IoSlice<'_>],
        send: impl FnOnce(&Socket) -> io::Result<usize>,
    ) -> io::Result<usize> {
        match self.relay.send_or_leave(parts, send)? {
            Written::Sent(sent) => {
                self.threads.own_stats.writes.fetch_add(1, Ordering::Relaxed);
                Ok(sent)
            }
            Written::Left(left) => self.posted(Ok(left)),
        }
    }

    fn posted(&self, written: io::Result<usize>) -> io::Result<usize> {
        if written.is_ok() {
            self.threads.post(&self.relay);
        }
        written
    }

    fn or_wait(&self, cx: &mut Context<'_>, done: io::Result<usize>) -> Poll<io::Result<usize>> {
        match done {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if let Some(waker) = self.threads.wakers.borrow_mut().get_mut(self.relay.place)
                    && !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()))
                {
                    *waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
            done => Poll::Ready(done),
        }
    }
}

impl IoThread {
    fn start(at: usize, ready_list: Arc<ReadyList>) -> io::Result<IoThread> {
        let poll = mio::Poll::new()?;
        let mailbox = Arc::new(Mailbox {
            posted: Mutex::default(),
            is_asleep: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            waker: mio::Waker::new(poll.registry(), WAKE)?,
        });
        let stats = Arc::<IoThreadStats>::default();
        let worker = Worker {
            poll,
            mailbox: Arc::clone(&mailbox),
            ready_list,
            stats: Arc::clone(&stats),
            relays: Slab::new(),
            posted: Vec::new(),
            notified: Vec::new(),
            chunk: vec![0; READ_CHUNK_BYTES].into(),
            spare: Vec::new(),
        };
        let name = format!("io-{}", at + 1);
        let handle = std::thread::Builder::new().name(name).spawn(move || worker.serve())?;
        Ok(IoThread { mailbox, stats, unposted: RefCell::default(), handle: Some(handle) })
    }
}

/// The event that wakes an I/O thread.
const WAKE: Token = Token(usize::MAX);

/// How long to wait when the system has failed to report ready sockets.
const POLL_RETRY: Duration = Duration::from_millis(10);

/// The state of an I/O thread.
struct Worker {
    poll: mio::Poll,
    mailbox: Arc<Mailbox>,
    ready_list: Arc<ReadyList>,
    stats: Arc<IoThreadStats>,
    /// The relays whose sockets the thread waits for, indexed by the number of their events.
    relays: Slab<Served>,
    /// Buffer into which [`Mailbox::posted`] is swapped. Empty otherwise.
    posted: Vec<Arc<Relay>>,
    /// Notifications for the engine's thread.
    notified: Vec<usize>,
    /// Buffer into which bytes are received first.
    chunk: Box<[u8]>,
    /// Swapped with the bytes to be sent. Empty otherwise.
    spare: Vec<u8>,
}

struct Served {
    relay: Arc<Relay>,
    /// The socket takes no more for now; an event reports when it does.
    is_waiting: bool,
}

impl Worker {
    fn serve(mut self) {
        let mut events = Events::with_capacity(IO_EVENTS_MAX);
        loop {
            let timeout = self.fall_asleep();
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != ErrorKind::Interrupted
            {
                tracing::error!(%error, "an I/O thread cannot wait for its sockets");
                std::thread::sleep(POLL_RETRY);
            }
            self.mailbox.is_asleep.store(false, Ordering::SeqCst);
            let is_over = self.mailbox.is_over.load(Ordering::SeqCst);
            events.iter().for_each(|event| self.meet(event));
            self.serve_posted();
            self.notify_engine();
            if is_over {
                return;
            }
        }
    }

    /// Marks the thread as asleep, so that it must be woken from now on. Returns how long it may sleep.
    fn fall_asleep(&self) -> Option<Duration> {
        self.mailbox.is_asleep.store(true, Ordering::SeqCst);
        if lock(&self.mailbox.posted).is_empty() { None } else { Some(Duration::ZERO) }
    }

    fn meet(&mut self, event: &Event) {
        let Some(served) = self.relays.get(event.token().0) else { return };
        let relay = Arc::clone(&served.relay);
        let has_ended = event.is_read_closed() || event.is_error();
        let may_send = served.is_waiting && (event.is_writable() || event.is_write_closed() || event.is_error());
        if event.is_readable() || has_ended {
            self.receive(&relay, has_ended);
        }
        if may_send {
            self.send(&relay);
        }
    }

    fn serve_posted(&mut self) {
        let mut posted = std::mem::take(&mut self.posted);
        std::mem::swap(&mut *lock(&self.mailbox.posted), &mut posted);
        for relay in posted.drain(..) {
            relay.end_post();
            match relay.number() {
                Number::New => self.take_on(&relay),
                Number::Given(_) => {}
                Number::Gone => continue,
            }
            if relay.has_room_again() {
                self.receive(&relay, true);
            }
            self.send(&relay);
        }
        self.posted = posted;
    }

    /// Starts waiting for the relay's socket.
    fn take_on(&mut self, relay: &Arc<Relay>) {
        let number = self.relays.insert(Served { relay: Arc::clone(relay), is_waiting: false });
        relay.set_number(Number::Given(number));
        let both = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut SourceFd(&relay.raw_fd()), Token(number), both) {
            // The system has no memory left for it.
            tracing::warn!(%error, "dropped a connection");
            relay.fail(error.kind());
            self.notified.push(relay.place);
        }
    }

    fn receive(&mut self, relay: &Relay, has_ended: bool) {
        let (reads, notifies) = relay.receive(&mut self.chunk, has_ended);
        self.stats.reads.fetch_add(reads, Ordering::Relaxed);
        if notifies {
            self.notified.push(relay.place);
        }
    }

    fn send(&mut self, relay: &Arc<Relay>) {
        let (writes, Sent { notifies, is_closed, is_waiting }) = relay.send(&mut self.spare);
        self.stats.writes.fetch_add(writes, Ordering::Relaxed);
        if notifies {
            self.notified.push(relay.place);
        }
        if let Number::Given(number) = relay.number()
            && let Some(served) = self.relays.get_mut(number)
        {
            served.is_waiting = is_waiting;
        }
        if is_closed {
            self.let_go(relay);
        }
    }

    /// Stops waiting for the relay's socket. The socket is closed when the engine's thread has let go of it, too.
    fn let_go(&mut self, relay: &Relay) {
        if let Number::Given(number) = relay.number() {
            // It may never have been registered.
            let _ = self.poll.registry().deregister(&mut SourceFd(&relay.raw_fd()));
            self.relays.remove(number);
            relay.set_number(Number::Gone);
        }
    }

    /// Notifies the engine's thread of relays that have something for it.
    fn notify_engine(&mut self) {
        if self.notified.is_empty() {
            return;
        }
        let mut notified = lock(&self.ready_list.notified);
        // Otherwise the engine's thread was notified before, and collects every entry it finds.
        let is_first = notified.is_empty();
        notified.append(&mut self.notified);
        drop(notified);
        if is_first {
            self.ready_list.moved.notify_one();
        }
    }
}
