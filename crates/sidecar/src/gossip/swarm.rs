//! Gossip by libp2p's gossipsub, for networks that speak it already (feature `libp2p`).
//!
//! A message is passed on only after it was judged here. Gossipsub acknowledges nothing and nobody
//! can be asked, so a delivery stays unknown, and what was missed comes only when it is said again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use libp2p_core::upgrade::Version;
use libp2p_core::{Multiaddr, Transport as _};
use libp2p_gossipsub::{
    Behaviour, ConfigBuilder, Event, IdentTopic, MessageAcceptance, MessageAuthenticity, MessageId,
    PublishError, ValidationMode,
};
use libp2p_identity::{Keypair, PeerId};
use libp2p_swarm::SwarmEvent;
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::envelope::{ENVELOPE_HEAD_LEN, MAX_MESSAGE_LEN};
use super::intake::Intake;
use super::{
    Delivery, Gossip, GossipCounts, GossipError, Message, NoticeBook, Subscription, Verdict,
};

/// Messages that wait to be sent.
const QUEUE: usize = 1_024;
/// Messages that are judged at the same time; more are passed over.
const JUDGING: usize = 64;
/// What gossipsub's own frame adds to a message, at most.
const FRAME: usize = 1_024;
/// How long gossipsub remembers a message. What could not be judged yet may be said again after it.
const REMEMBERED: Duration = Duration::from_secs(30);

/// How long a connection may take to come about.
const HANDSHAKE: Duration = Duration::from_secs(20);

/// How a node takes part.
#[derive(Debug, Clone)]
pub struct SwarmOptions {
    /// Addresses to listen at, as `/ip4/…/tcp/…`.
    pub listen: Vec<String>,
    /// Nodes to connect to.
    pub dial: Vec<String>,
    /// The topic: the same for all nodes of a chain.
    pub topic: String,
    /// How often nodes that are not connected are called again.
    pub redial_every: Duration,
}

/// A node's part of a gossipsub network. It ends when it is dropped.
pub struct Swarm {
    intake: Arc<Intake>,
    queue: mpsc::Sender<Bytes>,
    listening: watch::Receiver<Vec<Multiaddr>>,
    peers: watch::Receiver<usize>,
    _task: JoinSet<()>,
}

impl fmt::Debug for Swarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Swarm").field("peers", &*self.peers.borrow()).finish_non_exhaustive()
    }
}

impl Swarm {
    /// Begins to listen and to connect. Called within a runtime.
    pub fn start(
        options: &SwarmOptions,
        book: Option<Arc<dyn NoticeBook>>,
    ) -> Result<Self, GossipError> {
        let refuse = |what: &str| {
            let what = what.to_owned();
            move |error: &dyn fmt::Display| GossipError::invalid(what, error.to_string())
        };
        let topic = IdentTopic::new(options.topic.clone());
        let keys = Keypair::generate_ed25519();
        let noise = libp2p_noise::Config::new(&keys).map_err(|error| refuse("noise")(&error))?;
        let tcp = libp2p_tcp::Config::default().nodelay(true);
        let transport = libp2p_tcp::tokio::Transport::new(tcp)
            .upgrade(Version::V1Lazy)
            .authenticate(noise)
            .multiplex(libp2p_yamux::Config::default())
            .timeout(HANDSHAKE)
            .boxed();
        let behaviour = behaviour(&topic).map_err(|error| refuse("gossipsub")(&error))?;
        let config = libp2p_swarm::Config::with_tokio_executor();
        let me = keys.public().to_peer_id();
        let mut swarm = libp2p_swarm::Swarm::new(transport, behaviour, me, config);
        for address in &options.listen {
            let address = parse(address)?;
            swarm.listen_on(address).map_err(|error| refuse("listening")(&error))?;
        }
        let dial = options.dial.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
        let intake = Intake::new(book);
        let (queue, outgoing) = mpsc::channel(QUEUE);
        let (told_listening, listening) = watch::channel(Vec::new());
        let (told_peers, peers) = watch::channel(0);
        let mut runner = Runner {
            swarm,
            topic,
            intake: Arc::clone(&intake),
            outgoing,
            dial: dial.into_iter().map(|address| (address, None)).collect(),
            listening: told_listening,
            peers: told_peers,
        };
        let mut task = JoinSet::new();
        let redial_every = options.redial_every.max(Duration::from_millis(10));
        task.spawn(async move { runner.run(redial_every).await });
        Ok(Self { intake, queue, listening, peers, _task: task })
    }

    /// Where it listens, once it does; none if it has ended.
    pub async fn listening(&self) -> Option<String> {
        let mut listening = self.listening.clone();
        let addresses = listening.wait_for(|addresses| !addresses.is_empty()).await.ok()?;
        addresses.first().map(ToString::to_string)
    }

    /// Waits until so many nodes listen to the topic; false if it has ended.
    pub async fn wait_for_peers(&self, count: usize) -> bool {
        self.peers.clone().wait_for(|peers| *peers >= count).await.is_ok()
    }
}

fn parse(address: &str) -> Result<Multiaddr, GossipError> {
    address.parse().map_err(|error| GossipError::invalid("address", format!("{error}")))
}

