//! MIGRATE: moves keys to another server with RESTORE, and deletes each here once the target has it.
//!
//! As in Redis, the server does nothing else in that time, so an observer always sees a key in one of the two places.
//! Each step (resolve and connect, send a piece, read a reply) must finish within the timeout of the call, and the
//! whole call within [`MIGRATE_MAX`]. Every call opens a connection of its own. One MIGRATE with many KEYS needs only
//! one, and holds one value in memory at a time.
//!
//! A key that the target has acknowledged is deleted and stays deleted, because it must not be in both places. So an
//! error can follow changes, when the target accepted one key and not the next, and a call that may be rolled back can
//! only copy.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::encode::encode_borrowed;
use redis_protocol::resp2::types::{BorrowedFrame, OwnedFrame};

use crate::base::limits::SCRATCH_KEEP_BYTES;
use crate::base::num;
use crate::command::limits::{MIGRATE_MAX, MIGRATE_PIECE_BYTES, MIGRATE_REPLY_MAX_BYTES};
use crate::engine::{Command, Ctx, Done, Run};
use crate::keyspace::any_value::ValueRef;
use crate::rdb;
use crate::resp::request::Argv;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Begin, Find, Flags, Group, KeyArg, KeySpec, Secret};

const NOT_CONNECTED: Error = Error::text("IOERR error or timeout connecting to the client");
const NOT_WRITTEN: Error = Error::text("IOERR error or timeout writing to target instance");
const NOT_READ: Error = Error::text("IOERR error or timeout reading to target instance");

/// The error in a script or transaction that may be rolled back: the target's data can't be.
const NOT_UNDOABLE: Error =
    Error::text("ERR MIGRATE without COPY is not allowed in a script or transaction that may be rolled back");

/// The target would get changes that are not in the journal yet, and a crash would undo them only here.
const NOT_LOGGED: Error =
    Error::text("ERR MIGRATE is not allowed after changes of its own script or transaction that the journal lacks");

/// The default timeout.
const DEFAULT_TIMEOUT_MS: u64 = 1_000;

/// Longer than anyone waits, and short enough to be added to any time.
const LONGEST_TIMEOUT_MS: u64 = u32::MAX as u64;

/// The options of a call.
struct Options<'a> {
    copy: bool,
    replace: bool,
    user: Option<&'a [u8]>,
    password: Option<&'a [u8]>,
    /// The keys of the option KEYS.
    keys: Option<Argv<'a>>,
}

