//! Pages, summaries and filters as `docs/format/runs.md` draws them, read a second time and on
//! their own: what one reader accepts the other must accept too, and count the same.

use secateur_core::{CoreError, Reader};

/// The size of a page.
pub const PAGE: usize = 4096;
/// The entries that a page holds at most.
pub const PAGE_ENTRIES: usize = 170;
/// The size of an entry.
pub const ENTRY: usize = 24;
/// What stands between a page's checksum and its first entry: the number of entries, and zeros.
pub const PAGE_HEAD: usize = 12;

/// A page with this behind its checksum, as far as it fits, and zeros behind that.
pub fn page_of(run: u64, page: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(PAGE - 4, 0);
    let crc = crc32c::crc32c(&run.to_be_bytes());
    let crc = crc32c::crc32c_append(crc, &page.to_be_bytes());
    let crc = crc32c::crc32c_append(crc, &body);
    [&crc.to_be_bytes(), body.as_slice()].concat()
}

/// Bytes with their checksum behind them, as a filter and a summary have it.
pub fn with_crc(body: &[u8]) -> Vec<u8> {
    [body, &crc32c::crc32c(body).to_be_bytes()].concat()
}

/// The keys of a page's entries, if everything about it is right.
pub fn page_keys(run: u64, page: u32, bytes: &[u8]) -> Option<Vec<u64>> {
    let body = bytes.get(4..).filter(|_| bytes.len() == PAGE)?;
    let (head, rest) = body.split_at_checked(PAGE_HEAD)?;
    let (count, zeros) = head.split_first_chunk()?;
    let count = usize::from(u16::from_be_bytes(*count));
    let (entries, tail) = rest.split_at_checked(count * ENTRY)?;
    let (entries, _) = entries.as_chunks::<ENTRY>();
    let sound = page_of(run, page, body) == bytes
        && (1..=PAGE_ENTRIES).contains(&count)
        && zeros.iter().chain(tail).all(|byte| *byte == 0)
        && entries.is_sorted()
        && entries.iter().all(is_entry);
    let key = |entry: &[u8; ENTRY]| Some(u64::from_be_bytes(*entry.first_chunk()?) >> 8);
    entries.iter().map(key).collect::<Option<Vec<_>>>().filter(|_| sound)
}

/// Whether these are the bytes of an entry: a block has no receipt, and no receipt is all zeros.
fn is_entry(entry: &[u8; ENTRY]) -> bool {
    let (_, place) = entry.split_at(11);
    let (index, receipt) = place.split_at(3);
    let absent = receipt.iter().all(|byte| *byte == 0);
    let empty = receipt.iter().skip(3).take(3).all(|byte| *byte == 0);
    absent || (index != [0xff; 3] && !empty)
}

/// What a filter is made of.
#[derive(Debug)]
struct Filter {
    seed: u64,
    length: u32,
    span: u32,
    fingerprints: Vec<u16>,
}

impl Filter {
    fn read(bytes: &[u8]) -> Result<Option<Self>, CoreError> {
        let mut from = Reader::new("filter", unsealed(bytes)?);
        let wrong = |what: &str| Err(CoreError::decode("filter", what));
        if from.array()? != *b"SFL\x01" {
            return wrong("magic");
        }
        let (seed, length, span, count) = (from.u64()?, from.u32()?, from.u32()?, from.u32()?);
        let mut fingerprints = Vec::new();
        while from.remaining() > 0 {
            fingerprints.push(from.u16()?);
        }
        if fingerprints.len() as u64 != u64::from(count) {
            return wrong("number of fingerprints");
        }
        if (seed, length, span, count) == (0, 0, 0, 0) {
            return Ok(None);
        }
        let segments = span.checked_div(length).unwrap_or(0);
        if !length.is_power_of_two() || segments == 0 || segments * length != span {
            return wrong("segments");
        }
        if u64::from(count) != u64::from(span) + 2 * u64::from(length) {
            return wrong("length");
        }
        Ok(Some(Self { seed, length, span, fingerprints }))
    }

    fn contains(&self, key: u64) -> bool {
        let mut x = key.wrapping_add(self.seed);
        x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        x ^= x >> 33;
        let length = u64::from(self.length);
        let place = u64::try_from(u128::from(x) * u128::from(self.span) >> 64).unwrap_or(0);
        let places =
            [place, (place + length) ^ (x >> 18) % length, (place + 2 * length) ^ x % length];
        let fingerprint = |at: u64| {
            let at = usize::try_from(at).expect("it is short");
            u64::from(*self.fingerprints.get(at).expect("no key reaches outside"))
        };
        let xor = places.into_iter().fold(0, |xor, at| xor ^ fingerprint(at));
        xor == (x ^ x >> 32) & 0xffff
    }
}

fn unsealed(bytes: &[u8]) -> Result<&[u8], CoreError> {
    match bytes.split_last_chunk::<4>() {
        Some((body, _)) if with_crc(body) == bytes => Ok(body),
        _ => Err(CoreError::decode("input", "checksum")),
    }
}

/// How many entries a summary names, if everything about it is right.
pub fn summary_entries(bytes: &[u8]) -> Result<u64, CoreError> {
    let mut from = Reader::new("summary", unsealed(bytes)?);
    let wrong = |what: &str| Err(CoreError::decode("summary", what));
    if from.array()? != *b"SRS\x01" {
        return wrong("magic");
    }
    let entries = from.u64()?;
    let pages = entries.div_ceil(PAGE_ENTRIES as u64);
    let mut fences = Vec::new();
    for _ in 0..pages {
        // It ends with the input, however many there are said to be.
        fences.push(from.u64()?);
    }
    let filter = Filter::read(from.take(from.remaining())?)?;
    let Some(filter) = filter else {
        return if entries == 0 { Ok(0) } else { wrong("empty filter") };
    };
    let keys = fences.is_sorted() && fences.iter().all(|fence| fence >> 56 == 0);
    if entries == 0 || !keys || !fences.iter().all(|fence| filter.contains(*fence)) {
        return wrong("fences");
    }
    Ok(entries)
}
