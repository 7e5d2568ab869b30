//! Gas: what a transaction costs before a single instruction runs, and how large blocks must be.
//!
//! Nothing is executed, so the gas of execution is drawn; the intrinsic gas in front of it is the
//! real one, so that no transaction uses less than a reader knows it must.

use alloy_eips::eip2930::AccessList;
use alloy_primitives::TxKind;

/// The base fee of every block, in wei. At seven wei a block under its gas target lowers the fee by
/// less than one wei, which rounds to nothing (EIP-1559). With every block under its target the
/// right fee of any block is known without its ancestors.
pub(super) const BASE_FEE: u64 = 7;
/// The gas of a plain transfer of value.
pub(super) const TRANSFER: u64 = 21_000;
/// The most gas a drawn execution takes.
pub(super) const MAX_EXECUTION: u64 = 300_000;

const CREATE: u64 = 32_000;
const INITCODE_WORD: u64 = 2;
const ZERO_BYTE: u64 = 4;
const BYTE: u64 = 16;
const LISTED_ADDRESS: u64 = 2_400;
const LISTED_KEY: u64 = 1_900;
/// More than the access list of any generated transaction costs.
const MAX_ACCESS_LIST: u64 = 40_000;
/// The gas limit of blocks that need no more.
const USUAL_BLOCK_LIMIT: u64 = 60_000_000;

/// What a transaction costs before it runs.
pub(super) fn intrinsic(to: TxKind, input: &[u8], access: &AccessList) -> u64 {
    let of_byte = |byte: &u8| if *byte == 0 { ZERO_BYTE } else { BYTE };
    let data: u64 = input.iter().map(of_byte).sum();
    let create =
        if to.is_create() { CREATE + input.len().div_ceil(32) as u64 * INITCODE_WORD } else { 0 };
    let keys: usize = access.iter().map(|item| item.storage_keys.len()).sum();
    let listed = access.len() as u64 * LISTED_ADDRESS + keys as u64 * LISTED_KEY;
    TRANSFER + data + create + listed
}

/// A block gas limit under which a block of `transactions` transactions and `calldata` bytes stays
/// below its gas target, which is half of the limit.
pub(super) fn block_limit(transactions: u64, calldata: u64) -> u64 {
    let each = TRANSFER + CREATE + MAX_ACCESS_LIST + MAX_EXECUTION;
    let most = transactions * each + calldata * (BYTE + INITCODE_WORD);
    (2 * most).max(USUAL_BLOCK_LIMIT)
}

#[cfg(test)]
mod tests {
    use alloy_eips::eip2930::AccessListItem;
    use alloy_primitives::{Address, B256};

    use super::*;

    #[test]
    fn intrinsic_gas_is_what_the_yellow_paper_and_its_successors_say() {
        let call = TxKind::Call(Address::ZERO);
        let none = AccessList::default();
        assert_eq!(intrinsic(call, &[], &none), 21_000);
        assert_eq!(intrinsic(call, &[0, 1, 2], &none), 21_036);
        assert_eq!(intrinsic(TxKind::Create, &[1; 33], &none), 53_532);
        let listed = AccessList(vec![AccessListItem {
            address: Address::ZERO,
            storage_keys: vec![B256::ZERO; 2],
        }]);
        assert_eq!(intrinsic(call, &[], &listed), 27_200);
    }
}
