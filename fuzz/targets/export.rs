//! The export: any cursor, any budget, over a chain in memory. Every rule of
//! `docs/format/export.md` that can be seen from outside is asserted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_core::{
    Cursor, ExportError, ExportReply, MAX_EXPORT_BYTES, PayloadSource, Segment, read_chunks,
};
use secateur_fuzz::source::{Answer, Call, MAX_BLOCKS, Source};
use secateur_fuzz::{MESSAGE, within};

/// A call holds one payload and the chunks cut from it.
const LIMIT: usize = 4 * 1_500_001 + MESSAGE;
/// Calls of one walk.
const MAX_STEPS: usize = 48;

fuzz_target!(|input: &[u8]| {
    let Call { source, cursor, max_bytes } = Call::read(input);
    let answer = within(LIMIT, || read_chunks(&source, cursor, max_bytes));
    assert_eq!(answer, read_chunks(&source, cursor, max_bytes), "a retry gives other bytes");
    match answer {
        Ok(reply) => {
            check_reply(&source, cursor, max_bytes, &reply);
            walk(&source, reply.next_cursor, max_bytes);
        }
        Err(Answer::OutOfRange(height)) => panic!("block {height} was asked for"),
        Err(Answer::Export(error)) => check_error(&source, cursor, max_bytes, &error),
    }
});

fn check_error(source: &Source, cursor: Option<Cursor>, max_bytes: u32, error: &ExportError) {
    match (error, cursor) {
        (ExportError::Limit { .. }, _) => assert_eq!(max_bytes, 0),
        (ExportError::Pruned { pruned_before_block }, Some(cursor)) => {
            assert_eq!(source.pruned_before(), Some(*pruned_before_block));
            assert!(cursor.block_number <= *pruned_before_block);
        }
        (ExportError::InvalidCursor { .. }, Some(cursor)) => {
            let height = cursor.block_number;
            let below = source.first_height().is_some_and(|first| height < first);
            let past = Segment::try_from(cursor.segment)
                .is_ok_and(|segment| cursor.byte_offset > source.len_of(height, segment));
            assert!(cursor.segment > 2 || below || past, "{cursor:?} was refused");
        }
        (error, None) => panic!("without a cursor: {error}"),
    }
}

fn check_reply(source: &Source, cursor: Option<Cursor>, max_bytes: u32, reply: &ExportReply) {
    let start = cursor.or_else(|| source.oldest_kept().map(Cursor::at_block));
    let Some(next) = reply.next_cursor else {
        assert!(cursor.is_none() && reply.chunks.is_empty());
        return;
    };
    let start = start.expect("there is a next cursor");
    if reply.chunks.is_empty() {
        assert_eq!(next, start, "caught up");
        assert!(source.export_head().is_none_or(|head| start.block_number > head));
        return;
    }
    let height = start.block_number;
    let (mut segment, mut offset, mut sum) = (start.segment, start.byte_offset, 0u64);
    for chunk in &reply.chunks {
        assert_eq!((chunk.segment.tag(), chunk.start), (segment, offset));
        assert_eq!(chunk.payload_len, source.len_of(height, chunk.segment));
        let whole = source.bytes_of(height, chunk.segment);
        let (from, len) = (chunk.start as usize, chunk.bytes.len());
        assert_eq!(whole.get(from..from + len), Some(chunk.bytes.as_slice()));
        sum += len as u64;
        offset += u32::try_from(len).expect("it is inside a payload");
        if offset == chunk.payload_len {
            (segment, offset) = (segment + 1, 0);
        }
    }
    assert!(sum <= u64::from(max_bytes.min(MAX_EXPORT_BYTES)), "over the budget");
    let end = if segment > 2 {
        Cursor::at_block(height + 1)
    } else {
        Cursor { block_number: height, segment, byte_offset: offset }
    };
    assert_eq!(next, end, "the next cursor is where the chunks end");
    assert_ne!(next, start, "no progress");
}

/// Goes on from a reply with the largest budget: it must reach the head in few calls.
fn walk(source: &Source, from: Option<Cursor>, max_bytes: u32) {
    let Some(head) = source.export_head() else { return };
    let mut at = from;
    for _ in 0..MAX_STEPS {
        match at {
            Some(cursor) if cursor.block_number <= head => {
                let budget = max_bytes.max(MAX_EXPORT_BYTES);
                let reply = read_chunks(source, at, budget).expect("its own cursor is valid");
                at = reply.next_cursor;
            }
            _ => return,
        }
    }
    // Three payloads of at most two calls each, and never more blocks than the chain has.
    assert!(MAX_STEPS as u64 >= MAX_BLOCKS * 6);
    panic!("{MAX_STEPS} calls did not reach the head");
}
