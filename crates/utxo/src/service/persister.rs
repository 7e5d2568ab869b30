//! What is known of a block persister, and whether records wait for it.
//!
//! Whether a chain has one at all is known only when the chain said so. Until then it is in doubt, and a doubt is kept
//! in the store like a height: it binds who prunes by hand, who pushes blocks, and every other service on the store.

use secateur_core::Height;

use super::heights::height_note;
use super::{PERSISTED, Service};
use crate::UtxoError;
use crate::events::TriggerMode;
use crate::pruner::{SafeMode, Skip, Trigger};
use crate::store::UtxoStore;

/// Under this name the store keeps whether a chain has a persister whose height nobody knows.
const DOUBT: &str = "persister";
/// The chain said that it has none.
const NONE: &str = "none";
/// It has one, and did not say how far that is.
const IN_DOUBT: &str = "in_doubt";

/// What a chain said of it, last: nothing if it never did.
pub(super) async fn doubt_note(store: &impl UtxoStore) -> Result<Option<bool>, UtxoError> {
    match store.note(DOUBT).await?.as_deref() {
        None => Ok(None),
        Some(NONE) => Ok(Some(false)),
        Some(IN_DOUBT) => Ok(Some(true)),
        Some(_) => Err(UtxoError::damaged(DOUBT, "it is no word about a persister")),
    }
}

impl<S: UtxoStore> Service<S> {
    /// A subscribed chain says that it has no persister; or that it has one, and not how far that is.
    pub(crate) async fn doubt_persister(&self, doubted: bool) -> Result<(), UtxoError> {
        let mut noted = self.0.doubt.lock().await;
        if doubted {
            self.0.watch.lock().doubt_persister(true);
        }
        if *noted != Some(doubted) {
            let word = if doubted { IN_DOUBT } else { NONE };
            self.0.pruner.store().set_note(DOUBT, word).await?;
            *noted = Some(doubted);
        }
        self.0.watch.lock().doubt_persister(doubted);
        self.show();
        Ok(())
    }

    /// Whether there is a persister, or may be one, and nobody knows how far it is.
    pub(crate) fn persister_is_in_doubt(&self) -> bool {
        self.0.watch.lock().is_in_doubt()
    }

    /// Whether blocks set prunes off, so that it matters whether one is set mined.
    pub(crate) fn follows_blocks(&self) -> bool {
        self.0.watch.lock().follows_blocks()
    }

    /// A trigger with what the store says of a persister, where this service knows nothing; and why no run begins where
    /// that is too little.
    pub(super) async fn informed(
        &self,
        trigger: Trigger,
    ) -> Result<(Trigger, Option<Skip>), UtxoError> {
        let following = &self.0.following;
        if following.persister_absent || trigger.persisted.is_some() {
            return Ok((trigger, None));
        }
        let store = self.0.pruner.store();
        let persisted = height_note(store, PERSISTED).await?;
        let is_bound = self.0.pruner.settings().safe != SafeMode::Trigger;
        let awaited = if persisted.is_some() || !is_bound {
            None
        } else if following.mode == TriggerMode::Persisted {
            Some(Skip::PersisterUnheard)
        } else {
            let noted = doubt_note(store).await?.unwrap_or(following.has_chain());
            (noted || self.persister_is_in_doubt()).then_some(Skip::PersisterInDoubt)
        };
        Ok((Trigger { persisted, ..trigger }, awaited))
    }

    /// Why nothing goes, whatever a run's height is: records wait for a persister, and nobody knows how far one is.
    pub async fn awaited(&self) -> Result<Option<Skip>, UtxoError> {
        let persisted = self.0.watch.lock().persisted();
        let (_, awaited) = self.informed(Trigger { height: 0, persisted }).await?;
        Ok(awaited)
    }

    /// Up to which height records may go in a run that begins now.
    pub async fn safe_height(&self, trigger: Trigger) -> Result<Height, UtxoError> {
        let (trigger, awaited) = self.informed(trigger).await?;
        Ok(self.up_to(trigger, awaited))
    }

    pub(super) fn up_to(&self, trigger: Trigger, awaited: Option<Skip>) -> Height {
        let pruner = &self.0.pruner;
        let safe = pruner.settings().safe_height(&pruner.store().rules(), trigger);
        if awaited.is_some() { 0 } else { safe }
    }
}
