//! The engine's state of each connection.

pub(crate) mod caching;
pub(crate) mod client_memory;
pub(crate) mod clients;
pub mod limits;
pub mod outbox;
pub(crate) mod output_limits;
pub(crate) mod pause;
pub(crate) mod registry;
pub(crate) mod room;
mod rounds;
pub mod subscriptions;
pub mod wire;

use crate::spec::session_key::SessionKey;
use std::collections::HashMap;
use std::rc::Rc;

use bitflags::bitflags;
use slab::Slab;

use self::caching::CachingClient;
use self::outbox::Outbox;
use self::rounds::Rounds;
use self::subscriptions::Subscriptions;
use crate::acl::users::{DEFAULT, UserId};
use crate::base::fit::{fit_map, fit_slab};
use crate::base::lsn::Lsn;
use crate::keyspace::{DbIndex, ExpiryHold, UnitMode};
use crate::persist::transfer::{Replica, Transfer};
use crate::resp::reply::Form;
use crate::resp::request::{Argv, OwnedArgv};
use crate::spec::Flags;
use crate::spec::table::{CommandId, Entry};
use crate::wait::Ticket;
use crate::wait::tickets::Tickets;

/// The replies that the client wants (CLIENT REPLY).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReplyMode {
    /// All.
    #[default]
    On,
    /// None.
    Off,
    /// None for the next command.
    SkipNext,
    /// None for the running command.
    SkipThis,
}

bitflags! {
    /// Conditions under which a session's commands may not simply run; each bit needs a check by
    /// [`admit`](crate::engine::run::admit). With no bit set a command takes the hot path.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Restrictions: u32 {
        /// The client has not authenticated though it must.
        const UNAUTHENTICATED = 1;
        /// Commands are queued for EXEC.
        const QUEUEING = 1 << 1;
        /// A RESP2 client that has subscriptions may do little else.
        const SUBSCRIBER = 1 << 2;
        /// Not every reply is wanted.
        const MUTED = 1 << 3;
        /// Reading a key does not count as using it.
        const NO_TOUCH = 1 << 4;
        /// Memory has a limit, which may be reached.
        const METERED = 1 << 5;
        /// The journal takes no changes.
        const UNLOGGED = 1 << 6;
        /// The data is being loaded, or received from another server.
        const LOADING = 1 << 7;
        /// The session's user has limited rights.
        const LIMITED = 1 << 8;
        /// A [`pause`] holds up all commands, or those that may change something.
        const PAUSED = 1 << 9;
        /// The client tracks the keys that it reads.
        const TRACKED = 1 << 10;
        /// Some client sees all calls.
        const OBSERVED = 1 << 11;
        /// This node does not lead its group, or the data was given to another server: keys do not expire here.
        const FOLLOWING = 1 << 12;
        /// Fewer nodes follow this one than must have each change.
        const FEW_FOLLOWERS = 1 << 13;
    }
}

impl Restrictions {
    /// The restrictions of every session that others may begin or end while a session is out of the registry: the disk,
    /// or the clients that are served during a busy script.
    pub(crate) const SET_BY_OTHERS: Restrictions =
        Restrictions::UNLOGGED.union(Restrictions::PAUSED).union(Restrictions::OBSERVED);

    /// The restrictions of every session that follow from what the server may do with its data.
    pub(crate) const OF_ROLE: Restrictions = Restrictions::UNLOGGED
        .union(Restrictions::LOADING)
        .union(Restrictions::FOLLOWING)
        .union(Restrictions::FEW_FOLLOWERS);
}

/// A kind of client, as output limits and CLIENT LIST TYPE distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientType {
    /// A client of commands and replies.
    Normal,
    /// A client with subscriptions.
    Pubsub,
}

/// The commands and channels that a port serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Service {
    /// Everything about the data.
    #[default]
    Data,
    /// Where the leader is, as Redis Sentinel says it. Such a session sees no data, so nothing that concerns the data
    /// restricts it or makes it wait: loading, a journal that takes no changes, a pause, or the end of a reign.
    Sentinel,
}

/// The mode set with SCRIPT DEBUG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DebugMode {
    /// Scripts are not debugged.
    #[default]
    Off,
    /// The next EVAL is debugged, and its changes are undone.
    Rollback,
    /// The next EVAL is debugged, and its changes stay.
    Keep,
}

