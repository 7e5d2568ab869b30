//! How a refusal reads: a status code, and a JSON object that says `error`, `code` and what else
//! helps.

use std::fmt::Display;

use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use secateur_sidecar::SidecarError;
use serde_json::{Map, Value, json};

use super::answers;
use crate::service::ApiError;

/// Why there is no answer, in the words of HTTP.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    code: &'static str,
    error: String,
    details: Map<String, Value>,
    /// Whether the same request may be answered a little later.
    is_retryable: bool,
}

impl Refusal {
    fn new(status: StatusCode, code: &'static str, error: impl Into<String>) -> Self {
        let is_retryable = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::INSUFFICIENT_STORAGE
        );
        Self { status, code, error: error.into(), details: Map::new(), is_retryable }
    }

    /// One that says to ask again later.
    fn for_now(self) -> Self {
        Self { is_retryable: true, ..self }
    }

    fn with(mut self, name: &str, value: Value) -> Self {
        self.details.insert(name.into(), value);
        self
    }

    /// The request is not one.
    pub(super) fn bad(error: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", error.to_string())
    }

    /// There is no such route.
    pub(super) fn no_route() -> Self {
        let error =
            "there is nothing here; /openapi.json of a node or an index lists what there is";
        Self::new(StatusCode::NOT_FOUND, "no_route", error)
    }

    /// The route is not for this method.
    pub(super) fn no_method() -> Self {
        let error = "the method is not allowed here; the `allow` header names those that are";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "no_method", error)
    }

    /// The body is over the limit.
    pub(super) fn too_large(limit: usize) -> Self {
        let error = format!("the body is larger than {limit} bytes; nothing was done");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", error).with("limit", json!(limit))
    }

    /// The body does not come.
    pub(super) fn slow_body() -> Self {
        let error = "the body did not arrive in time; nothing was done";
        Self::new(StatusCode::REQUEST_TIMEOUT, "slow_body", error)
    }

    /// The body is of another kind.
    pub(super) fn not_json() -> Self {
        let error = "the body must be JSON: send it with `content-type: application/json`";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", error)
    }

    /// The client asks too often.
    pub(super) fn too_often() -> Self {
        let error = "too many requests from this address; try again later";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_often", error)
    }

    /// The request was sent to somebody else.
    pub(super) fn wrong_host(host: &str) -> Self {
        let shown: String = host.chars().take(100).collect();
        let error = format!(
            "this node is not `{shown}`: call it by its address or as localhost, or configure \
             tokens (auth.read_tokens), with which any name will do"
        );
        Self::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", error)
    }

    /// What it says, for interfaces that say it in a shape of their own.
    pub(super) fn into_parts(self) -> (StatusCode, String, Map<String, Value>) {
        (self.status, self.error, self.details)
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        let say = |status, code| Self::new(status, code, error.to_string());
        match &error {
            ApiError::Pruned { pruned_before_block, locator } => say(StatusCode::GONE, "pruned")
                .with("pruned_before_block", json!(pruned_before_block))
                .with("first_available", json!(pruned_before_block.saturating_add(1)))
                .with("locator", json!(locator)),
            ApiError::Pending => say(StatusCode::ACCEPTED, "pending"),
            ApiError::NotFound { searched_from } => {
                say(StatusCode::NOT_FOUND, "not_found").with("searched_from", json!(searched_from))
            }
            ApiError::InvalidCursor(_) => say(StatusCode::BAD_REQUEST, "invalid_cursor"),
            ApiError::BadRequest(_) => say(StatusCode::BAD_REQUEST, "bad_request"),
            ApiError::Limit(_) => say(StatusCode::BAD_REQUEST, "limit"),
            ApiError::Refused(_) => say(StatusCode::CONFLICT, "refused"),
            ApiError::Unauthenticated | ApiError::UnknownToken => {
                say(StatusCode::UNAUTHORIZED, "unauthenticated")
            }
            ApiError::Forbidden => say(StatusCode::FORBIDDEN, "forbidden"),
            ApiError::Archive(_) => say(StatusCode::BAD_GATEWAY, "archive"),
            ApiError::ArchiveSilent { .. } | ApiError::ArchiveBusy { .. } => {
                say(StatusCode::BAD_GATEWAY, "archive").for_now()
            }
            ApiError::NoBlobs => say(StatusCode::NOT_FOUND, "no_blobs"),
            ApiError::Blobs(error) => of_blobs(error),
            ApiError::Overloaded => say(StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
            ApiError::Emergency => say(StatusCode::SERVICE_UNAVAILABLE, "emergency"),
            ApiError::Timeout | ApiError::MayBeDone => {
                say(StatusCode::SERVICE_UNAVAILABLE, "timeout")
            }
            ApiError::DiskFull(_) => say(StatusCode::INSUFFICIENT_STORAGE, "disk_full"),
            // What is broken is for the log: it may name files and addresses.
            ApiError::Internal(cause) => {
                tracing::error!(%cause, "an HTTP request failed");
                let error = "something in the node is broken; its log says what";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error)
            }
        }
    }
}

