//! The bytes inside a row: inputs, spenders and blocks (`docs/format/utxo.md`). One encoding for
//! every backend that keeps them as bytes; numbers are big-endian.

use secateur_core::Height;

use crate::types::{BlockId, BlockRef, OutPoint, Slot, TxId};
use crate::{MAX_PLACES, UtxoError};

/// Outputs in one page of spenders. The first page is in the record's own row.
pub(crate) const PAGE_SLOTS: u32 = 256;
/// State, transaction, input.
const SLOT: usize = 1 + 32 + 4;
/// Transaction, output, row of the parent.
pub(crate) const INPUT: usize = 32 + 4 + 8;
/// Hash and height.
const BLOCK: usize = 32 + 8;
/// Blocks of one transaction at most: more is damage.
pub(crate) const MAX_BLOCKS: usize = 1 << 10;

/// An input with the row that its parent had when it was spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) spends: OutPoint,
    pub(crate) parent: i64,
}

/// The spenders of up to [`PAGE_SLOTS`] outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page(Vec<u8>);

/// Which page an output is on, and where there.
pub(crate) const fn place(n: u32) -> (u32, u32) {
    (n / PAGE_SLOTS, n % PAGE_SLOTS)
}

/// How many pages so many outputs need. The first is always there.
pub(crate) const fn pages(outputs: u32) -> u32 {
    if outputs == 0 { 1 } else { outputs.div_ceil(PAGE_SLOTS) }
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

impl Page {
    /// A page of a transaction with so many outputs, nothing on it spent.
    pub(crate) fn unspent(outputs: u32, page: u32) -> Self {
        let before = page.saturating_mul(PAGE_SLOTS);
        let slots = outputs.saturating_sub(before).min(PAGE_SLOTS);
        Self(vec![0; slots as usize * SLOT])
    }

    /// Takes bytes that were stored.
    pub(crate) fn decode(bytes: Vec<u8>, outputs: u32, page: u32) -> Result<Self, UtxoError> {
        if bytes.len() != Self::unspent(outputs, page).0.len() {
            return Err(UtxoError::damaged("spenders", format!("{} bytes", bytes.len())));
        }
        let page = Self(bytes);
        // Every state is known, so that nothing later meets one that is not.
        page.slots().try_for_each(|slot| slot.map(drop))?;
        Ok(page)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn slots(&self) -> impl Iterator<Item = Result<Slot, UtxoError>> + '_ {
        self.0.chunks_exact(SLOT).map(slot)
    }

    /// All of them, in order.
    pub(crate) fn all(&self) -> Result<Vec<Slot>, UtxoError> {
        self.slots().collect()
    }

    pub(crate) fn get(&self, at: u32) -> Option<Slot> {
        let start = at as usize * SLOT;
        slot(self.0.get(start..start + SLOT)?).ok()
    }

    pub(crate) fn set(&mut self, at: u32, slot: Slot) {
        let start = at as usize * SLOT;
        let Some(bytes) = self.0.get_mut(start..start + SLOT) else { return };
        bytes.iter_mut().zip(encode_slot(slot)).for_each(|(byte, field)| *byte = field);
    }
}

/// The bytes of a slot. A spender that is pruned differs from one that is here in the first alone.
pub(crate) fn encode_slot(slot: Slot) -> impl Iterator<Item = u8> {
    let state = match slot {
        Slot::Unspent => 0,
        Slot::Spent { .. } => 1,
        Slot::Pruned { .. } => 2,
    };
    let (by, input) = slot.spender().unwrap_or_default();
    std::iter::once(state).chain(by.0).chain(input.to_be_bytes())
}

fn slot(bytes: &[u8]) -> Result<Slot, UtxoError> {
    let damaged = || UtxoError::damaged("a spender", "its state is unknown");
    let by = TxId(take(bytes, 1).ok_or_else(damaged)?);
    let input = u32::from_be_bytes(take(bytes, 33).ok_or_else(damaged)?);
    match bytes.first() {
        Some(0) => Ok(Slot::Unspent),
        Some(1) => Ok(Slot::Spent { by, input }),
        Some(2) => Ok(Slot::Pruned { by, input }),
        _ => Err(damaged()),
    }
}

pub(crate) fn encode_inputs(inputs: &[Input]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(inputs.len() * INPUT);
    for input in inputs {
        bytes.extend_from_slice(&input.spends.txid.0);
        bytes.extend_from_slice(&input.spends.n.to_be_bytes());
        bytes.extend_from_slice(&input.parent.to_be_bytes());
    }
    bytes
}

pub(crate) fn decode_inputs(bytes: &[u8]) -> Result<Vec<Input>, UtxoError> {
    let damaged = || UtxoError::damaged("inputs", format!("{} bytes", bytes.len()));
    if !bytes.len().is_multiple_of(INPUT) || bytes.len() / INPUT > MAX_PLACES as usize {
        return Err(damaged());
    }
    let input = |bytes: &[u8]| {
        let spends =
            OutPoint { txid: TxId(take(bytes, 0)?), n: u32::from_be_bytes(take(bytes, 32)?) };
        Some(Input { spends, parent: i64::from_be_bytes(take(bytes, 36)?) })
    };
    bytes.chunks_exact(INPUT).map(|bytes| input(bytes).ok_or_else(damaged)).collect()
}

pub(crate) fn encode_blocks(blocks: &[BlockRef]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(blocks.len() * BLOCK);
    for block in blocks {
        bytes.extend_from_slice(&block.id.0);
        bytes.extend_from_slice(&block.height.to_be_bytes());
    }
    bytes
}

pub(crate) fn decode_blocks(bytes: &[u8]) -> Result<Vec<BlockRef>, UtxoError> {
    let damaged = || UtxoError::damaged("blocks", format!("{} bytes", bytes.len()));
    if !bytes.len().is_multiple_of(BLOCK) || bytes.len() / BLOCK > MAX_BLOCKS {
        return Err(damaged());
    }
    let block = |bytes: &[u8]| {
        let height = Height::from_be_bytes(take(bytes, 32)?);
        Some(BlockRef { id: BlockId(take(bytes, 0)?), height })
    };
    bytes.chunks_exact(BLOCK).map(|bytes| block(bytes).ok_or_else(damaged)).collect()
}

/// Bytes of inputs in one page of a listing, about: the rest comes with the next.
pub(crate) const PAGE_BYTES: usize = 2 << 20;

/// A height as databases keep it.
pub(crate) fn stored(height: Height) -> Result<i64, UtxoError> {
    i64::try_from(height)
        .map_err(|_| UtxoError::Setting(format!("height {height} is beyond what the store holds")))
}

/// A height that was kept.
pub(crate) fn height(stored: i64) -> Result<Height, UtxoError> {
    Height::try_from(stored).map_err(|_| UtxoError::damaged("a height", "it is below zero"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_reads_back_and_what_is_damaged_does_not() {
        let spends = OutPoint { txid: TxId([7; 32]), n: 9 };
        let inputs = vec![Input { spends, parent: -3 }, Input { spends, parent: i64::MAX }];
        let mut bytes = encode_inputs(&inputs);
        assert_eq!(decode_inputs(&bytes).unwrap(), inputs);
        bytes.pop();
        assert!(decode_inputs(&bytes).is_err());

        let blocks = vec![BlockRef { id: BlockId([1; 32]), height: u64::MAX }];
        let mut bytes = encode_blocks(&blocks);
        assert_eq!(decode_blocks(&bytes).unwrap(), blocks);
        bytes.push(0);
        assert!(decode_blocks(&bytes).is_err());
    }

    #[test]
    fn a_page_holds_each_slot_at_its_place() {
        assert_eq!((pages(0), pages(1), pages(256), pages(257)), (1, 1, 1, 2));
        assert_eq!(place(300), (1, 44));
        let mut page = Page::unspent(300, 1);
        assert_eq!(page.all().unwrap(), vec![Slot::Unspent; 44]);
        let slot = Slot::Pruned { by: TxId([3; 32]), input: 70_000 };
        page.set(43, slot);
        page.set(44, slot);
        assert_eq!(
            (page.get(42), page.get(43), page.get(44)),
            (Some(Slot::Unspent), Some(slot), None)
        );
        let read = Page::decode(page.bytes().to_vec(), 300, 1).unwrap();
        assert_eq!(read, page);
        assert!(Page::decode(page.bytes().to_vec(), 299, 1).is_err());
        let mut bytes = page.bytes().to_vec();
        bytes[0] = 3;
        assert!(Page::decode(bytes, 300, 1).is_err());
    }
}
