//! `tidegate ping`: checks whether a server responds. Containers and service managers read the exit code.

use std::thread;
use std::time::{Duration, Instant};

use redis_protocol::resp2::types::BytesFrame;

use crate::client::{Address, ClientError, Connection, TIDEGATE_AUTH};

/// Time limit of connecting, of writing and of reading.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// [Pings](ping) until the server answers, for at most `patience`. A server that is being started is waited for, and
/// one that loads its data; other errors end the wait.
pub fn wait(server: Address<'_>, patience: Duration) -> Result<(), ClientError> {
    let begun = Instant::now();
    loop {
        match ping(server) {
            Err(error) if error.may_pass() && begun.elapsed() < patience => thread::sleep(PAUSE),
            done => return done,
        }
    }
}

/// Connects to a server, authenticates if the address carries a password, and sends PING. Returns Ok if the reply is
/// PONG.
pub fn ping(server: Address<'_>) -> Result<(), ClientError> {
    let mut connection = Connection::open(server, TIDEGATE_AUTH, TIMEOUT)?;
    match connection.call(&[b"PING"])? {
        BytesFrame::SimpleString(text) if *text == *b"PONG" => Ok(()),
        _ => Err(connection.not_the_protocol()),
    }
}
