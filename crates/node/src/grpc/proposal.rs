//! Proposals as they come over a stream: every count and length is checked before anything is kept.

use std::error::Error as _;

use bytes::Bytes;
use secateur_core::CoreError;
use secateur_proto::sidecar::v1::{self as pb, proposal_part::Part};
use secateur_sidecar::{
    BLOB_LEN, Commitment, Inclusion, MAX_INCLUSION_LEN, MAX_ROUND_HEADER_LEN, Proof, Proposal,
    Sidecar, SidecarError, ValidatorId,
};
use tonic::{Code, Status, Streaming};

use crate::blobs::header::SIGNED_HEADER_LEN;
use crate::service::{ApiError, Node, Room};

/// Why a proposal did not come.
#[derive(Debug)]
pub(super) enum Broken {
    /// The stream failed: nobody waits for an answer, or it is too long for a message.
    Stream(Status),
    /// What came is wrong.
    Wrong(ApiError),
}

impl From<SidecarError> for Broken {
    fn from(error: SidecarError) -> Self {
        Self::Wrong(error.into())
    }
}

/// A proposal that is not one.
fn malformed(reason: impl Into<String>) -> SidecarError {
    CoreError::Decode { what: "proposal", reason: reason.into() }.into()
}

fn array<const N: usize>(what: &str, bytes: &Bytes) -> Result<[u8; N], SidecarError> {
    bytes.as_ref().try_into().map_err(|_| malformed(format!("{what}: {N} bytes are wanted")))
}

/// Reads a proposal to its end, in a room of its own.
pub(super) async fn read(
    node: &Node,
    max_blobs: u32,
    stream: &mut Streaming<pb::ProposalPart>,
) -> Result<(Proposal, Room), Broken> {
    let mut proposal = match next(stream).await? {
        Some(Part::Head(found)) => head(found)?,
        _ => return Err(malformed("its head comes first").into()),
    };
    let mut room = node.rooms.empty();
    while let Some(part) = next(stream).await? {
        let Part::Sidecar(found) = part else {
            return Err(malformed("it has two heads").into());
        };
        let count = proposal.sidecars.len();
        if count >= max_blobs as usize {
            let count = u64::from(max_blobs).saturating_add(1);
            return Err(SidecarError::TooManyBlobs { count, max: max_blobs }.into());
        }
        room.grow((count + 1).saturating_mul(BLOB_LEN)).map_err(Broken::Wrong)?;
        let expected = u32::try_from(count).unwrap_or(u32::MAX);
        proposal.sidecars.push(sidecar(expected, found)?);
    }
    Ok((proposal, room))
}

async fn next(stream: &mut Streaming<pb::ProposalPart>) -> Result<Option<Part>, Broken> {
    match stream.message().await.map_err(broken)? {
        None => Ok(None),
        Some(pb::ProposalPart { part: Some(part) }) => Ok(Some(part)),
        Some(_) => Err(malformed("a part of it is empty").into()),
    }
}

/// What a stream that fails means. tonic has a source for what the connection did; what it finds
/// wrong with the bytes themselves (a frame that is cut short, a message that is none) has none, and
/// that is bad input like any other.
fn broken(status: Status) -> Broken {
    match status.code() {
        Code::Internal if status.source().is_none() => malformed(status.message()).into(),
        _ => Broken::Stream(status),
    }
}

fn head(found: pb::ProposalHead) -> Result<Proposal, SidecarError> {
    if found.payload_header.len() > MAX_ROUND_HEADER_LEN {
        let reason = format!("its payload header is longer than {MAX_ROUND_HEADER_LEN} bytes");
        return Err(malformed(reason));
    }
    let signed_header = match found.signed_header.len() {
        0 => None,
        SIGNED_HEADER_LEN => Some(found.signed_header),
        _ => return Err(malformed(format!("a signed header has {SIGNED_HEADER_LEN} bytes"))),
    };
    Ok(Proposal {
        height: found.height,
        round: found.round,
        proposer: ValidatorId::new(&found.proposer)?,
        payload_header: found.payload_header,
        signed_header,
        sidecars: Vec::new(),
    })
}

fn sidecar(expected: u32, found: pb::BlobSidecar) -> Result<Sidecar, SidecarError> {
    let index = found.index;
    if index != expected {
        return Err(SidecarError::WrongIndex { expected, got: index });
    }
    if found.blob.len() != BLOB_LEN {
        return Err(SidecarError::WrongLength { index, len: found.blob.len() as u64 });
    }
    if found.inclusion_proof.len() > MAX_INCLUSION_LEN {
        return Err(malformed(format!(
            "an inclusion proof has at most {MAX_INCLUSION_LEN} hashes"
        )));
    }
    let hashes =
        found.inclusion_proof.iter().map(|hash| array("a hash of an inclusion proof", hash));
    let proof: Vec<[u8; 32]> = hashes.collect::<Result<_, _>>()?;
    Ok(Sidecar {
        index,
        blob: found.blob,
        commitment: Commitment(array("a commitment", &found.kzg_commitment)?),
        proof: match found.kzg_proof.len() {
            0 => None,
            _ => Some(Proof(array("a proof", &found.kzg_proof)?)),
        },
        inclusion: (!proof.is_empty()).then_some(Inclusion { proof }),
    })
}

/// The parts of a proposal, for sending it on.
pub(super) fn parts(proposal: Proposal) -> Vec<Result<pb::ProposalPart, Status>> {
    let part = |part| Ok(pb::ProposalPart { part: Some(part) });
    let head = pb::ProposalHead {
        height: proposal.height,
        round: proposal.round,
        proposer: Bytes::copy_from_slice(proposal.proposer.as_bytes()),
        payload_header: proposal.payload_header,
        signed_header: proposal.signed_header.unwrap_or_default(),
    };
    let sidecar = |found: Sidecar| pb::BlobSidecar {
        index: found.index,
        blob: found.blob,
        kzg_commitment: Bytes::copy_from_slice(&found.commitment.0),
        kzg_proof: found.proof.map_or_else(Bytes::new, |proof| Bytes::copy_from_slice(&proof.0)),
        inclusion_proof: found.inclusion.map_or_else(Vec::new, |inclusion| {
            inclusion.proof.iter().map(|hash| Bytes::copy_from_slice(hash)).collect()
        }),
    };
    let blobs = proposal.sidecars.into_iter().map(|found| part(Part::Sidecar(sidecar(found))));
    std::iter::once(part(Part::Head(head))).chain(blobs).collect()
}
