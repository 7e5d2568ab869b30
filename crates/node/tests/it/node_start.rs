//! What a start does to policy, kill switch and settings, and what it says before anything is cut.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::grpc::config;
use crate::node::Node;
use crate::tool::{Run, ask, run, secateur};

/// A directory with a chain of so many blocks of which none is cut.
fn uncut(blocks: u64) -> (TempDir, PathBuf) {
    let place = tempdir().unwrap();
    let data = place.path().join("data");
    run(&data, &format!("demo --no-archive --blocks {blocks} --budget 256MiB")).ends(0);
    assert_eq!(ask(&data, "status")["pruned_before_block"], Value::Null);
    (place, data)
}

/// A node whose log goes to a file.
fn logging(data: &Path, words: &str) -> (Node, PathBuf) {
    let log = data.with_extension("log");
    (Node::logging(data, words, File::create(&log).unwrap()), log)
}

/// Starts a node and stops it; its log is the answer.
fn visit(data: &Path, words: &str) -> String {
    let (node, log) = logging(data, words);
    node.stop();
    std::fs::read_to_string(log).unwrap()
}

/// Asks until it is so.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A configuration that keeps so many blocks, with a daemon that looks at once.
fn keeping(place: &Path, blocks: u64) -> String {
    config(place, &format!("[policy]\nretain_blocks = {blocks}\ntrigger = \"timer:50\"\n"))
}

fn boundary(data: &Path) -> Option<u64> {
    ask(data, "status")["pruned_before_block"].as_u64()
}

