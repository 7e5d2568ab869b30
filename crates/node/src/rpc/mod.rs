//! JSON-RPC.

use std::sync::Arc;

use bytes::Bytes;

use crate::service::Node;

/// Answers the body of one POST: a call or a batch. None means that there is nothing to say.
pub(crate) async fn answer(_node: &Arc<Node>, _body: &[u8]) -> Option<Bytes> {
    None
}
