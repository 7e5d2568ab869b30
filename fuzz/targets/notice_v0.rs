//! The body of a V0 notice: a protobuf message in the only spelling that is read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_core::notice::{DOMAIN_V0, NoticeBodyV0};
use secateur_fuzz::{MESSAGE, within};

fuzz_target!(|input: &[u8]| {
    let limit = 8 * input.len() + MESSAGE;
    let Ok(body) = within(limit, || NoticeBodyV0::decode(input)) else { return };
    assert_eq!(body.encode().expect("it was read"), input);
    assert_eq!(body.preimage(), [DOMAIN_V0, input].concat());
    assert_eq!(body.claim().chain_id, None);
});
