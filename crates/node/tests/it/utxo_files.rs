//! External files that follow their records, whatever happens while those are made.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use secateur_proto::utxo::v1 as pb;

use crate::postgres;
use crate::tool::{Run, SmallDisk, ask, run, secateur};
use crate::utxo_rig::{Home, PATIENCE, Served, block, coinbase, id, label, shown, spend};

fn large(mut tx: pb::NewTransaction) -> pb::NewTransaction {
    tx.body = vec![3; 200].into();
    tx
}

/// The names of what is in a place of files.
fn names(place: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(place).unwrap();
    names.map(|one| one.unwrap().file_name().into_string().unwrap()).collect()
}

/// Every record of these that is here has its file.
async fn all_follow(served: &Served, numbers: impl Iterator<Item = u32>) {
    for number in numbers {
        if let Some(record) = served.explain(number).await.record {
            assert_eq!(record.file_is_there, Some(true), "{number}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_fails_while_something_is_told_again_costs_no_file() {
    let home = Home::new("inline_bytes = 16");
    let served = home.serve("");
    let told = || (1..=200).map(|n| large(coinbase(n, 1, 1))).collect::<Vec<_>>();
    served.create(1, told()).await;
    let place = home.data.join("utxo/files");
    let before = names(&place);
    let (mark, away) = (place.join("secateur-place"), home.data.join("mark"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::fs::rename(&mark, &away).unwrap();
                std::thread::yield_now();
                std::fs::rename(&away, &mark).unwrap();
            }
        });
        let runtime = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            for _ in 0..3 {
                runtime.block_on(served.create(1, told()));
            }
        });
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(names(&place), before);
    served.stop();
}

/// A loser of a double spend, with a file. Nothing remembers it once it is pruned, so that it can be told again.
fn loser(number: u32) -> pb::NewTransaction {
    pb::NewTransaction { conflicting: true, ..large(spend(number, &[(1, 0)], None)) }
}

/// The same, whose file somebody else has put where it belongs.
fn loser_with_a_file_in(place: &Path, number: u32) -> pb::NewTransaction {
    let told = loser(number);
    std::fs::write(place.join(format!("{}.tx", shown(number))), &told.body).unwrap();
    pb::NewTransaction { external: true, body: Vec::new().into(), ..told }
}

#[tokio::test]
async fn a_prune_while_losers_are_told_again_leaves_no_record_without_its_file() {
    let home = Home::new("inline_bytes = 16\nchunk_size = 20");
    let served = home.serve("");
    let count = 300;
    let told = || (1..=count).map(loser).collect::<Vec<_>>();
    served.create(1, told()).await;
    let prune = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        served.block(20).await;
    };
    tokio::join!(served.create(20, told()), prune);
    served.processed(20).await;
    all_follow(&served, 1..=count).await;
    served.stop();
}

/// A service on a PostgreSQL, its place of files, and a connection of our own.
async fn on_postgres(shared: &Path) -> (Home, PathBuf, tokio_postgres::Client) {
    let url = postgres::database();
    let place = shared.join("files");
    std::fs::create_dir(&place).unwrap();
    let home = Home::new(&format!(
        "inline_bytes = 16\nstore = \"{url}\"\nfiles = \"{}\"",
        place.display()
    ));
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    (home, place, client)
}

/// Creates transactions, and does something after their files were seen and before their records are made.
async fn create_and_between(
    served: &Served,
    client: &tokio_postgres::Client,
    told: Vec<pb::NewTransaction>,
    between: impl FnOnce(),
) -> Vec<String> {
    client.batch_execute("begin; lock table utxo_txs in exclusive mode").await.unwrap();
    let interfere = async {
        let waits = "select exists (select from pg_locks l join pg_class c on c.oid = l.relation \
            where c.relname = 'utxo_txs' and not l.granted)";
        let seen =
            async { while !client.query_one(waits, &[]).await.unwrap().get::<_, bool>(0) {} };
        tokio::time::timeout(PATIENCE, seen).await.expect("nobody comes to make the records");
        between();
        client.batch_execute("commit").await.unwrap();
    };
    tokio::join!(served.create(5, told), interfere).0
}

