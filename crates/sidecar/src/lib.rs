//! Blob sidecars: bytes that a chain needs for a while, an archive that keeps them, and notices by
//! which validators tell each other so.
//!
//! What lives here: the engine that stores and prunes blobs, their verification, signed notices,
//! archive providers, the archiver, the gossip seam and the pruner. What deliberately does not:
//! interfaces and configuration, which are the node's; the ground, which is the store's.

pub mod announcer;
mod anteroom;
pub mod archiver;
mod blocking;
pub mod book;
pub mod compat;
pub mod copies;
pub mod engine;
mod error;
pub mod gossip;
mod keccak;
pub mod kzg;
pub mod metrics;
pub mod notice;
mod own;
pub mod provider;
pub mod pruner;
pub mod reader;
mod sabotage;
mod secret;
pub mod service;
mod standin;
pub mod testdata;
mod types;

pub use engine::{EngineConfig, SidecarStore};
pub use error::SidecarError;
pub use sabotage::Sabotage;
pub use types::{
    BLOB_LEN, BlobKeccak, BlobState, Commitment, DEFAULT_MAX_BLOBS, Inclusion, MAX_BLOBS,
    MAX_INCLUSION_LEN, MAX_ROUND_HEADER_LEN, Proof, Proposal, PublicKey, Round, Sidecar, Trust,
    ValidatorId, VersionedHash,
};
