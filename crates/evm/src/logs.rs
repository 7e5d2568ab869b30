//! The events of generated transactions: ERC-20 transfers and approvals, and one event of our own.

use alloy_primitives::{Address, B256, Log, LogData, U256, keccak256};

/// The first topics of the events a chain has.
pub(super) struct Events {
    transfer: B256,
    approval: B256,
    order_filled: B256,
}

impl Events {
    /// Hashes the signatures of the events once.
    pub(super) fn new() -> Self {
        Self {
            transfer: keccak256("Transfer(address,address,uint256)"),
            approval: keccak256("Approval(address,address,uint256)"),
            order_filled: keccak256("OrderFilled(bytes32,address,address,uint256,uint256)"),
        }
    }

    /// `Transfer(from indexed, to indexed, amount)`
    pub(super) fn transfer(&self, token: Address, from: Address, to: Address, amount: U256) -> Log {
        let topics = vec![self.transfer, from.into_word(), to.into_word()];
        log(token, topics, &[amount])
    }

    /// `Approval(owner indexed, spender indexed, amount)`
    pub(super) fn approval(
        &self,
        token: Address,
        owner: Address,
        spender: Address,
        amount: U256,
    ) -> Log {
        let topics = vec![self.approval, owner.into_word(), spender.into_word()];
        log(token, topics, &[amount])
    }

    /// `OrderFilled(order indexed, maker indexed, taker indexed, sold, bought)`
    pub(super) fn order_filled(
        &self,
        router: Address,
        order: B256,
        parties: (Address, Address),
        amounts: [U256; 2],
    ) -> Log {
        let (maker, taker) = parties;
        let topics = vec![self.order_filled, order, maker.into_word(), taker.into_word()];
        log(router, topics, &amounts)
    }
}

fn log(address: Address, topics: Vec<B256>, words: &[U256]) -> Log {
    let data: Vec<u8> = words.iter().flat_map(U256::to_be_bytes::<32>).collect();
    // "Unchecked" speaks of the number of topics, of which no event above has more than four.
    let data = LogData::new_unchecked(topics, data.into());
    Log { address, data }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_has_the_topic_that_every_indexer_looks_for() {
        let [token, from, to] = [1, 2, 3].map(Address::with_last_byte);
        let log = Events::new().transfer(token, from, to, U256::from(5));
        let known = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
        assert_eq!(log.topics()[0].to_string(), known);
        assert_eq!(log.topics()[1..], [from.into_word(), to.into_word()]);
        assert_eq!(log.data.data[..], U256::from(5).to_be_bytes::<32>());
    }
}
