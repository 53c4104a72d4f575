//! Responses in JSON.

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

/// The header that says that it is JSON.
pub(super) const KIND: [(HeaderName, &str); 1] = [(CONTENT_TYPE, "application/json")];

/// A response.
pub(super) fn answer(status: StatusCode, value: &Value) -> Response {
    (status, KIND, value.to_string()).into_response()
}

/// A response that refuses a request: a word for the page, which has texts in several languages, and a text.
pub(super) fn refused(status: StatusCode, code: &str, text: &str) -> Response {
    answer(status, &json!({ "refused": code, "text": text }))
}

/// The engine can't answer now, and says why.
pub(super) fn not_now(text: &str) -> Response {
    refused(StatusCode::SERVICE_UNAVAILABLE, "not-now", text)
}
