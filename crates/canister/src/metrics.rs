//! Prometheus text over the canister's HTTP gateway.

#![expect(clippy::needless_pass_by_value, reason = "arguments come decoded, by value")]

use std::cell::Cell;

use candid::{CandidType, Deserialize};
use secateur_core::{PruneStatus, Totals};
use secateur_store::StoreError;
use serde_bytes::ByteBuf;

use crate::types::Error;
use crate::{state, work};

/// A request as the gateway hands it on. What else it has is not looked at.
#[derive(Debug, CandidType, Deserialize)]
pub struct HttpRequest {
    /// The verb.
    pub method: String,
    /// Path and query.
    pub url: String,
}

/// An answer to the gateway.
#[derive(Debug, CandidType, Deserialize)]
pub struct HttpResponse {
    /// As HTTP has it.
    pub status_code: u16,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The text.
    pub body: ByteBuf,
}

fn answer(status_code: u16, kind: &str, body: String) -> HttpResponse {
    let headers = vec![("content-type".into(), kind.into())];
    HttpResponse { status_code, headers, body: ByteBuf::from(body) }
}

/// `/metrics`, and nothing else.
#[ic_cdk::query]
fn http_request(request: HttpRequest) -> HttpResponse {
    let path = request.url.split(['?', '#']).next().unwrap_or_default();
    match (request.method.as_str(), path) {
        ("GET" | "HEAD", "/metrics") => match page() {
            Ok(text) => answer(200, "text/plain; version=0.0.4; charset=utf-8", text),
            Err(error) => answer(500, "text/plain", format!("{error}\n")),
        },
        (_, "/metrics") => answer(405, "text/plain", "only GET and HEAD\n".into()),
        _ => answer(404, "text/plain", "there is /metrics, and nothing else\n".into()),
    }
}

/// Every figure as text.
#[ic_cdk::query(name = "metrics")]
fn metrics() -> Result<String, Error> {
    Ok(page()?)
}

fn page() -> Result<String, StoreError> {
    Ok(text(&state::with(state::History::get_prune_status)?, work::failures(), &CUTS.get()))
}

/// A height, a time or a forecast that is not known has no sample: 0 would be one of them. What is
/// counted is of a metric of the same name and meaning as a node's, where it has one.
fn text(status: &PruneStatus, failures: u64, cuts: &Cuts) -> String {
    let failed = ("failed_steps", "Failed steps since the last upgrade.", Some(failures));
    let known = kept(status).into_iter().chain(pruning(status)).chain([failed]);
    let lines = known.filter_map(|(name, help, value)| Some(sample(name, help, "gauge", value?)));
    let mut page: String = lines.collect();
    page.push_str(&cuts.text());
    page
}

/// Name, meaning and value.
type Gauge = (&'static str, &'static str, Option<u64>);

/// What is kept, and what it takes.
fn kept(status: &PruneStatus) -> [Gauge; 15] {
    [
        ("head_height", "The newest block.", status.head),
        ("pruned_before_height", "The boundary, inclusive.", status.pruned_before_block),
        ("oldest_kept_height", "The oldest block that is here.", status.oldest_kept_block),
        (
            "oldest_kept_timestamp_seconds",
            "The timestamp of the oldest block that is here.",
            status.oldest_kept_timestamp,
        ),
        ("used_bytes", "Bytes that triggers decide on.", Some(status.used_bytes)),
        (
            "estimated_kept_bytes",
            "Bytes of regions that are used or quarantined.",
            Some(status.estimated_kept_bytes),
        ),
        ("quarantined_bytes", "Bytes of quarantined regions.", Some(status.quarantined_bytes)),
        ("arena_bytes", "The arena's end.", Some(status.arena_bytes)),
        ("arena_given_bytes", "Stable memory of the arena.", Some(status.disk_bytes)),
        ("index_bytes", "Stable memory of the tables.", Some(status.index_bytes)),
        ("target_bytes", "The budget, 0 without one.", Some(status.target_bytes)),
        ("block_bytes", "Mean bytes of a kept block.", Some(status.bytes_per_block)),
        (
            "budget_blocks",
            "Blocks that the budget holds at the present rate.",
            status.budget_blocks,
        ),
        (
            "budget_seconds",
            "Seconds of chain time that the budget holds at the present rate.",
            status.budget_seconds,
        ),
        (
            "to_high_water_seconds",
            "Seconds of chain time until high water at the present rate.",
            status.seconds_to_high_water,
        ),
    ]
}

