//! The archiver's queue and the announcements.

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
    assert_eq!(due(&engine, 7), [(6, 0, 0), (6, 1, 0), (5, 1, 0)]);
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
    engine.announced(&[key(5, 0), key(6, 0)], 12).unwrap();
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
