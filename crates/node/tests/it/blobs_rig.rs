//! What the tests of blob sidecars share: validators with keys, configurations, a node with
//! clients, and waiting until something is so.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use secateur_proto::ERROR_TRAILER;
use secateur_proto::sidecar::v1::gossip_client::GossipClient;
use secateur_proto::sidecar::v1::proposal_part::Part;
use secateur_proto::sidecar::v1::sidecar_client::SidecarClient;
use secateur_proto::sidecar::v1::{self as pb};
use secateur_sidecar::notice::{NoticeKey, keygen};
use secateur_sidecar::{Proposal, ValidatorId, testdata};
use serde_json::Value;
use tonic::Status;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Endpoint;

use crate::grpc::{Bearer, Secured};
use crate::http_client::get;
use crate::node::Node;

/// The chain of these tests.
pub const CHAIN: u64 = 7;
/// Nothing that is waited for takes longer, even on a machine with much to do.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// A validator with its key in a file.
#[derive(Debug)]
pub struct Validator {
    pub id: ValidatorId,
    pub file: PathBuf,
    pub key: NoticeKey,
}

impl Validator {
    pub fn new(place: &Path, name: u8) -> Self {
        let file = place.join(format!("key-{name}"));
        let key = keygen(&file).unwrap();
        Self { id: ValidatorId::new(&[name; 20]).unwrap(), file, key }
    }

    /// Its entry in `sidecar.validators`.
    pub fn entry(&self) -> String {
        let (id, key) = (&self.id, self.key.public_key());
        format!("[[sidecar.validators]]\nid = \"{id}\"\npublic_key = \"{key}\"\n")
    }

    /// What a node says that is this validator.
    pub fn is_me(&self) -> String {
        format!("identity = \"{}\"\nkey_file = \"{}\"\n", self.id, self.file.display())
    }
}

/// Settings of a node with these keys in `[sidecar]`, a directory for copies and these validators.
pub fn settings(place: &Path, keys: &str, validators: &[&Validator]) -> String {
    let copies = place.join("copies");
    let places = format!(
        "[[sidecar.providers]]\nkind = \"fs\"\nname = \"local\"\npath = \"{}\"\n",
        copies.display()
    );
    settings_with(keys, validators, &places)
}

/// The same, with these places for copies.
pub fn settings_with(keys: &str, validators: &[&Validator], places: &str) -> String {
    let entries: String = validators.iter().map(|one| one.entry()).collect();
    format!("[chain]\nid = {CHAIN}\n[sidecar]\nenabled = true\n{keys}\n{entries}{places}")
}

/// A file that only its owner may read.
pub fn write_private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// A node that keeps blobs.
#[derive(Debug)]
pub struct BlobNode {
    pub node: Node,
    pub blobs: SidecarClient<Secured>,
    pub gossip: GossipClient<Secured>,
}

impl BlobNode {
    /// Starts one on a directory with these settings.
    pub async fn start(data: &Path, settings: &str) -> Self {
        let file = data.with_extension("toml");
        std::fs::write(&file, settings).unwrap();
        let node = Node::start(data, &format!("--config {}", file.display()));
        let endpoint = Endpoint::from_shared(format!("http://{}", node.grpc)).unwrap();
        let channel = endpoint.connect().await.unwrap();
        let bearer = Bearer::showing(&node.token);
        let secured = InterceptedService::new(channel, bearer);
        let most = 64 << 20;
        Self {
            blobs: SidecarClient::new(secured.clone()).max_decoding_message_size(most),
            gossip: GossipClient::new(secured),
            node,
        }
    }

    pub async fn stop(self) {
        let node = self.node;
        tokio::task::spawn_blocking(|| node.stop()).await.unwrap();
    }

    /// Stores a proposal as an undecided round.
    pub async fn propose(&self, parts: Vec<pb::ProposalPart>) -> Result<bool, Status> {
        let stored = self.blobs.clone().store_proposal(tokio_stream::iter(parts)).await?;
        Ok(stored.into_inner().known)
    }

