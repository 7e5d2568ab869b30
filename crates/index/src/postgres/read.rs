//! Reads. Every listing goes by key, and every query is one that an index answers and that opens
//! only the ranges it needs, as far as its conditions say which those are.

use alloy_primitives::{Address, B256};
use secateur_core::{Cursor, Height, TxId};
use secateur_sql::postgres::{Client, GenericClient, Told as _};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::encode::CopyRow;
use super::{PostgresSink, decode};
use crate::sink::{BlockKey, IndexMeta, IndexReader, LogQuery, MAX_PAGE, Place, Role};
use crate::{BlockRow, DailyRow, GapRow, IndexError, LogRow, PartRow, TxRow, cursor_from_json};

const DOING: &str = "reading the index";

type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A height as a bound: nothing is stored above what the column holds.
fn bound(height: Height) -> i64 {
    i64::try_from(height).unwrap_or(i64::MAX)
}

fn page(limit: usize) -> i64 {
    i64::try_from(limit.min(MAX_PAGE)).unwrap_or(0)
}

/// Runs a query and reads its rows.
pub(super) async fn query<T>(
    client: &impl GenericClient,
    sql: &str,
    values: Values<'_>,
    decode: fn(&Row) -> Result<T, IndexError>,
) -> Result<Vec<T>, IndexError> {
    let statement = client.prepare_cached(sql).await.told(DOING)?;
    let rows = client.query(&statement, values).await.told(DOING)?;
    rows.iter().map(decode).collect()
}

/// Where the index goes on.
pub(super) async fn cursor(client: &impl GenericClient) -> Result<Option<Cursor>, IndexError> {
    let sql = "select value from meta where key = 'cursor'";
    let row = client.query_opt(sql, &[]).await.told(DOING)?;
    let Some(row) = row else { return Ok(None) };
    let text: String = row.try_get(0).told(DOING)?;
    cursor_from_json(&text).map(Some).map_err(|error| IndexError::stored(&error))
}

/// The block below a height.
pub(super) async fn block_below(
    client: &Client,
    height: Height,
) -> Result<Option<BlockRow>, IndexError> {
    let Some(below) = height.checked_sub(1) else { return Ok(None) };
    block_at(client, below).await
}

pub(super) async fn block_at(
    client: &Client,
    number: Height,
) -> Result<Option<BlockRow>, IndexError> {
    let sql = format!("select {} from blocks where number = $1", BlockRow::COLUMNS);
    Ok(query(client, &sql, &[&bound(number)], decode::block).await?.pop())
}

/// What `meta` says.
pub(super) async fn meta_in(client: &impl GenericClient) -> Result<IndexMeta, IndexError> {
    let mut meta = IndexMeta::default();
    let number = |text: &str| text.parse::<u64>().map_err(|_| odd(text));
    for row in client.query("select key, value from meta", &[]).await.told(DOING)? {
        let (key, value): (&str, String) =
            (row.try_get(0).told(DOING)?, row.try_get(1).told(DOING)?);
        match key {
            "schema_version" => meta.schema_version = value.parse().map_err(|_| odd(&value))?,
            "chain_id" => meta.chain_id = Some(number(&value)?),
            "codec" => meta.codec = Some(value),
            "logs" => meta.logs = Some(value),
            "logs_since" => meta.logs_since = Some(number(&value)?),
            "kept_from" => meta.kept_from = Some(number(&value)?),
            "cursor" => {
                let cursor = cursor_from_json(&value);
                meta.cursor = Some(cursor.map_err(|error| IndexError::stored(&error))?);
            }
            "last_head" => meta.last_head = Some(number(&value)?),
            "last_ingest_at" => meta.last_ingest_at = Some(number(&value)?),
            "last_error" => meta.last_error = Some(value),
            _ => {}
        }
    }
    if meta.kept_from.is_none() {
        // An index that retention has never cut begins with its oldest block.
        let row = client.query_one("select min(number) from blocks", &[]).await.told(DOING)?;
        let oldest: Option<i64> = row.try_get(0).told(DOING)?;
        meta.kept_from = oldest.map(i64::unsigned_abs);
    }
    Ok(meta)
}

fn odd(value: &str) -> IndexError {
    IndexError::sink(format!("{value:?} in `meta` does not read back: rebuild the index"))
}

