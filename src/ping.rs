//! `tidegate ping`: asks a server whether it answers. For containers and service managers, who read the exit code.

use std::time::Duration;

use redis_protocol::resp2::types::BytesFrame;

use crate::client::{Address, ClientError, Connection, TIDEGATE_AUTH};

/// How long connecting, writing and reading may each take.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Connects to a server, authenticates if the address carries a password, and sends PING. Ok when the answer is PONG.
pub fn ping(server: Address<'_>) -> Result<(), ClientError> {
    let mut connection = Connection::open(server, TIDEGATE_AUTH, TIMEOUT)?;
    match connection.call(&[b"PING"])? {
        BytesFrame::SimpleString(text) if *text == *b"PONG" => Ok(()),
        _ => Err(connection.not_the_protocol()),
    }
}
