//! Who may do what: roles, tokens, where it is safe to listen, and the record of what was done.
//!
//! Everything is refused that no table allows. Reads need a token where tokens for them are
//! configured; acknowledging and administration always need one, and commands on the same machine find theirs in
//! `node.json`.

mod audit;
mod bind;
mod rate;
mod roles;
#[cfg(test)]
mod tests;
mod tokens;

use std::net::IpAddr;
use std::path::Path;

use anyhow::Context as _;

pub(crate) use audit::Audit;
pub(crate) use bind::{check_address, check_bind};
pub(crate) use roles::{Role, grpc_role};
pub(crate) use tokens::{Token, Tokens, check_private, new_token};

use crate::config::Config;
use crate::service::ApiError;
use rate::Rates;

/// Who asks, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Where from.
    pub(crate) peer: Option<IpAddr>,
    /// The first bytes of its token's hash, for the audit log; none without a token.
    pub(crate) token: Option<String>,
}

impl Caller {
    /// Whether it may read why something is not well: causes name files and addresses. Callers on this machine may, and
    /// those with a token.
    pub(crate) fn may_read_causes(&self) -> bool {
        self.token.is_some() || self.peer.is_none_or(|peer| peer.to_canonical().is_loopback())
    }
}

/// Decides on every request.
#[derive(Debug)]
pub(crate) struct Guard {
    tokens: Tokens,
    rates: Rates,
    audit: Audit,
}

impl Guard {
    /// Reads the token files and opens the audit log. `own` is the token of `node.json`.
    pub(crate) fn new(config: &Config, data: &Path, own: &Token) -> Result<Self, anyhow::Error> {
        Ok(Self {
            tokens: Tokens::read(&config.auth, config.sidecar.mesh.token_file.as_deref(), own)?,
            rates: Rates::new(config.limits.requests_per_second),
            audit: Audit::open(data).context("opening the audit log")?,
        })
    }

    /// Whether a caller with this `authorization` header may do something of that role.
    pub(crate) fn admit(
        &self,
        role: Role,
        authorization: Option<&[u8]>,
        peer: Option<IpAddr>,
    ) -> Result<Caller, ApiError> {
        if role != Role::Open && !self.rates.allow(peer) {
            return Err(ApiError::Overloaded);
        }
        let shown = authorization.map(|header| self.tokens.find(header)).transpose()?;
        let token = shown.as_ref().map(|found| found.fingerprint.clone());
        let caller = Caller { peer, token };
        match (role, shown.map(|found| found.role)) {
            (Role::Open, None) => Ok(caller),
            (wanted, Some(has)) if has.may(wanted) => Ok(caller),
            (Role::Read, None) if !self.tokens.reads_need_one() => Ok(caller),
            (Role::Peer, None) if !self.tokens.peers_need_one() => Ok(caller),
            (_, Some(_)) => Err(ApiError::Forbidden),
            (_, None) => Err(ApiError::Unauthenticated),
        }
    }

    /// Whether nobody reads without a token.
    pub(crate) fn reads_need_a_token(&self) -> bool {
        self.tokens.reads_need_one()
    }

    /// The record of administration.
    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }
}
