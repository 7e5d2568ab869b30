//! Whether blobs are the ones that a block names, in its order.

use alloy_primitives::B256;
use bytes::Bytes;
use secateur_sidecar::{Commitment, Inclusion, Proof, Sidecar, VersionedHash, kzg};

use super::api::Blobs;
use super::error::Refused;
use super::ssz;
use super::wire::{LegacySidecar, SignedHeader};

/// The sidecars of a block that names these blobs. A legacy sidecar is compared with the header too,
/// where there is one; whether its proof holds is looked at when it is stored.
pub(super) fn sidecars(
    blobs: Blobs,
    named: &[VersionedHash],
    header: Option<&SignedHeader>,
) -> Result<Vec<Sidecar>, Refused> {
    let found = match &blobs {
        Blobs::Plain(blobs) => blobs.len(),
        Blobs::Sidecars(sidecars) => sidecars.len(),
    };
    if found != named.len() {
        return Err(Refused::Missing { found, named: named.len() });
    }
    match blobs {
        Blobs::Plain(blobs) => {
            let one = |(index, blob)| plain(index, blob, named);
            blobs.into_iter().enumerate().map(one).collect()
        }
        Blobs::Sidecars(sidecars) => {
            let one = |(index, sidecar)| legacy(index, sidecar, named, header);
            sidecars.into_iter().enumerate().map(one).collect()
        }
    }
}

fn plain(index: usize, blob: Bytes, named: &[VersionedHash]) -> Result<Sidecar, Refused> {
    let commitment =
        kzg::commitment_of(&blob).map_err(|error| Refused::NotABlob(index, Box::new(error)))?;
    in_place(index, &commitment, named)?;
    Ok(Sidecar { index: place(index), blob, commitment, proof: None, inclusion: None })
}

fn legacy(
    index: usize,
    sidecar: LegacySidecar,
    named: &[VersionedHash],
    header: Option<&SignedHeader>,
) -> Result<Sidecar, Refused> {
    let commitment = Commitment(sidecar.kzg_commitment.0);
    in_place(index, &commitment, named)?;
    if sidecar.index != index as u64 || header.is_some_and(|it| *it != sidecar.signed_block_header)
    {
        return Err(Refused::OtherBlock { index });
    }
    let branch = sidecar.kzg_commitment_inclusion_proof;
    let body_root = &sidecar.signed_block_header.message.body_root;
    if !ssz::includes(body_root, &commitment, index, &branch) {
        return Err(Refused::Inclusion { index });
    }
    let proof = branch.into_iter().map(|hash: B256| hash.0).collect();
    Ok(Sidecar {
        index: place(index),
        blob: sidecar.blob.0,
        commitment,
        proof: Some(Proof(sidecar.kzg_proof.0)),
        inclusion: Some(Inclusion { proof }),
    })
}

/// Whether a commitment is the one that is named at a place.
fn in_place(index: usize, commitment: &Commitment, named: &[VersionedHash]) -> Result<(), Refused> {
    let found = kzg::versioned_hash(commitment);
    if named.get(index) == Some(&found) {
        return Ok(());
    }
    if named.contains(&found) {
        return Err(Refused::Order { index, found });
    }
    Err(Refused::Unnamed { index, found })
}

/// No block names so many that it does not fit: their number was compared before.
fn place(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
