//! What a cluster's answers mean. Nothing here asks.

use aerospike::{Error, ErrorKind, ResultCode, Value};

use crate::UtxoError;

use super::read;
use super::records::{Fields, Outcome, Usage};
use super::storage::number;

/// What an error of the client means. Nobody knows whether a write that was not answered was done; every
/// step can be told again.
pub(super) fn failed(error: &Error) -> UtxoError {
    let reason = shown(error);
    // Its code for a namespace that takes no more writes: stop-writes, or a device that is full.
    if error.matches(&[ResultCode::ServerMemError]) {
        return UtxoError::NoWrites { reason };
    }
    UtxoError::Store { reason, retryable: is_retryable(error) }
}

/// So much of an error is shown.
const LONGEST: usize = 600;

/// An error on one line: earlier attempts, which it lists on lines of their own, say the same.
pub(super) fn shown(error: &Error) -> String {
    one_line(&error.to_string(), error.sub_errors().len())
}

fn one_line(text: &str, attempts: usize) -> String {
    let mut listed = false;
    let said: Vec<&str> = text
        .lines()
        .filter(|line| {
            listed = *line == "sub-errors:" || listed && line.starts_with('\t');
            !listed
        })
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let said: String = said.join(" ").chars().take(LONGEST).collect();
    let earlier = match attempts {
        0 => String::new(),
        some => format!(" (attempts that failed before: {some})"),
    };
    format!("Aerospike: {said}{earlier}")
}

/// Whether an error is a server's `OK`: servers before 7.2 answer it in capitals to what they have done,
/// and the client takes only `ok` for that.
pub(super) fn is_ok(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Server { .. }) && shown(error).ends_with(": OK")
}

/// Whether the same may succeed later: a cluster that is away, overloaded, or moving partitions.
fn is_retryable(error: &Error) -> bool {
    use ResultCode as Code;
    match error.kind() {
        ErrorKind::Timeout
        | ErrorKind::Connection
        | ErrorKind::ConnectionPoolEmpty
        | ErrorKind::NoMoreConnections
        | ErrorKind::MaxErrorRate
        | ErrorKind::InvalidNode
        // The namespace was there at open: its partitions are not.
        | ErrorKind::InvalidNamespace
        | ErrorKind::StreamTerminated
        | ErrorKind::Client
        | ErrorKind::Io(_) => true,
        _ => error.matches(&[
            Code::Timeout,
            Code::PartitionUnavailable,
            Code::ClusterKeyMismatch,
            Code::KeyBusy,
            Code::XdrKeyBusy,
            Code::MrtBlocked,
            Code::LostConflict,
            Code::DeviceOverload,
            Code::QuotaExceeded,
            Code::ExpiredSession,
            Code::BatchQueuesFull,
            Code::IndexNotReadable,
            // A node that came back has heard of no index yet.
            Code::IndexNotFound,
            Code::ScanAbort,
            Code::QueryAborted,
            Code::QueryQueueFull,
            Code::QueryTimeout,
            Code::QueryNetioErr,
        ]),
    }
}

/// A row of a batch that failed, or was never answered while the batch as a whole was.
pub(super) fn row_failed(error: Option<&Error>) -> UtxoError {
    error.map_or_else(
        || UtxoError::Store {
            reason: "Aerospike: a row of a batch was not answered".into(),
            retryable: true,
        },
        failed,
    )
}

/// A listing that broke off.
pub(super) fn stopped(reason: &str) -> UtxoError {
    UtxoError::Store {
        reason: format!("Aerospike: a listing broke off: {reason}"),
        retryable: true,
    }
}

/// What one row of a batch says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Is(Outcome),
    Failed,
}

/// Reads the code of a row. One that was not answered has none.
pub(super) const fn verdict(code: Option<ResultCode>) -> Verdict {
    match code {
        Some(ResultCode::Ok) => Verdict::Is(Outcome::Done),
        Some(
            ResultCode::GenerationError | ResultCode::FilteredOut | ResultCode::KeyExistsError,
        ) => Verdict::Is(Outcome::Changed),
        Some(ResultCode::KeyNotFoundError) => Verdict::Is(Outcome::Missing),
        _ => Verdict::Failed,
    }
}

/// A number that was raised and read in one step.
pub(super) fn raised(fields: &Fields) -> Result<i64, UtxoError> {
    let number = match fields.get(read::NUMBER) {
        Some(Value::MultiResult(answers)) => answers.last(),
        one => one,
    };
    match number {
        Some(Value::Int(number)) => Ok(*number),
        _ => Err(UtxoError::damaged("a counter", "it is not a number")),
    }
}

