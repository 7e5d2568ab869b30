//! A canister of the Internet Computer as a source: export v1 by queries, consumers by updates.
//!
//! A query is answered by one node of the canister's subnet. Its signature is checked, and that it is
//! of that subnet; what it says of a block is checked by the rules of export and by the codec, as with
//! every source.

mod blocks;
mod failure;
mod identity;
mod rights;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use candid::{CandidType, Deserialize, Principal};
use ic_agent::{Agent, AgentError};
use secateur_core::{
    BlockMeta, Cursor, ExportReply, Height, HoldKind, MAX_EXPORT_BYTES, Part, Strength,
    format_duration,
};
use tokio::sync::OnceCell;

pub use blocks::IcBlocks;

use self::failure::{explain, is_unknown};
use self::wire::{CursorOut, MetaIn, PartOut, ReplyIn, Said, StatusIn, StrengthOut, decode};
use super::grpc::{sha256_of, unregistered};
use super::{ARCHIVE_HOLD, Right, Source, SourceStatus};
use crate::IndexError;

/// What a source's address begins with.
pub const IC_SCHEME: &str = "ic://";
/// Where the Internet Computer answers.
pub const IC_URL: &str = "https://icp-api.io";

/// The largest answer that is read: a reply, and what is signed around it.
const MAX_ANSWER: usize = 4 * 1024 * 1024;
/// An update goes through consensus, and its answer is asked for until it is there.
const UPDATE: Duration = Duration::from_mins(2);

/// How a canister is reached.
#[derive(Debug, Clone)]
pub struct IcOptions {
    /// Its id.
    pub canister: Principal,
    /// Where the network answers. On this machine it is a network of one's own, which is asked for its
    /// key; anywhere else the key of the Internet Computer must have signed.
    pub url: String,
    /// A consumer's or controller's key (PEM), its owner's alone; without one nothing can be acknowledged.
    pub identity: Option<PathBuf>,
    /// The longest wait for an answer.
    pub timeout: Duration,
    /// The byte budget of one query.
    pub max_bytes: u32,
}

impl IcOptions {
    /// The usual way to reach the canister that an address names: `ic://<canister id>`.
    pub fn parse(source: &str) -> Result<Self, String> {
        let id = source.strip_prefix(IC_SCHEME).unwrap_or(source);
        let canister = Principal::from_text(id).map_err(|error| {
            format!("ic://<canister id> is wanted, and {id:?} is no id: {error}")
        })?;
        Ok(Self {
            canister,
            url: IC_URL.into(),
            identity: None,
            timeout: Duration::from_secs(30),
            max_bytes: MAX_EXPORT_BYTES,
        })
    }
}

/// A canister.
#[derive(Clone)]
pub struct IcSource {
    agent: Agent,
    options: Arc<IcOptions>,
    /// Asks for the key of the network once, if it has one of its own.
    key: Arc<OnceCell<()>>,
}

impl std::fmt::Debug for IcSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IcSource").field("options", &self.options).finish_non_exhaustive()
    }
}

impl IcSource {
    /// Makes ready to ask; nothing is sent before the first question.
    pub fn new(options: &IcOptions) -> Result<Self, IndexError> {
        let refuse = |reason: String| IndexError::Refused(format!("{}: {reason}", options.url));
        let url: axum::http::Uri =
            options.url.parse().map_err(|_| refuse("it is no address".into()))?;
        let here = super::grpc::is_loopback(url.host());
        if url.scheme_str() != Some("https") && !here {
            return Err(refuse("https:// is wanted, or a network on this machine".into()));
        }
        let mut builder = Agent::builder()
            .with_url(options.url.clone())
            .with_max_response_body_size(MAX_ANSWER)
            .with_max_polling_time(UPDATE);
        if let Some(path) = &options.identity {
            builder = builder.with_arc_identity(identity::read(path)?);
        }
        secateur_archive::install_tls_provider();
        let agent = builder.build().map_err(|error| refuse(error.to_string()))?;
        let mut options = options.clone();
        options.max_bytes = options.max_bytes.clamp(1, MAX_EXPORT_BYTES);
        // The Internet Computer's own key is known.
        let key = if here { OnceCell::new() } else { OnceCell::new_with(Some(())) };
        Ok(Self { agent, options: Arc::new(options), key: Arc::new(key) })
    }

