//! Whole runs, on every backend.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use secateur_utxo::{
    Assembly, AssemblyState, Event, ExternalFiles, FileKind, Following, Job, Kept, Metrics,
    Outcome, Pruner, Rules, Service, Settings, Skip, Trigger, UtxoError, UtxoStore,
};
use tokio::sync::watch;

use super::broke::place;
use super::rig::{Faulty, Home, RULES, When, add, coins, external, get, id, is_here, mine, pays};

/// Few numbers for long times.
pub fn settings() -> Settings {
    Settings {
        unmined_tx_retention: Some(4),
        parent_preservation_blocks: 20,
        chunk_size: 2,
        chunk_group_limit: 3,
        ..Settings::default()
    }
}

pub fn pruner<S: UtxoStore>(
    store: &S,
    files: Option<ExternalFiles>,
    settings: Settings,
) -> Pruner<S> {
    Pruner::new(store.clone(), files, settings, None, Arc::new(Metrics::default())).unwrap()
}

pub const fn at(height: u64) -> Trigger {
    Trigger { height, persisted: None }
}

/// A receiver that never stops anything.
pub fn go() -> watch::Receiver<bool> {
    watch::channel(false).1
}

/// Runs; it must begin.
pub async fn run<S: UtxoStore>(pruner: &Pruner<S>, trigger: Trigger) -> Job {
    pruner.run(trigger, go()).await.unwrap().0
}

/// A chain in which 10 to 19 are due at 17, and 1 is old unmined 30's parent.
async fn due_and_unmined<S: UtxoStore>(store: &S) {
    coins(store, 30).await;
    let txs = (0..10_u32).map(|n| pays(10 + u64::from(n), &[(1, n)], 0)).collect();
    add(store, 6, txs).await;
    let unmined = (0..5_u32).map(|n| pays(30 + u64::from(n), &[(1, 10 + n)], 1)).collect();
    add(store, 7, unmined).await;
    // Parents of their own for the unmined ones, all spent and mined, due like the others.
    let parents = (0..5_u32).map(|n| pays(40 + u64::from(n), &[(1, 20 + n)], 1)).collect();
    add(store, 6, parents).await;
    let children = (0..5_u64).map(|n| pays(50 + n, &[(40 + n, 0)], 1)).collect();
    add(store, 7, children).await;
    mine(store, 7, &(10..20).chain(40..45).collect::<Vec<_>>()).await;
}

/// Parents of those ten: six, each counted once for every page that names one of its children. Which
/// children share a page is a matter of a store's own order.
const PRESERVED: std::ops::RangeInclusive<u64> = 6..=10;

async fn here<S: UtxoStore>(store: &S, txs: impl IntoIterator<Item = u64>) -> usize {
    let mut here = 0;
    for n in txs {
        here += usize::from(is_here(store, n).await);
    }
    here
}

pub async fn a_run_preserves_parents_and_deletes_what_is_due<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    due_and_unmined(store).await;
    let pruner = pruner(store, None, settings());
    let plan = pruner.plan(at(17)).await.unwrap();
    assert_eq!((plan.safe_height, plan.counts.due, plan.skip), (17, 15, None));
    let job = run(&pruner, at(17)).await;
    assert_eq!(job.outcome, Outcome::Completed);
    assert_eq!((job.done.deleted, job.done.old_unmined), (10, 10));
    assert!(PRESERVED.contains(&job.done.preserved), "{job:?}");
    assert_eq!(here(store, 10..20).await, 0, "what was due went");
    assert_eq!(here(store, 40..45).await, 5, "what an unmined child needs stays");
    for n in 40..45 {
        let record = get(store, n).await;
        assert_eq!((record.preserve_until, record.delete_at_height), (Some(37), None));
    }
    assert_eq!(store.jobs().await.unwrap(), vec![job]);
    // The children are mined, the preservation ends, and what is due then goes.
    mine(store, 18, &[50, 51, 52, 53, 54]).await;
    let job = run(&pruner, at(36)).await;
    assert_eq!((job.done.expired, job.done.deleted), (0, 0));
    let job = run(&pruner, at(37)).await;
    assert_eq!((job.done.expired, job.done.deleted), (5, 0));
    assert_eq!(run(&pruner, at(46)).await.done.deleted, 0);
    let job = run(&pruner, at(47)).await;
    assert_eq!((job.done.deleted, here(store, 40..45).await), (5, 0));
}

