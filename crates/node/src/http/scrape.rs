//! `/metrics`: what was counted, and what the history and the follower say of themselves at this
//! moment.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use secateur_core::{Height, PruneStatus, StopReason, exposition};
use tokio::time::{Instant, timeout};

use super::v1::Answer;
use super::{App, answers};
use crate::blobs::DiskSidecars;
use crate::follow::Standing;
use crate::service::{ApiError, Node};

/// A scrape waits no longer for the status; it then tells only what was counted.
const STATUS: Duration = Duration::from_secs(5);
/// How old the number of due blocks may be before it is counted again: so long, and so many times as
/// long as counting took, so that scrapes cost no more than a small part of the time.
const FRESH: Duration = Duration::from_secs(10);
const COUNTING_PAUSES: u32 = 50;
/// A scrape waits so long for that; a plan of very many blocks takes longer, and the next scrape
/// finds its result.
const PATIENCE: Duration = Duration::from_millis(500);

/// How many blocks a prune would cut now. To know that means planning it, so it is asked rarely.
#[derive(Debug, Clone, Default)]
pub(super) struct PastDue {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    blocks: AtomicU64,
    /// When the number grows old.
    fresh_until: Mutex<Option<Instant>>,
    counting: AtomicBool,
}

/// Ends a count, however it ends.
struct Counting(Arc<Shared>);

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.counting.store(false, Ordering::Release);
    }
}

impl PastDue {
    /// The number as it was known at most a few seconds ago; none before it was ever known.
    async fn blocks(&self, node: &Arc<Node>, status: &PruneStatus) -> Option<u64> {
        if !status.need.need_prune {
            return Some(0);
        }
        let shared = &self.shared;
        let fresh = shared.fresh_until.lock().is_some_and(|until| Instant::now() < until);
        if !fresh && !shared.counting.swap(true, Ordering::AcqRel) {
            let counting = Counting(Arc::clone(shared));
            let asked = node.ask(move |store| {
                // Kept until the count ends, not until whoever waits for it has gone.
                let Counting(shared) = &counting;
                let began = Instant::now();
                let plan = store.prune_plan()?;
                shared.blocks.store(plan.totals.blocks, Ordering::Release);
                let pause = FRESH.max(began.elapsed().saturating_mul(COUNTING_PAUSES));
                *shared.fresh_until.lock() = Some(Instant::now() + pause);
                Ok(())
            });
            if let Ok(Err(error)) = timeout(PATIENCE, asked).await {
                tracing::warn!(%error, "blocks that are due cannot be counted");
            }
        }
        let known = shared.fresh_until.lock().is_some();
        known.then(|| shared.blocks.load(Ordering::Acquire))
    }
}

pub(super) async fn scrape(State(app): State<Arc<App>>, headers: HeaderMap) -> Answer {
    let node = &app.node;
    let asked = node.ask(|store| Ok(store.get_prune_status()?));
    let status = match timeout(STATUS, asked).await {
        Ok(Ok(status)) => Some(status),
        Ok(Err(error)) => {
            tracing::warn!(%error, "no status for /metrics");
            None
        }
        Err(_) => None,
    };
    let mut gauges = Gauges::default();
    gauges.flag("history_up", "Whether the history could be asked", status.is_some());
    let poisoned = node.store.poisoned().is_some();
    gauges.flag("history_poisoned", "Whether the store refuses writes", poisoned);
    if let Some(status) = &status {
        history(&mut gauges, status);
        let due = app.past_due.blocks(node, status).await;
        gauges.maybe("history_past_due_blocks", "Blocks that a prune would cut now", due);
    }
    let mut page = String::with_capacity(16 * 1024);
    let summary = match node.blobs {
        Some(_) => match timeout(STATUS, node.ask_blobs(DiskSidecars::summary)).await {
            Ok(Ok(summary)) => Some(summary),
            _ => None,
        },
        None => None,
    };
    follow(&mut gauges, "follow", &node.standing.borrow(), node.store.head());
    let newest = summary.as_ref().and_then(|summary| summary.latest_decided);
    follow(&mut gauges, "beacon", &node.beacon.borrow(), newest);
    let blobs = |page: &mut String| match &node.blobs {
        Some(blobs) => blobs.write(summary.as_ref(), page),
        None => Ok(()),
    };
    let written = node
        .metrics
        .write(&mut page)
        .and_then(|()| blobs(&mut page))
        .and_then(|()| text::encode_registry(&mut page, &gauges.registry))
        .and_then(|()| text::encode_eof(&mut page));
    written.map_err(|error| ApiError::Internal(error.to_string()))?;
    Ok(answer(page, &headers))
}

