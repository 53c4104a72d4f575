//! Why a change does not fit the keyspace.

/// The key holds a value of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

/// Why a recorded change can't be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// It names a database that there isn't.
    #[error("no such database: start with as many `databases` as before")]
    NoDatabase,
    /// It changes a key that there isn't.
    #[error("no such key")]
    NoKey,
    /// The key holds a value of another type.
    #[error("the key holds a value of another type")]
    WrongType,
    /// It changes or removes what there isn't: an element, a group, a script.
    #[error("what it changes or removes is not there")]
    Absent,
    /// It creates what there is already.
    #[error("what it creates is there already")]
    Exists,
    /// It removed the last element and did not say so, or the other way about.
    #[error("it empties the key where it says that it doesn't, or doesn't where it says so")]
    Emptied,
    /// Its bytes make no sense.
    #[error("its bytes make no sense")]
    BadBytes,
    /// A script or library that does not load.
    #[error("the script or library does not load")]
    Refused,
    /// What repeats it is not responsible for such effects.
    #[error("it changes something else")]
    Elsewhere,
}

impl From<WrongType> for Misfit {
    fn from(_: WrongType) -> Misfit {
        Misfit::WrongType
    }
}
