//! A block record: what decodes encodes to the same bytes and keeps its own promises.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_core::MAX_SEGMENT_LEN;
use secateur_fuzz::{MESSAGE, format, within};
use secateur_store::BlockRecord;

fuzz_target!(|input: &[u8]| {
    let limit = 4 * input.len() + MESSAGE;
    let Ok(record) = within(limit, || BlockRecord::decode(7, input)) else { return };
    assert_eq!(format::block_record(&record), input);
    assert_eq!(record.meta.height, 7);
    assert!(record.lens.iter().all(|len| *len <= MAX_SEGMENT_LEN));
    assert!(record.extents.iter().all(|ptr| ptr.len <= ptr.class));
    let held: u64 = record.extents.iter().map(|ptr| u64::from(ptr.len)).sum();
    assert_eq!(held, record.payload_bytes());
    assert!(held <= record.region_bytes());
});
