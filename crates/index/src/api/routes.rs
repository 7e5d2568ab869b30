//! The routes themselves: read what was asked, ask the index, answer.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use prometheus_client::encoding::text;
use secateur_core::{TxId, exposition};
use serde::Serialize;

use super::App;
use super::answers::{Answer, Page, Refusal, Span, body, json};
use super::coverage::{Coverage, Reach, Wanted};
use super::openapi;
use super::params::{self, BlocksAsked, HistoryAsked, LogsAsked, Onwards, Paging};
use super::views::{BlockView, DayView, GapView, LogView, MetaView, PartView, TxView};
use crate::sink::{BlockKey, LogQuery, Place};
use crate::{GapRow, IndexReader};

/// Whether the index can be read is answered in this time.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

type Asked<T> = Result<Query<T>, QueryRejection>;
type Named = Result<Path<String>, PathRejection>;
type Shared<R> = State<Arc<App<R>>>;

fn asked<T>(query: Asked<T>) -> Result<T, Refusal> {
    query.map(|Query(asked)| asked).map_err(|rejection| Refusal::bad(rejection.body_text()))
}

fn named(path: Named) -> Result<String, Refusal> {
    path.map(|Path(name)| name).map_err(|rejection| Refusal::bad(rejection.body_text()))
}

#[expect(clippy::unnecessary_wraps, reason = "what a route answers")]
fn ok<T: Serialize>(value: &T) -> Answer {
    Ok(json(StatusCode::OK, value))
}

/// A page of rows. It goes on behind its last row, if it is full.
fn page<T, V: From<T> + Serialize>(
    rows: Vec<T>,
    limit: usize,
    next: impl Fn(&T) -> Option<String>,
) -> Answer {
    let next = rows.last().filter(|_| rows.len() >= limit).and_then(next);
    ok(&Page { items: rows.into_iter().map(V::from).collect(), next, covered: None })
}

/// A page of rows that are all there is of some blocks, as two looks at what is covered agree: one
/// before the rows were read, and one after.
fn complete<T, V: From<T> + Serialize>(
    rows: Vec<T>,
    reach: &Reach,
    looks: [&Coverage; 2],
) -> Answer {
    if let Some(span) = reach.span {
        looks.into_iter().try_for_each(|look| look.check(span))?;
    }
    let next = reach.next.map(|Place { block_number, index }| format!("{block_number}-{index}"));
    ok(&Page { items: rows.into_iter().map(V::from).collect(), next, covered: reach.span })
}

pub(super) async fn live() -> Response {
    json(
        StatusCode::OK,
        &serde_json::json!({ "alive": true, "version": env!("CARGO_PKG_VERSION") }),
    )
}

pub(super) async fn no_route() -> Refusal {
    Refusal::not_found("there is nothing here; docs/index.md lists what there is")
}

pub(super) async fn ready<R: IndexReader>(State(app): Shared<R>) -> Response {
    let health = app.options.worker.as_ref().map(|worker| worker.health());
    let mut reasons = health.map_or_else(Vec::new, |health| health.reasons);
    match tokio::time::timeout(READ_TIMEOUT, app.index.meta()).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            tracing::error!(%error, "the index cannot be read");
            reasons.push("the index cannot be read; the worker's log says why".into());
        }
        Err(_) => {
            reasons.push(format!("the index did not answer in {} s", READ_TIMEOUT.as_secs()));
        }
    }
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &serde_json::json!({ "ready": ready, "reasons": reasons }))
}

pub(super) async fn openapi() -> Response {
    json(StatusCode::OK, &openapi::document())
}

pub(super) async fn metrics<R: IndexReader>(State(app): Shared<R>, headers: HeaderMap) -> Answer {
    let mut written = String::new();
    if let Some(registry) = &app.options.registry {
        text::encode(&mut written, registry)
            .map_err(|_| Refusal::not_found("the metrics cannot be written"))?;
    }
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let (kind, page) = exposition(written, accept);
    Ok(body(StatusCode::OK, kind, page))
}

pub(super) async fn meta<R: IndexReader>(State(app): Shared<R>) -> Answer {
    let health = app.options.worker.as_ref().map(|worker| worker.health());
    ok(&MetaView::of(app.index.meta().await?, health.as_ref()))
}

