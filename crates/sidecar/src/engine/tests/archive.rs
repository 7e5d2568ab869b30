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

/// I17: a record is signed from, so one that no notice can say must not be there.
#[test]
fn an_own_record_that_could_not_be_signed_is_refused_before_it_is_durable() {
    let engine = engine();
    engine.store_decided(&proposal(5, 0, &[0]), Role::Proposer).unwrap();
    let place = |provider: &str, key: String| Locator { provider: provider.into(), key };
    let twice = vec![place("fs", "a".into()); 2];
    let many = (0..16).map(|n| place("fs", format!("{n}{}", "k".repeat(1_022)))).collect();
    for locators in [vec![], twice, many] {
        let record = ArchiveRecord { locators, ..own("a") };
        assert_eq!(engine.record_archived(key(5, 0), &record).unwrap_err().label(), "refused");
    }
    assert!(engine.records(5, 0).unwrap().is_empty());
    assert_eq!(engine.summary().unwrap().jobs, 1);
    sound(&engine);
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

#[test]
fn what_was_signed_for_copies_that_are_not_there_lets_others_speak_and_stays() {
    let engine = engine_with(EngineConfig { trust: Trust::Fetch, ..config() });
    decide(&engine, 5, &[0]);
    assert!(!engine.doubt(key(5, 0)).unwrap(), "nobody has signed for it");
    let told = |place: &str| record(1, RecordForm::V1, place);
    notice(&engine, key(5, 0), &told("a")).unwrap();
    assert!(notice(&engine, key(5, 0), &told("b")).is_err(), "nobody has looked yet");
    assert!(engine.doubt(key(5, 0)).unwrap());
    assert!(!engine.doubt(key(5, 0)).unwrap(), "it is not new");
    assert_eq!(engine.heights_without_notice(0, 9).unwrap(), [5]);
    assert!(engine.heights_without_notice(6, 9).unwrap().is_empty());
    assert_eq!(notice(&engine, key(5, 0), &told("b")).unwrap(), Marked::Added);
    // One at a time: what it says has to be looked at first.
    assert!(engine.heights_without_notice(0, 9).unwrap().is_empty());
    assert!(notice(&engine, key(5, 0), &told("c")).is_err());
    for place in ["c", "d"] {
        assert!(engine.doubt(key(5, 0)).unwrap());
        assert_eq!(notice(&engine, key(5, 0), &told(place)).unwrap(), Marked::Added);
    }
    engine.doubt(key(5, 0)).unwrap();
    assert!(notice(&engine, key(5, 0), &told("e")).is_err(), "one signer has four");
    assert_eq!(notice(&engine, key(5, 0), &told("b")).unwrap(), Marked::Known);
    assert!(engine.record_archived(key(5, 0), &own("f")).is_err(), "never a second one of ours");
    let of_another = record(2, RecordForm::V1, "g");
    assert_eq!(notice(&engine, key(5, 0), &of_another).unwrap(), Marked::Added);
    engine.set_finalized(5).unwrap();
    assert_eq!(engine.prune_archived_before(9).unwrap().heights, 0, "a doubt lets nothing go");
    let places = |engine: &Engine| -> Vec<String> {
        let due = engine.fetch_due(key(0, 0), 9).unwrap();
        due[0].locators.iter().map(|locator| locator.key.clone()).collect()
    };
    assert_eq!(places(&engine), ["a", "b", "c", "d", "g"], "all of them are looked for again");
    let engine = reopen(engine);
    assert_eq!(places(&engine).len(), 5);
    assert!(!engine.is_doubted(key(5, 0)), "that is found again");
    let keccak = engine.blob_meta(5, 0).unwrap().unwrap().keccak;
    engine.set_fetched(key(5, 0), keccak).unwrap();
    assert!(!engine.doubt(key(5, 0)).unwrap(), "a copy was there");
    assert!(notice(&engine, key(5, 0), &told("e")).is_err());
    sound(&engine);
}

#[test]
fn whoever_names_many_places_hides_nobody_elses() {
    let engine = engine_with(EngineConfig { trust: Trust::Fetch, ..config() });
    decide(&engine, 5, &[0]);
    let place = |n: usize| Locator { provider: "fs".into(), key: format!("many {n}") };
    let locators = (0..MAX_LOCATORS).map(place).collect();
    let many = ArchiveRecord { locators, ..record(1, RecordForm::V1, "a") };
    notice(&engine, key(5, 0), &many).unwrap();
    notice(&engine, key(5, 0), &record(2, RecordForm::V1, "b")).unwrap();
    engine.set_finalized(5).unwrap();
    let due = engine.fetch_due(key(0, 0), 9).unwrap();
    assert_eq!(due[0].locators.len(), MAX_LOCATORS + 1);
    assert_eq!(due[0].locators[1].key, "b");
    engine.set_fetched(key(5, 0), due[0].meta.keccak).unwrap();
    assert_eq!(engine.prune_archived_before(9).unwrap().heights, 1);
    let Err(SidecarError::BlobsPruned { locators, .. }) = engine.get(5) else {
        panic!("it is pruned")
    };
    assert_eq!((locators[0].len(), locators[0][1].key.as_str()), (MAX_LOCATORS, "b"));
}

/// I17.
#[test]
fn a_record_of_ours_without_its_signature_is_refused() {
    let engine = engine();
    decide(&engine, 5, &[0]);
    let unsigned = ArchiveRecord { signature: None, ..own("a") };
    assert_eq!(engine.record_archived(key(5, 0), &unsigned).unwrap_err().label(), "refused");
    assert!(engine.records(5, 0).unwrap().is_empty());
    engine.record_archived(key(5, 0), &own("a")).unwrap();
    assert_eq!(reopen(engine).records(5, 0).unwrap()[0].record.signature, Some([1; 64]));
}

#[test]
fn what_binds_no_chain_is_lacking_under_signature_and_takes_no_place_from_what_does() {
    let engine = engine();
    decide(&engine, 5, &[0, 1]);
    decide(&engine, 6, &[0]);
    archive(&engine, 6);
    decide(&engine, 9, &[]);
    notice(&engine, key(5, 1), &record(1, RecordForm::V1, "b")).unwrap();
    for signer in 1..=16 {
        let v0 = record(signer, RecordForm::V0, &format!("of {signer}"));
        assert!(matches!(notice(&engine, key(5, 0), &v0), Ok(Marked::New | Marked::Added)));
    }
    let v0 = record(17, RecordForm::V0, "z");
    assert_eq!(notice(&engine, key(5, 0), &v0).unwrap(), Marked::Enough);
    let lacking = |engine: &Engine| {
        let heights = engine.heights_without_notice(0, 9).unwrap();
        (heights, engine.summary().unwrap().archival_lag())
    };
    assert_eq!(lacking(&engine), (vec![5], 5), "it is asked for, stood in for, and seen");
    assert!(engine.heights_without_notice(6, 9).unwrap().is_empty());
    sound(&engine);
    // A copy can be fetched from any of them.
    let fetch = EngineConfig { trust: Trust::Fetch, ..config() };
    let engine = reopen_with(engine, fetch);
    assert_eq!(lacking(&engine), (vec![], 0));
    let engine = reopen_with(engine, config());
    for signer in 1..=16 {
        let v1 = record(signer, RecordForm::V1, &format!("bound {signer}"));
        assert_eq!(notice(&engine, key(5, 0), &v1).unwrap(), Marked::Added);
        assert_eq!(lacking(&engine), (vec![], 0));
    }
    assert_eq!(engine.records(5, 0).unwrap().len(), 2 * MAX_RECORDS);
    let engine = reopen(engine);
    sound(&engine);
    engine.set_finalized(9).unwrap();
    assert_eq!(engine.prune_archived_before(9).unwrap().heights, 2);
    // Under fetch one that is only unbound goes too, and nothing of that is left.
    let engine = reopen_with(engine, fetch);
    decide(&engine, 10, &[0]);
    notice(&engine, key(10, 0), &record(1, RecordForm::V0, "a")).unwrap();
    let keccak = engine.blob_meta(10, 0).unwrap().unwrap().keccak;
    engine.set_fetched(key(10, 0), keccak).unwrap();
    engine.set_finalized(10).unwrap();
    assert_eq!(engine.prune_archived_before(11).unwrap().heights, 1);
    let engine = reopen_with(engine, config());
    assert_eq!(lacking(&engine), (vec![], 0));
    sound(&engine);
}
