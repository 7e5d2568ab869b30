//! What the pruner asks of a store: lists, preservations, deletions.

use std::future::Future;

use secateur_utxo::{
    Done, Fate, Job, Kept, NewTx, Outcome, Preserved, Rules, Slot, Sweep, UtxoError, UtxoStore,
};

use super::rig::{
    Home, RULES, add, block, coinbase, coins, delete, external, finish, get, id, is_here, mine,
    pays, try_add, unmine,
};

/// Everything that is due at a height.
pub async fn due<S: UtxoStore>(store: &S, height: u64) -> Vec<S::Key> {
    store.due(height, None, 100_000).await.unwrap().items
}

/// Deletes what is due, and answers what became of it.
pub async fn sweep<S: UtxoStore>(store: &S, height: u64) -> Vec<Fate<S::Key>> {
    let keys = due(store, height).await;
    delete(store, keys, Sweep { height, external: true }).await
}

pub async fn old_unmined_transactions_are_listed_in_pages_with_their_parents<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 9).await;
    for n in 0..7_u32 {
        add(store, 6 + u64::from(n / 2), vec![pays(10 + u64::from(n), &[(1, n)], 1)]).await;
    }
    add(store, 10, vec![pays(20, &[(10, 0), (1, 7), (1, 8)], 1)]).await;
    mine(store, 10, &[12]).await;
    for limit in [1, 2, 3, 100] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = store.old_unmined(10, after, limit).await.unwrap();
            assert!(page.items.len() <= limit);
            seen.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut ids: Vec<_> = seen.iter().map(|unmined| unmined.txid).collect();
        ids.sort();
        let mut all = [10, 11, 13, 14, 15, 16, 20].map(id);
        all.sort();
        assert_eq!(ids, all, "in pages of {limit}");
        let last = seen.iter().find(|unmined| unmined.txid == id(20));
        let mut parents = last.unwrap().parents.clone();
        parents.sort();
        let mut wanted = vec![id(1), id(10)];
        wanted.sort();
        assert_eq!(parents, wanted, "each parent once");
    }
    let old = store.old_unmined(7, None, 100).await.unwrap();
    assert_eq!(old.items.len(), 3);
    assert!(store.old_unmined(5, None, 100).await.unwrap().items.is_empty());
}

pub async fn what_is_preserved_has_no_date_until_its_time_and_then_what_the_rule_says<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 2).await;
    add(store, 6, vec![pays(2, &[(1, 0)], 0), pays(3, &[(1, 1)], 1)]).await;
    mine(store, 7, &[2, 3]).await;
    assert_eq!(get(store, 1).await.delete_at_height, Some(16));
    let all = vec![id(1), id(2), id(3), id(9)];
    assert_eq!(store.preserve(all, 30).await.unwrap(), Preserved { kept: 3, missing: 1 });
    let record = get(store, 1).await;
    assert_eq!((record.delete_at_height, record.preserve_until), (None, Some(30)));
    assert!(due(store, 1000).await.is_empty());
    // Whatever happens meanwhile, no date is set.
    unmine(store, 7, 8, &[3]).await;
    mine(store, 9, &[3]).await;
    add(store, 9, vec![pays(4, &[(3, 0)], 1)]).await;
    assert_eq!(get(store, 3).await.delete_at_height, None);
    assert_eq!(store.expire_preservations(29, 100).await.unwrap(), 0);
    assert_eq!(store.expire_preservations(30, 2).await.unwrap(), 2);
    assert_eq!(store.expire_preservations(30, 2).await.unwrap(), 1);
    assert_eq!(store.expire_preservations(30, 2).await.unwrap(), 0);
    for n in [1, 2, 3] {
        let record = get(store, n).await;
        assert_eq!((record.delete_at_height, record.preserve_until), (Some(40), None), "{n}");
    }
}

pub async fn a_preservation_is_never_shortened<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 1).await;
    for (until, then) in [(20, 20), (30, 30), (25, 30)] {
        store.preserve(vec![id(1)], until).await.unwrap();
        assert_eq!(get(store, 1).await.preserve_until, Some(then));
    }
}

