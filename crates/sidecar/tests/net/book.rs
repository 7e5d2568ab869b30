//! A node's notices in memory, in the place of its engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use secateur_core::Height;
use secateur_sidecar::SidecarError;
use secateur_sidecar::gossip::{Message, NoticeBook, Verdict};
use tokio::sync::watch;

/// A notice of the tests: height, index, whatever else.
pub fn notice(height: Height, index: u32) -> Bytes {
    notice_with(height, index, b"signed")
}

pub fn notice_with(height: Height, index: u32, rest: &[u8]) -> Bytes {
    [&height.to_be_bytes()[..], &index.to_be_bytes()[..], rest].concat().into()
}

pub fn message(height: Height, index: u32) -> Message {
    Message::notice(notice(height, index)).unwrap()
}

/// What `wait_for` gives up after: a test that hangs must end.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Book {
    state: Mutex<State>,
    count: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    /// Decided heights, and how many blobs each has.
    decided: BTreeMap<Height, u32>,
    notices: BTreeMap<(Height, u32), Bytes>,
}

impl Book {
    pub fn new(decided: impl IntoIterator<Item = (Height, u32)>) -> Arc<Self> {
        let state = State { decided: decided.into_iter().collect(), ..State::default() };
        Arc::new(Self { state: Mutex::new(state), count: watch::Sender::new(0) })
    }

    pub fn decide(&self, height: Height, blobs: u32) {
        self.state.lock().decided.insert(height, blobs);
    }

    pub fn len(&self) -> usize {
        self.state.lock().notices.len()
    }

    pub fn has(&self, height: Height, index: u32) -> bool {
        self.state.lock().notices.contains_key(&(height, index))
    }

    /// Puts a notice of one's own.
    pub fn put(&self, height: Height, index: u32) {
        self.state.lock().notices.insert((height, index), notice(height, index));
        self.count.send_replace(self.len());
    }

    /// Waits until there are so many.
    pub async fn wait_for(&self, wanted: usize) {
        let mut count = self.count.subscribe();
        let reached = count.wait_for(|count| *count >= wanted);
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        assert!(reached.is_ok(), "{} of {wanted} notices came", self.len());
    }
}

impl NoticeBook for Book {
    fn notices_for(
        &self,
        height: Height,
        skip: usize,
        max: usize,
    ) -> Result<Vec<Bytes>, SidecarError> {
        let state = self.state.lock();
        let notices = state.notices.range((height, 0)..=(height, u32::MAX)).map(|(_, bytes)| bytes);
        Ok(notices.skip(skip).take(max).cloned().collect())
    }

    fn lacking(&self, from: Height, max: usize) -> Result<Vec<Height>, SidecarError> {
        let state = self.state.lock();
        let lacks = |height: Height, blobs: u32| {
            (0..blobs).any(|index| !state.notices.contains_key(&(height, index)))
        };
        let heights =
            state.decided.range(from..).filter(|(height, blobs)| lacks(**height, **blobs));
        Ok(heights.map(|(height, _)| *height).take(max).collect())
    }

    fn take(&self, notice: &Bytes) -> Verdict {
        let Some((height, rest)) = notice.split_first_chunk::<8>() else {
            return Verdict::Refused("bytes".to_owned());
        };
        let Some((index, rest)) = rest.split_first_chunk::<4>() else {
            return Verdict::Refused("bytes".to_owned());
        };
        let key = (u64::from_be_bytes(*height), u32::from_be_bytes(*index));
        let mut state = self.state.lock();
        if rest.starts_with(b"bad") {
            return Verdict::Refused("signature".to_owned());
        }
        if !state.decided.contains_key(&key.0) {
            return Verdict::Later("unknown_height".to_owned());
        }
        if state.notices.contains_key(&key) {
            return Verdict::Known;
        }
        state.notices.insert(key, notice.clone());
        let count = state.notices.len();
        drop(state);
        self.count.send_replace(count);
        Verdict::New
    }
}
