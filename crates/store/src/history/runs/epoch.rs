//! The open epoch: ids of the newest blocks, gathered in memory in segments that are dropped
//! whole. A segment is derived data: opening builds it again from stored payloads.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::RwLock;
use secateur_core::{Block, CoreError, Height, MAX_SEGMENT_LEN};

use super::format::{IdKind, ReceiptSpan, RunEntry, What, key_of};

/// Places of one id that a lookup looks at: the newest is nearly always the right one.
const MAX_PLACES: usize = 16;

/// When a segment is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SealLimits {
    /// Ids in it.
    pub ids: u64,
    /// Payload bytes of its blocks; 0 for no limit.
    pub bytes: u64,
    /// Its blocks; 0 for no limit.
    pub blocks: u64,
}

/// The ids of one block.
#[derive(Debug, Clone)]
pub(crate) struct BlockIds {
    pub height: Height,
    /// Payload bytes of the block.
    pub bytes: u64,
    /// Key and place of its hash and of each transaction.
    pub ids: Vec<(u64, What)>,
}

impl BlockIds {
    /// Checks a block and gathers its ids, in one walk over its payloads. Receipts usually stand
    /// in the order of the transaction index; where they do not, the first one of the id counts.
    /// Also returns the number of transactions.
    pub(crate) fn of(seed: u64, block: &Block) -> Result<(Self, u32), CoreError> {
        let payload = block.payloads.receipts.as_slice();
        let (mut spans, mut offset) = (Vec::new(), 0usize);
        let key = key_of(IdKind::Block, seed, &block.meta.hash.0);
        let mut ids = vec![(key, What::Block)];
        let mut transactions = Vec::new();
        let tx_count = block.inspect(
            MAX_SEGMENT_LEN,
            |receipt| {
                let end = offset + receipt.encoded_len();
                spans.push((receipt.tx_id, span(payload, offset, end)));
                offset = end;
            },
            |entry| transactions.push((entry.tx_id, entry.index)),
        )?;
        ids.reserve_exact(transactions.len());
        let by_id = OnceCell::new();
        for ((id, index), nth) in transactions.into_iter().zip(0usize..) {
            let in_order = spans.get(nth).filter(|(of, _)| *of == id).map(|(_, span)| *span);
            let receipt = in_order.or_else(|| {
                let first_wins = || spans.iter().rev().copied().collect::<BTreeMap<_, _>>();
                by_id.get_or_init(first_wins).get(&id).copied()
            });
            let key = key_of(IdKind::Transaction, seed, &id.0);
            ids.push((key, What::Transaction { index, receipt }));
        }
        let bytes = block.payloads.total_len();
        Ok((Self { height: block.meta.height, bytes, ids }, tx_count))
    }
}

fn span(payload: &[u8], offset: usize, end: usize) -> ReceiptSpan {
    let whole = payload.get(offset..end).unwrap_or_default();
    let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    ReceiptSpan {
        offset: number(offset),
        len: number(whole.len()),
        checksum: crc32c::crc32c(whole),
    }
}

/// Finds a key among those of a segment. It is brought up to date by the next lookup, because
/// most ids are never asked for while they are here.
#[derive(Debug, Default)]
struct KeyIndex {
    /// The newest place of each key.
    table: HashTable<u32>,
    /// The place before it, of each place; its own number where there is none.
    before: Vec<u32>,
}

impl KeyIndex {
    fn catch_up(&mut self, keys: &[u64]) {
        let known = self.before.len();
        let new = keys.get(known..).unwrap_or_default();
        self.table.reserve(new.len(), |at| spread(key_at(keys, *at)));
        self.before.reserve(new.len());
        for (key, at) in new.iter().zip(known..) {
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            let same = |place: &u32| key_at(keys, *place) == *key;
            match self.table.entry(spread(*key), same, |at| spread(key_at(keys, *at))) {
                Entry::Occupied(mut newest) => {
                    self.before.push(std::mem::replace(newest.get_mut(), at));
                }
                Entry::Vacant(free) => {
                    self.before.push(at);
                    free.insert(at);
                }
            }
        }
    }

    /// The places of a key, newest first, and not more than anybody needs.
    fn find(&self, keys: &[u64], key: u64) -> Vec<u32> {
        let newest = self.table.find(spread(key), |at| key_at(keys, *at) == key).copied();
        let before = |at: &u32| self.before.get(*at as usize).copied().filter(|older| older < at);
        std::iter::successors(newest, before).take(MAX_PLACES).collect()
    }
}

