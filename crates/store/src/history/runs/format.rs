//! The bytes of a run: the sorted ids of a sealed epoch, in pages, and the summary that stays in
//! memory.
//!
//! A lookup asks the summary, which names a page (almost always none or one); the page is read,
//! checked and searched. A run knows only 56 bits of an id, so what it answers is a candidate:
//! the full id is checked at the receipt or the block.

use secateur_core::{CoreError, MAX_SEGMENT_LEN, MAX_TX_INDEX, Reader, Writer};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::filter::{Filter, seal, unseal};

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;

/// The size of a page: what a lookup reads.
pub(crate) const PAGE: usize = 4096;

/// The size of an entry.
pub(crate) const ENTRY_LEN: usize = 24;

/// How many entries a page holds; every page but a run's last is full.
pub(crate) const PAGE_ENTRIES: usize = (PAGE - HEADER_LEN) / ENTRY_LEN;

const HEADER_LEN: usize = 16;
const CRC_LEN: usize = 4;
const RESERVED_LEN: usize = 10;
const KEY_LEN: usize = 7;

/// The greatest key: 56 bits.
const MAX_KEY: u64 = u64::MAX >> 8;

/// The greatest number of three bytes. As an index it marks the hash of a block.
const U24_MAX: u32 = 0xFF_FFFF;

/// The first bytes of an encoded summary: the format's name and version.
const SUMMARY_MAGIC: [u8; 4] = *b"SRS\x01";

// Whatever an append accepts can be sealed: no receipt begins or ends beyond what an entry can say.
const _: () = assert!(MAX_SEGMENT_LEN <= U24_MAX && MAX_TX_INDEX <= U24_MAX);

const ENTRY: &str = "run entry";
const RUN: &str = "run";
const RUN_PAGE: &str = "run page";
const SUMMARY: &str = "run summary";

/// What an id names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdKind {
    /// A transaction.
    Transaction,
    /// A block.
    Block,
}

/// The 56-bit key of an id. On-disk format: it must never change for a stored seed.
///
/// The seed is the store's own secret, so that nobody can prepare ids whose keys collide. The
/// kind changes it, so that a transaction and a block of the same id do not share a key.
pub(crate) fn key_of(kind: IdKind, seed: u64, id: &[u8; 32]) -> u64 {
    let seed = match kind {
        IdKind::Transaction => seed,
        IdKind::Block => seed ^ 0x9E37_79B9_7F4A_7C15,
    };
    xxh3_64_with_seed(id, seed) & MAX_KEY
}

/// Where a receipt is: an entry of its block's receipts payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReceiptSpan {
    /// Where the entry begins in the payload; below 2²⁴.
    pub offset: u32,
    /// The length of the whole entry; below 2²⁴ and never 0.
    pub len: u32,
    /// The CRC-32C of the whole entry.
    pub checksum: u32,
}

/// What an entry's id names, and where it is. Ordered as its bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// A transaction.
    Transaction {
        /// Its place in its block; below 2²⁴ − 1.
        index: u32,
        /// Where its receipt is, if it has one.
        receipt: Option<ReceiptSpan>,
    },
    /// The block itself.
    Block,
}

/// One id of a run. Ordered as its bytes are: by key, then by height.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunEntry {
    /// The id's key, see [`key_of`]; below 2⁵⁶.
    pub key: u64,
    /// The height above the run's first.
    pub height_delta: u32,
    /// What it names.
    pub what: What,
}

impl RunEntry {
    /// Appends its bytes: key (7), height delta (4), index (3), offset (3), length (3), checksum
    /// (4). The index of a block is 2²⁴ − 1; what has no receipt has zeros for it. A number that
    /// does not fit its field is an error, and nothing is appended.
    pub(crate) fn write(&self, out: &mut Writer) -> Result<(), CoreError> {
        let [high, key @ ..] = self.key.to_be_bytes();
        if high != 0 {
            return Err(CoreError::decode(ENTRY, "its key has more than 56 bits"));
        }
        let none = ReceiptSpan { offset: 0, len: 0, checksum: 0 };
        let (index, span) = match self.what {
            What::Block => (U24_MAX, none),
            What::Transaction { index: U24_MAX, .. } => {
                return Err(CoreError::decode(ENTRY, "its index is the mark of a block"));
            }
            What::Transaction { receipt: Some(ReceiptSpan { len: 0, .. }), .. } => {
                return Err(CoreError::decode(ENTRY, "its receipt is empty"));
            }
            What::Transaction { index, receipt } => (index, receipt.unwrap_or(none)),
        };
        let [k0, k1, k2, k3, k4, k5, k6] = key;
        let [h0, h1, h2, h3] = self.height_delta.to_be_bytes();
        let [i0, i1, i2] = u24("index", index)?;
        let [o0, o1, o2] = u24("receipt offset", span.offset)?;
        let [l0, l1, l2] = u24("receipt length", span.len)?;
        let [c0, c1, c2, c3] = span.checksum.to_be_bytes();
        // One append of 24 bytes: a run has a million entries.
        out.bytes(&[
            k0, k1, k2, k3, k4, k5, k6, h0, h1, h2, h3, i0, i1, i2, o0, o1, o2, l0, l1, l2, c0, c1,
            c2, c3,
        ]);
        Ok(())
    }

