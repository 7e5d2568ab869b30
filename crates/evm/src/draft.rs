//! One transaction and what came of it, drawn before it is signed.

use alloy_consensus::{TxEip1559, TxEip2930, TxLegacy, TxType};
use alloy_eips::eip2930::{AccessList, AccessListItem};
use alloy_primitives::{Address, Log};

use crate::action::{Action, Context};
use crate::seeded::Seeded;
use crate::{UnsignedTx, gas};

const GWEI: u64 = 1_000_000_000;

/// A transaction that is ready to be signed, and its outcome.
pub(super) struct Draft {
    /// The transaction.
    pub(super) tx: UnsignedTx,
    /// The gas it used.
    pub(super) gas_used: u64,
    /// Whether it succeeded.
    pub(super) success: bool,
    /// The logs it left.
    pub(super) logs: Vec<Log>,
}

/// What a sender offers besides the action itself.
struct Terms {
    tx_type: TxType,
    chain_id: u64,
    nonce: u64,
    gas_limit: u64,
    access_list: AccessList,
}

impl Draft {
    /// Draws what `sender` does with its nonce `nonce`.
    pub(super) fn draw(
        draws: &mut Seeded,
        context: &mut Context<'_>,
        sender: Address,
        nonce: u64,
    ) -> Self {
        let mut action = Action::draw(draws, context, sender, nonce);
        let tx_type = match draws.below(10) {
            0..7 => TxType::Eip1559,
            7 => TxType::Eip2930,
            _ => TxType::Legacy,
        };
        let access_list = draw_access_list(draws, tx_type, &action);
        let success = !(action.runs && draws.chance(1, 25));
        let mut gas_used = gas::intrinsic(action.to, &action.input, &access_list);
        if action.runs {
            gas_used += draws.between(2_000, gas::MAX_EXECUTION);
        }
        // Senders allow a little more than is used; one that failed ran out of what it allowed.
        let spare = if success { gas_used / 4 } else { 0 };
        let logs = std::mem::take(&mut action.logs);
        let terms = Terms {
            tx_type,
            chain_id: context.chain_id,
            nonce,
            gas_limit: gas_used + draws.below(spare),
            access_list,
        };
        Self {
            tx: unsigned(draws, action, terms),
            gas_used,
            success,
            logs: if success { logs } else { Vec::new() },
        }
    }
}

/// Lists the contracts that leave logs, in transactions that have a use for a list: EIP-2930 ones
/// always, EIP-1559 ones sometimes, legacy ones never. A plain transfer has nothing to list.
fn draw_access_list(draws: &mut Seeded, tx_type: TxType, action: &Action) -> AccessList {
    let listed = match tx_type {
        TxType::Eip2930 => true,
        TxType::Eip1559 => draws.chance(1, 10),
        _ => false,
    };
    let touched = action.logs.iter().map(|log| log.address);
    let items = touched.take(if listed { 3 } else { 0 }).map(|address| AccessListItem {
        address,
        storage_keys: (0..draws.between(1, 3)).map(|_| draws.word()).collect(),
    });
    AccessList(items.collect())
}

fn unsigned(draws: &mut Seeded, action: Action, terms: Terms) -> UnsignedTx {
    let price = u128::from(draws.between(GWEI, 40 * GWEI));
    let tip = u128::from(draws.between(GWEI / 10, GWEI));
    match terms.tx_type {
        TxType::Eip1559 => UnsignedTx::Eip1559(TxEip1559 {
            chain_id: terms.chain_id,
            nonce: terms.nonce,
            gas_limit: terms.gas_limit,
            max_fee_per_gas: price,
            max_priority_fee_per_gas: tip,
            to: action.to,
            value: action.value,
            access_list: terms.access_list,
            input: action.input,
        }),
        TxType::Eip2930 => UnsignedTx::Eip2930(TxEip2930 {
            chain_id: terms.chain_id,
            nonce: terms.nonce,
            gas_price: price,
            gas_limit: terms.gas_limit,
            to: action.to,
            value: action.value,
            access_list: terms.access_list,
            input: action.input,
        }),
        _ => UnsignedTx::Legacy(TxLegacy {
            chain_id: Some(terms.chain_id),
            nonce: terms.nonce,
            gas_price: price,
            gas_limit: terms.gas_limit,
            to: action.to,
            value: action.value,
            input: action.input,
        }),
    }
}
