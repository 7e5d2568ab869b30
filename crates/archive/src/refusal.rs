//! What a failed request of the object storage means: whether waiting can mend it, and what the
//! reader can do. Not how often a request is tried: that is [`crate::Retry`].
//!
//! `object_store` answers a failed listing with an error that has no kind; its status is then only
//! in the text of a cause whose type it keeps to itself. The words are fixed by the lock file, and
//! the tests with a bucket that refuses notice when they change.

use std::error::Error as StdError;
use std::io;
use std::iter::successors;

use object_store::Error;

/// What comes before the status in the text of a refused request.
const STATUS: &str = "Server returned non-2xx status code: ";
/// What is said of a redirect that does not say where to; it has no status.
const BARE_REDIRECT: &str = "Received redirect without LOCATION";
/// Where credentials are asked for when neither the environment nor a file has any.
const INSTANCE_METADATA: &str = "169.254.169.254";

/// Why a storage refuses for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// It does not take the credentials, or they may not do this.
    Credentials,
    /// There are no credentials.
    NoCredentials,
    /// There is no such bucket.
    Bucket,
    /// It does not understand, or answers from elsewhere.
    Request,
    /// The directory may not be read or written to, or is none.
    Directory,
}

/// Whether the same request may be answered later.
pub(crate) fn may_pass(error: &Error) -> bool {
    // 409 and 412 come as `AlreadyExists` and `Precondition`: another look compares.
    let kind = matches!(
        error,
        Error::Generic { .. }
            | Error::JoinError { .. }
            | Error::AlreadyExists { .. }
            | Error::Precondition { .. }
    );
    kind && refusal(error).is_none()
}

/// What to do about it, as the end of a sentence; empty if waiting is all.
pub(crate) fn advice(error: &Error) -> &'static str {
    match refusal(error) {
        Some(Refusal::Credentials) => {
            ". Check the credentials, what they may do, and this machine's clock"
        }
        Some(Refusal::NoCredentials) => {
            ". No credentials were found in the environment or in a file, so the machine's own \
             were asked for; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a file"
        }
        Some(Refusal::Bucket) => ". Check that the bucket is there",
        Some(Refusal::Request) => ". Check the endpoint and the region",
        Some(Refusal::Directory) => ". Check who may read and write the directory",
        None => "",
    }
}

/// The innermost cause behind a colon, where the error's own text does not tell it: that nobody
/// listens at an address is said there only.
pub(crate) fn cause(error: &Error) -> String {
    let first: &(dyn StdError + 'static) = error;
    let last = successors(Some(first), |&cause| cause.source()).last();
    let (told, last) = (error.to_string(), last.map(ToString::to_string).unwrap_or_default());
    if told.contains(&last) { String::new() } else { format!(": {last}") }
}

fn refusal(error: &Error) -> Option<Refusal> {
    let first: &(dyn StdError + 'static) = error;
    for cause in successors(Some(first), |&cause| cause.source()) {
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return of_directory(error);
        }
        let text = cause.to_string();
        if text.starts_with(BARE_REDIRECT) {
            return Some(Refusal::Request);
        }
        if let Some(answer) = text.strip_prefix(STATUS) {
            let asked_machine = error.to_string().contains(INSTANCE_METADATA);
            let answer = of_answer(answer);
            return if asked_machine { answer.and(Some(Refusal::NoCredentials)) } else { answer };
        }
    }
    None
}

fn of_directory(error: &io::Error) -> Option<Refusal> {
    use io::ErrorKind as Kind;
    let for_good = matches!(
        error.kind(),
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem | Kind::NotADirectory
    );
    for_good.then_some(Refusal::Directory)
}

/// An answer is its status and, behind it, what the service says.
fn of_answer(answer: &str) -> Option<Refusal> {
    match answer.get(..3)? {
        "401" | "403" => Some(Refusal::Credentials),
        "404" => Some(Refusal::Bucket),
        // A body that came too slowly is answered with 400 as well.
        "400" if answer.contains("RequestTimeout") => None,
        "301" | "307" | "400" | "405" => Some(Refusal::Request),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(source: impl StdError + Send + Sync + 'static) -> Error {
        Error::Generic { store: "test", source: Box::new(source) }
    }

    #[test]
    fn a_directory_that_may_not_be_written_to_is_refused_and_a_full_one_may_pass() {
        let refused = generic(io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(!may_pass(&refused) && advice(&refused).contains("who may read and write"));
        let full = generic(io::Error::from(io::ErrorKind::StorageFull));
        assert!(may_pass(&full) && advice(&full).is_empty());
    }

    #[test]
    fn an_answer_that_waiting_mends_is_told_from_one_that_it_does_not() {
        for passes in ["500 x", "503 SlowDown", "429 x", "409 x", "400 Bad: RequestTimeout"] {
            assert_eq!(of_answer(passes), None, "{passes}");
        }
        for stays in ["400 Bad Request: x", "301 Moved", "403 Forbidden: x", "404 Not Found: x"] {
            assert!(of_answer(stays).is_some(), "{stays}");
        }
    }
}
