//! Writes the committed seeds of every target: small, valid, and always the same. Run it as
//! `fuzz/run seeds` after a format has changed.

use std::path::{Path, PathBuf};

use secateur_core::{
    Block, BlockHash, BlockMeta, Payloads, PrunePolicy, TxId, encode_bundle, push_receipt,
};
use secateur_fuzz::{fixture, format};
use secateur_store::ground::{MemoryArena, MemoryIndex};
use secateur_store::{
    BlobPtr, BlockRecord, ClassTable, Ground, Header, Index, JournalEntry, Layout,
};

type Seeds = Vec<(&'static str, Vec<u8>)>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let corpus: PathBuf = std::env::args_os().nth(1).ok_or("usage: seeds <corpus>")?.into();
    let targets: [(&str, Seeds); 11] = [
        ("bundle", bundles()?),
        ("receipts", receipts()?),
        ("tx_index", tx_indexes()),
        ("block_record", block_records()),
        ("journal_entry", journal_entries()),
        ("header_row", header_rows()?),
        ("export", exports()),
        ("policy", policies()?),
        ("ids_and_sizes", texts()),
        ("store_rows", store_rows()?),
        ("ground_files", ground_files()),
    ];
    for (target, seeds) in targets {
        write(&corpus.join(target), &seeds)?;
    }
    Ok(())
}

fn write(directory: &Path, seeds: &Seeds) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    for (name, bytes) in seeds {
        std::fs::write(directory.join(format!("seed-{name}")), bytes)?;
    }
    Ok(())
}

fn two_blocks() -> [Block; 2] {
    [fixture::block(103), fixture::block(105)]
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

fn block_records() -> Seeds {
    let record = |lens: [u32; 3], extents: Vec<BlobPtr>| BlockRecord {
        meta: BlockMeta {
            height: 7,
            hash: BlockHash([1; 32]),
            parent_hash: BlockHash([2; 32]),
            timestamp: 1_700_000_000,
        },
        max_timestamp: 1_700_000_001,
        tx_count: 3,
        lens,
        checksums: [11, 12, 13],
        extents,
    };
    let none = record([0; 3], Vec::new());
    let two = record([4096, 3, 48], vec![ptr(4096, 4096), ptr(12288, 51)]);
    let wrong = record([1, 1, 1], vec![ptr(4096, 4)]);
    [("empty", none), ("two-regions", two), ("wrong-sum", wrong)]
        .map(|(name, record)| (name, format::block_record(&record)))
        .into()
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
        *version = 2;
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
fn store_rows() -> Result<Seeds, Box<dyn std::error::Error>> {
    let ground = Ground { arena: MemoryArena::default(), index: MemoryIndex::default() };
    let ground = fixture::populate(ground)?.into_ground();
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
        let mut bytes = vec![u8::try_from(place)?];
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