fn pruning(status: &PruneStatus) -> [Gauge; 11] {
    let alarms = status.alarms.len() as u64;
    let flag = |flag: bool| Some(u64::from(flag));
    [
        ("pruning_enabled", "The kill switch.", flag(status.pruning_enabled)),
        ("need_prune", "Whether a prune is due.", flag(status.need.need_prune)),
        ("draining", "Whether the budget is draining.", flag(status.pressure.draining)),
        ("emergency", "Whether the budget is over hard water.", flag(status.pressure.emergency)),
        (
            "last_prune_timestamp_seconds",
            "When the last prune ran, in seconds since 1970.",
            status.last_prune_at,
        ),
        (
            "blocks_per_tick",
            "Blocks that a tick cuts at most, of such as came last.",
            status.pace.blocks_per_tick,
        ),
        (
            "blocks_between_ticks",
            "Blocks that are appended between two ticks.",
            status.pace.blocks_between_ticks,
        ),
        (
            "retention_behind_blocks",
            "Blocks that retention does not keep and that are still here.",
            status.retention_behind_blocks,
        ),
        ("queued_transactions", "Transactions that are queued.", Some(status.queued_transactions)),
        ("journal_entries", "Cuts that wait to be freed.", Some(status.journal_entries)),
        ("alarms", "Things that an operator should look at.", Some(alarms)),
    ]
}

fn sample(name: &str, help: &str, kind: &str, value: u64) -> String {
    format!(
        "# HELP secateur_canister_{name} {help}\n\
         # TYPE secateur_canister_{name} {kind}\n\
         secateur_canister_{name} {value}\n"
    )
}

/// Instructions by which prunes are sorted: a message has 40,000 million.
const BUCKETS: [u64; 6] =
    [10_000_000, 100_000_000, 500_000_000, 2_000_000_000, 10_000_000_000, 40_000_000_000];

/// What prunes cut since the last upgrade, whoever asked for them. A message has no clock that moves,
/// so instructions stand for time.
#[derive(Debug, Clone, Copy, Default)]
struct Cuts {
    blocks: u64,
    bytes: u64,
    prunes: u64,
    instructions: u64,
    /// Prunes of at most so many instructions.
    buckets: [u64; BUCKETS.len()],
}

thread_local! {
    static CUTS: Cell<Cuts> = const {
        Cell::new(Cuts { blocks: 0, bytes: 0, prunes: 0, instructions: 0, buckets: [0; BUCKETS.len()] })
    };
}

impl Cuts {
    fn add(&mut self, totals: &Totals, instructions: u64) {
        self.blocks = self.blocks.saturating_add(totals.blocks);
        self.bytes = self.bytes.saturating_add(totals.bytes);
        self.prunes += 1;
        self.instructions = self.instructions.saturating_add(instructions);
        for (count, most) in self.buckets.iter_mut().zip(BUCKETS) {
            *count += u64::from(instructions <= most);
        }
    }

    fn text(&self) -> String {
        let help = "Blocks that were cut since the last upgrade.";
        let blocks = sample("cut_blocks_total", help, "counter", self.blocks);
        let help = "Bytes of regions that they released.";
        let bytes = sample("cut_bytes_total", help, "counter", self.bytes);
        let name = "secateur_canister_prune_instructions";
        let bucket = |(count, most)| format!("{name}_bucket{{le=\"{most}\"}} {count}\n");
        let buckets: String = self.buckets.iter().zip(BUCKETS).map(bucket).collect();
        let Self { prunes, instructions, .. } = self;
        format!(
            "{blocks}{bytes}\
             # HELP {name} Instructions of a prune that cut something.\n\
             # TYPE {name} histogram\n\
             {buckets}{name}_bucket{{le=\"+Inf\"}} {prunes}\n\
             {name}_sum {instructions}\n\
             {name}_count {prunes}\n"
        )
    }
}

/// Prunes, and counts what was cut and what it cost.
pub(crate) fn counted<T>(
    prune: impl FnOnce() -> Result<T, StoreError>,
    totals: impl FnOnce(&T) -> Option<Totals>,
) -> Result<T, StoreError> {
    let began = ic_cdk::api::performance_counter(0);
    let pruned = prune()?;
    let instructions = ic_cdk::api::performance_counter(0).saturating_sub(began);
    if let Some(totals) = totals(&pruned).filter(|totals| totals.blocks > 0) {
        let mut cuts = CUTS.get();
        cuts.add(&totals, instructions);
        CUTS.set(cuts);
    }
    Ok(pruned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_counters_and_a_histogram_whose_buckets_add_up() {
        let mut cuts = Cuts::default();
        let totals = Totals { blocks: 3, bytes: 400, ..Totals::default() };
        cuts.add(&totals, 10_000_000);
        cuts.add(&totals, 600_000_000);
        let page = cuts.text();
        for line in [
            "# TYPE secateur_canister_cut_blocks_total counter",
            "secateur_canister_cut_blocks_total 6",
            "secateur_canister_cut_bytes_total 800",
            "# TYPE secateur_canister_prune_instructions histogram",
            "secateur_canister_prune_instructions_bucket{le=\"10000000\"} 1",
            "secateur_canister_prune_instructions_bucket{le=\"500000000\"} 1",
            "secateur_canister_prune_instructions_bucket{le=\"2000000000\"} 2",
            "secateur_canister_prune_instructions_bucket{le=\"+Inf\"} 2",
            "secateur_canister_prune_instructions_sum 610000000",
            "secateur_canister_prune_instructions_count 2",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}: {page}");
        }
    }
}
