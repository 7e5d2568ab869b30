//! A Teranode-shaped chain, spoken with over gRPC: its events (`subscription`) and its block assembly
//! (`assembly`).
//!
//! Nothing that comes from there is believed without a look: heights are read from text, compared with
//! the chain's own top, and what does not fit is logged, counted and passed over.

mod assembly;
mod subscription;

use std::time::Duration;

use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Response, Status};

pub use assembly::ChainAssembly;
pub use subscription::follow;

use crate::UtxoError;

/// The longest message that is read: headers and states are small.
const MAX_MESSAGE: usize = 1 << 20;
/// How often a connection is asked whether it lives, and how long it may take to answer.
const PING: Duration = Duration::from_secs(10);
/// As much of another side's words as is repeated.
const MAX_WORDS: usize = 200;

/// How a chain is reached, and how patiently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainOptions {
    /// `http://host:port` or `https://host:port`.
    pub url: String,
    /// The longest wait for one answer.
    pub timeout: Duration,
    /// After this long without news the chain is asked where it is.
    pub silence: Duration,
    /// How long a broken connection rests, at first and at most.
    pub pauses: (Duration, Duration),
}

impl ChainOptions {
    /// The usual way to a chain.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            timeout: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            pauses: (Duration::from_millis(500), Duration::from_secs(30)),
        }
    }

    /// Judges the address without asking anybody.
    pub fn check(&self) -> Result<(), UtxoError> {
        self.endpoint("chain").map(drop)
    }

    /// A way to the service; nothing is sent before it is used.
    fn channel(&self, what: &'static str) -> Result<Channel, UtxoError> {
        Ok(self.endpoint(what)?.connect_lazy())
    }

    fn endpoint(&self, what: &'static str) -> Result<Endpoint, UtxoError> {
        let refuse = |reason: String| UtxoError::Service { what, reason, retryable: false };
        let https = self.url.starts_with("https://");
        if !https && !self.url.starts_with("http://") {
            return Err(refuse("an address such as http://host:port is wanted".into()));
        }
        if self.url.contains('@') {
            return Err(refuse("an address with a user and password is not taken".into()));
        }
        let endpoint = Endpoint::from_shared(self.url.clone())
            .map_err(|error| refuse(error.to_string()))?
            .connect_timeout(self.timeout)
            .http2_keep_alive_interval(PING)
            .keep_alive_timeout(self.timeout)
            .keep_alive_while_idle(true);
        if !https {
            return Ok(endpoint);
        }
        secateur_archive::install_tls_provider();
        let tls = ClientTlsConfig::new().with_native_roots();
        endpoint.tls_config(tls).map_err(|error| refuse(error.to_string()))
    }
}

/// An answer that comes in time, or what went wrong.
async fn in_time<T>(
    what: &'static str,
    timeout: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Failed> {
    match tokio::time::timeout(timeout, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(Failed::Unanswered { what, status: Some(status) }),
        Err(_) => Err(Failed::Unanswered { what, status: None }),
    }
}

/// Why a chain is not heard.
#[derive(Debug)]
enum Failed {
    /// A question was not answered.
    Unanswered {
        what: &'static str,
        /// What was said instead; nothing if nothing was said in time.
        status: Option<Status>,
    },
    /// The answer does not read, or what it says could not be kept.
    Ours(UtxoError),
}

impl From<Failed> for UtxoError {
    fn from(failed: Failed) -> Self {
        let (what, status) = match failed {
            Failed::Unanswered { what, status } => (what, status),
            Failed::Ours(error) => return error,
        };
        let reason = status.map_or_else(
            || "it does not answer in time".to_owned(),
            |status| format!("{:?}: {}", status.code(), words(status.message())),
        );
        Self::Service { what, reason, retryable: true }
    }
}

/// What another side says, as far as it may stand in our log.
fn words(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(MAX_WORDS).collect()
}
