//! What the HTTP routes of the UTXO service show, before and after its records are open.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use secateur_utxo::Standing;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::open::Refresh;
use crate::http::metrics::Metrics;

/// How old the counts of a scrape may be.
const FRESH: Duration = Duration::from_secs(5);
/// A scrape waits no longer for new ones.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the routes share: the service, once its records are open. Until then they tell that it lives and
/// what it waits for, so that nobody ends it for being patient.
#[derive(Default)]
pub(super) struct Board {
    up: OnceLock<Shown>,
    waits_for: Mutex<Option<String>>,
}

/// A service that is up.
pub(super) struct Shown {
    pub(super) standing: watch::Receiver<Standing>,
    pub(super) registry: Registry,
    pub(super) calls: Arc<Metrics>,
    pub(super) refresh: Refresh,
    pub(super) refreshed: Mutex<Option<Instant>>,
}

impl Board {
    /// Says what is waited for.
    pub(super) fn wait(&self, reason: String) {
        *self.waits_for.lock() = Some(reason);
    }

    /// From now on the service is shown.
    pub(super) fn show(&self, shown: Shown) {
        // It comes up once.
        drop(self.up.set(shown));
    }

    /// Where the service stands; not ready while its records are not open.
    pub(super) fn standing(&self) -> Standing {
        match self.up.get() {
            Some(shown) => shown.standing.borrow().clone(),
            None => Standing { not_ready: Some(self.starting()), ..Standing::default() },
        }
    }

    /// Why nothing is shown yet.
    pub(super) fn starting(&self) -> String {
        match &*self.waits_for.lock() {
            Some(reason) => format!("the UTXO records are waited for: {reason}"),
            None => "the UTXO records are being opened".into(),
        }
    }

    /// A page of metrics in the format of `OpenMetrics`; nothing while the records are not open.
    pub(super) async fn page(&self) -> Option<Result<String, std::fmt::Error>> {
        let shown = self.up.get()?;
        let stale = {
            let mut refreshed = shown.refreshed.lock();
            let stale = refreshed.is_none_or(|at| at.elapsed() >= FRESH);
            if stale {
                // Whoever scrapes meanwhile is told what is known.
                *refreshed = Some(Instant::now());
            }
            stale
        };
        if stale && timeout(PATIENCE, (shown.refresh)()).await.is_err() {
            tracing::debug!("counting UTXO records takes long; the last counts are told");
        }
        let mut body = String::new();
        let written =
            shown.calls.write(&mut body).and_then(|()| text::encode(&mut body, &shown.registry));
        Some(written.map(|()| body))
    }
}
