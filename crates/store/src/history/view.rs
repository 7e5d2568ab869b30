//! What a reader holds: a pin, a snapshot, and the reading of at most one block at a time.

use secateur_core::{Block, Height, LookupError, Payloads, Segment};

use super::place::{Place, Stream, pieces};
use super::record::BlockRecord;
use super::state::{Header, State};
use super::store::Store;
use crate::ground::{Arena, Index, Snapshot};
use crate::regions::pins::Pin;
use crate::regions::region::check_region;
use crate::{Sabotage, StoreError};

/// A consistent look at the store. The pin comes before the snapshot, so whatever the snapshot
/// shows cannot be overwritten while the view lives.
pub(crate) struct View<'a, A, S> {
    _pin: Pin<'a>,
    arena: &'a A,
    pub snapshot: S,
    pub state: State,
    header: &'a Header,
    sabotage: Sabotage,
}

/// Blocks that follow one another, read in one go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consecutive {
    /// What the index knows of them, lowest first; never empty.
    pub records: Vec<BlockRecord>,
    /// Their payloads end to end, block by block, checked; nothing behind the last record's counts.
    pub bytes: Vec<u8>,
}

impl<A: Arena, I: Index> Store<A, I> {
    pub(crate) fn view(&self) -> Result<View<'_, A, I::Snapshot>, StoreError> {
        let pin = self.pins.pin();
        let snapshot = self.index.snapshot()?;
        let state = State::load(&snapshot)?;
        Ok(View {
            _pin: pin,
            arena: &self.arena,
            snapshot,
            state,
            header: &self.header,
            sabotage: self.sabotage,
        })
    }
}

