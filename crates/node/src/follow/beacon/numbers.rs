//! Heights that are block numbers: an EVM node whose blocks name blobs, and a beacon interface that
//! serves them by block number. That is what development nodes such as anvil have.

use alloy_consensus::proofs::calculate_transaction_root;
use alloy_consensus::{Header, Transaction as _, TxEnvelope};
use alloy_primitives::B256;
use alloy_rpc_types_eth::{BlockTransactions, Transaction};
use bytes::Bytes;
use secateur_core::Height;
use secateur_sidecar::VersionedHash;
use serde_json::json;

use super::super::chain::{self, Final};
use super::super::convert::check_header;
use super::super::envelope::Call;
use super::super::source::Source;
use super::api::{Api, Blobs};
use super::error::{BeaconError, Refused};
use super::fit;
use super::follower::{Found, Tip};
use super::slots::hash;

/// Transactions with their blobs, where they come so: anvil hashes them into its blocks like that,
/// which no other chain does.
type RpcBlock = alloy_rpc_types_eth::Block<Transaction<TxEnvelope>>;

/// An EVM node beside a beacon interface.
pub(super) struct Numbers {
    pub(super) api: Api,
    blocks: Source,
}

impl Numbers {
    pub(super) fn new(api: Api, blocks: Source) -> Self {
        Self { api, blocks }
    }

    /// Whether a request to either of the two failed since this was asked last.
    pub(super) fn was_interrupted(&self) -> bool {
        let (of_blobs, of_blocks) = (self.api.was_interrupted(), self.blocks.was_interrupted());
        of_blobs || of_blocks
    }

    pub(super) async fn chain_id(&self) -> Result<u64, BeaconError> {
        Ok(chain::chain_id(&self.blocks).await?)
    }

    /// The newest final block.
    pub(super) async fn last_final(&self) -> Result<Tip, BeaconError> {
        let Final::Block(meta) = chain::heads(&self.blocks, None).await?.last_final else {
            let name = self.blocks.name();
            return Err(BeaconError::Trouble(format!("the source {name} has no final block")));
        };
        Ok(Tip { height: meta.height, id: B256::new(meta.hash.0) })
    }

    /// A block with its blobs, compared.
    pub(super) async fn fetch(&self, height: Height) -> Result<Found, BeaconError> {
        let call = Call::new("eth_getBlockByNumber", json!([chain::hex(height), true]));
        let raw = match self.blocks.ask_one(call).await? {
            Ok(Some(raw)) => raw,
            Ok(None) => return Err(Refused::NoBlock.at(height)),
            Err(refusal) => {
                let name = self.blocks.name();
                let text = format!("the source {name} refuses block {height}: {refusal}");
                return Err(BeaconError::Trouble(text));
            }
        };
        let read = tokio::task::spawn_blocking(move || named(height, &raw));
        let named = read.await.map_err(BeaconError::task)?.map_err(|refused| refused.at(height))?;
        let blobs = match named.hashes.len() {
            0 => Blobs::Plain(Vec::new()),
            count => self.api.blobs(height, count).await?,
        };
        let found = tokio::task::spawn_blocking(move || {
            let sidecars = fit::sidecars(blobs, &named.hashes, None)?;
            Ok(Found {
                sidecars,
                payload_header: alloy_rlp::encode(&named.header).into(),
                signed_header: None,
                // Such nodes have no validators.
                proposer: 0,
                id: named.id,
                parent: named.header.parent_hash,
            })
        });
        let found = found.await.map_err(BeaconError::task)?;
        found.map_err(|refused: Refused| refused.at(height))
    }
}

/// What a block says of its blobs.
struct Named {
    hashes: Vec<VersionedHash>,
    header: Header,
    id: B256,
}

/// The blobs that a block names, if its header has the hash that is stated, and the transactions are
/// those of the header.
fn named(height: Height, raw: &Bytes) -> Result<Named, Refused> {
    let meta = check_header(Some(height), raw).map_err(|unfit| Refused::Header(Box::new(unfit)))?;
    let block: RpcBlock = serde_json::from_slice(raw).map_err(Refused::json("block"))?;
    let header = block.header.inner;
    let BlockTransactions::Full(transactions) = block.transactions else {
        return Err(Refused::Lacks("transactions"));
    };
    let transactions: Vec<TxEnvelope> =
        transactions.into_iter().map(Transaction::into_inner).collect();
    let (stated, computed) = (header.transactions_root, calculate_transaction_root(&transactions));
    if stated != computed {
        return Err(Refused::Transactions { stated, computed });
    }
    let named = transactions.iter().filter_map(TxEnvelope::blob_versioned_hashes);
    let hashes = named.flatten().map(hash).collect();
    Ok(Named { hashes, header, id: B256::new(meta.hash.0) })
}
