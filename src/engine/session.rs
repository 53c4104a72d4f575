//! What the engine knows of each connection.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::task::Waker;

use slab::Slab;

use super::debugging::DebugMode;
use super::multi::Transaction;
use super::pubsub::Subscriptions;
use super::table::Entry;
use super::wait::Parked;
use crate::base::limits::{OUTBOX_CHUNK_BYTES, OUTBOX_TAKE_OVER_BYTES};
use crate::keyspace::{DbIndex, ExpiryHold};
use crate::resp::reply::Form;

/// Names a session; a number that was reused for another connection does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// The client id, as CLIENT ID answers it: never reused.
    pub id: u64,
    slot: usize,
}

/// Which replies the client wants (CLIENT REPLY).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReplyMode {
    /// All.
    #[default]
    On,
    /// None.
    Off,
    /// None for the command that comes next.
    SkipNext,
    /// None for the command that is running.
    SkipThis,
}

/// Reasons why a command of a session needs more than the usual way. No bit: the hot path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Gate(u8);

impl Gate {
    /// The client has not authenticated though it must.
    pub const STRANGER: Gate = Gate(1);
    /// Commands are queued for EXEC.
    pub const QUEUEING: Gate = Gate(1 << 1);
    /// A RESP2 client that has subscriptions may do little else.
    pub const SUBSCRIBER: Gate = Gate(1 << 2);
    /// Not every reply is wanted.
    pub const MUTED: Gate = Gate(1 << 3);
    /// Reading a key does not count as using it.
    pub const NO_TOUCH: Gate = Gate(1 << 4);
    /// There is a limit on memory, which may have been reached.
    pub const METERED: Gate = Gate(1 << 5);
    /// The log takes no changes.
    pub const UNLOGGED: Gate = Gate(1 << 6);
    /// The data is being loaded.
    pub const LOADING: Gate = Gate(1 << 7);

    /// Whether nothing is out of the ordinary.
    #[inline]
    pub fn is_open(self) -> bool {
        self.0 == 0
    }

    /// Whether any bit of `other` is set.
    #[inline]
    pub fn has(self, other: Gate) -> bool {
        self.0 & other.0 != 0
    }

    /// Sets or clears the bits of `other`.
    pub fn set(&mut self, other: Gate, on: bool) {
        self.0 = if on { self.0 | other.0 } else { self.0 & !other.0 };
    }
}

/// A kind of client, by what limits and CLIENT LIST TYPE tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientType {
    /// Commands and replies.
    Normal,
    /// Has subscriptions.
    Pubsub,
}

/// Bytes on their way to the client: replies, from when they are made until the socket takes them, and what is pushed.
///
/// They lie in chunks, in the order in which they are sent. A chunk is freed as soon as it is sent, so that what is held
/// ([`Outbox::held`]) stays close to what is unsent, and grows without copying what is there already. Most outboxes hold
/// one small reply for a moment: that is `front` alone.
#[derive(Default)]
pub struct Outbox {
    /// The chunk that is being sent. Empty only when nothing is unsent.
    front: Vec<u8>,
    /// Bytes of `front` that were sent.
    front_sent: usize,
    /// The chunks behind it.
    more: VecDeque<Vec<u8>>,
    /// Bytes in `more`.
    more_len: usize,
    /// Bytes that the chunks in `more` have allocated.
    more_held: usize,
    /// How many of the bytes were here before the batch of commands that runs now.
    older: usize,
    /// Something was pushed since that batch began.
    has_fresh: bool,
    waker: Option<Waker>,
}

impl Outbox {
    /// Appends bytes and wakes the connection's task.
    pub fn push(&mut self, bytes: &[u8]) {
        self.copy(bytes);
        self.has_fresh = true;
        self.wake();
    }

    /// Appends replies and empties their buffer, which it takes over where copying would cost more.
    #[inline]
    pub fn append(&mut self, replies: &mut Vec<u8>) {
        // A buffer that is mostly empty would be held as a whole.
        if replies.len() >= OUTBOX_TAKE_OVER_BYTES && replies.capacity() / 2 <= replies.len() {
            self.add_chunk(std::mem::take(replies));
        } else {
            self.copy(replies);
            replies.clear();
        }
    }

