//! What every HTTP server of this program has in common: who is let in, by which names it is called, how its requests
//! are bounded and counted, and which pages of other origins may read its answers.

use std::net::SocketAddr;
use std::sync::Arc;

use super::cors::Origins;
use super::hosts::Hosts;
use super::metrics::Metrics;
use crate::config::Limits;
use crate::security::Guard;

/// What the gates of a server share.
#[derive(Debug)]
pub(crate) struct Access {
    pub(super) guard: Arc<Guard>,
    /// The names by which the server is called; none where any name will do.
    pub(super) hosts: Option<Hosts>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) limits: Limits,
    pub(super) origins: Origins,
}

impl Access {
    /// Access to a server that listens on an address.
    pub(crate) fn new(
        address: SocketAddr,
        guard: &Arc<Guard>,
        metrics: &Arc<Metrics>,
        limits: &Limits,
        origins: Origins,
    ) -> Self {
        Self {
            hosts: Hosts::to_check(address, guard),
            guard: Arc::clone(guard),
            metrics: Arc::clone(metrics),
            limits: *limits,
            origins,
        }
    }
}
