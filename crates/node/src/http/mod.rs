//! HTTP.

pub(crate) mod metrics;
pub(crate) mod tls;

use std::net::TcpListener;
use std::sync::Arc;

use crate::security::Guard;
use crate::service::Node;

/// Serves until the node stops.
pub(crate) fn serve(
    _node: &Arc<Node>,
    _guard: &Arc<Guard>,
    _socket: TcpListener,
    _tls: Option<tls::Tls>,
) -> Result<impl Future<Output = Result<(), anyhow::Error>> + Send + 'static, anyhow::Error> {
    Ok(async { anyhow::bail!("not written yet") })
}
