//! What a node must let us do, asked before anything is pulled: the first part is acknowledged a day
//! after the start, and a token that is missing is to be found before that.
//!
//! Each call is made with an empty request. A node looks at the token first, and refuses an empty
//! request before it changes anything.

use secateur_core::format_duration;
use secateur_proto::history::v1::{AckArchivedRequest, AckExportedRequest};
use tonic::{Code, Response, Status};

use super::grpc::{GrpcSource, explain};
use crate::IndexError;

/// Something that a worker will ask of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// To acknowledge what a consumer has.
    AckExported,
    /// To acknowledge archive parts.
    AckArchived,
}

impl Right {
    /// What it is for, and how to do without.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::AckExported => ("AckExported (for --consumer)", "leave --consumer out"),
            Self::AckArchived => (
                "AckArchived (for the parts of --archive)",
                "set archive.acknowledge = false, and the source keeps no account of the parts",
            ),
        }
    }
}

/// Why a right is missing.
enum Missing {
    /// No token was shown, or one that the node does not know.
    NoToken,
    /// The token is not for this.
    NotAllowed,
}

fn judge<A>(answer: Result<Response<A>, Status>) -> Result<Option<Missing>, IndexError> {
    let Err(status) = answer else { return Ok(None) };
    match status.code() {
        Code::Unauthenticated => Ok(Some(Missing::NoToken)),
        Code::PermissionDenied => Ok(Some(Missing::NotAllowed)),
        // The node got as far as the request, and that is empty. One that does not know the call says
        // so when it is needed, as it always did.
        Code::InvalidArgument | Code::NotFound | Code::FailedPrecondition | Code::Unimplemented => {
            Ok(None)
        }
        _ => match explain(&status, 0) {
            error if error.is_retryable() => Err(error),
            _ => Ok(None),
        },
    }
}

/// Refuses with all that is missing.
pub(super) async fn check(source: &GrpcSource, wanted: &[Right]) -> Result<(), IndexError> {
    let (mut missing, mut no_token) = (Vec::new(), false);
    for right in wanted {
        let mut admin = source.admin.clone();
        let asking = async {
            match right {
                Right::AckExported => {
                    judge(admin.ack_exported(AckExportedRequest::default()).await)
                }
                Right::AckArchived => {
                    judge(admin.ack_archived(AckArchivedRequest::default()).await)
                }
            }
        };
        let judged = tokio::time::timeout(source.timeout, asking)
            .await
            .map_err(|_| IndexError::Timeout(format_duration(source.timeout)))??;
        if let Some(why) = judged {
            missing.push(*right);
            no_token |= matches!(why, Missing::NoToken);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let why = if no_token { "without a token that it knows" } else { "to this token" };
    let remedy = "Name a file with a token of the role consumer or admin with --token-file";
    Err(refusal(&missing, why, remedy))
}

/// The refusal that names everything that is missing, and how to do without.
pub(super) fn refusal(missing: &[Right], why: &str, remedy: &str) -> IndexError {
    let (names, instead): (Vec<_>, Vec<_>) = missing.iter().map(|right| right.words()).unzip();
    IndexError::Refused(format!(
        "the source does not allow {} {why}; nothing was pulled. {remedy}; or {}",
        names.join(" and "),
        instead.join("; ")
    ))
}
