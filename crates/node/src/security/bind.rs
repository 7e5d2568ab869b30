//! Where it is safe to listen.

use std::net::SocketAddr;

use crate::config::Config;
use crate::error::NodeError;

/// Refuses an address that others can reach, unless TLS and tokens guard it.
pub(crate) fn check_bind(config: &Config) -> Result<(), NodeError> {
    for (key, address) in [("http.addr", config.http), ("grpc.addr", config.grpc)] {
        check_address(config, key, address)?;
    }
    let mesh = &config.sidecar;
    if mesh.enabled && mesh.mesh.token_file.is_none() && !is_loopback(config.grpc) {
        return Err(NodeError::Refused(format!(
            "grpc.addr = {} can be reached from other machines, and anybody could send notices; set \
             sidecar.token_file first",
            config.grpc
        )));
    }
    Ok(())
}

/// The same for one address.
pub(crate) fn check_address(
    config: &Config,
    key: &str,
    address: SocketAddr,
) -> Result<(), NodeError> {
    let guarded = config.tls.is_some() && config.auth.admin.is_some();
    if guarded || is_loopback(address) {
        return Ok(());
    }
    Err(NodeError::Refused(format!(
        "{key} = {address} can be reached from other machines; set tls.cert, tls.key and \
         auth.admin_tokens (and auth.read_tokens) first, or listen on 127.0.0.1"
    )))
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}
