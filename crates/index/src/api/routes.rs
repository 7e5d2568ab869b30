//! The routes themselves: read what was asked, ask the index, answer.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use prometheus_client::encoding::text;
use secateur_core::TxId;
use serde::Serialize;

use super::App;
use super::answers::{Answer, Page, Refusal, body, json};
use super::params::{self, HistoryAsked, LogsAsked, Onwards, Paging};
use super::views::{BlockView, DayView, GapView, LogView, MetaView, PartView, TxView};
use crate::IndexReader;
use crate::sink::{BlockKey, LogQuery};

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
    ok(&Page { items: rows.into_iter().map(V::from).collect(), next })
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
    let told = app.options.ready.as_ref().is_none_or(|ready| *ready.borrow());
    let ready = told && app.index.meta().await.is_ok();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &serde_json::json!({ "ready": ready }))
}

pub(super) async fn metrics<R: IndexReader>(State(app): Shared<R>) -> Answer {
    let mut written = String::new();
    if let Some(registry) = &app.options.registry {
        text::encode(&mut written, registry)
            .map_err(|_| Refusal::not_found("the metrics cannot be written"))?;
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(body(StatusCode::OK, kind, written))
}

pub(super) async fn meta<R: IndexReader>(State(app): Shared<R>) -> Answer {
    ok(&MetaView::from(app.index.meta().await?))
}

pub(super) async fn blocks<R: IndexReader>(State(app): Shared<R>, query: Asked<Paging>) -> Answer {
    let Paging { before, limit } = asked(query)?;
    let limit = params::limit(limit)?;
    let read = |text: &str| params::number(text).ok_or_else(|| Refusal::bad("before is a number"));
    let before = before.as_deref().map(read).transpose()?;
    let rows = app.index.blocks(before, limit).await?;
    page::<_, BlockView>(rows, limit, |row| Some(row.number.to_string()))
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
    let BlockKey::Number(number) = key else {
        return Ok(Refusal::not_found("no indexed block has this hash"));
    };
    let next = app.index.meta().await?.cursor.map_or(0, |cursor| cursor.block_number);
    Ok(if number >= next {
        Refusal::not_found(format!("block {number} is not indexed yet; the next one is {next}"))
    } else {
        Refusal::gone(format!(
            "block {number} is not in the index: it is below where it began, past its retention, \
             or in a gap (/v1/gaps); /v1/parts says which part holds it"
        ))
    })
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
    page::<_, TxView>(rows, limit, |row| Some(row.tx_index.checked_add(1)?.to_string()))
}

pub(super) async fn tx<R: IndexReader>(State(app): Shared<R>, path: Named) -> Answer {
    let hash: TxId = named(path)?.parse().map_err(|error| Refusal::bad(format!("{error}")))?;
    match app.index.tx(hash).await? {
        Some(row) => ok(&TxView::from(row)),
        None => Err(Refusal::not_found("no indexed block holds this transaction")),
    }
}

/// A place as `before` reads it.
#[expect(clippy::unnecessary_wraps, reason = "what a page wants")]
fn place_text(block_number: u64, index: u32) -> Option<String> {
    Some(format!("{block_number}-{index}"))
}

pub(super) async fn address_txs<R: IndexReader>(
    State(app): Shared<R>,
    path: Named,
    query: Asked<HistoryAsked>,
) -> Answer {
    let address = params::address(&named(path)?)?;
    let HistoryAsked { role, before, limit } = asked(query)?;
    let limit = params::limit(limit)?;
    let role = params::role(role.as_deref())?;
    let before = params::place(before.as_deref())?;
    let rows = app.index.address_txs(address, role, before, limit).await?;
    page::<_, TxView>(rows, limit, |row| place_text(row.block_number, row.tx_index))
}

pub(super) async fn logs<R: IndexReader>(State(app): Shared<R>, query: Asked<LogsAsked>) -> Answer {
    let asked = asked(query)?;
    let limit = params::limit(asked.limit)?;
    let before = params::place(asked.before.as_deref())?;
    let query = LogQuery {
        address: asked.address.as_deref().map(params::address).transpose()?,
        topic0: asked.topic0.as_deref().map(params::topic).transpose()?,
        from_block: asked.from_block,
        to_block: asked.to_block,
    };
    if query.address.is_none() && query.topic0.is_none() {
        return Err(Refusal::bad("logs are asked for by address, by topic0, or by both"));
    }
    if app.index.meta().await?.logs.is_none_or(|logs| logs == "off") {
        return Err(Refusal::not_found("this index keeps no logs; see `logs` in docs/index.md"));
    }
    let rows = app.index.logs(query, before, limit).await?;
    page::<_, LogView>(rows, limit, |row| place_text(row.block_number, row.log_index))
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
    let rows = app.index.gaps(from.unwrap_or(0), limit).await?;
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
