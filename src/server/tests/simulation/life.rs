//! One server of the simulation, from its start to its end: the events it meets, and the replies its clients get.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use super::requests::{Request, Shows, What, encode, random, reply_len};
use super::{BESIDE, State, Told, Verdict, World, difference, repeat, state_of};
use crate::config::Config;
use crate::engine::{Engine, ServerState};
use crate::keyspace::effect::{Effect, EffectReader, EffectWriter, Touch};
use crate::log::group_commit::{State as LogState, SyncPolicy};
use crate::persist::saving::Purpose;
use crate::persist::snapshot_stream::SnapshotStream;
use crate::resp::reply::{Form, Reply};
use crate::resp::request::Decoder;
use crate::session::Peer;
use crate::spec::session_key::SessionKey;

const CLIENTS: usize = 4;

/// Channel on which RESP2 clients are notified of changed keys on behalf of others.
const INVALIDATE: &str = "__redis__:invalidate";

/// See the file's header.
pub(super) struct Life<'w> {
    world: &'w mut World,
    engine: Engine,
    /// Repeats each unit of the journal.
    copy: Engine,
    /// The data of the copy after unit `at`.
    state: Rc<State>,
    at: u64,
    /// The last unit that changed each key, other than by its expiry.
    changed: BTreeMap<(u16, Vec<u8>), u64>,
    /// Units that only removed expired keys: no client waits for these.
    expiries: BTreeSet<u64>,
    clients: Vec<Client>,
    listener: Client,
    /// The client that listens to events of keys.
    observer: Client,
    /// How many bytes have been sent to the observer.
    observed: u64,
    /// The next messages for the observer, in order.
    events: VecDeque<Events>,
    /// Units since events were last noted, and the keys they touched.
    fresh: Vec<(u64, Keys)>,
    /// The unit behind each message.
    published: BTreeMap<u64, u64>,
    /// The next notifications of changed keys for the listener, in order: the unit, and the keys; `None` for all keys.
    touched: VecDeque<(usize, u64, Touched)>,
    /// Where each stretch ended, in bytes sent to the listener, in which no units were collected. Notifications of such
    /// a stretch may equal later ones, so each of [`touched`](Self::touched) has the number of stretches before it.
    gaps: Vec<u64>,
    /// Whether no units are collected now.
    is_gap: bool,
    /// How many bytes have been sent to the listener and read as messages.
    heard: u64,
    /// The last unit in the snapshot that was copied last.
    copied: u64,
    snapshots: u64,
    log_state: Option<LogState>,
}

struct Client {
    key: SessionKey,
    /// Replies that have not arrived yet.
    expected: VecDeque<Expected>,
    received: Vec<u8>,
    /// The last unit of this client.
    last: u64,
    /// The list for which the client waits.
    waits_for: Option<&'static str>,
    /// The rest of a transaction whose first commands the client has sent, and the last unit before those commands.
    begun: Option<(Request, u64)>,
}

type Keys = BTreeSet<(u16, Vec<u8>)>;

/// Keys that a unit has touched, of any database; `None` for all.
type Touched = Option<BTreeSet<Vec<u8>>>;

/// Events that arrived together.
struct Events {
    /// The position of their end among all bytes sent to the observer.
    end: u64,
    /// Their units, and the keys that each touched.
    units: Vec<(u64, Keys)>,
    /// The last units that had changed each key by then: an event of a key that no unit has touched shows these.
    changed: BTreeMap<(u16, Vec<u8>), u64>,
}

/// A reply still to arrive.
#[derive(Clone, Copy)]
struct Expected {
    /// The last unit that the reply shows; 0 if that may be lost.
    lsn: u64,
    what: What,
}

impl Client {
    fn new(engine: &mut Engine) -> Client {
        let key = engine.server.open_session(Peer::default());
        Client { key, expected: VecDeque::new(), received: Vec::new(), last: 0, waits_for: None, begun: None }
    }
}

