//! Proposals and decisions.

use bytes::Bytes;

use super::super::ingest::UNDECIDED_SLACK;
use super::*;
use crate::kzg;
use crate::types::{BLOB_LEN, Commitment, Inclusion, Proof, Sidecar};

fn refused(change: impl FnOnce(&mut Proposal)) -> SidecarError {
    let engine = engine();
    let mut bad = proposal(5, 0, &[0, 1]);
    change(&mut bad);
    let error = engine.verify_and_store(&bad).unwrap_err();
    let again = engine.store_decided(&bad, Role::Follower).unwrap_err();
    assert_eq!(error.label(), again.label());
    assert!(matches!(engine.status(5), Err(SidecarError::Unknown(5))), "nothing was changed");
    assert_eq!(engine.summary().unwrap().used_bytes, 0);
    sound(&engine);
    error
}

#[test]
fn a_proposal_is_stored_read_back_and_known_when_it_comes_again() {
    let engine = engine();
    let sent = Proposal {
        signed_header: Some(Bytes::from_static(b"signed")),
        ..proposal(5, 2, &[0, 1, 2])
    };
    assert_eq!(engine.verify_and_store(&sent).unwrap(), Stored::New);
    assert_eq!(engine.verify_and_store(&sent).unwrap(), Stored::Known);
    let engine = reopen(engine);
    assert_eq!(engine.get_undecided(5, 2).unwrap(), sent);
    assert_eq!(engine.verify_and_store(&sent).unwrap(), Stored::Known);
    let absent = engine.get_undecided(5, 1).unwrap_err();
    assert!(matches!(absent, SidecarError::UnknownRound { height: 5, round: 1 }));
    assert_eq!(engine.status(5).unwrap().undecided, [2]);
    assert_eq!(engine.proposer(5, 2).unwrap(), Some(validator(1)));
    assert_eq!(engine.proposer(5, 1).unwrap(), None);
    assert!(matches!(engine.get(5), Err(SidecarError::Unknown(5))), "it is not decided");
    sound(&engine);
}

#[test]
fn a_blob_of_another_length_is_refused() {
    let error = refused(|bad| bad.sidecars[1].blob = Bytes::from(vec![0; BLOB_LEN - 1]));
    assert!(matches!(error, SidecarError::WrongLength { index: 1, len: 131_071 }));
    let error = refused(|bad| bad.sidecars[0].blob = Bytes::new());
    assert!(matches!(error, SidecarError::WrongLength { index: 0, len: 0 }));
}

#[test]
fn a_round_below_none_is_refused() {
    for round in [-2, i32::MIN] {
        let error = refused(|bad| bad.round = round);
        assert!(matches!(error, SidecarError::BadRound { round: told } if told == round));
    }
    // -1 is how consensus says that there is none.
    assert_eq!(engine().verify_and_store(&proposal(5, -1, &[0])).unwrap(), Stored::New);
}

#[test]
fn indexes_count_up_from_0_without_a_gap_or_a_double() {
    let error = refused(|bad| bad.sidecars[1].index = 2);
    assert!(matches!(error, SidecarError::WrongIndex { expected: 1, got: 2 }));
    let error = refused(|bad| bad.sidecars[1].index = 0);
    assert!(matches!(error, SidecarError::WrongIndex { expected: 1, got: 0 }));
    let error = refused(|bad| bad.sidecars.reverse());
    assert!(matches!(error, SidecarError::WrongIndex { expected: 0, got: 1 }));
}

#[test]
fn more_blobs_than_a_height_may_have_are_refused() {
    let error = refused(|bad| bad.sidecars = proposal(5, 0, &[0, 1, 2, 3, 4]).sidecars);
    assert!(matches!(error, SidecarError::TooManyBlobs { count: 5, max: 4 }));
}

