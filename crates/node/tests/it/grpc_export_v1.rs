//! `secateur.export.v1`, rule by rule, through a real socket.

use secateur_core::{Block, MAX_SEGMENT_LEN, Payloads};
use secateur_proto::export::v1::{Cursor, ExportBlocksResponse, GetHeadRequest, export_error};
use tonic::Code;

use crate::grpc::{
    Clients, Dice, Rig, Whole, block, chain, cursor, export_reason, pruned_export, whole,
};

/// What a response says: segment, start, length, payload length of each chunk.
fn shape(reply: &ExportBlocksResponse) -> Vec<(u32, u32, usize, u32)> {
    reply.chunks.iter().map(|c| (c.segment, c.start, c.bytes.len(), c.payload_len)).collect()
}

fn lens(block: &Block) -> [u32; 3] {
    let Payloads { block, receipts, tx_index } = &block.payloads;
    [block, receipts, tx_index].map(|payload| u32::try_from(payload.len()).unwrap())
}

/// Adds a response to what was read before, and checks every rule that a response obeys.
#[track_caller]
fn take(into: &mut Whole, asked: Cursor, max_bytes: u32, reply: &ExportBlocksResponse) {
    let bytes: usize = reply.chunks.iter().map(|chunk| chunk.bytes.len()).sum();
    assert!(bytes <= max_bytes as usize, "{bytes} > {max_bytes}");
    let first = reply.chunks.first().expect("a chunk, while not caught up");
    assert_eq!((first.segment, first.start), (asked.segment, asked.byte_offset));
    let payloads = into.entry(asked.block_number).or_default();
    let (mut segment, mut at) = (asked.segment, asked.byte_offset);
    for chunk in &reply.chunks {
        if chunk.segment != segment {
            assert_eq!((chunk.segment, chunk.start), (segment + 1, 0));
            (segment, at) = (chunk.segment, 0);
        }
        assert_eq!(chunk.start, at);
        at += u32::try_from(chunk.bytes.len()).unwrap();
        assert!(at <= chunk.payload_len);
        let payload = &mut payloads[segment as usize];
        payload.truncate(chunk.start as usize);
        assert_eq!(payload.len(), chunk.start as usize);
        payload.extend_from_slice(&chunk.bytes);
    }
    let last = reply.chunks.last().unwrap();
    let next = reply.next_cursor.unwrap();
    let expected = match (at == last.payload_len, segment) {
        (false, _) => cursor(asked.block_number, segment, at),
        (true, 2) => cursor(asked.block_number + 1, 0, 0),
        (true, _) => cursor(asked.block_number, segment + 1, 0),
    };
    assert_eq!(next, expected);
}

/// Reads from the oldest block to the head with budgets as they come.
pub async fn reassemble(clients: &Clients, first: u64, mut budget: impl FnMut() -> u32) -> Whole {
    let mut into = Whole::new();
    let mut at = None;
    loop {
        let max_bytes = budget();
        let reply = clients.pull(at, Some(max_bytes)).await.unwrap();
        if reply.chunks.is_empty() {
            assert_eq!(reply.next_cursor, at);
            return into;
        }
        let asked = at.unwrap_or_else(|| cursor(first, 0, 0));
        take(&mut into, asked, max_bytes, &reply);
        at = reply.next_cursor;
    }
}

#[tokio::test]
async fn an_empty_store_has_no_head_no_chunks_and_no_cursor() {
    let rig = Rig::start("").await;
    let head = rig.clients.export.clone().get_head(GetHeadRequest {}).await.unwrap();
    assert_eq!(head.into_inner().block_number, None);
    assert_eq!(rig.clients.pull(None, None).await.unwrap(), ExportBlocksResponse::default());
    let waiting = rig.clients.pull(Some(cursor(7, 1, 2)), None).await.unwrap();
    assert_eq!((waiting.chunks.len(), waiting.next_cursor), (0, Some(cursor(7, 1, 2))));
    rig.stop().await;
}

#[tokio::test]
async fn without_a_cursor_the_oldest_block_comes_and_its_segments_follow_one_another() {
    let blocks = chain(5..=7, 1_000, 3);
    let rig = Rig::with(&blocks).await;
    let [a, b, c] = lens(&blocks[0]);
    let reply = rig.clients.pull(None, None).await.unwrap();
    let sizes = [a, b, c].map(|len| len as usize);
    assert_eq!(shape(&reply), [(0, 0, sizes[0], a), (1, 0, sizes[1], b), (2, 0, sizes[2], c)]);
    assert_eq!(reply.next_cursor, Some(cursor(6, 0, 0)));
    let head = rig.clients.export.clone().get_head(GetHeadRequest {}).await.unwrap();
    assert_eq!(head.into_inner().block_number, Some(7));
}

