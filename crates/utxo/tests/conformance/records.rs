//! Records: what is created, spent, mined and taken back.

use std::future::Future;

use bytes::Bytes;
use secateur_utxo::{Body, Created, NewTx, Rules, Slot, UtxoError, UtxoStore};

use super::rig::{
    Home, RULES, add, block, coinbase, coins, external, get, id, is_here, mine, output, pays,
    try_add, unmine,
};

const WAS_THERE: Created = Created::WasThere { external: None };

pub async fn a_transaction_reads_back_as_it_was_created<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 3).await;
    let tx =
        NewTx { body: Body::Inline(Bytes::from_static(b"bytes")), ..pays(2, &[(1, 2), (1, 0)], 2) };
    add(store, 7, vec![tx]).await;
    let record = get(store, 2).await;
    assert_eq!(record.inputs, vec![output(1, 2), output(1, 0)]);
    assert_eq!(record.outputs, vec![Slot::Unspent; 2]);
    assert_eq!((record.unmined_since, record.delete_at_height), (Some(7), None));
    assert_eq!(&record.body[..], b"bytes");
    assert!(record.spending && !record.coinbase && !record.conflicting && !record.cut);
    let parent = get(store, 1).await;
    let spent = |input| Slot::Spent { by: id(2), input };
    assert_eq!(parent.outputs, vec![spent(1), Slot::Unspent, spent(0)]);
    assert_eq!(parent.blocks, vec![block(1, 1)]);
    assert_eq!((parent.unmined_since, parent.held_by), (None, vec![id(2)]));
    assert!(parent.coinbase);
    add(store, 8, vec![external(pays(3, &[(2, 1)], 0))]).await;
    let record = get(store, 3).await;
    assert_eq!(record.external.map(secateur_utxo::FileKind::suffix), Some("tx"));
    assert!(record.outputs.is_empty() && record.body.is_empty());
    assert_eq!(store.get(id(9)).await.unwrap(), None);
}

pub async fn creating_twice_changes_nothing_and_another_of_the_same_id_is_refused<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 2).await;
    add(store, 7, vec![pays(2, &[(1, 0)], 2)]).await;
    let before = (get(store, 1).await, get(store, 2).await);
    assert_eq!(try_add(store, 9, pays(2, &[(1, 0)], 2)).await.unwrap(), WAS_THERE);
    for other in [pays(2, &[(1, 1)], 2), pays(2, &[(1, 0)], 3)] {
        let refused = try_add(store, 9, other).await.unwrap_err();
        assert!(matches!(refused, UtxoError::Different { .. }), "{refused}");
    }
    assert_eq!((get(store, 1).await, get(store, 2).await), before);
}

pub async fn what_cannot_be_spent_is_refused_and_nothing_changes<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 3).await;
    add(store, 7, vec![pays(2, &[(1, 0)], 1)]).await;
    let before = get(store, 1).await;
    let refused = try_add(store, 7, pays(3, &[(1, 1), (1, 0)], 1)).await.unwrap_err();
    assert!(
        matches!(refused, UtxoError::DoubleSpend { output: o, by, spender }
            if o == output(1, 0) && by == id(3) && spender == id(2)),
        "{refused}"
    );
    let refused = try_add(store, 7, pays(3, &[(1, 1), (8, 0)], 1)).await.unwrap_err();
    assert!(matches!(refused, UtxoError::MissingParent { .. }), "{refused}");
    let refused = try_add(store, 7, pays(3, &[(1, 1), (1, 3)], 1)).await.unwrap_err();
    assert!(matches!(refused, UtxoError::MissingOutput { outputs: 3, .. }), "{refused}");
    assert!(!refused.is_retryable());
    assert!(!is_here(store, 3).await);
    assert_eq!(get(store, 1).await, before);
    for missing in [store.spend(id(8), 7).await, store.unspend(id(8), 7).await] {
        assert!(matches!(missing, Err(UtxoError::Unknown { .. })));
    }
}

