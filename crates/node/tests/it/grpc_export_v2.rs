//! `secateur.export.v2` through a real socket: the same bytes as v1, following, slow clients.

use std::time::{Duration, Instant};

use secateur_core::MAX_SEGMENT_LEN;
use secateur_proto::export::v1::export_error;
use secateur_proto::export::v2::{Filter, Frame, Meta, StreamRequest, StreamResponse};
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use crate::grpc::{Clients, Dice, Rig, Whole, block, chain, export_reason, pruned_export, whole};

/// No answer in a test takes so long.
const SOON: Duration = Duration::from_secs(20);

fn from(from: u64) -> StreamRequest {
    StreamRequest { from: Some(from), ..StreamRequest::default() }
}

async fn open(clients: &Clients, request: StreamRequest) -> Streaming<StreamResponse> {
    clients.stream.clone().stream(request).await.unwrap().into_inner()
}

/// What frames come to, checked frame by frame.
#[derive(Debug, Default)]
struct Taken {
    blocks: Whole,
    metas: Vec<(u64, Meta)>,
    /// The block, segment and end of the frame before, unless that ended its block.
    open: Option<(u64, u32, u32)>,
    last: Option<u64>,
    responses: Vec<usize>,
}

impl Taken {
    #[track_caller]
    fn take(&mut self, response: StreamResponse) {
        assert!(!response.frames.is_empty());
        self.responses.push(response.frames.iter().map(|frame| frame.bytes.len()).sum());
        for frame in response.frames {
            self.frame(&frame);
        }
    }

    #[track_caller]
    fn frame(&mut self, frame: &Frame) {
        assert!(frame.bytes.len() <= 1 << 20, "a frame of {} bytes", frame.bytes.len());
        match self.open {
            Some((block, segment, end)) if segment == frame.segment => {
                assert_eq!((frame.block_number, frame.start), (block, end));
            }
            Some((block, segment, _)) => {
                assert_eq!((frame.block_number, frame.start), (block, 0));
                assert!(frame.segment > segment);
            }
            None => {
                assert_eq!(frame.start, 0);
                let meta = frame.meta.clone().expect("a block's first frame names it");
                self.metas.push((frame.block_number, meta));
                assert!(self.last.is_none_or(|last| frame.block_number == last + 1));
            }
        }
        assert_eq!(frame.meta.is_some(), self.open.is_none());
        let payloads = self.blocks.entry(frame.block_number).or_default();
        payloads[frame.segment as usize].extend_from_slice(&frame.bytes);
        let end = frame.start + u32::try_from(frame.bytes.len()).unwrap();
        assert!(end <= frame.payload_len);
        self.open = Some((frame.block_number, frame.segment, end));
        if frame.ends_block {
            assert_eq!(end, frame.payload_len);
            (self.open, self.last) = (None, Some(frame.block_number));
        }
    }

    /// Reads a stream to its end.
    async fn all(stream: Streaming<StreamResponse>) -> (Self, Result<(), Status>) {
        Self::default().rest(stream).await
    }

    /// Reads what is left of a stream.
    async fn rest(self, mut stream: Streaming<StreamResponse>) -> (Self, Result<(), Status>) {
        let mut taken = self;
        loop {
            match timeout(SOON, stream.message()).await.expect("an answer in time") {
                Ok(Some(response)) => taken.take(response),
                Ok(None) => {
                    assert_eq!(taken.open, None, "an end in the middle of a block");
                    return (taken, Ok(()));
                }
                Err(status) => return (taken, Err(status)),
            }
        }
    }
}

/// Every block from one on, byte for byte.
pub async fn read_whole(clients: &Clients, first: u64) -> Whole {
    read(clients, from(first)).await.blocks
}

async fn read(clients: &Clients, request: StreamRequest) -> Taken {
    let (taken, end) = Taken::all(open(clients, request).await).await;
    end.unwrap();
    taken
}

