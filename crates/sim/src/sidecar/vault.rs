//! Simulated providers: what they really hold, and everything that can go wrong with them. Whether a
//! copy is right is known here and told to nobody but the oracle.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::keccak256;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use secateur_sidecar::provider::{BlobTags, Provider, ProviderError};

use super::mortal::{Mortal, Step};
use super::oracle::Oracle;
use crate::rng::Rng;

/// What can go wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Fine,
    Down,
    LostReply,
    Wrong,
    Truncated,
    Slow,
}

/// What all providers hold.
#[derive(Debug)]
pub struct Vault {
    objects: Mutex<BTreeMap<(String, String), Bytes>>,
    /// What was fine once and was spoiled.
    spoiled: Mutex<BTreeSet<(String, String)>>,
    rng: Mutex<Rng>,
    /// Faults in a hundred calls; none once everything is healed.
    faults: Mutex<u64>,
}

impl Vault {
    /// An empty one.
    pub fn new(seed: u64, faults: u64) -> Arc<Self> {
        let rng = Mutex::new(Rng::new(seed, 31));
        let (objects, spoiled) = (Mutex::default(), Mutex::default());
        Arc::new(Self { objects, spoiled, rng, faults: Mutex::new(faults) })
    }

    /// Providers are honest from now on. What was spoiled is removed, as an operator would where it
    /// is in the way of what belongs there: with a provider that names blobs by their tags.
    pub fn heal(&self, right: impl Fn(&[u8; 32]) -> bool, named: impl Fn(&str) -> bool) {
        *self.faults.lock() = 0;
        let stays = |provider: &str, bytes: &Bytes| !named(provider) || right(&keccak256(bytes).0);
        self.objects.lock().retain(|(provider, _), bytes| stays(provider, bytes));
    }

    /// The hash of what lies under a locator.
    pub fn keccak_at(&self, provider: &str, key: &str) -> Option<[u8; 32]> {
        let place = (provider.to_owned(), key.to_owned());
        self.objects.lock().get(&place).map(|bytes| keccak256(bytes).0)
    }

    /// Whether something under a locator was spoiled after it had been fine.
    pub fn was_spoiled(&self, provider: &str, key: &str) -> bool {
        self.spoiled.lock().contains(&(provider.to_owned(), key.to_owned()))
    }

    /// Somebody else puts something under a name.
    pub fn plant(&self, provider: &str, key: &str, bytes: Bytes) {
        self.objects.lock().insert((provider.to_owned(), key.to_owned()), bytes);
    }

    /// An object that was fine is lost, cut short or changed.
    pub fn decay(&self, provider: &str, key: &str) {
        let place = (provider.to_owned(), key.to_owned());
        let kind = self.rng.lock().below(3);
        let mut objects = self.objects.lock();
        let Some(bytes) = objects.remove(&place) else { return };
        self.spoiled.lock().insert(place.clone());
        match kind {
            0 => {}
            1 => drop(objects.insert(place, bytes.slice(..bytes.len() / 2))),
            _ => drop(objects.insert(place, other(&bytes))),
        }
    }

    fn fate(&self) -> (Fate, Duration) {
        let mut rng = self.rng.lock();
        let quick = Duration::from_millis(rng.below(20));
        if rng.below(100) >= *self.faults.lock() {
            return (Fate::Fine, quick);
        }
        let fates = [Fate::Down, Fate::LostReply, Fate::Wrong, Fate::Truncated, Fate::Slow];
        let drawn = usize::try_from(rng.below(5)).unwrap_or(0);
        let fate = fates.get(drawn).copied().unwrap_or(Fate::Down);
        let slow = Duration::from_millis(2_000 + rng.below(8_000));
        (fate, if fate == Fate::Slow { slow } else { quick })
    }
}

/// The same bytes with one changed.
pub fn other(bytes: &Bytes) -> Bytes {
    let mut changed = bytes.to_vec();
    if let Some(first) = changed.first_mut() {
        *first ^= 1;
    }
    changed.into()
}

/// The same bytes with another one changed: what is wrong already does not become right again.
fn garbled(bytes: &Bytes) -> Bytes {
    let mut changed = bytes.to_vec();
    if let Some(last) = changed.last_mut() {
        *last ^= 1;
    }
    changed.into()
}

/// One validator's way to one provider.
#[derive(Debug)]
pub struct SimProvider {
    /// Its name.
    pub id: String,
    /// Whether a blob's name is made of its tags; else each put has a name of its own.
    pub named: bool,
    /// What is behind it.
    pub vault: Arc<Vault>,
    /// Who asks.
    pub mortal: Arc<Mortal>,
    /// Who hears of what was really given.
    pub oracle: Arc<Oracle>,
}

