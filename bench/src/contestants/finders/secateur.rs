//! Our own store, filled by appending blocks of many small transactions.

use std::path::Path;

use anyhow::Result;
use secateur_core::{
    Block, BlockHash, BlockMeta, Payloads, TxId, TxIndexEntry, push_receipt, push_tx_index,
};

use super::{BLOCK_LEN, BLOCK_TRANSACTIONS, Finder, Ids, hash, id, place, receipt};
use crate::contestants::{Contestant, Identity, Secateur};

const GROUP: usize = 32;

/// Appends all blocks, without a budget.
pub fn load(directory: &Path, ids: &Ids) -> Result<()> {
    let mut store = Secateur::create(directory, 0)?;
    let mut group: Vec<Block> = Vec::with_capacity(GROUP);
    for first in (0..ids.number()).step_by(usize::try_from(BLOCK_TRANSACTIONS)?) {
        group.push(block(first, BLOCK_TRANSACTIONS.min(ids.number() - first))?);
        if group.len() == GROUP {
            store.append(&group)?;
            group.clear();
        }
    }
    if !group.is_empty() {
        store.append(&group)?;
    }
    store.finish()
}

/// The block whose first transaction has that number.
fn block(first: u64, transactions: u64) -> Result<Block> {
    let mut payloads = Payloads { block: vec![1; BLOCK_LEN], ..Payloads::default() };
    for number in first..first + transactions {
        let (tx_id, at) = (TxId(id(number)), place(number));
        push_receipt(&mut payloads.receipts, &tx_id, &receipt(number))?;
        let entry = TxIndexEntry { tx_id, height: at.height, index: at.index };
        push_tx_index(&mut payloads.tx_index, &entry);
    }
    let height = place(first).height;
    let (parent_hash, hash) = (BlockHash(hash(height - 1)), BlockHash(hash(height)));
    let meta = BlockMeta { height, hash, parent_hash, timestamp: 1_700_000_000 + height };
    Ok(Block { meta, payloads })
}

/// Opens it.
pub fn open(directory: &Path) -> Result<Box<dyn Finder>> {
    Ok(Box::new(Secateur::open(directory)?))
}

impl Finder for Secateur {
    fn identity(&self) -> Identity {
        Contestant::identity(self)
    }

    fn find(&self, id: &[u8; 32]) -> Result<bool> {
        self.has_receipt(&TxId(*id))
    }

    fn find_block(&self, hash: &[u8; 32]) -> Result<bool> {
        self.has_block(&BlockHash(*hash), BLOCK_LEN)
    }

    fn reads(&self) -> Option<u64> {
        Some(self.arena_reads())
    }
}
