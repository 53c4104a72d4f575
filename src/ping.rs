//! `tidegate ping`: checks whether a server responds. Containers and service managers read the exit code.

use std::time::Duration;

use redis_protocol::resp2::types::BytesFrame;

use crate::client::{Address, ClientError, Connection, TIDEGATE_AUTH};

/// Time limit of connecting, of writing and of reading.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Connects to a server, authenticates if the address carries a password, and sends PING. Returns Ok if the reply is
/// PONG.
pub fn ping(server: Address<'_>) -> Result<(), ClientError> {
    let mut connection = Connection::open(server, TIDEGATE_AUTH, TIMEOUT)?;
    match connection.call(&[b"PING"])? {
        BytesFrame::SimpleString(text) if *text == *b"PONG" => Ok(()),
        _ => Err(connection.not_the_protocol()),
    }
}