    #[inline]
    fn copy(&mut self, bytes: &[u8]) {
        if self.front.is_empty() && bytes.len() <= OUTBOX_CHUNK_BYTES {
            self.front.extend_from_slice(bytes);
        } else {
            self.copy_to_back(bytes);
        }
    }

    fn copy_to_back(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let back = self.more.back_mut().unwrap_or(&mut self.front);
        if back.len() + bytes.len() > OUTBOX_CHUNK_BYTES {
            let mut chunk = Vec::with_capacity(bytes.len().max(OUTBOX_CHUNK_BYTES));
            chunk.extend_from_slice(bytes);
            return self.add_chunk(chunk);
        }
        let before = back.capacity();
        if before - back.len() < bytes.len() {
            let wanted = (2 * before).clamp(back.len() + bytes.len(), OUTBOX_CHUNK_BYTES);
            back.reserve_exact(wanted - back.len());
        }
        back.extend_from_slice(bytes);
        let grown = back.capacity() - before;
        if !self.more.is_empty() {
            self.more_len += bytes.len();
            self.more_held += grown;
        }
    }

    fn add_chunk(&mut self, chunk: Vec<u8>) {
        if self.front.is_empty() {
            self.front = chunk;
        } else {
            self.more_len += chunk.len();
            self.more_held += chunk.capacity();
            self.more.push_back(chunk);
        }
    }

    /// Remembers that all bytes that are here now precede the replies of the batch that begins.
    #[inline]
    pub fn begin_batch(&mut self) {
        self.older = self.len();
        self.has_fresh = false;
    }

    /// Moves what was pushed since the batch began behind the replies so far.
    #[inline]
    pub fn drain_fresh(&mut self, replies: &mut Vec<u8>) {
        if self.has_fresh {
            self.drain_fresh_now(replies);
        }
    }

    #[cold]
    fn drain_fresh_now(&mut self, replies: &mut Vec<u8>) {
        self.has_fresh = false;
        if self.len() > self.older {
            let fresh = self.take_from(self.older);
            replies.extend_from_slice(&fresh);
        }
    }

    /// Takes out the unsent bytes behind the first `keep` of them.
    pub fn take_from(&mut self, keep: usize) -> Vec<u8> {
        let mut taken = Vec::with_capacity(self.len().saturating_sub(keep));
        let chunks = std::mem::take(&mut self.more);
        (self.more_len, self.more_held) = (0, 0);
        let cut = self.front.len().min(self.front_sent + keep);
        let mut left = keep - (cut - self.front_sent);
        taken.extend_from_slice(&self.front[cut..]);
        self.front.truncate(cut);
        for mut chunk in chunks {
            let cut = chunk.len().min(left);
            left -= cut;
            taken.extend_from_slice(&chunk[cut..]);
            chunk.truncate(cut);
            if cut > 0 {
                self.add_chunk(chunk);
            }
        }
        self.sent(0);
        self.older = self.older.min(self.len());
        taken
    }

    /// Drops bytes from the front, no more than [`Outbox::front`] has. An empty outbox holds no memory.
    #[inline]
    fn sent(&mut self, bytes: usize) {
        self.front_sent += bytes;
        self.older = self.older.saturating_sub(bytes);
        if self.front_sent >= self.front.len() {
            self.front_sent = 0;
            self.front = self.more.pop_front().unwrap_or_default();
            if !self.front.is_empty() {
                self.more_len -= self.front.len();
                self.more_held -= self.front.capacity();
            } else {
                self.more = VecDeque::new();
            }
        }
    }

    /// Drops what is unsent.
    pub fn clear(&mut self) {
        *self = Outbox { waker: self.waker.take(), ..Outbox::default() };
    }

    /// The unsent bytes that come first: all of them, or those that lie together.
    #[inline]
    pub fn front(&self) -> &[u8] {
        self.front.get(self.front_sent..).unwrap_or_default()
    }

    /// How many bytes are unsent.
    #[inline]
    pub fn len(&self) -> usize {
        self.front.len() - self.front_sent + self.more_len
    }

