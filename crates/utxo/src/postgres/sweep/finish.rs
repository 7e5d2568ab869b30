//! Records that are cut, whose files are gone: most go together, those with many pages piece by piece.

use secateur_sql::postgres::{GenericClient as _, Postgres};

use super::cut::lock;
use super::{DOING, LIGHT, drop_pages, ease};
use crate::postgres::rows::execute;
use crate::postgres::trip::{Tried as _, Trip};

/// Those of them with so many pages that these go first.
pub(in crate::postgres) const HEAVY: &str =
    "select id from utxo_txs where id = any($1) and cut and outputs > 256 * $2::integer";
pub(in crate::postgres) const DROP_SOME_PAGES: &str = "delete from utxo_spender_pages \
    where tx = $1 and page = any \
    (array(select page from utxo_spender_pages where tx = $1 order by page limit $2::integer))";
pub(in crate::postgres) const DROP: &str = "delete from utxo_txs where id = any($1) and cut";

/// Removes records that are cut. What was done stays done if it is cut off in between, and doing it
/// again does no harm.
pub(in crate::postgres) async fn finish(database: &Postgres, ids: &[i64]) -> Result<(), Trip> {
    let mut client = database.client().await?;
    let heavy = client.prepare_cached(HEAVY).await.tried(DOING)?;
    for row in client.query(&heavy, &[&ids, &LIGHT]).await.tried(DOING)? {
        let id: i64 = row.try_get(0).tried(DOING)?;
        let some = client.prepare_cached(DROP_SOME_PAGES).await.tried(DOING)?;
        while client.execute(&some, &[&id, &LIGHT]).await.tried(DOING)? > 0 {}
    }
    let transaction = client.transaction().await.tried(DOING)?;
    lock(&transaction, ids).await?;
    drop_pages(&transaction, ids).await?;
    execute(&transaction, DROP, ids.len(), &[&ids]).await?;
    ease(&transaction).await?;
    transaction.commit().await.tried(DOING)
}
