//! The I/O-error sweep: call n fails, once and for ever, for every n of seeded workloads. What
//! was acknowledged must be there afterwards, and what was not must be whole or absent.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use secateur_store::{Sabotage, Store};

use crate::crash::images_of;
use crate::grounds::{Disk, GroundKind};
use crate::model::{Model, Violation, check};
use crate::on_every_core;
use crate::rng::Rng;
use crate::script::{Op, Runner, clock};
use crate::world::{Fault, Image, World};

/// Operations of one workload.
const OPS: usize = 6;

/// What the sweep counted.
#[derive(Debug, Default)]
pub struct Tally {
    /// Workloads swept.
    pub workloads: u64,
    /// Runs with a fault.
    pub runs: AtomicU64,
    /// Runs whose fault came to light as an error.
    pub failed: AtomicU64,
    /// Broken promises.
    pub violations: AtomicU64,
    first: Mutex<Vec<String>>,
}

impl Tally {
    /// The closing line.
    pub fn line(&self) -> String {
        let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
        format!(
            "faults workloads={} runs={} failed={} violations={}",
            self.workloads,
            count(&self.runs),
            count(&self.failed),
            count(&self.violations)
        )
    }

    /// The first violations, each with the command that replays it.
    pub fn first(&self) -> Vec<String> {
        self.first.lock().clone()
    }
}

fn workload(seed: u64) -> Vec<Op> {
    let mut rng = Rng::new(seed, 33);
    let pick = |at: u64| Op::ALL.get(usize::try_from(at).unwrap_or(0)).copied();
    (0..OPS).filter_map(|_| pick(rng.below(Op::ALL.len() as u64))).collect()
}

/// Sweeps `workloads` workloads from `seed` on.
pub fn run(seed: u64, workloads: u64) -> Tally {
    let tally = Tally { workloads, ..Tally::default() };
    let next = AtomicU64::new(0);
    on_every_core(|| {
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            if turn >= workloads {
                return;
            }
            sweep(seed + turn, &tally);
        }
    });
    tally
}

fn sweep(seed: u64, tally: &Tally) {
    let ops = workload(seed);
    for forever in [false, true] {
        let mut at = 1;
        // Each run fails one call later than the one before, until no call is left to fail.
        loop {
            tally.runs.fetch_add(1, Ordering::Relaxed);
            match one(seed, &ops, Fault { at, forever }) {
                Ok(Reached::Fault) => {
                    tally.failed.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Reached::End) => break,
                Ok(Reached::Unnoticed) => {}
                Err(violation) => {
                    tally.violations.fetch_add(1, Ordering::Relaxed);
                    let mut first = tally.first.lock();
                    if first.len() < 5 {
                        first.push(format!(
                            "call {at} forever={forever} of {ops:?}: {violation:?}\n  replay: \
                             cargo run --release -p secateur-sim -- faults --seed {seed} \
                             --workloads 1"
                        ));
                    }
                }
            }
            at += 1;
        }
    }
}

enum Reached {
    /// The fault came and an operation failed.
    Fault,
    /// The fault came and no operation failed.
    Unnoticed,
    /// The workload ended before the fault.
    End,
}

fn one(seed: u64, ops: &[Op], fault: Fault) -> Result<Reached, Violation> {
    let mut runner = Runner::<Disk>::new(seed, Sabotage::None)
        .map_err(|error| Violation::Loss(error.to_string()))?;
    runner.world.set_fault(Some(fault));
    let mut failed = None;
    for (step, op) in ops.iter().enumerate() {
        let before = runner.model.clone();
        if runner.run(*op).is_err() {
            failed = Some((step, before));
            break;
        }
    }
    let reached = runner.world.calls() >= fault.at;
    let Some((step, before)) = failed else {
        runner.close();
        settled(&runner.world, &[runner.model.clone()])?;
        return Ok(if reached { Reached::Unnoticed } else { Reached::End });
    };
    // What may be found: the state before the failed operation, or the one it was to lead to.
    let mut allowed = models_after(seed, ops.get(..=step).unwrap_or(ops))?;
    allowed.push(before);
    runner.world.trace();
    runner.close();
    let points = runner.world.take_trace();
    // The process ends and the machine goes on: everything written is there.
    settled(&runner.world, &allowed)?;
    // The machine goes down with it.
    let mut rng = Rng::new(seed, fault.at);
    let mut verdict = Ok(());
    if let Some(point) = points.last() {
        images_of(point, &mut rng, |image| {
            if verdict.is_ok() {
                verdict = reopened(image, &allowed);
            }
        });
    }
    verdict.map(|()| Reached::Fault)
}

/// The models on the way through the last operation of a workload that nothing disturbs.
fn models_after(seed: u64, ops: &[Op]) -> Result<Vec<Model>, Violation> {
    let mut twin = Runner::<Disk>::new(seed, Sabotage::None)
        .map_err(|error| Violation::Loss(error.to_string()))?;
    let mut models = Vec::new();
    for op in ops {
        models = twin.run(*op)?;
    }
    models.push(twin.model);
    Ok(models)
}

fn settled(world: &World, allowed: &[Model]) -> Result<(), Violation> {
    world.set_fault(None);
    reopened(world.image(), allowed)
}

fn reopened(image: Image, allowed: &[Model]) -> Result<(), Violation> {
    let world = World::boot(image);
    let store = Disk::open(&world, Sabotage::None)
        .and_then(|ground| Store::open(ground, clock()))
        .map_err(|error| Violation::Loss(format!("it does not open: {error}")))?;
    check(&store, allowed)
}
