//! Answers made smaller for clients that take them so. What an answer was counted as stays counted
//! until it is sent: a short one is compressed at once and kept beside what became of it, a long one
//! piece by piece, as the client takes it.

use std::io::{self, Write as _};
use std::mem::take;

use axum::body::{Body, BodyDataStream, HttpBody as _, to_bytes};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{Stream, StreamExt as _, stream};
use tokio::task::spawn_blocking;

/// A shorter answer fits a packet as it is.
const MIN_BYTES: u64 = 1_024;
/// A longer one is compressed outside the threads that serve sockets.
const INLINE_BYTES: usize = 32 << 10;
/// A longer one is compressed in pieces of so many bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Whether a client takes gzip.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|list| list.to_str().ok());
    let mut any = false;
    for one in lists.flat_map(|list| list.split(',')) {
        let mut words = one.split(';').map(str::trim);
        let name = words.next().unwrap_or_default();
        let weight = words.find_map(|word| word.strip_prefix("q=")?.trim().parse::<f32>().ok());
        let takes = weight.is_none_or(|weight| weight > 0.0);
        if name.eq_ignore_ascii_case("gzip") {
            return takes;
        }
        any |= name == "*" && takes;
    }
    any
}

/// Whether bytes of this kind become smaller.
fn is_text(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_stream = kind == super::events::KIND;
    (kind.starts_with("text/") && !is_stream)
        || ["application/json", "application/openmetrics-text"].contains(&kind)
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Compressed bytes beside what they were made of, in whose room they are.
struct Smaller {
    bytes: Vec<u8>,
    _whole: Bytes,
}

impl AsRef<[u8]> for Smaller {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Makes an answer smaller, if the client takes it so and it is worth it. Its length has to be known: a stream is
/// passed on as it comes.
pub(super) async fn compress(asked: &HeaderMap, response: Response) -> Response {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let length = response.body().size_hint().exact();
    let Some(length) = length.filter(|bytes| *bytes >= MIN_BYTES) else { return response };
    if !kind.is_some_and(is_text) || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    if !takes_gzip(asked) {
        return Response::from_parts(parts, body);
    }
    let smaller = if length > PIECE_BYTES as u64 {
        Body::from_stream(pieces(body.into_data_stream()))
    } else {
        let Ok(whole) = to_bytes(body, PIECE_BYTES).await else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        match squeeze(whole.clone()).await.filter(|bytes| bytes.len() < whole.len()) {
            Some(bytes) => Body::from(Bytes::from_owner(Smaller { bytes, _whole: whole })),
            None => return Response::from_parts(parts, Body::from(whole)),
        }
    };
    let headers = &mut parts.headers;
    headers.remove(CONTENT_LENGTH);
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    Response::from_parts(parts, smaller)
}

/// A long body on its way through the encoder.
struct Passing {
    body: BodyDataStream,
    /// What came and is not compressed yet.
    rest: Bytes,
    /// None when everything is.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

/// The same bytes compressed; no more of them are made than are taken.
fn pieces(body: BodyDataStream) -> impl Stream<Item = io::Result<Bytes>> {
    let encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
    stream::try_unfold(Passing { body, rest: Bytes::new(), encoder }, |mut passing| async {
        while let Some(mut encoder) = passing.encoder.take() {
            if passing.rest.is_empty() {
                match passing.body.next().await {
                    Some(more) => passing.rest = more.map_err(io::Error::other)?,
                    None => return Ok(Some((encoder.finish()?.into(), passing))),
                }
            }
            let piece = passing.rest.split_to(passing.rest.len().min(PIECE_BYTES));
            let work = spawn_blocking(move || {
                encoder.write_all(&piece)?;
                let made = take(encoder.get_mut());
                Ok::<_, io::Error>((encoder, made))
            });
            let (encoder, made) = work.await.map_err(io::Error::other)??;
            passing.encoder = Some(encoder);
            if !made.is_empty() {
                return Ok(Some((made.into(), passing)));
            }
        }
        Ok(None)
    })
}

async fn squeeze(whole: Bytes) -> Option<Vec<u8>> {
    if whole.len() <= INLINE_BYTES {
        return gzip(&whole).ok();
    }
    spawn_blocking(move || gzip(&whole).ok()).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::service::Rooms;

    fn accepting(text: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(text))])
    }

    fn answer(kind: &'static str, bytes: usize) -> Response {
        super::super::answers::body(StatusCode::OK, kind, "{\"a\": 1}".repeat(bytes / 8))
    }

    #[test]
    fn gzip_is_taken_only_where_the_client_says_so() {
        for yes in ["gzip", "br, gzip;q=0.5", "*", "deflate, GZIP", "br;q=1.0, *;q=0.1"] {
            assert!(takes_gzip(&accepting(yes)), "{yes}");
        }
        for no in ["", "identity", "br", "gzip;q=0", "*, gzip;q=0", "*;q=0"] {
            assert!(!takes_gzip(&accepting(no)), "{no}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn a_long_text_is_sent_compressed_and_reads_back_the_same() {
        for bytes in [2_048, 200_000, 5 * PIECE_BYTES + 8] {
            let small = compress(&accepting("gzip"), answer("application/json", bytes)).await;
            assert_eq!(small.headers()[CONTENT_ENCODING], "gzip");
            assert_eq!(small.headers()[VARY], "accept-encoding");
            let found = to_bytes(small.into_body(), PIECE_BYTES).await.unwrap();
            assert!(found.len() < bytes / 4);
            let mut read = String::new();
            GzDecoder::new(&found[..]).read_to_string(&mut read).unwrap();
            assert_eq!(read, "{\"a\": 1}".repeat(bytes / 8));
        }
        for (asked, kind, bytes) in [
            ("gzip", "application/json", 512),
            ("gzip", "application/octet-stream", 4_096),
            ("gzip", "text/event-stream", 4_096),
            ("identity", "application/json", 4_096),
        ] {
            let plain = compress(&accepting(asked), answer(kind, bytes)).await;
            assert!(!plain.headers().contains_key(CONTENT_ENCODING), "{asked} {kind} {bytes}");
            assert_eq!(to_bytes(plain.into_body(), PIECE_BYTES).await.unwrap().len(), bytes);
        }
    }

    /// The memory of an answer was given back when it was compressed, and what was made of it was
    /// not counted at all.
    #[tokio::test]
    async fn a_compressed_answer_is_counted_until_it_is_sent() {
        for bytes in [48 << 12, 3 * PIECE_BYTES] {
            let rooms = Rooms::new(bytes);
            let held = rooms.take(bytes).unwrap().around(vec![b'x'; bytes]);
            let answer = super::super::answers::body(StatusCode::OK, "application/json", held);
            let small = compress(&accepting("gzip"), answer).await;
            assert_eq!(small.headers()[CONTENT_ENCODING], "gzip");
            assert!(rooms.take(1).is_err(), "{bytes}");
            let mut sent = small.into_body().into_data_stream();
            let first = sent.next().await.unwrap().unwrap();
            assert!(rooms.take(1).is_err(), "{bytes}");
            drop(first);
            while let Some(more) = sent.next().await {
                assert!(!more.unwrap().is_empty());
            }
            assert!(rooms.take(rooms.bytes()).is_ok(), "{bytes}");
        }
    }
}
