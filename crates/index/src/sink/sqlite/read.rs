//! Reads: every listing goes by a key, newest or oldest first, and is bounded.

use alloy_primitives::Address;
use rusqlite::{Connection, OptionalExtension as _, ToSql, params};
use secateur_core::{Height, TxId};

use super::SqliteReader;
use super::columns::{self, BLOCK, GAP, LOG, Number, PART, TX, first_key, key_before};
use super::write::get_meta;
use crate::sink::{BlockKey, IndexMeta, IndexReader, LogQuery, MAX_PAGE, Place, Role};
use crate::{
    BlockRow, DailyRow, GapRow, IndexError, LogRow, PartRow, TxRow, cursor_from_json, day_text,
};

type Read<T> = Result<T, rusqlite::Error>;

fn page(limit: usize) -> i64 {
    i64::try_from(limit.min(MAX_PAGE)).unwrap_or(i64::MAX)
}

fn many<T>(
    connection: &Connection,
    sql: &str,
    values: &[&dyn ToSql],
    row: impl FnMut(&rusqlite::Row<'_>) -> Read<T>,
) -> Read<Vec<T>> {
    connection.prepare_cached(sql)?.query_map(values, row)?.collect()
}

pub(super) fn parts(connection: &Connection, from: Height, limit: usize) -> Read<Vec<PartRow>> {
    let sql = format!(
        "SELECT {PART} FROM archive_parts WHERE block_from >= ?1 ORDER BY block_from LIMIT ?2"
    );
    many(connection, &sql, params![Number(from), page(limit)], columns::part)
}

pub(super) fn last_part(connection: &Connection) -> Read<Option<PartRow>> {
    let sql = format!("SELECT {PART} FROM archive_parts ORDER BY block_from DESC LIMIT 1");
    connection.query_row(&sql, [], columns::part).optional()
}

fn meta(connection: &Connection) -> Read<IndexMeta> {
    let number = |key| -> Read<Option<u64>> {
        Ok(get_meta(connection, key)?.and_then(|text| text.parse().ok()))
    };
    let version = number("schema_version")?;
    // An index that retention has never cut, or not since it notes it, begins with its oldest block.
    let kept_from = match number("kept_from")? {
        Some(kept) => Some(kept),
        None => connection.query_row("SELECT min(number) FROM blocks", [], |row| {
            Ok(row.get::<_, Option<Number>>(0)?.map(|Number(number)| number))
        })?,
    };
    Ok(IndexMeta {
        schema_version: version.and_then(|version| u32::try_from(version).ok()).unwrap_or(0),
        chain_id: number("chain_id")?,
        codec: get_meta(connection, "codec")?,
        logs: get_meta(connection, "logs")?,
        logs_since: number("logs_since")?,
        kept_from,
        cursor: get_meta(connection, "cursor")?.and_then(|text| cursor_from_json(&text).ok()),
        last_head: number("last_head")?,
        last_ingest_at: number("last_ingest_at")?,
        last_error: get_meta(connection, "last_error")?,
    })
}

pub(super) fn block_at(connection: &Connection, number: Height) -> Read<Option<BlockRow>> {
    connection
        .prepare_cached(&format!("SELECT {BLOCK} FROM blocks WHERE number = ?1"))?
        .query_row([Number(number)], columns::block)
        .optional()
}

fn block(connection: &Connection, key: BlockKey) -> Read<Option<BlockRow>> {
    match key {
        BlockKey::Number(number) => block_at(connection, number),
        BlockKey::Hash(hash) => connection
            .prepare_cached(&format!("SELECT {BLOCK} FROM blocks WHERE hash = ?1 LIMIT 1"))?
            .query_row([hash.0.as_slice()], columns::block)
            .optional(),
    }
}

fn blocks(connection: &Connection, before: Option<Height>, limit: usize) -> Read<Vec<BlockRow>> {
    let before = before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
    let sql = format!("SELECT {BLOCK} FROM blocks WHERE number < ?1 ORDER BY number DESC LIMIT ?2");
    many(connection, &sql, params![before, page(limit)], columns::block)
}

fn block_txs(
    connection: &Connection,
    number: Height,
    from_index: u32,
    limit: usize,
) -> Read<Vec<TxRow>> {
    let from = first_key(number).saturating_add(from_index.into());
    let below = first_key(number.saturating_add(1));
    let sql = format!("SELECT {TX} FROM txs WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3");
    many(connection, &sql, params![from, below, page(limit)], columns::tx)
}

fn tx(connection: &Connection, hash: TxId) -> Read<Option<TxRow>> {
    connection
        .prepare_cached(&format!("SELECT {TX} FROM txs WHERE hash = ?1 ORDER BY id DESC LIMIT 1"))?
        .query_row([hash.0.as_slice()], columns::tx)
        .optional()
}

/// A page of each role's keys is taken from its own index, and the newest of all are the page.
fn address_txs(
    connection: &Connection,
    address: Address,
    role: Role,
    before: Option<Place>,
    limit: usize,
) -> Read<Vec<TxRow>> {
    let roles: &[&str] = match role {
        Role::Any => &["\"from\"", "\"to\"", "contract_address"],
        Role::From => &["\"from\""],
        Role::To => &["\"to\"", "contract_address"],
    };
    let keys: Vec<String> = roles
        .iter()
        .map(|column| {
            format!(
                "SELECT id FROM (SELECT id FROM txs WHERE {column} = ?1 AND id < ?2 \
                 ORDER BY id DESC LIMIT ?3)"
            )
        })
        .collect();
    let sql = format!(
        "SELECT {TX} FROM txs WHERE id IN ({}) ORDER BY id DESC LIMIT ?3",
        keys.join(" UNION ")
    );
    let values = params![address.as_slice(), key_before(before), page(limit)];
    many(connection, &sql, values, columns::tx)
}

fn logs(
    connection: &Connection,
    query: LogQuery,
    before: Option<Place>,
    limit: usize,
) -> Read<Vec<LogRow>> {
    let above = query.to_block.map_or(i64::MAX, |to| first_key(to.saturating_add(1)));
    let from = first_key(query.from_block.unwrap_or(0));
    let before = key_before(before).min(above);
    let address = query.address.map(|address| address.to_vec());
    let topic = query.topic0.map(|topic| topic.to_vec());
    let wanted = match (&address, &topic) {
        (Some(_), Some(_)) => "address = ?4 AND topic0 = ?5 AND",
        (Some(_), None) => "address = ?4 AND ?5 IS NULL AND",
        (None, Some(_)) => "?4 IS NULL AND topic0 = ?5 AND",
        (None, None) => "?4 IS NULL AND ?5 IS NULL AND",
    };
    let sql = format!(
        "SELECT {LOG} FROM logs WHERE {wanted} id >= ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3"
    );
    let values = params![from, before, page(limit), address, topic];
    many(connection, &sql, values, columns::log)
}

fn gaps(connection: &Connection, from: Height, limit: usize) -> Read<Vec<GapRow>> {
    let sql = format!("SELECT {GAP} FROM gaps WHERE block_from >= ?1 ORDER BY block_from LIMIT ?2");
    many(connection, &sql, params![Number(from), page(limit)], columns::gap)
}

fn gaps_in(
    connection: &Connection,
    first: Height,
    last: Height,
    limit: usize,
) -> Read<Vec<GapRow>> {
    let sql = format!(
        "SELECT {GAP} FROM gaps WHERE block_from <= ?2 AND block_to >= ?1 \
         ORDER BY block_from DESC LIMIT ?3"
    );
    let bound = |height: Height| i64::try_from(height).unwrap_or(i64::MAX);
    many(connection, &sql, params![bound(first), bound(last), page(limit)], columns::gap)
}

fn days(connection: &Connection, before: Option<u32>, limit: usize) -> Read<Vec<DailyRow>> {
    let sql = "SELECT CAST(julianday(day) - 2440587.5 AS INTEGER), raw_bytes, compressed_bytes, \
               sqlite_growth_bytes, blocks_ingested, errors
               FROM metrics_daily WHERE day < ?1 ORDER BY day DESC LIMIT ?2";
    // Behind every day, as text.
    let before = before.map_or_else(|| ":".to_owned(), day_text);
    many(connection, sql, params![before, page(limit)], |row| {
        let number = |at| row.get::<_, Number>(at).map(|number| number.0);
        Ok(DailyRow {
            day: row.get(0)?,
            raw_bytes: number(1)?,
            compressed_bytes: number(2)?,
            growth_bytes: row.get(3)?,
            blocks_ingested: number(4)?,
            errors: number(5)?,
        })
    })
}

impl IndexReader for SqliteReader {
    async fn meta(&self) -> Result<IndexMeta, IndexError> {
        self.read(meta).await
    }

    async fn block(&self, key: BlockKey) -> Result<Option<BlockRow>, IndexError> {
        self.read(move |connection| block(connection, key)).await
    }

    async fn blocks(
        &self,
        before: Option<Height>,
        limit: usize,
    ) -> Result<Vec<BlockRow>, IndexError> {
        self.read(move |connection| blocks(connection, before, limit)).await
    }

    async fn block_txs(
        &self,
        number: Height,
        from_index: u32,
        limit: usize,
    ) -> Result<Vec<TxRow>, IndexError> {
        self.read(move |connection| block_txs(connection, number, from_index, limit)).await
    }

    async fn tx(&self, hash: TxId) -> Result<Option<TxRow>, IndexError> {
        self.read(move |connection| tx(connection, hash)).await
    }

    async fn address_txs(
        &self,
        address: Address,
        role: Role,
        before: Option<Place>,
        limit: usize,
    ) -> Result<Vec<TxRow>, IndexError> {
        self.read(move |connection| address_txs(connection, address, role, before, limit)).await
    }

    async fn logs(
        &self,
        query: LogQuery,
        before: Option<Place>,
        limit: usize,
    ) -> Result<Vec<LogRow>, IndexError> {
        self.read(move |connection| logs(connection, query, before, limit)).await
    }

    async fn list_parts(&self, from: Height, limit: usize) -> Result<Vec<PartRow>, IndexError> {
        self.read(move |connection| parts(connection, from, limit)).await
    }

    async fn gaps_in(
        &self,
        first: Height,
        last: Height,
        limit: usize,
    ) -> Result<Vec<GapRow>, IndexError> {
        self.read(move |connection| gaps_in(connection, first, last, limit)).await
    }

    async fn gaps(&self, from: Height, limit: usize) -> Result<Vec<GapRow>, IndexError> {
        self.read(move |connection| gaps(connection, from, limit)).await
    }

    async fn days(&self, before: Option<u32>, limit: usize) -> Result<Vec<DailyRow>, IndexError> {
        self.read(move |connection| days(connection, before, limit)).await
    }
}
