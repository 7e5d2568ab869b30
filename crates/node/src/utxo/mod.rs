//! UTXO records in this process: where they are, how they are opened whatever the database is, and the
//! service over them.
//!
//! What deliberately does not live here: what is kept and what goes, which is `secateur-utxo`'s; the
//! words of the interfaces, which are in `grpc::utxo`; flags and configuration, which are `config`'s.

mod board;
pub(crate) mod http;
mod open;
mod place;
mod serve;

pub(crate) use open::{Opened, Opening, open};
pub(crate) use place::{DIRECTORY, Place, directory};
pub(crate) use serve::{Addresses, serve};
