//! Moves all data from one running Tidegate to another: keys, locks, gates, stocks, delayed messages, policies, scripts
//! and libraries, and the fencing tokens, which never go back.
//!
//! ```text
//! old    FEED SNAPSHOT, FEED PART ...   FEED READ ...          HANDOVER GIVE   FEED READ
//! new    HANDOVER RECEIVE, LOAD ...     LOADED, APPLY ...                      APPLY        END
//! ```
//!
//! The new server keeps how far it is as part of its data, so a move that was interrupted goes on (RESUME) with exactly
//! the next change. GIVE is the last change of the old server: once it was applied, nothing can be missing or come
//! later. Between GIVE and END, for some milliseconds, neither server takes changes of clients.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis_protocol::resp2::types::{BytesFrame, Resp2Frame};

use super::error::ImportError;
use super::report::{Options, Progress};
use crate::base::limits::{IMPORT_PROGRESS_EVERY, IMPORT_TIMEOUT};
use crate::base::lsn::Lsn;
use crate::base::node_address::NodeAddress;
use crate::client::{Address, ClientError, Connection, REDIS_AUTH, TIDEGATE_AUTH};
use crate::feed::{Block, Feed, FeedError};
use crate::import::limits::{
    HANDOVER_NEAR_BYTES, HANDOVER_PIECE_BYTES, HANDOVER_REFILLS_MAX, IMPORT_POLL, IMPORT_RETRY,
};
use crate::persist::tail::count_units;

/// The port of an address that names none.
const REDIS_PORT: u16 = 6_379;

/// How a move has ended.
#[derive(Clone, Copy, Debug)]
pub enum Moved {
    /// It was stopped, and can go on. The last change that the new server has.
    Stopped(Lsn),
    /// The data is the new server's, up to this change of the old one.
    Done {
        /// The last change of the old server.
        last: Lsn,
        /// How long neither server took changes.
        pause: Duration,
    },
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moved::Stopped(last) => write!(
                f,
                "stopped: the new server has everything up to change {last}, and takes no clients yet. To go on, run \
                 the same command again; to end the move, add --cut-over"
            ),
            Moved::Done { last, pause } => {
                write!(f, "moved: everything up to change {last}; neither server took changes for {pause:.0?}")
            }
        }
    }
}

