//! The one place where an error becomes a gRPC status: a code, a message, and the details of the
//! package in the trailer `secateur-error-bin`.

use prost::Message;
use secateur_core::{Height, Locator};
use secateur_proto::ERROR_TRAILER;
use secateur_proto::export::v1::{ExportError, export_error};
use secateur_proto::history::v1::{self as pb, HistoryError, history_error};
use secateur_proto::sidecar::v1::{self as blobs, BlobLocator, BlobLocators};
use secateur_sidecar::SidecarError;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use crate::service::ApiError;

/// Messages travel as headers, and clients take only so much of those.
const LONGEST_MESSAGE: usize = 1_024;
/// Details are a third longer on the wire, and clients take 16 KiB of headers.
const LONGEST_DETAILS: usize = 8 * 1_024;

/// For the gate, which speaks for no package.
pub(super) fn plain(error: &ApiError) -> Status {
    Status::new(code(error), message(error))
}

/// For `secateur.export.v1` and `v2`.
pub(super) fn export(error: &ApiError) -> Status {
    use export_error::{InvalidCursor, Limit, Pruned, Reason};
    let reason = match error {
        ApiError::Pruned { pruned_before_block, .. } => {
            Reason::Pruned(Pruned { pruned_before_block: *pruned_before_block })
        }
        ApiError::InvalidCursor(reason) => {
            Reason::InvalidCursor(InvalidCursor { reason: short(reason) })
        }
        ApiError::Limit(reason) => Reason::Limit(Limit { reason: short(reason) }),
        _ => return plain(error),
    };
    detailed(error, &ExportError { reason: Some(reason) })
}

/// For `secateur.history.v1`.
pub(super) fn history(error: &ApiError) -> Status {
    use history_error::{Pending, Reason, Refused};
    let reason = match error {
        ApiError::Pruned { pruned_before_block, locator } => {
            pruned(*pruned_before_block, locator.clone())
        }
        ApiError::Pending => Reason::Pending(Pending {}),
        ApiError::NotFound { searched_from } => not_found(*searched_from),
        ApiError::Refused(reason) => Reason::Refused(Refused { reason: short(reason) }),
        _ => return plain(error),
    };
    detailed(error, &HistoryError { reason: Some(reason) })
}

/// For `secateur.sidecar.v1`.
pub(super) fn sidecar(error: &ApiError) -> Status {
    let ApiError::Blobs(found) = error else { return plain(error) };
    let locator = |at: &Locator| BlobLocator { provider: at.provider.clone(), key: at.key.clone() };
    let of_blob =
        |some: &Vec<Locator>| BlobLocators { locators: some.iter().map(locator).collect() };
    let mut details = blobs::SidecarError {
        label: found.label().to_owned(),
        retryable: found.is_retryable(),
        ..blobs::SidecarError::default()
    };
    if let SidecarError::BlobsPruned { height, blob_count, locators, .. } = &**found {
        (details.height, details.blob_count) = (Some(*height), *blob_count);
        // Trailers are headers: as many as fit, and HTTP has them all.
        details.locators = locators.iter().map(of_blob).collect();
        while details.encoded_len() > LONGEST_DETAILS && details.locators.pop().is_some() {}
    }
    detailed(error, &details)
}

/// The detail of something that was cut. Blocks follow one another and the newest always stays,
/// so the first available one is the next.
pub(super) fn pruned(boundary: Height, locator: Option<Locator>) -> history_error::Reason {
    history_error::Reason::Pruned(history_error::Pruned {
        pruned_before_block: boundary,
        first_available: boundary.checked_add(1),
        locator: locator.map(|at| pb::Locator { provider: at.provider, key: at.key }),
    })
}

/// The detail of something that is not known.
pub(super) fn not_found(searched_from: Option<Height>) -> history_error::Reason {
    history_error::Reason::NotFound(history_error::NotFound { searched_from })
}

/// The node is on its way out.
pub(super) fn stopping() -> Status {
    Status::unavailable("the node is stopping; ask again when it is back")
}

fn detailed(error: &ApiError, details: &impl Message) -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert_bin(ERROR_TRAILER, MetadataValue::from_bytes(&details.encode_to_vec()));
    Status::with_metadata(code(error), message(error), metadata)
}

