//! Real blobs for tests, benchmarks and the demo: seeded bytes, with commitments and proofs that
//! were computed once and written down, because computing one takes tens of milliseconds.

use std::sync::OnceLock;

use bytes::Bytes;
use secateur_core::Height;

use crate::error::SidecarError;
use crate::kzg;
use crate::types::{BLOB_LEN, Commitment, Proof, Proposal, Round, Sidecar, ValidatorId};

/// How many blobs the pool has.
pub const POOL: usize = 16;

/// A blob with what belongs to it.
#[derive(Debug, Clone)]
pub struct TestBlob {
    /// Its bytes.
    pub blob: Bytes,
    /// Its commitment.
    pub commitment: Commitment,
    /// Its proof.
    pub proof: Proof,
}

/// A blob made of a seed: every field element in range, every bit of it used.
pub fn blob(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        // splitmix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut bytes = Vec::with_capacity(BLOB_LEN);
    while bytes.len() < BLOB_LEN {
        // The field's modulus begins with 0x73.
        let top = next() & 0x3fff_ffff_ffff_ffff;
        for word in [top, next(), next(), next()] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
    }
    bytes
}

/// Computes what belongs to a seed's blob.
pub fn compute(seed: u64) -> Result<TestBlob, SidecarError> {
    let blob = blob(seed);
    let commitment = kzg::commitment_of(&blob)?;
    let proof = kzg::proof_of(&blob, &commitment)?;
    Ok(TestBlob { blob: blob.into(), commitment, proof })
}

/// A blob of the pool; `which` counts round and round.
pub fn pooled(which: usize) -> &'static TestBlob {
    static BLOBS: [OnceLock<TestBlob>; POOL] = [const { OnceLock::new() }; POOL];
    static NONE: OnceLock<TestBlob> = OnceLock::new();
    let at = which % POOL;
    BLOBS.get(at).unwrap_or(&NONE).get_or_init(|| {
        let seed = at as u64;
        let known = KNOWN
            .get(at)
            .and_then(|(commitment, proof)| Some((commitment.parse().ok()?, proof.parse().ok()?)));
        let (commitment, proof) = known.unwrap_or((Commitment([0; 48]), Proof([0; 48])));
        TestBlob { blob: blob(seed).into(), commitment, proof }
    })
}

/// Takes the pool as verified from now on, in this process: the trusted setup takes a second or
/// more to load. That the pool is right is a test of its own.
#[cfg(any(test, feature = "sim"))]
pub fn assume_pool() {
    for which in 0..POOL {
        let sidecar = sidecar(0, which);
        let keccak = crate::types::BlobKeccak(alloy_primitives::keccak256(&sidecar.blob).0);
        kzg::assume(&sidecar, &keccak);
    }
}

/// A sidecar of the pool.
pub fn sidecar(index: u32, which: usize) -> Sidecar {
    let TestBlob { blob, commitment, proof } = pooled(which).clone();
    Sidecar { index, blob, commitment, proof: Some(proof), inclusion: None }
}

/// A proposal of blobs of the pool.
pub fn proposal(height: Height, round: Round, proposer: &ValidatorId, blobs: &[usize]) -> Proposal {
    let sidecars = (0u32..).zip(blobs).map(|(index, which)| sidecar(index, *which)).collect();
    let payload_header = format!("payload header of height {height} in round {round}");
    Proposal {
        height,
        round,
        proposer: proposer.clone(),
        payload_header: payload_header.into_bytes().into(),
        signed_header: None,
        sidecars,
    }
}

