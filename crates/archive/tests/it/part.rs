//! A part's bytes: what one block costs, what `zstd` makes of it, what a hostile one can do.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use proptest::prelude::*;
use secateur_archive::{
    ArchiveError, Check, Codec, Day, Digest, FileRange, Grain, Manifest, PartHeader, PartReader,
    PartWriter, RangeRead, read_part,
};
use secateur_core::{Block, MAX_SEGMENT_LEN, encode_bundle};

use crate::chain::{self, CHAIN};

struct Counted<R> {
    inner: R,
    bytes: AtomicU64,
}

impl<R: RangeRead> RangeRead for Counted<R> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, ArchiveError> {
        self.bytes.fetch_add(range.end - range.start, Ordering::Relaxed);
        self.inner.read(range).await
    }
}

fn header(first: &Block, codec: Codec) -> PartHeader {
    PartHeader {
        chain_id: CHAIN,
        codec,
        day: Day::of_timestamp(first.meta.timestamp),
        first: first.meta.height,
        last: first.meta.height,
        parent_hash: first.meta.parent_hash,
        last_hash: first.meta.hash,
        origin: first.meta.height,
        grain: Grain::default(),
    }
}

async fn write(path: &std::path::Path, blocks: &[Block]) -> Manifest {
    let mut writer = PartWriter::create(path, header(&blocks[0], Codec::Opaque)).unwrap();
    for block in blocks {
        writer.push(block).await.unwrap();
    }
    writer.finish().await.unwrap()
}

#[tokio::test]
async fn one_block_of_a_large_part_costs_at_most_two_mebibytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("part");
    let first = chain::opaque_block(7, 20_000, 1);
    let mut writer = PartWriter::create(&path, header(&first, Codec::Opaque)).unwrap();
    // Noise does not compress: 200 MB stay 200 MB.
    for height in 7..10_007 {
        writer.push(&chain::opaque_block(height, 20_000, 1)).await.unwrap();
    }
    let manifest = writer.finish().await.unwrap();
    assert!(manifest.size > 190_000_000);
    let mut most = 0;
    for height in [7, 8, 1_000, 5_003, 10_005, 10_006] {
        let inner = FileRange::open(&path).unwrap();
        let source = Counted { inner, bytes: AtomicU64::new(0) };
        let reader = PartReader::open(source).await.unwrap();
        let block = reader.block(height, Check::Full).await.unwrap();
        assert_eq!(block, chain::opaque_block(height, 20_000, 1));
        most = most.max(reader.source().bytes.load(Ordering::Relaxed));
    }
    println!("one block of {} bytes: {most} bytes read", manifest.size);
    assert!(most <= 2 << 20, "{most} bytes were read for one block");
    let reader = PartReader::open(FileRange::open(&path).unwrap()).await.unwrap();
    assert!(reader.block(6, Check::Full).await.is_err());
    assert!(reader.block(10_007, Check::Full).await.is_err());
}

#[tokio::test]
async fn plain_zstandard_gives_the_raw_stream() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("part");
    let blocks = chain::opaque(3, 400, 9_000);
    let manifest = write(&path, &blocks).await;
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(Digest::of(&bytes), manifest.sha256);
    let raw = zstd::decode_all(&bytes[..]).unwrap();
    let mut wanted = Vec::new();
    for block in &blocks {
        wanted.extend_from_slice(&block.meta.hash.0);
        wanted.extend_from_slice(&block.meta.parent_hash.0);
        wanted.extend_from_slice(&block.meta.timestamp.to_be_bytes());
        wanted.extend_from_slice(&encode_bundle(&block.payloads).unwrap());
    }
    assert!(raw == wanted);
    assert_eq!(Digest::of(&raw), manifest.raw_sha256);
    let (read, seen) = read_part(&bytes.into(), Check::Full).unwrap();
    assert_eq!((read, seen.len()), (manifest, 400));
    assert!(seen == blocks);
}

