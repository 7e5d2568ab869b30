//! The vectors of `docs/format/notice.md`, which another language made, and V0 beside `prost`.

use alloy_primitives::hex;
use ed25519_dalek::Verifier as _;
use proptest::prelude::*;
use prost::Message as _;
use secateur_core::Locator;
use secateur_core::notice::{ArchiveNoticeV0, Notice, NoticeBodyV0};
use serde_json::Value;

use crate::notice::{
    Decided, DecidedBlob, Known, NoticeKey, Rejection, Signers, ValidatorTerm, Validators,
    Verifier, notice_digest, sign, sign_v0,
};
use crate::{BlobKeccak, Commitment, PublicKey, SidecarError, ValidatorId};

const VECTORS: &str = include_str!("../../../../../docs/format/notice-vectors.json");

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().unwrap()).unwrap()
}

fn array<const N: usize>(value: &Value) -> [u8; N] {
    bytes(value).try_into().unwrap()
}

fn vectors(which: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(VECTORS).unwrap();
    all[which].as_array().unwrap().clone()
}

/// Knows exactly what a notice says, and has no bytes.
struct Agreeing(Notice);

impl Known for Agreeing {
    type Bytes = Vec<u8>;

    fn decided(&self, _: u64, _: u32) -> Result<Option<Decided>, SidecarError> {
        let claim = self.0.claim();
        let blob = DecidedBlob {
            commitment: Commitment(*claim.kzg_commitment),
            keccak: BlobKeccak(*claim.blob_keccak),
        };
        Ok(Some(Decided {
            proposer: ValidatorId::new(claim.archived_by).unwrap(),
            round: claim.round,
            blob_count: 1,
            blob: Some(blob),
        }))
    }

    fn bytes(&self, _: u64, _: u32) -> Result<Option<Vec<u8>>, SidecarError> {
        Ok(None)
    }

    fn records(
        &self,
        _: u64,
        _: u32,
    ) -> Result<Vec<secateur_core::notice::Statement>, SidecarError> {
        Ok(Vec::new())
    }
}

/// I20.
#[test]
fn every_vector_is_hashed_signed_and_verified_as_it_says() {
    for vector in vectors("accepted") {
        let name = format!("{} {}", vector["form"], vector["name"]);
        let wire = bytes(&vector["wire"]);
        let notice = Notice::decode(&wire).unwrap();
        assert_eq!(notice_digest(&notice).to_vec(), bytes(&vector["digest"]), "{name}");
        let key = NoticeKey::from_secret(&array(&vector["secret_key"]));
        assert_eq!(key.public_key(), PublicKey(array(&vector["public_key"])), "{name}");
        let again = match notice.clone() {
            Notice::V1(n) => Notice::V1(sign(n.body, n.archived_at, &key).unwrap()),
            Notice::V0(n) => Notice::V0(sign_v0(n.body, &key).unwrap()),
        };
        assert_eq!(again.encode().unwrap(), wire, "{name}");

        assert_eq!(verify(&wire, key.public_key()).unwrap(), notice, "{name}");
    }
}

/// Verifies a notice whose signer has this key, where everything else is as it says.
fn verify(wire: &[u8], public_key: PublicKey) -> Result<Notice, SidecarError> {
    let notice = Notice::decode(wire)?;
    let claim = notice.claim();
    let term = ValidatorTerm {
        id: ValidatorId::new(claim.archived_by)?,
        public_key,
        from_height: claim.height,
        to_height: Some(claim.height),
    };
    let verifier = Verifier {
        chain_id: claim.chain_id.unwrap_or(1),
        validators: Validators::new(&[term])?,
        signers: Signers::ProposerOnly,
        accept_v0: true,
    };
    verifier.verify(wire, 0, &Agreeing(notice.clone())).map(|accepted| accepted.notice)
}

