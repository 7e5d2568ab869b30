//! The JSON-RPC 2.0 envelope: what a body holds, and how answers are put together.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::errors::{INVALID_REQUEST, PARSE, RpcError};
use super::params::first;

/// What one body holds.
pub(super) enum Body<'a> {
    Single(Frame<'a>),
    Batch(Vec<Frame<'a>>),
    /// A batch of more calls than are answered at once; the id is that of its first call.
    TooLarge {
        id: &'a str,
    },
}

/// One call, taken out of its envelope.
#[derive(Debug)]
pub(super) enum Frame<'a> {
    /// A call that waits for an answer; its id is echoed as it came.
    Call { id: &'a str, method: String, params: Option<&'a RawValue> },
    /// A call that nobody waits for. Every method only reads, so there is nothing to do.
    Notification,
    /// Something that is no call; the id is `null` where it has none.
    Invalid { id: &'a str, error: RpcError },
}

const NULL: &str = "null";

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow, default, deserialize_with = "given")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    params: Option<&'a RawValue>,
}

/// Tells a `null` from nothing.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// Takes a body apart. An error is about the body as a whole.
pub(super) fn open(body: &[u8], most_calls: usize) -> Result<Body<'_>, RpcError> {
    let not_json = |reason: String| RpcError::new(PARSE, format!("not JSON: {reason}"));
    let text = std::str::from_utf8(body).map_err(|error| not_json(error.to_string()))?;
    let text = text.trim_start_matches([' ', '\t', '\n', '\r']);
    if !text.starts_with('[') {
        let whole: &RawValue =
            serde_json::from_str(text).map_err(|error| not_json(error.to_string()))?;
        return Ok(Body::Single(frame(whole)));
    }
    let (calls, more) = first(text, most_calls).map_err(|error| not_json(error.to_string()))?;
    if calls.is_empty() {
        return Err(RpcError::new(INVALID_REQUEST, "an empty batch asks for nothing"));
    }
    let frames: Vec<Frame<'_>> = calls.into_iter().map(frame).collect();
    if !more {
        return Ok(Body::Batch(frames));
    }
    let id = frames.iter().find_map(|frame| match frame {
        Frame::Call { id, .. } => Some(*id),
        Frame::Notification | Frame::Invalid { .. } => None,
    });
    Ok(Body::TooLarge { id: id.unwrap_or(NULL) })
}

fn frame(raw: &RawValue) -> Frame<'_> {
    let invalid = |id, reason: &str| {
        let error = RpcError::new(INVALID_REQUEST, format!("invalid request: {reason}"));
        Frame::Invalid { id, error }
    };
    // A struct would be read from an array as well.
    if !raw.get().starts_with('{') {
        return invalid(NULL, "a call is an object");
    }
    let Ok(fields) = serde_json::from_str::<Fields<'_>>(raw.get()) else {
        return invalid(NULL, "a member stands twice");
    };
    let id = match fields.id.map(RawValue::get) {
        None => None,
        Some(id) if id == NULL || id.starts_with(|c: char| matches!(c, '"' | '-' | '0'..='9')) => {
            Some(id)
        }
        Some(_) => return invalid(NULL, "an id is a number, a string or null"),
    };
    let text = |raw: Option<&RawValue>| serde_json::from_str::<String>(raw?.get()).ok();
    if text(fields.jsonrpc).as_deref() != Some("2.0") {
        return invalid(id.unwrap_or(NULL), "`jsonrpc` must be \"2.0\"");
    }
    match (text(fields.method), id) {
        (None, id) => invalid(id.unwrap_or(NULL), "`method` must be a string"),
        (Some(_), None) => Frame::Notification,
        (Some(method), Some(id)) => Frame::Call { id, method, params: fields.params },
    }
}

/// Writes one response; a result is JSON already.
pub(super) fn write(out: &mut Vec<u8>, id: &str, outcome: &Result<Vec<u8>, RpcError>) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.as_bytes());
    match outcome {
        Ok(result) => {
            out.extend_from_slice(br#","result":"#);
            out.extend_from_slice(result);
        }
        Err(error) => {
            out.extend_from_slice(br#","error":"#);
            // Numbers and strings are always written.
            serde_json::to_writer(&mut *out, error).unwrap_or_default();
        }
    }
    out.push(b'}');
}

/// A response that belongs to no call.
pub(super) fn refusal(error: RpcError) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, NULL, &Err(error));
    out
}

/// The answer to a batch of too many calls, as geth gives it: a list with one error, under the id of
/// the first call. Clients that sent a list read a list, and find one of their own ids in it.
pub(super) fn batch_too_large(id: &str) -> Vec<u8> {
    let mut out = vec![b'['];
    write(&mut out, id, &Err(RpcError::new(INVALID_REQUEST, "batch too large")));
    out.push(b']');
    out
}
