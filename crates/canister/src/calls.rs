//! The calls. Each is one message.

#![expect(clippy::needless_pass_by_value, reason = "arguments come decoded, by value")]

use candid::Principal;
use secateur_core::{MAX_EXPORT_BYTES, Segment};
use secateur_store::{Settings, StoreError};
use serde_bytes::{ByteArray, ByteBuf};

use crate::access::{self, consumers_only, controllers_only};
use crate::metrics::counted;
use crate::types::{
    Appended, ArchivePart, Block, BlockHead, BlockMeta, Cursor, Error, ExportReply, KeptBlock,
    MAX_TICK_OPS, Piece, Plan, PruneOutcome, PrunePolicy, PruneStatus, Queued, StopReason,
    Strength, tx_id,
};
use crate::{append as pieces, state, work};

/// What a plan looks at: about ten ticks of the usual size.
const PLAN_OPS: u64 = 50_000;

/// A name of a consumer is no longer than this: the argument comes from outside.
const MAX_NAME: usize = 256;

/// The newest exportable block.
#[ic_cdk::query]
fn get_head() -> Result<Option<u64>, Error> {
    Ok(state::with(|store| Ok(store.get_head()))?)
}

/// One step of the export: at most one block, at most `max_bytes` of it.
#[ic_cdk::query]
fn export_blocks(cursor: Option<Cursor>, max_bytes: u32) -> Result<ExportReply, Error> {
    let cursor = cursor.map(Into::into);
    Ok(state::with(|store| store.export_blocks(cursor, max_bytes))?.into())
}

/// A block by its number.
#[ic_cdk::query]
fn get_block(height: u64) -> Result<KeptBlock, Error> {
    let kept = state::with(|store| {
        let record = store.get_record(height)?;
        let [len, ..] = record.lens;
        let block = if len <= MAX_EXPORT_BYTES {
            Some(ByteBuf::from(store.get_payload(height, Segment::Block)?.1))
        } else {
            None
        };
        Ok(KeptBlock {
            tx_count: record.tx_count,
            payload_lens: record.lens,
            meta: record.meta.into(),
            block,
        })
    })?;
    Ok(kept)
}

/// What names a block: for readers of the export, whose chunks do not tell it.
#[ic_cdk::query]
fn get_block_meta(height: u64) -> Result<BlockMeta, Error> {
    Ok(state::with(|store| store.get_record(height))?.meta.into())
}

/// The receipt of a transaction.
#[ic_cdk::query]
fn get_receipt(id: ByteArray<32>) -> Result<ByteBuf, Error> {
    let receipt = state::with(|store| store.get_receipt(&tx_id(&id)))?;
    if receipt.len() > MAX_EXPORT_BYTES as usize {
        let reason = format!(
            "the receipt has {} bytes, and a reply has at most {MAX_EXPORT_BYTES}: take its block's \
             receipts from export_blocks",
            receipt.len()
        );
        return Err(Error::Limit { reason });
    }
    Ok(ByteBuf::from(receipt))
}

/// The state of the history.
#[ic_cdk::query]
fn get_prune_status() -> Result<PruneStatus, Error> {
    let status = state::with(|store| {
        let (chain_id, policy) = (store.header().chain_id, store.policy());
        Ok(PruneStatus::new(chain_id, policy, work::failures(), store.get_prune_status()?))
    })?;
    Ok(status)
}

/// What a prune would do now, in its first ten messages or so; `MaxOps` says that there would be more.
#[ic_cdk::query]
fn prune_plan() -> Result<Plan, Error> {
    Ok(state::with(|store| store.prune_plan_within(PLAN_OPS))?.into())
}

fn appended(block: &secateur_core::Block) -> Result<Appended, Error> {
    let secateur_store::Appended { head, written } = state::with(|store| store.append(block))?;
    work::follow_up();
    Ok(Appended { head, written })
}

/// Appends a block that fits into this message.
#[ic_cdk::update]
fn append(block: Block) -> Result<Appended, Error> {
    controllers_only()?;
    appended(&block.into())
}

/// Begins a block that comes in pieces; one that was under way is dropped.
#[ic_cdk::update]
fn append_begin(head: BlockHead) -> Result<(), Error> {
    controllers_only()?;
    pieces::begin(head)
}

/// A piece of that block. How much of its payload is here is the answer.
#[ic_cdk::update]
fn append_chunk(piece: Piece) -> Result<u32, Error> {
    controllers_only()?;
    pieces::chunk(&piece)
}

/// Appends the block whose pieces are here.
#[ic_cdk::update]
fn append_commit() -> Result<Appended, Error> {
    controllers_only()?;
    pieces::with_whole(appended)
}

/// Queues a transaction: lookups answer `Pending` until a block includes it.
#[ic_cdk::update]
fn queue_tx(id: ByteArray<32>) -> Result<Queued, Error> {
    controllers_only()?;
    Ok(state::with(|store| store.queue_tx(tx_id(&id)))?.into())
}

