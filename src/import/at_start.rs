//! A server that starts in a folder of Redis, and has no data of its own yet, imports what it finds there.
//!
//! The import speaks to an engine as a client does, by a connection without a socket. That it is all or nothing is for those to
//! see to who give it the engine: nobody else sees that one before the import is done.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use super::error::ImportError;
use super::files::{Files, Names};
use super::load;
use super::report::{Options, Report};
use super::target::Target;
use crate::client::{Connection, Stream};
use crate::config::Config;
use crate::engine::session::{Gate, Peer, SessionKey};
use crate::engine::{Engine, Fed};
use crate::resp::reply::{Form, Reply};
use crate::resp::request::Decoder;

/// What a server finds when it starts.
pub(crate) struct AtStart {
    files: Files,
}

impl AtStart {
    /// Looks for the data of Redis in the folder of `config`, under the names that are set there.
    pub(crate) fn look(config: &Config) -> Result<Option<AtStart>, ImportError> {
        let Config { dbfilename, appenddirname, appendfilename, .. } = config;
        let names = Names { rdb: dbfilename.clone(), aof_dir: appenddirname.clone(), aof: appendfilename.clone() };
        Ok(Files::of_server(&config.dir, &names)?.map(|files| AtStart { files }))
    }

    /// The files, for people.
    pub(crate) fn names(&self) -> String {
        let names: Vec<String> = self.files.paths().iter().map(|path| path.display().to_string()).collect();
        names.join(", ")
    }

    /// Imports all into an engine that is empty.
    pub(crate) fn run(&self, engine: &mut Engine) -> Result<Report, ImportError> {
        let mut target = Target::new(in_process(engine), Options::default())?;
        load::files(&self.files, &mut target, &mut |text| tracing::info!("import: {text}"))?;
        Ok(std::mem::take(&mut target.report))
    }
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
        self.engine.server.commit_log();
        self.replies.read(out)
    }
}

impl Stream for InProcess<'_> {
    fn set_timeout(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for InProcess<'_> {
    fn drop(&mut self) {
        self.engine.disconnect(self.session);
    }
}
