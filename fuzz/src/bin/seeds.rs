//! Writes the committed seeds of every target: small, valid, and always the same. Run it as
//! `fuzz/run seeds` after a format has changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use secateur_core::{
    Block, BlockMeta, Payloads, PrunePolicy, TxId, TxIndexEntry, Writer, encode_bundle,
    push_receipt, push_tx_index,
};
use secateur_fuzz::{fixture, format};
use secateur_store::ground::{MemoryArena, MemoryIndex};
use secateur_store::{
    Arena, Blob, BlobPtr, BlockRecord, ClassTable, FORMAT_VERSION, Ground, Group, Header, Index,
    JournalEntry, Layout, Place, RunRecord, Settings, Store, StoreConfig, Table,
};

type Seeds = Vec<(&'static str, Vec<u8>)>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let corpus: PathBuf = std::env::args_os().nth(1).ok_or("usage: seeds <corpus>")?.into();
    let targets: [(&str, Seeds); 19] = [
        ("bundle", bundles()?),
        ("receipts", receipts()?),
        ("tx_index", tx_indexes()),
        ("block_record", block_records()),
        ("run_record", run_records()),
        ("run_page", run_pages()?),
        ("run_summary", run_summaries()?),
        ("journal_entry", journal_entries()),
        ("header_row", header_rows()?),
        ("export", exports()),
        ("policy", policies()?),
        ("ids_and_sizes", texts()),
        ("ground_files", ground_files()),
        ("part", parts()),
        ("manifest", manifests()?),
        ("archive_names", archive_names()?),
        ("notice", notices()?),
        ("notice_v0", bodies_v0()?),
        ("kasane", kasane_blocks()?),
    ];
    for (target, seeds) in targets {
        write(&corpus.join(target), "seed", &seeds)?;
    }
    for layout in [Layout::PerBlock, Layout::Packed] {
        let prefix = format!("seed-{}", layout.name());
        write(&corpus.join("store_rows"), &prefix, &store_rows(layout)?)?;
    }
    Ok(())
}

fn write(directory: &Path, prefix: &str, seeds: &Seeds) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    for (name, bytes) in seeds {
        std::fs::write(directory.join(format!("{prefix}-{name}")), bytes)?;
    }
    Ok(())
}

fn two_blocks() -> [Block; 2] {
    [fixture::block(103), fixture::block(105)]
}

/// The worked example of `docs/format/part.md`.
const PART: &[u8] = include_bytes!("../../../crates/archive/tests/data/part-v1.zst");
const MANIFEST: &[u8] = include_bytes!("../../../crates/archive/tests/data/part-v1.json");

fn parts() -> Seeds {
    let cut_off = PART.get(..PART.len() - 1).unwrap_or_default().to_vec();
    vec![("whole", PART.to_vec()), ("cut-off", cut_off)]
}

fn part_name() -> Result<String, Box<dyn std::error::Error>> {
    let (manifest, _) = secateur_archive::read_part(&PART.into(), secateur_archive::Check::Full)?;
    Ok(manifest.key().object())
}

fn manifests() -> Result<Seeds, Box<dyn std::error::Error>> {
    let name = part_name()?;
    let elsewhere = name.replace("chain=1337", "chain=1");
    let with = |name: &str| [name.as_bytes(), b"\n", MANIFEST].concat();
    Ok(vec![("whole", with(&name)), ("elsewhere", with(&elsewhere))])
}

fn archive_names() -> Result<Seeds, Box<dyn std::error::Error>> {
    let name = part_name()?;
    let manifest = name.replace(".zst", ".json");
    let outside = name.replace("day=", "day=../");
    Ok(vec![
        ("part", name.into_bytes()),
        ("manifest", manifest.into_bytes()),
        ("outside", outside.into_bytes()),
        ("day", b"2024-02-29".to_vec()),
        ("digest", [b'a'; 64].to_vec()),
        ("s3", b"s3://bucket/a/prefix".to_vec()),
        ("file", b"file:///var/archive".to_vec()),
    ])
}

/// The vectors of `docs/format/notice.md`.
const NOTICES: &str = include_str!("../../../docs/format/notice-vectors.json");

