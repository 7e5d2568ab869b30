//! load-s3-agent: blobs over HTTP to an agent that stores them, read back from its gateway.
//!
//! The agent takes a multipart upload and answers the id of a data item; that id is the locator, and
//! `load-s3://<id>`, as Ultramarine writes it, is read too. The gateway gives the bytes back under it. An upload whose answer is lost may have been done, so it is
//! looked for by its tags before it is sent again. Tags can be set by anybody, so what is found
//! counts only if its bytes are the blob's. The agent indexes no tags of private items: those are
//! not found, and a lost answer leaves a second copy there.

mod http;
mod wire;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use alloy_primitives::keccak256;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{RequestBuilder, Url};

use self::http::Http;
use self::wire::Form;
use super::{BlobTags, ObjectName, Provider, ProviderError, check_blob, check_id};
use crate::BLOB_LEN;
use crate::secret::read_token;

/// Items that are asked for at a time.
const PAGE: usize = 25;
/// Pages that are asked for when an item is looked for.
const MAX_PAGES: usize = 4;

/// Who may read what is uploaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Everybody who knows the id: `/upload`.
    Public,
    /// A bucket of one's own: `/upload/private`. The gateway of load-s3-agent 0.7 does not resolve such
    /// items, so their read-back fails there.
    Private {
        /// The bucket.
        bucket: String,
        /// A folder in it.
        folder: Option<String>,
    },
}

/// How an agent and its gateway are reached.
#[derive(Debug, Clone)]
pub struct LoadS3Options {
    /// The name by which notices refer to it.
    pub id: String,
    /// The agent's address, `https://…`.
    pub agent: String,
    /// The gateway's address, under which `/resolve/<id>` is asked.
    pub gateway: String,
    /// Who may read what is uploaded.
    pub access: Access,
    /// A file with the agent's key, its owner's alone.
    pub token_file: Option<PathBuf>,
    /// Certificates (PEM) to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// How long one request may take, its answer included.
    pub timeout: Duration,
    /// Allows `http://` to other machines.
    pub allow_http: bool,
}

impl LoadS3Options {
    /// The usual way to reach an agent.
    pub fn new(
        id: impl Into<String>,
        agent: impl Into<String>,
        gateway: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            agent: agent.into(),
            gateway: gateway.into(),
            access: Access::Public,
            token_file: None,
            ca_file: None,
            timeout: Duration::from_secs(30),
            allow_http: false,
        }
    }
}

/// An agent and its gateway.
pub struct LoadS3 {
    http: Http,
    agent: Url,
    gateway: Url,
    bearer: Option<HeaderValue>,
    /// `x-bucket-name` and `x-folder-name`, if it is private.
    bucket: Option<(HeaderValue, Option<HeaderValue>)>,
}

impl fmt::Debug for LoadS3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadS3")
            .field("id", &self.http.provider)
            .field("agent", &self.agent.as_str())
            .field("gateway", &self.gateway.as_str())
            .finish_non_exhaustive()
    }
}

impl LoadS3 {
    /// Makes ready to ask; nothing is sent yet.
    pub fn new(options: &LoadS3Options) -> Result<Self, ProviderError> {
        check_id(&options.id)?;
        let agent = http::base("agent address", &options.agent, options.allow_http)?;
        let gateway = http::base("gateway address", &options.gateway, options.allow_http)?;
        let bearer = options.token_file.as_deref().map(read_token).transpose()?;
        let bearer = bearer
            .map(|token| header("token", &format!("Bearer {}", token.as_str())))
            .transpose()?;
        let bucket = match &options.access {
            Access::Public => None,
            Access::Private { bucket, folder } => {
                let folder = folder.as_deref().map(|name| header("folder", name)).transpose()?;
                Some((header("bucket", bucket)?, folder))
            }
        };
        let tls = [&agent, &gateway].iter().any(|url| url.scheme() == "https");
        let ca = options.ca_file.as_deref();
        let http = Http::new(&options.id, options.timeout, tls, ca)?;
        Ok(Self { http, agent, gateway, bearer, bucket })
    }

    /// A request to the agent, with its key. The gateway never sees that key.
    fn to_agent(&self, path: &[&str]) -> RequestBuilder {
        let request = self.http.client.post(http::under(&self.agent, path));
        match &self.bearer {
            Some(bearer) => request.header(AUTHORIZATION, bearer.clone()),
            None => request,
        }
    }

