//! A proxy between a node and its source that can lie, and that notes what is asked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Response, StatusCode};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::json_client::http;

/// Changes one answer to one call.
pub type Change = fn(method: &str, result: &mut Value);
/// Why a call of a request of so many is refused, if it is: a code and a message.
pub type Refuse = fn(call: &Value, of: usize) -> Option<(i64, &'static str)>;

/// What the proxy does with a request.
#[derive(Debug, Clone, Copy)]
pub enum Manner {
    /// Passes everything on.
    Honest,
    /// Passes changed answers on.
    Change(Change),
    /// Refuses some calls in JSON-RPC's words.
    Refuse(Refuse),
    /// Leaves out the second half of every answer, and says that it is whole.
    Truncate,
    /// Sends a body that does not end before so many bytes.
    Giant(usize),
    /// Answers with this status.
    Status(u16),
    /// Does not answer.
    Hang,
    /// Refuses batches in JSON-RPC's words.
    NoBatches,
    /// Does not know a method.
    Without(&'static str),
    /// Does not know which block is final.
    NoFinality,
    /// Says that it is asked too often, to every other request.
    Busy,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<String>,
    manner: Mutex<Manner>,
    /// Every call, as `method params`.
    asked: Mutex<Vec<String>>,
    /// Rung whenever something is asked.
    bell: Condvar,
    largest_batch: Mutex<usize>,
    http: reqwest::Client,
}

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    pub url: String,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

impl Proxy {
    /// Starts one before `target`.
    pub fn start(target: &str, manner: Manner) -> Self {
        let shared = Arc::new(Shared {
            target: Mutex::new(target.to_owned()),
            manner: Mutex::new(manner),
            asked: Mutex::default(),
            bell: Condvar::new(),
            largest_batch: Mutex::default(),
            http: http(),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let app = axum::Router::new().fallback(handle).with_state(Arc::clone(&shared));
        let socket = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", socket.local_addr().unwrap());
        runtime.spawn(async { axum::serve(socket, app).await });
        Self { url, shared, _runtime: runtime }
    }

    pub fn set(&self, manner: Manner) {
        *self.shared.manner.lock() = manner;
    }

    /// Passes requests on to another source from now on.
    pub fn aim(&self, target: &str) {
        target.clone_into(&mut self.shared.target.lock());
    }

    /// What was asked since the last time.
    pub fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.asked.lock())
    }

    /// Forgets what was asked, and waits until a call with these words is asked so often.
    #[track_caller]
    pub fn is_asked(&self, words: &str, times: usize) {
        let until = Instant::now() + Duration::from_mins(1);
        let mut asked = self.shared.asked.lock();
        asked.clear();
        while asked.iter().filter(|call| call.contains(words)).count() < times {
            let late = self.shared.bell.wait_until(&mut asked, until).timed_out();
            assert!(!late, "{words} was not asked {times} times: {asked:?}");
        }
    }

    pub fn largest_batch(&self) -> usize {
        *self.shared.largest_batch.lock()
    }
}

fn calls(request: &Value) -> Vec<&Value> {
    request.as_array().map_or_else(|| vec![request], |calls| calls.iter().collect())
}

async fn handle(State(shared): State<Arc<Shared>>, body: Bytes) -> Response<Body> {
    let request: Value = serde_json::from_slice(&body).unwrap();
    let count = note(&shared, &request);
    let manner = *shared.manner.lock();
    match manner {
        Manner::Status(status) => return respond(status, "trouble".into()),
        Manner::Hang => tokio::time::sleep(Duration::from_hours(1)).await,
        Manner::Giant(len) => return giant(len),
        Manner::NoBatches if request.is_array() => {
            let error = json!({ "code": -32600, "message": "no batches here" });
            let whole = json!({ "jsonrpc": "2.0", "id": null, "error": error });
            return respond(200, whole.to_string());
        }
        Manner::Busy if count.is_multiple_of(2) => return respond(429, String::new()),
        _ => {}
    }
    let target = shared.target.lock().clone();
    let sent = shared.http.post(&target).header("content-type", "application/json").body(body);
    let Ok(answer) = sent.send().await else { return respond(502, String::new()) };
    let Ok(answer) = answer.bytes().await else { return respond(502, String::new()) };
    match manner {
        Manner::Truncate => {
            let half = String::from_utf8_lossy(&answer[..answer.len() / 2]).into_owned();
            respond(200, half)
        }
        Manner::Change(_) | Manner::Refuse(_) | Manner::Without(_) | Manner::NoFinality => {
            let mut answer: Value = serde_json::from_slice(&answer).unwrap();
            let calls = calls(&request);
            for call in &calls {
                alter(manner, call, calls.len(), &mut answer);
            }
            respond(200, answer.to_string())
        }
        _ => respond(200, String::from_utf8(answer.to_vec()).unwrap()),
    }
}

/// Notes what is asked; how many requests there were is the answer.
fn note(shared: &Shared, request: &Value) -> usize {
    let calls = calls(request);
    let mut largest = shared.largest_batch.lock();
    *largest = calls.len().max(*largest);
    let mut asked = shared.asked.lock();
    asked.extend(
        calls.iter().map(|call| {
            format!("{} {}", call["method"].as_str().unwrap_or_default(), call["params"])
        }),
    );
    shared.bell.notify_all();
    asked.len()
}

/// Changes the answer to one call of so many.
fn alter(manner: Manner, call: &Value, of: usize, answer: &mut Value) {
    let answers = match answer {
        Value::Array(list) => list.iter_mut().collect(),
        one => vec![one],
    };
    let method = call["method"].as_str().unwrap_or_default();
    for answer in answers.into_iter().filter(|answer| answer["id"] == call["id"]) {
        match manner {
            Manner::Change(change) => change(method, &mut answer["result"]),
            Manner::Refuse(refuse) => {
                if let Some((code, message)) = refuse(call, of) {
                    *answer = refusal(call, code, message);
                }
            }
            Manner::Without(missing) if missing == method => {
                *answer = refusal(call, -32601, "the method does not exist");
            }
            Manner::NoFinality if call["params"][0] == "finalized" => {
                *answer = refusal(call, -32602, "unknown block tag");
            }
            _ => {}
        }
    }
}

fn refusal(call: &Value, code: i64, message: &str) -> Value {
    let error = json!({ "code": code, "message": message });
    json!({ "jsonrpc": "2.0", "id": call["id"], "error": error })
}

fn respond(status: u16, text: String) -> Response<Body> {
    let mut response = Response::new(text.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// A body that begins like an answer and goes on for long.
fn giant(len: usize) -> Response<Body> {
    let piece = Bytes::from(vec![b' '; 1 << 20]);
    let pieces = (0..len >> 20).map(move |_| Ok::<_, std::io::Error>(piece.clone()));
    Response::new(Body::from_stream(futures_util::stream::iter(pieces)))
}