fn notices() -> Result<Seeds, Box<dyn std::error::Error>> {
    let wanted = [
        ("v1-plain", "accepted", 0),
        ("v1-largest-numbers", "accepted", 1),
        ("v1-smallest-numbers", "accepted", 2),
        ("v1-sixteen-locators", "accepted", 3),
        ("v1-not-ascii", "accepted", 4),
        ("v0-plain", "accepted", 6),
        ("v0-defaults", "accepted", 7),
        ("v0-no-round", "accepted", 8),
        ("v1-no-locator", "refused", 4),
        ("v1-twice", "refused", 6),
    ];
    let vectors: serde_json::Value = serde_json::from_str(NOTICES)?;
    let mut seeds = Seeds::new();
    for (name, which, at) in wanted {
        seeds.push((name, unhex(&vectors[which][at]["wire"])?));
    }
    Ok(seeds)
}

/// The signed bytes behind their domain.
fn bodies_v0() -> Result<Seeds, Box<dyn std::error::Error>> {
    let vectors: serde_json::Value = serde_json::from_str(NOTICES)?;
    let mut seeds = Seeds::new();
    for (name, at) in [("plain", 6), ("defaults", 7), ("no-round", 8), ("largest-numbers", 9)] {
        let preimage = unhex(&vectors["accepted"][at]["preimage"])?;
        seeds.push((name, preimage.get(15..).unwrap_or_default().to_vec()));
    }
    Ok(seeds)
}

fn unhex(value: &serde_json::Value) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let digits = value.as_str().ok_or("a vector is missing")?;
    let pairs = digits.as_bytes().chunks(2).map(std::str::from_utf8);
    pairs.map(|pair| Ok(u8::from_str_radix(pair?, 16)?)).collect()
}

fn bundles() -> Result<Seeds, Box<dyn std::error::Error>> {
    let small = Payloads { block: b"block".to_vec(), ..fixture::block(105).payloads };
    Ok(vec![
        ("empty", encode_bundle(&Payloads::default())?),
        ("whole", encode_bundle(&small)?),
        ("over-the-limit", [0xff; 16].to_vec()),
    ])
}

fn receipts() -> Result<Seeds, Box<dyn std::error::Error>> {
    let mut several = Vec::new();
    for (at, receipt) in [&b""[..], b"a", b"a longer receipt"].into_iter().enumerate() {
        push_receipt(&mut several, &TxId([u8::try_from(at)?; 32]), receipt)?;
    }
    let cut_off = several.get(..several.len() - 1).unwrap_or_default().to_vec();
    Ok(vec![("none", Vec::new()), ("several", several), ("cut-off", cut_off)])
}

/// Blocks of the Kasane chain, as bundles: without a transaction, and with both forms of receipts.
fn kasane_blocks() -> Result<Seeds, Box<dyn std::error::Error>> {
    let height = 12;
    let own = |ids: &[TxId]| {
        let mut bytes = Writer::new();
        bytes.u64(height).bytes(&[1; 32]).bytes(&[2; 32]).u64(1_700_000_012);
        bytes.bytes(&[3; 3 * 8 + 20 + 64]).u32(ids.len() as u32);
        for id in ids {
            bytes.bytes(&id.0);
        }
        bytes.finish()
    };
    let receipt = |id: &TxId, index: u32, is_v2: bool| {
        let mut bytes = Writer::new();
        bytes.bytes(if is_v2 { &b"rcptv2\0\x02"[..] } else { b"" });
        bytes.bytes(&id.0).u64(height).u32(index).u8(1).u64(21_000).u64(9);
        bytes.bytes(if is_v2 { &[0; 48][..] } else { &[] }).bytes(&[7; 32]).u32(3).bytes(b"abc");
        bytes.flag(is_v2).bytes(&[8; 20]).u32(1);
        bytes.bytes(&[9; 20]).u32(1).bytes(&[10; 32]).u32(5).bytes(b"bytes");
        bytes.finish()
    };
    let ids = [TxId([4; 32]), TxId([5; 32])];
    let mut whole = Payloads { block: own(&ids), ..Payloads::default() };
    for (index, id) in (0..).zip(&ids) {
        push_receipt(&mut whole.receipts, id, &receipt(id, index, index == 1))?;
        push_tx_index(&mut whole.tx_index, &TxIndexEntry { tx_id: *id, height, index });
    }
    let empty = Payloads { block: own(&[]), ..Payloads::default() };
    Ok(vec![("empty", encode_bundle(&empty)?), ("two-receipts", encode_bundle(&whole)?)])
}

