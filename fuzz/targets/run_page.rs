//! A page of a run: it is accepted just where a second reader accepts it, and a search counts just
//! the entries of its key. The checksum is made right, because only accident breaks it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_core::{CoreError, Reader};
use secateur_fuzz::runs::{ENTRY, PAGE, PAGE_ENTRIES, PAGE_HEAD, page_keys, page_of};
use secateur_fuzz::{MESSAGE, within};
use secateur_store::formats::{run_find, run_page};

/// What decoding a page may have live.
const LIMIT: usize = 4 * PAGE + MESSAGE;

struct Input {
    run: u64,
    page: u32,
    key: u64,
    bytes: Vec<u8>,
}

/// `flags u8 · run u64 · page u32 · key u64 · body`. The body is what stands behind a page's
/// checksum; what is missing is zero. Flag 1 sorts its entries, flag 2 makes the checksum wrong,
/// flag 4 takes the body as the whole page.
fn read(input: &[u8]) -> Result<Input, CoreError> {
    let mut from = Reader::new("input", input);
    let (flags, run, page, key) = (from.u8()?, from.u64()?, from.u32()?, from.u64()?);
    let mut body = from.take(from.remaining())?.to_vec();
    if flags & 1 != 0
        && let Some(entries) = body.get_mut(PAGE_HEAD..)
    {
        entries.as_chunks_mut::<ENTRY>().0.sort_unstable();
    }
    let mut bytes = if flags & 4 == 0 { page_of(run, page, &body) } else { body };
    if flags & 2 != 0
        && let Some(byte) = bytes.first_mut()
    {
        *byte ^= 1;
    }
    Ok(Input { run, page, key, bytes })
}

fuzz_target!(|input: &[u8]| {
    let Ok(Input { run, page, key, bytes }) = read(input) else { return };
    let found = within(LIMIT, || run_find(run, page, &bytes, key));
    let entries = within(LIMIT, || run_page(run, page, &bytes));
    let keys = page_keys(run, page, &bytes);
    assert_eq!(entries.as_ref().ok(), keys.as_ref().map(Vec::len).as_ref(), "{entries:?}");
    let Some(keys) = keys else {
        // A search does not look at the others, so it may find what it looks for all the same.
        assert!(found.is_err() || found.is_ok_and(|found| found <= PAGE_ENTRIES));
        return;
    };
    let count = |key: u64| keys.iter().filter(|of| **of == key).count();
    assert_eq!(found, Ok(count(key)));
    for key in keys.iter().step_by(17).flat_map(|key| [key.saturating_sub(1), *key, key + 1]) {
        assert_eq!(run_find(run, page, &bytes, key), Ok(count(key)));
    }
    assert!(run_page(run ^ 1, page, &bytes).is_err(), "it is a page of this run");
    assert!(run_page(run, page ^ 1, &bytes).is_err(), "and of this place");
});
