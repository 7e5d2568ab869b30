//! `eth_getLogs`: a scan over a range of blocks, in bounded steps.
//!
//! A block's bloom is looked at first, and its receipts are read only where it may match. The
//! answer is complete and of one chain, or it is an error: a range that begins below the oldest
//! block or ends above the newest is refused, never cut, and each block must stand on the one that
//! was scanned before it.

use std::collections::HashSet;
use std::sync::Arc;

use alloy_primitives::{Address, B256, Bloom, BloomInput, Log as StoredLog};
use alloy_rlp::Decodable;
use alloy_rpc_types_eth::Log;
use secateur_core::{BlockHash, Height, Segment};
use secateur_store::Heights;
use tokio::time::Instant;

use super::Space;
use super::blocks::{Found, height_in, not_evm, payload, record_at};
use super::errors::{PRUNED, RpcError, SERVER, honest};
use super::methods::render;
use super::params::{At, Filter, FilterBlocks, Tag};
use super::receipts::{LogBlock, decode};
use crate::service::{ApiError, Node, Room, Sought};
use crate::vault::Vault;

/// Blocks that one step looks at. Between steps others get their turn, and a caller who left is
/// noticed.
const STEP_BLOCKS: u64 = 128;
/// How often a scan begins anew when the chain changed under it.
const ATTEMPTS: u32 = 4;
/// Blocks from the archive that one scan looks at: each frame of them is a request of its own.
const ARCHIVED_BLOCKS: u64 = 1_000;
/// What a log takes as JSON besides its data and topics, or somewhat less than this.
const LOG_BYTES: usize = 512;
/// What a topic takes.
const TOPIC_BYTES: usize = 69;

/// Answers as JSON that fits the space.
pub(super) async fn answer(
    node: &Arc<Node>,
    filter: Filter,
    deadline: Instant,
    space: Space,
) -> Result<Option<Vec<u8>>, RpcError> {
    let filter = Arc::new(Sieve::new(filter));
    for _ in 0..ATTEMPTS {
        let mut scan = Scan::new(Arc::clone(&filter), deadline, space, node.rooms.empty());
        loop {
            let asked = Arc::clone(node);
            let step = node.ask(move |_| Ok(scan.step(&asked))).await??;
            match step {
                Step::On(on) => scan = *on,
                Step::Done(answer) => return Ok(answer),
                Step::Moved => break,
            }
        }
    }
    Err(RpcError::new(SERVER, "the chain changed while it was scanned; try again"))
}

/// What a filter lets through.
struct Sieve {
    blocks: FilterBlocks,
    addresses: HashSet<Address>,
    topics: Vec<HashSet<B256>>,
    /// For every condition, the blooms of which one must be in a block's.
    blooms: Vec<Vec<Bloom>>,
}

impl Sieve {
    fn new(filter: Filter) -> Self {
        fn blooms<'a, T: AsRef<[u8]> + 'a>(any: impl IntoIterator<Item = &'a T>) -> Vec<Bloom> {
            any.into_iter().map(|one| Bloom::from(BloomInput::Raw(one.as_ref()))).collect()
        }
        let Filter { blocks, addresses, topics } = filter;
        let mut all = vec![blooms(&addresses)];
        all.extend(topics.iter().map(blooms));
        all.retain(|any| !any.is_empty());
        Self { blocks, addresses, topics, blooms: all }
    }

    fn may_match(&self, bloom: &Bloom) -> bool {
        // A block without logs has an empty bloom, and a filter without conditions no blooms.
        !bloom.is_zero() && self.blooms.iter().all(|any| any.iter().any(|one| bloom.contains(one)))
    }

    fn matches(&self, log: &StoredLog) -> bool {
        let topics = log.topics();
        let any = |set: &HashSet<B256>, topic| set.is_empty() || set.contains(topic);
        (self.addresses.is_empty() || self.addresses.contains(&log.address))
            && self.topics.len() <= topics.len()
            && self.topics.iter().zip(topics).all(|(set, topic)| any(set, topic))
    }
}

/// The heights of a scan that are still to be looked at.
#[derive(Debug, Clone, Copy)]
struct Range {
    next: Height,
    last: Height,
}

