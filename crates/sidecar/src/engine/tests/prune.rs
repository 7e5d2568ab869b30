//! What may be cut, and that nothing else is.

use secateur_store::Table;

use super::*;
use crate::types::BLOB_LEN;

/// A height that is archived and final.
fn prunable(config: EngineConfig) -> Engine {
    let engine = engine_with(config);
    decide(&engine, 5, &[0, 1]);
    archive(&engine, 5);
    engine.set_finalized(5).unwrap();
    engine
}

#[track_caller]
fn held<A: Arena, I: Index>(engine: &SidecarStore<A, I>, height: Height, hold: Hold) {
    let report = engine.prune_archived_before(u64::MAX).unwrap();
    assert_eq!((report.heights, report.blobs), (0, 0), "{report:?}");
    assert_eq!(engine.status(height).unwrap().hold, Some(hold));
    assert_eq!(engine.explain(height, 0).unwrap().hold, Some(hold));
    assert!(!engine.get(height).unwrap().is_empty(), "its bytes are here");
    assert_eq!(engine.plan(9).unwrap().heights, 0);
    sound(engine);
}

/// I15.
#[test]
fn what_is_archived_and_final_goes_and_its_metadata_stays() {
    let engine = prunable(config());
    let before = (engine.height(5).unwrap(), engine.blob_metas(5).unwrap());
    let records = engine.records(5, 1).unwrap();
    let plan = engine.plan(9).unwrap();
    assert_eq!((plan.heights, plan.blobs, plan.limit), (1, 2, Some(5)));
    let report = engine.prune_archived_before(6).unwrap();
    assert_eq!((report.heights, report.blobs, report.failures), (1, 2, 0));
    assert_eq!((report.bytes, report.first, report.last), (2 * BLOB_LEN as u64, Some(5), Some(5)));
    let engine = reopen(engine);
    assert_eq!(states(&engine, 5), [BlobState::Pruned, BlobState::Pruned]);
    assert_eq!((engine.height(5).unwrap(), engine.blob_metas(5).unwrap()), before);
    assert_eq!(engine.records(5, 1).unwrap(), records);
    match engine.get(5).unwrap_err() {
        SidecarError::BlobsPruned { height: 5, blob_count: 2, locators, is_here: false } => {
            let places: Vec<&str> = locators.iter().map(|of| of[0].key.as_str()).collect();
            assert_eq!(places, ["5/0", "5/1"]);
        }
        other => panic!("{other}"),
    }
    assert!(matches!(engine.get_blob(5, 1), Err(SidecarError::BlobsPruned { .. })));
    let story = engine.explain(5, 1).unwrap();
    let pruned = story.pruned.unwrap();
    assert_eq!((pruned.finalized, pruned.failures, story.here, story.hold), (5, 0, false, None));
    let summary = engine.summary().unwrap();
    assert_eq!((summary.pruned, summary.archived, summary.used_bytes), (2, 0, 0));
    assert_eq!(summary.pruner_backlog, None);
    assert_eq!(engine.prune_archived_before(6).unwrap().heights, 0, "once is enough");
    sound(&engine);
}

/// I15.
#[test]
fn nothing_goes_that_is_not_final() {
    let engine = engine();
    decide(&engine, 5, &[0]);
    archive(&engine, 5);
    held(&engine, 5, Hold::NotFinalized);
    engine.set_finalized(4).unwrap();
    held(&engine, 5, Hold::NotFinalized);
    assert_eq!(engine.set_finalized(3).unwrap(), Some(4), "finality never moves back");
    assert_eq!(engine.set_finalized(5).unwrap(), Some(5));
    assert_eq!(engine.prune_archived_before(6).unwrap().heights, 1);
}

/// I15.
#[test]
fn nothing_goes_that_is_younger_than_what_is_retained() {
    let engine = prunable(EngineConfig { retain_blocks: 10, ..config() });
    held(&engine, 5, Hold::Retained);
    engine.set_finalized(14).unwrap();
    held(&engine, 5, Hold::Retained);
    engine.set_finalized(15).unwrap();
    assert_eq!(engine.plan(9).unwrap().limit, Some(5));
    assert_eq!(engine.prune_archived_before(u64::MAX).unwrap().heights, 1);
}

