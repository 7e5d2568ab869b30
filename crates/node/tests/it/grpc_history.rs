//! `secateur.history.v1` through a real socket: lookups, honest answers, and every change.

use std::collections::HashMap;

use bytes::Bytes;
use secateur_core::{Block, MAX_SEGMENT_LEN};
use secateur_proto::history::v1::explain_block_response::Story;
use secateur_proto::history::v1::history_error::Reason;
use secateur_proto::history::v1::queue_transactions_response::queued::State;
use secateur_proto::history::v1::{self as pb, block_ref};
use tonic::Code;

use crate::grpc::{
    Clients, Rig, append_request, block, chain, hash_of, history_reason, tx_of, wire,
};
use crate::indexed::Chain;

fn number(number: u64) -> pb::GetBlockRequest {
    let block = Some(pb::BlockRef { r#ref: Some(block_ref::Ref::Number(number)) });
    pb::GetBlockRequest { block, without_payloads: false }
}

fn hash(height: u64) -> pb::GetBlockRequest {
    let hash = block_ref::Ref::Hash(hash_of(height, 0).0.to_vec().into());
    let block = Some(pb::BlockRef { r#ref: Some(hash) });
    pb::GetBlockRequest { block, without_payloads: false }
}

fn part(blocks: &[Block], first: usize, last: usize) -> pb::AckArchivedRequest {
    pb::AckArchivedRequest {
        first: blocks[first].meta.height,
        last: blocks[last].meta.height,
        parent_hash: blocks[first].meta.parent_hash.0.to_vec().into(),
        last_hash: blocks[last].meta.hash.0.to_vec().into(),
        provider: "fs".into(),
        key: format!("parts/{first}-{last}"),
        sha256: vec![7; 32].into(),
        size: 1_234,
    }
}

async fn story(clients: &Clients, number: u64) -> Story {
    let request = pb::ExplainBlockRequest { number };
    let answer = clients.history.clone().explain_block(request).await.unwrap();
    answer.into_inner().story.unwrap()
}

#[tokio::test]
async fn a_block_is_found_by_number_and_by_hash_with_its_payloads_or_without() {
    let blocks = chain(3..=9, 400, 3);
    let rig = Rig::with(&blocks).await;
    let mut history = rig.clients.history.clone();
    for request in [number(5), hash(5)] {
        let found = history.get_block(request.clone()).await.unwrap().into_inner().block;
        assert_eq!(found, Some(wire(&blocks[2])));
        let bare = pb::GetBlockRequest { without_payloads: true, ..request };
        let found = history.get_block(bare).await.unwrap().into_inner().block.unwrap();
        assert_eq!((found.meta, found.payloads), (wire(&blocks[2]).meta, None));
    }
}

#[tokio::test]
async fn transactions_and_receipts_are_found_by_id() {
    let blocks = chain(3..=9, 400, 3);
    let rig = Rig::with(&blocks).await;
    let mut history = rig.clients.history.clone();
    let tx_id: Bytes = tx_of(7, 2).0.to_vec().into();
    let request = pb::GetTransactionRequest { tx_id: tx_id.clone() };
    let found = history.get_transaction(request).await.unwrap().into_inner();
    assert_eq!((found.block_number, found.tx_index), (7, 2));
    assert_eq!(found.block_hash, hash_of(7, 0).0.to_vec());
    assert_eq!(found.block, blocks[4].payloads.block);
    let request = pb::GetReceiptRequest { tx_id };
    let receipt = history.get_receipt(request).await.unwrap().into_inner().receipt;
    let expected = secateur_core::receipts(&blocks[4].payloads.receipts).nth(2).unwrap().unwrap();
    assert_eq!(receipt, expected.bytes);
}

#[tokio::test]
async fn pruned_says_the_boundary_the_first_available_block_and_the_part() {
    let blocks = chain(0..=99, 2_000, 2);
    let rig = Rig::with(&blocks).await;
    let mut history = rig.clients.history.clone();
    rig.clients.admin.clone().ack_archived(part(&blocks, 0, 19)).await.unwrap();
    let boundary = rig.clients.prune_to(20).await;
    assert_eq!(boundary, 79);
    let located = |key: Option<&str>, reason| {
        let Reason::Pruned(pruned) = reason else { panic!("{reason:?}") };
        assert_eq!((pruned.pruned_before_block, pruned.first_available), (79, Some(80)));
        assert_eq!(pruned.locator.map(|at| at.key).as_deref(), key);
    };
    let error = history.get_block(number(7)).await.unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange);
    located(Some("parts/0-19"), history_reason(&error));
    let error = history.get_block(number(30)).await.unwrap_err();
    located(None, history_reason(&error));
    let error = history.get_block(hash(7)).await.unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange);
    located(Some("parts/0-19"), history_reason(&error));
    let tx_id: Bytes = tx_of(7, 0).0.to_vec().into();
    let request = pb::GetReceiptRequest { tx_id: tx_id.clone() };
    let error = history.get_receipt(request).await.unwrap_err();
    located(Some("parts/0-19"), history_reason(&error));
    let request = pb::ExplainTransactionRequest { tx_id };
    let answer = history.explain_transaction(request).await.unwrap().into_inner();
    assert_eq!(answer.block_number, None);
    located(Some("parts/0-19"), answer.answer.unwrap().reason.unwrap());
    let error = history.get_block(hash(30)).await.unwrap_err();
    located(None, history_reason(&error));
    let Story::Pruned(pruned) = story(&rig.clients, 7).await else { panic!() };
    assert_eq!((pruned.pruned_before_block, pruned.first_available), (79, Some(80)));
    assert_eq!(pruned.locator.unwrap().key, "parts/0-19");
    let report = pruned.report.unwrap();
    assert!((report.first..=report.last).contains(&7), "{report:?}");
    assert_eq!((report.by.as_str(), report.cause.as_str()), ("operator", "retention"));
}

#[tokio::test]
async fn unknown_and_pending_are_other_answers_than_pruned() {
    let rig = Rig::with(&chain(3..=9, 400, 3)).await;
    let mut history = rig.clients.history.clone();
    for request in [number(10), number(2), hash(77)] {
        let error = history.get_block(request).await.unwrap_err();
        assert_eq!(error.code(), Code::NotFound, "{error:?}");
        assert!(matches!(history_reason(&error), Reason::NotFound(_)));
    }
    let queued: Bytes = tx_of(10, 0).0.to_vec().into();
    let included = tx_of(4, 1).0.to_vec().into();
    let request =
        pb::QueueTransactionsRequest { tx_ids: vec![queued.clone(), queued.clone(), included] };
    let answer = rig.clients.admin.clone().queue_transactions(request).await.unwrap().into_inner();
    let states: Vec<_> = answer.results.iter().map(|r| (r.state(), r.block_number)).collect();
    let expected = [(State::Added, None), (State::Already, None), (State::Included, Some(4))];
    assert_eq!(states, expected);
    let request = pb::GetTransactionRequest { tx_id: queued.clone() };
    let error = history.get_transaction(request.clone()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(matches!(history_reason(&error), Reason::Pending(_)));
    rig.clients.append(&[block(10, 5, 1)]).await;
    let found = history.get_transaction(request).await.unwrap().into_inner();
    assert_eq!(found.block_number, 10);
    let request = pb::ExplainTransactionRequest { tx_id: queued };
    let answer = history.explain_transaction(request).await.unwrap().into_inner();
    assert_eq!((answer.block_number, answer.tx_index), (Some(10), Some(0)));
    assert!(matches!(answer.block.unwrap().story, Some(Story::Kept(_))));
}

#[tokio::test]
async fn a_request_with_a_wrong_length_is_refused_before_anything_is_done() {
    let rig = Rig::with(&chain(0..=1, 100, 1)).await;
    let mut history = rig.clients.history.clone();
    let mut admin = rig.clients.admin.clone();
    for len in [0, 31, 33, 10_000] {
        let bytes: Bytes = vec![1; len].into();
        let tx_id = bytes.clone();
        let error = history.get_receipt(pb::GetReceiptRequest { tx_id }).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        let block_ref = pb::BlockRef { r#ref: Some(block_ref::Ref::Hash(bytes.clone())) };
        let request = pb::GetBlockRequest { block: Some(block_ref), without_payloads: true };
        let error = history.get_block(request).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        let mut bad = wire(&block(2, 10, 0));
        bad.meta.as_mut().unwrap().hash = bytes.clone();
        let request = pb::AppendRequest { blocks: vec![bad] };
        assert_eq!(admin.append(request).await.unwrap_err().code(), Code::InvalidArgument);
        let request = pb::QueueTransactionsRequest { tx_ids: vec![bytes] };
        let error = admin.queue_transactions(request).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
    }
    let nobody = pb::GetBlockRequest::default();
    let error = history.get_block(nobody).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert_eq!(rig.clients.status().await.head, Some(1));
}

#[tokio::test]
async fn an_append_is_whole_or_nothing_and_says_what_does_not_fit() {
    let rig = Rig::with(&chain(5..=9, 100, 1)).await;
    let mut admin = rig.clients.admin.clone();
    let again = chain(8..=11, 100, 1);
    let answer = admin.append(append_request(&again)).await.unwrap().into_inner();
    assert_eq!((answer.head, answer.written), (11, 2), "known blocks are passed over");
    let gap = chain(13..=13, 100, 1);
    let mut parent = chain(12..=12, 100, 1);
    parent[0].meta.parent_hash = hash_of(11, 9);
    let mut conflict = chain(11..=11, 100, 1);
    conflict[0].meta.hash = hash_of(11, 9);
    for (blocks, words) in
        [(&gap, "leaves a gap"), (&parent, "names parent"), (&conflict, "a different block")]
    {
        let error = admin.append(append_request(blocks)).await.unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition, "{error:?}");
        assert!(error.message().contains(words), "{error:?}");
        assert!(error.message().contains("nothing was written"), "{error:?}");
        assert!(matches!(history_reason(&error), Reason::Refused(_)));
    }
    let mut torn = chain(12..=13, 100, 1);
    torn[1].payloads.tx_index.pop();
    let over = vec![block(12, MAX_SEGMENT_LEN as usize + 1, 0)];
    let many: Vec<Block> = chain(12..=12 + 1_024, 0, 0);
    for blocks in [&torn, &over, &many, &Vec::new()] {
        let error = admin.append(append_request(blocks)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error:?}");
    }
    assert_eq!(rig.clients.status().await.head, Some(11));
}

/// Such a block was kept, and could never be read, indexed or verified.
#[tokio::test]
async fn a_block_without_payloads_is_refused_where_its_codec_needs_them() {
    let bare = |payloads| pb::Block { payloads, ..wire(&chain(0..=0, 0, 0)[0]) };
    let (absent, empty) = (bare(None), bare(Some(pb::Payloads::default())));
    for (config, absent_is_taken, empty_is_taken) in [
        ("", false, true),
        ("[chain]\ncodec = \"evm\"\n", false, false),
        ("[chain]\ncodec = \"kasane\"\n", false, false),
        ("[chain]\ncodec = \"opaque\"\n", true, true),
    ] {
        for (block, is_taken) in [(&absent, absent_is_taken), (&empty, empty_is_taken)] {
            let rig = Rig::configured(config).await;
            let request = pb::AppendRequest { blocks: vec![block.clone()] };
            let answer = rig.clients.admin.clone().append(request).await;
            assert_eq!(answer.is_ok(), is_taken, "{config}: {answer:?}");
            if let Err(error) = answer {
                assert_eq!(error.code(), Code::InvalidArgument, "{error:?}");
                assert!(error.message().contains("nothing was written"), "{error:?}");
                assert_eq!(rig.clients.status().await.head, None);
            }
        }
    }
}

/// Such a block was accepted and final; then its receipts were an internal error for ever, and the
/// index ended at it.
#[tokio::test]
async fn a_block_of_an_evm_chain_with_fewer_receipts_than_transactions_is_refused() {
    let whole = Chain::new(4).next(3).pop().unwrap();
    let count = secateur_core::tx_index(&whole.payloads.tx_index).count();
    assert!(count > 0);
    let without = |change: fn(&mut secateur_core::Payloads)| {
        let mut block = whole.clone();
        change(&mut block.payloads);
        block
    };
    let transactions = format!("block 2 has {count} transactions and ");
    let wrong = [
        (without(|payloads| payloads.receipts.clear()), transactions.clone() + "0 receipts"),
        (without(|payloads| payloads.tx_index.clear()), transactions + "0 entries"),
        (without(|payloads| payloads.block.truncate(100)), "is no EVM block".into()),
    ];
    let rig = Rig::configured("[chain]\ncodec = \"evm\"\n").await;
    for (block, words) in wrong {
        let refused = rig.clients.admin.clone().append(append_request(&[block])).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().contains(&words), "{words}: {refused:?}");
        assert!(refused.message().contains("nothing was written"), "{refused:?}");
    }
    assert_eq!(rig.clients.status().await.head, None);
    rig.clients.append(&[whole]).await;
}

#[tokio::test]
async fn a_policy_changes_whole_or_not_at_all() {
    let rig = Rig::start("").await;
    let mut admin = rig.clients.admin.clone();
    let policy = async || {
        let mut history = rig.clients.history.clone();
        history.get_policy(pb::GetPolicyRequest {}).await.unwrap().into_inner().policy
    };
    let before = policy().await;
    assert_eq!(before.len(), 9);
    let changes = |list: &[(&str, &str)]| pb::SetPolicyRequest {
        changes: list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
    };
    for bad in [
        changes(&[("retain_blocks", "7"), ("no_such_key", "1")]),
        changes(&[("retain_blocks", "7"), ("max_ops_per_tick", "0")]),
        changes(&[("retain_blocks", "7"), ("headroom_ratio", "1.5")]),
    ] {
        let error = admin.set_policy(bad).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error:?}");
        assert_eq!(policy().await, before);
    }
    let good = changes(&[("retain_blocks", "7"), ("trigger", "timer:500")]);
    let after = admin.set_policy(good).await.unwrap().into_inner().policy;
    let mut expected: HashMap<String, String> = before;
    expected.insert("retain_blocks".into(), "7".into());
    expected.insert("trigger".into(), "timer:500".into());
    assert_eq!((&after, &policy().await), (&expected, &expected));
}

#[tokio::test]
async fn a_prune_cuts_nothing_above_the_block_that_was_named() {
    let rig = Rig::with(&chain(0..=49, 500, 1)).await;
    let mut admin = rig.clients.admin.clone();
    admin.set_pruning(pb::SetPruningRequest { enabled: false }).await.unwrap();
    rig.clients.policy(&[("retain_blocks", "5")]).await;
    let plan = rig.clients.history.clone().get_plan(pb::GetPlanRequest {}).await.unwrap();
    let plan = plan.into_inner();
    assert_eq!((plan.last, plan.blocks_per_tick), (Some(44), Some(50_000)), "{plan:?}");
    let prune = pb::PruneRequest { max_ops: 0, to: Some(20) };
    let pruned = admin.prune(prune).await.unwrap().into_inner();
    assert_eq!((pruned.blocks, pruned.more), (21, false));
    assert_eq!(pruned.stop.unwrap().reason, "limit");
    let status = rig.clients.status().await;
    assert_eq!((status.pruned_before_block, status.retention_behind_blocks), (Some(20), Some(24)));
}

#[tokio::test]
async fn a_hard_consumer_holds_pruning_back_until_it_has_what_it_wants() {
    let rig = Rig::with(&chain(0..=49, 500, 1)).await;
    let mut admin = rig.clients.admin.clone();
    admin.set_pruning(pb::SetPruningRequest { enabled: false }).await.unwrap();
    assert!(!rig.clients.status().await.pruning_enabled);
    let consumer = |strength: pb::Strength| pb::RegisterConsumerRequest {
        name: "indexer".into(),
        strength: strength.into(),
    };
    let unnamed = admin.register_consumer(consumer(pb::Strength::Unspecified)).await.unwrap_err();
    assert_eq!(unnamed.code(), Code::InvalidArgument);
    admin.register_consumer(consumer(pb::Strength::Hard)).await.unwrap();
    let ack = |block_number| pb::AckExportedRequest { consumer: "indexer".into(), block_number };
    assert_eq!(admin.ack_exported(ack(19)).await.unwrap().into_inner().acked, 19);
    assert_eq!(admin.ack_exported(ack(3)).await.unwrap().into_inner().acked, 19);
    let early = admin.ack_exported(ack(50)).await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition);
    rig.clients.policy(&[("retain_blocks", "5")]).await;
    let plan = rig.clients.history.clone().get_plan(pb::GetPlanRequest {}).await.unwrap();
    let plan = plan.into_inner();
    assert_eq!((plan.first, plan.last, plan.blocks), (Some(0), Some(19), 20));
    assert_eq!(plan.binding_hold.as_deref(), Some("export:indexer"));
    let pruned = admin.prune(pb::PruneRequest { max_ops: 0, to: None }).await.unwrap().into_inner();
    assert_eq!((pruned.blocks, pruned.more), (20, false));
    let stop = pruned.stop.unwrap();
    assert_eq!((stop.reason.as_str(), stop.hold.as_deref()), ("hold", Some("export:indexer")));
    assert_eq!((stop.strength(), stop.limit), (pb::Strength::Hard, Some(19)));
    assert_eq!(pruned.report.unwrap().last, 19);
    let holds = rig.clients.history.clone().list_holds(pb::ListHoldsRequest {}).await.unwrap();
    let holds = holds.into_inner();
    let own = holds.holds.iter().find(|hold| hold.name == "export:indexer").unwrap();
    assert_eq!((own.strength(), own.limit, own.active), (pb::Strength::Hard, Some(19), true));
    assert_eq!(holds.binding.as_deref(), Some("export:indexer"));
    let Story::Kept(kept) = story(&rig.clients, 20).await else { panic!() };
    assert!(kept.held_by.contains(&"export:indexer".to_owned()), "{kept:?}");
    let remove = pb::RemoveConsumerRequest { name: "indexer".into() };
    assert!(admin.remove_consumer(remove.clone()).await.unwrap().into_inner().was_there);
    assert!(!admin.remove_consumer(remove).await.unwrap().into_inner().was_there);
    let pruned = admin.prune(pb::PruneRequest { max_ops: 0, to: None }).await.unwrap().into_inner();
    assert_eq!(pruned.blocks, 25);
    let reports = pb::ListReportsRequest { limit: 1 };
    let reports = rig.clients.history.clone().list_reports(reports).await.unwrap().into_inner();
    assert_eq!(reports.reports.iter().map(|report| report.last).collect::<Vec<_>>(), [44]);
}

