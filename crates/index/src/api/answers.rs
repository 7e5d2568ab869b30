//! How an answer and a refusal read: JSON, with `error` and `code` in a refusal.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use secateur_core::Height;
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
    /// Which blocks an answer could be given of.
    covered: Option<Vec<Span>>,
}

impl Refusal {
    fn new(status: StatusCode, code: &'static str, error: impl Into<String>) -> Self {
        Self { status, code, error: error.into(), covered: None }
    }

    pub(super) fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", error)
    }

    pub(super) fn not_found(error: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", error)
    }

    /// The index does not say: below what it keeps, in a gap of it, or of logs that it does not keep.
    pub(super) fn gone(error: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "not_indexed", error)
    }

    /// The index does not answer.
    pub(super) fn unavailable(error: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "index", error)
    }

    /// Names what is covered.
    pub(super) fn covering(self, covered: Vec<Span>) -> Self {
        Self { covered: Some(covered), ..self }
    }
}

/// Blocks, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Span {
    pub(super) from_block: Height,
    pub(super) to_block: Height,
}

impl From<IndexError> for Refusal {
    fn from(error: IndexError) -> Self {
        // What is broken is for the log: it may name files.
        tracing::error!(%error, "the index cannot be read");
        Self::unavailable("the index cannot be read at the moment; the worker's log says why")
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { status, code, error, covered } = self;
        json(status, &serde_json::json!({ "error": error, "code": code, "covered": covered }))
    }
}

/// A page of a list, and the key under which it goes on.
#[derive(Debug, Serialize)]
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    /// What to send as `before` (or `from`) for the next page; none behind the last one.
    pub(super) next: Option<String>,
    /// Of which blocks `items` are all there is; none for a list of something else.
    pub(super) covered: Option<Span>,
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
