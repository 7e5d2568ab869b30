//! Archive records: our own and those of verified notices.

use super::*;
use crate::types::BlobKeccak;

#[test]
fn a_notice_makes_its_blob_archived_and_that_survives_reopening() {
    let engine = engine();
    decide(&engine, 5, &[0, 1]);
    assert_eq!(states(&engine, 5), [BlobState::Pending, BlobState::Pending]);
    let v1 = record(1, RecordForm::V1, "a");
    assert_eq!(notice(&engine, key(5, 1), &v1).unwrap(), Marked::New);
    assert_eq!(states(&engine, 5), [BlobState::Pending, BlobState::Archived]);
    assert_eq!(engine.heights_without_notice(0, 9).unwrap(), [5]);
    let waiting = engine.waiting_heights(0, 9).unwrap();
    assert_eq!((waiting[0].blob_count, waiting[0].unarchived), (2, 1));
    assert_eq!(engine.summary().unwrap().latest_archived, None);
    let engine = reopen(engine);
    assert_eq!(states(&engine, 5), [BlobState::Pending, BlobState::Archived]);
    assert_eq!(engine.records(5, 1).unwrap()[0].record, v1);
    notice(&engine, key(5, 0), &v1).unwrap();
    assert!(engine.heights_without_notice(0, 9).unwrap().is_empty());
    assert_eq!(engine.summary().unwrap().latest_archived, Some(5));
    sound(&engine);
}

#[test]
fn the_same_notice_again_is_silent_another_of_the_same_signer_is_a_conflict() {
    let engine = engine();
    decide(&engine, 5, &[0]);
    let first = record(1, RecordForm::V1, "a");
    notice(&engine, key(5, 0), &first).unwrap();
    let later = ArchiveRecord { archived_at: 99, ..first.clone() };
    assert_eq!(notice(&engine, key(5, 0), &later).unwrap(), Marked::Known, "time is not signed");
    let elsewhere = record(1, RecordForm::V1, "b");
    let another_height = ArchiveRecord { archived_at_height: 10, ..first.clone() };
    for other in [elsewhere, another_height] {
        let error = notice(&engine, key(5, 0), &other).unwrap_err();
        assert!(matches!(error, SidecarError::RecordConflict { height: 5, index: 0, .. }));
    }
    let records = engine.records(5, 0).unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].record, first, "the first record stays");
    sound(&engine);
}

#[test]
fn another_signers_locators_are_added_up_to_a_limit() {
    let engine = engine();
    decide(&engine, 5, &[0]);
    assert_eq!(notice(&engine, key(5, 0), &record(1, RecordForm::V1, "a")).unwrap(), Marked::New);
    for signer in 2..=16 {
        let v1 = record(signer, RecordForm::V1, &format!("of {signer}"));
        assert_eq!(notice(&engine, key(5, 0), &v1).unwrap(), Marked::Added);
    }
    let one_more = record(17, RecordForm::V1, "z");
    assert_eq!(notice(&engine, key(5, 0), &one_more).unwrap(), Marked::Enough);
    assert_eq!(engine.records(5, 0).unwrap().len(), MAX_RECORDS);
    let mine = record(18, RecordForm::Own, "mine");
    assert_eq!(engine.record_archived(key(5, 0), &mine).unwrap(), Marked::Added, "ours always");
    assert_eq!(reopen(engine).records(5, 0).unwrap().len(), MAX_RECORDS + 1);
}

#[test]
fn the_compatibility_form_is_a_record_of_its_own_and_signs_its_time() {
    let engine = engine();
    decide(&engine, 5, &[0]);
    let v0 = record(1, RecordForm::V0, "a");
    assert_eq!(notice(&engine, key(5, 0), &v0).unwrap(), Marked::New);
    assert_eq!(notice(&engine, key(5, 0), &v0).unwrap(), Marked::Known);
    let later = ArchiveRecord { archived_at: 6, ..v0.clone() };
    assert!(notice(&engine, key(5, 0), &later).is_err());
    let v1 = record(1, RecordForm::V1, "b");
    assert_eq!(notice(&engine, key(5, 0), &v1).unwrap(), Marked::Added);
}

