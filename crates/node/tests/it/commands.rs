//! The commands on a data directory: what they answer, to people and in JSON.

use std::ops::ControlFlow;

use secateur_core::tx_index;
use secateur_store::{Change, Index as _, Snapshot as _, Table};
use serde_json::json;
use tempfile::tempdir;

use crate::tool::{ask, files, open_store, run, small_demo};

#[test]
fn every_answer_about_a_pruned_demo_parses_and_makes_sense() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    small_demo(&data, 300);

    let status = ask(&data, "status");
    let boundary = status["pruned_before_block"].as_u64().unwrap();
    assert_eq!(status["oldest_kept_block"], boundary + 1);
    assert_eq!(status["target_bytes"], 4 << 20);
    assert_eq!(status["pruning_enabled"], true);
    assert_eq!(status["binding_hold"], "min_keep");

    let plan = ask(&data, "plan");
    assert_eq!(plan["used_before"], status["used_bytes"]);
    assert!(plan["stop"]["reason"].is_string());
    assert_eq!(ask(&data, "prune --dry-run"), plan);

    let policy = ask(&data, "policy show");
    assert_eq!((&policy["target_bytes"], &policy["clock"]), (&json!(4 << 20), &json!("chain")));

    let kept = ask(&data, "explain block 299");
    assert_eq!((&kept["state"], &kept["height"]), (&json!("kept"), &json!(299)));
    let pruned = ask(&data, "explain block 1");
    assert_eq!(pruned["state"], "pruned");
    assert_eq!(pruned["pruned_before_block"], boundary);
    assert_eq!((&pruned["report"]["by"], &pruned["report"]["seq"]), (&json!("daemon"), &json!(0)));
    assert_eq!(ask(&data, "explain block 300")["state"], "not_yet");

    let verified = ask(&data, "verify");
    assert_eq!((&verified["clean"], &verified["blocks"]), (&json!(true), &json!(299 - boundary)));
    for words in ["status", "plan", "policy show", "holds", "explain block 1", "verify"] {
        let told = run(&data, words).ends(0);
        assert!(told.out.lines().count() > 1 && told.err.is_empty(), "{told:#?}");
        assert!(told.out.lines().all(|line| line.chars().count() <= 100), "{told:#?}");
    }
    let told = run(&data, "explain block 1").ends(0).out;
    assert!(told.contains("was pruned") && told.contains("report     #0"), "{told}");
}

#[test]
fn a_transaction_is_explained_by_its_block_and_an_unknown_one_is_not_found() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    small_demo(&data, 60);
    let id = {
        let store = open_store(&data);
        let mut busy = (0..60).rev().map(|height| store.get_block(height).unwrap());
        let ids = |payload: &[u8]| tx_index(payload).next().map(|entry| entry.unwrap().tx_id);
        busy.find_map(|block| ids(&block.payloads.tx_index)).unwrap()
    };
    let story = ask(&data, &format!("explain tx {id}"));
    assert_eq!((&story["tx_id"], &story["index"]), (&json!(id.to_string()), &json!(0)));
    assert_eq!(story["block"]["state"], "kept");
    let unknown = ask(&data, &format!("explain tx 0x{}", "ab".repeat(32)));
    assert_eq!(unknown["answer"], "not_found");
    run(&data, "explain tx 0x12").ends(2);
}

#[test]
fn the_policy_changes_whole_or_not_at_all_and_prune_obeys_it() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    run(&data, "demo --no-archive --blocks 300").ends(0);
    let before = ask(&data, "policy show");
    run(&data, "policy set retain_days=3 target_bytes=3").ends(2).complains("not changed");
    run(&data, "policy set retain_days=3 retain_weeks=1").ends(2).complains("retain_weeks");
    run(&data, "policy set retain_days").ends(2).complains("key=value");
    assert_eq!(ask(&data, "policy show"), before);

    let told = run(&data, "policy set target_bytes=4MiB").ends(0).out;
    assert!(told.contains("24MiB (25,165,824 bytes) → 4MiB (4,194,304 bytes)"), "{told}");
    assert!(told.contains("high water"), "{told}");
    let plan = ask(&data, "plan");
    assert!(plan["blocks"].as_u64().unwrap() > 0, "{plan}");

    run(&data, "prune").ends(2).complains("--yes");
    assert_eq!(ask(&data, "plan"), plan, "a refused prune changes nothing");
    let pruned = ask(&data, "prune --yes --max-ops 500");
    assert_eq!(pruned["blocks"], plan["blocks"]);
    assert_eq!(pruned["used_bytes"], plan["used_after"]);
    assert!(pruned["ticks"].as_u64().unwrap() > 1, "{pruned}");
    assert_eq!(pruned["settled"], true);
    let status = ask(&data, "status");
    assert_eq!((&status["need_prune"], &status["draining"]), (&json!(false), &json!(false)));
    assert_eq!(status["last_report"]["by"], "operator");
    let again = run(&data, "prune --yes").ends(0).out;
    assert!(again.contains("nothing was cut"), "{again}");
}

