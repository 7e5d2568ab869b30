//! A row of block records: what decodes encodes to the same bytes and keeps its own promises.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_core::MAX_SEGMENT_LEN;
use secateur_fuzz::{MESSAGE, format, within};
use secateur_store::{BlockRecord, Group, MAX_GROUP, Place};

/// The first height, then the row's body.
fn read(input: &[u8]) -> Option<(u64, &[u8])> {
    let (first, body) = input.split_first_chunk()?;
    Some((u64::from_be_bytes(*first), body))
}

fuzz_target!(|input: &[u8]| {
    let Some((first, body)) = read(input) else { return };
    let limit = 4 * input.len() + MAX_GROUP * size_of::<BlockRecord>() + MESSAGE;
    let Ok(group) = within(limit, || Group::decode(first, body)) else { return };
    assert_eq!(format::group(&group), body);
    assert!((1..=MAX_GROUP).contains(&group.records.len()));
    let (mut height, mut before) = (first, None::<&BlockRecord>);
    for record in &group.records {
        assert_eq!(record.meta.height, height);
        assert!(record.lens.iter().all(|len| *len <= MAX_SEGMENT_LEN));
        let bytes = record.payload_bytes();
        match &record.place {
            Place::Regions(ptrs) => {
                assert!(ptrs.iter().all(|ptr| ptr.len <= ptr.class));
                let held: u64 = ptrs.iter().map(|ptr| u64::from(ptr.len)).sum();
                assert_eq!(held, bytes);
            }
            Place::Stream(position) => assert!(position.checked_add(bytes).is_some()),
        }
        assert!(bytes <= record.region_bytes());
        if let Some(before) = before {
            assert_eq!(record.meta.parent_hash, before.meta.hash);
            if let (Place::Stream(at), Place::Stream(below)) = (&record.place, &before.place) {
                assert_eq!(*at, below + before.payload_bytes(), "they lie end to end");
            }
        }
        // A store refuses the last height, so the one above is always a number.
        height += 1;
        before = Some(record);
    }
});
