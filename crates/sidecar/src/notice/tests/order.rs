//! The order of the checks: of two faults the earlier check is the answer, for every pair.

use secateur_core::notice::{MAX_NOTICE_LEN, Statement};

use super::scene::{CHAIN, HEIGHT, INDEX, Scene, id};
use crate::notice::{Rejection, Signers};

/// A fault, and the label of the check that finds it.
struct Fault {
    label: &'static str,
    commit: fn(&mut Scene),
}

/// In the order of the checks. A later fault is committed first, so that an earlier one that
/// touches the same field wins.
const FAULTS: [Fault; 14] = [
    Fault { label: "oversized", commit: |s| s.spoil.push(|b| b.resize(MAX_NOTICE_LEN + 1, 0)) },
    Fault { label: "v0_disabled", commit: |s| s.as_v0 = true },
    Fault { label: "malformed", commit: |s| s.spoil.push(|b| b.push(0)) },
    Fault { label: "wrong_chain", commit: |s| s.body.chain_id = CHAIN + 1 },
    Fault {
        label: "unknown_validator",
        commit: |s| s.body.archived_by = id(9).as_bytes().to_vec(),
    },
    // The last byte of both forms is the signature's.
    Fault {
        label: "bad_signature",
        commit: |s| s.spoil.insert(0, |b| *b.last_mut().unwrap() ^= 1),
    },
    Fault { label: "no_metadata", commit: |s| s.known.heights.clear() },
    Fault { label: "index_out_of_range", commit: |s| s.body.blob_index = 3 },
    Fault { label: "not_proposer", commit: other_signer },
    Fault {
        label: "not_yet_permitted",
        commit: |s| {
            other_signer(s);
            s.verifier.signers = Signers::AnyValidatorAfter(6);
        },
    },
    Fault { label: "wrong_round", commit: |s| s.body.round += 1 },
    Fault { label: "commitment_mismatch", commit: |s| s.body.kzg_commitment[0] ^= 1 },
    Fault { label: "keccak_mismatch", commit: |s| s.body.blob_keccak[0] ^= 1 },
    Fault { label: "conflict", commit: conflict },
];

fn other_signer(scene: &mut Scene) {
    scene.signed_by = 2;
    scene.body.archived_by = id(2).as_bytes().to_vec();
}

/// Whoever signs has said something else before.
fn conflict(scene: &mut Scene) {
    for number in [1, 2, 9] {
        let mut said = scene.body.clone();
        said.archived_by = id(number).as_bytes().to_vec();
        said.archived_at_height += 1;
        scene.record(Statement::V1(said));
    }
}

/// I19.
#[test]
fn every_label_has_a_fault_and_every_fault_is_found() {
    let labels: Vec<_> = FAULTS.iter().map(|fault| fault.label).collect();
    assert_eq!(labels, Rejection::LABELS);
    for fault in &FAULTS {
        let mut scene = Scene::new();
        (fault.commit)(&mut scene);
        let rejection = scene.verify().unwrap_err();
        assert_eq!(rejection.label(), fault.label);
        assert!(rejection.to_string().starts_with("notice refused: "), "{rejection}");
    }
}

/// I19.
#[test]
fn of_two_faults_the_earlier_check_is_the_answer() {
    let mut pairs = 0;
    for (at, earlier) in FAULTS.iter().enumerate() {
        for later in &FAULTS[at + 1..] {
            let pair = (earlier.label, later.label);
            // Only one of these policies is in force, and V0 names no chain.
            if pair == ("not_proposer", "not_yet_permitted") {
                continue;
            }
            let mut scene = Scene::new();
            (later.commit)(&mut scene);
            (earlier.commit)(&mut scene);
            assert_eq!(scene.label(), earlier.label, "{pair:?}");
            pairs += 1;
        }
    }
    assert_eq!(pairs, 14 * 13 / 2 - 1);
}

#[test]
fn a_keccak_that_only_the_bytes_contradict_comes_before_a_conflict() {
    let mut scene = Scene::new();
    conflict(&mut scene);
    scene.known.bytes.get_mut(&(HEIGHT, INDEX)).unwrap()[0] ^= 1;
    assert_eq!(scene.label(), "keccak_mismatch");
}