/// Archive parts from a first block on.
pub(super) async fn parts(
    client: &impl GenericClient,
    from: Height,
    limit: usize,
) -> Result<Vec<PartRow>, IndexError> {
    let columns = decode::PART_COLUMNS;
    let sql = format!(
        "select {columns} from archive_parts where block_from >= $1 order by block_from limit $2"
    );
    query(client, &sql, &[&bound(from), &page(limit)], decode::part).await
}

/// The archive part with the highest blocks.
pub(super) async fn last_part(client: &Client) -> Result<Option<PartRow>, IndexError> {
    let columns = decode::PART_COLUMNS;
    let sql = format!("select {columns} from archive_parts order by block_from desc limit 1");
    Ok(query(client, &sql, &[], decode::part).await?.pop())
}

/// The bytes that the index takes.
pub(super) async fn size_bytes(client: &Client) -> Result<u64, IndexError> {
    let row = client.query_one("select secateur_size_bytes()", &[]).await.told(DOING)?;
    let size: i64 = row.try_get(0).told(DOING)?;
    Ok(u64::try_from(size).unwrap_or(0))
}

/// The query of one role of an address. `block_number <= $2` is what leaves out ranges: PostgreSQL
/// does not look into the comparison of pairs for that.
fn role_query(condition: &str) -> String {
    format!(
        "(select {} from txs where {condition} and block_number <= $2 \
         and (block_number, tx_index) < ($2, $3) \
         order by block_number desc, tx_index desc limit $4)",
        TxRow::COLUMNS
    )
}

/// The query of an address's transactions, each once.
pub(super) fn address_query(role: Role) -> String {
    let from = || role_query("\"from\" = $1");
    let to = |other: &str| role_query(&format!("\"to\" = $1{other}"));
    let created = |other: &str| role_query(&format!("contract_address = $1{other}"));
    let not_from = " and \"from\" is distinct from $1";
    let not_to = " and \"to\" is distinct from $1";
    let parts = match role {
        Role::From => vec![from()],
        Role::To => vec![to(""), created(not_to)],
        Role::Any => vec![from(), to(not_from), created(&format!("{not_from}{not_to}"))],
    };
    let all = parts.join(" union all ");
    let columns = TxRow::COLUMNS;
    format!("select {columns} from ({all}) t order by block_number desc, tx_index desc limit $4")
}

/// The query of logs: `$1` address, `$2` topic, as far as they are wanted, then the bounds.
pub(super) fn log_query(query: &LogQuery) -> String {
    let condition = match (query.address, query.topic0) {
        (Some(_), Some(_)) => "address = $1 and topic0 = $2",
        (Some(_), None) => "address = $1 and $2::bytea is null",
        (None, _) => "topic0 = $2 and $1::bytea is null",
    };
    let columns = LogRow::COLUMNS;
    format!(
        "select {columns} from logs where {condition} and block_number >= $3 \
         and block_number <= $4 and (block_number, log_index) < ($5, $6) \
         order by block_number desc, log_index desc limit $7"
    )
}

/// A place as values; without one, the end.
fn before(place: Option<Place>) -> (i64, i32) {
    place.map_or((i64::MAX, i32::MAX), |place| {
        (bound(place.block_number), i32::try_from(place.index).unwrap_or(i32::MAX))
    })
}

impl IndexReader for PostgresSink {
    async fn meta(&self) -> Result<IndexMeta, IndexError> {
        meta_in(&self.client().await?).await
    }

    async fn block(&self, key: BlockKey) -> Result<Option<BlockRow>, IndexError> {
        let client = self.client().await?;
        match key {
            BlockKey::Number(number) => block_at(&client, number).await,
            BlockKey::Hash(hash) => {
                let columns = BlockRow::COLUMNS;
                let sql = format!(
                    "select {columns} from blocks where hash = $1 order by number desc limit 1"
                );
                let hash = hash.0.as_slice();
                Ok(query(&client, &sql, &[&hash], decode::block).await?.pop())
            }
        }
    }