#[test]
fn a_record_of_an_unknown_blob_or_another_hash_changes_nothing() {
    let engine = engine();
    decide(&engine, 5, &[0]);
    let v1 = record(1, RecordForm::V1, "a");
    let keccak = engine.blob_meta(5, 0).unwrap().unwrap().keccak;
    let error = engine.mark_archived(key(6, 0), &v1, keccak).unwrap_err();
    assert!(matches!(error, SidecarError::Unknown(6)));
    let error = engine.mark_archived(key(5, 1), &v1, keccak).unwrap_err();
    assert!(matches!(error, SidecarError::NoSuchBlob { index: 1, blob_count: 1, .. }));
    let error = engine.mark_archived(key(5, 0), &v1, BlobKeccak([1; 32])).unwrap_err();
    assert!(matches!(error, SidecarError::KeccakMismatch { stored, .. } if stored == keccak));
    engine.verify_and_store(&proposal(6, 0, &[0])).unwrap();
    let error = engine.mark_archived(key(6, 0), &v1, keccak).unwrap_err();
    assert!(matches!(error, SidecarError::Unknown(6)), "what is not decided has no notice");
    assert_eq!(engine.records(5, 0).unwrap(), []);
    sound(&engine);
}

#[test]
fn locators_have_limits_and_forms_their_own_calls() {
    let engine = engine();
    decide(&engine, 5, &[0]);
    let good = record(1, RecordForm::V1, "a");
    let with = |locators| ArchiveRecord { locators, ..good.clone() };
    let place = |provider: &str, key: &str| Locator { provider: provider.into(), key: key.into() };
    for bad in [
        with(vec![]),
        with(vec![place("fs", "a"); 17]),
        with(vec![place("fs", "")]),
        with(vec![place("", "a")]),
        with(vec![place("fs", "a\nb")]),
        with(vec![place("fs", &"x".repeat(1025))]),
        own("a"),
    ] {
        assert_eq!(notice(&engine, key(5, 0), &bad).unwrap_err().label(), "refused");
    }
    let error = engine.record_archived(key(5, 0), &good).unwrap_err();
    assert_eq!(error.label(), "refused", "a notice is not our own record");
    let most = with(vec![place(&"p".repeat(1024), &"k".repeat(1024)); 16]);
    assert_eq!(notice(&engine, key(5, 0), &most).unwrap(), Marked::New);
    assert_eq!(reopen(engine).records(5, 0).unwrap()[0].record, most);
}

/// I17.
#[test]
fn what_this_node_signs_for_is_recorded_once_and_never_otherwise() {
    let engine = engine();
    engine.verify_and_store(&proposal(5, 0, &[0, 1])).unwrap();
    engine.mark_decided(5, 0, Role::Proposer).unwrap();
    assert_eq!(engine.summary().unwrap().jobs, 2);
    assert_eq!(engine.record_archived(key(5, 0), &own("a")).unwrap(), Marked::New);
    assert_eq!(engine.summary().unwrap().jobs, 1, "its job is done");
    let engine = reopen(engine);
    let announced = engine.announcements(key(0, 0), 9).unwrap();
    assert_eq!(announced.len(), 1);
    assert_eq!((announced[0].key, &announced[0].record), (key(5, 0), &own("a")));
    assert_eq!(engine.record_archived(key(5, 0), &own("a")).unwrap(), Marked::Known);
    let error = engine.record_archived(key(5, 0), &own("b")).unwrap_err();
    assert!(matches!(error, SidecarError::RecordConflict { .. }));
    // Nor if a notice under our name says something else.
    let of_ours = record(1, RecordForm::V1, "elsewhere");
    assert!(matches!(
        notice(&engine, key(5, 0), &of_ours),
        Err(SidecarError::RecordConflict { .. })
    ));
    // The notice that was made of it is nothing new.
    let echo = record(1, RecordForm::V1, "a");
    assert_eq!(notice(&engine, key(5, 0), &echo).unwrap(), Marked::Known);
    assert_eq!(engine.records(5, 0).unwrap().len(), 1);
    sound(&engine);
}

