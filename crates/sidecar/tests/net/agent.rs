//! An agent and its gateway on a loopback port, as load-s3-agent's contract says, with every way to
//! misbehave. What it reads it reads by itself, not with our code.

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, LOCATION};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::Body;
use serde_json::{Value, json};
use tokio::net::TcpListener;

pub const KEY: &str = "load_acc_hunter2";

/// How the agent or the gateway misbehaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mood {
    Good,
    /// Nothing is done and nothing answered.
    Hang,
    /// The upload is done, but never answered.
    LoseReply,
    /// The upload is done, and this is answered, with 200.
    Say(&'static str),
    /// Nothing is done, and this status is answered with this body.
    Status(u16, &'static str),
    /// The reply, or the item, has no end.
    Endless,
    /// The upload is answered well, but the item has a wrong byte.
    WrongBytes,
    /// The upload is answered well, and the gateway does not show the item yet.
    Late,
    /// The upload is answered well, and nobody can be asked for tags.
    NoIndex,
    /// The gateway sends on to this address.
    Elsewhere(String),
    /// The gateway sends on to another path of itself.
    AroundTheCorner,
}

#[derive(Debug, Clone)]
pub struct Item {
    pub id: String,
    pub tags: Vec<(String, String)>,
    pub bytes: Bytes,
}

/// What is known of a request.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: Method,
    pub path: String,
    pub headers: hyper::HeaderMap,
}

#[derive(Default)]
pub struct State {
    pub items: Vec<Item>,
    pub requests: Vec<Seen>,
    /// Items whose tags are not indexed.
    pub private: Vec<String>,
}

pub struct Agent {
    pub url: String,
    pub state: Arc<Mutex<State>>,
    mood: Arc<Mutex<Mood>>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Agent {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::<Mutex<State>>::default();
        let mood = Arc::new(Mutex::new(Mood::Good));
        let parts = (Arc::clone(&state), Arc::clone(&mood));
        let server = tokio::spawn(async move {
            loop {
                let Ok((socket, _)) = listener.accept().await else { return };
                socket.set_nodelay(true).unwrap();
                let (state, mood) = parts.clone();
                let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let state = Arc::clone(&state);
                    let mood = mood.lock().unwrap().clone();
                    async move { Ok::<_, Infallible>(respond(request, &state, mood).await) }
                });
                tokio::spawn(async move {
                    // A connection that the client gives up is no news.
                    drop(
                        Builder::new(TokioExecutor::new())
                            .serve_connection(TokioIo::new(socket), answer)
                            .await,
                    );
                });
            }
        });
        Self { url, state, mood, server }
    }

    pub fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    pub fn items(&self) -> Vec<Item> {
        self.state.lock().unwrap().items.clone()
    }

    pub fn requests(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }
}

fn plain(status: u16, kind: &str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert(CONTENT_TYPE, kind.parse().unwrap());
    response
}

fn json_of(status: u16, value: &Value) -> Response<Body> {
    plain(status, "application/json", value.to_string())
}

/// A body that never ends.
fn endless() -> Body {
    let stream = futures_util::stream::repeat_with(|| {
        Ok::<_, Infallible>(Bytes::from(vec![b'x'; 16 * 1024]))
    });
    Body::http_body_unsync(StreamBody(stream))
}

/// Just enough of a body to stream one.
struct StreamBody<S>(S);

impl<S> hyper::body::Body for StreamBody<S>
where
    S: futures_util::Stream<Item = Result<Bytes, Infallible>> + Unpin,
{
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        use futures_util::StreamExt as _;
        self.0.poll_next_unpin(cx).map(|next| next.map(|part| part.map(hyper::body::Frame::data)))
    }
}

async fn respond(
    request: Request<hyper::body::Incoming>,
    state: &Mutex<State>,
    mood: Mood,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = Body::from(body).store_all_limited(1 << 20).await.unwrap();
    let path = parts.uri.path().to_owned();
    let seen = Seen { method: parts.method.clone(), path, headers: parts.headers };
    state.lock().unwrap().requests.push(seen.clone());
    match (seen.method.as_str(), seen.path.as_str()) {
        _ if mood == Mood::Hang => pending().await,
        ("POST", "/upload" | "/upload/private") => upload(&seen, &body, state, mood).await,
        ("POST", "/tags/query") => query(&body, &state.lock().unwrap(), &mood),
        ("GET", path) if path.starts_with("/resolve/") => {
            resolve(path, &state.lock().unwrap(), mood)
        }
        ("GET", path) if path.starts_with("/corner/") => {
            resolve(&path.replace("/corner/", "/resolve/"), &state.lock().unwrap(), Mood::Good)
        }
        _ => json_of(404, &json!({"error": "not found"})),
    }
}

