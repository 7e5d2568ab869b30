//! The whole file in the order of the chain, some blocks at a time: what moving an index elsewhere
//! needs. Nothing else reads like this.

use rusqlite::OptionalExtension as _;
use secateur_core::Height;

use super::SqliteReader;
use super::columns::{self, BLOCK, LOG, Number, TX, first_key};
use crate::{IndexError, Rows};

impl SqliteReader {
    /// All rows of the blocks from `first` to below `past`, in order.
    pub(crate) async fn rows_between(
        &self,
        first: Height,
        past: Height,
    ) -> Result<Rows, IndexError> {
        self.read(move |connection| {
            let sql = format!(
                "SELECT {BLOCK} FROM blocks WHERE number >= ?1 AND number < ?2 ORDER BY number"
            );
            let blocks = connection
                .prepare_cached(&sql)?
                .query_map([Number(first), Number(past)], columns::block)?
                .collect::<Result<_, _>>()?;
            let keys = [first_key(first), first_key(past)];
            let sql = format!("SELECT {TX} FROM txs WHERE id >= ?1 AND id < ?2 ORDER BY id");
            let txs = connection
                .prepare_cached(&sql)?
                .query_map(keys, columns::tx)?
                .collect::<Result<_, _>>()?;
            let sql = format!("SELECT {LOG} FROM logs WHERE id >= ?1 AND id < ?2 ORDER BY id");
            let logs = connection
                .prepare_cached(&sql)?
                .query_map(keys, columns::log)?
                .collect::<Result<_, _>>()?;
            Ok(Rows { blocks, txs, logs })
        })
        .await
    }

    /// The lowest block from `first` on; so holes are passed in one step.
    pub(crate) async fn next_block(&self, first: Height) -> Result<Option<Height>, IndexError> {
        self.read(move |connection| {
            let sql = "SELECT min(number) FROM blocks WHERE number >= ?1";
            let found: Option<Option<Number>> =
                connection.query_row(sql, [Number(first)], |row| row.get(0)).optional()?;
            Ok(found.flatten().map(|Number(number)| number))
        })
        .await
    }

    /// Everything that `meta` holds.
    pub(crate) async fn meta_pairs(&self) -> Result<Vec<(String, String)>, IndexError> {
        self.read(|connection| {
            connection
                .prepare_cached("SELECT key, value FROM meta ORDER BY key")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })
        .await
    }
}
