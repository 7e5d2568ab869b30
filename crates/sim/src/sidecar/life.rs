//! One seed: a time of trouble, then peace, then the reckoning.

use std::sync::Arc;
use std::time::Duration;

use secateur_core::Height;
use secateur_sidecar::engine::{KeptRecord, RecordForm};
use secateur_sidecar::notice::Signers;
use secateur_sidecar::{Sabotage, Trust, testdata};
use tokio::time::Instant;

use super::liar::Liar;
use super::mortal::Step;
use super::net::Net;
use super::node::{Around, Node, recover};
use super::oracle::{Oracle, Truth, pool_keccak};
use super::plan::Rules;
use super::vault::Vault;
use super::{COUNT, Stats, validator};
use crate::rng::Rng;
use crate::world::{Fault, World};

/// Moments of trouble.
const TROUBLES: u64 = 70;
/// Moments of peace after which everything must be pruned, and how long one is.
const PEACE: u64 = 200;
const MOMENT: Duration = Duration::from_secs(2);

/// How far away heights are of which there is a proposal and perhaps never a decision.
const FAR: Height = 150;

/// A validator, up or down.
enum Slot {
    Up(Box<Node>),
    Down(Instant, World),
    Dead(World),
}

struct Life {
    around: Around,
    slots: Vec<Slot>,
    rng: Rng,
    liar: Liar,
    next: Height,
    stats: Stats,
    /// Heights whose copies were spoiled after they were signed for.
    decayed: std::collections::BTreeSet<Height>,
}

/// Lives a seed through.
pub async fn live(seed: u64, bug: Sabotage) -> Result<Stats, String> {
    let rules = Rules::draw(seed);
    let vault = Vault::new(seed, rules.faults.0);
    let oracle = Oracle::new(Arc::clone(&vault), rules.clone());
    let net = Net::new(seed, COUNT, rules.faults.1, Arc::clone(&oracle));
    let around = Around { rules, bug, vault, net, oracle, began: Instant::now() };
    let mut rng = Rng::new(seed, 33);
    let mut slots = Vec::new();
    for n in 0..COUNT {
        let node = Node::start(n, World::default(), &around, &mut rng)?;
        slots.push(Slot::Up(Box::new(node)));
    }
    let mut life = Life {
        around,
        slots,
        rng,
        liar: Liar::default(),
        next: 1,
        stats: Stats::default(),
        decayed: std::collections::BTreeSet::new(),
    };
    life.trouble().await?;
    life.peace().await?;
    life.reckon().await?;
    life.stats.lies = life.liar.lies;
    life.stats.reasons = life.around.net.reasons();
    (life.stats.log, life.stats.events) = life.around.oracle.log();
    Ok(life.stats)
}

