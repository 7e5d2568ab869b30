//! Transactions of every kind, signed by one of anvil's accounts.

use alloy_consensus::transaction::RlpEcdsaEncodableTx;
use alloy_consensus::{
    SignableTransaction, TxEip1559, TxEip2930, TxEip4844, TxEip4844WithSidecar, TxEip7702, TxLegacy,
};
use alloy_eips::Typed2718;
use alloy_eips::eip2718::Encodable2718;
use alloy_eips::eip2930::{AccessList, AccessListItem};
use alloy_eips::eip4844::{Blob, BlobTransactionSidecar, kzg_to_versioned_hash};
use alloy_eips::eip7702::Authorization;
use alloy_primitives::{Address, B256, Bytes, Signature, TxKind, U256, hex};
use k256::ecdsa::SigningKey;
use secateur_sidecar::testdata;
use serde_json::json;

use crate::anvil::Anvil;

/// The first two keys of anvil's well-known phrase; they are worth nothing anywhere else.
const KEY: [u8; 32] = hex!("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80");
const OTHER: [u8; 32] = hex!("59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d");
const CHAIN: u64 = 31337;
const GWEI: u128 = 1_000_000_000;

/// Creation code of a contract that leaves two logs, and then reverts if it was given data.
const LOGGER: [u8; 39] = hex!(
    "601b600c600039601b6000f3"
    "60016020 6000a1 6003600260206000a2 3660155700 5b60006000fd"
);

/// An account and its next nonce.
#[derive(Debug)]
pub struct Wallet {
    key: SigningKey,
    nonce: u64,
}

impl Default for Wallet {
    fn default() -> Self {
        Self { key: SigningKey::from_slice(&KEY).unwrap(), nonce: 0 }
    }
}

fn sign(key: &SigningKey, hash: &B256) -> Signature {
    key.sign_prehash_recoverable(hash.as_slice()).unwrap().into()
}

impl Wallet {
    /// The same account, when it has sent so many transactions already.
    pub fn at(nonce: u64) -> Self {
        Self { nonce, ..Self::default() }
    }

    fn address(&self) -> Address {
        Address::from_private_key(&self.key)
    }

    fn next(&mut self) -> u64 {
        self.nonce += 1;
        self.nonce - 1
    }

    /// Hands a transaction to anvil; it waits there for the next block.
    fn send<T>(&self, anvil: &Anvil, tx: T)
    where
        T: SignableTransaction<Signature> + RlpEcdsaEncodableTx + Typed2718 + Send + Sync,
    {
        let signature = sign(&self.key, &tx.signature_hash());
        let raw = tx.into_signed(signature).encoded_2718();
        anvil.ask("eth_sendRawTransaction", &json!([hex::encode_prefixed(raw)]));
    }

    pub fn legacy(&mut self, anvil: &Anvil, value: u64) {
        let nonce = self.next();
        self.send(
            anvil,
            TxLegacy {
                chain_id: Some(CHAIN),
                nonce,
                gas_price: 20 * GWEI,
                gas_limit: 21_000,
                to: TxKind::Call(Address::repeat_byte(0x11)),
                value: U256::from(value),
                input: Bytes::new(),
            },
        );
    }

    pub fn create(&mut self, anvil: &Anvil) -> Address {
        let nonce = self.next();
        self.call(anvil, nonce, TxKind::Create, Bytes::from_static(&LOGGER));
        self.address().create(nonce)
    }

    /// Calls the logger; with data it reverts.
    pub fn log(&mut self, anvil: &Anvil, contract: Address, data: &[u8]) {
        let nonce = self.next();
        self.call(anvil, nonce, TxKind::Call(contract), Bytes::copy_from_slice(data));
    }

    fn call(&self, anvil: &Anvil, nonce: u64, to: TxKind, input: Bytes) {
        let tx = TxEip1559 {
            chain_id: CHAIN,
            nonce,
            gas_limit: 200_000 + 50 * input.len() as u64,
            max_fee_per_gas: 20 * GWEI,
            max_priority_fee_per_gas: GWEI,
            to,
            input,
            ..TxEip1559::default()
        };
        self.send(anvil, tx);
    }