pub async fn due_records_come_in_pages_and_go<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 40).await;
    for n in 0..40_u32 {
        add(store, 6, vec![pays(100 + u64::from(n), &[(1, n)], 0)]).await;
    }
    for n in 0..39 {
        mine(store, 7 + n / 10, &[100 + n]).await;
    }
    let mut sizes = Vec::new();
    let (mut seen, mut held, mut after) = (0, 0, None);
    loop {
        let page = store.due(19, after, 11).await.unwrap();
        sizes.push(page.items.len());
        let gone = delete(store, page.items, Sweep { height: 19, external: false }).await;
        seen += gone.iter().filter(|fate| **fate == Fate::Deleted).count();
        held += gone.iter().filter(|fate| **fate == Fate::Kept(Kept::Held)).count();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    // Transaction 1 is due at 16, but 139, which spends it, is in no block.
    assert_eq!((seen, held, sizes.iter().max()), (30, 1, Some(&11)), "{sizes:?}");
    let left: Vec<u64> = (100..140).collect();
    for n in left {
        assert_eq!(is_here(store, n).await, n >= 130, "{n}");
    }
}

pub async fn a_record_is_looked_at_again_when_it_is_deleted<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 6).await;
    let txs = (0..6_u32).map(|n| pays(10 + u64::from(n), &[(1, n)], u32::from(n == 2))).collect();
    add(store, 6, txs).await;
    add(store, 6, vec![pays(20, &[(12, 0)], 1)]).await;
    mine(store, 7, &[10, 11, 12, 13, 14, 15, 20]).await;
    let keys = due(store, 17).await;
    assert_eq!(keys.len(), 7, "10 to 15, and 1");
    // Between listing and deleting: a reorganisation, a preservation, an unmined spender again, and
    // somebody who was faster.
    unmine(store, 7, 17, &[11, 20]).await;
    store.preserve(vec![id(13)], 99).await.unwrap();
    let one = store.due(17, None, 100).await.unwrap().items;
    let other = Sweep { height: 17, external: true };
    let mut fates = Vec::new();
    for key in keys {
        fates.extend(delete(store, vec![key.clone()], other).await);
        if fates.last() == Some(&Fate::Deleted) {
            assert_eq!(delete(store, vec![key], other).await, vec![Fate::Gone]);
        }
    }
    assert!(!one.is_empty());
    for (n, here) in
        [(1, true), (10, false), (11, true), (12, true), (13, true), (14, false), (15, false)]
    {
        assert_eq!(is_here(store, n).await, here, "{n}");
    }
    let kept = |why| fates.iter().filter(|fate| **fate == Fate::Kept(why)).count();
    assert_eq!(
        (kept(Kept::NotDue), kept(Kept::Preserved), kept(Kept::Held)),
        (1, 1, 2),
        "{fates:?}"
    );
    // Too early is not due either.
    let keys = due(store, 17).await;
    let fates = delete(store, keys, Sweep { height: 15, external: true }).await;
    assert!(fates.iter().all(|fate| *fate == Fate::Kept(Kept::NotDue)), "{fates:?}");
}

pub async fn parents_learn_of_their_pruned_spender_and_it_cannot_come_back<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 300).await;
    add(store, 6, vec![pays(2, &[(1, 0), (1, 299)], 1), pays(5, &[(1, 3)], 1)]).await;
    add(store, 6, vec![pays(3, &[(2, 0)], 1)]).await;
    mine(store, 7, &[2, 3, 5]).await;
    assert_eq!(sweep(store, 17).await, vec![Fate::Deleted]);
    assert!(!is_here(store, 2).await);
    let parent = get(store, 1).await;
    assert_eq!(parent.outputs[0], Slot::Pruned { by: id(2), input: 0 });
    assert_eq!(parent.outputs[299], Slot::Pruned { by: id(2), input: 1 });
    assert_eq!(parent.outputs[3], Slot::Spent { by: id(5), input: 0 });
    assert_eq!((parent.spent(), parent.delete_at_height), (3, None));
    let refused = try_add(store, 18, pays(2, &[(1, 0), (1, 299)], 1)).await.unwrap_err();
    assert!(matches!(refused, UtxoError::Pruned { txid } if txid == id(2)), "{refused}");
    // Nor as a loser, who could win after all.
    for inputs in [&[(1, 0), (1, 299)][..], &[(1, 299), (9, 0)]] {
        let loser = NewTx { conflicting: true, ..pays(2, inputs, 1) };
        let refused = try_add(store, 18, loser).await.unwrap_err();
        assert!(matches!(refused, UtxoError::Pruned { txid } if txid == id(2)), "{refused}");
    }
    let refused = try_add(store, 18, pays(6, &[(1, 299)], 1)).await.unwrap_err();
    assert!(
        matches!(refused, UtxoError::DoubleSpend { spender, .. } if spender == id(2)),
        "{refused}"
    );
    let refused = try_add(store, 18, pays(7, &[(2, 0)], 1)).await.unwrap_err();
    assert!(matches!(refused, UtxoError::MissingParent { .. }), "{refused}");
    // Its child goes on as if nothing had happened, also out of its block and back.
    unmine(store, 7, 18, &[3]).await;
    store.unspend(id(3), 18).await.unwrap();
    assert!(matches!(store.spend(id(3), 18).await, Err(UtxoError::MissingParent { .. })));
}

