//! Blocks: appended whole and in pieces, read back, looked up.

use candid::Principal;
use secateur_canister::{Appended, Error, ExportReply, KeptBlock, Piece, Queued};
use secateur_core::MAX_SEGMENT_LEN;
use serde_bytes::{ByteArray, ByteBuf};

use crate::common::*;

#[test]
#[ignore = "needs the wasm: make canister"]
fn a_block_that_was_appended_is_read_back_whole_and_by_the_receipt() {
    let mut host = installed(None);
    let block = block(1, 5000, 3, 80);
    assert_eq!(append(&mut host, block.clone()), Ok(Appended { head: 1, written: 1 }));
    // The same again changes nothing.
    assert_eq!(append(&mut host, block.clone()), Ok(Appended { head: 1, written: 0 }));
    let kept: Result<KeptBlock, Error> = host.query("get_block", (1_u64,)).unwrap();
    let kept = kept.unwrap();
    assert_eq!((kept.meta, kept.tx_count, kept.block), (block.meta, 3, Some(block.block)));
    let id = ByteArray::new(tx_id(1, 2).0);
    let receipt: Result<ByteBuf, Error> = host.query("get_receipt", (id,)).unwrap();
    assert_eq!(receipt.unwrap(), noise(1 ^ 2, 80));
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn blocks_that_do_not_follow_are_refused_and_nothing_changes() {
    let mut host = installed(None);
    append_up_to(&mut host, 3);
    let before = host.image();
    assert_eq!(append(&mut host, block(5, 10, 0, 0)), Err(Error::Gap { expected: 4, got: 5 }));
    let mut fork = block(4, 10, 0, 0);
    fork.meta.parent_hash = ByteArray::new([9; 32]);
    let refused = append(&mut host, fork);
    assert!(matches!(refused, Err(Error::WrongParent { height: 4, .. })), "{refused:?}");
    assert_eq!(append(&mut host, block(3, 10, 0, 0)), Err(Error::Conflict { height: 3 }));
    let mut broken = block(4, 10, 2, 5);
    broken.tx_index.pop();
    let refused = append(&mut host, broken);
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    assert_eq!(host.image(), before);
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn lookups_say_pending_and_not_found() {
    let mut host = installed(None);
    append_up_to(&mut host, 2);
    let id = ByteArray::new([5; 32]);
    let look = |host: &mut crate::host::Host| -> Result<ByteBuf, Error> {
        host.query("get_receipt", (id,)).unwrap()
    };
    assert!(matches!(look(&mut host), Err(Error::NotFound { .. })));
    let queued: Result<Queued, Error> = host.update(controller(), "queue_tx", (id,)).unwrap();
    assert_eq!(queued, Ok(Queued::Added));
    assert_eq!(look(&mut host), Err(Error::Pending));
    let dropped: Result<bool, Error> = host.update(controller(), "drop_tx", (id,)).unwrap();
    assert_eq!(dropped, Ok(true));
    assert!(matches!(look(&mut host), Err(Error::NotFound { .. })));
    let above: Result<KeptBlock, Error> = host.query("get_block", (3_u64,)).unwrap();
    assert!(matches!(above, Err(Error::NotFound { .. })));
    let included = ByteArray::new(tx_id(2, 1).0);
    let queued: Result<Queued, Error> = host.update(controller(), "queue_tx", (included,)).unwrap();
    assert_eq!(queued, Ok(Queued::Included(2)));
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn a_block_longer_than_a_message_comes_in_pieces_and_is_exported_in_pieces() {
    let mut host = installed(None);
    let block = block(1, 4_000_000, 10_000, 200);
    let appended = append_in_pieces(&mut host, &block).unwrap();
    assert_eq!(appended, Ok(Appended { head: 1, written: 1 }));
    let kept: Result<KeptBlock, Error> = host.query("get_block", (1_u64,)).unwrap();
    assert_eq!(kept.unwrap().block, None);
    let (mut got, mut cursor) = ([Vec::new(), Vec::new(), Vec::new()], None);
    loop {
        let args = (cursor, u32::MAX);
        let reply: Result<ExportReply, Error> = host.query("export_blocks", args).unwrap();
        let reply = reply.unwrap();
        let bytes: usize = reply.chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        assert!(bytes <= 1_500_000, "{bytes}");
        if bytes == 0 {
            break;
        }
        for chunk in reply.chunks {
            let payload = &mut got[usize::from(chunk.segment)];
            assert_eq!(chunk.start as usize, payload.len());
            payload.extend_from_slice(&chunk.bytes);
        }
        cursor = reply.next_cursor;
    }
    let [own, receipts, tx_index] = got;
    assert_eq!((own, receipts), (block.block.into_vec(), block.receipts.into_vec()));
    assert_eq!(tx_index, block.tx_index.into_vec());
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn pieces_come_in_order_again_or_not_at_all() {
    let mut host = installed(None);
    let piece =
        |segment, start, bytes: &[u8]| Piece { segment, start, bytes: ByteBuf::from(bytes) };
    let mut send = |method: &str, piece: Piece| -> Result<u32, Error> {
        host.update(controller(), method, (piece,)).unwrap()
    };
    let refused = send("append_chunk", piece(0, 0, b"abc"));
    assert!(
        matches!(&refused, Err(Error::Refused { reason, .. }) if reason.contains("append_begin"))
    );
    let head = |block_len| secateur_canister::BlockHead {
        meta: meta(1),
        block_len,
        receipts_len: 0,
        tx_index_len: 0,
    };
    let begin = |host: &mut crate::host::Host, len| -> Result<(), Error> {
        host.update(controller(), "append_begin", (head(len),)).unwrap()
    };
    let too_long = begin(&mut host, MAX_SEGMENT_LEN + 1);
    assert!(matches!(too_long, Err(Error::Invalid { .. })), "{too_long:?}");
    begin(&mut host, 6).unwrap();
    let mut send = |piece: Piece| -> Result<u32, Error> {
        host.update(controller(), "append_chunk", (piece,)).unwrap()
    };
    assert_eq!(send(piece(0, 0, b"abc")), Ok(3));
    assert_eq!(send(piece(0, 0, b"abc")), Ok(3), "what came already is passed over");
    for wrong in [
        piece(0, 0, b"abX"),
        piece(0, 4, b"e"),
        piece(0, 3, b"defg"),
        piece(1, 0, b"a"),
        piece(3, 0, b"a"),
        piece(0, u32::MAX, b"a"),
    ] {
        assert!(send(wrong.clone()).is_err(), "{wrong:?}");
    }
    let early: Result<Appended, Error> = host.update(controller(), "append_commit", ()).unwrap();
    assert!(matches!(early, Err(Error::Refused { .. })), "{early:?}");
    let mut send = |piece: Piece| -> Result<u32, Error> {
        host.update(controller(), "append_chunk", (piece,)).unwrap()
    };
    assert_eq!(send(piece(0, 2, b"cdef")), Ok(6), "a piece may begin before the end");
    let done: Result<Appended, Error> = host.update(controller(), "append_commit", ()).unwrap();
    assert_eq!(done, Ok(Appended { head: 1, written: 1 }));
    let kept: Result<KeptBlock, Error> = host.query("get_block", (1_u64,)).unwrap();
    assert_eq!(kept.unwrap().block, Some(ByteBuf::from(b"abcdef".as_slice())));
    let again: Result<Appended, Error> = host.update(controller(), "append_commit", ()).unwrap();
    assert!(matches!(again, Err(Error::Refused { .. })), "{again:?}");
}

#[test]
#[ignore = "needs the wasm: make canister"]
fn a_block_that_is_refused_stays_until_its_place_is_there() {
    let mut host = installed(None);
    append_up_to(&mut host, 1);
    let later = block(3, 2_000_000, 0, 0);
    let early = append_in_pieces(&mut host, &later).unwrap();
    assert_eq!(early, Err(Error::Gap { expected: 2, got: 3 }));
    append_up_to(&mut host, 2);
    let done: Result<Appended, Error> = host.update(controller(), "append_commit", ()).unwrap();
    assert_eq!(done, Ok(Appended { head: 3, written: 1 }));
    let anonymous = Principal::anonymous();
    let refused: Result<Appended, Error> = host.update(anonymous, "append_commit", ()).unwrap();
    assert!(matches!(refused, Err(Error::Forbidden { .. })));
}
