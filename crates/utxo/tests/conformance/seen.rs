//! What a store remembers of a chain: how far it was seen, and whether records of it are fed.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use secateur_utxo::{
    Event, Following, Metrics, Pruner, Rules, Service, Subscribed, Trigger, UtxoStore,
};
use tokio::sync::watch;

use super::prunes::{go, settings};
use super::rig::{Faulty, Home, RULES, When, add, coins, mine, pays};

async fn service<S: UtxoStore>(store: &S, following: Following) -> Service<S> {
    let metrics = Arc::new(Metrics::default());
    let pruner = Pruner::new(store.clone(), None, settings(), None, Arc::clone(&metrics)).unwrap();
    Service::open(pruner, following, metrics).await.unwrap()
}

async fn block<S: UtxoStore>(service: &Service<S>, height: u64) {
    service.hear(Event::Block { height, mined_set: true }).await.unwrap();
}

/// A prune by hand below the head overwrote the height, and past-due records looked as if they were not due.
pub async fn a_prune_by_hand_below_the_head_does_not_forget_how_far_the_chain_was_seen<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 2).await;
    add(store, 6, vec![pays(2, &[(1, 0)], 0), pays(3, &[(1, 1)], 0)]).await;
    mine(store, 8, &[2, 3]).await;
    let first = service(store, Following::default()).await;
    block(&first, 20).await;
    let prune = async |service: &Service<S>, height| {
        let trigger = Trigger { height, persisted: None };
        service.prune(trigger, go()).await.unwrap().0.done.deleted
    };
    assert_eq!(prune(&first, 12).await, 0);
    // The next process has heard of no block, and neither has the one after it.
    drop(first);
    let by_hand = service(store, Following::default()).await;
    assert_eq!(prune(&by_hand, 13).await, 0);
    drop(by_hand);
    let next = service(store, Following::default()).await;
    assert_eq!(next.status().await.unwrap().counts.due, 3);
    // A block says where the chain is, also where that is lower.
    block(&next, 15).await;
    assert_eq!(prune(&next, 15).await, 0);
    drop(next);
    let last = service(store, Following::default()).await;
    assert_eq!(last.status().await.unwrap().counts.due, 0);
}

/// All records were counted, each second, and a large store never came to an end with it.
pub async fn whether_there_are_records_is_asked_once_and_they_are_not_counted_for_it<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    coins(&home.store, 1).await;
    let (calls, mut seen) = watch::channel(BTreeMap::<&str, u32>::new());
    let store = Faulty::new(home.store.clone(), move |name| {
        calls.send_modify(|calls| *calls.entry(name).or_default() += 1);
        (name == "counts").then_some(When::Keeps)
    });
    // Runs count; there are none.
    let following =
        Following { enabled: false, subscribed: Subscribed::Here, ..Following::default() };
    let service = service(&store, following).await;
    block(&service, 17).await;
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn({
        let service = service.clone();
        async move { Box::pin(service.run(stopped)).await }
    });
    seen.wait_for(|calls| calls.get("room") >= Some(&3)).await.unwrap();
    stop.send_replace(true);
    running.await.unwrap();
    let calls = seen.borrow().clone();
    assert_eq!((calls.get("has_records"), calls.get("counts")), (Some(&1), None), "{calls:?}");
}

/// A feeder behind the chain by more blocks than may pass without a record was said to feed none.
pub async fn a_feeder_of_old_blocks_feeds_for_every_service_on_the_store<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let following = Following {
        subscribed: Subscribed::Here,
        max_unfed_blocks: 6,
        enabled: false,
        ..Following::default()
    };
    let service = service(&home.store, following.clone()).await;
    let warnings = async || service.status().await.unwrap().warnings;
    block(&service, 1_000).await;
    assert_eq!(warnings().await.len(), 1, "it is empty");
    for head in [1_010, 1_020] {
        block(&service, head).await;
        assert_eq!(warnings().await.len(), 1);
        service.fed(5);
        assert_eq!(warnings().await, Vec::<String>::new());
    }
    // One huge height says nothing of the blocks to come.
    service.fed(u64::from(u32::MAX));
    block(&service, 1_027).await;
    assert_eq!(warnings().await.len(), 1);
}