    /// Stores a height that is decided.
    pub async fn decide(&self, parts: Vec<pb::ProposalPart>) -> Result<bool, Status> {
        let stored = self.blobs.clone().store_decided(tokio_stream::iter(parts)).await?;
        Ok(stored.into_inner().known)
    }

    pub async fn finalize(&self, height: u64) {
        let request = pb::SetBlobsFinalizedRequest { height };
        let answer = self.blobs.clone().set_finalized(request).await.unwrap().into_inner();
        assert!(answer.finalized >= height);
    }

    /// The bytes of a height's blobs.
    pub async fn blobs(&self, height: u64) -> Result<Vec<pb::Blob>, Status> {
        let request = pb::GetBlobsRequest { height, indexes: Vec::new() };
        let mut stream = self.blobs.clone().get_blobs(request).await?.into_inner();
        let mut blobs = Vec::new();
        while let Some(blob) = stream.message().await? {
            blobs.push(blob);
        }
        Ok(blobs)
    }

    pub fn summary(&self) -> Value {
        get(&self.node, "/v1/blobs").is(200).json()
    }

    pub fn status(&self, height: u64) -> Value {
        get(&self.node, &format!("/v1/blobs/{height}")).is(200).json()
    }

    /// Waits until every blob of a height is in this state.
    pub async fn until(&self, height: u64, state: &str) -> Value {
        let ends = Instant::now() + PATIENCE;
        loop {
            let status = self.status(height);
            let blobs = status["blobs"].as_array().unwrap();
            if blobs.iter().all(|blob| blob["state"] == state) {
                return status;
            }
            assert!(Instant::now() < ends, "height {height} is not {state}: {status:#}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A number of `/metrics`.
    pub fn metric(&self, name: &str) -> f64 {
        self.sample(name).unwrap_or_else(|page| panic!("no {name} in\n{page}"))
    }

    /// The same, or the page in which it is not.
    pub fn sample(&self, name: &str) -> Result<f64, String> {
        let page = get(&self.node, "/metrics").is(200);
        let page = String::from_utf8(page.body).unwrap();
        let line = page
            .lines()
            .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
        let Some(line) = line else { return Err(page) };
        Ok(line.rsplit(' ').next().unwrap().parse().unwrap())
    }
}

/// Blobs of the pool, proposed for a height.
pub fn proposal(height: u64, proposer: &ValidatorId, blobs: &[usize]) -> Proposal {
    testdata::proposal(height, 0, proposer, blobs)
}

/// A proposal as it is sent.
pub fn parts(proposal: &Proposal) -> Vec<pb::ProposalPart> {
    let part = |part| pb::ProposalPart { part: Some(part) };
    let head = pb::ProposalHead {
        height: proposal.height,
        round: proposal.round,
        proposer: Bytes::copy_from_slice(proposal.proposer.as_bytes()),
        payload_header: proposal.payload_header.clone(),
        signed_header: proposal.signed_header.clone().unwrap_or_default(),
    };
    let mut parts = vec![part(Part::Head(head))];
    for sidecar in &proposal.sidecars {
        let hashes = sidecar.inclusion.iter().flat_map(|inclusion| &inclusion.proof);
        parts.push(part(Part::Sidecar(pb::BlobSidecar {
            index: sidecar.index,
            blob: sidecar.blob.clone(),
            kzg_commitment: Bytes::copy_from_slice(&sidecar.commitment.0),
            kzg_proof: sidecar.proof.map(|p| Bytes::copy_from_slice(&p.0)).unwrap_or_default(),
            inclusion_proof: hashes.map(|hash| Bytes::copy_from_slice(hash)).collect(),
        })));
    }
    parts
}

/// The details of an error.
#[track_caller]
pub fn details(status: &Status) -> pb::SidecarError {
    let trailer = status.metadata().get_bin(ERROR_TRAILER);
    let trailer = trailer.unwrap_or_else(|| panic!("no details in {status:?}"));
    pb::SidecarError::decode(trailer.to_bytes().unwrap()).unwrap()
}
