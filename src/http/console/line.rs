//! Connections to the engine, as clients make them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use redis_protocol::resp2::encode::extend_encode_borrowed;
use redis_protocol::resp2::types::BorrowedFrame;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::super::limits::{
    CALL_PATIENCE, CLIENTS_MAX_BYTES, LINES_KEPT, LINES_MAX, REPLIES_MAX_BYTES, REPLIES_TOTAL_BYTES,
};
use super::reply::Decoder;
use crate::net::inside::{Inside, Like};

/// The words of one call.
pub(super) type Words = Vec<Vec<u8>>;

/// The name of the console's connections in CLIENT LIST.
const NAME: &[u8] = b"console";

/// Bytes read at a time.
const READ_BYTES: usize = 64 * 1024;

/// Why calls have no replies.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    /// The engine closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The time is over. A call that waits is given up with the connection.
    #[error("no reply within {} s", CALL_PATIENCE.as_secs())]
    Late,
    /// There is more than is wanted.
    #[error("the replies have more than {0} bytes")]
    TooLong(usize),
    /// There are too many calls at a time.
    #[error("too many calls are answered at once")]
    Crowded,
    /// The engine is not to be reached.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The way to the engine, for everybody together: there may be so many connections, and so many bytes of replies.
pub(super) struct Lines {
    inside: Arc<Inside>,
    places: Arc<Semaphore>,
    /// Pieces of [`READ_BYTES`].
    pieces: Arc<Semaphore>,
}

impl Lines {
    pub(super) fn new(inside: Arc<Inside>) -> Lines {
        let pieces = Arc::new(Semaphore::new(REPLIES_TOTAL_BYTES / READ_BYTES));
        Lines { inside, places: Arc::new(Semaphore::new(LINES_MAX)), pieces }
    }

    /// Whether there are too few places left to take one for a page that only looks.
    pub(super) fn are_scarce(&self) -> bool {
        self.places.available_permits() < LINES_KEPT
    }

    /// Connects, for a person at this address: as a newcomer, or with the rights of a client.
    pub(super) fn open(&self, address: SocketAddr, like: Option<Like>) -> Result<Line, LineError> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| LineError::Crowded)?;
        let stream = UnixStream::from_std(self.inside.connect(address, like)?)?;
        let (decoder, pieces) = (Decoder::default(), Arc::clone(&self.pieces));
        Ok(Line { stream, decoder, most_bytes: REPLIES_MAX_BYTES, pieces, _place: place })
    }
}

/// A connection to the engine.
pub(super) struct Line {
    stream: UnixStream,
    decoder: Decoder,
    /// Bytes of the replies to calls that are made at once.
    most_bytes: usize,
    pieces: Arc<Semaphore>,
    _place: OwnedSemaphorePermit,
}

/// Replies, which take a part of the bytes for all replies until they are dropped.
pub(super) struct Replies {
    pub(super) list: Vec<Value>,
    pub(super) room: Room,
}

/// A part of the bytes for all replies.
pub(super) struct Room {
    pieces: Arc<Semaphore>,
    held: Vec<OwnedSemaphorePermit>,
}

impl Room {
    /// Takes more, for this many bytes.
    fn grow(&mut self, bytes: usize) -> Result<(), LineError> {
        while self.held.len() * READ_BYTES < bytes {
            let piece = Arc::clone(&self.pieces).try_acquire_owned().map_err(|_| LineError::Crowded)?;
            self.held.push(piece);
        }
        Ok(())
    }
}

impl Line {
    /// Lets a reply be one long text, which is not cut.
    pub(super) fn takes_a_long_text(&mut self) {
        self.most_bytes = CLIENTS_MAX_BYTES;
        self.decoder.cuts_at(CLIENTS_MAX_BYTES);
    }

    /// Makes calls one after the other and returns their replies. After an error the connection is of no use.
    pub(super) async fn call(&mut self, calls: &[Words], deadline: Instant) -> Result<Replies, LineError> {
        timeout_at(deadline, self.exchange(calls)).await.map_err(|_| LineError::Late)?
    }

    /// Says hello in RESP3, and signs in if `auth` has a user and a password. Returns the reply.
    pub(super) async fn hello(&mut self, auth: Option<(&[u8], &[u8])>, deadline: Instant) -> Result<Value, LineError> {
        let mut words = vec![b"HELLO".to_vec(), b"3".to_vec()];
        if let Some((user, password)) = auth {
            words.extend([b"AUTH".to_vec(), user.to_vec(), password.to_vec()]);
        }
        words.extend([b"SETNAME".to_vec(), NAME.to_vec()]);
        let mut replies = self.call(&[words], deadline).await?;
        replies.list.pop().ok_or(LineError::Closed)
    }

    /// Waits until the engine closes the connection. Replies are dropped.
    pub(super) async fn closed(&mut self) {
        let mut chunk = [0; 1_024];
        loop {
            if self.stream.readable().await.is_err() {
                return;
            }
            match self.stream.try_read(&mut chunk) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// Sends a call whose reply nobody waits for, if there is room for it.
    pub(super) fn mention(&self, words: &Words) {
        let mut request = BytesMut::new();
        put(&mut request, words);
        // A connection that is closed shows that to whoever waits for it.
        let _ = self.stream.try_write(&request);
    }

    async fn exchange(&mut self, calls: &[Words]) -> Result<Replies, LineError> {
        let mut request = BytesMut::new();
        calls.iter().for_each(|words| put(&mut request, words));
        let room = Room { pieces: Arc::clone(&self.pieces), held: Vec::new() };
        let Line { stream, decoder, most_bytes, .. } = self;
        // The engine stops reading from a client that does not read, so both must go on at once.
        let receiving = receive(stream, decoder, calls.len(), *most_bytes, room);
        let (_, replies) = tokio::join!(send(stream, &request), receiving);
        // Whatever was not sent has no reply. A refusal may have come before anything was sent.
        replies
    }
}

fn put(request: &mut BytesMut, words: &Words) {
    let words: Vec<BorrowedFrame<'_>> = words.iter().map(|word| BorrowedFrame::BulkString(word)).collect();
    // Encoding fails only when the buffer is full, and this buffer grows.
    let _ = extend_encode_borrowed(request, &BorrowedFrame::Array(&words), false);
}

async fn send(stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives this many replies. Messages between them are dropped: nothing here subscribes to anything.
async fn receive(
    stream: &UnixStream,
    decoder: &mut Decoder,
    count: usize,
    most_bytes: usize,
    mut room: Room,
) -> Result<Replies, LineError> {
    let mut list = Vec::new();
    let (mut chunk, mut received) = (vec![0; READ_BYTES], 0);
    while list.len() < count {
        stream.readable().await?;
        let read = match stream.try_read(&mut chunk) {
            Ok(0) => return Err(LineError::Closed),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        };
        received += read;
        if received > most_bytes {
            return Err(LineError::TooLong(most_bytes));
        }
        room.grow(received)?;
        decoder.receive(&chunk[..read]);
        while let Some(reply) = decoder.next().map_err(|_| LineError::Closed)? {
            if reply.get("push").is_none() {
                list.push(reply);
            }
        }
    }
    Ok(Replies { list, room })
}
