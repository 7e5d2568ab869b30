//! The PostgreSQL side.

use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::SinkExt as _;
use secateur_index::postgres::{Address, PostgresOptions};
use secateur_utxo::{PostgresStore, Rules};
use tokio_postgres::Client;

use super::prune;
use super::rows::{HEIGHT, Row, Shape};
use crate::processes::postgres::Postgres;

const FILLED: &str = "filled";
const WORK: &str = "work";
/// Bytes that are sent at once.
const PIECE: usize = 256 << 10;
const COPY: &str = "copy utxo_txs (id, mined_at, delete_at, outputs, spent, coinbase, conflicting, \
    spending, txid, blocks, spenders, inputs, body) from stdin (format binary)";

/// A server with a database that is filled, and copied for every measurement.
pub struct Filled {
    server: Postgres,
    shape: Shape,
}

async fn open(url: &str) -> Result<PostgresStore> {
    let options =
        PostgresOptions { connections: PostgresStore::CONNECTIONS, ..PostgresOptions::default() };
    Ok(PostgresStore::open(&Address::parse(url)?, options, Rules::default()).await?)
}

/// A row in COPY's binary form.
fn encode(row: &Row, out: &mut BytesMut) -> Result<()> {
    let (id, mined_at) = (row.id.to_be_bytes(), row.mined_at.to_be_bytes());
    let delete_at = row.delete_at.map(i64::to_be_bytes);
    let (outputs, spent) = (2_i32.to_be_bytes(), row.spent.to_be_bytes());
    let fields: [Option<&[u8]>; 13] = [
        Some(&id),
        Some(&mined_at),
        delete_at.as_ref().map(<[u8; 8]>::as_slice),
        Some(&outputs),
        Some(&spent),
        Some(&[0]),
        Some(&[0]),
        Some(&[1]),
        Some(&row.txid),
        Some(&row.blocks),
        Some(&row.spenders),
        Some(&row.inputs),
        Some(&row.body),
    ];
    out.put_i16(13);
    for field in fields {
        match field {
            Some(bytes) => {
                out.put_i32(i32::try_from(bytes.len())?);
                out.put_slice(bytes);
            }
            None => out.put_i32(-1),
        }
    }
    Ok(())
}

async fn fill(client: &Client, shape: Shape) -> Result<()> {
    let mut sink = pin!(client.copy_in::<_, Bytes>(COPY).await?);
    let mut piece = BytesMut::new();
    piece.put_slice(b"PGCOPY\n\xff\r\n\0");
    piece.put_i64(0);
    for row in shape.rows() {
        encode(&row, &mut piece)?;
        if piece.len() > PIECE {
            sink.feed(piece.split().freeze()).await?;
        }
    }
    piece.put_i16(-1);
    sink.feed(piece.freeze()).await?;
    sink.finish().await?;
    // What waits for a block holds some of what stays.
    let last = i64::try_from(shape.records)?;
    let hold = "insert into utxo_holds (parent, child) select id, id + 1000000000 from utxo_txs \
        where id > $1::bigint - 50000 and delete_at is null";
    client.execute(hold, &[&last]).await?;
    client.batch_execute("select setval('utxo_txs_id_seq', 2000000000)").await?;
    client.batch_execute("vacuum analyze").await?;
    Ok(())
}

/// Rows that anybody in the database of a connection has read by scanning a table of records from end to end.
async fn read_by_scanning(client: &Client) -> Result<i64> {
    // What a session did is counted when it ends.
    let others = "select count(*) from pg_stat_activity \
        where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'";
    let mut patience = 0..500;
    while client.query_one(others, &[]).await?.get::<_, i64>(0) > 0 {
        ensure!(patience.next().is_some(), "the sessions of a prune do not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let read = "select sum(seq_tup_read)::bigint from pg_stat_user_tables \
        where relname in ('utxo_txs', 'utxo_spender_pages', 'utxo_holds')";
    Ok(client.query_one(read, &[]).await?.get(0))
}

impl Filled {
    pub async fn new(shape: Shape) -> Result<Self> {
        let server = Postgres::start().await?;
        let url = server.fresh(FILLED).await?;
        drop(open(&url).await?);
        fill(&server.connect(FILLED).await?, shape).await?;
        Ok(Self { server, shape })
    }

    /// A copy to work on, all of it written.
    async fn copy(&self) -> Result<String> {
        let client = self.server.connect("postgres").await?;
        // A connection of before may still be on its way out.
        client.batch_execute(&format!("drop database if exists {WORK} with (force)")).await?;
        let copy = format!("create database {WORK} template {FILLED} strategy file_copy");
        client.batch_execute(&copy).await?;
        client.batch_execute("checkpoint").await?;
        Ok(self.server.url(WORK))
    }

    /// One bare statement.
    pub async fn bare(&self) -> Result<Duration> {
        self.copy().await?;
        let client = self.server.connect(WORK).await?;
        let began = Instant::now();
        let delete = "delete from utxo_txs where delete_at <= $1";
        let gone = client.execute(delete, &[&i64::try_from(HEIGHT)?]).await?;
        let took = began.elapsed();
        ensure!(gone == self.shape.due, "{gone} records went");
        Ok(took)
    }

    /// A whole run of ours.
    pub async fn ours(&self, defensive: bool) -> Result<Duration> {
        let store = self.store().await?;
        let client = self.server.connect(WORK).await?;
        let began = Instant::now();
        prune(&store, self.shape, defensive).await?;
        // Whatever was acknowledged early is on the disk when this is.
        client.batch_execute("select pg_current_xact_id()").await?;
        let took = began.elapsed();
        drop(store);
        let read = read_by_scanning(&client).await?;
        ensure!(read == 0, "{read} rows were read by scanning a whole table");
        Ok(took)
    }

    /// A store on a copy.
    pub async fn store(&self) -> Result<PostgresStore> {
        open(&self.copy().await?).await
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }
}
