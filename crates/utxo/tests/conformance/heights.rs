//! Heights that keep records back, and heights that cannot be right.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use secateur_utxo::{
    Event, Following, Heard, Metrics, Pruner, Rules, Service, Skip, Trigger, TriggerMode, UtxoStore,
};
use tokio::sync::watch;

use super::prunes::{go, settings};
use super::rig::{Faulty, Home, RULES, When, add, coins, is_here, mine, pays};

async fn service<S: UtxoStore>(store: &S) -> Service<S> {
    service_that(store, Following { max_jump_blocks: 100, ..Following::default() }).await
}

async fn service_that<S: UtxoStore>(store: &S, following: Following) -> Service<S> {
    let metrics = Arc::new(Metrics::default());
    let pruner = Pruner::new(store.clone(), None, settings(), None, Arc::clone(&metrics)).unwrap();
    Service::open(pruner, following, metrics).await.unwrap()
}

async fn block<S: UtxoStore>(service: &Service<S>, height: u64) -> Heard {
    service.hear(Event::Block { height, mined_set: true }).await.unwrap()
}

async fn prune<S: UtxoStore>(service: &Service<S>, trigger: Trigger) -> Result<u64, Skip> {
    service.prune(trigger, go()).await.map(|(job, _)| job.done.deleted)
}

/// A record that is due at 17 and one at 18, with the one whose coins they spend.
async fn two_due<S: UtxoStore>(store: &S) {
    coins(store, 2).await;
    add(store, 6, vec![pays(2, &[(1, 0)], 0), pays(3, &[(1, 1)], 0)]).await;
    mine(store, 7, &[2]).await;
    mine(store, 8, &[3]).await;
}

pub async fn what_a_persister_reported_outlives_a_restart_also_without_a_run<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    two_due(store).await;
    let first = service(store).await;
    prune(&first, first.trigger_at(Some(16)).unwrap()).await.unwrap();
    // It is behind what is processed, so that no run comes of it.
    first.hear(Event::Persisted { height: 12 }).await.unwrap();
    assert_eq!(block(&first, 20).await, Heard::Noted);
    drop(first);
    let next = service(store).await;
    assert_eq!(next.status().await.unwrap().persisted, Some(12));
    assert_eq!(block(&next, 21).await, Heard::Noted, "blocks set nothing off while there is one");
    assert_eq!(prune(&next, next.trigger_at(None).unwrap()).await, Ok(0));
    assert!(is_here(store, 2).await && is_here(store, 3).await);
    // It begins anew, further back, and that is kept too.
    next.hear(Event::Persisted { height: 5 }).await.unwrap();
    drop(next);
    let last = service(store).await;
    assert_eq!(last.status().await.unwrap().persisted, Some(5));
    last.hear(Event::Persisted { height: 17 }).await.unwrap();
    assert_eq!(prune(&last, last.trigger_at(Some(21)).unwrap()).await, Ok(1));
    assert!(!is_here(store, 2).await && is_here(store, 3).await);
}

pub async fn a_persister_binds_every_service_on_the_store<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    two_due(store).await;
    let (one, other) = (service(store).await, service(store).await);
    one.hear(Event::Persisted { height: 12 }).await.unwrap();
    // The other one never heard of it.
    let Heard::Trigger(trigger) = block(&other, 20).await else { panic!("it triggers") };
    assert_eq!(trigger.persisted, None);
    assert_eq!(prune(&other, trigger).await, Ok(0));
    assert!(is_here(store, 2).await && is_here(store, 3).await);
    assert_eq!(other.status().await.unwrap().persisted, Some(12));
    // What the store says is no word of the chain.
    let third = service(store).await;
    one.hear(Event::Persisted { height: 11 }).await.unwrap();
    prune(&third, Trigger { height: 20, persisted: None }).await.unwrap();
    let stands = third.standing().borrow().clone();
    assert_eq!((stands.heard, stands.persisted), (false, Some(11)), "{stands:?}");
}