/// The ids of consecutive blocks.
#[derive(Debug)]
pub(crate) struct Segment {
    pub first: Height,
    pub last: Height,
    /// Payload bytes of each of its blocks, and of all.
    sizes: Vec<u64>,
    bytes: u64,
    /// It is full: later blocks go into the next one.
    pub closed: bool,
    /// Blocks whose ids could not be read.
    pub damaged: Vec<Height>,
    keys: Vec<u64>,
    places: Vec<(u32, What)>,
    index: RwLock<KeyIndex>,
}

impl Segment {
    /// An empty segment with room for about `ids`.
    pub(crate) fn new(first: Height, ids: usize) -> Self {
        Self {
            first,
            last: first,
            sizes: Vec::new(),
            bytes: 0,
            closed: false,
            damaged: Vec::new(),
            keys: Vec::with_capacity(ids),
            places: Vec::with_capacity(ids),
            index: RwLock::default(),
        }
    }

    /// Adds the block above all others.
    pub(crate) fn insert(&mut self, block: &BlockIds, limits: SealLimits) {
        // Heights of one segment are close together: it closes long before 2³² blocks.
        let delta = u32::try_from(block.height - self.first).unwrap_or(u32::MAX);
        self.last = block.height;
        self.sizes.push(block.bytes);
        self.bytes += block.bytes;
        for (key, what) in &block.ids {
            self.keys.push(*key);
            self.places.push((delta, *what));
        }
        self.closed = self.keys.len() as u64 >= limits.ids.max(1)
            || (limits.bytes > 0 && self.bytes >= limits.bytes)
            || (limits.blocks > 0 && self.sizes.len() as u64 >= limits.blocks)
            || delta >= u32::MAX / 2;
    }

    /// The places of a key, newest first.
    pub(crate) fn find(&self, key: u64) -> Vec<(Height, What)> {
        let index = self.index.read();
        let found = if index.before.len() == self.keys.len() {
            index.find(&self.keys, key)
        } else {
            drop(index);
            let mut index = self.index.write();
            index.catch_up(&self.keys);
            index.find(&self.keys, key)
        };
        let place = |at: u32| self.places.get(at as usize).copied();
        found
            .into_iter()
            .filter_map(place)
            .map(|(delta, what)| (self.first + u64::from(delta), what))
            .collect()
    }

    /// Forgets every block above `to`, which is not below its first.
    pub(crate) fn truncate(&mut self, to: Height) {
        self.split_off(to);
        self.closed = false;
    }

    /// Takes the blocks above `to` out, as a segment of their own if there are any.
    pub(crate) fn split_off(&mut self, to: Height) -> Option<Self> {
        if to >= self.last {
            return None;
        }
        let keep = self.places.partition_point(|(delta, _)| self.first + u64::from(*delta) <= to);
        let (keys, places) = (self.keys.split_off(keep), self.places.split_off(keep));
        *self.index.get_mut() = KeyIndex::default();
        let blocks = usize::try_from(to + 1 - self.first).unwrap_or(usize::MAX);
        let sizes = self.sizes.split_off(blocks.min(self.sizes.len()));
        let mut above = Self::new(to + 1, 0);
        above.last = self.last;
        let shift = u32::try_from(to + 1 - self.first).unwrap_or(u32::MAX);
        above.bytes = sizes.iter().sum();
        above.sizes = sizes;
        self.bytes -= above.bytes;
        above.keys = keys;
        above.places = places.into_iter().map(|(delta, what)| (delta - shift, what)).collect();
        above.damaged = self.damaged.iter().copied().filter(|height| *height > to).collect();
        self.damaged.retain(|height| *height <= to);
        self.last = to;
        Some(above)
    }

    /// What it takes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.keys.capacity() * size_of::<u64>()
            + self.places.capacity() * size_of::<(u32, What)>()
            + self.index.read().before.capacity() * 9
    }

    /// How many ids it has.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Its entries in the order of a run.
    pub(crate) fn entries(&self) -> Vec<RunEntry> {
        let entry = |(key, (height_delta, what)): (&u64, &(u32, What))| RunEntry {
            key: *key,
            height_delta: *height_delta,
            what: *what,
        };
        let mut entries: Vec<RunEntry> = self.keys.iter().zip(&self.places).map(entry).collect();
        entries.sort_unstable_by_key(|entry| entry.key);
        // Few keys have more than one place, so comparing keys alone is the cheaper sort.
        for same in entries.chunk_by_mut(|a, b| a.key == b.key) {
            same.sort_unstable();
        }
        entries
    }
}