pub async fn a_failure_in_phase_1_at_any_record_deletes_nothing<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    due_and_unmined(&home.store).await;
    let calls = calls_of_phase_1(&home.store).await;
    let mut failed = 0;
    for (when, nth) in
        [When::Before, When::After].into_iter().flat_map(|w| (0..calls).map(move |n| (w, n)))
    {
        let mut call = 0;
        let faulty = Faulty::new(home.store.clone(), move |name| {
            let is_it = PHASE_1.contains(&name) && call == nth;
            call += usize::from(PHASE_1.contains(&name));
            is_it.then_some(when)
        });
        let pruner = pruner(&faulty, None, Settings { chunk_size: 1, ..settings() });
        let (job, error) = pruner.run(at(17), go()).await.unwrap();
        assert!(matches!(error, Some(UtxoError::NotPreserved { .. })), "{error:?}");
        assert!(matches!(job.outcome, Outcome::Failed(_)) && job.done.deleted == 0);
        assert_eq!(here(&home.store, 10..20).await, 10, "call {nth}");
        failed += 1;
    }
    assert!(failed > 20, "{failed}");
    let job = run(&pruner(&home.store, None, settings()), at(17)).await;
    assert_eq!((job.done.deleted, here(&home.store, 40..45).await), (10, 5));
}

/// What phase 1 asks of a store.
const PHASE_1: [&str; 3] = ["old_unmined", "preserve", "expire_preservations"];

/// How many calls phase 1 makes when chunks have one record each.
async fn calls_of_phase_1<S: UtxoStore>(store: &S) -> usize {
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let counting = Faulty::new(store.clone(), move |name| {
        count.fetch_add(u64::from(PHASE_1.contains(&name)), Ordering::Relaxed);
        None
    });
    let settings = Settings { chunk_size: 1, delete: false, ..settings() };
    run(&pruner(&counting, None, settings), at(17)).await;
    usize::try_from(calls.load(Ordering::Relaxed)).unwrap()
}

pub async fn a_run_that_fails_in_the_middle_is_finished_by_the_next<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    for when in [When::Before, When::After] {
        let home = open(RULES).await;
        due_and_unmined(&home.store).await;
        let mut deletes = 0;
        let faulty = Faulty::new(home.store.clone(), move |name| {
            deletes += usize::from(name == "delete");
            (name == "delete" && deletes == 3).then_some(when)
        });
        let one = Settings { chunk_group_limit: 1, ..settings() };
        let (job, error) = pruner(&faulty, None, one).run(at(17), go()).await.unwrap();
        let error = error.unwrap();
        assert!(error.is_retryable());
        assert!(error.to_string().contains("4 records were deleted before"), "{error}");
        assert_eq!(job.outcome, Outcome::Failed(error.to_string()));
        assert!(here(&home.store, 10..20).await <= 6);
        assert_eq!(here(&home.store, 40..45).await, 5);
        let job = run(&pruner(&home.store, None, settings()), at(17)).await;
        assert_eq!((job.outcome, here(&home.store, 10..20).await), (Outcome::Completed, 0));
    }
}

/// One chunk waits for a turn that the look at the next page has, while another fails.
pub async fn a_chunk_that_fails_while_the_next_page_is_looked_at_ends_the_run_with_its_reason<
    S,
    F,