#[test]
fn a_hold_is_registered_binds_and_is_removed() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    run(&data, "demo --no-archive --blocks 300").ends(0);
    let holds = ask(&data, "holds add indexer --hard");
    assert_eq!(holds["binding_hold"], "export:indexer");
    assert!(run(&data, "holds").ends(0).out.contains("lets go nothing  ← binds"));
    run(&data, "policy set target_bytes=4MiB").ends(0);
    run(&data, "prune --yes").ends(11).complains("export:indexer");
    assert_eq!(ask(&data, "status")["pruned_before_block"], json!(null));

    run(&data, "holds add indexer --soft").ends(11).complains("remove it first");
    run(&data, "holds remove export:indexer").ends(0);
    run(&data, "holds remove indexer").ends(1).complains("no export consumer");
    run(&data, "holds add ../up").ends(2);
    run(&data, "prune --yes").ends(0);
    assert!(ask(&data, "status")["pruned_before_block"].as_u64().unwrap() > 0);
}

#[test]
fn the_kill_switch_asks_before_it_goes_on_and_warns_when_nobody_has_a_copy() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    small_demo(&data, 30);
    run(&data, "pruning off").ends(0);
    assert_eq!(ask(&data, "status")["pruning_enabled"], false);
    run(&data, "pruning on").ends(2).complains("--yes");
    assert_eq!(ask(&data, "status")["pruning_enabled"], false);
    let told = run(&data, "pruning on --yes").ends(0).out;
    assert!(told.contains("would cut") && told.contains("warning"), "{told}");
    assert_eq!(ask(&data, "status")["pruning_enabled"], true);
}

#[test]
fn errors_are_json_when_asked_for_and_help_lists_the_exit_codes() {
    let place = tempdir().unwrap();
    let missing = place.path().join("missing");
    for (words, code) in [("status --json", 1), ("policy set --json", 2)] {
        let run = run(&missing, words).ends(code);
        let error: serde_json::Value = serde_json::from_str(&run.err).unwrap();
        assert_eq!(error["exit_code"], code);
        assert!(error["error"].as_str().unwrap().len() > 20, "{error}");
    }
    let help = run(&missing, "--help").ends(0).out;
    assert!(help.contains("Exit codes:") && help.contains("11  refused"), "{help}");
    assert!(!missing.exists());
    let script = run(&missing, "completions bash").ends(0).out;
    assert!(script.contains("_secateur"));
}

#[test]
fn reading_commands_leave_payloads_and_settings_alone() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    small_demo(&data, 60);
    let look = || {
        let mut files = files(&data);
        // The index notes that it was opened and closed; LOCK notes by whom.
        files.retain(|path, _| !path.ends_with("index.redb") && !path.ends_with("LOCK"));
        files
    };
    let told = || {
        let mut status = ask(&data, "status");
        status["index_bytes"] = json!(0);
        // Others write to this disk too.
        status["free_bytes"] = json!(0);
        status
    };
    let (before, status) = (look(), told());
    for words in ["status", "plan", "holds", "policy show", "explain block 3", "verify"] {
        run(&data, words).ends(0);
    }
    assert!(before == look(), "a reading command wrote");
    assert_eq!(told(), status);
}

#[test]
fn a_lost_free_list_is_found_and_put_back_only_after_consent() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    small_demo(&data, 300);
    {
        let store = open_store(&data);
        let mut lost = Vec::new();
        let snapshot = store.index().snapshot().unwrap();
        snapshot
            .scan(Table::Free, &[], &mut |key, _| {
                let (table, key) = (Table::Free, key.to_vec());
                lost.push(Change { table, key, value: None });
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        assert!(lost.len() > 2, "a pruned store has free regions");
        store.index().commit(lost).unwrap();
    }
    let found = run(&data, "verify --json").ends(9).json();
    assert_eq!(
        (&found["clean"], &found["findings"][0]["repairable"]),
        (&json!(false), &json!(true))
    );
    run(&data, "verify").ends(9).complains("--repair");
    let dry = run(&data, "verify --repair --dry-run").ends(9).out;
    assert!(dry.contains("would      put the region at"), "{dry}");
    run(&data, "verify --repair").ends(2).complains("--yes");
    run(&data, "verify").ends(9);
    let repaired = run(&data, "verify --repair --yes").ends(0).out;
    assert!(repaired.contains("did        put the region at"), "{repaired}");
    run(&data, "verify").ends(0);
    run(&data, "demo --no-archive --blocks 50").ends(0);
}