/// Takes a transaction out of the queue; whether it was there is the answer.
#[ic_cdk::update]
fn drop_tx(id: ByteArray<32>) -> Result<bool, Error> {
    controllers_only()?;
    Ok(state::with(|store| store.drop_tx(&tx_id(&id)))?)
}

/// Sets the policy.
#[ic_cdk::update]
fn set_prune_policy(policy: PrunePolicy) -> Result<(), Error> {
    controllers_only()?;
    state::with(|store| store.set_prune_policy(policy.try_into()?))?;
    work::arm();
    work::schedule();
    Ok(())
}

/// The kill switch.
#[ic_cdk::update]
fn set_pruning_enabled(enabled: bool) -> Result<(), Error> {
    controllers_only()?;
    state::with(|store| store.set_pruning_enabled(enabled))?;
    work::schedule();
    Ok(())
}

/// Prunes once, whether or not the kill switch is on: so many operations, and at most a tick; 0 is
/// refused. Policy and holds are obeyed. Where a full epoch of ids waits to be sealed that comes first, in a
/// message of its own: then nothing is cut, and `MaxOps` says that the next call goes on.
#[ic_cdk::update]
fn prune_now(max_ops: u64) -> Result<PruneOutcome, Error> {
    controllers_only()?;
    if max_ops == 0 {
        let reason = "max_ops is 0; name how many operations, a policy has its max_ops_per_tick";
        return Err(Error::Refused { what: "prune_now".into(), reason: reason.into() });
    }
    let outcome = state::with(|store| {
        if store.seal_due() && seals(store)? {
            let totals = secateur_core::Totals::default();
            return Ok(PruneOutcome { totals: totals.into(), stop: StopReason::MaxOps });
        }
        // A message has no room for more than a tick.
        let most = store.policy().max_ops_per_tick.min(MAX_TICK_OPS);
        let prune = || store.prune_now(max_ops.min(most));
        let outcome = counted(prune, |outcome| Some(outcome.totals))?;
        Ok(PruneOutcome { totals: outcome.totals.into(), stop: outcome.stop.into() })
    })?;
    // It frees what was cut; what else is due waits for a trigger or a look.
    work::schedule();
    Ok(outcome)
}

/// Seals an epoch; whether it did is the answer. Where there is no room for its run it is not sealed, and
/// its blocks can be cut all the same.
fn seals(store: &state::History) -> Result<bool, StoreError> {
    match store.seal_one() {
        Err(StoreError::DiskFull { .. }) => Ok(false),
        sealed => sealed,
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    if name.len() > MAX_NAME {
        return Err(Error::Invalid { reason: format!("a name has at most {MAX_NAME} bytes") });
    }
    Ok(())
}

/// Registers a consumer, so that nothing is cut before it has it.
#[ic_cdk::update]
fn register_consumer(name: String, strength: Strength) -> Result<(), Error> {
    controllers_only()?;
    check_name(&name)?;
    Ok(state::with(|store| store.register_consumer(&name, strength.into()))?)
}

/// Removes a consumer; whether it was there is the answer.
#[ic_cdk::update]
fn remove_consumer(name: String) -> Result<bool, Error> {
    controllers_only()?;
    let removed = state::with(|store| store.remove_consumer(&name))?;
    work::follow_up();
    Ok(removed)
}

/// Says that a consumer has everything up to a height. What it has now is the answer.
#[ic_cdk::update]
fn ack_exported(name: String, height: u64) -> Result<u64, Error> {
    consumers_only()?;
    let acked = state::with(|store| store.ack_exported(&name, height))?;
    work::follow_up();
    Ok(acked)
}

/// Notes an archive part for ever: the archive hold moves as far as parts follow one another without a gap. The
/// part's ends are compared with the blocks that are here. How far everything is archived is the answer.
#[ic_cdk::update]
fn ack_archived(part: ArchivePart) -> Result<Option<u64>, Error> {
    consumers_only()?;
    let archived = state::with(|store| store.ack_archived(&part.into()))?;
    work::follow_up();
    Ok(archived)
}

/// Whether nothing is cut that is in no acknowledged archive part.
#[ic_cdk::update]
fn set_archive_hold(held: bool) -> Result<(), Error> {
    controllers_only()?;
    state::with(|store| store.set_settings(Settings { archive_hold: held, ..store.settings() }))?;
    work::schedule();
    Ok(())
}

/// Who may acknowledge besides controllers; in place of those who might before.
#[ic_cdk::update]
fn set_consumer_principals(principals: Vec<Principal>) -> Result<(), Error> {
    controllers_only()?;
    Ok(state::with(|store| access::set_consumers(store, principals))?)
}

/// Who may acknowledge besides controllers.
#[ic_cdk::query]
fn get_consumer_principals() -> Result<Vec<Principal>, Error> {
    Ok(state::with(access::consumers)?)
}
