//! The blocking half of an export stream: which blocks come next, and how their payloads are cut
//! into frames and gathered into responses.

use bytes::Bytes;
use secateur_core::{BlockMeta, Height, Segment};
use secateur_proto::export::v2::{Frame, Meta, StreamRequest, StreamResponse};
use secateur_store::BlockRecord;
use secateur_store::ground::disk::DiskStore;

use super::convert;
use crate::service::ApiError;

/// The largest frame, and the largest response, in payload bytes.
const MOST: usize = 1024 * 1024;
/// A response with so many payload bytes waits for no more.
const ENOUGH: usize = 512 * 1024;
/// A batch with so many bytes is handed on before more is read.
const BATCH: usize = 2 * 1024 * 1024;
/// What a frame costs beside its bytes.
const FRAME_COST: usize = 32;
/// What a block's first frame costs more.
const META_COST: usize = 84;

/// Where the next block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The oldest exportable one, whichever it is by then.
    Oldest,
    At(Height),
    /// There is no higher number.
    Nowhere,
}

/// Payloads of a block, in their order.
type Wanted = Vec<(Segment, Bytes)>;

/// Where a stream stands.
#[derive(Debug)]
pub(super) struct Walk {
    next: Next,
    last: Option<Height>,
    /// In the order of a block, each once.
    segments: Vec<Segment>,
    frame_bytes: usize,
}

/// How it goes on after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    More,
    CaughtUp,
    End,
}

impl Walk {
    /// Judges a request. `fits` is what a message here may hold.
    pub(super) fn new(request: &StreamRequest, fits: usize) -> Result<Self, ApiError> {
        let named = request.filter.as_ref().map_or(&[][..], |filter| &filter.segments);
        let mut segments: Vec<Segment> =
            named.iter().map(|number| convert::segment(*number)).collect::<Result<_, _>>()?;
        segments.sort();
        segments.dedup();
        if segments.is_empty() {
            segments = Segment::ALL.to_vec();
        }
        if let (Some(from), Some(to)) = (request.from, request.to)
            && from > to
        {
            let reason = format!("the last block, {to}, is below the first one, {from}");
            return Err(ApiError::InvalidCursor(reason));
        }
        Ok(Self {
            next: request.from.map_or(Next::Oldest, Next::At),
            last: request.to,
            segments,
            frame_bytes: fits.clamp(1, MOST),
        })
    }

    /// Whether a stream that has caught up has something to read at this head.
    pub(super) fn has_news(&self, head: Option<Height>) -> bool {
        match self.next {
            Next::Oldest => head.is_some(),
            Next::At(height) => head.is_some_and(|head| height <= head),
            Next::Nowhere => true,
        }
    }

    /// Reads on until a batch is full, nothing more is there, or it fails. What was read before a
    /// failure is good.
    pub(super) fn read(
        &mut self,
        store: &DiskStore,
    ) -> (Vec<StreamResponse>, Result<After, ApiError>) {
        let mut gather = Gather { most: self.frame_bytes, ..Gather::default() };
        let after = self.fill(store, &mut gather);
        gather.close();
        (gather.ready, after)
    }

    fn fill(&mut self, store: &DiskStore, gather: &mut Gather) -> Result<After, ApiError> {
        while gather.bytes < BATCH {
            let height = match self.next {
                Next::Nowhere => return Ok(After::End),
                Next::At(height) => height,
                Next::Oldest => match store.get_prune_status()?.oldest_kept_block {
                    Some(height) => height,
                    None => return Ok(After::CaughtUp),
                },
            };
            if self.last.is_some_and(|last| height > last) {
                return Ok(After::End);
            }
            let head = match store.get_head() {
                Some(head) if height <= head => head,
                _ => return Ok(After::CaughtUp),
            };
            let last = self.last.map_or(head, |last| last.min(head));
            let read = match self.read_some(store, height, last) {
                // It was the oldest one a moment ago; another is by now.
                Err(ApiError::Pruned { .. }) if self.next == Next::Oldest => continue,
                read => read?,
            };
            for (meta, payloads) in read {
                self.next = meta.height.checked_add(1).map_or(Next::Nowhere, Next::At);
                gather.block(&meta, payloads);
            }
        }
        Ok(After::More)
    }

    /// The wanted payloads of a block, and of those after it that can be read in one go with it.
    /// They share a pin, which is gone before anything is sent.
    fn read_some(
        &self,
        store: &DiskStore,
        height: Height,
        last: Height,
    ) -> Result<Vec<(BlockMeta, Wanted)>, ApiError> {
        let read = || {
            if let [segment] = *self.segments {
                let (record, bytes) = store.get_payload(height, segment)?;
                return Ok(vec![(record.meta, vec![(segment, bytes.into())])]);
            }
            let found = store.get_blocks(height, last, MOST as u64)?;
            // The pieces share the memory.
            let mut rest = Bytes::from(found.bytes);
            let cut = |record: BlockRecord| {
                let all = Segment::ALL.into_iter().zip(record.lens);
                let mut wanted = Wanted::with_capacity(self.segments.len());
                for (segment, len) in all {
                    let payload = rest.split_to(rest.len().min(len as usize));
                    if self.segments.contains(&segment) {
                        wanted.push((segment, payload));
                    }
                }
                (record.meta, wanted)
            };
            Ok(found.records.into_iter().map(cut).collect())
        };
        read().map_err(|error| match error {
            // Not above the head and not pruned: it never was here.
            ApiError::NotFound { .. } => ApiError::InvalidCursor(format!(
                "block {height} is below the first block of this node"
            )),
            error => error,
        })
    }
}

