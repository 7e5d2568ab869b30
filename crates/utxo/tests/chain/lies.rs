//! What cannot be a height is counted and changes nothing, and neither does what contradicts the chain.

use secateur_utxo::teranode::follow;
use secateur_utxo::{Event, Following, Heard, Skip, Subscribed};
use tokio::sync::watch;

use crate::teranode::{about_block, with_metadata};
use crate::world::{Rig, World, options};

const UNHEARD: &str = "secateur_utxo_chain_unheard_total";

#[tokio::test]
async fn heights_that_are_none_are_counted_and_change_nothing() {
    let world = World::at(50);
    let serving = world.serve(0).await;
    let rig = Rig::listening(options(&serving.url())).await;
    rig.stands(|stands| stands.processed == Some(50)).await;
    world.heard_by(1).await;
    world.persisted(40);
    rig.stands(|stands| stands.persisted == Some(40)).await;
    world.tell(&about_block(7, &[9; 32]));
    world.tell(&with_metadata(7, &[9; 32], &[("hight", "41")]));
    for text in ["", "abc", "-1", "+41", " 41", "41.0", "0x29", "4294967296", "٤١"] {
        world.says_persisted(text);
    }
    for hash in [&[][..], &[1; 31], &[1; 33]] {
        world.tell(&about_block(2, hash));
    }
    // Past the top, and backwards.
    world.says_persisted("51");
    rig.stands(|stands| stands.persisted == Some(40)).await;
    world.says_persisted("39");
    // Said last, and true.
    world.persisted(45);
    let stands = rig.stands(|stands| stands.persisted == Some(45)).await;
    assert_eq!((stands.head, stands.processed), (Some(50), Some(50)));
    assert_eq!(rig.counted(&format!("{UNHEARD}{{reason=\"no_height\"}}")), 2);
    assert_eq!(rig.counted(&format!("{UNHEARD}{{reason=\"not_a_height\"}}")), 9);
    assert_eq!(rig.counted(&format!("{UNHEARD}{{reason=\"not_a_hash\"}}")), 3);
    rig.end().await;
}

#[tokio::test]
async fn a_persister_is_not_believed_past_the_top_nor_backwards() {
    let world = World::at(50);
    let serving = world.serve(0).await;
    let rig = Rig::listening(options(&serving.url())).await;
    world.heard_by(1).await;
    world.persisted(40);
    rig.stands(|stands| stands.persisted == Some(40)).await;
    for (lie, reason) in [(51, "beyond_the_head"), (u32::MAX, "beyond_the_head"), (39, "backwards")]
    {
        let line = format!("{UNHEARD}{{reason=\"{reason}\"}}");
        let before = rig.counted(&line);
        world.says_persisted(&lie.to_string());
        let height = rig.service.standing().borrow().persisted.unwrap() + 1;
        while rig.counted(&line) == before {
            tokio::task::yield_now().await;
        }
        world.persisted(u32::try_from(height).unwrap());
        let stands = rig.stands(|stands| stands.persisted == Some(height)).await;
        assert_eq!(stands.head, Some(50));
    }
    rig.end().await;
}

#[tokio::test]
async fn a_message_that_is_too_long_ends_the_connection_and_nothing_else() {
    let world = World::at(5);
    let serving = world.serve(0).await;
    let rig = Rig::listening(options(&serving.url())).await;
    rig.stands(|stands| stands.processed == Some(5)).await;
    world.heard_by(1).await;
    world.tell(&about_block(2, &vec![9; 8 << 20]));
    world.heard_by(2).await;
    world.block(6);
    rig.stands(|stands| stands.processed == Some(6)).await;
    assert_eq!(rig.counted("secateur_utxo_chain_losses_total"), 1);
    rig.end().await;
}

#[tokio::test]
async fn a_persister_whose_state_cannot_be_right_is_waited_for() {
    let states: [(&[u8], Option<&str>); 6] = [
        (&[], Some("not_a_height")),
        (&[1, 2, 3], Some("not_a_height")),
        (&[255; 4], Some("beyond_the_head")),
        (&[0; 4], None),
        // The height is in the first four bytes, whatever comes behind them.
        (&[255, 255, 255, 255, 0], Some("beyond_the_head")),
        (&[0, 0, 0, 0, 9], None),
    ];
    for (state, counted) in states {
        let world = World::at(50);
        world.set_persister(Some(state.to_vec()));
        let serving = world.serve(0).await;
        let rig = Rig::listening(options(&serving.url())).await;
        if let Some(reason) = counted {
            let line = format!("{UNHEARD}{{reason=\"{reason}\"}}");
            while rig.counted(&line) < 2 {
                world.hang_up();
                tokio::task::yield_now().await;
            }
        } else {
            rig.stands(|stands| stands.persisted == Some(0)).await;
        }
        assert_eq!(rig.service.standing().borrow().processed.unwrap_or(0), 0, "{state:?}");
        // Nor does anybody else's block, here or where nobody hears the chain.
        for service in [&rig.service, &rig.another(Following::default()).await] {
            service.hear(Event::Block { height: 50, mined_set: true }).await.unwrap();
            let by_hand = service.trigger_at(Some(50)).unwrap();
            assert_eq!(service.plan(by_hand).await.unwrap().safe_height, 0, "{state:?}");
            if counted.is_some() {
                let pruned = service.prune(by_hand, watch::channel(false).1).await;
                assert_eq!(pruned.unwrap_err(), Skip::PersisterInDoubt);
            }
        }
        // It says something that can be right, and blocks count as far as it is.
        world.set_persister(Some(vec![40, 0, 0, 0]));
        while rig.service.standing().borrow().persisted != Some(40) {
            world.hang_up();
            tokio::task::yield_now().await;
        }
        rig.stands(|stands| stands.processed == Some(40)).await;
        rig.end().await;
    }
}