/// Whether and when a session is closed. It only ever moves down this list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Closing {
    /// The session stays open.
    #[default]
    Not,
    /// The session runs no more commands, and is closed once all its replies are sent.
    WhenSent,
    /// The session is closed now. Unsent replies leave only as far as the socket takes them at once.
    Now,
}

/// The reason why a session's next command must wait. A [transfer](Session::transfer) holds the next command up as
/// well, and may itself wait for room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HeldUp {
    /// There is no reason.
    #[default]
    No,
    /// A blocking call waits for a key or the like. The call itself is kept in the [wait
    /// queues](crate::wait::wait_queues).
    ByCall(Ticket),
    /// There is no room for a reply; see [`room`].
    ByLackOfRoom,
    /// A [`pause`] is in force, and the session is among its postponed ones.
    ByPause,
}

/// Commands queued since MULTI.
#[derive(Default)]
pub struct Transaction {
    /// The queue.
    pub commands: Vec<(CommandId, OwnedArgv)>,
    /// A command was refused when it was queued: EXEC will abort.
    pub broken: bool,
    /// One of the commands may need memory.
    pub(crate) needs_memory: bool,
    /// All flags that any of the commands has.
    pub(crate) flags: Flags,
    /// One of the commands must not run on data that is too old.
    pub(crate) needs_fresh_data: bool,
    /// The database that a queued SELECT chose for the commands after it.
    pub(crate) selected: Option<DbIndex>,
    bytes: usize,
}

impl Transaction {
    /// Queues a command. A broken transaction never runs, so it keeps nothing.
    pub fn push<R>(&mut self, entry: &Entry<R>, argv: Argv<'_>) {
        if !self.broken {
            self.needs_memory |= entry.command.flags.contains(Flags::DENYOOM);
            self.flags = self.flags.union(entry.command.flags);
            self.needs_fresh_data |= !entry.command.flags.contains(Flags::STALE);
            let argv = OwnedArgv::from_argv(argv);
            self.bytes += argv.bytes() + size_of::<(CommandId, OwnedArgv)>();
            self.commands.push((entry.id, argv));
        }
    }

    /// Bytes held by the queue.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// One key that a session watches.
#[derive(Debug)]
pub struct Watched {
    /// Its database.
    pub db: DbIndex,
    /// Its name, shared by all watchers of the key.
    pub key: Rc<[u8]>,
}

/// Marks a session that replays past changes. As long as this lives, no key expires for any client.
#[derive(Debug)]
pub struct ImportSource {
    _hold: ExpiryHold,
    /// The client named in the log at the end of the import; `None` while the server loads its own data.
    client: Option<u64>,
}

impl ImportSource {
    /// Begins an import by the client of this id. The text log says so, since other clients are affected.
    pub fn of_client(client: u64, hold: ExpiryHold) -> ImportSource {
        tracing::warn!(client, "CLIENT IMPORT-SOURCE ON: nothing expires until this client ends its import");
        ImportSource { _hold: hold, client: Some(client) }
    }

