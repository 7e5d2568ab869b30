//! A seeded EVM chain, and the check that any EVM block must pass.
//!
//! What lives here: [`Generator`], which makes block `n` of a chain from a [`ChainSpec`] alone, and
//! [`Decoder`], which takes a block's three payloads apart and checks as much of it as is asked for;
//! [`verify_block`] recomputes everything its header promises; [`KasaneBlock`] is the same for a chain whose
//! blocks have another form. Transactions are really signed, roots and blooms are really computed, nonces run on
//! from block to block, and every block stands on the hash of the one below it.
//!
//! What deliberately does not: an EVM. Nothing is executed, so a generated state root is seeded
//! bytes, balances are never looked at, and whether a call succeeds is drawn by lot. No clock, no
//! disk and no network either: the same spec gives the same bytes on any machine at any time.

mod action;
mod data;
mod decode;
mod draft;
mod error;
mod gas;
mod generator;
mod header;
mod kasane;
mod logs;
mod pool;
mod schedule;
mod seeded;
mod spec;
#[cfg(test)]
mod tests;
mod verify;
#[cfg(test)]
mod verify_tests;

pub use decode::{DecodedBlock, Decoder, Verify};
pub use error::EvmError;
pub use generator::Generator;
pub use header::verify_header;
pub use kasane::{KasaneBlock, KasaneTx};
pub use spec::ChainSpec;
pub use verify::{VerifiedCounts, verify_block, verify_roots};

use alloy_consensus::{EthereumTxEnvelope, EthereumTypedTransaction, TxEip4844};

/// A signed transaction as a block holds it: a blob transaction without its blobs.
pub type SignedTx = EthereumTxEnvelope<TxEip4844>;
/// The same before it is signed.
type UnsignedTx = EthereumTypedTransaction<TxEip4844>;
/// A whole block in consensus form.
pub type EvmBlock = alloy_consensus::Block<SignedTx>;