#[tokio::test]
async fn the_largest_block_there_is_goes_through_and_a_larger_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("part");
    let mut blocks = chain::opaque(0, 3, 100);
    blocks[1].payloads.block = vec![7; MAX_SEGMENT_LEN as usize];
    let manifest = write(&path, &blocks).await;
    // Sixteen mebibytes of one byte pack into next to nothing; the way back is bounded by the table.
    assert!(manifest.size < 10_000);
    let reader = PartReader::open(FileRange::open(&path).unwrap()).await.unwrap();
    assert!(reader.block(1, Check::Full).await.unwrap() == blocks[1]);
    blocks[1].payloads.block.push(7);
    let path = dir.path().join("other");
    let mut writer = PartWriter::create(&path, header(&blocks[0], Codec::Opaque)).unwrap();
    writer.push(&blocks[0]).await.unwrap();
    assert!(matches!(writer.push(&blocks[1]).await, Err(ArchiveError::Core(_))));
}

fn part_bytes() -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("part");
    runtime.block_on(write(&path, &chain::opaque(0, 5, 30)));
    std::fs::read(path).unwrap()
}

/// Puts right every hash that an attacker can compute, so that what is behind them is reached.
fn reseal(bytes: &mut [u8]) {
    let end = bytes.len();
    let footer = 8 + 96 + 40 + 32;
    let table = 8 + 3 * 8 + 9;
    let start = end - table - footer;
    let frame = Digest::of(&bytes[136..start]);
    bytes[start + 8 + 96 + 8..start + 8 + 96 + 40].copy_from_slice(&frame.0);
    let header = Digest::of(&bytes[..136]);
    bytes[start + 8 + 64..start + 8 + 96].copy_from_slice(&header.0);
    let own = Digest::of(&bytes[start + 8..start + footer - 32]);
    bytes[start + footer - 32..start + footer].copy_from_slice(&own.0);
}

#[test]
fn a_frame_that_unpacks_to_more_than_the_table_says_is_refused() {
    let whole = part_bytes();
    reseal(&mut whole.clone());
    let table = whole.len() - 9 - 2 * 8;
    let raw = u32::from_be_bytes([
        whole[table + 7],
        whole[table + 6],
        whole[table + 5],
        whole[table + 4],
    ]);
    // The table, the footer's total and every hash agree on fewer bytes than come out.
    for less in [1, 100] {
        let mut bytes = whole.clone();
        let claimed = raw - less;
        let mut little = claimed.to_be_bytes();
        little.reverse();
        bytes[table + 4..table + 8].copy_from_slice(&little);
        let start = bytes.len() - (8 + 3 * 8 + 9) - (8 + 96 + 40 + 32);
        bytes[start + 8 + 24..start + 8 + 32].copy_from_slice(&u64::from(claimed).to_be_bytes());
        reseal(&mut bytes);
        let error = read_part(&bytes.into(), Check::Framing).unwrap_err().to_string();
        assert!(error.contains("too small"), "{error}");
    }
}

proptest! {
    #[test]
    fn a_hostile_part_is_refused_or_read_but_never_panics(
        at in 0usize..10_000, value in any::<u8>(), more in prop::collection::vec(any::<u8>(), 0..8),
        sealed in any::<bool>(),
    ) {
        let mut bytes = part_bytes();
        let at = at % bytes.len();
        for (offset, byte) in [value].iter().chain(&more).enumerate() {
            if let Some(to) = bytes.get_mut(at + offset) {
                *to = *byte;
            }
        }
        if sealed {
            reseal(&mut bytes);
        }
        if let Ok((manifest, blocks)) = read_part(&bytes.into(), Check::Full) {
            prop_assert_eq!(manifest.blocks(), blocks.len() as u64);
        }
    }

    #[test]
    fn noise_is_not_a_part(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(read_part(&bytes.into(), Check::Framing).is_err());
    }
}
