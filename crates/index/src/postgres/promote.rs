//! Moving an index from SQLite to PostgreSQL: rows in the order of the chain with the cursor behind
//! them, so that it can be broken off and started again anywhere; then both sides are read in full
//! and compared, and only then is it said to be done. Archive parts stay where they are; only their
//! rows move. What deliberately does not live here: stopping the worker that writes the source.

use secateur_core::{Cursor, Height};
use secateur_sql::postgres::{Client, GenericClient, Told as _, Transaction};
use tokio_postgres::types::ToSql;

use super::encode::{CopyRow, too_large};
use super::tally::Tally;
use super::write::{self, bigint, set_meta};
use super::{PostgresSink, decode, notes, read};
use crate::sink::sqlite::SqliteReader;
use crate::sink::{IndexReader, MAX_PAGE};
use crate::{
    BlockRow, DailyRow, IndexError, LogRow, PartRow, Rows, TxRow, cursor_from_json, cursor_to_json,
};

const DOING: &str = "promoting an index";
/// Blocks that are moved in one transaction.
const STEP: u64 = 1_000;
/// Where the target notes from where it is filled: the chain, and how far it was done.
const MARK: &str = "promote";
/// Where it notes that all of it was moved and compared: the cursor with which it was.
const DONE: &str = "promoted";
/// What of `meta` moves. The cursor moves with the rows; sizes and versions are each side's own.
const MOVED: [&str; 8] = [
    "chain_id",
    "codec",
    "logs",
    "logs_since",
    "kept_from",
    "last_head",
    "last_ingest_at",
    "last_error",
];

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromotePhase {
    /// Rows are moved.
    Moving,
    /// Both sides are read and compared.
    Comparing,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromoteProgress {
    /// What is being done.
    pub phase: PromotePhase,
    /// The block it is at.
    pub at: Height,
    /// The first block that is not moved: the source's cursor.
    pub end: Height,
}

/// What was moved and compared equal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Promoted {
    /// The tables with their rows.
    pub tables: Vec<(&'static str, u64)>,
    /// Where the worker goes on, against PostgreSQL.
    pub next: Height,
}

fn refused(why: impl Into<String>) -> IndexError {
    IndexError::Refused(why.into())
}

/// What the source is.
struct Source {
    meta: Vec<(String, String)>,
    cursor: Cursor,
    mark: String,
}

impl Source {
    async fn read(from: &SqliteReader) -> Result<Self, IndexError> {
        let meta = from.meta_pairs().await?;
        let get = |key: &str| meta.iter().find(|(name, _)| name == key).map(|(_, value)| value);
        let Some(cursor) = get("cursor") else {
            return Err(refused("the SQLite index holds no block: there is nothing to move"));
        };
        let cursor = cursor_from_json(cursor).map_err(|error| IndexError::stored(&error))?;
        let Some(chain) = get("chain_id") else {
            return Err(refused("the SQLite index does not say of which chain it is"));
        };
        let mark = format!("chain {chain}");
        Ok(Self { meta, cursor, mark })
    }
}

/// Moves an index. The worker of the source must be stopped; if the source moves meanwhile, this
/// says so at the end and may be run again. A target with other data is refused.
pub async fn promote(
    from: &SqliteReader,
    to: &PostgresSink,
    mut progress: impl FnMut(PromoteProgress) + Send,
) -> Result<Promoted, IndexError> {
    let source = Source::read(from).await?;
    let end = source.cursor.block_number;
    let mut at = begin(from, to, &source).await?;
    if let Some(first) = from.next_block(at).await? {
        // A target that is already further is only compared.
        at = first.max(at);
    }
    while at < end {
        progress(PromoteProgress { phase: PromotePhase::Moving, at, end });
        let past = at.saturating_add(STEP).min(end);
        let rows = from.rows_between(at, past).await?;
        let next =
            if past < end { from.next_block(past).await?.unwrap_or(end).min(end) } else { end };
        move_rows(to, &rows, (at, past), next).await?;
        at = next;
    }
    move_small(from, to, &source).await?;
    let compared = compare(from, to, end, &mut progress).await;
    // Before what they say: a source that moved differs for that reason alone.
    if Source::read(from).await?.cursor != source.cursor {
        return Err(IndexError::busy_sink(
            "the SQLite index grew while it was moved; stop its worker and run this again, it goes \
             on where it is",
        ));
    }
    let tables = compared?;
    finish(to, &source).await?;
    Ok(Promoted { tables, next: end })
}

/// What the target is before anything is moved.
struct Target {
    /// Of which chain an index is or was moved here.
    mark: Option<String>,
    /// The cursor with which that was done, if it was.
    done: Option<Height>,
    cursor: Option<Height>,
    /// Whether anything at all is in it.
    used: bool,
}

impl Target {
    async fn read(transaction: &Transaction<'_>) -> Result<Self, IndexError> {
        let sql = "select (select value from meta where key = $1), \
            (select value from meta where key = $2), secateur_cursor(), \
            exists (select from blocks) or exists (select from archive_parts) \
            or exists (select from gaps) or exists (select from leases) \
            or exists (select from meta where key = 'chain_id')";
        let row = transaction.query_one(sql, &[&MARK, &DONE]).await.told(DOING)?;
        let done: Option<String> = row.try_get(1).told(DOING)?;
        let done = done.map(|text| text.parse::<Height>()).transpose();
        let cursor: Option<i64> = row.try_get(2).told(DOING)?;
        Ok(Self {
            mark: row.try_get(0).told(DOING)?,
            done: done.map_err(|error| {
                IndexError::sink(format!("`{DONE}` of the target does not read back: {error}"))
            })?,
            cursor: cursor.map(|cursor| u64::try_from(cursor).unwrap_or(0)),
            used: row.try_get(3).told(DOING)?,
        })
    }

    /// Why nothing of this source can be moved here, if so.
    fn objection(&self, source: &Source) -> Option<String> {
        match &self.mark {
            Some(mark) if *mark != source.mark => Some(format!(
                "the target is being filled from an index of {mark}, and this one is of {}",
                source.mark
            )),
            Some(_) => self.done.filter(|done| self.cursor != Some(*done)).map(gone_on),
            None => (self.used || self.cursor.is_some()).then(|| {
                "the target holds other data already; promote into a fresh database".to_owned()
            }),
        }
    }
}

/// What is said of a target that is more than was moved to it.
fn gone_on(done: Height) -> String {
    format!(
        "an index was moved here up to block {done}, and a worker has gone on with it since. Go on \
         with that one, or promote into a fresh database"
    )
}

/// The parts that an index notes, in their order, a page at a time.
struct Parts<'a, R> {
    index: &'a R,
    page: std::vec::IntoIter<PartRow>,
    at: Option<Height>,
}

