//! What a store must hold: the plainest thing that can say it.

use std::collections::BTreeMap;
use std::sync::Arc;

use secateur_core::{Block, BlockHash, Height, LookupError, Segment, receipts, tx_index};
use secateur_store::{Arena, Index, Store, StoreError};

/// The blocks that are there, and the boundary.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// The kept blocks.
    pub blocks: BTreeMap<Height, Arc<Block>>,
    /// Everything at or below is gone.
    pub boundary: Option<Height>,
    /// The newest blocks that were cut.
    pub pruned: Vec<Arc<Block>>,
}

/// A promise that was broken, and which kind of promise it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// Acknowledged data is gone or cannot be read.
    Loss(String),
    /// Space is neither used nor free.
    Leak(String),
    /// Something false was returned.
    Wrong(String),
}

impl Model {
    /// The newest block.
    pub fn head(&self) -> Option<&Arc<Block>> {
        self.blocks.values().next_back()
    }

    /// The newest height.
    pub fn head_height(&self) -> Option<Height> {
        self.head().map(|block| block.meta.height)
    }

    /// The newest hash.
    pub fn head_hash(&self) -> BlockHash {
        self.head().map_or(BlockHash::default(), |block| block.meta.hash)
    }

    /// Adds blocks.
    pub fn append(&mut self, blocks: &[Block]) {
        for block in blocks {
            self.blocks.insert(block.meta.height, Arc::new(block.clone()));
        }
    }

    /// Removes everything at or below `boundary`.
    pub fn cut(&mut self, boundary: Height) {
        let kept = self.blocks.split_off(&(boundary + 1));
        self.pruned.extend(std::mem::replace(&mut self.blocks, kept).into_values());
        self.boundary = Some(boundary);
    }

    /// Removes everything above `to`.
    pub fn roll_back(&mut self, to: Height) {
        self.blocks.retain(|height, _| *height <= to);
    }

    /// Whether the store's ends are this model's.
    fn fits<A: Arena, I: Index>(&self, store: &Store<A, I>) -> bool {
        let boundary = store.get_prune_status().map(|status| status.pruned_before_block);
        store.head() == self.head_height()
            && store.head_hash().unwrap_or_default() == self.head_hash()
            && boundary.is_ok_and(|boundary| boundary == self.boundary)
    }
}

/// Checks that a store is exactly one of the allowed models, and whole.
pub fn check<A: Arena, I: Index>(store: &Store<A, I>, allowed: &[Model]) -> Result<(), Violation> {
    let Some(model) = allowed.iter().find(|model| model.fits(store)) else {
        return Err(Violation::Loss(format!(
            "head {:?} and boundary {:?} are none of {:?}",
            store.head(),
            store.get_prune_status().map(|status| status.pruned_before_block),
            allowed.iter().map(|m| (m.head_height(), m.boundary)).collect::<Vec<_>>()
        )));
    };
    check_blocks(store, model)?;
    check_together(store, model)?;
    check_hashes(store, model)?;
    check_whole(store)
}

/// I1, I2: every kept block bit-exact, every other height with its honest answer.
fn check_blocks<A: Arena, I: Index>(store: &Store<A, I>, model: &Model) -> Result<(), Violation> {
    for (height, block) in &model.blocks {
        match store.get_block(*height) {
            Ok(read) if read == **block => {}
            Ok(_) => return Err(Violation::Wrong(format!("block {height} has other bytes"))),
            Err(error) => return Err(Violation::Loss(format!("block {height}: {error}"))),
        }
    }
    let beyond = model.head_height().map_or(0, |head| head + 1);
    expect(store, beyond, |answer| matches!(answer, LookupError::NotFound { .. }))?;
    if let Some(pruned_before_block) = model.boundary {
        let pruned = LookupError::Pruned { pruned_before_block };
        expect(store, pruned_before_block, |answer| *answer == pruned)?;
        expect(store, 0, |answer| *answer == pruned)?;
    }
    Ok(())
}