>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    due_and_unmined(&home.store).await;
    let (mut deletes, mut pages) = (0, 0);
    let faulty = Faulty::new(home.store.clone(), move |name| {
        deletes += u32::from(name == "delete");
        pages += u32::from(name == "due");
        match (name, deletes, pages) {
            ("delete", 1, _) => Some(When::OnceGivenUp),
            ("delete", 2, _) => Some(When::OnceKept),
            ("due", _, 3) => Some(When::Keeps),
            _ => None,
        }
    });
    let pruner = pruner(&faulty.apart(), None, settings());
    let ended = tokio::time::timeout(Duration::from_mins(1), run(&pruner, at(17))).await;
    let job = ended.expect("the run ends");
    let Outcome::Failed(reason) = &job.outcome else { panic!("{job:?}") };
    assert!(reason.contains("delete was made to fail"), "{reason}");
    assert!(job.done.deleted <= 2, "{job:?}");
}

pub async fn what_went_before_records_could_not_be_cut_is_counted<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 8).await;
    let txs = (0..8).map(|n| pays(10 + u64::from(n), &[(1, n)], 0));
    let txs = txs.map(|tx| if tx.txid == id(17) { external(tx) } else { tx });
    add(store, 6, txs.collect()).await;
    mine(store, 7, &(10..18).collect::<Vec<_>>()).await;
    let dir = tempfile::tempdir().unwrap();
    let files = place(&dir.path().join("files"));
    files.put(id(17), FileKind::Tx, &Bytes::from_static(b"large")).await.unwrap();
    let faulty = Faulty::new(store.clone(), |name| (name == "cut").then_some(When::Before));
    let settings = Settings { chunk_size: 10, chunk_group_limit: 1, ..settings() };
    let job = run(&pruner(&faulty, Some(files), settings), at(17)).await;
    let gone = 9 - here(store, (10..18).chain([1])).await;
    assert!(gone >= 7, "{gone}");
    assert_eq!(job.done.deleted, gone as u64, "{job:?}");
}

/// The number is only told.
pub async fn records_that_cannot_be_counted_go_all_the_same<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    due_and_unmined(&home.store).await;
    let faulty = Faulty::new(home.store.clone(), |name| (name == "counts").then_some(When::Before));
    let job = run(&pruner(&faulty, None, settings()), at(17)).await;
    assert_eq!((job.outcome, here(&home.store, 10..20).await), (Outcome::Completed, 0));
}

pub async fn defensive_mode_keeps_what_has_an_unsettled_spender<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 2).await;
    add(store, 6, vec![pays(2, &[(1, 0)], 1), pays(3, &[(1, 1)], 1)]).await;
    add(store, 6, vec![pays(12, &[(2, 0)], 1), pays(13, &[(3, 0)], 1)]).await;
    mine(store, 7, &[2, 3, 12]).await;
    mine(store, 9, &[13]).await;
    let defensive = Settings { defensive: true, defensive_batch_read: 1, ..settings() };
    let pruner = pruner(store, None, defensive);
    let job = run(&pruner, at(18)).await;
    assert_eq!((job.done.deleted, job.done.kept.get(&Kept::Unstable)), (2, Some(&1)));
    assert!(!is_here(store, 2).await, "its child is ten deep");
    assert!(is_here(store, 3).await, "its child is nine deep");
    // It can be stopped also where nothing may go.
    let (stop, stopped) = watch::channel(false);
    let faulty = Faulty::new(store.clone(), move |name| {
        if name == "unstable" {
            stop.send_replace(true);
        }
        None
    });
    let defensive = Settings { defensive: true, ..settings() };
    let (job, _) = self::pruner(&faulty, None, defensive).run(at(18), stopped).await.unwrap();
    assert_eq!((job.outcome, job.done.kept.get(&Kept::Unstable)), (Outcome::Cancelled, Some(&1)));
    assert_eq!(run(&pruner, at(19)).await.done.deleted, 1);
    assert!(!is_here(store, 3).await);
}

