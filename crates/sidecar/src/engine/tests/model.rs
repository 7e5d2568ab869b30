//! Random sequences of all calls, with reopening, against a naive model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::types::BLOB_LEN;

const HEIGHTS: Height = 5;

#[derive(Debug, Clone)]
enum Op {
    Propose(Height, Round, Vec<usize>),
    Decide(Height, Round, bool),
    StoreDecided(Height, Round, Vec<usize>, bool),
    DropRound(Height, Round),
    DropBelow(Height),
    Record(Height, u32, u8),
    Notice(Height, u32, u8, u8),
    Fetched(Height, u32),
    Finalize(Height),
    Prune(Height),
    Step(Height),
    Enqueue(Height, u64),
    Failed(Height, u32, u64),
    JobDone(Height, u32),
    Announced(Height, u32, Height),
    Acknowledged(Height, u32),
    Reopen(bool),
}

fn ops() -> impl Strategy<Value = Op> {
    let height = || 0..HEIGHTS;
    let round = || 0..2i32;
    let blobs = || prop::collection::vec(0usize..4, 0..3);
    let index = || 0..2u32;
    prop_oneof![
        3 => (height(), round(), blobs()).prop_map(|(h, r, b)| Op::Propose(h, r, b)),
        4 => (height(), round(), any::<bool>()).prop_map(|(h, r, p)| Op::Decide(h, r, p)),
        2 => (height(), round(), blobs(), any::<bool>())
            .prop_map(|(h, r, b, p)| Op::StoreDecided(h, r, b, p)),
        1 => (height(), round()).prop_map(|(h, r)| Op::DropRound(h, r)),
        1 => height().prop_map(Op::DropBelow),
        4 => (height(), index(), 0..2u8).prop_map(|(h, i, p)| Op::Record(h, i, p)),
        8 => (height(), index(), 2..4u8, 0..2u8).prop_map(|(h, i, s, p)| Op::Notice(h, i, s, p)),
        4 => (height(), index()).prop_map(|(h, i)| Op::Fetched(h, i)),
        2 => height().prop_map(Op::Finalize),
        3 => (0..=HEIGHTS).prop_map(Op::Prune),
        1 => (0..=HEIGHTS).prop_map(Op::Step),
        1 => (height(), 0..9u64).prop_map(|(h, due)| Op::Enqueue(h, due)),
        2 => (height(), index(), 0..9u64).prop_map(|(h, i, due)| Op::Failed(h, i, due)),
        1 => (height(), index()).prop_map(|(h, i)| Op::JobDone(h, i)),
        1 => (height(), index(), height()).prop_map(|(h, i, at)| Op::Announced(h, i, at)),
        1 => (height(), index()).prop_map(|(h, i)| Op::Acknowledged(h, i)),
        2 => any::<bool>().prop_map(Op::Reopen),
    ]
}

/// What should be there, kept in the plainest way.
#[derive(Debug, Default)]
struct Model {
    fetch: bool,
    finalized: Option<Height>,
    rounds: BTreeMap<(Height, Round), Vec<usize>>,
    decided: BTreeMap<Height, (Round, Vec<usize>)>,
    /// Who signed for which place: 1 is this node.
    records: BTreeMap<BlobKey, Vec<(u8, u8)>>,
    fetched: BTreeSet<BlobKey>,
    pruned: BTreeSet<Height>,
    jobs: BTreeMap<BlobKey, (u32, u64)>,
    announced: BTreeMap<BlobKey, Option<Height>>,
}

impl Model {
    fn has(&self, key: BlobKey) -> bool {
        self.decided.get(&key.height).is_some_and(|(_, blobs)| (key.index as usize) < blobs.len())
    }

    fn drop_rounds(&mut self, height: Height) {
        self.rounds.retain(|(at, _), _| *at != height);
    }

    fn decide(&mut self, height: Height, round: Round, blobs: Vec<usize>, ours: bool) {
        if ours {
            for index in 0..u32::try_from(blobs.len()).unwrap() {
                self.jobs.insert(key(height, index), (0, 0));
            }
        }
        self.decided.insert(height, (round, blobs));
        self.drop_rounds(height);
    }

    /// Whether the call should succeed and change the records.
    fn sign(&mut self, key: BlobKey, signer: u8, place: u8) -> bool {
        if !self.has(key) {
            return false;
        }
        let records = self.records.entry(key).or_default();
        if let Some((_, other)) = records.iter().find(|(other, _)| *other == signer) {
            return *other == place;
        }
        records.push((signer, place));
        if signer == 1 {
            self.announced.insert(key, None);
        }
        true
    }

    fn may_go(&self, height: Height) -> bool {
        let Some((_, blobs)) = self.decided.get(&height) else { return false };
        let good = |index: usize| {
            let key = key(height, u32::try_from(index).unwrap());
            let records = self.records.get(&key).map(Vec::as_slice).unwrap_or_default();
            let seen = self.fetched.contains(&key) || records.iter().any(|(who, _)| *who == 1);
            seen || (!self.fetch && !records.is_empty())
        };
        !blobs.is_empty()
            && self.finalized >= Some(height)
            && !self.pruned.contains(&height)
            && (0..blobs.len()).all(good)
    }

