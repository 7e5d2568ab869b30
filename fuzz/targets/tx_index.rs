//! A transaction-index payload: as the receipts, with entries of one length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_core::{TX_INDEX_ENTRY_LEN, push_tx_index, tx_index};
use secateur_fuzz::{MESSAGE, within};

fuzz_target!(|input: &[u8]| {
    let most = input.len() / TX_INDEX_ENTRY_LEN + 1;
    let steps = within(MESSAGE, || tx_index(input).take(most + 1).count());
    assert!(steps <= most, "the walk does not end");
    let (mut again, mut failed) = (Vec::new(), false);
    for entry in tx_index(input) {
        assert!(!failed, "the walk goes on after an error");
        match entry {
            Ok(entry) => push_tx_index(&mut again, &entry),
            Err(_) => failed = true,
        }
    }
    assert_eq!(input.get(..again.len()), Some(again.as_slice()));
    assert_eq!(failed, again.len() != input.len(), "bytes are left over without an error");
});
