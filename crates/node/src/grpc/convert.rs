//! Between the vocabulary and the wire. Everything that comes from outside is measured here before
//! it is used.

use std::collections::HashMap;

use alloy_rlp::Header as Rlp;
use bytes::Bytes;
use secateur_core::{
    Block, BlockHash, BlockMeta, Chunk, Cursor, ExplainBlock, Height, Hold, Locator, LookupError,
    MAX_SEGMENT_LEN, Payloads, Plan, PrunePolicy, PruneStatus, Report, Segment, StopReason,
    Strength, TxId, receipts, tx_index,
};
use secateur_index::codec::CodecName;
use secateur_proto::export::v1 as export;
use secateur_proto::history::v1 as pb;
use secateur_store::{Finding, FindingKind, Queued, ShelfReport, VerifyReport};

use super::status;
use crate::service::ApiError;

/// A hash or id of 32 bytes.
pub(super) fn array(what: &str, bytes: &[u8]) -> Result<[u8; 32], ApiError> {
    bytes.try_into().map_err(|_| {
        ApiError::BadRequest(format!("{what} has {} bytes; 32 are wanted", bytes.len()))
    })
}

/// A transaction's id.
pub(super) fn tx_id(bytes: &[u8]) -> Result<TxId, ApiError> {
    array("the transaction id", bytes).map(TxId)
}

/// A block's hash.
pub(super) fn block_hash(what: &str, bytes: &[u8]) -> Result<BlockHash, ApiError> {
    array(what, bytes).map(BlockHash)
}

/// A segment by its number.
pub(super) fn segment(number: u32) -> Result<Segment, ApiError> {
    u8::try_from(number)
        .ok()
        .and_then(|tag| Segment::try_from(tag).ok())
        .ok_or_else(|| ApiError::InvalidCursor(format!("segment {number} is not 0, 1 or 2")))
}

/// A cursor from outside.
pub(super) fn cursor_in(cursor: export::Cursor) -> Result<Cursor, ApiError> {
    Ok(Cursor {
        block_number: cursor.block_number,
        segment: segment(cursor.segment)?.tag(),
        byte_offset: cursor.byte_offset,
    })
}

/// A cursor for outside.
pub(super) fn cursor_out(cursor: Cursor) -> export::Cursor {
    export::Cursor {
        block_number: cursor.block_number,
        segment: cursor.segment.into(),
        byte_offset: cursor.byte_offset,
    }
}

/// A chunk; its bytes are handed on, not copied.
pub(super) fn chunk(chunk: Chunk) -> export::Chunk {
    export::Chunk {
        segment: chunk.segment.tag().into(),
        start: chunk.start,
        bytes: chunk.bytes.into(),
        payload_len: chunk.payload_len,
    }
}

/// A block from outside. One that lacks what its chain's codec needs would be kept for ever and could
/// never be read, indexed or verified; only blocks that are nothing but their hashes have no payloads.
pub(super) fn block_in(block: pb::Block, codec: Option<CodecName>) -> Result<Block, ApiError> {
    let meta = block.meta.ok_or_else(|| {
        ApiError::BadRequest("a block without its meta data cannot be kept".into())
    })?;
    let height = meta.number;
    let payloads = match (block.payloads, codec) {
        (Some(payloads), _) => payloads,
        (None, Some(CodecName::Opaque)) => pb::Payloads::default(),
        (None, _) => {
            return Err(ApiError::BadRequest(format!(
                "block {height} came without its payloads; nothing was written. Send `payloads`, \
                 an empty one if blocks of this chain have no bytes"
            )));
        }
    };
    let is_read = matches!(codec, Some(CodecName::Evm | CodecName::Kasane));
    if is_read && payloads.block.is_empty() {
        return Err(ApiError::BadRequest(format!(
            "the block payload of block {height} is empty, and chain.codec says that blocks of this \
             chain are read from it; nothing was written"
        )));
    }
    if codec == Some(CodecName::Evm) {
        check_evm(height, &payloads)?;
    }
    let payload = |what: &str, bytes: Bytes| {
        if bytes.len() > MAX_SEGMENT_LEN as usize {
            return Err(ApiError::BadRequest(format!(
                "the {what} of block {height} has {} bytes; the limit is {MAX_SEGMENT_LEN}; \
                 nothing was written",
                bytes.len()
            )));
        }
        Ok(Vec::from(bytes))
    };
    Ok(Block {
        meta: BlockMeta {
            height,
            hash: block_hash("the hash of a block", &meta.hash)?,
            parent_hash: block_hash("the parent hash of a block", &meta.parent_hash)?,
            timestamp: meta.timestamp,
        },
        payloads: Payloads {
            block: payload("block payload", payloads.block)?,
            receipts: payload("receipts payload", payloads.receipts)?,
            tx_index: payload("transaction index payload", payloads.tx_index)?,
        },
    })
}

