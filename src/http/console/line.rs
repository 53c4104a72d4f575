//! Connections to the engine, as clients make them.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use bytes::BytesMut;
use redis_protocol::resp2::encode::extend_encode_borrowed;
use redis_protocol::resp2::types::BorrowedFrame;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::super::limits::{
    CALL_PATIENCE, CLIENTS_MAX_BYTES, LINES_KEPT, LINES_MAX, REPLIES_MAX_BYTES, REPLIES_OF_USER_BYTES,
    REPLIES_TOTAL_BYTES, REPLIES_VALUES_MAX_BYTES,
};
use super::reply::Decoder;
use super::room::{Full, Room, Rooms, Share};
use crate::net::inside::{Inside, Like};

/// The words of one call.
pub(super) type Words = Vec<Vec<u8>>;

/// The name of the console's connections in CLIENT LIST.
const NAME: &[u8] = b"console";

/// Bytes read at a time.
const READ_BYTES: usize = 16 * 1024;

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
    /// There is more than there is memory for.
    #[error("the replies have too many parts")]
    TooMany,
    /// A call has left the connection in a state in which replies can't be told from messages.
    #[error("there are more replies than calls")]
    Surplus,
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
    rooms: Rooms,
}

impl Lines {
    pub(super) fn new(inside: Arc<Inside>) -> Lines {
        Lines {
            inside,
            places: Arc::new(Semaphore::new(LINES_MAX)),
            rooms: Rooms::new(REPLIES_TOTAL_BYTES, REPLIES_OF_USER_BYTES),
        }
    }

    /// Whether there are too few places left to take one for a page that only looks.
    pub(super) fn are_scarce(&self) -> bool {
        self.places.available_permits() < LINES_KEPT
    }

    /// Connects, for a person of this name at this address: as a newcomer, or with the rights of a client.
    pub(super) fn open(&self, user: &str, address: SocketAddr, like: Option<Like>) -> Result<Line, LineError> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| LineError::Crowded)?;
        let stream = UnixStream::from_std(self.inside.connect(address, like)?)?;
        Ok(Line::new(stream, self.rooms.of(user), place))
    }
}

/// A connection to the engine.
pub(super) struct Line {
    stream: UnixStream,
    decoder: Decoder,
    /// Bytes of the replies to calls that are made at once.
    most_bytes: usize,
    share: Share,
    _place: OwnedSemaphorePermit,
}

/// Replies, and the room that they take until it is dropped.
pub(super) struct Replies {
    pub(super) list: Vec<Value>,
    pub(super) room: Room,
}

impl Line {
    fn new(stream: UnixStream, share: Share, place: OwnedSemaphorePermit) -> Line {
        Line { stream, decoder: Decoder::default(), most_bytes: REPLIES_MAX_BYTES, share, _place: place }
    }

    /// Lets a reply be one long text, which is not cut.
    pub(super) fn takes_a_long_text(&mut self) {
        self.most_bytes = CLIENTS_MAX_BYTES;
        self.decoder.cuts_at(CLIENTS_MAX_BYTES);
    }

