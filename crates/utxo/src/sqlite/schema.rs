//! The tables of a UTXO store in one file (`docs/format/utxo.md`).

use secateur_sql::sqlite::Schema;

/// Ids of pruned records that nothing else would know.
macro_rules! pruned {
    () => {
        "CREATE TABLE pruned (txid BLOB PRIMARY KEY, pruned_at INTEGER NOT NULL) WITHOUT ROWID;"
    };
}

/// Rows are found by a number that is never used twice, so that records of one time are neighbours on
/// the disk and go together. Only the index by transaction id is in random order, so it is kept small,
/// by the first eight bytes: what a prune writes is mostly its pages. That an id is there once is
/// looked at by whoever makes it; there is one writer.
///
/// `pruned` is what is left of records that no parent names, and of which something was spent: told again
/// they would be taken for new, with their outputs unspent.
///
/// `holds` has a row for each parent of each unmined transaction that spends it. It is as small as
/// what waits for a block, so that asking it for every record that goes costs little.
pub(super) const SCHEMA: Schema = Schema {
    name: "UTXO store",
    // "sutx"
    application_id: 0x7375_7478,
    version: 3,
    tables: concat!(
        "
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE txs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    txid BLOB NOT NULL,
    outputs INTEGER NOT NULL,
    spent INTEGER NOT NULL,
    coinbase INTEGER NOT NULL,
    conflicting INTEGER NOT NULL,
    spending INTEGER NOT NULL,
    cut INTEGER NOT NULL DEFAULT 0,
    external INTEGER,
    mined_at INTEGER,
    unmined_since INTEGER,
    delete_at INTEGER,
    preserve_until INTEGER,
    blocks BLOB NOT NULL,
    spenders BLOB NOT NULL,
    inputs BLOB NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX txs_by_txid ON txs (substr(txid, 1, 8));
CREATE INDEX txs_due ON txs (delete_at, id) WHERE delete_at IS NOT NULL;
CREATE INDEX txs_unmined ON txs (unmined_since, id) WHERE unmined_since IS NOT NULL;
CREATE INDEX txs_preserved ON txs (preserve_until, id) WHERE preserve_until IS NOT NULL;
CREATE INDEX txs_external ON txs (id, cut, delete_at) WHERE external IS NOT NULL;
CREATE INDEX txs_cut ON txs (id) WHERE cut = 1;

CREATE TABLE spender_pages (
    tx INTEGER NOT NULL,
    page INTEGER NOT NULL,
    spenders BLOB NOT NULL,
    PRIMARY KEY (tx, page)
) WITHOUT ROWID;

CREATE TABLE holds (
    parent INTEGER NOT NULL,
    child INTEGER NOT NULL,
    PRIMARY KEY (parent, child)
) WITHOUT ROWID;
CREATE INDEX holds_child ON holds (child);

CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL);

",
        pruned!()
    ),
    // Those that are cut already go without another look; at which height they were cut nobody noted.
    upgrades: &[(
        2,
        concat!(
            pruned!(),
            "INSERT INTO pruned SELECT txid, 0 FROM txs
                WHERE cut = 1 AND (coinbase OR conflicting) AND spent > 0;"
        ),
    )],
};
