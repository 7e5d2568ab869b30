//! Bad input to the UTXO service: a clear answer, and nothing changed.

use secateur_proto::utxo::v1 as pb;
use secateur_proto::utxo::v1::trigger_request::Event;
use tokio::time::timeout;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Code, Request};

use crate::tool::run;
use crate::utxo_rig::{Home, PATIENCE, block, coinbase, id, label, shown, spend};

#[tokio::test]
async fn each_refused_transaction_says_why_and_the_others_are_made() {
    let home = Home::new("");
    let served = home.serve("");
    served.create(4, vec![coinbase(1, 2, 1), coinbase(2, 1, 4)]).await;
    let told = vec![
        spend(11, &[(1, 0)], None),
        spend(12, &[(1, 0)], None),
        spend(13, &[(1, 2)], None),
        spend(14, &[(99, 0)], None),
        spend(15, &[(2, 0)], None),
        spend(16, &[(1, 1), (1, 1)], None),
        spend(17, &[(17, 0)], None),
        spend(18, &[], None),
        spend(19, &[(1, 1)], None),
        spend(11, &[(1, 0)], None),
        spend(11, &[(1, 1)], None),
    ];
    assert_eq!(
        served.create(5, told).await,
        [
            "OUTCOME_NEW",
            "double_spend",
            "missing_output",
            "missing_parent",
            "immature",
            "malformed",
            "malformed",
            "malformed",
            "OUTCOME_NEW",
            "OUTCOME_WAS_THERE",
            "different",
        ]
    );
    let one = served.explain(1).await.record.unwrap();
    let spenders: Vec<_> = one.outputs.iter().map(|output| output.by.clone().unwrap()).collect();
    assert_eq!(spenders, [shown(11), shown(19)]);
    for refused in 12..=18 {
        assert!(!served.is_here(refused).await, "{refused}");
    }
    served.stop();
}

#[tokio::test]
async fn a_pruned_coinbase_that_is_told_again_is_refused_and_everybody_says_that_it_is_pruned() {
    let home = Home::new("inline_bytes = 16");
    let served = home.serve("");
    let with_a_file = |n| pb::NewTransaction { body: vec![3; 200].into(), ..coinbase(n, 1, 1) };
    let told = || vec![coinbase(1, 1, 1), with_a_file(2)];
    assert_eq!(served.create(1, told()).await, ["OUTCOME_NEW"; 2]);
    let spends = [spend(11, &[(1, 0)], Some(5)), spend(12, &[(2, 0)], Some(5))];
    assert_eq!(served.create(5, spends.to_vec()).await, ["OUTCOME_NEW"; 2]);
    served.block(15).await;
    served.processed(15).await;
    // Its coin is spent, and is not spent once more, by whoever spent it or by a thief.
    let thieves = [spend(21, &[(1, 0)], None), spend(22, &[(2, 0)], None)];
    let again = told().into_iter().chain(spends).chain(thieves).collect();
    let answers = ["pruned", "pruned", "OUTCOME_WAS_THERE", "OUTCOME_WAS_THERE"];
    let answers = answers.into_iter().chain(["missing_parent"; 2]).collect::<Vec<_>>();
    assert_eq!(served.create(16, again).await, answers);
    let files = home.data.join("utxo/files");
    assert_eq!(std::fs::read_dir(files).unwrap().count(), 1, "only the mark of the place");
    for number in [1, 2] {
        let story = served.explain(number).await;
        assert_eq!((story.record, story.pruned_at), (None, Some(15)));
        let request = served.asked(pb::GetRequest { txid: id(number).to_vec().into(), body: true });
        let refused = served.store().get(request).await.unwrap_err();
        assert_eq!((refused.code(), label(&refused).as_str()), (Code::OutOfRange, "pruned"));
    }
    let txids = vec![id(1).to_vec().into()];
    let request = pb::SetMinedRequest { height: 16, txids, block: Some(block(16)) };
    let refused = served.store().set_mined(served.asked(request)).await.unwrap_err();
    assert_eq!((refused.code(), label(&refused).as_str()), (Code::OutOfRange, "pruned"));
    let request = pb::SpendRequest { height: 16, txid: id(2).to_vec().into() };
    let refused = served.store().spend(served.asked(request)).await.unwrap_err();
    assert_eq!((refused.code(), label(&refused).as_str()), (Code::OutOfRange, "pruned"));
    served.stop();
    let story = run(&home.data, &format!("utxo explain {}", shown(1))).ends(0);
    assert!(story.out.contains("Its record was pruned by a run up to height 15"), "{story:#?}");
}