impl<'a> Options<'a> {
    fn parse(args: &mut Args<'a>, key: &[u8]) -> Result<Options<'a>, Error> {
        let mut options = Options { copy: false, replace: false, user: None, password: None, keys: None };
        while !args.is_empty() {
            if args.flag("copy") {
                options.copy = true;
            } else if args.flag("replace") {
                options.replace = true;
            } else if args.option("auth", 1) {
                options.password = Some(args.bytes()?);
            } else if args.option("auth2", 2) {
                (options.user, options.password) = (Some(args.bytes()?), Some(args.bytes()?));
            } else if args.flag("keys") {
                if !key.is_empty() {
                    const BOTH: &str =
                        "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string";
                    return Err(Error::text(BOTH));
                }
                options.keys = Some(args.rest());
                break;
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(options)
    }
}

fn migrate(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (host, port, key) = (args.bytes()?, args.bytes()?, args.take(1)?);
    let (to_db, timeout) = (args.bytes()?, args.bytes()?);
    let options = Options::parse(&mut args, &key[0])?;
    if ctx.ks.may_roll_back() && !options.copy {
        return Err(NOT_UNDOABLE);
    }
    if ctx.server.persistence.journal.is_some() && ctx.ks.has_changed() {
        return Err(NOT_LOGGED);
    }
    let timeout_ms = num::parse_i64(timeout).ok_or(Error::NotInteger)?;
    let to_db = num::parse_i64(to_db).ok_or(Error::NotInteger)?;
    let timeout_ms = u64::try_from(timeout_ms).ok().filter(|ms| *ms > 0).unwrap_or(DEFAULT_TIMEOUT_MS);
    let timeout_ms = timeout_ms.min(LONGEST_TIMEOUT_MS);
    let db = ctx.session.db;
    let named = options.keys.unwrap_or(key);
    let goes = |key: &&[u8]| {
        let slot = ctx.ks.look_up(db, key);
        slot.is_some_and(|slot| !options.copy || !is_held_only(ctx.ks.value(db, slot)))
    };
    let keys: Vec<&[u8]> = named.iter().filter(goes).collect();
    if keys.is_empty() {
        ctx.reply.status("NOKEY");
        return Ok(());
    }
    ctx.server.send_unsent();
    // The target must not receive changes that could still be lost here.
    ctx.server.ensure_units_safe(ctx.ks)?;
    let mut target = Target::connect(host, port, Duration::from_millis(timeout_ms), MIGRATE_MAX)?;
    let mut request = Vec::new();
    put_preamble(&mut request, &options, to_db)?;
    let mut sent: Vec<&[u8]> = Vec::new();
    let mut failure = None;
    for key in &keys {
        if !put_restore(ctx, key, &options, &mut request)? {
            continue;
        }
        if target.send(&request).is_err() {
            failure = Some(NOT_WRITTEN);
            break;
        }
        sent.push(key);
        request.clear();
        request.shrink_to(SCRATCH_KEEP_BYTES);
    }
    drop(request);
    let mut moved = 0;
    // Keys that have arrived must be deleted here even if the rest can't be sent.
    let deleted = match failure {
        Some(_) if sent.is_empty() => Ok(()),
        _ => delete_arrived(ctx, &mut target, &sent, &options, &mut moved),
    };
    match failure.map_or(deleted, Err) {
        Err(error) if moved > 0 => {
            ctx.fail_half_way(&error);
            Ok(())
        }
        Err(error) => Err(error),
        Ok(()) => {
            ctx.reply.ok();
            Ok(())
        }
    }
}

/// Whether a value consists of holders only, so that a copy without them would be empty.
fn is_held_only(value: ValueRef<'_>) -> bool {
    matches!(value, ValueRef::Grants(grants) if grants.without_holders().is_none())
}

/// Writes AUTH and SELECT.
fn put_preamble(request: &mut Vec<u8>, options: &Options<'_>, to_db: i64) -> Done {
    match (options.user, options.password) {
        (Some(user), Some(password)) => put_command(request, &[b"AUTH", user, password])?,
        (_, Some(password)) => put_command(request, &[b"AUTH", password])?,
        (_, None) => {}
    }
    put_command(request, &[b"SELECT", itoa::Buffer::new().format(to_db).as_bytes()])
}

/// Writes the RESTORE of a key; false if there is nothing to send.
fn put_restore(ctx: &mut Ctx<'_>, key: &[u8], options: &Options<'_>, request: &mut Vec<u8>) -> Result<bool, Error> {
    let db = ctx.session.db;
    let Some(slot) = ctx.ks.find(db, key) else { return Ok(false) };
    let entry = ctx.ks.entry(db, slot);
    let ttl_ms = entry.expires_at_ms().map_or(0, |at_ms| at_ms.saturating_sub(ctx.ks.now_ms()).max(1));
    let mut digits = itoa::Buffer::new();
    let payload = match entry.value() {
        // As with COPY, a copy has no holders.
        ValueRef::Grants(grants) if options.copy => match grants.without_holders() {
            Some(rest) => rdb::dump(ValueRef::Grants(&rest)),
            None => return Ok(false),
        },
        value => rdb::dump(value),
    };
    let words: [&[u8]; 5] = [b"RESTORE", key, digits.format(ttl_ms).as_bytes(), &payload, b"REPLACE"];
    put_command(request, if options.replace { &words } else { &words[..4] })?;
    Ok(true)
}

fn put_command(request: &mut Vec<u8>, words: &[&[u8]]) -> Done {
    let words: Vec<BorrowedFrame<'_>> = words.iter().map(|word| BorrowedFrame::BulkString(word)).collect();
    let frame = BorrowedFrame::Array(&words);
    let start = request.len();
    request.resize(start + frame.encode_len(false), 0);
    encode_borrowed(&mut request[start..], &frame, false).map_err(|_| NOT_WRITTEN)?;
    Ok(())
}

/// Reads the replies and deletes each key that has arrived. Counts the deleted ones in `moved`.
fn delete_arrived(
    ctx: &mut Ctx<'_>,
    target: &mut Target,
    keys: &[&[u8]],
    options: &Options<'_>,
    moved: &mut usize,
) -> Done {
    let mut refusal = None;
    if options.password.is_some() {
        refusal = target.reply()?;
    }
    let not_selected = target.reply()?;
    // Without the right user or database no key counts as moved, whatever the other replies say.
    refusal = refusal.or(not_selected);
    let stays = refusal.is_some();
    for key in keys {
        // An error that the target has reported is more useful than the broken connection after it.
        let reply = match target.reply() {
            Err(_) if refusal.is_some() => break,
            reply => reply?,
        };
        match reply {
            None if !stays && !options.copy => {
                if let Some(slot) = ctx.ks.find(ctx.session.db, key) {
                    ctx.ks.remove(ctx.session.db, slot);
                    *moved += 1;
                }
            }
            None => {}
            Some(error) => refusal = refusal.or(Some(error)),
        }
    }
    match refusal {
        Some(error) => Err(Error::lossy(&[b"ERR Target instance replied with error: ", &error[..]].concat())),
        None => Ok(()),
    }
}

/// A connection to the target server.
struct Target {
    stream: TcpStream,
    /// The timeout of a step.
    timeout: Duration,
    /// The deadline of the whole call.
    deadline: Instant,
    /// Received bytes from `read_to` on: incomplete replies, and replies not read yet.
    received: Vec<u8>,
    read_to: usize,
}

impl Target {
    fn connect(host: &[u8], port: &[u8], timeout: Duration, in_all: Duration) -> Result<Target, Error> {
        let host = std::str::from_utf8(host).map_err(|_| NOT_CONNECTED)?;
        // An invalid port becomes one on which nothing listens.
        let port = num::parse_i64(port).and_then(|port| u16::try_from(port).ok()).unwrap_or(0);
        let begun = Instant::now();
        let connected_by = begun + timeout.min(in_all);
        let mut failure = NOT_CONNECTED;
        let stream = addresses(host, port, connected_by).into_iter().find_map(|address| {
            let left = connected_by.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let connected = TcpStream::connect_timeout(&address, left);
            // Redis notices a refused connection only when it writes, and reports that error.
            let is_late = connected.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut);
            failure = if is_late { NOT_CONNECTED } else { NOT_WRITTEN };
            connected.ok()
        });
        let stream = stream.ok_or(failure)?;
        Ok(Target { stream, timeout, deadline: begun + in_all, received: Vec::new(), read_to: 0 })
    }

    /// The deadline of a step that begins now.
    fn step_deadline(&self) -> Instant {
        (Instant::now() + self.timeout).min(self.deadline)
    }

    /// Sends the request; each piece must leave within the timeout.
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        for mut piece in request.chunks(MIGRATE_PIECE_BYTES) {
            let deadline = self.step_deadline();
            while !piece.is_empty() {
                // A remaining time of zero is an error of the call, as it should be.
                self.stream.set_write_timeout(Some(deadline.saturating_duration_since(Instant::now())))?;
                match self.stream.write(piece) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Ok(0) => return Err(ErrorKind::WriteZero.into()),
                    written => piece = &piece[written?..],
                }
            }
        }
        Ok(())
    }

