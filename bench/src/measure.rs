//! Turns: one contestant appends and prunes for a while, and what it took is counted.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

use crate::contestants::Contestant;
use crate::workload::{Feed, Pool};

/// What one or more turns took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turn {
    /// Groups appended.
    pub groups: u64,
    /// Payload bytes appended.
    pub bytes: u64,
    /// Time from the first append until everything was durable and pruned.
    pub wall: Duration,
    /// What all threads of this process were on a processor meanwhile.
    pub cpu: Duration,
    /// Bytes that the kernel counted as written to the disk by this process.
    pub written: u64,
}

impl Turn {
    /// Lets a contestant take the whole pool, or what it can take within a time.
    pub fn take(
        contestant: &mut dyn Contestant,
        feed: &mut Feed,
        pool: &mut Pool,
        at_most: Option<Duration>,
    ) -> Result<Self> {
        feed.prepare(pool);
        let mut turn = Self::default();
        let mut groups = 0;
        let (written, cpu, began) = (write_bytes()?, process_cpu(), Instant::now());
        for group in pool.groups() {
            contestant.append(group)?;
            contestant.prune()?;
            groups += 1;
            turn.bytes += group.iter().map(|block| block.payloads.total_len()).sum::<u64>();
            if at_most.is_some_and(|most| began.elapsed() >= most) {
                break;
            }
        }
        contestant.finish()?;
        turn.wall = began.elapsed();
        turn.cpu = process_cpu().saturating_sub(cpu);
        turn.written = write_bytes()?.saturating_sub(written);
        turn.groups = groups as u64;
        feed.appended(pool, groups);
        Ok(turn)
    }

    /// Adds another turn's figures.
    pub fn add(&mut self, other: &Self) {
        self.groups += other.groups;
        self.bytes += other.bytes;
        self.wall += other.wall;
        self.cpu += other.cpu;
        self.written += other.written;
    }

    /// Payload bytes a second.
    pub fn throughput(&self) -> f64 {
        share(float(self.bytes), self.wall.as_secs_f64())
    }

    /// Bytes written to the disk for each payload byte.
    pub fn write_amp(&self) -> f64 {
        share(float(self.written), float(self.bytes))
    }

    /// Payload bytes in 10⁹.
    pub fn gigabytes(&self) -> f64 {
        float(self.bytes) / 1e9
    }

    /// Processors in use on average.
    pub fn cores(&self) -> f64 {
        share(self.cpu.as_secs_f64(), self.wall.as_secs_f64())
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

/// Memory that this process holds now (`VmRSS`), in bytes.
pub fn resident_bytes() -> Result<u64> {
    memory("VmRSS:")
}

/// The most memory that this process ever held (`VmHWM`), in bytes.
pub fn peak_bytes() -> Result<u64> {
    memory("VmHWM:")
}

fn memory(field: &str) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB")?.parse().ok())
        .map(|kib: u64| kib << 10)
        .with_context(|| format!("/proc/self/status has no {field}"))
}

/// What this thread was on a processor.
pub fn thread_cpu() -> Duration {
    cpu(ClockId::ThreadCPUTime)
}

fn process_cpu() -> Duration {
    cpu(ClockId::ProcessCPUTime)
}

fn cpu(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
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