#[tokio::test]
async fn a_rollback_removes_what_is_not_final_and_nothing_else() {
    let rig = Rig::configured("[chain]\nfinality = \"explicit\"\n").await;
    let mut admin = rig.clients.admin.clone();
    rig.clients.append(&chain(5..=14, 100, 1)).await;
    let finalized = pb::SetFinalizedRequest { block_number: 8 };
    admin.set_finalized(finalized).await.unwrap();
    let answer = admin.rollback(pb::RollbackRequest { to: Some(10) }).await.unwrap().into_inner();
    assert_eq!((answer.removed, answer.head), (4, Some(10)));
    for to in [Some(7), None] {
        let error = admin.rollback(pb::RollbackRequest { to }).await.unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition, "{error:?}");
    }
    let error = admin.set_finalized(pb::SetFinalizedRequest { block_number: 11 }).await;
    assert_eq!(error.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(rig.clients.status().await.head, Some(10));
}

#[tokio::test]
async fn a_store_in_which_nothing_is_final_can_be_emptied_unless_it_begins_at_block_0() {
    let rig = Rig::configured("[chain]\nfinality = \"explicit\"\n").await;
    let mut admin = rig.clients.admin.clone();
    rig.clients.append(&chain(5..=9, 100, 1)).await;
    let nothing = pb::RollbackRequest { to: None };
    let answer = admin.rollback(nothing).await.unwrap().into_inner();
    assert_eq!((answer.removed, answer.head), (5, None));
    assert_eq!(admin.rollback(nothing).await.unwrap().into_inner().removed, 0);
    rig.clients.append(&chain(0..=3, 100, 1)).await;
    let error = admin.rollback(nothing).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn a_part_is_compared_with_the_blocks_before_it_counts() {
    let blocks = chain(0..=29, 100, 1);
    let rig = Rig::with(&blocks).await;
    let mut admin = rig.clients.admin.clone();
    let mut wrong = part(&blocks, 0, 9);
    wrong.last_hash = hash_of(9, 9).0.to_vec().into();
    let error = admin.ack_archived(wrong).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "{error:?}");
    let mut short = part(&blocks, 0, 9);
    short.sha256 = vec![7; 31].into();
    assert_eq!(admin.ack_archived(short).await.unwrap_err().code(), Code::InvalidArgument);
    let archived = async |first, last| {
        let answer = rig.clients.admin.clone().ack_archived(part(&blocks, first, last)).await;
        answer.unwrap().into_inner().archived
    };
    assert_eq!(archived(10, 19).await, None, "the blocks below are in no part");
    assert_eq!(archived(0, 9).await, Some(19));
    assert_eq!(archived(0, 9).await, Some(19), "known already");
    let status = rig.clients.status().await;
    assert_eq!(status.archived, Some(19), "it is told whether or not pruning waits for it");
}

