//! Whether the store takes more writes: an alarm before it does not, and not ready then.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{LOOK, Service};
use crate::UtxoError;
use crate::store::{Room, RoomLook, UtxoStore};

/// A store that is at a limit goes to and fro: that it has room again is said once it had it for so long.
const CALM: Duration = Duration::from_mins(1);

/// What the log last said of the room.
#[derive(Debug, Default)]
pub(super) struct RoomLog {
    said: Level,
    /// Since when it is better than that.
    better: Option<Instant>,
}

/// How full a store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Level {
    #[default]
    Enough,
    Low,
    Full,
}

impl Level {
    const fn of(room: &Room) -> Self {
        match room {
            Room::Enough => Self::Enough,
            Room::Low(_) => Self::Low,
            Room::Full(_) => Self::Full,
        }
    }
}

impl RoomLog {
    /// What to say now: from which level to which the store came.
    fn step(&mut self, room: &Room, now: Instant) -> Option<(Level, Level)> {
        let (before, level) = (self.said, Level::of(room));
        if level < before {
            let since = *self.better.get_or_insert(now);
            if now.saturating_duration_since(since) < CALM {
                return None;
            }
        }
        self.better = None;
        self.said = level;
        (level != before).then_some((before, level))
    }

    fn say(&mut self, room: &Room) {
        let (Room::Low(reason) | Room::Full(reason)) = room else {
            match self.step(room, Instant::now()) {
                Some((Level::Full, _)) => tracing::info!("the UTXO store takes writes again"),
                Some(_) => tracing::info!("the UTXO store has room again"),
                None => {}
            }
            return;
        };
        match self.step(room, Instant::now()) {
            Some((_, Level::Full)) => {
                tracing::warn!(
                    reason,
                    "the UTXO store takes no more writes; nothing can be pruned"
                );
            }
            Some((Level::Full, _)) => {
                tracing::warn!(reason, "the UTXO store takes writes again, and is nearly full");
            }
            Some(_) => tracing::warn!(reason, "the UTXO store is nearly full"),
            None => {}
        }
    }
}

impl<S: UtxoStore> Service<S> {
    /// Keeps in mind what the store says of its room. What a part of it that is silent now said before counts until it
    /// is heard again.
    pub(super) async fn look_for_room(&self) {
        let looked = timeout(LOOK.1, self.0.pruner.store().room()).await;
        let RoomLook { room, failed } = looked.unwrap_or_else(|_| {
            let reason = format!("nothing came within {} s", LOOK.1.as_secs());
            RoomLook { room: Room::Enough, failed: Some(UtxoError::store(reason)) }
        });
        {
            let mut state = self.0.state.lock();
            let room = match &failed {
                Some(_) => room.worse(state.room.clone()),
                None => room,
            };
            match failed {
                Some(error) if state.room_unknown.lasts() => {
                    tracing::warn!(%error, "whether the UTXO store takes more writes is not known");
                }
                None if state.room_unknown.is_over() => {
                    tracing::info!("whether the UTXO store takes more writes is known again");
                }
                _ => {}
            }
            self.0.metrics.room(&room);
            state.room_log.say(&room);
            state.room = room;
        }
        self.show();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_at_a_limit_does_not_fill_the_log_and_a_worse_one_is_said_at_once() {
        use Level::{Enough, Full, Low};
        let room = |level| match level {
            Enough => Room::Enough,
            Low => Room::Low(String::new()),
            Full => Room::Full(String::new()),
        };
        let (mut log, begin) = (RoomLog::default(), Instant::now());
        let mut at = |seconds, level| log.step(&room(level), begin + Duration::from_secs(seconds));
        assert_eq!(at(0, Enough), None);
        assert_eq!(at(1, Low), Some((Enough, Low)));
        for seconds in (2..60).step_by(2) {
            assert_eq!((at(seconds, Enough), at(seconds + 1, Low)), (None, None));
        }
        assert_eq!(at(61, Full), Some((Low, Full)));
        assert_eq!((at(62, Low), at(63, Full), at(64, Low)), (None, None, None));
        assert_eq!(at(123, Enough), None);
        assert_eq!(at(124, Low), Some((Full, Low)), "it takes writes, and is nearly full");
        assert_eq!((at(130, Enough), at(190, Enough)), (None, Some((Low, Enough))));
    }
}