    async fn in_time<A>(
        &self,
        limit: Duration,
        method: &str,
        call: impl Future<Output = Result<A, AgentError>> + Send,
    ) -> Result<A, Failure> {
        let ready = self.key.get_or_try_init(|| self.agent.fetch_root_key());
        let asked = async {
            ready.await?;
            call.await
        };
        match tokio::time::timeout(limit, asked).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if is_unknown(&error) => Err(Failure::Unknown(explain(&error, method))),
            Ok(Err(error)) => Err(Failure::Other(explain(&error, method))),
            Err(_) => Err(Failure::Other(IndexError::Timeout(format!(
                "{method}: {}",
                format_duration(limit)
            )))),
        }
    }

    /// One question, answered in time or not at all. What the canister itself answers is inside.
    async fn ask<T: CandidType + for<'d> Deserialize<'d>>(
        &self,
        method: &str,
        arg: Result<Vec<u8>, candid::Error>,
    ) -> Result<T, Failure> {
        let arg = arg.map_err(|error| Failure::Other(unsendable(method, &error)))?;
        let call = self.agent.query(&self.options.canister, method).with_arg(arg).call();
        let reply = self.in_time(self.options.timeout, method, call).await?;
        decode(method, &reply).map_err(Failure::Other)
    }

    /// The same, of a canister that must know the question.
    async fn query<T: CandidType + for<'d> Deserialize<'d>>(
        &self,
        method: &str,
        arg: Result<Vec<u8>, candid::Error>,
    ) -> Result<T, IndexError> {
        Ok(self.ask(method, arg).await?)
    }

    async fn state(&self) -> Result<StatusIn, Failure> {
        let said: Result<StatusIn, Said> =
            self.ask("get_prune_status", candid::encode_args(())).await?;
        said.map_err(|said| Failure::Other(said.explain(0)))
    }

    /// Whether a hold of this name is there, as strong as this or stronger.
    async fn has_hold(&self, kind: &HoldKind, wanted: StrengthOut) -> Result<bool, Failure> {
        let name = kind.to_string();
        let enough = |has| has == StrengthOut::Hard || wanted == StrengthOut::Soft;
        let holds = self.state().await?.holds;
        Ok(holds.iter().any(|hold| hold.name == name && enough(hold.strength)))
    }

    /// One change, which only some may ask for: consumers acknowledge, controllers register.
    async fn update<T: CandidType + for<'d> Deserialize<'d>>(
        &self,
        method: &str,
        arg: Result<Vec<u8>, candid::Error>,
    ) -> Result<T, Failure> {
        if self.options.identity.is_none() {
            let reason = "a canister takes acknowledgements of its consumers and controllers only: name a \
                          file with the key (PEM) of one with --ic-identity, or leave --consumer out";
            return Err(Failure::Other(IndexError::Refused(reason.into())));
        }
        let arg = arg.map_err(|error| Failure::Other(unsendable(method, &error)))?;
        let call = self.agent.update(&self.options.canister, method).with_arg(arg).call_and_wait();
        match self.in_time(self.options.timeout.max(UPDATE), method, call).await {
            Ok(reply) => decode(method, &reply).map_err(Failure::Other),
            // Whoever may not is turned away at the door, without a word.
            Err(Failure::Other(IndexError::Refused(reason))) => {
                Err(Failure::Other(IndexError::Refused(format!(
                    "{reason} (is the key of --ic-identity that of one of the canister's consumers or \
                     controllers? A controller names consumers with set_consumer_principals)"
                ))))
            }
            Err(failure) => Err(failure),
        }
    }

    async fn export(&self, cursor: Option<Cursor>) -> Result<ExportReply, IndexError> {
        let wanted = cursor.map_or(0, |cursor| cursor.block_number);
        let arg = candid::encode_args((cursor.map(CursorOut::from), self.options.max_bytes));
        let said: Result<ReplyIn, Said> = self.query("export_blocks", arg).await?;
        said.map_err(|said| said.explain(wanted))?.try_into()
    }

    /// What names a block: none for one that is not there yet, nor from a canister that has no such call.
    async fn meta(&self, height: Height) -> Result<Meta, IndexError> {
        let arg = candid::encode_one(height);
        let meta = match self.ask::<Result<MetaIn, Said>>("get_block_meta", arg).await {
            Ok(Ok(meta)) => BlockMeta::from(meta),
            Ok(Err(Said::NotFound { .. })) => return Ok(Meta::NoBlock),
            Ok(Err(said)) => return Err(said.explain(height)),
            Err(Failure::Unknown(_)) => return Ok(Meta::Untold),
            Err(Failure::Other(error)) => return Err(error),
        };
        if meta.height != height {
            let told =
                format!("the canister names block {} where {height} was asked for", meta.height);
            return Err(IndexError::InvalidCursor(told));
        }
        Ok(Meta::Told(meta))
    }
}