impl<'a, R: IndexReader> Parts<'a, R> {
    fn of(index: &'a R) -> Self {
        Self { index, page: Vec::new().into_iter(), at: Some(0) }
    }

    async fn next(&mut self) -> Result<Option<PartRow>, IndexError> {
        if self.page.len() == 0
            && let Some(first) = self.at
        {
            let page = self.index.list_parts(first, MAX_PAGE).await?;
            self.at = page.last().and_then(|part| part.block_from.checked_add(1));
            self.page = page.into_iter();
        }
        Ok(self.page.next())
    }
}

/// Whether the target notes every part that the source does, and more: its worker archives, without
/// a new block.
async fn notes_more(from: &SqliteReader, to: &PostgresSink) -> Result<bool, IndexError> {
    let (mut ours, mut theirs, mut more) = (Parts::of(from), Parts::of(to), false);
    let mut wanted = ours.next().await?;
    while let Some(part) = theirs.next().await? {
        if wanted.as_ref() == Some(&part) {
            wanted = ours.next().await?;
        } else {
            more = true;
        }
    }
    Ok(more && wanted.is_none())
}

/// Looks at the target: empty, or begun from this source. Gives back where to go on. One that is done
/// stays so, unless there is more to move.
async fn begin(
    from: &SqliteReader,
    to: &PostgresSink,
    source: &Source,
) -> Result<Height, IndexError> {
    let mut client = to.client().await?;
    let transaction = client.transaction().await.told(DOING)?;
    let target = Target::read(&transaction).await?;
    if let Some(why) = target.objection(source) {
        return Err(refused(why));
    }
    if let Some(done) = target.done
        && notes_more(from, to).await?
    {
        return Err(refused(gone_on(done)));
    }
    if target.mark.is_none() {
        set_meta(&transaction, MARK, &source.mark).await?;
    }
    if target.done.is_none_or(|done| done < source.cursor.block_number) {
        transaction.execute("delete from meta where key = $1", &[&DONE]).await.told(DOING)?;
    }
    transaction.commit().await.told(DOING)?;
    Ok(target.cursor.unwrap_or(0))
}

/// Moves the rows of some blocks, and the cursor behind them, in one transaction.
async fn move_rows(
    to: &PostgresSink,
    rows: &Rows,
    (first, past): (Height, Height),
    next: Height,
) -> Result<(), IndexError> {
    to.make_ranges(first, past).await?;
    let mut client = to.client().await?;
    write::stage(&client).await?;
    let transaction = client.transaction().await.told(DOING)?;
    if let Some(cursor) = write::locked_cursor(&transaction).await?
        && cursor.block_number > first
    {
        return Err(refused(format!(
            "the target went on to block {} meanwhile: another worker writes there. Stop it",
            cursor.block_number
        )));
    }
    write::put_all(&transaction, rows, (bigint(first)?, bigint(past)?)).await?;
    set_meta(&transaction, "cursor", &cursor_to_json(Cursor::at_block(next))).await?;
    Ok(transaction.commit().await.told(DOING)?)
}

