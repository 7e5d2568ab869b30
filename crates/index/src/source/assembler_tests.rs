//! Any budgets give the block back byte for byte, and any answer that was tampered with is refused.

use proptest::prelude::*;
use secateur_core::{
    Block, BlockHash, BlockMeta, Cursor, ExportError, ExportReply, Height, PayloadSource, Payloads,
    Segment, read_chunks,
};
use secateur_proto::export::v2::Frame;

use super::{Assembler, SourceBlock};
use crate::IndexError;

/// A chain that begins at a height, as export sees it.
#[derive(Debug)]
struct Chain {
    first: Height,
    blocks: Vec<Payloads>,
}

impl Chain {
    fn at(&self, height: Height) -> &Payloads {
        &self.blocks[usize::try_from(height - self.first).unwrap()]
    }
}

impl PayloadSource for Chain {
    type Error = ExportError;

    fn first_height(&self) -> Option<Height> {
        Some(self.first)
    }
    fn pruned_before(&self) -> Option<Height> {
        None
    }
    fn export_head(&self) -> Option<Height> {
        (self.first + self.blocks.len() as u64).checked_sub(1).filter(|head| *head >= self.first)
    }
    fn oldest_kept(&self) -> Option<Height> {
        (!self.blocks.is_empty()).then_some(self.first)
    }
    fn payload_lens(&self, height: Height) -> Result<[u32; 3], ExportError> {
        Ok(Segment::ALL
            .map(|segment| u32::try_from(self.at(height).segment(segment).len()).unwrap()))
    }
    fn payload(&self, height: Height, segment: Segment) -> Result<Vec<u8>, ExportError> {
        Ok(self.at(height).segment(segment).to_vec())
    }
}

prop_compose! {
    fn payload()(len in 0usize..40, byte in any::<u8>()) -> Vec<u8> {
        (0..len).map(|at| byte.wrapping_add(u8::try_from(at).unwrap())).collect()
    }
}

prop_compose! {
    fn chain()(
        first in prop_oneof![Just(0u64), 1u64..1_000],
        blocks in prop::collection::vec((payload(), payload(), payload()), 0..5),
    ) -> Chain {
        let blocks = blocks
            .into_iter()
            .map(|(block, receipts, tx_index)| Payloads { block, receipts, tx_index })
            .collect();
        Chain { first, blocks }
    }
}

/// Polls until it has caught up, with a budget for each call.
fn pull(
    chain: &Chain,
    from: Option<Height>,
    budgets: &[u32],
    mut tamper: impl FnMut(usize, &mut ExportReply),
) -> Result<Vec<SourceBlock>, IndexError> {
    let mut assembler = Assembler::new(from);
    let mut blocks = Vec::new();
    for call in 0.. {
        let budget = budgets[call % budgets.len()];
        let mut reply = read_chunks(chain, assembler.cursor(), budget).unwrap();
        let nothing = reply.chunks.is_empty();
        tamper(call, &mut reply);
        blocks.extend(assembler.take_reply(reply, budget)?);
        if nothing {
            break;
        }
    }
    Ok(blocks)
}

fn expected(chain: &Chain) -> Vec<SourceBlock> {
    (chain.first..)
        .zip(&chain.blocks)
        .map(|(height, payloads)| SourceBlock { height, meta: None, payloads: payloads.clone() })
        .collect()
}

/// Ways to spoil an answer. Whether anything was spoiled is the answer.
fn spoil(reply: &mut ExportReply, how: u8, by: u32) -> bool {
    let before = reply.clone();
    let by = by.max(1);
    let at = by as usize % reply.chunks.len().max(1);
    match how {
        0 => reply.next_cursor = None,
        1 => {
            if let Some(next) = &mut reply.next_cursor {
                next.block_number += u64::from(by);
            }
        }
        2 => {
            if let Some(next) = &mut reply.next_cursor {
                next.byte_offset += by;
            }
        }
        3 => {
            if let Some(next) = &mut reply.next_cursor {
                next.segment = (next.segment + 1) % 3;
            }
        }
        4 if !reply.chunks.is_empty() => reply.chunks[at].start += by,
        5 if !reply.chunks.is_empty() => reply.chunks[at].payload_len += by,
        6 if !reply.chunks.is_empty() => {
            reply.chunks.remove(at);
        }
        7 if !reply.chunks.is_empty() => {
            let twice = reply.chunks[at].clone();
            reply.chunks.insert(at, twice);
        }
        8 if reply.chunks.len() > 1 => reply.chunks.reverse(),
        9 if !reply.chunks.is_empty() => reply.chunks[at].bytes.push(0),
        10 if !reply.chunks.is_empty() => {
            reply.chunks[at].bytes.pop();
        }
        _ => {}
    }
    *reply != before
}

