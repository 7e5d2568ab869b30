//! A Teranode-shaped chain, spoken with over gRPC: its events (`subscription`) and its block assembly
//! (`assembly`).
//!
//! Nothing that comes from there is believed without a look: heights are read from text, compared with
//! the chain's own top, and what does not fit is logged, counted and passed over.

mod assembly;
mod key;
#[cfg(test)]
mod pings;
mod subscription;

use std::time::Duration;

use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Response, Status};

pub use assembly::ChainAssembly;
pub use key::ApiKey;
use key::WithKey;
pub use subscription::follow;

use crate::UtxoError;

/// The longest message that is read: headers and states are small.
const MAX_MESSAGE: usize = 1 << 20;
/// How often a connection is asked whether it lives. A server of this shape closes a connection whose pings are less
/// than 30 seconds apart, and its clock is not ours.
const PING: Duration = Duration::from_secs(45);
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
    /// What is sent as `x-api-key` with every call, where the chain wants one.
    pub api_key: Option<ApiKey>,
}

/// A connection that shows the key.
type Keyed = InterceptedService<Channel, WithKey>;

impl ChainOptions {
    /// The usual way to a chain.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            timeout: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            pauses: (Duration::from_millis(500), Duration::from_secs(30)),
            api_key: None,
        }
    }

    /// Judges the address without asking anybody.
    pub fn check(&self) -> Result<(), UtxoError> {
        self.endpoint("chain").map(drop)
    }

    /// A way to the service; nothing is sent before it is used.
    fn channel(&self, what: &'static str) -> Result<Keyed, UtxoError> {
        let channel = self.endpoint(what)?.connect_lazy();
        Ok(InterceptedService::new(channel, WithKey(self.api_key.clone())))
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

impl Failed {
    /// Whether the chain wants another key, or one at all: to ask it again does not help.
    fn wants_a_key(&self) -> bool {
        let Self::Unanswered { status: Some(status), .. } = self else { return false };
        status.code() == Code::Unauthenticated
    }
}

impl From<Failed> for UtxoError {
    fn from(failed: Failed) -> Self {
        let hint = if failed.wants_a_key() {
            "; the chain wants its API key (utxo.api_key_file)"
        } else {
            ""
        };
        let (what, status) = match failed {
            Failed::Unanswered { what, status } => (what, status),
            Failed::Ours(error) => return error,
        };
        let reason = status.map_or_else(
            || "it does not answer in time".to_owned(),
            |status| format!("{}: {}{hint}", status.code().description(), words(status.message())),
        );
        Self::Service { what, reason, retryable: true }
    }
}

/// What another side says, as far as it may stand in our log.
fn words(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(MAX_WORDS).collect()
}