impl<'w> Life<'w> {
    pub(super) fn new(world: &'w mut World, mut engine: Engine, state: Rc<State>) -> Verdict<Life<'w>> {
        // The first units set the configuration's limits, which are not part of the state.
        let begun = engine.server.persistence.tail.as_ref().map_or(0, |tail| tail.units().count());
        let copy = copy_of(world, &mut engine)?;
        let clients = (0..CLIENTS).map(|_| Client::new(&mut engine)).collect();
        let (listener, observer) = (Client::new(&mut engine), Client::new(&mut engine));
        let at = world.last;
        let mut life = Life {
            world,
            engine,
            copy,
            state,
            at,
            changed: BTreeMap::new(),
            expiries: BTreeSet::new(),
            clients,
            listener,
            observer,
            observed: 0,
            events: VecDeque::new(),
            fresh: Vec::new(),
            published: BTreeMap::new(),
            touched: VecDeque::new(),
            gaps: Vec::new(),
            is_gap: false,
            heard: 0,
            copied: 0,
            snapshots: 0,
            log_state: None,
        };
        for _ in 0..begun {
            life.at += 1;
            life.note_state();
        }
        life.listen();
        life.listen_to_events();
        life.log_state = life.log_state();
        Ok(life)
    }

    /// The listener receives published messages and, on behalf of another client, notifications of changed keys.
    fn listen(&mut self) {
        let caches = self.engine.server.open_session(Peer::default());
        let listener = self.listener.key;
        self.line(listener, &format!("SUBSCRIBE news {INVALIDATE}"));
        self.line(caches, &format!("CLIENT TRACKING ON BCAST REDIRECT {}", listener.id));
        self.touched.clear();
    }

    /// The observer receives all events, including that of a key looked for and not found.
    fn listen_to_events(&mut self) {
        let observer = self.observer.key;
        self.line(observer, "CONFIG SET notify-keyspace-events AEmn");
        self.line(observer, "PSUBSCRIBE __keyevent@*");
        self.observed = 0;
        self.events.clear();
    }

    /// Runs a command whose reply is discarded.
    fn line(&mut self, key: SessionKey, line: &str) {
        let words = line.split(' ').map(str::to_owned).collect();
        let mut out = Reply::new(Form::Resp2);
        self.engine.feed(key, &mut Decoder::new(), &encode(&[words]), &mut out);
    }

    /// Lets `steps` events happen, then ends the server.
    pub(super) fn run(mut self, steps: u64) -> Verdict {
        for _ in 0..steps {
            let before = self.at;
            let (is_copying, is_inside_value) = self.engine.server.persistence.saving.copying();
            self.act(before)?;
            self.collect()?;
            let has_changed = self.at > before;
            self.world.reached.changed_while_copied += u64::from(is_copying && has_changed);
            self.world.reached.changed_inside_value += u64::from(is_inside_value && has_changed);
            self.note_log_state();
            self.replace_disconnected();
            if self.world.disk.is_off() {
                return Ok(());
            }
            self.compare()?;
        }
        if self.world.chance(3)
            && self.engine.server.persistence.journal.is_some()
            && self.engine.server.persistence.close().is_ok()
        {
            self.world.kept = self.at;
            self.world.reached.clean_ends += 1;
        }
        // A killed process does not tidy up.
        self.world.disk.turn_off();
        Ok(())
    }

    fn act(&mut self, before: u64) -> Verdict {
        match self.world.rng.below(100) {
            0..50 => {
                let client = self.world.rng.below(CLIENTS as u64) as usize;
                self.ask(client)?;
                if self.world.rng.below(3) > 0 {
                    self.send(client)?;
                }
            }
            50..65 => {
                let client = self.world.rng.below(CLIENTS as u64) as usize;
                self.send(client)?;
                self.hear()?;
                self.hear_events()?;
            }
            65..72 => {
                if let Some(log) = self.engine.server.persistence.local_log() {
                    log.step();
                }
                self.engine.server.follow_journal();
            }
            72..78 => {
                if let Some(log) = self.engine.server.persistence.local_log() {
                    log.do_chore();
                }
                self.engine.server.follow_journal();
            }
            78..90 => self.go_on_saving()?,
            90..97 => {
                let ms = self.world.rng.below(400);
                self.world.clock.advance_ms(ms as i64);
                self.world.disk.advance(Duration::from_millis(ms));
                self.engine.time_out_waits();
                self.collect()?;
                self.note_ended_waits(before);
                self.engine.tick();
            }
            _ => self.fill_or_clear(),
        }
        Ok(())
    }

    /// Lets a client send a request.
    fn ask(&mut self, client: usize) -> Verdict {
        let key = self.clients[client].key;
        let waits = |session: &mut crate::session::Session| session.is_suspended();
        if self.engine.server.clients.sessions.get_mut(key).is_none_or(waits) {
            return Ok(());
        }
        let (request, begun_at) = self.next_request(client);
        if request.what == What::Reload && self.engine.server.persistence.journal.is_none() {
            return Ok(());
        }
        if matches!(request.what, What::Block(_)) && self.clients.iter().any(|client| client.waits_for.is_some()) {
            // With two waiters on a list, the test could not say which unit has served which.
            return Ok(());
        }
        let (before, policy) = (self.at, self.engine.server.config.appendfsync);
        let mut out = Reply::new(Form::Resp2);
        self.engine.feed(key, &mut Decoder::new(), &encode(&request.commands), &mut out);
        let Some(session) = self.engine.server.clients.sessions.get_mut(key) else { return Ok(()) };
        session.reply(&mut out);
        let is_parked = session.blocking_call().is_some();
        self.collect()?;
        let is_logged = self.engine.server.persistence.journal.is_some();
        let own = if self.at > before && !self.expiries.contains(&(before + 1)) { before + 1 } else { 0 };
        let shown = match (is_logged, request.what) {
            (false, _) => 0,
            (true, What::WaitAof) => self.clients[client].last,
            // A policy that was already in force syncs nothing.
            (true, What::SyncPolicy) if self.engine.server.config.appendfsync == policy => 0,
            (true, What::SyncPolicy | What::Reload) => before,
            (true, _) => own.max(self.shown(request.shows)),
        };
        let client = &mut self.clients[client];
        if is_logged {
            client.last = client.last.max(own);
        }
        for _ in 1..request.commands.len() {
            client.expected.push_back(Expected { lsn: 0, what: What::Plain });
        }
        client.expected.push_back(Expected { lsn: shown, what: request.what });
        if let What::Block(list) = request.what {
            client.waits_for = Some(list).filter(|_| is_parked);
        }
        let reached = &mut self.world.reached;
        match request.what {
            What::Publish(number) => drop(self.published.insert(number, if is_logged { own } else { 0 })),
            What::Transaction { watches } if own > 0 => {
                reached.transactions += 1;
                reached.watched += u64::from(watches);
                reached.interleaved += u64::from(begun_at.is_some_and(|at| at < before));
            }
            What::Script if own > 0 => reached.scripts += 1,
            What::FailingScript => reached.failed_scripts += 1,
            What::Grant if own > 0 => reached.granted += 1,
            _ => {}
        }
        self.note_ended_waits(before);
        Ok(())
    }

    /// Chooses a client's next request. The commands of a transaction need not arrive at once: for its rest, also
    /// returns the unit after which it began.
    fn next_request(&mut self, client: usize) -> (Request, Option<u64>) {
        if let Some((rest, at)) = self.clients[client].begun.take() {
            return (rest, Some(at));
        }
        self.world.requests += 1;
        let mut request = random(&mut self.world.rng, self.world.requests, self.world.kinds);
        let first = self.world.rng.below(request.commands.len() as u64) as usize;
        if first == 0 {
            return (request, None);
        }
        let rest = request.commands.split_off(first);
        self.clients[client].begun = Some((Request { commands: rest, ..request }, self.at));
        (Request { commands: request.commands, shows: Shows::Nothing, what: What::Plain }, None)
    }

    /// The last unit that a reply shows.
    fn shown(&self, shows: Shows) -> u64 {
        let of = |db: u16, name: &str| self.changed.get(&(db, name.as_bytes().to_vec())).copied().unwrap_or(0);
        match shows {
            Shows::Nothing => 0,
            Shows::Key(name) => of(0, name),
            Shows::Library => of(BESIDE, "library"),
            Shows::Everything => self.changed.values().copied().max().unwrap_or(0),
        }
    }

    /// A client that no longer waits was served by the last unit, or its timeout has passed.
    fn note_ended_waits(&mut self, before: u64) {
        let is_logged = self.engine.server.persistence.journal.is_some();
        for at in 0..CLIENTS {
            let key = self.clients[at].key;
            let Some(list) = self.clients[at].waits_for else { continue };
            if self.engine.server.clients.sessions.get_mut(key).is_none_or(|session| session.blocking_call().is_some())
            {
                continue;
            }
            let was_served = self.at > before;
            let lsn = if was_served { self.at } else { self.shown(Shows::Key(list)) };
            self.world.reached.woken += u64::from(was_served);
            self.world.reached.timed_out += u64::from(!was_served);
            self.clients[at].waits_for = None;
            if let Some(last) = self.clients[at].expected.back_mut().filter(|_| is_logged) {
                last.lsn = lsn;
            }
        }
    }

    /// Repeats on the copy the units given to the journal since the last call, and notes the events they caused.
    fn collect(&mut self) -> Verdict {
        self.collect_units()?;
        let units = std::mem::take(&mut self.fresh);
        let Some(session) = self.engine.server.clients.sessions.get_mut(self.observer.key) else { return Ok(()) };
        let end = self.observed + session.unsent_bytes() as u64;
        if end > self.events.back().map_or(self.observed, |events| events.end) {
            let is_logged = self.engine.server.persistence.journal.is_some();
            let changed = if is_logged { self.changed.clone() } else { BTreeMap::new() };
            self.events.push_back(Events { end, units, changed });
        }
        Ok(())
    }

    fn collect_units(&mut self) -> Verdict {
        let server = &self.engine.server;
        let Some(tail) = &server.persistence.tail else {
            let session = server.clients.sessions.get(self.listener.key);
            let unsent = session.map_or(0, |session| session.unsent_bytes());
            let end = self.heard + (self.listener.received.len() + unsent) as u64;
            match self.gaps.last_mut().filter(|_| self.is_gap) {
                Some(gap) => *gap = end,
                None => self.gaps.push(end),
            }
            self.is_gap = true;
            return Ok(());
        };
        self.is_gap = false;
        let base = server.persistence.journal.as_ref().map_or(self.copied, |journal| journal.last().get());
        if base > self.at {
            return Err(format!("units up to {base} were given away, and {} was the last that was seen", self.at));
        }
        // Data from before a journal has begun is not promised to any client.
        let is_logged = server.persistence.journal.is_some();
        let units: Vec<Vec<u8>> = tail.units().skip((self.at - base) as usize).map(<[u8]>::to_vec).collect();
        for effects in units {
            repeat(&mut self.copy, &effects)?;
            let state = Rc::new(state_of(&mut self.copy));
            self.at += 1;
            let expired = EffectReader::new(&effects).filter(|(_, effect)| effect.is_expiry());
            let expired: BTreeSet<(u16, Vec<u8>)> =
                expired.filter_map(|(db, effect)| Some((db, effect.key()?.to_vec()))).collect();
            let keys = self.state.keys().chain(state.keys());
            let is_changed = |key: &&(u16, Vec<u8>)| self.state.get(*key) != state.get(*key) && !expired.contains(*key);
            if is_logged {
                self.changed.extend(keys.filter(is_changed).map(|key| (key.clone(), self.at)));
            }
            self.note_touched(&effects, if is_logged { self.at } else { 0 });
            self.world.reached.expired += u64::from(!expired.is_empty());
            let has_lapsed =
                |(_, effect): (u16, Effect<'_>)| matches!(effect, Effect::GrantEnd { .. }) && effect.is_expiry();
            self.world.reached.lapsed += u64::from(EffectReader::new(&effects).any(has_lapsed));
            let released = |(_, effect)| match effect {
                Effect::StreamRelease { id, .. } => Some(id.ms),
                _ => None,
            };
            let last_ms = EffectReader::new(&effects).filter_map(released).max();
            self.world.reached.released += u64::from(last_ms.is_some());
            if last_ms.is_some_and(|due_ms| due_ms > self.world.clock.now_ms() as u64) {
                return Err(format!("a message came before its time, {last_ms:?}"));
            }
            if EffectReader::new(&effects).all(|(_, effect)| effect.is_expiry()) {
                self.expiries.insert(self.at);
            }
            self.state = state;
            self.note_state();
        }
        Ok(())
    }

    /// Notes the notifications that a unit makes for the listener.
    fn note_touched(&mut self, effects: &[u8], lsn: u64) {
        let (mut keys, mut named, mut is_all) = (BTreeSet::new(), Keys::new(), false);
        for (db, effect) in EffectReader::new(effects) {
            effect.touches(db).for_each(|touch| match touch {
                Touch::Key { db, key, .. } => {
                    keys.insert(key.to_vec());
                    named.insert((db, key.to_vec()));
                }
                Touch::Database(_) => is_all = true,
            });
        }
        self.fresh.push((lsn, named));
        let gaps = self.gaps.len();
        self.touched.extend(is_all.then_some((gaps, lsn, None)));
        self.touched.extend((!keys.is_empty()).then_some((gaps, lsn, Some(keys))));
    }

    fn note_state(&mut self) {
        self.world.states.entry(self.at).or_default().push(Rc::clone(&self.state));
        self.world.last = self.at;
    }

    /// Checks that the copy has the data of the engine.
    fn compare(&mut self) -> Verdict {
        if self.engine.server.persistence.tail.is_none() {
            return Ok(());
        }
        let live = state_of(&mut self.engine);
        match live == *self.state {
            true => Ok(()),
            false => Err(format!("behind unit {}, {}", self.at, difference(&live, &self.state))),
        }
    }

    fn snapshots_made(&self) -> u64 {
        let saving = &self.engine.server.persistence.saving;
        saving.history(Purpose::Save).done + saving.history(Purpose::Rewrite).done
    }

    /// Notes the durability of the data copied last. Returns whether a snapshot has succeeded since the last call.
    fn note_snapshots(&mut self) -> bool {
        let made = self.snapshots_made();
        let before = std::mem::replace(&mut self.snapshots, made);
        let has_ended = made > before;
        if has_ended {
            self.world.reached.snapshots += made - before;
            self.world.reached.saved_without_log += u64::from(self.engine.server.persistence.journal.is_none());
        }
        // A snapshot ends when the journal after it has begun, or could not; the snapshot is on disk before that.
        if has_ended || self.engine.server.persistence.saving.begins_log() {
            self.world.kept = self.world.kept.max(self.copied);
            if let Some(states) = self.world.states.get_mut(&self.copied) {
                states.drain(..states.len() - 1);
            }
        }
        has_ended
    }

    /// Does the work of a snapshot's tasks and thread.
    fn go_on_saving(&mut self) -> Verdict {
        let failures = |life: &Life<'_>| {
            let saving = &life.engine.server.persistence.saving;
            saving.history(Purpose::Save).failures_in_a_row + saving.history(Purpose::Rewrite).failures_in_a_row
        };
        let was_ending = self.engine.server.persistence.saving.is_ending();
        let (wanted_log, failures_before) =
            (self.engine.server.persistence.wants_log(&self.engine.server.config), failures(self));
        let (before, has_log) = (self.snapshots, self.engine.server.persistence.journal.is_some());
        self.engine.save_slice();
        if self.snapshots_made() > before + u64::from(was_ending) {
            // A reload has made a snapshot of all data.
            let last = self.engine.server.persistence.last_lsn().get();
            let is_numbered = has_log || self.engine.server.persistence.journal.is_some();
            self.copied(last - u64::from(!is_numbered), has_log)?;
        } else if !was_ending && self.engine.server.persistence.saving.is_ending() {
            self.copied(self.engine.server.persistence.last_lsn().get(), has_log)?;
        }
        let is_saved = self.note_snapshots();
        let has_log = self.engine.server.persistence.journal.is_some();
        self.world.reached.logs_begun += u64::from(wanted_log && has_log);
        if failures(self) > failures_before {
            // After a successful snapshot, only its new journal can have failed.
            match is_saved && wanted_log && !has_log {
                true => self.world.reached.logs_not_begun += 1,
                false => self.world.reached.snapshots_failed += 1,
            }
        }
        self.engine.server.persistence.saving.step();
        Ok(())
    }

    /// All data has been copied into a snapshot. Without a journal it has a number of its own, and a journal that
    /// begins goes on from there.
    fn copied(&mut self, last: u64, has_log: bool) -> Verdict {
        self.copied = last;
        if !has_log {
            self.at = self.copied;
            self.copy = copy_of(self.world, &mut self.engine)?;
            self.state = Rc::new(state_of(&mut self.engine));
            // No data is promised to clients before the snapshot is complete; then all of it is durable.
            self.changed.clear();
            self.note_state();
        }
        Ok(())
    }

    /// A client's socket takes the bytes that may leave.
    fn send(&mut self, client: usize) -> Verdict {
        let (server, client) = (&mut self.engine.server, &mut self.clients[client]);
        let sent = super::super::logged::send(server, client.key);
        let reached = &mut self.world.reached;
        let is_held = server.clients.sessions.get_mut(client.key).is_some_and(|session| session.waits_for_journal());
        reached.held += u64::from(is_held);
        client.received.extend(sent);
        let is_synced = server.persistence.local_log().is_some_and(|log| log.policy() == SyncPolicy::Always);
        while let Some(len) = reply_len(&client.received) {
            let reply: Vec<u8> = client.received.drain(..len).collect();
            let Some(expected) = client.expected.pop_front() else { break };
            reached.replies += 1;
            if reply.starts_with(b"-") {
                reached.refused += u64::from(reply.starts_with(b"-MISCONF"));
                reached.reloads_failed += u64::from(expected.what == What::Reload);
                continue;
            }
            let is_synced = match expected.what {
                What::WaitAof if !reply.starts_with(b"*2\r\n:1") => continue,
                What::WaitAof => {
                    reached.synced += 1;
                    true
                }
                What::SyncPolicy => true,
                What::Reload => {
                    reached.reloads += 1;
                    true
                }
                What::Transaction { watches } => {
                    reached.undone += u64::from(watches && reply.starts_with(b"*-1"));
                    is_synced
                }
                What::Deliver => {
                    reached.delivered += u64::from(!reply.starts_with(b"*-1"));
                    is_synced
                }
                What::Acknowledge => {
                    reached.acknowledged += u64::from(reply.starts_with(b":1"));
                    is_synced
                }
                What::Delay => {
                    reached.delayed += 1;
                    is_synced
                }
                What::Function => {
                    reached.functions += 1;
                    is_synced
                }
                _ => is_synced,
            };
            if expected.lsn > 0 {
                reached.told += 1;
                let told = Told { lsn: expected.lsn, what: expected.what, is_synced };
                is_safe(server, &told)?;
                self.world.told.push(told);
            }
        }
        Ok(())
    }

    /// The listener receives the bytes that may leave.
    fn hear(&mut self) -> Verdict {
        let server = &mut self.engine.server;
        self.listener.received.extend(super::super::logged::send(server, self.listener.key));
        let is_synced = server.persistence.local_log().is_some_and(|log| log.policy() == SyncPolicy::Always);
        while let Some(len) = reply_len(&self.listener.received) {
            let message: Vec<u8> = self.listener.received.drain(..len).collect();
            self.heard += len as u64;
            let gaps = self.gaps.iter().filter(|gap| **gap < self.heard).count();
            let text = String::from_utf8_lossy(&message);
            if let Some(told) = text.strip_prefix(&format!("*3\r\n$7\r\nmessage\r\n$20\r\n{INVALIDATE}\r\n")) {
                // After the head, lengths and keys alternate.
                let keys = told.lines().skip(2).step_by(2).map(|key| key.as_bytes().to_vec()).collect();
                let keys = told.starts_with('*').then_some(keys);
                // Without a tail no units are collected, but notifications are sent all the same.
                let is_it = |(before, _, touched): &(usize, u64, _)| *before == gaps && *touched == keys;
                let Some(at) = self.touched.iter().position(is_it) else { continue };
                if let Some(left_out) = self.touched.iter().take(at).find(|(_, lsn, _)| *lsn > 0) {
                    return Err(format!("{left_out:?} was left out, and {keys:?} told"));
                }
                let lsn = self.touched.drain(..=at).next_back().map_or(0, |(_, lsn, _)| lsn);
                self.world.reached.invalidated += 1;
                let told = Told { lsn, what: What::Publish(0), is_synced };
                is_safe(&self.engine.server, &told)?;
                self.world.told.push(told);
                continue;
            }
            let number = text.trim_end().rsplit("\r\n").next().and_then(|number| number.parse::<u64>().ok());
            if let Some(lsn) = number.and_then(|number| self.published.get(&number)) {
                self.world.reached.heard += 1;
                let told = Told { lsn: *lsn, what: What::Publish(0), is_synced };
                is_safe(&self.engine.server, &told)?;
                self.world.told.push(told);
            }
        }
        Ok(())
    }

    /// The observer receives the bytes that may leave. An event is judged by its key: it shows the unit that touched
    /// the key or, if the key was only looked at, the last unit that had changed it.
    fn hear_events(&mut self) -> Verdict {
        let server = &mut self.engine.server;
        self.observer.received.extend(super::super::logged::send(server, self.observer.key));
        let is_synced = server.persistence.local_log().is_some_and(|log| log.policy() == SyncPolicy::Always);
        while let Some(len) = reply_len(&self.observer.received) {
            let message: Vec<u8> = self.observer.received.drain(..len).collect();
            self.observed += len as u64;
            while self.events.front().is_some_and(|events| events.end < self.observed) {
                self.events.pop_front();
            }
            let text = String::from_utf8_lossy(&message);
            let parts: Vec<&str> = text.split("\r\n").collect();
            let (Some(events), Some(key)) = (self.events.front(), event_key(&parts)) else {
                return Err(format!("{text:?} came of nothing"));
            };
            let unit = events.units.iter().find(|(_, keys)| keys.contains(&key)).map(|(lsn, _)| *lsn);
            let lsn = unit.or_else(|| events.changed.get(&key).copied()).unwrap_or(0);
            self.world.reached.events += 1;
            self.world.reached.events_of_reads += u64::from(unit.is_none() && lsn > 0);
            let told = Told { lsn, what: What::Event, is_synced };
            is_safe(&self.engine.server, &told)?;
            self.world.told.push(told);
        }
        Ok(())
    }

    fn log_state(&self) -> Option<LogState> {
        self.engine.server.persistence.local_log().map(|log| log.state())
    }

    fn note_log_state(&mut self) {
        let state = self.log_state();
        let reached = &mut self.world.reached;
        match (self.log_state, state) {
            (Some(_), None) => {
                reached.logs_closed += 1;
                self.world.kept = self.world.kept.max(self.at);
            }
            (Some(LogState::Good), Some(LogState::Full)) => reached.full += 1,
            (Some(LogState::Full), Some(LogState::Good)) => reached.healed += 1,
            (Some(LogState::Good | LogState::Full), Some(LogState::Poisoned)) => reached.failed += 1,
            _ => {}
        }
        self.log_state = state;
    }

    /// Reconnects clients that the server has disconnected.
    fn replace_disconnected(&mut self) {
        let engine = &mut self.engine;
        let mut is_gone = |key| engine.server.clients.sessions.get_mut(key).is_none_or(|session| session.is_killed());
        let gone: Vec<usize> = (0..CLIENTS).filter(|at| is_gone(self.clients[*at].key)).collect();
        let (is_listener_gone, is_observer_gone) = (is_gone(self.listener.key), is_gone(self.observer.key));
        for at in gone {
            self.engine.disconnect(self.clients[at].key);
            self.clients[at] = Client::new(&mut self.engine);
            self.world.reached.closed_sessions += 1;
        }
        if is_listener_gone {
            self.engine.disconnect(self.listener.key);
            self.listener = Client::new(&mut self.engine);
            self.listen();
        }
        if is_observer_gone {
            self.engine.disconnect(self.observer.key);
            self.observer = Client::new(&mut self.engine);
            self.listen_to_events();
        }
    }

    /// Lets other programs use up the disk, or give space back.
    fn fill_or_clear(&mut self) {
        let spare = self.world.rng.below(12 * 1024);
        self.world.capacity = match self.world.capacity {
            None => Some(self.world.disk.used_bytes() + spare),
            Some(_) => None,
        };
        self.world.disk.set_capacity(self.world.capacity);
    }
}

/// The database and the key of a named event, from the lines of its message.
fn event_key(lines: &[&str]) -> Option<(u16, Vec<u8>)> {
    let (channel, key) = (lines.get(6)?, lines.get(8)?);
    let (db, _) = channel.strip_prefix("__keyevent@")?.split_once("__:")?;
    Some((db.parse().ok()?, key.as_bytes().to_vec()))
}

/// An engine with the same data.
fn copy_of(world: &mut World, engine: &mut Engine) -> Verdict<Engine> {
    let mut copy = world.engine(Config::default());
    let (ks, scripts) = (&mut engine.ks, &engine.server.programs.scripts);
    let mut stream = SnapshotStream::begin(ks);
    let mut effects = EffectWriter::default();
    while !stream.copy_slice(ks, scripts, usize::MAX, &mut effects) {}
    repeat(&mut copy, effects.as_bytes())?;
    Ok(copy)
}

/// Checks that the journal has the data that leaves now, as far as `appendfsync` asks: that can be seen without a
/// crash.
fn is_safe(server: &ServerState, told: &Told) -> Verdict {
    let Some(log) = server.persistence.local_log() else { return Ok(()) };
    let safe = if log.policy() == SyncPolicy::Always { log.durable() } else { log.written() };
    if told.lsn > safe.get() {
        return Err(format!("{told:?} was shown, and the log had got to {safe}"));
    }
    Ok(())
}
