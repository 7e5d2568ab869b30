//! The enumeration: every short sequence, every barrier, what a crash may leave there, and the
//! recovery of each, itself crashed.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use secateur_store::{Sabotage, Store, StoreError};

use crate::crash::images_of;
use crate::grounds::{Disk, GroundKind, Seams};
use crate::model::{Model, Violation, check};
use crate::on_every_core;
use crate::rng::Rng;
use crate::script::{Op, Runner, clock, sequences};
use crate::world::{Image, World};

/// Violations that are printed in full.
const PRINTED: u64 = 5;
/// One in so many images of the disk ground has its recovery crashed too.
const RECOVERY_STRIDE: u64 = 7;

/// How much to enumerate.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The first seed; later rounds count up from it.
    pub seed: u64,
    /// Distinct images on the simulated seams.
    pub seam_images: u64,
    /// Distinct images with the real redb.
    pub disk_images: u64,
    /// Distinct images of crashed recoveries.
    pub recovery_images: u64,
    /// Only this sequence, for replays.
    pub only: Option<Vec<Op>>,
    /// The bug to plant.
    pub sabotage: Sabotage,
}

/// What an enumeration counted.
#[derive(Debug, Default)]
pub struct Tally {
    seams: AtomicU64,
    disk: AtomicU64,
    recovery: AtomicU64,
    losses: AtomicU64,
    leaks: AtomicU64,
    wrong: AtomicU64,
    first: Mutex<Vec<String>>,
}

impl Tally {
    /// Distinct images checked, recoveries of crashed recoveries not among them.
    pub fn images(&self) -> u64 {
        self.seams.load(Ordering::Relaxed) + self.disk.load(Ordering::Relaxed)
    }

    /// Those with the real redb.
    pub fn disk_images(&self) -> u64 {
        self.disk.load(Ordering::Relaxed)
    }

    /// Distinct images of crashed recoveries.
    pub fn recovery_images(&self) -> u64 {
        self.recovery.load(Ordering::Relaxed)
    }

    /// Broken promises of any kind.
    pub fn violations(&self) -> u64 {
        [&self.losses, &self.leaks, &self.wrong].map(|n| n.load(Ordering::Relaxed)).iter().sum()
    }

    /// The first violations, each with the command that replays it.
    pub fn first_violations(&self) -> Vec<String> {
        self.first.lock().clone()
    }

    /// The closing line.
    pub fn line(&self) -> String {
        let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
        format!(
            "crash images={} recovery={} losses={} leaks={} wrong={}",
            self.images(),
            self.recovery_images(),
            count(&self.losses),
            count(&self.leaks),
            count(&self.wrong)
        )
    }

    fn note(&self, case: &Case<'_>, violation: &Violation) {
        let (count, kind, text) = match violation {
            Violation::Loss(text) => (&self.losses, "loss", text),
            Violation::Leak(text) => (&self.leaks, "leak", text),
            Violation::Wrong(text) => (&self.wrong, "wrong", text),
        };
        count.fetch_add(1, Ordering::Relaxed);
        let mut first = self.first.lock();
        if (first.len() as u64) < PRINTED {
            first.push(format!("{kind}: {text}\n  replay: {}", case.replay()));
        }
    }
}

/// One sequence under one seed on one ground.
struct Case<'a> {
    ground: &'static str,
    seed: u64,
    ops: &'a [Op],
}

impl Case<'_> {
    fn replay(&self) -> String {
        let mut ops = String::new();
        for op in self.ops {
            let comma = if ops.is_empty() { "" } else { "," };
            // Writing to a string cannot fail.
            write!(ops, "{comma}{op}").unwrap_or_default();
        }
        format!(
            "cargo run --release -p secateur-sim -- crash --ground {} --seed {} --sequence {ops}",
            self.ground, self.seed
        )
    }
}

/// The digests seen so far; an image counts once.
#[derive(Debug, Default)]
struct Seen(Mutex<HashSet<u128>>);

impl Seen {
    fn is_new(&self, digest: u128) -> bool {
        self.0.lock().insert(digest)
    }
}

/// Enumerates until the plan is met or, in a replay, once.
pub fn run(plan: &Plan, ground: Option<&str>, progress: impl Fn(&Tally) + Sync) -> Tally {
    let tally = Tally::default();
    if ground.is_none_or(|name| name == Seams::NAME) {
        let goal = Goal { images: plan.seam_images, recoveries: plan.recovery_images / 4 };
        enumerate::<Seams>(plan, &goal, &tally, &tally.seams, &progress);
    }
    if ground.is_none_or(|name| name == Disk::NAME) {
        let goal = Goal { images: plan.disk_images, recoveries: plan.recovery_images };
        enumerate::<Disk>(plan, &goal, &tally, &tally.disk, &progress);
    }
    tally
}