/// The kill switch of a new directory was on whatever the configuration said.
#[test]
fn a_new_node_prunes_only_where_a_budget_or_a_retention_is_named() {
    let place = tempdir().unwrap();
    for (number, (words, text, on)) in [
        ("", "", false),
        ("--budget 0", "", false),
        ("", "[policy]\nmin_keep_blocks = 3\n", false),
        ("--budget 64MiB", "", true),
        ("", "[policy]\nretain_blocks = 90\n", true),
        ("", "[policy]\nretain_days = 9\n", true),
        ("--budget 64MiB", "[pruning]\nenabled = false\n", false),
        ("", "[pruning]\nenabled = true\n", true),
    ]
    .into_iter()
    .enumerate()
    {
        let data = place.path().join(number.to_string());
        let words = format!("{words} {}", config(place.path(), text));
        let log = visit(&data, &words);
        assert_eq!(ask(&data, "status")["pruning_enabled"], on, "{words}: {text}");
        let warns = log.contains("no archive and no hard export consumer holds what it cuts");
        assert_eq!(warns, on && !text.contains("enabled"), "{words}: {text}: {log}");
    }
    let data = place.path().join("by environment");
    let mut command = secateur(&data, "node --http 127.0.0.1:0 --grpc 127.0.0.1:0");
    let mut child = command.env("SECATEUR_POLICY_RETAIN_BLOCKS", "7").spawn().unwrap();
    until("the node is up", || data.join("node.json").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(ask(&data, "status")["pruning_enabled"], true);
}

/// The start set the kill switch of a store without blocks again, so that `pruning off` was undone.
#[test]
fn the_kill_switch_of_an_empty_store_survives_a_restart_and_so_does_one_without_a_budget() {
    let place = tempdir().unwrap();
    let data = place.path().join("data");
    visit(&data, "--budget 64MiB");
    run(&data, "pruning off").ends(0);
    let log = visit(&data, "--budget 64MiB");
    assert_eq!(ask(&data, "status")["pruning_enabled"], false);
    assert!(log.contains("pruning is off") && log.contains("secateur pruning on"), "{log}");
    // A store that was made without a budget waits for the operator, and says so.
    let later = place.path().join("later");
    visit(&later, "");
    let log = visit(&later, "--budget 64MiB");
    assert_eq!(ask(&later, "status")["pruning_enabled"], false);
    assert!(log.contains("pruning is off"), "{log}");
}

#[test]
fn the_first_prune_is_announced_with_what_it_cuts_before_it_cuts_anything() {
    let (place, data) = uncut(150);
    let (node, log) = logging(&data, &keeping(place.path(), 40));
    until("it pruned", || boundary(&data).is_some());
    node.stop();
    let log = std::fs::read_to_string(log).unwrap();
    let at = |text: &str| log.find(text).unwrap_or_else(|| panic!("no `{text}` in {log}"));
    let head = ask(&data, "status")["head"].as_u64().unwrap();
    let due = head + 1 - 40;
    let change = at(&format!(
        "this start cuts more than the last policy asked for (0 blocks): {due} blocks"
    ));
    let first = at(&format!("the first prune of this store cuts {due} blocks"));
    assert!(change < first && first < at(" pruned "), "{log}");
    assert!(log.contains("they will be nowhere else"), "{log}");
    assert!(log.lines().filter(|line| line.contains("cuts")).all(|line| line.contains("WARN")));
}

/// `policy set` was undone by the next start where the file named the key, and history was cut.
#[test]
fn a_value_that_was_set_at_run_time_stands_until_the_configuration_changes() {
    let (place, data) = uncut(150);
    run(&data, "pruning off").ends(0);
    let file = |blocks: u64| keeping(place.path(), blocks);
    let words = file(60);
    visit(&data, &words);
    let set: Run = run(&data, "policy set retain_blocks=120").ends(0);
    let stands = "120 stands until the configuration, which says 60, changes";
    assert!(set.out.contains(stands), "{set:?}");
    run(&data, "pruning on --yes").ends(0);
    let (node, _) = logging(&data, &words);
    until("it pruned", || boundary(&data).is_some());
    node.stop();
    let head = ask(&data, "status")["head"].as_u64().unwrap();
    assert_eq!(boundary(&data), Some(head - 120), "nothing that the file alone asks for was cut");
    let more = |text: &str| run(&data, &format!("{text} --json")).ends(0).json();

    let log = visit(&data, &words);
    assert!(log.contains("policy.retain_blocks was set at run time"), "{log}");
    assert_eq!(ask(&data, "policy show")["retain_blocks"], 120);
    let difference = json!([{ "key": "retain_blocks", "in_force": "120", "configured": "60" }]);
    assert_eq!(more("status")["set_at_run_time"], difference);
    assert!(
        run(&data, "status")
            .ends(0)
            .out
            .contains("retain_blocks = 120 stands until the configuration's 60")
    );
    let shown = more(&format!("config show {words}"));
    let row = shown.as_array().unwrap().iter().find(|row| row["key"] == "policy.retain_blocks");
    let row = row.unwrap();
    assert_eq!((&row["value"], &row["in_force"]), (&json!("60"), &json!("120")), "{row}");
    assert!(row["because"].as_str().unwrap().contains("run time"), "{row}");
    let text = run(&data, &format!("config show {words}")).ends(0).out;
    assert!(text.contains("in force: it was set at run time"), "{text}");

    // The same value spelled otherwise is no change; another value is one, and is said first.
    visit(
        &data,
        &config(place.path(), "[policy]\nretain_blocks = \"6_0\"\ntrigger = \"timer:50\"\n"),
    );
    assert_eq!(ask(&data, "policy show")["retain_blocks"], 120);
    let words = file(20);
    let row = more(&format!("config show {words}"));
    assert!(row.to_string().contains("the next start applies"), "{row}");
    let log = visit(&data, &words);
    assert_eq!(ask(&data, "policy show")["retain_blocks"], 20);
    assert!(log.contains("this start cuts more than the last policy asked for"), "{log}");
    assert_eq!(more("status")["set_at_run_time"], Value::Null);
}

#[test]
fn a_kill_switch_in_the_file_is_applied_when_it_changes_and_not_again() {
    let place = tempdir().unwrap();
    let data = place.path().join("data");
    let file = |on: bool| config(place.path(), &format!("[pruning]\nenabled = {on}\n"));
    let enabled = || ask(&data, "status")["pruning_enabled"].clone();
    visit(&data, &file(true));
    run(&data, "pruning off").ends(0);
    visit(&data, &file(true));
    assert_eq!(enabled(), false, "what was set at run time stands");
    let more = |text: &str| run(&data, &format!("{text} --json")).ends(0).json();
    let difference =
        json!([{ "key": "pruning.enabled", "in_force": "false", "configured": "true" }]);
    assert_eq!(more("status")["set_at_run_time"], difference);
    let shown = more(&format!("config show {}", file(true)));
    let row = shown.as_array().unwrap().iter().find(|row| row["key"] == "pruning.enabled").unwrap();
    assert_eq!((&row["value"], &row["in_force"]), (&json!("true"), &json!("false")), "{row}");
    visit(&data, &file(false));
    visit(&data, &file(true));
    assert_eq!(enabled(), true, "the file changed");
}

#[test]
fn settings_of_the_history_are_the_configurations_and_the_layout_is_fixed_when_it_is_made() {
    let place = tempdir().unwrap();
    let data = place.path().join("data");
    let text = "[history]\nlayout = \"per-block\"\nchallenge_blocks = 30\nchallenge_seconds = 5\n\
                consumer_expiry_blocks = 9\ntombstone_bytes = \"1MiB\"\n";
    visit(&data, &config(place.path(), text));
    assert_eq!(ask(&data, "status")["layout"], "per-block");
    let settings = crate::tool::open_store(&data).settings();
    assert_eq!((settings.challenge_blocks, settings.challenge_seconds), (30, 5));
    assert_eq!((settings.consumer_expiry_blocks, settings.tombstone_bytes), (9, 1 << 20));
    // Named later they are changed; what is not named stays.
    let log = visit(&data, &config(place.path(), "[history]\nchallenge_blocks = 0\n"));
    assert!(log.contains("history.challenge_blocks"), "{log}");
    let settings = crate::tool::open_store(&data).settings();
    assert_eq!((settings.challenge_blocks, settings.consumer_expiry_blocks), (0, 9));
    let packed = config(place.path(), "[history]\nlayout = \"packed\"\n");
    let refused = run(&data, &format!("node --http 127.0.0.1:0 --grpc 127.0.0.1:0 {packed}"));
    refused.ends(11).complains("history.layout").complains("per-block");
    let bad = config(place.path(), "[history]\nlayout = \"loose\"\n");
    run(&data, &format!("config check {bad}")).ends(2).complains("packed or per-block");
}