fn tx_indexes() -> Seeds {
    let [a, b] = two_blocks().map(|block| block.payloads.tx_index);
    let mut long = a.clone();
    if let Some(len) = long.get_mut(35) {
        *len = 13;
    }
    vec![("one", a.clone()), ("two", [a, b].concat()), ("length-13", long)]
}

fn ptr(offset: u64, len: u32) -> BlobPtr {
    BlobPtr { offset, len, class: 4096, generation: 2 }
}

/// `first u64 · body` as in the target.
fn block_records() -> Seeds {
    let record = |height: u64, lens: [u32; 3], place: Place| BlockRecord {
        meta: BlockMeta {
            height,
            hash: fixture::hash_of(height),
            parent_hash: fixture::hash_of(height - 1),
            timestamp: 1_700_000_000,
        },
        max_timestamp: 1_700_000_001,
        tx_count: 3,
        lens,
        checksums: [11, 12, 13],
        place,
    };
    let own = |height, lens, ptrs| record(height, lens, Place::Regions(ptrs));
    let packed = |height: u64| record(height, [9, 0, 48], Place::Stream(8192 + 57 * (height - 7)));
    let none = own(7, [0; 3], Vec::new());
    let two = own(8, [4096, 3, 48], vec![ptr(4096, 4096), ptr(12288, 51)]);
    let wrong = own(7, [1, 1, 1], vec![ptr(4096, 4)]);
    [
        ("empty", vec![none.clone()]),
        ("two-regions", vec![none, two]),
        ("wrong-sum", vec![wrong]),
        ("packed", (7..10).map(packed).collect()),
        ("packed-full", (7..39).map(packed).collect()),
        ("packed-over", (7..40).map(packed).collect()),
    ]
    .map(|(name, records)| {
        let body = format::group(&Group { records });
        (name, [&7u64.to_be_bytes(), body.as_slice()].concat())
    })
    .into()
}

/// `number u64 · body` as in the target.
fn run_records() -> Seeds {
    let stream = |at, len| Blob { place: Place::Stream(at), len };
    let own = |len: u32| Blob { place: Place::Regions(vec![ptr(4096, len)]), len: len.into() };
    let record = |run, filter| RunRecord {
        number: 3,
        first: 100,
        last: 140,
        entries: 300,
        missing: 0,
        run,
        filter,
    };
    let huge = stream((1 << 62) - 1, u64::MAX >> 1);
    [
        ("packed", record(Some(stream(8192, 8192)), stream(4096, 800))),
        ("packed-tombstone", record(None, stream(4096, 800))),
        ("per-block", record(Some(own(4096)), own(800))),
        ("missing", RunRecord { missing: 2, ..record(None, own(800)) }),
        ("backward", RunRecord { first: 141, ..record(None, own(800)) }),
        ("huge", RunRecord { entries: u64::MAX, ..record(Some(huge), stream(0, 0)) }),
    ]
    .map(|(name, record)| {
        (name, [&3u64.to_be_bytes(), format::run_record(&record).as_slice()].concat())
    })
    .into()
}

/// The pages and the summary of a run of `blocks` blocks, read from the arena of a store that
/// sealed it. It is a store's first run, so its number is 0.
fn sealed_run(blocks: u64) -> Result<(Vec<u8>, Vec<u8>), Box<dyn std::error::Error>> {
    let ground = Ground { arena: MemoryArena::default(), index: MemoryIndex::default() };
    let config = StoreConfig {
        layout: Layout::PerBlock,
        settings: Settings { epoch_ids: 2 * blocks, ..Settings::default() },
        ..StoreConfig::new(7, [9; 16])
    };
    let store = Store::create(ground, config, Arc::new(fixture::StoppedClock))?;
    for height in 1..=blocks {
        let mut block = fixture::block(height);
        // The fixture's ids come again after some hundred blocks; these do not.
        let tail = &height.to_be_bytes();
        let below = &(height - 1).to_be_bytes();
        let end = |id: &mut [u8; 32], tail: &[u8; 8]| id[24..].copy_from_slice(tail);
        end(&mut block.meta.hash.0, tail);
        end(&mut block.meta.parent_hash.0, below);
        store.append(&block)?;
    }
    let ground = store.into_ground();
    let snapshot = ground.index.snapshot()?;
    let row = snapshot.rows().find(|(table, ..)| *table == Table::Runs).ok_or("no run")?;
    let body = row.2.get(..row.2.len() - 4).unwrap_or_default();
    let record = RunRecord::decode(0, body)?;
    let read = |blob: Option<&Blob>| -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let mut bytes = Vec::new();
        if let Some(Blob { place: Place::Regions(ptrs), .. }) = blob {
            for ptr in ptrs {
                let mut part = vec![0; usize::try_from(ptr.len)?];
                ground.arena.read_at(ptr.offset, &mut part)?;
                bytes.extend(part);
            }
        }
        Ok(bytes)
    };
    Ok((read(record.run.as_ref())?, read(Some(&record.filter))?))
}

