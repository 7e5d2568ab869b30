//! The one validation, used by every service that starts and by `config check`: all values, where it
//! is safe to listen, and the files that are read at the start. Whatever is wrong is one error.

use std::net::{IpAddr, SocketAddr};

use super::archive::settings;
use super::{Config, Layers, NodeBlobs, index, plainly};
use crate::blobs;
use crate::error::NodeError;
use crate::http::tls;
use crate::security::{Tokens, check_address, check_bind, new_token};
use crate::ui;

/// What is to start, or would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Starts {
    Node,
    Index,
    Utxo,
    /// Any of them: what `config check` judges.
    Any,
}

/// Everything that a service is told, checked as a whole.
pub(crate) fn checked(layers: &Layers, starts: Starts) -> Result<Config, NodeError> {
    if starts != Starts::Any && layers.get("log.json").is_some_and(|json| json.text == "true") {
        // What is wrong with the rest is reported in this form already.
        ui::log::is_json(true);
    }
    layers.all_at_once(|layers| {
        let config = Config::of(layers)?;
        if matches!(starts, Starts::Node | Starts::Any) {
            node(layers, &config)?;
        }
        if starts == Starts::Any || (starts == Starts::Node && config.sidecar.enabled) {
            sidecars(layers, &config.sidecar)?;
        }
        if matches!(starts, Starts::Utxo | Starts::Any) {
            utxo(layers, &config)?;
        }
        if matches!(starts, Starts::Index | Starts::Any) {
            index::check_place(layers)?;
        }
        let needed = match starts {
            Starts::Node => config.archive.place.is_some(),
            Starts::Utxo => config.utxo.files.is_some(),
            Starts::Index | Starts::Any => true,
        };
        if needed {
            let credentials = settings(layers)?.s3.credentials;
            layers.read("archive.credentials", |_| credentials.check().map_err(plainly))?;
        }
        if starts != Starts::Index {
            files(layers, &config)?;
        }
        Ok(config)
    })
}

fn node(layers: &Layers, config: &Config) -> Result<(), NodeError> {
    differ(layers, ("http.addr", config.http), ("grpc.addr", config.grpc))?;
    layers.check(&["http.addr", "grpc.addr"], check_bind(config).map_err(Into::into))
}

/// Key, places for copies and peers, as the node will read them.
fn sidecars(layers: &Layers, sidecar: &NodeBlobs) -> Result<(), NodeError> {
    layers.check(&["sidecar.key_file"], blobs::identity(sidecar).map(drop))?;
    // A list that is refused already is not refused again for its files.
    if layers.is_sound(&["sidecar.providers"]) {
        layers.check(&["sidecar.providers"], blobs::check_providers(sidecar))?;
    }
    let keys = ["sidecar.peers", "sidecar.token_file", "sidecar.ca_file"];
    if layers.is_sound(&keys) {
        layers.check(&keys, sidecar.mesh.check().map_err(Into::into))?;
    }
    Ok(())
}

fn utxo(layers: &Layers, config: &Config) -> Result<(), NodeError> {
    let (listen, http) = (config.utxo.listen, config.utxo.http);
    differ(layers, ("utxo.listen", listen), ("utxo.http", http))?;
    if let Some(health) = config.utxo.open_health {
        for other in [("utxo.listen", listen), ("utxo.http", http)] {
            differ(layers, ("utxo.open_health", health), other)?;
        }
    }
    layers.check(&["utxo.api_key_file"], config.utxo.api_key().map(drop))?;
    let reached = check_address(config, "utxo.listen", listen);
    layers.check(&["utxo.listen"], reached.map_err(Into::into))?;
    let reached = check_address(config, "utxo.http", http);
    layers.check(&["utxo.http"], reached.map_err(Into::into))
}

/// Reads the files of tokens and certificates, as the service will.
fn files(layers: &Layers, config: &Config) -> Result<(), NodeError> {
    let own = new_token().map_err(|error| NodeError::Failed(format!("{error:#}")))?;
    let mesh = config.sidecar.mesh.token_file.as_deref();
    let tokens = Tokens::read(&config.auth, mesh, &own).map(drop);
    let keys =
        ["auth.read_tokens", "auth.consumer_tokens", "auth.admin_tokens", "sidecar.token_file"];
    layers.check(&keys, tokens)?;
    let tls = config.tls.as_ref().map(tls::read).transpose().map(drop);
    layers.check(&["tls.cert", "tls.key"], tls)
}

/// Two sockets of one process cannot have the same address.
fn differ(
    layers: &Layers,
    (one, first): (&'static str, SocketAddr),
    (other, second): (&'static str, SocketAddr),
) -> Result<(), NodeError> {
    let (a, b) = (first.ip(), second.ip());
    // An address that stands for all of this machine's leaves no other of the same port. `[::]` takes
    // those of IPv4 too; `0.0.0.0` leaves those of IPv6.
    let takes =
        |all: IpAddr, other: IpAddr| all.is_unspecified() && (all.is_ipv6() || other.is_ipv4());
    let overlap = a == b || takes(a, b) || takes(b, a);
    if first.port() == 0 || first.port() != second.port() || !overlap {
        return Ok(());
    }
    let reason = format!(
        "{one} = {first} and {other} = {second} are the same address; give each a port of its own"
    );
    layers.conflict(&[one, other], reason)
}
