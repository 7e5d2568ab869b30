//! What the configuration names, made: providers, the node's key, the verifier of notices.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use secateur_archive::{ArchiveUrl, Credentials, Retry, S3Settings, Settings};
use secateur_sidecar::notice::{NoticeKey, Validators, Verifier};
use secateur_sidecar::provider::{Access, LoadS3, LoadS3Options, ObjectProvider, Provider};
use secateur_sidecar::service::Identity;

use crate::config::{BlobPlace, NodeBlobs};
use crate::error::NodeError;

/// Every place for copies, in the order of the configuration. A directory that is missing is made;
/// nothing else is asked of anybody yet.
pub(crate) fn providers(settings: &NodeBlobs) -> Result<Vec<Arc<dyn Provider>>, anyhow::Error> {
    settings.providers.iter().map(opened).collect()
}

/// Refuses places whose files or addresses could not be used, without making or asking anything.
pub(crate) fn check_providers(settings: &NodeBlobs) -> Result<(), anyhow::Error> {
    let remote = |place: &&BlobPlace| !matches!(place, BlobPlace::Fs { .. });
    settings.providers.iter().filter(remote).try_for_each(|place| opened(place).map(drop))
}

fn opened(place: &BlobPlace) -> Result<Arc<dyn Provider>, anyhow::Error> {
    provider(place).with_context(|| {
        NodeError::Usage(format!("sidecar.providers: {} cannot be used", name_of(place)))
    })
}

/// A name as it may be shown: nobody has looked at it yet.
fn name_of(place: &BlobPlace) -> String {
    place.name().chars().filter(|c| !c.is_control()).take(64).collect()
}

fn provider(place: &BlobPlace) -> Result<Arc<dyn Provider>, anyhow::Error> {
    Ok(match place.clone() {
        BlobPlace::Fs { name, path } => {
            let url = ArchiveUrl::Directory(path);
            // A directory says at once what is wrong with it, a full disk for one. Whoever archives
            // or reads tries again, and says so; nothing is gained by waiting here.
            let retry = Retry { attempts: 1, ..Retry::default() };
            let settings = Settings { retry, ..Settings::default() };
            Arc::new(ObjectProvider::open(name, &url, &settings)?)
        }
        BlobPlace::S3 { name, url, endpoint, region, allow_http, credentials, timeout_seconds } => {
            let url: ArchiveUrl = url.parse()?;
            if matches!(url, ArchiveUrl::Directory(_)) {
                return Err(NodeError::Usage("url: s3://bucket/prefix is wanted".into()).into());
            }
            let credentials = credentials.map_or(Credentials::Environment, Credentials::File);
            let request_timeout = Duration::from_secs(timeout_seconds);
            let settings = Settings {
                s3: S3Settings { endpoint, region, allow_http, credentials },
                retry: Retry { request_timeout, ..Retry::default() },
            };
            Arc::new(ObjectProvider::open(name, &url, &settings)?)
        }
        BlobPlace::LoadS3 {
            name,
            agent,
            gateway,
            token_file,
            ca_file,
            allow_http,
            timeout_seconds,
            // Refused where the configuration is read.
            bucket: _,
            folder: _,
        } => {
            let timeout = Duration::from_secs(timeout_seconds);
            let options = LoadS3Options {
                access: Access::Public,
                token_file,
                ca_file,
                timeout,
                allow_http,
                ..LoadS3Options::new(name, agent, gateway)
            };
            Arc::new(LoadS3::new(&options)?)
        }
    })
}

/// Who this node is, with its key. A key that is not the validator's is refused.
pub(crate) fn identity(settings: &NodeBlobs) -> Result<Option<Identity>, anyhow::Error> {
    let Some(validator) = &settings.identity else { return Ok(None) };
    let key = NoticeKey::read(&validator.key_file)
        .map_err(|error| NodeError::Usage(format!("sidecar.key_file: {error}")))?;
    let (id, public_key) = (validator.id.clone(), key.public_key());
    let ours = settings.terms.iter().any(|term| term.id == id && term.public_key == public_key);
    if !ours {
        return Err(NodeError::Usage(format!(
            "sidecar.key_file: {} has the public key {public_key}, and sidecar.validators has \
             another one for {id}",
            validator.key_file.display()
        ))
        .into());
    }
    Ok(Some(Identity { id, key: Arc::new(key) }))
}

/// What decides whether a notice is believed.
pub(crate) fn verifier(settings: &NodeBlobs, chain_id: u64) -> Result<Verifier, anyhow::Error> {
    let validators = Validators::new(&settings.terms)?;
    let NodeBlobs { signers, accept_v0, .. } = *settings;
    Ok(Verifier { chain_id, validators, signers, accept_v0 })
}