#[tokio::test]
async fn requests_that_are_none_change_nothing() {
    let home = Home::new("");
    let served = home.serve("");
    served.create(1, vec![coinbase(1, 1, 1)]).await;
    let mut short = coinbase(2, 1, 1);
    short.txid = vec![1; 31].into();
    let request = pb::CreateRequest { height: 1, transactions: vec![coinbase(3, 1, 1), short] };
    let refused = served.store().create(served.asked(request)).await.unwrap_err();
    let malformed = (Code::InvalidArgument, "malformed".to_owned());
    assert_eq!((refused.code(), label(&refused)), malformed, "{refused}");
    assert!(!served.is_here(3).await);
    let many = vec![coinbase(4, 1, 1); 10_001];
    let request = pb::CreateRequest { height: 1, transactions: many };
    let refused = served.store().create(served.asked(request)).await.unwrap_err();
    assert_eq!((refused.code(), label(&refused)), malformed, "{refused}");
    // A request of a few kilobytes that would ask for more than a gigabyte.
    let wide = (40..70).map(|number| coinbase(number, 1 << 20, 1)).collect();
    let request = pb::CreateRequest { height: 1, transactions: wide };
    let refused = served.store().create(served.asked(request)).await.unwrap_err();
    assert_eq!(
        (refused.code(), label(&refused)),
        (Code::InvalidArgument, "too_many_outputs".into())
    );
    assert!(refused.message().contains("at most 1048576; nothing was changed"), "{refused}");
    let input = pb::OutPoint { txid: id(1).to_vec().into(), n: 0 };
    let inputs = vec![input; 262_145];
    let wide = pb::NewTransaction { inputs, ..spend(41, &[(1, 0)], None) };
    let request = pb::CreateRequest { height: 1, transactions: vec![wide] };
    let refused = served.store().create(served.asked(request)).await.unwrap_err();
    assert_eq!(
        (refused.code(), label(&refused)),
        (Code::InvalidArgument, "too_many_inputs".into())
    );
    assert!(!served.is_here(40).await);
    for txid in ["", "xyz", "00", &"0".repeat(63), &"g".repeat(64)] {
        let request = served.asked(pb::ExplainRequest { txid: txid.into() });
        let refused = served.pruner().explain(request).await.unwrap_err();
        assert_eq!((refused.code(), label(&refused)), malformed, "{txid}: {refused}");
    }
    let unknown = id(77).to_vec();
    let request = served.asked(pb::SpendRequest { height: 2, txid: unknown.clone().into() });
    let refused = served.store().spend(request).await.unwrap_err();
    assert_eq!((refused.code(), label(&refused).as_str()), (Code::NotFound, "unknown"));
    let request = served.asked(pb::GetRequest { txid: unknown.clone().into(), body: false });
    let refused = served.store().get(request).await.unwrap_err();
    assert_eq!((refused.code(), label(&refused).as_str()), (Code::NotFound, "unknown"));
    let request = served.asked(pb::UnspendRequest { height: 2, txid: id(1).to_vec().into() });
    let refused = served.store().unspend(request).await.unwrap_err();
    assert_eq!((refused.code(), label(&refused).as_str()), (Code::FailedPrecondition, "not_now"));
    let request = pb::SetMinedRequest {
        height: 2,
        txids: vec![id(1).to_vec().into(), unknown.into()],
        block: Some(block(2)),
    };
    served.store().set_mined(served.asked(request)).await.unwrap_err();
    assert_eq!(served.explain(1).await.record.unwrap().blocks.len(), 1, "all, or none");
    served.stop();
}

#[tokio::test]
async fn heights_that_are_none_or_go_backwards_prune_nothing() {
    let home = Home::new("");
    let served = home.serve("");
    served.create(1, vec![coinbase(1, 1, 1)]).await;
    served.create(5, vec![spend(11, &[(1, 0)], Some(5))]).await;
    for height in [1 << 32, u64::MAX] {
        let block = Event::Block(pb::BlockEvent { height, mined_set: true });
        let persisted = Event::BlockPersisted(pb::BlockPersistedEvent { height });
        for event in [block, persisted] {
            let refused = served.tell(event).await.unwrap_err();
            let told = (refused.code(), label(&refused));
            assert_eq!(told, (Code::InvalidArgument, "malformed".into()), "{refused}");
        }
    }
    let refused = served.pruner().trigger(served.asked(pb::TriggerRequest { event: None })).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(served.status().await.head, None);
    served.block(14).await;
    served.processed(14).await;
    for height in [13, 1, 0, 14] {
        assert!(!served.block(height).await, "{height} is done");
    }
    let request = served.asked(pb::PruneRequest { height: Some(15) });
    let by_hand = served.pruner().prune(request).await.unwrap_err();
    let persisted = Event::BlockPersisted(pb::BlockPersistedEvent { height: 15 });
    for refused in [by_hand, served.tell(persisted).await.unwrap_err()] {
        let told = (refused.code(), label(&refused));
        assert_eq!(told, (Code::FailedPrecondition, "wrong_height".into()), "{refused}");
    }
    assert!(served.is_here(1).await);
    assert_eq!(served.status().await.processed, Some(14));
    assert_eq!(served.jobs().await.len(), 1);
    served.stop();
}

