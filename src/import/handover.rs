//! Moves all data from one running Tidegate to another: keys, locks, gates, stocks, delayed messages, policies, scripts
//! and libraries, and the fencing tokens, which never go back.
//!
//! ```text
//! old    FEED SNAPSHOT, FEED PART ...   FEED READ ...          HANDOVER GIVE   FEED READ
//! new    HANDOVER RECEIVE, LOAD ...     LOADED, APPLY ...                      APPLY        END
//! ```
//!
//! The new server keeps how far it is as part of its data, so a move that was interrupted goes on with exactly the next
//! change. GIVE is the last change of the old server: once it was applied, nothing can be missing or come later.
//! Between GIVE and END, for some milliseconds, neither server takes changes of clients.

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
use crate::client::{Address, ClientError, Connection, REDIS_AUTH, TIDEGATE_AUTH};
use crate::feed::{Block, Feed, FeedError};
use crate::import::limits::{HANDOVER_NEAR_BYTES, IMPORT_POLL, IMPORT_RETRY};
use crate::persist::tail::count_units;

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
    let mut handover =
        Handover { options, stop, progress: Progress::new(print, None), given: None, begins_anew: false };
    let mut has_failed = false;
    loop {
        let outcome = handover.go_on(from, into, &mut has_failed);
        match outcome {
            Ok(moved) => return Ok(moved),
            Err(ImportError::Feed(error @ (FeedError::Gone { .. } | FeedError::Ahead { .. }))) => {
                handover.progress.say(&format!("{error}: beginning again"));
                handover.begins_anew = true;
            }
            Err(error) if error.may_pass() && !stop.load(Ordering::Relaxed) => {
                if !std::mem::replace(&mut has_failed, true) {
                    handover.progress.say(&format!("{error}; trying again"));
                }
                std::thread::sleep(IMPORT_RETRY);
            }
            Err(error) => return Err(error),
        }
    }
}

struct Handover<'h> {
    options: Options<'h>,
    stop: &'h AtomicBool,
    progress: Progress<'h>,
    /// When the old server has given its data away, and with which change.
    given: Option<(Instant, Lsn)>,
    /// The old server no longer has the changes that come next, so the new one is filled again.
    begins_anew: bool,
}

