//! Prometheus text over the canister's HTTP gateway.

#![expect(clippy::needless_pass_by_value, reason = "arguments come decoded, by value")]

use candid::{CandidType, Deserialize};
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
    let status = state::with(state::History::get_prune_status)?;
    let height = |height: Option<u64>| height.unwrap_or(0);
    let gauges: [(&str, &str, u64); 16] = [
        ("head_height", "The newest block.", height(status.head)),
        ("pruned_before_height", "The boundary, inclusive.", height(status.pruned_before_block)),
        ("oldest_kept_height", "The oldest block that is here.", height(status.oldest_kept_block)),
        ("used_bytes", "Bytes that triggers decide on.", status.used_bytes),
        (
            "kept_bytes",
            "Bytes of regions that are used or quarantined.",
            status.estimated_kept_bytes,
        ),
        ("quarantined_bytes", "Bytes of quarantined regions.", status.quarantined_bytes),
        ("arena_bytes", "The arena's end.", status.arena_bytes),
        ("arena_given_bytes", "Stable memory of the arena.", status.disk_bytes),
        ("index_bytes", "Stable memory of the tables.", status.index_bytes),
        ("target_bytes", "The budget, 0 without one.", status.target_bytes),
        ("pruning_enabled", "The kill switch.", u64::from(status.pruning_enabled)),
        ("need_prune", "Whether a prune is due.", u64::from(status.need.need_prune)),
        ("queued_transactions", "Transactions that are queued.", status.queued_transactions),
        ("journal_entries", "Cuts that wait to be freed.", status.journal_entries),
        ("alarms", "Things that an operator should look at.", status.alarms.len() as u64),
        ("failed_steps", "Failed steps since the last upgrade.", work::failures()),
    ];
    let lines = gauges.map(|(name, help, value)| {
        format!(
            "# HELP secateur_canister_{name} {help}\n\
             # TYPE secateur_canister_{name} gauge\n\
             secateur_canister_{name} {value}\n"
        )
    });
    Ok(lines.concat())
}