/// Gossipsub as we use it: a message is told apart by its bytes, says nothing of its sender (a
/// notice is signed), and waits for our verdict before it is passed on.
fn behaviour(topic: &IdentTopic) -> Result<Behaviour, Box<dyn std::error::Error + Send + Sync>> {
    let config = ConfigBuilder::default()
        .max_transmit_size(MAX_MESSAGE_LEN + ENVELOPE_HEAD_LEN + FRAME)
        .validation_mode(ValidationMode::Anonymous)
        .validate_messages()
        .duplicate_cache_time(REMEMBERED)
        .message_id_fn(|message| MessageId::new(&Sha256::digest(&message.data)))
        .build()?;
    let mut behaviour = Behaviour::new(MessageAuthenticity::Anonymous, config)?;
    behaviour.subscribe(topic)?;
    Ok(behaviour)
}

struct Runner {
    swarm: libp2p_swarm::Swarm<Behaviour>,
    topic: IdentTopic,
    intake: Arc<Intake>,
    outgoing: mpsc::Receiver<Bytes>,
    /// Who is called, and who answered there.
    dial: Vec<(Multiaddr, Option<PeerId>)>,
    listening: watch::Sender<Vec<Multiaddr>>,
    peers: watch::Sender<usize>,
}

/// A message that was judged, and where it came from.
type Judged = (MessageId, PeerId, Verdict);

impl Runner {
    async fn run(&mut self, redial_every: Duration) {
        let mut ticks = tokio::time::interval(redial_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut judging: FuturesUnordered<BoxFuture<'static, Judged>> = FuturesUnordered::new();
        loop {
            tokio::select! {
                event = self.swarm.select_next_some() => {
                    if let Some(judged) = self.hear(event, judging.len()) {
                        judging.push(judged);
                    }
                }
                Some((id, from, verdict)) = judging.next() => self.report(&id, &from, &verdict),
                Some(bytes) = self.outgoing.recv() => self.publish(&bytes),
                _ = ticks.tick() => self.redial(),
            }
        }
    }

    fn hear(
        &mut self,
        event: SwarmEvent<Event>,
        judging: usize,
    ) -> Option<BoxFuture<'static, Judged>> {
        match event {
            SwarmEvent::Behaviour(Event::Message {
                propagation_source: from,
                message_id: id,
                message,
            }) => {
                if judging >= JUDGING {
                    self.intake.counts.limited();
                    self.report(&id, &from, &Verdict::Later("busy".to_owned()));
                    return None;
                }
                let intake = Arc::clone(&self.intake);
                return Some(Box::pin(async move {
                    let name = Some(from.to_string());
                    let verdicts = intake.take_all(name, vec![Bytes::from(message.data)]).await;
                    let verdict = verdicts.into_iter().next();
                    (id, from, verdict.unwrap_or_else(|| Verdict::Later("busy".to_owned())))
                }));
            }
            SwarmEvent::Behaviour(Event::Subscribed { .. } | Event::Unsubscribed { .. }) => {
                self.count_peers();
            }
            SwarmEvent::NewListenAddr { address, .. } => {
                self.listening.send_modify(|addresses| addresses.push(address));
            }
            SwarmEvent::ConnectionEstablished { peer_id, endpoint, .. } => {
                let address = endpoint.get_remote_address();
                for (called, answered) in &mut self.dial {
                    if called == address {
                        *answered = Some(peer_id);
                    }
                }
            }
            SwarmEvent::ConnectionClosed { .. } => self.count_peers(),
            _ => {}
        }
        None
    }

    fn count_peers(&mut self) {
        let topic = self.topic.hash();
        let peers = self.swarm.behaviour().all_peers();
        let count = peers.filter(|(_, topics)| topics.contains(&&topic)).count();
        self.peers.send_replace(count);
    }

    /// Says what became of a message, so that it is passed on or not.
    fn report(&mut self, id: &MessageId, from: &PeerId, verdict: &Verdict) {
        let acceptance = match verdict {
            Verdict::New | Verdict::Known => MessageAcceptance::Accept,
            Verdict::Refused(_) => MessageAcceptance::Reject,
            Verdict::Later(_) => MessageAcceptance::Ignore,
        };
        let gossipsub = self.swarm.behaviour_mut();
        if !gossipsub.report_message_validation_result(id, from, acceptance) {
            tracing::debug!(%id, "a message was forgotten before it was judged");
        }
    }

    fn publish(&mut self, bytes: &Bytes) {
        let topic = self.topic.clone();
        match self.swarm.behaviour_mut().publish(topic, bytes.to_vec()) {
            // It was said a moment ago.
            Ok(_) | Err(PublishError::Duplicate) => {}
            Err(error) => {
                self.intake.counts.unanswered(1);
                tracing::debug!(%error, "a message was not sent");
            }
        }
    }

    /// Calls those who are not connected.
    fn redial(&mut self) {
        for (address, answered) in &self.dial {
            if answered.is_some_and(|peer| self.swarm.is_connected(&peer)) {
                continue;
            }
            if let Err(error) = self.swarm.dial(address.clone()) {
                tracing::debug!(%address, %error, "a node cannot be called");
            }
        }
    }
}

impl Gossip for Swarm {
    fn broadcast(&self, message: Message) -> BoxFuture<'_, Result<Delivery, GossipError>> {
        let bytes = message.encode();
        self.intake.sends(&bytes);
        let sent = match self.queue.try_send(bytes) {
            Ok(()) => Ok(Delivery::default()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.intake.counts.unanswered(1);
                Ok(Delivery::default())
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(GossipError::Stopped),
        };
        Box::pin(ready(sent))
    }

    fn subscribe(&self) -> Subscription {
        self.intake.subscribe()
    }

    /// Nobody can be asked over gossipsub.
    fn catch_up(&self) -> BoxFuture<'_, usize> {
        Box::pin(ready(0))
    }

    fn counts(&self) -> GossipCounts {
        self.intake.counts()
    }
}
