//! The oracle: what was decided, what providers really gave, what was signed when, and whether what
//! validators pruned kept the promises (I14 to I19).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use alloy_primitives::keccak256;
use parking_lot::Mutex;
use secateur_core::notice::Notice;
use secateur_core::{Height, Locator};
use secateur_sidecar::engine::{ArchiveRecord, HeightStatus, RecordForm};
use secateur_sidecar::notice::{Signers, notice_digest};
use secateur_sidecar::{Round, Trust, testdata};
use xxhash_rust::xxh3::Xxh3;

use super::node::Store;
use super::plan::Rules;
use super::vault::Vault;
use super::{validator, validator_number};

/// What was really decided.
#[derive(Debug, Clone)]
pub struct Truth {
    /// The round.
    pub round: Round,
    /// Who proposed.
    pub proposer: usize,
    /// Blobs of the pool.
    pub blobs: Vec<usize>,
}

/// The keccak of a blob of the pool.
pub fn pool_keccak(which: usize) -> [u8; 32] {
    static ALL: OnceLock<Vec<[u8; 32]>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        (0..testdata::POOL).map(|which| keccak256(&testdata::pooled(which).blob).0).collect()
    });
    all.get(which % testdata::POOL).copied().unwrap_or_default()
}

/// What left a validator with its signature.
#[derive(Debug)]
struct Signed {
    digest: [u8; 32],
    locators: Vec<Locator>,
    /// Whether the record was durable and a provider held the right bytes at that moment.
    sound: bool,
}

/// Bytes that a provider gave: to whom, which, and what they hash to.
type Served = (usize, String, String, [u8; 32]);

/// A height whose bytes went: from which validator, and how many answers had been served by then.
type Prune = (usize, Height, usize);

#[derive(Default)]
struct State {
    truth: BTreeMap<Height, Truth>,
    signed: BTreeMap<(usize, Height, u32), Signed>,
    forged: BTreeSet<[u8; 32]>,
    acked: BTreeSet<(usize, Height)>,
    served: Vec<Served>,
    prunes: Vec<Prune>,
    violations: Vec<String>,
    log: Xxh3,
    events: u64,
}

/// Who knows everything.
pub struct Oracle {
    state: Mutex<State>,
    vault: Arc<Vault>,
    rules: Rules,
}

impl std::fmt::Debug for Oracle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Oracle").finish_non_exhaustive()
    }
}