/// Why there is no answer.
enum Failure {
    /// The canister does not know the question.
    Unknown(IndexError),
    Other(IndexError),
}

impl From<Failure> for IndexError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unknown(error) | Failure::Other(error) => error,
        }
    }
}

/// What a canister says of a block's meta.
enum Meta {
    Told(BlockMeta),
    /// There is no such block yet.
    NoBlock,
    /// It does not know the question.
    Untold,
}

fn unsendable(method: &str, error: &candid::Error) -> IndexError {
    IndexError::InvalidCursor(format!("{method} cannot be asked: {error}"))
}

impl Source for IcSource {
    type Blocks = IcBlocks;

    async fn head(&self) -> Result<Option<Height>, IndexError> {
        let arg = candid::encode_args(());
        let call = self.query::<Result<Option<u64>, Said>>("get_head", arg).await;
        let Err(error @ IndexError::InvalidCursor(_)) = call else {
            return call?.map_err(|said| said.explain(0));
        };
        // The chain that the export comes from says a number and nothing else.
        let arg = candid::encode_args(());
        self.query::<u64>("get_head", arg).await.map(Some).map_err(|_| error)
    }

    fn blocks(&self, from: Option<Height>, want_meta: bool) -> IcBlocks {
        IcBlocks::new(self.clone(), from, want_meta)
    }

    async fn status(&self) -> Result<SourceStatus, IndexError> {
        let status = self.state().await?;
        Ok(SourceStatus {
            chain_id: Some(status.chain_id),
            head: status.export_head,
            oldest: status.oldest_kept_block,
            pruned_before: status.pruned_before_block,
            archived: status.archived,
            store_id: None,
            high_water_bytes: status.high_water_bytes,
            waits_for_archive: status.draining
                && status.binding_hold.as_deref() == Some(ARCHIVE_HOLD),
        })
    }

    async fn check_rights(&self, wanted: &[Right]) -> Result<(), IndexError> {
        rights::check(self, wanted).await
    }

    async fn register(&self, consumer: &str, strength: Strength) -> Result<(), IndexError> {
        let wanted = StrengthOut::from(strength);
        let arg = candid::encode_args((consumer, wanted));
        let refused = match self.update::<Result<(), Said>>("register_consumer", arg).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(said @ Said::Forbidden { .. })) => said.explain(0),
            Ok(Err(said)) => return Err(said.explain(0)),
            Err(Failure::Other(error @ IndexError::Refused(_))) => error,
            Err(failure) => return Err(failure.into()),
        };
        if self.options.identity.is_none() {
            return Err(refused);
        }
        // A consumer may acknowledge and not register: a controller has done that.
        let kind = HoldKind::Export(consumer.to_owned());
        if self.has_hold(&kind, wanted).await? {
            return Ok(());
        }
        Err(unregistered(consumer, strength))
    }

    async fn ack_exported(&self, consumer: &str, height: Height) -> Result<(), IndexError> {
        let arg = candid::encode_args((consumer, height));
        let said: Result<u64, Said> = self.update("ack_exported", arg).await?;
        said.map(drop).map_err(|said| said.explain(height))
    }

    /// A canister that has no such call, or whose parts hold nothing back from this worker without a key, is
    /// told nothing.
    async fn ack_archived(&self, part: &Part) -> Result<Option<Height>, IndexError> {
        if self.options.identity.is_none() {
            if self.waits_for_parts().await? {
                let reason = "the canister cuts nothing that is in no acknowledged part: name a file with the key \
                              (PEM) of one of its consumers with --ic-identity";
                return Err(IndexError::Refused(reason.into()));
            }
            return Ok(None);
        }
        let arg = candid::encode_one(PartOut::of(part, sha256_of(part)?));
        match self.update::<Result<Option<u64>, Said>>("ack_archived", arg).await {
            Ok(said) => said.map_err(|said| said.explain(part.first)),
            Err(Failure::Unknown(_)) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }
}