pub(super) async fn blocks<R: IndexReader>(
    State(app): Shared<R>,
    query: Asked<BlocksAsked>,
) -> Answer {
    let BlocksAsked { before, from_block, limit } = asked(query)?;
    let limit = params::limit(limit)?;
    let read = |text: &str| params::number(text).ok_or_else(|| Refusal::bad("before is a number"));
    let before = before.as_deref().map(read).transpose()?;
    let place = before.map(|block_number| Place { block_number, index: 0 });
    let wanted = Wanted { from_block, to_block: None, before: place };
    let cover = Coverage::of_blocks(&app.index, &wanted).await?;
    cover.check_asked(&wanted)?;
    let start = before.unwrap_or(u64::MAX).min(cover.top().saturating_add(1));
    let mut rows = app.index.blocks(Some(start), limit).await?;
    // Each row says which block it is: a page is all there is as long as they follow on each other.
    let first = from_block.unwrap_or(0);
    let mut next = start;
    rows.retain(|row| {
        let follows = row.number.checked_add(1) == Some(next) && row.number >= first;
        next = if follows { row.number } else { next };
        follows
    });
    if rows.is_empty() && start > first {
        let missing = Span { from_block: start - 1, to_block: start - 1 };
        cover.check(missing)?;
        // Retention was here in between.
        return Err(Refusal::gone(format!("block {} is gone", start - 1)).covering(cover.all()));
    }
    let covered = (!rows.is_empty()).then(|| Span { from_block: next, to_block: start - 1 });
    let next = (next > first).then(|| next.to_string());
    ok(&Page { items: rows.into_iter().map(BlockView::from).collect(), next, covered })
}

pub(super) async fn block<R: IndexReader>(State(app): Shared<R>, path: Named) -> Answer {
    let key = params::block_key(&named(path)?)?;
    match app.index.block(key).await? {
        Some(row) => ok(&BlockView::from(row)),
        None => Err(missing(&app, key).await?),
    }
}

/// Why a block is not here: not yet, no longer, or never.
async fn missing<R: IndexReader>(app: &App<R>, key: BlockKey) -> Result<Refusal, Refusal> {
    let cover = Coverage::of_blocks(&app.index, &Wanted::default()).await?;
    let BlockKey::Number(number) = key else {
        let newest = app.index.block(BlockKey::Number(cover.top())).await?;
        if newest.is_some_and(|row| row.hash.is_none()) {
            let told = "this index has blocks without their hashes, which its source does not tell: ask for \
                        them by number";
            return Err(Refusal::gone(told).covering(cover.all()));
        }
        return Ok(cover.not_found("has this hash"));
    };
    let next = cover.top().saturating_add(1);
    let refusal = if number >= next {
        Refusal::not_found(format!("block {number} is not indexed yet; the next one is {next}"))
    } else {
        Refusal::gone(format!(
            "block {number} is not in the index: it is below where it began, past its retention, \
             or in a gap (/v1/gaps); where parts are archived beside it, /v1/parts says which one holds it"
        ))
    };
    Ok(refusal.covering(cover.all()))
}

pub(super) async fn block_txs<R: IndexReader>(
    State(app): Shared<R>,
    path: Named,
    query: Asked<Onwards>,
) -> Answer {
    let key = params::block_key(&named(path)?)?;
    let Onwards { from, limit } = asked(query)?;
    let limit = params::limit(limit)?;
    let from = u32::try_from(from.unwrap_or(0)).map_err(|_| Refusal::bad("from is too large"))?;
    let Some(block) = app.index.block(key).await? else { return Err(missing(&app, key).await?) };
    let rows = app.index.block_txs(block.number, from, limit).await?;
    // Retention may remove them between the two questions.
    let left = usize::try_from(block.tx_count.saturating_sub(from)).unwrap_or(usize::MAX);
    if rows.len() < left.min(limit) {
        return Err(missing(&app, BlockKey::Number(block.number)).await?);
    }
    page::<_, TxView>(rows, limit, |row| Some(row.tx_index.checked_add(1)?.to_string()))
}

pub(super) async fn tx<R: IndexReader>(State(app): Shared<R>, path: Named) -> Answer {
    let hash: TxId = named(path)?.parse().map_err(|error| Refusal::bad(format!("{error}")))?;
    if let Some(row) = app.index.tx(hash).await? {
        return ok(&TxView::from(row));
    }
    // Only what is not found between two looks at a whole index is nowhere in it.
    let before = Coverage::of_blocks(&app.index, &Wanted::default()).await?;
    if let Some(row) = app.index.tx(hash).await? {
        return ok(&TxView::from(row));
    }
    let after = Coverage::of_blocks(&app.index, &Wanted::default()).await?;
    let told = if before.is_whole() { after } else { before };
    Err(told.not_found("holds this transaction"))
}