#[test]
fn signatures_that_only_careless_verification_accepts_are_refused() {
    let vectors = vectors("badly_signed");
    assert_eq!(vectors.len(), 2);
    for vector in vectors {
        let (wire, key) = (bytes(&vector["wire"]), PublicKey(array(&vector["public_key"])));
        let error = verify(&wire, key).unwrap_err();
        assert!(matches!(error, SidecarError::Rejected(Rejection::BadSignature { .. })));
        // The second one is a signature to plain verification: this is what `strict` is for.
        let notice = Notice::decode(&wire).unwrap();
        let plain = ed25519_dalek::VerifyingKey::from_bytes(&key.0).unwrap().verify(
            &notice_digest(&notice),
            &ed25519_dalek::Signature::from_bytes(notice.signature()),
        );
        assert_eq!(plain.is_ok(), vector["why"] == "R is a point of small order");
    }
}

/// The messages as protobuf's own code generator would write them.
mod message {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Address {
        #[prost(bytes = "vec", tag = "1")]
        pub(super) value: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Body {
        #[prost(uint64, tag = "1")]
        pub(super) height: u64,
        #[prost(int32, tag = "2")]
        pub(super) round: i32,
        #[prost(uint32, tag = "3")]
        pub(super) blob_index: u32,
        #[prost(bytes = "vec", tag = "4")]
        pub(super) kzg_commitment: Vec<u8>,
        #[prost(bytes = "vec", tag = "5")]
        pub(super) blob_keccak: Vec<u8>,
        #[prost(string, tag = "6")]
        pub(super) provider_id: String,
        #[prost(string, tag = "7")]
        pub(super) locator: String,
        #[prost(message, optional, tag = "8")]
        pub(super) archived_by: Option<Address>,
        #[prost(uint64, tag = "9")]
        pub(super) archived_at: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Signature {
        #[prost(bytes = "vec", tag = "1")]
        pub(super) bytes: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Notice {
        #[prost(message, optional, tag = "1")]
        pub(super) body: Option<Body>,
        #[prost(message, optional, tag = "2")]
        pub(super) signature: Option<Signature>,
    }
}

proptest! {
    #[test]
    fn v0_is_what_prost_writes(
        // Small numbers too, zeros among them.
        numbers in (0..3u64, -2..3i32, 0..3u32, 0..3u64),
        large in any::<(u64, i32, u32, u64)>(),
        take in any::<[bool; 4]>(),
        seed: u8,
        provider in "[a-z片]{1,30}",
        key in "[!-~ü]{1,300}",
        archived_by in prop::collection::vec(any::<u8>(), 1..=32),
    ) {
        let pick = |at: usize, small: u64, large: u64| if take[at] { large } else { small };
        let body = NoticeBodyV0 {
            height: pick(0, numbers.0, large.0),
            round: if take[1] { large.1 } else { numbers.1 },
            blob_index: if take[2] { large.2 } else { numbers.2 },
            kzg_commitment: [seed; 48],
            blob_keccak: [seed; 32],
            locator: Locator { provider, key },
            archived_by,
            archived_at: pick(3, numbers.3, large.3),
        };
        let notice = ArchiveNoticeV0 { body: body.clone(), signature: [seed; 64] };
        let theirs = message::Body {
            height: body.height,
            round: body.round,
            blob_index: body.blob_index,
            kzg_commitment: body.kzg_commitment.to_vec(),
            blob_keccak: body.blob_keccak.to_vec(),
            provider_id: body.locator.provider.clone(),
            locator: body.locator.key.clone(),
            archived_by: Some(message::Address { value: body.archived_by.clone() }),
            archived_at: body.archived_at,
        };
        prop_assert_eq!(body.encode().unwrap(), theirs.encode_to_vec());
        let signature = Some(message::Signature { bytes: notice.signature.to_vec() });
        let theirs = message::Notice { body: Some(theirs), signature };
        prop_assert_eq!(notice.encode().unwrap(), theirs.encode_to_vec());
        prop_assert_eq!(ArchiveNoticeV0::decode(&theirs.encode_to_vec()).unwrap(), notice);
    }
}