    /// Makes maps in replies objects.
    pub(super) fn makes_objects(&mut self) {
        self.decoder.makes_objects();
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

    async fn exchange(&mut self, calls: &[Words]) -> Result<Replies, LineError> {
        let mut request = BytesMut::new();
        calls.iter().for_each(|words| put(&mut request, words));
        let Line { stream, decoder, most_bytes, share, .. } = self;
        // The engine stops reading from a client that does not read, so both must go on at once.
        let mut receiving = pin!(receive(stream, decoder, calls.len(), *most_bytes, share.room()));
        tokio::select! {
            // A refusal may come before everything was sent.
            replies = &mut receiving => replies,
            // What could not be sent has no reply.
            _ = send(stream, &request) => receiving.await,
        }
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
    let (mut chunk, mut received, taken_before) = (vec![0; READ_BYTES], 0, decoder.taken());
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
        decoder.receive(&chunk[..read]);
        while let Some(reply) = decoder.next().map_err(|_| LineError::Closed)? {
            if reply.get("push").is_none() {
                list.push(reply);
            }
        }
        let taken = decoder.taken() - taken_before;
        if taken > REPLIES_VALUES_MAX_BYTES {
            return Err(LineError::TooMany);
        }
        room.grow(received + taken).map_err(|Full| LineError::Crowded)?;
        // A long reply must not keep the others waiting.
        tokio::task::yield_now().await;
    }
    // With more, nobody can say which reply is which.
    if list.len() == count { Ok(Replies { list, room }) } else { Err(LineError::Surplus) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt as _;

    use super::super::super::limits::{REPLY_OBJECT_BYTES, ROOM_FREE_BYTES};
    use super::*;

    /// A line, and the engine's end of it.
    fn line() -> (Line, UnixStream) {
        let (here, there) = UnixStream::pair().expect("a pair of sockets");
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("a place");
        (Line::new(here, Rooms::new(REPLIES_OF_USER_BYTES, REPLIES_OF_USER_BYTES).of("ann"), place), there)
    }

    /// The outcome of a call of this many bytes, to which the engine replies with these without reading.
    async fn replied(
        line: &mut Line,
        there: &mut UnixStream,
        call_bytes: usize,
        reply: &[u8],
    ) -> Result<usize, String> {
        let calls = [vec![vec![b'x'; call_bytes]]];
        let deadline = Instant::now() + Duration::from_secs(60);
        let writing = async {
            there.write_all(reply).await.expect("the line is open");
            std::future::pending::<()>().await;
        };
        let replies = tokio::select! {
            replies = line.call(&calls, deadline) => replies,
            () = writing => unreachable!("it does not end"),
        };
        replies.map(|replies| replies.list.len()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn each_call_has_one_reply() {
        let (mut line, mut there) = line();
        assert_eq!(replied(&mut line, &mut there, 1, b"+OK\r\n").await, Ok(1));
        assert_eq!(replied(&mut line, &mut there, 1, b">1\r\n:1\r\n:2\r\n").await, Ok(1), "messages are none");
        let surplus = replied(&mut line, &mut there, 1, b"+OK\r\n+OK\r\n").await;
        assert_eq!(surplus, Err(LineError::Surplus.to_string()));
    }

    #[tokio::test]
    async fn a_reply_that_is_refused_is_not_waited_for() {
        let (mut line, mut there) = line();
        line.most_bytes = READ_BYTES;
        // More than a socket holds.
        let late = replied(&mut line, &mut there, 8 << 20, &[b'+'; 2 * READ_BYTES]).await;
        assert_eq!(late, Err(LineError::TooLong(READ_BYTES).to_string()));
    }

    #[tokio::test]
    async fn the_memory_of_short_values_counts() {
        let short = b"$1\r\n\xff\r\n";
        let most = REPLIES_VALUES_MAX_BYTES / REPLY_OBJECT_BYTES;
        for (count, wanted) in [(most / 2, Ok(1)), (2 * most, Err(LineError::TooMany.to_string()))] {
            let (mut line, mut there) = line();
            let reply = [format!("*{count}\r\n").as_bytes(), &short.repeat(count)].concat();
            assert_eq!(replied(&mut line, &mut there, 1, &reply).await, wanted);
        }
    }

    #[tokio::test]
    async fn short_replies_need_no_room() {
        let (mut line, mut there) = line();
        let mut all = line.share.room();
        let mut bytes = 0;
        while all.grow(bytes + READ_BYTES).is_ok() {
            bytes += READ_BYTES;
        }
        assert_eq!(replied(&mut line, &mut there, 1, b"+OK\r\n").await, Ok(1));
        let long = [b"+", "x".repeat(2 * ROOM_FREE_BYTES).as_bytes(), b"\r\n"].concat();
        assert_eq!(replied(&mut line, &mut there, 1, &long).await, Err(LineError::Crowded.to_string()));
    }
}