#[tokio::test]
async fn a_cursor_at_the_end_of_a_segment_gets_an_empty_chunk_and_then_the_next_segment() {
    let blocks = chain(0..=1, 300, 2);
    let rig = Rig::with(&blocks).await;
    let [a, b, c] = lens(&blocks[0]);
    let reply = rig.clients.pull(Some(cursor(0, 0, a)), None).await.unwrap();
    let (len_b, len_c) = (b as usize, c as usize);
    assert_eq!(shape(&reply), [(0, a, 0, a), (1, 0, len_b, b), (2, 0, len_c, c)]);
    let reply = rig.clients.pull(Some(cursor(0, 1, b)), Some(1)).await.unwrap();
    assert_eq!(shape(&reply), [(1, b, 0, b), (2, 0, 1, c)]);
    assert_eq!(reply.next_cursor, Some(cursor(0, 2, 1)));
}

#[tokio::test]
async fn a_cursor_at_the_end_of_the_heads_last_segment_moves_to_the_block_that_is_to_come() {
    let blocks = chain(0..=1, 300, 2);
    let rig = Rig::with(&blocks).await;
    let [_, _, c] = lens(&blocks[1]);
    let reply = rig.clients.pull(Some(cursor(1, 2, c)), Some(1)).await.unwrap();
    assert_eq!(shape(&reply), [(2, c, 0, c)]);
    assert_eq!(reply.next_cursor, Some(cursor(2, 0, 0)));
}

#[tokio::test]
async fn empty_segments_are_passed_with_one_empty_chunk_each() {
    let blocks = [block(0, 10, 0), block(1, 0, 0), block(2, 0, 1)];
    let rig = Rig::with(&blocks).await;
    let reply = rig.clients.pull(None, None).await.unwrap();
    assert_eq!(shape(&reply), [(0, 0, 10, 10), (1, 0, 0, 0), (2, 0, 0, 0)]);
    let reply = rig.clients.pull(reply.next_cursor, Some(1)).await.unwrap();
    assert_eq!(shape(&reply), [(0, 0, 0, 0), (1, 0, 0, 0), (2, 0, 0, 0)]);
    assert_eq!(reply.next_cursor, Some(cursor(2, 0, 0)));
    let [_, b, c] = lens(&blocks[2]);
    let reply = rig.clients.pull(reply.next_cursor, None).await.unwrap();
    assert_eq!(shape(&reply), [(0, 0, 0, 0), (1, 0, b as usize, b), (2, 0, c as usize, c)]);
}

#[tokio::test]
async fn a_budget_that_ends_on_a_boundary_leaves_a_normal_cursor() {
    let blocks = chain(0..=1, 300, 2);
    let rig = Rig::with(&blocks).await;
    let [a, b, c] = lens(&blocks[0]);
    let pull = async |max| rig.clients.pull(Some(cursor(0, 0, 0)), Some(max)).await.unwrap();
    assert_eq!(pull(a + b + c).await.next_cursor, Some(cursor(1, 0, 0)));
    assert_eq!(pull(a + b + c - 1).await.next_cursor, Some(cursor(0, 2, c - 1)));
    assert_eq!(pull(a).await.next_cursor, Some(cursor(0, 1, 0)));
    assert_eq!(pull(a + 1).await.next_cursor, Some(cursor(0, 1, 1)));
    assert_eq!(pull(a + b).await.next_cursor, Some(cursor(0, 2, 0)));
}

#[tokio::test]
async fn one_byte_at_a_time_walks_a_whole_block() {
    let blocks = [block(3, 40, 1), block(4, 0, 0), block(5, 3, 0)];
    let rig = Rig::with(&blocks).await;
    assert_eq!(reassemble(&rig.clients, 3, || 1).await, whole(&blocks));
}

#[tokio::test]
async fn a_retry_with_the_same_cursor_gives_the_same_bytes() {
    let rig = Rig::with(&chain(0..=2, 5_000, 5)).await;
    for at in [cursor(0, 0, 77), cursor(1, 1, 3), cursor(2, 2, 0)] {
        let first = rig.clients.pull(Some(at), Some(700)).await.unwrap();
        rig.clients.append(&[block(rig.clients.status().await.head.unwrap() + 1, 9, 1)]).await;
        assert_eq!(rig.clients.pull(Some(at), Some(700)).await.unwrap(), first);
    }
}

#[tokio::test]
async fn a_prune_between_two_pulls_is_told_with_the_boundary() {
    let blocks = chain(0..=49, 2_000, 4);
    let rig = Rig::with(&blocks).await;
    let first = rig.clients.pull(None, Some(500)).await.unwrap();
    assert_eq!(first.next_cursor, Some(cursor(0, 0, 500)));
    let boundary = rig.clients.prune_to(10).await;
    assert!((1..49).contains(&boundary), "{boundary}");
    for at in [cursor(0, 0, 500), cursor(boundary, 2, 0)] {
        let error = rig.clients.pull(Some(at), None).await.unwrap_err();
        assert_eq!(pruned_export(&error), boundary);
    }
    let oldest = rig.clients.pull(None, None).await.unwrap();
    assert_eq!(oldest.next_cursor, Some(cursor(boundary + 2, 0, 0)));
    let kept = &blocks[usize::try_from(boundary).unwrap() + 1..];
    assert_eq!(reassemble(&rig.clients, boundary + 1, || 900).await, whole(kept));
}

