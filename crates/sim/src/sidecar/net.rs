//! Simulated gossip: the real books of validators, with messages between them that are dropped,
//! delayed, reordered, doubled, or delivered without an answer.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use secateur_sidecar::gossip::{
    Delivery, Gossip, GossipCounts, GossipError, InProcess, InProcessNode, Message,
    NoticeBook as _, Subscription, Verdict,
};
use secateur_sidecar::notice::Rejection;
use tokio::time::Instant;

use super::mortal::{Mortal, Step};
use super::node::{NodeBook, Store};
use super::oracle::Oracle;
use crate::rng::Rng;

/// Messages that are remembered, to be said again by somebody else.
const CAPTURED: usize = 64;

/// A validator that can be reached.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its life.
    pub mortal: Arc<Mortal>,
    /// What its gossip asks.
    pub book: Arc<NodeBook>,
    /// What it knows.
    pub store: Arc<Store>,
}

#[derive(Debug, Default)]
struct State {
    places: Vec<Option<Place>>,
    cut: BTreeSet<(usize, usize)>,
    delayed: Vec<(Instant, usize, Bytes)>,
    captured: Vec<Bytes>,
    /// Faults in a hundred messages.
    faults: u64,
    /// Why messages were refused, as bits.
    reasons: u64,
}

/// Everything between validators.
#[derive(Debug)]
pub struct Net {
    state: Mutex<State>,
    rng: Mutex<Rng>,
    oracle: Arc<Oracle>,
}

impl Net {
    /// So many places, nobody there.
    pub fn new(seed: u64, count: usize, faults: u64, oracle: Arc<Oracle>) -> Arc<Self> {
        let places = (0..count).map(|_| None).collect();
        let state = Mutex::new(State { places, faults, ..State::default() });
        Arc::new(Self { state, rng: Mutex::new(Rng::new(seed, 32)), oracle })
    }

    /// Somebody comes, or goes.
    pub fn set(&self, n: usize, place: Option<Place>) {
        if let Some(slot) = self.state.lock().places.get_mut(n) {
            *slot = place;
        }
    }

    /// Who is there and alive.
    pub fn place(&self, n: usize) -> Option<Place> {
        let place = self.state.lock().places.get(n).cloned().flatten();
        place.filter(|place| !place.mortal.is_dead())
    }

    /// Two validators hear each other no more, or again.
    pub fn toggle(&self, a: usize, b: usize) {
        let pair = (a.min(b), a.max(b));
        let mut state = self.state.lock();
        if !state.cut.remove(&pair) && a != b {
            state.cut.insert(pair);
        }
    }