/// I15.
#[test]
fn nothing_goes_while_one_blob_of_the_height_has_no_notice() {
    let engine = engine();
    decide(&engine, 5, &[0, 1, 2]);
    engine.set_finalized(50).unwrap();
    for index in [2, 0] {
        notice(&engine, key(5, index), &record(1, RecordForm::V1, "a")).unwrap();
        held(&engine, 5, Hold::NotArchived);
        assert_eq!(engine.plan(9).unwrap().held, Some((5, Hold::NotArchived)));
    }
    notice(&engine, key(5, 1), &record(1, RecordForm::V1, "a")).unwrap();
    assert_eq!(engine.prune_archived_before(6).unwrap().heights, 1);
}

#[test]
fn a_height_that_must_stay_keeps_none_above_it_from_going() {
    let engine = engine();
    for height in 3..=6 {
        decide(&engine, height, &[0]);
    }
    for height in [4, 6] {
        archive(&engine, height);
    }
    engine.set_finalized(9).unwrap();
    let plan = engine.plan(9).unwrap();
    assert_eq!((plan.heights, plan.first, plan.last), (2, Some(4), Some(6)));
    assert_eq!(plan.held, Some((3, Hold::NotArchived)));
    let report = engine.prune_archived_before(6).unwrap();
    assert_eq!((report.heights, report.last), (1, Some(4)), "below 6, as was asked");
    assert_eq!(engine.summary().unwrap().pruner_backlog, Some(6));
    assert_eq!(engine.summary().unwrap().oldest_unarchived, Some(3));
    assert_eq!(engine.prune_archived_before(7).unwrap().heights, 1);
    sound(&engine);
}

/// I15.
#[test]
fn a_notice_that_binds_no_chain_is_not_enough_under_trust_in_signatures() {
    let engine = engine();
    decide(&engine, 5, &[0]);
    engine.set_finalized(5).unwrap();
    notice(&engine, key(5, 0), &record(1, RecordForm::V0, "a")).unwrap();
    held(&engine, 5, Hold::UnboundNotice);
    let report = engine.prune_archived_before(9).unwrap();
    assert_eq!((report.held, report.first_held), (1, Some((5, Hold::UnboundNotice))));
    notice(&engine, key(5, 0), &record(1, RecordForm::V1, "a")).unwrap();
    assert_eq!(engine.prune_archived_before(9).unwrap().heights, 1);
}