impl SimProvider {
    fn unreachable(&self) -> ProviderError {
        ProviderError::Unreachable { provider: self.id.clone(), reason: "simulated".into() }
    }

    /// A call that comes from a dead process is never made, and never answered.
    async fn alive(&self, step: Step) {
        self.mortal.step(step);
        if self.mortal.is_dead() {
            pending::<()>().await;
        }
    }

    fn store(&self, tags: &BlobTags, blob: Bytes) -> Result<String, ProviderError> {
        let name = name_of(tags);
        let key =
            if self.named { name } else { format!("{name}-{:x}", self.vault.rng.lock().u64()) };
        let mut objects = self.vault.objects.lock();
        let place = (self.id.clone(), key.clone());
        match objects.get(&place) {
            Some(there) if *there != blob => {
                Err(ProviderError::Conflict { provider: self.id.clone(), locator: key })
            }
            Some(_) => Ok(key),
            None => {
                objects.insert(place, blob);
                Ok(key)
            }
        }
    }

    async fn put_blob(&self, tags: &BlobTags, blob: Bytes) -> Result<String, ProviderError> {
        self.alive(Step::BeforePut).await;
        let (fate, wait) = self.vault.fate();
        tokio::time::sleep(wait).await;
        if self.mortal.is_dead() {
            pending::<()>().await;
        }
        let stored = match fate {
            Fate::Down => Err(self.unreachable()),
            Fate::Wrong => self.store(tags, other(&blob)),
            Fate::Truncated => self.store(tags, blob.slice(..blob.len() / 2)),
            Fate::Fine | Fate::Slow | Fate::LostReply => self.store(tags, blob),
        };
        tokio::time::sleep(wait / 2).await;
        self.alive(Step::AfterPut).await;
        if fate == Fate::LostReply { Err(self.unreachable()) } else { stored }
    }

    async fn get_blob(&self, locator: &str) -> Result<Bytes, ProviderError> {
        self.alive(Step::BeforeGet).await;
        let (fate, wait) = self.vault.fate();
        tokio::time::sleep(wait).await;
        let place = (self.id.clone(), locator.to_owned());
        let found = self.vault.objects.lock().get(&place).cloned();
        let missing =
            || ProviderError::Missing { provider: self.id.clone(), locator: locator.into() };
        let bytes = found.ok_or_else(missing);
        let given = match (fate, bytes) {
            (Fate::Down | Fate::LostReply, _) => Err(self.unreachable()),
            (Fate::Wrong, Ok(bytes)) => Ok(garbled(&bytes)),
            (Fate::Truncated, Ok(bytes)) => Ok(bytes.slice(..bytes.len() / 2)),
            (_, bytes) => bytes,
        };
        if let Ok(bytes) = &given {
            self.oracle.served(self.mortal.n, &self.id, locator, keccak256(bytes).0);
        }
        self.alive(Step::AfterGet).await;
        given
    }
}

/// The name that a blob's tags give it.
pub fn name_of(tags: &BlobTags) -> String {
    format!("{}/{}-{}-{}", tags.chain_id, tags.height, tags.round, tags.blob_index)
}

impl Provider for SimProvider {
    fn id(&self) -> &str {
        &self.id
    }

    fn is_in_place(&self) -> bool {
        self.named
    }

    fn put<'a>(
        &'a self,
        tags: &'a BlobTags,
        blob: Bytes,
    ) -> BoxFuture<'a, Result<String, ProviderError>> {
        Box::pin(self.put_blob(tags, blob))
    }

    fn get<'a>(
        &'a self,
        locator: &'a str,
        max_len: usize,
    ) -> BoxFuture<'a, Result<Bytes, ProviderError>> {
        Box::pin(async move {
            let bytes = self.get_blob(locator).await?;
            Ok(if bytes.len() > max_len { bytes.slice(..max_len) } else { bytes })
        })
    }

    fn find<'a>(
        &'a self,
        tags: &'a BlobTags,
    ) -> BoxFuture<'a, Result<Option<String>, ProviderError>> {
        Box::pin(async move {
            self.alive(Step::BeforeFind).await;
            if self.vault.fate().0 != Fate::Fine {
                return Err(self.unreachable());
            }
            let name = name_of(tags);
            let of_tags = |key: &str| {
                key.strip_prefix(&name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            };
            let objects = self.vault.objects.lock();
            let mut keys = objects.keys().filter(|(provider, _)| *provider == self.id);
            Ok(keys.find(|(_, key)| of_tags(key)).map(|(_, key)| key.clone()))
        })
    }
}
