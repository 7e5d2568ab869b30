//! What the chain tells sets prunes off, and where it stands at the start is asked.

use std::time::Duration;

use secateur_utxo::teranode::{ApiKey, ChainOptions};
use secateur_utxo::{Following, Skip, Subscribed, Trigger};
use tokio::sync::watch;

use crate::teranode::{Message, about_block, with_metadata};
use crate::world::{Rig, World, options};

#[tokio::test]
async fn blocks_set_prunes_off_until_a_persister_reports_and_then_only_it_does() {
    let world = World::at(10);
    let serving = world.serve(0).await;
    let rig = Rig::listening(options(&serving.url())).await;
    rig.stands(|stands| stands.processed == Some(10)).await;
    world.heard_by(1).await;
    world.block(12);
    rig.stands(|stands| stands.processed == Some(12)).await;
    world.persisted(12);
    rig.stands(|stands| stands.persisted == Some(12)).await;
    world.block(20);
    rig.stands(|stands| stands.head == Some(20)).await;
    world.persisted(18);
    let stands = rig.stands(|stands| stands.processed > Some(12)).await;
    assert_eq!((stands.processed, stands.persisted), (Some(18), Some(18)), "20 was only noted");
    rig.end().await;
}

#[tokio::test]
async fn how_far_a_persister_is_is_asked_before_any_block_counts() {
    let world = World::at(100);
    world.set_persister(Some(vec![95, 0, 0, 0]));
    let serving = world.serve(0).await;
    let rig = Rig::listening(options(&serving.url())).await;
    let stands = rig.stands(|stands| stands.processed.is_some()).await;
    assert_eq!((stands.processed, stands.persisted), (Some(95), Some(95)));
    world.heard_by(1).await;
    world.block(101);
    let stands = rig.stands(|stands| stands.head == Some(101)).await;
    assert_eq!(stands.processed, Some(95));
    rig.end().await;
}

#[tokio::test]
async fn a_block_of_which_only_its_persister_tells_is_believed_if_the_chain_has_it() {
    let world = World::at(10);
    let serving = world.serve(0).await;
    let rig = Rig::listening(options(&serving.url())).await;
    rig.stands(|stands| stands.processed == Some(10)).await;
    world.heard_by(1).await;
    world.goes_to(12, true);
    world.persisted(12);
    rig.stands(|stands| stands.persisted == Some(12) && stands.processed == Some(12)).await;
    rig.end().await;
}

#[tokio::test]
async fn a_state_that_is_absent_is_no_persister() {
    let world = World::at(30);
    let serving = world.serve(0).await;
    let rig = Rig::listening(options(&serving.url())).await;
    let stands = rig.stands(|stands| stands.processed.is_some()).await;
    assert_eq!((stands.processed, stands.persisted), (Some(30), None));
    rig.end().await;
}

#[tokio::test]
async fn a_block_counts_once_its_transactions_are_set_mined_without_another_word() {
    let world = World::at(5);
    let serving = world.serve(0).await;
    let rig = Rig::listening(options(&serving.url())).await;
    rig.stands(|stands| stands.processed == Some(5)).await;
    world.heard_by(1).await;
    world.goes_to(6, false);
    world.tells_top();
    let stands = rig.stands(|stands| stands.head == Some(6)).await;
    assert_eq!(stands.processed, Some(5));
    world.mines();
    rig.stands(|stands| stands.processed == Some(6)).await;
    rig.end().await;
}

#[tokio::test]
async fn a_persister_that_is_configured_absent_keeps_no_block_back_whatever_its_state() {
    for state in [vec![5, 0, 0, 0], vec![255; 4], vec![1, 2, 3]] {
        let world = World::at(50);
        world.set_persister(Some(state));
        let serving = world.serve(0).await;
        let following = Following { persister_absent: true, ..Following::default() };
        let rig = Rig::listening_as(following, options(&serving.url())).await;
        rig.stands(|stands| stands.processed == Some(50)).await;
        world.heard_by(1).await;
        world.goes_to(51, false);
        world.tells_top();
        rig.stands(|stands| stands.head == Some(51)).await;
        world.persisted(7);
        world.mines();
        let stands = rig.stands(|stands| stands.processed == Some(51)).await;
        assert_eq!(stands.persisted, None);
        rig.end().await;
    }
}

