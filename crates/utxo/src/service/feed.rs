//! What the store remembers of a chain beside what is processed: how far the chain was seen, and up to where records were
//! fed. The first lets past-due records be counted after a crash; the second finds a chain that is followed while no
//! record of it comes in.

use secateur_core::Height;
use tokio::time::timeout;

use super::heights::height_note;
use super::standing::{DEEPEST, Following, State, Subscribed};
use super::trouble::Trouble;
use super::{LOOK, SEEN_HEIGHT, Service};
use crate::UtxoError;
use crate::events::Watch;
use crate::store::{Room, UtxoStore};

/// Under this name the store keeps where the chain was when records were last fed.
const FED_HEIGHT: &str = "fed_height";

/// What is known of the feeding of records.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// Where the chain was when records were last fed, by any service on the store. How far a feeder is behind it does not
    /// count: it feeds.
    fed: Option<Height>,
    /// Whether the store does not know that yet.
    is_news: bool,
    /// What the store last said of it. If that changes, another service was fed.
    noted: Option<Noted>,
    /// The first height of the chain that this process heard: a feeder has some blocks from there on.
    first_head: Option<Height>,
    /// Whether there are records, as was last seen.
    has_records: Option<bool>,
    /// What keeps a chain's place from being noted.
    unnoted: Trouble,
    /// That none are fed.
    unfed: Trouble,
}

/// What a store said of the feeding of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Noted(Option<Height>);

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

    /// Records are fed here; whether that was not known.
    fn take(&mut self, head: Height) -> bool {
        let was = self.fed.replace(head);
        self.is_news = true;
        was != self.fed
    }

    /// What the store says; whether another service was fed since it was last asked.
    fn hear_store(&mut self, stored: Option<Height>, head: Option<Height>) {
        match self.noted.replace(Noted(stored)) {
            None => self.fed = self.fed.or(stored),
            Some(before) if before != Noted(stored) => self.fed = head.or(stored),
            Some(_) => {}
        }
    }

    /// Takes what the store is to keep, if it does not yet.
    fn take_news(&mut self) -> Option<Height> {
        let fed = self.fed.filter(|_| std::mem::take(&mut self.is_news))?;
        (self.noted != Some(Noted(Some(fed)))).then_some(fed)
    }

    /// When records were last fed, if that can be: a chain does not go back far.
    fn fed_by(&self, head: Height) -> Option<Height> {
        self.fed.filter(|fed| *fed <= head.saturating_add(DEEPEST))
    }

    /// Blocks since records were last fed, or since the chain was first heard.
    fn lag(&self, head: Height) -> Height {
        let from = self.fed_by(head).max(self.first_head).unwrap_or(head);
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
        let fed = self.feed.fed_by(head);
        let is_empty = fed.is_none() && self.feed.has_records == Some(false);
        (is_long || is_empty).then_some(Unfed { head, fed, is_long })
    }
}

impl<S: UtxoStore> Service<S> {
    /// Records were fed by a caller that names this height. Where the chain itself reported its top, that counts.
    pub fn fed(&self, height: Height) {
        let head = self.0.watch.lock().told().unwrap_or(height);
        let is_news = self.0.state.lock().feed.take(head);
        if is_news {
            self.show();
        }
    }

    /// Notes whether there are records.
    pub(super) fn saw_records(&self, has_records: bool) {
        self.0.state.lock().feed.has_records = Some(has_records);
        self.show();
    }

    /// Notes in the store how far the chain was seen: after a crash past-due records are counted from there. One that
    /// takes no writes is not asked to.
    pub(super) async fn note_seen(&self, height: Height) -> Result<(), UtxoError> {
        let is_due = {
            let state = self.0.state.lock();
            state.seen != Some(height) && !matches!(state.room, Room::Full(_))
        };
        if is_due {
            self.0.pruner.store().set_note(SEEN_HEIGHT, &height.to_string()).await?;
            self.0.state.lock().seen = Some(height);
        }
        Ok(())
    }

    /// The same of a height at which somebody prunes. Where no block was reported since the start, that says only that
    /// the chain came so far: it may have been seen further.
    pub(super) async fn note_pruned_at(&self, height: Height) -> Result<(), UtxoError> {
        let head = self.0.watch.lock().told();
        if let Some(head) = head {
            return self.note_seen(head).await;
        }
        let stored = height_note(self.0.pruner.store(), SEEN_HEIGHT).await?;
        self.0.state.lock().seen = stored;
        self.note_seen(stored.map_or(height, |seen| seen.max(height))).await
    }