impl Oracle {
    /// One that has seen nothing.
    pub fn new(vault: Arc<Vault>, rules: Rules) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), vault, rules })
    }

    /// Something happened: two runs of a seed have the same log.
    pub fn note(&self, event: &str) {
        let mut state = self.state.lock();
        state.log.update(event.as_bytes());
        state.events += 1;
    }

    /// A digest of everything that happened, and how much it was.
    pub fn log(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.log.digest(), state.events)
    }

    /// A promise is broken.
    pub fn violated(&self, what: String) {
        self.state.lock().violations.push(what);
    }

    /// The first broken promise.
    pub fn first(&self) -> Option<String> {
        self.state.lock().violations.first().cloned()
    }

    /// What was decided.
    pub fn decide(&self, height: Height, truth: Truth) {
        self.state.lock().truth.insert(height, truth);
    }

    /// Whether peers answer what they are told.
    pub fn confirms(&self) -> bool {
        self.rules.confirms
    }

    /// What was decided at a height.
    pub fn truth(&self, height: Height) -> Option<Truth> {
        self.state.lock().truth.get(&height).cloned()
    }

    /// Every decided height.
    pub fn heights(&self) -> Vec<Height> {
        self.state.lock().truth.keys().copied().collect()
    }

    /// A validator has acknowledged a decision.
    pub fn acked(&self, n: usize, height: Height) {
        self.state.lock().acked.insert((n, height));
    }

    /// A notice that no validator made.
    pub fn forge(&self, notice: &Notice) {
        self.state.lock().forged.insert(notice_digest(notice));
    }

    /// A provider gave bytes.
    pub fn served(&self, to: usize, provider: &str, key: &str, keccak: [u8; 32]) {
        self.note("served");
        self.state.lock().served.push((to, provider.to_owned(), key.to_owned(), keccak));
    }

    /// A validator's bytes of a height are cut, durably.
    pub fn pruned(&self, n: usize, height: Height) {
        self.note("pruned");
        let mut state = self.state.lock();
        let served = state.served.len();
        state.prunes.push((n, height, served));
    }

    /// Whether a blob's own notice of a validator has left it.
    pub fn has_signed(&self, n: usize, height: Height, index: u32) -> bool {
        self.state.lock().signed.contains_key(&(n, height, index))
    }

    /// A notice leaves a validator. If it is its own, this is the moment when it signed.
    pub fn leaves(&self, from: usize, bytes: &[u8], store: &Store) {
        let Ok(notice) = Notice::decode(bytes) else { return };
        let (claim, digest) = (notice.claim(), notice_digest(&notice));
        let mut state = self.state.lock();
        if claim.archived_by != validator(from).as_bytes() || state.forged.contains(&digest) {
            return;
        }
        let (height, index) = (claim.height, claim.blob_index);
        let records = store.records(height, index).unwrap_or_default();
        let durable = records.iter().any(|kept| {
            kept.record.form == RecordForm::Own && kept.record.locators == claim.locators
        });
        let truth = state.truth.get(&height);
        let keccak =
            truth.and_then(|truth| truth.blobs.get(index as usize)).map(|w| pool_keccak(*w));
        // A copy may be spoiled between its read-back and the signature: it was right when it was read.
        let held = claim.locators.iter().any(|locator| {
            let (provider, key) = (&locator.provider, &locator.key);
            let read = keccak.map(|keccak| (from, provider.clone(), key.clone(), keccak));
            let spoiled = self.vault.was_spoiled(provider, key);
            keccak.is_some() && self.vault.keccak_at(provider, key) == keccak
                || spoiled && read.is_some_and(|read| state.served.contains(&read))
        });
        let key = (from, height, index);
        let mut said = String::new();
        let name = format!("validator {from} signs for blob {index} of height {height}");
        match state.signed.get(&key) {
            Some(before) if before.digest != digest => {
                said = format!("{name} twice, and differently (I17)");
            }
            Some(_) => {}
            None => {
                let (locators, sound) = (claim.locators.to_vec(), durable && held);
                state.signed.insert(key, Signed { digest, locators, sound });
                if !sound {
                    said = format!("{name}; durable: {durable}, held: {held} (I17)");
                }
            }
        }
        if keccak != Some(*claim.blob_keccak) {
            said = format!("{name} with another hash (I19)");
        }
        if !said.is_empty() {
            state.violations.push(said);
        }
    }

    /// Judges what a validator has pruned since it was last asked.
    pub fn judge(&self, n: usize, trust: Trust, store: &Store) {
        let mut state = self.state.lock();
        let (mine, others) = state.prunes.drain(..).partition(|(by, _, _)| *by == n);
        state.prunes = others;
        drop(state);
        let mine: Vec<Prune> = mine;
        for (_, height, served) in mine {
            // A crash may have come before anybody heard of it; the row says whether it happened.
            let Ok(status) = store.status(height) else { continue };
            if status.pruned.is_some()
                && let Err(why) = self.allowed(n, trust, &status, served)
            {
                self.violated(format!("validator {n} pruned height {height}: {why} (I15)"));
            }
        }
    }

    fn allowed(
        &self,
        n: usize,
        trust: Trust,
        status: &HeightStatus,
        served: usize,
    ) -> Result<(), String> {
        let state = self.state.lock();
        let truth = state.truth.get(&status.height).ok_or("it was never decided")?;
        let pruned = status.pruned.ok_or("it is not")?;
        if pruned.finalized < status.height {
            return Err(format!("only {} is final", pruned.finalized));
        }
        if truth.blobs.len() != status.blobs.len() {
            return Err("it has another number of blobs".into());
        }
        for (blob, which) in status.blobs.iter().zip(&truth.blobs) {
            let keccak = pool_keccak(*which);
            let answers = state.served.get(..served).unwrap_or_default();
            let seen = |record: &ArchiveRecord| {
                record.locators.iter().any(|locator| {
                    answers.iter().any(|(to, provider, key, hash)| {
                        *to == n
                            && *provider == locator.provider
                            && *key == locator.key
                            && *hash == keccak
                    })
                })
            };
            let sound = |record: &ArchiveRecord| {
                let Some(signer) = validator_number(&record.signer) else { return false };
                let signed = state.signed.get(&(signer, status.height, blob.index));
                signed.is_some_and(|one| one.sound && one.locators == record.locators)
            };
            let good = |record: &ArchiveRecord| match (trust, record.form) {
                (Trust::Fetch, _) | (_, RecordForm::Own) => seen(record),
                (Trust::Signature, RecordForm::V1) => sound(record),
                (Trust::Signature, RecordForm::V0) => false,
            };
            if !blob.records.iter().any(|kept| good(&kept.record)) {
                let index = blob.index;
                return Err(format!("no copy of blob {index} is vouched for: {:?}", blob.records));
            }
        }
        Ok(())
    }

    /// Whether a record may be there: its signer may sign, and where signers are honest, did so.
    fn permits(&self, height: Height, truth: &Truth, index: u32, record: &ArchiveRecord) -> bool {
        let Some(signer) = validator_number(&record.signer) else { return false };
        let open = self.rules.signers != Signers::ProposerOnly;
        let serves = self.rules.validators_at(height).contains(&signer);
        let state = self.state.lock();
        let signed = state.signed.get(&(signer, height, index));
        let said = signed.is_some_and(|one| one.locators == record.locators);
        let honest = self.rules.trust == Trust::Fetch || record.form == RecordForm::Own || said;
        (signer == truth.proposer || (open && serves)) && honest
    }

    /// What a store knows for ever is what was decided; its bytes are right as long as they are
    /// here; and what was signed is still recorded.
    pub fn compare(&self, n: usize, store: &Store) -> Result<(), String> {
        let failed = |error: secateur_sidecar::SidecarError| error.to_string();
        for height in self.heights() {
            let Some(truth) = self.truth(height) else { continue };
            let Some(record) = store.height(height).map_err(failed)? else {
                if self.state.lock().acked.contains(&(n, height)) {
                    return Err(format!("height {height} was acknowledged and is lost (I14)"));
                }
                continue;
            };
            let asked =
                testdata::proposal(height, truth.round, &validator(truth.proposer), &truth.blobs);
            let right = record.round == truth.round
                && record.proposer == asked.proposer
                && record.payload_header == asked.payload_header
                && record.blob_count as usize == truth.blobs.len();
            if !right {
                return Err(format!("height {height} is another one now: {record:?} (I16)"));
            }
            let metas = store.blob_metas(height).map_err(failed)?;
            for ((meta, sidecar), which) in metas.iter().zip(&asked.sidecars).zip(&truth.blobs) {
                let same = meta.commitment == sidecar.commitment && meta.proof == sidecar.proof;
                if !same || meta.keccak.0 != pool_keccak(*which) {
                    return Err(format!("{meta:?} is not what was decided (I16)"));
                }
                let kept = store.records(height, meta.index).map_err(failed)?;
                if let Some(kept) =
                    kept.iter().find(|kept| !self.permits(height, &truth, meta.index, &kept.record))
                {
                    return Err(format!("{kept:?} of height {height} was believed (I19)"));
                }
                let own = kept.iter().any(|kept| kept.record.form == RecordForm::Own);
                if self.has_signed(n, height, meta.index) && !own {
                    let index = meta.index;
                    return Err(format!("the record of blob {height}/{index} is lost (I17)"));
                }
            }
            match store.get(height) {
                Ok(blobs) => {
                    let all = blobs.iter().zip(&asked.sidecars).all(|(a, b)| a.blob == b.blob);
                    if !all || blobs.len() != truth.blobs.len() {
                        return Err(format!("height {height} has other bytes (I14)"));
                    }
                }
                Err(secateur_sidecar::SidecarError::BlobsPruned { .. }) => {}
                Err(error) => return Err(format!("height {height}: {error} (I14)")),
            }
        }
        Ok(())
    }
}
