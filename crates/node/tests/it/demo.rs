//! The demo as a whole: it runs, prunes, stops, goes on.

use tempfile::tempdir;

use crate::tool::{Running, ask, run, small_demo};

#[test]
fn a_demo_on_an_empty_directory_prunes_and_a_second_run_goes_on() {
    let place = tempdir().unwrap();
    let data = place.path().join("new/demo");
    let first = small_demo(&data, 300);
    for text in ["appended   300 blocks", "head       299", "prune #0 cut", "read back"] {
        assert!(first.out.contains(text), "no `{text}` in {first:#?}");
    }
    let hint = format!("secateur --data {} explain block 1", data.display());
    assert!(first.out.contains(&hint), "{first:#?}");
    let status = ask(&data, "status");
    assert_eq!(status["head"], 299);
    let boundary = status["pruned_before_block"].as_u64().unwrap();

    let second = run(&data, "demo --blocks 40").ends(0);
    assert!(second.out.contains("appended   40 blocks"), "{second:#?}");
    let status = ask(&data, "status");
    assert_eq!(status["head"], 339, "--blocks counts the blocks of this run");
    assert!(status["pruned_before_block"].as_u64().unwrap() >= boundary);
    assert!(status["used_bytes"].as_u64().unwrap() <= status["target_bytes"].as_u64().unwrap());
    run(&data, "verify").ends(0);
}

#[test]
fn the_demo_in_json_is_one_object_a_line_and_ends_with_a_summary() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    let ran = run(&data, "demo --blocks 300 --budget 4MiB --acks --json").ends(0);
    let lines: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |event: &str| lines.iter().filter(|line| line["event"] == event).count();
    assert_eq!(count("ack"), 300);
    assert!(count("report") >= 1);
    let summary = lines.last().unwrap();
    assert_eq!(summary["event"], "summary");
    assert_eq!(summary["appended"], 300);
    assert_eq!(summary["status"]["head"], 299);
    assert!(summary["signatures_checked"].as_u64().unwrap() > 0);
    assert_eq!(summary["status"]["implausible_timestamps"], 0);
    assert_eq!(summary["status"]["decreasing_timestamps"], 0);
}

#[test]
fn a_signal_stops_the_paced_demo_cleanly_with_its_summary() {
    for signal in ["INT", "TERM"] {
        let place = tempdir().unwrap();
        let data = place.path().join("demo");
        let mut demo = Running::start(&data, "demo --budget 4MiB");
        let line = demo.wait_for("head ");
        assert!(line.contains("blocks/s"), "{line}");
        demo.signal(signal);
        let (code, rest) = demo.end();
        assert_eq!(code, 0, "{rest}");
        assert!(rest.contains("appended") && rest.contains("next "), "{rest}");
        let head = ask(&data, "status")["head"].as_u64().unwrap();
        run(&data, "demo --blocks 3").ends(0);
        assert_eq!(ask(&data, "status")["head"].as_u64().unwrap(), head + 3);
    }
}

#[test]
fn flags_that_contradict_an_existing_demo_are_refused() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    run(&data, "demo --blocks 20 --seed 7").ends(0);
    run(&data, "demo --blocks 1 --seed 8").ends(2).complains("seed 7");
    run(&data, "demo --blocks 1 --budget 5MiB").ends(2).complains("24.0 MiB");
    assert_eq!(ask(&data, "status")["head"], 19);
    run(&data, "demo --blocks 1 --seed 7 --budget 24MiB").ends(0);
}

#[test]
fn an_interrupted_creation_is_finished_by_the_next_run() {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    // What a crash in the middle of creating leaves behind: a lock, half a file, no store.
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("LOCK"), "").unwrap();
    std::fs::write(data.join("store.toml.tmp"), "form").unwrap();
    small_demo(&data, 20);
    // A crash between store.toml and the store.
    let data = place.path().join("later");
    std::fs::create_dir(&data).unwrap();
    let text = "format = 1\nchain_id = 1337\ncreated_by = \"secateur 0.1.0\"\n";
    std::fs::write(data.join("store.toml"), text).unwrap();
    run(&data, "status").ends(9).complains("no history");
    small_demo(&data, 20);
    assert_eq!(ask(&data, "status")["head"], 19);
}
