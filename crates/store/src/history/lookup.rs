//! Lookups by number and by hash, with honest answers: `Pruned`, `Pending`, `NotFound`.

use secateur_core::{
    Block, BlockHash, Height, LookupError, RECEIPT_HEAD_LEN, Segment, TxId, tx_index,
};

use super::control::export_head;
use super::place::{Stream, pieces};
use super::queue::is_pending;
use super::record::BlockRecord;
use super::runs::TxLocation;
use super::runs::format::{
    IdKind, PAGE as RUN_PAGE, ReceiptSpan, RunEntry, What, find_in_page, key_of,
};
use super::situation::settings_of;
use super::store::Store;
use super::view::{Consecutive, View};
use crate::StoreError;
use crate::error::row_error;
use crate::ground::{Arena, Index, Snapshot};
use crate::regions::region::BlobPtr;

/// A transaction's place and the block that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionView {
    /// Where it is.
    pub location: TxLocation,
    /// The block's hash.
    pub block_hash: BlockHash,
    /// The block's own bytes; what a transaction looks like inside is the chain's business.
    pub block: Vec<u8>,
}

/// The heights that matter to a reader, all of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heights {
    /// The newest block and its hash.
    pub head: Option<(Height, BlockHash)>,
    /// The newest final block.
    pub finalized: Option<Height>,
    /// The oldest block that is here.
    pub oldest: Option<Height>,
    /// Everything at or below it was here and is cut.
    pub boundary: Option<Height>,
}

/// How often a lookup is tried while blocks keep coming, before it makes the writer wait.
const LOOK_UPS_BESIDE_THE_WRITER: u32 = 8;

/// A transaction that was found: the view that holds it, its block's record, its place, and the
/// checked entry of its receipt, if it has one.
struct Found<'a, A, S> {
    view: View<'a, A, S>,
    record: BlockRecord,
    location: TxLocation,
    receipt: Option<Vec<u8>>,
}

/// Where a key may be, newest first, and what else is known of it.
pub(super) struct Trail {
    pub(super) places: Vec<(Height, What)>,
    /// Something says that it was here and is cut.
    pruned: bool,
    damaged: Option<Height>,
}

impl<A: Arena, I: Index> Store<A, I> {
    /// The newest block's height.
    pub fn head(&self) -> Option<Height> {
        self.ends().head.map(|(height, _)| height)
    }

    /// The newest block's hash.
    pub fn head_hash(&self) -> Option<BlockHash> {
        self.ends().head.map(|(_, hash)| hash)
    }

    /// Head, finality, the oldest block and the boundary from one snapshot; cheap enough to ask
    /// before every lookup.
    pub fn heights(&self) -> Result<Heights, StoreError> {
        let view = self.view()?;
        let state = &view.state;
        Ok(Heights {
            head: state.head.map(|tip| (tip.height, tip.hash)),
            finalized: export_head(state, &settings_of(&view.snapshot)?),
            oldest: state.oldest_kept(),
            boundary: state.boundary,
        })
    }

    /// A block by its number.
    pub fn get_block(&self, height: Height) -> Result<Block, StoreError> {
        let view = self.view()?;
        view.block(&view.record(height)?)
    }

    /// The block `first` and as many of those after it, up to `last`, as can be read with it in one
    /// go and do not pass `most` bytes: for readers that want all of them and would not copy them.
    pub fn get_blocks(
        &self,
        first: Height,
        last: Height,
        most: u64,
    ) -> Result<Consecutive, StoreError> {
        self.view()?.blocks(first, last, most)
    }

    /// What the index knows of a block.
    pub fn get_record(&self, height: Height) -> Result<BlockRecord, StoreError> {
        self.view()?.record(height)
    }

    /// What the index knows of a block, by its hash.
    pub fn get_record_by_hash(&self, hash: &BlockHash) -> Result<BlockRecord, StoreError> {
        self.by_hash(hash, |_, record| Ok(record))
    }

    /// Where the bytes of a block lie in the arena: the offset of each piece, and its region.
    pub fn get_pieces(&self, height: Height) -> Result<Vec<(u64, BlobPtr)>, StoreError> {
        let view = self.view()?;
        let record = view.record(height)?;
        let len = record.payload_bytes();
        let found = pieces(&view.snapshot, &self.header, Stream::History, &record.place, 0, len)?;
        Ok(found.into_iter().map(|piece| (piece.offset, piece.region)).collect())
    }

    /// A block by its hash.
    pub fn get_block_by_hash(&self, hash: &BlockHash) -> Result<Block, StoreError> {
        self.by_hash(hash, |view, record| view.block(&record))
    }