/// Moves the small tables and what `meta` says, in one transaction.
async fn move_small(
    from: &SqliteReader,
    to: &PostgresSink,
    source: &Source,
) -> Result<(), IndexError> {
    let mut client = to.client().await?;
    let transaction = client.transaction().await.told(DOING)?;
    let mut at = Some(0);
    while let Some(first) = at {
        let parts = from.list_parts(first, MAX_PAGE).await?;
        for part in &parts {
            notes::insert_part(&transaction, part).await?;
        }
        at = parts.last().and_then(|part| part.block_from.checked_add(1));
    }
    at = Some(0);
    while let Some(first) = at {
        let gaps = from.gaps(first, MAX_PAGE).await?;
        for gap in &gaps {
            notes::insert_gap(&transaction, gap).await?;
        }
        at = gaps.last().and_then(|gap| gap.block_from.checked_add(1));
    }
    // Days may have grown since a move that was broken off, unless the target counts by itself now.
    let target = read::cursor(&transaction).await?;
    let again = target.is_none_or(|target| target.block_number <= source.cursor.block_number);
    let mut before = None;
    loop {
        let days = from.days(before, MAX_PAGE).await?;
        for day in &days {
            move_day(&transaction, day, again).await?;
        }
        before = days.last().map(|day| day.day);
        if before.is_none() {
            break;
        }
    }
    for (key, value) in source.meta.iter().filter(|(key, _)| MOVED.contains(&key.as_str())) {
        set_meta(&transaction, key, value).await?;
    }
    // An index whose last blocks were passed as a gap has its cursor behind its rows.
    if read::cursor(&transaction).await?.is_none() {
        set_meta(&transaction, "cursor", &cursor_to_json(source.cursor)).await?;
    }
    Ok(transaction.commit().await.told(DOING)?)
}

/// Moves a day's counts; with `again` also over what an earlier move left.
async fn move_day(
    transaction: &Transaction<'_>,
    day: &DailyRow,
    again: bool,
) -> Result<(), IndexError> {
    let sql = "insert into metrics_daily (day, raw_bytes, compressed_bytes, growth_bytes, \
        blocks_ingested, errors) values (date '1970-01-01' + $1::integer, $2, $3, $4, $5, $6) \
        on conflict (day) do update set raw_bytes = excluded.raw_bytes, \
        compressed_bytes = excluded.compressed_bytes, growth_bytes = excluded.growth_bytes, \
        blocks_ingested = excluded.blocks_ingested, errors = excluded.errors where $7";
    let number = |value: u64| i64::try_from(value).map_err(|_| too_large("a count", value));
    let date = i32::try_from(day.day).map_err(|_| too_large("day", day.day))?;
    let values: [&(dyn ToSql + Sync); 7] = [
        &date,
        &number(day.raw_bytes)?,
        &number(day.compressed_bytes)?,
        &day.growth_bytes,
        &number(day.blocks_ingested)?,
        &number(day.errors)?,
        &again,
    ];
    transaction.execute(sql, &values).await.told(DOING)?;
    Ok(())
}

/// Rows of a big table in the target.
async fn rows_of<R: CopyRow>(
    client: &Client,
    (first, past): (Height, Height),
    decode: fn(&tokio_postgres::Row) -> Result<R, IndexError>,
) -> Result<Vec<R>, IndexError> {
    let (table, columns, number) = (R::TABLE, R::COLUMNS, R::NUMBER);
    let sql = format!("select {columns} from {table} where {number} >= $1 and {number} < $2");
    let values: [&(dyn ToSql + Sync); 2] = [&bigint(first)?, &bigint(past)?];
    read::query(client, &sql, &values, decode).await
}

/// The tallies of the three big tables.
#[derive(Default)]
struct Big {
    blocks: Tally,
    txs: Tally,
    logs: Tally,
}

impl Big {
    fn add(&mut self, rows: &Rows) -> Result<(), IndexError> {
        self.blocks.rows(&rows.blocks)?;
        self.txs.rows(&rows.txs)?;
        self.logs.rows(&rows.logs)
    }
}

