//! Connections break, and what happened meanwhile is made up for.

use std::time::Duration;

use secateur_utxo::teranode::ChainOptions;
use tokio::net::TcpListener;

use crate::world::{Rig, World, options};

#[tokio::test]
async fn a_subscription_that_ends_is_made_again() {
    let world = World::at(5);
    let serving = world.serve(0).await;
    let rig = Rig::listening(options(&serving.url())).await;
    for turn in 1..=5 {
        world.heard_by(turn).await;
        // Told to nobody.
        world.hang_up();
        let height = 5 + u32::try_from(turn).unwrap();
        world.goes_to(height, true);
        rig.stands(move |stands| stands.processed == Some(u64::from(height))).await;
    }
    rig.end().await;
}

#[tokio::test]
async fn a_chain_that_was_down_is_found_again_with_what_it_did_meanwhile() {
    let world = World::at(5);
    let serving = world.serve(0).await;
    let url = serving.url();
    let rig = Rig::listening(options(&url)).await;
    rig.stands(|stands| stands.processed == Some(5)).await;
    world.heard_by(1).await;
    let port = serving.end().await;
    world.hang_up();
    world.goes_to(70, true);
    world.set_persister(Some(vec![60, 0, 0, 0]));
    let _serving = world.serve(port).await;
    rig.stands(|stands| stands.processed == Some(60) && stands.head == Some(70)).await;
    world.heard_by(2).await;
    world.block(71);
    rig.stands(|stands| stands.head == Some(71)).await;
    rig.end().await;
}

#[tokio::test]
async fn a_chain_that_is_not_heard_for_long_is_told_until_it_is_heard_again() {
    let world = World::at(5);
    let serving = world.serve(0).await;
    let silence = Duration::from_millis(50);
    let rig = Rig::listening(ChainOptions { silence, ..options(&serving.url()) }).await;
    rig.stands(|stands| stands.processed == Some(5) && stands.not_ready.is_none()).await;
    let port = serving.end().await;
    let told = rig.stands(|stands| stands.not_ready.is_some()).await.not_ready.unwrap();
    assert!(told.contains("not been heard for long"), "{told}");
    assert!(rig.service.ready().is_err());
    let _serving = world.serve(port).await;
    rig.stands(|stands| stands.not_ready.is_none()).await;
    rig.end().await;
}

#[tokio::test]
async fn a_peer_that_accepts_and_says_nothing_keeps_nobody_from_stopping() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let rig = Rig::listening(options(&url)).await;
    let (_held, _) = listener.accept().await.unwrap();
    rig.end().await;
}