    /// Reads the next reply; `Some` if it is an error.
    fn reply(&mut self) -> Result<Option<Vec<u8>>, Error> {
        match self.frame().map_err(|_| NOT_READ)? {
            OwnedFrame::SimpleString(_) => Ok(None),
            OwnedFrame::Error(text) => Ok(Some(text.into_bytes())),
            // Any other reply does not confirm that the key has arrived.
            _ => Err(NOT_READ),
        }
    }

    /// Reads the next frame. All of it must arrive within the timeout, so a target that sends byte after byte holds
    /// nothing up.
    fn frame(&mut self) -> io::Result<OwnedFrame> {
        let deadline = self.step_deadline();
        loop {
            let unread = self.received.get(self.read_to..).unwrap_or_default();
            match decode(unread).map_err(io::Error::other)? {
                Some((frame, len)) => {
                    self.read_to += len;
                    return Ok(frame);
                }
                None if unread.len() > MIGRATE_REPLY_MAX_BYTES => return Err(ErrorKind::InvalidData.into()),
                None => self.receive(deadline)?,
            }
        }
    }

    /// Receives more bytes.
    fn receive(&mut self, deadline: Instant) -> io::Result<()> {
        self.received.drain(..self.read_to);
        self.read_to = 0;
        let mut chunk = [0; 4096];
        loop {
            // A remaining time of zero is an error of the call, as it should be.
            self.stream.set_read_timeout(Some(deadline.saturating_duration_since(Instant::now())))?;
            match self.stream.read(&mut chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                read => {
                    self.received.extend_from_slice(&chunk[..read?]);
                    return Ok(());
                }
            }
        }
    }
}