#[test]
fn a_commitment_that_is_not_the_blobs_is_refused_with_and_without_a_proof() {
    let other = testdata::pooled(9).commitment;
    let error = refused(|bad| bad.sidecars[1].commitment = other);
    assert!(matches!(error, SidecarError::BadCommitment { index: 1 }));
    let error = refused(|bad| {
        bad.sidecars[1].commitment = other;
        bad.sidecars[1].proof = None;
    });
    assert!(matches!(error, SidecarError::BadCommitment { index: 1 }));
    let error = refused(|bad| bad.sidecars[0].commitment = Commitment([1; 48]));
    assert!(matches!(error, SidecarError::BadCommitment { index: 0 }), "not even a point");
}

#[test]
fn a_proof_that_does_not_hold_is_refused() {
    let error = refused(|bad| bad.sidecars[1].proof = Some(testdata::pooled(9).proof));
    assert!(matches!(error, SidecarError::BadProof { index: 1 }));
    let error = refused(|bad| bad.sidecars[0].proof = Some(Proof([1; 48])));
    assert!(matches!(error, SidecarError::BadProof { index: 0 }), "not even a point");
}

#[test]
fn bytes_that_are_no_field_elements_are_refused() {
    let error = refused(|bad| bad.sidecars[0].blob = Bytes::from(vec![0xff; BLOB_LEN]));
    assert!(matches!(error, SidecarError::BadBlob { index: 0 }));
    let error = refused(|bad| {
        bad.sidecars[0].blob = Bytes::from(vec![0xff; BLOB_LEN]);
        bad.sidecars[0].proof = None;
    });
    assert!(matches!(error, SidecarError::BadBlob { index: 0 }));
}

#[test]
fn headers_and_branches_have_limits() {
    let error = refused(|bad| bad.payload_header = Bytes::from(vec![0; (64 << 10) + 1]));
    assert_eq!(error.label(), "refused");
    let error = refused(|bad| bad.signed_header = Some(Bytes::from(vec![0; (64 << 10) + 1])));
    assert_eq!(error.label(), "refused");
    let branch = Inclusion { proof: vec![[0; 32]; 65] };
    let error = refused(|bad| bad.sidecars[0].inclusion = Some(branch));
    assert_eq!(error.label(), "refused");
}

#[test]
fn where_the_proof_is_absent_or_zero_the_commitment_is_computed() {
    let engine = engine();
    let mut sent = proposal(5, 0, &[0, 1]);
    sent.sidecars[0].proof = None;
    sent.sidecars[1].proof = Some(Proof([0; 48]));
    sent.sidecars[0].inclusion = Some(Inclusion { proof: vec![[7; 32]; 17] });
    assert_eq!(engine.verify_and_store(&sent).unwrap(), Stored::New);
    engine.mark_decided(5, 0, Role::Follower).unwrap();
    let metas = engine.blob_metas(5).unwrap();
    assert!(metas.iter().all(|meta| meta.proof.is_none()));
    assert_eq!(metas[0].inclusion, sent.sidecars[0].inclusion);
    // With its proof it is the same proposal.
    assert_eq!(engine.verify_and_store(&proposal(5, 0, &[0, 1])).unwrap(), Stored::Decided);
}

#[test]
fn what_is_kept_of_a_blob_is_computed_here() {
    let engine = engine();
    decide(&engine, 5, &[3]);
    let stored = engine.get_blob(5, 0).unwrap();
    let Sidecar { blob, commitment, proof, .. } = testdata::sidecar(0, 3);
    assert_eq!((&stored.blob, stored.meta.proof), (&blob, proof));
    assert_eq!(stored.meta.keccak.0, alloy_primitives::keccak256(&blob).0);
    assert_eq!(stored.meta.versioned_hash, kzg::versioned_hash(&commitment));
    assert_eq!(stored.meta.versioned_hash.0[0], 1);
}

