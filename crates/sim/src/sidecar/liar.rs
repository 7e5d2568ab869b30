//! Those who lie: notices by the wrong validators, for another chain, round, commitment or hash, with
//! somebody else's signature, twice and differently, or about copies that do not exist.

use std::collections::BTreeSet;

use bytes::Bytes;
use secateur_core::notice::{ArchiveNotice, Notice, NoticeBody};
use secateur_core::{Height, Locator};
use secateur_sidecar::notice::{NoticeKey, Signers, sign};
use secateur_sidecar::{Trust, testdata};

use super::node::Around;
use super::oracle::{Truth, pool_keccak};
use super::vault::other;
use super::{CHAIN, COUNT, OUTSIDER, secret, validator};
use crate::rng::Rng;

/// What a lie is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    WrongSigner,
    Outsider,
    Impostor,
    WrongChain,
    WrongHash,
    WrongCommitment,
    WrongRound,
    Repeated,
    Flipped,
    Conflicting,
    NoCopy,
}

const KINDS: [Kind; 11] = [
    Kind::WrongSigner,
    Kind::Outsider,
    Kind::Impostor,
    Kind::WrongChain,
    Kind::WrongHash,
    Kind::WrongCommitment,
    Kind::WrongRound,
    Kind::Repeated,
    Kind::Flipped,
    Kind::Conflicting,
    Kind::NoCopy,
];

/// A liar, and the heights that it spoke of in the name of those who may sign.
#[derive(Debug, Default)]
pub struct Liar {
    /// Lies told.
    pub lies: u64,
    /// Heights about which somebody lied who may sign.
    pub spoiled: BTreeSet<Height>,
}

impl Liar {
    /// Lies once, to some of the validators.
    pub fn lie(&mut self, around: &Around, rng: &mut Rng) {
        let heights = around.oracle.heights();
        // Most lies come before the truth does.
        let drawn = usize::try_from(rng.below(heights.len() as u64)).unwrap_or(0);
        let newest = heights.last().filter(|_| rng.flip());
        let Some(height) = newest.or(heights.get(drawn)).copied() else { return };
        let Some(truth) = around.oracle.truth(height).filter(|truth| !truth.blobs.is_empty())
        else {
            return;
        };
        let drawn = usize::try_from(rng.below(KINDS.len() as u64)).unwrap_or(0);
        let Some(kind) = KINDS.get(drawn).copied() else { return };
        let index = rng.below(truth.blobs.len() as u64);
        let Some((notice, signer)) = self.make(kind, height, index, &truth, around, rng) else {
            return;
        };
        self.lies += 1;
        for n in 0..COUNT {
            let told =
                rng.flip() && (kind != Kind::Conflicting || knows(around, n, height, signer));
            if told {
                around.oracle.note(&format!("{kind:?} to {n}"));
                drop(around.net.deliver(n, &notice));
            }
        }
    }

    fn make(
        &mut self,
        kind: Kind,
        height: Height,
        index: u64,
        truth: &Truth,
        around: &Around,
        rng: &mut Rng,
    ) -> Option<(Bytes, usize)> {
        if kind == Kind::Repeated {
            return Some((around.net.overheard()?, truth.proposer));
        }
        if kind == Kind::Flipped {
            let mut bytes = around.net.overheard()?.to_vec();
            let at = usize::try_from(rng.below(bytes.len() as u64)).ok()?;
            *bytes.get_mut(at)? ^= 1 << rng.below(8);
            return Some((bytes.into(), truth.proposer));
        }
        let signer = self.signer_of(kind, height, truth, around, rng)?;
        let which = *truth.blobs.get(usize::try_from(index).ok()?)?;
        let sidecar = testdata::sidecar(u32::try_from(index).ok()?, which);
        let mut body = NoticeBody {
            chain_id: CHAIN,
            height,
            round: truth.round,
            blob_index: sidecar.index,
            kzg_commitment: sidecar.commitment.0,
            blob_keccak: pool_keccak(which),
            locators: vec![bogus(around, &sidecar.blob, rng)],
            archived_by: validator(signer).as_bytes().to_vec(),
            archived_at_height: height,
        };
        match kind {
            Kind::WrongChain => body.chain_id += 1,
            Kind::WrongRound => body.round += 1,
            Kind::WrongCommitment => body.kzg_commitment = testdata::pooled(which + 1).commitment.0,
            Kind::WrongHash => {
                body.blob_keccak = alloy_primitives::keccak256(other(&sidecar.blob)).0;
            }
            _ => {}
        }
        let key = if kind == Kind::Impostor { secret(OUTSIDER) } else { secret(signer) };
        let signed: ArchiveNotice =
            sign(body, rng.below(1000), &NoticeKey::from_secret(&key)).ok()?;
        let notice = Notice::V1(signed);
        around.oracle.forge(&notice);
        Some((notice.encode().ok()?.into(), signer))
    }

    /// Who lies. Under `trust = signature` nobody lies who may sign, except in ways that show.
    fn signer_of(
        &mut self,
        kind: Kind,
        height: Height,
        truth: &Truth,
        around: &Around,
        rng: &mut Rng,
    ) -> Option<usize> {
        let fetch = around.rules.trust == Trust::Fetch;
        let serving = around.rules.validators_at(height);
        let any = usize::try_from(rng.below(COUNT as u64)).unwrap_or(0);
        match kind {
            Kind::Outsider => Some(OUTSIDER),
            Kind::WrongSigner => {
                let opens = around.rules.signers != Signers::ProposerOnly;
                let may_sign = any == truth.proposer || (opens && serving.contains(&any));
                (!may_sign).then_some(any)
            }
            // Some heights are left alone, so that there is something that must be pruned.
            Kind::NoCopy if fetch && height.is_multiple_of(3) => {
                self.spoiled.insert(height);
                Some(if rng.flip() { truth.proposer } else { any })
            }
            Kind::NoCopy => None,
            Kind::Conflicting if fetch => {
                height.is_multiple_of(3).then(|| self.spoiled.insert(height))?;
                Some(truth.proposer)
            }
            _ => Some(truth.proposer),
        }
    }
}

/// Whether a validator has a record of a signer already, so that another one conflicts.
fn knows(around: &Around, n: usize, height: Height, signer: usize) -> bool {
    let Some(place) = around.net.place(n) else { return false };
    let Ok(status) = place.store.status(height) else { return false };
    let of =
        |record: &secateur_sidecar::engine::KeptRecord| record.record.signer == validator(signer);
    !status.blobs.is_empty() && status.blobs.iter().all(|blob| blob.records.iter().any(of))
}

/// A locator with nothing behind it, or with other bytes.
fn bogus(around: &Around, blob: &Bytes, rng: &mut Rng) -> Locator {
    let (provider, key) = ("p0".to_owned(), format!("bogus-{:x}", rng.u64()));
    if rng.below(3) > 0 {
        around.vault.plant(&provider, &key, other(blob));
    }
    Locator { provider, key }
}