#[tokio::test]
async fn other_notifications_change_nothing() {
    let world = World::at(5);
    let serving = world.serve(0).await;
    let rig = Rig::listening(options(&serving.url())).await;
    rig.stands(|stands| stands.processed == Some(5)).await;
    world.heard_by(1).await;
    let hash = [1; 32];
    world.tell(&Message::default().done());
    world.tell(&with_metadata(1, &hash, &[]));
    world.tell(&with_metadata(4, &[0; 32], &[("event", "RUN"), ("destination", "RUNNING")]));
    world.tell(&about_block(5, &hash));
    world.tell(&with_metadata(6, &hash, &[("peer_id", "a"), ("reason", "b")]));
    for kind in [3, 9, 77, u64::MAX] {
        world.tell(&with_metadata(kind, &hash, &[("height", "1000")]));
    }
    world.block(6);
    let stands = rig.stands(|stands| stands.processed == Some(6)).await;
    assert_eq!((stands.head, stands.persisted), (Some(6), None));
    rig.end().await;
}

#[tokio::test]
async fn a_chain_that_answers_no_subscription_is_asked_from_time_to_time() {
    let world = World::at(5);
    world.falls_mute();
    let serving = world.serve(0).await;
    let silence = Duration::from_millis(50);
    let rig = Rig::listening(ChainOptions { silence, ..options(&serving.url()) }).await;
    rig.stands(|stands| stands.processed == Some(5)).await;
    world.goes_to(9, true);
    rig.stands(|stands| stands.processed == Some(9)).await;
    world.set_persister(Some(vec![8, 0, 0, 0]));
    rig.stands(|stands| stands.persisted == Some(8)).await;
    rig.end().await;
}

#[tokio::test]
async fn a_burst_ends_at_the_last_height() {
    let world = World::at(1);
    let serving = world.serve(0).await;
    let rig = Rig::listening(options(&serving.url())).await;
    world.heard_by(1).await;
    for height in 2..=10_000 {
        world.block(height);
    }
    // A chain drops those who do not keep up; whoever is dropped asks again where it is.
    rig.stands(|stands| stands.processed == Some(10_000)).await;
    rig.end().await;
}

/// A block's notification is its type and its hash. It was thrown away, because it was expected to name a height; and
/// whether the block is set mined was read from an answer that never says so, so that no block ever counted.
#[tokio::test]
async fn a_block_of_which_only_the_hash_is_sent_sets_a_prune_off() {
    let world = World::at(10);
    let serving = world.serve(0).await;
    let rig = Rig::listening(options(&serving.url())).await;
    rig.stands(|stands| stands.processed == Some(10)).await;
    world.heard_by(1).await;
    for height in [11, 12] {
        world.block(height);
        rig.stands(move |stands| stands.processed == Some(height.into())).await;
    }
    for line in ["no_height", "not_a_hash", "not_a_height"] {
        let line = format!("secateur_utxo_chain_unheard_total{{reason=\"{line}\"}}");
        assert_eq!(rig.counted(&line), 0);
    }
    rig.end().await;
}

/// A notification about a block may be about one that is stored as invalid, or was just made so: it is not the top.
#[tokio::test]
async fn a_block_that_is_not_the_top_sets_nothing_off() {
    let world = World::at(10);
    let serving = world.serve(0).await;
    let rig = Rig::listening(options(&serving.url())).await;
    rig.stands(|stands| stands.processed == Some(10)).await;
    world.heard_by(1).await;
    let looks = world.asked("GetBestBlockHeader");
    world.tell(&about_block(2, &[5; 32]));
    world.is_asked("GetBestBlockHeader", looks + 1).await;
    world.block(11);
    let stands = rig.stands(|stands| stands.processed == Some(11)).await;
    assert_eq!(stands.head, Some(11));
    rig.end().await;
}

#[tokio::test]
async fn while_a_persister_reports_nobody_asks_which_blocks_are_set_mined() {
    let world = World::at(10);
    world.goes_to(11, false);
    world.set_persister(Some(vec![9, 0, 0, 0]));
    let serving = world.serve(0).await;
    let silence = Duration::from_millis(20);
    let rig = Rig::listening(ChainOptions { silence, ..options(&serving.url()) }).await;
    world.is_asked("GetBestBlockHeader", 10).await;
    let stands = rig.stands(|stands| stands.processed == Some(9)).await;
    assert_eq!((stands.head, world.asked("GetBlockIsMined")), (Some(11), 0));
    rig.end().await;
}

