//! Which heights are believed: compared with what this service heard and with what the store says that any service on it
//! processed.

use secateur_core::Height;
use tokio::time::timeout;

use super::{LOOK, PROCESSED, Service};
use crate::UtxoError;
use crate::store::UtxoStore;

impl<S: UtxoStore> Service<S> {
    /// Whether a height is further than a chain goes at once; then what was known is the answer. What is known is
    /// the store's too: another service on it may be further than this one.
    pub async fn too_far(&self, height: Height) -> Option<Height> {
        let known = || {
            let done = self.0.state.lock().done();
            self.0.watch.lock().head().max(done)
        };
        let is_jump = |known: &Height| self.0.following.is_jump(*known, height);
        if known().is_some_and(|known| !is_jump(&known)) {
            return None;
        }
        match timeout(LOOK.1, height_note(self.0.pruner.store(), PROCESSED)).await {
            Ok(Ok(stored)) => self.0.state.lock().stored = stored,
            // It is judged by what is known here.
            Ok(Err(error)) => tracing::warn!(%error, "what is processed could not be read"),
            Err(_) => tracing::warn!("what is processed could not be read in time"),
        }
        known().filter(is_jump)
    }

    /// The chain's tip for a step of which somebody names the height. One that is far above everything
    /// that is known is refused, as it is of an event; and nothing is counted from below the head, so that
    /// what is told late is not deleted early.
    pub async fn tip(&self, height: Height) -> Result<Height, UtxoError> {
        if let Some(known) = self.too_far(height).await {
            let reason = format!(
                "height {height} is far above {known}, which is the last that is known; if the chain \
                 really is there, set utxo.max_jump_blocks higher (0: any)"
            );
            return Err(UtxoError::WrongHeight { reason });
        }
        let head = self.0.watch.lock().head();
        // After a start nothing was heard yet, and what is processed was; unless a wrong height was pruned.
        let done = self.0.state.lock().done();
        let done = done.filter(|done| !self.0.following.is_beyond(head, *done));
        Ok(head.max(done).map_or(height, |known| known.max(height)))
    }
}

/// A height that the store keeps under a name.
pub(super) async fn height_note(
    store: &impl UtxoStore,
    name: &str,
) -> Result<Option<Height>, UtxoError> {
    let Some(text) = store.note(name).await? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| UtxoError::damaged(name, "it is no height"))
}
