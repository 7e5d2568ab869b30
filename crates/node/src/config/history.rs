//! `[history]`: what a store remembers besides its policy. The layout is fixed when a store is made;
//! the others can be changed by a restart.

use secateur_core::{TimeUnit, parse_span};
use secateur_store::{Layout, Settings};

use super::{Layers, number, plainly, size};
use crate::error::NodeError;

/// What the configuration names of it; what it does not name is the store's own.
#[derive(Debug, Clone, Default)]
pub(crate) struct HistorySettings {
    pub(crate) layout: Option<Layout>,
    challenge_blocks: Option<u64>,
    challenge_seconds: Option<u64>,
    consumer_expiry_blocks: Option<u64>,
    tombstone_bytes: Option<u64>,
}

impl HistorySettings {
    pub(super) fn of(layers: &Layers) -> Result<Self, NodeError> {
        let span = |text: &str| parse_span(text, TimeUnit::Seconds).map_err(plainly);
        let bytes = |text: &str| size(text).map(|bytes| bytes as u64);
        Ok(Self {
            layout: layers.read("history.layout", layout)?,
            challenge_blocks: layers.read("history.challenge_blocks", number)?,
            challenge_seconds: layers.read("history.challenge_seconds", span)?,
            consumer_expiry_blocks: layers.read("history.consumer_expiry_blocks", number)?,
            tombstone_bytes: layers.read("history.tombstone_bytes", bytes)?,
        })
    }

    /// Changes settings as the configuration says.
    pub(crate) fn apply(&self, settings: &mut Settings) {
        let named = [
            (&mut settings.challenge_blocks, self.challenge_blocks),
            (&mut settings.challenge_seconds, self.challenge_seconds),
            (&mut settings.consumer_expiry_blocks, self.consumer_expiry_blocks),
            (&mut settings.tombstone_bytes, self.tombstone_bytes),
        ];
        for (place, value) in named {
            *place = value.unwrap_or(*place);
        }
    }
}

fn layout(text: &str) -> Result<Layout, String> {
    [Layout::Packed, Layout::PerBlock]
        .into_iter()
        .find(|layout| layout.name() == text)
        .ok_or_else(|| "packed or per-block is wanted".into())
}