#[test]
fn a_decision_drops_the_other_rounds_and_only_of_its_height() {
    let engine = engine();
    engine.verify_and_store(&proposal(5, 0, &[0, 1])).unwrap();
    engine.verify_and_store(&proposal(5, 1, &[2])).unwrap();
    engine.verify_and_store(&proposal(6, 1, &[3])).unwrap();
    assert_eq!(engine.mark_decided(5, 1, Role::Follower).unwrap(), Decided::New);
    let status = engine.status(5).unwrap();
    assert_eq!((status.round, status.undecided.len(), status.blobs.len()), (Some(1), 0, 1));
    assert_eq!(engine.get(5).unwrap()[0].blob, testdata::pooled(2).blob);
    assert_eq!(engine.status(6).unwrap().undecided, [1]);
    let summary = engine.summary().unwrap();
    assert_eq!((summary.rounds, summary.undecided, summary.pending), (1, 1, 1));
    sound(&engine);
    let engine = reopen(engine);
    assert_eq!(engine.summary().unwrap().used_bytes, 2 * BLOB_LEN as u64);
    sound(&engine);
}

/// I16.
#[test]
fn a_replay_changes_nothing_of_what_was_decided() {
    let engine = engine();
    engine.verify_and_store(&proposal(5, 1, &[0])).unwrap();
    engine.mark_decided(5, 1, Role::Follower).unwrap();
    archive(&engine, 5);
    let before = (engine.height(5).unwrap(), engine.status(5).unwrap());
    let engine = SidecarStore::open(
        engine.into_ground(),
        config(),
        Arc::new(StoppedClock(AtomicU64::new(1_800_000_000))),
    )
    .unwrap();
    assert_eq!(engine.mark_decided(5, 1, Role::Proposer).unwrap(), Decided::Known);
    assert_eq!(engine.verify_and_store(&proposal(5, 1, &[0])).unwrap(), Stored::Decided);
    let known = engine.store_decided(&proposal(5, 1, &[0]), Role::Proposer).unwrap();
    assert_eq!(known, Decided::Known);
    for round in [0, 2] {
        let other = engine.mark_decided(5, round, Role::Follower).unwrap_err();
        assert!(matches!(other, SidecarError::DecidedOtherwise { decided: 1, .. }), "{other}");
        let other = engine.verify_and_store(&proposal(5, round, &[2])).unwrap_err();
        assert!(matches!(other, SidecarError::DecidedOtherwise { decided: 1, .. }), "{other}");
    }
    let other = engine.store_decided(&proposal(5, 1, &[2]), Role::Follower).unwrap_err();
    assert!(matches!(other, SidecarError::DecidedOtherwise { .. }), "same round, other blobs");
    assert_eq!((engine.height(5).unwrap(), engine.status(5).unwrap()), before);
    sound(&engine);
}

#[test]
fn a_round_that_is_not_stored_cannot_be_decided() {
    let engine = engine();
    engine.verify_and_store(&proposal(5, 1, &[0])).unwrap();
    let error = engine.mark_decided(5, 2, Role::Follower).unwrap_err();
    assert!(matches!(error, SidecarError::UnknownRound { height: 5, round: 2 }));
    assert_eq!(engine.status(5).unwrap().undecided, [1]);
}

#[test]
fn another_proposal_for_a_round_is_refused_until_the_first_is_dropped() {
    let engine = engine();
    engine.verify_and_store(&proposal(5, 1, &[0])).unwrap();
    let error = engine.verify_and_store(&proposal(5, 1, &[2])).unwrap_err();
    assert!(matches!(error, SidecarError::RoundConflict { height: 5, round: 1 }));
    assert!(engine.drop_round(5, 1).unwrap());
    assert!(!engine.drop_round(5, 1).unwrap());
    assert_eq!(engine.verify_and_store(&proposal(5, 1, &[2])).unwrap(), Stored::New);
    sound(&engine);
}