    fn prune(&mut self, before: Height) -> u64 {
        let go: Vec<Height> = (0..before).filter(|height| self.may_go(*height)).collect();
        for height in &go {
            self.pruned.insert(*height);
            self.jobs.retain(|key, _| key.height != *height);
        }
        go.len() as u64
    }
}

fn place(signer: u8, place: u8) -> ArchiveRecord {
    let form = if signer == 1 { RecordForm::Own } else { RecordForm::V1 };
    record(signer, form, &format!("place {place}"))
}

/// Carries out one call on both; their answers must agree.
#[expect(clippy::too_many_lines, reason = "one arm for each call")]
fn step(engine: Engine, model: &mut Model, op: Op) -> Engine {
    match op {
        Op::Propose(height, round, blobs) => {
            let done = engine.verify_and_store(&proposal(height, round, &blobs));
            match (model.decided.get(&height), model.rounds.get(&(height, round))) {
                (Some(decided), _) => assert_eq!(done.is_ok(), *decided == (round, blobs)),
                (None, Some(stored)) => assert_eq!(done.is_ok(), *stored == blobs),
                (None, None) => {
                    assert_eq!(done.unwrap(), Stored::New);
                    model.rounds.insert((height, round), blobs);
                }
            }
        }
        Op::Decide(height, round, ours) => {
            let role = if ours { Role::Proposer } else { Role::Follower };
            let done = engine.mark_decided(height, round, role);
            match (model.decided.get(&height), model.rounds.get(&(height, round)).cloned()) {
                (Some((decided, _)), _) => assert_eq!(done.is_ok(), *decided == round),
                (None, None) => assert!(done.is_err()),
                (None, Some(blobs)) => {
                    assert_eq!(done.unwrap(), Decided::New);
                    model.decide(height, round, blobs, ours);
                }
            }
        }
        Op::StoreDecided(height, round, blobs, ours) => {
            let role = if ours { Role::Proposer } else { Role::Follower };
            let done = engine.store_decided(&proposal(height, round, &blobs), role);
            if let Some(decided) = model.decided.get(&height) {
                assert_eq!(done.is_ok(), *decided == (round, blobs));
            } else {
                assert_eq!(done.unwrap(), Decided::New);
                model.decide(height, round, blobs, ours);
            }
        }
        Op::DropRound(height, round) => {
            let there = model.rounds.remove(&(height, round)).is_some();
            assert_eq!(engine.drop_round(height, round).unwrap(), there);
        }
        Op::DropBelow(height) => {
            let before = model.rounds.len();
            model.rounds.retain(|(at, _), _| *at >= height);
            let gone = before - model.rounds.len();
            assert_eq!(engine.drop_rounds_below(height, 99).unwrap(), gone);
        }
        Op::Record(height, index, at) => {
            let key = key(height, index);
            let done = engine.record_archived(key, &place(1, at));
            let signed = model.sign(key, 1, at);
            assert_eq!(done.is_ok(), signed, "{done:?}");
            if signed {
                model.jobs.remove(&key);
            }
        }
        Op::Notice(height, index, signer, at) => {
            let key = key(height, index);
            let meta = engine.blob_meta(height, index).unwrap();
            assert_eq!(meta.is_some(), model.has(key));
            let Some(meta) = meta else { return engine };
            let done = engine.mark_archived(key, &place(signer, at), meta.keccak);
            assert_eq!(done.is_ok(), model.sign(key, signer, at), "{done:?}");
        }
        Op::Fetched(height, index) => {
            let key = key(height, index);
            let Some(meta) = engine.blob_meta(height, index).unwrap() else { return engine };
            let done = engine.set_fetched(key, meta.keccak);
            let archived = model.records.get(&key).is_some_and(|records| !records.is_empty());
            assert_eq!(done.ok(), archived.then(|| model.fetched.insert(key)));
        }
        Op::Finalize(height) => {
            model.finalized = model.finalized.max(Some(height));
            assert_eq!(engine.set_finalized(height).unwrap(), model.finalized);
        }
        Op::Prune(before) => {
            let heights = engine.prune_archived_before(before).unwrap().heights;
            assert_eq!(heights, model.prune(before));
        }
        Op::Step(before) => {
            let heights = engine.prune_step(before).unwrap().heights;
            assert_eq!(heights, model.prune(before));
        }
        Op::Enqueue(height, due) => {
            let done = engine.enqueue(height, due);
            let Some((_, blobs)) = model.decided.get(&height) else {
                assert!(done.is_err());
                return engine;
            };
            let all = (0..u32::try_from(blobs.len()).unwrap()).map(|index| key(height, index));
            let mine = |key: &BlobKey| {
                let records = model.records.get(key).map(Vec::as_slice).unwrap_or_default();
                records.iter().any(|(who, _)| *who == 1)
            };
            let gone = model.pruned.contains(&height);
            let queued: Vec<BlobKey> = all.filter(|key| !gone && !mine(key)).collect();
            assert_eq!(done.unwrap(), queued.len());
            for key in queued {
                let attempts = model.jobs.get(&key).map_or(0, |(attempts, _)| (*attempts).min(1));
                model.jobs.insert(key, (attempts, due));
            }
        }
        Op::Failed(height, index, due) => {
            engine.job_failed(key(height, index), due, 3).unwrap();
            if let Some(job) = model.jobs.get_mut(&key(height, index)) {
                *job = (3, due);
            }
        }
        Op::JobDone(height, index) => {
            let there = model.jobs.remove(&key(height, index)).is_some();
            assert_eq!(engine.job_done(key(height, index)).unwrap(), there);
        }
        Op::Announced(height, index, at) => {
            engine.announced(&[key(height, index)], at, 3).unwrap();
            model.announced.entry(key(height, index)).and_modify(|last| *last = Some(at));
        }
        Op::Acknowledged(height, index) => {
            engine.acknowledged(&[key(height, index)]).unwrap();
            model.announced.remove(&key(height, index));
        }
        Op::Reopen(fetch) => {
            model.fetch = fetch;
            let trust = if fetch { Trust::Fetch } else { Trust::Signature };
            return reopen_with(engine, EngineConfig { trust, ..config() });
        }
    }
    engine
}

