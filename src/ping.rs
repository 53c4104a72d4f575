//! `tidegate ping`: asks a server whether it answers. For containers and service managers, who read the exit code.
//!
//! A client of its own on the `redis-protocol` crate, so that a health check shares no code with the server it judges.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::encode::encode;
use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};
use url::Url;

/// How long connecting, writing and reading may each take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Longest reply that is still taken for one.
const REPLY_MAX_BYTES: usize = 64 * 1024;

/// Why the server does not count as alive.
#[derive(Debug, thiserror::Error)]
pub enum PingError {
    /// The address can't be read.
    #[error("{0}: want redis://[[USER]:PASSWORD@]HOST[:PORT] or unix:///PATH")]
    Url(String),
    /// Nothing answers there.
    #[error("no answer from {0}: {1}")]
    Io(String, io::Error),
    /// What came back is not the protocol.
    #[error("{0} answered something that is not the Redis protocol")]
    Protocol(String),
    /// The server refused.
    #[error("{0} answered: {1}")]
    Refused(String, String),
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// Connects to `url`, authenticates if it carries a password, and sends PING. Ok when the answer is PONG.
pub fn ping(url: &str) -> Result<(), PingError> {
    let parsed = Url::parse(url).map_err(|error| PingError::Url(error.to_string()))?;
    let failed = |error| PingError::Io(url.to_owned(), error);
    let mut stream = connect(&parsed)?.map_err(failed)?;
    if let Some(password) = parsed.password() {
        let decode = |text: &str| percent_decode(text);
        let mut auth = vec!["AUTH".to_owned(), decode(password)];
        if !parsed.username().is_empty() {
            auth.insert(1, decode(parsed.username()));
        }
        expect(url, &mut *stream, &auth, "OK")?;
    }
    expect(url, &mut *stream, &["PING".to_owned()], "PONG")
}

fn connect(url: &Url) -> Result<io::Result<Box<dyn Stream>>, PingError> {
    match url.scheme() {
        "unix" => Ok(unix(url.path())),
        "redis" => {
            let host = url.host_str().unwrap_or("127.0.0.1");
            Ok(tcp(host.trim_matches(['[', ']']), url.port().unwrap_or(6379)))
        }
        other => Err(PingError::Url(format!("the scheme {other} is not known"))),
    }
}

fn unix(path: &str) -> io::Result<Box<dyn Stream>> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(Box::new(stream))
}

fn tcp(host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
    let mut last = io::Error::other("the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(Box::new(stream));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn expect(url: &str, stream: &mut dyn Stream, command: &[String], wanted: &str) -> Result<(), PingError> {
    let failed = |error| PingError::Io(url.to_owned(), error);
    let words = command.iter().map(|word| OwnedFrame::BulkString(word.clone().into_bytes())).collect();
    let request = OwnedFrame::Array(words);
    let mut bytes = vec![0; request.encode_len(false)];
    let len = encode(&mut bytes, &request, false).map_err(|_| PingError::Protocol(url.to_owned()))?;
    stream.write_all(&bytes[..len]).map_err(failed)?;
    match read_reply(url, stream)? {
        OwnedFrame::SimpleString(text) if text == wanted.as_bytes() => Ok(()),
        OwnedFrame::Error(text) => Err(PingError::Refused(url.to_owned(), text)),
        _ => Err(PingError::Protocol(url.to_owned())),
    }
}

fn read_reply(url: &str, stream: &mut dyn Stream) -> Result<OwnedFrame, PingError> {
    let mut seen = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        let n = stream.read(&mut chunk).map_err(|error| PingError::Io(url.to_owned(), error))?;
        seen.extend_from_slice(&chunk[..n]);
        match decode(&seen) {
            Ok(Some((frame, _))) => return Ok(frame),
            Ok(None) if n > 0 && seen.len() < REPLY_MAX_BYTES => {}
            Ok(None) if n == 0 => return Err(PingError::Io(url.to_owned(), io::ErrorKind::UnexpectedEof.into())),
            _ => return Err(PingError::Protocol(url.to_owned())),
        }
    }
}

/// `url` keeps user and password as they were written; `%40` is `@`.
fn percent_decode(text: &str) -> String {
    let query = text.replace('+', "%2B");
    url::form_urlencoded::parse(query.as_bytes()).next().map_or_else(String::new, |(key, _)| key.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_decoded() {
        assert_eq!(percent_decode("p%40ss+word%21"), "p@ss+word!");
    }

    #[test]
    fn bad_addresses_are_told() {
        for url in ["", "127.0.0.1:6379", "http://localhost"] {
            assert!(matches!(ping(url), Err(PingError::Url(_))), "{url}");
        }
    }
}