#[test]
fn a_decision_with_its_blobs_takes_the_place_of_another_proposal_of_the_round() {
    let engine = engine();
    engine.verify_and_store(&proposal(5, 1, &[0, 1])).unwrap();
    decide(&engine, 6, &[1]);
    let decided = engine.store_decided(&proposal(5, 1, &[2]), Role::Follower).unwrap();
    assert_eq!(decided, Decided::New);
    assert_eq!(engine.get(5).unwrap()[0].blob, testdata::pooled(2).blob);
    assert_eq!(engine.summary().unwrap().rounds, 0);
    // And one that is stored already is not stored twice.
    engine.verify_and_store(&proposal(7, 1, &[3])).unwrap();
    engine.store_decided(&proposal(7, 1, &[3]), Role::Follower).unwrap();
    sound(&engine);
    assert_eq!(reopen(engine).summary().unwrap().used_bytes, 3 * BLOB_LEN as u64);
}

#[test]
fn a_height_holds_only_so_many_undecided_rounds_and_old_ones_can_be_dropped() {
    let engine = engine();
    for round in [-1, 0, 7] {
        engine.verify_and_store(&proposal(5, round, &[0])).unwrap();
    }
    let error = engine.verify_and_store(&proposal(5, 8, &[0])).unwrap_err();
    assert_eq!(error.label(), "refused");
    assert_eq!(engine.status(5).unwrap().undecided, [-1, 0, 7], "in the order of rounds");
    engine.verify_and_store(&proposal(6, 0, &[0])).unwrap();
    assert_eq!(engine.drop_rounds_below(6, 2).unwrap(), 2);
    assert_eq!(engine.drop_rounds_below(6, 2).unwrap(), 1);
    assert_eq!(engine.drop_rounds_below(6, 2).unwrap(), 0);
    assert_eq!(engine.status(6).unwrap().undecided, [0]);
    sound(&engine);
}

#[test]
fn what_nobody_decides_is_bounded_over_all_heights_and_goes_with_finality() {
    let limits = EngineConfig { max_undecided: 6, ..config() };
    let engine = engine_with(limits);
    for height in [1_000, 1_001, 1_002] {
        engine.verify_and_store(&proposal(height, 0, &[0, 1])).unwrap();
    }
    let error = engine.verify_and_store(&proposal(1_003, 0, &[0])).unwrap_err();
    let expected = "3 undecided rounds with 6 blobs are stored, and 6 are allowed";
    assert!(error.to_string().starts_with(expected), "{error}");
    assert!(error.is_retryable(), "it may be stored once others are gone");
    assert_eq!(error.label(), "too_many_undecided");
    // One that is there already is told so, and a decision needs no room.
    assert_eq!(engine.verify_and_store(&proposal(1_001, 0, &[0, 1])).unwrap(), Stored::Known);
    engine.mark_decided(1_001, 0, Role::Follower).unwrap();
    decide(&engine, 1_004, &[0, 1, 2, 3]);
    for height in 1_010..1_014 {
        engine.verify_and_store(&proposal(height, 0, &[])).unwrap();
    }
    let error = engine.verify_and_store(&proposal(1_014, 0, &[])).unwrap_err();
    assert_eq!(error.label(), "too_many_undecided", "rounds without blobs count too");
    let engine = reopen_with(engine, limits);
    assert_eq!(engine.drop_left_rounds().unwrap(), 0, "nothing is final");
    // A decision may come after finality.
    engine.set_finalized(1_002 + UNDECIDED_SLACK).unwrap();
    assert_eq!(engine.drop_left_rounds().unwrap(), 1);
    engine.mark_decided(1_002, 0, Role::Follower).unwrap();
    engine.set_finalized(5_000).unwrap();
    assert_eq!(engine.drop_left_rounds().unwrap(), 4);
    let summary = engine.summary().unwrap();
    assert_eq!((summary.rounds, summary.undecided, summary.pending), (0, 0, 8));
    assert_eq!(summary.used_bytes, 8 * BLOB_LEN as u64, "their regions are free");
    engine.verify_and_store(&proposal(5_001, 0, &[0])).unwrap();
    sound(&engine);
}