/// A scan between two steps.
struct Scan {
    sieve: Arc<Sieve>,
    deadline: Instant,
    space: Space,
    /// None until the first step has resolved it.
    range: Option<Range>,
    /// Where the range begins; None for a block that was named by its hash.
    first: Option<Height>,
    /// The block that the next one must stand on.
    stands_on: Option<BlockHash>,
    found: Vec<Log>,
    bytes: usize,
    /// The memory of what was found.
    held: Room,
}

enum Step {
    /// There is more to do.
    On(Box<Scan>),
    /// The answer; None if it is too long, which a scan notices before.
    Done(Option<Vec<u8>>),
    /// The chain changed; begin anew.
    Moved,
}

/// What looking at one block came to.
enum Looked {
    Taken,
    Moved,
}

impl Scan {
    fn new(sieve: Arc<Sieve>, deadline: Instant, space: Space, held: Room) -> Self {
        let (range, first, stands_on, found, bytes) = (None, None, None, Vec::new(), 0);
        Self { sieve, deadline, space, range, first, stands_on, found, bytes, held }
    }

    /// Looks at some blocks more, or says what the scan came to.
    fn step(self, node: &Node) -> Result<Step, RpcError> {
        let earliest = At::Tag(Tag::Earliest);
        let floats =
            matches!(self.sieve.blocks, FilterBlocks::Range { from, .. } if from == earliest);
        match self.advance(node) {
            // History begins elsewhere by now, and so does the range.
            Err(error) if floats && error.code == PRUNED => Ok(Step::Moved),
            step => step,
        }
    }

    fn advance(mut self, node: &Node) -> Result<Step, RpcError> {
        let mut range = match (self.range, self.sieve.blocks) {
            (Some(range), _) => range,
            (None, FilterBlocks::Hash(hash)) => return self.one_block(node, hash),
            (None, FilterBlocks::Range { from, to }) => resolve(node, from, to)?,
        };
        self.first.get_or_insert(range.next);
        for _ in 0..STEP_BLOCKS {
            if Instant::now() >= self.deadline || *node.stopping.borrow() {
                return Err(ApiError::Timeout.into());
            }
            let Some(record) = record_at(node, At::Number(range.next))? else {
                return Ok(Step::Moved);
            };
            if self.stands_on.is_some_and(|below| below != record.meta().parent_hash) {
                return Ok(Step::Moved);
            }
            match self.look_at(node, &record)? {
                Looked::Taken => self.stands_on = Some(record.meta().hash),
                Looked::Moved => return Ok(Step::Moved),
            }
            if range.next == range.last {
                return Ok(Step::Done(render(&self.found, self.space.left)?));
            }
            range.next += 1;
        }
        self.range = Some(range);
        Ok(Step::On(Box::new(self)))
    }

    fn one_block(mut self, node: &Node, hash: B256) -> Result<Step, RpcError> {
        let Some(record) = record_at(node, At::Hash(hash))? else {
            return Err(RpcError::new(SERVER, "unknown block"));
        };
        match self.look_at(node, &record)? {
            Looked::Taken => Ok(Step::Done(render(&self.found, self.space.left)?)),
            Looked::Moved => Ok(Step::Moved),
        }
    }

    /// Takes the matching logs of one block.
    fn look_at(&mut self, node: &Node, record: &Found) -> Result<Looked, RpcError> {
        let Some(bloom) = bloom_of(node, record)? else { return Ok(Looked::Moved) };
        if !self.sieve.may_match(&bloom) {
            return Ok(Looked::Taken);
        }
        let Some(stored) = payload(node, record, Segment::Receipts)? else {
            return Ok(Looked::Moved);
        };
        let meta = record.meta();
        let block =
            LogBlock { hash: meta.hash.0.into(), height: meta.height, timestamp: meta.timestamp };
        let mut log_index = 0;
        for (tx_index, receipt) in (0..).zip(decode(meta.height, &stored)) {
            let (tx_hash, receipt) = receipt?;
            for log in receipt.into_logs() {
                if self.sieve.matches(&log) {
                    self.bytes += LOG_BYTES
                        + log.topics().len() * TOPIC_BYTES
                        + log.data.data.len().saturating_mul(2);
                    self.found.push(block.log(log, (tx_hash, tx_index), log_index));
                }
                log_index += 1;
            }
            self.check_results(node, meta.height)?;
            if self.bytes > self.space.left {
                return Err(self.too_long(meta.height));
            }
            self.held.grow(self.bytes)?;
        }
        Ok(Looked::Taken)
    }

