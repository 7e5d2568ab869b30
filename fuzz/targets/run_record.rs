//! The row of a run or a tombstone: what decodes encodes to the same bytes and keeps its own
//! promises.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_fuzz::{MESSAGE, format, within};
use secateur_store::{Place, RunRecord};

/// The run's number, then the row's body.
fn read(input: &[u8]) -> Option<(u64, &[u8])> {
    let (number, body) = input.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), body))
}

fuzz_target!(|input: &[u8]| {
    let Some((number, body)) = read(input) else { return };
    let limit = 4 * input.len() + MESSAGE;
    let Ok(record) = within(limit, || RunRecord::decode(number, body)) else { return };
    assert_eq!(format::run_record(&record), body);
    assert_eq!(record.number, number);
    assert!(record.first <= record.last && record.last < u64::MAX);
    for blob in record.run.iter().chain([&record.filter]) {
        match &blob.place {
            Place::Regions(ptrs) => {
                assert!(ptrs.iter().all(|ptr| ptr.len <= ptr.class));
                assert_eq!(ptrs.iter().map(|ptr| u64::from(ptr.len)).sum::<u64>(), blob.len);
            }
            Place::Stream(position) => assert!(position.checked_add(blob.len).is_some()),
        }
    }
});