/// The status of what blobs say of themselves.
pub(super) fn blob_status(error: &SidecarError) -> StatusCode {
    match error {
        SidecarError::Unknown(_)
        | SidecarError::UnknownRound { .. }
        | SidecarError::NoSuchBlob { .. } => StatusCode::NOT_FOUND,
        SidecarError::BlobsPruned { .. } => StatusCode::GONE,
        SidecarError::NoCopy { .. } | SidecarError::Provider(_) => StatusCode::BAD_GATEWAY,
        SidecarError::Missing { .. } | SidecarError::Task { .. } | SidecarError::Key { .. } => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        _ => StatusCode::CONFLICT,
    }
}

fn of_blobs(error: &SidecarError) -> Refusal {
    let refusal = Refusal::new(blob_status(error), error.label(), error.to_string());
    match error {
        SidecarError::BlobsPruned { height, blob_count, locators, .. } => refusal
            .with("height", json!(height))
            .with("blob_count", json!(blob_count))
            .with("locators", json!(locators)),
        // In the same shape: a list for each blob that is spoken of, which here is one.
        SidecarError::NoCopy { height, index, locators } => refusal
            .with("height", json!(height))
            .with("index", json!(index))
            .with("locators", json!([locators])),
        _ => refusal,
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut body = Map::new();
        body.insert("error".into(), self.error.into());
        body.insert("code".into(), self.code.into());
        body.extend(self.details);
        let mut response = answers::json_with(self.status, &Value::Object(body));
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"secateur\""));
        }
        if self.is_retryable {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use secateur_core::Locator;

    use super::*;

    async fn read(error: ApiError) -> (u16, Value, Response) {
        let response = Refusal::from(error).into_response();
        let (parts, body) = response.into_parts();
        let bytes = axum::body::to_bytes(body, 10_000).await.unwrap();
        let value = serde_json::from_slice(&bytes).unwrap();
        (parts.status.as_u16(), value, Response::from_parts(parts, axum::body::Body::empty()))
    }

    #[tokio::test]
    async fn every_error_has_its_status_and_its_code() {
        let text = || "because".to_owned();
        for (error, status, code) in [
            (ApiError::Pending, 202, "pending"),
            (ApiError::NotFound { searched_from: Some(3) }, 404, "not_found"),
            (ApiError::InvalidCursor(text()), 400, "invalid_cursor"),
            (ApiError::BadRequest(text()), 400, "bad_request"),
            (ApiError::Limit(text()), 400, "limit"),
            (ApiError::Refused(text()), 409, "refused"),
            (ApiError::Unauthenticated, 401, "unauthenticated"),
            (ApiError::UnknownToken, 401, "unauthenticated"),
            (ApiError::Forbidden, 403, "forbidden"),
            (ApiError::Overloaded, 503, "overloaded"),
            (ApiError::Emergency, 503, "emergency"),
            (ApiError::Timeout, 503, "timeout"),
            (ApiError::DiskFull(text()), 507, "disk_full"),
            (ApiError::Internal(text()), 500, "internal"),
            (ApiError::Archive(text()), 502, "archive"),
            (ApiError::ArchiveBusy { provider: text(), asking: 4 }, 502, "archive"),
            (
                ApiError::ArchiveSilent { provider: text(), what: text(), asked: true },
                502,
                "archive",
            ),
        ] {
            let says_so = error.to_string().ends_with("ask again later");
            let retryable = matches!(status, 429 | 503 | 507) || says_so;
            let (found, body, response) = read(error).await;
            assert_eq!((found, &body["code"]), (status, &json!(code)));
            assert_eq!(response.headers().contains_key(RETRY_AFTER), retryable, "{code}");
            assert_eq!(response.headers().contains_key(WWW_AUTHENTICATE), status == 401, "{code}");
        }
    }

    #[tokio::test]
    async fn what_was_pruned_says_from_where_on_there_is_more_and_where_it_went() {
        let locator = Some(Locator { provider: "s3".into(), key: "a/b".into() });
        let (status, body, _) = read(ApiError::Pruned { pruned_before_block: 7, locator }).await;
        assert_eq!(status, 410);
        assert_eq!(
            (&body["pruned_before_block"], &body["first_available"]),
            (&json!(7), &json!(8))
        );
        assert_eq!(body["locator"], json!({"provider": "s3", "key": "a/b"}));
    }

    #[tokio::test]
    async fn what_is_broken_inside_is_not_told_outside() {
        let (_, body, _) = read(ApiError::Internal("/secret/path is damaged".into())).await;
        assert!(!body.to_string().contains("secret"), "{body}");
    }
}