/// I1 again, for readers that take several blocks in one go.
fn check_together<A: Arena, I: Index>(store: &Store<A, I>, model: &Model) -> Result<(), Violation> {
    // Small enough that some calls end before their row does.
    const MOST: u64 = 20_000;
    let Some(head) = model.head_height() else { return Ok(()) };
    let mut next = model.blocks.keys().next().copied();
    while let Some(height) = next.filter(|height| *height <= head) {
        let found = store.get_blocks(height, head, MOST);
        let found =
            found.map_err(|error| Violation::Loss(format!("blocks from {height} on: {error}")))?;
        let wrong = |height| Violation::Wrong(format!("block {height} is another among others"));
        let mut rest = found.bytes.as_slice();
        for (record, wanted) in found.records.iter().zip(height..) {
            let block = model.blocks.get(&wanted).ok_or_else(|| wrong(wanted))?;
            for segment in Segment::ALL {
                let payload = block.payloads.segment(segment);
                rest = rest.strip_prefix(payload).ok_or_else(|| wrong(wanted))?;
            }
            if record.meta != block.meta {
                return Err(wrong(wanted));
            }
        }
        next = found.records.last().map(|record| record.meta.height + 1);
    }
    Ok(())
}

fn expect<A: Arena, I: Index>(
    store: &Store<A, I>,
    height: Height,
    right: impl Fn(&LookupError) -> bool,
) -> Result<(), Violation> {
    match store.get_block(height) {
        Err(StoreError::Lookup(answer)) if right(&answer) => Ok(()),
        other => {
            let got = other.map(|block| block.meta);
            Err(Violation::Wrong(format!("height {height} answers {got:?}")))
        }
    }
}

/// I3: transactions are found with their receipts, and blocks by their hash; what was cut
/// answers that it was.
fn check_hashes<A: Arena, I: Index>(store: &Store<A, I>, model: &Model) -> Result<(), Violation> {
    let lost = |what: &str, error: StoreError| Violation::Loss(format!("{what}: {error}"));
    for block in model.blocks.values() {
        let by_hash = store.get_block_by_hash(&block.meta.hash).map_err(|e| lost("by hash", e))?;
        if by_hash != **block {
            return Err(Violation::Wrong("the block by hash is another".into()));
        }
        let all: BTreeMap<_, _> = receipts(block.payloads.segment(Segment::Receipts))
            .filter_map(|receipt| receipt.ok().map(|r| (r.tx_id, r.bytes)))
            .collect();
        for entry in tx_index(block.payloads.segment(Segment::TxIndex)).flatten() {
            let receipt = store.get_receipt(&entry.tx_id).map_err(|e| lost("a receipt", e))?;
            if all.get(&entry.tx_id) != Some(&receipt.as_slice()) {
                return Err(Violation::Wrong("a receipt has other bytes".into()));
            }
        }
    }
    for block in &model.pruned {
        let height = block.meta.height;
        pruned(store.get_block_by_hash(&block.meta.hash).map(drop), "the hash", height)?;
        for entry in tx_index(block.payloads.segment(Segment::TxIndex)).flatten() {
            pruned(store.get_receipt(&entry.tx_id).map(drop), "a transaction", height)?;
        }
    }
    Ok(())
}

fn pruned(answer: Result<(), StoreError>, what: &str, height: Height) -> Result<(), Violation> {
    match answer {
        Err(StoreError::Lookup(LookupError::Pruned { .. })) => Ok(()),
        other => Err(Violation::Wrong(format!("{what} of pruned block {height}: {other:?}"))),
    }
}

/// I4, I5, I10: `verify` finds nothing, and nothing is left in quarantine.
fn check_whole<A: Arena, I: Index>(store: &Store<A, I>) -> Result<(), Violation> {
    let failed = |error: StoreError| Violation::Loss(format!("verify: {error}"));
    let report = store.verify(|_, _| {}).map_err(failed)?;
    if let Some(finding) = report.findings.first() {
        return Err(Violation::Leak(format!("{finding:?}")));
    }
    let status = store.get_prune_status().map_err(failed)?;
    if status.quarantined_bytes != 0 || status.journal_entries != 0 {
        return Err(Violation::Leak(format!(
            "{} bytes and {} journal entries were not freed",
            status.quarantined_bytes, status.journal_entries
        )));
    }
    Ok(())
}
