//! The archiver's queue and the announcements.

use secateur_store::Table;

use super::*;

fn proposed() -> Engine {
    let engine = engine();
    for height in [5, 6] {
        engine.store_decided(&proposal(height, 0, &[0, 1]), Role::Proposer).unwrap();
    }
    engine
}

fn due<A: Arena, I: Index>(engine: &SidecarStore<A, I>, now: u64) -> Vec<(Height, u32, u32)> {
    let jobs = engine.jobs_due(now, 99, |_| false).unwrap();
    jobs.iter().map(|job| (job.key.height, job.key.index, job.attempts)).collect()
}

#[test]
fn a_proposers_blobs_are_queued_with_the_decision_and_a_followers_are_not() {
    let engine = proposed();
    decide(&engine, 7, &[0]);
    let engine = reopen(engine);
    assert_eq!(due(&engine, 0), [(5, 0, 0), (5, 1, 0), (6, 0, 0), (6, 1, 0)]);
    let summary = engine.summary().unwrap();
    assert_eq!((summary.jobs, summary.oldest_job), (4, Some(5)));
    assert_eq!(engine.next_due().unwrap(), Some(0));
    sound(&engine);
}

#[test]
fn each_job_has_its_own_due_time_so_that_none_blocks_another() {
    let engine = proposed();
    engine.job_failed(key(5, 0), 2_000, 1).unwrap();
    engine.job_failed(key(5, 1), 1_000, 1).unwrap();
    let engine = reopen(engine);
    assert_eq!(due(&engine, 999), [(6, 0, 0), (6, 1, 0)]);
    assert_eq!(due(&engine, 1_000), [(6, 0, 0), (6, 1, 0), (5, 1, 1)]);
    engine.job_failed(key(5, 1), 3_000, 2).unwrap();
    assert_eq!(due(&engine, 2_500), [(6, 0, 0), (6, 1, 0), (5, 0, 1)]);
    let some = engine.jobs_due(9_000, 2, |key| key.height == 6).unwrap();
    assert_eq!(some.iter().map(|job| job.attempts).collect::<Vec<_>>(), [1, 2]);
    assert!(engine.job_done(key(6, 0)).unwrap());
    assert!(!engine.job_done(key(6, 0)).unwrap());
    engine.job_failed(key(6, 0), 1, 9).unwrap();
    assert_eq!(due(&engine, 9_000).len(), 3, "a job that is gone stays away");
    sound(&engine);
}

#[test]
fn blobs_that_are_here_and_not_ours_yet_can_be_queued_again() {
    let engine = proposed();
    engine.record_archived(key(5, 0), &own("a")).unwrap();
    engine.job_failed(key(5, 1), 1_000_000, 12).unwrap();
    assert_eq!(engine.enqueue(5, 7).unwrap(), 1);
    // That something was tried is not forgotten: it is looked for first.
    assert_eq!(due(&engine, 7), [(6, 0, 0), (6, 1, 0), (5, 1, 1)]);
    decide(&engine, 7, &[0, 1]);
    assert_eq!(engine.enqueue(7, 0).unwrap(), 2, "another's, whose proposer is dead");
    assert!(matches!(engine.enqueue(8, 0), Err(SidecarError::Unknown(8))));
    sound(&engine);
}

#[test]
fn own_notices_are_announced_until_they_are_acknowledged() {
    let engine = proposed();
    for index in [0, 1] {
        engine.record_archived(key(5, index), &own("a")).unwrap();
    }
    let list = |engine: &Engine| -> Vec<(u32, Option<Height>)> {
        let all = engine.announcements(key(0, 0), 9).unwrap();
        all.iter().map(|one| (one.key.index, one.broadcast_at)).collect()
    };
    assert_eq!(list(&engine), [(0, None), (1, None)]);
    engine.announced(&[key(5, 0), key(6, 0)], 12, 4).unwrap();
    let engine = reopen(engine);
    assert_eq!(list(&engine), [(0, Some(12)), (1, None)]);
    assert_eq!(engine.announcements(key(5, 1), 9).unwrap().len(), 1);
    assert_eq!(engine.announcements(key(0, 0), 1).unwrap().len(), 1);
    engine.acknowledged(&[key(5, 0), key(6, 1)]).unwrap();
    assert_eq!(list(&engine), [(1, None)]);
    engine.record_archived(key(5, 0), &own("a")).unwrap();
    assert_eq!(list(&engine), [(1, None)], "what is acknowledged is not announced again");
    assert_eq!(engine.reannounce(5).unwrap(), 2, "unless somebody asks for it");
    assert_eq!(list(&engine), [(0, None), (1, None)]);
    assert_eq!(engine.summary().unwrap().announcements, 2);
    sound(&engine);
}