    /// How many bytes of memory it takes to hold them.
    #[inline]
    pub fn held(&self) -> usize {
        self.front.capacity() + self.more_held
    }

    /// How many chunks they lie in.
    pub fn chunks(&self) -> usize {
        usize::from(!self.front.is_empty()) + self.more.len()
    }

    /// Whether all was sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.front.is_empty()
    }

    /// Wakes the connection's task.
    pub fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Remembers whom to wake.
    #[inline]
    pub fn set_waker(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) if known.will_wake(waker) => {}
            known => *known = Some(waker.clone()),
        }
    }
}

/// One key that a session watches.
#[derive(Debug)]
pub struct Watched {
    /// Its database.
    pub db: DbIndex,
    /// Its name, shared with all who watch it.
    pub key: Rc<[u8]>,
}

/// One connection. Public fields are plain facts that commands read and set.
pub struct Session {
    /// Names it.
    pub key: SessionKey,
    /// The selected database.
    pub db: DbIndex,
    /// 2 or 3.
    pub protocol: u8,
    /// See [`Gate`].
    pub gate: Gate,
    /// Whether the last password was right, or none is needed.
    pub authenticated: bool,
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub lib_version: Vec<u8>,
    /// Peer address, `ip:port` or `path:0`.
    pub address: String,
    /// Local address of the connection.
    pub local_address: String,
    /// File descriptor, for CLIENT LIST.
    pub fd: i32,
    /// Connected by loopback or a unix socket.
    pub is_local: bool,
    /// CLIENT NO-EVICT.
    pub no_evict: bool,
    /// CLIENT IMPORT-SOURCE. Ends with the session, however that ends.
    pub expiry_hold: Option<ExpiryHold>,
    /// CLIENT REPLY.
    pub reply_mode: ReplyMode,
    /// SCRIPT DEBUG.
    pub debug: DebugMode,
    /// Commands queued since MULTI.
    pub transaction: Option<Box<Transaction>>,
    /// Keys of WATCH, each once.
    pub watched: Vec<Watched>,
    /// A watched key has changed.
    pub watch_dirty: bool,
    /// Channels and patterns.
    pub subscriptions: Subscriptions,
    /// The call that waits for a key.
    pub parked: Option<Box<Parked>>,
    /// What waits to be sent.
    pub outbox: Outbox,
    /// Bytes of its outbox that are counted among those of all; see [`room`](super::room).
    pub(super) counted_unsent: usize,
    /// Its next command has found no room for the answer; see [`room`](super::room).
    pub(crate) waits_for_room: bool,
    /// Close when everything is sent.
    pub closing: bool,
    /// Close now, whatever is unsent.
    pub killed: bool,
    /// Since when its unsent output exceeds its kind's soft limit, Unix ms.
    pub over_soft_since_ms: Option<i64>,
    /// When it connected, Unix ms.
    pub connected_ms: i64,
    /// When it last sent a command, Unix ms.
    pub active_ms: i64,
    /// The last command.
    pub last_command: Option<&'static Entry>,
    /// Bytes of input that wait for the rest of their command.
    pub pending_input: usize,
    /// Commands processed.
    pub commands: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}

impl Session {
    /// Whether its outbox was found to hold something that all clients' sum counts.
    #[inline]
    pub(crate) fn is_counted(&self) -> bool {
        self.counted_unsent != 0
    }

    /// The form of its replies.
    #[inline]
    pub fn form(&self) -> Form {
        if self.protocol == 3 { Form::Resp3 } else { Form::Resp2 }
    }

    /// What kind of client it is.
    pub fn client_type(&self) -> ClientType {
        if self.subscriptions.is_empty() { ClientType::Normal } else { ClientType::Pubsub }
    }

    /// Whether its next command must wait: it is parked, waits for room, or is about to be closed.
    #[inline]
    pub fn is_suspended(&self) -> bool {
        self.parked.is_some() || self.waits_for_room || self.closing || self.killed
    }