/// Refuses a block of an EVM chain that has not one receipt and one index entry for each of its
/// transactions: nothing that reads it could. What they hold is not looked at.
fn check_evm(height: Height, payloads: &pb::Payloads) -> Result<(), ApiError> {
    let wanted = count_transactions(&payloads.block).map_err(|error| {
        ApiError::BadRequest(format!(
            "the block payload of block {height} is no EVM block ({error}), and chain.codec is evm; \
             nothing was written"
        ))
    })?;
    // Entries that cannot be read are for the store to refuse, which says where they begin.
    let found_receipts = receipts(&payloads.receipts).count();
    let found_entries = tx_index(&payloads.tx_index).count();
    for (what, found) in
        [("receipts", found_receipts), ("entries of its transaction index", found_entries)]
    {
        if found != wanted {
            return Err(ApiError::BadRequest(format!(
                "block {height} has {wanted} transactions and {found} {what}; chain.codec is evm, \
                 which needs one for each; nothing was written"
            )));
        }
    }
    Ok(())
}

/// How many transactions a block of an EVM chain has: header, transactions, and what follows them.
fn count_transactions(block: &[u8]) -> Result<usize, alloy_rlp::Error> {
    let mut fields = Rlp::decode_bytes(&mut &*block, true)?;
    Rlp::decode_bytes(&mut fields, true)?;
    let mut rest = Rlp::decode_bytes(&mut fields, true)?;
    let mut count = 0;
    while !rest.is_empty() {
        let transaction = Rlp::decode(&mut rest)?;
        rest = rest.get(transaction.payload_length..).ok_or(alloy_rlp::Error::InputTooShort)?;
        count += 1;
    }
    Ok(count)
}

/// A block's meta data.
pub(super) fn meta(meta: &BlockMeta) -> pb::BlockMeta {
    pb::BlockMeta {
        number: meta.height,
        hash: Bytes::copy_from_slice(&meta.hash.0),
        parent_hash: Bytes::copy_from_slice(&meta.parent_hash.0),
        timestamp: meta.timestamp,
    }
}

/// A block for outside; its payloads are handed on, not copied.
pub(super) fn block_out(block: Block) -> pb::Block {
    let Payloads { block: own, receipts, tx_index } = block.payloads;
    pb::Block {
        meta: Some(meta(&block.meta)),
        payloads: Some(pb::Payloads {
            block: own.into(),
            receipts: receipts.into(),
            tx_index: tx_index.into(),
        }),
    }
}

/// The status.
pub(super) fn prune_status(status: PruneStatus, chain_id: u64) -> pb::GetStatusResponse {
    pb::GetStatusResponse {
        archived: status.archived,
        chain_id: Some(chain_id),
        store_id: None,
        head: status.head,
        finalized: status.finalized,
        export_head: status.export_head,
        oldest_kept_block: status.oldest_kept_block,
        pruned_before_block: status.pruned_before_block,
        target_bytes: status.target_bytes,
        used_bytes: status.used_bytes,
        disk_bytes: status.disk_bytes,
        pruning_enabled: status.pruning_enabled,
        prune_running: status.prune_running,
        queued_transactions: status.queued_transactions,
        high_water_bytes: status.high_water_bytes,
        low_water_bytes: status.low_water_bytes,
        hard_water_bytes: status.hard_water_bytes,
        draining: status.pressure.draining,
        emergency: status.pressure.emergency,
        need_prune: status.need.need_prune,
        binding_hold: status.binding_hold,
        quarantined_bytes: status.quarantined_bytes,
        arena_bytes: status.arena_bytes,
        index_bytes: status.index_bytes,
        free_bytes: status.free_bytes,
        disk_full: status.disk_full,
        least_target_bytes: status.least_target_bytes,
        alarms: status.alarms,
        estimated_kept_bytes: status.estimated_kept_bytes,
        last_prune_at: status.last_prune_at,
        oldest_kept_timestamp: status.oldest_kept_timestamp,
        bytes_per_block: status.bytes_per_block,
        budget_blocks: status.budget_blocks,
        budget_seconds: status.budget_seconds,
        seconds_to_high_water: status.seconds_to_high_water,
        blocks_per_tick: status.pace.blocks_per_tick,
        blocks_between_ticks: status.pace.blocks_between_ticks,
        retention_behind_blocks: status.retention_behind_blocks,
    }
}

