//! The worked example of `docs/format/part.md`, byte for byte.

use secateur_archive::read_part;
use secateur_archive::{Check, Codec, Day, Grain, Manifest, PartHeader, PartKey, PartWriter};
use secateur_core::{Block, BlockHash, BlockMeta, Payloads, TxId, TxIndexEntry};
use secateur_core::{push_receipt, push_tx_index};

const PART: &[u8] = include_bytes!("../data/part-v1.zst");
const MANIFEST: &[u8] = include_bytes!("../data/part-v1.json");

fn blocks() -> [Block; 2] {
    let block = |height: u8, text: &str| {
        let tx_id = TxId([0xa0 + height; 32]);
        let mut payloads = Payloads { block: text.as_bytes().to_vec(), ..Payloads::default() };
        push_receipt(&mut payloads.receipts, &tx_id, b"done").unwrap();
        let entry = TxIndexEntry { tx_id, height: height.into(), index: 0 };
        push_tx_index(&mut payloads.tx_index, &entry);
        let meta = BlockMeta {
            height: height.into(),
            hash: BlockHash([height; 32]),
            parent_hash: BlockHash([height - 1; 32]),
            timestamp: 1_700_000_000 + u64::from(height),
        };
        Block { meta, payloads }
    };
    [block(7, "seven"), block(8, "eight")]
}

async fn write(path: &std::path::Path) -> Manifest {
    let blocks = blocks();
    let meta = &blocks[0].meta;
    let header = PartHeader {
        chain_id: 1337,
        codec: Codec::Opaque,
        day: Day::of_timestamp(meta.timestamp),
        first: 7,
        last: 7,
        parent_hash: meta.parent_hash,
        last_hash: meta.hash,
        origin: 7,
        grain: Grain { daily: true, max_blocks: Some(2), max_bytes: 1 << 30 },
    };
    let mut writer = PartWriter::create(path, header).unwrap();
    for block in &blocks {
        writer.push(block).await.unwrap();
    }
    writer.finish().await.unwrap()
}

#[tokio::test]
async fn the_example_of_the_format_page_is_what_is_written_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("part");
    let manifest = write(&path).await;
    if let Some(to) = std::env::var_os("SECATEUR_WRITE_PART_VECTOR") {
        std::fs::copy(&path, std::path::Path::new(&to).join("part-v1.zst")).unwrap();
        let json = manifest.to_bytes().unwrap();
        std::fs::write(std::path::Path::new(&to).join("part-v1.json"), json).unwrap();
    }
    assert_eq!(std::fs::read(&path).unwrap(), PART);
    assert_eq!(manifest.to_bytes().unwrap(), MANIFEST);
    let (read, seen) = read_part(&PART.into(), Check::Full).unwrap();
    assert_eq!(read, manifest);
    assert_eq!(seen, blocks());
    assert_eq!(Manifest::from_bytes(&manifest.key(), MANIFEST).unwrap(), manifest);
    let page = include_str!("../../../../docs/format/part.md");
    for told in [
        manifest.key().object(),
        manifest.sha256.to_string(),
        manifest.raw_sha256.to_string(),
        std::str::from_utf8(MANIFEST).unwrap().to_owned(),
    ] {
        assert!(page.contains(&told), "the page lacks {told}");
    }
    // The dump of the page: offset, bytes, and a word on them.
    let mut dumped = Vec::new();
    for line in page.lines().filter_map(|line| line.strip_prefix("| `")) {
        let Some((offset, rest)) = line.split_once("` | `") else { continue };
        let Ok(offset) = offset.parse::<usize>() else { continue };
        assert_eq!(offset, dumped.len(), "a line of the dump is out of place");
        let hex = rest.split_once('`').unwrap().0;
        for pair in hex.split_whitespace().flat_map(|group| group.as_bytes().as_chunks::<2>().0) {
            dumped.push(u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
        }
    }
    assert_eq!(dumped, PART);
    assert!(PartKey::parse(&manifest.key().manifest()).is_ok());
}
