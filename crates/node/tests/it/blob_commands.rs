//! `secateur blob …` and `explain blob`: every verb, in words and in JSON.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use secateur_sidecar::testdata::pooled;
use tempfile::{TempDir, tempdir};

use crate::demo_blobs::validator;
use crate::tool::{Running, ask, run, secateur};

/// A demo whose blobs up to height 94 are archived and pruned: 10, 31, 52, 73, 94.
fn demo() -> (TempDir, PathBuf) {
    let place = tempdir().unwrap();
    let data = place.path().join("demo");
    run(&data, "demo --blocks 100 --json").ends(0);
    (place, data)
}

fn says(data: &Path, words: &str, texts: &[&str]) {
    let said = run(data, words).ends(0);
    for text in texts {
        assert!(said.out.contains(text), "no `{text}` in {said:#?}");
    }
}

#[test]
fn every_verb_about_pruned_blobs_answers_in_words_and_in_json() {
    let (_place, data) = demo();
    says(&data, "blob status", &["stored     8 blobs of 100 decided heights", "up to 96"]);
    says(
        &data,
        "blob status 31",
        &["with 2 blobs", "blob 1     pruned, signed for by 0x", "copy demo/chain=1337/blob/"],
    );
    let height = ask(&data, "blob status 31");
    assert_eq!(height["blobs"].as_array().unwrap().len(), 2, "{height:#}");
    assert_eq!(height["blobs"][1]["state"], "pruned");
    says(&data, "blob status 30", &["with 0 blobs"]);
    says(&data, "blob plan", &["would cut  nothing", "height 96"]);
    assert_eq!(ask(&data, "blob plan")["limit"], 96);
    says(&data, "blob prune --dry-run", &["would cut  nothing"]);
    says(&data, "blob prune", &["nothing was pruned"]);
    assert_eq!(ask(&data, "blob prune")["blobs"], 0);
    says(&data, "blob retry 31", &["nothing to do"]);
    assert_eq!(ask(&data, "blob retry 31")["blobs"], 0);
    // The proposer of 31 is the fourth validator; the notices are its own.
    assert_eq!(ask(&data, "blob rebroadcast 31")["notices"], 0);
    let fourth = validator(&data, 4);
    assert_eq!(ask(&fourth, "blob rebroadcast 31")["notices"], 2);
    says(&fourth, "blob rebroadcast 31", &["2 own notices of height 31"]);
    for words in
        ["blob status 99999", "blob retry 99999", "explain blob 99999 0", "blob fetch 99999 0"]
    {
        run(&data, words).ends(1).complains("height 99999 is not known here");
    }
    run(&data, "explain blob 31 2").ends(1).complains("has 2 blobs, none with index 2");
}

#[test]
fn a_pruned_blob_is_fetched_back_with_the_bytes_that_were_stored() {
    let (place, data) = demo();
    // The second turn of the schedule takes the sixth blob of the pool and the one after.
    for (index, which) in [(0, 5), (1, 6)] {
        let out = place.path().join(format!("blob-{index}"));
        for one in [1, 3] {
            let words = format!("blob fetch 31 {index} --out {}-{one}", out.display());
            says(&validator(&data, one), &words, &["hashes right", "written"]);
            let read = std::fs::read(format!("{}-{one}", out.display())).unwrap();
            assert!(read == pooled(which).blob, "blob {index} of validator {one} is another");
            run(&validator(&data, one), &words).ends(1).complains("nothing was overwritten");
        }
    }
    let fetched = ask(&data, "blob fetch 31 0");
    assert_eq!(fetched["bytes"], 131_072);
    assert_eq!(fetched["commitment"], pooled(5).commitment.to_string());
    let hex = fetched["blob"].as_str().unwrap();
    assert_eq!(alloy_primitives::hex::decode(hex).unwrap(), pooled(5).blob);
    // A copy that was changed is not believed.
    let archived = ask(&data, "explain blob 31 0")["records"][0]["locators"][0]["key"]
        .as_str()
        .unwrap()
        .to_owned();
    let copy = data.join("blob-archive").join(archived);
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut bytes = std::fs::read(&copy).unwrap();
    bytes[77] ^= 1;
    std::fs::write(&copy, bytes).unwrap();
    run(&data, "blob fetch 31 0").ends(6).complains("no copy of blob 0 of height 31");
}

#[test]
fn the_story_of_a_blob_names_the_archive_and_the_time_of_pruning_and_the_command_to_fetch_it() {
    let (_place, data) = demo();
    let told = run(&data, "explain blob 31 1").ends(0);
    let story = ask(&data, "explain blob 31 1");
    assert_eq!(story["here"], false, "{story:#}");
    let record = &story["records"][0];
    let key = record["locators"][0]["key"].as_str().unwrap();
    assert!(data.join("blob-archive").join(key).is_file(), "{key}");
    let signer = record["signer"].as_str().unwrap();
    assert!(signer.ends_with("04"), "{signer}");
    let command = format!("secateur --data {} blob fetch 31 1", data.display());
    let texts = [
        "was here and was pruned",
        "stored ",
        "decided ",
        "verified ",
        "pruned ",
        "UTC",
        key,
        signer,
        &command,
    ];
    for text in texts {
        assert!(told.out.contains(text), "no `{text}` in {told:#?}");
    }
    let at = |word: &str| told.out.find(&format!("\n{word} ")).unwrap();
    let order = ["stored", "decided", "archived", "verified", "pruned", "fetch"].map(at);
    assert!(order.is_sorted(), "{told:#?}");
    assert!(story["pruned"]["at"].as_u64() >= story["decided_at"].as_u64(), "{story:#}");
    // Whoever proposed it made the copy itself.
    let own = run(&validator(&data, 4), "explain blob 31 1").ends(0);
    assert!(own.out.contains("read it back and compared it before it signed"), "{own:#?}");
}

