//! A journal entry: what decodes encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_fuzz::{MESSAGE, format, within};
use secateur_store::JournalEntry;

fuzz_target!(|input: &[u8]| {
    let limit = 4 * input.len() + MESSAGE;
    let Ok(entry) = within(limit, || JournalEntry::decode(input)) else { return };
    assert_eq!(format::journal_entry(&entry), input);
    assert!(entry.regions.iter().all(|ptr| ptr.len <= ptr.class));
});