#[tokio::test]
async fn a_record_is_not_acknowledged_if_its_file_went_while_it_was_made() {
    let shared = tempfile::tempdir().unwrap();
    let (home, place, client) = on_postgres(shared.path()).await;
    let served = home.serve("");
    served.create(1, vec![coinbase(1, 1, 1)]).await;
    let [with_bytes, without] = [loser(2), loser_with_a_file_in(&place, 3)];
    let remove =
        |number| std::fs::remove_file(place.join(format!("{}.tx", shown(number)))).unwrap();
    let told = vec![with_bytes, without.clone()];
    let answers =
        create_and_between(&served, &client, told, || [2, 3].into_iter().for_each(remove));
    assert_eq!(answers.await, ["OUTCOME_NEW", "file_unsettled"]);
    // The one was written again; of the other only its teller has the bytes, and it was told so.
    all_follow(&served, 2..=2).await;
    assert_eq!(served.explain(3).await.record.unwrap().file_is_there, Some(false));
    assert_eq!(served.create(5, vec![without]).await, ["files"], "it is still not there");
    let again = loser_with_a_file_in(&place, 3);
    assert_eq!(served.create(5, vec![again]).await, ["OUTCOME_WAS_THERE"]);
    all_follow(&served, 2..=3).await;
    // Bytes that would be in the record of a new one are those of the file where there is one.
    remove(3);
    let small = pb::NewTransaction { body: vec![3; 8].into(), ..loser(3) };
    assert_eq!(served.create(5, vec![small]).await, ["OUTCOME_WAS_THERE"]);
    all_follow(&served, 2..=3).await;
    served.stop();
}

#[tokio::test]
async fn of_two_services_on_one_store_one_that_refuses_takes_no_file_from_the_other() {
    let shared = tempfile::tempdir().unwrap();
    let place = shared.path().join("files");
    std::fs::create_dir(&place).unwrap();
    let settings = format!(
        "inline_bytes = 16\nstore = \"sqlite://{}/utxo.sqlite\"\nfiles = \"{}\"",
        shared.path().display(),
        place.display()
    );
    let homes = [Home::new(&settings), Home::new(&settings)];
    let [one, other] = homes.each_ref().map(|home| home.serve(""));
    let rounds = 60;
    for round in 0..rounds {
        let [coin, parent, child] = [1, 2, 3].map(|n| 10 * round + n);
        one.create(1, vec![coinbase(coin, 1, 1)]).await;
        let parent_tx = spend(parent, &[(coin, 0)], None);
        let child_tx = large(spend(child, &[(parent, 0)], None));
        let both = async {
            tokio::time::sleep(Duration::from_micros(600 * u64::from(round % 8))).await;
            one.create(5, vec![parent_tx, child_tx.clone()]).await
        };
        let (refused, made) = tokio::join!(other.create(5, vec![child_tx.clone()]), both);
        assert!(!made.contains(&"files".to_owned()), "{refused:?} {made:?}");
    }
    all_follow(&one, (0..rounds).map(|round| 10 * round + 3)).await;
    one.stop();
    other.stop();
}

