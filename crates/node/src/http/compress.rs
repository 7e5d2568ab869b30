//! Answers made smaller for clients that take them so.

use std::io::Write as _;

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// A shorter answer fits a packet as it is.
const MIN_BYTES: u64 = 1_024;
/// A longer one is sent as it is: what is made of it has to be in memory beside it.
const MAX_BYTES: u64 = 64 << 20;
/// A longer one is compressed outside the threads that serve sockets.
const INLINE_BYTES: usize = 32 << 10;

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

fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Makes an answer smaller, if the client takes it so and it is worth it. Its length has to be known: a stream is
/// passed on as it comes.
pub(super) async fn compress(asked: &HeaderMap, response: Response) -> Response {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let length = response.body().size_hint().exact();
    let fits = length.is_some_and(|bytes| (MIN_BYTES..=MAX_BYTES).contains(&bytes));
    if !fits || !kind.is_some_and(is_text) || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    if !takes_gzip(asked) {
        return Response::from_parts(parts, body);
    }
    let most = usize::try_from(MAX_BYTES).unwrap_or(usize::MAX);
    let Ok(whole) = to_bytes(body, most).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let smaller = squeeze(whole.clone()).await.filter(|bytes| bytes.len() < whole.len());
    let Some(smaller) = smaller else { return Response::from_parts(parts, Body::from(whole)) };
    let headers = &mut parts.headers;
    headers.remove(CONTENT_LENGTH);
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    Response::from_parts(parts, Body::from(smaller))
}

async fn squeeze(whole: Bytes) -> Option<Vec<u8>> {
    if whole.len() <= INLINE_BYTES {
        return gzip(&whole).ok();
    }
    tokio::task::spawn_blocking(move || gzip(&whole).ok()).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

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
        for bytes in [2_048, 200_000] {
            let small = compress(&accepting("gzip"), answer("application/json", bytes)).await;
            assert_eq!(small.headers()[CONTENT_ENCODING], "gzip");
            assert_eq!(small.headers()[VARY], "accept-encoding");
            let found = to_bytes(small.into_body(), 1 << 20).await.unwrap();
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
            assert_eq!(to_bytes(plain.into_body(), 1 << 20).await.unwrap().len(), bytes);
        }
    }
}
