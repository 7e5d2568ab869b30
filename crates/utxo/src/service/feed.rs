//! What the store remembers of a chain beside what is processed: how far the chain was seen, and up to where records were
//! fed. The first lets past-due records be counted after a crash; the second finds a chain that is followed while no
//! record of it comes in.

use std::time::Duration;

use secateur_core::Height;
use tokio::time::Instant;

use super::heights::height_note;
use super::standing::{Following, State, Subscribed};
use super::{SEEN_HEIGHT, Service};
use crate::UtxoError;
use crate::events::Watch;
use crate::store::UtxoStore;

/// Under this name the store keeps at which height records were last fed.
const FED_HEIGHT: &str = "fed_height";
/// How long the log says nothing more of a chain that feeds no record.
const UNFED_LOG_INTERVAL: Duration = Duration::from_mins(10);

/// What is known of the feeding of records.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// The height at which records were last fed, by any service on the store.
    fed: Option<Height>,
    /// The first height of the chain that this process heard: those who feed have some blocks from there on.
    first_head: Option<Height>,
    /// How many records there are, as they were last counted.
    records: Option<u64>,
    /// When the log last said that none are fed.
    logged: Option<Instant>,
}

/// A chain that is followed while no record of it comes in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unfed {
    head: Height,
    fed: Option<Height>,
    /// Whether it has been so for more blocks than are allowed.
    pub(super) is_long: bool,
}

impl std::fmt::Display for Unfed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the chain is followed and is at height {}, and ", self.head)?;
        match self.fed {
            None => f.write_str("no record was ever fed")?,
            Some(fed) => write!(f, "records were last fed at height {fed}")?,
        }
        f.write_str(
            ": nothing is pruned but what is here. Feed records through secateur.utxo.v1.Store; a node's own UTXO \
             store is not read",
        )
    }
}

impl Feed {
    /// The chain says where it is.
    pub(super) fn hear(&mut self, head: Option<Height>) {
        self.first_head = self.first_head.or(head);
    }

    /// Blocks since records were last fed, or since the chain was first heard.
    fn lag(&self, head: Height) -> Height {
        let from = self.fed.max(self.first_head).unwrap_or(head);
        head.saturating_sub(from)
    }
}

impl State {
    /// Whether a subscribed chain feeds no record.
    pub(super) fn unfed(&self, following: &Following, watch: &Watch) -> Option<Unfed> {
        let most = following.max_unfed_blocks;
        let head = watch.told()?;
        if following.subscribed != Subscribed::Here || most == 0 {
            return None;
        }
        let is_long = self.feed.lag(head) > most;
        let is_empty = self.feed.fed.is_none() && self.feed.records == Some(0);
        (is_long || is_empty).then_some(Unfed { head, fed: self.feed.fed, is_long })
    }
}

impl<S: UtxoStore> Service<S> {
    /// Records were fed at this height of the chain.
    pub fn fed(&self, height: Height) {
        let is_news = {
            let mut state = self.0.state.lock();
            let is_news = state.feed.fed < Some(height);
            state.feed.fed = state.feed.fed.max(Some(height));
            is_news
        };
        if is_news {
            self.show();
        }
    }

    /// Notes how many records there are.
    pub(super) fn counted(&self, records: u64) {
        self.0.state.lock().feed.records = Some(records);
        self.show();
    }

    /// Notes in the store how far the chain was seen: after a crash past-due records are counted from there.
    pub(super) async fn note_seen(&self, height: Height) -> Result<(), UtxoError> {
        if self.0.state.lock().seen != Some(height) {
            self.0.pruner.store().set_note(SEEN_HEIGHT, &height.to_string()).await?;
            self.0.state.lock().seen = Some(height);
        }
        Ok(())
    }

    /// Brings what is known here and what the store remembers together.
    pub(super) async fn remember(&self) -> Result<(), UtxoError> {
        let store = self.0.pruner.store();
        let stored = height_note(store, FED_HEIGHT).await?;
        let head = self.0.watch.lock().told();
        let (fed, is_uncounted) = {
            let mut state = self.0.state.lock();
            let feed = &mut state.feed;
            feed.fed = feed.fed.max(stored);
            (feed.fed, feed.fed.is_none() && feed.records.is_none() && head.is_some())
        };
        if let Some(fed) = fed.filter(|_| fed > stored) {
            store.set_note(FED_HEIGHT, &fed.to_string()).await?;
        }
        if let Some(head) = head {
            self.note_seen(head).await?;
        }
        if is_uncounted && self.0.following.subscribed == Subscribed::Here {
            self.count().await?;
        }
        self.log_feed();
        Ok(())
    }

    /// Says in the log that a chain feeds no record, from time to time while it is so.
    fn log_feed(&self) {
        let watch = self.0.watch.lock().clone();
        let mut state = self.0.state.lock();
        let unfed = state.unfed(&self.0.following, &watch);
        match (unfed, state.feed.logged) {
            (Some(unfed), logged) => {
                if logged.is_none_or(|logged| logged.elapsed() >= UNFED_LOG_INTERVAL) {
                    state.feed.logged = Some(Instant::now());
                    tracing::warn!(
                        head = unfed.head,
                        fed = unfed.fed,
                        "no UTXO record is fed: {unfed}"
                    );
                }
            }
            (None, Some(_)) => {
                state.feed.logged = None;
                tracing::info!(fed = state.feed.fed, "UTXO records are fed again");
            }
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{Event, TriggerMode};

    #[test]
    fn a_followed_chain_that_feeds_no_record_is_a_warning_and_after_some_blocks_not_ready() {
        let following =
            Following { subscribed: Subscribed::Here, max_unfed_blocks: 6, ..Following::default() };
        let mut watch = Watch::new(TriggerMode::Auto, false, 100, None);
        let mut state = State::default();
        assert_eq!(state.unfed(&following, &watch), None, "the chain was not heard yet");
        let mut at = |head, state: &mut State| {
            watch.hear(Event::Block { height: head, mined_set: true });
            state.feed.hear(Some(head));
            state.unfed(&following, &watch).map(|unfed| unfed.is_long)
        };
        assert_eq!(at(100, &mut state), None, "records were not counted yet");
        state.feed.records = Some(0);
        assert_eq!(at(100, &mut state), Some(false));
        assert_eq!(at(106, &mut state), Some(false));
        assert_eq!(at(107, &mut state), Some(true));
        state.feed.fed = Some(107);
        assert_eq!(at(113, &mut state), None);
        assert_eq!(at(114, &mut state), Some(true));
        state.feed.fed = Some(114);
        assert_eq!(at(114, &mut state), None);
        let silent = Following { max_unfed_blocks: 0, ..following.clone() };
        let pushed = Following { subscribed: Subscribed::Nowhere, ..following.clone() };
        watch.hear(Event::Block { height: 1_000, mined_set: true });
        for other in [silent, pushed] {
            assert_eq!(state.unfed(&other, &watch), None);
        }
        assert!(state.unfed(&following, &watch).is_some());
    }
}