pub async fn cleaning_that_is_switched_off_deletes_nothing_and_still_preserves<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    due_and_unmined(store).await;
    let pruner = pruner(store, None, Settings { delete: false, ..settings() });
    let job = run(&pruner, at(17)).await;
    assert_eq!((&job.outcome, job.done.deleted), (&Outcome::Completed, 0));
    assert!(PRESERVED.contains(&job.done.preserved), "{job:?}");
    assert_eq!(here(store, 10..20).await, 10);
}

pub async fn a_run_that_is_stopped_or_late_ends_between_chunks_and_is_not_processed<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    due_and_unmined(&home.store).await;
    let (stop, stopped) = watch::channel(false);
    let mut deletes = 0;
    let faulty = Faulty::new(home.store.clone(), move |name| {
        deletes += usize::from(name == "delete");
        if deletes == 1 {
            stop.send_replace(true);
        }
        None
    });
    let one = Settings { chunk_group_limit: 1, ..settings() };
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::new(&mut registry));
    let counted = |outcome: &str| {
        let mut page = String::new();
        text::encode(&mut page, &registry).unwrap();
        let line = format!("secateur_pruner_runs_total{{outcome=\"{outcome}\"}} ");
        let value = page.lines().find_map(|found| found.strip_prefix(&line)).unwrap().to_owned();
        value.parse::<u64>().unwrap()
    };
    let made = |store: Faulty<S>, settings| {
        Pruner::new(store, None, settings, None, Arc::clone(&metrics)).unwrap()
    };
    let stoppable = made(faulty.clone(), one.clone());
    let (job, error) = stoppable.run(at(17), stopped).await.unwrap();
    assert_eq!((job.outcome, error.is_none()), (Outcome::Cancelled, true));
    assert_eq!((counted("cancelled"), counted("timed_out"), counted("completed")), (1, 0, 0));
    assert_eq!(here(&home.store, 10..20).await + here(&home.store, 40..45).await, 13);
    let late = Settings { job_timeout: Duration::from_nanos(1), ..one };
    let job = run(&made(faulty, late), at(17)).await;
    assert_eq!((job.outcome, job.done.deleted), (Outcome::TimedOut, 0));
    assert_eq!((counted("cancelled"), counted("timed_out"), counted("failed")), (1, 1, 0));
}

/// Block assembly that says what it is told to.
#[derive(Debug)]
struct Told(Result<AssemblyState, ()>);

impl Assembly for Told {
    fn state(&self) -> Pin<Box<dyn Future<Output = Result<AssemblyState, UtxoError>> + Send + '_>> {
        let answer = self.0.map_err(|()| UtxoError::store("no answer"));
        Box::pin(std::future::ready(answer))
    }
}

pub async fn a_guard_that_says_no_keeps_a_run_from_beginning<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    due_and_unmined(&home.store).await;
    let state = |running, height| Ok(AssemblyState { running, height });
    for (told, wanted) in [
        (state(false, 17), Some(Skip::AssemblyNotRunning)),
        (state(true, 16), Some(Skip::AssemblyBehind)),
        (Err(()), Some(Skip::AssemblyUnreachable)),
        (state(true, 17), None),
    ] {
        let assembly: Arc<dyn Assembly> = Arc::new(Told(told));
        let metrics = Arc::new(Metrics::default());
        let pruner =
            Pruner::new(home.store.clone(), None, settings(), Some(assembly), metrics).unwrap();
        let ran = pruner.run(at(17), go()).await;
        assert_eq!(ran.err(), wanted);
        let gone = here(&home.store, 10..20).await == 0;
        assert_eq!(gone, wanted.is_none(), "{wanted:?}");
    }
    assert_eq!(home.store.jobs().await.unwrap().len(), 1, "a run that did not begin is no job");
}

/// A service over a store.
pub async fn service<S: UtxoStore>(store: &S, settings: Settings) -> Service<S> {
    let metrics = Arc::new(Metrics::default());
    let pruner = Pruner::new(store.clone(), None, settings, None, Arc::clone(&metrics)).unwrap();
    Service::open(pruner, Following::default(), metrics).await.unwrap()
}