/// The plan.
pub(super) fn plan(plan: Plan) -> pb::GetPlanResponse {
    pb::GetPlanResponse {
        cause: plan.cause.map(|cause| cause.to_string()),
        first: plan.totals.first,
        last: plan.totals.last,
        blocks: plan.totals.blocks,
        bytes: plan.totals.bytes,
        used_before: plan.used_before,
        used_after: plan.used_after,
        ticks: plan.ticks,
        stop: plan.stop.to_string(),
        binding_hold: plan.binding_hold,
        blocks_per_tick: plan.pace.blocks_per_tick,
        blocks_between_ticks: plan.pace.blocks_between_ticks,
    }
}

/// A hold.
pub(super) fn hold(hold: &Hold) -> pb::Hold {
    pb::Hold {
        name: hold.kind.to_string(),
        strength: strength_out(hold.strength).into(),
        limit: hold.limit,
        active: hold.active,
    }
}

fn strength_out(strength: Strength) -> pb::Strength {
    match strength {
        Strength::Hard => pb::Strength::Hard,
        Strength::Soft => pb::Strength::Soft,
    }
}

/// Why a prune stopped.
pub(super) fn stop(stop: &StopReason) -> pb::Stop {
    let bare = |reason: &str| pb::Stop { reason: reason.to_owned(), ..Default::default() };
    match stop {
        StopReason::Done => bare("done"),
        StopReason::Limit => bare("limit"),
        StopReason::MaxOps => bare("max_ops"),
        StopReason::Empty => bare("empty"),
        StopReason::Hold { hold, strength, limit } => pb::Stop {
            reason: "hold".to_owned(),
            hold: Some(hold.clone()),
            strength: Some(strength_out(*strength).into()),
            limit: *limit,
        },
    }
}

/// A strength that was named.
pub(super) fn strength_in(number: i32) -> Result<Strength, ApiError> {
    match pb::Strength::try_from(number) {
        Ok(pb::Strength::Hard) => Ok(Strength::Hard),
        Ok(pb::Strength::Soft) => Ok(Strength::Soft),
        _ => Err(ApiError::BadRequest(
            "a consumer's strength is STRENGTH_SOFT or STRENGTH_HARD; nothing was changed".into(),
        )),
    }
}

/// A report.
pub(super) fn report(report: &Report) -> pb::Report {
    pb::Report {
        at: report.at,
        first: report.first,
        last: report.last,
        blocks: report.blocks,
        bytes: report.by_class.iter().map(|class| class.bytes).sum(),
        cause: report.cause.to_string(),
        stop: report.stop.to_string(),
        by: report.by.clone(),
        transactions: report.transactions,
        used_before: report.used_before,
        used_after: report.used_after,
        ticks: report.ticks,
        millis: report.millis,
    }
}

