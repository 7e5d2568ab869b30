//! What generated transactions do: send value, create a contract, call a token, call a router.

use alloy_primitives::{Address, Bytes, Log, TxKind, U256};

use crate::data::{self, Lengths};
use crate::logs::Events;
use crate::pool::Pool;
use crate::seeded::Seeded;

/// What a block's transactions are drawn from.
pub(super) struct Context<'a> {
    /// The chain to sign for.
    pub(super) chain_id: u64,
    /// The cast.
    pub(super) pool: &'a Pool,
    /// The events.
    pub(super) events: &'a Events,
    /// The block's calldata lengths.
    pub(super) lengths: Lengths,
}

/// What a transaction does, and the logs it leaves if it succeeds.
pub(super) struct Action {
    /// Who is called, or that a contract is created.
    pub(super) to: TxKind,
    /// The wei sent along.
    pub(super) value: U256,
    /// The calldata or the creation code.
    pub(super) input: Bytes,
    /// The logs.
    pub(super) logs: Vec<Log>,
    /// Whether code runs at all: a plain transfer takes its intrinsic gas and cannot fail.
    pub(super) runs: bool,
}

impl Action {
    /// Draws what `sender` does with its nonce `nonce`. A large block's batches come first.
    pub(super) fn draw(
        draws: &mut Seeded,
        context: &mut Context<'_>,
        sender: Address,
        nonce: u64,
    ) -> Self {
        if let Some(len) = context.lengths.next_batch() {
            let input = data::batch(draws, len);
            return Self::router_call(draws, context, sender, input);
        }
        match draws.below(20) {
            0..7 => Self::transfer(draws, context),
            7 => Self::create(draws, context, sender.create(nonce), sender),
            8..14 => Self::token_call(draws, context, sender),
            _ => {
                let to = draws.pick(&context.pool.holders);
                let (amount, len) = (amount(draws), context.lengths.ordinary(draws));
                let input = data::call(draws, to, amount, len);
                Self::router_call(draws, context, sender, input)
            }
        }
    }

    fn transfer(draws: &mut Seeded, context: &Context<'_>) -> Self {
        Self {
            to: draws.pick(&context.pool.holders).into(),
            value: amount(draws),
            input: Bytes::new(),
            logs: Vec::new(),
            runs: false,
        }
    }

    /// A new token, whose creation gives its supply to the creator.
    fn create(
        draws: &mut Seeded,
        context: &Context<'_>,
        created: Address,
        creator: Address,
    ) -> Self {
        let supply = amount(draws);
        let len = context.lengths.ordinary(draws);
        let minted = context.events.transfer(created, Address::ZERO, creator, supply);
        Self {
            to: TxKind::Create,
            value: U256::ZERO,
            input: data::initcode(draws, len),
            logs: vec![minted],
            runs: true,
        }
    }

    fn token_call(draws: &mut Seeded, context: &Context<'_>, sender: Address) -> Self {
        let token = draws.pick(&context.pool.tokens);
        let to = draws.pick(&context.pool.holders);
        let amount = amount(draws);
        let log = if draws.chance(1, 4) {
            context.events.approval(token, sender, to, amount)
        } else {
            context.events.transfer(token, sender, to, amount)
        };
        let len = context.lengths.ordinary(draws);
        Self {
            to: token.into(),
            value: U256::ZERO,
            input: data::call(draws, to, amount, len),
            logs: vec![log],
            runs: true,
        }
    }

    /// One token against another, through a router that says so.
    fn router_call(
        draws: &mut Seeded,
        context: &Context<'_>,
        sender: Address,
        input: Bytes,
    ) -> Self {
        let router = draws.pick(&context.pool.routers);
        let maker = draws.pick(&context.pool.holders);
        let (sold, bought) = (amount(draws), amount(draws));
        let events = context.events;
        let mut logs = vec![
            events.transfer(draws.pick(&context.pool.tokens), sender, maker, sold),
            events.transfer(draws.pick(&context.pool.tokens), maker, sender, bought),
            events.order_filled(router, draws.word(), (maker, sender), [sold, bought]),
        ];
        if draws.chance(1, 3) {
            let token = draws.pick(&context.pool.tokens);
            logs.push(events.approval(token, sender, router, U256::ZERO));
        }
        Self { to: router.into(), value: U256::ZERO, input, logs, runs: true }
    }
}

/// An amount of wei or of a token's smallest unit: up to a hundred whole ones of 18 decimals.
fn amount(draws: &mut Seeded) -> U256 {
    U256::from(draws.between(1, 10_000)) * U256::from(10_000_000_000_000_000u64)
}