#[tokio::test]
async fn the_stream_is_the_chain_byte_for_byte_like_v1() {
    let mut dice = Dice(42);
    let blocks: Vec<_> = (10..160)
        .map(|height| {
            let len = match dice.below(40) {
                0 => 3_000_000,
                1..8 => 0,
                _ => usize::try_from(dice.below(20_000)).unwrap(),
            };
            block(height, len, u32::try_from(dice.below(5)).unwrap())
        })
        .collect();
    let rig = Rig::with(&blocks).await;
    let taken = read(&rig.clients, StreamRequest::default()).await;
    assert!(taken.blocks == whole(&blocks));
    for (block, (number, meta)) in blocks.iter().zip(&taken.metas) {
        let said = &block.meta;
        assert_eq!((said.height, said.timestamp), (*number, meta.timestamp));
        assert_eq!(
            (&said.hash.0[..], &said.parent_hash.0[..]),
            (&meta.hash[..], &meta.parent_hash[..])
        );
    }
    let mut polled = Whole::new();
    let mut at = None;
    loop {
        let reply = rig.clients.pull(at, None).await.unwrap();
        let Some(first) = reply.chunks.first() else { break };
        assert!(first.start == at.map_or(0, |at| at.byte_offset));
        let height = at.map_or(10, |at| at.block_number);
        for chunk in &reply.chunks {
            let payloads = polled.entry(height).or_default();
            payloads[chunk.segment as usize].extend_from_slice(&chunk.bytes);
        }
        at = reply.next_cursor;
    }
    assert!(polled == taken.blocks, "v1 and v2 differ");
}

#[tokio::test]
async fn small_blocks_are_gathered_and_large_payloads_are_cut() {
    let mut blocks = chain(0..=299, 20_000, 2);
    blocks.push(block(300, MAX_SEGMENT_LEN as usize, 1));
    let rig = Rig::with(&blocks).await;
    let taken = read(&rig.clients, from(0)).await;
    assert!(taken.blocks == whole(&blocks));
    assert!(taken.responses.iter().all(|bytes| *bytes <= 1 << 20), "{:?}", taken.responses);
    let responses = taken.responses.len();
    assert!(responses < 50, "{responses} responses for 23 MB are too many");
}

#[tokio::test]
async fn from_and_to_and_a_filter_choose_what_comes() {
    let blocks = chain(5..=40, 500, 3);
    let rig = Rig::with(&blocks).await;
    let request = StreamRequest { from: Some(7), to: Some(12), ..StreamRequest::default() };
    assert_eq!(read(&rig.clients, request).await.blocks, whole(&blocks[2..8]));
    for segments in [vec![1], vec![2, 0], vec![2, 2, 1]] {
        let filter = Some(Filter { segments: segments.clone() });
        let taken = read(&rig.clients, StreamRequest { filter, ..from(20) }).await;
        let mut expected = whole(&blocks[15..]);
        for (payload, segment) in
            expected.values_mut().flat_map(|payloads| payloads.iter_mut().zip(0u32..))
        {
            if !segments.contains(&segment) {
                payload.clear();
            }
        }
        assert_eq!(taken.blocks, expected, "{segments:?}");
    }
    let beyond = StreamRequest { to: Some(1_000), ..from(39) };
    assert_eq!(read(&rig.clients, beyond).await.blocks.len(), 2);
    assert!(read(&rig.clients, from(41)).await.blocks.is_empty());
}

#[tokio::test]
async fn an_empty_store_is_an_empty_stream() {
    let rig = Rig::start("").await;
    assert!(read(&rig.clients, StreamRequest::default()).await.blocks.is_empty());
    assert!(read(&rig.clients, from(3)).await.blocks.is_empty());
}

#[tokio::test]
async fn a_beginning_that_cannot_be_is_told_as_v1_tells_it() {
    let rig = Rig::with(&chain(5..=60, 500, 1)).await;
    let filter = Some(Filter { segments: vec![3] });
    let bad =
        [from(4), StreamRequest { to: Some(9), ..from(10) }, StreamRequest { filter, ..from(5) }];
    for request in bad {
        let error = match rig.clients.stream.clone().stream(request.clone()).await {
            Ok(stream) => Taken::all(stream.into_inner()).await.1.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.code(), Code::InvalidArgument, "{request:?}");
        let reason = export_reason(&error);
        assert!(matches!(reason, export_error::Reason::InvalidCursor(_)), "{request:?}");
    }
    let boundary = rig.clients.prune_to(10).await;
    let (taken, end) = Taken::all(open(&rig.clients, from(boundary)).await).await;
    assert_eq!((taken.blocks.len(), pruned_export(&end.unwrap_err())), (0, boundary));
    let oldest = read(&rig.clients, StreamRequest::default()).await;
    assert_eq!(oldest.blocks.keys().next(), Some(&(boundary + 1)));
}