    /// Drops bytes from the front of the outbox, which the socket has taken; answers how many.
    #[inline]
    pub fn sent(&mut self, bytes: usize) -> u64 {
        self.outbox.sent(bytes);
        self.bytes_out += bytes as u64;
        bytes as u64
    }

    /// Closes it, whatever is unsent.
    pub fn kill(&mut self) {
        self.killed = true;
        self.expiry_hold = None;
        self.outbox.wake();
    }

    /// Whether the client asked to see no reply of the command that runs, or of any. Pushed messages still reach it.
    pub fn is_muted(&self) -> bool {
        matches!(self.reply_mode, ReplyMode::Off | ReplyMode::SkipThis)
    }

    /// Recomputes the gate bit that depends on protocol and subscriptions.
    pub fn refresh_subscriber_gate(&mut self) {
        let restricted = self.protocol == 2 && !self.subscriptions.is_empty();
        self.gate.set(Gate::SUBSCRIBER, restricted);
    }
}

/// Where a connection comes from.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// `ip:port`, or `path:0` for a unix socket.
    pub address: String,
    /// The local end.
    pub local_address: String,
    /// File descriptor.
    pub fd: i32,
    /// Connected by loopback or a unix socket.
    pub is_local: bool,
}

/// All connections. The session whose command is running is taken out while it runs.
#[derive(Default)]
pub struct Sessions {
    slab: Slab<Option<Box<Session>>>,
    /// The slot of each client id.
    slots: HashMap<u64, usize>,
    last_id: u64,
}

impl Sessions {
    /// Registers a connection.
    pub fn open(&mut self, peer: Peer, stranger: bool, now_ms: i64) -> SessionKey {
        self.last_id += 1;
        let slot = self.slab.vacant_key();
        let key = SessionKey { id: self.last_id, slot };
        self.slots.insert(key.id, slot);
        let mut gate = Gate::default();
        gate.set(Gate::STRANGER, stranger);
        self.slab.insert(Some(Box::new(Session {
            key,
            db: 0,
            protocol: 2,
            gate,
            authenticated: !stranger,
            name: Vec::new(),
            lib_name: Vec::new(),
            lib_version: Vec::new(),
            address: peer.address,
            local_address: peer.local_address,
            fd: peer.fd,
            is_local: peer.is_local,
            no_evict: false,
            expiry_hold: None,
            reply_mode: ReplyMode::On,
            debug: DebugMode::Off,
            transaction: None,
            watched: Vec::new(),
            watch_dirty: false,
            subscriptions: Subscriptions::default(),
            parked: None,
            outbox: Outbox::default(),
            counted_unsent: 0,
            waits_for_room: false,
            closing: false,
            killed: false,
            over_soft_since_ms: None,
            connected_ms: now_ms,
            active_ms: now_ms,
            last_command: None,
            pending_input: 0,
            commands: 0,
            bytes_in: 0,
            bytes_out: 0,
        })));
        key
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether nobody is connected.
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Takes a session out while its command runs. `None` when it is gone or out already.
    #[inline]
    pub fn take(&mut self, key: SessionKey) -> Option<Box<Session>> {
        let place = self.slab.get_mut(key.slot)?;
        if place.as_ref()?.key != key {
            return None;
        }
        place.take()
    }

    /// Puts a session back that was taken out.
    #[inline]
    pub fn put(&mut self, session: Box<Session>) {
        if let Some(place) = self.slab.get_mut(session.key.slot) {
            *place = Some(session);
        }
    }

    /// A session that is not out.
    #[inline]
    pub fn get_mut(&mut self, key: SessionKey) -> Option<&mut Session> {
        self.slab.get_mut(key.slot)?.as_deref_mut().filter(|session| session.key == key)
    }

    /// Forgets a session that is not out.
    pub fn close(&mut self, key: SessionKey) -> Option<Box<Session>> {
        let session = self.take(key)?;
        self.slab.remove(key.slot);
        self.slots.remove(&key.id);
        Some(session)
    }

    /// All sessions that are not out, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.slab.iter().filter_map(|(_, session)| session.as_deref())
    }