impl Clone for Segment {
    /// The index is not copied: the next lookup makes it anew.
    fn clone(&self) -> Self {
        Self {
            damaged: self.damaged.clone(),
            sizes: self.sizes.clone(),
            keys: self.keys.clone(),
            places: self.places.clone(),
            index: RwLock::default(),
            ..*self
        }
    }
}

fn key_at(keys: &[u64], at: u32) -> u64 {
    keys.get(at as usize).copied().unwrap_or(0)
}

/// Keys are hashes already, but of 56 bits; the table looks at the topmost ones first.
fn spread(key: u64) -> u64 {
    key << 8 | key >> 48
}

#[cfg(test)]
mod tests {
    use super::*;
    use secateur_core::{
        BlockHash, BlockMeta, Payloads, TxId, TxIndexEntry, push_receipt, push_tx_index,
    };

    const LIMITS: SealLimits = SealLimits { ids: 1000, bytes: 0, blocks: 0 };

    fn block(height: Height) -> BlockIds {
        let key = height * 10;
        let tx = What::Transaction { index: 0, receipt: None };
        BlockIds { height, bytes: 100, ids: vec![(key, What::Block), (key + 1, tx), (7, tx)] }
    }

    fn segment(heights: std::ops::Range<Height>) -> Segment {
        let mut segment = Segment::new(heights.start, 0);
        heights.for_each(|height| segment.insert(&block(height), LIMITS));
        segment
    }

    #[test]
    fn an_id_is_found_newest_first_until_it_is_rolled_back() {
        let mut segment = segment(100..200);
        let heights = |segment: &Segment, key| -> Vec<Height> {
            segment.find(key).into_iter().map(|(height, _)| height).collect()
        };
        assert_eq!(heights(&segment, 1501), [150]);
        assert_eq!(heights(&segment, 7), (184..200).rev().collect::<Vec<_>>());
        segment.truncate(149);
        assert_eq!((heights(&segment, 1501), heights(&segment, 1491)), (vec![], vec![149]));
        assert_eq!(segment.last, 149);
    }

    #[test]
    fn a_split_keeps_every_id_on_one_side() {
        let mut low = segment(100..200);
        let high = low.split_off(149).unwrap();
        assert_eq!((low.first, low.last, high.first, high.last), (100, 149, 150, 199));
        for height in 100..200 {
            let (here, there) = if height < 150 { (&low, &high) } else { (&high, &low) };
            assert_eq!(here.find(height * 10), [(height, What::Block)]);
            assert_eq!(there.find(height * 10), []);
        }
        assert_eq!(low.entries().len() + high.entries().len(), 300);
    }

    #[test]
    fn a_segment_closes_at_either_limit() {
        let mut by_ids = Segment::new(0, 0);
        let mut by_bytes = Segment::new(0, 0);
        for height in 0..4 {
            by_ids.insert(&block(height), SealLimits { ids: 12, bytes: 0, blocks: 0 });
            by_bytes.insert(&block(height), SealLimits { ids: 1000, bytes: 300, blocks: 0 });
            assert_eq!((by_ids.closed, by_bytes.closed), (height == 3, height >= 2));
        }
    }

    #[test]
    fn receipts_in_any_order_are_found_by_their_id() {
        let mut payloads = Payloads::default();
        for (index, id) in (0u32..).zip([1u8, 2, 3]) {
            let tx_id = TxId([id; 32]);
            push_tx_index(&mut payloads.tx_index, &TxIndexEntry { tx_id, height: 5, index });
        }
        for id in [3u8, 1] {
            push_receipt(&mut payloads.receipts, &TxId([id; 32]), &[id; 9]).unwrap();
        }
        let hash = BlockHash([8; 32]);
        let meta = BlockMeta { height: 5, hash, parent_hash: hash, timestamp: 0 };
        let (ids, tx_count) = BlockIds::of(1, &Block { meta, payloads }).unwrap();
        let ids = ids.ids;
        assert_eq!(tx_count, 3);
        let spans: Vec<Option<u32>> = ids
            .iter()
            .filter_map(|(_, what)| match what {
                What::Transaction { receipt, .. } => Some(receipt.map(|span| span.offset)),
                What::Block => None,
            })
            .collect();
        assert_eq!(spans, [Some(45), None, Some(0)]);
    }
}