#[tokio::test]
async fn a_stream_that_follows_sees_blocks_as_they_come() {
    let rig = Rig::start("").await;
    let request = StreamRequest { follow: true, ..StreamRequest::default() };
    let mut stream = open(&rig.clients, request).await;
    let mut taken = Taken::default();
    let blocks = chain(3..=22, 1_000, 2);
    for group in blocks.chunks(5) {
        rig.clients.append(group).await;
        let wanted = group.last().map(|block| block.meta.height);
        while taken.last != wanted {
            let response = timeout(SOON, stream.message()).await.expect("a block in time");
            taken.take(response.unwrap().expect("no end while it follows"));
        }
    }
    assert_eq!(taken.blocks, whole(&blocks));
}

#[tokio::test]
async fn a_stream_that_follows_up_to_a_block_ends_with_it() {
    let rig = Rig::with(&chain(0..=4, 100, 1)).await;
    let request = StreamRequest { follow: true, to: Some(7), ..from(2) };
    let reading = tokio::spawn(Taken::all(open(&rig.clients, request).await));
    rig.clients.append(&chain(5..=9, 100, 1)).await;
    let (taken, end) = timeout(SOON, reading).await.unwrap().unwrap();
    end.unwrap();
    assert_eq!(taken.blocks.keys().copied().collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
}

#[tokio::test]
async fn a_slow_client_does_not_keep_blocks_from_being_cut_and_hears_that_they_are_gone() {
    let blocks = chain(0..=79, 1 << 20, 1);
    let rig = Rig::with(&blocks).await;
    let slow = Clients::to(&rig.node, None).await;
    let mut stream = open(&slow, from(0)).await;
    let mut taken = Taken::default();
    taken.take(stream.message().await.unwrap().unwrap());
    // It reads no more, and everything but the newest blocks goes, regions included.
    let boundary = rig.clients.prune_to(3).await;
    assert_eq!(boundary, 76);
    rig.clients.append(&[block(80, 10, 0)]).await;
    assert_eq!(rig.clients.status().await.quarantined_bytes, 0, "a pin keeps regions from reuse");
    let verify = secateur_proto::history::v1::VerifyRequest {};
    let verified = rig.clients.admin.clone().verify(verify).await.unwrap().into_inner();
    assert_eq!((verified.blocks, verified.findings.len()), (4, 0));
    let (mut taken, end) = taken.rest(stream).await;
    assert_eq!(pruned_export(&end.unwrap_err()), boundary);
    let last = taken.last.expect("what was on its way comes whole");
    assert!(last < 40, "{last} blocks were read ahead of a client that did not read");
    taken.blocks.retain(|height, _| *height <= last);
    assert!(taken.blocks == whole(&blocks[..=usize::try_from(last).unwrap()]), "wrong bytes");
}

#[tokio::test]
async fn more_streams_than_the_node_serves_at_once_are_refused_until_one_ends() {
    let rig = Rig::configured("[limits]\nconcurrency = 2\n").await;
    let follow = || StreamRequest { follow: true, ..StreamRequest::default() };
    let open_ones = [open(&rig.clients, follow()).await, open(&rig.clients, follow()).await];
    let error = rig.clients.stream.clone().stream(follow()).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    drop(open_ones);
    let again = async {
        while rig.clients.stream.clone().stream(follow()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, again).await.expect("a place is free when a client leaves");
}

#[tokio::test]
async fn a_stop_ends_streams_and_never_lets_half_a_stream_look_whole() {
    let rig = Rig::with(&chain(0..=79, 1 << 20, 0)).await;
    let follow = StreamRequest { follow: true, ..from(79) };
    let mut following = open(&rig.clients, follow).await;
    let (mut followed, mut half) = (Taken::default(), Taken::default());
    followed.take(following.message().await.unwrap().unwrap());
    let mut stuck = open(&rig.clients, from(0)).await;
    half.take(stuck.message().await.unwrap().unwrap());
    let began = Instant::now();
    rig.node.process.signal("TERM");
    let (_, end) = followed.rest(following).await;
    assert_eq!(end.unwrap_err().code(), Code::Unavailable);
    let (_, end) = half.rest(stuck).await;
    end.expect_err("a stream that was cut short");
    let (code, _) = rig.node.process.end();
    assert_eq!(code, 0);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}
