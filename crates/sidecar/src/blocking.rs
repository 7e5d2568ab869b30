//! The way from async code to the engine, which waits for disks; and how tasks are told to stop.

use std::sync::Arc;

use secateur_store::{Arena, Index};
use tokio::sync::watch;

use crate::SidecarError;
use crate::engine::SidecarStore;

/// Asks the engine on a thread that may wait.
#[cfg(not(feature = "sim"))]
pub(crate) async fn blocking<A: Arena, I: Index, T: Send + 'static>(
    store: &Arc<SidecarStore<A, I>>,
    ask: impl FnOnce(&SidecarStore<A, I>) -> Result<T, SidecarError> + Send + 'static,
) -> Result<T, SidecarError> {
    let store = Arc::clone(store);
    let asked = tokio::task::spawn_blocking(move || ask(&store)).await;
    asked.map_err(|error| SidecarError::task("asking the store", &error))?
}

/// Asks the engine at once: simulated disks do not wait, and on one thread a seed replays exactly.
#[cfg(feature = "sim")]
pub(crate) async fn blocking<A: Arena, I: Index, T: Send + 'static>(
    store: &Arc<SidecarStore<A, I>>,
    ask: impl FnOnce(&SidecarStore<A, I>) -> Result<T, SidecarError> + Send + 'static,
) -> Result<T, SidecarError> {
    let asked = ask(store);
    // Others get their turn, as they would.
    tokio::task::yield_now().await;
    asked
}

/// Ends when a task is told to stop. Whoever could tell it has gone: that is an order too.
pub(crate) async fn told(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}
