//! A block of the Kasane chain, as a bundle: whatever it is, decoding ends, takes little memory, and gives
//! only what the three payloads agree on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_core::{MAX_SEGMENT_LEN, Payloads, decode_bundle, tx_index};
use secateur_evm::KasaneBlock;
use secateur_fuzz::{MESSAGE, within};

fn check(payloads: &Payloads) {
    let Some(number) = payloads.block.first_chunk::<8>() else { return };
    let height = u64::from_be_bytes(*number);
    // What is decoded takes some times its bytes, and never what a count in them promises.
    let room = MESSAGE + 32 * usize::try_from(payloads.total_len()).expect("it is short");
    let decoded = within(room, || KasaneBlock::decode(height, None, payloads));
    let Ok(block) = decoded else { return };
    assert_eq!(block.meta.height, height);
    assert_eq!(payloads.block.len(), 192 + 32 * block.txs.len());
    let ids = tx_index(&payloads.tx_index).map(|entry| entry.expect("it was checked").tx_id);
    assert!(ids.eq(block.txs.iter().map(|tx| tx.id)), "payloads that do not agree");
    assert_eq!(KasaneBlock::decode(height, Some(&block.meta), payloads), Ok(block.clone()));
    let mut other = block.meta;
    other.timestamp ^= 1;
    assert!(KasaneBlock::decode(height, Some(&other), payloads).is_err());
}

fuzz_target!(|input: &[u8]| {
    if let Ok(payloads) = decode_bundle(input, MAX_SEGMENT_LEN) {
        check(&payloads);
    }
});