pub async fn a_refused_transaction_does_not_keep_the_rest_of_a_batch_from_being_made<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 2).await;
    let batch = vec![
        pays(2, &[(1, 0)], 2),
        pays(3, &[(1, 0)], 1),
        pays(4, &[(2, 1)], 1),
        pays(5, &[(3, 0)], 1),
        pays(2, &[(1, 0)], 2),
        pays(6, &[(4, 0), (1, 1)], 1),
    ];
    let created = store.create(batch, 7).await.unwrap();
    let made: Vec<_> = created.iter().map(|one| one.as_ref().ok().copied()).collect();
    let (new, was) = (Some(Created::New), Some(WAS_THERE));
    assert_eq!(made, vec![new, None, new, None, was, new]);
    assert!(!is_here(store, 3).await && !is_here(store, 5).await);
    assert_eq!(get(store, 4).await.held_by, vec![id(6)]);
    assert_eq!(get(store, 2).await.outputs[1], Slot::Spent { by: id(4), input: 0 });
}

pub async fn of_two_of_the_same_id_in_one_step_the_bytes_of_the_one_that_is_made_are_kept<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 2).await;
    let with = |body: &'static [u8], input| NewTx {
        body: Body::Inline(Bytes::from_static(body)),
        ..pays(2, &[(1, input)], 1)
    };
    // The first cannot be made, the third is there by then, the fourth is another one.
    let batch = vec![with(b"none", 7), with(b"made", 0), external(with(b"", 0)), with(b"other", 1)];
    let created = store.create(batch, 7).await.unwrap();
    let made: Vec<_> = created.iter().map(|one| one.as_ref().ok().copied()).collect();
    assert_eq!(made, vec![None, Some(Created::New), Some(WAS_THERE), None]);
    let record = get(store, 2).await;
    assert_eq!((record.body.as_ref(), record.external), (&b"made"[..], None));
}

pub async fn a_transaction_is_in_no_more_blocks_than_can_be_read_back<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 1).await;
    let mut told = 1;
    let refused = loop {
        told += 1;
        if let Err(error) = store.set_mined(vec![id(1)], block(1000 + told, 2), 2).await {
            break error;
        }
    };
    assert!(matches!(refused, UtxoError::NotNow { .. }), "{refused}");
    assert_eq!(get(store, 1).await.blocks.len(), 1024);
    store.unset_mined(vec![id(1)], block(1, 1).id, 2).await.unwrap();
    store.set_mined(vec![id(1)], block(1000 + told, 2), 2).await.unwrap();
}

pub async fn a_malformed_transaction_is_refused<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 2).await;
    let wrong_file =
        NewTx { body: Body::External(secateur_utxo::FileKind::Outputs), ..pays(2, &[(1, 0)], 1) };
    let huge = Body::Inline(Bytes::from(vec![0; secateur_utxo::MAX_BODY + 1]));
    for wrong in [
        pays(2, &[], 1),
        pays(2, &[(1, 0), (1, 0)], 1),
        pays(2, &[(2, 0)], 1),
        pays(2, &[(1, 0)], secateur_utxo::MAX_PLACES + 1),
        NewTx { inputs: vec![output(1, 0)], ..coinbase(2, 1, block(2, 2)) },
        NewTx { conflicting: true, ..coinbase(2, 1, block(2, 2)) },
        NewTx { body: huge, ..pays(2, &[(1, 0)], 1) },
        wrong_file,
    ] {
        let refused = try_add(store, 7, wrong).await.unwrap_err();
        assert!(matches!(refused, UtxoError::Malformed { .. }), "{refused}");
    }
    assert!(!is_here(store, 2).await);
}