    /// All sessions that are not out, in no order that means anything.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.slab.iter_mut().filter_map(|(_, session)| session.as_deref_mut())
    }

    /// The session with this client id, if it is not out.
    pub fn by_id(&mut self, id: u64) -> Option<&mut Session> {
        let slot = *self.slots.get(&id)?;
        self.get_mut(SessionKey { id, slot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    /// All unsent bytes, taken as a socket takes them.
    fn drained(outbox: &mut Outbox, at_once: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !outbox.is_empty() {
            let piece = &outbox.front()[..outbox.front().len().min(at_once)];
            all.extend_from_slice(piece);
            outbox.sent(piece.len());
        }
        all
    }

    #[test]
    fn bytes_leave_an_outbox_as_they_came() {
        let mut rng = Rng::seeded(5);
        let (mut outbox, mut expected) = (Outbox::default(), Vec::new());
        for round in 0..400_u64 {
            let len = [0, 1, 100, 5_000, 33_000, 70_000, 200_000][(rng.next_u64() % 7) as usize];
            let bytes: Vec<u8> = (0..len).map(|at| (at as u64 ^ round) as u8).collect();
            expected.extend_from_slice(&bytes);
            match rng.next_u64() % 3 {
                0 => outbox.push(&bytes),
                1 => outbox.append(&mut bytes.clone()),
                _ => {
                    let mut roomy = Vec::with_capacity(1 << 20);
                    roomy.extend_from_slice(&bytes);
                    outbox.append(&mut roomy);
                }
            }
            if rng.next_u64().is_multiple_of(4) {
                let taken = outbox.front().len().min((rng.next_u64() % 100_000) as usize);
                assert_eq!(outbox.front()[..taken], expected[..taken]);
                outbox.sent(taken);
                expected.drain(..taken);
            }
            if rng.next_u64().is_multiple_of(20) {
                let keep = (rng.next_u64() as usize) % (expected.len() + 1);
                assert_eq!(outbox.take_from(keep), expected.split_off(keep));
            }
            assert_eq!((outbox.len(), outbox.is_empty()), (expected.len(), expected.is_empty()));
        }
        assert_eq!(drained(&mut outbox, 10_000), expected);
        assert_eq!((outbox.held(), outbox.chunks()), (0, 0), "an empty outbox holds no memory");
    }

    #[test]
    fn an_outbox_holds_little_more_than_what_is_unsent() {
        let mut outbox = Outbox::default();
        for len in [10, 1_000, 30_000].repeat(500) {
            outbox.push(&vec![b'x'; len]);
            assert!(outbox.held() <= 2 * outbox.len() + OUTBOX_CHUNK_BYTES, "{} for {}", outbox.held(), outbox.len());
        }
        // A large buffer with little in it is not taken over.
        let mut outbox = Outbox::default();
        let mut roomy = Vec::with_capacity(1 << 20);
        roomy.resize(OUTBOX_TAKE_OVER_BYTES, b'x');
        outbox.append(&mut roomy);
        assert_eq!((outbox.len(), outbox.held() < 1 << 19), (OUTBOX_TAKE_OVER_BYTES, true));
    }

    #[test]
    fn what_a_command_pushes_to_its_own_session_follows_its_reply() {
        let mut outbox = Outbox::default();
        outbox.push(b"before ");
        outbox.begin_batch();
        outbox.push(b" pushed");
        let mut replies = b"reply".to_vec();
        outbox.drain_fresh(&mut replies);
        outbox.append(&mut replies);
        assert_eq!(drained(&mut outbox, 3), b"before reply pushed");
    }

    #[test]
    fn a_session_is_found_by_its_id_until_it_is_closed() {
        let mut sessions = Sessions::default();
        let keys: Vec<SessionKey> = (0..3).map(|_| sessions.open(Peer::default(), false, 0)).collect();
        assert!(sessions.close(keys[1]).is_some());
        let last = sessions.open(Peer::default(), false, 0);
        assert_eq!(last.slot, keys[1].slot, "the place is used again");
        let mut found = |id| sessions.by_id(id).map(|session| session.key);
        assert_eq!(
            [found(1), found(2), found(3), found(4), found(5)],
            [Some(keys[0]), None, Some(keys[2]), Some(last), None]
        );
    }
}