    /// Refuses more results than are returned at once.
    fn check_results(&self, node: &Node, height: Height) -> Result<(), RpcError> {
        let most = node.limits.log_results;
        if self.found.len() <= most {
            return Ok(());
        }
        let advice = self.advice(height);
        Err(RpcError::limit(format!("the query has more than {most} results; {advice}")))
    }

    /// Refuses results that take more bytes than one answer may.
    fn too_long(&self, height: Height) -> RpcError {
        let advice = self.advice(height);
        // A range fits even beside the other answers of its body; one block may fit alone.
        let is_range = self.first.is_some_and(|first| first < height);
        let is_shared = self.space.is_shared && !is_range;
        Space { is_shared, ..self.space }.too_long(&advice)
    }

    /// What to ask instead where the logs of a block are too much: the largest range from the same
    /// beginning that would have been answered, or fewer logs.
    fn advice(&self, height: Height) -> String {
        match self.first.filter(|first| *first < height) {
            Some(first) => {
                format!("ask for {first:#x} to {:#x}, or name addresses and topics", height - 1)
            }
            None => "name addresses and topics".to_owned(),
        }
    }
}

/// The bloom of a block's logs; None if the block was rolled back since.
fn bloom_of(node: &Node, record: &Found) -> Result<Option<Bloom>, RpcError> {
    let hash = record.meta().hash;
    if let Some(bloom) = node.rpc.bloom(&hash) {
        return Ok(Some(bloom));
    }
    let Some(stored) = payload(node, record, Segment::Block)? else { return Ok(None) };
    let read = || {
        let mut inside = alloy_rlp::Header::decode_bytes(&mut &*stored, true)?;
        alloy_consensus::Header::decode(&mut inside)
    };
    let header = read().map_err(|error| not_evm(record.meta().height, &error))?;
    node.rpc.keep_bloom(hash, header.logs_bloom);
    Ok(Some(header.logs_bloom))
}

/// The heights of a range, all of which this node has or had. The range is never cut at the head:
/// a node that is behind the one that its caller asked before would answer with a part of the logs,
/// or with none, and the caller would take that for all of them.
fn resolve(node: &Node, from: At, to: At) -> Result<Range, RpcError> {
    if let (At::Number(from), At::Number(to)) = (from, to) {
        check_order(from, to)?;
    }
    // Both ends and the head as of one moment.
    let heights = node.store.heights()?;
    let head = heights.head.map(|(height, _)| height);
    let head = head.ok_or_else(|| RpcError::new(SERVER, "this node has no block yet"))?;
    let (from, to) = (end(&heights, from)?, end(&heights, to)?);
    if from > head || to > head {
        return Err(RpcError::invalid_params("block range extends beyond current head block"));
    }
    check_order(from, to)?;
    // What was cut is the better reason.
    if !is_archived(node, from, to)? {
        honest(&node.store, Sought::Height(from), node.store.get_record(from))?;
    }
    let (blocks, most) = (to.saturating_sub(from).saturating_add(1), node.limits.log_blocks);
    if blocks > most {
        let last = from.saturating_add(most.saturating_sub(1));
        return Err(RpcError::limit(format!(
            "a range of {blocks} blocks; at most {most} are scanned for one query: ask for {from:#x} \
             to {last:#x}"
        )));
    }
    Ok(Range { next: from, last: to })
}

/// Whether the blocks of a range that were cut can all be had from the archive, and are few enough.
fn is_archived(node: &Node, from: Height, last: Height) -> Result<bool, RpcError> {
    let boundary = node.store.heights()?.boundary;
    let Some(end) = boundary.filter(|boundary| from <= *boundary).map(|cut| cut.min(last)) else {
        return Ok(false);
    };
    let reads = node.vault.as_ref().is_some_and(Vault::reads_through);
    if !reads || end - from >= ARCHIVED_BLOCKS {
        return Ok(false);
    }
    let mut next = from;
    while let Some(part) = node.store.find_part(next)? {
        if part.last >= end {
            return Ok(true);
        }
        next = part.last + 1;
    }
    Ok(false)
}

