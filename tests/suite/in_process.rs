//! An engine in this process, without sockets, with a clock that is moved by hand: for tests of state that no client
//! can see. Their access to the engine goes through this file.

mod state;

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::thread;

use tidegate::base::clock::Clock;
use tidegate::base::rng::Rng;
use tidegate::command;
use tidegate::config::{AllowFrom, Config};
use tidegate::engine::Engine;
use tidegate::keyspace::effect::{Effect, EffectReader, Recording, Shown};
use tidegate::persist::tail::Tail;
use tidegate::programs::scripts::Scripts;
use tidegate::resp::reply::{Form, Reply};
use tidegate::resp::request::Decoder;
use tidegate::session::Peer;
use tidegate::spec::session_key::SessionKey;

pub(crate) use state::{State, Told};

use crate::differential::generate::Dice;
use crate::differential::script::Args;
use crate::harness;

/// The clock's first reading, Unix ms.
pub(crate) const START_MS: i64 = 1_800_000_000_000;

/// Runs a list of calls, each given as its word count and its words, then succeeds or fails.
const SCRIPT: &str = "local at = 2 \
    while at <= #ARGV do \
        local words = tonumber(ARGV[at]) \
        redis.pcall(unpack(ARGV, at + 1, at + words)) \
        at = at + words + 1 \
    end \
    if ARGV[1] == 'fail' then error('it fails') end \
    if ARGV[1] == 'command' then redis.call('NOSUCH') end \
    return 'done'";

/// How a script of several calls ends.
pub(crate) const ENDS: [&str; 3] = ["succeed", "fail", "command"];

/// A call of a script that makes these calls, then ends in one of the [`ENDS`].
pub(crate) fn script(end: &str, calls: &[Args]) -> Args {
    let counted =
        calls.iter().flat_map(|call| std::iter::once(call.len().to_string().into_bytes()).chain(call.clone()));
    words(&["EVAL", SCRIPT, "0", end]).into_iter().chain(counted).collect()
}

/// This call, sometimes wrapped to run once, under one of a few ids.
pub(crate) fn perhaps_once(call: Args, dice: &mut Dice) -> Args {
    if !dice.once_in(30) || call.first().is_some_and(|name| AS_THEY_ARE.contains(&name.as_slice())) {
        return call;
    }
    let id = format!("once:{}", dice.below(8));
    let ttl_ms = *dice.pick(&["1", "30", "1000", "100000"]);
    let mut once = words(&["ONCE", &id, "PX", ttl_ms]);
    if dice.once_in(2) {
        once.push(b"KEEPERR".to_vec());
    }
    [once, call].concat()
}

/// Calls that must run as given, since others depend on them.
const AS_THEY_ARE: [&[u8]; 4] = [b"CONFIG", b"MULTI", b"EXEC", b"DISCARD"];

