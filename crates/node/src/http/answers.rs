//! What answers are made of.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;

pub(super) const JSON: &str = "application/json";
pub(super) const BYTES: &str = "application/octet-stream";

/// A body of some kind.
pub(super) fn body(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A value, to the byte as the commands print it with `--json`.
pub(super) fn json<T: Serialize>(value: &T) -> Response {
    json_with(StatusCode::OK, value)
}

/// A value with another status.
pub(super) fn json_with<T: Serialize>(status: StatusCode, value: &T) -> Response {
    match serde_json::to_string_pretty(value) {
        Ok(text) => body(status, JSON, text + "\n"),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            let sorry = Bytes::from_static(b"{\"error\":\"broken\",\"code\":\"internal\"}\n");
            body(StatusCode::INTERNAL_SERVER_ERROR, JSON, sorry)
        }
    }
}

/// What every answer says to browsers, unless the answer itself says something else.
pub(super) fn protect(response: &mut Response) {
    let headers = response.headers_mut();
    let named = |name, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
    for (name, value) in [
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        named("x-content-type-options", "nosniff"),
        named("x-frame-options", "DENY"),
        named("referrer-policy", "no-referrer"),
        named("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
        named("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.entry(name).or_insert(value);
    }
}
