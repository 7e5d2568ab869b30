//! Whether the store takes more writes: an alarm before it does not, and not ready then.

use tokio::time::timeout;

use super::{LOOK, Service};
use crate::store::{Room, UtxoStore};

impl<S: UtxoStore> Service<S> {
    /// Keeps in mind what the store says of its room. One that does not say keeps what it said before.
    pub(super) async fn look_for_room(&self) {
        let Ok(Ok(room)) = timeout(LOOK.1, self.0.pruner.store().room()).await else { return };
        self.0.metrics.room(&room);
        let before = std::mem::replace(&mut self.0.state.lock().room, room.clone());
        match (&room, &before) {
            (Room::Full(reason), Room::Enough | Room::Low(_)) => {
                tracing::warn!(
                    reason,
                    "the UTXO store takes no more writes; nothing can be pruned"
                );
            }
            (Room::Low(reason), Room::Enough) => {
                tracing::warn!(reason, "the UTXO store is nearly full");
            }
            (Room::Low(_) | Room::Enough, Room::Full(_)) => {
                tracing::info!("the UTXO store takes writes again");
            }
            (Room::Enough, Room::Low(_)) => tracing::info!("the UTXO store has room again"),
            _ => {}
        }
        self.show();
    }
}