    /// Begins an import by the server itself, before it has clients.
    pub fn of_server(hold: ExpiryHold) -> ImportSource {
        ImportSource { _hold: hold, client: None }
    }
}

impl Drop for ImportSource {
    fn drop(&mut self) {
        if let Some(client) = self.client {
            tracing::warn!(
                client,
                "this client's import has ended; overdue keys expire now, unless another import is in progress"
            );
        }
    }
}

/// One connection. Commands read and set the public fields freely.
pub struct Session {
    /// The connection's key.
    pub key: SessionKey,
    /// The service of the port that it came in by.
    pub service: Service,
    /// The selected database.
    pub db: DbIndex,
    /// 2 or 3.
    pub protocol: u8,
    /// See [`Restrictions`].
    pub restrictions: Restrictions,
    /// Whether the last password was right, or no password is needed.
    pub authenticated: bool,
    /// The user that the session acts as.
    pub user: UserId,
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub lib_version: Vec<u8>,
    /// CLIENT CAPA REDIRECT.
    pub takes_redirects: bool,
    /// Peer address, `ip:port` or `path:0`.
    pub address: String,
    /// Local address of the connection.
    pub local_address: String,
    /// File descriptor, for CLIENT LIST.
    pub fd: i32,
    /// Connected by loopback or a unix socket.
    pub is_local: bool,
    /// Made by another thread of this process, which also ends it.
    pub is_inside: bool,
    /// Bytes that the transport holds for the connection: 0, or the memory of TLS.
    transport_bytes: u32,
    /// The thread that receives and sends for the connection, for CLIENT LIST; 0 is the engine's.
    pub io_thread: u8,
    /// CLIENT NO-EVICT.
    pub no_evict: bool,
    /// CLIENT IMPORT-SOURCE. Ends with the session at the latest, however the session ends.
    pub import_source: Option<ImportSource>,
    /// CLIENT REPLY.
    pub reply_mode: ReplyMode,
    /// SCRIPT DEBUG.
    pub debug: DebugMode,
    /// Commands queued since MULTI.
    pub transaction: Option<Box<Transaction>>,
    /// The keys watched with WATCH, each once.
    pub watched: Vec<Watched>,
    /// Bytes held for the watched keys.
    pub(crate) watched_bytes: usize,
    /// A watched key has changed.
    pub watch_dirty: bool,
    /// Its channels and patterns.
    pub subscriptions: Subscriptions,
    /// MONITOR.
    pub is_monitor: bool,
    /// CLIENT TRACKING.
    pub tracking: Option<Box<CachingClient>>,
    /// The calls that wait beside the session (ASYNC); `None` without such calls.
    pub tickets: Option<Box<Tickets>>,
    /// REPLCONF.
    pub replica: Replica,
    /// It came when this node had just begun to follow its group, or had just started.
    pub(crate) is_late: bool,
    /// READONLY: in Cluster mode, a follower serves the client's reads.
    pub reads_on_follower: bool,
    /// The snapshot that is being sent to the client.
    pub(crate) transfer: Option<Box<Transfer>>,
    /// Replies and pushes that wait to be sent.
    pub(crate) outbox: Outbox,
    /// The last unit that the client has seen, or will have seen once its replies leave. Messages that it publishes
    /// must not overtake this unit.
    pub fence: Lsn,
    /// Bytes of the outbox that are counted in the sum over all clients; see [`room`].
    pub(crate) counted_unsent: usize,
    /// Bytes of the session that are counted in the sum over all clients; see [`client_memory`].
    pub(crate) weight: usize,
    /// See [`HeldUp`].
    held_up: HeldUp,
    /// See [`Closing`].
    closing: Closing,
    /// When its unsent output began to exceed the soft limit of its kind, by the steady clock.
    pub over_soft_since_ms: Option<i64>,
    /// Bytes of invalidations sent to the client since its outbox was last empty.
    pub(crate) invalidation_bytes: usize,
    /// When it connected, by the clock of [`Stats`](crate::meters::stats::Stats).
    pub connected_ticks: u64,
    /// When it last sent a command, by the same clock.
    pub active_ticks: u64,
    /// The last command.
    pub last_command: Option<CommandId>,
    /// Bytes of an incomplete command that wait for the rest.
    pub(crate) pending_input: usize,
    /// In a group, what unsent bytes wait for besides their fences.
    pub(crate) rounds: Rounds,
    /// Commands processed.
    pub commands: u64,
    /// Bytes received.
    pub(crate) bytes_in: u64,
    /// Bytes sent.
    pub(crate) bytes_out: u64,
}

impl Session {
    /// Whether a part of the outbox is counted in the sum over all clients.
    #[inline]
    pub(crate) fn is_counted(&self) -> bool {
        self.counted_unsent != 0
    }

    /// The mode of the units in which the session's calls run.
    pub(crate) fn unit_mode(&self) -> UnitMode {
        let mut mode = UnitMode::empty();
        mode.set(UnitMode::NO_TOUCH, self.restrictions.contains(Restrictions::NO_TOUCH));
        mode.set(UnitMode::KEEPS_EXPIRED, self.restrictions.intersects(Restrictions::PAUSED | Restrictions::FOLLOWING));
        mode.set(UnitMode::KEEPS_DELAYED, self.restrictions.contains(Restrictions::UNLOGGED));
        mode
    }

    /// The form of the session's replies.
    #[inline]
    pub fn form(&self) -> Form {
        if self.protocol == 3 { Form::Resp3 } else { Form::Resp2 }
    }

    /// Bytes held for the client: its state, its names, incomplete and queued commands, watched keys, subscriptions,
    /// the calls that wait beside it, and unread replies.
    pub fn mem_bytes(&self) -> usize {
        let queued = self.transaction.as_ref().map_or(0, |transaction| transaction.bytes());
        let prefixes = self.tracking.as_ref().map_or(0, |client| client.mem_bytes());
        let waiting = self.tickets.as_ref().map_or(0, |tickets| tickets.mem_bytes());
        // The registry holds a second copy of the name.
        let own = 2 * self.name.len() + self.lib_name.len() + self.lib_version.len();
        let names = own + self.watched_bytes + self.subscriptions.mem_bytes() + prefixes + waiting;
        let held = size_of::<Session>() + self.transport_bytes as usize + self.outbox.held();
        held + self.pending_input + queued + names
    }