pub async fn more_inputs_or_outputs_than_one_step_may_have_are_refused_as_a_whole<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    let most = secateur_utxo::MAX_CREATED_OUTPUTS;
    let many = vec![coinbase(1, 1, block(1, 1)), coinbase(2, most, block(1, 1))];
    let refused = store.create(many, 1).await.unwrap_err();
    assert_eq!(refused.label(), "too_many_outputs", "{refused}");
    assert!(!refused.is_retryable());
    assert!(!is_here(store, 1).await && !is_here(store, 2).await);
    let each = u32::try_from(secateur_utxo::MAX_CREATED_INPUTS / 2 + 1).unwrap();
    let wide = |number, first| {
        let inputs: Vec<_> = (first..first + each).map(|n| (1, n)).collect();
        pays(number, &inputs, 1)
    };
    let refused = store.create(vec![wide(3, 0), wide(4, each)], 1).await.unwrap_err();
    assert_eq!(refused.label(), "too_many_inputs", "{refused}");
    assert!(!is_here(store, 2).await && !is_here(store, 3).await && !is_here(store, 4).await);
}

pub async fn a_coinbase_ripens<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    add(store, 3, vec![coinbase(1, 2, block(3, 3))]).await;
    let refused = try_add(store, 7, pays(2, &[(1, 0)], 1)).await.unwrap_err();
    assert!(matches!(refused, UtxoError::Immature { ripe_at: Some(8), .. }), "{refused}");
    add(store, 8, vec![pays(2, &[(1, 0)], 1)]).await;
    unmine(store, 3, 9, &[1]).await;
    let refused = try_add(store, 20, pays(3, &[(1, 1)], 1)).await.unwrap_err();
    assert!(matches!(refused, UtxoError::Immature { ripe_at: None, .. }), "{refused}");
}

pub async fn a_record_is_dated_once_all_is_spent_and_it_is_mined_and_never_earlier_again<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 2).await;
    add(store, 6, vec![pays(2, &[(1, 0)], 1)]).await;
    assert_eq!(get(store, 1).await.delete_at_height, None);
    add(store, 7, vec![pays(3, &[(1, 1)], 1), pays(4, &[(2, 0)], 0)]).await;
    assert_eq!(get(store, 1).await.delete_at_height, Some(17));
    // Spent, but in no block; then in one.
    assert_eq!(get(store, 2).await.delete_at_height, None);
    mine(store, 9, &[2, 4]).await;
    assert_eq!(get(store, 2).await.delete_at_height, Some(19));
    assert_eq!(get(store, 4).await.delete_at_height, Some(19));
    // Another block, later or earlier, moves nothing.
    for height in [5, 12] {
        store.set_mined(vec![id(2)], block(77 + height, height), height).await.unwrap();
        assert_eq!(get(store, 2).await.delete_at_height, Some(19));
    }
    assert_eq!(get(store, 2).await.blocks.len(), 3);
}

pub async fn a_reorganisation_takes_the_date_away_and_starts_the_clock_again<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 1).await;
    add(store, 6, vec![pays(2, &[(1, 0)], 1)]).await;
    add(store, 6, vec![pays(3, &[(2, 0)], 1)]).await;
    mine(store, 7, &[2, 3]).await;
    assert_eq!(get(store, 2).await.delete_at_height, Some(17));
    assert_eq!((get(store, 1).await.held_by, get(store, 2).await.held_by), (vec![], vec![]));
    unmine(store, 7, 9, &[2, 3]).await;
    let record = get(store, 2).await;
    assert_eq!((record.delete_at_height, record.unmined_since), (None, Some(9)));
    assert_eq!((get(store, 1).await.held_by, record.held_by), (vec![id(2)], vec![id(3)]));
    mine(store, 11, &[2]).await;
    assert_eq!(get(store, 2).await.delete_at_height, Some(21));
    assert_eq!(get(store, 2).await.held_by, vec![id(3)]);
}