#[tokio::test]
async fn a_doubt_about_a_persister_outlasts_the_next_block() {
    let world = World::at(50);
    world.set_persister(Some(vec![255; 4]));
    let serving = world.serve(0).await;
    let rig = Rig::listening(options(&serving.url())).await;
    world.heard_by(1).await;
    for height in [51, 52] {
        world.block(height);
        let stands = rig.stands(|stands| stands.head == Some(height.into())).await;
        assert_eq!((stands.processed, stands.persisted), (None, None));
    }
    // Nobody else sets anything off either.
    let pushed = rig.service.hear(Event::Block { height: 52, mined_set: true }).await.unwrap();
    assert_eq!(pushed, Heard::Noted);
    let by_hand = rig.service.trigger_at(Some(52)).unwrap();
    let plan = rig.service.plan(by_hand).await.unwrap();
    assert_eq!((plan.skip, plan.safe_height), (Some("persister_in_doubt"), 0));
    let pruned = rig.service.prune(by_hand, watch::channel(false).1).await;
    assert_eq!(pruned.unwrap_err(), Skip::PersisterInDoubt);
    // A block asks for the state again.
    world.set_persister(Some(vec![40, 0, 0, 0]));
    world.block(53);
    let stands = rig.stands(|stands| stands.processed.is_some()).await;
    assert_eq!((stands.processed, stands.persisted), (Some(40), Some(40)));
    rig.end().await;
}

/// I26.
#[tokio::test]
async fn nothing_goes_until_a_chain_said_whether_it_has_a_persister() {
    let world = World::at(50);
    let serving = world.serve(0).await;
    let rig = Rig::open(Following::default(), None).await;
    let following = Following { subscribed: Subscribed::Elsewhere, ..Following::default() };
    let unheard = rig.another(following.clone()).await;
    let here = Following { subscribed: Subscribed::Here, ..following.clone() };
    let starts = rig.another(here).await;
    let block = Event::Block { height: 50, mined_set: true };
    assert_eq!(starts.hear(block).await.unwrap(), Heard::Noted);
    // Who is pushed blocks asks the store before each run, and so goes on by itself later.
    assert!(matches!(unheard.hear(block).await.unwrap(), Heard::Trigger(_)));
    let by_hand = unheard.trigger_at(Some(50)).unwrap();
    assert_eq!(unheard.awaited().await.unwrap(), Some(Skip::PersisterInDoubt));
    let go = || watch::channel(false).1;
    assert_eq!(unheard.prune(by_hand, go()).await.unwrap_err(), Skip::PersisterInDoubt);
    // It says that it has none, and that is known where it is away.
    let listener = rig.another(following.clone()).await;
    let (options, (stop, stopped)) = (options(&serving.url()), watch::channel(false));
    let mut standing = listener.standing();
    let chain = listener.clone();
    let listening = tokio::spawn(async move { follow(&chain, &options, stopped).await });
    standing.wait_for(|stands| stands.head == Some(50)).await.unwrap();
    while listener.awaited().await.unwrap().is_some() {
        tokio::task::yield_now().await;
    }
    stop.send_replace(true);
    listening.await.unwrap().unwrap();
    let restarted = rig.another(following).await;
    assert_eq!(restarted.awaited().await.unwrap(), None);
    assert!(matches!(restarted.hear(block).await.unwrap(), Heard::Trigger(_)));
    let (stop, stopped) = watch::channel(false);
    let mut standing = unheard.standing();
    let running = tokio::spawn(async move { Box::pin(unheard.run(stopped)).await });
    standing.wait_for(|stands| stands.processed == Some(50)).await.unwrap();
    stop.send_replace(true);
    running.await.unwrap();
    rig.end().await;
}

#[tokio::test]
async fn a_top_that_jumps_is_not_believed_until_it_comes_back() {
    let world = World::at(50);
    let serving = world.serve(0).await;
    let rig = Rig::listening(options(&serving.url())).await;
    rig.stands(|stands| stands.processed == Some(50)).await;
    world.heard_by(1).await;
    world.block(u32::MAX);
    let stands = rig.stands(|stands| stands.not_ready.is_some()).await;
    assert_eq!((stands.head, stands.processed), (Some(50), Some(50)));
    assert!(rig.counted(&format!("{UNHEARD}{{reason=\"too_far\"}}")) >= 1);
    world.block(51);
    let stands = rig.stands(|stands| stands.processed == Some(51)).await;
    assert_eq!(stands.not_ready, None);
    rig.end().await;
}
