//! Export v1 as a library call: each call reads at most one block under its own pin.

use secateur_core::{Cursor, ExportReply, Height, PayloadSource, Segment, read_chunks};

use super::control::export_head;
use super::situation::settings_of;
use super::store::Store;
use super::view::View;
use crate::StoreError;
use crate::ground::{Arena, Index, Snapshot};

struct ExportView<'a, A, S> {
    view: View<'a, A, S>,
    head: Option<Height>,
}

impl<A: Arena, S: Snapshot> PayloadSource for ExportView<'_, A, S> {
    type Error = StoreError;

    fn first_height(&self) -> Option<Height> {
        self.view.state.first
    }

    fn pruned_before(&self) -> Option<Height> {
        self.view.state.boundary
    }

    fn export_head(&self) -> Option<Height> {
        self.head
    }

    fn oldest_kept(&self) -> Option<Height> {
        self.view.state.oldest_kept()
    }

    fn payload_lens(&self, height: Height) -> Result<[u32; 3], StoreError> {
        Ok(self.view.record(height)?.lens)
    }

    fn payload(&self, height: Height, segment: Segment) -> Result<Vec<u8>, StoreError> {
        self.view.payload(&self.view.record(height)?, segment)
    }
}

impl<A: Arena, I: Index> Store<A, I> {
    /// The newest exportable block.
    pub fn get_head(&self) -> Option<Height> {
        self.ends().export_head
    }

    /// One step of the export: at most one block, at most `max_bytes`.
    pub fn export_blocks(
        &self,
        cursor: Option<Cursor>,
        max_bytes: u32,
    ) -> Result<ExportReply, StoreError> {
        let view = self.view()?;
        let head = export_head(&view.state, &settings_of(&view.snapshot)?);
        read_chunks(&ExportView { view, head }, cursor, max_bytes)
    }
}
