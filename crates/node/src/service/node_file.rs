//! `node.json`: how commands find the node that runs on a data directory. It holds a token that
//! may do everything, is made anew at every start and is readable by its owner alone.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::durable;
use crate::error::NodeError;

const FILE: &str = "node.json";

/// What a running node tells commands on the same machine.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeFile {
    pub(crate) pid: u32,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) admin_token: String,
    /// What tells the history's store from every other one, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) store_id: Option<String>,
}

impl std::fmt::Debug for NodeFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the token.
        f.debug_struct("NodeFile")
            .field("pid", &self.pid)
            .field("http", &self.http)
            .finish_non_exhaustive()
    }
}

impl NodeFile {
    /// Where it is.
    pub(crate) fn path(directory: &Path) -> PathBuf {
        directory.join(FILE)
    }

    /// The store's id, if it is told.
    pub(crate) fn store_id(&self) -> Option<[u8; 16]> {
        let mut id = [0; 16];
        let text = self.store_id.as_deref()?;
        alloy_primitives::hex::decode_to_slice(text, &mut id).ok()?;
        Some(id)
    }

    /// Writes it for a node that runs now.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), anyhow::Error> {
        durable::write(directory, FILE, &serde_json::to_string_pretty(self)?)
    }

    /// Reads it, if a node left one.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, anyhow::Error> {
        let path = Self::path(directory);
        let Some(text) = durable::read(&path)? else { return Ok(None) };
        let parsed = serde_json::from_str(&text)
            .map_err(|error| NodeError::BadFile { path, reason: error.to_string() })?;
        Ok(Some(parsed))
    }

    /// Removes it; the node is gone.
    pub(crate) fn remove(directory: &Path) {
        // One that stays behind names a process that is gone, and commands notice.
        std::fs::remove_file(Self::path(directory)).unwrap_or_default();
    }
}
