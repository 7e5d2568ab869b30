//! Turns: one contestant appends and prunes for a while, and what it took is counted.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

use crate::contestants::Contestant;
use crate::workload::{Feed, Pool};

/// What one or more turns took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turn {
    /// Payload bytes appended.
    pub bytes: u64,
    /// Time in appends.
    pub append: Duration,
    /// Time in prunes.
    pub prune: Duration,
    /// The part of both that this thread was on a processor.
    pub cpu: Duration,
    /// Bytes that the kernel counted as written to the disk by this process.
    pub written: u64,
}

impl Turn {
    /// Lets a contestant take so many groups.
    pub fn take(
        contestant: &mut dyn Contestant,
        feed: &mut Feed,
        pool: &mut Pool,
        groups: u64,
    ) -> Result<Self> {
        let mut turn = Self::default();
        let before = write_bytes()?;
        for _ in 0..groups {
            let group = feed.next_group(pool);
            let (cpu, began) = (thread_cpu(), Instant::now());
            contestant.append(group)?;
            let appended = began.elapsed();
            contestant.prune()?;
            turn.prune += began.elapsed().saturating_sub(appended);
            turn.append += appended;
            turn.cpu += thread_cpu().saturating_sub(cpu);
            turn.bytes += group.iter().map(|block| block.payloads.total_len()).sum::<u64>();
        }
        turn.written = write_bytes()?.saturating_sub(before);
        Ok(turn)
    }

    /// Adds another turn's figures.
    pub fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.append += other.append;
        self.prune += other.prune;
        self.cpu += other.cpu;
        self.written += other.written;
    }

    /// All its time.
    pub fn wall(&self) -> Duration {
        self.append + self.prune
    }

    /// Payload bytes a second.
    pub fn throughput(&self) -> f64 {
        share(float(self.bytes), self.wall().as_secs_f64())
    }

    /// Bytes written to the disk for each payload byte.
    pub fn write_amp(&self) -> f64 {
        share(float(self.written), float(self.bytes))
    }

    /// The share of its time on a processor; the rest it waited, for the disk.
    pub fn cpu_share(&self) -> f64 {
        share(self.cpu.as_secs_f64(), self.wall().as_secs_f64())
    }
}

/// A ratio that is 0 when there is nothing to divide by.
pub fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The middle value; the mean of the two middle ones of an even number.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let at = |i: usize| sorted.get(i).copied().unwrap_or(0.0);
    if sorted.len() % 2 == 1 {
        at(middle)
    } else {
        f64::midpoint(at(middle.wrapping_sub(1)), at(middle))
    }
}

/// A count as a number to calculate with.
#[allow(clippy::cast_precision_loss, reason = "counts of bytes stay far below 2^53")]
pub fn float(count: u64) -> f64 {
    count as f64
}

fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

fn write_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/io").context("reading /proc/self/io")?;
    text.lines()
        .find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok())
        .context("/proc/self/io has no write_bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middles() {
        for (values, middle) in
            [(vec![], 0.0), (vec![3.0], 3.0), (vec![9.0, 1.0, 2.0], 2.0), (vec![4.0, 1.0], 2.5)]
        {
            assert!((median(&values) - middle).abs() < 1e-9, "{values:?}");
        }
    }
}
