//! The events of a chain, listened to for ever: a connection that breaks is made again, and what was
//! missed meanwhile is asked for.
//!
//! A notification only says that something happened: of a block it names the hash and nothing else, and the block may
//! be an invalid one. Where the chain's top is, and whether its transactions are set mined, the chain is asked; so that
//! a burst of notifications is one question, and one that is lost is made up for by the next look.

use std::iter::{from_fn, once};
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use secateur_core::Height;
use secateur_proto::teranode::blockchain::blockchain_api_client::BlockchainApiClient;
use secateur_proto::teranode::blockchain::{
    GetBlockIsMinedRequest, GetStateRequest, Notification, NotificationType, SubscribeRequest,
};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};

use super::{ChainOptions, Failed, Keyed, MAX_MESSAGE, in_time};
use crate::UtxoError;
use crate::events::{Event, Heard};
use crate::metrics::Unheard;
use crate::service::{Service, Silence};
use crate::store::UtxoStore;

const WHAT: &str = "blockchain service";
/// Who we say that we are.
const SOURCE: &str = "secateur-utxo";
/// Under this key a chain keeps how far its persister is.
const PERSISTER: &str = "BlockPersisterHeight";
/// What its database says of a state that is not there.
const NO_ROWS: &str = "no rows in result set";
/// So many bytes of it are the height.
const HEIGHT_BYTES: usize = 4;
/// Under this name a notification of a persister has its height.
const HEIGHT: &str = "height";
/// Bytes of a block's header, and of its hash.
const HEADER_BYTES: usize = 80;
const HASH_BYTES: usize = 32;
/// How soon a block is looked at again whose transactions are not set mined yet; each time it is in vain, twice as long
/// passes.
const SOON: Duration = Duration::from_millis(500);
/// How long nothing more is told of what is passed over; it is counted all the while.
const QUIET: Duration = Duration::from_secs(10);
/// So many times what a chain may be silent, and its silence is told: until then it is only connected to anew.
const LONG: u32 = 4;
/// Notifications that are taken in before the chain is asked what came of them.
const BURST: usize = 1_000;

/// Listens to a chain until it is told to stop. It must be called inside a runtime.
pub async fn follow<S: UtxoStore>(
    service: &Service<S>,
    options: &ChainOptions,
    mut stop: watch::Receiver<bool>,
) -> Result<(), UtxoError> {
    let client =
        BlockchainApiClient::new(options.channel(WHAT)?).max_decoding_message_size(MAX_MESSAGE);
    let told = Mutex::default();
    let (head, heard, answered) = (None, false, Instant::now());
    let mut listener =
        Listener { service, options, client, head, unmined: None, heard, answered, told };
    let listening = async {
        let mut pause = options.pauses.0;
        loop {
            listener.heard = false;
            let failed = listener.session().await;
            service.metrics().chain_lost();
            let long = options.silence.saturating_mul(LONG);
            // A key that is wrong stays wrong until somebody changes it.
            let is_long = failed.wants_a_key() || listener.answered.elapsed() > long;
            let error = UtxoError::from(failed);
            service.chain_stands(Some(Silence { why: error.bare(), is_long }));
            // A chain that was heard begins with a short pause again.
            if listener.heard {
                pause = options.pauses.0;
            }
            let seconds = pause.as_secs_f64();
            tracing::warn!(%error, seconds, "the chain is not heard; it is tried again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(options.pauses.1);
        }
    };
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => Ok(()),
        never = listening => never,
    }
}

/// What a persister has written.
#[derive(Debug)]
enum Persister {
    /// It has to be asked for.
    Ask,
    /// It was told: these heights, in this order.
    Told(Vec<Height>),
}

/// What some notifications say.
#[derive(Debug, Default)]
struct News {
    /// Something is new about blocks.
    blocks: bool,
    /// What a persister reported.
    reported: Vec<Height>,
}

struct Listener<'a, S> {
    service: &'a Service<S>,
    options: &'a ChainOptions,
    client: BlockchainApiClient<Keyed>,
    /// The chain's top, as it last said.
    head: Option<Height>,
    /// A top whose transactions were not set mined when that was last asked, and how often they were not.
    unmined: Option<([u8; HASH_BYTES], u32)>,
    /// Whether the connection that is there brought a notification.
    heard: bool,
    /// When it last said where it is; first, when it was subscribed to.
    answered: Instant,
    /// When something that is passed over was last told, and how many were not since.
    told: Mutex<(Option<Instant>, u64)>,
}

