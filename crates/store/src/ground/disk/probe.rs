//! A look at the index file that cannot change it.
//!
//! redb trusts the pages it reads: a damaged one can make it panic, ask for gigabytes, or hide
//! rows. It does compare every page with its checksum, from the root down, when it recovers a
//! file that was not closed; but then it mends what it finds by going back to an older commit,
//! which would be a silent loss here. So the check is a recovery on a probe: reads go to the
//! file, writes stay in memory and are forgotten. Where the newest commit must be whole, the
//! probe shows it in place of the older one too, so that there is nothing to go back to.

use std::collections::BTreeMap;
use std::io;

use parking_lot::Mutex;
use redb::StorageBackend;

use super::index::{guard, index_error};
use crate::StoreError;

const PAGE: usize = 4096;

/// redb's header, as its file format 3 has it: a byte of flags, and two commit slots.
const FLAGS: usize = 9;
const SECOND_IS_PRIMARY: u8 = 1;
const RECOVERY_REQUIRED: u8 = 2;
const TWO_PHASE: u8 = 4;
const COMMIT_SLOTS: [std::ops::Range<usize>; 2] = [64..192, 192..320];

/// What the probe wrote: its own length, and the pages that differ from the file's.
#[derive(Debug)]
struct Overlay {
    len: u64,
    /// Below this the file's own bytes show through; it only ever falls.
    shown: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

/// A backend that reads from another and keeps every change to itself.
#[derive(Debug)]
struct Probe<B> {
    under: B,
    overlay: Mutex<Overlay>,
}

impl<B: StorageBackend> Probe<B> {
    fn page(&self, overlay: &Overlay, index: u64) -> io::Result<Box<[u8]>> {
        if let Some(page) = overlay.pages.get(&index) {
            return Ok(page.clone());
        }
        let mut page = vec![0u8; PAGE].into_boxed_slice();
        let start = index * PAGE as u64;
        let there = overlay.shown.saturating_sub(start);
        let there = usize::try_from(there).unwrap_or(PAGE).min(PAGE);
        if let Some(part) = page.get_mut(..there).filter(|part| !part.is_empty()) {
            self.under.read(start, part)?;
        }
        Ok(page)
    }

    /// Calls `visit` with each page of a range: its index, where in it the range begins, and
    /// how much of the range lies in it.
    fn pages(
        offset: u64,
        len: usize,
        mut visit: impl FnMut(u64, usize, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let (mut at, mut left) = (offset, len);
        while left > 0 {
            let start = usize::try_from(at % PAGE as u64).unwrap_or(0);
            let take = left.min(PAGE - start);
            visit(at / PAGE as u64, start, take)?;
            at += take as u64;
            left -= take;
        }
        Ok(())
    }
}

impl<B: StorageBackend> StorageBackend for Probe<B> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.overlay.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let overlay = self.overlay.lock();
        if offset.saturating_add(out.len() as u64) > overlay.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if overlay.pages.is_empty() {
            return self.under.read(offset, out);
        }
        let mut rest = out.iter_mut();
        Self::pages(offset, rest.len(), |index, start, take| {
            let page = self.page(&overlay, index)?;
            let from = page.iter().skip(start).take(take);
            rest.by_ref().zip(from).for_each(|(to, from)| *to = *from);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut overlay = self.overlay.lock();
        let overlay = &mut *overlay;
        overlay.len = len;
        overlay.shown = overlay.shown.min(len);
        overlay.pages.retain(|index, _| index * (PAGE as u64) < len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut overlay = self.overlay.lock();
        let mut rest = data.iter();
        Self::pages(offset, data.len(), |index, start, take| {
            let mut page = self.page(&overlay, index)?;
            let to = page.iter_mut().skip(start).take(take);
            to.zip(rest.by_ref()).for_each(|(to, from)| *to = *from);
            overlay.pages.insert(index, page);
            Ok(())
        })
    }
}

/// Whether the newest commit must be whole: the file was closed in order, or the commit's pages
/// were made durable before its header was written.
pub(super) fn newest_must_be_whole<B: StorageBackend>(under: &B) -> io::Result<bool> {
    let mut flags = [0u8];
    under.read(FLAGS as u64, &mut flags)?;
    let [flags] = flags;
    Ok(flags & RECOVERY_REQUIRED == 0 || flags & TWO_PHASE != 0)
}

/// Checks every page of the file behind `under` against its checksum and says what is wrong, if
/// anything is. `strict` says that the newest commit must be whole; otherwise an older one may
/// take its place, as after a crash. The file is not changed.
pub(super) fn check<B: StorageBackend>(
    under: B,
    strict: bool,
) -> Result<Option<String>, StoreError> {
    let failed = |source| StoreError::io("checking the index", source);
    let len = under.len().map_err(failed)?;
    let mut first = vec![0u8; PAGE].into_boxed_slice();
    under.read(0, &mut first).map_err(failed)?;
    demand_recovery(&mut first, strict);
    let pages = BTreeMap::from([(0, first)]);
    let probe = Probe { under, overlay: Mutex::new(Overlay { len, shown: len, pages }) };
    let checked = guard(|| {
        let mut builder = redb::Builder::new();
        builder.set_cache_size(super::INDEX_CACHE_BYTES);
        drop(builder.create_with_backend(probe).map_err(index_error)?);
        Ok(())
    });
    match checked {
        Ok(()) => Ok(None),
        Err(StoreError::Corrupt { detail, .. }) => Ok(Some(detail)),
        Err(error) => Err(error),
    }
}

/// Changes a header so that redb checks every page before it believes it.
fn demand_recovery(header: &mut [u8], strict: bool) {
    let Some(flags) = header.get_mut(FLAGS) else { return };
    *flags = (*flags | RECOVERY_REQUIRED) & !TWO_PHASE;
    if strict {
        let [first, second] = COMMIT_SLOTS;
        let (newest, other) =
            if *flags & SECOND_IS_PRIMARY == 0 { (first, second) } else { (second, first) };
        header.copy_within(newest, other.start);
    }
}