pub(crate) fn words(words: &[&str]) -> Args {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// An engine on loan. The scripts of a finished engine pass to the next one on this thread, since the Lua state takes
/// longer to make than a short history takes. They are as new, except for traces that scripts leave in a state, of
/// which there are none.
pub(crate) struct Lent(Option<Engine>);

thread_local! {
    static SPARE: RefCell<Vec<Scripts>> = const { RefCell::new(Vec::new()) };
}

impl Lent {
    fn new(clock: Clock) -> Lent {
        let (config, rng) = (Config::default(), Rng::seeded(7));
        let engine = match SPARE.with_borrow_mut(Vec::pop) {
            Some(scripts) => Engine::with_scripts(config, command::table(), clock, rng, scripts),
            None => Engine::new(config, command::table(), clock, rng).expect("memory for Lua"),
        };
        Lent(Some(engine))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // After a panic the state of the engine is unknown.
        if let Some(engine) = self.0.take().filter(|_| !thread::panicking()) {
            SPARE.with_borrow_mut(|spare| spare.push(engine.into_scripts()));
        }
    }
}

impl Deref for Lent {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Engine {
        self.0.as_mut().expect("it is there until it is dropped")
    }
}

/// An engine and its clients.
pub(crate) struct Bench {
    pub engine: Lent,
    pub clock: Clock,
    clients: Vec<SessionKey>,
}

/// The time at which changes are repeated, Unix ms. Nothing may expire on the second engine by itself: each removal is
/// in the stream.
const LONG_AFTER_MS: i64 = START_MS + (1 << 40);

/// The changes of a unit, as encoded effects.
pub(crate) struct Unit(Vec<u8>);

impl Unit {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn effects(&self) -> impl Iterator<Item = (u16, Effect<'_>)> {
        EffectReader::new(&self.0)
    }
}

impl Bench {
    /// An empty engine with this many clients, which are named by their numbers.
    pub(crate) fn new(clients: usize) -> Bench {
        Bench::by_clock(clients, Clock::manual(START_MS))
    }

    fn by_clock(clients: usize, clock: Clock) -> Bench {
        let mut engine = Lent::new(clock.clone());
        let clients = (0..clients).map(|_| engine.server.open_session(peer())).collect();
        Bench { engine, clock, clients }
    }

    /// Runs a client's call; returns its reply, which is empty while the client waits.
    pub(crate) fn call(&mut self, client: usize, args: &Args) -> Vec<u8> {
        self.feed(client, &harness::encode(args))
    }

    /// Like [`Self::call`], for a pipeline.
    pub(crate) fn feed(&mut self, client: usize, input: &[u8]) -> Vec<u8> {
        let mut reply = Reply::new(Form::Resp2);
        self.engine.feed(self.clients[client], &mut Decoder::new(), input, &mut reply);
        reply.as_bytes().to_vec()
    }

    /// Output that a client received while waiting, since the last look.
    pub(crate) fn heard(&mut self, client: usize) -> Vec<u8> {
        let session = self.engine.server.clients.sessions.get_mut(self.clients[client]);
        session.map_or_else(Vec::new, |session| session.take_unsent())
    }

    /// Whether a client cannot call now, because it waits for a key or was closed.
    pub(crate) fn is_suspended(&mut self, client: usize) -> bool {
        self.engine.server.clients.sessions.get_mut(self.clients[client]).is_none_or(|session| session.is_suspended())
    }

    /// Replaces this client by a new one.
    pub(crate) fn reconnect(&mut self, client: usize) {
        self.engine.disconnect(self.clients[client]);
        self.clients[client] = self.engine.server.open_session(peer());
    }

    /// Lets time pass; calls whose waiting time is over time out.
    pub(crate) fn pass(&mut self, ms: i64) {
        self.clock.advance_ms(ms);
        self.engine.time_out_waits();
    }

    /// Sets the wall clock, forward or back; no time passes. Calls whose waiting time is over time out.
    pub(crate) fn set_clock(&mut self, by_ms: i64) {
        self.clock.set_wall_by_ms(by_ms);
        self.engine.time_out_waits();
    }

    /// Sets the time as of which the engine's keys are visible.
    pub(crate) fn view_at(&mut self, now_ms: i64) {
        self.engine.ks.begin_unit(now_ms, Recording::Nothing);
    }

    /// Removes all expired data.
    pub(crate) fn reclaim(&mut self) {
        while self.engine.reclaim_expired() {}
    }

    /// From here on, units can be [taken](Self::take_units).
    pub(crate) fn keep_units(&mut self) {
        self.engine.server.set_tail(Some(Tail::default()));
    }

    /// The units since the last call.
    pub(crate) fn take_units(&mut self) -> Vec<Unit> {
        let tail = self.engine.server.persistence.tail.replace(Tail::default()).expect("they are kept");
        tail.units().map(|effects| Unit(effects.to_vec())).collect()
    }

    /// Repeats another engine's changes, and must record the same effects, so that others can follow this one. Fails
    /// with the effect that does not fit or comes out differently.
    pub(crate) fn repeat(&mut self, unit: &Unit) -> Result<(), String> {
        self.engine.ks.begin_unit(LONG_AFTER_MS, Recording::Full);
        for (db, effect) in unit.effects() {
            self.engine.apply(db, &effect).map_err(|misfit| format!("{misfit}: {}", effect_text((db, effect))))?;
        }
        let recorded = self.engine.ks.effects().iter().map(Some).chain([None]);
        match unit.effects().map(Some).chain([None]).zip(recorded).find(|(told, recorded)| told != recorded) {
            Some((told, recorded)) => {
                let [told, recorded] = [told, recorded].map(|effect| effect.map_or("nothing".to_owned(), effect_text));
                Err(format!("what came as:\n    {told}\nis recorded as:\n    {recorded}"))
            }
            None => Ok(()),
        }
    }

    /// Ends the engine as SIGKILL would, and starts another from the units of the journal with their times. All clients
    /// are new.
    pub(crate) fn restart(&mut self, log: &[(i64, Unit)]) -> Result<(), String> {
        let mut next = Bench::by_clock(self.clients.len(), self.clock.clone());
        for (at_ms, unit) in log {
            next.engine.ks.begin_unit(*at_ms, Recording::Nothing);
            for (db, effect) in unit.effects() {
                next.engine.apply(db, &effect).map_err(|misfit| format!("{misfit}: {}", effect_text((db, effect))))?;
            }
        }
        next.view_at(self.clock.now_ms());
        next.keep_units();
        *self = next;
        Ok(())
    }

    /// Applies a snapshot of another engine. Fails with the effect that does not fit.
    pub(crate) fn take_in(&mut self, written: &[u8]) -> Result<(), String> {
        self.engine.ks.begin_unit(LONG_AFTER_MS, Recording::Nothing);
        let mut effects = EffectReader::new(written);
        for (db, effect) in &mut effects {
            self.engine.apply(db, &effect).map_err(|misfit| format!("{misfit}: {}", effect_text((db, effect))))?;
        }
        if effects.is_empty() { Ok(()) } else { Err("what is written can't be read".to_owned()) }
    }

    /// The digest of all data, as DEBUG DIGEST of a server gives it.
    pub(crate) fn digest(&mut self) -> String {
        self.engine.server.config.enable_debug_command = AllowFrom::Yes;
        let reply = self.call(0, &words(&["DEBUG", "DIGEST"]));
        String::from_utf8(reply).expect("text").trim_start_matches('+').trim_end().to_owned()
    }

    /// All keys of all databases, without data that had expired at the last look.
    pub(crate) fn contents(&self, told: Told) -> State<'_> {
        State::of(&self.engine.ks, told)
    }

    /// Like [`Self::contents`], as lines of text.
    pub(crate) fn state(&self, told: Told) -> String {
        self.contents(told).to_string()
    }

    /// The scripts and libraries that clients have sent.
    pub(crate) fn programs(&self) -> Vec<String> {
        let scripts = &self.engine.server.programs.scripts;
        let texts = scripts.store().iter().map(|(_, script)| (format!("{:?}", script.origin), script));
        let mut all: Vec<String> = texts
            .filter(|(origin, _)| origin != "Bundled")
            .map(|(origin, script)| format!("script {origin} {}", script.body.escape_ascii()))
            .chain(scripts.libraries().iter().map(|library| {
                let functions: Vec<_> = library.functions.iter().map(|f| (&f.name, f.flags, &f.description)).collect();
                format!("library {} {functions:?} {}", library.name, library.code.escape_ascii())
            }))
            .collect();
        all.sort();
        all
    }
}

fn peer() -> Peer {
    Peer { address: "test:0".to_owned(), local_address: "test:1".to_owned(), fd: -1, is_local: true, ..Peer::default() }
}

/// An effect and its database, for people.
pub(crate) fn effect_text((db, effect): (u16, Effect<'_>)) -> String {
    let (name, fields) = effect.describe();
    fields.into_iter().fold(format!("db {db} {name}"), |text, (field, shown)| match shown {
        Shown::Bytes(bytes) => format!("{text} {field}={}", bytes.escape_ascii()),
        Shown::Integer(number) => format!("{text} {field}={number}"),
        other => format!("{text} {field}={other:?}"),
    })
}
