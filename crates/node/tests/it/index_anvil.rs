//! A real EVM chain with every kind of transaction, followed, indexed with its logs and archived.

use tempfile::tempdir;

use crate::anvil::Anvil;
use crate::followed::Followed;
use crate::indexed::{archive, rows};
use crate::tool::run;
use crate::wallet::Wallet;

#[test]
fn an_anvil_chain_is_indexed_with_its_logs_and_archived() {
    let place = tempdir().unwrap();
    let data = place.path().join("data");
    let anvil = Anvil::start();
    Wallet::default().every_kind(&anvil);
    anvil.mine(5);
    let mut node = Followed::start(&data, &anvil.url);
    node.catches_up(&anvil);
    let sink = place.path().join("index.sqlite");
    let parts = place.path().join("archive");
    let (sink_text, parts) = (sink.display(), parts.display().to_string());
    let words = format!(
        "index --sink sqlite:{sink_text} --archive {parts} --part-blocks 2 --log-address all --once \
         --log warn"
    );
    run(&data, &words).ends(0);
    let rows = rows(&sink);
    let count = |table: &str| rows.iter().filter(|row| row.starts_with(table)).count();
    let final_head = anvil.head() - 2;
    assert_eq!(count("blocks") as u64, final_head + 1);
    // A creation, two transfers, two calls of which one fails, a list, a blob, a delegation.
    assert_eq!(count("txs"), 8);
    assert!(count("logs") >= 2, "{}", count("logs"));
    let blocks = final_head / 2 * 2;
    archive(&parts, &format!("verify --full --upto {}", blocks.saturating_sub(1))).ends(0);
    let fetched = archive(&parts, "fetch 2 --json").ends(0).json();
    assert_eq!(fetched["hash"], anvil.hash(2));
    node.stop();
}