/// What a frame takes of a response.
fn cost(frame: &Frame) -> usize {
    let meta = if frame.meta.is_some() { META_COST } else { 0 };
    frame.bytes.len() + FRAME_COST + meta
}

/// Frames on their way into responses.
#[derive(Debug, Default)]
struct Gather {
    most: usize,
    ready: Vec<StreamResponse>,
    open: Vec<Frame>,
    open_bytes: usize,
    bytes: usize,
}

impl Gather {
    /// Cuts a block's payloads into frames. The pieces share the payload's memory.
    fn block(&mut self, meta: &BlockMeta, payloads: Wanted) {
        let mut first = Some(Meta {
            hash: Bytes::copy_from_slice(&meta.hash.0),
            parent_hash: Bytes::copy_from_slice(&meta.parent_hash.0),
            timestamp: meta.timestamp,
        });
        let mut left = payloads.len();
        for (segment, mut rest) in payloads {
            left -= 1;
            // No payload is longer than 16 MiB.
            let payload_len = u32::try_from(rest.len()).unwrap_or(u32::MAX);
            let mut start = 0u32;
            loop {
                let bytes = rest.split_to(rest.len().min(self.most));
                let taken = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                self.frame(Frame {
                    block_number: meta.height,
                    segment: segment.tag().into(),
                    start,
                    bytes,
                    payload_len,
                    ends_block: left == 0 && rest.is_empty(),
                    meta: first.take(),
                });
                start = start.saturating_add(taken);
                if rest.is_empty() {
                    break;
                }
            }
        }
    }

    fn frame(&mut self, frame: Frame) {
        let cost = cost(&frame);
        if self.open_bytes + cost > self.most {
            self.close();
        }
        self.open_bytes += cost;
        self.bytes += cost;
        self.open.push(frame);
        if self.open_bytes >= ENOUGH {
            self.close();
        }
    }

    fn close(&mut self) {
        self.open_bytes = 0;
        let frames = std::mem::take(&mut self.open);
        if !frames.is_empty() {
            self.ready.push(StreamResponse { frames });
        }
    }
}

#[cfg(test)]
mod tests {
    use secateur_core::BlockHash;

    use super::*;

    fn gathered(most: usize, blocks: &[[usize; 3]]) -> Vec<StreamResponse> {
        let mut gather = Gather { most, ..Gather::default() };
        for (lens, height) in blocks.iter().zip(0..) {
            let payload = |(segment, len): (Segment, &usize)| (segment, Bytes::from(vec![7; *len]));
            let hash = BlockHash([1; 32]);
            let meta = BlockMeta { height, hash, parent_hash: hash, timestamp: height };
            gather.block(&meta, Segment::ALL.into_iter().zip(lens).map(payload).collect());
        }
        gather.close();
        gather.ready
    }

    #[test]
    fn every_payload_has_a_frame_and_the_last_frame_of_a_block_says_so() {
        let ready = gathered(MOST, &[[10, 0, 48], [0, 0, 0], [MOST + 1, 5, 0]]);
        let frames: Vec<Frame> = ready.into_iter().flat_map(|r| r.frames).collect();
        let shape: Vec<_> = frames
            .iter()
            .map(|f| (f.block_number, f.segment, f.start, f.bytes.len(), f.ends_block))
            .collect();
        let first: Vec<bool> = frames.iter().map(|f| f.meta.is_some()).collect();
        assert_eq!(first, shape.iter().map(|f| f.1 == 0 && f.2 == 0).collect::<Vec<_>>());
        let cut = u32::try_from(MOST).unwrap();
        assert_eq!(
            shape,
            [
                (0, 0, 0, 10, false),
                (0, 1, 0, 0, false),
                (0, 2, 0, 48, true),
                (1, 0, 0, 0, false),
                (1, 1, 0, 0, false),
                (1, 2, 0, 0, true),
                (2, 0, 0, MOST, false),
                (2, 0, cut, 1, false),
                (2, 1, 0, 5, false),
                (2, 2, 0, 0, true),
            ]
        );
    }

    #[test]
    fn responses_are_neither_tiny_nor_larger_than_what_fits() {
        let many = vec![[20_000, 3_000, 48]; 200];
        let ready = gathered(MOST, &many);
        let bytes = |r: &StreamResponse| -> usize { r.frames.iter().map(cost).sum() };
        let (last, full) = ready.split_last().unwrap();
        assert!(full.iter().all(|r| (ENOUGH..=MOST).contains(&bytes(r))));
        assert!(bytes(last) <= MOST);
        let small = gathered(1_000, &[[10_000, 100, 0]]);
        assert!(small.iter().all(|r| r.frames.iter().all(|frame| frame.bytes.len() <= 1_000)));
    }

    #[test]
    fn a_request_that_ends_before_it_begins_or_names_no_segment_of_ours_is_refused() {
        let request = |from, to, segments: &[u32]| {
            let filter = secateur_proto::export::v2::Filter { segments: segments.to_vec() };
            let request = StreamRequest { from, to, filter: Some(filter), follow: false };
            Walk::new(&request, MOST)
        };
        assert!(request(Some(5), Some(4), &[]).is_err());
        assert!(request(None, None, &[0, 3]).is_err());
        let walk = request(Some(5), Some(5), &[2, 0, 2]).unwrap();
        assert_eq!(walk.segments, [Segment::Block, Segment::TxIndex]);
    }
}
