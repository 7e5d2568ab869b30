//! Writing a part to a file.

use std::path::Path;

use secateur_core::Block;

use super::PartHeader;
use crate::{ArchiveError, Manifest};

/// A part in the making.
#[derive(Debug)]
pub struct PartWriter {}

impl PartWriter {
    /// Begins a part in a new file. `last` and `last_hash` of the header are filled in at the end.
    pub fn create(_path: &Path, _header: PartHeader) -> Result<Self, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// Takes one more block, the next one.
    pub async fn push(&mut self, _block: &Block) -> Result<(), ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }

    /// Ends the part: the file is whole and synced.
    pub async fn finish(self) -> Result<Manifest, ArchiveError> {
        Err(ArchiveError::invalid("archive", "not built yet"))
    }
}
