//! One connection to one peer: made again when it breaks, with pauses; what goes out over it waits
//! in a bounded queue, and is answered as undelivered while there is no connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use secateur_core::format_duration;
use secateur_proto::sidecar::v1::{self, PublishRequest};
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::MissedTickBehavior;
use tonic::Code;

use super::super::Verdict;
use super::super::intake::Intake;
use super::ask::Asking;
use super::channel::{Client, Ended, Way};
use super::server::MAX_BATCH;
use super::{MeshOptions, PeerState};

/// Messages that wait for a peer.
const QUEUE: usize = 1_024;
/// Requests to hand over messages that are under way.
const CALLS: usize = 4;
/// A reason that a peer gives is no longer than this.
const MAX_REASON: usize = 64;

/// A message on its way, and who waits for the answer.
pub(super) struct Outgoing {
    pub(super) bytes: Bytes,
    pub(super) answer: oneshot::Sender<Verdict>,
}

/// The end of a link that the mesh holds.
pub(super) struct Link {
    pub(super) name: String,
    pub(super) queue: mpsc::Sender<Outgoing>,
    asks: mpsc::Sender<oneshot::Sender<usize>>,
    connected: watch::Receiver<bool>,
}

impl Link {
    pub(super) fn state(&self) -> PeerState {
        PeerState { name: self.name.clone(), connected: *self.connected.borrow() }
    }

    pub(super) async fn wait_for(&self, wanted: bool) -> bool {
        let mut connected = self.connected.clone();
        connected.wait_for(|connected| *connected == wanted).await.is_ok()
    }

    /// Asks for what is lacking; nothing comes of it if there is no connection.
    pub(super) async fn ask(&self) -> usize {
        let (answer, told) = oneshot::channel();
        match self.asks.try_send(answer) {
            Ok(()) => told.await.unwrap_or(0),
            Err(_) => 0,
        }
    }
}

/// Why a connection is given up.
#[derive(Debug)]
pub(super) struct Broken(pub(super) String);

impl Broken {
    pub(super) fn status(status: &tonic::Status) -> Self {
        Self(format!("{}: {}", status.code().description(), shorten(status.message())))
    }

    pub(super) fn silent() -> Self {
        Self("it does not answer in time".to_owned())
    }
}

/// A link, and what runs it until the mesh stops.
pub(super) fn open(
    name: &str,
    way: Way,
    options: &MeshOptions,
    intake: Arc<Intake>,
    mut stopping: watch::Receiver<bool>,
) -> (Link, impl Future<Output = ()> + Send + use<>) {
    let (queue, outgoing) = mpsc::channel(QUEUE);
    let (asks, asked) = mpsc::channel(4);
    let (up, connected) = watch::channel(false);
    let link = Link { name: name.to_owned(), queue, asks, connected };
    let mut runner = Runner {
        name: name.to_owned(),
        way,
        timeout: options.timeout,
        ask_every: options.ask_every,
        pauses: Pauses::new(name, options),
        intake,
        outgoing,
        asked,
        up,
    };
    let run = async move {
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => {}
            () = runner.run() => {}
        }
    };
    (link, run)
}

struct Runner {
    name: String,
    way: Way,
    timeout: Duration,
    ask_every: Duration,
    pauses: Pauses,
    intake: Arc<Intake>,
    outgoing: mpsc::Receiver<Outgoing>,
    asked: mpsc::Receiver<oneshot::Sender<usize>>,
    up: watch::Sender<bool>,
}

impl Runner {
    async fn run(&mut self) {
        loop {
            let reason = match tokio::time::timeout(self.timeout, self.way.connect()).await {
                Ok(Ok((client, ended))) => {
                    tracing::debug!(peer = self.name, "connected");
                    let Broken(reason) = self.converse(client, ended).await;
                    self.up.send_replace(false);
                    reason
                }
                Ok(Err(error)) => deepest(&error),
                Err(_) => "it cannot be reached in time".to_owned(),
            };
            let pause = self.pauses.next();
            let again_in = format_duration(pause);
            tracing::debug!(peer = self.name, reason, again_in, "not connected");
            self.rest(pause).await;
        }
    }

    /// While there is no connection nobody waits for one.
    async fn rest(&mut self, pause: Duration) {
        let mut over = std::pin::pin!(tokio::time::sleep(pause));
        loop {
            tokio::select! {
                () = &mut over => return,
                // Dropping the answer says that there is none.
                Some(undelivered) = self.outgoing.recv() => drop(undelivered),
                Some(answer) = self.asked.recv() => drop(answer),
            }
        }
    }

