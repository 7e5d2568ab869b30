//! Records that are cut, whose files are gone: most go together, those with many pages piece by piece.

use secateur_sql::postgres::{GenericClient as _, Postgres};

use super::cut::lock;
use super::{DOING, LIGHT, drop_pages, ease};
use crate::postgres::rows::execute;
use crate::postgres::trip::{Tried as _, Trip};

/// Those of them that are cut, which is for ever, and whether their many pages go first.
pub(in crate::postgres) const CUTS: &str =
    "select id, outputs > 256 * $2::integer from utxo_txs where id = any($1) and cut";
pub(in crate::postgres) const DROP_SOME_PAGES: &str = "delete from utxo_spender_pages \
    where tx = $1 and page = any \
    (array(select page from utxo_spender_pages where tx = $1 order by page limit $2::integer))";
pub(in crate::postgres) const DROP: &str = "delete from utxo_txs where id = any($1) and cut";

/// Removes records that are cut. What was done stays done if it is cut off in between, and doing it
/// again does no harm.
pub(in crate::postgres) async fn finish(database: &Postgres, ids: &[i64]) -> Result<(), Trip> {
    let mut client = database.client().await?;
    let cuts = client.prepare_cached(CUTS).await.tried(DOING)?;
    let cuts = client.query(&cuts, &[&ids, &LIGHT]).await.tried(DOING)?;
    let mut ids = Vec::with_capacity(cuts.len());
    for row in &cuts {
        let id: i64 = row.try_get(0).tried(DOING)?;
        ids.push(id);
        if row.try_get(1).tried(DOING)? {
            let some = client.prepare_cached(DROP_SOME_PAGES).await.tried(DOING)?;
            while client.execute(&some, &[&id, &LIGHT]).await.tried(DOING)? > 0 {}
        }
    }
    let transaction = client.transaction().await.tried(DOING)?;
    lock(&transaction, &ids).await?;
    drop_pages(&transaction, &ids).await?;
    execute(&transaction, DROP, ids.len(), &[&ids]).await?;
    ease(&transaction).await?;
    transaction.commit().await.tried(DOING)
}