    /// One payload of a block by its number, and what the index knows of the block.
    pub fn get_payload(
        &self,
        height: Height,
        segment: Segment,
    ) -> Result<(BlockRecord, Vec<u8>), StoreError> {
        let view = self.view()?;
        let record = view.record(height)?;
        let payload = view.payload(&record, segment)?;
        Ok((record, payload))
    }

    /// One payload of a block by its hash, and what the index knows of the block.
    pub fn get_payload_by_hash(
        &self,
        hash: &BlockHash,
        segment: Segment,
    ) -> Result<(BlockRecord, Vec<u8>), StoreError> {
        self.by_hash(hash, |view, record| {
            let payload = view.payload(&record, segment)?;
            Ok((record, payload))
        })
    }

    fn by_hash<T>(
        &self,
        hash: &BlockHash,
        read: impl Fn(&View<'_, A, I::Snapshot>, BlockRecord) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let key = key_of(IdKind::Block, self.header.hash_seed(), &hash.0);
        self.look_up(|| {
            let view = self.view()?;
            let trail = self.trail(&view, key)?;
            for (height, what) in &trail.places {
                // A rollback may have put another block there since the hash was looked up.
                if *what == What::Block
                    && let Some(record) = record_if_kept(&view, *height)?
                    && record.meta.hash == *hash
                {
                    return read(&view, record).map(Ok);
                }
            }
            self.absence(&view, key, &trail).map(Err)
        })
    }

    /// All receipts of a block, as its receipts payload.
    pub fn get_receipts(&self, height: Height) -> Result<Vec<u8>, StoreError> {
        let view = self.view()?;
        view.payload(&view.record(height)?, Segment::Receipts)
    }

    /// One receipt by its transaction.
    pub fn get_receipt(&self, id: &TxId) -> Result<Vec<u8>, StoreError> {
        let found = self.find_transaction(id)?;
        let Some(mut entry) = found.receipt else {
            return Err(self.not_found(&found.view).into());
        };
        Ok(entry.split_off(RECEIPT_HEAD_LEN.min(entry.len())))
    }

    /// A transaction's place and block.
    pub fn get_transaction(&self, id: &TxId) -> Result<TransactionView, StoreError> {
        let Found { view, record, location, .. } = self.find_transaction(id)?;
        let block = view.payload(&record, Segment::Block)?;
        Ok(TransactionView { location, block_hash: record.meta.hash, block })
    }

    /// A transaction's place and what the index knows of its block, without the block's bytes.
    pub fn get_location(&self, id: &TxId) -> Result<(TxLocation, BlockRecord), StoreError> {
        let Found { record, location, .. } = self.find_transaction(id)?;
        Ok((location, record))
    }

    /// Where a transaction is, if a kept block holds it.
    pub(crate) fn locate(&self, id: &TxId) -> Result<Option<TxLocation>, StoreError> {
        match self.find_transaction(id) {
            Ok(found) => Ok(Some(found.location)),
            Err(StoreError::Lookup(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn find_transaction(&self, id: &TxId) -> Result<Found<'_, A, I::Snapshot>, StoreError> {
        self.look_up(|| self.try_find_transaction(id))
    }

    /// Runs a lookup by hash until its answer holds. The room and the snapshot are not of one
    /// moment: what is appended is in the room before it is in a snapshot, so only an id that
    /// came or went between the two looks can be missed, and then the room has changed.
    fn look_up<T>(
        &self,
        attempt: impl Fn() -> Result<Result<T, LookupError>, StoreError>,
    ) -> Result<T, StoreError> {
        self.build_hashes()?;
        for _ in 0..LOOK_UPS_BESIDE_THE_WRITER {
            let seen = self.hashes.changes();
            match attempt() {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(absent)) if self.hashes.changes() == seen => return Err(absent.into()),
                // What looks damaged may be a run that gave way to another between the two looks.
                Err(StoreError::Corrupt { .. } | StoreError::StaleGeneration { .. }) => break,
                Err(error) => return Err(error),
                Ok(Err(_)) => {}
            }
        }
        let _writers_wait = self.control.lock();
        if self.poisoned().is_none() {
            self.flush()?;
        }
        attempt()?.map_err(Into::into)
    }

    fn try_find_transaction(
        &self,
        id: &TxId,
    ) -> Result<Result<Found<'_, A, I::Snapshot>, LookupError>, StoreError> {
        let key = key_of(IdKind::Transaction, self.header.hash_seed(), &id.0);
        let view = self.view()?;
        let trail = self.trail(&view, key)?;
        for (height, what) in &trail.places {
            let What::Transaction { index, receipt } = *what else { continue };
            let Some(record) = record_if_kept(&view, *height)? else { continue };
            let location = TxLocation { height: *height, index };
            let receipt = match receipt {
                Some(span) => Some(read_receipt(&view, &record, span)?),
                None => None,
            };
            let matches = match &receipt {
                Some(entry) => entry.starts_with(&id.0),
                None => holds_transaction(&view, &record, id, location)?,
            };
            if matches {
                return Ok(Ok(Found { view, record, location, receipt }));
            }
        }
        if is_pending(&view.snapshot, id)? {
            return Ok(Err(LookupError::Pending));
        }
        self.absence(&view, key, &trail).map(Err)
    }

    /// Follows a key from memory into the runs that may hold it.
    pub(super) fn trail(
        &self,
        view: &View<'_, A, I::Snapshot>,
        key: u64,
    ) -> Result<Trail, StoreError> {
        let known = self.hashes.known(key, view.state.boundary);
        let mut places = known.open;
        for (run, first, last) in known.runs {
            // The newest places of an id that came often stand last, and they are enough.
            let first = first.max(last.saturating_sub(1));
            let Some(blob) = &run.record.run else { continue };
            // A run whose last block is cut by now may lie under other bytes.
            if view.state.boundary.is_some_and(|boundary| run.record.last <= boundary) {
                places.push((run.record.last, What::Block));
                continue;
            }
            let count = usize::try_from(last - first).unwrap_or(0) + 1;
            let mut pages = vec![0u8; count * RUN_PAGE];
            let start = u64::from(first) * RUN_PAGE as u64;
            view.read(Stream::Runs, &blob.place, start, &mut pages)?;
            let mut found = Vec::new();
            for (page, number) in pages.chunks(RUN_PAGE).zip(first..) {
                let entries = find_in_page(run.record.number, number, page, key);
                found.extend(entries.map_err(row_error("run"))?);
            }
            let first = run.record.first;
            let place = |e: &RunEntry| (first.saturating_add(u64::from(e.height_delta)), e.what);
            places.extend(found.iter().rev().map(place));
        }
        let boundary = view.state.boundary;
        let pruned = places.iter().any(|(height, _)| Some(*height) <= boundary);
        Ok(Trail { places, pruned, damaged: known.damaged })
    }

    /// Why an id is not here. Nothing can be said while some ids cannot be read.
    fn absence(
        &self,
        view: &View<'_, A, I::Snapshot>,
        key: u64,
        trail: &Trail,
    ) -> Result<LookupError, StoreError> {
        if let Some(pruned_before_block) = view.state.boundary
            && (trail.pruned || self.hashes.is_buried(key))
            // It may have come again in a kept block whose ids cannot be read.
            && trail.damaged.is_none_or(|damaged| damaged <= pruned_before_block)
        {
            return Ok(LookupError::Pruned { pruned_before_block });
        }
        match trail.damaged {
            Some(height) => {
                let detail = format!("the ids of block {height} or below cannot be read");
                Err(StoreError::corrupt("arena", detail))
            }
            None => Ok(self.not_found(view)),
        }
    }

    fn not_found(&self, view: &View<'_, A, I::Snapshot>) -> LookupError {
        LookupError::NotFound { searched_from: self.hashes.searched_from(&view.state) }
    }
}

/// The record of a height, unless it was cut or rolled back.
fn record_if_kept<A: Arena, S: Snapshot>(
    view: &View<'_, A, S>,
    height: Height,
) -> Result<Option<BlockRecord>, StoreError> {
    match view.record(height) {
        Ok(record) => Ok(Some(record)),
        Err(StoreError::Lookup(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// One receipt's entry, id and length included, checked.
fn read_receipt<A: Arena, S: Snapshot>(
    view: &View<'_, A, S>,
    record: &BlockRecord,
    span: ReceiptSpan,
) -> Result<Vec<u8>, StoreError> {
    let wrong = |detail: &str| {
        let detail = format!("a receipt of block {} {detail}", record.meta.height);
        StoreError::corrupt("arena", detail)
    };
    let (start, len, _) = record.span(Segment::Receipts);
    if span.offset.checked_add(span.len).is_none_or(|end| end > len) {
        return Err(wrong("lies outside its payload"));
    }
    let mut entry = vec![0u8; span.len as usize];
    view.read(Stream::History, &record.place, start + u64::from(span.offset), &mut entry)?;
    if !view.trusts(&entry, span.checksum) {
        return Err(wrong("does not match its checksum"));
    }
    Ok(entry)
}

/// Whether the block of this view really holds a transaction that has no receipt.
fn holds_transaction<A: Arena, S: Snapshot>(
    view: &View<'_, A, S>,
    record: &BlockRecord,
    id: &TxId,
    location: TxLocation,
) -> Result<bool, StoreError> {
    let payload = view.payload(record, Segment::TxIndex)?;
    for entry in tx_index(&payload) {
        let entry = entry.map_err(row_error("tx_index payload"))?;
        if entry.tx_id == *id && entry.index == location.index {
            return Ok(true);
        }
    }
    Ok(false)
}
