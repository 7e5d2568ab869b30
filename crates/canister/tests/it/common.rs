//! What the tests share: the wasm, who calls, and a chain.

use std::path::PathBuf;
use std::sync::OnceLock;

use candid::Principal;
use secateur_canister::{
    Appended, ArchivePart, Block, BlockHead, BlockMeta, Error, InitArgs, Piece, PrunePolicy,
    PruneStatus,
};
use secateur_core::{Height, TxId, TxIndexEntry, push_receipt, push_tx_index};
use serde_bytes::{ByteArray, ByteBuf};

use crate::host::{Host, Trap};

/// Bytes of a piece of a block, well below what a message may have.
pub const PIECE: usize = 1_500_000;

/// Where `make canister` puts the wasm, unless `SECATEUR_TEST_CANISTER_WASM` says otherwise.
pub fn wasm() -> &'static [u8] {
    static WASM: OnceLock<Vec<u8>> = OnceLock::new();
    WASM.get_or_init(|| {
        let usual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/canister/secateur.wasm");
        let path = std::env::var_os("SECATEUR_TEST_CANISTER_WASM");
        let path = path.map_or_else(|| PathBuf::from(usual), PathBuf::from);
        std::fs::read(&path)
            .unwrap_or_else(|error| panic!("{}: {error}; run `make canister`", path.display()))
    })
}

/// Who may write.
pub fn controller() -> Principal {
    Principal::self_authenticating([7; 32])
}

/// Who may not.
pub fn stranger() -> Principal {
    Principal::self_authenticating([8; 32])
}

/// One that may be made a consumer.
pub fn consumer() -> Principal {
    Principal::self_authenticating([9; 32])
}

/// A policy with a budget that begins to cut at once, and a canister's usual operations.
pub fn policy(target_bytes: u64) -> PrunePolicy {
    let usual = secateur_core::PrunePolicy::default().into();
    PrunePolicy { target_bytes, max_ops_per_tick: 5_000, ..usual }
}

/// A canister that is installed and has no block.
pub fn installed(policy: Option<PrunePolicy>) -> Host {
    // A canister starts with pruning off.
    let pruning_enabled = Some(true);
    installed_with(&InitArgs { policy, pruning_enabled, chain_id: 7, ..InitArgs::default() })
}

/// The same, installed as these say.
pub fn installed_with(args: &InitArgs) -> Host {
    let mut host = Host::new(wasm(), vec![controller()]);
    host.init(controller(), args).unwrap();
    host.settle();
    host
}

/// What the canister says of itself.
pub fn status(host: &mut Host) -> PruneStatus {
    host.query::<Result<PruneStatus, Error>>("get_prune_status", ()).unwrap().unwrap()
}

/// Turns the kill switch.
pub fn set_pruning(host: &mut Host, enabled: bool) {
    let set: Result<(), Error> =
        host.update(controller(), "set_pruning_enabled", (enabled,)).unwrap();
    set.unwrap();
}

/// Numbers that look like chance and are the same every time.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eca;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend(state.to_be_bytes());
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    bytes.truncate(len);
    bytes
}

fn id(height: Height, purpose: u64) -> [u8; 32] {
    noise(height.wrapping_mul(1_000_003).wrapping_add(purpose), 32).try_into().unwrap()
}

/// The id of a transaction.
pub fn tx_id(height: Height, index: u32) -> TxId {
    TxId(id(height, 1000 + u64::from(index)))
}

/// What names a block.
pub fn meta(height: Height) -> BlockMeta {
    BlockMeta {
        height,
        hash: ByteArray::new(id(height, 1)),
        parent_hash: ByteArray::new(id(height - 1, 1)),
        timestamp: 1_700_000_000 + height,
    }
}

/// An archive part of these blocks.
pub fn part(first: Height, last: Height) -> ArchivePart {
    ArchivePart {
        first,
        last,
        parent_hash: meta(first).parent_hash,
        last_hash: meta(last).hash,
        provider: "s3://archive".into(),
        key: format!("chain=7/{first}-{last}"),
        sha256: ByteArray::new([5; 32]),
        size: 1_000,
    }
}

/// A block with so many bytes of its own and so many transactions, each with a receipt.
pub fn block(height: Height, len: usize, transactions: u32, receipt_len: usize) -> Block {
    let (mut receipts, mut tx_index) = (Vec::new(), Vec::new());
    for index in 0..transactions {
        let tx_id = tx_id(height, index);
        let receipt = noise(height ^ u64::from(index), receipt_len);
        push_receipt(&mut receipts, &tx_id, &receipt).unwrap();
        push_tx_index(&mut tx_index, &TxIndexEntry { tx_id, height, index });
    }
    Block {
        meta: meta(height),
        block: ByteBuf::from(noise(height, len)),
        receipts: ByteBuf::from(receipts),
        tx_index: ByteBuf::from(tx_index),
    }
}

/// Appends a block in one message.
pub fn append(host: &mut Host, block: Block) -> Result<Appended, Error> {
    host.update(controller(), "append", (block,)).unwrap()
}

/// Appends a block piece by piece.
pub fn append_in_pieces(host: &mut Host, block: &Block) -> Result<Result<Appended, Error>, Trap> {
    let payloads = [&block.block, &block.receipts, &block.tx_index];
    let [block_len, receipts_len, tx_index_len] = payloads.map(|p| u32::try_from(p.len()).unwrap());
    let head = BlockHead { meta: block.meta.clone(), block_len, receipts_len, tx_index_len };
    host.update::<Result<(), Error>>(controller(), "append_begin", (head,))?.unwrap();
    for (segment, payload) in (0..).zip(payloads) {
        for (n, bytes) in payload.chunks(PIECE).enumerate() {
            let start = u32::try_from(n * PIECE).unwrap();
            let piece = Piece { segment, start, bytes: ByteBuf::from(bytes) };
            let here: Result<u32, Error> = host.update(controller(), "append_chunk", (piece,))?;
            assert_eq!(here.unwrap() as usize, n * PIECE + bytes.len());
        }
    }
    host.update(controller(), "append_commit", ())
}

/// Appends small blocks up to a height.
pub fn append_up_to(host: &mut Host, last: Height) {
    let head: Result<Option<u64>, Error> = host.query("get_head", ()).unwrap();
    for height in head.unwrap().map_or(1, |head| head + 1)..=last {
        append(host, block(height, 40_000, 4, 100)).unwrap();
    }
}