fn check_order(from: Height, to: Height) -> Result<(), RpcError> {
    if from <= to {
        return Ok(());
    }
    Err(RpcError::invalid_params("invalid block range params: fromBlock is above toBlock"))
}

fn end(heights: &Heights, at: At) -> Result<Height, RpcError> {
    match at {
        At::Number(height) => Ok(height),
        At::Tag(Tag::Pending) => Err(RpcError::invalid_params("pending logs are not supported")),
        At::Tag(tag) => height_in(heights, tag)
            .ok_or_else(|| RpcError::new(SERVER, "there is no block of that tag yet")),
        At::Hash(_) => Err(RpcError::invalid_params("a range has heights, not hashes")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use secateur_store::Finality;

    use super::*;
    use crate::rpc::tests_support::{Bench, LIMITS, chain, chain_of};
    use secateur_evm::ChainSpec;

    /// The first step of a scan over everything, which must not be the last one.
    fn first_step(bench: &Bench, from: At) -> Scan {
        let blocks = FilterBlocks::Range { from, to: At::Tag(Tag::Latest) };
        let filter = Filter { blocks, addresses: HashSet::new(), topics: Vec::new() };
        let deadline = Instant::now() + Duration::from_mins(1);
        let held = bench.node.rooms.empty();
        let space = Space { left: usize::MAX, most: usize::MAX, is_shared: false };
        let scan = Scan::new(Arc::new(Sieve::new(filter)), deadline, space, held);
        match scan.step(&bench.node) {
            Ok(Step::On(scan)) => *scan,
            _ => panic!("there is more to do"),
        }
    }

    #[test]
    fn a_scan_notices_that_the_chain_changed_between_two_steps() {
        let blocks = chain(STEP_BLOCKS + 20);
        let bench = Bench::make(&blocks, LIMITS, Finality::Explicit, 1337);
        let store = &bench.node.store;
        let same = first_step(&bench, At::Number(0)).step(&bench.node);
        assert!(matches!(same, Ok(Step::Done(Some(_)))));
        let scan = first_step(&bench, At::Number(0));
        store.rollback(STEP_BLOCKS - 10).unwrap();
        let shorter = scan.step(&bench.node);
        assert!(matches!(shorter, Ok(Step::Moved)), "its next block is gone");
        store.append_group(&blocks[usize::try_from(STEP_BLOCKS - 9).unwrap()..]).unwrap();
        let scan = first_step(&bench, At::Number(0));
        store.rollback(3).unwrap();
        let other = ChainSpec { seed: 2, ..ChainSpec::default() };
        let fork = chain_of(other, 4, blocks[3].meta.hash, STEP_BLOCKS + 16);
        store.append_group(&fork).unwrap();
        let forked = scan.step(&bench.node);
        assert!(matches!(forked, Ok(Step::Moved)), "its next block stands on another one");
    }

    #[test]
    fn a_prune_that_overtakes_a_scan_is_an_error_unless_it_begins_at_the_oldest() {
        let blocks = chain(STEP_BLOCKS + 40);
        let bench = Bench::with(&blocks);
        let from_zero = first_step(&bench, At::Number(0));
        let from_oldest = first_step(&bench, At::Tag(Tag::Earliest));
        bench.prune_to(20);
        let error = from_zero.step(&bench.node).map(|_| ()).unwrap_err();
        assert_eq!(error.code, PRUNED);
        assert!(matches!(from_oldest.step(&bench.node), Ok(Step::Moved)));
    }

    #[test]
    fn a_scan_ends_in_the_middle_of_a_step_when_its_time_is_over() {
        let bench = Bench::with(&chain(STEP_BLOCKS + 10));
        let mut scan = first_step(&bench, At::Number(0));
        scan.deadline = Instant::now();
        let error = scan.step(&bench.node).map(|_| ()).unwrap_err();
        assert_eq!(error.code, crate::rpc::errors::TIMEOUT);
    }
}