/// `flags u8 · run u64 · page u32 · key u64 · body` as in the target; without the zeros at the end.
fn run_pages() -> Result<Seeds, Box<dyn std::error::Error>> {
    let input = |flags: u8, page: u32, bytes: &[u8]| {
        let body = bytes.get(4..).unwrap_or_default();
        let used = body.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        // The key of the entry in the middle.
        let count = body.first_chunk().map_or(0, |count| u16::from_be_bytes(*count));
        let at = 12 + 24 * usize::from(count / 2);
        let key = body.get(at..at + 7).unwrap_or_default();
        let head = [&[flags], &[0; 8][..], &page.to_be_bytes(), &[0], key].concat();
        [head.as_slice(), body.get(..used).unwrap_or_default()].concat()
    };
    let (small, _) = sealed_run(5)?;
    let (large, _) = sealed_run(150)?;
    let page = |number: usize| large.get(number * 4096..).unwrap_or_default();
    Ok(vec![
        ("five-blocks", input(1, 0, &small)),
        ("unsorted", input(0, 0, &[&small[..40], &small[64..88], &small[40..64]].concat())),
        ("wrong-checksum", input(2, 0, &small)),
        ("short", input(4, 0, &small)),
        ("full", input(1, 0, &page(0)[..4096])),
        ("second", input(1, 1, page(1))),
    ])
}

/// `flags u8 · head length u16 · head · filter` as in the target.
fn run_summaries() -> Result<Seeds, Box<dyn std::error::Error>> {
    let input = |flags: u8, pages: usize, bytes: &[u8]| {
        let len = 12 + 8 * pages;
        let (head, rest) = bytes.split_at(len);
        // Without the filter's checksum and without the whole one.
        let filter = rest.get(..rest.len() - 8).unwrap_or_default();
        let prefix = [&[flags][..], &(len as u16).to_be_bytes()].concat();
        [prefix.as_slice(), head, filter].concat()
    };
    let (_, small) = sealed_run(5)?;
    let (_, large) = sealed_run(150)?;
    let empty = [b"SRS\x01", &[0; 8][..], b"SFL\x01", &[0; 20], &[0; 8]].concat();
    Ok(vec![
        ("five-blocks", input(0, 1, &small)),
        ("two-pages", input(0, 2, &large)),
        ("empty", input(0, 0, &empty)),
        ("wrong-inside", input(1, 1, &small)),
        ("wrong-outside", input(2, 1, &small)),
    ])
}

fn journal_entries() -> Seeds {
    let one = JournalEntry { height: 7, regions: vec![ptr(4096, 17)] };
    let none = JournalEntry { height: u64::MAX, regions: Vec::new() };
    vec![("one", format::journal_entry(&one)), ("none", format::journal_entry(&none))]
}

fn header_rows() -> Result<Seeds, Box<dyn std::error::Error>> {
    let header =
        |classes| Header { store_id: [7; 16], chain_id: 1, layout: Layout::PerBlock, classes };
    let odd = ClassTable::explicit(vec![4096, 12288, 1 << 30])?;
    let mut newer = format::header_row(&header(ClassTable::small()));
    if let Some(version) = newer.get_mut(11) {
        *version = u8::try_from(FORMAT_VERSION + 1)?;
    }
    Ok(vec![
        ("standard", format::header_row(&header(ClassTable::standard()))),
        ("explicit", format::header_row(&header(odd))),
        ("newer", newer),
    ])
}

