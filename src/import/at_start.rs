//! A server that starts in a folder of Redis, and has no data of its own yet, imports what it finds there.
//!
//! The import speaks to the engine as a client does, by a connection without a socket. It is all or nothing: a file beside the
//! data says that it is under way, and goes when all of it is durable. A start that finds the file removes the data, which nobody
//! has been served from, and begins again.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::ImportError;
use super::files::Files;
use super::load;
use super::report::Options;
use super::target::Target;
use crate::client::{Connection, Stream};
use crate::engine::session::{Gate, Peer, SessionKey};
use crate::engine::{Engine, Fed};
use crate::resp::reply::{Form, Reply};
use crate::resp::request::Decoder;

/// The file that says that an import is under way.
const UNDER_WAY: &str = "tidegate-import-under-way";

/// An import that is to be done when the engine is there.
pub(crate) struct AtStart {
    files: Files,
    /// `None` where nothing lasts: then there is nothing to be half done.
    under_way: Option<PathBuf>,
}

impl AtStart {
    /// Looks for what a server in `dir` should import that keeps its data in `data`, or in memory only. Removes what an import
    /// has left that was interrupted.
    pub(crate) fn look(dir: &Path, data: Option<&Path>) -> Result<Option<AtStart>, ImportError> {
        let failed = |error: io::Error| ImportError::Files { path: dir.to_owned(), what: error.to_string() };
        let under_way = data.map(|_| dir.join(UNDER_WAY));
        if let (Some(data), Some(under_way)) = (data, &under_way) {
            if under_way.exists() {
                tracing::warn!("the import of the data that was found here was interrupted: it begins again");
                if data.exists() {
                    fs::remove_dir_all(data).map_err(failed)?;
                }
            } else if data.exists() {
                return Ok(None);
            }
        }
        let Some(files) = Files::in_folder(dir)? else { return Ok(None) };
        if let Some(under_way) = &under_way {
            File::create(under_way).and_then(|file| file.sync_all()).map_err(failed)?;
            sync_dir(dir).map_err(failed)?;
        }
        Ok(Some(AtStart { files, under_way }))
    }

    /// Imports into the engine, whose log then holds it. Answers how many keys there are now.
    pub(crate) fn run(self, engine: &mut Engine) -> Result<usize, ImportError> {
        let names: Vec<String> = self.files.paths().iter().map(|path| path.display().to_string()).collect();
        tracing::info!("imports the data of Redis that was found here: {}", names.join(", "));
        let mut target = Target::new(in_process(engine), Options::default());
        load::files(&self.files, &mut target, &mut |text| tracing::info!("import: {text}"))?;
        let report = std::mem::take(&mut target.report);
        drop(target);
        let failed =
            |error: io::Error| ImportError::Files { path: self.files.paths()[0].clone(), what: error.to_string() };
        if let Some(under_way) = &self.under_way {
            let is_kept = engine.server.settle_log().is_ok() && engine.server.drain_log();
            if !is_kept {
                return Err(failed(io::Error::other("what was imported can't be kept; the log says why")));
            }
            fs::remove_file(under_way).map_err(failed)?;
            sync_dir(under_way.parent().unwrap_or(Path::new("."))).map_err(failed)?;
        }
        let again = match self.under_way {
            Some(_) => "they are not read again: from now on the data lasts in Tidegate's own",
            None => "they are read at every start, because what changes is kept in memory only",
        };
        tracing::info!("imported: {report}; the files were not changed, and {again}");
        Ok((0..engine.ks.databases()).map(|db| engine.ks.db(db).len()).sum())
    }
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// A connection to the engine itself.
fn in_process(engine: &mut Engine) -> Connection<'_> {
    let session =
        engine.server.open_session(Peer { address: "import:0".to_owned(), is_local: true, ..Peer::default() });
    // Whoever starts the server needs no password.
    if let Some(session) = engine.server.sessions.get_mut(session) {
        session.gate.set(Gate::STRANGER, false);
    }
    let stream = InProcess { engine, session, decoder: Decoder::new(), unread: Vec::new(), replies: VecDeque::new() };
    Connection::through(Box::new(stream), "this server")
}

/// What a socket would be: requests in, replies out.
struct InProcess<'e> {
    engine: &'e mut Engine,
    session: SessionKey,
    decoder: Decoder,
    /// Bytes of requests that are not complete.
    unread: Vec<u8>,
    /// Replies that were not read yet.
    replies: VecDeque<u8>,
}

impl Write for InProcess<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unread.extend_from_slice(bytes);
        loop {
            let mut reply = Reply::new(Form::Resp2);
            let fed = self.engine.feed(self.session, &mut self.decoder, &self.unread, &mut reply);
            self.replies.extend(reply.as_bytes());
            match fed {
                Fed::Drained => break,
                Fed::Paused => {}
                Fed::Suspended => return Err(ErrorKind::ConnectionAborted.into()),
            }
        }
        self.unread.drain(..self.decoder.keep_from());
        self.decoder.rebase();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for InProcess<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // No client is there to be told too early; but what is written should not pile up.
        self.engine.server.may_send();
        self.replies.read(out)
    }
}

impl Stream for InProcess<'_> {
    fn set_patience(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for InProcess<'_> {
    fn drop(&mut self) {
        self.engine.disconnect(self.session);
    }
}