#[tokio::test]
async fn nothing_is_changed_without_the_right_token() {
    let home = Home::new("");
    let served = home.serve("");
    served.create(1, vec![coinbase(1, 1, 1)]).await;
    let block = || pb::TriggerRequest {
        event: Some(Event::Block(pb::BlockEvent { height: 3, mined_set: true })),
    };
    let mut wrong = Request::new(block());
    wrong
        .metadata_mut()
        .insert("authorization", format!("Bearer {}", "0".repeat(64)).parse().unwrap());
    let mut pruner = served.pruner();
    for request in [Request::new(block()), wrong] {
        let refused = pruner.trigger(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    }
    let create = pb::CreateRequest { height: 1, transactions: vec![coinbase(2, 1, 1)] };
    let refused = served.store().create(create).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let refused = pruner.prune(pb::PruneRequest { height: Some(1) }).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    // Looking needs none on this machine, unless tokens are configured.
    let status = pruner.status(pb::StatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.head, status.counts.unwrap().records), (None, 1));
    let log = std::fs::read_to_string(home.data.join("utxo/audit.log")).unwrap();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("utxo.create") && log.contains("1 transaction at height 1"), "{log}");
    // Whatever changes something is told; looking is not.
    served.block(3).await;
    served.persisted(2).await;
    served
        .tell(Event::BlockPersisted(pb::BlockPersistedEvent { height: 1 << 32 }))
        .await
        .unwrap_err();
    pruner.prune(served.asked(pb::PruneRequest { height: Some(2) })).await.unwrap();
    let log = std::fs::read_to_string(home.data.join("utxo/audit.log")).unwrap();
    let told: Vec<&str> = log.lines().skip(1).collect();
    let wanted =
        ["block 3", "block 2 is persisted", "block 4294967296 is persisted", "at height 2"];
    assert_eq!(told.len(), wanted.len(), "{log}");
    for (line, what) in told.into_iter().zip(wanted) {
        assert!(line.contains(what), "{log}");
        assert_eq!(line.contains("utxo.trigger"), !line.contains("utxo.prune"), "{log}");
        assert_eq!(line.contains("is no height"), what.contains("4294967296"), "{log}");
    }
    served.stop();
}

#[tokio::test]
async fn a_write_that_is_given_up_says_that_it_may_be_done_and_told_again_it_does_no_harm() {
    let home = Home::new("\n[limits]\ntimeout_seconds = 1");
    let served = home.serve("");
    // Somebody else writes meanwhile.
    let other = rusqlite::Connection::open(home.data.join("utxo/utxo.sqlite")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let request = pb::CreateRequest { height: 1, transactions: vec![coinbase(1, 1, 1)] };
    let late = served.store().create(served.asked(request)).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
    assert!(late.message().contains("may still be done; ask again"), "{late}");
    assert!(!served.is_here(1).await);
    let log = std::fs::read_to_string(home.data.join("utxo/audit.log")).unwrap();
    assert!(log.contains("given up; it may still be done"), "{log}");
    other.execute_batch("ROLLBACK").unwrap();
    // Whether the first one had begun when it was given up is chance.
    let again = served.create(1, vec![coinbase(1, 1, 1)]).await;
    assert!(again == ["OUTCOME_WAS_THERE"] || again == ["OUTCOME_NEW"], "{again:?}");
    assert_eq!(served.create(1, vec![coinbase(1, 1, 1)]).await, ["OUTCOME_WAS_THERE"]);
    served.stop();
}

#[test]
fn a_database_that_is_none_ends_the_start_with_a_clear_error() {
    let home = Home::new("");
    let file = home.data.join("utxo/utxo.sqlite");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "this is no database, whatever its name says".repeat(100)).unwrap();
    let serve = "utxo serve --listen 127.0.0.1:0 --http 127.0.0.1:0";
    let before = std::fs::read(&file).unwrap();
    run(&home.data, serve).ends(9).complains("the UTXO records cannot be opened");
    run(&home.data, "utxo status").ends(9).complains("cannot be opened");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    // Of another kind, and a directory in its place.
    std::fs::remove_file(&file).unwrap();
    let other = rusqlite::Connection::open(&file).unwrap();
    other.execute_batch("CREATE TABLE meta (key TEXT, value TEXT); CREATE TABLE x (y)").unwrap();
    drop(other);
    let told = run(&home.data, serve).ends(11).complains("is no");
    assert!(told.err.contains("nothing was changed"), "{told:?}");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    run(&home.data, serve).ends(7);
}

