//! How an archive is reached: the S3 service, its credentials, and how often a request is tried.
//!
//! Credentials come from the environment or from a file that only its owner can read. They are
//! never printed: [`S3Settings`] holds where they are, not what they are.

use std::fs;
use std::io::Read as _;
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use crate::ArchiveError;

/// The longest credentials file that is read.
const MAX_CREDENTIALS_LEN: u64 = 16 * 1024;

/// How an archive is reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// For `s3://` addresses.
    pub s3: S3Settings,
    /// How often, and how patiently.
    pub retry: Retry,
}

/// Where the S3 service is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct S3Settings {
    /// Its address; by default `AWS_ENDPOINT_URL` or Amazon's own.
    pub endpoint: Option<String>,
    /// Its region; by default `AWS_REGION`, `AWS_DEFAULT_REGION` or `us-east-1`.
    pub region: Option<String>,
    /// Allows an `http://` endpoint that is not on this machine.
    pub allow_http: bool,
    /// Where the credentials are.
    pub credentials: Credentials,
}

/// Where credentials are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Credentials {
    /// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` and the other ways of
    /// that family.
    #[default]
    Environment,
    /// A file of its own with `aws_access_key_id = …` and `aws_secret_access_key = …`, which only
    /// its owner may read.
    File(PathBuf),
}

impl Credentials {
    /// Reads the file, if it is one, as it would be read to be used.
    pub fn check(&self) -> Result<(), ArchiveError> {
        match self {
            Self::Environment => Ok(()),
            Self::File(path) => read_credentials(path).map(drop),
        }
    }
}

/// Refuses an endpoint that would be refused when it is used.
pub fn check_endpoint(endpoint: &str, allow_http: bool) -> Result<(), ArchiveError> {
    is_plain_http(endpoint, allow_http).map(drop)
}

/// How often a failed request is tried again, and how long to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Tries in all.
    pub attempts: u32,
    /// The pause after the first failure; it doubles with every further one.
    pub first_pause: Duration,
    /// The longest pause.
    pub max_pause: Duration,
    /// How long one request may take.
    pub request_timeout: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 6,
            first_pause: Duration::from_millis(200),
            max_pause: Duration::from_secs(5),
            request_timeout: Duration::from_mins(1),
        }
    }
}

impl Retry {
    /// The pause before try number `attempt`, which counts from one.
    pub(crate) fn pause(&self, attempt: u32) -> Duration {
        let doubled = 1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first_pause.saturating_mul(doubled).min(self.max_pause)
    }
}

/// A client for a bucket.
pub(crate) fn s3_client(bucket: &str, settings: &Settings) -> Result<Arc<AmazonS3>, ArchiveError> {
    crate::install_tls_provider();
    let mut builder = AmazonS3Builder::from_env();
    if let Credentials::File(path) = &settings.s3.credentials {
        // What the environment says of identities must not win over the file.
        builder = AmazonS3Builder::new();
        for (name, value) in read_credentials(path)? {
            builder = match name {
                Field::Id => builder.with_access_key_id(value),
                Field::Secret => builder.with_secret_access_key(value),
                Field::Token => builder.with_token(value),
            };
        }
    }
    builder = builder.with_bucket_name(bucket);
    let endpoint = settings.s3.endpoint.clone().or_else(|| {
        ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]
            .iter()
            .find_map(|name| std::env::var(name).ok())
    });
    let mut client = ClientOptions::new().with_timeout(settings.retry.request_timeout);
    if let Some(endpoint) = &endpoint {
        if is_plain_http(endpoint, settings.s3.allow_http)? {
            client = client.with_allow_http(true);
        }
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = &settings.s3.region {
        builder = builder.with_region(region);
    }
    // The library tries a few times quickly; the pauses and the comparing are ours.
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: settings.retry.first_pause,
            max_backoff: settings.retry.max_pause,
            ..BackoffConfig::default()
        },
        max_retries: 2,
        retry_timeout: settings.retry.request_timeout,
    };
    let store = builder
        .with_client_options(client)
        .with_retry(retry)
        .build()
        .map_err(|e| ArchiveError::invalid("S3 settings", e.to_string()))?;
    Ok(Arc::new(store))
}

/// Whether the endpoint is `http://`; refuses one that leaves this machine unless it is allowed.
fn is_plain_http(endpoint: &str, allow: bool) -> Result<bool, ArchiveError> {
    let refuse = |reason: &str| Err(ArchiveError::invalid("S3 endpoint", reason));
    let Ok(url) = url::Url::parse(endpoint) else {
        return refuse("it is not an http:// or https:// address");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("credentials come from the environment or a file, not from the address");
    }
    let loopback = match url.host_str() {
        Some("localhost") => true,
        Some(host) => host
            .trim_matches(['[', ']'])
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback()),
        None => return refuse("it names no host"),
    };
    match url.scheme() {
        "https" => Ok(false),
        "http" if loopback || allow => Ok(true),
        "http" => refuse(
            "http:// sends everything in the clear; use https://, or set allow_http if the \
             network is yours",
        ),
        _ => refuse("it is not an http:// or https:// address"),
    }
}