/// Whether the server at `from` is a Tidegate.
pub(super) fn is_tidegate(from: Address<'_>) -> Result<bool, ImportError> {
    match Feed::open(from, REDIS_AUTH)?.state() {
        Ok(_) => Ok(true),
        Err(FeedError::Client(ClientError::Refused(_, text))) if text.contains("unknown command") => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Moves the data of the server at `from` to the one at `into` until `stop` is set or the cut-over is done. `print`
/// receives reports.
pub(super) fn follow(
    from: Address<'_>,
    into: Address<'_>,
    options: Options<'_>,
    stop: &AtomicBool,
    print: &mut dyn FnMut(&str),
) -> Result<Moved, ImportError> {
    if options.skip_unknown {
        return Err(ImportError::NothingUnknown);
    }
    let reached_at = options.cut_over.map(|named| reached_at(named, into.url)).transpose()?;
    let (replaces, progress) = (options.replace, Progress::new(print, None));
    let mut handover =
        Handover { from, into, replaces, reached_at, stop, progress, given_at: None, has_failed: false, refills: 0 };
    let outcome = handover.run();
    let is_open = matches!(&outcome, Err(error) if !matches!(error, ImportError::CalledOff));
    if is_open && handover.given_at.is_some() {
        let hint = "the old server refuses clients by now: run the same command again to end the move. Or call it off: \
                    send HANDOVER END to the old server, and no client to the new one";
        handover.progress.say(hint);
    }
    outcome
}

/// Returns where clients reach the new server, for those who still ask the old one.
fn reached_at(named: &str, into: &str) -> Result<String, ImportError> {
    let of_url = || {
        let url = url::Url::parse(into).ok()?;
        Some(format!("{}:{}", url.host()?, url.port().unwrap_or(REDIS_PORT)))
    };
    let address = if named.is_empty() { of_url() } else { Some(named.to_owned()) };
    address.filter(|address| NodeAddress::is_host_and_port(address)).ok_or(ImportError::NoAddress)
}

struct Handover<'h> {
    from: Address<'h>,
    into: Address<'h>,
    /// Data of the new server's own may be deleted.
    replaces: bool,
    /// The cut-over is wanted, and this is where clients then reach the new server.
    reached_at: Option<String>,
    stop: &'h AtomicBool,
    progress: Progress<'h>,
    /// When this move has made the old server give its data away.
    given_at: Option<Instant>,
    /// The last attempt to go on has failed, and that was said.
    has_failed: bool,
    /// How often in a row the new server was filled again: the old one no longer had the changes that come next.
    refills: u32,
}

impl Handover<'_> {
    /// Goes on across restarts of both servers.
    fn run(&mut self) -> Result<Moved, ImportError> {
        loop {
            match self.go_on() {
                Err(ImportError::Feed(error @ (FeedError::Gone { .. } | FeedError::Ahead { .. })))
                    if self.refills < HANDOVER_REFILLS_MAX =>
                {
                    self.refills += 1;
                    self.progress.say(&format!("{error}: beginning again"));
                    std::thread::sleep(IMPORT_RETRY * (1 << self.refills));
                }
                Err(error) if error.may_pass() && !self.is_stopped() => {
                    if !std::mem::replace(&mut self.has_failed, true) {
                        self.progress.say(&format!("{error}; trying again"));
                    }
                    std::thread::sleep(IMPORT_RETRY);
                }
                outcome => return outcome,
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Goes on where the new server is, until a connection fails or the move ends.
    fn go_on(&mut self) -> Result<Moved, ImportError> {
        let mut old = Feed::open(self.from, REDIS_AUTH)?;
        let mut new = Receiver { server: leader_at(self.into, TIDEGATE_AUTH)?, bulk_max_bytes: 0 };
        let history = old.state()?.history;
        let (there, here) = (State::of(old.server())?, State::of(&mut new.server)?);
        if here.is("own") && here.text("history") == history && there.is("given") {
            return Ok(Moved::Done { last: here.last(), pause: Duration::ZERO });
        }
        if here.is("own") && there.is("given") {
            return Err(ImportError::Elsewhere { to: there.text("to").to_owned() });
        }
        if here.is("receiving") && here.text("history") != history && !self.replaces {
            let from = here.text("from").to_owned();
            return Err(ImportError::OtherSource { peer: new.server.peer().to_owned(), from });
        }
        if here.number("databases") < there.number("databases") {
            return Err(ImportError::FewerDatabases { wanted: there.number("databases") });
        }
        new.bulk_max_bytes = here.number("bulk");
        let goes_on = here.is("receiving") && here.text("history") == history && here.text("complete") == "yes";
        let last = if goes_on && self.refills == 0 { new.resume()? } else { self.load(&mut old, &mut new, &history)? };
        self.has_failed = false;
        self.progress.say(&format!("following from change {last} on"));
        self.follow_on(&mut old, &mut new, last)
    }

    fn follow_on(&mut self, old: &mut Feed, new: &mut Receiver, mut last: Lsn) -> Result<Moved, ImportError> {
        let mut given = None;
        let mut shown = Shown { at: Instant::now(), last };
        loop {
            if let Some(given) = given
                && last >= given
            {
                return self.end(old, new, last);
            }
            if self.is_stopped() && given.is_none() {
                return Ok(Moved::Stopped(last));
            }
            let blocks = old.read(last, IMPORT_POLL)?;
            let bytes: usize = blocks.iter().map(|block| block.units.len()).sum();
            for (units, behind) in joined(last, &blocks, new.bulk_max_bytes)? {
                last = new.apply(last, &units)?;
                debug_assert_eq!(last, behind, "both count units");
            }
            self.refills = 0;
            if given.is_none()
                && bytes < HANDOVER_NEAR_BYTES
                && let Some(reached_at) = self.reached_at.clone()
            {
                given = Some(self.give(&reached_at)?);
                self.progress.say(&format!("{} refuses changes from now on", old.server().peer()));
            }
            if shown.at.elapsed() >= IMPORT_PROGRESS_EVERY {
                let missing = old.state()?.last.get().saturating_sub(last.get());
                let rate = last.get().saturating_sub(shown.last.get()) as f64 / shown.at.elapsed().as_secs_f64();
                self.progress.say(&format!("change {last}, {missing} behind; {rate:.0} changes a second"));
                shown = Shown { at: Instant::now(), last };
            }
        }
    }

    /// Makes the old server, or the leader of its group, refuse changes. Returns its last one.
    fn give(&mut self, to: &str) -> Result<Lsn, ImportError> {
        let mut leader = leader_at(self.from, REDIS_AUTH)?;
        let at = Instant::now();
        let reply = leader.call(&[b"HANDOVER", b"GIVE", to.as_bytes()])?;
        self.given_at.get_or_insert(at);
        Ok(lsn_of(&leader, &reply)?)
    }

    /// Makes the data the new server's, which has everything that the old one has.
    fn end(&mut self, old: &mut Feed, new: &mut Receiver, last: Lsn) -> Result<Moved, ImportError> {
        // The operator may just have called it off. The new server refuses, too, if it has seen that.
        if !State::of(old.server())?.is("given") {
            return Err(ImportError::CalledOff);
        }
        new.server.call(&[b"HANDOVER", b"END"])?;
        Ok(Moved::Done { last, pause: self.given_at.map_or(Duration::ZERO, |at| at.elapsed()) })
    }

    /// Fills the new server with a snapshot and the changes behind it that the old one might drop meanwhile. Returns
    /// the last change that it then has.
    fn load(&mut self, old: &mut Feed, new: &mut Receiver, history: &str) -> Result<Lsn, ImportError> {
        new.receive(history, old.server().peer(), self.replaces)?;
        let snapshot = old.snapshot()?;
        let begun = snapshot.map_or(Lsn::NONE, |snapshot| snapshot.lsn);
        let mut spool = Spool::new(begun)?;
        if let Some(snapshot) = snapshot {
            let mut printed = Instant::now();
            while let Some(part) = old.part()? {
                new.load(&part.units)?;
                // The old server cuts its journal when it makes a snapshot, so what follows is fetched meanwhile.
                spool.fill(old, self.stop, new.bulk_max_bytes)?;
                if printed.elapsed() > IMPORT_PROGRESS_EVERY {
                    printed = Instant::now();
                    let percent = 100.0 * part.read as f64 / snapshot.bytes.max(1) as f64;
                    self.progress.say(&format!("{percent:.0}% of the snapshot, {:.0} MB", part.read as f64 / 1e6));
                }
                if self.is_stopped() {
                    return Err(ImportError::Stopped);
                }
            }
        }
        new.loaded(begun)?;
        self.progress.say(&format!("has the snapshot after {} ms", self.progress.elapsed().as_millis()));
        spool.empty_into(begun, new)
    }
}

/// When progress was last reported, and the last change by then.
struct Shown {
    at: Instant,
    last: Lsn,
}

/// Changes that wait in a file until the snapshot before them is loaded.
struct Spool {
    file: BufWriter<File>,
    last: Lsn,
    batches: u64,
}

impl Spool {
    fn new(begun: Lsn) -> Result<Spool, ImportError> {
        let file = tempfile::tempfile().map_err(ImportError::Spool)?;
        Ok(Spool { file: BufWriter::new(file), last: begun, batches: 0 })
    }

    /// Adds the changes that there are, as long as there are many.
    fn fill(&mut self, old: &mut Feed, stop: &AtomicBool, max_bytes: u64) -> Result<(), ImportError> {
        while !stop.load(Ordering::Relaxed) {
            let blocks = old.read(self.last, Duration::ZERO)?;
            let mut bytes = 0;
            for (units, last) in joined(self.last, &blocks, max_bytes)? {
                let len = units.len() as u64;
                let written = self.file.write_all(&len.to_le_bytes()).and_then(|()| self.file.write_all(&units));
                written.map_err(ImportError::Spool)?;
                bytes += units.len();
                (self.last, self.batches) = (last, self.batches + 1);
            }
            if bytes < HANDOVER_NEAR_BYTES {
                break;
            }
        }
        Ok(())
    }

    /// Applies all changes. Returns the last one.
    fn empty_into(self, begun: Lsn, new: &mut Receiver) -> Result<Lsn, ImportError> {
        let Spool { file, batches, .. } = self;
        let mut file = file.into_inner().map_err(|error| ImportError::Spool(error.into_error()))?;
        file.seek(SeekFrom::Start(0)).map_err(ImportError::Spool)?;
        let mut file = BufReader::new(file);
        let mut last = begun;
        for _ in 0..batches {
            let units = next_batch(&mut file).map_err(ImportError::Spool)?;
            last = new.apply(last, &units)?;
        }
        Ok(last)
    }
}

fn next_batch(file: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut len = [0; 8];
    file.read_exact(&mut len)?;
    let mut units = Vec::new();
    file.take(u64::from_le_bytes(len)).read_to_end(&mut units)?;
    Ok(units)
}

/// The new server.
struct Receiver {
    server: Connection<'static>,
    /// The longest argument that it takes.
    bulk_max_bytes: u64,
}

impl Receiver {
    fn receive(&mut self, history: &str, from: &str, replaces: bool) -> Result<(), ImportError> {
        let words: [&[u8]; 5] = [b"HANDOVER", b"RECEIVE", history.as_bytes(), from.as_bytes(), b"REPLACE"];
        match self.server.call(&words[..if replaces { 5 } else { 4 }]) {
            Err(ClientError::Refused(peer, text)) if text.contains("data of its own") => {
                Err(ImportError::NotEmpty { peer })
            }
            received => Ok(received.map(drop)?),
        }
    }

    fn load(&mut self, units: &[u8]) -> Result<(), ClientError> {
        self.server.call(&[b"HANDOVER", b"LOAD", units]).map(drop)
    }

    fn loaded(&mut self, last: Lsn) -> Result<(), ClientError> {
        self.server.call(&[b"HANDOVER", b"LOADED", last.to_string().as_bytes()]).map(drop)
    }

    fn resume(&mut self) -> Result<Lsn, ClientError> {
        let reply = self.server.call(&[b"HANDOVER", b"RESUME"])?;
        lsn_of(&self.server, &reply)
    }

    fn apply(&mut self, after: Lsn, units: &[u8]) -> Result<Lsn, ClientError> {
        let reply = self.server.call(&[b"HANDOVER", b"APPLY", after.to_string().as_bytes(), units])?;
        lsn_of(&self.server, &reply)
    }
}

/// Joins blocks of changes, which must follow the one with the Lsn `after`, into pieces of at most about a megabyte, or
/// of one block. Returns each piece with its last change.
fn joined(after: Lsn, blocks: &[Block], max_bytes: u64) -> Result<Vec<(Vec<u8>, Lsn)>, ImportError> {
    let mut pieces: Vec<(Vec<u8>, Lsn)> = Vec::new();
    let mut last = after;
    for block in blocks {
        if block.first != last.next() {
            return Err(ImportError::Gap { after: last, found: block.first });
        }
        if block.units.len() as u64 > max_bytes {
            return Err(ImportError::LongChange { lsn: block.first, bytes: block.units.len(), max_bytes });
        }
        last = last.plus(count_units(&block.units)?);
        match pieces.last_mut().filter(|(units, _)| units.len() + block.units.len() <= HANDOVER_PIECE_BYTES) {
            Some((units, behind)) => {
                units.extend_from_slice(&block.units);
                *behind = last;
            }
            None => pieces.push((block.units.to_vec(), last)),
        }
    }
    Ok(pieces)
}

/// Connects to a server or, if it follows in a group, to the leader.
fn leader_at(address: Address<'_>, auth: &str) -> Result<Connection<'static>, ImportError> {
    let mut server = Connection::open(address, auth, IMPORT_TIMEOUT)?;
    let (host, port) = match server.call(&[b"ROLE"]) {
        Ok(BytesFrame::Array(role)) => match &role[..] {
            [kind, host, BytesFrame::Integer(port), ..] if kind.as_str() == Some("slave") => {
                (host.as_str().unwrap_or_default().to_owned(), u16::try_from(*port).unwrap_or(0))
            }
            _ => return Ok(server),
        },
        // A user without this right can name the leader.
        Ok(_) | Err(ClientError::Refused(..)) => return Ok(server),
        Err(error) => return Err(error.into()),
    };
    let mut url = url::Url::parse(address.url).map_err(|error| ClientError::Url(error.to_string()))?;
    if url.set_host(Some(&host)).is_err() || url.set_port(Some(port)).is_err() {
        return Ok(server);
    }
    Ok(Connection::open(Address { url: url.as_str(), tls: address.tls }, auth, IMPORT_TIMEOUT)?)
}

fn lsn_of(server: &Connection<'_>, reply: &BytesFrame) -> Result<Lsn, ClientError> {
    match reply {
        BytesFrame::Integer(number) => Ok(Lsn::new(number.unsigned_abs())),
        _ => Err(server.not_the_protocol()),
    }
}

/// A reply to HANDOVER STATE: whose the data of a server is.
struct State(Vec<(String, String)>);

impl State {
    fn of(server: &mut Connection<'_>) -> Result<State, ClientError> {
        let BytesFrame::Array(fields) = server.call(&[b"HANDOVER", b"STATE"])? else {
            return Err(server.not_the_protocol());
        };
        let text = |frame: &BytesFrame| frame.as_str().unwrap_or_default().to_owned();
        Ok(State(fields.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()))
    }

    fn is(&self, state: &str) -> bool {
        self.text("state") == state
    }

    fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    fn last(&self) -> Lsn {
        Lsn::new(self.number("last"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_an_address() {
        for (named, into, found) in [
            ("", "redis://new", Some("new:6379")),
            ("", "redis://ann:secret@new:7000/", Some("new:7000")),
            ("", "rediss://[2001:db8::1]:7000", Some("[2001:db8::1]:7000")),
            ("", "unix:///run/tidegate.sock", None),
            ("service:6379", "unix:///run/tidegate.sock", Some("service:6379")),
            ("service", "redis://new", None),
            ("service:0", "redis://new", None),
            ("2001:db8::1:7000", "redis://new", None),
        ] {
            assert_eq!(reached_at(named, into).ok().as_deref(), found, "{named} {into}");
        }
    }
}