    /// Everybody hears everybody, and nothing is lost any more.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.cut.clear();
        state.faults = 0;
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.state.lock().cut.contains(&(a.min(b), a.max(b)))
    }

    fn count(&self) -> usize {
        self.state.lock().places.len()
    }

    /// Why messages were refused, as bits.
    pub fn reasons(&self) -> u64 {
        self.state.lock().reasons
    }

    /// A message that was overheard.
    pub fn overheard(&self) -> Option<Bytes> {
        let state = self.state.lock();
        let drawn = self.rng.lock().below(state.captured.len() as u64);
        state.captured.get(usize::try_from(drawn).ok()?).cloned()
    }

    /// A message arrives. None: nobody answered.
    pub fn deliver(&self, to: usize, notice: &Bytes) -> Option<Verdict> {
        let place = self.place(to)?;
        place.mortal.step(Step::BeforeTake);
        if place.mortal.is_dead() {
            return None;
        }
        let verdict = place.book.take(notice);
        place.mortal.step(Step::AfterTake);
        self.oracle.note(&format!("{to} {verdict:?}"));
        if let Verdict::Refused(reason) | Verdict::Later(reason) = &verdict {
            let at = Rejection::LABELS.iter().position(|label| label == reason);
            self.state.lock().reasons |= at.map_or(0, |at| 1 << at);
        }
        (!place.mortal.is_dead()).then_some(verdict)
    }

    /// What was delayed and is due arrives, in no order.
    pub fn deliver_late(&self) {
        let now = Instant::now();
        let mut due = Vec::new();
        self.state.lock().delayed.retain(|(at, to, notice)| {
            if *at <= now {
                due.push((*to, notice.clone()));
            }
            *at > now
        });
        while !due.is_empty() {
            let drawn = self.rng.lock().below(due.len() as u64);
            let (to, notice) = due.swap_remove(usize::try_from(drawn).unwrap_or(0));
            drop(self.deliver(to, &notice));
        }
    }

    /// One message on its way to one peer.
    fn carry(&self, from: usize, to: usize, notice: &Bytes) -> Option<Verdict> {
        if self.is_cut(from, to) {
            return None;
        }
        let (faults, drawn) = (self.state.lock().faults, self.rng.lock().below(100));
        if drawn >= faults {
            return self.deliver(to, notice);
        }
        match drawn % 4 {
            0 => None,
            1 => {
                let wait = Duration::from_millis(self.rng.lock().below(20_000));
                self.state.lock().delayed.push((Instant::now() + wait, to, notice.clone()));
                None
            }
            2 => {
                drop(self.deliver(to, notice));
                self.deliver(to, notice)
            }
            _ => {
                drop(self.deliver(to, notice));
                None
            }
        }
    }

    fn capture(&self, notice: &Bytes) {
        let mut state = self.state.lock();
        if state.captured.len() < CAPTURED {
            state.captured.push(notice.clone());
        }
    }

    /// A validator asks everybody for what it lacks.
    pub fn ask(&self, n: usize) {
        for peer in (0..self.count()).filter(|peer| *peer != n && !self.is_cut(n, *peer)) {
            let (Some(here), Some(there)) = (self.place(n), self.place(peer)) else { continue };
            for height in here.book.lacking(0, 64).unwrap_or_default() {
                for notice in there.book.notices_for(height, 0, 64).unwrap_or_default() {
                    self.oracle.leaves(peer, &notice, &there.store);
                    drop(self.carry(peer, n, &notice));
                }
            }
        }
    }
}

/// A validator's way to the others.
pub struct SimGossip {
    n: usize,
    net: Arc<Net>,
    mortal: Arc<Mortal>,
    store: Arc<Store>,
    quiet: InProcessNode,
}

impl SimGossip {
    /// The way of one life of a validator.
    pub fn new(net: Arc<Net>, mortal: Arc<Mortal>, store: Arc<Store>) -> Self {
        let quiet = InProcess::new().join("nobody", None);
        Self { n: mortal.n, net, mortal, store, quiet }
    }

    async fn live(&self, step: Step) {
        self.mortal.step(step);
        if self.mortal.is_dead() {
            pending::<()>().await;
        }
    }

    async fn send(&self, message: Message) -> Delivery {
        self.live(Step::BeforeSend).await;
        let notice = message.content().clone();
        self.net.oracle.leaves(self.n, &notice, &self.store);
        self.net.capture(&notice);
        let mut delivery = Delivery { confirms: self.net.oracle.confirms(), ..Delivery::default() };
        for peer in (0..self.net.count()).filter(|peer| *peer != self.n) {
            let name = peer.to_string();
            match self.net.carry(self.n, peer, &notice) {
                Some(Verdict::New | Verdict::Known) => delivery.acked.push(name),
                Some(Verdict::Refused(reason)) => delivery.refused.push((name, reason)),
                Some(Verdict::Later(_)) | None => delivery.waiting.push(name),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.live(Step::AmongSends).await;
        }
        self.live(Step::AfterSend).await;
        delivery
    }
}

impl Gossip for SimGossip {
    fn broadcast(&self, message: Message) -> BoxFuture<'_, Result<Delivery, GossipError>> {
        Box::pin(async move { Ok(self.send(message).await) })
    }

    fn subscribe(&self) -> Subscription {
        self.quiet.subscribe()
    }

    fn catch_up(&self) -> BoxFuture<'_, usize> {
        self.net.ask(self.n);
        Box::pin(std::future::ready(0))
    }

    fn counts(&self) -> GossipCounts {
        self.quiet.counts()
    }
}
