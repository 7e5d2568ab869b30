//! What the chain tells sets prunes off, and where it stands at the start is asked.

use std::time::Duration;

use secateur_utxo::Following;
use secateur_utxo::teranode::ChainOptions;

use crate::world::{Rig, World, notification, options};

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
    world.set(|chain| chain.persister = Some(vec![95, 0, 0, 0]));
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
    world.set(|chain| chain.head = 12);
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
    world.set(|chain| (chain.head, chain.mined_set) = (6, false));
    world.tell(&notification(2, Some("6")));
    let stands = rig.stands(|stands| stands.head == Some(6)).await;
    assert_eq!(stands.processed, Some(5));
    world.set(|chain| chain.mined_set = true);
    rig.stands(|stands| stands.processed == Some(6)).await;
    rig.end().await;
}

#[tokio::test]
async fn a_persister_that_is_configured_absent_keeps_no_block_back_whatever_its_state() {
    for state in [vec![5, 0, 0, 0], vec![255; 4], vec![1, 2, 3]] {
        let world = World::at(50);
        world.set(|chain| chain.persister = Some(state));
        let serving = world.serve(0).await;
        let following = Following { persister_absent: true, ..Following::default() };
        let rig = Rig::listening_as(following, options(&serving.url())).await;
        rig.stands(|stands| stands.processed == Some(50)).await;
        world.heard_by(1).await;
        world.set(|chain| (chain.head, chain.mined_set) = (51, false));
        world.tell(&notification(2, Some("51")));
        rig.stands(|stands| stands.head == Some(51)).await;
        world.persisted(7);
        world.set(|chain| chain.mined_set = true);
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
    for kind in [0, 1, 3, 4, 5, 6, 9, 77, -1] {
        world.tell(&notification(kind, Some("1000")));
    }
    world.block(6);
    let stands = rig.stands(|stands| stands.processed == Some(6)).await;
    assert_eq!((stands.head, stands.persisted), (Some(6), None));
    rig.end().await;
}

#[tokio::test]
async fn a_chain_that_answers_no_subscription_is_asked_from_time_to_time() {
    let world = World::at(5);
    world.set(|chain| chain.mute = true);
    let serving = world.serve(0).await;
    let silence = Duration::from_millis(50);
    let rig = Rig::listening(ChainOptions { silence, ..options(&serving.url()) }).await;
    rig.stands(|stands| stands.processed == Some(5)).await;
    world.set(|chain| chain.head = 9);
    rig.stands(|stands| stands.processed == Some(9)).await;
    world.set(|chain| chain.persister = Some(vec![8, 0, 0, 0]));
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
    rig.stands(|stands| stands.processed == Some(10_000)).await;
    assert_eq!(rig.counted("secateur_utxo_chain_losses_total"), 0);
    rig.end().await;
}
