//! A bundle: what decodes encodes to the same bytes, and nothing is copied over the limit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_core::{BUNDLE_PREFIX_LEN, MAX_SEGMENT_LEN, Segment, decode_bundle, encode_bundle};
use secateur_fuzz::{MESSAGE, within};

fuzz_target!(|input: &[u8]| {
    for max in [MAX_SEGMENT_LEN, 64] {
        let limit = input.len() + MESSAGE;
        let Ok(payloads) = within(limit, || decode_bundle(input, max)) else { continue };
        let longest = Segment::ALL.iter().map(|s| payloads.segment(*s).len()).max();
        assert!(longest <= Some(max as usize), "a segment is over the limit");
        assert_eq!(payloads.total_len() + BUNDLE_PREFIX_LEN as u64, input.len() as u64);
        assert_eq!(encode_bundle(&payloads).expect("it was decoded"), input);
    }
});