/// Everything that can be asked, against the model.
fn compare(engine: &Engine, model: &Model) {
    for height in 0..HEIGHTS {
        let rounds: Vec<Round> =
            model.rounds.keys().filter(|(at, _)| *at == height).map(|(_, round)| *round).collect();
        for round in &rounds {
            let stored = engine.get_undecided(height, *round).unwrap();
            assert_eq!(stored, proposal(height, *round, &model.rounds[&(height, *round)]));
        }
        let Some((round, blobs)) = model.decided.get(&height) else {
            assert!(matches!(engine.get(height), Err(SidecarError::Unknown(_))));
            assert_eq!(engine.status(height).map(|s| s.undecided).unwrap_or_default(), rounds);
            continue;
        };
        let status = engine.status(height).unwrap();
        assert_eq!((status.round, status.undecided), (Some(*round), rounds));
        let gone = model.pruned.contains(&height);
        match engine.get(height) {
            Ok(found) => {
                assert!(!gone, "height {height} is pruned");
                let found: Vec<_> = found.iter().map(|blob| &blob.blob).collect();
                let wanted: Vec<_> = blobs.iter().map(|at| &testdata::pooled(*at).blob).collect();
                assert_eq!(found, wanted);
            }
            Err(SidecarError::BlobsPruned { .. }) => assert!(gone, "height {height} is lost"),
            Err(error) => panic!("{error}"),
        }
        for blob in &status.blobs {
            let key = key(height, blob.index);
            let records = model.records.get(&key).map(Vec::as_slice).unwrap_or_default();
            let kept: Vec<_> = blob.records.iter().map(|kept| kept.record.clone()).collect();
            let wanted: Vec<_> = records.iter().map(|(who, at)| place(*who, *at)).collect();
            assert_eq!(kept, wanted);
            let state = match (gone, records.is_empty()) {
                (true, _) => BlobState::Pruned,
                (_, true) => BlobState::Pending,
                (_, false) => BlobState::Archived,
            };
            assert_eq!(blob.state, state);
        }
    }
    let jobs = engine.jobs_due(u64::MAX, 99, |_| false).unwrap();
    let jobs: BTreeMap<_, _> = jobs.iter().map(|job| (job.key, (job.attempts, job.due))).collect();
    assert_eq!(jobs, model.jobs);
    let announced = engine.announcements(key(0, 0), 99).unwrap();
    let announced: BTreeMap<_, _> =
        announced.iter().map(|one| (one.key, one.broadcast_at)).collect();
    assert_eq!(announced, model.announced);
    let here = |height: &Height| !model.pruned.contains(height);
    let decided: usize =
        model.decided.iter().filter(|(h, _)| here(h)).map(|(_, (_, blobs))| blobs.len()).sum();
    let undecided: usize = model.rounds.values().map(Vec::len).sum();
    let usage = engine.shelf().usage().unwrap();
    assert_eq!(usage.used, (decided + undecided) as u64);
    assert_eq!(usage.region_len as usize, BLOB_LEN);
    sound(engine);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// I14 to I18.
    #[test]
    fn any_sequence_of_calls_leaves_what_the_model_says(
        ops in prop::collection::vec(ops(), 1..60),
    ) {
        let mut model = Model::default();
        let mut engine = engine();
        for (at, op) in ops.into_iter().enumerate() {
            let reopened = matches!(op, Op::Reopen(_));
            engine = step(engine, &mut model, op);
            if reopened || at % 8 == 7 {
                compare(&engine, &model);
            }
        }
        compare(&engine, &model);
    }
}