fn code(error: &ApiError) -> Code {
    match error {
        ApiError::Pruned { .. } => Code::OutOfRange,
        ApiError::Pending
        | ApiError::Archive(_)
        | ApiError::ArchiveSilent { .. }
        | ApiError::ArchiveBusy { .. } => Code::Unavailable,
        ApiError::NotFound { .. } => Code::NotFound,
        ApiError::InvalidCursor(_) | ApiError::BadRequest(_) | ApiError::Limit(_) => {
            Code::InvalidArgument
        }
        ApiError::Refused(_) | ApiError::NoBlobs => Code::FailedPrecondition,
        ApiError::Blobs(error) => of_blobs(error),
        ApiError::Unauthenticated | ApiError::UnknownToken => Code::Unauthenticated,
        ApiError::Forbidden => Code::PermissionDenied,
        ApiError::Overloaded | ApiError::Emergency | ApiError::DiskFull(_) => {
            Code::ResourceExhausted
        }
        ApiError::Timeout | ApiError::MayBeDone => Code::DeadlineExceeded,
        ApiError::Internal(_) => Code::Internal,
    }
}

fn of_blobs(error: &SidecarError) -> Code {
    match error {
        SidecarError::Unknown(_)
        | SidecarError::UnknownRound { .. }
        | SidecarError::NoSuchBlob { .. } => Code::NotFound,
        SidecarError::BlobsPruned { .. } => Code::OutOfRange,
        SidecarError::Decode(_)
        | SidecarError::WrongLength { .. }
        | SidecarError::TooManyBlobs { .. }
        | SidecarError::WrongIndex { .. }
        | SidecarError::BadBlob { .. }
        | SidecarError::BadCommitment { .. }
        | SidecarError::BadProof { .. }
        | SidecarError::BadRound { .. }
        | SidecarError::Rejected(_) => Code::InvalidArgument,
        SidecarError::NoCopy { .. } | SidecarError::Provider(_) | SidecarError::Gossip(_) => {
            Code::Unavailable
        }
        SidecarError::TooManyUndecided { .. } => Code::ResourceExhausted,
        SidecarError::Missing { .. } => Code::DataLoss,
        SidecarError::Key { .. } | SidecarError::Task { .. } => Code::Internal,
        _ => Code::FailedPrecondition,
    }
}

fn message(error: &ApiError) -> String {
    match error {
        // The store says itself that nothing was changed.
        ApiError::Refused(reason) => short(reason),
        error => short(&error.to_string()),
    }
}

/// As much of a text as a header may hold.
pub(super) fn short(text: &str) -> String {
    let end = text.floor_char_boundary(LONGEST_MESSAGE.min(text.len()));
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details(status: &Status) -> Vec<u8> {
        status.metadata().get_bin(ERROR_TRAILER).unwrap().to_bytes().unwrap().to_vec()
    }

    #[test]
    fn pruned_says_the_same_to_both_packages_and_only_history_says_where_it_went() {
        let locator = Locator { provider: "fs".into(), key: "parts/1".into() };
        let error = ApiError::Pruned { pruned_before_block: 7, locator: Some(locator) };
        let (export, history) = (export(&error), history(&error));
        assert_eq!((export.code(), history.code()), (Code::OutOfRange, Code::OutOfRange));
        let Some(export_error::Reason::Pruned(export)) =
            ExportError::decode(&*details(&export)).unwrap().reason
        else {
            panic!("{export:?}");
        };
        let Some(history_error::Reason::Pruned(history)) =
            HistoryError::decode(&*details(&history)).unwrap().reason
        else {
            panic!("{history:?}");
        };
        assert_eq!((export.pruned_before_block, history.pruned_before_block), (7, 7));
        assert_eq!(history.first_available, Some(8));
        assert_eq!(history.locator.unwrap().key, "parts/1");
    }

    #[test]
    fn a_message_never_outgrows_a_header_and_is_cut_between_characters() {
        let error = ApiError::BadRequest("ä".repeat(LONGEST_MESSAGE));
        let status = plain(&error);
        assert_eq!(status.message().len(), LONGEST_MESSAGE);
        assert!(status.message().chars().all(|c| c == 'ä'));
        let long = ApiError::Refused("x".repeat(100_000));
        assert!(details(&history(&long)).len() < 2 * LONGEST_MESSAGE);
    }
}