#[test]
fn what_is_to_be_told_comes_in_the_order_in_which_it_is_due() {
    let engine = proposed();
    for (height, index) in [(5, 0), (5, 1), (6, 0)] {
        engine.record_archived(key(height, index), &own("a")).unwrap();
    }
    let due = |engine: &Engine, head, max| -> Vec<(Height, u32, u32)> {
        let due = engine.announcements_due(head, max).unwrap();
        due.iter().map(|one| (one.key.height, one.key.index, one.told)).collect()
    };
    assert_eq!(due(&engine, 0, 2), [(5, 0, 0), (5, 1, 0)], "at once, and no more than wanted");
    engine.announced(&[key(5, 0)], 10, 8).unwrap();
    engine.announced(&[key(5, 1)], 10, 4).unwrap();
    assert_eq!(due(&engine, 10, 9), [(6, 0, 0)], "what is not due is not looked at");
    let engine = reopen(engine);
    assert_eq!(due(&engine, 14, 9), [(6, 0, 0), (5, 1, 1)]);
    assert_eq!(due(&engine, 18, 9), [(6, 0, 0), (5, 1, 1), (5, 0, 1)]);
    engine.announced(&[key(5, 1)], 18, 0).unwrap();
    assert_eq!(due(&engine, 18, 9), [(6, 0, 0), (5, 0, 1)], "never twice at one height");
    engine.acknowledged(&[key(6, 0)]).unwrap();
    assert_eq!(engine.reannounce(5).unwrap(), 2);
    assert_eq!(due(&engine, 0, 9), [(5, 0, 0), (5, 1, 0)], "as if it were new");
    engine.announced(&[key(5, 0)], Height::MAX, 8).unwrap();
    assert_eq!(due(&engine, Height::MAX, 9).len(), 2, "no height is beyond the last");
    sound(&engine);
}

#[test]
fn a_damaged_row_keeps_nothing_else_from_its_turn() {
    let engine = proposed();
    for (height, index) in [(5, 0), (5, 1), (6, 0)] {
        engine.record_archived(key(height, index), &own("a")).unwrap();
    }
    decide(&engine, 7, &[0]);
    decide(&engine, 8, &[0]);
    engine.verify_and_store(&proposal(1, 0, &[0])).unwrap();
    engine.verify_and_store(&proposal(2, 0, &[0])).unwrap();
    let damaged = [
        (Table::Announcements, rows::blob_key(key(5, 0))),
        (Table::Archive, rows::blob_key(key(5, 1))),
        (Table::Jobs, rows::blob_key(key(6, 1))),
        (Table::Waiting, rows::height_key(7).to_vec()),
        (Table::Rounds, rows::round_key(1, 0)),
    ];
    let damage = |batch: &mut ShelfBatch<'_, '_, _>| {
        damaged.iter().try_for_each(|(table, key)| batch.put(*table, key, vec![9; 3]))
    };
    engine.shelf().write::<_, StoreError>(damage).unwrap();
    let keys = |found: Vec<Announcement>| found.iter().map(|one| one.key).collect::<Vec<_>>();
    assert_eq!(keys(engine.announcements_due(9, 9).unwrap()), [key(6, 0)]);
    assert_eq!(keys(engine.announcements(key(0, 0), 9).unwrap()), [key(6, 0)]);
    engine.announced(&[key(5, 0), key(6, 0)], 9, 4).unwrap();
    engine.acknowledged(&[key(5, 0), key(6, 0)]).unwrap();
    assert_eq!(due(&engine, 0), [(6, 1, 0)]);
    assert_eq!(engine.heights_without_notice(0, 9).unwrap(), [6, 8]);
    engine.set_finalized(99).unwrap();
    assert_eq!(engine.drop_left_rounds().unwrap(), 1, "the other one");
    assert_eq!(engine.prune_archived_before(99).unwrap().heights, 0, "height 5 is unreadable");
    assert!(!engine.verify(|_, _| ()).unwrap().findings.is_empty(), "it is told of");
}

#[test]
fn that_a_node_may_not_sign_is_kept_with_the_job_until_it_may() {
    let engine = proposed();
    engine.job_held(key(5, 0), 2_000, 1, Unpermitted::OtherKey).unwrap();
    engine.job_held(key(9, 0), 2_000, 1, Unpermitted::OtherKey).unwrap();
    let engine = reopen(engine);
    let job = |engine: &Engine| engine.status(5).unwrap().blobs[0].job.unwrap();
    assert_eq!(job(&engine).held, Some(Unpermitted::OtherKey));
    assert_eq!(due(&engine, 1_999).len(), 3);
    engine.job_failed(key(5, 0), 3_000, 2).unwrap();
    assert_eq!(job(&engine), Job { key: key(5, 0), attempts: 2, due: 3_000, held: None });
    sound(&engine);
}
