//! The summary of a run, with the filter inside: it is accepted just where a second reader accepts
//! it, and takes no more memory than its bytes. The checksums are made right, because only accident
//! breaks them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_core::{CoreError, Reader};
use secateur_fuzz::runs::{summary_entries, with_crc};
use secateur_fuzz::{MESSAGE, within};
use secateur_store::formats::run_summary;

/// `flags u8 · head length u16 · head · filter`: the head is magic, number of entries and fences.
/// The filter and the whole get their checksums; flag 1 makes the filter's wrong, flag 2 the whole
/// one's.
fn read(input: &[u8]) -> Result<Vec<u8>, CoreError> {
    let mut from = Reader::new("input", input);
    let (flags, len) = (from.u8()?, from.u16()?);
    let head = from.take(usize::from(len).min(from.remaining()))?;
    let sealed = |body: &[u8], wrong: bool| {
        let mut bytes = with_crc(body);
        if let Some(byte) = bytes.last_mut().filter(|_| wrong) {
            *byte ^= 1;
        }
        bytes
    };
    let filter = sealed(from.take(from.remaining())?, flags & 1 != 0);
    Ok(sealed(&[head, &filter].concat(), flags & 2 != 0))
}

fuzz_target!(|input: &[u8]| {
    let Ok(bytes) = read(input) else { return };
    let entries = within(bytes.len() + MESSAGE, || run_summary(&bytes));
    let again = summary_entries(&bytes);
    assert_eq!(entries.as_ref().ok(), again.as_ref().ok(), "{entries:?}, {again:?}");
});
