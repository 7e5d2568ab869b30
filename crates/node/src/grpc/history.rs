//! `secateur.history.v1.History`: lookups, and what the four verbs say.

use std::sync::Arc;

use prost::Message;
use secateur_core::{BlockHash, ExplainTx, Height, TxId};
use secateur_proto::history::v1::{self as pb, block_ref, history_server};
use secateur_store::ground::disk::DiskStore;
use secateur_store::{TransactionView, TxLocation};
use tonic::{Request, Response, Status};

use super::held::held;
use super::{ENVELOPE, convert, status};
use crate::service::{ApiError, Node, Sought, locator};
use crate::vault::Archived;

/// Reports that one listing returns at most, and those of a request that names no number.
const MOST_REPORTS: usize = 1_000;
const DEFAULT_REPORTS: usize = 100;

/// The service.
#[derive(Debug)]
pub(super) struct History {
    node: Arc<Node>,
}

impl History {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        Self { node: Arc::clone(node) }
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&DiskStore) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let answer = self.node.ask(question).await;
        answer.map(Response::new).map_err(|error| status::history(&error))
    }

    /// Looks something up that may be long; its memory is counted until it is sent.
    async fn look<T: Message + 'static>(
        &self,
        question: impl FnOnce(&Node) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let asked = self.node.look(move |node| held(&node.rooms, question(node)?)).await;
        asked.map_err(|error| status::history(&error))
    }

    /// What fits into an answer.
    fn fits(&self) -> usize {
        self.node.limits.message_bytes.saturating_sub(ENVELOPE)
    }
}

/// Refuses an answer that no message here can hold.
fn check_fit(len: u64, fits: usize) -> Result<(), ApiError> {
    if usize::try_from(len).is_ok_and(|len| len <= fits) {
        return Ok(());
    }
    Err(ApiError::Limit(format!(
        "the block has {len} bytes and a message holds {fits} (limits.message_bytes); read it \
         through secateur.export"
    )))
}

fn by_number(node: &Node, height: Height, bare: bool) -> Result<pb::Block, ApiError> {
    let store = &node.store;
    let read = || {
        if bare {
            return Ok(without_payloads(&store.get_record(height)?.meta));
        }
        Ok(convert::block_out(store.get_block(height)?))
    };
    read().or_else(|error| Ok(beyond(node.beyond(Sought::Height(height), error)?, bare)))
}

fn by_hash(node: &Node, hash: BlockHash, bare: bool) -> Result<pb::Block, ApiError> {
    let store = &node.store;
    let read = || {
        if bare {
            return Ok(without_payloads(&store.get_record_by_hash(&hash)?.meta));
        }
        Ok(convert::block_out(store.get_block_by_hash(&hash)?))
    };
    read().or_else(|error| Ok(beyond(node.beyond(Sought::Block(hash), error)?, bare)))
}

/// A block from the archive.
fn beyond(found: Archived, bare: bool) -> pb::Block {
    if bare {
        return without_payloads(&found.block.meta);
    }
    convert::block_out(Arc::unwrap_or_clone(found.block))
}

fn receipt(node: &Node, id: &TxId) -> Result<Vec<u8>, ApiError> {
    node.store.get_receipt(id).map_err(ApiError::from).or_else(|error| {
        let found = node.beyond(Sought::Transaction(*id), error)?;
        let receipt = found.receipt_of(id).map(<[u8]>::to_vec);
        receipt.ok_or(ApiError::NotFound { searched_from: None })
    })
}

fn transaction(node: &Node, id: &TxId) -> Result<pb::GetTransactionResponse, ApiError> {
    let found = node.store.get_transaction(id).map_err(ApiError::from).or_else(|error| {
        let found = node.beyond(Sought::Transaction(*id), error)?;
        let index = found.place_of(id).unwrap_or_default();
        let block = Arc::unwrap_or_clone(found.block);
        Ok(TransactionView {
            location: TxLocation { height: block.meta.height, index },
            block_hash: block.meta.hash,
            block: block.payloads.block,
        })
    });
    found.map(|found| pb::GetTransactionResponse {
        block_number: found.location.height,
        tx_index: found.location.index,
        block_hash: found.block_hash.0.to_vec().into(),
        block: found.block.into(),
    })
}

fn without_payloads(meta: &secateur_core::BlockMeta) -> pb::Block {
    pb::Block { meta: Some(convert::meta(meta)), payloads: None }
}

fn payload_bytes(block: &pb::Block) -> u64 {
    block.payloads.as_ref().map_or(0, |payloads| {
        let pb::Payloads { block, receipts, tx_index } = payloads;
        [block, receipts, tx_index].iter().map(|bytes| bytes.len() as u64).sum()
    })
}

