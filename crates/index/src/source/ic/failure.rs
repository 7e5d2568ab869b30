//! What a failed call to a canister means to a worker.

use ic_agent::AgentError;
use ic_agent::agent::{RejectCode, RejectResponse};

use crate::IndexError;

/// What the network says of a method that a canister does not have.
const NO_METHOD: &str = "IC0536";
/// What it says of a canister that is being upgraded, or has to be given cycles: stopped, stopping, frozen.
const FOR_NOW: [&str; 3] = ["IC0508", "IC0509", "IC0207"];

/// Whether the canister does not have the method that it was asked by.
pub(super) fn is_unknown(error: &AgentError) -> bool {
    match error {
        AgentError::CertifiedReject { reject, .. }
        | AgentError::UncertifiedReject { reject, .. } => {
            reject.error_code.as_deref() == Some(NO_METHOD)
        }
        _ => false,
    }
}

/// Explains a call that failed before the canister answered, or instead of its answer.
pub(super) fn explain(error: &AgentError, method: &str) -> IndexError {
    match error {
        AgentError::CertifiedReject { reject, .. }
        | AgentError::UncertifiedReject { reject, .. } => rejected(reject, method),
        AgentError::TimeoutWaitingForResponse() => IndexError::Timeout(method.into()),
        AgentError::HttpError(payload) if (400..500).contains(&payload.status) => {
            match payload.status {
                // Slow down, or too early.
                408 | 425 | 429 => IndexError::Net(format!("{method}: {error}")),
                _ => IndexError::Refused(format!("the network refuses {method}: {error}")),
            }
        }
        AgentError::SigningError(_) | AgentError::InvalidReplicaUrl(_) => {
            IndexError::Refused(format!("{method}: {error}"))
        }
        AgentError::CertificateVerificationFailed()
        | AgentError::CertificateNotAuthorized()
        | AgentError::CertificateOutdated(_)
        | AgentError::QuerySignatureVerificationFailed
        | AgentError::MissingSignature
        | AgentError::MalformedSignature => {
            // Another node may answer the next time.
            IndexError::Net(format!("an answer to {method} is not believed: {error}"))
        }
        _ => IndexError::Net(format!("{method}: {error}")),
    }
}

fn rejected(reject: &RejectResponse, method: &str) -> IndexError {
    let text = &reject.reject_message;
    match reject.reject_code {
        RejectCode::SysTransient | RejectCode::SysFatal => {
            IndexError::Net(format!("{method}: {text}"))
        }
        _ => match reject.error_code.as_deref() {
            Some(NO_METHOD) => {
                IndexError::Refused(format!("the canister does not know this call: {method}"))
            }
            Some(code) if FOR_NOW.contains(&code) => IndexError::Net(format!("{method}: {text}")),
            _ => IndexError::Refused(format!("{method} was rejected: {text}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use ic_agent::agent_error::HttpErrorPayload;

    use super::*;

    fn reject(reject_code: RejectCode, error_code: Option<&str>) -> IndexError {
        let reject = RejectResponse {
            reject_code,
            reject_message: "no luck".into(),
            error_code: error_code.map(str::to_owned),
        };
        explain(&AgentError::UncertifiedReject { reject, operation: None }, "get_head")
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        assert!(reject(RejectCode::SysTransient, None).is_retryable());
        assert!(explain(&AgentError::QuerySignatureVerificationFailed, "get_head").is_retryable());
        for status in [429, 500, 503] {
            let error = AgentError::HttpError(HttpErrorPayload {
                status,
                content_type: None,
                content: Vec::new(),
            });
            assert!(explain(&error, "get_head").is_retryable(), "{status}");
        }
        let none = reject(RejectCode::DestinationInvalid, Some(NO_METHOD));
        assert!(none.to_string().contains("does not know this call: get_head"), "{none}");
        assert!(!none.is_retryable());
        assert!(!reject(RejectCode::CanisterError, None).is_retryable());
        for code in FOR_NOW {
            assert!(reject(RejectCode::CanisterError, Some(code)).is_retryable(), "{code}");
        }
    }
}
