//! Phase 1: what an old unmined transaction needs to be submitted again is kept, or nothing goes.

use std::collections::BTreeSet;

use secateur_core::Height;

use super::{Ended, Limits, Phase, Pruner};
use crate::UtxoError;
use crate::store::UtxoStore;

impl<S: UtxoStore> Pruner<S> {
    /// Preserves the parents of old unmined transactions, then looks again at preservations that ended.
    pub(super) async fn preserve_parents(
        &self,
        height: Height,
        limits: &Limits,
    ) -> Result<(), Ended> {
        let failed = |error| match error {
            Ended::Failed(source) => {
                Ended::Failed(UtxoError::NotPreserved { height, source: Box::new(source) })
            }
            other => other,
        };
        self.preserve_all(height, limits).await.map_err(failed)?;
        self.board.enter(Phase::Expire, 0);
        self.expire_all(height, limits).await.map_err(failed)
    }

    async fn preserve_all(&self, height: Height, limits: &Limits) -> Result<(), Ended> {
        let Some(cutoff) = self.settings.cutoff(&self.store.rules(), height) else { return Ok(()) };
        let until = height.saturating_add(self.settings.parent_preservation_blocks);
        let mut mark = None;
        loop {
            limits.check()?;
            let page = self.store.old_unmined(cutoff, mark, self.settings.chunk_size).await?;
            let old = page.items.len() as u64;
            let parents: BTreeSet<_> =
                page.items.into_iter().flat_map(|unmined| unmined.parents).collect();
            let parents: Vec<_> = parents.into_iter().collect();
            for some in parents.chunks(self.settings.chunk_size) {
                limits.check()?;
                let preserved = self.store.preserve(some.to_vec(), until).await?;
                self.board.count(|done| {
                    done.preserved += preserved.kept;
                    done.parents_missing += preserved.missing;
                });
            }
            self.board.count(|done| done.old_unmined += old);
            mark = page.next;
            if mark.is_none() {
                return Ok(());
            }
        }
    }

    async fn expire_all(&self, height: Height, limits: &Limits) -> Result<(), Ended> {
        loop {
            limits.check()?;
            let limit = self.settings.chunk_size;
            let expired = self.store.expire_preservations(height, limit).await?;
            self.board.count(|done| done.expired += expired);
            if expired < limit as u64 {
                return Ok(());
            }
        }
    }
}
