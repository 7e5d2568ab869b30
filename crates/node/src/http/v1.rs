//! `/v1/…`: the figures and stories of the history, and the way to JSON-RPC.

use std::fmt::Display;
use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use secateur_core::{Height, Holds, Part, Report, TxId};
use secateur_store::MAX_PARTS;
use serde::{Deserialize, Serialize};

use super::App;
use super::answers::{self, JSON};
use super::errors::Refusal;
use crate::rpc;
use crate::service::SourceNow;

/// Reports and parts that are listed where nobody says how many.
const USUAL: usize = 100;

pub(super) type Answer = Result<Response, Refusal>;

/// What a path or a query says, or why it says nothing.
pub(super) fn said<T>(found: Result<T, impl Display>) -> Result<T, Refusal> {
    found.map_err(Refusal::bad)
}

pub(super) async fn status(State(app): State<Arc<App>>) -> Answer {
    Ok(answers::json(&app.node.ask(|store| Ok(store.get_prune_status()?)).await?))
}

pub(super) async fn plan(State(app): State<Arc<App>>) -> Answer {
    Ok(answers::json(&app.node.ask(|store| Ok(store.prune_plan()?)).await?))
}

/// The holds and the one that binds, as `secateur holds --json` says them.
#[derive(Debug, Serialize)]
struct HoldsNow {
    holds: Holds,
    binding_hold: Option<String>,
    draining: bool,
}

pub(super) async fn holds(State(app): State<Arc<App>>) -> Answer {
    let status = app.node.ask(|store| Ok(store.get_prune_status()?)).await?;
    Ok(answers::json(&HoldsNow {
        holds: status.holds,
        binding_hold: status.binding_hold,
        draining: status.pressure.draining,
    }))
}

#[derive(Debug, Serialize)]
struct About {
    chain_id: u64,
    version: &'static str,
    layout: &'static str,
    format: u32,
    following: bool,
    source: Option<SourceNow>,
}

pub(super) async fn node(State(app): State<Arc<App>>) -> Answer {
    Ok(answers::json(&About {
        chain_id: app.node.chain_id(),
        version: env!("CARGO_PKG_VERSION"),
        layout: app.node.store.header().layout.name(),
        format: secateur_store::FORMAT_VERSION,
        following: app.node.standing.borrow().following,
        source: app.node.source_now(),
    }))
}

pub(super) async fn policy(State(app): State<Arc<App>>) -> Answer {
    Ok(answers::json(&app.node.ask(|store| Ok(store.policy())).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportsAsked {
    limit: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Reports {
    reports: Vec<Report>,
}

pub(super) async fn reports(
    State(app): State<Arc<App>>,
    asked: Result<Query<ReportsAsked>, QueryRejection>,
) -> Answer {
    let limit = said(asked)?.limit.unwrap_or(USUAL);
    let mut reports = app.node.ask(|store| Ok(store.reports()?)).await?;
    reports.reverse();
    reports.truncate(limit);
    Ok(answers::json(&Reports { reports }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartsAsked {
    #[serde(default)]
    from: Height,
    limit: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Parts {
    parts: Vec<Part>,
    /// Where the next page begins, if there may be one.
    next: Option<Height>,
}

pub(super) async fn parts(
    State(app): State<Arc<App>>,
    asked: Result<Query<PartsAsked>, QueryRejection>,
) -> Answer {
    let Query(PartsAsked { from, limit }) = said(asked)?;
    let limit = limit.unwrap_or(USUAL).min(MAX_PARTS);
    let parts = app.node.ask(move |store| Ok(store.list_parts(from, limit)?)).await?;
    let next = parts.last().filter(|_| parts.len() >= limit);
    let next = next.and_then(|part| part.last.checked_add(1));
    Ok(answers::json(&Parts { parts, next }))
}

pub(super) async fn explain_block(
    State(app): State<Arc<App>>,
    number: Result<Path<String>, PathRejection>,
) -> Answer {
    let Path(number) = said(number)?;
    let number: Height =
        number.parse().map_err(|_| Refusal::bad("a block's number is a whole number"))?;
    Ok(answers::json(&app.node.ask(move |store| Ok(store.explain_block(number)?)).await?))
}

pub(super) async fn explain_tx(
    State(app): State<Arc<App>>,
    hash: Result<Path<String>, PathRejection>,
) -> Answer {
    let id: TxId = said(said(hash)?.0.parse())?;
    Ok(answers::json(&app.node.ask(move |store| Ok(store.explain_tx(id)?)).await?))
}

pub(super) async fn json_rpc(State(app): State<Arc<App>>, body: Bytes) -> Answer {
    match rpc::answer(&app.node, &body).await {
        Some(answer) => Ok(answers::body(StatusCode::OK, JSON, answer)),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}