pub async fn ten_thousand_heights_in_a_burst_run_a_handful_of_prunes_and_end_at_the_last<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    due_and_unmined(&home.store).await;
    let runs = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&runs);
    let (announced, all_announced) = std::sync::mpsc::channel();
    let mut is_first = true;
    let counting = Faulty::new(home.store.clone(), move |name| {
        count.fetch_add(u64::from(name == "add_job"), Ordering::Relaxed);
        // The first run is still under way when the last height is told, however fast the store is.
        if name == "counts" && std::mem::take(&mut is_first) {
            all_announced.recv().unwrap();
        }
        None
    });
    let service = service(&counting, settings()).await;
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn({
        let service = service.clone();
        async move { service.run(stopped).await }
    });
    for height in 1..=10_000 {
        service.hear(Event::Block { height, mined_set: true }).await.unwrap();
    }
    announced.send(()).unwrap();
    service.standing().wait_for(|stands| stands.processed == Some(10_000)).await.unwrap();
    stop.send_replace(true);
    running.await.unwrap();
    let runs = runs.load(Ordering::Relaxed);
    assert!((1..=2).contains(&runs), "{runs} prunes");
    assert_eq!(here(&home.store, 10..20).await, 0);
}

pub async fn a_height_counts_as_processed_only_when_both_phases_are_done<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    due_and_unmined(&home.store).await;
    let broken = Arc::new(AtomicBool::new(true));
    let is_broken = Arc::clone(&broken);
    let faulty = Faulty::new(home.store.clone(), move |name| {
        (name == "delete" && is_broken.load(Ordering::Relaxed)).then_some(When::Before)
    });
    let following = service(&faulty, settings()).await;
    let trigger = following.trigger_at(Some(17)).unwrap();
    following.prune(trigger, go()).await.unwrap();
    let status = following.status().await.unwrap();
    assert_eq!(status.processed, None);
    assert!(status.last_error.unwrap().contains("delete was made to fail"));
    broken.store(false, Ordering::Relaxed);
    following.prune(trigger, go()).await.unwrap();
    let status = following.status().await.unwrap();
    assert_eq!((status.processed, status.last_error), (Some(17), None));
    // It is remembered by whoever opens the store next.
    let next = service(&home.store, settings()).await;
    assert_eq!(next.status().await.unwrap().processed, Some(17));
}

pub async fn a_run_that_the_store_could_not_note_is_noted_with_the_next_one<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    due_and_unmined(&home.store).await;
    let mut is_first = true;
    let faulty = Faulty::new(home.store.clone(), move |name| {
        (name == "add_job" && std::mem::take(&mut is_first)).then_some(When::Before)
    });
    let pruner = pruner(&faulty, None, settings());
    assert_eq!(run(&pruner, at(17)).await.done.deleted, 10);
    assert_eq!(home.store.jobs().await.unwrap(), []);
    assert_eq!(run(&pruner, at(18)).await.done.deleted, 0);
    let noted = home.store.jobs().await.unwrap();
    let noted: Vec<_> = noted.iter().map(|job| (job.height, job.done.deleted)).collect();
    assert_eq!(noted, [(18, 0), (17, 10)], "newest first");
}

pub async fn a_prune_at_a_lower_height_does_not_lower_what_is_processed<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    due_and_unmined(&home.store).await;
    let following = service(&home.store, settings()).await;
    for (height, deleted) in [(16, 0), (17, 10), (12, 0)] {
        let trigger = following.trigger_at(Some(height)).unwrap();
        let (job, _) = following.prune(trigger, go()).await.unwrap();
        assert_eq!((job.outcome, job.done.deleted), (Outcome::Completed, deleted));
    }
    assert_eq!(following.status().await.unwrap().processed, Some(17));
    let next = service(&home.store, settings()).await;
    assert_eq!(next.status().await.unwrap().processed, Some(17));
}