#[tokio::test]
async fn the_status_and_a_verification_tell_what_is_there() {
    let rig = Rig::start("--budget 64MiB").await;
    rig.clients.append(&chain(7..=56, 3_000, 2)).await;
    let status = rig.clients.status().await;
    assert_eq!((status.head, status.export_head, status.finalized), (Some(56), Some(56), Some(56)));
    assert_eq!((status.oldest_kept_block, status.pruned_before_block), (Some(7), None));
    assert_eq!((status.target_bytes, status.archived), (64 << 20, None));
    assert!(status.used_bytes >= 150_000 && status.arena_bytes >= status.used_bytes);
    assert!(status.low_water_bytes < status.high_water_bytes);
    assert!(status.pruning_enabled && !status.draining && !status.emergency);
    assert_eq!(status.estimated_kept_bytes, status.used_bytes + status.quarantined_bytes);
    assert!(status.bytes_per_block > 0 && status.budget_blocks > Some(50), "{status:?}");
    assert_eq!(status.last_prune_at, None);
    assert!(status.seconds_to_high_water.is_some() && status.budget_seconds.is_some());
    let verified = rig.clients.admin.clone().verify(pb::VerifyRequest {}).await.unwrap();
    let verified = verified.into_inner();
    assert_eq!((verified.blocks, verified.findings.len(), verified.unlisted), (50, 0, 0));
    assert!(verified.regions > 0);
    assert!(
        matches!(story(&rig.clients, 57).await, Story::NotYet(not_yet) if not_yet.head == Some(56))
    );
    assert!(matches!(story(&rig.clients, 6).await, Story::BeforeFirst(first) if first.first == 7));
    rig.stop().await;
}
