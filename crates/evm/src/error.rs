//! The one error of this module: a spec that is refused, or a block that does not hold together.

use alloy_consensus::crypto::RecoveryError;
use alloy_eips::eip2718::Eip2718Error;
use secateur_core::{BlockHash, CoreError, Height, TxId};

/// Why a block could not be made, or why one was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvmError {
    /// A chain spec outside its limits.
    #[error("chain spec refused: {field} is {value}; {wanted}")]
    Spec {
        /// The setting.
        field: &'static str,
        /// What it was set to.
        value: u64,
        /// What would be accepted.
        wanted: String,
    },
    /// A height so large that a number of its block does not fit its field.
    #[error("block {height} cannot be made: its {what} does not fit 64 bits")]
    HeightOutOfRange {
        /// The height asked for.
        height: Height,
        /// The field that overflows.
        what: &'static str,
    },
    /// A genesis block asked for on top of another block.
    #[error("block 0 stands on nothing, yet {parent} was given as its parent")]
    GenesisParent {
        /// The parent that was given.
        parent: BlockHash,
    },
    /// A seed that gives an account no usable key, or a key that does not sign.
    #[error("account {account} cannot sign: {source}")]
    Signing {
        /// The account's place among the senders.
        account: usize,
        /// What the curve library says.
        source: k256::ecdsa::Error,
    },
    /// A payload that is not framed as Secateur frames payloads.
    #[error(transparent)]
    Payload(#[from] CoreError),
    /// A block payload that is not an RLP block.
    #[error("the block payload is not an RLP block: {0}")]
    BlockRlp(alloy_rlp::Error),
    /// A receipt that is not an EIP-2718 receipt with its bloom.
    #[error("receipt {index} does not decode: {source}")]
    Receipt {
        /// The receipt's place in the block.
        index: usize,
        /// What is wrong with it.
        source: Eip2718Error,
    },
    /// Bytes that decode, but are not the one encoding of what they decode to.
    #[error("{what} decodes, but encodes to other bytes")]
    NotCanonical {
        /// The thing that was read.
        what: String,
    },
    /// Two statements of the same thing that differ.
    #[error("the {what} is stated as {stated}, but is {computed}")]
    Mismatch {
        /// The thing they speak of.
        what: &'static str,
        /// What the block says.
        stated: String,
        /// What it comes to.
        computed: String,
    },
    /// A bloom that is not the bloom of the logs below it.
    #[error("the logs bloom of {of} is not the bloom of its logs")]
    Bloom {
        /// The header, or a receipt.
        of: String,
    },
    /// A payload with another number of entries than the block has transactions.
    #[error("the {what} has {found} entries; the block has {transactions} transactions")]
    Count {
        /// The payload.
        what: &'static str,
        /// Its entries.
        found: usize,
        /// The block's transactions.
        transactions: usize,
    },
    /// An entry that names another transaction than the one in its place.
    #[error("entry {index} of the {what} names {found}; transaction {index} is {wanted}")]
    TxId {
        /// The payload.
        what: &'static str,
        /// The entry's place.
        index: usize,
        /// The id it names.
        found: TxId,
        /// The id of the transaction in that place.
        wanted: TxId,
    },
    /// An index entry that points to another place than its own.
    #[error("entry {index} of the tx_index payload points to block {height}, place {place}")]
    Place {
        /// The entry's place.
        index: usize,
        /// The height it points to.
        height: Height,
        /// The place it points to.
        place: u32,
    },
    /// A receipt of another type than its transaction.
    #[error("receipt {index} is of type {found}; its transaction is of type {wanted}")]
    ReceiptType {
        /// The receipt's place.
        index: usize,
        /// Its EIP-2718 type.
        found: u8,
        /// The transaction's type.
        wanted: u8,
    },
    /// A transaction that used no gas, or more than it allowed.
    #[error("transaction {index} used {used} gas of a limit of {limit}")]
    GasUsed {
        /// The transaction's place.
        index: usize,
        /// The gas between its receipt and the one before it; zero if the total went down.
        used: u64,
        /// The most its sender allowed.
        limit: u64,
    },
    /// A transaction signed for another chain.
    #[error("transaction {index} is signed for chain {found}; this is chain {wanted}")]
    ChainId {
        /// The transaction's place.
        index: usize,
        /// The chain it names.
        found: u64,
        /// The chain the block is of.
        wanted: u64,
    },
    /// A signature that nobody made, or one with a high `s`.
    #[error("the sender of transaction {index} cannot be recovered: {source}")]
    Signature {
        /// The transaction's place.
        index: usize,
        /// What is wrong with the signature.
        source: RecoveryError,
    },
}
