//! A Teranode-shaped node as it is on the wire. Messages are put together byte by byte from what real nodes send, and
//! not by the code that our own `.proto` files generate: a double that shared them would share their mistakes.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut as _, Bytes};
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::{Stream, StreamExt as _};
use sha2::{Digest as _, Sha256};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http;
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Response, Status};

use crate::world::World;

/// A stream of messages.
pub type Messages = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

pub fn sha256d(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(Sha256::digest(bytes)).into()
}

fn varint(mut number: u64, to: &mut Vec<u8>) {
    while number >= 0x80 {
        to.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    to.push(u8::try_from(number).unwrap());
}

/// A message as it is put together, field by field.
#[derive(Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// A number; 0 is not written.
    pub fn number(mut self, field: u64, number: u64) -> Self {
        if number > 0 {
            varint(field << 3, &mut self.0);
            varint(number, &mut self.0);
        }
        self
    }

    /// Bytes, a text or a message.
    pub fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        varint(field << 3 | 2, &mut self.0);
        varint(bytes.len() as u64, &mut self.0);
        self.0.extend(bytes);
        self
    }

    pub fn done(self) -> Bytes {
        self.0.into()
    }
}

/// The only field of a question, if it is that one and of bytes.
fn asked(question: &[u8], field: u8) -> Option<&[u8]> {
    let (head, rest) = question.split_at_checked(2)?;
    (head[0] == field << 3 | 2 && usize::from(head[1]) == rest.len()).then_some(rest)
}

/// A notification about a block: its type and its hash, nothing else.
pub fn about_block(kind: u64, hash: &[u8]) -> Bytes {
    Message::default().number(1, kind).bytes(2, hash).done()
}

/// A notification with metadata.
pub fn with_metadata(kind: u64, hash: &[u8], metadata: &[(&str, &str)]) -> Bytes {
    let mut map = Message::default();
    for (key, value) in metadata {
        let entry = Message::default().bytes(1, key.as_bytes()).bytes(2, value.as_bytes()).done();
        map = map.bytes(1, &entry);
    }
    Message::default().number(1, kind).bytes(2, hash).bytes(4, &map.done()).done()
}

/// Messages as they are.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// One of the two services.
#[derive(Clone)]
pub struct Served<const ASSEMBLY: bool>(pub World);

impl NamedService for Served<false> {
    const NAME: &'static str = "blockchain_api.BlockchainAPI";
}

impl NamedService for Served<true> {
    const NAME: &'static str = "blockassembly_api.BlockAssemblyAPI";
}

impl<const ASSEMBLY: bool> tower::Service<http::Request<Body>> for Served<ASSEMBLY> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let world = self.0.clone();
        async move {
            let method = request.uri().path().rsplit('/').next().unwrap().to_owned();
            let key = request.headers().get("x-api-key").map(|key| key.as_bytes().to_vec());
            let mut grpc = Grpc::new(Raw);
            if method == "Subscribe" {
                let subscribe = tower::service_fn(|request: Request<Bytes>| {
                    let (world, key) = (world.clone(), key.clone());
                    async move {
                        world.admit("Subscribe", key.as_deref())?;
                        let source = asked(request.get_ref(), 1).expect("a source");
                        assert_eq!(source, b"secateur-utxo");
                        world.subscribe().await.map(Response::new)
                    }
                });
                return Ok(grpc.server_streaming(subscribe, request).await);
            }
            let answer = tower::service_fn(|request: Request<Bytes>| {
                let (world, key, method) = (world.clone(), key.clone(), method.clone());
                async move {
                    world.admit(&method, key.as_deref())?;
                    answer(&world, &method, request.get_ref()).map(Response::new)
                }
            });
            Ok(grpc.unary(answer, request).await)
        }
        .boxed()
    }
}

/// What the node answers to a question.
fn answer(world: &World, method: &str, question: &[u8]) -> Result<Bytes, Status> {
    match method {
        "GetBestBlockHeader" => {
            assert!(question.is_empty());
            let (header, height) = world.top();
            // The other fields are filled for a block that is asked for by its hash, and not here.
            Ok(Message::default()
                .bytes(1, &header)
                .number(3, height.into())
                .number(4, 1)
                .number(5, 285)
                .bytes(6, b"/double/")
                .number(8, 1_296_688_602)
                .number(9, 1_296_688_602)
                .bytes(10, &[0; 32])
                .number(15, 1_296_688_602)
                .done())
        }
        "GetBlockIsMined" => {
            let hash = asked(question, 1).expect("a hash");
            let mined = world.is_mined(hash).ok_or_else(|| {
                Status::internal("BLOCK_NOT_FOUND (10): error in GetBlockIsMined: block not found")
            })?;
            Ok(Message::default().number(1, mined.into()).done())
        }
        "GetState" => {
            assert_eq!(asked(question, 1), Some(&b"BlockPersisterHeight"[..]));
            // There is no code for what is absent: the database's words come through.
            let state = world.persister().ok_or_else(|| {
                Status::unknown("UNKNOWN (0): failed to get state: sql: no rows in result set")
            })?;
            Ok(Message::default().bytes(1, &state).done())
        }
        "GetBlockAssemblyState" => {
            let (state, height) = world.assembly();
            let state = Message::default().bytes(1, state.as_bytes());
            Ok(state.bytes(2, b"running").number(7, height.into()).bytes(8, b"00").done())
        }
        other => Err(Status::unimplemented(format!("unknown method {other}"))),
    }
}

/// Messages that were put into a channel.
pub fn messages(from: tokio::sync::mpsc::Receiver<Bytes>) -> Messages {
    Box::pin(tokio_stream::wrappers::ReceiverStream::new(from).map(Ok))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn the_double_sends_the_bytes_that_a_real_node_sends() {
    let hash: Vec<u8> = (0..32).collect();
    let shown = hex(&hash);
    assert_eq!(hex(&about_block(2, &hash)), format!("08021220{shown}"));
    let persisted = with_metadata(7, &hash, &[("height", "886000")]);
    let map = "22120a100a066865696768741206383836303030";
    assert_eq!(hex(&persisted), format!("08071220{shown}{map}"));
    let state = with_metadata(4, &[0; 32], &[("event", "RUN"), ("destination", "RUNNING")]);
    let map = "22260a0c0a056576656e74120352554e0a160a0b64657374696e6174696f6e120752554e4e494e47";
    assert_eq!(hex(&state), format!("08041220{}{map}", "00".repeat(32)));
    assert_eq!(hex(&with_metadata(1, &hash, &[])), format!("08011220{shown}2200"));
    assert_eq!(hex(&Message::default().done()), "", "a ping");
    let state = Message::default().bytes(1, &886_000_u32.to_le_bytes()).done();
    assert_eq!(hex(&state), "0a04f0840d00");
    assert_eq!(hex(&Message::default().number(1, 1).done()), "0801");
    let question = Message::default().bytes(1, b"BlockPersisterHeight").done();
    assert_eq!(hex(&question), "0a14426c6f636b506572736973746572486569676874");
    assert_eq!(asked(&question, 1), Some(&b"BlockPersisterHeight"[..]));
}
