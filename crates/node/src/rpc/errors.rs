//! What JSON-RPC says when it has no result: codes, messages, and the data of a pruned answer.

use secateur_core::{Locator, LookupError};
use secateur_store::StoreError;
use secateur_store::ground::disk::DiskStore;
use serde::Serialize;

use super::params::quantity;
use crate::service::{ApiError, Sought, locator};

/// The request is not JSON.
pub(super) const PARSE: i32 = -32_700;
/// It is JSON and no call.
pub(super) const INVALID_REQUEST: i32 = -32_600;
/// There is no such method.
pub(super) const NO_METHOD: i32 = -32_601;
/// The parameters are not those of the method.
pub(super) const INVALID_PARAMS: i32 = -32_602;
/// Something here is broken.
pub(super) const INTERNAL: i32 = -32_603;
/// The call was understood and cannot be answered now.
pub(super) const SERVER: i32 = -32_000;
/// It took too long.
pub(super) const TIMEOUT: i32 = -32_002;
/// More was asked for than a limit allows.
pub(super) const LIMIT: i32 = -32_005;
/// The engine API's word for a request of too many things.
pub(super) const TOO_LARGE: i32 = -38_004;
/// It was here and was cut (EIP-4444).
pub(super) const PRUNED: i32 = 4_444;

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct RpcError {
    pub(super) code: i32,
    pub(super) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Box<PrunedData>>,
}

/// What is said of something that is not here any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PrunedData {
    requested: String,
    earliest_available: Option<String>,
    /// None where the history here began above it.
    pruned_before_block: Option<String>,
    /// Where the block went.
    #[serde(skip_serializing_if = "Option::is_none")]
    locator: Option<Locator>,
}

impl RpcError {
    pub(super) fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(super) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    pub(super) fn limit(message: impl Into<String>) -> Self {
        Self::new(LIMIT, message)
    }

    /// Something of ours that should not happen; whoever runs the node finds it in the log.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        tracing::error!(%message, "a JSON-RPC call failed");
        Self::new(INTERNAL, message)
    }

    /// The honest answer for what is not here any more: from where on there is something, and
    /// where the block went, if that is known.
    pub(super) fn pruned(store: &DiskStore, sought: Sought) -> Self {
        let heights = match store.heights() {
            Ok(heights) => heights,
            Err(error) => return error.into(),
        };
        let requested = match sought {
            Sought::Height(height) => quantity(height),
            Sought::Block(hash) => hash.to_string(),
            Sought::Transaction(id) => id.to_string(),
        };
        let locator = match locator(store, sought) {
            Ok(locator) => locator,
            Err(error) => return error.into(),
        };
        let data = Box::new(PrunedData {
            requested,
            earliest_available: heights.oldest.map(quantity),
            pruned_before_block: heights.boundary.map(quantity),
            locator,
        });
        let message = "pruned history unavailable".to_owned();
        Self { code: PRUNED, message, data: Some(data) }
    }
}

/// Turns a lookup into an answer: what was found, nothing for what is queued or not known, and
/// the error that says so for what was cut.
pub(super) fn honest<T>(
    store: &DiskStore,
    sought: Sought,
    found: Result<T, StoreError>,
) -> Result<Option<T>, RpcError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(StoreError::Lookup(LookupError::Pruned { .. })) => Err(RpcError::pruned(store, sought)),
        // The chain has it, this node never had: `null` would say that there is no such block.
        Err(StoreError::Lookup(LookupError::NotFound { searched_from: Some(oldest) })) if matches!(sought, Sought::Height(height) if height < oldest) => {
            Err(RpcError::pruned(store, sought))
        }
        Err(StoreError::Lookup(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl From<ApiError> for RpcError {
    fn from(error: ApiError) -> Self {
        let message = error.to_string();
        match error {
            ApiError::BadRequest(_) | ApiError::InvalidCursor(_) => Self::invalid_params(message),
            ApiError::Limit(_) | ApiError::Overloaded => Self::limit(message),
            ApiError::Timeout | ApiError::MayBeDone => Self::new(TIMEOUT, message),
            ApiError::Pruned { .. } => Self::new(PRUNED, message),
            ApiError::Internal(_) | ApiError::DiskFull(_) => Self::internal(message),
            _ => Self::new(SERVER, message),
        }
    }
}

impl From<StoreError> for RpcError {
    fn from(error: StoreError) -> Self {
        ApiError::from(error).into()
    }
}
