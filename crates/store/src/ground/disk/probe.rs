//! A look at the index file that cannot change it.
//!
//! redb trusts the pages it reads and panics on some damaged ones; its own integrity check
//! compares every page with its checksum, but mends what it finds by going back to an older
//! commit, which would be a silent loss here. So the check runs on a probe: reads go to the file,
//! writes stay in memory and are forgotten.

use std::collections::BTreeMap;
use std::io;

use parking_lot::Mutex;
use redb::{Database, ReadableDatabase, StorageBackend};

use super::index::{definition, guard, index_error};
use crate::StoreError;
use crate::ground::Table;

const PAGE: usize = 4096;

/// What the probe wrote: its own length, and the pages that differ from the file's.
#[derive(Debug)]
struct Overlay {
    len: u64,
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
        let there = self.under.len()?.saturating_sub(start);
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
        self.overlay.lock().len = len;
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

/// Checks the structure of the file behind `under`: every page against its checksum. Returns
/// what is wrong, or the value of one row as the check saw it. The file is not changed.
pub(super) fn check<B: StorageBackend>(
    under: B,
    row: (Table, &[u8]),
) -> Result<Result<Option<Vec<u8>>, String>, StoreError> {
    let len = under.len().map_err(|source| StoreError::io("measuring the index", source))?;
    let overlay = Mutex::new(Overlay { len, pages: BTreeMap::new() });
    let probe = Probe { under, overlay };
    let opened = guard(|| {
        let mut builder = redb::Builder::new();
        builder.set_cache_size(super::INDEX_CACHE_BYTES);
        builder.create_with_backend(probe).map_err(index_error)
    });
    let mut database = match opened {
        Ok(database) => database,
        Err(StoreError::Corrupt { detail, .. }) => return Ok(Err(detail)),
        Err(error) => return Err(error),
    };
    let checked = guard(|| {
        if !database.check_integrity().map_err(index_error)? {
            return Err(StoreError::corrupt("index", "a page does not match its checksum"));
        }
        read_row(&database, row)
    });
    match checked {
        Ok(value) => {
            guard(|| {
                drop(database);
                Ok(())
            })?;
            Ok(Ok(value))
        }
        Err(error) => {
            // Closing writes; a structure that was found damaged is better left alone.
            std::mem::forget(database);
            match error {
                StoreError::Corrupt { detail, .. } => Ok(Err(detail)),
                error => Err(error),
            }
        }
    }
}

pub(super) fn read_row(
    database: &Database,
    (table, key): (Table, &[u8]),
) -> Result<Option<Vec<u8>>, StoreError> {
    let read = database.begin_read().map_err(index_error)?;
    let rows = match read.open_table(definition(table)) {
        Ok(rows) => rows,
        // A file that is being made has no tables yet.
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(index_error(error)),
    };
    let value = rows.get(key).map_err(index_error)?;
    Ok(value.map(|value| value.value().to_vec()))
}
