//! The demo's UTXO chain: it is spent, reorganised, waited in and pruned, and the commands tell of it.

use tempfile::tempdir;

use crate::demo_blobs::summary;
use crate::tool::{ask, run};

#[test]
fn a_demo_prunes_utxo_records_and_a_second_run_goes_on() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    // Sixty blocks of the UTXO chain, and the one at height 0.
    let first = run(&data, "demo --blocks 976 --no-blobs --json").ends(0);
    let told = &summary(&first.out)["utxo"];
    assert_eq!(told["blocks"], 60, "{told:#}");
    assert_eq!(told["head"], 59, "{told:#}");
    assert_eq!(told["reorganisations"], 2, "{told:#}");
    let number = |key: &str| told[key].as_u64().unwrap();
    assert!(number("pruned") > 50, "{told:#}");
    assert!(number("files_gone") > 3, "{told:#}");
    assert!(number("held") > 0 && number("preserved") > 0, "{told:#}");
    let status = ask(&data, "utxo status");
    assert_eq!(status["processed"], 59, "{status:#}");
    assert_eq!(status["counts"]["records"], told["records"], "{status:#}");
    assert_eq!(status["counts"]["preserved"], told["preserved"], "{status:#}");
    assert_eq!(status["counts"]["due"], 0, "{status:#}");
    let explain = |key: &str| {
        let txid = told[key].as_str().unwrap();
        run(&data, &format!("utxo explain {txid}")).ends(0).out
    };
    let pruned = explain("pruned_example");
    assert!(pruned.contains("Its record was pruned by a run up to height"), "{pruned}");
    let kept = explain("example");
    assert!(kept.contains("is here"), "{kept}");
    assert_eq!(ask(&data, "utxo jobs")["jobs"][0]["height"], 59);

    let second = run(&data, "demo --blocks 160 --no-blobs").ends(0);
    assert!(second.out.contains("utxo       head 69:"), "{second:#?}");
    assert!(second.out.contains("utxo explain"), "{second:#?}");
    let third = run(&data, "demo --blocks 32 --no-blobs --no-utxo --json").ends(0);
    assert!(summary(&third.out)["utxo"].is_null(), "{third:#?}");
    run(&data, "verify").ends(0);
}
