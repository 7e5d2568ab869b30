//! How far a follower is: a bar on a terminal, lines in the log otherwise.

use std::time::{Duration, Instant};

use secateur_core::Height;

use crate::ui::Progress;
use crate::ui::words::{percent, span};

/// How often a line is logged.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Fewer blocks than this are no catching up.
const WORTH_TELLING: u64 = 64;

/// A follower that catches up.
#[derive(Default)]
pub(super) struct Catching {
    from: Option<Height>,
    began: Option<Instant>,
    line: Option<(Instant, Height)>,
    bar: Option<Progress>,
}

impl Catching {
    /// A leg begins: `next` is the next block, `target` the last one.
    pub(super) fn begin(&mut self, next: Height, target: Height) {
        if self.from.is_some() || target.saturating_sub(next) < WORTH_TELLING {
            return;
        }
        let now = Instant::now();
        (self.from, self.began, self.line) = (Some(next), Some(now), Some((now, next)));
        self.bar = Progress::bar("catching up");
        tracing::info!(next, target, "catching up");
    }

    /// Blocks up to `head` are durable.
    pub(super) fn at(&mut self, head: Height, target: Height) {
        let Some(from) = self.from else { return };
        let (done, all) = ((head + 1).saturating_sub(from), (target + 1).saturating_sub(from));
        if let Some(bar) = &mut self.bar {
            bar.at(done, all);
            return;
        }
        let Some((at, before)) = self.line.filter(|(at, _)| at.elapsed() >= LINE_EVERY) else {
            return;
        };
        self.line = Some((Instant::now(), head));
        let pace = rate(head.saturating_sub(before), at.elapsed());
        let left = left(target.saturating_sub(head), pace);
        let share = percent(done, all);
        tracing::info!(head, target, blocks_per_second = pace, left, "catching up: {share}");
    }

    /// Everything that the source has is here.
    pub(super) fn end(&mut self, head: Height) {
        let (from, began) = (self.from.take(), self.began.take());
        if let Some(bar) = self.bar.take() {
            bar.end();
        }
        if let (Some(from), Some(began)) = (from, began) {
            let blocks = (head + 1).saturating_sub(from);
            let pace = rate(blocks, began.elapsed());
            tracing::info!(head, blocks, blocks_per_second = pace, "caught up");
        }
    }
}

/// Blocks a second.
fn rate(blocks: u64, time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
    blocks.saturating_mul(1000) / millis
}

/// How long the rest takes at this pace.
fn left(blocks: u64, pace: u64) -> String {
    blocks.checked_div(pace).map_or_else(|| "unknown".into(), span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_blocks_a_second_and_without_one_nobody_knows_how_long_it_takes() {
        assert_eq!(rate(50, Duration::from_millis(500)), 100);
        assert_eq!(rate(7, Duration::ZERO), 7000);
        assert_eq!(left(50, 5), "10 s");
        assert_eq!(left(10, 0), "unknown");
    }
}