#[test]
fn settings_that_cannot_work_are_refused_before_anything_is_made() {
    for (settings, complaint) in [
        ("chunk_size = 0", "chunk_size"),
        ("trigger = \"sometimes\"", "utxo.trigger"),
        ("safe_height = \"no\"", "utxo.safe_height"),
        ("store = \"mysql://x\"", "utxo.store"),
        ("store = \"aerospike://x\"", "utxo.store"),
        ("inline_bytes = \"2MiB\"", "utxo.inline_bytes"),
        ("blockchain_url = \"ftp://x\"", "utxo.blockchain_url"),
        ("http = \"0.0.0.0:1\"", "utxo.http"),
        ("listen = \"0.0.0.0:1\"", "utxo.listen"),
        ("persister_absent = true\ntrigger = \"persisted\"", "persister_absent"),
    ] {
        let home = Home::new(settings);
        let code =
            if complaint.ends_with("http") || complaint.ends_with("listen") { 11 } else { 2 };
        run(&home.data, "utxo serve").ends(code).complains(complaint);
        assert!(!home.data.join("utxo/utxo.sqlite").exists());
        let config = format!("config check --config {}/secateur.toml", home.data.display());
        run(&home.data, &config).ends(code).complains(complaint);
    }
    let home = Home::new("");
    let words = "utxo status --store postgres://me:secret@host/db";
    let told = run(&home.data, words).ends(2).complains("--store holds a password");
    assert!(!told.err.contains("secret"), "{told:?}");
}

#[tokio::test]
async fn a_height_in_a_call_is_not_believed_against_the_chain() {
    let home = Home::new("");
    let served = home.serve("");
    served.create(5000, vec![coinbase(1, 1, 4000), coinbase(2, 1, 4000)]).await;
    served.block(5000).await;
    served.processed(5000).await;
    // Told late, it is still counted from the head.
    served.create(150, vec![spend(11, &[(1, 0)], Some(5000))]).await;
    let one = served.explain(1).await.record.unwrap();
    assert_eq!(one.delete_at_height, Some(5010));
    let far =
        pb::CreateRequest { height: 4_294_967_000, transactions: vec![spend(12, &[(2, 0)], None)] };
    let refused = served.store().create(served.asked(far)).await.unwrap_err();
    let told = (refused.code(), label(&refused));
    assert_eq!(told, (Code::FailedPrecondition, "wrong_height".into()));
    assert!(refused.message().contains("utxo.max_jump_blocks"), "{refused}");
    let above = served.create(5001, vec![spend(13, &[(2, 0)], Some(5002))]).await;
    assert_eq!(above, ["wrong_height"], "no block is above the tip");
    let request = pb::SetMinedRequest {
        height: 5001,
        txids: vec![id(11).to_vec().into()],
        block: Some(block(6000)),
    };
    let refused = served.store().set_mined(served.asked(request)).await.unwrap_err();
    assert_eq!(label(&refused), "wrong_height");
    for number in [12, 13] {
        assert!(!served.is_here(number).await, "{number}");
    }
    served.stop();
}

#[tokio::test]
async fn where_the_files_are_not_no_new_one_goes_and_everybody_is_told() {
    let home = Home::new("inline_bytes = 16");
    let served = home.serve("");
    let large = |mut tx: pb::NewTransaction| {
        tx.body = vec![3; 100].into();
        tx
    };
    served.create(5, vec![coinbase(1, 2, 1)]).await;
    let made = served.create(5, vec![large(spend(11, &[(1, 0)], Some(5)))]).await;
    assert_eq!(made, ["OUTCOME_NEW"]);
    let spender = spend(12, &[(11, 0)], Some(5));
    served.create(5, vec![spender]).await;
    // The disk of the files is gone, and an empty directory is in its place.
    let (files, away) = (home.data.join("utxo/files"), home.data.join("away"));
    std::fs::rename(&files, &away).unwrap();
    std::fs::create_dir(&files).unwrap();
    served.block(20).await;
    served.processed(20).await;
    let story = served.explain(11).await;
    assert_eq!(story.record.unwrap().file_is_there, Some(false), "it may be where it was");
    assert!(story.verdict.concat().contains("and is kept"), "{:?}", story.verdict);
    let (ready, why) = served.get("/readyz");
    assert!(ready == 503 && why.contains("external files"), "{ready} {why}");
    let made = served.create(20, vec![large(spend(13, &[(1, 1)], None))]).await;
    assert_eq!(made, ["files"]);
    assert!(!served.is_here(13).await && std::fs::read_dir(&files).unwrap().count() == 0);
    run(&home.data, "utxo prune --height 20 --yes").ends(6).complains("utxo.files");
    std::fs::remove_dir(&files).unwrap();
    std::fs::rename(&away, &files).unwrap();
    run(&home.data, "utxo prune --height 20 --yes").ends(0);
    assert!(!served.is_here(11).await && served.get("/readyz").0 == 200);
    served.stop();
}

