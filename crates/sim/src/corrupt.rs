//! The corruption sweep: every stored byte of every file changed, every truncation. Each must be
//! detected, or every answer must be what the undamaged store answers.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use secateur_core::{Block, BlockHash, Cursor, Segment, Strength, TxId, tx_index};

use secateur_store::{Arena, Index, Sabotage, Store, StoreError};
use xxhash_rust::xxh3::Xxh3;

use crate::grounds::{Disk, GroundKind};
use crate::image::PAGE;
use crate::rng::Rng;
use crate::script::{Op, Runner, clock};
use crate::world::{Image, World};
use crate::{on_every_core, quiet_redb_panics};

/// How much to damage.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed of contents and masks.
    pub seed: u64,
    /// Damage one byte in so many; 1 is every byte.
    pub stride: u64,
    /// The bug to plant.
    pub sabotage: Sabotage,
}

/// What the sweep counted.
#[derive(Debug, Default)]
pub struct Tally {
    damaged: AtomicU64,
    detected: AtomicU64,
    identical: AtomicU64,
    wrong: AtomicU64,
    first: Mutex<Vec<String>>,
}

impl Tally {
    /// The closing line.
    pub fn line(&self) -> String {
        let [damaged, detected, identical, wrong] =
            [&self.damaged, &self.detected, &self.identical, &self.wrong]
                .map(|count| count.load(Ordering::Relaxed));
        format!("corrupt damaged={damaged} detected={detected} identical={identical} wrong={wrong}")
    }

    /// Damages that went unnoticed and changed an answer.
    pub fn wrong(&self) -> u64 {
        self.wrong.load(Ordering::Relaxed)
    }

    /// Damages that were noticed.
    pub fn detected(&self) -> u64 {
        self.detected.load(Ordering::Relaxed)
    }

    /// The first of them, each with the command that replays it.
    pub fn first(&self) -> Vec<String> {
        self.first.lock().clone()
    }
}

/// One damage.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Flip(u64, u8),
    Truncate(u64),
}

/// Makes a store with some of everything in it, closed cleanly.
fn subject(seed: u64) -> Result<(Image, Questions), StoreError> {
    let mut runner = Runner::<Disk>::new(seed, Sabotage::None)?;
    for op in [Op::AppendMany, Op::Cut, Op::AppendSmall, Op::AppendMany, Op::Seal, Op::Cut] {
        runner.run(op).map_err(|v| StoreError::Poisoned(format!("{v:?}")))?;
    }
    let store = runner.store()?;
    store.register_consumer("indexer", Strength::Hard)?;
    store.register_consumer("dashboard", Strength::Soft)?;
    store.queue_tx(QUEUED)?;
    let known = || runner.model.blocks.values().chain(&runner.model.pruned);
    let hashes = known().map(|block| block.meta.hash).collect();
    let ids = |block: &Block| -> Vec<TxId> {
        tx_index(&block.payloads.tx_index).flatten().map(|entry| entry.tx_id).collect()
    };
    let transactions = known().flat_map(|block| ids(block)).collect();
    let head = runner.model.head_height().unwrap_or(0);
    runner.close();
    Ok((runner.world.image(), Questions { head, hashes, transactions }))
}

/// What the store is asked about.
struct Questions {
    head: u64,
    hashes: Vec<BlockHash>,
    transactions: Vec<TxId>,
}

const QUEUED: TxId = TxId([0xab; 32]);

/// What the store answers to one question: a digest of the answer, or nothing when it is an
/// error that is no answer.
type Answer = Option<u128>;

fn answer<T: Hash>(result: Result<T, StoreError>) -> Answer {
    let mut digest = Digest::default();
    match result {
        Ok(value) => value.hash(&mut digest),
        Err(StoreError::Lookup(answer)) => format!("{answer:?}").hash(&mut digest),
        Err(StoreError::Export(answer)) => format!("{answer:?}").hash(&mut digest),
        Err(_) => return None,
    }
    Some(digest.0.digest128())
}

/// A hasher that keeps 128 bits.
#[derive(Default)]
struct Digest(Xxh3);

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0.digest()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

fn block_parts(block: &Block) -> (String, [Vec<u8>; 3]) {
    let payloads = Segment::ALL.map(|segment| block.payloads.segment(segment).to_vec());
    (format!("{:?}", block.meta), payloads)
}

