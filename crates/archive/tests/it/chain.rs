//! Chains to archive, and the loop that a worker runs.

use secateur_archive::{
    Archive, ArchiveError, ArchiveUrl, Archiver, ArchiverOptions, Codec, Grain, Retry, Settings,
};
use secateur_core::{Block, BlockHash, BlockMeta, Height, Part, Payloads, push_tx_index};
use secateur_core::{TxId, TxIndexEntry, push_receipt};
use secateur_evm::{ChainSpec, Generator};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub const CHAIN: u64 = 1337;

/// A generated EVM chain with a block every two hours.
pub fn evm(count: u64) -> Vec<Block> {
    let spec = ChainSpec {
        chain_id: CHAIN,
        block_time: 7_200,
        transactions_per_block: 2,
        mean_calldata: 64,
        ..ChainSpec::default()
    };
    let generator = Generator::new(spec).unwrap();
    generator.blocks().take(usize::try_from(count).unwrap()).map(Result::unwrap).collect()
}

/// A chain that nobody can look into, from any height on, with a block every two hours.
pub fn opaque(first: Height, count: u64, payload: usize) -> Vec<Block> {
    (first..first + count).map(|height| opaque_block(height, payload, 7_200)).collect()
}

pub fn opaque_block(height: Height, payload: usize, block_time: u64) -> Block {
    let mut state = height.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut noise = |len: usize| -> Vec<u8> {
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_be_bytes()
        };
        std::iter::repeat_with(next).flatten().take(len).collect()
    };
    let mut payloads = Payloads { block: noise(payload), ..Payloads::default() };
    let tx_id = TxId(noise(32).try_into().unwrap());
    push_receipt(&mut payloads.receipts, &tx_id, &noise(5)).unwrap();
    push_tx_index(&mut payloads.tx_index, &TxIndexEntry { tx_id, height, index: 0 });
    let meta = BlockMeta {
        height,
        hash: opaque_hash(height),
        parent_hash: height.checked_sub(1).map(opaque_hash).unwrap_or_default(),
        timestamp: 1_700_000_000 + height * block_time,
    };
    Block { meta, payloads }
}

pub fn opaque_hash(height: Height) -> BlockHash {
    let mut hash = [0x5a; 32];
    hash[..8].copy_from_slice(&height.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    BlockHash(hash)
}

/// Short pauses: the tests' faults end at once.
pub fn quick() -> Retry {
    Retry {
        attempts: 4,
        first_pause: Duration::from_millis(1),
        max_pause: Duration::from_millis(4),
        // A busy machine is not a fault.
        request_timeout: Duration::from_secs(30),
    }
}

/// For requests that are never answered: given up soon, and tried more often for it.
pub fn impatient() -> Retry {
    Retry { attempts: 10, request_timeout: Duration::from_millis(400), ..quick() }
}

pub fn directory(path: &Path) -> Archive {
    let settings = Settings { retry: quick(), ..Settings::default() };
    Archive::create(&ArchiveUrl::Directory(path.to_owned()), &settings).unwrap()
}

pub fn memory() -> (Arc<object_store::memory::InMemory>, Archive) {
    let store = Arc::new(object_store::memory::InMemory::new());
    let archive = Archive::with_store(Arc::clone(&store) as _, "memory://test", quick());
    (store, archive)
}

pub fn options(stage: &Path, codec: Codec, blocks: u64) -> ArchiverOptions {
    let grain = Grain { max_blocks: Some(blocks), ..Grain::default() };
    ArchiverOptions { grain, ..ArchiverOptions::new(stage, CHAIN, codec, 0) }
}

/// Gives everything that waits to its caller, as a worker would.
pub async fn settle(archiver: &mut Archiver, parts: &mut Vec<Part>) -> Result<(), ArchiveError> {
    while let Some(part) = archiver.publish().await? {
        if !parts.contains(&part) {
            parts.push(part.clone());
        }
        archiver.settled(&part).await?;
    }
    Ok(())
}

/// Archives blocks from wherever the archiver stands.
pub async fn archive_all(
    archive: &Archive,
    options: ArchiverOptions,
    blocks: &[Block],
) -> Result<Vec<Part>, ArchiveError> {
    let mut parts = Vec::new();
    let first = blocks.first().map_or(0, |block| block.meta.height);
    loop {
        let mut archiver = Archiver::open(archive.clone(), options.clone()).await?;
        settle(&mut archiver, &mut parts).await?;
        let from = usize::try_from(archiver.next_height() - first).unwrap();
        for block in &blocks[from..] {
            if archiver.is_filled() {
                break;
            }
            archiver.push(block).await?;
            settle(&mut archiver, &mut parts).await?;
        }
        if !archiver.is_filled() {
            return Ok(parts);
        }
    }
}
