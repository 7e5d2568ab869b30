//! The ground under test: a canister's stable memory, here a vector.

use ic_stable_structures::VectorMemory;
use secateur_store::ground::stable::{self, StableArena, StableGround, StableIndex};
use secateur_store::{Family, Store};

pub type TestStore = Store<StableArena<VectorMemory>, StableIndex<VectorMemory>>;

pub fn ground() -> StableGround<VectorMemory> {
    stable::open(VectorMemory::default(), Family::History).unwrap()
}