#[tokio::test]
async fn a_log_that_cannot_be_written_costs_its_lines_and_nothing_else() {
    let home = Home::new("");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let words = "utxo serve --listen 127.0.0.1:0 --http 127.0.0.1:0 --log debug";
    let mut command = crate::tool::secateur(&home.data, words);
    let mut service = command.stdout(std::process::Stdio::piped()).stderr(full).spawn().unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(service.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert!(line.starts_with("listening"), "{line}");
    for height in 1..=20 {
        run(&home.data, &format!("utxo prune --height {height} --yes")).ends(0);
    }
    assert!(service.try_wait().unwrap().is_none(), "it lives");
    let term = std::process::Command::new("kill").arg(service.id().to_string()).status();
    assert!(term.unwrap().success());
    assert_eq!(service.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn transactions_that_nobody_takes_have_bounded_memory_and_others_are_told_to_wait() {
    let limits = "inline_bytes = 16\n[limits]\nanswer_bytes = \"4MiB\"\ntimeout_seconds = 2";
    let home = Home::new(limits);
    let served = home.serve("");
    let large = |n, bytes| pb::NewTransaction { body: vec![3; bytes].into(), ..coinbase(n, 1, 1) };
    assert_eq!(served.create(1, vec![large(1, 1_048_000)]).await, ["OUTCOME_NEW"]);
    // What never fits is not to be asked for again.
    assert_eq!(served.create(1, vec![large(4, 1_500_000)]).await, ["OUTCOME_NEW"]);
    let wide = pb::GetRequest { txid: id(4).to_vec().into(), body: true };
    let refused = served.store().get(served.asked(wide)).await.unwrap_err();
    assert_eq!(label(&refused), "files", "{refused}");
    let create = |bytes| {
        let transactions = vec![large(2, bytes)];
        served.asked(pb::CreateRequest { height: 1, transactions })
    };
    let refused = served.store().create(create(3 << 20)).await.unwrap_err();
    assert_eq!((refused.code(), label(&refused)), (Code::InvalidArgument, "malformed".into()));
    assert!(refused.message().contains("limits.answer_bytes"), "{refused}");
    let request = || pb::GetRequest { txid: id(1).to_vec().into(), body: true };
    let endpoint = Endpoint::from_shared(format!("http://{}", served.grpc)).unwrap();
    let channel = endpoint.initial_stream_window_size(1_000).connect().await.unwrap();
    let mut waiting = Vec::new();
    // They have all of the room.
    for _ in 0..2 {
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<pb::GetRequest, pb::GetResponse>::default();
        let path = PathAndQuery::from_static("/secateur.utxo.v1.Store/Get");
        // Its answer begins, and is not read.
        let answer = grpc.server_streaming(served.asked(request()), path, codec).await;
        waiting.push(answer.unwrap().into_inner());
    }
    let overloaded = (Code::ResourceExhausted, "overloaded".to_owned());
    let refused = served.store().get(served.asked(request())).await.unwrap_err();
    assert_eq!((refused.code(), label(&refused)), overloaded);
    let refused = served.store().create(create(1_048_000)).await.unwrap_err();
    assert_eq!((refused.code(), label(&refused)), overloaded);
    assert!(!served.is_here(2).await, "what is short is answered");
    // What has no file goes on, and so does who asks why.
    assert_eq!(served.create(1, vec![coinbase(3, 1, 1)]).await, ["OUTCOME_NEW"]);
    run(&home.data, "utxo jobs").ends(0);
    run(&home.data, &format!("utxo explain {}", shown(1))).ends(0);
    // Their connection is closed, and there is room again.
    let freed = async { while served.store().create(create(1_048_000)).await.is_err() {} };
    timeout(PATIENCE, freed).await.expect("room again, in time");
    for mut answer in waiting {
        assert!(answer.message().await.is_err(), "its connection was closed");
    }
    served.stop();
}
