//! Where blobs were put that have not been read back yet: not every provider can be asked for what it
//! was given, and those that can may know of it late. It lives in memory and is bounded; what it
//! does not know is looked up at the provider.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::engine::BlobKey;

/// Blobs that are remembered, at most; the highest are forgotten first.
const MOST: usize = 65_536;

/// Locators by blob and provider.
#[derive(Debug, Default)]
pub(super) struct Sent(Mutex<BTreeMap<BlobKey, BTreeMap<String, String>>>);

impl Sent {
    /// A provider has taken a blob and says that it is here. The latest place counts.
    pub(super) fn note(&self, blob: BlobKey, provider: &str, key: &str) {
        let mut sent = self.0.lock();
        sent.entry(blob).or_default().insert(provider.to_owned(), key.to_owned());
        if sent.len() > MOST {
            sent.pop_last();
        }
    }

    /// Where a provider said that it put a blob.
    pub(super) fn place(&self, blob: BlobKey, provider: &str) -> Option<String> {
        self.0.lock().get(&blob)?.get(provider).cloned()
    }

    /// What a provider has there is not the blob.
    pub(super) fn forget_place(&self, blob: BlobKey, provider: &str) {
        if let Some(places) = self.0.lock().get_mut(&blob) {
            places.remove(provider);
        }
    }

    /// The blob is archived.
    pub(super) fn forget(&self, blob: BlobKey) {
        self.0.lock().remove(&blob);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_place_is_remembered_and_no_more_than_so_many() {
        let sent = Sent::default();
        let key = |height| BlobKey { height, index: 0 };
        sent.note(key(1), "a", "first");
        sent.note(key(1), "a", "second");
        sent.note(key(1), "b", "other");
        assert_eq!(sent.place(key(1), "a").as_deref(), Some("second"));
        assert_eq!(sent.place(key(2), "a"), None);
        for height in 2..=MOST as u64 + 9 {
            sent.note(key(height), "a", "x");
        }
        assert_eq!(sent.0.lock().len(), MOST);
        assert_eq!(sent.place(key(1), "b").as_deref(), Some("other"));
        sent.forget_place(key(1), "a");
        assert_eq!(sent.place(key(1), "a"), None);
        assert_eq!(sent.place(key(1), "b").as_deref(), Some("other"));
        sent.forget(key(1));
        assert_eq!(sent.place(key(1), "b"), None);
    }
}
