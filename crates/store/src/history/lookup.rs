//! Lookups by number and by hash, with honest answers: `Pruned`, `Pending`, `NotFound`.

use secateur_core::{
    Block, BlockHash, Height, LookupError, Payloads, Segment, TxId, receipts, tx_index,
};

use super::append::ids_of;
use super::hashes::{BlockIds, Maps, TxLocation};
use super::queue::is_pending;
use super::record::BlockRecord;
use super::store::Store;
use super::view::View;
use crate::StoreError;
use crate::ground::{Arena, Index, Snapshot};

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

/// How often a lookup is tried while blocks keep coming, before it makes the writer wait.
const LOOK_UPS_BESIDE_THE_WRITER: u32 = 8;

/// A transaction that was found: the view that holds it, its block's record, its place.
type Found<'a, A, S> = (View<'a, A, S>, BlockRecord, TxLocation);

impl<A: Arena, I: Index> Store<A, I> {
    /// The newest block's height.
    pub fn head(&self) -> Option<Height> {
        self.ends().head.map(|(height, _)| height)
    }

    /// The newest block's hash.
    pub fn head_hash(&self) -> Option<BlockHash> {
        self.ends().head.map(|(_, hash)| hash)
    }

    /// A block by its number.
    pub fn get_block(&self, height: Height) -> Result<Block, StoreError> {
        let view = self.view()?;
        view.block(&view.record(height)?)
    }

    /// What the index knows of a block.
    pub fn get_record(&self, height: Height) -> Result<BlockRecord, StoreError> {
        self.view()?.record(height)
    }

    /// A block by its hash.
    pub fn get_block_by_hash(&self, hash: &BlockHash) -> Result<Block, StoreError> {
        self.look_up(|| {
            let height = self.hashes.block(hash);
            let view = self.view()?;
            let not_found = LookupError::NotFound { searched_from: view.state.oldest_kept() };
            let Some(height) = height else {
                let damaged = self.hashes.damaged(view.state.boundary);
                return damaged.map_or(Ok(Err(not_found)), |height| Err(damaged_ids(height)));
            };
            let record = match view.record(height) {
                Ok(record) => record,
                Err(StoreError::Lookup(LookupError::NotFound { .. })) => return Ok(Err(not_found)),
                Err(error) => return Err(error),
            };
            // A rollback may have put another block there since the hash was looked up.
            if record.meta.hash == *hash { view.block(&record).map(Ok) } else { Ok(Err(not_found)) }
        })
    }

    /// All receipts of a block, as its receipts payload.
    pub fn get_receipts(&self, height: Height) -> Result<Vec<u8>, StoreError> {
        let view = self.view()?;
        view.payload(&view.record(height)?, Segment::Receipts)
    }

    /// One receipt by its transaction.
    pub fn get_receipt(&self, id: &TxId) -> Result<Vec<u8>, StoreError> {
        let (view, record, _) = self.find_transaction(id)?;
        let payload = view.payload(&record, Segment::Receipts)?;
        for receipt in receipts(&payload) {
            let receipt = receipt.map_err(crate::error::row_error("receipts payload"))?;
            if receipt.tx_id == *id {
                return Ok(receipt.bytes.to_vec());
            }
        }
        Err(LookupError::NotFound { searched_from: view.state.oldest_kept() }.into())
    }

    /// A transaction's place and block.
    pub fn get_transaction(&self, id: &TxId) -> Result<TransactionView, StoreError> {
        let (view, record, location) = self.find_transaction(id)?;
        let block = view.payload(&record, Segment::Block)?;
        Ok(TransactionView { location, block_hash: record.meta.hash, block })
    }

