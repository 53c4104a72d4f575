//! A connection to the engine of this process without a socket, so that commands imported at the start pass the same
//! checks as clients' commands.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use crate::client::{Connection, Stream};
use crate::engine::{Engine, Fed};
use crate::resp::reply::{Form, Reply};
use crate::resp::request::Decoder;
use crate::session::{ImportSource, Peer, Restrictions};
use crate::spec::session_key::SessionKey;

/// Connects to `engine`, which may still be loading.
pub(super) fn connect(engine: &mut Engine) -> Connection<'_> {
    let session =
        engine.server.open_session(Peer { address: "import:0".to_owned(), is_local: true, ..Peer::default() });
    let hold = engine.ks.hold_expiry();
    if let Some(session) = engine.server.clients.sessions.get_mut(session) {
        session.import_source = Some(ImportSource::of_server(hold));
        // This import needs no password and no replicas, may exceed limits that the existing data already meets, and is
        // itself the loading.
        [
            Restrictions::UNAUTHENTICATED,
            Restrictions::LIMITED,
            Restrictions::FEW_FOLLOWERS,
            Restrictions::METERED,
            Restrictions::LOADING,
        ]
        .into_iter()
        .for_each(|bit| session.restrictions.set(bit, false));
    }
    let stream = InProcess { engine, session, decoder: Decoder::new(), unread: Vec::new(), replies: VecDeque::new() };
    Connection::through(Box::new(stream), "this server")
}

/// Takes the place of a socket: requests in, replies out.
struct InProcess<'e> {
    engine: &'e mut Engine,
    session: SessionKey,
    decoder: Decoder,
    /// Bytes of incomplete requests.
    unread: Vec<u8>,
    /// Bytes of unread replies.
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
