//! What is pruned, and told again although no parent names it.

use std::future::Future;

use secateur_utxo::{Created, Fate, NewTx, Rules, UtxoError, UtxoStore};

use super::rig::{
    Home, RULES, add, block, coinbase, coins, external, finish, id, is_here, mine, pays, try_add,
    unmine,
};
use super::sweeps::sweep;

pub async fn a_pruned_coinbase_that_is_told_again_is_refused_and_makes_no_coins<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    // In one row, in pages that go with it, in pages that go piece by piece, and with a file.
    let told = |n: u64| match n {
        1 => coinbase(1, 1, block(1, 1)),
        2 => coinbase(2, 300, block(1, 1)),
        3 => coinbase(3, 256 * 70, block(1, 1)),
        _ => external(coinbase(4, 1, block(1, 1))),
    };
    let was_there =
        |n| Created::WasThere { external: (n == 4).then_some(secateur_utxo::FileKind::Outputs) };
    let home = open(RULES).await;
    let store = &home.store;
    add(store, 1, vec![told(1), told(2), told(3), told(4), coinbase(5, 1, block(1, 1))]).await;
    for n in 1..5 {
        let all: Vec<(u64, u32)> = (0..told(n).outputs).map(|output| (n, output)).collect();
        add(store, 6, vec![pays(10 + n, &all, 1)]).await;
        assert_eq!(try_add(store, 6, told(n)).await.unwrap(), was_there(n));
    }
    mine(store, 7, &[11, 12, 13, 14]).await;
    let refused = async |n| {
        let answers = store.create(vec![told(n), pays(99, &[(n, 0)], 1)], 18).await.unwrap();
        let [Err(again), Err(thief)] = answers.as_slice() else { panic!("{n}: {answers:?}") };
        assert!(matches!(again, UtxoError::Pruned { txid } if *txid == id(n)), "{n}: {again}");
        assert!(matches!(thief, UtxoError::MissingParent { .. }), "{n}: {thief}");
    };
    let fates = sweep(store, 17).await;
    let doomed: Vec<_> = fates
        .into_iter()
        .filter_map(|fate| match fate {
            Fate::Cut(record) => Some(record.key),
            other => {
                assert_eq!(other, Fate::Deleted);
                None
            }
        })
        .collect();
    assert!(!doomed.is_empty());
    for n in 1..5 {
        refused(n).await;
    }
    finish(store, doomed).await;
    for n in 1..5 {
        assert!(!is_here(store, n).await);
        refused(n).await;
        assert_eq!(store.pruned_at(id(n)).await.unwrap(), Some(17), "{n}");
    }
    // What is here, what never was, and what its parent remembers have nothing written down.
    for n in [5, 11, 98] {
        assert_eq!(store.pruned_at(id(n)).await.unwrap(), None, "{n}");
    }
    // A block that leaves the chain takes its coinbase with it. Of that nothing was spent, and it may come back.
    add(store, 18, vec![coinbase(6, 1, block(18, 18))]).await;
    unmine(store, 18, 19, &[6]).await;
    store.set_conflicting(id(6), true, 19).await.unwrap();
    assert_eq!(sweep(store, 29).await.len(), 1);
    assert_eq!(store.pruned_at(id(6)).await.unwrap(), None);
    add(store, 30, vec![coinbase(6, 1, block(18, 18))]).await;
}

pub async fn a_pruned_loser_of_which_something_was_spent_does_not_come_back<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 4).await;
    let losers =
        || [pays(2, &[(1, 0)], 1), pays(3, &[(1, 1)], 300), external(pays(4, &[(1, 2)], 1))];
    add(store, 6, losers().to_vec()).await;
    add(store, 6, (2..5).map(|n| pays(10 + n, &[(n, 0)], 1)).collect()).await;
    add(store, 6, vec![pays(5, &[(1, 3)], 1)]).await;
    for n in 2..6 {
        store.set_conflicting(id(n), true, 7).await.unwrap();
    }
    // Their spenders are mined all the same: whoever tells it so is believed.
    mine(store, 8, &[12, 13, 14]).await;
    let doomed: Vec<_> = sweep(store, 17)
        .await
        .into_iter()
        .filter_map(|fate| if let Fate::Cut(one) = fate { Some(one.key) } else { None })
        .collect();
    finish(store, doomed).await;
    for (n, loser) in (2..).zip(losers()) {
        assert!(!is_here(store, n).await && is_here(store, 10 + n).await, "{n}");
        for conflicting in [false, true] {
            let again = NewTx { conflicting, ..loser.clone() };
            let refused = try_add(store, 18, again).await.unwrap_err();
            assert!(matches!(refused, UtxoError::Pruned { txid } if txid == id(n)), "{refused}");
        }
    }
    // Of the last one nothing was spent.
    add(store, 18, vec![pays(5, &[(1, 3)], 1)]).await;
}
