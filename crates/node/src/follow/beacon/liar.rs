//! A beacon node for tests, on a socket of its own: a short chain with real blobs, and answers that
//! can be changed on their way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use alloy_consensus::{SignableTransaction as _, TxEip4844};
use alloy_eips::eip2718::Encodable2718 as _;
use alloy_primitives::{Address, B256, FixedBytes, Signature, U256, hex};
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use secateur_sidecar::{kzg, testdata};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::ssz;
use super::wire::Header;

/// What is answered.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Json(Value),
    Raw(Vec<u8>),
    Status(u16),
    Hang,
}

/// Changes an answer to what is under a path.
pub(super) type Lie = fn(&str, Reply) -> Reply;

/// A slot that has a block.
struct Slot {
    header: Value,
    root: B256,
    block: Value,
    blobs: Vec<usize>,
}

struct World {
    slots: BTreeMap<u64, Slot>,
    last_final: u64,
    lie: Lie,
    asked: Vec<String>,
}

/// A running beacon node.
pub(super) struct Liar {
    pub(super) url: String,
    world: Arc<Mutex<World>>,
}

/// An answer as it is.
pub(super) fn honest(_: &str, reply: Reply) -> Reply {
    reply
}

impl Liar {
    /// Starts one with these blobs in these slots; the last slot is final.
    pub(super) async fn start(slots: &[(u64, &[usize])]) -> Self {
        let last_final = slots.last().map_or(0, |(slot, _)| *slot);
        let mut world =
            World { slots: BTreeMap::new(), last_final, lie: honest, asked: Vec::new() };
        for (slot, blobs) in slots {
            world.add(*slot, blobs);
        }
        let world = Arc::new(Mutex::new(world));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = axum::Router::new().fallback(answer).with_state(Arc::clone(&world));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { url, world }
    }

    pub(super) fn lies(&self, lie: Lie) {
        self.world.lock().lie = lie;
    }

    pub(super) fn finalizes(&self, slot: u64) {
        self.world.lock().last_final = slot;
    }

    /// Another slot on top, final at once.
    pub(super) fn adds(&self, slot: u64, blobs: &[usize]) {
        let mut world = self.world.lock();
        world.add(slot, blobs);
        world.last_final = slot;
    }

    /// The paths that were asked for since the last time.
    pub(super) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.world.lock().asked)
    }
}

async fn answer(State(world): State<Arc<Mutex<World>>>, uri: Uri) -> Response {
    let reply = {
        let mut world = world.lock();
        world.asked.push(uri.path().to_owned());
        (world.lie)(uri.path(), world.reply(uri.path()))
    };
    match reply {
        Reply::Json(value) => value.to_string().into_response(),
        Reply::Raw(bytes) => bytes.into_response(),
        Reply::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Reply::Hang => {
            tokio::time::sleep(Duration::from_mins(5)).await;
            StatusCode::OK.into_response()
        }
    }
}

impl World {
    fn reply(&self, path: &str) -> Reply {
        let (place, id) = path.rsplit_once('/').unwrap();
        let id = if id == "finalized" { Some(self.last_final) } else { id.parse().ok() };
        if path == "/eth/v1/config/deposit_contract" {
            return Reply::Json(json!({ "data": { "chain_id": "7", "address": "0x00" } }));
        }
        let Some(slot) = id.and_then(|id| self.slots.get(&id)) else { return Reply::Status(404) };
        let envelope = |data: Value| {
            Reply::Json(json!({
                "version": "fulu", "execution_optimistic": false, "finalized": true, "data": data,
            }))
        };
        match place {
            "/eth/v1/beacon/headers" => envelope(json!({
                "root": slot.root, "canonical": true, "header": slot.header,
            })),
            "/eth/v2/beacon/blocks" => envelope(slot.block.clone()),
            "/eth/v1/beacon/blobs" => envelope(slot.blobs.iter().map(|at| text(*at)).collect()),
            "/eth/v1/beacon/blob_sidecars" => envelope(slot.sidecars()),
            _ => Reply::Status(404),
        }
    }

    fn add(&mut self, slot: u64, blobs: &[usize]) {
        let parent = self.slots.last_key_value().map_or(B256::ZERO, |(_, last)| last.root);
        let header = Header {
            slot,
            proposer_index: 1_000 + slot,
            parent_root: parent,
            state_root: B256::with_last_byte(7),
            body_root: body_root(blobs),
        };
        let root = ssz::root(&header);
        let both = json!({
            "slot": slot.to_string(),
            "proposer_index": header.proposer_index.to_string(),
            "parent_root": parent,
            "state_root": header.state_root,
        });
        let (mut message, mut block) = (both.clone(), both);
        message["body_root"] = json!(header.body_root);
        let commitments = blobs.iter().map(|at| testdata::pooled(*at).commitment.to_string());
        block["body"] = json!({
            "graffiti": B256::ZERO,
            "blob_kzg_commitments": commitments.collect::<Vec<_>>(),
            "execution_payload": {
                "block_hash": B256::with_last_byte(9),
                "block_number": (slot - 1).to_string(),
                "transactions": [hex::encode_prefixed([2, 0xc0]), transaction(blobs)],
                "withdrawals": [],
            },
        });
        let signature = FixedBytes::<96>::repeat_byte(5);
        let signed = |message: Value| json!({ "message": message, "signature": signature });
        let (header, block) = (signed(message), signed(block));
        self.slots.insert(slot, Slot { header, root, block, blobs: blobs.to_vec() });
    }
}

impl Slot {
    fn sidecars(&self) -> Value {
        let one = |(index, at): (usize, &usize)| {
            let blob = testdata::pooled(*at);
            json!({
                "index": index.to_string(),
                "blob": text(*at),
                "kzg_commitment": blob.commitment.to_string(),
                "kzg_proof": blob.proof.to_string(),
                "signed_block_header": self.header,
                "kzg_commitment_inclusion_proof": branch(),
            })
        };
        self.blobs.iter().enumerate().map(one).collect()
    }
}

/// A blob of the pool as JSON writes it.
pub(super) fn text(which: usize) -> Value {
    hex::encode_prefixed(&testdata::pooled(which).blob).into()
}

/// A branch that leads from the first blob's commitment to the body's root.
fn branch() -> Vec<B256> {
    (0..17).map(B256::repeat_byte).collect()
}

fn body_root(blobs: &[usize]) -> B256 {
    let hash = |left: &[u8], right: &[u8]| {
        B256::new(Sha256::new().chain_update(left).chain_update(right).finalize().into())
    };
    let Some(first) = blobs.first() else { return B256::ZERO };
    let commitment = testdata::pooled(*first).commitment.0;
    let mut own = hash(&commitment[..32], &[&commitment[32..], &[0; 16]].concat());
    // The first commitment of the twelfth field, from the leaf up.
    for (right, other) in "00000000000001101".chars().zip(branch()) {
        own = match right {
            '1' => hash(other.as_slice(), own.as_slice()),
            _ => hash(own.as_slice(), other.as_slice()),
        };
    }
    own
}

/// A transaction that names blobs.
fn transaction(blobs: &[usize]) -> String {
    let hash = |at: &usize| B256::new(kzg::versioned_hash(&testdata::pooled(*at).commitment).0);
    let tx = TxEip4844 {
        chain_id: 7,
        to: Address::repeat_byte(1),
        blob_versioned_hashes: blobs.iter().map(hash).collect(),
        ..TxEip4844::default()
    };
    let signature = Signature::new(U256::from(1), U256::from(1), false);
    hex::encode_prefixed(tx.into_signed(signature).encoded_2718())
}