pub(super) async fn address_txs<R: IndexReader>(
    State(app): Shared<R>,
    path: Named,
    query: Asked<HistoryAsked>,
) -> Answer {
    let address = params::address(&named(path)?)?;
    let HistoryAsked { role, from_block, to_block, before, limit } = asked(query)?;
    let limit = params::limit(limit)?;
    let role = params::role(role.as_deref())?;
    let before = params::place(before.as_deref())?;
    let wanted = Wanted { from_block, to_block, before };
    let cover = Coverage::of_addresses(&app.index, &wanted).await?;
    cover.check_asked(&wanted)?;
    let start = wanted.start(cover.top());
    let mut rows = app.index.address_txs(address, role, Some(start), limit).await?;
    let reach = wanted.reach(&mut rows, (cover.top(), limit), |row| Place {
        block_number: row.block_number,
        index: row.tx_index,
    });
    let after = Coverage::of_addresses(&app.index, &wanted).await?;
    complete::<_, TxView>(rows, &reach, [&cover, &after])
}

pub(super) async fn logs<R: IndexReader>(State(app): Shared<R>, query: Asked<LogsAsked>) -> Answer {
    let asked = asked(query)?;
    let limit = params::limit(asked.limit)?;
    let before = params::place(asked.before.as_deref())?;
    let (from_block, to_block) = (asked.from_block, asked.to_block);
    let query = LogQuery {
        address: asked.address.as_deref().map(params::address).transpose()?,
        topic0: asked.topic0.as_deref().map(params::topic).transpose()?,
        from_block,
        to_block,
    };
    if query.address.is_none() && query.topic0.is_none() {
        return Err(Refusal::bad("logs are asked for by address, by topic0, or by both"));
    }
    let wanted = Wanted { from_block, to_block, before };
    let cover = Coverage::of_logs(&app.index, &query, &wanted).await?;
    cover.check_asked(&wanted)?;
    let start = wanted.start(cover.top());
    let mut rows = app.index.logs(query, Some(start), limit).await?;
    let reach = wanted.reach(&mut rows, (cover.top(), limit), |row| Place {
        block_number: row.block_number,
        index: row.log_index,
    });
    let after = Coverage::of_logs(&app.index, &query, &wanted).await?;
    complete::<_, LogView>(rows, &reach, [&cover, &after])
}

pub(super) async fn parts<R: IndexReader>(State(app): Shared<R>, query: Asked<Onwards>) -> Answer {
    let Onwards { from, limit } = asked(query)?;
    let limit = params::limit(limit)?;
    let rows = app.index.list_parts(from.unwrap_or(0), limit).await?;
    page::<_, PartView>(rows, limit, |row| Some(row.block_to.checked_add(1)?.to_string()))
}

pub(super) async fn gaps<R: IndexReader>(State(app): Shared<R>, query: Asked<Onwards>) -> Answer {
    let Onwards { from, limit } = asked(query)?;
    let limit = params::limit(limit)?;
    let from = from.unwrap_or(0);
    // One that begins below and reaches up here is missing here too.
    let across = app.index.gaps_in(from, from, 1).await?;
    let mut rows: Vec<GapRow> = across.into_iter().filter(|gap| gap.block_from < from).collect();
    rows.extend(app.index.gaps(from, limit).await?);
    rows.truncate(limit);
    page::<_, GapView>(rows, limit, |row| Some(row.block_to.checked_add(1)?.to_string()))
}

pub(super) async fn days<R: IndexReader>(State(app): Shared<R>, query: Asked<Paging>) -> Answer {
    let Paging { before, limit } = asked(query)?;
    let limit = params::limit(limit)?;
    let read = |text: &str| {
        let day = params::number(text).and_then(|day| u32::try_from(day).ok());
        day.ok_or_else(|| Refusal::bad("before is not what `next` of a page named"))
    };
    let before = before.as_deref().map(read).transpose()?;
    let rows = app.index.days(before, limit).await?;
    page::<_, DayView>(rows, limit, |row| Some(row.day.to_string()))
}
