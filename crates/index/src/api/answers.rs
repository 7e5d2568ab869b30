//! How an answer and a refusal read: JSON, with `error` and `code` in a refusal.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::IndexError;

/// An answer, or why there is none.
pub(super) type Answer = Result<Response, Refusal>;

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    code: &'static str,
    error: String,
}

impl Refusal {
    pub(super) fn bad(error: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code: "bad_request", error: error.into() }
    }

    pub(super) fn not_found(error: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, code: "not_found", error: error.into() }
    }

    /// Below what the index keeps, or in a gap of it: it was there, and is not here.
    pub(super) fn gone(error: impl Into<String>) -> Self {
        Self { status: StatusCode::GONE, code: "not_indexed", error: error.into() }
    }
}

impl From<IndexError> for Refusal {
    fn from(error: IndexError) -> Self {
        // What is broken is for the log: it may name files.
        tracing::error!(%error, "the index cannot be read");
        let error = "the index cannot be read at the moment; the worker's log says why".into();
        Self { status: StatusCode::SERVICE_UNAVAILABLE, code: "index", error }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        json(self.status, &serde_json::json!({ "error": self.error, "code": self.code }))
    }
}

/// A page of a list, and the key under which it goes on.
#[derive(Debug, Serialize)]
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    /// What to send as `before` (or `from`) for the next page; none behind the last one.
    pub(super) next: Option<String>,
}

pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    let (status, text) = match serde_json::to_string_pretty(value) {
        Ok(text) => (status, text + "\n"),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            let sorry = "{\"error\":\"broken\",\"code\":\"internal\"}\n";
            (StatusCode::INTERNAL_SERVER_ERROR, sorry.to_owned())
        }
    };
    body(status, "application/json", text)
}

pub(super) fn body(status: StatusCode, kind: &'static str, text: String) -> Response {
    let mut response = (status, text).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}
