//! The bodies of requests: JSON of a bounded length.

use axum::body::to_bytes;
use axum::extract::Request;
use serde_json::Value;

use super::guard::Refused;

/// Reads the body of a request, once it is known who sends it.
pub(super) async fn json_of(request: Request, most_bytes: usize) -> Result<Value, Refused> {
    let bytes = to_bytes(request.into_body(), most_bytes).await.map_err(|_| Refused::TooLarge)?;
    serde_json::from_slice(&bytes).map_err(|_| Refused::Body)
}
