//! The cast of a generated chain: senders with their keys, and the addresses they deal with.
//!
//! The cast is small on purpose: the same few tokens, traders and holders come back in block after
//! block, so that the history of an address is worth asking for.

use alloy_primitives::{Address, B256, Signature};
use k256::ecdsa::SigningKey;

use crate::EvmError;
use crate::seeded::Seeded;

const SENDERS: usize = 24;
const HOLDERS: usize = 160;
const TOKENS: usize = 12;
const ROUTERS: usize = 4;
const BUILDERS: usize = 5;

/// An account that signs.
pub(super) struct Account {
    place: usize,
    key: SigningKey,
    /// Where its transactions come from.
    pub(super) address: Address,
}

impl Account {
    fn new(seed: u64, place: usize) -> Result<Self, EvmError> {
        let secret = Seeded::new(seed, "key", place as u64).word();
        let key = SigningKey::from_slice(secret.as_slice()).map_err(|source| {
            let account = place;
            EvmError::Signing { account, source }
        })?;
        let address = Address::from_private_key(&key);
        Ok(Self { place, key, address })
    }

    /// Signs a transaction's signing hash. The nonce of the signature is derived from key and
    /// hash (RFC 6979), so the same transaction always gets the same signature.
    pub(super) fn sign(&self, hash: &B256) -> Result<Signature, EvmError> {
        let signed = self.key.sign_prehash_recoverable(hash.as_slice());
        signed.map(Signature::from).map_err(|source| {
            let account = self.place;
            EvmError::Signing { account, source }
        })
    }
}

/// Everybody who appears in a chain.
pub(super) struct Pool {
    /// Who signs, in the order of the schedule.
    pub(super) senders: Vec<Account>,
    /// Who receives: the senders, and some who never send.
    pub(super) holders: Vec<Address>,
    /// Contracts whose logs look like those of an ERC-20 token.
    pub(super) tokens: Vec<Address>,
    /// Contracts that move several tokens in one call.
    pub(super) routers: Vec<Address>,
    /// Who is paid for blocks.
    pub(super) builders: Vec<Address>,
}

impl Pool {
    /// The cast that belongs to `seed`.
    pub(super) fn new(seed: u64) -> Result<Self, EvmError> {
        let senders: Vec<Account> =
            (0..SENDERS).map(|place| Account::new(seed, place)).collect::<Result<_, _>>()?;
        let mut holders: Vec<Address> = senders.iter().map(|sender| sender.address).collect();
        holders.extend(addresses(seed, "holders", HOLDERS));
        Ok(Self {
            senders,
            holders,
            tokens: addresses(seed, "tokens", TOKENS),
            routers: addresses(seed, "routers", ROUTERS),
            builders: addresses(seed, "builders", BUILDERS),
        })
    }
}

fn addresses(seed: u64, purpose: &str, count: usize) -> Vec<Address> {
    let mut draws = Seeded::new(seed, purpose, 0);
    (0..count).map(|_| draws.address()).collect()
}