/// I15.
#[test]
fn under_trust_in_fetching_a_signature_is_not_enough() {
    let fetch = EngineConfig { trust: Trust::Fetch, ..config() };
    let engine = prunable(fetch);
    held(&engine, 5, Hold::NotFetched);
    let due = engine.fetch_due(BlobKey { height: 0, index: 0 }, 9).unwrap();
    assert_eq!(due.iter().map(|one| one.meta.index).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(due[1].locators[0].key, "5/1");
    engine.set_fetched(key(5, 0), due[0].meta.keccak).unwrap();
    held(&engine, 5, Hold::NotFetched);
    assert_eq!(engine.fetch_due(BlobKey { height: 0, index: 0 }, 9).unwrap().len(), 1);
    // The rule is the one that is set now, not the one that was when the record came.
    let engine = reopen_with(engine, config());
    assert_eq!(engine.plan(9).unwrap().heights, 1);
    assert_eq!(engine.fetch_due(BlobKey { height: 0, index: 0 }, 9).unwrap(), []);
    let engine = reopen_with(engine, fetch);
    held(&engine, 5, Hold::NotFetched);
    engine.set_fetched(key(5, 1), due[1].meta.keccak).unwrap();
    assert_eq!(engine.prune_archived_before(9).unwrap().blobs, 2);
}

#[test]
fn what_this_node_archived_and_read_back_itself_counts_as_fetched() {
    let engine = engine_with(EngineConfig { trust: Trust::Fetch, ..config() });
    engine.store_decided(&proposal(5, 0, &[0]), Role::Proposer).unwrap();
    engine.record_archived(key(5, 0), &own("a")).unwrap();
    engine.set_finalized(5).unwrap();
    assert_eq!(engine.fetch_due(BlobKey { height: 0, index: 0 }, 9).unwrap(), []);
    assert_eq!(engine.prune_archived_before(9).unwrap().heights, 1);
    assert_eq!(engine.announcements(key(0, 0), 9).unwrap().len(), 1, "it is told all the same");
    sound(&engine);
}

#[test]
fn a_blob_whose_bytes_are_gone_already_is_pruned_and_counted_as_a_failure() {
    let engine = prunable(config());
    // Somebody else's row for the first blob, none for the second.
    engine
        .shelf
        .write(|batch| {
            let slot = read::slot_of(batch, key(5, 0))?.unwrap();
            batch.cut(&slot)?;
            batch.delete(Table::Bytes, &rows::blob_key(key(5, 1)))
        })
        .unwrap();
    assert!(matches!(engine.get_blob(5, 1), Err(SidecarError::Missing { height: 5, index: 1 })));
    let report = engine.prune_archived_before(9).unwrap();
    assert_eq!((report.heights, report.blobs, report.failures), (1, 0, 2));
    assert_eq!(engine.summary().unwrap().prune_failures, 2);
    assert_eq!(engine.explain(5, 0).unwrap().pruned.unwrap().failures, 2);
    assert_eq!(states(&engine, 5), [BlobState::Pruned, BlobState::Pruned]);
}

#[test]
fn a_prune_goes_on_in_batches_and_never_divides_a_height() {
    let engine = engine_with(EngineConfig { max_ops: 3, ..config() });
    for height in 1..=6 {
        decide(&engine, height, &[0, 1]);
        archive(&engine, height);
    }
    engine.set_finalized(9).unwrap();
    let step = engine.prune_step(9).unwrap();
    assert_eq!((step.heights, step.blobs, step.more), (1, 2, true));
    assert_eq!(engine.waiting_heights(0, 9).unwrap().len(), 5);
    let report = engine.prune_archived_before(6).unwrap();
    assert_eq!((report.heights, report.blobs, report.more), (4, 8, false));
    assert_eq!(engine.waiting_heights(0, 9).unwrap()[0].height, 6);
    // A height larger than a batch goes all the same.
    let engine = reopen_with(engine, EngineConfig { max_ops: 1, ..config() });
    assert_eq!(engine.prune_archived_before(9).unwrap().blobs, 2);
    sound(&engine);
}

#[test]
fn freed_regions_are_used_again() {
    let engine = engine();
    for height in 1..=5 {
        decide(&engine, height, &[0, 1]);
        archive(&engine, height);
        engine.set_finalized(height).unwrap();
        engine.prune_archived_before(height + 1).unwrap();
    }
    assert_eq!(engine.shelf().usage().unwrap().arena_end, 4096 + 2 * BLOB_LEN as u64);
    assert_eq!(engine.summary().unwrap().heights, 5);
    sound(&engine);
}

#[test]
fn a_budget_alarms_and_cuts_nothing() {
    let engine = engine_with(EngineConfig { budget_bytes: BLOB_LEN as u64, ..config() });
    decide(&engine, 1, &[0]);
    assert!(!engine.summary().unwrap().over_budget());
    decide(&engine, 2, &[0]);
    let summary = engine.summary().unwrap();
    assert!(summary.over_budget());
    assert_eq!((summary.pending, summary.archival_lag()), (2, 2));
    engine.set_finalized(9).unwrap();
    assert_eq!(engine.prune_archived_before(9).unwrap().heights, 0);
}

#[test]
fn a_job_goes_with_the_bytes_it_was_for() {
    let engine = engine();
    engine.store_decided(&proposal(5, 0, &[0]), Role::Proposer).unwrap();
    notice(&engine, key(5, 0), &record(2, RecordForm::V1, "a")).unwrap();
    engine.set_finalized(5).unwrap();
    assert_eq!(engine.summary().unwrap().jobs, 1);
    engine.prune_archived_before(6).unwrap();
    assert_eq!(engine.summary().unwrap().jobs, 0);
    assert_eq!(engine.next_due().unwrap(), None);
    assert_eq!(engine.enqueue(5, 0).unwrap(), 0, "there is nothing to archive");
    // A further signer's locators are still worth having.
    assert_eq!(notice(&engine, key(5, 0), &record(3, RecordForm::V1, "b")).unwrap(), Marked::Added);
    sound(&engine);
}

/// I15.
#[test]
fn a_record_that_cannot_be_read_keeps_its_height_and_no_other() {
    let engine = prunable(config());
    decide(&engine, 6, &[0]);
    archive(&engine, 6);
    engine.set_finalized(6).unwrap();
    engine
        .shelf
        .write(|batch| batch.put(Table::Archive, &rows::blob_key(key(5, 1)), vec![9; 30]))
        .unwrap();
    assert_eq!(engine.plan(9).unwrap().held, Some((5, Hold::Unreadable)));
    let report = engine.prune_archived_before(9).unwrap();
    assert_eq!((report.heights, report.last, report.held), (1, Some(6), 1));
    assert_eq!(engine.get(5).unwrap().len(), 2, "its bytes are here");
    assert!(!engine.verify(|_, _| ()).unwrap().findings.is_empty());
}
