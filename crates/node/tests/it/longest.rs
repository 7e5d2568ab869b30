//! The longest payloads there are: a block of them goes all the way, and one byte more is refused.

use secateur_core::{Block, MAX_SEGMENT_LEN, TxIndexEntry, push_receipt, push_tx_index, tx_index};
use tonic::Code;

use crate::grpc::{Dice, Whole, append_request, block, tx_of, whole};
use crate::indexed::Bench;
use crate::tool::open_store;

const LONGEST: usize = MAX_SEGMENT_LEN as usize;

/// A block whose own bytes and receipts are as long as they may be: of its three receipts the second
/// is nearly as long as the payload, and the last begins nearly at its end.
fn longest(height: u64) -> Block {
    let mut made = block(height, LONGEST, 0);
    for (index, len) in [(0, 10), (1, LONGEST - 3 * 36 - 10), (2, 0)] {
        let id = tx_of(height, index);
        let receipt = Dice(height).bytes(len);
        push_receipt(&mut made.payloads.receipts, &id, &receipt).unwrap();
        push_tx_index(&mut made.payloads.tx_index, &TxIndexEntry { tx_id: id, height, index });
    }
    assert_eq!(made.payloads.receipts.len(), LONGEST);
    made
}

/// Every payload, as export v1 gives it.
async fn polled(bench: &Bench) -> Whole {
    let (mut read, mut at) = (Whole::new(), None);
    loop {
        let reply = bench.clients.pull(at, Some(u32::MAX)).await.unwrap();
        if reply.chunks.is_empty() {
            return read;
        }
        let payloads = read.entry(at.map_or(0, |at| at.block_number)).or_default();
        for chunk in &reply.chunks {
            payloads[chunk.segment as usize].extend_from_slice(&chunk.bytes);
        }
        at = reply.next_cursor;
    }
}

#[test]
fn a_payload_of_the_limit_is_exported_archived_cut_and_restored_and_one_byte_more_is_refused() {
    let bench = Bench::start("[archive]\nurl = \"ARCHIVE\"\n", 0);
    let blocks = [longest(0), longest(1), block(2, 100, 1), block(3, 100, 1)];
    bench.runtime.block_on(bench.clients.append(&blocks));
    let grow_block: fn(&mut Block) = |block| block.payloads.block.push(0);
    // The last receipt is one byte longer.
    let grow_receipts: fn(&mut Block) = |block| {
        let at = LONGEST - 1;
        block.payloads.receipts[at] = 1;
        block.payloads.receipts.push(0);
    };
    for (what, grow) in [("block payload", grow_block), ("receipts payload", grow_receipts)] {
        let mut over = longest(4);
        grow(&mut over);
        let mut admin = bench.clients.admin.clone();
        let refused = bench.runtime.block_on(admin.append(append_request(&[over]))).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        for words in [what, "16777216 bytes", "the limit is 16777215", "nothing was written"] {
            assert!(refused.message().contains(words), "{words}: {refused:?}");
        }
    }
    assert!(bench.runtime.block_on(polled(&bench)) == whole(&blocks), "export v1");
    let words = format!("--archive {} --part-blocks 4 --codec opaque --once", bench.archive());
    bench.index("index", &words).ends(0);
    assert_eq!(bench.prune(1), Some(2), "the longest blocks are sealed, and then cut");
    let into = bench.path("restored");
    bench.ask_archive(&format!("restore 0..3 --into {}", into.display())).ends(0);
    let store = open_store(&into);
    for block in &blocks {
        assert!(store.get_block(block.meta.height).unwrap() == *block, "{}", block.meta.height);
        for entry in tx_index(&block.payloads.tx_index).map(Result::unwrap) {
            store.get_receipt(&entry.tx_id).unwrap();
        }
    }
    store.seal().unwrap();
    assert!(store.verify(|_, _| {}).unwrap().is_clean());
}
