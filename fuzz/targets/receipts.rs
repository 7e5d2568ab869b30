//! A receipts payload: the walk ends, ends after its first error, and what it yields encodes to
//! the bytes it came from.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_core::{push_receipt, receipts};
use secateur_fuzz::{MESSAGE, within};

fuzz_target!(|input: &[u8]| {
    let most = input.len() / 36 + 1;
    let steps = within(MESSAGE, || receipts(input).take(most + 1).count());
    assert!(steps <= most, "the walk does not end");
    let (mut again, mut failed) = (Vec::new(), false);
    for entry in receipts(input) {
        assert!(!failed, "the walk goes on after an error");
        let Ok(entry) = entry else {
            failed = true;
            continue;
        };
        let before = again.len();
        push_receipt(&mut again, &entry.tx_id, entry.bytes).expect("it is short");
        assert_eq!(again.len() - before, entry.encoded_len());
    }
    assert_eq!(input.get(..again.len()), Some(again.as_slice()));
    assert_eq!(failed, again.len() != input.len(), "bytes are left over without an error");
});
