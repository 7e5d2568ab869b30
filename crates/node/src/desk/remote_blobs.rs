//! What commands about blobs ask of a running node over gRPC.

use anyhow::Context as _;
use prost::Message as _;
use secateur_core::Height;
use secateur_proto::ERROR_TRAILER;
use secateur_proto::sidecar::v1 as proto;
use secateur_sidecar::engine::BlobKey;
use tonic::{Code, Status};

use super::blobs::{FetchedBlob, PAGE, RecordsPage, Step};
use super::remote::{Remote, SidecarCalls};
use crate::error::NodeError;

impl Remote {
    /// Makes one call about blobs.
    fn about_blobs<A, F>(&self, call: impl FnOnce(SidecarCalls) -> F) -> Result<A, anyhow::Error>
    where
        F: Future<Output = Result<tonic::Response<A>, Status>>,
    {
        let answered = self.block_on(call(self.sidecar()));
        answered.map(tonic::Response::into_inner).map_err(|status| {
            let text = status.message().to_owned();
            match (status.code(), label(&status).as_deref()) {
                (_, Some("no_copy" | "provider")) => NodeError::Archive(text).into(),
                (Code::OutOfRange, _) => NodeError::Pruned(text).into(),
                (Code::Unimplemented, _) => NodeError::NoBlobs(self.path().to_path_buf()).into(),
                _ => self.explain(&status),
            }
        })
    }

    pub(super) fn prune_blobs(&self, before: Option<Height>) -> Result<Step, anyhow::Error> {
        let request = proto::PruneBlobsRequest { before };
        let answer =
            self.about_blobs(|mut calls| async move { calls.prune_blobs(request).await })?;
        Ok(Step {
            heights: answer.heights,
            blobs: answer.blobs,
            bytes: answer.bytes,
            failures: answer.failures,
            first: answer.first,
            last: answer.last,
            held: answer.first_held.map(|height| (height, answer.hold)),
            more: answer.more,
        })
    }

    pub(super) fn retry_blobs(&self, height: Height) -> Result<u64, anyhow::Error> {
        let request = proto::RetryRequest { height };
        Ok(self.about_blobs(|mut calls| async move { calls.retry(request).await })?.blobs)
    }

    pub(super) fn rebroadcast(&self, height: Height) -> Result<u64, anyhow::Error> {
        let request = proto::RebroadcastRequest { height };
        Ok(self.about_blobs(|mut calls| async move { calls.rebroadcast(request).await })?.notices)
    }

    pub(super) fn fetch_blob(
        &self,
        height: Height,
        index: u32,
    ) -> Result<FetchedBlob, anyhow::Error> {
        let request = proto::FetchRequest { height, index };
        let blob = self.about_blobs(|mut calls| async move { calls.fetch(request).await })?;
        let hex = alloy_primitives::hex::encode_prefixed;
        Ok(FetchedBlob {
            commitment: hex(&blob.kzg_commitment),
            versioned_hash: hex(&blob.versioned_hash),
            keccak: hex(&blob.blob_keccak),
            blob: blob.blob,
        })
    }

    pub(super) fn blob_records(&self, from: BlobKey) -> Result<RecordsPage, anyhow::Error> {
        #[derive(serde::Deserialize)]
        struct Answer {
            records: Vec<serde_json::Value>,
            next: Option<String>,
        }
        let BlobKey { height, index } = from;
        let route = format!("/v1/blobs/records?from={height}:{index}&limit={PAGE}");
        let Answer { records, next } = self.get(&route)?;
        let next = next.map(|text| key(&text)).transpose()?;
        Ok(RecordsPage { records, next })
    }
}

/// The word for the kind of an error, where the node says it.
fn label(status: &Status) -> Option<String> {
    let details = status.metadata().get_bin(ERROR_TRAILER)?.to_bytes().ok()?;
    Some(proto::SidecarError::decode(details).ok()?.label)
}

/// `<height>:<index>`, as a page says where the next one begins.
fn key(text: &str) -> Result<BlobKey, anyhow::Error> {
    let (height, index) = text.split_once(':').context("the next page is not named")?;
    let unreadable = "the next page's name cannot be read";
    let height = height.parse().context(unreadable)?;
    Ok(BlobKey { height, index: index.parse().context(unreadable)? })
}
