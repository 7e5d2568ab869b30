//! A validator's life hangs on its simulated volume: where the power goes out, between any two steps
//! and before any call on the ground, nothing of it happens any more.

use parking_lot::Mutex;

use crate::world::World;

/// A moment in which a crash can come, besides the calls on the ground.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A copy is about to be put,
    BeforePut,
    /// it was put and nobody knows,
    AfterPut,
    /// it is about to be read back or fetched,
    BeforeGet,
    /// it was read.
    AfterGet,
    /// A lost copy is about to be looked for.
    BeforeFind,
    /// A notice is signed and about to leave,
    BeforeSend,
    /// some peers have it and others do not,
    AmongSends,
    /// all that can be reached have it and it is not noted.
    AfterSend,
    /// A notice arrives,
    BeforeTake,
    /// it was taken and the answer is on its way.
    AfterTake,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::BeforePut,
        Self::AfterPut,
        Self::BeforeGet,
        Self::AfterGet,
        Self::BeforeFind,
        Self::BeforeSend,
        Self::AmongSends,
        Self::AfterSend,
        Self::BeforeTake,
        Self::AfterTake,
    ];
}

/// One life of a validator.
#[derive(Debug)]
pub struct Mortal {
    /// Which.
    pub n: usize,
    /// Its volume.
    pub world: World,
    ends: Mutex<Option<(Step, u64)>>,
    ended: Mutex<Option<Step>>,
}

impl Mortal {
    /// A life on a volume.
    pub fn new(n: usize, world: World) -> Self {
        Self { n, world, ends: Mutex::default(), ended: Mutex::default() }
    }

    /// It ends with the `times`-th step of a kind from now on.
    pub fn end_at(&self, step: Step, times: u64) {
        *self.ends.lock() = Some((step, times));
    }

    /// A step is taken; it may be the last one.
    pub fn step(&self, step: Step) {
        let mut ends = self.ends.lock();
        let Some((at, left)) = &mut *ends else { return };
        if *at == step {
            *left = left.saturating_sub(1);
            if *left == 0 && !self.world.is_out() {
                self.world.cut_power();
                *self.ended.lock() = Some(step);
            }
        }
    }

    /// Which kind of step it ended with, as a bit; the last one is for calls on the ground.
    pub fn ended_by(&self) -> u64 {
        let ended = *self.ended.lock();
        let at = Step::ALL.iter().position(|step| Some(*step) == ended);
        1 << at.unwrap_or(Step::ALL.len())
    }

    /// Whether it is over.
    pub fn is_dead(&self) -> bool {
        self.world.is_out()
    }
}
