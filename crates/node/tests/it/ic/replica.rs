//! A network of one node with one canister: the HTTP interface of the Internet Computer over the real
//! wasm, with real signatures. Only consensus is missing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use candid::Principal;
use ed25519_dalek::{Signer as _, SigningKey};
use ic_certification::{Certificate, HashTree, fork, labeled, leaf};
use ic_transport_types::{
    Envelope, EnvelopeContent, NodeSignature, QueryResponse, ReadStateResponse, RejectCode,
    RejectResponse, ReplyResponse, RequestId, TransportCallResponse,
};
use ic_verify_bls_signature::PrivateKey;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::chain;
use super::host::{Host, Trap};

/// What a public key of the network begins with.
const NETWORK_KEY: [u8; 37] = *b"\x30\x81\x82\x30\x1d\x06\x0d\x2b\x06\x01\x04\x01\x82\xdc\x7c\x05\x03\x01\x02\x01\x06\x0c\x2b\x06\x01\x04\x01\x82\xdc\x7c\x05\x03\x02\x01\x03\x61\x00";
/// What a node's begins with.
const NODE_KEY: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
const HOUR: Duration = Duration::from_hours(1);

/// How the node behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Honest,
    /// It changes a byte of what it has signed.
    Forges,
    /// What it says was true an hour ago.
    Stale,
    /// It fails at so many questions after this one, and is honest after that.
    Fails(u32),
}

struct Node {
    host: Mutex<Host>,
    network: PrivateKey,
    own: SigningKey,
    mood: Mutex<Mood>,
    /// Methods that this canister is to have none of.
    hidden: Mutex<Vec<String>>,
}

/// The network, until it is dropped.
pub struct Replica {
    node: Arc<Node>,
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        drop(self.stop.take());
        // What it panicked about was told.
        self.thread.take().map(JoinHandle::join).unwrap().unwrap_or_default();
    }
}

impl Replica {
    pub fn start(host: Host) -> Self {
        let node = Arc::new(Node {
            host: Mutex::new(host),
            network: PrivateKey::deserialize(&[1; 32]).unwrap(),
            own: SigningKey::from_bytes(&[2; 32]),
            mood: Mutex::new(Mood::Honest),
            hidden: Mutex::default(),
        });
        let routes = Router::new()
            .route("/api/v2/status", get(status))
            .route("/api/v3/canister/{id}/query", post(query))
            .route("/api/v3/canister/{id}/read_state", post(read_state))
            .route("/api/v4/canister/{id}/call", post(call))
            .layer(axum::extract::DefaultBodyLimit::max(4 << 20))
            .with_state(Arc::clone(&node));
        // A thread of its own: whoever starts it may have a runtime already.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    served = axum::serve(listener, routes) => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        Self { node, address, stop: Some(stop), thread: Some(thread) }
    }

    /// The canister itself, as nobody outside reaches it.
    pub fn host<T>(&self, work: impl FnOnce(&mut Host) -> T) -> T {
        work(&mut self.node.host.lock())
    }

    pub fn mood(&self, mood: Mood) {
        *self.node.mood.lock() = mood;
    }

    pub fn hide(&self, method: &str) {
        self.node.hidden.lock().push(method.to_owned());
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn source(&self) -> String {
        format!("ic://{}", self.host(|host| host.id()))
    }
}

type Answer = Result<Vec<u8>, StatusCode>;

fn cbor(value: &impl serde::Serialize) -> Vec<u8> {
    serde_cbor::to_vec(value).unwrap()
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

fn leb128(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).unwrap();
        value >>= 7;
        if value == 0 {
            out.push(low);
            return out;
        }
        out.push(low | 0x80);
    }
}

/// Branches under their labels, which come in order.
fn branches(mut all: Vec<(&[u8], HashTree)>) -> HashTree {
    let (label, tree) = all.remove(0);
    let first = labeled(label, tree);
    if all.is_empty() { first } else { fork(first, branches(all)) }
}

