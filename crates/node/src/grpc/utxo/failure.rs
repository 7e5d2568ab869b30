//! What goes wrong with UTXO records, as gRPC says it.

use bytes::Bytes;
use prost::Message as _;
use secateur_proto::ERROR_TRAILER;
use secateur_proto::utxo::v1 as pb;
use secateur_utxo::{OutPoint, TxId, UtxoError};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use super::super::status::short;

/// The status of an error, with its details in the trailer.
pub(super) fn status(error: &UtxoError) -> Status {
    with_details(code(error), details(error))
}

/// What is refused before the records are asked, with its details too.
pub(super) fn refusal(code: Code, label: &str, message: &str) -> Status {
    with_details(code, plain(label, message))
}

fn plain(label: &str, message: &str) -> pb::UtxoError {
    let (label, message) = (label.to_owned(), short(message));
    pb::UtxoError { label, message, ..pb::UtxoError::default() }
}

/// A call for which there is no memory now, because others have it.
pub(super) fn overloaded() -> Status {
    let message =
        "too much is under way (limits.answer_bytes); nothing was changed, try again later";
    let details = pb::UtxoError { retryable: true, ..plain("overloaded", message) };
    with_details(Code::ResourceExhausted, details)
}

/// A call whose fields make no sense.
pub(super) fn malformed(reason: impl std::fmt::Display) -> Status {
    refusal(Code::InvalidArgument, "malformed", &format!("{reason}; nothing was changed"))
}

/// A height that cannot be right now.
pub(super) fn wrong_height(message: &str) -> Status {
    refusal(Code::FailedPrecondition, "wrong_height", message)
}

fn with_details(code: Code, details: pb::UtxoError) -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert_bin(ERROR_TRAILER, MetadataValue::from_bytes(&details.encode_to_vec()));
    Status::with_metadata(code, details.message, metadata)
}

/// The details of an error.
pub(super) fn details(error: &UtxoError) -> pb::UtxoError {
    let id = |txid: &TxId| Bytes::copy_from_slice(&txid.0);
    let point = |output: &OutPoint| Some(pb::OutPoint { txid: id(&output.txid), n: output.n });
    let mut details = pb::UtxoError {
        label: error.label().to_owned(),
        retryable: error.is_retryable(),
        message: short(&error.to_string()),
        ..pb::UtxoError::default()
    };
    match error {
        UtxoError::Unknown { txid }
        | UtxoError::Pruned { txid }
        | UtxoError::Different { txid }
        | UtxoError::Malformed { txid, .. }
        | UtxoError::NotNow { txid, .. } => details.txid = id(txid),
        UtxoError::MissingParent { output, by } | UtxoError::MissingOutput { output, by, .. } => {
            (details.txid, details.output) = (id(by), point(output));
        }
        UtxoError::DoubleSpend { output, by, spender } => {
            (details.txid, details.output) = (id(by), point(output));
            details.spender = id(spender);
        }
        UtxoError::Immature { output, by, ripe_at } => {
            (details.txid, details.output) = (id(by), point(output));
            details.ripe_at = *ripe_at;
        }
        _ => {}
    }
    details
}

fn code(error: &UtxoError) -> Code {
    match error {
        _ if error.is_disk_full() => Code::ResourceExhausted,
        _ if error.is_retryable() => Code::Unavailable,
        UtxoError::Unknown { .. } => Code::NotFound,
        UtxoError::Pruned { .. } => Code::OutOfRange,
        UtxoError::Malformed { .. }
        | UtxoError::TooManyOutputs { .. }
        | UtxoError::TooManyInputs { .. } => Code::InvalidArgument,
        UtxoError::NotPreserved { source, .. } | UtxoError::Interrupted { source, .. } => {
            code(source)
        }
        UtxoError::Damaged { .. } => Code::DataLoss,
        UtxoError::Store { .. } => Code::Internal,
        _ => Code::FailedPrecondition,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_double_spend_names_the_output_and_who_has_it() {
        let (by, spender) = (TxId([1; 32]), TxId([2; 32]));
        let output = OutPoint { txid: TxId([3; 32]), n: 4 };
        let told = status(&UtxoError::DoubleSpend { output, by, spender });
        assert_eq!(told.code(), Code::FailedPrecondition);
        let trailer = told.metadata().get_bin(ERROR_TRAILER).unwrap().to_bytes().unwrap();
        let details = pb::UtxoError::decode(trailer).unwrap();
        assert_eq!(details.label, "double_spend");
        assert_eq!((details.txid, details.spender), (by.0.to_vec().into(), vec![2; 32].into()));
        assert_eq!(details.output.map(|output| output.n), Some(4));
    }

    #[test]
    fn what_may_pass_is_unavailable_and_what_does_not_read_back_is_lost() {
        let down = UtxoError::Store { reason: "down".into(), retryable: true };
        assert_eq!(status(&down).code(), Code::Unavailable);
        let full = UtxoError::Full { reason: "no room".into() };
        let phase = UtxoError::NotPreserved { height: 1, source: Box::new(full) };
        assert_eq!(status(&phase).code(), Code::ResourceExhausted);
        assert_eq!(status(&UtxoError::store("no")).code(), Code::Internal);
        assert_eq!(status(&UtxoError::Unknown { txid: TxId([0; 32]) }).code(), Code::NotFound);
    }
}