    /// Reads an entry; bytes that [`Self::write`] never makes are an error.
    pub(crate) fn decode(bytes: &[u8; ENTRY_LEN]) -> Result<Self, CoreError> {
        let mut from = Reader::new(ENTRY, bytes);
        let key = key_in(bytes);
        from.take(KEY_LEN)?;
        let height_delta = from.u32()?;
        let index = read_u24(&mut from)?;
        let (offset, len) = (read_u24(&mut from)?, read_u24(&mut from)?);
        let checksum = from.u32()?;
        let receipt = (len != 0).then_some(ReceiptSpan { offset, len, checksum });
        if receipt.is_none() && (offset, checksum) != (0, 0) {
            return Err(from.error("an absent receipt has a place".into()));
        }
        let what = match (index, receipt) {
            (U24_MAX, None) => What::Block,
            (U24_MAX, Some(_)) => return Err(from.error("a block has a receipt".into())),
            (index, receipt) => What::Transaction { index, receipt },
        };
        from.finish()?;
        Ok(Self { key, height_delta, what })
    }
}

/// The key of an entry's bytes: the first seven of them.
fn key_in(entry: &[u8; ENTRY_LEN]) -> u64 {
    entry.first_chunk().map_or(0, |first| u64::from_be_bytes(*first) >> 8)
}

fn u24(field: &str, value: u32) -> Result<[u8; 3], CoreError> {
    match value.to_be_bytes() {
        [0, low @ ..] => Ok(low),
        _ => Err(CoreError::decode(ENTRY, format!("its {field}, {value}, has more than 24 bits"))),
    }
}

fn read_u24(from: &mut Reader<'_>) -> Result<u32, CoreError> {
    let [a, b, c] = from.array()?;
    Ok(u32::from_be_bytes([0, a, b, c]))
}

/// The bytes of a run: pages of sorted entries. No entries, no pages.
///
/// The entries must be sorted. Equal ones are kept: they do no harm, and a run that could not be
/// sealed would.
pub(crate) fn encode_run(run: u64, entries: &[RunEntry]) -> Result<Vec<u8>, CoreError> {
    check_sorted(entries)?;
    let mut out = Vec::with_capacity(entries.len().div_ceil(PAGE_ENTRIES) * PAGE);
    for (page, held) in (0u64..).zip(entries.chunks(PAGE_ENTRIES)) {
        let page = u32::try_from(page).map_err(|_| CoreError::decode(RUN, "too many pages"))?;
        out.extend_from_slice(&encode_page(run, page, held)?);
    }
    Ok(out)
}

fn check_sorted(entries: &[RunEntry]) -> Result<(), CoreError> {
    if entries.is_sorted() {
        return Ok(());
    }
    Err(CoreError::decode(RUN, "its entries are not sorted"))
}

fn encode_page(run: u64, page: u32, held: &[RunEntry]) -> Result<Vec<u8>, CoreError> {
    let count = u16::try_from(held.len())
        .map_err(|_| CoreError::decode(RUN_PAGE, "it has too many entries"))?;
    let mut out = Writer::new();
    out.u16(count).bytes(&[0; RESERVED_LEN]);
    for entry in held {
        entry.write(&mut out)?;
    }
    let mut body = out.finish();
    body.resize(PAGE - CRC_LEN, 0);
    let mut page_bytes = page_crc(run, page, &body).to_be_bytes().to_vec();
    page_bytes.append(&mut body);
    Ok(page_bytes)
}

/// The checksum of a page. The run and the page's number are in it, so that a page that was
/// written to another place, or left there by an older run, is not taken for this one.
fn page_crc(run: u64, page: u32, body: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&run.to_be_bytes());
    let crc = crc32c::crc32c_append(crc, &page.to_be_bytes());
    crc32c::crc32c_append(crc, body)
}

/// The entries' bytes of a page whose checksum, header and tail are right.
fn open_page(run: u64, page: u32, bytes: &[u8]) -> Result<&[[u8; ENTRY_LEN]], CoreError> {
    let mut from = Reader::new(RUN_PAGE, bytes);
    if bytes.len() != PAGE {
        return Err(from.error(format!("it has {} bytes", bytes.len())));
    }
    let crc = from.u32()?;
    if crc != page_crc(run, page, from.clone().take(PAGE - CRC_LEN)?) {
        return Err(from.error(format!("the checksum of page {page} of run {run} does not match")));
    }
    let count = usize::from(from.u16()?);
    if count == 0 || count > PAGE_ENTRIES {
        return Err(from.error(format!("it has {count} entries")));
    }
    let reserved = from.take(RESERVED_LEN)?;
    let (entries, _) = from.take(count * ENTRY_LEN)?.as_chunks();
    let tail = from.take(from.remaining())?;
    if reserved.iter().chain(tail).any(|byte| *byte != 0) {
        return Err(from.error("bytes that must be zero are not".into()));
    }
    Ok(entries)
}