/// The fields of `secateur_fuzz::source::Call`.
fn exports() -> Seeds {
    let call = |blocks: u8, cut: u8, seed: u8, cursor: u8, delta: u16, offset: u32, max: u32| {
        let mut bytes = 100u64.to_be_bytes().to_vec();
        bytes.extend([blocks, cut, 0, seed, cursor]);
        bytes.extend(delta.to_be_bytes());
        bytes.push(0);
        bytes.extend(offset.to_be_bytes());
        bytes.extend(max.to_be_bytes());
        bytes
    };
    vec![
        ("no-cursor", call(6, 0, 0, 0, 16, 0, 1_000_000)),
        ("one-byte-budget", call(6, 2, 3, 1, 18, 0, 1)),
        ("pruned", call(6, 2, 3, 1, 16, 0, 1000)),
        ("past-the-payload", call(6, 0, 0, 1, 16, u32::MAX, 1000)),
        ("caught-up", call(6, 0, 0, 1, 22, 0, 1000)),
        ("empty-store", call(0, 0, 0, 0, 16, 0, 1000)),
    ]
}

fn policies() -> Result<Seeds, Box<dyn std::error::Error>> {
    let lines = "target_bytes=64MiB\nretain_days=14\nretain_blocks=1_000\nheadroom_ratio=0.1999\n\
                 hard_emergency_ratio=0.96\nmax_ops_per_tick=7\ntrigger=both:10:500\n\
                 min_keep_blocks=3\nclock=wall\n";
    Ok(vec![
        ("default.json", serde_json::to_vec(&PrunePolicy::default())?),
        ("lines", lines.as_bytes().to_vec()),
        ("triggers", b"trigger=timer:1\ntrigger=every_n_blocks:84\nclock=chain".to_vec()),
    ])
}

fn texts() -> Seeds {
    let id = TxId([0xa5; 32]).to_string();
    vec![
        ("id", id.clone().into_bytes()),
        ("id-upper", id.to_ascii_uppercase().replace("0X", "").into_bytes()),
        ("size", b"64MiB".to_vec()),
        ("size-spaced", b" 1_000 gb ".to_vec()),
        ("size-over", b"20000000TiB".to_vec()),
        ("name", b"indexer-1.main_db".to_vec()),
    ]
}

/// One seed for each kind of row: the row of the fixture, as it is.
fn store_rows(layout: Layout) -> Result<Seeds, Box<dyn std::error::Error>> {
    let ground = Ground { arena: MemoryArena::default(), index: MemoryIndex::default() };
    let ground = fixture::populate(ground, layout)?.into_ground();
    let snapshot = ground.index.snapshot()?;
    let mut seeds = Seeds::new();
    for (place, (table, key, value)) in snapshot.rows().enumerate() {
        let name = match (table.name(), key) {
            ("meta", b"state") => "state",
            ("meta", b"policy") => "policy",
            ("meta", b"settings") => "settings",
            ("meta", _) => "header",
            (name, _) => name,
        };
        if seeds.iter().any(|(before, _)| *before == name) {
            continue;
        }
        let body = value.get(..value.len() - 4).unwrap_or_default();
        let mut bytes = vec![layout as u8, u8::try_from(place)?];
        bytes.extend(u16::try_from(body.len())?.to_be_bytes());
        bytes.extend(body);
        seeds.push((name, bytes));
    }
    Ok(seeds)
}

/// `file u8 · offset u24 · len u8 · bytes` as in the target.
fn ground_files() -> Seeds {
    vec![
        ("untouched", Vec::new()),
        ("per-block", vec![64, 0, 0, 0, 0]),
        ("slot-0", vec![0, 0, 0, 9, 2, 1, 1]),
        ("slot-1", vec![0, 0, 0x10, 9, 2, 1, 1]),
        ("both-slots", vec![0, 0, 0, 0, 1, 1, 0, 0, 0x10, 0, 1, 1]),
        ("a-page", vec![1, 0, 0x30, 0, 3, 0xff, 0xff, 0xff]),
        ("arena-header", vec![2, 0, 0, 3, 1, 0x20]),
        ("arena-region", vec![2, 0, 0x30, 0, 1, 0x20]),
        ("short-index", vec![128, 0, 0x11, 0]),
        ("short-arena", vec![130, 0, 0x20, 0]),
    ]
}
