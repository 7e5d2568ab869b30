//! Heights that are slots: a beacon node that has headers, blocks and blobs. The commitments in a
//! block must be those that its transactions name, and the blobs must be those of the commitments.

use std::collections::BTreeMap;

use alloy_consensus::Transaction as _;
use alloy_eips::eip2718::Decodable2718 as _;
use alloy_primitives::B256;
use bytes::Bytes;
use secateur_core::Height;
use secateur_evm::SignedTx;
use secateur_sidecar::{Commitment, VersionedHash, kzg};
use serde_json::value::RawValue;

use super::api::{Api, Blobs};
use super::error::{BeaconError, Refused};
use super::fit;
use super::follower::{Found, Tip};
use super::ssz;
use super::wire::{Block, BlockAnswer, Body, SignedHeader};

/// Forks whose blocks have no blobs.
const BEFORE_BLOBS: [&str; 4] = ["phase0", "altair", "bellatrix", "capella"];
/// Forks whose blocks have them where they are looked for.
const WITH_BLOBS: [&str; 3] = ["deneb", "electra", "fulu"];
/// The first byte of a transaction that names blobs.
const BLOB_TX: u8 = 3;

/// A beacon node that has blocks.
pub(super) struct Slots {
    pub(super) api: Api,
}

/// What a block says of its blobs.
struct Named {
    hashes: Vec<VersionedHash>,
    payload_header: Bytes,
}

impl Slots {
    pub(super) fn new(api: Api) -> Self {
        Self { api }
    }

    /// The newest finalised block.
    pub(super) async fn last_final(&self) -> Result<Tip, BeaconError> {
        let header = self.api.finalized().await?.message;
        Ok(Tip { height: header.slot, id: ssz::root(&header) })
    }

    /// A slot with its blobs, compared; none where it has no block.
    pub(super) async fn fetch(&self, slot: Height) -> Result<Option<Found>, BeaconError> {
        let Some(header) = self.api.header(slot).await? else { return Ok(None) };
        let block = self.api.block(slot).await?;
        let own = header.clone();
        let named = tokio::task::spawn_blocking(move || {
            is_of(&block.data.message, &own)?;
            named(block)
        });
        let named = named.await.map_err(BeaconError::task)?.map_err(|refused| refused.at(slot))?;
        let blobs = match named.hashes.len() {
            0 => Blobs::Plain(Vec::new()),
            count => self.api.blobs(slot, count).await?,
        };
        let found = tokio::task::spawn_blocking(move || {
            let Named { hashes, payload_header } = named;
            Ok(Found {
                sidecars: fit::sidecars(blobs, &hashes, Some(&header))?,
                payload_header,
                signed_header: Some(ssz::signed_header(&header)),
                proposer: header.message.proposer_index,
                id: ssz::root(&header.message),
                parent: header.message.parent_root,
            })
        });
        let found = found.await.map_err(BeaconError::task)?;
        found.map(Some).map_err(|refused: Refused| refused.at(slot))
    }
}

/// Whether a block is the one of a header, as far as both say the same.
fn is_of(block: &Block, header: &SignedHeader) -> Result<(), Refused> {
    let header = &header.message;
    let differences = [
        ("slot", block.slot == header.slot),
        ("proposer", block.proposer_index == header.proposer_index),
        ("parent root", block.parent_root == header.parent_root),
        ("state root", block.state_root == header.state_root),
    ];
    match differences.into_iter().find(|(_, same)| !same) {
        Some((what, _)) => Err(Refused::NotTheHeaders(what)),
        None => Ok(()),
    }
}

/// The blobs that a block names: twice, and both must say the same.
fn named(block: BlockAnswer) -> Result<Named, Refused> {
    let Body { execution_payload, blob_kzg_commitments } = block.data.message.body;
    let fork = block.version.as_str();
    if BEFORE_BLOBS.contains(&fork) {
        let payload_header = payload_header(execution_payload.unwrap_or_default())?;
        return Ok(Named { hashes: Vec::new(), payload_header });
    }
    // A later fork may keep its commitments elsewhere: no blobs found would not mean that it has none.
    if !WITH_BLOBS.contains(&fork) {
        return Err(Refused::Fork(super::super::envelope::shown(fork)));
    }
    let payload = execution_payload.ok_or(Refused::Lacks("execution payload"))?;
    let commitments = blob_kzg_commitments.ok_or(Refused::Lacks("list of commitments"))?;
    let transactions = payload.get("transactions").ok_or(Refused::Lacks("transactions"))?;
    let hashes = named_by(transactions)?;
    if commitments.len() != hashes.len() {
        let (commitments, named) = (commitments.len(), hashes.len());
        return Err(Refused::Count { commitments, named });
    }
    for (index, (commitment, hash)) in commitments.iter().zip(&hashes).enumerate() {
        if kzg::versioned_hash(&Commitment(commitment.0)) != *hash {
            return Err(Refused::Commitment { index });
        }
    }
    Ok(Named { hashes, payload_header: payload_header(payload)? })
}

/// The blobs that a payload's transactions name, in their order.
fn named_by(transactions: &RawValue) -> Result<Vec<VersionedHash>, Refused> {
    let raw: Vec<alloy_primitives::Bytes> =
        serde_json::from_str(transactions.get()).map_err(Refused::json("transactions"))?;
    let mut hashes = Vec::new();
    for (index, raw) in raw.iter().enumerate() {
        if raw.first() != Some(&BLOB_TX) {
            continue;
        }
        let tx = SignedTx::decode_2718_exact(raw)
            .map_err(|error| Refused::Transaction { index, reason: error.to_string() })?;
        hashes.extend(tx.blob_versioned_hashes().unwrap_or_default().iter().map(hash));
    }
    Ok(hashes)
}

pub(super) fn hash(hash: &B256) -> VersionedHash {
    VersionedHash(hash.0)
}

/// What is kept of a payload: all of its fields but the lists, as JSON in the order of their names.
fn payload_header(mut payload: BTreeMap<String, Box<RawValue>>) -> Result<Bytes, Refused> {
    payload.retain(|_, value| !value.get().starts_with('['));
    let text = serde_json::to_vec(&payload).map_err(Refused::json("execution payload"))?;
    Ok(text.into())
}
