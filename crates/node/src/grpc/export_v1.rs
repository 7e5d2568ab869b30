//! `secateur.export.v1.Export`: cursor export by polling. The rules are the store's; here they only
//! travel.

use std::sync::Arc;

use secateur_core::DEFAULT_EXPORT_BYTES;
use secateur_proto::export::v1::{
    ExportBlocksRequest, ExportBlocksResponse, GetHeadRequest, GetHeadResponse, export_server,
};
use tonic::{Request, Response, Status};

use super::held::held;
use super::{ENVELOPE, convert, status};
use crate::service::Node;

/// The service.
#[derive(Debug)]
pub(super) struct Export {
    node: Arc<Node>,
    /// What fits into a message here, whatever the rules allow.
    most_bytes: u32,
}

impl Export {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        let fits = node.limits.message_bytes.saturating_sub(ENVELOPE).max(1);
        Self { node: Arc::clone(node), most_bytes: u32::try_from(fits).unwrap_or(u32::MAX) }
    }
}

#[tonic::async_trait]
impl export_server::Export for Export {
    async fn get_head(
        &self,
        _request: Request<GetHeadRequest>,
    ) -> Result<Response<GetHeadResponse>, Status> {
        Ok(Response::new(GetHeadResponse { block_number: self.node.store.get_head() }))
    }

    async fn export_blocks(
        &self,
        request: Request<ExportBlocksRequest>,
    ) -> Result<Response<ExportBlocksResponse>, Status> {
        let ExportBlocksRequest { cursor, max_bytes } = request.into_inner();
        let cursor = cursor.map(convert::cursor_in).transpose().map_err(|e| status::export(&e))?;
        let max_bytes = max_bytes.unwrap_or(DEFAULT_EXPORT_BYTES).min(self.most_bytes);
        let node = Arc::clone(&self.node);
        let asked = self.node.ask(move |store| {
            let reply = store.export_blocks(cursor, max_bytes)?;
            let reply = ExportBlocksResponse {
                chunks: reply.chunks.into_iter().map(convert::chunk).collect(),
                next_cursor: reply.next_cursor.map(convert::cursor_out),
            };
            held(&node.rooms, reply)
        });
        asked.await.map_err(|error| status::export(&error))
    }
}
