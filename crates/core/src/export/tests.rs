use super::*;
use crate::Payloads;
use proptest::prelude::*;

/// A chain in a list: the plainest source there can be.
struct List {
    first: Height,
    pruned: Option<Height>,
    head: Option<Height>,
    blocks: Vec<Payloads>,
}

impl PayloadSource for List {
    type Error = ExportError;

    fn first_height(&self) -> Option<Height> {
        (!self.blocks.is_empty()).then_some(self.first)
    }
    fn pruned_before(&self) -> Option<Height> {
        self.pruned
    }
    fn export_head(&self) -> Option<Height> {
        self.head
    }
    fn oldest_kept(&self) -> Option<Height> {
        self.pruned.map(|p| p + 1).or(self.first_height())
    }
    fn payload_lens(&self, height: Height) -> Result<[u32; 3], ExportError> {
        Ok(Segment::ALL.map(|s| u32::try_from(self.at(height).segment(s).len()).unwrap()))
    }
    fn payload(&self, height: Height, segment: Segment) -> Result<Vec<u8>, ExportError> {
        Ok(self.at(height).segment(segment).to_vec())
    }
}

impl List {
    fn at(&self, height: Height) -> &Payloads {
        &self.blocks[usize::try_from(height - self.first).unwrap()]
    }

    fn of(first: Height, blocks: Vec<Payloads>) -> Self {
        let head = (!blocks.is_empty()).then(|| first + blocks.len() as u64 - 1);
        Self { first, pruned: None, head, blocks }
    }
}

fn payloads(block: &[u8], receipts: &[u8], tx_index: &[u8]) -> Payloads {
    Payloads { block: block.into(), receipts: receipts.into(), tx_index: tx_index.into() }
}

#[expect(clippy::unnecessary_wraps, reason = "it stands where an optional cursor is wanted")]
fn cursor(block_number: Height, segment: u8, byte_offset: u32) -> Option<Cursor> {
    Some(Cursor { block_number, segment, byte_offset })
}

#[test]
fn an_empty_store_gives_no_chunks_and_no_cursor() {
    let reply = read_chunks(&List::of(5, vec![]), None, 10).unwrap();
    assert_eq!(reply, ExportReply::default());
}

#[test]
fn one_reply_covers_one_block_and_ends_on_the_next() {
    let list = List::of(5, vec![payloads(b"ab", b"cd", b"e"), payloads(b"x", b"", b"")]);
    let reply = read_chunks(&list, None, 100).unwrap();
    assert_eq!(reply.chunks.len(), 3);
    assert_eq!(reply.next_cursor, cursor(6, 0, 0));
}

#[test]
fn a_budget_that_ends_exactly_on_a_block_gives_the_next_block() {
    let list = List::of(5, vec![payloads(b"ab", b"cd", b"e")]);
    assert_eq!(read_chunks(&list, None, 5).unwrap().next_cursor, cursor(6, 0, 0));
    assert_eq!(read_chunks(&list, None, 4).unwrap().next_cursor, cursor(5, 2, 0));
    assert_eq!(read_chunks(&list, None, 3).unwrap().next_cursor, cursor(5, 1, 1));
}

#[test]
fn a_cursor_at_the_end_of_a_segment_gets_one_empty_chunk_and_goes_on() {
    let list = List::of(5, vec![payloads(b"ab", b"cd", b"e")]);
    let reply = read_chunks(&list, cursor(5, 0, 2), 1).unwrap();
    assert_eq!(
        reply.chunks[0],
        Chunk { segment: Segment::Block, start: 2, bytes: vec![], payload_len: 2 }
    );
    assert_eq!(reply.chunks[1].bytes, b"c");
    assert_eq!(reply.next_cursor, cursor(5, 1, 1));
    let end = read_chunks(&list, cursor(5, 2, 1), 1).unwrap();
    assert_eq!((end.chunks.len(), end.next_cursor), (1, cursor(6, 0, 0)));
}

#[test]
fn empty_segments_are_passed_with_one_empty_chunk_each() {
    let list = List::of(5, vec![payloads(b"", b"", b"")]);
    let reply = read_chunks(&list, None, 1).unwrap();
    assert_eq!(reply.chunks.iter().map(|c| c.segment).collect::<Vec<_>>(), Segment::ALL);
    assert!(reply.chunks.iter().all(|c| c.bytes.is_empty() && c.payload_len == 0));
    assert_eq!(reply.next_cursor, cursor(6, 0, 0));
}