/// Everything that can be asked of the store.
fn answers<A: Arena, I: Index>(store: &Store<A, I>, asked: &Questions) -> Vec<Answer> {
    fn shown<T: std::fmt::Debug>(value: T) -> String {
        format!("{value:?}")
    }
    let status = store.get_prune_status().map(|mut status| {
        // What the file system has given may differ; it decides nothing.
        (status.disk_bytes, status.index_bytes, status.free_bytes) = (0, 0, None);
        status.alarms.clear();
        status
    });
    let mut all = vec![
        answer(Ok(shown((store.policy(), store.settings())))),
        answer(store.consumers().map(shown)),
        answer(store.reports().map(shown)),
        answer(store.get_receipt(&QUEUED)),
        answer(store.prune_plan().map(shown)),
        answer(status.map(shown)),
    ];
    for height in 0..asked.head + 2 {
        all.push(answer(store.get_block(height).map(|block| block_parts(&block))));
        all.push(answer(store.explain_block(height).map(shown)));
        let exported = store.export_blocks(Some(Cursor::at_block(height)), 100_000);
        all.push(answer(exported.map(|reply| {
            let chunks: Vec<_> = reply.chunks.into_iter().map(|chunk| chunk.bytes).collect();
            (shown(reply.next_cursor), chunks)
        })));
    }
    for hash in &asked.hashes {
        all.push(answer(store.get_block_by_hash(hash).map(|block| block_parts(&block))));
    }
    for id in &asked.transactions {
        all.push(answer(store.get_receipt(id)));
        all.push(answer(
            store.get_transaction(id).map(|found| (shown(found.location), found.block)),
        ));
    }
    all
}

/// Sweeps a store of each layout.
pub fn run(plan: &Plan) -> Result<Tally, StoreError> {
    let tally = Tally::default();
    for seed in [plan.seed, plan.seed + 1] {
        sweep(&Plan { seed, ..plan.clone() }, &tally)?;
    }
    Ok(tally)
}

/// Sweeps all files of one store.
fn sweep(plan: &Plan, tally: &Tally) -> Result<(), StoreError> {
    let (image, asked) = subject(plan.seed)?;
    let world = World::boot(image.clone());
    let sound = Store::open(Disk::open(&world, Sabotage::None)?, clock())?;
    let baseline = answers(&sound, &asked);
    drop(sound);
    let damages = damages(&image, plan);
    let next = AtomicU64::new(0);
    quiet_redb_panics();
    on_every_core(|| {
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            let case = usize::try_from(turn).ok().and_then(|turn| damages.get(turn));
            let Some((file, damage)) = case else { return };
            tally.damaged.fetch_add(1, Ordering::Relaxed);
            let verdict = judge(&image, file, *damage, plan, &asked, &baseline);
            tally.note(verdict, file, *damage, plan);
        }
    });
    Ok(())
}

fn damages(image: &Image, plan: &Plan) -> Vec<(String, Damage)> {
    let mut rng = Rng::new(plan.seed, 55);
    let mut all = Vec::new();
    let keep = |count: u64| count.is_multiple_of(plan.stride);
    let mut count = 0;
    for (name, file) in &image.files {
        for page in file.stored_pages() {
            for offset in page..page + PAGE as u64 {
                count += 1;
                if keep(count) && offset < file.len() {
                    all.push((name.clone(), Damage::Flip(offset, 1 << rng.below(8))));
                }
            }
            for len in [page, page + 1, page + 511, page + 512, page + 4095] {
                if len < file.len() {
                    all.push((name.clone(), Damage::Truncate(len)));
                }
            }
        }
    }
    all
}

enum Verdict {
    Detected,
    Identical,
    Wrong(String),
}

fn judge(
    image: &Image,
    file: &str,
    damage: Damage,
    plan: &Plan,
    asked: &Questions,
    baseline: &[Answer],
) -> Verdict {
    let mut image = image.clone();
    if let Some(content) = image.files.get_mut(file) {
        match damage {
            Damage::Flip(offset, mask) => content.flip(offset, mask),
            Damage::Truncate(len) => content.set_len(len),
        }
    }
    let world = World::boot(image);
    let opened = Disk::open(&world, plan.sabotage)
        .and_then(|ground| Store::open_with(ground, clock(), plan.sabotage));
    let Ok(store) = opened else {
        return Verdict::Detected;
    };
    let answers = answers(&store, asked);
    let wrong = answers
        .iter()
        .zip(baseline)
        .position(|(answer, right)| answer.is_some() && answer != right);
    match wrong {
        Some(question) => Verdict::Wrong(format!("question {question} got another answer")),
        None if answers.contains(&None) => Verdict::Detected,
        None => Verdict::Identical,
    }
}

impl Tally {
    fn note(&self, verdict: Verdict, file: &str, damage: Damage, plan: &Plan) {
        let count = match verdict {
            Verdict::Detected => &self.detected,
            Verdict::Identical => &self.identical,
            Verdict::Wrong(text) => {
                let mut first = self.first.lock();
                if first.len() < 5 {
                    first.push(format!(
                        "{file} {damage:?}: {text}\n  replay: cargo run --release -p secateur-sim \
                         -- corrupt --seed {}",
                        plan.seed
                    ));
                }
                &self.wrong
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}