impl Life {
    fn up(&self) -> impl Iterator<Item = &Node> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Up(node) => Some(&**node),
            Slot::Down(..) | Slot::Dead(_) => None,
        })
    }

    fn node(&self, n: usize) -> Option<&Node> {
        self.up().find(|node| node.n == n)
    }

    fn draw(&mut self, below: usize) -> usize {
        usize::try_from(self.rng.below(below as u64)).unwrap_or(0)
    }

    async fn trouble(&mut self) -> Result<(), String> {
        for moment in 0..TROUBLES {
            if moment % 5 == 0 && self.next <= self.around.rules.heights {
                let blobs = self.rng.below(4);
                let blobs = (0..blobs).map(|_| self.draw(testdata::POOL)).collect();
                self.decide(blobs, true).await?;
            }
            for _ in 0..=self.rng.below(2) {
                self.act().await?;
            }
            tokio::time::sleep(Duration::from_millis(self.rng.below(1_500))).await;
            self.tend().await?;
        }
        Ok(())
    }

    /// One thing that happens.
    async fn act(&mut self) -> Result<(), String> {
        let n = self.draw(COUNT);
        match self.rng.below(12) {
            0 | 1 => {
                let at = 1 + self.rng.below(60);
                let step = Step::ALL.get(self.draw(Step::ALL.len())).copied();
                let (on_ground, times) = (self.rng.flip(), 1 + self.rng.below(4));
                if let Some(node) = self.node(n).filter(|node| !node.mortal.is_dead()) {
                    match step {
                        Some(step) if !on_ground => node.mortal.end_at(step, times),
                        _ => node.mortal.world.set_fault(Some(Fault { at, forever: true })),
                    }
                }
            }
            2 | 3 => {
                let other = self.draw(COUNT);
                self.around.net.toggle(n, other);
            }
            4..=6 => self.liar.lie(&self.around, &mut self.rng),
            7 | 8 => self.finalize(n).await?,
            9 => self.catch_up(n).await?,
            10 => self.around.net.ask(n),
            _ => self.decay(),
        }
        Ok(())
    }

    /// A height is decided; not everybody hears of it at once.
    async fn decide(&mut self, blobs: Vec<usize>, troubled: bool) -> Result<(), String> {
        let height = self.next;
        self.next += 1;
        let serving = self.around.rules.validators_at(height);
        let alive: Vec<usize> =
            serving.iter().copied().filter(|n| self.node(*n).is_some()).collect();
        let among = if alive.is_empty() { serving } else { alive };
        let proposer = among.get(self.draw(among.len())).copied().unwrap_or(0);
        let round = i32::try_from(self.rng.below(3)).unwrap_or(0);
        self.around.oracle.decide(height, Truth { round, proposer, blobs });
        for n in 0..COUNT {
            let (late, in_vain) = (self.rng.below(8) == 0, self.rng.below(4) == 0);
            let with_proposal = self.rng.flip();
            let another = [self.draw(testdata::POOL)];
            let Some(node) = self.node(n).filter(|_| !troubled || !late) else { continue };
            if troubled && in_vain {
                // A round that is not the one. Without power it is not stored, which is fine.
                let vain = testdata::proposal(height, round + 1, &validator(n), &another);
                drop(node.service.store_proposal(vain).await);
                // And one of a height that may never come.
                let far = testdata::proposal(height + FAR, 7, &validator(n), &another);
                drop(node.service.store_proposal(far).await);
            }
            if let Some(why) = node.hear(height, &self.around.oracle, with_proposal).await {
                return Err(why);
            }
        }
        if troubled && self.around.rules.corpse == Some(proposer) {
            self.kill(proposer).await;
        }
        Ok(())
    }

    /// A validator dies for good, some time after it has proposed.
    async fn kill(&mut self, n: usize) {
        let wait = self.rng.below(300);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        self.around.rules.corpse = None;
        let Some(slot) = self.slots.get_mut(n) else { return };
        let gone = std::mem::replace(slot, Slot::Dead(World::default()));
        let world = match gone {
            Slot::Up(node) => {
                node.mortal.world.cut_power();
                node.bury(&self.around, self.around.rules.trust, &mut self.rng).await
            }
            Slot::Down(_, world) | Slot::Dead(world) => world,
        };
        *slot = Slot::Dead(world);
    }

    /// Something becomes final at a validator.
    async fn finalize(&mut self, n: usize) -> Result<(), String> {
        let drawn = self.rng.u64();
        let Some(node) = self.node(n) else { return Ok(()) };
        let Ok(summary) = node.store().summary() else { return Ok(()) };
        let Some(head) = summary.latest_decided else { return Ok(()) };
        let height = 1 + drawn.checked_rem(head).unwrap_or(0);
        match node.service.finalized(height).await {
            Err(error) if !node.mortal.is_dead() => Err(format!("validator {n}: {error}")),
            _ => Ok(()),
        }
    }

    /// A validator hears of what it missed.
    async fn catch_up(&self, n: usize) -> Result<(), String> {
        let Some(node) = self.node(n) else { return Ok(()) };
        for height in self.around.oracle.heights() {
            if matches!(node.store().height(height), Ok(None))
                && let Some(why) = node.hear(height, &self.around.oracle, false).await
            {
                return Err(why);
            }
        }
        Ok(())
    }

    /// A copy is spoiled at its provider, long after it was signed for: nobody is about to.
    fn decay(&mut self) {
        let heights = self.around.oracle.heights();
        let Some(height) = heights.get(self.draw(heights.len())).copied() else { return };
        if self.up().count() < COUNT {
            return;
        }
        let mut locators = Vec::new();
        for node in self.up() {
            let Ok(status) = node.store().status(height) else { return };
            for blob in &status.blobs {
                let signed = self.around.oracle.has_signed(node.n, height, blob.index);
                let own = blob.records.iter().any(|kept| kept.record.form == RecordForm::Own);
                if blob.job.is_some() || blob.records.is_empty() || (own && !signed) {
                    return;
                }
                locators.extend(blob.records.iter().flat_map(|kept| kept.record.locators.clone()));
            }
        }
        if let Some(locator) = locators.get(self.draw(locators.len())) {
            self.decayed.insert(height);
            self.around.vault.decay(&locator.provider, &locator.key);
        }
    }

    /// Buries the dead, starts again who is due, and asks the oracle.
    async fn tend(&mut self) -> Result<(), String> {
        self.around.net.deliver_late();
        for n in 0..COUNT {
            self.tend_one(n).await?;
        }
        let trust = self.around.rules.trust;
        for node in self.up() {
            self.around.oracle.judge(node.n, trust, node.store());
        }
        self.around.oracle.first().map_or(Ok(()), Err)
    }

    async fn tend_one(&mut self, n: usize) -> Result<(), String> {
        let Some(slot) = self.slots.get_mut(n) else { return Ok(()) };
        match slot {
            Slot::Up(node) if node.mortal.is_dead() => {
                let until = Instant::now() + Duration::from_millis(500 + self.rng.below(8_000));
                let gone = std::mem::replace(slot, Slot::Dead(World::default()));
                if let Slot::Up(node) = gone {
                    self.stats.steps |= node.mortal.ended_by();
                    let trust = self.around.rules.trust;
                    let world = node.bury(&self.around, trust, &mut self.rng).await;
                    *slot = Slot::Down(until, world);
                }
                self.stats.crashes += 1;
            }
            Slot::Up(node) => {
                if let Some(why) = node.failed().await {
                    return Err(why);
                }
            }
            Slot::Down(until, world) if *until <= Instant::now() => {
                let world = world.clone();
                let node = Node::start(n, world, &self.around, &mut self.rng)?;
                *slot = Slot::Up(Box::new(node));
                self.catch_up(n).await?;
                self.around.net.ask(n);
            }
            Slot::Down(..) | Slot::Dead(_) => {}
        }
        Ok(())
    }

    /// Providers are honest, everybody hears everybody, the chain grows: everything final goes.
    async fn peace(&mut self) -> Result<(), String> {
        let pool: Vec<[u8; 32]> = (0..testdata::POOL).map(pool_keccak).collect();
        let named = |provider: &str| {
            let at = provider.strip_prefix('p').and_then(|at| at.parse::<usize>().ok());
            at.and_then(|at| self.around.rules.providers.get(at).copied()).unwrap_or(true)
        };
        self.around.vault.heal(|keccak| pool.contains(keccak), named);
        self.around.net.heal();
        for node in self.up() {
            if !node.mortal.is_dead() {
                node.mortal.world.set_fault(None);
                node.mortal.end_at(Step::BeforePut, u64::MAX);
            }
        }
        for _ in 0..PEACE {
            self.decide(Vec::new(), false).await?;
            for n in 0..COUNT {
                self.catch_up(n).await?;
                self.around.net.ask(n);
            }
            for node in self.up() {
                let finalized = node.service.finalized(self.next - 1).await;
                finalized.map_err(|error| format!("validator {}: {error}", node.n))?;
            }
            tokio::time::sleep(MOMENT).await;
            self.tend().await?;
            if self.left().is_none() {
                return Ok(());
            }
        }
        for node in self.up() {
            self.around.oracle.compare(node.n, node.store())?;
        }
        Err(format!("what is final is not pruned: {}", self.left().unwrap_or_default()))
    }

    /// The first thing that should be pruned and is not.
    fn left(&self) -> Option<String> {
        if self.slots.iter().any(|slot| matches!(slot, Slot::Down(..))) {
            return Some("somebody is down".into());
        }
        let spoiled = |height: &Height| {
            let decayed = self.decayed.contains(height) && self.around.rules.trust == Trust::Fetch;
            decayed || (self.liar.spoiled.contains(height) && self.is_silenced(*height))
        };
        let all = self.around.oracle.heights();
        let heights = all.iter().filter(|height| **height <= self.around.rules.heights);
        for height in heights.filter(|height| !spoiled(height)) {
            for node in self.up() {
                let Ok(status) = node.store().status(*height) else {
                    return Some(format!("validator {} does not know {height}", node.n));
                };
                if !status.blobs.is_empty() && status.pruned.is_none() {
                    return Some(format!("validator {}: {status:?}", node.n));
                }
            }
        }
        None
    }

    /// Whether there is a blob about which nobody can say the truth who may: each of them took a lie
    /// in its own name before it had archived, and a node never contradicts its own name.
    fn is_silenced(&self, height: Height) -> bool {
        let Some(truth) = self.around.oracle.truth(height) else { return false };
        let serving = self.around.rules.validators_at(height);
        let may_sign = |node: &&Node| match self.around.rules.signers {
            Signers::ProposerOnly => node.n == truth.proposer,
            Signers::AnyValidatorAfter(_) => node.n == truth.proposer || serving.contains(&node.n),
        };
        let silenced = |node: &Node, index: usize| {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let kept = node.store().records(height, index).unwrap_or_default();
            let in_its_name = |kept: &&KeptRecord| kept.record.signer == validator(node.n);
            let mut own = kept.iter().filter(in_its_name);
            own.next().is_some_and(|first| first.record.form != RecordForm::Own)
        };
        (0..truth.blobs.len())
            .any(|index| self.up().filter(may_sign).all(|node| silenced(node, index)))
    }

    /// Every store is sound and knows what it should.
    async fn reckon(&mut self) -> Result<(), String> {
        self.tend().await?;
        for node in self.up() {
            let report = node.store().verify(|_, _| ()).map_err(|error| error.to_string())?;
            if !report.findings.is_empty() {
                return Err(format!("validator {}: verify: {:?}", node.n, report.findings));
            }
            self.around.oracle.compare(node.n, node.store())?;
        }
        // What nobody has decided goes with finality, and nothing is left of it.
        for node in self.up() {
            let (n, store) = (node.n, node.store());
            let finalized = node.service.finalized(self.next + 2 * FAR).await;
            finalized.map_err(|error| format!("validator {n}: {error}"))?;
            let summary = store.summary().map_err(|error| error.to_string())?;
            if (summary.rounds, summary.undecided) != (0, 0) {
                return Err(format!("validator {n}: proposals are left: {summary:?}"));
            }
        }
        let pruned = |node: &Node| node.store().summary().map_or(0, |summary| summary.pruned);
        self.stats.pruned = self.up().map(pruned).sum();
        for n in 0..COUNT {
            if let Some(Slot::Dead(world)) = self.slots.get(n) {
                recover(n, world.clone(), &self.around, &mut self.rng)?;
            }
        }
        Ok(())
    }
}
