//! How much memory all answers that are under way take together, however slowly they are taken.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ApiError;

/// Memory is counted in pieces of 4 KiB.
const PIECE: usize = 4 << 10;

/// The memory of all answers. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Rooms {
    free: Arc<Semaphore>,
    pieces: usize,
}

/// The memory of one answer, which is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    rooms: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

/// Bytes in their room.
struct Held {
    bytes: Vec<u8>,
    _room: Room,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Rooms {
    pub(crate) fn new(bytes: usize) -> Self {
        let pieces = (bytes / PIECE).clamp(1, Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(pieces)), pieces }
    }

    /// A room for nothing yet.
    pub(crate) fn empty(&self) -> Room {
        Room { rooms: Arc::clone(&self.free), held: None }
    }

    /// How many bytes there is room for, if nobody else has any.
    pub(crate) const fn bytes(&self) -> usize {
        self.pieces.saturating_mul(PIECE)
    }

    /// A room for so many bytes.
    pub(crate) fn take(&self, bytes: usize) -> Result<Room, ApiError> {
        let mut room = self.empty();
        room.grow(bytes)?;
        Ok(room)
    }
}

impl Room {
    /// Makes it large enough for so many bytes in all.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = bytes.div_ceil(PIECE).saturating_sub(held);
        if more == 0 {
            return Ok(());
        }
        let more = u32::try_from(more).map_err(|_| ApiError::Overloaded)?;
        let more = Arc::clone(&self.rooms).try_acquire_many_owned(more);
        let more = more.map_err(|_| ApiError::Overloaded)?;
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }

    /// The room is kept for as long as anything of the bytes is.
    pub(crate) fn around(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Held { bytes, _room: self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_share_what_there_is_and_give_it_back_with_their_last_byte() {
        let rooms = Rooms::new(10 * PIECE);
        let mut one = rooms.take(1).unwrap();
        one.grow(6 * PIECE).unwrap();
        one.grow(2 * PIECE).unwrap();
        assert!(matches!(rooms.take(5 * PIECE), Err(ApiError::Overloaded)));
        let other = rooms.take(4 * PIECE).unwrap();
        assert!(one.grow(6 * PIECE + 1).is_err());
        drop(other);
        let bytes = one.around(vec![7; 100]);
        let piece = bytes.slice(..1);
        drop(bytes);
        assert!(rooms.take(5 * PIECE).is_err());
        drop(piece);
        assert!(rooms.take(rooms.bytes()).is_ok());
        // What is said to fit does.
        let odd = Rooms::new(3 * PIECE + 1);
        assert!(odd.take(odd.bytes()).is_ok() && odd.take(odd.bytes() + 1).is_err());
    }
}