struct Goal {
    images: u64,
    recoveries: u64,
}

fn enumerate<G: GroundKind>(
    plan: &Plan,
    goal: &Goal,
    tally: &Tally,
    images: &AtomicU64,
    progress: &(impl Fn(&Tally) + Sync),
) {
    let all = plan.only.clone().map_or_else(sequences, |ops| vec![ops]);
    let (seen, seen_recovery) = (Seen::default(), Seen::default());
    let next = AtomicU64::new(0);
    let reached = || {
        images.load(Ordering::Relaxed) >= goal.images && tally.recovery_images() >= goal.recoveries
    };
    on_every_core(|| {
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            let count = all.len() as u64;
            let replaying = plan.only.is_some();
            if (replaying && turn > 0) || (!replaying && reached()) {
                return;
            }
            // Long sequences first: they hold the short ones as their beginnings.
            let at = count - 1 - turn / 2 % count;
            let Some(ops) = usize::try_from(at).ok().and_then(|at| all.get(at)) else {
                return;
            };
            // A seed stands for a layout too, so two of them take turns.
            let seed = plan.seed + turn / (2 * count) * 2 + turn % 2;
            let case = Case { ground: G::NAME, seed, ops };
            let mut worker = Worker { plan, tally, images, seen: &seen };
            worker.case::<G>(&case, &seen_recovery, goal);
            if plan.sabotage != Sabotage::None && tally.violations() > 0 {
                return;
            }
            progress(tally);
        }
    });
}

struct Worker<'a> {
    plan: &'a Plan,
    tally: &'a Tally,
    images: &'a AtomicU64,
    seen: &'a Seen,
}

impl Worker<'_> {
    fn case<G: GroundKind>(&mut self, case: &Case<'_>, seen_recovery: &Seen, goal: &Goal) {
        let runner = match Runner::<G>::new(case.seed, self.plan.sabotage) {
            Ok(runner) => runner,
            Err(error) => return self.tally.note(case, &Violation::Loss(error.to_string())),
        };
        let traced = match runner.trace(case.ops) {
            Ok(traced) => traced,
            Err(violation) => return self.tally.note(case, &violation),
        };
        let mut rng = Rng::new(case.seed, 99);
        for point in &traced.points {
            let Some(allowed) = traced.allowed.get(point.step) else {
                continue;
            };
            images_of(point, &mut rng, |image| {
                let digest = image.digest();
                if !self.seen.is_new(digest) {
                    return;
                }
                let count = self.images.fetch_add(1, Ordering::Relaxed);
                if let Err(violation) = recover_and_check::<G>(image.clone(), allowed, self.plan) {
                    self.tally.note(case, &violation);
                }
                let wanted = self.tally.recovery_images() < goal.recoveries;
                if wanted && count.is_multiple_of(RECOVERY_STRIDE) {
                    self.crash_recovery::<G>(case, image, allowed, seen_recovery);
                }
            });
        }
    }

    /// Recovers an image under trace and crashes the recovery wherever it can be.
    fn crash_recovery<G: GroundKind>(
        &self,
        case: &Case<'_>,
        image: Image,
        allowed: &[Model],
        seen: &Seen,
    ) {
        let world = World::boot(image);
        world.trace();
        let opened = open::<G>(&world, self.plan.sabotage);
        let points = world.take_trace();
        if let Err(error) = opened {
            let text = format!("recovery failed: {error}");
            return self.tally.note(case, &Violation::Loss(text));
        }
        let mut rng = Rng::new(case.seed, 77);
        for point in &points {
            images_of(point, &mut rng, |image| {
                if !seen.is_new(image.digest()) {
                    return;
                }
                self.tally.recovery.fetch_add(1, Ordering::Relaxed);
                if let Err(violation) = recover_and_check::<G>(image, allowed, self.plan) {
                    self.tally.note(case, &violation);
                }
            });
        }
    }
}

fn open<G: GroundKind>(
    world: &World,
    sabotage: Sabotage,
) -> Result<Store<G::Arena, G::Index>, StoreError> {
    Store::open_with(G::open(world, sabotage)?, clock(), sabotage)
}

fn recover_and_check<G: GroundKind>(
    image: Image,
    allowed: &[Model],
    plan: &Plan,
) -> Result<(), Violation> {
    let world = World::boot(image);
    let store = open::<G>(&world, plan.sabotage)
        .map_err(|error| Violation::Loss(format!("it does not open: {error}")))?;
    check(&store, allowed)
}