#[tokio::test]
async fn a_chain_that_wants_a_key_is_shown_the_configured_one_with_every_call() {
    let world = World::at(10);
    world.wants_key("s3cret-key");
    world.set_assembly("running", 10);
    let serving = world.serve(0).await;
    let key = |text: &str| Some(ApiKey::new(text).unwrap());
    let with = |api_key| ChainOptions { api_key, ..options(&serving.url()) };
    for wrong in [None, key("another")] {
        let rig = Rig::listening(with(wrong.clone())).await;
        let told = rig.stands(|stands| stands.not_ready.is_some()).await.not_ready.unwrap();
        assert!(told.contains("utxo.api_key_file"), "{told}");
        assert!(!told.contains("another"), "{told}");
        assert_eq!(rig.service.standing().borrow().processed, None);
        rig.end().await;
        let guarded = Rig::open(Following::default(), Some(&with(wrong))).await;
        let trigger = Trigger { height: 10, persisted: None };
        let pruned = guarded.service.prune(trigger, watch::channel(false).1).await;
        assert_eq!(pruned.unwrap_err(), Skip::AssemblyUnreachable);
    }
    let rig = Rig::listening(with(key("s3cret-key"))).await;
    rig.stands(|stands| stands.processed == Some(10)).await;
    world.heard_by(1).await;
    world.block(11);
    rig.stands(|stands| stands.processed == Some(11)).await;
    rig.end().await;
}

/// A service that followed a chain and was fed by nobody was ready for ever, and pruned nothing.
#[tokio::test]
async fn a_followed_chain_that_feeds_no_record_is_warned_of_and_then_not_ready() {
    let world = World::at(10);
    let serving = world.serve(0).await;
    let following =
        Following { subscribed: Subscribed::Here, max_unfed_blocks: 6, ..Following::default() };
    let rig = Rig::listening_as(following, options(&serving.url())).await;
    rig.stands(|stands| stands.processed == Some(10)).await;
    world.heard_by(1).await;
    let warned = async {
        while rig.service.status().await.unwrap().warnings.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), warned).await.expect("it does not warn");
    assert_eq!(rig.counted("secateur_utxo_unfed"), 1);
    assert!(rig.service.ready().is_ok());
    world.block(16);
    rig.stands(|stands| stands.processed == Some(16) && stands.not_ready.is_none()).await;
    world.block(17);
    let told = rig.stands(|stands| stands.not_ready.is_some()).await.not_ready.unwrap();
    assert!(told.contains("no record was ever fed"), "{told}");
    // Another service on the store takes records.
    let feeding = rig.another(Following::default()).await;
    feeding.fed(17);
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(async move { Box::pin(feeding.run(stopped)).await });
    rig.stands(|stands| stands.not_ready.is_none()).await;
    assert_eq!(rig.service.status().await.unwrap().warnings, Vec::<String>::new());
    assert_eq!(rig.counted("secateur_utxo_unfed"), 0);
    stop.send_replace(true);
    running.await.unwrap();
    world.block(24);
    let told = rig.stands(|stands| stands.not_ready.is_some()).await.not_ready.unwrap();
    assert!(told.contains("last fed at height 17"), "{told}");
    rig.end().await;
}

/// A top that is set mined was asked for twice a second for ever. A chain whose top is not set mined is the clock: it is
/// looked at again after half a second, one second and two.
#[tokio::test]
async fn after_a_top_that_is_set_mined_the_chain_is_left_alone() {
    const METHODS: [&str; 3] = ["GetBestBlockHeader", "GetBlockIsMined", "GetState"];
    let (quiet, busy) = (World::at(10), World::at(10));
    busy.goes_to(10, false);
    let (serving, other) = (quiet.serve(0).await, busy.serve(0).await);
    let rig = Rig::listening(options(&serving.url())).await;
    // Once at first, once subscribed, and for the first notification.
    quiet.is_asked("GetBlockIsMined", 3).await;
    rig.stands(|stands| stands.processed == Some(10)).await;
    let before = METHODS.map(|method| quiet.asked(method));
    let watching = Rig::listening(options(&other.url())).await;
    busy.is_asked("GetBlockIsMined", 4).await;
    assert_eq!(METHODS.map(|method| quiet.asked(method)), before);
    // What it tells is heard all the same.
    quiet.block(11);
    rig.stands(|stands| stands.processed == Some(11)).await;
    assert!(quiet.asked("GetBestBlockHeader") > before[0]);
    rig.end().await;
    watching.end().await;
}
