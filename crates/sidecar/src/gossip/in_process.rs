//! Gossip within one process, with connections that can be cut: for tests, simulations and several
//! nodes in one program. It has no clock and no tasks; everything happens in the caller's call.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, ready};
use parking_lot::Mutex;

use super::intake::Intake;
use super::{
    Delivery, Gossip, GossipCounts, GossipError, Message, NoticeBook, Subscription, Verdict,
};

/// Heights that are asked about at a time.
const HEIGHTS: usize = 256;
/// Notices that are asked for at a time.
const NOTICES: usize = 64;

/// A net of nodes within this process. Cheap to clone.
#[derive(Clone, Default)]
pub struct InProcess {
    net: Arc<Mutex<Net>>,
}

#[derive(Default)]
struct Net {
    nodes: BTreeMap<String, Arc<Intake>>,
    /// Pairs that do not hear each other, the lesser name first.
    cut: BTreeSet<(String, String)>,
}

impl Net {
    /// Those that a node can reach, and those that it cannot, each in the order of their names.
    fn split(&self, name: &str) -> (Vec<(String, Arc<Intake>)>, Vec<String>) {
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for (other, intake) in self.nodes.iter().filter(|(other, _)| *other != name) {
            if self.cut.contains(&pair(name, other)) {
                far.push(other.clone());
            } else {
                near.push((other.clone(), Arc::clone(intake)));
            }
        }
        (near, far)
    }
}

fn pair(a: &str, b: &str) -> (String, String) {
    let (a, b) = if a <= b { (a, b) } else { (b, a) };
    (a.to_owned(), b.to_owned())
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let net = self.net.lock();
        let nodes: Vec<_> = net.nodes.keys().collect();
        f.debug_struct("InProcess").field("nodes", &nodes).field("cut", &net.cut).finish()
    }
}

impl InProcess {
    /// A net without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// A node joins; one of the same name is replaced, as by a restart.
    pub fn join(&self, name: &str, book: Option<Arc<dyn NoticeBook>>) -> InProcessNode {
        let intake = Intake::new(book);
        self.net.lock().nodes.insert(name.to_owned(), Arc::clone(&intake));
        InProcessNode { name: name.to_owned(), intake, net: self.clone() }
    }

    /// Two nodes hear each other no more.
    pub fn cut(&self, a: &str, b: &str) {
        self.net.lock().cut.insert(pair(a, b));
    }

    /// A node hears nobody and is heard by nobody.
    pub fn isolate(&self, name: &str) {
        let mut net = self.net.lock();
        let pairs: Vec<_> =
            net.nodes.keys().filter(|n| *n != name).map(|n| pair(name, n)).collect();
        net.cut.extend(pairs);
    }

    /// Two nodes hear each other again. What was said meanwhile is lost unless it is asked for.
    pub fn heal(&self, a: &str, b: &str) {
        self.net.lock().cut.remove(&pair(a, b));
    }

    /// All nodes hear each other again.
    pub fn heal_all(&self) {
        self.net.lock().cut.clear();
    }
}

/// A node's place in the net.
pub struct InProcessNode {
    name: String,
    intake: Arc<Intake>,
    net: InProcess,
}

impl fmt::Debug for InProcessNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessNode").field("name", &self.name).finish_non_exhaustive()
    }
}

impl InProcessNode {
    fn send(&self, message: &Message) -> Delivery {
        let bytes = message.encode();
        self.intake.sends(&bytes);
        let (near, far) = self.net.net.lock().split(&self.name);
        let mut delivery = Delivery { confirms: true, ..Delivery::default() };
        for (peer, intake) in near {
            delivery.add(peer, Some(intake.take(Some(&self.name), &bytes)));
        }
        self.intake.counts.unanswered(far.len());
        delivery.waiting.extend(far);
        delivery
    }

    fn ask(&self) -> usize {
        let (near, _) = self.net.net.lock().split(&self.name);
        near.iter().map(|(peer, intake)| self.ask_one(peer, intake)).sum()
    }

    fn ask_one(&self, peer: &str, intake: &Intake) -> usize {
        let (mut from, mut taken) = (0, 0);
        loop {
            let heights = self.intake.lacking(from, HEIGHTS);
            let Some(last) = heights.last().copied() else { return taken };
            for height in heights {
                let mut skip = 0;
                loop {
                    let page = intake.notices_for(height, skip, NOTICES).unwrap_or_default();
                    if page.is_empty() {
                        break;
                    }
                    skip += page.len();
                    let new = |bytes| self.intake.take(Some(peer), bytes) == Verdict::New;
                    taken += page.iter().filter(|bytes| new(bytes)).count();
                }
            }
            match last.checked_add(1) {
                Some(next) => from = next,
                None => return taken,
            }
        }
    }
}

impl Gossip for InProcessNode {
    fn broadcast(&self, message: Message) -> BoxFuture<'_, Result<Delivery, GossipError>> {
        Box::pin(ready(Ok(self.send(&message))))
    }

    fn subscribe(&self) -> Subscription {
        self.intake.subscribe()
    }

    fn catch_up(&self) -> BoxFuture<'_, usize> {
        Box::pin(ready(self.ask()))
    }

    fn counts(&self) -> GossipCounts {
        self.intake.counts()
    }
}