    /// The kind of the client.
    pub fn client_type(&self) -> ClientType {
        if self.subscriptions.is_empty() { ClientType::Normal } else { ClientType::Pubsub }
    }

    /// Whether the next command must wait: the session is blocked by a call, is being sent a snapshot, waits for room,
    /// is postponed, or is about to be closed.
    #[inline]
    pub fn is_suspended(&self) -> bool {
        self.held_up != HeldUp::No || self.transfer.is_some() || self.is_leaving()
    }

    /// Whether a command of the session waits for a key or for the end of a pause.
    pub fn is_blocked(&self) -> bool {
        matches!(self.held_up, HeldUp::ByCall(_) | HeldUp::ByPause)
    }

    /// The waiting call that blocks the session until it is answered.
    #[inline]
    pub fn blocking_call(&self) -> Option<Ticket> {
        match self.held_up {
            HeldUp::ByCall(ticket) => Some(ticket),
            _ => None,
        }
    }

    /// Blocks the session until the call of this ticket is answered.
    pub(crate) fn block(&mut self, ticket: Ticket) {
        self.held_up = HeldUp::ByCall(ticket);
    }

    /// Ends the blocking by a call.
    pub(crate) fn unblock(&mut self) {
        if let HeldUp::ByCall(_) = self.held_up {
            self.held_up = HeldUp::No;
        }
    }

    /// Whether the next command, or the next part of a transfer, waits for room.
    pub fn waits_for_room(&self) -> bool {
        self.held_up == HeldUp::ByLackOfRoom
    }

    /// Makes the next command, or the next part of a transfer, wait for room.
    pub(crate) fn wait_for_room(&mut self) {
        self.held_up = HeldUp::ByLackOfRoom;
    }

    /// Ends the wait for room; returns whether there was one.
    pub(crate) fn end_wait_for_room(&mut self) -> bool {
        let has_waited = self.waits_for_room();
        if has_waited {
            self.held_up = HeldUp::No;
        }
        has_waited
    }

    /// Whether a [`pause`] holds up the next command.
    pub(crate) fn is_postponed(&self) -> bool {
        self.held_up == HeldUp::ByPause
    }

    /// Makes the next command wait for the end of the [`pause`].
    pub(crate) fn postpone(&mut self) {
        self.held_up = HeldUp::ByPause;
    }

    /// Ends the wait for the end of a [`pause`]; returns whether there was one.
    pub(crate) fn end_postponement(&mut self) -> bool {
        let was_postponed = self.is_postponed();
        if was_postponed {
            self.held_up = HeldUp::No;
        }
        was_postponed
    }

    /// Begins to send a snapshot. No command runs until the session is closed after it.
    pub fn begin_transfer(&mut self, transfer: Transfer) {
        self.transfer = Some(Box::new(transfer));
    }

    /// Whether a snapshot is being sent to the client.
    pub fn is_in_transfer(&self) -> bool {
        self.transfer.is_some()
    }

    /// Bytes of an incomplete command that wait for the rest.
    pub fn pending_input(&self) -> usize {
        self.pending_input
    }

    /// Whether the session is about to be closed and gets nothing new.
    #[inline]
    pub(crate) fn is_leaving(&self) -> bool {
        self.closing != Closing::Not
    }

    /// Whether the session is closed now, even with unsent replies.
    #[inline]
    pub fn is_killed(&self) -> bool {
        self.closing == Closing::Now
    }

    /// Whether the session is closed once all its replies are sent.
    pub(crate) fn is_closing_when_sent(&self) -> bool {
        self.closing == Closing::WhenSent
    }

    /// Closes the session once all its replies are sent.
    pub(crate) fn close_when_sent(&mut self) {
        self.closing = self.closing.max(Closing::WhenSent);
    }

    /// Whether a call that waits beside the session has this ticket.
    pub fn has_ticket(&self, ticket: Ticket) -> bool {
        self.tickets.as_ref().is_some_and(|tickets| tickets.has(ticket))
    }

