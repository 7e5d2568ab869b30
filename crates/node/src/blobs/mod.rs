//! A node's blob sidecars: their store in the data directory, the parts that the configuration
//! names, and the running whole.
//!
//! What lives here: opening `sidecars/` ([`open`]), the providers, the key and the validators of
//! the configuration (`parts`), everything put together and running ([`Blobs`]), what is counted
//! (`counts`), what blobs are held by when no node runs (`rules`), what every interface tells of
//! them (`told`), beacon headers (`header`). What deliberately does not: any rule about blobs and
//! notices, which is `secateur-sidecar`'s, and the words of the interfaces, which are in `grpc`,
//! `http` and `rpc`.

mod counts;
pub(crate) mod header;
mod open;
mod parts;
mod proofs;
mod rules;
mod run;
mod told;

pub(crate) use open::{DiskSidecars, open, open_at, open_existing_at};
pub(crate) use parts::{check_providers, identity, providers, verifier};
pub(crate) use run::{Blobs, proof_bytes};
pub(crate) use told::Told;