/// What nodes say that they have, copies included.
#[derive(Debug, Default)]
pub(super) struct Copies {
    usage: Usage,
    factor: u64,
}

impl Copies {
    /// How many copies a namespace has of each record.
    pub(super) fn copies(&mut self, namespace: &str) {
        let names = ["effective_replication_factor", "replication-factor", "repl-factor"];
        let factor = names.iter().find_map(|name| number(namespace, name)).unwrap_or(1);
        self.factor = self.factor.max(factor);
    }

    /// What a node has of a set.
    pub(super) fn add(&mut self, set: &str, transactions: bool) {
        if transactions {
            self.usage.records += number(set, "objects").unwrap_or(0);
        }
        // Which of them a server says depends on its version.
        let bytes = number(set, "data_used_bytes").unwrap_or_else(|| {
            let old = ["device_data_bytes", "memory_data_bytes"];
            old.iter().filter_map(|name| number(set, name)).sum()
        });
        self.usage.bytes += bytes;
    }

    /// How much there is, each record once.
    pub(super) fn usage(&self) -> Usage {
        let factor = self.factor.max(1);
        Usage { records: self.usage.records / factor, bytes: self.usage.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_judged_by_its_own_code() {
        let code = |code| verdict(Some(code));
        assert_eq!(code(ResultCode::Ok), Verdict::Is(Outcome::Done));
        assert_eq!(code(ResultCode::KeyNotFoundError), Verdict::Is(Outcome::Missing));
        for changed in
            [ResultCode::GenerationError, ResultCode::FilteredOut, ResultCode::KeyExistsError]
        {
            assert_eq!(code(changed), Verdict::Is(Outcome::Changed));
        }
        for bad in [
            ResultCode::Timeout,
            ResultCode::PartitionUnavailable,
            ResultCode::RecordTooBig,
            ResultCode::DeviceOverload,
            ResultCode::ServerError,
            ResultCode::Unknown(99),
        ] {
            assert_eq!(code(bad), Verdict::Failed);
        }
        assert_eq!(verdict(None), Verdict::Failed, "a row that was not answered");
        assert!(row_failed(None).is_retryable());
    }

    #[test]
    fn what_may_pass_is_retryable_and_what_is_wrong_is_not() {
        let away = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(failed(&Error::from(away)).is_retryable());
        assert!(!failed(&Error::invalid_argument("no")).is_retryable());
    }

    #[test]
    fn an_error_is_one_line_however_often_it_was_tried() {
        let text = "Error 9, iter=3: Client Timeout: Timeout after 3 tries\nsub-errors:\n\tError 1: a, configured \
                    user x\n\tError 2: b\ncaused by: Error 3: early eof";
        let shown = "Aerospike: Error 9, iter=3: Client Timeout: Timeout after 3 tries caused by: Error 3: \
                     early eof (attempts that failed before: 2)";
        assert_eq!(one_line(text, 2), shown);
        let hosts = "Error -8: Failed to connect to [1] host(s):\n\t127.0.0.1:1: refused\n";
        let shown = "Aerospike: Error -8: Failed to connect to [1] host(s): 127.0.0.1:1: refused";
        assert_eq!(one_line(hosts, 0), shown);
        assert_eq!(one_line(&"x".repeat(10_000), 0).len(), LONGEST + "Aerospike: ".len());
    }

    #[test]
    fn a_number_is_read_as_it_is_raised() {
        let fields = |value| -> Fields { [(read::NUMBER.to_owned(), value)].into() };
        assert_eq!(raised(&fields(Value::Int(4))).unwrap(), 4);
        let both = Value::MultiResult(vec![Value::Nil, Value::Int(5)]);
        assert_eq!(raised(&fields(both)).unwrap(), 5);
        assert!(raised(&Fields::new()).is_err());
    }

    #[test]
    fn what_nodes_have_is_summed_and_copies_are_counted_once() {
        let mut copies = Copies::default();
        for _ in 0..2 {
            copies.copies("objects=9;effective_replication_factor=2;ns_cluster_size=2");
            copies.add("objects=10:tombstones=0:data_used_bytes=700:truncate_lut=0", true);
            copies.add("objects=99:memory_data_bytes=1:device_data_bytes=20;", false);
            copies.add("", false);
        }
        assert_eq!(copies.usage(), Usage { records: 10, bytes: 1442 });
        assert_eq!(Copies::default().usage(), Usage::default());
    }
}