    /// Closes the session. Earlier replies are sent as far as the socket takes them at once.
    pub fn kill(&mut self) {
        self.closing = Closing::Now;
        self.import_source = None;
        self.outbox.wake();
    }

    /// Closes the session and sends nothing more, not even earlier replies.
    pub(crate) fn close_at_once(&mut self) {
        self.outbox.close();
        self.kill();
    }

    /// Whether the client wants no reply to the running command, or to any. Pushed messages still reach the client.
    pub fn is_muted(&self) -> bool {
        matches!(self.reply_mode, ReplyMode::Off | ReplyMode::SkipThis)
    }

    /// Sets or lifts restrictions that follow from the state of the server.
    pub(crate) fn restrict(&mut self, by: Restrictions, is_on: bool) {
        self.restrictions.set(by, is_on && self.service == Service::Data);
    }

    /// Recomputes the restriction that depends on protocol and subscriptions.
    pub fn refresh_subscriber_gate(&mut self) {
        let restricted = self.protocol == 2 && !self.subscriptions.is_empty();
        self.restrictions.set(Restrictions::SUBSCRIBER, restricted);
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
    /// Made by another thread of this process, which also ends it.
    pub is_inside: bool,
    /// Bytes that the transport holds for the connection: 0, or the memory of TLS.
    pub transport_bytes: u32,
    /// The thread that receives and sends for the connection; 0 is the engine's.
    pub io_thread: u8,
    /// The service of the port.
    pub service: Service,
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
    pub fn open(&mut self, peer: Peer, unauthenticated: bool, ticks: u64) -> SessionKey {
        self.last_id += 1;
        let slot = self.slab.vacant_key();
        let key = SessionKey { id: self.last_id, slot };
        self.slots.insert(key.id, slot);
        let mut restrictions = Restrictions::default();
        restrictions.set(Restrictions::UNAUTHENTICATED, unauthenticated);
        self.slab.insert(Some(Box::new(Session {
            key,
            service: peer.service,
            db: 0,
            protocol: 2,
            restrictions,
            authenticated: !unauthenticated,
            user: DEFAULT,
            name: Vec::new(),
            lib_name: Vec::new(),
            lib_version: Vec::new(),
            takes_redirects: false,
            address: peer.address,
            local_address: peer.local_address,
            fd: peer.fd,
            is_local: peer.is_local,
            is_inside: peer.is_inside,
            transport_bytes: peer.transport_bytes,
            io_thread: peer.io_thread,
            no_evict: false,
            import_source: None,
            reply_mode: ReplyMode::On,
            debug: DebugMode::Off,
            transaction: None,
            watched: Vec::new(),
            watched_bytes: 0,
            watch_dirty: false,
            subscriptions: Subscriptions::default(),
            is_monitor: false,
            tracking: None,
            tickets: None,
            replica: Replica::default(),
            is_late: false,
            reads_on_follower: false,
            transfer: None,
            outbox: Outbox::default(),
            fence: Lsn::NONE,
            counted_unsent: 0,
            weight: 0,
            held_up: HeldUp::No,
            closing: Closing::Not,
            over_soft_since_ms: None,
            invalidation_bytes: 0,
            connected_ticks: ticks,
            active_ticks: ticks,
            last_command: None,
            pending_input: 0,
            rounds: Rounds::default(),
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

    /// Returns the id of the newest connection, open or not.
    pub(crate) fn newest_id(&self) -> u64 {
        self.last_id
    }

    /// Whether there are no connections.
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

    /// Puts back a session that was taken out.
    #[inline]
    pub fn put(&mut self, session: Box<Session>) {
        if let Some(place) = self.slab.get_mut(session.key.slot) {
            *place = Some(session);
        }
    }

    /// A session that is not out.
    #[inline]
    pub fn get(&self, key: SessionKey) -> Option<&Session> {
        self.slab.get(key.slot)?.as_deref().filter(|session| session.key == key)
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
        fit_map(&mut self.slots);
        Some(session)
    }

    /// Frees the memory of closed sessions. Takes time proportional to the number of slots.
    pub(crate) fn give_back(&mut self) {
        fit_slab(&mut self.slab);
    }

    /// All sessions that are not out, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.slab.iter().filter_map(|(_, session)| session.as_deref())
    }

    /// All sessions that are not out, in no order that means anything.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.slab.iter_mut().filter_map(|(_, session)| session.as_deref_mut())
    }

    /// Whether a connection with this client id is open.
    pub fn is_open(&self, id: u64) -> bool {
        self.slots.contains_key(&id)
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