#[test]
fn records_are_exported_line_by_line_from_any_height_on() {
    let (_place, data) = demo();
    let export = |words: &str| -> Vec<serde_json::Value> {
        let out = run(&data, words).ends(0).out;
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = export("blob records export");
    assert_eq!(all.len(), 8, "{all:?}");
    assert_eq!(all, export("blob records export --json"));
    let heights: Vec<u64> = all.iter().map(|line| line["height"].as_u64().unwrap()).collect();
    assert_eq!(heights, [10, 31, 31, 52, 52, 73, 94, 94]);
    assert!(all.iter().all(|line| line["records"][0]["locators"][0]["provider"] == "demo"));
    assert_eq!(export("blob records export --from 53").len(), 3);
    assert_eq!(export("blob records export --from 5000").len(), 0);
}

#[test]
fn keygen_makes_a_key_for_its_owner_alone_and_overwrites_nothing() {
    let place = tempdir().unwrap();
    let key = place.path().join("notice.key");
    let words = format!("blob keygen {}", key.display());
    let made = ask(place.path(), &words);
    assert_eq!(made["public_key"].as_str().unwrap().len(), 66, "{made}");
    assert_eq!(key.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let before = std::fs::read(&key).unwrap();
    let again = run(place.path(), &words).ends(2).complains("there is a file already");
    assert!(!again.err.contains(std::str::from_utf8(&before[23..40]).unwrap()));
    assert_eq!(std::fs::read(&key).unwrap(), before);
    let nowhere = place.path().join("nowhere/k");
    let told = run(place.path(), &format!("blob keygen {}", nowhere.display())).ends(2);
    let told = told.complains(&format!("{} was refused", nowhere.display()));
    assert!(told.err.contains("directory is not there") && !told.err.contains("unfinished"));
    let other = place.path().join("other.key");
    says(
        place.path(),
        &format!("blob keygen {}", other.display()),
        &["public key 0x", "owner alone"],
    );
    assert_ne!(std::fs::read(&other).unwrap(), before);
}

#[test]
fn a_directory_without_blobs_and_one_without_its_places_say_what_to_do() {
    let place = tempdir().unwrap();
    run(&place.path().join("none"), "blob status").ends(1).complains("no data directory");
    let (_place, data) = demo();
    let empty = place.path().join("empty.toml");
    std::fs::write(&empty, "").unwrap();
    let words = format!("blob fetch 31 0 --config {}", empty.display());
    run(&data, &words).ends(6).complains("sidecar.providers");
    let out = secateur(&data, "blob").output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let help = String::from_utf8(out.stderr).unwrap();
    for verb in ["status", "plan", "prune", "retry", "rebroadcast", "fetch", "records", "keygen"] {
        assert!(help.contains(verb), "no {verb} in {help}");
    }
}

#[test]
fn commands_beside_a_running_demo_ask_its_node_and_get_the_same_answers() {
    let (place, data) = demo();
    let words = ["blob status 31", "blob status 30", "explain blob 31 1", "blob rebroadcast 31"];
    let alone = words.map(|words| ask(&data, words));
    let texts = words.map(|words| run(&data, words).ends(0).out);
    let exported = run(&data, "blob records export").ends(0).out;
    let mut demo = Running::start(&data, "demo --plain --http 127.0.0.1:0 --grpc 127.0.0.1:0");
    demo.wait_for("listening");
    for ((words, alone), text) in words.iter().zip(alone).zip(texts) {
        assert_eq!(ask(&data, words), alone, "{words}");
        assert_eq!(run(&data, words).ends(0).out, text, "{words}");
    }
    let now = run(&data, "blob records export").ends(0).out;
    assert!(now.starts_with(&exported), "{exported}\n{now}");
    let figures = ask(&data, "blob status");
    assert!(figures["heights"].as_u64() >= Some(100), "{figures:#}");
    says(&data, "blob status", &["decided heights", "final"]);
    says(&data, "blob plan", &["up to"]);
    says(&data, "blob prune --yes", &["done"]);
    assert_eq!(ask(&data, "blob retry 31")["blobs"], 0);
    let out = place.path().join("fetched");
    says(&data, &format!("blob fetch 31 0 --out {}", out.display()), &["hashes right"]);
    assert!(std::fs::read(&out).unwrap() == pooled(5).blob);
    run(&data, "blob status 999999").ends(1).complains("height 999999 is not known here");
    run(&data, "blob fetch 31 7").ends(1).complains("none with index 7");
    // The other validators are locked by the same process, and have no node of their own.
    run(&validator(&data, 2), "blob status").ends(10).complains("in use");
    demo.signal("INT");
    assert_eq!(demo.end().0, 0);
}
