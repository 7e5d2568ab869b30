//! Reserving and giving back places: regions of their own, or stretches of a packed stream.

use std::ops::Range;

use secateur_core::Writer;

use super::place::{MAX_POSITION, Place, Stream, stretch_key, stretches};
use super::state::Layout;
use super::txn::Txn;
use crate::StoreError;
use crate::class::ALIGNMENT;
use crate::ground::{Snapshot, Table};
use crate::regions::alloc::Allocate;
use crate::regions::cut::{Cut, CutAndFree};

/// What a stream's end is rounded up to: groups are written in whole pages.
pub(crate) const PAGE: u64 = ALIGNMENT as u64;

impl<S: Snapshot> Txn<'_, S> {
    /// A place for `len` bytes.
    pub(crate) fn reserve(&mut self, stream: Stream, len: u64) -> Result<Place, StoreError> {
        match self.header.layout {
            Layout::PerBlock => Ok(Place::Regions(self.allocate(len)?)),
            Layout::Packed => Ok(Place::Stream(self.reserve_stretch(stream, len)?)),
        }
    }

    /// The position of `len` bytes at the end of a stream. Whatever comes next begins on a page
    /// of its own, so a later write never touches a page that is synced.
    fn reserve_stretch(&mut self, stream: Stream, len: u64) -> Result<u64, StoreError> {
        let size = self.header.stretch_len();
        let position = self.stream_end(stream);
        let end = position
            .checked_add(len)
            .and_then(|end| end.checked_next_multiple_of(PAGE))
            .filter(|end| *end < MAX_POSITION)
            .ok_or_else(|| StoreError::refused("append", "the stream's positions are used up"))?;
        for number in position.div_ceil(size)..end.div_ceil(size) {
            let region = self.allocate_region(self.header.classes.largest(), 0)?;
            let mut row = Writer::new();
            region.write(&mut row);
            self.put(Table::Streams, &stretch_key(stream, number), row.finish());
        }
        self.set_stream_end(stream, end);
        Ok(position)
    }

    fn stream_end(&self, stream: Stream) -> u64 {
        let [history, runs, filters] = self.state.streams;
        match stream {
            Stream::History => history,
            Stream::Runs => runs,
            Stream::Filters => filters,
        }
    }

    fn set_stream_end(&mut self, stream: Stream, end: u64) {
        let [history, runs, filters] = &mut self.state.streams;
        *match stream {
            Stream::History => history,
            Stream::Runs => runs,
            Stream::Filters => filters,
        } = end;
    }

    /// Takes stretches out of a stream and quarantines their regions. A stream whose open stretch
    /// goes continues in a new one: no position is used twice.
    pub(crate) fn release_stretches(
        &mut self,
        stream: Stream,
        numbers: Range<u64>,
        cut: &mut Cut,
    ) -> Result<(), StoreError> {
        let size = self.header.stretch_len();
        for (number, region) in stretches(self, stream, numbers)? {
            self.delete(Table::Streams, &stretch_key(stream, number));
            self.give_back(&[region], cut)?;
            let end = self.stream_end(stream);
            if (number * size..(number + 1) * size).contains(&end) {
                self.set_stream_end(stream, (number + 1) * size);
            }
        }
        Ok(())
    }

    /// Gives back every stretch of a stream that none of the live ranges of positions touches.
    pub(crate) fn release_unused(
        &mut self,
        stream: Stream,
        live: &[Range<u64>],
        cut: &mut Cut,
    ) -> Result<(), StoreError> {
        let size = self.header.stretch_len();
        let open = self.stream_end(stream) / size;
        let unused = |number: u64| {
            let (from, to) = (number * size, (number + 1) * size);
            !live.iter().any(|range| range.start < to && from < range.end)
        };
        for (number, _) in stretches(self, stream, 0..open)? {
            if unused(number) {
                self.release_stretches(stream, number..number + 1, cut)?;
            }
        }
        Ok(())
    }
}