#[test]
fn many_records_go_in_one_commit_and_each_has_its_answer() {
    let engine = engine();
    decide(&engine, 5, &[0, 1]);
    let good = record(1, RecordForm::V1, "a");
    let keccak = |index| engine.blob_meta(5, index).unwrap().unwrap().keccak;
    let all = [
        (key(5, 0), good.clone(), keccak(0)),
        (key(5, 0), record(1, RecordForm::V1, "b"), keccak(0)),
        (key(9, 0), good.clone(), keccak(0)),
        (key(5, 1), good.clone(), keccak(0)),
        (key(5, 1), good.clone(), keccak(1)),
        (key(5, 1), good, keccak(1)),
    ];
    let answers = engine.mark_archived_all(&all).unwrap();
    let words: Vec<&str> = answers
        .iter()
        .map(|answer| match answer {
            Ok(Marked::New) => "new",
            Ok(Marked::Known) => "known",
            Ok(_) => "other",
            Err(error) => error.label(),
        })
        .collect();
    assert_eq!(
        words,
        ["new", "record_conflict", "unknown_height", "keccak_mismatch", "new", "known"]
    );
    assert_eq!(states(&engine, 5), [BlobState::Archived, BlobState::Archived]);
    decide(&engine, 6, &[0, 1]);
    let own = [(key(6, 0), own("a")), (key(6, 1), own("b")), (key(6, 1), own("c"))];
    let answers = engine.record_archived_all(&own).unwrap();
    assert!(matches!(answers.as_slice(), [Ok(Marked::New), Ok(Marked::New), Err(_)]));
    sound(&engine);
}

#[test]
fn a_fetched_copy_must_hash_as_the_blob_does() {
    let engine = engine_with(EngineConfig { trust: Trust::Fetch, ..config() });
    decide(&engine, 5, &[0]);
    let keccak = engine.blob_meta(5, 0).unwrap().unwrap().keccak;
    assert_eq!(engine.set_fetched(key(5, 0), keccak).unwrap_err().label(), "refused");
    archive(&engine, 5);
    let error = engine.set_fetched(key(5, 0), BlobKeccak([9; 32])).unwrap_err();
    assert!(matches!(error, SidecarError::KeccakMismatch { .. }));
    assert!(engine.set_fetched(key(5, 0), keccak).unwrap());
    let engine = reopen(engine);
    assert!(!engine.set_fetched(key(5, 0), keccak).unwrap());
    assert_eq!(engine.explain(5, 0).unwrap().blob.fetched_at, Some(1_700_000_000));
}

#[test]
fn blobs_that_nobody_signed_for_are_listed_in_order() {
    let engine = engine();
    for height in [3, 5, 7] {
        decide(&engine, height, &[0, 1, 2]);
    }
    decide(&engine, 4, &[]);
    notice(&engine, key(5, 1), &record(1, RecordForm::V1, "a")).unwrap();
    archive(&engine, 3);
    let list = |finalized, from, max| engine.list_archivable(finalized, from, max).unwrap();
    assert_eq!(list(6, key(0, 0), 9), [key(5, 0), key(5, 2)]);
    assert_eq!(list(7, key(5, 1), 2), [key(5, 2), key(7, 0)]);
    assert_eq!(list(7, key(5, 3), 9), [key(7, 0), key(7, 1), key(7, 2)]);
    assert_eq!(list(2, key(0, 0), 9), []);
    assert_eq!(engine.heights_without_notice(0, 1).unwrap(), [5]);
    assert_eq!(engine.heights_without_notice(6, 9).unwrap(), [7]);
    let heights: Vec<_> =
        engine.waiting_heights(0, 2).unwrap().iter().map(|at| (at.height, at.unarchived)).collect();
    assert_eq!(heights, [(3, 0), (5, 2)]);
}