pub async fn a_record_with_a_file_is_cut_first_and_nothing_brings_it_back<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 3).await;
    add(store, 6, vec![external(pays(2, &[(1, 0)], 1)), external(pays(4, &[(1, 1)], 1))]).await;
    add(store, 6, vec![pays(3, &[(2, 0)], 1)]).await;
    mine(store, 7, &[2, 3, 4]).await;
    let sample = |not_due| store.external_sample(not_due, 10);
    assert_eq!(sample(Some(17)).await.unwrap(), vec![(id(4), secateur_utxo::FileKind::Tx)]);
    assert_eq!(sample(None).await.unwrap().len(), 2);
    let keys = due(store, 17).await;
    let kept = delete(store, keys, Sweep { height: 17, external: false }).await;
    assert_eq!(kept, vec![Fate::Kept(Kept::FilesMissing)]);
    let fates = sweep(store, 17).await;
    let [Fate::Cut(doomed)] = fates.as_slice() else { panic!("{fates:?}") };
    assert_eq!(
        (doomed.txid, doomed.external.map(secateur_utxo::FileKind::suffix)),
        (id(2), Some("tx"))
    );
    assert!(get(store, 2).await.cut && due(store, 1000).await.is_empty());
    // Its file may be gone by now, so that it proves nothing of the place.
    assert_eq!(sample(None).await.unwrap(), vec![(id(4), secateur_utxo::FileKind::Tx)]);
    // A reorganisation, a submission, a spend: all too late.
    let late = [
        store.unset_mined(vec![id(2)], block(7, 7).id, 18).await,
        store.set_mined(vec![id(2)], block(8, 8), 18).await,
        store.unspend(id(2), 18).await,
        try_add(store, 18, external(pays(2, &[(1, 0)], 1))).await.map(drop),
    ];
    for late in late {
        assert!(matches!(late, Err(UtxoError::Pruned { .. })), "{late:?}");
    }
    assert_eq!(store.preserve(vec![id(2)], 99).await.unwrap().missing, 1);
    assert_eq!(store.counts(18).await.unwrap().cut, 1);
    let again = store.doomed(None, 10).await.unwrap().items;
    assert_eq!(again.iter().map(|doomed| doomed.txid).collect::<Vec<_>>(), vec![id(2)]);
    for _ in 0..2 {
        finish(store, vec![again[0].key.clone()]).await;
        assert!(!is_here(store, 2).await && store.doomed(None, 10).await.unwrap().items.is_empty());
    }
    assert_eq!(get(store, 1).await.outputs[0], Slot::Pruned { by: id(2), input: 0 });
    // What is not cut is not finished.
    assert!(is_here(store, 4).await);
}

pub async fn a_heavy_record_goes_in_pieces<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    let (wide, outputs) = (9000_u32, 20_000_u32);
    coins(store, wide + 1).await;
    let all: Vec<(u64, u32)> = (0..wide).map(|n| (1, n)).collect();
    add(store, 6, vec![pays(2, &all, outputs)]).await;
    let all: Vec<(u64, u32)> = (0..outputs).map(|n| (2, n)).collect();
    add(store, 6, vec![pays(3, &all, 1)]).await;
    mine(store, 7, &[2, 3]).await;
    // What is not cut is not finished, nor any part of it.
    finish(store, due(store, 17).await).await;
    assert_eq!(get(store, 2).await.spent(), outputs as usize);
    let fates = sweep(store, 17).await;
    let [Fate::Cut(doomed)] = fates.as_slice() else { panic!("{fates:?}") };
    assert_eq!(doomed.external, None);
    finish(store, vec![doomed.key.clone()]).await;
    assert!(!is_here(store, 2).await);
    let parent = get(store, 1).await;
    for (n, slot) in (0..wide).zip(&parent.outputs) {
        assert_eq!(*slot, Slot::Pruned { by: id(2), input: n });
    }
    assert_eq!(parent.outputs.last(), Some(&Slot::Unspent));
}