pub async fn an_output_that_is_let_go_takes_the_date_away<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 1).await;
    add(store, 6, vec![pays(2, &[(1, 0)], 1)]).await;
    assert_eq!(get(store, 1).await.delete_at_height, Some(16));
    store.unspend(id(2), 7).await.unwrap();
    let parent = get(store, 1).await;
    assert_eq!((parent.delete_at_height, parent.outputs[0]), (None, Slot::Unspent));
    assert!(parent.held_by.is_empty() && !get(store, 2).await.spending);
    let refused = store.set_mined(vec![id(2)], block(8, 8), 8).await.unwrap_err();
    assert!(matches!(refused, UtxoError::NotNow { .. }), "{refused}");
    store.spend(id(2), 9).await.unwrap();
    let parent = get(store, 1).await;
    assert_eq!((parent.delete_at_height, parent.held_by), (Some(19), vec![id(2)]));
    mine(store, 10, &[2]).await;
    let refused = store.unspend(id(2), 11).await.unwrap_err();
    assert!(matches!(refused, UtxoError::NotNow { .. }), "{refused}");
    // Somebody else took it meanwhile.
    unmine(store, 10, 11, &[2]).await;
    store.unspend(id(2), 11).await.unwrap();
    add(store, 11, vec![pays(3, &[(1, 0)], 1)]).await;
    let refused = store.spend(id(2), 12).await.unwrap_err();
    assert!(matches!(refused, UtxoError::DoubleSpend { .. }), "{refused}");
}

pub async fn the_loser_of_a_double_spend_is_dated_once_and_can_win_after_all<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 1).await;
    add(store, 6, vec![pays(2, &[(1, 0)], 1)]).await;
    add(store, 6, vec![NewTx { conflicting: true, ..pays(3, &[(1, 0)], 1) }]).await;
    let loser = get(store, 3).await;
    assert_eq!((loser.delete_at_height, loser.spending), (Some(16), false));
    let refused = store.set_conflicting(id(3), false, 7).await.unwrap_err();
    assert!(matches!(refused, UtxoError::DoubleSpend { .. }), "{refused}");
    assert_eq!(get(store, 3).await, loser, "a refused step changes nothing");
    let refused = store.set_mined(vec![id(3)], block(7, 7), 7).await.unwrap_err();
    assert!(matches!(refused, UtxoError::NotNow { .. }), "{refused}");
    let refused = try_add(store, 7, pays(4, &[(3, 0)], 1)).await.unwrap_err();
    assert!(matches!(refused, UtxoError::NotNow { .. }), "{refused}");
    // The other one loses after all.
    store.set_conflicting(id(2), true, 8).await.unwrap();
    store.set_conflicting(id(3), false, 8).await.unwrap();
    let (winner, loser) = (get(store, 3).await, get(store, 2).await);
    assert_eq!((winner.delete_at_height, winner.spending), (None, true));
    assert_eq!((loser.delete_at_height, loser.spending), (Some(18), false));
    let parent = get(store, 1).await;
    assert_eq!(parent.outputs, vec![Slot::Spent { by: id(3), input: 0 }]);
    assert_eq!(parent.held_by, vec![id(3)]);
    // A parent that came later than the loser is held by it like any other.
    add(store, 9, vec![NewTx { conflicting: true, ..pays(6, &[(5, 0)], 1) }]).await;
    add(store, 9, vec![coinbase(5, 1, block(2, 2))]).await;
    store.set_conflicting(id(6), false, 9).await.unwrap();
    assert_eq!(get(store, 5).await.held_by, vec![id(6)]);
    mine(store, 10, &[6]).await;
    unmine(store, 10, 11, &[6]).await;
    assert_eq!(get(store, 5).await.held_by, vec![id(6)]);
}

pub async fn a_block_with_an_unknown_transaction_or_at_another_height_changes_nothing<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 1).await;
    add(store, 6, vec![pays(2, &[(1, 0)], 1)]).await;
    let before = get(store, 2).await;
    let refused = store.set_mined(vec![id(2), id(9)], block(7, 7), 7).await.unwrap_err();
    assert!(matches!(refused, UtxoError::Unknown { txid } if txid == id(9)), "{refused}");
    assert_eq!(get(store, 2).await, before);
    mine(store, 7, &[2]).await;
    let before = get(store, 2).await;
    let refused = store.set_mined(vec![id(2)], block(7, 8), 8).await.unwrap_err();
    assert!(matches!(refused, UtxoError::NotNow { .. }), "{refused}");
    assert_eq!(get(store, 2).await, before);
    let refused = store.unset_mined(vec![id(2), id(9)], block(7, 7).id, 8).await.unwrap_err();
    assert!(matches!(refused, UtxoError::Unknown { .. }), "{refused}");
    assert_eq!(get(store, 2).await, before);
}