pub async fn where_records_wait_for_a_persister_nothing_goes_before_it_reports<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    two_due(store).await;
    let following = Following { mode: TriggerMode::Persisted, ..Following::default() };
    let service = service_that(store, following.clone()).await;
    let other = service_that(store, following).await;
    block(&service, 20).await;
    let by_hand = service.trigger_at(Some(20)).unwrap();
    let plan = service.plan(by_hand).await.unwrap();
    assert_eq!((plan.skip, plan.safe_height, plan.counts.due), (Some("persister_unheard"), 0, 0));
    assert_eq!(service.safe_height(by_hand).await.unwrap(), 0);
    assert_eq!(prune(&service, by_hand).await, Err(Skip::PersisterUnheard));
    assert!(is_here(store, 2).await && is_here(store, 3).await);
    // Another service hears of it, and this one plans what it would do.
    other.hear(Event::Persisted { height: 17 }).await.unwrap();
    let by_hand = service.trigger_at(Some(20)).unwrap();
    assert_eq!(by_hand.persisted, None);
    let plan = service.plan(by_hand).await.unwrap();
    assert_eq!((plan.skip, plan.safe_height, plan.counts.due), (None, 17, 2));
    assert_eq!(service.safe_height(by_hand).await.unwrap(), 17);
    assert_eq!(prune(&service, by_hand).await, Ok(2));
    assert!(!is_here(store, 1).await && !is_here(store, 2).await && is_here(store, 3).await);
}

pub async fn a_run_that_waited_deletes_nothing_beyond_a_persister_that_began_anew<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    two_due(store).await;
    let service = service(store).await;
    let heard = service.hear(Event::Persisted { height: 20 }).await.unwrap();
    let Heard::Trigger(waited) = heard else { panic!("it triggers") };
    service.hear(Event::Persisted { height: 5 }).await.unwrap();
    assert_eq!(prune(&service, waited).await, Ok(0));
    assert!(is_here(store, 2).await && is_here(store, 3).await);
}

pub async fn a_persister_that_catches_up_below_a_prune_by_hand_sets_runs_off<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 1).await;
    add(store, 6, vec![pays(2, &[(1, 0)], 1)]).await;
    mine(store, 7, &[2]).await;
    let service = service(store).await;
    service.hear(Event::Persisted { height: 10 }).await.unwrap();
    assert_eq!(block(&service, 100).await, Heard::Noted);
    let (job, _) = service.prune(service.trigger_at(None).unwrap(), go()).await.unwrap();
    assert_eq!((job.height, job.safe_height, job.done.deleted), (100, 10, 0));
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn({
        let service = service.clone();
        async move { service.run(stopped).await }
    });
    service.hear(Event::Persisted { height: 20 }).await.unwrap();
    let gone = async {
        while is_here(store, 1).await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), gone).await.expect("nothing is pruned");
    stop.send(true).unwrap();
    running.await.unwrap();
    assert_eq!(service.status().await.unwrap().processed, Some(100));
    let jobs = store.jobs().await.unwrap();
    assert_eq!((jobs[0].height, jobs[0].safe_height, jobs[0].done.deleted), (20, 20, 1));
}

pub async fn a_height_far_above_what_is_known_is_not_believed<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    two_due(store).await;
    let service = service(store).await;
    block(&service, 16).await;
    prune(&service, service.trigger_at(None).unwrap()).await.unwrap();
    let far = 4_000_000_000;
    assert_eq!(block(&service, far).await, Heard::TooFar { known: 16 });
    let persisted = service.hear(Event::Persisted { height: far }).await.unwrap();
    assert_eq!(persisted, Heard::TooFar { known: 16 });
    assert_eq!(prune(&service, service.trigger_at(Some(far)).unwrap()).await, Err(Skip::TooFar));
    let status = service.status().await.unwrap();
    assert_eq!((status.head, status.persisted, status.processed), (Some(16), None, Some(16)));
    assert!(is_here(store, 2).await);
    assert!(service.ready().unwrap_err().contains("max_jump_blocks"));
    // What comes next is believed, and so is the last height that is not too far.
    block(&service, 17).await;
    assert_eq!(service.ready(), Ok(()));
    assert_eq!(prune(&service, service.trigger_at(None).unwrap()).await, Ok(1));
    assert!(matches!(block(&service, 117).await, Heard::Trigger(_)));
    assert_eq!(block(&service, 218).await, Heard::TooFar { known: 117 });
}

