//! Trouble that may pass: how long to wait, and when to raise the alarm.

use std::time::{Duration, Instant};

use super::backoff::Backoff;
use super::metrics::Metrics;
use super::observe::{Event, Observer};
use crate::IndexError;

/// Trouble since when, and whether it was told.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    since: Option<Instant>,
    backoff: Option<Backoff>,
    alarmed: bool,
}

impl Trouble {
    /// Tells of trouble; how long to wait before the next attempt is the answer.
    pub(super) fn tell(
        &mut self,
        error: &IndexError,
        alarm_after: Duration,
        metrics: &Metrics,
        observer: &dyn Observer,
    ) -> Duration {
        let since = self.since.get_or_insert_with(Instant::now).elapsed();
        let wait = self.backoff.get_or_insert_with(Backoff::new).wait();
        observer.event(&Event::Retrying { error, wait });
        if since >= alarm_after && !self.alarmed {
            self.alarmed = true;
            metrics.source_down.set(1);
            observer.event(&Event::Alarm { error, since });
        }
        wait
    }

    /// It works again.
    pub(super) fn pass(&mut self, metrics: &Metrics, observer: &dyn Observer) {
        if self.alarmed {
            metrics.source_down.set(0);
            observer.event(&Event::Recovered);
        }
        *self = Self::default();
    }
}
