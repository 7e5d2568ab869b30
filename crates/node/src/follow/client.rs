//! One HTTP request to a source and its bounded answer. What the answer means is not known here.

use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode, Url};
use tokio::sync::Semaphore;

use crate::config::Follow;
use crate::error::NodeError;

/// The longest answer that is read at all: 256 MiB. All requests under way share so much.
pub(super) const MAX_BODY: usize = 256 << 20;
/// The least that one request may have of it, however many are under way.
const LEAST_SHARE: usize = 16 << 20;
/// The longest answer that says no: 64 KiB.
const MAX_ERROR_BODY: usize = 64 << 10;
/// The longest that setting up a connection may take.
const MAX_CONNECT: Duration = Duration::from_secs(10);
/// A whole answer may take so many times as long as a silence within it.
const WHOLE_TIMES: u32 = 10;
/// A source that asks for a longer pause than this is asked again all the same.
const MAX_PAUSE: Duration = Duration::from_mins(1);

/// Why a request has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// It may work when it is tried again, after a pause that the source may have named.
    Transient { reason: String, pause: Option<Duration> },
    /// The answer is longer than this request may have; asking for less helps.
    TooLong { limit: usize },
    /// The source does not take the request as it is.
    Rejected { reason: String },
}

impl Failure {
    /// One that may work when it is tried again.
    pub(super) fn transient(reason: impl Into<String>) -> Self {
        Self::Transient { reason: reason.into(), pause: None }
    }
}

/// The way to one source.
pub(super) struct Client {
    http: reqwest::Client,
    url: Url,
    name: String,
    timeout: Duration,
    /// What one of many requests under way may read.
    share: usize,
    /// So many requests are under way at most.
    places: Semaphore,
    /// One at a time may read as much as there is.
    large: Semaphore,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the address.
        f.debug_struct("Client").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Client {
    /// Prepares the way to what a configuration key names; nothing is sent yet.
    pub(super) fn new(key: &str, config: &Follow) -> Result<Self, anyhow::Error> {
        let refuse = |reason: &str| {
            // Not the address itself: it may hold a password or a key.
            NodeError::Usage(format!("{key} is not an address that can be followed: {reason}"))
        };
        let url = check_url(&config.url).map_err(|reason| refuse(&reason))?;
        let host = url.host_str().unwrap_or_default();
        let name = match url.port() {
            Some(port) => format!("{}://{host}:{port}", url.scheme()),
            None => format!("{}://{host}", url.scheme()),
        };
        secateur_archive::install_tls_provider();
        let mut http = reqwest::Client::builder()
            .user_agent(concat!("secateur/", env!("CARGO_PKG_VERSION")))
            // Where else the blocks come from is for the operator to say, not for the source.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(config.timeout.min(MAX_CONNECT))
            .read_timeout(config.timeout)
            .timeout(config.timeout.saturating_mul(WHOLE_TIMES))
            .pool_max_idle_per_host(config.concurrency);
        match url.scheme() {
            // No certificates are needed, so that none have to be installed.
            "http" => http = http.tls_certs_only([]),
            _ => http = http.https_only(true),
        }
        let http = http.build().map_err(|error| {
            NodeError::Failed(format!("the way to {name} cannot be prepared: {error}"))
        })?;
        Ok(Self {
            http,
            name,
            timeout: config.timeout,
            share: (MAX_BODY / config.concurrency.max(1)).max(LEAST_SHARE),
            places: Semaphore::new(config.concurrency),
            large: Semaphore::new(1),
            url,
        })
    }

    /// The source's name for logs: its address without anything that may be secret.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Sends a request when there is a place for it, and reads its answer.
    pub(super) async fn post(&self, body: Vec<u8>) -> Result<Bytes, Failure> {
        let _place = self.places.acquire().await;
        self.send(body, self.share).await
    }

    /// The same for one answer that is known to be long.
    pub(super) async fn post_large(&self, body: Vec<u8>) -> Result<Bytes, Failure> {
        let _turn = self.large.acquire().await;
        let _place = self.places.acquire().await;
        self.send(body, MAX_BODY).await
    }

    /// Asks for what is under a path of the source, and reads so much of it at most. A source that
    /// has nothing there is an answer as well.
    pub(super) async fn get(&self, path: &str, limit: usize) -> Result<Option<Bytes>, Failure> {
        let _place = self.places.acquire().await;
        let mut url = self.url.clone();
        url.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
        let json = HeaderValue::from_static("application/json");
        let request = self.http.get(url).header(ACCEPT, json);
        let response = request.send().await.map_err(|error| self.broken(error))?;
        let status = response.status();
        match status.as_u16() {
            200 => self.read(response, limit).await.map(Some),
            // Not there, not in this way, not any more, not made.
            404 | 405 | 410 | 501 => Ok(None),
            _ => {
                let (reason, pause) = (format!("it answered HTTP {status}"), pause_of(&response));
                Err(Failure::Transient { reason, pause })
            }
        }
    }

    async fn send(&self, body: Vec<u8>, limit: usize) -> Result<Bytes, Failure> {
        let json = HeaderValue::from_static("application/json");
        let request = self.http.post(self.url.clone()).header(CONTENT_TYPE, json).body(body);
        let response = request.send().await.map_err(|error| self.broken(error))?;
        let status = response.status();
        if status.is_success() {
            return self.read(response, limit).await;
        }
        let pause = pause_of(&response);
        let body = self.read(response, MAX_ERROR_BODY).await.unwrap_or_default();
        // Some sources say no in JSON-RPC's words and in HTTP's at once; the former tell more.
        if body.starts_with(b"{") && status != StatusCode::TOO_MANY_REQUESTS {
            return Ok(body);
        }
        let reason = format!("it answered HTTP {status}");
        match status.as_u16() {
            400 | 405 | 413 | 415 | 422 => Err(Failure::Rejected { reason }),
            _ => Err(Failure::Transient { reason, pause }),
        }
    }

    /// Reads a body, and stops where it becomes too long.
    async fn read(&self, mut response: Response, limit: usize) -> Result<Bytes, Failure> {
        let stated = response.content_length().unwrap_or(0);
        if stated > limit as u64 {
            return Err(Failure::TooLong { limit });
        }
        let expected = usize::try_from(stated).unwrap_or(0).min(LEAST_SHARE);
        let mut body = BytesMut::with_capacity(expected);
        while let Some(part) = response.chunk().await.map_err(|error| self.broken(error))? {
            if part.len() > limit.saturating_sub(body.len()) {
                return Err(Failure::TooLong { limit });
            }
            body.extend_from_slice(&part);
        }
        Ok(body.freeze())
    }

    fn broken(&self, error: reqwest::Error) -> Failure {
        let reason = if error.is_connect() {
            "it cannot be reached".to_owned()
        } else if error.is_timeout() {
            format!("it was silent for {} seconds", self.timeout.as_secs())
        } else {
            "the connection broke".to_owned()
        };
        // The address may hold a key.
        let error = error.without_url();
        let mut cause: &dyn std::error::Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        Failure::transient(format!("{reason} ({cause})"))
    }
}

/// Judges an address that a client could be made for; the reason does not repeat it, because it may
/// hold a password or a key.
pub(crate) fn check_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    match url.scheme() {
        "http" | "https" if url.host_str().is_some_and(|host| !host.is_empty()) => Ok(url),
        "http" | "https" => Err("it names no host".into()),
        _ => Err("http:// or https:// is wanted at its beginning".into()),
    }
}

