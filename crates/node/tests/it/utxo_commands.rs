//! `secateur utxo …`: every verb, on a directory and beside a running service, in words and in JSON.

use tempfile::tempdir;

use crate::tool::{Run, SmallDisk, ask, run, secateur};
use crate::utxo_rig::{Home, PATIENCE, Served, coinbase, shown, spend};

fn says(home: &Home, words: &str, texts: &[&str]) {
    let said = run(&home.data, words).ends(0);
    for text in texts {
        assert!(said.out.contains(text), "no `{text}` in {said:#?}");
    }
}

/// Every verb, wherever it is asked.
fn ask_all(home: &Home) {
    says(home, "utxo status", &["records    about 3", "processed  14", "past due   0 records"]);
    let status = ask(&home.data, "utxo status");
    assert_eq!((&status["processed"], &status["counts"]["records"]), (&14.into(), &3.into()));
    says(home, "utxo plan", &["at height  14", "up to 0 records"]);
    assert_eq!(ask(&home.data, "utxo plan --height 13")["safe_height"], 13);
    says(home, "utxo jobs", &["height 14, records up to 14: completed"]);
    assert_eq!(ask(&home.data, "utxo jobs")["jobs"][0]["outcome"], "completed");
    let (parent, child, coin) = (shown(1), shown(11), shown(2));
    says(
        home,
        &format!("utxo explain {parent}"),
        &[
            "is here: a coinbase",
            &format!("Output 0 is spent by input 0 of {child}."),
            "at height 1.",
            "Its record goes at height 15",
        ],
    );
    says(
        home,
        &format!("utxo explain {child}"),
        &[&format!("Input 0 spends output 0 of {parent}."), "Output 0 is unspent."],
    );
    says(home, &format!("utxo explain {coin}"), &["1 of its 1 output can still be spent"]);
    let absent = format!("utxo explain {}", shown(99));
    says(
        home,
        &absent,
        &["never created, or its record is pruned (heights up to 14 are processed)"],
    );
    let story = ask(&home.data, &format!("utxo explain {parent}"));
    assert_eq!(story["record"]["delete_at_height"], 15, "{story:#}");
    assert_eq!(story["record"]["outputs"][0]["state"], "spent", "{story:#}");
    assert!(ask(&home.data, &absent)["record"].is_null());
    for wrong in ["", "12", "zz", &"0".repeat(63)] {
        run(&home.data, &format!("utxo explain {wrong}")).ends(2);
    }
    run(&home.data, "utxo prune --height 99999999999").ends(2);
    says(home, "utxo prune --dry-run", &["would go   up to 0 records"]);
}

#[tokio::test]
async fn the_verbs_answer_the_same_beside_a_service_and_without_one() {
    let home = Home::new("");
    let served = home.serve("");
    served.create(1, vec![coinbase(1, 1, 1), coinbase(2, 1, 1)]).await;
    served.create(5, vec![spend(11, &[(1, 0)], Some(5))]).await;
    served.block(14).await;
    served.processed(14).await;
    ask_all(&home);
    run(&home.data, "utxo prune --height 15 --yes").ends(11).complains("above the chain's top");
    served.stop();
    assert!(!home.data.join("utxo/node.json").exists());
    ask_all(&home);
    // Without a terminal it has to be meant.
    run(&home.data, "utxo prune --height 15").ends(2).complains("--yes");
    assert!(ask(&home.data, &format!("utxo explain {}", shown(1)))["record"].is_object());
    let pruned = ask(&home.data, "utxo prune --height 15 --yes");
    assert_eq!(pruned["job"]["done"]["deleted"], 1, "{pruned:#}");
    let gone = ask(&home.data, &format!("utxo explain {}", shown(1)));
    assert!(gone["record"].is_null(), "{gone:#}");
    // The service goes on from there.
    let served = home.serve("");
    assert_eq!(served.status().await.processed, Some(15));
    served.stop();
}

#[tokio::test]
async fn a_prune_beside_a_service_is_the_services_own() {
    let home = Home::new("enabled = false");
    let served = home.serve("");
    served.create(1, vec![coinbase(1, 1, 1)]).await;
    served.create(5, vec![spend(11, &[(1, 0)], Some(5))]).await;
    assert!(!served.block(20).await, "events set nothing off");
    let said = run(&home.data, "utxo prune --yes").ends(0);
    assert!(said.out.contains("height 20, records up to 20: completed"), "{said:#?}");
    assert!(said.out.contains("deleted  1 record"), "{said:#?}");
    assert!(!served.is_here(1).await);
    served.stop();
}

#[tokio::test]
async fn a_service_that_has_heard_nothing_of_its_chain_is_not_ready_and_lives() {
    // Nobody listens at that port.
    let home = Home::new("blockchain_url = \"http://127.0.0.1:1\"");
    let served = home.serve("");
    served.health("", false).await;
    let (code, told) = served.get("/readyz");
    assert_eq!(code, 503, "{told}");
    assert!(told.contains("nothing was heard of the chain since the start"), "{told}");
    assert_eq!(served.get("/healthz").0, 200);
    served.create(1, vec![coinbase(1, 1, 1)]).await;
    // Somebody else's word is not the chain's: it may have a persister.
    assert!(!served.block(3).await);
    assert_eq!(served.get("/readyz").0, 503);
    let nothing_goes = || {
        assert_eq!(ask(&home.data, "utxo plan --height 3")["skip"], "persister_in_doubt");
        let refused = run(&home.data, "utxo prune --height 3 --yes").ends(11);
        refused.complains("the chain did not say whether it has a block persister");
        run(&home.data, "utxo prune --height 3").ends(11);
    };
    nothing_goes();
    served.stop();
    nothing_goes();
    assert_eq!(ask(&home.data, "utxo status")["ready"], true, "a command listens to nobody");
    let mut absent = secateur(&home.data, "utxo prune --height 3 --yes");
    absent.env("SECATEUR_UTXO_PERSISTER_ABSENT", "true");
    Run::of(absent.output().unwrap()).ends(0);
}