    fn find_transaction(&self, id: &TxId) -> Result<Found<'_, A, I::Snapshot>, StoreError> {
        self.look_up(|| self.try_find_transaction(id))
    }

    /// Runs a lookup by hash until its answer holds. The maps and the snapshot are not of one
    /// moment: what is appended is in the maps before it is in a snapshot, so only an id that
    /// came between the two looks can be missed, and then the maps have changed.
    fn look_up<T>(
        &self,
        attempt: impl Fn() -> Result<Result<T, LookupError>, StoreError>,
    ) -> Result<T, StoreError> {
        self.build_hashes()?;
        for _ in 0..LOOK_UPS_BESIDE_THE_WRITER {
            let seen = self.hashes.insertions();
            match attempt()? {
                Ok(found) => return Ok(found),
                Err(absent) if self.hashes.insertions() == seen => return Err(absent.into()),
                Err(_) => {}
            }
        }
        let _writers_wait = self.control.lock();
        attempt()?.map_err(Into::into)
    }

    fn try_find_transaction(
        &self,
        id: &TxId,
    ) -> Result<Result<Found<'_, A, I::Snapshot>, LookupError>, StoreError> {
        let location = self.hashes.transaction(id);
        let view = self.view()?;
        let absent = if is_pending(&view.snapshot, id)? {
            LookupError::Pending
        } else {
            LookupError::NotFound { searched_from: view.state.oldest_kept() }
        };
        let Some(location) = location else {
            return match self.hashes.damaged(view.state.boundary) {
                Some(height) if absent != LookupError::Pending => Err(damaged_ids(height)),
                _ => Ok(Err(absent)),
            };
        };
        let record = match view.record(location.height) {
            Ok(record) => record,
            Err(StoreError::Lookup(LookupError::NotFound { .. })) => return Ok(Err(absent)),
            Err(error) => return Err(error),
        };
        if holds_transaction(&view, &record, id, location)? {
            Ok(Ok((view, record, location)))
        } else {
            Ok(Err(absent))
        }
    }

    /// Builds the hash room from stored payloads when the first hash is asked for. Writers wait
    /// meanwhile, so nothing is missed and nothing is counted twice.
    pub(crate) fn build_hashes(&self) -> Result<(), StoreError> {
        if self.hashes.is_built() {
            return Ok(());
        }
        let control = self.control.lock();
        if self.hashes.is_built() {
            return Ok(());
        }
        let mut maps = Maps::default();
        if let (Some(oldest), Some(head)) = (control.state.oldest_kept(), control.state.head) {
            for height in oldest..=head.height {
                match self.stored_ids(height) {
                    Ok(ids) => maps.insert_block(ids),
                    // One damaged block must not keep all other hashes from being found.
                    Err(error) if error.is_corruption() => {
                        maps.note_damaged(height);
                        if let Ok(record) = self.get_record(height) {
                            let (hash, transactions) = (record.meta.hash, Vec::new());
                            maps.insert_block(BlockIds { height, hash, transactions });
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        self.hashes.fill(maps);
        Ok(())
    }

    /// The ids of a stored block, from its transaction index.
    fn stored_ids(&self, height: Height) -> Result<BlockIds, StoreError> {
        let view = self.view()?;
        let record = view.record(height)?;
        let tx_index = view.payload(&record, Segment::TxIndex)?;
        let payloads = Payloads { tx_index, ..Payloads::default() };
        ids_of(&Block { meta: record.meta, payloads })
            .map_err(|error| StoreError::corrupt("tx_index payload", error.to_string()))
    }
}

/// Nothing can be said of a hash that is not found while some block's ids cannot be read.
fn damaged_ids(height: Height) -> StoreError {
    StoreError::corrupt("arena", format!("the transaction index of block {height} is damaged"))
}

/// Whether the block of this view really holds the transaction: a rollback may have replaced it.
fn holds_transaction<A: Arena, S: Snapshot>(
    view: &View<'_, A, S>,
    record: &BlockRecord,
    id: &TxId,
    location: TxLocation,
) -> Result<bool, StoreError> {
    let payload = view.payload(record, Segment::TxIndex)?;
    for entry in tx_index(&payload) {
        let entry = entry.map_err(crate::error::row_error("tx_index payload"))?;
        if entry.tx_id == *id && entry.index == location.index {
            return Ok(true);
        }
    }
    Ok(false)
}