pub async fn what_is_above_the_last_block_that_was_told_is_not_persisted<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    two_due(store).await;
    let service = service(store).await;
    let persisted = async |height| service.hear(Event::Persisted { height }).await.unwrap();
    // Who never tells of a block is believed.
    assert!(matches!(persisted(16).await, Heard::Trigger(_)));
    assert_eq!(block(&service, 16).await, Heard::Noted);
    assert_eq!(persisted(17).await, Heard::AboveHead { head: 16 });
    assert!(service.ready().unwrap_err().contains("block 17 was said to be persisted, above 16"));
    let status = service.status().await.unwrap();
    assert_eq!((status.head, status.persisted), (Some(16), Some(16)));
    prune(&service, service.trigger_at(None).unwrap()).await.unwrap();
    assert!(is_here(store, 2).await && is_here(store, 3).await);
    // It was early: once the block is told, it is right.
    assert_eq!(block(&service, 17).await, Heard::Noted);
    assert_eq!(service.ready(), Ok(()));
    assert!(matches!(persisted(17).await, Heard::Trigger(_)));
    assert_eq!(prune(&service, service.trigger_at(None).unwrap()).await, Ok(1));
    assert!(!is_here(store, 2).await && is_here(store, 3).await);
}

pub async fn a_run_that_is_tried_again_goes_to_the_height_that_was_told_last<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    two_due(&home.store).await;
    let (broken, is_broken) = watch::channel(true);
    let faulty = Faulty::new(home.store.clone(), move |name| {
        (name == "old_unmined" && *is_broken.borrow()).then_some(When::Before)
    });
    let service = service(&faulty).await;
    let mut standing = service.standing();
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn({
        let service = service.clone();
        async move { service.run(stopped).await }
    });
    let persisted = async |height| service.hear(Event::Persisted { height }).await.unwrap();
    // A mistake, of which nothing comes but a run that fails; then the truth, while that waits to be tried again.
    persisted(60).await;
    while service.status().await.unwrap().last_error.is_none() {
        tokio::task::yield_now().await;
    }
    persisted(16).await;
    persisted(17).await;
    broken.send_replace(false);
    standing.wait_for(|stands| stands.processed.is_some()).await.unwrap();
    stop.send_replace(true);
    running.await.unwrap();
    assert_eq!(service.status().await.unwrap().processed, Some(17));
    assert!(!is_here(&home.store, 2).await && is_here(&home.store, 3).await);
}

pub async fn a_run_that_begins_late_does_not_go_above_the_chain_s_top<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    two_due(store).await;
    let service = service(store).await;
    let Heard::Trigger(wrong) = block(&service, 60).await else { panic!("it is not too far") };
    // By the time of its turn the chain says that it is not there.
    block(&service, 17).await;
    assert_eq!(prune(&service, wrong).await, Ok(2));
    assert_eq!(service.status().await.unwrap().processed, Some(17));
    assert!(!is_here(store, 2).await && is_here(store, 3).await);
}

pub async fn a_wrong_height_that_was_pruned_is_told_and_a_prune_by_hand_goes_on_from_there<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    // Nothing was known, so anything was believed.
    let first = service(store).await;
    block(&first, 1_000_000).await;
    prune(&first, first.trigger_at(None).unwrap()).await.unwrap();
    block(&first, 20).await;
    assert!(first.ready().unwrap_err().contains("prune by hand"));
    two_due(store).await;
    assert_eq!(prune(&first, first.trigger_at(None).unwrap()).await, Ok(3));
    assert_eq!(first.ready(), Ok(()));
    assert_eq!(service(store).await.status().await.unwrap().processed, Some(20));
}

pub async fn a_wrong_height_that_could_be_believed_is_told_once_a_block_says_where_the_head_is<
    S,
    F,
