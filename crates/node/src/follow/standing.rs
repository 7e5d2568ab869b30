//! Where a follower stands, as it is when it is read. A source that fell silent changes nothing by
//! itself, so what depends on its silence is computed from the clock and not kept.

use std::time::Duration;

use secateur_core::{BlockHash, Height};
use tokio::time::Instant;

/// Polls that a source may miss beside its patience before what it said last no longer counts.
const MISSED_POLLS: u32 = 3;

/// Where a follower stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Whether a chain is followed at all.
    pub(crate) following: bool,
    /// The source, without anything secret of its address.
    pub(crate) source: Option<String>,
    /// The first block that this run ingested.
    pub(crate) from: Option<Height>,
    /// The source's newest block, as far as it said.
    pub(crate) source_head: Option<Height>,
    /// Whether everything was here that the source had when it was asked last.
    pub(crate) caught_up: bool,
    /// Whether the source ends below what is final here, so that nothing new can come from it.
    pub(crate) source_is_behind: bool,
    /// What is wrong with the source at the moment.
    pub(crate) trouble: Option<String>,
    /// The block that cannot be stored, or the header where two chains part that cannot be believed.
    pub(crate) refused: Option<RefusedBlock>,
    /// When the source last answered anything.
    pub(crate) heard: Option<Instant>,
    /// When it last said which its newest block is.
    pub(crate) asked: Option<Instant>,
    /// How old that may be.
    pub(crate) patience: Duration,
    /// Milliseconds from one of its blocks to the next, where two were seen.
    pub(crate) block_millis: Option<u64>,
}

/// What of a block was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusedPart {
    /// The block as a whole.
    Whole,
    /// Its header, while it was looked for where the source's chain and ours part.
    Header,
}

/// A block of the source that cannot be stored or believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefusedBlock {
    pub(crate) part: RefusedPart,
    pub(crate) height: Height,
    /// As the source states it, if it states one.
    pub(crate) hash: Option<BlockHash>,
    /// What the source sent for it, receipts and all.
    pub(crate) bytes: u64,
    pub(crate) reason: String,
}

impl Standing {
    /// How old what a source said may be: it is asked every `poll` and may take `timeout` to answer.
    pub(crate) fn patience(poll: Duration, timeout: Duration) -> Duration {
        poll.saturating_mul(MISSED_POLLS).saturating_add(timeout)
    }

    /// Whether everything that the source has is here, as far as it can be known now. A refused block
    /// or header is not, whatever the heights say.
    pub(crate) fn is_caught_up(&self, now: Instant) -> bool {
        self.caught_up && !self.source_is_behind && self.refused.is_none() && !self.is_stale(now)
    }

    /// Whether the source's newest block has not been known for too long.
    pub(crate) fn is_stale(&self, now: Instant) -> bool {
        self.head_age(now).is_some_and(|age| age > self.patience)
    }

    /// How long ago the source said which its newest block is.
    pub(crate) fn head_age(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.asked?))
    }

    /// For how long the source has not answered anything, if that is too long. While blocks come in
    /// it is not asked for its newest one, and answers all the same.
    pub(crate) fn silence(&self, now: Instant) -> Option<Duration> {
        let silence = now.saturating_duration_since(self.heard?);
        (silence > self.patience).then_some(silence)
    }

    /// Blocks that the source has and we have not. Where it fell silent, those that it has made since
    /// at its pace are counted; none is said where the number is not known.
    pub(crate) fn lag(&self, head: Option<Height>, now: Instant) -> Option<u64> {
        if self.source_is_behind {
            return None;
        }
        let here = head.map_or(0, |head| head.saturating_add(1));
        let known = self.source_head?.saturating_add(1).saturating_sub(here);
        if !self.is_stale(now) {
            return Some(known);
        }
        let age = u64::try_from(self.head_age(now)?.as_millis()).unwrap_or(u64::MAX);
        age.checked_div(self.block_millis?).map(|since| known.saturating_add(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(33);

    fn caught_up(now: Instant) -> Standing {
        Standing {
            following: true,
            source_head: Some(9),
            caught_up: true,
            heard: Some(now),
            asked: Some(now),
            patience: PATIENCE,
            block_millis: Some(12_000),
            ..Standing::default()
        }
    }

    /// A dead source was "caught up" with a lag of 0 for as long as it was dead: both were kept from
    /// its last answer. They are computed from that answer's age now.
    #[test]
    fn a_source_that_fell_silent_is_not_caught_up_and_its_lag_grows() {
        let start = Instant::now();
        let standing = caught_up(start);
        let after = |seconds| start + Duration::from_secs(seconds);
        for (seconds, is_caught_up, lag) in
            [(0, true, 0), (33, true, 0), (34, false, 2), (120, false, 10), (1_200, false, 100)]
        {
            let now = after(seconds);
            assert_eq!(standing.is_caught_up(now), is_caught_up, "after {seconds} s");
            assert_eq!(standing.lag(Some(9), now), Some(lag), "after {seconds} s");
            assert_eq!(standing.silence(now).is_none(), is_caught_up, "after {seconds} s");
        }
        assert_eq!(standing.lag(Some(4), after(120)), Some(15), "what was missing before counts");
        let unknown = Standing { block_millis: None, ..standing };
        assert_eq!(unknown.lag(Some(9), after(20)), Some(0));
        assert_eq!(unknown.lag(Some(9), after(34)), None, "0 would be a lie");
    }

    #[test]
    fn a_source_that_ends_below_what_is_final_here_is_not_caught_up_and_its_lag_is_not_known() {
        let now = Instant::now();
        let behind = Standing { source_is_behind: true, ..caught_up(now) };
        assert!(!behind.is_caught_up(now));
        assert_eq!(behind.lag(Some(90), now), None);
    }

    #[test]
    fn a_source_that_sends_blocks_is_not_silent_though_its_head_is_old() {
        let start = Instant::now();
        let now = start + PATIENCE * 2;
        let standing = Standing { caught_up: false, heard: Some(now), ..caught_up(start) };
        assert_eq!(standing.silence(now), None);
        assert!(!standing.is_caught_up(now));
    }
}