async fn upload(seen: &Seen, body: &Bytes, state: &Mutex<State>, mood: Mood) -> Response<Body> {
    if seen.headers.get("authorization").is_none_or(|value| value != &format!("Bearer {KEY}")) {
        return json_of(401, &json!({"error": "invalid API key"}));
    }
    let private = seen.path == "/upload/private";
    if private && seen.headers.get("x-bucket-name").is_none() {
        return json_of(400, &json!({"error": "missing bucket_name header"}));
    }
    if let Mood::Status(status, body) = mood {
        return plain(status, "application/json", body.to_owned());
    }
    let Some((bytes, tags)) = read_form(&seen.headers, body) else {
        return json_of(400, &json!({"error": "invalid multipart data"}));
    };
    let id = {
        let mut state = state.lock().unwrap();
        let id = format!("{:-<43}", format!("item_{}", state.items.len()));
        let mut bytes = bytes.to_vec();
        if mood == Mood::WrongBytes {
            bytes[7] ^= 1;
        }
        state.items.push(Item { id: id.clone(), tags, bytes: bytes.into() });
        if private {
            state.private.push(id.clone());
        }
        id
    };
    match mood {
        Mood::LoseReply => pending().await,
        Mood::Say(text) => plain(200, "text/html", text.to_owned()),
        Mood::Endless => plain(200, "application/json", endless()),
        _ => json_of(200, &json!({"success": true, "dataitem_id": id, "message": "uploaded"})),
    }
}

fn query(body: &[u8], state: &State, mood: &Mood) -> Response<Body> {
    if let Mood::Status(status, body) = mood {
        return plain(*status, "application/json", (*body).to_owned());
    }
    if *mood == Mood::NoIndex {
        return json_of(503, &json!({"error": "failed to query tags"}));
    }
    let question: Value = serde_json::from_slice(body).unwrap();
    let filters = question["filters"].as_array().unwrap();
    let first = usize::try_from(question["first"].as_u64().unwrap_or(25)).unwrap();
    if filters.is_empty() || first == 0 || first > 100 {
        return json_of(400, &json!({"error": "filters or first"}));
    }
    let after = question["after"].as_str().map_or(0, |after| after.parse::<usize>().unwrap());
    let has = |item: &Item, filter: &Value| {
        let text = |name: &str| filter[name].as_str().unwrap();
        item.tags
            .iter()
            .any(|(key, value)| (key.as_str(), value.as_str()) == (text("key"), text("value")))
    };
    let found: Vec<_> = state
        .items
        .iter()
        .filter(|item| !state.private.contains(&item.id))
        .filter(|item| filters.iter().all(|filter| has(item, filter)))
        .collect();
    let page: Vec<_> = found
        .iter()
        .skip(after)
        .take(first)
        .map(|item| json!({"dataitem_id": item.id, "content_type": "application/octet-stream"}))
        .collect();
    let next = after + page.len();
    let more = next < found.len();
    let cursor = more.then(|| next.to_string());
    json_of(
        200,
        &json!({
            "success": true,
            "count": page.len(),
            "items": page,
            "page_info": {"has_next_page": more, "next_cursor": cursor},
        }),
    )
}

fn resolve(path: &str, state: &State, mood: Mood) -> Response<Body> {
    let id = path.strip_prefix("/resolve/").unwrap();
    let octets = "application/octet-stream";
    let moved = |to: String| {
        let mut response = plain(302, octets, Body::empty());
        response.headers_mut().insert(LOCATION, to.parse().unwrap());
        response
    };
    match mood {
        Mood::Elsewhere(base) => moved(format!("{base}/resolve/{id}")),
        Mood::AroundTheCorner => moved(format!("/corner/{id}")),
        Mood::Endless => plain(200, octets, endless()),
        Mood::Status(status, body) => plain(status, "application/json", body.to_owned()),
        Mood::Late => json_of(404, &json!({"error": "not found"})),
        _ => match state.items.iter().find(|item| item.id == id) {
            Some(item) => plain(200, octets, item.bytes.clone()),
            None => json_of(404, &json!({"error": "not found"})),
        },
    }
}

/// The file and the tags of a multipart form.
fn read_form(headers: &hyper::HeaderMap, body: &[u8]) -> Option<(Bytes, Vec<(String, String)>)> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let boundary = kind.strip_prefix("multipart/form-data; boundary=")?;
    let mark = format!("--{boundary}");
    let (mut file, mut tags) = (None, Vec::new());
    let mut rest = body.strip_prefix(mark.as_bytes())?;
    let closing = format!("\r\n{mark}");
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let head_end = find(part, b"\r\n\r\n")?;
        let head = std::str::from_utf8(&part[..head_end]).ok()?;
        let content = &part[head_end + 4..];
        let end = find(content, closing.as_bytes())?;
        let (content, after) = (&content[..end], &content[end + closing.len()..]);
        if head.contains("name=\"file\"") {
            assert!(head.contains("Content-Type: application/octet-stream"), "{head}");
            file = Some(Bytes::copy_from_slice(content));
        } else if head.contains("name=\"tags\"") {
            let pairs: Vec<Value> = serde_json::from_slice(content).ok()?;
            let text = |pair: &Value, name: &str| pair[name].as_str().unwrap().to_owned();
            tags = pairs.iter().map(|pair| (text(pair, "key"), text(pair, "value"))).collect();
        } else if head.contains("name=\"content_type\"") {
            assert_eq!(content, b"application/octet-stream");
        }
        rest = after;
    }
    (rest == b"--\r\n").then_some(())?;
    Some((file?, tags))
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}