    /// Brings what is known here and what the store remembers together, and says in the log what is wrong with it.
    pub(super) async fn keep_in_mind(&self) {
        let done = timeout(LOOK.1, self.remember()).await.unwrap_or_else(|_| {
            Err(UtxoError::store(format!("nothing came within {} s", LOOK.1.as_secs())))
        });
        {
            let unnoted = &mut self.0.state.lock().feed.unnoted;
            match done {
                Err(error) if unnoted.lasts() => {
                    tracing::warn!(
                        %error,
                        "where the chain is and whether records are fed could not be compared with the UTXO store"
                    );
                }
                Ok(()) if unnoted.is_over() => {
                    tracing::info!(
                        "where the chain is and whether records are fed is in the UTXO store again"
                    );
                }
                _ => {}
            }
        }
        self.log_feed();
    }

    async fn remember(&self) -> Result<(), UtxoError> {
        let store = self.0.pruner.store();
        let stored = height_note(store, FED_HEIGHT).await?;
        let head = self.0.watch.lock().told();
        let (to_note, is_unseen) = {
            let mut state = self.0.state.lock();
            let takes_writes = !matches!(state.room, Room::Full(_));
            let feed = &mut state.feed;
            feed.hear_store(stored, head);
            let is_unseen = feed.fed.is_none() && feed.has_records.is_none() && head.is_some();
            (takes_writes.then(|| feed.take_news()).flatten(), is_unseen)
        };
        if let Some(fed) = to_note {
            let noted = store.set_note(FED_HEIGHT, &fed.to_string()).await;
            {
                let feed = &mut self.0.state.lock().feed;
                match noted {
                    Ok(()) => feed.noted = Some(Noted(Some(fed))),
                    // Next time.
                    Err(_) => feed.is_news = true,
                }
            }
            noted?;
        }
        if let Some(head) = head {
            self.note_seen(head).await?;
        }
        // Not by counting: a large store takes long for that.
        if is_unseen && self.0.following.subscribed == Subscribed::Here {
            self.saw_records(store.has_records().await?);
        }
        Ok(())
    }

    /// Says in the log that a chain feeds no record, from time to time while it is so.
    fn log_feed(&self) {
        let watch = self.0.watch.lock().clone();
        let mut state = self.0.state.lock();
        match state.unfed(&self.0.following, &watch) {
            Some(unfed) if state.feed.unfed.lasts() => {
                let (head, fed) = (unfed.head, unfed.fed);
                tracing::warn!(head, fed, "no UTXO record is fed: {unfed}");
            }
            None if state.feed.unfed.is_over() => {
                tracing::info!(fed = state.feed.fed, "UTXO records are fed again");
            }
            _ => {}
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
        state.feed.has_records = Some(false);
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

    /// A feeder of old blocks was said to feed nothing.
    #[test]
    fn a_feeder_of_old_blocks_feeds_and_a_huge_height_does_not_end_the_warning() {
        let mut feed = Feed { first_head: Some(1_000), ..Feed::default() };
        assert!(feed.take(2_000), "the chain is there, whatever block is fed");
        assert_eq!((feed.lag(2_000), feed.lag(2_010)), (0, 10));
        assert_eq!((feed.take_news(), feed.take_news()), (Some(2_000), None));
        // A service that hears no chain notes what its callers say.
        let mut other = Feed { first_head: Some(1_000), ..Feed::default() };
        other.hear_store(Some(u64::from(u32::MAX)), Some(1_500));
        assert_eq!((other.fed_by(1_500), other.lag(1_500)), (None, 500));
        for (low, head) in [(12, 1_600), (13, 1_700)] {
            other.hear_store(Some(low), Some(head));
            assert_eq!(other.lag(head), 0, "it was fed since");
            other.hear_store(Some(low), Some(head + 7));
            assert_eq!((other.lag(head + 7), other.take_news()), (7, None));
        }
        // A chain that goes back a few blocks was fed all the same.
        assert_eq!((feed.lag(1_990), feed.lag(1_899)), (0, 899));
    }
}
