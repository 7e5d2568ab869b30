//! What a pruner is told, and the heights that follow from it.

use std::time::Duration;

use secateur_core::Height;
use serde::{Deserialize, Serialize};

use crate::UtxoError;
use crate::rule::Rules;

/// What sets a run off, and how far a persister is by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trigger {
    /// The run's height.
    pub height: Height,
    /// What a persister last reported; nothing if there is none.
    pub persisted: Option<Height>,
}

/// Up to which height records go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SafeMode {
    /// Not beyond what a persister has written.
    #[default]
    Persisted,
    /// Not further beyond it than the retention.
    PersistedPlusRetention,
    /// The run's height, whatever a persister says.
    Trigger,
}

/// No run takes longer.
const LONGEST_JOB: Duration = Duration::from_hours(7 * 24);

/// How a pruner works. The numbers of the rule itself are the store's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Blocks after which an unmined transaction's parents are preserved; half the retention if unset.
    pub unmined_tx_retention: Option<Height>,
    /// For how many blocks they are preserved.
    pub parent_preservation_blocks: Height,
    /// Records in one chunk.
    pub chunk_size: usize,
    /// Chunks at the same time; with 1 every chunk is a step of its own.
    pub chunk_group_limit: usize,
    /// Whether every spender must be mined and deep.
    pub defensive: bool,
    /// Spenders that are read at a time in defensive mode.
    pub defensive_batch_read: usize,
    /// Whether records are deleted at all.
    pub delete: bool,
    /// Whether records with external files go even if none of the files that must be there is there.
    pub missing_files_are_gone: bool,
    /// Up to which height.
    pub safe: SafeMode,
    /// How long a run may take.
    pub job_timeout: Duration,
    /// How often a run tells how far it is.
    pub progress_interval: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            unmined_tx_retention: None,
            parent_preservation_blocks: 1440,
            chunk_size: 1000,
            chunk_group_limit: 10,
            defensive: false,
            defensive_batch_read: 10_000,
            delete: true,
            missing_files_are_gone: false,
            safe: SafeMode::Persisted,
            job_timeout: Duration::from_mins(10),
            progress_interval: Duration::from_secs(30),
        }
    }
}

impl Settings {
    /// Refuses numbers that cannot work.
    pub fn check(&self) -> Result<(), UtxoError> {
        let range = |name: &str, value: usize, most: usize| {
            if (1..=most).contains(&value) {
                return Ok(());
            }
            Err(UtxoError::Setting(format!("{name} is {value}; it is between 1 and {most}")))
        };
        range("chunk_size", self.chunk_size, 100_000)?;
        range("chunk_group_limit", self.chunk_group_limit, 64)?;
        range("defensive_batch_read", self.defensive_batch_read, 100_000)?;
        if self.job_timeout.is_zero() || self.job_timeout > LONGEST_JOB {
            return Err(UtxoError::Setting(format!(
                "job_timeout is {} s; a run has between one second and a week",
                self.job_timeout.as_secs()
            )));
        }
        Ok(())
    }

    /// How much of a run's time goes by while files answer to nothing: half a minute of ten. A question takes some
    /// time also where a run has little.
    pub(super) fn files_patience(&self) -> Duration {
        (self.job_timeout / 20).max(Duration::from_secs(1))
    }

    /// Unmined since this height or longer is old.
    pub(crate) fn cutoff(&self, rules: &Rules, height: Height) -> Option<Height> {
        let waits = self.unmined_tx_retention.unwrap_or(rules.block_height_retention / 2);
        height.checked_sub(waits)
    }

    /// Up to which height records may go in a run.
    pub fn safe_height(&self, rules: &Rules, trigger: Trigger) -> Height {
        let limit = match (self.safe, trigger.persisted) {
            (SafeMode::Trigger, _) | (_, None) => trigger.height,
            (SafeMode::Persisted, Some(persisted)) => persisted,
            (SafeMode::PersistedPlusRetention, Some(persisted)) => {
                persisted.saturating_add(rules.block_height_retention)
            }
        };
        trigger.height.min(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_the_head_at_100_and_95_persisted_records_go_up_to_95() {
        let rules = Rules { block_height_retention: 3, ..Rules::default() };
        let at = |safe, persisted| {
            let settings = Settings { safe, ..Settings::default() };
            settings.safe_height(&rules, Trigger { height: 100, persisted })
        };
        assert_eq!(at(SafeMode::Persisted, Some(95)), 95);
        assert_eq!(at(SafeMode::Persisted, Some(101)), 100);
        assert_eq!(at(SafeMode::PersistedPlusRetention, Some(95)), 98);
        assert_eq!(at(SafeMode::PersistedPlusRetention, Some(99)), 100);
        assert_eq!(at(SafeMode::Trigger, Some(95)), 100);
        for mode in [SafeMode::Persisted, SafeMode::PersistedPlusRetention, SafeMode::Trigger] {
            assert_eq!(at(mode, None), 100);
        }
    }

    #[test]
    fn numbers_that_cannot_work_are_refused() {
        assert!(Settings::default().check().is_ok());
        for wrong in [
            Settings { chunk_size: 0, ..Settings::default() },
            Settings { chunk_group_limit: 1000, ..Settings::default() },
            Settings { defensive_batch_read: 0, ..Settings::default() },
            Settings { job_timeout: Duration::ZERO, ..Settings::default() },
            Settings { job_timeout: Duration::MAX, ..Settings::default() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
