//! Nothing is pruned while block assembly is not running, is behind, or does not answer.

use secateur_utxo::{Following, Skip, Trigger};
use tokio::sync::watch;

use crate::world::{Rig, World, options};

#[tokio::test]
async fn a_run_begins_only_when_block_assembly_runs_and_has_reached_the_height() {
    let world = World::at(100);
    let serving = world.serve(0).await;
    let rig = Rig::open(Following::default(), Some(&options(&serving.url()))).await;
    let prune = || async {
        let (_stop, stopping) = watch::channel(false);
        let trigger = Trigger { height: 100, persisted: None };
        rig.service.prune(trigger, stopping).await.map(|(job, _)| job.height)
    };
    for (state, height, wanted) in [
        ("", 100, Err(Skip::AssemblyNotRunning)),
        ("resetting", 100, Err(Skip::AssemblyNotRunning)),
        ("not running", 100, Err(Skip::AssemblyNotRunning)),
        ("running", 99, Err(Skip::AssemblyBehind)),
        ("running", 0, Err(Skip::AssemblyBehind)),
        ("running", 100, Ok(100)),
        ("RUNNING", 101, Ok(100)),
        ("Running", u32::MAX, Ok(100)),
    ] {
        world.set_assembly(state, height);
        assert_eq!(prune().await, wanted, "{state} {height}");
    }
    let jobs = rig.counted("secateur_pruner_skipped_total{reason=\"assembly_behind\"}");
    assert_eq!(jobs, 2);
    serving.end().await;
    assert_eq!(prune().await, Err(Skip::AssemblyUnreachable));
    rig.end().await;
}