/// The story of a block, with the part that holds it if it was cut.
pub(super) fn story(story: &ExplainBlock) -> pb::ExplainBlockResponse {
    use pb::explain_block_response::{BeforeFirst, Kept, NotYet, Pruned, Story};
    let story = match story {
        ExplainBlock::Kept { meta: of, tx_count, payload_bytes, region_bytes, held_by, due } => {
            Story::Kept(Kept {
                meta: Some(meta(of)),
                tx_count: *tx_count,
                payload_bytes: *payload_bytes,
                region_bytes: *region_bytes,
                held_by: held_by.clone(),
                due: due.map(|cause| cause.to_string()),
            })
        }
        ExplainBlock::Pruned { pruned_before_block, report: of, locator } => {
            Story::Pruned(Pruned {
                pruned_before_block: *pruned_before_block,
                report: of.as_ref().map(report),
                first_available: pruned_before_block.checked_add(1),
                locator: locator.clone().map(place),
            })
        }
        ExplainBlock::NotYet { head } => Story::NotYet(NotYet { head: *head }),
        ExplainBlock::BeforeFirst { first } => Story::BeforeFirst(BeforeFirst { first: *first }),
    };
    pb::ExplainBlockResponse { story: Some(story) }
}

/// A lookup's honest answer.
pub(super) fn place(at: Locator) -> pb::Locator {
    pb::Locator { provider: at.provider, key: at.key }
}

pub(super) fn answer(answer: LookupError, locator: Option<Locator>) -> pb::HistoryError {
    let reason = match answer {
        LookupError::Pruned { pruned_before_block } => status::pruned(pruned_before_block, locator),
        LookupError::Pending => pb::history_error::Reason::Pending(pb::history_error::Pending {}),
        LookupError::NotFound { searched_from } => status::not_found(searched_from),
    };
    pb::HistoryError { reason: Some(reason) }
}

/// The policy, as `policy set` would take it.
pub(super) fn policy(policy: &PrunePolicy) -> HashMap<String, String> {
    let value = |key: &str| Some((key.to_owned(), policy.get(key)?));
    PrunePolicy::KEYS.into_iter().filter_map(value).collect()
}

/// What queueing a transaction found.
pub(super) fn queued(queued: Queued) -> pb::queue_transactions_response::Queued {
    use pb::queue_transactions_response::queued::State;
    let (state, block_number) = match queued {
        Queued::Added => (State::Added, None),
        Queued::Already => (State::Already, None),
        Queued::Included(height) => (State::Included, Some(height)),
    };
    pb::queue_transactions_response::Queued { state: state.into(), block_number }
}

/// What a verification saw.
pub(super) fn verified(report: VerifyReport, blobs: Option<ShelfReport>) -> pb::VerifyResponse {
    let sidecars = blobs.map(|report| pb::verify_response::Sidecars {
        blobs: report.slots,
        bytes: report.bytes,
        regions: report.regions,
        findings: report.findings.list.into_iter().map(finding).collect(),
        unlisted: report.findings.unlisted,
    });
    pb::VerifyResponse {
        sidecars,
        blocks: report.blocks,
        payload_bytes: report.payload_bytes,
        regions: report.regions,
        runs: report.runs,
        findings: report.findings.into_iter().map(finding).collect(),
        unlisted: report.unlisted,
    }
}

fn finding(finding: Finding) -> pb::verify_response::Finding {
    let kind = match finding.kind {
        FindingKind::Index => "index",
        FindingKind::Row => "row",
        FindingKind::Chain => "chain",
        FindingKind::Payload => "payload",
        FindingKind::Region => "region",
        FindingKind::FreeList => "free_list",
        FindingKind::Counter => "counter",
        FindingKind::Run => "run",
    };
    pb::verify_response::Finding {
        kind: kind.to_owned(),
        invariant: finding.invariant.into(),
        detail: finding.detail,
        repairable: finding.repairable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_on_the_wire_can_be_set_again_and_is_the_same_then() {
        let mut before = PrunePolicy::default();
        for (key, value) in
            [("target_bytes", "10GiB"), ("trigger", "timer:5"), ("headroom_ratio", "0.1234")]
        {
            before.set(key, value).unwrap();
        }
        let mut after = PrunePolicy::default();
        for (key, value) in policy(&before) {
            after.set(&key, &value).unwrap();
        }
        assert_eq!(before, after);
    }

    #[test]
    fn a_segment_number_that_wraps_around_a_byte_is_still_refused() {
        for number in [3, 255, 256, 257, 65_536, u32::MAX] {
            assert!(matches!(segment(number), Err(ApiError::InvalidCursor(_))), "{number}");
        }
    }
}