pub async fn a_step_that_is_told_twice_does_no_harm<S, F>(open: impl Fn(Rules) -> F)
where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 1).await;
    add(store, 6, vec![pays(2, &[(1, 0)], 1)]).await;
    store.spend(id(2), 7).await.unwrap();
    let mut states = Vec::new();
    for _ in 0..2 {
        mine(store, 7, &[2, 2]).await;
        states.push((get(store, 1).await, get(store, 2).await));
    }
    for _ in 0..2 {
        unmine(store, 7, 9, &[2]).await;
        unmine(store, 8, 9, &[2]).await;
        states.push((get(store, 1).await, get(store, 2).await));
    }
    for _ in 0..2 {
        store.unspend(id(2), 9).await.unwrap();
        states.push((get(store, 1).await, get(store, 2).await));
    }
    for _ in 0..2 {
        store.set_conflicting(id(2), true, 10).await.unwrap();
        states.push((get(store, 1).await, get(store, 2).await));
    }
    for twice in states.chunks(2) {
        assert_eq!(twice[0], twice[1]);
    }
}

pub async fn of_two_who_spend_the_same_output_at_the_same_time_one_wins<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 64).await;
    let mut tasks = Vec::new();
    for n in 0..8_u64 {
        let store = store.clone();
        // Each wants every output, in an order of its own, two at a time.
        tasks.push(tokio::spawn(async move {
            let mut won = 0;
            for at in 0..32_u32 {
                let first = (at * 7 + u32::try_from(n).unwrap() * 5) % 64;
                let tx =
                    pays(1000 * (n + 1) + u64::from(at), &[(1, first), (1, (first + 1) % 64)], 1);
                match try_add(&store, 7, tx).await {
                    Ok(_) => won += 1,
                    Err(UtxoError::DoubleSpend { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            won
        }));
    }
    let mut won = 0;
    for task in tasks {
        won += task.await.unwrap();
    }
    let record = get(store, 1).await;
    assert_eq!(record.spent(), 2 * won, "each winner has its two outputs, and nobody else's");
    for (n, slot) in (0..).zip(&record.outputs) {
        if let Slot::Spent { by, input } = slot {
            let child = store.get(*by).await.unwrap().unwrap();
            assert_eq!(child.inputs[*input as usize], output(1, n));
        }
    }
}

pub async fn an_output_far_behind_in_a_wide_transaction_is_spent_like_any_other<S, F>(
    open: impl Fn(Rules) -> F,
) where
    S: UtxoStore,
    F: Future<Output = Home<S>>,
{
    let home = open(RULES).await;
    let store = &home.store;
    coins(store, 600).await;
    add(store, 6, vec![pays(2, &[(1, 0), (1, 255), (1, 256), (1, 599)], 1)]).await;
    let refused = try_add(store, 6, pays(3, &[(1, 511), (1, 599)], 1)).await.unwrap_err();
    assert!(matches!(refused, UtxoError::DoubleSpend { .. }), "{refused}");
    let refused = try_add(store, 6, pays(3, &[(1, 600)], 1)).await.unwrap_err();
    assert!(matches!(refused, UtxoError::MissingOutput { .. }), "{refused}");
    let record = get(store, 1).await;
    assert_eq!((record.outputs.len(), record.spent()), (600, 4));
    assert_eq!(record.outputs[599], Slot::Spent { by: id(2), input: 3 });
    store.unspend(id(2), 7).await.unwrap();
    assert_eq!(get(store, 1).await.spent(), 0);
    let rest: Vec<(u64, u32)> = (0..600).map(|n| (1, n)).collect();
    add(store, 8, vec![pays(4, &rest, 1)]).await;
    assert_eq!(get(store, 1).await.delete_at_height, Some(18));
}
