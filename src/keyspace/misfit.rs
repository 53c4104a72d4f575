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
    #[error("what it changes or removes is not there")]
    Absent,
    /// The change creates something that already exists.
    #[error("what it creates is there already")]
    Exists,
    /// The change removed the last element without saying so, or the reverse.
    #[error("it empties the key where it says that it doesn't, or doesn't where it says so")]
    Emptied,
    /// The bytes cannot be decoded.
    #[error("its bytes make no sense")]
    BadBytes,
    /// The script or library does not load.
    #[error("the script or library does not load")]
    Refused,
    /// The effect belongs to another component.
    #[error("it changes something else")]
    Elsewhere,
}

impl From<WrongType> for Misfit {
    fn from(_: WrongType) -> Misfit {
        Misfit::WrongType
    }
}
