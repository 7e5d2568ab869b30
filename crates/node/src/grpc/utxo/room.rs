//! Room in memory for steps that have many records in their hands at once: together they are bounded, and what
//! comes more waits.

use std::sync::Arc;

use secateur_utxo::MAX_CREATED_OUTPUTS;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// Outputs that are being created at most, those included that nobody waits for any more: each takes some memory.
const MOST: u32 = 2 * MAX_CREATED_OUTPUTS;
/// As many as a creation counts for at least, so that 16 are under way at most.
const FEWEST: u32 = MOST / 16;
/// A record that is looked at for a step, the parent of an input too, takes as much as so many outputs.
const RECORD: u32 = 16;

/// Who has it.
#[derive(Debug, Clone)]
pub(super) struct Room(Arc<Semaphore>);

impl Room {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MOST as usize)))
    }

    /// For a creation of so many outputs, with so many inputs.
    pub(super) async fn create(
        &self,
        outputs: u32,
        inputs: usize,
    ) -> Result<OwnedSemaphorePermit, Status> {
        self.take(outputs.saturating_add(of_records(inputs)).max(FEWEST)).await
    }

    /// Does a step about so many records, which is ended, and has its room until then, also if whoever asked has gone.
    pub(super) async fn step<T: Send + 'static>(
        &self,
        records: usize,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Status> {
        let room = self.take(of_records(records)).await?;
        let working = tokio::spawn(async move {
            let _room = room;
            work.await
        });
        working.await.map_err(|error| Status::internal(error.to_string()))
    }

    /// What is larger than all of the room has it for itself.
    async fn take(&self, outputs: u32) -> Result<OwnedSemaphorePermit, Status> {
        let taken = Arc::clone(&self.0).acquire_many_owned(outputs.min(MOST)).await;
        taken.map_err(|error| Status::internal(error.to_string()))
    }
}

fn of_records(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX).saturating_mul(RECORD)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn steps_wait_while_others_have_the_memory_also_for_their_inputs() {
        let room = Room::new();
        let wide = room.create(1, usize::MAX).await.unwrap();
        assert!(room.step(1, async {}).now_or_never().is_none());
        assert!(room.create(0, 0).now_or_never().is_none());
        drop(wide);
        let (end, ended) = oneshot::channel::<()>();
        let (begin, begun) = oneshot::channel();
        let other = room.clone();
        let many = tokio::spawn(async move {
            let work = async move {
                begin.send(()).unwrap();
                ended.await
            };
            other.step(100_000, work).await
        });
        begun.await.unwrap();
        // Whoever asked has gone, and what was begun goes on.
        many.abort();
        assert!(many.await.unwrap_err().is_cancelled());
        assert!(room.step(100_000, async {}).now_or_never().is_none());
        let small: Vec<_> = (0..3).map(|_| room.create(1, 1).now_or_never().unwrap()).collect();
        assert!(small.into_iter().all(|one| one.is_ok()));
        end.send(()).unwrap();
        assert_eq!(room.step(100_000, async { 1 }).await.unwrap(), 1);
        assert!(room.create(MAX_CREATED_OUTPUTS, 0).now_or_never().unwrap().is_ok());
    }
}
