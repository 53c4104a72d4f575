//! A connection to the engine, as a client makes it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use redis_protocol::resp2::encode::extend_encode_borrowed;
use redis_protocol::resp2::types::BorrowedFrame;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::reply::Decoder;
use crate::net::inside::Inside;

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
    #[error("no reply within {0} s")]
    Late(u64),
    /// There is more than is wanted.
    #[error("the replies have more than {0} bytes")]
    TooLong(usize),
    /// The engine is not to be reached.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// See the file's header.
pub(super) struct Line {
    stream: UnixStream,
    decoder: Decoder,
}

impl Line {
    /// Connects, for a person at this address: as a newcomer, or with the rights of the client `like`.
    pub(super) fn open(inside: &Inside, address: SocketAddr, like: Option<u64>) -> io::Result<Line> {
        let stream = UnixStream::from_std(inside.connect(address, like)?)?;
        Ok(Line { stream, decoder: Decoder::default() })
    }

    /// Makes calls one after the other and returns their replies, at most `most_bytes`, within `patience`. After an
    /// error the connection is of no use.
    pub(super) async fn call(
        &mut self,
        calls: &[Words],
        most_bytes: usize,
        patience: Duration,
    ) -> Result<Vec<Value>, LineError> {
        let late = |_| LineError::Late(patience.as_secs());
        timeout(patience, self.exchange(calls, most_bytes)).await.map_err(late)?
    }

    /// Says hello in RESP3, and signs in if `auth` has a user and a password. Returns the reply.
    pub(super) async fn hello(&mut self, auth: Option<(&[u8], &[u8])>, patience: Duration) -> Result<Value, LineError> {
        let mut words = vec![b"HELLO".to_vec(), b"3".to_vec()];
        if let Some((user, password)) = auth {
            words.extend([b"AUTH".to_vec(), user.to_vec(), password.to_vec()]);
        }
        words.extend([b"SETNAME".to_vec(), NAME.to_vec()]);
        let mut replies = self.call(&[words], READ_BYTES, patience).await?;
        replies.pop().ok_or(LineError::Closed)
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

    async fn exchange(&mut self, calls: &[Words], most_bytes: usize) -> Result<Vec<Value>, LineError> {
        let mut request = BytesMut::new();
        calls.iter().for_each(|words| put(&mut request, words));
        let Line { stream, decoder } = self;
        // The engine stops reading from a client that does not read, so both must go on at once.
        let (sent, replies) = tokio::join!(send(stream, &request), receive(stream, decoder, calls.len(), most_bytes));
        // A refusal may have come before everything was sent.
        let replies = replies?;
        sent.map(|()| replies).map_err(LineError::Io)
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
) -> Result<Vec<Value>, LineError> {
    let mut replies = Vec::new();
    let (mut chunk, mut received) = (vec![0; READ_BYTES], 0);
    while replies.len() < count {
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
                replies.push(reply);
            }
        }
    }
    Ok(replies)
}
