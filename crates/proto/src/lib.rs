//! Secateur's gRPC interfaces, as `proto/` describes them: messages, clients, servers.
//!
//! Everything here is generated; the comments are in the `.proto` files. What deliberately does not
//! live here: any conversion to the vocabulary of `secateur-core`, which whoever serves or asks does
//! for itself.
#![allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated code is judged by its generator"
)]

/// Cursor export.
pub mod export {
    /// Polling, fixed wire.
    pub mod v1 {
        tonic::include_proto!("secateur.export.v1");
    }
    /// Streaming.
    pub mod v2 {
        tonic::include_proto!("secateur.export.v2");
    }
}

/// The history store.
pub mod history {
    /// Lookups and administration.
    pub mod v1 {
        tonic::include_proto!("secateur.history.v1");
    }
}

/// Blob sidecars.
pub mod sidecar {
    /// Archive notices between nodes.
    pub mod v1 {
        tonic::include_proto!("secateur.sidecar.v1");
    }
}

/// UTXO records and their pruner.
pub mod utxo {
    /// Events, prunes and feeding.
    pub mod v1 {
        tonic::include_proto!("secateur.utxo.v1");
    }
}

/// The parts of a Teranode-shaped node that a UTXO pruner speaks with.
pub mod teranode {
    /// What happens on the chain.
    pub mod blockchain {
        tonic::include_proto!("blockchain_api");
    }
    /// What block assembly is doing.
    pub mod blockassembly {
        tonic::include_proto!("blockassembly_api");
    }
    /// How such a node asks for our health.
    pub mod pruner {
        tonic::include_proto!("pruner");
    }
}

/// What reflection and tests know of every service that we serve: an encoded `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The trailer that carries the details of an error, encoded as the package's error message.
pub const ERROR_TRAILER: &str = "secateur-error-bin";