impl<A: Arena, S: Snapshot> View<'_, A, S> {
    /// The record of a height, or the honest answer why there is none.
    pub(crate) fn record(&self, height: Height) -> Result<BlockRecord, StoreError> {
        self.is_here(height)?;
        BlockRecord::load(&self.snapshot, height)
    }

    /// The honest answer why a height has no record, unless it has one.
    fn is_here(&self, height: Height) -> Result<(), StoreError> {
        if let Some(pruned_before_block) = self.state.boundary.filter(|b| height <= *b) {
            return Err(LookupError::Pruned { pruned_before_block }.into());
        }
        let (head, oldest) = (self.state.head.map(|tip| tip.height), self.state.oldest_kept());
        if head.is_none_or(|head| height > head) || oldest.is_none_or(|oldest| height < oldest) {
            return Err(LookupError::NotFound { searched_from: oldest }.into());
        }
        Ok(())
    }

    /// One payload, checked.
    pub(crate) fn payload(
        &self,
        record: &BlockRecord,
        segment: Segment,
    ) -> Result<Vec<u8>, StoreError> {
        let (start, len, _) = record.span(segment);
        let mut bytes = vec![0u8; len as usize];
        self.read(Stream::History, &record.place, start, &mut bytes)?;
        self.check(record, segment, &bytes)?;
        Ok(bytes)
    }

    /// I1: bytes are what was written, or an error.
    fn check(
        &self,
        record: &BlockRecord,
        segment: Segment,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        let (_, _, checksum) = record.span(segment);
        if !self.trusts(bytes, checksum) {
            return Err(StoreError::corrupt(
                "arena",
                format!(
                    "the {} of block {} does not match its checksum",
                    segment.name(),
                    record.meta.height
                ),
            ));
        }
        Ok(())
    }

    /// Whether bytes match their checksum.
    pub(crate) fn trusts(&self, bytes: &[u8], checksum: u32) -> bool {
        crc32c::crc32c(bytes) == checksum || self.sabotage.is(Sabotage::IgnoreChecksum)
    }

    /// The whole block, checked.
    pub(crate) fn block(&self, record: &BlockRecord) -> Result<Block, StoreError> {
        let mut bytes = self.payloads(record)?;
        let [block_len, receipts_len, _] = record.lens;
        let mut receipts = bytes.split_off(block_len as usize);
        let tx_index = receipts.split_off(receipts_len as usize);
        let payloads = Payloads { block: bytes, receipts, tx_index };
        Ok(Block { meta: record.meta.clone(), payloads })
    }

    /// A block's payloads end to end, checked, in one read where they lie in one piece.
    fn payloads(&self, record: &BlockRecord) -> Result<Vec<u8>, StoreError> {
        let len = usize::try_from(record.payload_bytes()).unwrap_or(usize::MAX);
        let mut bytes = vec![0u8; len];
        self.read(Stream::History, &record.place, 0, &mut bytes)?;
        self.check_all(record, &bytes)?;
        Ok(bytes)
    }

    /// Checks the payloads of a block that begin with `bytes`; what follows them is the answer.
    fn check_all<'b>(&self, record: &BlockRecord, bytes: &'b [u8]) -> Result<&'b [u8], StoreError> {
        let mut rest = bytes;
        for (segment, len) in Segment::ALL.into_iter().zip(record.lens) {
            let (payload, later) = rest.split_at_checked(len as usize).unwrap_or((rest, &[]));
            self.check(record, segment, payload)?;
            rest = later;
        }
        Ok(rest)
    }

    /// A block and those after it, as far as they share a row and lie end to end, in one read.
    pub(crate) fn blocks(
        &self,
        first: Height,
        last: Height,
        most: u64,
    ) -> Result<Consecutive, StoreError> {
        self.is_here(first)?;
        let mut records = BlockRecord::load_from(&self.snapshot, first)?;
        let mut len = 0;
        let mut fits = 0;
        for record in &records {
            let more = len + record.payload_bytes();
            let joins = record.meta.height <= last && more <= most && record.place.is_stream();
            if fits > 0 && !joins {
                break;
            }
            (len, fits) = (more, fits + 1);
        }
        records.truncate(fits);
        let place = records.first().map(|record| &record.place);
        let place = place.ok_or_else(|| StoreError::corrupt("blocks", "a row without records"))?;
        let mut bytes = vec![0u8; usize::try_from(len).unwrap_or(usize::MAX)];
        let read = self.read(Stream::History, place, 0, &mut bytes);
        if fits > 1 && read.is_err() {
            // The first may well be readable without the others.
            return self.blocks(first, first, most);
        }
        read?;
        let (mut rest, mut good) = (bytes.as_slice(), 0);
        for record in &records {
            match self.check_all(record, rest) {
                Ok(later) => (rest, good) = (later, good + 1),
                // A damaged block keeps nobody from those below it.
                Err(_) if good > 0 => break,
                Err(error) => return Err(error),
            }
        }
        records.truncate(good);
        Ok(Consecutive { records, bytes })
    }

    /// Fills `out` from `start` on, inside a place; no checksum is looked at here.
    pub(crate) fn read(
        &self,
        stream: Stream,
        place: &Place,
        start: u64,
        out: &mut [u8],
    ) -> Result<(), StoreError> {
        let len = out.len() as u64;
        let mut rest = out;
        let mut run = (0u64, 0usize);
        // Neighbours in the arena are read in one call.
        for piece in pieces(&self.snapshot, self.header, stream, place, start, len)? {
            check_region(&self.snapshot, &piece.region)?;
            let take = usize::try_from(piece.len).unwrap_or(usize::MAX);
            let (offset, joined) = run;
            if offset + joined as u64 == piece.offset && joined > 0 {
                run.1 += take;
                continue;
            }
            rest = self.read_run(run, rest)?;
            run = (piece.offset, take);
        }
        self.read_run(run, rest)?;
        Ok(())
    }

    fn read_run<'o>(
        &self,
        (offset, len): (u64, usize),
        out: &'o mut [u8],
    ) -> Result<&'o mut [u8], StoreError> {
        let (now, later) = out
            .split_at_mut_checked(len)
            .ok_or_else(|| StoreError::corrupt("blocks", "a region's length is wrong"))?;
        if !now.is_empty() {
            self.arena.read_at(offset, now)?;
        }
        Ok(later)
    }
}