impl Node {
    /// Turns the mood of a node that fails, and says whether it answers at all.
    fn answers(&self) -> Result<(), StatusCode> {
        let mut mood = self.mood.lock();
        if let Mood::Fails(left) = *mood {
            *mood = left.checked_sub(1).map_or(Mood::Honest, Mood::Fails);
            return Err(StatusCode::INTERNAL_SERVER_ERROR);
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        let late = if *self.mood.lock() == Mood::Stale { HOUR } else { Duration::ZERO };
        nanos(SystemTime::now() - late)
    }

    fn network_key(&self) -> Vec<u8> {
        [&NETWORK_KEY[..], &self.network.public_key().serialize()].concat()
    }

    fn own_key(&self) -> Vec<u8> {
        [&NODE_KEY[..], self.own.verifying_key().as_bytes()].concat()
    }

    fn id(&self) -> Principal {
        Principal::self_authenticating(self.own_key())
    }

    /// A certificate of these branches and the time.
    fn certified(&self, label: &'static str, tree: HashTree) -> Vec<u8> {
        let time = leaf(leb128(self.now()));
        let canister = self.host.lock().id();
        let controllers = branches(vec![(b"controllers", leaf(cbor(&[chain::controller()])))]);
        let of_canister = branches(vec![(canister.as_slice(), controllers)]);
        let tree =
            branches(vec![(b"canister", of_canister), (label.as_bytes(), tree), (b"time", time)]);
        let message = [b"\x0dic-state-root".as_slice(), &tree.digest()].concat();
        let mut signature = self.network.sign(&message).serialize().to_vec();
        if *self.mood.lock() == Mood::Forges {
            signature = self.network.sign(b"something else").serialize().to_vec();
        }
        cbor(&Certificate { tree, signature, delegation: None })
    }

    fn has(&self, method: &str) -> bool {
        !self.hidden.lock().iter().any(|hidden| hidden == method)
    }

    fn query(
        &self,
        request: RequestId,
        sender: Principal,
        method: &str,
        arg: &[u8],
    ) -> QueryResponse {
        let ran = if self.has(method) {
            self.host.lock().query_raw(sender, method, arg).map_err(|trap| trapped(&trap))
        } else {
            Err(reject(RejectCode::DestinationInvalid, "no such method", Some("IC0536")))
        };
        let mut response = match ran {
            Ok(ran) => QueryResponse::Replied {
                reply: ReplyResponse { arg: ran.reply },
                signatures: Vec::new(),
            },
            Err(reject) => QueryResponse::Rejected { reject, signatures: Vec::new() },
        };
        let timestamp = self.now();
        let signature = self.own.sign(&response.signable(request, timestamp)).to_bytes().to_vec();
        let signature = NodeSignature { timestamp, signature, identity: self.id() };
        if *self.mood.lock() == Mood::Forges
            && let QueryResponse::Replied { reply, .. } = &mut response
            && let Some(last) = reply.arg.last_mut()
        {
            *last ^= 1;
        }
        let (QueryResponse::Replied { signatures, .. }
        | QueryResponse::Rejected { signatures, .. }) = &mut response;
        signatures.push(signature);
        response
    }
}

fn reject(reject_code: RejectCode, message: &str, error_code: Option<&str>) -> RejectResponse {
    RejectResponse {
        reject_code,
        reject_message: message.to_owned(),
        error_code: error_code.map(str::to_owned),
    }
}

fn trapped(trap: &Trap) -> RejectResponse {
    reject(RejectCode::CanisterError, &format!("it trapped: {}", trap.0), Some("IC0503"))
}

/// What was asked, if whoever signed for it is who it says.
fn content(body: &[u8]) -> Result<EnvelopeContent, StatusCode> {
    let envelope: Envelope<'_> =
        serde_cbor::from_slice(body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let sender = *envelope.content.sender();
    let signer =
        envelope.sender_pubkey.map_or(Principal::anonymous(), Principal::self_authenticating);
    if sender != signer || envelope.content.ingress_expiry() < nanos(SystemTime::now()) {
        return Err(StatusCode::BAD_REQUEST);
    }
    Ok(envelope.content.into_owned())
}

async fn status(State(node): State<Arc<Node>>) -> Answer {
    node.answers()?;
    let key = serde_cbor::Value::Bytes(node.network_key());
    let said = [(serde_cbor::Value::Text("root_key".into()), key)];
    Ok(cbor(&serde_cbor::Value::Map(said.into())))
}

async fn query(State(node): State<Arc<Node>>, body: Bytes) -> Answer {
    node.answers()?;
    let content = content(&body)?;
    let request = content.to_request_id();
    let EnvelopeContent::Query { sender, method_name, arg, .. } = content else {
        return Err(StatusCode::BAD_REQUEST);
    };
    Ok(cbor(&node.query(request, sender, &method_name, &arg)))
}

async fn read_state(State(node): State<Arc<Node>>, body: Bytes) -> Answer {
    node.answers()?;
    content(&body)?;
    let key = node.network_key();
    let subnet = Principal::self_authenticating(&key);
    let canister = node.host.lock().id();
    let of_node = branches(vec![(b"public_key", leaf(node.own_key()))]);
    let node_id = node.id();
    let tree = branches(vec![
        (b"canister_ranges", leaf(cbor(&[(canister, canister)]))),
        (b"node", branches(vec![(node_id.as_slice(), of_node)])),
        (b"public_key", leaf(key)),
    ]);
    let tree = branches(vec![(subnet.as_slice(), tree)]);
    Ok(cbor(&ReadStateResponse { certificate: node.certified("subnet", tree) }))
}

async fn call(State(node): State<Arc<Node>>, body: Bytes) -> Answer {
    node.answers()?;
    let content = content(&body)?;
    let request = content.to_request_id();
    let EnvelopeContent::Call { sender, method_name, arg, .. } = content else {
        return Err(StatusCode::BAD_REQUEST);
    };
    let mut host = node.host.lock();
    if !host.is_let_in(sender, &method_name) {
        let rejection =
            reject(RejectCode::CanisterReject, "the canister rejected the message", None);
        return Ok(cbor(&TransportCallResponse::NonReplicatedRejection(rejection)));
    }
    let ran = host.update_raw(sender, &method_name, &arg);
    host.settle();
    drop(host);
    let tree = match ran {
        Ok(ran) => branches(vec![(b"reply", leaf(ran.reply)), (b"status", leaf("replied"))]),
        Err(trap) => branches(vec![
            (b"reject_code", leaf(leb128(5))),
            (b"reject_message", leaf(trap.0)),
            (b"status", leaf("rejected")),
        ]),
    };
    let tree = branches(vec![(request.as_slice(), tree)]);
    let certificate = node.certified("request_status", tree);
    Ok(cbor(&TransportCallResponse::Replied { certificate }))
}
