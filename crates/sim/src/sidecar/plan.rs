//! What a seed stands for: the rules that validators agree on, and how hard their life is.

use secateur_core::Height;
use secateur_sidecar::notice::{NoticeKey, Signers, ValidatorTerm, Validators, Verifier};
use secateur_sidecar::{SidecarError, Trust};

use super::{CHAIN, COUNT, secret, validator};
use crate::rng::Rng;

/// What validators agree on.
#[derive(Debug, Clone)]
pub struct Rules {
    /// What a signature is worth.
    pub trust: Trust,
    /// Who may sign.
    pub signers: Signers,
    /// Who is a validator when.
    pub terms: Vec<ValidatorTerm>,
    /// Heights that keep their bytes.
    pub retain_blocks: u64,
    /// After how many blocks a notice is told again.
    pub rebroadcast_blocks: u64,
    /// The providers, and whether each names blobs by their tags.
    pub providers: Vec<bool>,
    /// Copies that must be there.
    pub min_copies: usize,
    /// Heights with blobs.
    pub heights: Height,
    /// A validator that dies for good after it has proposed.
    pub corpse: Option<usize>,
    /// Faults of providers and of messages, in a hundred.
    pub faults: (u64, u64),
    /// Whether peers answer what they are told.
    pub confirms: bool,
}

impl Rules {
    /// Those of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 30);
        let trust = if seed.is_multiple_of(2) { Trust::Signature } else { Trust::Fetch };
        let after = rng.below(2) == 0;
        let signers = if after {
            Signers::AnyValidatorAfter(2 + rng.below(3))
        } else {
            Signers::ProposerOnly
        };
        let heights = 5 + rng.below(6);
        let providers: Vec<bool> = (0..=rng.below(3)).map(|_| rng.flip()).collect();
        let copies = if providers.len() > 1 { 1 + rng.below(2) } else { 1 };
        let corpse = (after && rng.flip()).then(|| usize::try_from(rng.below(2)).unwrap_or(0));
        Self {
            trust,
            signers,
            terms: terms(&mut rng, heights),
            retain_blocks: rng.below(3),
            rebroadcast_blocks: 1 + rng.below(3),
            providers,
            min_copies: usize::try_from(copies).unwrap_or(1),
            heights,
            corpse,
            faults: (rng.below(50), rng.below(60)),
            confirms: rng.below(4) > 0,
        }
    }

    /// How notices are judged.
    pub fn verifier(&self) -> Result<Verifier, SidecarError> {
        let validators = Validators::new(&self.terms)?;
        Ok(Verifier { chain_id: CHAIN, validators, signers: self.signers, accept_v0: false })
    }

    /// Who is a validator at a height.
    pub fn validators_at(&self, height: Height) -> Vec<usize> {
        let serves = |term: &&ValidatorTerm| {
            term.from_height <= height && term.to_height.is_none_or(|last| height <= last)
        };
        let at = self.terms.iter().filter(serves);
        at.filter_map(|term| super::validator_number(&term.id)).collect()
    }
}

/// All of them for ever, or one that leaves, or one that comes.
fn terms(rng: &mut Rng, heights: Height) -> Vec<ValidatorTerm> {
    let (change, kind) = (2 + rng.below(heights), rng.below(4));
    (0..COUNT)
        .map(|n| ValidatorTerm {
            id: validator(n),
            public_key: NoticeKey::from_secret(&secret(n)).public_key(),
            from_height: if kind & 1 == 1 && n == 2 { change } else { 0 },
            to_height: (kind & 2 == 2 && n == 3).then_some(change),
        })
        .collect()
}