    async fn blocks(
        &self,
        before: Option<Height>,
        limit: usize,
    ) -> Result<Vec<BlockRow>, IndexError> {
        let client = self.client().await?;
        let columns = BlockRow::COLUMNS;
        let sql =
            format!("select {columns} from blocks where number < $1 order by number desc limit $2");
        let below = before.map_or(i64::MAX, bound);
        query(&client, &sql, &[&below, &page(limit)], decode::block).await
    }

    async fn block_txs(
        &self,
        number: Height,
        from_index: u32,
        limit: usize,
    ) -> Result<Vec<TxRow>, IndexError> {
        let Ok(from_index) = i32::try_from(from_index) else { return Ok(Vec::new()) };
        let client = self.client().await?;
        let columns = TxRow::COLUMNS;
        let sql = format!(
            "select {columns} from txs where block_number = $1 and tx_index >= $2 \
             order by tx_index limit $3"
        );
        let values: Values<'_> = &[&bound(number), &from_index, &page(limit)];
        query(&client, &sql, values, decode::tx).await
    }

    async fn tx(&self, hash: TxId) -> Result<Option<TxRow>, IndexError> {
        let client = self.client().await?;
        let columns = TxRow::COLUMNS;
        let sql = format!(
            "select {columns} from txs where hash = $1 \
             order by block_number desc, tx_index desc limit 1"
        );
        let hash = hash.0.as_slice();
        Ok(query(&client, &sql, &[&hash], decode::tx).await?.pop())
    }

    async fn address_txs(
        &self,
        address: Address,
        role: Role,
        place: Option<Place>,
        limit: usize,
    ) -> Result<Vec<TxRow>, IndexError> {
        let client = self.client().await?;
        let (block, index) = before(place);
        let address = address.as_slice();
        let values: Values<'_> = &[&address, &block, &index, &page(limit)];
        query(&client, &address_query(role), values, decode::tx).await
    }

    async fn logs(
        &self,
        wanted: LogQuery,
        place: Option<Place>,
        limit: usize,
    ) -> Result<Vec<LogRow>, IndexError> {
        if wanted.address.is_none() && wanted.topic0.is_none() {
            return Err(IndexError::Refused("logs are asked for by address or topic".to_owned()));
        }
        let client = self.client().await?;
        let (block, index) = before(place);
        let address = wanted.address.as_ref().map(|address| address.as_slice());
        let topic = wanted.topic0.as_ref().map(B256::as_slice);
        let from = wanted.from_block.map_or(0, bound);
        let to = wanted.to_block.map_or(i64::MAX, bound).min(block);
        let values: Values<'_> = &[&address, &topic, &from, &to, &block, &index, &page(limit)];
        query(&client, &log_query(&wanted), values, decode::log).await
    }

    async fn list_parts(&self, from: Height, limit: usize) -> Result<Vec<PartRow>, IndexError> {
        parts(&self.client().await?, from, limit).await
    }

    async fn gaps_in(
        &self,
        first: Height,
        last: Height,
        limit: usize,
    ) -> Result<Vec<GapRow>, IndexError> {
        let client = self.client().await?;
        let columns = decode::GAP_COLUMNS;
        let sql = format!(
            "select {columns} from gaps where block_from <= $2 and block_to >= $1 \
             order by block_from desc limit $3"
        );
        let values: Values<'_> = &[&bound(first), &bound(last), &page(limit)];
        query(&client, &sql, values, decode::gap).await
    }

    async fn gaps(&self, from: Height, limit: usize) -> Result<Vec<GapRow>, IndexError> {
        let client = self.client().await?;
        let columns = decode::GAP_COLUMNS;
        let sql = format!(
            "select {columns} from gaps where block_from >= $1 order by block_from limit $2"
        );
        query(&client, &sql, &[&bound(from), &page(limit)], decode::gap).await
    }

    async fn days(&self, before: Option<u32>, limit: usize) -> Result<Vec<DailyRow>, IndexError> {
        let client = self.client().await?;
        let columns = decode::DAILY_COLUMNS;
        let sql = format!(
            "select {columns} from metrics_daily where day < date '1970-01-01' + $1::integer \
             order by day desc limit $2"
        );
        // PostgreSQL's dates end later than this.
        let below = before.and_then(|day| i32::try_from(day).ok()).unwrap_or(1_000_000);
        query(&client, &sql, &[&below, &page(limit)], decode::daily).await
    }
}
