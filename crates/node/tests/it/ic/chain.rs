//! A canister with blocks of the Kasane chain.

use candid::Principal;
use secateur_canister::{Appended, Block, BlockMeta, Error, InitArgs, PrunePolicy, PruneStatus};
use secateur_core::{TxId, TxIndexEntry, Writer, push_receipt, push_tx_index};
use serde_bytes::{ByteArray, ByteBuf};

use super::host::Host;

pub const CHAIN_ID: u64 = 77;

/// The key of the canister's controller, as a file and as the network knows it.
pub const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB\n\
    -----END PRIVATE KEY-----\n";

pub fn controller() -> Principal {
    principal([1; 32])
}

/// The key of another one, as a file.
pub fn consumer_key() -> String {
    KEY.replace("AQEB", "AgIC")
}

/// The same as the network knows it.
pub fn consumer() -> Principal {
    let mut secret = [2; 32];
    // The first bytes are in a group of digits with what stands before the key.
    secret[..2].fill(1);
    principal(secret)
}

fn principal(secret: [u8; 32]) -> Principal {
    let key = ed25519_dalek::SigningKey::from_bytes(&secret).verifying_key();
    let der = [&[0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0], &key.as_bytes()[..]];
    Principal::self_authenticating(der.concat())
}

fn wasm() -> Vec<u8> {
    let usual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/canister/secateur.wasm");
    let path = std::env::var("SECATEUR_TEST_CANISTER_WASM").unwrap_or_else(|_| usual.into());
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}; run `make canister`"))
}

/// A canister that keeps its newest blocks only.
pub fn installed(retain_blocks: u64) -> Host {
    let usual = secateur_core::PrunePolicy::default().into();
    let policy = PrunePolicy { retain_blocks, max_ops_per_tick: 5_000, ..usual };
    let mut host = Host::new(&wasm(), vec![controller()]);
    let (policy, pruning_enabled) = (Some(policy), Some(true));
    let args = InitArgs { chain_id: CHAIN_ID, policy, pruning_enabled, ..InitArgs::default() };
    host.init(controller(), &args).unwrap();
    host.settle();
    host
}

fn hash(height: u64) -> [u8; 32] {
    let mut hash = [0xb0; 32];
    hash[..8].copy_from_slice(&height.to_be_bytes());
    hash
}

pub fn tx_id(height: u64, index: u32) -> TxId {
    let mut id = [0xd0; 32];
    id[..8].copy_from_slice(&height.to_be_bytes());
    id[8..12].copy_from_slice(&index.to_be_bytes());
    TxId(id)
}

/// How many transactions a block has: the one at 5 is larger than a message, the one at 6 has none.
pub fn txs(height: u64) -> u32 {
    match height {
        5 => 900,
        6 => 0,
        _ => u32::try_from(1 + height % 4).unwrap(),
    }
}

fn receipt(height: u64, index: u32) -> Vec<u8> {
    let mut bytes = Writer::new();
    bytes.bytes(b"rcptv2\0\x02").bytes(&tx_id(height, index).0).u64(height).u32(index);
    bytes.u8(1).u64(21_000 + u64::from(index)).u64(9).bytes(&[0; 48]).bytes(&[7; 32]);
    // What a transaction of the large block returned makes it large.
    let returned = if height == 5 { vec![6; 4_000] } else { Vec::new() };
    bytes.u32(u32::try_from(returned.len()).unwrap()).bytes(&returned);
    bytes.flag(false).bytes(&[0; 20]).u32(1);
    bytes.bytes(&[0xaa; 20]).u32(1).bytes(&[0xcc; 32]).u32(8).u64(height);
    bytes.finish()
}

pub fn block(height: u64) -> Block {
    let txs = txs(height);
    let timestamp = 1_700_000_000 + height;
    let (hash, parent_hash) = (hash(height), hash(height - 1));
    let mut own = Writer::new();
    own.u64(height).bytes(&parent_hash).bytes(&hash).u64(timestamp);
    own.bytes(&[0; 24]).bytes(&[3; 20]).bytes(&[4; 64]).u32(txs);
    let (mut receipts, mut tx_index) = (Vec::new(), Vec::new());
    for index in 0..txs {
        let tx_id = tx_id(height, index);
        own.bytes(&tx_id.0);
        push_receipt(&mut receipts, &tx_id, &receipt(height, index)).unwrap();
        push_tx_index(&mut tx_index, &TxIndexEntry { tx_id, height, index });
    }
    let (hash, parent_hash) = (ByteArray::new(hash), ByteArray::new(parent_hash));
    Block {
        meta: BlockMeta { height, hash, parent_hash, timestamp },
        block: ByteBuf::from(own.finish()),
        receipts: ByteBuf::from(receipts),
        tx_index: ByteBuf::from(tx_index),
    }
}

/// Appends blocks up to a height, as their controller does, and lets what that rang run.
pub fn append_up_to(host: &mut Host, last: u64) {
    let head: Result<Option<u64>, Error> = host.query("get_head", ()).unwrap();
    for height in head.unwrap().map_or(1, |head| head + 1)..=last {
        let args = (block(height),);
        let appended: Result<Appended, Error> = host.update(controller(), "append", args).unwrap();
        assert_eq!(appended, Ok(Appended { head: height, written: 1 }));
        host.settle();
    }
}

pub fn status(host: &mut Host) -> PruneStatus {
    host.query::<Result<PruneStatus, Error>>("get_prune_status", ()).unwrap().unwrap()
}
