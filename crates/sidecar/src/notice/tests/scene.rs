//! Three validators, one decided height with three blobs, and a notice for one of them that is
//! right in everything until a test spoils it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use alloy_primitives::keccak256;
use secateur_core::notice::{Notice, NoticeBody, NoticeBodyV0, Statement};
use secateur_core::{Height, Locator};

use crate::notice::{
    Accepted, Decided, DecidedBlob, Known, NoticeKey, Rejection, Signers, ValidatorTerm,
    Validators, Verifier, sign, sign_v0,
};
use crate::{BLOB_LEN, BlobKeccak, Commitment, Round, SidecarError, ValidatorId};

pub const CHAIN: u64 = 1337;
pub const HEIGHT: Height = 100;
pub const ROUND: Round = 2;
pub const INDEX: u32 = 1;

/// What a node knows, in memory.
#[derive(Default)]
pub struct Memory {
    pub heights: BTreeMap<Height, (ValidatorId, Round, Vec<DecidedBlob>)>,
    pub bytes: BTreeMap<(Height, u32), Vec<u8>>,
    pub records: BTreeMap<(Height, u32), Vec<Statement>>,
    /// How often bytes were asked for.
    pub reads: Cell<u32>,
    /// Whether the disk fails.
    pub broken: bool,
}

impl<'a> Known for &'a Memory {
    type Bytes = &'a [u8];

    fn decided(&self, height: Height, index: u32) -> Result<Option<Decided>, SidecarError> {
        if self.broken {
            let reason = "the disk is broken".to_owned();
            return Err(SidecarError::Refused { what: "reading", reason });
        }
        Ok(self.heights.get(&height).map(|(proposer, round, blobs)| Decided {
            proposer: proposer.clone(),
            round: *round,
            blob_count: u32::try_from(blobs.len()).unwrap(),
            blob: blobs.get(usize::try_from(index).unwrap()).copied(),
        }))
    }

    fn bytes(&self, height: Height, index: u32) -> Result<Option<&'a [u8]>, SidecarError> {
        self.reads.set(self.reads.get() + 1);
        Ok(self.bytes.get(&(height, index)).map(Vec::as_slice))
    }

    fn records(&self, height: Height, index: u32) -> Result<Vec<Statement>, SidecarError> {
        Ok(self.records.get(&(height, index)).cloned().unwrap_or_default())
    }
}

pub fn id(number: u8) -> ValidatorId {
    ValidatorId::new(&[number; 20]).unwrap()
}

pub fn key(number: u8) -> NoticeKey {
    NoticeKey::from_secret(&[number; 32])
}

/// A validator of all heights whose key is made of its number.
pub fn term(number: u8) -> ValidatorTerm {
    let public_key = key(number).public_key();
    ValidatorTerm { id: id(number), public_key, from_height: 0, to_height: None }
}

pub fn locator(text: &str) -> Locator {
    Locator { provider: "fs".into(), key: text.into() }
}

pub fn blob(index: u32) -> Vec<u8> {
    let [.., low] = index.to_be_bytes();
    vec![low + 1; BLOB_LEN]
}

/// Hashed once for all tests.
static KECCAKS: LazyLock<[BlobKeccak; 3]> =
    LazyLock::new(|| [0, 1, 2].map(|index| BlobKeccak(keccak256(blob(index)).0)));

pub struct Scene {
    pub body: NoticeBody,
    /// The number of the key that signs.
    pub signed_by: u8,
    /// Whether the notice is sent in Ultramarine's form.
    pub as_v0: bool,
    pub archived_at: u64,
    /// What happens to its bytes on the way.
    pub spoil: Vec<fn(&mut Vec<u8>)>,
    pub known: Memory,
    pub verifier: Verifier,
    pub head: Height,
}

impl Scene {
    /// Validator 1 proposed and signs; 2 and 3 are validators too.
    pub fn new() -> Self {
        let commitments = [0xc0, 0xc1, 0xc2].map(|byte| Commitment([byte; 48]));
        let blobs: Vec<DecidedBlob> = commitments
            .into_iter()
            .zip(*KECCAKS)
            .map(|(commitment, keccak)| DecidedBlob { commitment, keccak })
            .collect();
        let body = NoticeBody {
            chain_id: CHAIN,
            height: HEIGHT,
            round: ROUND,
            blob_index: INDEX,
            kzg_commitment: blobs[1].commitment.0,
            blob_keccak: blobs[1].keccak.0,
            locators: vec![locator("blobs/100/1"), locator("copies/100/1")],
            archived_by: id(1).as_bytes().to_vec(),
            archived_at_height: HEIGHT + 1,
        };
        let mut known = Memory::default();
        known.heights.insert(HEIGHT, (id(1), ROUND, blobs));
        for index in 0..3 {
            known.bytes.insert((HEIGHT, index), blob(index));
        }
        let verifier = Verifier {
            chain_id: CHAIN,
            validators: Validators::new(&[term(1), term(2), term(3)]).unwrap(),
            signers: Signers::ProposerOnly,
            accept_v0: false,
        };
        Self {
            body,
            signed_by: 1,
            as_v0: false,
            archived_at: 1_700_000_000,
            spoil: Vec::new(),
            known,
            verifier,
            head: HEIGHT + 5,
        }
    }

    /// Makes a validator other than the proposer sign.
    pub fn signed_by(mut self, number: u8) -> Self {
        self.signed_by = number;
        self.body.archived_by = id(number).as_bytes().to_vec();
        self
    }

    pub fn body_v0(&self) -> NoticeBodyV0 {
        NoticeBodyV0 {
            height: self.body.height,
            round: self.body.round,
            blob_index: self.body.blob_index,
            kzg_commitment: self.body.kzg_commitment,
            blob_keccak: self.body.blob_keccak,
            locator: self.body.locators[0].clone(),
            archived_by: self.body.archived_by.clone(),
            archived_at: self.archived_at,
        }
    }

    pub fn notice(&self) -> Notice {
        let key = key(self.signed_by);
        if self.as_v0 {
            Notice::V0(sign_v0(self.body_v0(), &key).unwrap())
        } else {
            Notice::V1(sign(self.body.clone(), self.archived_at, &key).unwrap())
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.notice().encode().unwrap();
        for spoil in &self.spoil {
            spoil(&mut bytes);
        }
        bytes
    }

    pub fn verify_bytes(&self, bytes: &[u8]) -> Result<Accepted, Rejection> {
        match self.verifier.verify(bytes, self.head, &&self.known) {
            Ok(accepted) => Ok(accepted),
            Err(SidecarError::Rejected(rejection)) => Err(rejection),
            Err(error) => panic!("{error}"),
        }
    }

    pub fn verify(&self) -> Result<Accepted, Rejection> {
        self.verify_bytes(&self.bytes())
    }

    /// The label of the rejection.
    #[track_caller]
    pub fn label(&self) -> &'static str {
        self.verify().expect_err("it was accepted").label()
    }

    /// Records a statement about the blob.
    pub fn record(&mut self, statement: Statement) {
        self.known.records.entry((HEIGHT, INDEX)).or_default().push(statement);
    }
}