>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    let first = service_that(store, Following::default()).await;
    for height in [20, 1000] {
        block(&first, height).await;
        prune(&first, first.trigger_at(None).unwrap()).await.unwrap();
    }
    // A persister may be that far behind.
    let other = service_that(store, Following::default()).await;
    other.hear(Event::Persisted { height: 21 }).await.unwrap();
    assert_eq!(other.ready(), Ok(()));
    for service in [first, other] {
        assert_eq!(block(&service, 900).await, Heard::Noted);
        assert_eq!(service.ready(), Ok(()), "a chain may go back so far");
        assert_eq!(block(&service, 21).await, Heard::Noted);
        assert!(service.ready().unwrap_err().contains("prune by hand"));
        assert_eq!(service.tip(21).await.unwrap(), 1000, "nothing is dated too early");
        prune(&service, service.trigger_at(None).unwrap()).await.unwrap();
        assert_eq!(service.ready(), Ok(()));
        assert_eq!(service.tip(21).await.unwrap(), 21);
        block(&service, 1000).await;
        prune(&service, service.trigger_at(None).unwrap()).await.unwrap();
    }
    // The cure outlives a restart.
    let last = service_that(store, Following::default()).await;
    block(&last, 22).await;
    prune(&last, last.trigger_at(None).unwrap()).await.unwrap();
    drop(last);
    let next = service_that(store, Following::default()).await;
    assert_eq!(next.status().await.unwrap().processed, Some(22));
    assert_eq!(block(&next, 23).await, Heard::Noted, "there is a persister");
    let heard = next.hear(Event::Persisted { height: 23 }).await.unwrap();
    assert!(matches!(heard, Heard::Trigger(_)));
}

pub async fn what_another_service_on_the_store_processed_is_known<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    two_due(store).await;
    // Both begin before anything is processed, and one of them hears nothing.
    let (pruning, feeding) = (service(store).await, service(store).await);
    block(&pruning, 16).await;
    prune(&pruning, pruning.trigger_at(None).unwrap()).await.unwrap();
    assert_eq!(block(&feeding, 1000).await, Heard::TooFar { known: 16 });
    assert_eq!(prune(&feeding, Trigger { height: 1000, persisted: None }).await, Err(Skip::TooFar));
    assert!(feeding.tip(1000).await.is_err());
    assert!(is_here(store, 2).await && is_here(store, 3).await);
    assert_eq!(feeding.tip(10).await.unwrap(), 16, "what is told late is not deleted early");
    assert_eq!(feeding.status().await.unwrap().processed, Some(16));
    // It is further than this one knew: what was far is not any more.
    for height in [100, 190] {
        block(&pruning, height).await;
        prune(&pruning, pruning.trigger_at(None).unwrap()).await.unwrap();
    }
    assert_eq!(feeding.tip(195).await.unwrap(), 195);
    // A prune at a lower height does not lower it for everybody.
    prune(&feeding, Trigger { height: 150, persisted: None }).await.unwrap();
    assert_eq!(service(store).await.status().await.unwrap().processed, Some(190));
}

pub async fn a_wrong_height_that_was_pruned_is_nobody_s_tip<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let service = service(&home.store).await;
    prune(&service, Trigger { height: 4_000_000, persisted: None }).await.unwrap();
    assert_eq!(service.tip(30).await.unwrap(), 4_000_000, "nothing says that it is wrong");
    block(&service, 30).await;
    assert_eq!(service.tip(30).await.unwrap(), 30);
    assert!(service.ready().is_err());
}

pub async fn a_persister_that_begins_anew_does_not_take_the_head_back_with_it<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    let first = service(store).await;
    first.hear(Event::Persisted { height: 90 }).await.unwrap();
    prune(&first, first.trigger_at(None).unwrap()).await.unwrap();
    first.hear(Event::Persisted { height: 5 }).await.unwrap();
    drop(first);
    let next = service(store).await;
    let status = next.status().await.unwrap();
    assert_eq!((status.head, status.persisted), (Some(90), Some(5)));
    assert_eq!(next.tip(50).await.unwrap(), 90);
    // What is that far above it may be a height that never was.
    next.hear(Event::Persisted { height: 190 }).await.unwrap();
    prune(&next, next.trigger_at(None).unwrap()).await.unwrap();
    next.hear(Event::Persisted { height: 5 }).await.unwrap();
    drop(next);
    let last = service(store).await;
    assert_eq!(last.status().await.unwrap().head, Some(5));
    assert!(last.ready().unwrap_err().contains("a wrong height was pruned"));
}

pub async fn an_event_whose_work_is_done_sets_nothing_off<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let service = service(&home.store).await;
    assert!(matches!(block(&service, 20).await, Heard::Trigger(_)));
    prune(&service, service.trigger_at(None).unwrap()).await.unwrap();
    for height in [20, 19, 0] {
        assert_eq!(block(&service, height).await, Heard::Noted, "{height}");
    }
    assert!(matches!(block(&service, 21).await, Heard::Trigger(_)));
}