pub async fn a_spender_that_is_not_settled_is_told<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    // Parent n is due at 15 + n.
    for n in 1..=4 {
        add(store, 1, vec![coinbase(n, 2, block(1, 1))]).await;
        // One of parent 1's children is of no use to anybody, and is pruned before.
        let outputs = u32::from(n != 1);
        add(store, 5 + n, vec![pays(10 + n, &[(n, 0)], outputs)]).await;
    }
    mine(store, 9, &[11, 12, 13, 14]).await;
    let swept = due(store, 19).await;
    delete(store, swept, Sweep { height: 19, external: true }).await;
    assert!(!is_here(store, 11).await);
    for n in 1..=4 {
        add(store, 5 + n, vec![pays(20 + n, &[(n, 1)], 1)]).await;
    }
    mine(store, 9, &[21, 24]).await;
    mine(store, 12, &[22]).await;
    let at = async |height| {
        let (before, mut keys) = (due(store, height - 1).await, due(store, height).await);
        keys.retain(|key| !before.contains(key));
        keys
    };
    let keys = [at(16).await, at(17).await, at(18).await, at(19).await].concat();
    assert_eq!(keys.len(), 4);
    let unstable = async |deep| store.unstable(keys.clone(), deep, 1).await.unwrap();
    assert_eq!(
        unstable(Some(9)).await,
        vec![false, true, true, false],
        "22 is at 12, 23 in no block"
    );
    assert_eq!(unstable(Some(12)).await, vec![false, false, true, false]);
    assert_eq!(unstable(Some(8)).await, vec![true; 4]);
    assert_eq!(unstable(None).await, vec![true; 4], "nothing is deep enough");
}

pub async fn counts_follow_what_is_there<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    assert_eq!(store.counts(100).await.unwrap().due, 0);
    coins(store, 3).await;
    let txs = vec![pays(2, &[(1, 0)], 0), pays(3, &[(1, 1)], 0), pays(4, &[(1, 2)], 1)];
    add(store, 6, txs).await;
    mine(store, 7, &[2]).await;
    mine(store, 8, &[3]).await;
    let at = |height| store.counts(height);
    let counts = at(17).await.unwrap();
    assert_eq!((counts.due, counts.unmined, counts.preserved, counts.cut), (2, 1, 0, 0));
    assert_eq!((at(15).await.unwrap().due, at(18).await.unwrap().due), (0, 3));
    store.preserve(vec![id(3)], 50).await.unwrap();
    let counts = at(18).await.unwrap();
    assert_eq!((counts.due, counts.preserved), (2, 1));
    sweep(store, 18).await;
    assert_eq!(at(18).await.unwrap().due, 1, "1 is held by 4");
    assert!(counts.size_bytes > 0);
}

pub async fn notes_and_jobs_are_kept<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    assert_eq!(store.note("a").await.unwrap(), None);
    for value in ["1", "two"] {
        store.set_note("a", value).await.unwrap();
        assert_eq!(store.note("a").await.unwrap().as_deref(), Some(value));
    }
    assert_eq!(store.claim_note("a", "three").await.unwrap(), "two");
    assert!(store.jobs().await.unwrap().is_empty());
    let job = |height| Job {
        height,
        safe_height: height,
        started_at: 1,
        millis: 2,
        outcome: Outcome::Completed,
        done: Done::default(),
    };
    for height in 0..1500 {
        store.add_job(&job(height)).await.unwrap();
    }
    let jobs = store.jobs().await.unwrap();
    assert_eq!(jobs.first(), Some(&job(1499)));
    // Aerospike keeps more of them than the others.
    let is_sql = store.address().contains("sqlite") || store.address().contains("postgres");
    assert_eq!(jobs.len(), if is_sql { 10 } else { 1000 }, "{}", store.address());
    assert!(jobs.windows(2).all(|two| two[0].height == two[1].height + 1));
}

pub async fn of_many_who_claim_a_note_at_the_same_time_one_is_believed_by_all<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    for name in ["a", "b", "c"] {
        let claims = (0..16).map(|n| {
            let store = home.store.clone();
            tokio::spawn(async move { store.claim_note(name, &n.to_string()).await.unwrap() })
        });
        let claims: Vec<_> = claims.collect();
        let kept = home.store.claim_note(name, "own").await.unwrap();
        for claim in claims {
            assert_eq!(claim.await.unwrap(), kept);
        }
        assert_eq!(home.store.note(name).await.unwrap(), Some(kept));
    }
}
