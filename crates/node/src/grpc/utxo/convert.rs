//! Between messages and the words of `secateur-utxo`.

use bytes::Bytes;
use secateur_proto::utxo::v1 as pb;
use secateur_utxo::{
    BlockId, BlockRef, Counts, Done, Job, OutPoint, Outcome, Phase, Plan, Progress, Record, Room,
    Slot, Status as Stands, TriggerMode, TxId,
};
use tonic::Status;

use super::failure::malformed;
use super::height;

/// Inputs and outputs of a record that are listed; the others are counted.
const LISTED: usize = 10_000;

fn hash(what: &str, bytes: &Bytes) -> Result<[u8; 32], Status> {
    let found = <[u8; 32]>::try_from(bytes.as_ref());
    found.map_err(|_| malformed(format_args!("{what} has {} bytes and not 32", bytes.len())))
}

pub(super) fn txid(bytes: &Bytes) -> Result<TxId, Status> {
    hash("a transaction's id", bytes).map(TxId)
}

pub(super) fn block_id(bytes: &Bytes) -> Result<BlockId, Status> {
    hash("a block's hash", bytes).map(BlockId)
}

pub(super) fn block_ref(block: &pb::BlockRef) -> Result<BlockRef, Status> {
    Ok(BlockRef { id: block_id(&block.hash)?, height: height(block.height)? })
}

pub(super) fn out_point(output: &pb::OutPoint) -> Result<OutPoint, Status> {
    Ok(OutPoint { txid: txid(&output.txid)?, n: output.n })
}

pub(super) fn status(stands: Stands, ready: Result<(), String>) -> pb::StatusResponse {
    let mode = match stands.mode {
        TriggerMode::Auto => "auto",
        TriggerMode::Persisted => "persisted",
        TriggerMode::Mined => "mined",
    };
    pb::StatusResponse {
        store: stands.store,
        files: stands.files,
        enabled: stands.enabled,
        mode: mode.into(),
        head: stands.head,
        persisted: stands.persisted,
        processed: stands.processed,
        lag_blocks: stands.lag_blocks,
        persister_stale: stands.stale_persister.is_some(),
        last_skip: stands.last_skip.map(str::to_owned),
        last_error: stands.last_error,
        running: stands.running.as_ref().map(progress),
        counts: Some(counts(&stands.counts)),
        ready: ready.is_ok(),
        not_ready: ready.err().unwrap_or_default(),
        block_height_retention: 0,
        coinbase_maturity: 0,
        store_alarm: match stands.room {
            Room::Enough => None,
            Room::Low(reason) => Some(format!("the store is nearly full: {reason}")),
            Room::Full(reason) => Some(format!("the store takes no more writes: {reason}")),
        },
        warnings: stands.warnings,
    }
}

pub(super) fn counts(counts: &Counts) -> pb::Counts {
    let Counts { records, unmined, due, preserved, cut, size_bytes, free_bytes } = *counts;
    pb::Counts { records, unmined, due, preserved, cut, size_bytes, free_bytes }
}

fn progress(progress: &Progress) -> pb::Progress {
    let phase = match progress.phase {
        Phase::Preserve => "preserve",
        Phase::Expire => "expire",
        Phase::Delete => "delete",
    };
    pb::Progress {
        height: progress.height,
        phase: phase.into(),
        due: progress.due,
        done: Some(done(&progress.done)),
        records_per_second: progress.rate().unwrap_or(0),
        seconds_left: progress.eta().map(|left| left.as_secs()),
    }
}

fn done(done: &Done) -> pb::Done {
    pb::Done {
        old_unmined: done.old_unmined,
        preserved: done.preserved,
        parents_missing: done.parents_missing,
        expired: done.expired,
        deleted: done.deleted,
        kept: done.kept.iter().map(|(why, some)| (why.name().to_owned(), *some)).collect(),
        files_deleted: done.files_deleted,
        files_missing: done.files_missing,
    }
}

pub(super) fn job(job: &Job) -> pb::Job {
    let (outcome, reason) = match &job.outcome {
        Outcome::Completed => ("completed", None),
        Outcome::Failed(reason) => ("failed", Some(reason.clone())),
        Outcome::TimedOut => ("timed_out", None),
        Outcome::Cancelled => ("cancelled", None),
    };
    pb::Job {
        height: job.height,
        safe_height: job.safe_height,
        started_at: job.started_at,
        millis: job.millis,
        outcome: outcome.into(),
        reason,
        done: Some(done(&job.done)),
    }
}

pub(super) fn plan(plan: &Plan) -> pb::PlanResponse {
    pb::PlanResponse {
        height: plan.height,
        safe_height: plan.safe_height,
        skip: plan.skip.map(str::to_owned),
        deletes: plan.deletes,
        counts: Some(counts(&plan.counts)),
    }
}

pub(super) fn record(record: &Record) -> pb::Record {
    let beyond = |all: usize| u64::try_from(all.saturating_sub(LISTED)).unwrap_or(u64::MAX);
    let input = |input: &OutPoint| pb::Input { txid: input.txid.to_string(), n: input.n };
    let block = |block: &BlockRef| pb::Block { hash: block.id.to_string(), height: block.height };
    pb::Record {
        txid: record.txid.to_string(),
        inputs: record.inputs.iter().take(LISTED).map(input).collect(),
        outputs: (0..).zip(record.outputs.iter().take(LISTED)).map(output).collect(),
        coinbase: record.coinbase,
        conflicting: record.conflicting,
        spending: record.spending,
        blocks: record.blocks.iter().map(block).collect(),
        unmined_since: record.unmined_since,
        delete_at_height: record.delete_at_height,
        preserve_until: record.preserve_until,
        file: record.external.map(|kind| format!("{}.{}", record.txid, kind.suffix())),
        file_is_there: None,
        cut: record.cut,
        body_bytes: u64::try_from(record.body.len()).unwrap_or(u64::MAX),
        held_by: record.held_by.iter().map(TxId::to_string).collect(),
        more_inputs: beyond(record.inputs.len()),
        more_outputs: beyond(record.outputs.len()),
    }
}

fn output((n, slot): (u32, &Slot)) -> pb::Output {
    let state = match slot {
        Slot::Unspent => "unspent",
        Slot::Spent { .. } => "spent",
        Slot::Pruned { .. } => "pruned",
    };
    let spender = slot.spender();
    pb::Output {
        n,
        state: state.into(),
        by: spender.map(|(by, _)| by.to_string()),
        input: spender.map(|(_, input)| input),
    }
}