impl Handover<'_> {
    /// Goes on where the new server is, until a connection fails or the move ends.
    fn go_on(&mut self, from: Address<'_>, into: Address<'_>, has_failed: &mut bool) -> Result<Moved, ImportError> {
        let mut old = Feed::open(from, REDIS_AUTH)?;
        let mut new = Receiver::open(into)?;
        let reached_at = self.options.cut_over.filter(|at| !at.is_empty()).unwrap_or(new.place()).to_owned();
        let history = old.state()?.history;
        let mut last = match new.state()? {
            State::Own if given_to(&mut old)?.as_deref() == Some(&reached_at) => {
                return Ok(Moved::Done { last: old.state()?.last, pause: Duration::ZERO });
            }
            State::Receiving { history: known, last, is_complete: true, .. }
                if known == history && !self.begins_anew =>
            {
                last
            }
            State::Receiving { from, history: known, .. } if known != history && !self.options.replace => {
                return Err(ImportError::OtherSource { peer: new.server.peer().to_owned(), from });
            }
            State::Own | State::Given | State::Receiving { .. } => self.load(&mut old, &mut new, &history)?,
        };
        (*has_failed, self.begins_anew) = (false, false);
        self.progress.say(&format!("following from change {last} on"));
        let mut shown = Shown { at: Instant::now(), last };
        loop {
            if let Some((given_at, given)) = self.given
                && last >= given
            {
                new.end()?;
                return Ok(Moved::Done { last, pause: given_at.elapsed() });
            }
            if self.stop.load(Ordering::Relaxed) && self.given.is_none() {
                return Ok(Moved::Stopped(last));
            }
            let blocks = old.read(last, IMPORT_POLL)?;
            let bytes: usize = blocks.iter().map(|block| block.units.len()).sum();
            if !blocks.is_empty() {
                last = new.apply(last, &blocks)?;
            }
            if self.options.cut_over.is_some() && self.given.is_none() && bytes < HANDOVER_NEAR_BYTES {
                let at = Instant::now();
                self.given = Some((at, give(&mut old, &reached_at)?));
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

    /// Fills the new server with a snapshot and the changes behind it that the old one might drop meanwhile. Returns
    /// the last change that it then has.
    fn load(&mut self, old: &mut Feed, new: &mut Receiver, history: &str) -> Result<Lsn, ImportError> {
        new.receive(history, old.server().peer(), self.options.replace)?;
        let snapshot = old.snapshot()?;
        let begun = snapshot.map_or(Lsn::NONE, |snapshot| snapshot.lsn);
        let mut spool = Spool::new(begun)?;
        if let Some(snapshot) = snapshot {
            let mut printed = Instant::now();
            while let Some(part) = old.part()? {
                new.load(&part.units)?;
                // The old server cuts its journal when it makes a snapshot, so what follows is fetched meanwhile.
                spool.fill(old)?;
                if printed.elapsed() > IMPORT_PROGRESS_EVERY {
                    printed = Instant::now();
                    let percent = 100.0 * part.read as f64 / snapshot.bytes.max(1) as f64;
                    self.progress.say(&format!("{percent:.0}% of the snapshot, {:.0} MB", part.read as f64 / 1e6));
                }
                if self.stop.load(Ordering::Relaxed) {
                    return Err(ImportError::Stopped);
                }
            }
        }
        new.loaded(begun)?;
        self.progress.say(&format!("has the snapshot after {} ms", self.progress.elapsed().as_millis()));
        spool.empty_into(begun, new)
    }
}

/// What was last reported.
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

    /// Adds all changes that there are.
    fn fill(&mut self, old: &mut Feed) -> Result<(), ImportError> {
        loop {
            let blocks = old.read(self.last, Duration::ZERO)?;
            if blocks.is_empty() {
                return Ok(());
            }
            let (units, last) = joined(self.last, &blocks)?;
            let len = units.len() as u64;
            let written = self.file.write_all(&len.to_le_bytes()).and_then(|()| self.file.write_all(&units));
            written.map_err(ImportError::Spool)?;
            (self.last, self.batches) = (last, self.batches + 1);
            if units.len() < HANDOVER_NEAR_BYTES {
                return Ok(());
            }
        }
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
            last = new.apply_units(last, &units)?;
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
}

/// Whose the data of a server is.
enum State {
    Own,
    Receiving { from: String, history: String, last: Lsn, is_complete: bool },
    Given,
}

impl Receiver {
    fn open(into: Address<'_>) -> Result<Receiver, ClientError> {
        Ok(Receiver { server: Connection::open(into, TIDEGATE_AUTH, IMPORT_TIMEOUT)? })
    }

    /// Returns the host and port of the server.
    fn place(&self) -> &str {
        let peer = self.server.peer();
        peer.split_once("://").map_or(peer, |(_, place)| place)
    }

    fn state(&mut self) -> Result<State, ClientError> {
        let fields = state_of(&mut self.server)?;
        let text = |name| fields.text(name);
        match &*text("state") {
            "own" => Ok(State::Own),
            "given" => Ok(State::Given),
            "receiving" => Ok(State::Receiving {
                from: text("from"),
                history: text("history"),
                last: Lsn::new(fields.number("last")),
                is_complete: fields.number("complete") == 1,
            }),
            _ => Err(self.server.not_the_protocol()),
        }
    }

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

    fn apply(&mut self, after: Lsn, blocks: &[Block]) -> Result<Lsn, ImportError> {
        let (units, _) = joined(after, blocks)?;
        Ok(self.apply_units(after, &units)?)
    }

    fn apply_units(&mut self, after: Lsn, units: &[u8]) -> Result<Lsn, ClientError> {
        let reply = self.server.call(&[b"HANDOVER", b"APPLY", after.to_string().as_bytes(), units])?;
        lsn_of(&self.server, &reply)
    }

    fn end(&mut self) -> Result<(), ClientError> {
        self.server.call(&[b"HANDOVER", b"END"]).map(drop)
    }
}

/// Joins blocks of changes, which must follow the one with the Lsn `after`. Also returns the last of them.
fn joined(after: Lsn, blocks: &[Block]) -> Result<(Vec<u8>, Lsn), ImportError> {
    let (mut units, mut last) = (Vec::with_capacity(blocks.iter().map(|block| block.units.len()).sum()), after);
    for block in blocks {
        if block.first != last.next() {
            return Err(ImportError::Gap { after: last, found: block.first });
        }
        last = last.plus(count_units(&block.units)?);
        units.extend_from_slice(&block.units);
    }
    Ok((units, last))
}

/// Makes the old server refuse changes. Returns its last one.
fn give(old: &mut Feed, to: &str) -> Result<Lsn, ClientError> {
    let reply = old.server().call(&[b"HANDOVER", b"GIVE", to.as_bytes()])?;
    lsn_of(old.server(), &reply)
}

/// Returns the address of the server that the data was given to, if it was.
fn given_to(old: &mut Feed) -> Result<Option<String>, ClientError> {
    let fields = state_of(old.server())?;
    Ok((fields.text("state") == "given").then(|| fields.text("to")))
}

fn lsn_of(server: &Connection<'_>, reply: &BytesFrame) -> Result<Lsn, ClientError> {
    match reply {
        BytesFrame::Integer(number) => Ok(Lsn::new(number.unsigned_abs())),
        _ => Err(server.not_the_protocol()),
    }
}

/// A reply to HANDOVER STATE.
struct Fields(Vec<(String, String)>);

fn state_of(server: &mut Connection<'_>) -> Result<Fields, ClientError> {
    let BytesFrame::Array(fields) = server.call(&[b"HANDOVER", b"STATE"])? else {
        return Err(server.not_the_protocol());
    };
    let text = |frame: &BytesFrame| match frame {
        BytesFrame::Integer(number) => number.to_string(),
        frame => frame.as_str().unwrap_or_default().to_owned(),
    };
    Ok(Fields(fields.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()))
}

impl Fields {
    fn text(&self, name: &str) -> String {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()).unwrap_or_default()
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }
}
