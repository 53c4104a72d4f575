//! Connections to the engine with the rights of a session.

use super::super::limits::{CALL_PATIENCE, REPLIES_MAX_BYTES};
use super::line::{Line, LineError};
use super::reply::error_of;
use super::sessions::Session;
use crate::net::inside::Inside;

/// Why calls were not made.
pub(super) enum CallError {
    /// The session is over.
    Over,
    /// The engine does not serve it now.
    Refused(String),
    Line(LineError),
}

impl From<LineError> for CallError {
    fn from(error: LineError) -> CallError {
        CallError::Line(error)
    }
}

/// Connects to the engine with the rights of a session, in a database.
pub(super) async fn connect(inside: &Inside, session: &Session, db: u64) -> Result<Line, CallError> {
    let mut line = Line::open(inside, session.address, Some(session.client)).map_err(LineError::Io)?;
    let hello = line.hello(None, CALL_PATIENCE).await?;
    if let Some(text) = error_of(&hello) {
        // The anchor is gone, or its user is.
        if text.starts_with("NOAUTH") {
            session.end();
            return Err(CallError::Over);
        }
        return Err(CallError::Refused(text.to_owned()));
    }
    if db != 0 {
        let select = vec![b"SELECT".to_vec(), db.to_string().into_bytes()];
        let selected = line.call(&[select], REPLIES_MAX_BYTES, CALL_PATIENCE).await?;
        if let Some(text) = selected.first().and_then(error_of) {
            return Err(CallError::Refused(text.to_owned()));
        }
    }
    Ok(line)
}
