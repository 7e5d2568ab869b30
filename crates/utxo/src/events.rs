//! What a chain tells, and which of it sets a prune off.
//!
//! One slot, latest wins: a height that waits is replaced by the next one, so that catching up runs a
//! handful of prunes and nothing queues up.

use std::sync::Arc;

use parking_lot::Mutex;
use secateur_core::Height;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::pruner::Trigger;

/// Something that a chain tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A block is on top of the main chain.
    Block {
        /// Its height.
        height: Height,
        /// Whether its transactions are set mined in the store.
        mined_set: bool,
    },
    /// A block persister has written everything up to this height.
    Persisted {
        /// The height.
        height: Height,
    },
}

/// Which events set a prune off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TriggerMode {
    /// What a persister reports; blocks only while there is none.
    #[default]
    Auto,
    /// What a persister reports, and nothing else.
    Persisted,
    /// Blocks.
    Mined,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It sets a prune off.
    Trigger(Trigger),
    /// It is noted, and sets nothing off.
    Noted,
    /// It is not believed: it is too far above what was known.
    TooFar {
        /// What was known.
        known: Height,
    },
    /// It is not believed: a persister cannot have written a block that is above the last one that was told.
    AboveHead {
        /// That one.
        head: Height,
    },
}

/// A persister that reported once and is far behind now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StalePersister {
    /// The top of the chain.
    pub head: Height,
    /// What it last reported.
    pub persisted: Height,
}

/// What is known of a chain from its events.
#[derive(Debug, Clone)]
pub struct Watch {
    mode: TriggerMode,
    /// Whether the configuration says that there is no persister.
    absent: bool,
    stale_after: Height,
    head: Option<Height>,
    /// Whether a block told of the head.
    told: bool,
    persisted: Option<Height>,
    /// Whether there may be a persister of which nobody knows how far it is.
    doubted: bool,
}

impl Watch {
    /// Begins with what a persister reported before.
    pub fn new(
        mode: TriggerMode,
        absent: bool,
        stale_after: Height,
        persisted: Option<Height>,
    ) -> Self {
        let persisted = persisted.filter(|_| !absent);
        let (told, doubted) = (false, false);
        Self { mode, absent, stale_after, head: persisted, told, persisted, doubted }
    }

    /// With a chain that is known to have come to a height: a persister may have been told to begin anew far below it.
    pub fn that_reached(mut self, height: Height) -> Self {
        self.head = self.head.max(Some(height));
        self
    }

    /// The top of the chain, as far as it is known.
    pub const fn head(&self) -> Option<Height> {
        self.head
    }

    /// The same, if a block told it and not a persister, which may be behind.
    pub fn told(&self) -> Option<Height> {
        self.head.filter(|_| self.told)
    }

    /// What a persister last reported.
    pub const fn persisted(&self) -> Option<Height> {
        self.persisted
    }

    /// There is a persister, or may be one, and nobody knows how far it is; or there is none.
    pub const fn doubt_persister(&mut self, doubted: bool) {
        self.doubted = doubted;
    }

    /// Whether that is so, and matters: blocks set nothing off then.
    pub const fn is_in_doubt(&self) -> bool {
        self.doubted && !self.absent && self.persisted.is_none()
    }

    /// Whether a block sets a prune off, once its transactions are set mined.
    pub const fn follows_blocks(&self) -> bool {
        let blocks = match self.mode {
            TriggerMode::Mined => true,
            TriggerMode::Auto => self.persisted.is_none(),
            TriggerMode::Persisted => false,
        };
        blocks && !self.is_in_doubt()
    }

    /// Takes an event in.
    pub fn hear(&mut self, event: Event) -> Heard {
        match event {
            Event::Block { height, mined_set } => {
                (self.head, self.told) = (Some(height), true);
                let counts = mined_set && self.follows_blocks();
                if counts { self.trigger(height) } else { Heard::Noted }
            }
            Event::Persisted { height } => {
                // Where blocks are told, they say where the chain is.
                if !self.told {
                    self.head = self.head.max(Some(height));
                }
                if self.absent {
                    return Heard::Noted;
                }
                self.persisted = Some(height);
                match self.mode {
                    TriggerMode::Mined => Heard::Noted,
                    TriggerMode::Auto | TriggerMode::Persisted => self.trigger(height),
                }
            }
        }
    }

    const fn trigger(&self, height: Height) -> Heard {
        Heard::Trigger(Trigger { height, persisted: self.persisted })
    }

    /// What a prune at this height would know.
    pub const fn at(&self, height: Height) -> Trigger {
        Trigger { height, persisted: self.persisted }
    }

    /// Whether a persister that reported once has fallen behind: deletion stands still then, and
    /// somebody has to know.
    pub fn stale(&self) -> Option<StalePersister> {
        let (head, persisted) = (self.head?, self.persisted?);
        let stale = head.saturating_sub(persisted) > self.stale_after;
        stale.then_some(StalePersister { head, persisted })
    }
}