#[test]
fn a_height_without_blobs_has_a_record_and_nothing_to_wait_for() {
    let engine = engine();
    engine.verify_and_store(&proposal(5, 0, &[])).unwrap();
    engine.mark_decided(5, 0, Role::Proposer).unwrap();
    engine.set_finalized(9).unwrap();
    assert_eq!(engine.get(5).unwrap(), []);
    assert_eq!(engine.height(5).unwrap().unwrap().blob_count, 0);
    assert!(matches!(engine.get(4), Err(SidecarError::Unknown(4))), "not the same as none");
    let status = engine.status(5).unwrap();
    assert_eq!((status.hold, status.pruned), (None, None));
    assert_eq!(engine.jobs_due(u64::MAX, 9, |_| false).unwrap(), []);
    assert_eq!(engine.waiting_heights(0, 9).unwrap(), []);
    assert_eq!(engine.prune_archived_before(9).unwrap().heights, 0);
    let error = engine.get_blob(5, 0).unwrap_err();
    assert!(matches!(error, SidecarError::NoSuchBlob { blob_count: 0, .. }));
    sound(&engine);
}

#[test]
fn a_blob_is_found_by_its_versioned_hash_while_some_height_has_it() {
    let engine = engine();
    let hash = kzg::versioned_hash(&testdata::pooled(3).commitment);
    assert_eq!(engine.get_by_versioned_hash(&hash).unwrap(), None);
    engine.verify_and_store(&proposal(5, 0, &[3])).unwrap();
    assert_eq!(engine.get_by_versioned_hash(&hash).unwrap(), None, "it is not decided");
    engine.mark_decided(5, 0, Role::Follower).unwrap();
    decide(&engine, 8, &[0, 3]);
    let found = engine.get_by_versioned_hash(&hash).unwrap().unwrap();
    assert_eq!((found.meta.height, found.meta.index), (8, 1), "the newest");
    assert_eq!(found.blob, testdata::pooled(3).blob);
    archive(&engine, 8);
    engine.set_finalized(8).unwrap();
    engine.prune_archived_before(9).unwrap();
    let found = engine.get_by_versioned_hash(&hash).unwrap().unwrap();
    assert_eq!(found.meta.height, 5, "its bytes are here");
    archive(&engine, 5);
    engine.prune_archived_before(9).unwrap();
    let gone = engine.get_by_versioned_hash(&hash).unwrap_err();
    assert!(matches!(gone, SidecarError::BlobsPruned { height: 8, .. }), "{gone}");
}

#[test]
fn a_store_of_another_chain_is_refused() {
    let ground = engine().into_ground();
    let other = EngineConfig { chain_id: 8, ..config() };
    let error = SidecarStore::open(ground, other, clock()).unwrap_err();
    assert!(matches!(error, SidecarError::Store(StoreError::Foreign(_))));
    for config in [
        EngineConfig { max_blobs: 0, ..config() },
        EngineConfig { max_blobs: 4097, ..config() },
        EngineConfig { max_rounds: 0, ..config() },
        EngineConfig { max_ops: 0, ..config() },
        EngineConfig { max_undecided: 3, ..config() },
    ] {
        let ground = Ground { arena: MemoryArena::default(), index: MemoryIndex::default() };
        assert!(SidecarStore::open(ground, config, clock()).is_err());
    }
}

#[test]
fn calls_from_many_threads_are_all_durable_when_they_return() {
    let engine = engine();
    std::thread::scope(|scope| {
        for worker in 0..4u64 {
            let engine = &engine;
            scope.spawn(move || {
                for n in 0..4u64 {
                    let height = 10 * worker + n;
                    decide(engine, height, &[usize::try_from(height).unwrap()]);
                    archive(engine, height);
                    // Another worker may have pruned it by now.
                    assert_ne!(states(engine, height), [BlobState::Pending]);
                    engine.set_finalized(height).unwrap();
                    engine.prune_archived_before(height).unwrap();
                }
            });
        }
    });
    engine.prune_archived_before(u64::MAX).unwrap();
    let summary = engine.summary().unwrap();
    assert_eq!((summary.pruned, summary.heights, summary.used_bytes), (16, 16, 0));
    sound(&engine);
}