#[tokio::test]
async fn segments_of_the_longest_length_come_whole() {
    const FULL: usize = MAX_SEGMENT_LEN as usize;
    let mut full = block(0, FULL, 0);
    let id = crate::grpc::tx_of(0, 0);
    let receipt = Dice(1).bytes(FULL - 36);
    secateur_core::push_receipt(&mut full.payloads.receipts, &id, &receipt).unwrap();
    assert_eq!(full.payloads.receipts.len(), FULL);
    let blocks = [full, block(1, FULL, 1)];
    let rig = Rig::with(&blocks).await;
    assert_eq!(reassemble(&rig.clients, 0, || 1_500_000).await, whole(&blocks));
}

#[tokio::test]
async fn caught_up_gives_the_cursor_back_as_it_was() {
    let rig = Rig::with(&chain(0..=3, 100, 1)).await;
    for at in [cursor(4, 0, 0), cursor(4, 2, 99), cursor(u64::MAX, 1, u32::MAX)] {
        let reply = rig.clients.pull(Some(at), Some(1)).await.unwrap();
        assert_eq!((reply.chunks.len(), reply.next_cursor), (0, Some(at)));
    }
}

#[tokio::test]
async fn a_cursor_that_points_nowhere_is_invalid() {
    let blocks = chain(5..=6, 100, 1);
    let rig = Rig::with(&blocks).await;
    let [a, _, _] = lens(&blocks[0]);
    let nowhere = [
        cursor(5, 3, 0),
        cursor(5, 256, 0),
        cursor(5, u32::MAX, 0),
        cursor(5, 0, a + 1),
        cursor(6, 2, u32::MAX),
        cursor(4, 0, 0),
        cursor(0, 0, 0),
    ];
    for at in nowhere {
        let error = rig.clients.pull(Some(at), None).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{at:?}");
        let reason = export_reason(&error);
        assert!(matches!(reason, export_error::Reason::InvalidCursor(_)), "{at:?}: {reason:?}");
    }
}

#[tokio::test]
async fn a_budget_is_a_million_bytes_by_default_and_never_over_one_and_a_half() {
    let rig = Rig::with(&[block(0, 4_000_000, 0)]).await;
    let pulled = async |max| {
        let reply = rig.clients.pull(None, max).await.unwrap();
        reply.chunks.iter().map(|chunk| chunk.bytes.len()).sum::<usize>()
    };
    assert_eq!(pulled(None).await, 1_000_000);
    assert_eq!(pulled(Some(1_500_000)).await, 1_500_000);
    assert_eq!(pulled(Some(1_500_001)).await, 1_500_000);
    assert_eq!(pulled(Some(u32::MAX)).await, 1_500_000);
}

#[tokio::test]
async fn a_budget_of_nothing_is_a_limit_error() {
    let rig = Rig::with(&chain(0..=1, 100, 1)).await;
    for at in [None, Some(cursor(0, 0, 0)), Some(cursor(9, 0, 0))] {
        let error = rig.clients.pull(at, Some(0)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(matches!(export_reason(&error), export_error::Reason::Limit(_)));
    }
}

#[tokio::test]
async fn only_final_blocks_are_exported_where_finality_is_told() {
    let rig = Rig::configured("[chain]\nfinality = \"explicit\"\n").await;
    rig.clients.append(&chain(0..=9, 100, 1)).await;
    let head = async || {
        let head = rig.clients.export.clone().get_head(GetHeadRequest {}).await.unwrap();
        head.into_inner().block_number
    };
    assert_eq!(head().await, None);
    assert!(rig.clients.pull(None, None).await.unwrap().chunks.is_empty());
    let finalized = secateur_proto::history::v1::SetFinalizedRequest { block_number: 4 };
    let answer = rig.clients.admin.clone().set_finalized(finalized).await.unwrap().into_inner();
    assert_eq!((answer.finalized, head().await), (Some(4), Some(4)));
    assert_eq!(reassemble(&rig.clients, 0, || 50).await.len(), 5);
}

/// Budgets from one byte to more than a block, chains with empty, small and large payloads.
#[tokio::test]
async fn the_chain_is_reassembled_byte_for_byte_from_any_sequence_of_budgets() {
    for seed in 0..6u64 {
        let mut dice = Dice(seed);
        let first = dice.below(1_000);
        let blocks: Vec<Block> = (first..first + 25)
            .map(|height| {
                let len = match dice.below(5) {
                    0 => 0,
                    1 => 1,
                    2 => dice.below(200_000),
                    _ => dice.below(3_000),
                };
                let txs = u32::try_from(dice.below(6)).unwrap();
                block(height, usize::try_from(len).unwrap(), txs)
            })
            .collect();
        let rig = Rig::with(&blocks).await;
        for _ in 0..3 {
            let budgets = || match dice.below(4) {
                0 => 1 + u32::try_from(dice.below(3)).unwrap(),
                1 => 100 + u32::try_from(dice.below(400)).unwrap(),
                _ => 1 + u32::try_from(dice.below(60_000)).unwrap(),
            };
            let read = reassemble(&rig.clients, first, budgets).await;
            assert!(read == whole(&blocks), "seed {seed} is not the chain");
        }
    }
}
