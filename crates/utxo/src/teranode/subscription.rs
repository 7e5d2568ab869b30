//! The events of a chain, listened to for ever: a connection that breaks is made again, and what was
//! missed meanwhile is asked for.
//!
//! A notification only says that something happened. Where the chain's top is, and whether its
//! transactions are set mined, the chain is asked; so that a burst of notifications is one question, and
//! one that is lost is made up for by the next look.

use std::iter::{from_fn, once};
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use secateur_core::Height;
use secateur_proto::teranode::blockchain::blockchain_api_client::BlockchainApiClient;
use secateur_proto::teranode::blockchain::{
    GetStateRequest, Notification, NotificationType, SubscribeRequest,
};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::{ChainOptions, Failed, MAX_MESSAGE, in_time};
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
/// Under this name a notification has its height.
const HEIGHT: &str = "height";
/// How soon a block is looked at again whose transactions are not set mined yet.
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
    let mut listener = Listener { service, options, client, head, heard, answered, told };
    let listening = async {
        let mut pause = options.pauses.0;
        loop {
            listener.heard = false;
            let error = listener.session().await;
            service.metrics().chain_lost();
            let long = options.silence.saturating_mul(LONG);
            let is_long = listener.answered.elapsed() > long;
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
    client: BlockchainApiClient<Channel>,
    /// The chain's top, as it last said.
    head: Option<Height>,
    /// Whether the connection that is there brought a notification.
    heard: bool,
    /// When it last said where it is; first, when it was subscribed to.
    answered: Instant,
    /// When something that is passed over was last told, and how many were not since.
    told: Mutex<(Option<Instant>, u64)>,
}

impl<S: UtxoStore> Listener<'_, S> {
    /// One connection, until it breaks.
    async fn session(&mut self) -> UtxoError {
        match self.listen().await {
            Ok(()) => UtxoError::Service {
                what: WHAT,
                reason: "it ended the subscription".into(),
                retryable: true,
            },
            Err(failed) => failed.into(),
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
                Ok(NotificationType::Block) => {
                    // Which block is on top the chain is asked.
                    news.blocks |= self.height_of(&told).is_some();
                }
                Ok(NotificationType::BlockMinedUnset) => news.blocks = true,
                Ok(NotificationType::BlockPersisted) => news.reported.extend(self.height_of(&told)),
                // What the node as a whole is doing, and what nobody here knows.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(news)
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
        let head = Height::from(best.height);
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
        self.tell(Event::Block { height: head, mined_set: best.mined_set }).await?;
        self.answered = Instant::now();
        self.service.chain_stands(None);
        let wait = if best.mined_set { self.options.silence } else { SOON };
        Ok(Instant::now() + wait.min(self.options.silence))
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
        let Ok(bytes) = <[u8; 4]>::try_from(data.as_ref()) else {
            self.service.metrics().unheard(Unheard::NotAHeight);
            self.in_doubt_unless_known().await?;
            let reason = format!("{PERSISTER} has {} bytes, and 4 are a height", data.len());
            return Err(Failed::Ours(UtxoError::Service { what: WHAT, reason, retryable: true }));
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

/// Whether an answer means that there is no such state. A chain of this shape has no code for that, and
/// puts it into the words of an error of its own. Whatever else fails is no answer: taken for one, it
/// would let blocks set prunes off that wait for a persister.
fn is_absent(status: &Status) -> bool {
    let said = status.message().to_ascii_lowercase();
    match status.code() {
        Code::NotFound => true,
        Code::Unknown | Code::Internal => said.contains("not found") || said.contains("no rows"),
        _ => false,
    }
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
    fn only_a_chain_that_answers_can_say_that_a_state_is_absent() {
        for (code, said, absent) in [
            (Code::NotFound, "", true),
            (Code::Internal, "NOT_FOUND: state not found", true),
            (Code::Unknown, "sql: no rows in result set", true),
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