#[tokio::test]
async fn a_second_service_on_the_same_directory_is_refused() {
    let home = Home::new("");
    let served = home.serve("");
    let words = "utxo serve --listen 127.0.0.1:0 --http 127.0.0.1:0";
    run(&home.data, words).ends(10).complains("in use by another process");
    let taken = format!("utxo serve --listen {} --http 127.0.0.1:0", served.grpc);
    let other = Home::new("");
    run(&other.data, &taken).ends(1).complains("cannot be listened on");
    served.stop();
}

#[tokio::test]
async fn a_command_does_not_wait_for_a_service_that_stands_still() {
    let home = Home::new("");
    let served = home.serve("");
    served.process.signal("STOP");
    run(&home.data, "utxo status").ends(7).complains("asking the UTXO service of process");
    served.process.signal("CONT");
    says(&home, "utxo status", &["records    about 0"]);
    served.stop();
}

#[test]
fn commands_make_nothing_where_there_is_nothing() {
    let place = tempdir().unwrap();
    let data = place.path().join("nowhere");
    for words in ["utxo status", "utxo plan", "utxo jobs", "utxo prune --yes"] {
        run(&data, words).ends(1).complains("there are no UTXO records at");
    }
    assert!(!data.exists());
    let file = place.path().join("named.sqlite");
    let words = format!("utxo status --store sqlite://{}", file.display());
    run(&data, &words).ends(1).complains("named.sqlite");
    assert!(!file.exists());
    std::fs::write(&file, "").unwrap();
    run(&data, &words).ends(1).complains("named.sqlite");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 0);
}

#[tokio::test]
async fn a_node_can_be_made_in_a_directory_that_had_records_first() {
    let home = Home::new("");
    std::fs::remove_file(home.data.join("secateur.toml")).unwrap();
    let served = home.serve("");
    let node = crate::node::Node::start(&home.data, "");
    assert_eq!(ask(&home.data, "status")["head"], serde_json::Value::Null);
    assert_eq!(ask(&home.data, "utxo status")["counts"]["records"], 0);
    node.stop();
    served.stop();
}

#[tokio::test]
async fn a_status_without_a_service_tells_that_the_place_of_files_is_not_the_right_one() {
    let home = Home::new("inline_bytes = 16");
    let served = home.serve("");
    let large = |n| secateur_proto::utxo::v1::NewTransaction {
        body: vec![3; 200].into(),
        ..coinbase(n, 1, 1)
    };
    served.create(1, vec![large(1)]).await;
    served.stop();
    assert!(!run(&home.data, "utxo status").ends(0).out.contains("not ready"));
    std::fs::remove_file(home.data.join("utxo/files/secateur-place")).unwrap();
    let status = run(&home.data, "utxo status").ends(0);
    assert!(status.out.contains("not ready: external files cannot be written"), "{status:#?}");
    assert!(status.out.contains("missing_files_are_gone"), "{status:#?}");
    // Nor does a command bring a directory back.
    std::fs::remove_dir_all(home.data.join("utxo/files")).unwrap();
    let status = run(&home.data, "utxo status").ends(0);
    assert!(status.out.contains("there is no place of external files"), "{status:#?}");
    let story = run(&home.data, &format!("utxo explain {}", shown(1))).ends(0);
    assert!(story.out.contains("nobody could look whether it is there"), "{story:#?}");
    run(&home.data, "utxo prune --yes --height 1").ends(0);
    assert!(!home.data.join("utxo/files").exists());
}

#[tokio::test]
async fn a_prune_that_finds_the_disk_full_says_so_and_is_tried_again_by_itself() {
    let Some(disk) = SmallDisk::mount(24) else { return };
    let data = disk.data();
    std::fs::create_dir(&data).unwrap();
    let settings = "[utxo]\nblock_height_retention = 10\ncoinbase_maturity = 2\n";
    std::fs::write(data.join("secateur.toml"), settings).unwrap();
    let served = Served::start(&data, "");
    let coins: Vec<_> = (1..=2_000).map(|number| coinbase(number, 1, 1)).collect();
    served.create(1, coins).await;
    let spends = (1..=2_000).map(|number| spend(10_000 + number, &[(number, 0)], Some(5)));
    served.create(5, spends.collect()).await;
    disk.fill();
    assert!(served.block(15).await);
    let failed = async {
        loop {
            if let Some(error) = served.status().await.last_error {
                return error;
            }
        }
    };
    let error = tokio::time::timeout(PATIENCE, failed).await.expect("it never fails");
    assert!(error.contains("full") && error.contains("tried again by itself"), "{error}");
    run(&data, "utxo prune --yes").ends(8).complains("Free some space");
    assert_eq!(served.status().await.processed, None);
    // No other event comes.
    disk.empty();
    served.processed(15).await;
    assert!(!served.is_here(1).await && served.is_here(10_001).await);
    served.stop();
}