/// Returns the addresses of a host that are known in time. A name server may be slow, so the lookup runs on a thread of
/// its own.
fn addresses(host: &str, port: u16, until: Instant) -> Vec<SocketAddr> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return vec![SocketAddr::new(address, port)];
    }
    let (name, (sender, receiver)) = (host.to_owned(), mpsc::channel());
    let look_up = move || {
        let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect).unwrap_or_default();
        // The caller may have given up.
        _ = sender.send(found);
    };
    let looking = thread::Builder::new().name("migrate-host".to_owned()).spawn(look_up);
    looking
        .ok()
        .and_then(|_| receiver.recv_timeout(until.saturating_duration_since(Instant::now())).ok())
        .unwrap_or_default()
}

/// Finds the key of MIGRATE, or the keys after KEYS if that key is empty.
fn find_keys(argv: Argv<'_>) -> Option<Vec<KeyArg>> {
    const KEY: usize = 3;
    let take = |index| KeyArg { index, access: Access::Take };
    let mut at = 6;
    // A word at the end is not an option.
    while let Some(word) = argv.get(at).filter(|_| at + 1 < argv.len()) {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if is("keys") {
            let has_room = argv.get(KEY).is_some_and(<[u8]>::is_empty);
            return has_room.then(|| (at + 1..argv.len()).map(take).collect());
        }
        at += match word {
            _ if is("auth") => 2,
            _ if is("auth2") => 3,
            _ => 1,
        };
    }
    Some(vec![take(KEY)])
}

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "migrate",
    find_keys: Some(find_keys),
    arity: -6,
    secrets: &[Secret::After { word: "auth", first: 6, count: 1 }, Secret::After { word: "auth2", first: 6, count: 2 }],
    flags: Flags::WRITE.union(Flags::MOVABLEKEYS),
    keys: &[
        KeySpec::one(3, Access::Take),
        KeySpec {
            begin: Begin::Keyword("KEYS", -2),
            find: Find::Range { last: -1, step: 1, limit: 0 },
            access: Access::TakeSome,
        },
    ],
    group: Group::Generic,
    categories: &["@dangerous"],
    since: "2.6.0",
    complexity: "O(N) for values of N bytes, here, there, and on the way",
    summary: "Moves keys to another server.",
    syntax: "host port:integer <key | \"\":empty-string>:key-selector destination-db:integer timeout:integer [COPY] \
        [REPLACE] \
             [(AUTH password):auth | AUTH2 (username password):auth2]:authentication [KEYS key...]:keys",
    tips: &["nondeterministic_output"],
    run: Run::Now(migrate),
    ..Command::EMPTY
}];

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A target that reads slowly, but always within the timeout of a step, does not hold the server up forever.
    #[test]
    fn the_whole_transfer_is_bounded() {
        let drip = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = drip.local_addr().expect("its address").port().to_string();
        let reader = thread::spawn(move || {
            let (mut stream, _) = drip.accept().expect("a connection");
            let mut piece = vec![0; MIGRATE_PIECE_BYTES];
            while stream.read(&mut piece).is_ok_and(|read| read > 0) {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let (step, in_all) = (Duration::from_secs(20), Duration::from_millis(300));
        let mut target = Target::connect(b"127.0.0.1", port.as_bytes(), step, in_all).expect("it listens");
        // At that pace the transfer takes 40 s, longer than any step or the test may take.
        let sent = target.send(&vec![0; 2_000 * MIGRATE_PIECE_BYTES]);
        assert!(sent.is_err() && Instant::now() >= target.deadline);
        assert!(target.reply().is_err());
        drop(target);
        reader.join().expect("it reads to the end");
    }
}