/// Reads a small file that only its owner can read, as credentials, tokens and keys are kept. What
/// is in it is never repeated in an error.
pub fn read_secret(path: &Path, max_len: u64) -> Result<String, ArchiveError> {
    let refuse = |reason: String| ArchiveError::Credentials { path: path.to_owned(), reason };
    let file = fs::File::open(path).map_err(|e| refuse(e.to_string()))?;
    // Of what was opened, not of what the path names by now.
    let meta = file.metadata().map_err(|e| refuse(e.to_string()))?;
    if !meta.is_file() || meta.len() > max_len {
        return Err(refuse("it is not a small file".to_owned()));
    }
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let reason = format!("its mode is {mode:03o}, so others can read it; run chmod 600 on it");
        return Err(refuse(reason));
    }
    let me = rustix::process::geteuid().as_raw();
    if meta.uid() != me && meta.uid() != 0 {
        return Err(refuse("it belongs to another user".to_owned()));
    }
    let mut text = String::new();
    file.take(max_len).read_to_string(&mut text).map_err(|e| refuse(e.kind().to_string()))?;
    Ok(text)
}

enum Field {
    Id,
    Secret,
    Token,
}

/// Reads `name = value` lines; a `[section]` line and comments are passed over.
fn read_credentials(path: &Path) -> Result<Vec<(Field, String)>, ArchiveError> {
    let refuse = |reason: String| ArchiveError::Credentials { path: path.to_owned(), reason };
    let text = read_secret(path, MAX_CREDENTIALS_LEN)?;
    let mut fields = Vec::new();
    for (number, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with(['#', ';', '[']) {
            continue;
        }
        // The line itself is never repeated: it may be the secret.
        let wrong = || refuse(format!("line {} is not name = value", number + 1));
        let (name, value) = line.split_once('=').ok_or_else(wrong)?;
        let field = match name.trim().to_ascii_lowercase().as_str() {
            "aws_access_key_id" | "access_key_id" => Field::Id,
            "aws_secret_access_key" | "secret_access_key" => Field::Secret,
            "aws_session_token" | "session_token" => Field::Token,
            _ => return Err(refuse(format!("line {} has an unknown name", number + 1))),
        };
        fields.push((field, value.trim().trim_matches('"').to_owned()));
    }
    let has = |wanted: fn(&Field) -> bool| fields.iter().any(|(field, _)| wanted(field));
    if !has(|f| matches!(f, Field::Id)) || !has(|f| matches!(f, Field::Secret)) {
        let reason = "aws_access_key_id and aws_secret_access_key are both wanted".to_owned();
        return Err(refuse(reason));
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_this_machine_only_unless_it_is_allowed() {
        for endpoint in ["http://127.0.0.1:3900", "http://localhost:1", "http://[::1]:3900"] {
            assert!(is_plain_http(endpoint, false).unwrap());
        }
        assert!(!is_plain_http("https://s3.example", false).unwrap());
        assert!(is_plain_http("http://s3.example", false).is_err());
        assert!(is_plain_http("http://s3.example", true).unwrap());
        for endpoint in ["ftp://x", "x", "http://key:secret@127.0.0.1"] {
            let error = is_plain_http(endpoint, true).unwrap_err().to_string();
            assert!(!error.contains("secret"));
        }
    }

    #[test]
    fn a_credentials_file_that_others_can_read_is_refused_and_its_lines_are_never_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        let set = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let good = "[default]\naws_access_key_id = a\naws_secret_access_key = hunter2\n";
        set(good, 0o600);
        assert_eq!(read_credentials(&path).unwrap().len(), 2);
        for mode in [0o644, 0o640, 0o604, 0o660] {
            set(good, mode);
            let error = read_credentials(&path).err().unwrap();
            assert_eq!(error.exit_code(), 11);
        }
        for text in ["hunter2", "hunter2 = x", "aws_access_key_id = hunter2", ""] {
            set(text, 0o600);
            let error = read_credentials(&path).err().unwrap().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn pauses_double_up_to_their_limit() {
        let retry = Retry::default();
        let pauses: Vec<_> = (1..8).map(|n| retry.pause(n).as_millis()).collect();
        assert_eq!(pauses, [200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(retry.pause(u32::MAX), retry.max_pause);
    }
}