/// A page of metrics in the format that the client asks for.
pub(crate) fn answer(page: String, headers: &HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let (kind, page) = exposition(page, accept);
    answers::body(StatusCode::OK, kind, page)
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HoldLabels {
    hold: String,
    strength: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BindingLabels {
    hold: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabels {
    class_bytes: u32,
    state: &'static str,
}

/// The gauges of one scrape.
#[derive(Debug, Default)]
struct Gauges {
    registry: Registry,
}

impl Gauges {
    fn set(&mut self, name: &str, help: &str, value: u64) {
        self.registry.register(format!("secateur_{name}"), help, ConstGauge::new(value));
    }

    fn flag(&mut self, name: &str, help: &str, value: bool) {
        self.set(name, help, u64::from(value));
    }

    /// What is not known is not there: 0 would be a lie.
    fn maybe(&mut self, name: &str, help: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.set(name, help, value);
        }
    }

    fn family<L>(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (L, u64)>)
    where
        L: Clone + std::hash::Hash + Eq + EncodeLabelSet + Debug + Send + Sync + 'static,
    {
        let family = Family::<L, Gauge<u64, AtomicU64>>::default();
        for (labels, value) in values {
            family.get_or_create(&labels).set(value);
        }
        self.registry.register(format!("secateur_{name}"), help, family);
    }
}

fn history(to: &mut Gauges, status: &PruneStatus) {
    bytes(to, status);
    heights(to, status);
    pruning(to, status);
    holds(to, status);
}

fn bytes(to: &mut Gauges, status: &PruneStatus) {
    to.set("history_used_bytes", "What triggers and stops decide on", status.used_bytes);
    let help = "Regions that are used or quarantined";
    to.set("history_estimated_kept_bytes", help, status.estimated_kept_bytes);
    to.set("history_target_bytes", "The budget, 0 without one", status.target_bytes);
    to.maybe("history_high_water_bytes", "Over this, draining begins", status.high_water_bytes);
    to.maybe("history_low_water_bytes", "Draining ends here", status.low_water_bytes);
    to.maybe("history_hard_water_bytes", "Over this, it is an emergency", status.hard_water_bytes);
    to.set("history_disk_bytes", "What the file system has given the arena", status.disk_bytes);
    to.maybe("history_free_bytes", "What the file system can still give", status.free_bytes);
    let help = "Whether blocks are refused for want of space";
    to.flag("history_disk_full", help, status.disk_full);
    to.set("history_arena_bytes", "The arena's length", status.arena_bytes);
    to.set("history_quarantined_bytes", "Cut, and not reusable yet", status.quarantined_bytes);
    to.set("history_index_bytes", "What the index takes", status.index_bytes);
    to.set("history_block_bytes", "Mean bytes of a kept block", status.bytes_per_block);
    forecast(to, status);
    let help = "Memory of filters and of the open epoch";
    to.set("history_id_memory_bytes", help, status.ids.memory_bytes);
    let regions = status.classes.iter().flat_map(|class| {
        let labels = |state| ClassLabels { class_bytes: class.class, state };
        [
            (labels("used"), class.used),
            (labels("quarantined"), class.quarantine),
            (labels("free"), class.free),
        ]
    });
    to.family("history_regions", "Regions of the arena by class and state", regions);
}

fn forecast(to: &mut Gauges, status: &PruneStatus) {
    let help = "Blocks that the budget holds at the present rate";
    to.maybe("history_budget_blocks", help, status.budget_blocks);
    let help = "Seconds of chain time that the budget holds at the present rate";
    to.maybe("history_budget_seconds", help, status.budget_seconds);
    let help = "Seconds of chain time until high water at the present rate";
    to.maybe("history_to_high_water_seconds", help, status.seconds_to_high_water);
}

fn heights(to: &mut Gauges, status: &PruneStatus) {
    to.maybe("history_head_block", "The newest block", status.head);
    to.maybe("history_finalized_block", "The newest final block", status.finalized);
    to.maybe("history_export_head_block", "The newest exportable block", status.export_head);
    to.maybe("history_oldest_kept_block", "The oldest block here", status.oldest_kept_block);
    let help = "Everything at or below is gone";
    to.maybe("history_boundary_block", help, status.pruned_before_block);
    let help = "The timestamp of the oldest block here";
    to.maybe("history_oldest_kept_timestamp_seconds", help, status.oldest_kept_timestamp);
    let help = "Every block up to it is in a verified archive part";
    to.maybe("history_archived_block", help, status.archived);
}

fn pruning(to: &mut Gauges, status: &PruneStatus) {
    to.flag("history_pruning_enabled", "Whether the daemon prunes", status.pruning_enabled);
    to.flag("history_prune_running", "Whether a prune is running", status.prune_running);
    to.flag("history_prune_due", "Whether a prune is due", status.need.need_prune);
    to.flag(
        "history_prune_blocked",
        "Whether a hold stops a prune that is due before its first block",
        matches!(status.need.blocked_by, Some(StopReason::Hold { .. })),
    );
    to.flag("history_draining", "Whether the budget is draining", status.pressure.draining);
    to.flag(
        "history_emergency",
        "Whether the budget is over hard water",
        status.pressure.emergency,
    );
    let help = "When the last prune ran, in seconds since 1970";
    to.maybe("history_last_prune_timestamp_seconds", help, status.last_prune_at);
    let help = "Blocks that a tick cuts at most, of such as came last";
    to.maybe("history_blocks_per_tick", help, status.pace.blocks_per_tick);
    let help = "Blocks that are appended between two ticks";
    to.maybe("history_blocks_between_ticks", help, status.pace.blocks_between_ticks);
    let help = "Blocks that retention does not keep and that are still here";
    to.maybe("history_retention_behind_blocks", help, status.retention_behind_blocks);
    to.set("history_journal_entries", "Cuts that wait to be freed", status.journal_entries);
    to.set(
        "history_oldest_pin_age_cuts",
        "How many cuts ago the oldest reader began",
        status.oldest_pin_age,
    );
    to.set("history_queued_transactions", "Queued transactions", status.queued_transactions);
    to.set("history_overruns", "Ticks whose one block was too large", status.overruns);
    to.set("history_id_runs", "Sealed runs of ids", status.ids.runs);
    to.set("history_id_tombstones", "Filters of pruned blocks", status.ids.tombstones);
    let alarms = u64::try_from(status.alarms.len()).unwrap_or(u64::MAX);
    to.set("history_alarms", "What an operator should look at", alarms);
}

fn holds(to: &mut Gauges, status: &PruneStatus) {
    // Consumers are bounded by the store, and with them the labels.
    let labelled = |value: fn(&secateur_core::Hold) -> Option<u64>| {
        let holds = status.holds.iter().filter_map(move |hold| {
            let strength = match hold.strength {
                secateur_core::Strength::Hard => "hard",
                secateur_core::Strength::Soft => "soft",
            };
            Some((HoldLabels { hold: hold.kind.to_string(), strength }, value(hold)?))
        });
        holds.collect::<Vec<_>>()
    };
    let help = "The highest block that a hold lets go; one that is missing lets go none";
    to.family("history_hold_limit_block", help, labelled(|hold| hold.limit));
    let help = "Whether a hold counts; an expired consumer does not";
    to.family("history_hold_active", help, labelled(|hold| Some(u64::from(hold.active))));
    let binding = status.binding_hold.as_deref();
    let binds = status.holds.iter().map(|hold| {
        let name = hold.kind.to_string();
        let binds = u64::from(binding == Some(name.as_str()));
        (BindingLabels { hold: name }, binds)
    });
    to.family("history_hold_binding", "Which hold binds now", binds);
}

/// A follower: of a chain, or of a beacon node's blobs, whose heights are slots.
fn follow(to: &mut Gauges, of: &str, standing: &Standing, head: Option<Height>) {
    let name = |what: &str| format!("{of}_{what}");
    to.flag(&name("enabled"), "Whether a source is followed", standing.following);
    if !standing.following {
        return;
    }
    let now = Instant::now();
    let newest = standing.source_head;
    to.maybe(&name("source_head_block"), "The newest block that the source said it has", newest);
    let help = "Seconds since the source said so";
    let age = standing.head_age(now).map(|age| age.as_secs());
    to.maybe(&name("source_head_age_seconds"), help, age);
    let help =
        "Blocks that the source has and we do not; of a silent source, with those it made since";
    to.maybe(&name("lag_blocks"), help, standing.lag(head, now));
    to.flag(&name("caught_up"), "Whether everything is here", standing.is_caught_up(now));
    to.flag(&name("trouble"), "Whether the source is in trouble", standing.trouble.is_some());
    let help = "The block of the source that cannot be stored";
    to.maybe(&name("refused_block"), help, standing.refused.as_ref().map(|block| block.height));
}