#[test]
fn a_consumer_that_caught_up_gets_its_cursor_back_and_never_a_limit() {
    let list = List::of(5, vec![payloads(b"ab", b"", b"")]);
    for at in [6, 7, u64::MAX] {
        let reply = read_chunks(&list, cursor(at, 1, 9), 1).unwrap();
        assert_eq!(reply, ExportReply { chunks: vec![], next_cursor: cursor(at, 1, 9) });
    }
}

#[test]
fn only_finalised_blocks_are_exported() {
    let mut list = List::of(5, vec![payloads(b"a", b"", b""), payloads(b"b", b"", b"")]);
    list.head = Some(5);
    assert!(read_chunks(&list, cursor(6, 0, 0), 10).unwrap().chunks.is_empty());
    list.head = None;
    assert_eq!(read_chunks(&list, None, 10).unwrap(), ExportReply::default());
}

#[test]
fn cursors_that_cannot_be_are_refused_each_in_its_way() {
    let mut list = List::of(5, vec![payloads(b"ab", b"", b""), payloads(b"x", b"", b"")]);
    let invalid = |c| matches!(read_chunks(&list, c, 1), Err(ExportError::InvalidCursor { .. }));
    assert!(invalid(cursor(5, 3, 0)));
    assert!(invalid(cursor(5, 0, 3)));
    assert!(invalid(cursor(4, 0, 0)));
    assert!(matches!(read_chunks(&list, None, 0), Err(ExportError::Limit { .. })));
    list.pruned = Some(5);
    assert_eq!(
        read_chunks(&list, cursor(5, 0, 0), 1),
        Err(ExportError::Pruned { pruned_before_block: 5 })
    );
    assert_eq!(read_chunks(&list, None, 9).unwrap().chunks[0].bytes, b"x");
}

#[test]
fn a_budget_over_the_maximum_is_clamped() {
    let big = vec![7u8; MAX_EXPORT_BYTES as usize + 10];
    let list = List::of(0, vec![payloads(&big, b"", b"")]);
    let reply = read_chunks(&list, None, u32::MAX).unwrap();
    assert_eq!(reply.chunks[0].bytes.len(), MAX_EXPORT_BYTES as usize);
    assert_eq!(reply.next_cursor, cursor(0, 0, MAX_EXPORT_BYTES));
}

prop_compose! {
    fn any_block()(
        block in prop::collection::vec(any::<u8>(), 0..9),
        receipts in prop::collection::vec(any::<u8>(), 0..9),
        tx_index in prop::collection::vec(any::<u8>(), 0..9),
    ) -> Payloads {
        Payloads { block, receipts, tx_index }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The export model test: any budgets whatever reassemble the chain byte for byte.
    #[test]
    fn any_sequence_of_budgets_reassembles_the_chain(
        blocks in prop::collection::vec(any_block(), 1..6),
        budgets in prop::collection::vec(1u32..12, 1..40),
    ) {
        let list = List::of(3, blocks.clone());
        let mut rebuilt = vec![Payloads::default(); blocks.len()];
        let mut at: Option<Cursor> = None;
        let mut budgets = budgets.into_iter().cycle();
        for _ in 0..400 {
            let max_bytes = budgets.next().unwrap();
            let reply = read_chunks(&list, at, max_bytes).unwrap();
            let from = at.unwrap_or(Cursor::at_block(3));
            prop_assert!(reply.chunks.iter().map(|c| c.bytes.len()).sum::<usize>() <= max_bytes as usize);
            if let Some(first) = reply.chunks.first() {
                prop_assert_eq!((first.segment.tag(), first.start), (from.segment, from.byte_offset));
                prop_assert_ne!(reply.next_cursor, Some(from));
            }
            for chunk in &reply.chunks {
                let into = &mut rebuilt[usize::try_from(from.block_number - 3).unwrap()];
                let target = match chunk.segment {
                    Segment::Block => &mut into.block,
                    Segment::Receipts => &mut into.receipts,
                    Segment::TxIndex => &mut into.tx_index,
                };
                prop_assert_eq!(target.len(), chunk.start as usize);
                target.extend_from_slice(&chunk.bytes);
            }
            if reply.chunks.is_empty() {
                break;
            }
            at = reply.next_cursor;
        }
        prop_assert_eq!(at, cursor(3 + blocks.len() as u64, 0, 0));
        prop_assert_eq!(rebuilt, blocks);
    }
}