proptest! {
    #[test]
    fn any_budgets_give_every_block_back_byte_for_byte(
        chain in chain(),
        named in any::<bool>(),
        budgets in prop::collection::vec(1u32..60, 1..6),
    ) {
        let from = named.then_some(chain.first);
        prop_assert_eq!(pull(&chain, from, &budgets, |_, _| {}).unwrap(), expected(&chain));
    }

    #[test]
    fn an_answer_that_was_tampered_with_is_refused(
        chain in chain(),
        budgets in prop::collection::vec(1u32..60, 1..6),
        call in 0usize..20,
        how in 0u8..11,
        by in 1u32..5,
    ) {
        let mut spoiled = false;
        let pulled = pull(&chain, Some(chain.first), &budgets, |now, reply| {
            if now == call {
                spoiled = spoil(reply, how, by);
            }
        });
        match pulled {
            Err(IndexError::InvalidCursor(_)) => prop_assert!(spoiled),
            Err(other) => prop_assert!(false, "{other}"),
            Ok(blocks) => {
                prop_assert!(!spoiled);
                prop_assert_eq!(blocks, expected(&chain));
            }
        }
    }

    #[test]
    fn frames_of_any_length_give_every_block_back(chain in chain(), most in 1usize..30) {
        let mut assembler = Assembler::new(None);
        let mut blocks = Vec::new();
        for frame in frames(&chain, most) {
            blocks.extend(assembler.take_frame(frame, None).unwrap());
        }
        prop_assert_eq!(blocks, expected(&chain));
        prop_assert!(!assembler.is_inside());
    }

    #[test]
    fn frames_that_are_lost_doubled_or_changed_are_refused(
        chain in chain(),
        most in 1usize..30,
        at in any::<prop::sample::Index>(),
        how in 0u8..6,
    ) {
        let mut frames = frames(&chain, most);
        prop_assume!(frames.len() > 1);
        // A lost last frame is seen by whoever reads the stream's end.
        let at = at.index(frames.len() - 1);
        match how {
            0 => drop(frames.remove(at)),
            1 => frames.insert(at, frames[at].clone()),
            2 => frames[at].ends_block = !frames[at].ends_block,
            3 => frames[at + 1].block_number += 1,
            4 => frames[at].payload_len += 1,
            _ => frames[at].segment = 7,
        }
        let mut assembler = Assembler::new(Some(chain.first));
        let mut refused = false;
        for frame in frames {
            if let Err(error) = assembler.take_frame(frame, None) {
                prop_assert!(matches!(error, IndexError::InvalidCursor(_)));
                refused = true;
                break;
            }
        }
        prop_assert!(refused);
    }
}

fn frames(chain: &Chain, most: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    for SourceBlock { height, payloads, .. } in expected(chain) {
        for segment in Segment::ALL {
            let bytes = payloads.segment(segment);
            let payload_len = u32::try_from(bytes.len()).unwrap();
            let mut start = 0;
            loop {
                let end = bytes.len().min(start + most);
                frames.push(Frame {
                    block_number: height,
                    segment: segment.tag().into(),
                    start: u32::try_from(start).unwrap(),
                    bytes: bytes[start..end].to_vec().into(),
                    payload_len,
                    ends_block: segment == Segment::TxIndex && end == bytes.len(),
                    meta: None,
                });
                start = end;
                if end == bytes.len() {
                    break;
                }
            }
        }
    }
    frames
}

#[test]
fn a_segment_over_8_mib_is_refused_before_anything_is_reserved() {
    let mut assembler = Assembler::new(Some(7));
    let frame = Frame { block_number: 7, payload_len: u32::MAX, ..Frame::default() };
    let error = assembler.take_frame(frame, None).unwrap_err();
    assert!(error.to_string().contains("4294967295"), "{error}");
}

#[test]
fn meta_is_taken_only_on_the_first_frame_and_of_the_same_block() {
    let meta = |height| BlockMeta {
        height,
        hash: BlockHash::default(),
        parent_hash: BlockHash::default(),
        timestamp: 9,
    };
    let frame = |segment| Frame { block_number: 7, segment, ..Frame::default() };
    let mut assembler = Assembler::new(Some(7));
    assert!(assembler.take_frame(frame(0), Some(meta(8))).is_err());
    let mut assembler = Assembler::new(Some(7));
    assert!(assembler.take_frame(frame(0), Some(meta(7))).unwrap().is_none());
    assert!(assembler.take_frame(frame(1), Some(meta(7))).is_err());
    let last = Frame { ends_block: true, ..frame(2) };
    let mut assembler = Assembler::new(Some(7));
    assembler.take_frame(frame(0), Some(meta(7))).unwrap();
    assembler.take_frame(frame(1), None).unwrap();
    let block = assembler.take_frame(last, None).unwrap().unwrap();
    let whole = Block { meta: meta(7), payloads: Payloads::default() };
    assert_eq!(block.meta, Some(whole.meta));
}

#[test]
fn a_cursor_at_the_end_of_the_numbers_is_an_error_and_not_a_panic() {
    let mut assembler = Assembler::new(Some(u64::MAX));
    let next = Some(Cursor::at_block(0));
    let empty = |segment| secateur_core::Chunk { segment, start: 0, bytes: vec![], payload_len: 0 };
    let reply = ExportReply { chunks: Segment::ALL.map(empty).to_vec(), next_cursor: next };
    assert!(assembler.take_reply(reply, 10).is_err());
}