/// One place for what is to be done next.
#[derive(Debug, Clone)]
pub(crate) struct Latest<T>(Arc<(Mutex<Option<T>>, Notify)>);

impl<T> Latest<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::new((Mutex::new(None), Notify::new())))
    }

    /// Puts something in; answers what it replaced.
    pub(crate) fn offer(&self, next: T) -> Option<T> {
        let replaced = self.0.0.lock().replace(next);
        self.0.1.notify_one();
        replaced
    }

    /// Waits for something and takes it, not before a moment.
    pub(crate) async fn take_from(&self, moment: Instant) -> T {
        tokio::time::sleep_until(moment).await;
        loop {
            if let Some(next) = self.0.0.lock().take() {
                return next;
            }
            self.0.1.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(height: Height, persisted: Option<Height>) -> Heard {
        Heard::Trigger(Trigger { height, persisted })
    }

    fn block(height: Height) -> Event {
        Event::Block { height, mined_set: true }
    }

    #[test]
    fn auto_follows_blocks_until_a_persister_reports_and_then_only_it() {
        let mut watch = Watch::new(TriggerMode::Auto, false, 10, None);
        assert_eq!(watch.hear(block(1)), trigger(1, None));
        assert_eq!(watch.hear(Event::Block { height: 2, mined_set: false }), Heard::Noted);
        assert_eq!(watch.hear(Event::Persisted { height: 1 }), trigger(1, Some(1)));
        assert_eq!(watch.hear(block(3)), Heard::Noted);
        assert_eq!(watch.head(), Some(3));
        // It was known before a restart too.
        let mut watch = Watch::new(TriggerMode::Auto, false, 10, Some(1));
        assert_eq!(watch.hear(block(3)), Heard::Noted);
    }

    #[test]
    fn a_persister_that_is_configured_absent_is_not_believed() {
        let mut watch = Watch::new(TriggerMode::Auto, true, 10, Some(5));
        assert_eq!(watch.hear(Event::Persisted { height: 6 }), Heard::Noted);
        assert_eq!(watch.hear(block(9)), trigger(9, None));
        assert_eq!(watch.stale(), None);
    }

    #[test]
    fn the_other_modes_follow_one_kind_of_event() {
        let mut persisted = Watch::new(TriggerMode::Persisted, false, 10, None);
        assert_eq!(persisted.hear(block(4)), Heard::Noted);
        assert_eq!(persisted.hear(Event::Persisted { height: 3 }), trigger(3, Some(3)));
        let mut mined = Watch::new(TriggerMode::Mined, false, 10, None);
        assert_eq!(mined.hear(Event::Persisted { height: 3 }), Heard::Noted);
        assert_eq!(mined.hear(block(4)), trigger(4, Some(3)));
    }

    #[test]
    fn a_persister_that_reported_and_stands_still_is_told() {
        let mut watch = Watch::new(TriggerMode::Auto, false, 10, None);
        watch.hear(Event::Persisted { height: 50 });
        watch.hear(block(60));
        assert_eq!(watch.stale(), None);
        watch.hear(block(61));
        assert_eq!(watch.stale(), Some(StalePersister { head: 61, persisted: 50 }));
        watch.hear(Event::Persisted { height: 61 });
        assert_eq!(watch.stale(), None);
        // What another service on the store says that is persisted is no block.
        watch.hear(Event::Persisted { height: 62 });
        assert_eq!((watch.head(), watch.persisted()), (Some(61), Some(62)));
    }

    #[test]
    fn while_a_persister_is_in_doubt_blocks_set_nothing_off() {
        for mode in [TriggerMode::Auto, TriggerMode::Mined] {
            let mut watch = Watch::new(mode, false, 10, None);
            watch.doubt_persister(true);
            assert!(watch.is_in_doubt());
            assert_eq!(watch.hear(block(3)), Heard::Noted);
            watch.doubt_persister(false);
            assert_eq!(watch.hear(block(4)), trigger(4, None));
            watch.doubt_persister(true);
            watch.hear(Event::Persisted { height: 2 });
            assert!(!watch.is_in_doubt());
        }
        let mut absent = Watch::new(TriggerMode::Auto, true, 10, None);
        absent.doubt_persister(true);
        assert!(!absent.is_in_doubt());
    }

    #[tokio::test]
    async fn what_waits_is_replaced_by_the_latest() {
        let slot = Latest::new();
        for height in 0..10_000 {
            let replaced = slot.offer(height);
            assert_eq!(replaced, (height > 0).then(|| height - 1));
        }
        assert_eq!(slot.take_from(Instant::now()).await, 9_999);
        let other = slot.clone();
        let waiting = tokio::spawn(async move { other.take_from(Instant::now()).await });
        slot.offer(7);
        assert_eq!(waiting.await.unwrap(), 7);
    }
}
