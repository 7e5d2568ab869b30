//! Prometheus text over the canister's HTTP gateway.

#![expect(clippy::needless_pass_by_value, reason = "arguments come decoded, by value")]

use candid::{CandidType, Deserialize};
use secateur_core::PruneStatus;
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
        ("GET" | "HEAD", "/metrics") => match metrics() {
            Ok(text) => answer(200, "text/plain; version=0.0.4; charset=utf-8", text),
            Err(error) => answer(500, "text/plain", format!("{error:?}\n")),
        },
        (_, "/metrics") => answer(405, "text/plain", "only GET and HEAD\n".into()),
        _ => answer(404, "text/plain", "there is /metrics, and nothing else\n".into()),
    }
}

/// Every figure as text.
#[ic_cdk::query(name = "metrics")]
fn metrics() -> Result<String, Error> {
    Ok(text(&state::with(state::History::get_prune_status)?, work::failures()))
}

/// A height, a time or a forecast that is not known has no sample: 0 would be one of them.
fn text(status: &PruneStatus, failures: u64) -> String {
    let alarms = status.alarms.len() as u64;
    let flag = |flag: bool| Some(u64::from(flag));
    let gauges: [(&str, &str, Option<u64>); 23] = [
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
        ("pruning_enabled", "The kill switch.", flag(status.pruning_enabled)),
        ("need_prune", "Whether a prune is due.", flag(status.need.need_prune)),
        ("draining", "Whether the budget is draining.", flag(status.pressure.draining)),
        ("emergency", "Whether the budget is over hard water.", flag(status.pressure.emergency)),
        (
            "last_prune_timestamp_seconds",
            "When the last prune ran, in seconds since 1970.",
            status.last_prune_at,
        ),
        ("queued_transactions", "Transactions that are queued.", Some(status.queued_transactions)),
        ("journal_entries", "Cuts that wait to be freed.", Some(status.journal_entries)),
        ("alarms", "Things that an operator should look at.", Some(alarms)),
    ];
    let failed = ("failed_steps", "Failed steps since the last upgrade.", Some(failures));
    let known = gauges.into_iter().chain([failed]);
    let lines = known.filter_map(|(name, help, value)| {
        let value = value?;
        Some(format!(
            "# HELP secateur_canister_{name} {help}\n\
             # TYPE secateur_canister_{name} gauge\n\
             secateur_canister_{name} {value}\n"
        ))
    });
    lines.collect()
}
