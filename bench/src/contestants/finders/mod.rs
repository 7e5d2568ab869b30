//! Those who answer "the receipt of this transaction" and "the block of this hash": loaded once,
//! opened again for each turn.
//!
//! Peers keep four things, as they would have to: transaction id → place, place → receipt, block
//! hash → height, height → block. A lookup is a read of two. They are bulk-loaded in key order,
//! which leaves each of them in the best state it can be in: no log, nothing to compact, one table
//! deep.

mod fjall;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocks;
mod secateur;

use std::path::Path;

use anyhow::Result;
use secateur_core::Height;

use super::Identity;
use super::peers::Place;

/// Transactions of a block.
pub const BLOCK_TRANSACTIONS: u64 = 2_000;
/// Bytes of a receipt.
pub const RECEIPT_LEN: usize = 16;
/// Bytes of a block beside its receipts and its transaction index.
pub const BLOCK_LEN: usize = 512;
/// What each peer may cache.
const CACHE: u64 = 256 << 20;

/// An open store.
pub trait Finder {
    /// Who it is.
    fn identity(&self) -> Identity;
    /// Whether the receipt of a transaction is there and what it should be.
    fn find(&self, id: &[u8; 32]) -> Result<bool>;
    /// Whether the block of a hash is there and as long as it should be.
    fn find_block(&self, hash: &[u8; 32]) -> Result<bool>;
    /// Reads of the arena so far, where that can be counted.
    fn reads(&self) -> Option<u64> {
        None
    }
}

/// A store by its key.
pub struct Kind {
    /// Its key in results.
    pub key: &'static str,
    /// Fills a directory with so many transactions.
    pub load: fn(&Path, &Ids) -> Result<()>,
    /// Opens what was loaded.
    pub open: fn(&Path) -> Result<Box<dyn Finder>>,
}

/// Ours first.
pub const KINDS: &[Kind] = &[
    Kind { key: "secateur", load: secateur::load, open: secateur::open },
    #[cfg(feature = "rocksdb")]
    Kind { key: "rocksdb", load: rocks::load, open: rocks::open },
    Kind { key: "fjall", load: fjall::load, open: fjall::open },
    Kind { key: "redb", load: redb::load, open: redb::open },
];

/// The transactions 0, 1, 2, …, in the order of their ids too.
pub struct Ids {
    sorted: Vec<(u64, u32)>,
}

impl Ids {
    /// The first so many.
    pub fn new(number: u32) -> Self {
        let mut sorted: Vec<(u64, u32)> = (0..number).map(|i| (word(u64::from(i), 0), i)).collect();
        sorted.sort_unstable();
        Self { sorted }
    }

    /// How many.
    pub fn number(&self) -> u64 {
        self.sorted.len() as u64
    }

    /// Ids with their places, in the order of the ids.
    pub fn by_id(&self) -> impl Iterator<Item = ([u8; 32], [u8; 12])> {
        self.sorted.iter().map(|(_, i)| (id(u64::from(*i)), place(u64::from(*i)).encode()))
    }

    /// Places with their receipts, in the order of the places.
    pub fn by_place(&self) -> impl Iterator<Item = ([u8; 12], [u8; RECEIPT_LEN])> {
        (0..self.number()).map(|i| (place(i).encode(), receipt(i)))
    }

    /// How many blocks they are in.
    pub fn blocks(&self) -> u64 {
        self.number().div_ceil(BLOCK_TRANSACTIONS)
    }

    /// Block hashes with their heights, in the order of the hashes.
    pub fn by_hash(&self) -> impl Iterator<Item = ([u8; 32], [u8; 8])> {
        let mut rows: Vec<_> =
            (1..=self.blocks()).map(|height| (hash(height), height.to_be_bytes())).collect();
        rows.sort_unstable();
        rows.into_iter()
    }

    /// Heights with their blocks, in order.
    pub fn by_height(&self) -> impl Iterator<Item = ([u8; 8], [u8; BLOCK_LEN])> {
        (1..=self.blocks()).map(|height| (height.to_be_bytes(), [1; BLOCK_LEN]))
    }
}

/// The id of a transaction by its number; one over the number of loaded ones is absent.
pub fn id(number: u64) -> [u8; 32] {
    let mut id = [0u8; 32];
    for (part, k) in id.chunks_exact_mut(8).zip(0..) {
        part.copy_from_slice(&word(number, k).to_be_bytes());
    }
    id
}

/// The hash of the block at a height; one over the number of loaded ones is absent.
pub fn hash(height: Height) -> [u8; 32] {
    id(u64::MAX / 16 - height)
}

/// Where the transaction of a number is.
fn place(number: u64) -> Place {
    let height: Height = number / BLOCK_TRANSACTIONS + 1;
    let index = u32::try_from(number % BLOCK_TRANSACTIONS).unwrap_or(u32::MAX);
    Place { height, index }
}

/// The receipt of a transaction by its number.
fn receipt(number: u64) -> [u8; RECEIPT_LEN] {
    let mut receipt = [0u8; RECEIPT_LEN];
    for (part, k) in receipt.chunks_exact_mut(8).zip(4..) {
        part.copy_from_slice(&word(number, k).to_be_bytes());
    }
    receipt
}

/// Well mixed bits (splitmix64).
pub fn word(number: u64, k: u64) -> u64 {
    let mut z = (number * 8 + k).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x2026_0101);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_finds_what_was_loaded_and_nothing_else() {
        let at = std::env::temp_dir().join(format!("bench-finders-{}", std::process::id()));
        let ids = Ids::new(20_000);
        for kind in KINDS {
            let place = at.join(kind.key);
            std::fs::create_dir_all(&place).unwrap();
            (kind.load)(&place, &ids).unwrap();
            let finder = (kind.open)(&place).unwrap();
            for number in (0..20_000).step_by(97) {
                assert!(finder.find(&id(number)).unwrap(), "{} {number}", kind.key);
                assert!(!finder.find(&id(number + 20_000)).unwrap(), "{} {number}", kind.key);
            }
            for height in 1..=ids.blocks() {
                assert!(finder.find_block(&hash(height)).unwrap(), "{} {height}", kind.key);
                let absent = hash(height + ids.blocks());
                assert!(!finder.find_block(&absent).unwrap(), "{} {height}", kind.key);
            }
        }
        std::fs::remove_dir_all(&at).unwrap();
    }
}