    async fn put_blob(&self, tags: &BlobTags, blob: &Bytes) -> Result<String, ProviderError> {
        check_blob(tags, blob)?;
        let name = ObjectName::of(tags).to_string().replace(['/', '='], "-");
        let form = Form::new(tags, &name, blob);
        let request = match &self.bucket {
            None => self.to_agent(&["upload"]),
            Some((bucket, folder)) => {
                let request = self
                    .to_agent(&["upload", "private"])
                    .header("x-bucket-name", bucket.clone())
                    .header("x-dataitem-name", name);
                match folder {
                    Some(folder) => request.header("x-folder-name", folder.clone()),
                    None => request,
                }
            }
        };
        let request = request.header(CONTENT_TYPE, form.content_type).body(form.body);
        let reply = self.http.ask_words(request).await?;
        wire::uploaded(&reply).map_err(|what| self.http.bad_reply(what))
    }

    async fn get_blob(&self, locator: &str, max_len: usize) -> Result<Bytes, ProviderError> {
        let id = wire::item_id(locator)
            .map_err(|reason| ProviderError::Invalid { what: "locator", reason })?;
        let limit = max_len.min(BLOB_LEN);
        let request = self.http.client.get(http::under(&self.gateway, &["resolve", id]));
        let (provider, locator) = (self.http.provider.clone(), locator.to_owned());
        match self.http.ask(request, limit).await {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(ProviderError::TooLong { provider, locator, limit }),
            Err(ProviderError::Refused { status: 404, .. }) => {
                Err(ProviderError::Missing { provider, locator })
            }
            Err(error) => Err(error),
        }
    }

    async fn find_blob(&self, tags: &BlobTags) -> Result<Option<String>, ProviderError> {
        tags.check()?;
        let mut seen: Vec<String> = Vec::new();
        let mut failed = None;
        let mut after = None;
        for _ in 0..MAX_PAGES {
            let question = wire::query(tags, PAGE, after.as_deref());
            let json = HeaderValue::from_static("application/json");
            let request = self.to_agent(&["tags", "query"]).header(CONTENT_TYPE, json);
            let reply = self.http.ask_words(request.body(question)).await?;
            let page = wire::page(&reply, PAGE).map_err(|what| self.http.bad_reply(what))?;
            for id in page.ids {
                if seen.contains(&id) {
                    continue;
                }
                match self.get_blob(&id, BLOB_LEN).await {
                    Ok(bytes) if keccak256(&bytes) == tags.blob_keccak.0 => return Ok(Some(id)),
                    Err(error @ ProviderError::Unreachable { .. }) => return Err(error),
                    // What is listed and not there yet is an upload that the gateway does not show.
                    Err(error) if error.is_retryable() => failed = Some(error),
                    // Somebody else's bytes under our tags.
                    Ok(_) | Err(_) => {}
                }
                seen.push(id);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        // An item that could not be read may be ours: better later than twice.
        failed.map_or(Ok(None), Err)
    }
}

/// A value for a header. It is never repeated: it may be the key.
fn header(what: &'static str, text: &str) -> Result<HeaderValue, ProviderError> {
    let plain = !text.is_empty() && text.len() <= 1_024 && text.bytes().all(|b| b >= b' ');
    let value = HeaderValue::from_str(text).ok().filter(|_| plain && text.is_ascii());
    let mut value = value.ok_or_else(|| ProviderError::Invalid {
        what,
        reason: "it is empty, too long, or has characters that no header takes".to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}

impl Provider for LoadS3 {
    fn id(&self) -> &str {
        &self.http.provider
    }

    fn put<'a>(
        &'a self,
        tags: &'a BlobTags,
        blob: Bytes,
    ) -> BoxFuture<'a, Result<String, ProviderError>> {
        Box::pin(async move { self.put_blob(tags, &blob).await })
    }

    fn get<'a>(
        &'a self,
        locator: &'a str,
        max_len: usize,
    ) -> BoxFuture<'a, Result<Bytes, ProviderError>> {
        Box::pin(self.get_blob(locator, max_len))
    }

    fn find<'a>(
        &'a self,
        tags: &'a BlobTags,
    ) -> BoxFuture<'a, Result<Option<String>, ProviderError>> {
        Box::pin(self.find_blob(tags))
    }
}