#[tokio::test]
async fn a_refused_transaction_takes_its_own_file_with_it_and_nobody_else_s() {
    let home = Home::new("inline_bytes = 16");
    let served = home.serve("");
    served.create(5, vec![coinbase(1, 1, 1)]).await;
    let place = home.data.join("utxo/files");
    let orphan = || large(spend(11, &[(10, 0)], None));
    assert_eq!(served.create(5, vec![orphan()]).await, ["missing_parent"]);
    assert!(!names(&place).contains(&format!("{}.tx", shown(11))), "it was its own");
    let file = place.join(format!("{}.tx", shown(11)));
    std::fs::write(&file, vec![3; 200]).unwrap();
    assert_eq!(served.create(5, vec![orphan()]).await, ["missing_parent"]);
    assert!(file.exists(), "somebody put it there");
    served.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_begun_to_be_created_is_ended_after_its_caller_has_gone() {
    let home = Home::new("inline_bytes = 16");
    let served = home.serve("");
    let place = home.data.join("utxo/files");
    let last = 500;
    let told = (1..=last).map(|n| large(coinbase(n, 1, 1))).collect();
    let request = served.asked(pb::CreateRequest { height: 1, transactions: told });
    let mut store = served.store();
    let call = tokio::spawn(async move { store.create(request).await.map(drop) });
    let begun = async {
        while names(&place).len() < 3 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, begun).await.expect("the first files");
    call.abort();
    let ended = async { while !served.is_here(last).await {} };
    tokio::time::timeout(PATIENCE, ended).await.expect("the last record");
    all_follow(&served, 1..=last).await;
    served.stop();
}

#[tokio::test]
async fn files_that_cannot_be_removed_keep_their_records_and_everybody_is_told() {
    let Some(disk) = SmallDisk::mount(4) else { return };
    let place = disk.data();
    std::fs::create_dir(&place).unwrap();
    let home = Home::new(&format!("inline_bytes = 16\nfiles = \"{}\"", place.display()));
    let served = home.serve("");
    served.create(1, vec![large(coinbase(1, 1, 1)), coinbase(2, 1, 1)]).await;
    let spends = vec![spend(11, &[(1, 0)], Some(5)), spend(12, &[(2, 0)], Some(5))];
    served.create(5, spends).await;
    disk.make_read_only();
    assert!(served.block(15).await);
    served.processed(15).await;
    assert!(served.is_here(1).await && !served.is_here(2).await);
    let (ready, why) = served.get("/readyz");
    assert!(ready == 503 && why.contains("external files cannot be removed"), "{ready} {why}");
    run(&home.data, "utxo prune --yes").ends(6).complains("cannot be removed. See that utxo.files");
    assert!(served.block(15).await, "there is something left to do");
    disk.make_writable();
    run(&home.data, "utxo prune --yes").ends(0);
    assert!(!served.is_here(1).await && served.get("/readyz").0 == 200);
    assert!(!served.block(15).await);
    served.stop();
}

#[tokio::test]
async fn a_story_does_not_wait_for_a_place_that_does_not_answer() {
    let home = Home::new("inline_bytes = 16");
    let served = home.serve("");
    served.create(1, vec![large(coinbase(1, 1, 1))]).await;
    // Whoever opens a pipe to read it waits for somebody who writes.
    let mark = home.data.join("utxo/files/secateur-place");
    std::fs::remove_file(&mark).unwrap();
    assert!(Command::new("mkfifo").arg(&mark).status().unwrap().success());
    let story = served.explain(1).await;
    assert_eq!(story.record.unwrap().file_is_there, Some(true));
    let told = story.verdict.join(" ");
    assert!(told.contains("while the place of files does not answer"), "{told}");
    // Nor does a command by itself, also to end; and the service ends.
    served.stop();
    let said = run(&home.data, &format!("utxo explain {}", shown(1))).ends(0);
    assert!(said.out.contains("while the place of files does not answer"), "{said:#?}");
}

#[tokio::test]
async fn a_place_that_does_not_answer_keeps_nothing_else_from_being_fed() {
    let home = Home::new("inline_bytes = 16\n[limits]\nanswer_bytes = \"128KiB\"");
    let served = home.serve("");
    served.create(1, vec![large(coinbase(1, 1, 1)), coinbase(2, 4, 1)]).await;
    served.create(5, vec![spend(3, &[(2, 0)], None)]).await;
    let mark = home.data.join("utxo/files/secateur-place");
    std::fs::remove_file(&mark).unwrap();
    assert!(Command::new("mkfifo").arg(&mark).status().unwrap().success());
    // Four more than there is room for at a time, and nobody waits for the others.
    let told = (100..120).map(|n| {
        let transactions = vec![large(coinbase(n, 1, 5))];
        let asked = served.asked(pb::CreateRequest { height: 5, transactions });
        let mut store = served.store();
        let call = async move { store.create(asked).await.unwrap_err() };
        tokio::time::timeout(Duration::from_secs(2), call)
    });
    let refused: Vec<_> =
        futures_util::future::join_all(told).await.into_iter().flatten().collect();
    assert_eq!(refused.iter().map(label).collect::<Vec<_>>(), ["overloaded"; 4]);
    let txids = vec![id(3).to_vec().into()];
    let mined = pb::SetMinedRequest { height: 6, txids, block: Some(block(6)) };
    served.store().set_mined(served.asked(mined)).await.unwrap();
    let made = served.create(6, vec![coinbase(4, 1, 6)]).await;
    assert_eq!(made, ["OUTCOME_NEW"]);
    served.stop();
}

#[tokio::test]
async fn of_many_files_of_a_request_one_is_waited_for_where_their_place_does_not_answer() {
    let home = Home::new("inline_bytes = 16\n[archive]\ntimeout_seconds = 2");
    let served = home.serve("");
    served.create(1, vec![large(coinbase(1, 1, 1))]).await;
    let mark = home.data.join("utxo/files/secateur-place");
    std::fs::remove_file(&mark).unwrap();
    assert!(Command::new("mkfifo").arg(&mark).status().unwrap().success());
    let mut transactions: Vec<_> = (2..5).map(|n| large(coinbase(n, 1, 1))).collect();
    transactions.push(coinbase(5, 1, 1));
    let asked = served.asked(pb::CreateRequest { height: 1, transactions });
    let made = served.store().create(asked).await.unwrap().into_inner().created;
    let told: Vec<_> = made.into_iter().map(|one| one.error.map(|error| error.message)).collect();
    let [Some(first), rest @ .., None] = told.as_slice() else { panic!("{told:?}") };
    assert!(first.contains("took longer than 2 s"), "{first}");
    for one in rest {
        let one = one.as_ref().unwrap();
        assert!(one.contains("did not answer for another file of the same request"), "{one}");
    }
    served.stop();
}

#[tokio::test]
async fn a_record_stays_until_the_removal_of_its_file_is_durable() {
    let home = Home::new("inline_bytes = 16");
    let served = home.serve("");
    served.create(1, vec![large(coinbase(1, 1, 1)), coinbase(2, 1, 1)]).await;
    let spends = vec![spend(11, &[(1, 0)], Some(5)), spend(12, &[(2, 0)], Some(5))];
    served.create(5, spends).await;
    served.stop();
    let place = home.data.join("utxo/files");
    let file = place.join(format!("{}.outputs", shown(1)));
    let allow = |mode| {
        std::fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(mode))
            .unwrap();
    };
    // Names can be removed from it, and it cannot be opened to be synced; not by root either, without its rights.
    allow(0o300);
    let ours = secateur(&home.data, "utxo prune --height 15 --yes");
    let mut prune = Command::new("setpriv");
    let rights = "-dac_override,-dac_read_search";
    if rustix::process::geteuid().is_root() {
        prune.args(["--bounding-set", rights, "--inh-caps", rights]);
    }
    prune.arg("--").arg(ours.get_program()).args(ours.get_args());
    let said = Run::of(prune.output().unwrap()).ends(6);
    assert!(!file.exists(), "{said:?}");
    allow(0o700);
    let told = |number| ask(&home.data, &format!("utxo explain {}", shown(number)));
    assert_eq!(told(1)["record"]["cut"], true, "{}", told(1));
    assert!(told(2)["record"].is_null(), "what has no file went: {}", told(2));
    run(&home.data, "utxo prune --height 15 --yes").ends(0);
    assert!(told(1)["record"].is_null(), "{}", told(1));
}
