//! Reasons why a change does not fit the keyspace.

/// The key holds a value of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

/// Why a recorded change cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The change names a database that does not exist.
    #[error("no such database: start with as many `databases` as before")]
    NoDatabase,
    /// The change needs a key that does not exist.
    #[error("no such key")]
    NoKey,
    /// The key holds a value of another type.
    #[error("the key holds a value of another type")]
    WrongType,
    /// The change needs an element, group or script that does not exist.
    #[error("the element, group or script that it changes does not exist")]
    Absent,
    /// The change creates something that already exists.
    #[error("the key, element or group that it creates already exists")]
    Exists,
    /// The change removed the last element without saying so, or the reverse.
    #[error("it empties the key without saying so, or says so without emptying it")]
    Emptied,
    /// The bytes cannot be decoded.
    #[error("its bytes cannot be decoded")]
    BadBytes,
    /// The script or library does not load.
    #[error("the script or library does not load")]
    Refused,
    /// The effect belongs to another component.
    #[error("another component is responsible for it")]
    Elsewhere,
}

impl From<WrongType> for Misfit {
    fn from(_: WrongType) -> Misfit {
        Misfit::WrongType
    }
}
