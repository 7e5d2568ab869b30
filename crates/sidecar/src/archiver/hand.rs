//! What the archiver has in hand: jobs taken from the queue, under way, or ended and not written
//! down yet. Nothing here is durable; the queue has all of them until their records are.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::AttemptError;
use super::made::Made;
use crate::SidecarError;
use crate::engine::{BlobKey, Job};

/// Ended attempts that may wait for the commit of those before them, for each that may be under way.
const UNWRITTEN: usize = 4;

/// How many share a commit if they can, for each that may be under way,
const TOGETHER: usize = 2;
/// and how long the first of them may wait for the others.
const LINGER: Duration = Duration::from_millis(20);

/// What an attempt came to.
pub(super) type Outcome = (Job, Result<Made, AttemptError>);

/// Jobs in hand.
#[derive(Default)]
pub(super) struct InHand {
    /// All of them, those that are being written down too: the queue is not to give them again.
    pub(super) keys: HashSet<BlobKey>,
    /// Due, and there was no room yet.
    pub(super) ready: VecDeque<Job>,
    /// Under way.
    pub(super) attempts: JoinSet<Outcome>,
    /// Ended, and since when the first of them.
    ended: Vec<Outcome>,
    since: Option<Instant>,
}

impl InHand {
    /// How many more may be begun. A store that is slow to write holds copying up in the end.
    pub(super) fn room(&self, at_once: usize) -> usize {
        if self.ended.len() >= at_once.saturating_mul(UNWRITTEN) {
            return 0;
        }
        at_once.saturating_sub(self.attempts.len())
    }

    /// The next ones to begin.
    pub(super) fn take(&mut self, room: usize) -> Vec<Job> {
        self.ready.drain(..room.min(self.ready.len())).collect()
    }

    /// One has ended, and perhaps others with it.
    pub(super) fn end(&mut self, one: Result<Outcome, JoinError>) -> Result<(), SidecarError> {
        self.since.get_or_insert_with(Instant::now);
        let mut next = Some(one);
        while let Some(ended) = next {
            self.ended.push(ended.map_err(|error| SidecarError::task("archiving", &error))?);
            next = self.attempts.try_join_next();
        }
        Ok(())
    }

    /// In how long what has ended should be written down: when there are many, with the last one that
    /// is under way, or after a moment. None if nothing has.
    pub(super) fn ripe_in(&self, at_once: usize) -> Option<Duration> {
        let since = self.since?;
        if self.ended.len() >= at_once.saturating_mul(TOGETHER) || self.attempts.is_empty() {
            return Some(Duration::ZERO);
        }
        Some(LINGER.saturating_sub(since.elapsed()))
    }

    /// What has ended, to be written down.
    pub(super) fn take_ended(&mut self) -> Vec<Outcome> {
        self.since = None;
        std::mem::take(&mut self.ended)
    }

    /// These are written down.
    pub(super) fn let_go(&mut self, keys: &[BlobKey]) {
        for key in keys {
            self.keys.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_more_is_begun_while_too_much_waits_to_be_written_down() {
        let mut hand = InHand::default();
        assert_eq!(hand.room(8), 8);
        let gone = |height| {
            let job = Job { key: BlobKey { height, index: 0 }, attempts: 0, due: 0, held: None };
            (job, Err(AttemptError::Gone(SidecarError::Unknown(height))))
        };
        hand.ended.extend((0..31).map(gone));
        assert_eq!(hand.room(8), 8);
        hand.ended.push(gone(31));
        assert_eq!(hand.room(8), 0);
    }

    #[tokio::test]
    async fn what_has_ended_waits_a_moment_for_others_and_not_for_the_slowest() {
        let mut hand = InHand::default();
        let job =
            |height| Job { key: BlobKey { height, index: 0 }, attempts: 0, due: 0, held: None };
        assert_eq!(hand.ripe_in(8), None);
        hand.attempts.spawn(std::future::pending());
        hand.attempts
            .spawn(async move { (job(1), Err(AttemptError::Gone(SidecarError::Unknown(1)))) });
        let one = hand.attempts.join_next().await.unwrap();
        hand.end(one).unwrap();
        let soon = hand.ripe_in(8).unwrap();
        assert!(soon <= LINGER && !soon.is_zero(), "{soon:?}");
        assert_eq!(hand.ripe_in(0), Some(Duration::ZERO), "there are enough");
        tokio::time::sleep(LINGER).await;
        assert_eq!(hand.ripe_in(8), Some(Duration::ZERO), "it waited long enough");
        assert_eq!(hand.take_ended().len(), 1);
        assert_eq!(hand.ripe_in(8), None);
    }
}