impl<S: UtxoStore> Listener<'_, S> {
    /// One connection, until it breaks.
    async fn session(&mut self) -> Failed {
        match self.listen().await {
            Ok(()) => wrong("it ended the subscription".into()),
            Err(failed) => failed,
        }
    }

    async fn listen(&mut self) -> Result<(), Failed> {
        self.head = None;
        let mut next_look = self.look(Persister::Ask).await?;
        self.service.metrics().chain_heard();
        let mut subscriber = self.client.clone();
        let request = SubscribeRequest { source: SOURCE.into() };
        // Some servers answer only with the first notification, so nothing waits for it.
        let mut subscribing = Box::pin(subscriber.subscribe(request));
        let mut stream: Option<Streaming<Notification>> = None;
        loop {
            tokio::select! {
                opened = &mut subscribing, if stream.is_none() => {
                    stream = Some(opened.map_err(broken)?.into_inner());
                    // What happened between the last look and now was told to nobody.
                    next_look = self.look(Persister::Ask).await?;
                }
                told = hear(&mut stream) => {
                    let Some(first) = told.map_err(broken)? else { return Ok(()) };
                    self.heard = true;
                    let News { blocks, reported } = self.take_in(first, &mut stream)?;
                    // The chain may have moved on since it was asked; or this is a lie.
                    let asks = blocks || reported.iter().any(|height| Some(*height) > self.head);
                    if asks {
                        let is_open = reported.is_empty() && self.service.persister_is_in_doubt();
                        let told = Persister::Told(reported);
                        next_look = self.look(if is_open { Persister::Ask } else { told }).await?;
                    } else {
                        for height in reported {
                            self.persisted(height).await?;
                        }
                    }
                }
                () = tokio::time::sleep_until(next_look) => {
                    next_look = self.look(Persister::Ask).await?;
                }
            }
        }
    }

    /// Takes in what has come.
    fn take_in(
        &self,
        first: Notification,
        stream: &mut Option<Streaming<Notification>>,
    ) -> Result<News, Failed> {
        let mut news = News::default();
        let ready = || match stream.as_mut()?.message().now_or_never()? {
            Ok(told) => told.map(Ok),
            Err(status) => Some(Err(status)),
        };
        for told in burst(Ok(first), ready) {
            let told = told.map_err(broken)?;
            match NotificationType::try_from(told.r#type) {
                // Which block is on top the chain is asked.
                Ok(NotificationType::Block | NotificationType::BlockMinedUnset) => {
                    news.blocks |= self.names_a_block(&told);
                }
                Ok(NotificationType::BlockPersisted) => news.reported.extend(self.height_of(&told)),
                // What the node as a whole is doing, and what nobody here knows.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(news)
    }

    /// Whether a notification names a block. It need not be on the main chain.
    fn names_a_block(&self, told: &Notification) -> bool {
        let names = told.hash.len() == HASH_BYTES;
        if !names {
            let bytes = format!("{} bytes", told.hash.len());
            self.pass_over(Unheard::NotAHash, told.r#type, &bytes);
        }
        names
    }

    /// The height that a notification tells, if it is one.
    fn height_of(&self, told: &Notification) -> Option<Height> {
        let text = told.metadata.as_ref().and_then(|metadata| metadata.metadata.get(HEIGHT));
        let Some(text) = text else {
            self.pass_over(Unheard::NoHeight, told.r#type, "");
            return None;
        };
        // Heights of such a chain have 32 bits.
        let height = text.parse::<u32>().ok().filter(|_| !text.starts_with('+'));
        if height.is_none() {
            self.pass_over(Unheard::NotAHeight, told.r#type, text);
        }
        height.map(Height::from)
    }

    fn pass_over(&self, why: Unheard, kind: i32, text: &str) {
        self.service.metrics().unheard(why);
        self.say(why, kind, text);
    }

    fn say(&self, why: Unheard, kind: i32, text: &str) {
        let untold = {
            let mut told = self.told.lock();
            let (last, untold) = &mut *told;
            if last.is_some_and(|last| last.elapsed() < QUIET) {
                *untold += 1;
                return;
            }
            *last = Some(Instant::now());
            std::mem::take(untold)
        };
        let (why, text) = (why.name(), super::words(text));
        tracing::warn!(why, kind, text, untold, "a notification of the chain is passed over");
    }

    /// A persister's height: it never goes back, and never past the chain's top.
    async fn persisted(&self, height: Height) -> Result<(), Failed> {
        let kind = NotificationType::BlockPersisted.into();
        let known = self.service.standing().borrow().persisted;
        if self.head.is_none_or(|head| height > head) {
            self.pass_over(Unheard::BeyondTheHead, kind, &height.to_string());
        } else if known.is_some_and(|known| height < known) {
            self.pass_over(Unheard::Backwards, kind, &height.to_string());
        } else {
            self.tell(Event::Persisted { height }).await?;
        }
        self.in_doubt_unless_known().await
    }

    /// There is a persister; unless it is known by now how far it is, nothing goes.
    async fn in_doubt_unless_known(&self) -> Result<(), Failed> {
        let unknown = self.service.standing().borrow().persisted.is_none();
        if unknown && !self.service.following().persister_absent {
            self.service.doubt_persister(true).await.map_err(Failed::Ours)?;
        }
        Ok(())
    }

    /// Tells the service, which counts what it does not believe.
    async fn tell(&self, event: Event) -> Result<(), Failed> {
        let (kind, height) = match event {
            Event::Block { height, .. } => (NotificationType::Block, height),
            Event::Persisted { height } => (NotificationType::BlockPersisted, height),
        };
        let why = match self.service.hear(event).await.map_err(Failed::Ours)? {
            Heard::TooFar { .. } => Unheard::TooFar,
            Heard::AboveHead { .. } => Unheard::BeyondTheHead,
            Heard::Trigger(_) | Heard::Noted => return Ok(()),
        };
        self.say(why, kind.into(), &height.to_string());
        Ok(())
    }

    /// Asks where the chain is. Answers when to look again.
    async fn look(&mut self, persister: Persister) -> Result<Instant, Failed> {
        let timeout = self.options.timeout;
        let follows = !self.service.following().persister_absent;
        let asked = match persister {
            Persister::Ask if follows => self.ask_persisted().await?,
            Persister::Ask | Persister::Told(_) => None,
        };
        let best = in_time(WHAT, timeout, self.client.get_best_block_header(())).await?;
        let (head, hash) = (Height::from(best.height), hash_of(&best.block_header)?);
        self.head = Some(head);
        // What is persisted is judged by where the chain is, and whether a block counts by what is persisted.
        self.tell(Event::Block { height: head, mined_set: false }).await?;
        match persister {
            Persister::Told(heights) => {
                for height in heights {
                    self.persisted(height).await?;
                }
            }
            Persister::Ask => match asked {
                // The state itself may go back: a persister that begins anew has to be waited for.
                Some(height) if height <= head => {
                    self.tell(Event::Persisted { height }).await?;
                    self.in_doubt_unless_known().await?;
                }
                Some(height) => self.persisted(height).await?,
                None if follows => {
                    self.service.doubt_persister(false).await.map_err(Failed::Ours)?;
                }
                None => {}
            },
        }
        let wait = if self.service.follows_blocks() {
            let mined_set = self.is_mined(hash).await?;
            self.tell(Event::Block { height: head, mined_set }).await?;
            self.pause_after(hash, mined_set)
        } else {
            self.options.silence
        };
        self.answered = Instant::now();
        self.service.chain_stands(None);
        Ok(Instant::now() + wait)
    }

    /// Whether the transactions of a block are set mined in the chain's own store. What the chain says of its top does
    /// not tell.
    async fn is_mined(&mut self, hash: [u8; HASH_BYTES]) -> Result<bool, Failed> {
        let request = GetBlockIsMinedRequest { block_hash: hash.to_vec().into() };
        let asked = self.client.get_block_is_mined(request);
        Ok(in_time(WHAT, self.options.timeout, asked).await?.is_mined)
    }

    /// How long to wait after a look at a top.
    fn pause_after(&mut self, hash: [u8; HASH_BYTES], mined_set: bool) -> Duration {
        if mined_set {
            self.unmined = None;
            return self.options.silence;
        }
        let looks = match self.unmined {
            Some((before, looks)) if before == hash => looks.saturating_add(1),
            _ => 1,
        };
        self.unmined = Some((hash, looks));
        pause_before(looks, self.options.silence)
    }

    /// How far a persister is, if there is one.
    async fn ask_persisted(&mut self) -> Result<Option<Height>, Failed> {
        let request = GetStateRequest { key: PERSISTER.into() };
        let asked = in_time(WHAT, self.options.timeout, self.client.get_state(request)).await;
        let data = match asked {
            Ok(state) => state.data,
            Err(Failed::Unanswered { status: Some(status), .. }) if is_absent(&status) => {
                return Ok(None);
            }
            Err(failed) => return Err(failed),
        };
        // What may come behind a height does not belong to it.
        let Some(bytes) = data.first_chunk::<HEIGHT_BYTES>() else {
            self.service.metrics().unheard(Unheard::NotAHeight);
            self.in_doubt_unless_known().await?;
            let length = data.len();
            let reason = format!("{PERSISTER} has {length} bytes, and a height has {HEIGHT_BYTES}");
            return Err(wrong(reason));
        };
        // One that has written nothing yet is there all the same, and is waited for.
        let height = bytes.iter().rev().fold(0, |sum, byte| sum << 8 | Height::from(*byte));
        Ok(Some(height))
    }
}

/// What is looked at together: the first and what else has come. Nothing is taken that is not looked at.
fn burst<T>(first: T, ready: impl FnMut() -> Option<T>) -> impl Iterator<Item = T> {
    once(first).chain(from_fn(ready).take(BURST - 1))
}

/// Whether an answer means that there is no such state. A chain of this shape has no code for that: it passes on what
/// its database says, as an unknown error. Whatever else fails is no answer, also where it has the same words or says
/// that something is not found, as something between here and the chain may: taken for one, it would let blocks set
/// prunes off that wait for a persister.
fn is_absent(status: &Status) -> bool {
    status.code() == Code::Unknown && status.message().contains(NO_ROWS)
}

/// The hash of a block, of its header.
fn hash_of(header: &[u8]) -> Result<[u8; HASH_BYTES], Failed> {
    if header.len() != HEADER_BYTES {
        let bytes = header.len();
        return Err(wrong(format!(
            "the header of its top has {bytes} bytes, and a header has {HEADER_BYTES}"
        )));
    }
    Ok(Sha256::digest(Sha256::digest(header)).into())
}

/// How long passes until a block is looked at again that was not set mined so many times.
fn pause_before(looks: u32, silence: Duration) -> Duration {
    let doubled = 2_u32.saturating_pow(looks.saturating_sub(1));
    SOON.saturating_mul(doubled).min(silence)
}

/// An answer that cannot be.
fn wrong(reason: String) -> Failed {
    Failed::Ours(UtxoError::Service { what: WHAT, reason, retryable: true })
}

fn broken(status: Status) -> Failed {
    Failed::Unanswered { what: WHAT, status: Some(status) }
}

/// The next notification; it waits for ever while there is no subscription.
async fn hear(
    stream: &mut Option<Streaming<Notification>>,
) -> Result<Option<Notification>, Status> {
    match stream {
        Some(stream) => stream.message().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_what_comes_at_once_is_taken_and_not_looked_at() {
        let mut waiting = 1..2_500;
        let mut together = Vec::new();
        while let Some(first) = waiting.next() {
            together.push(burst(first, || waiting.next()).count());
        }
        assert_eq!(together, [BURST, BURST, 499]);
    }

    #[test]
    fn a_block_that_is_never_set_mined_is_looked_at_ever_more_rarely() {
        let silence = Duration::from_secs(30);
        let pauses: Vec<_> = (1..10).map(|looks| pause_before(looks, silence)).collect();
        assert_eq!(pauses[..3], [500, 1000, 2000].map(Duration::from_millis));
        assert!(pauses.is_sorted());
        assert_eq!(pauses[7..], [silence; 2]);
        assert_eq!(pause_before(u32::MAX, silence), silence);
    }

    #[test]
    fn only_a_chain_that_answers_can_say_that_a_state_is_absent() {
        for (code, said, absent) in [
            (Code::Unknown, "sql: no rows in result set", true),
            (Code::Unknown, "UNKNOWN (0): failed to get state: sql: no rows in result set", true),
            (Code::NotFound, "", false),
            (Code::NotFound, "sql: no rows in result set", false),
            (Code::Internal, "STORAGE_ERROR (59): reading: sql: no rows in result set", false),
            (Code::Internal, "BLOCK_NOT_FOUND (10): block not found", false),
            (Code::Unknown, "the state is not found where it should be", false),
            (Code::Internal, "the database is locked", false),
            (Code::Unavailable, "dns: host not found", false),
            (Code::DeadlineExceeded, "not found in time", false),
            (Code::Unimplemented, "method not found", false),
            (Code::Unauthenticated, "token not found", false),
        ] {
            assert_eq!(is_absent(&Status::new(code, said)), absent, "{code:?}: {said}");
        }
    }
}
