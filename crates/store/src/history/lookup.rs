//! Lookups by number and by hash, with honest answers: `Pruned`, `Pending`, `NotFound`.

use secateur_core::{Block, BlockHash, Height, LookupError, Segment, TxId, receipts, tx_index};

use super::append::ids_of;
use super::hashes::{Maps, TxLocation};
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
        self.build_hashes()?;
        let height = self.hashes.block(hash);
        let view = self.view()?;
        let not_found = LookupError::NotFound { searched_from: view.state.oldest_kept() };
        let record = view.record(height.ok_or(not_found)?)?;
        // A rollback may have put another block there since the hash was looked up.
        if record.meta.hash == *hash { view.block(&record) } else { Err(not_found.into()) }
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
        self.build_hashes()?;
        let location = self.hashes.transaction(id);
        let view = self.view()?;
        let pending = is_pending(&view.snapshot, id)?;
        let absent = if pending {
            LookupError::Pending
        } else {
            LookupError::NotFound { searched_from: view.state.oldest_kept() }
        };
        let location = location.ok_or(absent)?;
        let record = view.record(location.height)?;
        if holds_transaction(&view, &record, id, location)? {
            Ok((view, record, location))
        } else {
            Err(absent.into())
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
                let view = self.view()?;
                let record = view.record(height)?;
                let block = Block {
                    meta: record.meta.clone(),
                    payloads: secateur_core::Payloads {
                        tx_index: view.payload(&record, Segment::TxIndex)?,
                        ..Default::default()
                    },
                };
                maps.insert_block(ids_of(&block)?);
            }
        }
        self.hashes.fill(maps);
        Ok(())
    }
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
