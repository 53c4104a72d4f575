//! Reasons for refusing a command, and the text that the client reads. The texts are those of Redis, because programs
//! match on them.

use std::borrow::Cow;

use crate::keyspace::WrongType;

/// Beginning of EXEC's error after a full rollback. It is followed by the number of the failed command, counted from 1,
/// a colon, a blank, and that command's error.
pub(crate) const ROLLED_BACK: &str = "EXECABORT Transaction rolled back because of command ";

/// Reasons why a command failed. `Display` gives the error reply: a code, a blank, a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The arguments do not have the form that the command requires.
    #[error("ERR syntax error")]
    Syntax,
    /// The key holds another type.
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    /// An argument or a stored value should be a 64-bit integer.
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    /// An argument or a stored value should be a double.
    #[error("ERR value is not a valid float")]
    NotFloat,
    /// An argument should be positive.
    #[error("ERR value is out of range, must be positive")]
    NotPositive,
    /// A number is outside the range that the command accepts.
    #[error("ERR value is out of range")]
    OutOfRange,
    /// An index is outside the value.
    #[error("ERR index out of range")]
    IndexOutOfRange,
    /// A required key does not exist.
    #[error("ERR no such key")]
    NoSuchKey,
    /// The result of an increment does not fit 64 bits.
    #[error("ERR increment or decrement would overflow")]
    Overflow,
    /// A string would grow beyond `proto-max-bulk-len`.
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    StringTooLong,
    /// A reply would be larger than the largest string; see `REPLY_MAX_BYTES`.
    #[error("ERR reply exceeds maximum allowed size (proto-max-bulk-len)")]
    ReplyTooLong,
    /// An invalid TTL.
    #[error("ERR invalid expire time in '{0}' command")]
    InvalidExpire(Cow<'static, str>),
    /// The number of arguments is wrong.
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(Cow<'static, str>),
    /// The number of arguments of one of this server's own commands is wrong. The text says what is missing.
    #[error("{0}")]
    OwnArity(Cow<'static, str>),
    /// A timeout argument is not a number.
    #[error("ERR timeout is not a float or out of range")]
    TimeoutNotFloat,
    /// A timeout argument is negative.
    #[error("ERR timeout is negative")]
    TimeoutNegative,
    /// Ranges or counts that exclude each other, and other one-off texts.
    #[error("{0}")]
    Text(Cow<'static, str>),
}

impl Error {
    /// Makes an error with a fixed text.
    pub const fn text(text: &'static str) -> Error {
        Error::Text(Cow::Borrowed(text))
    }

    /// Makes an error with a computed text. Text sent by a client may end with newlines, which are cut off.
    pub fn owned(mut text: String) -> Error {
        text.truncate(text.trim_end_matches(['\r', '\n']).len());
        Error::Text(Cow::Owned(text))
    }

    /// Reads an error from client bytes, replacing invalid UTF-8.
    pub fn lossy(text: &[u8]) -> Error {
        Error::owned(String::from_utf8_lossy(text).into_owned())
    }
}

impl From<WrongType> for Error {
    fn from(_: WrongType) -> Error {
        Error::WrongType
    }
}

/// Formats at most `max` client bytes for an error text, replacing invalid UTF-8.
pub(crate) fn excerpt(bytes: &[u8], max: usize) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(max)]).into_owned()
}