#[tonic::async_trait]
impl history_server::History for History {
    async fn get_block(
        &self,
        request: Request<pb::GetBlockRequest>,
    ) -> Result<Response<pb::GetBlockResponse>, Status> {
        let pb::GetBlockRequest { block, without_payloads: bare } = request.into_inner();
        let fits = self.fits();
        self.look(move |node| {
            let block = match block.and_then(|block| block.r#ref) {
                Some(block_ref::Ref::Number(height)) => by_number(node, height, bare)?,
                Some(block_ref::Ref::Hash(hash)) => {
                    by_hash(node, convert::block_hash("the block hash", &hash)?, bare)?
                }
                None => return Err(ApiError::BadRequest("no block is named".into())),
            };
            check_fit(payload_bytes(&block), fits)?;
            Ok(pb::GetBlockResponse { block: Some(block) })
        })
        .await
    }

    async fn get_receipt(
        &self,
        request: Request<pb::GetReceiptRequest>,
    ) -> Result<Response<pb::GetReceiptResponse>, Status> {
        let id = request.into_inner().tx_id;
        let fits = self.fits();
        self.look(move |node| {
            let receipt = receipt(node, &convert::tx_id(&id)?)?;
            check_fit(receipt.len() as u64, fits)?;
            Ok(pb::GetReceiptResponse { receipt: receipt.into() })
        })
        .await
    }

    async fn get_transaction(
        &self,
        request: Request<pb::GetTransactionRequest>,
    ) -> Result<Response<pb::GetTransactionResponse>, Status> {
        let id = request.into_inner().tx_id;
        let fits = self.fits();
        self.look(move |node| {
            let found = transaction(node, &convert::tx_id(&id)?)?;
            check_fit(found.block.len() as u64, fits)?;
            Ok(found)
        })
        .await
    }

    async fn get_status(
        &self,
        _request: Request<pb::GetStatusRequest>,
    ) -> Result<Response<pb::GetStatusResponse>, Status> {
        self.ask(|store| {
            let header = store.header();
            let status = convert::prune_status(store.get_prune_status()?, header.chain_id);
            Ok(pb::GetStatusResponse { store_id: Some(header.store_id.to_vec().into()), ..status })
        })
        .await
    }

    async fn get_plan(
        &self,
        _request: Request<pb::GetPlanRequest>,
    ) -> Result<Response<pb::GetPlanResponse>, Status> {
        self.ask(|store| Ok(convert::plan(store.prune_plan()?))).await
    }

    async fn list_holds(
        &self,
        _request: Request<pb::ListHoldsRequest>,
    ) -> Result<Response<pb::ListHoldsResponse>, Status> {
        self.ask(|store| {
            let status = store.get_prune_status()?;
            Ok(pb::ListHoldsResponse {
                holds: status.holds.iter().map(convert::hold).collect(),
                binding: status.binding_hold,
            })
        })
        .await
    }

    async fn list_reports(
        &self,
        request: Request<pb::ListReportsRequest>,
    ) -> Result<Response<pb::ListReportsResponse>, Status> {
        let limit = match request.into_inner().limit {
            0 => DEFAULT_REPORTS,
            limit => MOST_REPORTS.min(limit as usize),
        };
        self.ask(move |store| {
            let reports = store.reports()?;
            let newest = reports.iter().rev().take(limit);
            Ok(pb::ListReportsResponse { reports: newest.map(convert::report).collect() })
        })
        .await
    }

    async fn explain_block(
        &self,
        request: Request<pb::ExplainBlockRequest>,
    ) -> Result<Response<pb::ExplainBlockResponse>, Status> {
        let height = request.into_inner().number;
        self.ask(move |store| Ok(convert::story(&store.explain_block(height)?))).await
    }

    async fn explain_transaction(
        &self,
        request: Request<pb::ExplainTransactionRequest>,
    ) -> Result<Response<pb::ExplainTransactionResponse>, Status> {
        let id = request.into_inner().tx_id;
        self.ask(move |store| {
            let id = convert::tx_id(&id)?;
            Ok(match store.explain_tx(id)? {
                ExplainTx::Kept { height, index, block, .. } => pb::ExplainTransactionResponse {
                    block_number: Some(height),
                    tx_index: Some(index),
                    block: Some(convert::story(&block)),
                    ..Default::default()
                },
                ExplainTx::Absent { answer, cut, .. } => {
                    let locator = locator(store, Sought::Transaction(id))?;
                    let cut = cut.as_deref();
                    let reports = cut.map_or(&[][..], |cut| &cut.reports);
                    let locators = cut.map_or(&[][..], |cut| &cut.locators);
                    pb::ExplainTransactionResponse {
                        answer: Some(convert::answer(answer, locator)),
                        first: cut.map(|cut| cut.first),
                        last: cut.map(|cut| cut.last),
                        reports: reports.iter().map(convert::report).collect(),
                        locators: locators.iter().cloned().map(convert::place).collect(),
                        ..Default::default()
                    }
                }
            })
        })
        .await
    }

    async fn get_policy(
        &self,
        _request: Request<pb::GetPolicyRequest>,
    ) -> Result<Response<pb::GetPolicyResponse>, Status> {
        self.ask(|store| Ok(pb::GetPolicyResponse { policy: convert::policy(&store.policy()) }))
            .await
    }
}
