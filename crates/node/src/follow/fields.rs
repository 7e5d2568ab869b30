//! The names that a block has in JSON-RPC, to tell those that nobody here knows.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::envelope::shown;

/// So many unknown names are told.
const MOST_TOLD: usize = 8;

/// Everything that is read, and what is known to be no part of a header.
const KNOWN: [&str; 31] = [
    "baseFeePerGas",
    "blobGasUsed",
    "blockAccessListHash",
    "blockHash",
    "blockNumber",
    "difficulty",
    "excessBlobGas",
    "extraData",
    "gasLimit",
    "gasUsed",
    "hash",
    "logsBloom",
    "miner",
    "mixHash",
    "nonce",
    "number",
    "parentBeaconBlockRoot",
    "parentHash",
    "receiptsRoot",
    "requestsHash",
    "sha3Uncles",
    "size",
    "slotNumber",
    "stateRoot",
    "timestamp",
    "totalDifficulty",
    "transactions",
    "transactionsRoot",
    "uncles",
    "withdrawals",
    "withdrawalsRoot",
];

/// The names in a block that are not known, a few of them.
pub(super) fn unknown(raw: &[u8]) -> Vec<String> {
    let named = serde_json::from_slice::<BTreeMap<String, &RawValue>>(raw).unwrap_or_default();
    let unknown = named.into_keys().filter(|name| !KNOWN.contains(&name.as_str()));
    unknown.take(MOST_TOLD).map(|name| shown(&name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_nobody_knows_are_told() {
        assert_eq!(unknown(br#"{"hash":"0x1","futureRoot":{"a":[1]},"size":1}"#), ["futureRoot"]);
        assert!(unknown(b"[1]").is_empty());
    }
}
