//! A server that starts in a folder of Redis, and has no data of its own yet, imports what it finds there.
//!
//! The import speaks to the engine as a client does, by a connection without a socket. It is all or nothing: a file beside the
//! data says that it is under way, and goes when all of it is durable. A start that finds the file removes the data, which nobody
//! has been served from, and begins again.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
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
    mark: Option<Mark>,
}

/// The file that says that an import is under way, locked by the server that does it.
struct Mark {
    path: PathBuf,
    file: File,
}

impl AtStart {
    /// Looks for what a server in `dir` should import that keeps its data in `data`, or in memory only. Removes what an import
    /// has left that was interrupted.
    pub(crate) fn look(dir: &Path, data: Option<&Path>) -> Result<Option<AtStart>, ImportError> {
        let failed = |error: io::Error| ImportError::Files { path: dir.to_owned(), what: error.to_string() };
        let Some(data) = data else {
            return Ok(Files::in_folder(dir)?.map(|files| AtStart { files, mark: None }));
        };
        let path = dir.join(UNDER_WAY);
        if !path.exists() && data.exists() {
            return Ok(None);
        }
        let files = Files::in_folder(dir)?;
        if files.is_none() && !path.exists() {
            return Ok(None);
        }
        let mark = Mark::lock(path).map_err(failed)?;
        if data.exists() {
            tracing::warn!("the import of the data that was found here was interrupted: it begins again");
            fs::remove_dir_all(data).map_err(failed)?;
        }
        sync_dir(dir).map_err(failed)?;
        match files {
            Some(files) => Ok(Some(AtStart { files, mark: Some(mark) })),
            // With a mark that stays, the next start would take all that comes now for half imported.
            None => mark.remove().map(|()| None).map_err(failed),
        }
    }

    /// Imports into the engine, whose log then holds it. Answers how many keys there are now.
    pub(crate) fn run(self, engine: &mut Engine) -> Result<usize, ImportError> {
        let names: Vec<String> = self.files.paths().iter().map(|path| path.display().to_string()).collect();
        tracing::info!("imports the data of Redis that was found here: {}", names.join(", "));
        let mut target = Target::new(in_process(engine), Options::default())?;
        load::files(&self.files, &mut target, &mut |text| tracing::info!("import: {text}"))?;
        let report = std::mem::take(&mut target.report);
        drop(target);
        let failed =
            |error: io::Error| ImportError::Files { path: self.files.paths()[0].clone(), what: error.to_string() };
        let lasts = self.mark.is_some();
        if let Some(mark) = self.mark {
            let is_kept = engine.server.settle_log().is_ok() && engine.server.drain_log();
            if !is_kept {
                return Err(failed(io::Error::other("what was imported can't be kept; the log says why")));
            }
            mark.remove().map_err(failed)?;
        }
        let again = if lasts {
            "they are not read again: from now on the data lasts in Tidegate's own"
        } else {
            "they are read at every start, because what changes is kept in memory only"
        };
        tracing::info!("imported: {report}; the files were not changed, and {again}");
        Ok((0..engine.ks.databases()).map(|db| engine.ks.db(db).len()).sum())
    }
}

impl Mark {
    /// Makes the mark, or takes over one that was left. Fails while another server has it.
    fn lock(path: PathBuf) -> io::Result<Mark> {
        let file = File::options().create(true).append(true).open(&path)?;
        let taken = |_| io::Error::other("another server is importing here");
        file.try_lock().map_err(taken)?;
        // Its owner may have been done, and have removed it, in between: then the data is whole.
        let is_there = fs::metadata(&path).is_ok_and(|there| file.metadata().is_ok_and(|own| own.ino() == there.ino()));
        if !is_there {
            return Err(io::Error::other("another server has just imported here"));
        }
        file.sync_all()?;
        Ok(Mark { path, file })
    }

    /// Nothing is under way any more.
    fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)?;
        sync_dir(self.path.parent().unwrap_or(Path::new(".")))?;
        self.file.unlock()
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