    pub fn with_access_list(&mut self, anvil: &Anvil, contract: Address) {
        let nonce = self.next();
        let item = AccessListItem { address: contract, storage_keys: vec![B256::ZERO] };
        self.send(
            anvil,
            TxEip2930 {
                chain_id: CHAIN,
                nonce,
                gas_price: 20 * GWEI,
                gas_limit: 100_000,
                to: TxKind::Call(contract),
                access_list: AccessList(vec![item]),
                ..TxEip2930::default()
            },
        );
    }

    /// A transaction with one blob of zeros, whose commitment is the point at infinity. It is sent
    /// as blocks hold it, without the blob: anvil would hash a blob into its block, which no chain
    /// does.
    pub fn blob(&mut self, anvil: &Anvil) {
        let mut infinity = [0; 48];
        infinity[0] = 0xc0;
        let tx = TxEip4844 {
            chain_id: CHAIN,
            nonce: self.next(),
            gas_limit: 21_000,
            max_fee_per_gas: 20 * GWEI,
            max_priority_fee_per_gas: GWEI,
            to: Address::repeat_byte(0x22),
            blob_versioned_hashes: vec![kzg_to_versioned_hash(&infinity)],
            max_fee_per_blob_gas: 20 * GWEI,
            ..TxEip4844::default()
        };
        self.send(anvil, tx);
    }

    /// A transaction with real blobs, of the pool, as wallets send it: an anvil that does not
    /// impersonate verifies them and serves them like a beacon node.
    pub fn blobs(&mut self, anvil: &Anvil, which: &[usize]) -> Vec<B256> {
        let pooled: Vec<_> = which.iter().map(|which| testdata::pooled(*which)).collect();
        let of = |commitment: &secateur_sidecar::Commitment| kzg_to_versioned_hash(&commitment.0);
        let hashes: Vec<B256> = pooled.iter().map(|blob| of(&blob.commitment)).collect();
        let tx = TxEip4844 {
            chain_id: CHAIN,
            nonce: self.next(),
            gas_limit: 21_000,
            max_fee_per_gas: 20 * GWEI,
            max_priority_fee_per_gas: GWEI,
            to: Address::repeat_byte(0x22),
            blob_versioned_hashes: hashes.clone(),
            max_fee_per_blob_gas: 20 * GWEI,
            ..TxEip4844::default()
        };
        let sidecar = BlobTransactionSidecar {
            blobs: pooled.iter().map(|blob| Blob::from_slice(&blob.blob)).collect(),
            commitments: pooled.iter().map(|blob| blob.commitment.0.into()).collect(),
            proofs: pooled.iter().map(|blob| blob.proof.0.into()).collect(),
        };
        self.send(anvil, TxEip4844WithSidecar { tx, sidecar });
        hashes
    }

    /// Another account lets its address be a contract.
    pub fn delegate(&mut self, anvil: &Anvil, contract: Address) {
        let key = SigningKey::from_slice(&OTHER).unwrap();
        let authorization =
            Authorization { chain_id: U256::from(CHAIN), address: contract, nonce: 0 };
        let signature = sign(&key, &authorization.signature_hash());
        let tx = TxEip7702 {
            chain_id: CHAIN,
            nonce: self.next(),
            gas_limit: 200_000,
            max_fee_per_gas: 20 * GWEI,
            max_priority_fee_per_gas: GWEI,
            to: Address::from_private_key(&key),
            authorization_list: vec![authorization.into_signed(signature)],
            ..TxEip7702::default()
        };
        self.send(anvil, tx);
    }

    /// Three blocks with every kind of transaction: transfers, a creation, logs, one that fails,
    /// an access list, a blob, a delegation.
    pub fn every_kind(&mut self, anvil: &Anvil) {
        let contract = self.create(anvil);
        self.legacy(anvil, 7);
        anvil.mine(1);
        self.log(anvil, contract, &[]);
        self.log(anvil, contract, &[1, 2, 3]);
        self.with_access_list(anvil, contract);
        self.blob(anvil);
        anvil.mine(1);
        self.delegate(anvil, contract);
        self.legacy(anvil, 8);
        anvil.mine(1);
    }
}