const KNOWN: [(&str, &str); POOL] = [
    (
        "0xb6e51d8cf857fbe387be30ca7cc64658b37d1ff7cb35e345eef582219ae518ab9e8a05a70eaf44325444380e38a385b2",
        "0x9242bc064985569f458b7cfe258722216d6f2a461a70d5c3ebec8acd46d7adbf12480f1a4752a0eee3291e747d946df9",
    ),
    (
        "0xa41e438d034f7e2063f97479dfb25829f28b87c17e9bd22271a1d0aaab5f99220edfafa94321af6f077054d37f769ed9",
        "0x88434e97bc1e6eabf01b9063ef61bba41ddb53f905110c8b61ccc53b58671c420758ba6570a13e4138be3840ffd106ca",
    ),
    (
        "0xb44ef3c95825bacd8c0163c94399a0c5d83b257eaf866719b189e529eec271a8d081157515cb2abf5b803397cb8266ca",
        "0x943ade83de2ca68f84e3b5de1c2c2e08865e45cc205a7b7117df31ae8a31ac7aed3a8798f729e2b522c11bbc34093802",
    ),
    (
        "0xb57cff65a814c64d39197eb89b302248e7390738432fde82acf6a68e7f001b63c67062fa552063273bb4342187b0e77d",
        "0x8482cab86cf8382e74a1dd8396fb10c4a0d9d09bbd93de4a3563dae0e5bbd8af6949cdb78c9853c36ac54a209c337c71",
    ),
    (
        "0xa4f985c3fcadb74187a79e798e1fb857c5d54dda93d9bd285eb94a8b68a536c17283f4b04a991098b8b7c0cb9e47c68d",
        "0xab12a0782bbf641e491736120f89efe1bd47595a7c9be39074dc8d7cb6b66b015decd72a68e6fb3be1ac9809505da084",
    ),
    (
        "0x8ad6455bf0f8446ce43da6b3d1e6b8099f5daf83a6a31ce162af75666e1f9da7e3489ff99162661819278104c5959d66",
        "0xa89ef3f2342fb6dce90303a82070cc8c09528dd949c2a4eac6946e2def574558af6c8b885be602412d42bdc8826b0d18",
    ),
    (
        "0xb677d54f705e82233bbe606bd7850ea85ee2502b680791a95f057000566fad3755bc3942a3e47aca18b89f1fdfde9f27",
        "0x9262ad4e0eab12610fc72b494a6d2268623e79388a581228b20d618a868d8e62fd92ca4bc93f368bb63aa5e28c3dbbff",
    ),
    (
        "0x8ccf921afc0ce5f0dbfda21185b7d80fc7240715f29634859734bfac5d686357bc499414a468140830727504ec4760ee",
        "0x9072b36e24518ce43cec189c8ee0a7b0ab5bf8f089b5ebff718b6261a319761b1257232eb174bf4bec319f00e844eeff",
    ),
    (
        "0xb6b6d139b486fb8af80ecfc200e8ebaa67c692e58350ec6f2aa13290a05a619244b6a320256a0009320ad032244ce103",
        "0xb5a4865d10c45a748313e270f3d4936ddc47fd15a43afe9e5341c2a22f693d660e342c88d2d02242aa1205d8e41bece5",
    ),
    (
        "0xa0383b41dfd643f898a73d61c6d6a3fa760ba3febdb794949c4cf12bf813ceb5e5e6578200b8e84993759896421e63d1",
        "0x932cdd4590a4acf2eb3c1d11a3abde9cd8c7f2d83094a5a0e131ec3ce1742532f5f69f18f99fc6c5882e33e93d05608b",
    ),
    (
        "0xacc189fa61f3a5153169a242fa4a2e52985c3d7b4e4ff0b7b4043bffb44d9654f15ac36b5a5aa3cc8ec9f830127fc9d0",
        "0x82b5b4936109b30eb53e9bc99d56ddb46fe8cfc1b302db84a65ab37eb6bb1ad352c17550863df8682c0fb796cffc446c",
    ),
    (
        "0xa510a530b50fe1f33b3d88c51950efb2929ac0a4396578c73638b8eae8b2011ca3eea3462e454d8363f8c7c92a36eaeb",
        "0x97295077d1aaf13d25644872e8ab98263b93e64465b16d31a3fb5857726a5c39f8857288b1697b525634bb068bd78fe1",
    ),
    (
        "0xb5ba675bba9020169e78bfea0314d5ca8b0adf919ed3ee0ac6eb263041e795fa197a38231c4ef2235310adbb18de97ac",
        "0xac10d08d062da122ca4693186567b8fb5e0e9ea9317b0a903cab2cab56dd73e82d38044e1b5778cf6014bcb31a2e2f5a",
    ),
    (
        "0x9794c78719ad4b054a04adbe13100607dd7688a0cb487219901fbfddf6c96430fb7f54650ac7501ae826e963ea9c2569",
        "0x8203dc0c62a4eb1bd21c3e6999a31d60375193f3a216998ff102921ceb6872ee716dc65a7d703dbd45e45ca6fbaffcc1",
    ),
    (
        "0x800770e66b53c5c2ca6db9cd780eecd1e7f61b14327074cdff2c1ae23a1802bfb90c3048d16b62b19d14ab1cf850ba31",
        "0xa97eb824be1afdacc4061dad5163f23b0f16905464165e61ab3c13655b558ab2d0ddc60781ec508a5ddc056b2a73e574",
    ),
    (
        "0xb06c3d254a1442a3d56583e0249d733ff8698164bb3e3ffb641d37a46c15644620cab38a31e6bb239fb85640491e712c",
        "0xac4c2bab472ea8b93d1a00d19fb9e3f0d10b38e42d6617579034f3f28323e5597382c105f7072ae22216706db36974b6",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_what_is_computed_from_its_seeds() {
        for at in [0, 7, POOL - 1] {
            let (known, computed) = (pooled(at), compute(at as u64).unwrap());
            assert_eq!((known.commitment, known.proof), (computed.commitment, computed.proof));
            assert_eq!(known.blob, computed.blob);
        }
        let all: Vec<Sidecar> = (0u32..16).map(|index| sidecar(index, index as usize)).collect();
        kzg::verify(&all).unwrap();
    }

    #[test]
    #[ignore = "prints the table above"]
    fn print_the_pool() {
        for seed in 0..POOL as u64 {
            let TestBlob { commitment, proof, .. } = compute(seed).unwrap();
            println!("    (\n        \"{commitment}\",\n        \"{proof}\",\n    ),");
        }
    }
}