/// Reads a page and checks everything about it.
pub(crate) fn decode_page(run: u64, page: u32, bytes: &[u8]) -> Result<Vec<RunEntry>, CoreError> {
    let raw = open_page(run, page, bytes)?;
    let entries = raw.iter().map(RunEntry::decode).collect::<Result<Vec<_>, _>>()?;
    check_sorted(&entries)?;
    Ok(entries)
}

/// The entries of one key in a page. Only they are decoded: the order of the others is vouched
/// for by the checksum.
pub(crate) fn find_in_page(
    run: u64,
    page: u32,
    bytes: &[u8],
    key: u64,
) -> Result<Vec<RunEntry>, CoreError> {
    let raw = open_page(run, page, bytes)?;
    let first = raw.partition_point(|entry| key_in(entry) < key);
    let from_first = raw.iter().skip(first);
    from_first.take_while(|entry| key_in(entry) == key).map(RunEntry::decode).collect()
}

/// What stays in memory of a run: enough to know which page to read, or that none need be.
#[derive(Debug, Clone)]
pub(crate) struct Summary {
    /// How many entries the run has.
    pub entries: u64,
    /// The first key of each page.
    pub fences: Vec<u64>,
    /// The filter of all its keys.
    pub filter: Filter,
}

impl Summary {
    /// The summary of a run's entries, which must be sorted.
    pub(crate) fn of(entries: &[RunEntry]) -> Result<Self, CoreError> {
        check_sorted(entries)?;
        let keys: Vec<u64> = entries.iter().map(|entry| entry.key).collect();
        if keys.last().is_some_and(|key| *key > MAX_KEY) {
            return Err(CoreError::decode(SUMMARY, "a key has more than 56 bits"));
        }
        Ok(Self {
            entries: u64::try_from(entries.len()).unwrap_or(u64::MAX),
            fences: keys.iter().copied().step_by(PAGE_ENTRIES).collect(),
            filter: Filter::build(&keys)?,
        })
    }

    /// How many pages a run of so many entries has.
    fn pages(entries: u64) -> Option<usize> {
        let pages = usize::try_from(entries).ok()?.div_ceil(PAGE_ENTRIES);
        u32::try_from(pages).ok().map(|_| pages)
    }

    /// Its bytes: magic, number of entries, a fence for each page that so many entries need (so
    /// their number is not written), the filter, and a CRC-32C over all before.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.bytes(&SUMMARY_MAGIC).u64(self.entries);
        for fence in &self.fences {
            out.u64(*fence);
        }
        out.bytes(&self.filter.encode());
        seal(out.finish())
    }

    /// Reads a summary; nothing is allocated beyond the input's length.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CoreError> {
        let mut from = Reader::new(SUMMARY, unseal(SUMMARY, bytes)?);
        if from.array()? != SUMMARY_MAGIC {
            return Err(from.error("it does not begin as one of this version".into()));
        }
        let entries = from.u64()?;
        let len = Self::pages(entries).and_then(|pages| pages.checked_mul(size_of::<u64>()));
        let Some(len) = len else {
            return Err(from.error(format!("{entries} entries are too many")));
        };
        let (raw, _) = from.take(len)?.as_chunks();
        let fences: Vec<u64> = raw.iter().map(|fence| u64::from_be_bytes(*fence)).collect();
        if !fences.is_sorted() || fences.last().is_some_and(|fence| *fence > MAX_KEY) {
            return Err(from.error("its fences are not sorted keys".into()));
        }
        let filter = Filter::decode(from.take(from.remaining())?)?;
        if filter.is_empty() != (entries == 0) || !fences.iter().all(|key| filter.contains(*key)) {
            return Err(from.error("its filter is not that of its entries".into()));
        }
        from.finish()?;
        Ok(Self { entries, fences, filter })
    }

    /// The memory that it holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        let own = size_of::<Self>() - size_of::<Filter>();
        own + self.fences.capacity() * size_of::<u64>() + self.filter.memory_bytes()
    }

    /// The first and the last page that may hold the key; None if no page does.
    ///
    /// It is one page, unless the key is the first of a page: then the page before may end with
    /// it.
    pub(crate) fn pages_of(&self, key: u64) -> Option<(u32, u32)> {
        if !self.filter.contains(key) {
            return None;
        }
        let begin_below = self.fences.partition_point(|fence| *fence < key);
        let begin_up_to = self.fences.partition_point(|fence| *fence <= key);
        let last = begin_up_to.checked_sub(1)?;
        let first = begin_below.saturating_sub(1);
        Some((u32::try_from(first).ok()?, u32::try_from(last).ok()?))
    }
}