    /// Uses a connection until it breaks.
    async fn converse(&mut self, client: Client, mut ended: Ended) -> Broken {
        let mut ticks = tokio::time::interval(self.ask_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut calls = FuturesUnordered::new();
        let mut asking = Asking::new(&self.name, &client, &self.intake, self.timeout);
        // The first tick comes at once: a node asks on connecting.
        loop {
            tokio::select! {
                Some(first) = self.outgoing.recv(), if calls.len() < CALLS => {
                    let mut batch = vec![first];
                    while batch.len() < MAX_BATCH {
                        let Ok(more) = self.outgoing.try_recv() else { break };
                        batch.push(more);
                    }
                    calls.push(publish(client.clone(), batch, self.timeout));
                }
                Some(called) = calls.next() => {
                    if let Err(broken) = called {
                        return broken;
                    }
                }
                () = ended.wait() => return Broken("the connection has ended".to_owned()),
                _ = ticks.tick() => asking.begin(None),
                Some(answer) = self.asked.recv() => asking.begin(Some(answer)),
                asked = asking.run() => match asked {
                    Ok(()) => {
                        // Only a peer that answers is one.
                        self.pauses.reset();
                        self.up.send_replace(true);
                    }
                    Err(broken) => return broken,
                },
            }
        }
    }
}

/// Hands messages over and passes the answers on. What is not answered waits.
async fn publish(
    mut client: Client,
    batch: Vec<Outgoing>,
    timeout: Duration,
) -> Result<(), Broken> {
    let messages = batch.iter().map(|outgoing| outgoing.bytes.clone()).collect();
    let call = client.publish(PublishRequest { messages });
    let acked = match tokio::time::timeout(timeout, call).await {
        Ok(Ok(answer)) => answer.into_inner().acked,
        // It has too much to do, but it is there.
        Ok(Err(status)) if status.code() == Code::ResourceExhausted => return Ok(()),
        Ok(Err(status)) => return Err(Broken::status(&status)),
        Err(_) => return Err(Broken::silent()),
    };
    for (outgoing, acked) in batch.into_iter().zip(acked) {
        let verdict = match acked.verdict() {
            v1::Verdict::New => Verdict::New,
            v1::Verdict::Known => Verdict::Known,
            v1::Verdict::Refused => Verdict::Refused(shorten(&acked.reason)),
            v1::Verdict::Later | v1::Verdict::Unspecified => Verdict::Later(shorten(&acked.reason)),
        };
        // Who asked may have left.
        outgoing.answer.send(verdict).unwrap_or_default();
    }
    Ok(())
}

/// A peer's words in ours: short, and on one line.
fn shorten(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_REASON).collect()
}

/// The last cause of an error says most.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// Pauses between tries: doubling, each between half and the whole of what it could be.
struct Pauses {
    first: Duration,
    longest: Duration,
    next: Duration,
    jitter: ChaCha8Rng,
}

impl Pauses {
    fn new(name: &str, options: &MeshOptions) -> Self {
        // Peers that fail together must not come back together.
        let mut seed = [0; 32];
        let mut hasher = Sha256::new();
        hasher.update(options.seed.to_be_bytes());
        hasher.update(name.as_bytes());
        seed.copy_from_slice(&hasher.finalize());
        let (first, longest) = (options.first_pause, options.max_pause.max(options.first_pause));
        Self { first, longest, next: first, jitter: ChaCha8Rng::from_seed(seed) }
    }

    fn next(&mut self) -> Duration {
        let whole = self.next;
        self.next = whole.saturating_mul(2).min(self.longest);
        let half = whole / 2;
        let share = f64::from(self.jitter.next_u32()) / f64::from(u32::MAX);
        half + half.mul_f64(share)
    }

    fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_with_jitter_and_begin_anew_after_a_success() {
        let options = MeshOptions {
            first_pause: Duration::from_millis(100),
            max_pause: Duration::from_millis(450),
            seed: 7,
            ..MeshOptions::default()
        };
        let mut pauses = Pauses::new("a", &options);
        let drawn: Vec<_> = (0..5).map(|_| pauses.next()).collect();
        for (pause, whole) in drawn.iter().zip([100, 200, 400, 450, 450]) {
            let whole = Duration::from_millis(whole);
            assert!((whole / 2..=whole).contains(pause), "{pause:?} of {whole:?}");
        }
        pauses.reset();
        assert!(pauses.next() <= Duration::from_millis(100));
        let mut same = Pauses::new("a", &options);
        let mut other = Pauses::new("b", &options);
        let again: Vec<_> = (0..5).map(|_| same.next()).collect();
        assert_eq!(drawn, again);
        assert_ne!(drawn, (0..5).map(|_| other.next()).collect::<Vec<_>>());
    }
}
