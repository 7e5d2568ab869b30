//! Requests: each in its time, its answer read only so far, redirected only to where it was sent.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Certificate, Client, RequestBuilder, Response, Url};

use super::super::ProviderError;
use super::wire;

/// Redirects of one request, at most.
const MAX_REDIRECTS: usize = 3;
/// The longest that a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest answer in words that is read.
const MAX_REPLY: usize = 64 * 1024;
/// The longest answer with an error status that is read.
const MAX_ERROR: usize = 16 * 1024;
/// The longest file of certificates.
const MAX_CA: u64 = 1 << 20;

/// The way to an agent and its gateway.
#[derive(Debug)]
pub(super) struct Http {
    pub(super) client: Client,
    pub(super) provider: String,
    timeout: Duration,
}

impl Http {
    pub(super) fn new(
        provider: &str,
        timeout: Duration,
        tls: bool,
        ca: Option<&Path>,
    ) -> Result<Self, ProviderError> {
        let refuse = |reason: String| ProviderError::Invalid { what: "HTTP settings", reason };
        secateur_archive::install_tls_provider();
        let mut client = Client::builder()
            .user_agent(concat!("secateur/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::custom(|attempt| {
                if stays(&attempt) { attempt.follow() } else { attempt.stop() }
            }))
            .referer(false)
            .connect_timeout(timeout.min(CONNECT))
            .timeout(timeout);
        if let Some(path) = ca {
            let wrong = |reason: String| refuse(format!("{}: {reason}", path.display()));
            let meta = std::fs::metadata(path).map_err(|e| wrong(e.to_string()))?;
            if meta.len() > MAX_CA {
                return Err(wrong("it is too long for certificates".to_owned()));
            }
            let pem = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
            let certs = Certificate::from_pem_bundle(&pem).map_err(|e| wrong(e.to_string()))?;
            client = client.tls_certs_only(certs);
        } else if !tls {
            // No certificates are needed, so that none have to be installed.
            client = client.tls_certs_only([]);
        }
        let client = client.build().map_err(|e| refuse(e.without_url().to_string()))?;
        Ok(Self { client, provider: provider.to_owned(), timeout })
    }

    /// Sends a request and reads its answer, which is a success; none if it is longer than its
    /// limit.
    pub(super) async fn ask(
        &self,
        request: RequestBuilder,
        limit: usize,
    ) -> Result<Option<Bytes>, ProviderError> {
        let response = request.send().await.map_err(|e| self.broken(e))?;
        let status = response.status();
        if status.is_success() {
            return self.read(response, limit).await;
        }
        let reason = match self.read(response, MAX_ERROR).await {
            Ok(Some(body)) => wire::complaint(&body),
            Ok(None) => "it says too much".to_owned(),
            Err(_) => "it says nothing".to_owned(),
        };
        let (provider, status) = (self.provider.clone(), status.as_u16());
        Err(ProviderError::Refused { provider, status, reason })
    }

    /// The same for an answer in words.
    pub(super) async fn ask_words(&self, request: RequestBuilder) -> Result<Bytes, ProviderError> {
        self.ask(request, MAX_REPLY).await?.ok_or_else(|| self.bad_reply("too many words"))
    }

    /// Reads a body; none if it is longer than its limit.
    async fn read(
        &self,
        mut response: Response,
        limit: usize,
    ) -> Result<Option<Bytes>, ProviderError> {
        let stated = response.content_length().unwrap_or(0);
        if stated > limit as u64 {
            return Ok(None);
        }
        let mut body = BytesMut::with_capacity(usize::try_from(stated).unwrap_or(0));
        while let Some(part) = response.chunk().await.map_err(|e| self.broken(e))? {
            if part.len() > limit.saturating_sub(body.len()) {
                return Ok(None);
            }
            body.extend_from_slice(&part);
        }
        Ok(Some(body.freeze()))
    }

    pub(super) fn bad_reply(&self, what: impl Into<String>) -> ProviderError {
        ProviderError::BadReply { provider: self.provider.clone(), what: what.into() }
    }

    fn broken(&self, error: reqwest::Error) -> ProviderError {
        let reason = if error.is_timeout() {
            format!("it took longer than {} s", self.timeout.as_secs_f32())
        } else {
            // The last cause says most, and the address is told already.
            let error = error.without_url();
            let mut cause: &dyn std::error::Error = &error;
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
            cause.to_string()
        };
        ProviderError::Unreachable { provider: self.provider.clone(), reason }
    }
}

/// Whether a redirect stays with the server that was asked.
fn stays(attempt: &Attempt<'_>) -> bool {
    let origin = |url: &Url| url.origin();
    let first = attempt.previous().first();
    attempt.previous().len() <= MAX_REDIRECTS
        && first.is_some_and(|first| origin(first) == origin(attempt.url()))
}

/// An address under which paths are asked. It is not repeated in errors: it may hold a secret.
pub(super) fn base(what: &'static str, text: &str, allow_http: bool) -> Result<Url, ProviderError> {
    let refuse = |reason: &str| Err(ProviderError::Invalid { what, reason: reason.to_owned() });
    let Ok(url) = Url::parse(text) else {
        return refuse("it is not an http:// or https:// address");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("a key comes from a file, not from the address");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refuse("it has a query or a fragment");
    }
    let loopback = match url.host_str() {
        Some("localhost") => true,
        Some(host) => {
            host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
        None => return refuse("it names no host"),
    };
    match url.scheme() {
        "https" => Ok(url),
        "http" if loopback || allow_http => Ok(url),
        "http" => refuse(
            "http:// sends everything in the clear; use https://, or set allow_http if the \
             network is yours",
        ),
        _ => refuse("it is not an http:// or https:// address"),
    }
}

/// A path below an address.
pub(super) fn under(base: &Url, path: &[&str]) -> Url {
    let mut url = base.clone();
    // Addresses of http and https have segments; another was refused before.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_plain_and_not_in_the_clear_unless_it_is_allowed() {
        for text in ["https://agent.example", "http://127.0.0.1:9", "http://[::1]:9/a/"] {
            assert!(base("agent address", text, false).is_ok(), "{text}");
        }
        assert!(base("agent address", "http://agent.example", true).is_ok());
        for text in [
            "http://agent.example",
            "https://key:hunter2@agent.example",
            "https://agent.example/?key=hunter2",
            "https://agent.example/#hunter2",
            "ftp://hunter2",
            "hunter2",
            "",
        ] {
            let error = base("agent address", text, false).unwrap_err();
            assert!(!error.is_retryable());
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn paths_are_put_under_an_address_with_or_without_a_slash_at_its_end() {
        for text in ["https://x.example/a", "https://x.example/a/"] {
            let url = under(&base("agent address", text, false).unwrap(), &["resolve", "id"]);
            assert_eq!(url.as_str(), "https://x.example/a/resolve/id");
        }
        let url = under(&Url::parse("https://x.example").unwrap(), &["resolve", "../a?b#c"]);
        assert_eq!(url.as_str(), "https://x.example/resolve/..%2Fa%3Fb%23c");
    }
}