/// The pause that a source asks for, in seconds.
fn pause_of(response: &Response) -> Option<Duration> {
    let text = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    Some(Duration::from_secs(text.trim().parse().ok()?).min(MAX_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Start;

    fn client(url: &str) -> Result<Client, anyhow::Error> {
        let config = Follow {
            url: url.into(),
            start: Start::At(0),
            confirmations: None,
            batch: 1,
            concurrency: 4,
            poll: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
        };
        Client::new("follow.url", &config)
    }

    #[test]
    fn the_name_of_a_source_holds_no_password_and_no_key() {
        let secret = "https://user:hunter2@rpc.example:8545/v3/s3cret?key=s3cret";
        let client = client(secret).unwrap();
        assert_eq!(client.name(), "https://rpc.example:8545");
        let debug = format!("{client:?}");
        assert!(!debug.contains("s3cret") && !debug.contains("hunter2"), "{debug}");
    }

    #[test]
    fn an_address_that_is_none_is_refused_without_being_shown() {
        for url in ["ftp://s3cret@host/", "s3cret", "unix:/s3cret", "http://"] {
            let error = client(url).unwrap_err().to_string();
            assert!(error.contains("follow.url") && !error.contains("s3cret"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_connection_that_fails_does_not_show_the_address() {
        let client = client("http://user:hunter2@127.0.0.1:1/s3cret").unwrap();
        let failure = format!("{:?}", client.post(Vec::new()).await.unwrap_err());
        assert!(failure.contains("cannot be reached"), "{failure}");
        assert!(!failure.contains("s3cret") && !failure.contains("hunter2"), "{failure}");
    }
}
