//! Many readers of both exports while blocks are appended and cut: nobody loses a block, nobody
//! reads a wrong one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use secateur_core::Block;
use secateur_proto::export::v1::Cursor;
use secateur_proto::export::v2::StreamRequest;
use secateur_proto::history::v1::PruneRequest;
use tokio::time::timeout;

use crate::grpc::{Clients, Rig, Whole, chain, cursor, pruned_export, whole};

const READERS: u64 = 64;
const LAST: u64 = 399;
const KEEP: u64 = 60;

/// What a reader saw: blocks that it read whole, and gaps that it was told of.
#[derive(Debug, Default)]
struct Seen {
    blocks: u64,
    next: u64,
}

impl Seen {
    /// A whole block, which must be the next one and the right one.
    #[track_caller]
    fn block(&mut self, truth: &Whole, height: u64, payloads: &[Vec<u8>; 3]) {
        assert_eq!(height, self.next, "a block was lost");
        assert!(truth[&height] == *payloads, "block {height} came wrong");
        self.next += 1;
        self.blocks += 1;
    }

    /// Everything up to a boundary was cut before it was read.
    #[track_caller]
    fn pruned(&mut self, boundary: u64) {
        assert!(boundary >= self.next, "told of {boundary}, but {} was wanted", self.next);
        self.next = boundary + 1;
    }
}

async fn poll(clients: Clients, truth: Arc<Whole>, max_bytes: u32) -> Seen {
    let mut seen = Seen::default();
    let mut at = cursor(0, 0, 0);
    let mut open: [Vec<u8>; 3] = Default::default();
    while seen.next <= LAST {
        let reply = match clients.pull(Some(at), Some(max_bytes)).await {
            Ok(reply) => reply,
            Err(error) => {
                seen.pruned(pruned_export(&error));
                at = cursor(seen.next, 0, 0);
                open = Default::default();
                continue;
            }
        };
        if reply.chunks.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        for chunk in reply.chunks {
            open[chunk.segment as usize].extend_from_slice(&chunk.bytes);
        }
        let next: Cursor = reply.next_cursor.unwrap();
        if next.block_number != at.block_number {
            seen.block(&truth, at.block_number, &std::mem::take(&mut open));
        }
        at = next;
    }
    seen
}

async fn stream(clients: Clients, truth: Arc<Whole>) -> Seen {
    let mut seen = Seen::default();
    while seen.next <= LAST {
        let (from, to) = (Some(seen.next), Some(LAST));
        let request = StreamRequest { from, to, follow: true, filter: None };
        let mut stream = clients.stream.clone().stream(request).await.unwrap().into_inner();
        let mut open: BTreeMap<u64, [Vec<u8>; 3]> = BTreeMap::new();
        loop {
            match stream.message().await {
                Ok(Some(response)) => {
                    for frame in response.frames {
                        let payloads = open.entry(frame.block_number).or_default();
                        payloads[frame.segment as usize].extend_from_slice(&frame.bytes);
                        if frame.ends_block {
                            let whole = open.remove(&frame.block_number).unwrap();
                            seen.block(&truth, frame.block_number, &whole);
                        }
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    seen.pruned(pruned_export(&error));
                    break;
                }
            }
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_readers_lose_nothing_and_read_nothing_wrong_while_blocks_come_and_go() {
    let blocks: Vec<Block> = chain(0..=LAST, 6_000, 4);
    let truth = Arc::new(whole(&blocks));
    let rig = Rig::start("").await;
    rig.clients.policy(&[("retain_blocks", &KEEP.to_string())]).await;
    rig.clients.append(&blocks[..100]).await;
    let mut readers = tokio::task::JoinSet::new();
    for reader in 0..READERS {
        let clients = match reader % 8 {
            0 => Clients::to(&rig.node, None).await,
            _ => rig.clients.clone(),
        };
        let truth = Arc::clone(&truth);
        if reader % 2 == 0 {
            let max_bytes = 1_000 + u32::try_from(reader).unwrap() * 997;
            readers.spawn(poll(clients, truth, max_bytes));
        } else {
            readers.spawn(stream(clients, truth));
        }
    }
    for group in blocks[100..].chunks(10) {
        rig.clients.append(group).await;
        // The daemon may be at it already.
        let pruned = rig.clients.admin.clone().prune(PruneRequest { max_ops: 0, to: None }).await;
        drop(pruned);
    }
    let seen = timeout(Duration::from_mins(1), readers.join_all()).await.expect("an end in time");
    assert!(seen.iter().all(|seen| seen.next == LAST + 1));
    // Whatever the boundary did, the newest blocks were never cut.
    assert!(seen.iter().all(|seen| seen.blocks >= KEEP), "{seen:?}");
    let status = rig.clients.status().await;
    assert!(status.pruned_before_block.is_some_and(|boundary| boundary > 200), "{status:?}");
    let verify = secateur_proto::history::v1::VerifyRequest {};
    let verified = rig.clients.admin.clone().verify(verify).await.unwrap().into_inner();
    assert_eq!(verified.findings, [], "{verified:?}");
    rig.stop().await;
}