/// Reads both sides in full up to the source's cursor, and compares.
async fn compare(
    from: &SqliteReader,
    to: &PostgresSink,
    end: Height,
    progress: &mut (impl FnMut(PromoteProgress) + Send),
) -> Result<Vec<(&'static str, u64)>, IndexError> {
    let (mut source, mut target) = (Big::default(), Big::default());
    let mut at = 0;
    while at < end {
        progress(PromoteProgress { phase: PromotePhase::Comparing, at, end });
        let client = to.client().await?;
        // Both sides may hold what the other does not, so a hole must be one on both.
        let low = [from.next_block(at).await?, next_block(&client, at).await?];
        let Some(low) = low.into_iter().flatten().min().filter(|low| *low < end) else { break };
        at = low;
        let past = at.saturating_add(STEP).min(end);
        source.add(&from.rows_between(at, past).await?)?;
        target.add(&Rows {
            blocks: rows_of::<BlockRow>(&client, (at, past), decode::block).await?,
            txs: rows_of::<TxRow>(&client, (at, past), decode::tx).await?,
            logs: rows_of::<LogRow>(&client, (at, past), decode::log).await?,
        })?;
        at = past;
    }
    let [source_small, target_small] = [small(from).await?, small(to).await?];
    let mut tables = Vec::new();
    for (name, source, target) in [
        ("blocks", source.blocks, target.blocks),
        ("txs", source.txs, target.txs),
        ("logs", source.logs, target.logs),
        ("archive_parts", source_small[0], target_small[0]),
        ("gaps", source_small[1], target_small[1]),
        ("metrics_daily", source_small[2], target_small[2]),
    ] {
        if source != target {
            return Err(IndexError::sink(format!(
                "`{name}` differs after the move: {} rows in SQLite, {} in PostgreSQL, and their \
                 checksums {}; the SQLite index is as it was. Drop the target and promote again",
                source.rows,
                target.rows,
                if source.rows == target.rows { "differ" } else { "were not looked at" }
            )));
        }
        tables.push((name, source.rows));
    }
    Ok(tables)
}

async fn next_block(client: &Client, first: Height) -> Result<Option<Height>, IndexError> {
    let sql = "select number from blocks where number >= $1 order by number limit 1";
    let row = client.query_opt(sql, &[&bigint(first)?]).await.told(DOING)?;
    let number: Option<i64> = row.map(|row| row.try_get(0)).transpose().told(DOING)?;
    Ok(number.and_then(|number| u64::try_from(number).ok()))
}

/// The tallies of parts, gaps and days.
async fn small(index: &impl IndexReader) -> Result<[Tally; 3], IndexError> {
    let [mut parts, mut gaps, mut days] = [Tally::default(); 3];
    let mut at = Some(0);
    while let Some(first) = at {
        let page = index.list_parts(first, MAX_PAGE).await?;
        parts.small(&page);
        at = page.last().and_then(|part| part.block_from.checked_add(1));
    }
    at = Some(0);
    while let Some(first) = at {
        let page = index.gaps(first, MAX_PAGE).await?;
        gaps.small(&page);
        at = page.last().and_then(|gap| gap.block_from.checked_add(1));
    }
    let mut before = None;
    loop {
        let page = index.days(before, MAX_PAGE).await?;
        days.small(&page);
        before = page.last().map(|day| day.day);
        if before.is_none() {
            return Ok([parts, gaps, days]);
        }
    }
}

/// The cursor stands where the source's does: the target is an index from now on. Its size is that of
/// the first day with which it begins, not what it grows by on it.
async fn finish(to: &PostgresSink, source: &Source) -> Result<(), IndexError> {
    let mut client = to.client().await?;
    let transaction = client.transaction().await.told(DOING)?;
    match read::cursor(&transaction).await? {
        Some(cursor) if cursor.block_number >= source.cursor.block_number => {}
        other => {
            let target =
                other.map_or_else(|| "none".into(), |cursor| cursor.block_number.to_string());
            return Err(IndexError::sink(format!(
                "the target's cursor is at block {target} after the move, and the source's at {}",
                source.cursor.block_number
            )));
        }
    }
    set_meta(&transaction, DONE, &source.cursor.block_number.to_string()).await?;
    let size = "insert into meta (key, value) values ('size_bytes', secateur_size_bytes()::text) \
        on conflict (key) do nothing";
    transaction.execute(size, &[]).await.told(DOING)?;
    Ok(transaction.commit().await.told(DOING)?)
}

/// Refuses an index that is only half moved here: a worker would go on in the middle of it.
pub(super) async fn refuse_half(client: &impl GenericClient) -> Result<(), IndexError> {
    let sql = "select m.value from meta m where m.key = $1 \
        and not exists (select from meta d where d.key = $2)";
    let Some(row) = client.query_opt(sql, &[&MARK, &DONE]).await.told(DOING)? else {
        return Ok(());
    };
    let mark: String = row.try_get(0).told(DOING)?;
    Err(refused(format!(
        "an index of {mark} is being moved here, and that is not done. Run `secateur index promote` \
         again, which goes on where it is, or drop this one and begin with an empty database"
    )))
}
