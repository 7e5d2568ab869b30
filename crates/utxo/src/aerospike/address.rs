//! Addresses:
//! `aerospike://host[:port][,host2…]/namespace[?set=…&durable_delete=auto|on|off&wiped_before_rejoin=yes|no]`.

use std::fmt;
use std::str::FromStr;

use crate::UtxoError;

/// The port of a node that names none.
const PORT: u16 = 3000;
/// The set of a store that names none.
const SET: &str = "utxo";
/// The longest name of a set: those of its companions and indexes must fit what servers take.
const MAX_SET: usize = 40;
/// The longest name of a namespace.
const MAX_NAMESPACE: usize = 31;

/// Whether deletions leave a tombstone, so that no node that was away brings a record back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durable {
    /// If the server is of an edition that can.
    Auto,
    On,
    Off,
}

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) namespace: String,
    pub(super) set: String,
    pub(super) durable: Durable,
    /// Whether the operator says that a node is wiped before it rejoins.
    pub(super) wiped: bool,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("aerospike://")?;
        for (n, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            write!(f, "{comma}{host}:{port}")?;
        }
        write!(f, "/{}?set={}", self.namespace, self.set)?;
        match self.durable {
            Durable::Auto => {}
            Durable::On => f.write_str("&durable_delete=on")?,
            Durable::Off => f.write_str("&durable_delete=off")?,
        }
        if self.wiped { f.write_str("&wiped_before_rejoin=yes") } else { Ok(()) }
    }
}

/// What is wrong with an address. It is not shown: somebody may have put a password into it.
fn wrong(reason: impl fmt::Display) -> UtxoError {
    UtxoError::Setting(format!(
        "the address of the Aerospike store is wrong: {reason}. It is written \
         aerospike://host[:port][,host2]/namespace[?set=name]"
    ))
}

impl FromStr for Address {
    type Err = UtxoError;

    fn from_str(text: &str) -> Result<Self, UtxoError> {
        let rest = text
            .strip_prefix("aerospike://")
            .ok_or_else(|| wrong("it does not begin with aerospike://"))?;
        if rest.contains('@') {
            return Err(wrong(
                "a user and a password are given by AEROSPIKE_USER and AEROSPIKE_PASSWORD",
            ));
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, namespace) =
            place.split_once('/').ok_or_else(|| wrong("it names no namespace"))?;
        let hosts = hosts.split(',').map(host).collect::<Result<Vec<_>, _>>()?;
        let namespace = name("namespace", namespace, MAX_NAMESPACE)?;
        let (mut set, mut durable, mut wiped) = (SET.to_owned(), Durable::Auto, false);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("set", value)) => set = name("set", value, MAX_SET)?,
                Some(("durable_delete", value)) => {
                    durable = match value {
                        "auto" => Durable::Auto,
                        "on" => Durable::On,
                        "off" => Durable::Off,
                        _ => return Err(wrong("durable_delete is auto, on or off")),
                    };
                }
                Some(("wiped_before_rejoin", "yes")) => wiped = true,
                Some(("wiped_before_rejoin", "no")) => wiped = false,
                Some(("wiped_before_rejoin", _)) => {
                    return Err(wrong("wiped_before_rejoin is yes or no"));
                }
                _ => {
                    return Err(wrong(
                        "only set, durable_delete and wiped_before_rejoin can be given after the ?",
                    ));
                }
            }
        }
        Ok(Self { hosts, namespace, set, durable, wiped })
    }
}

fn host(text: &str) -> Result<(String, u16), UtxoError> {
    // An IPv6 address is in brackets, since it has colons of its own.
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or_else(|| wrong("a [ is not closed"))?;
        (host, (!port.is_empty()).then(|| port.strip_prefix(':').unwrap_or(port)))
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err(wrong("a host has no name"));
    }
    let port = match port {
        None => PORT,
        Some(port) => port.parse().map_err(|_| wrong("a port is not a number up to 65535"))?,
    };
    Ok((host.to_owned(), port))
}

fn name(what: &str, text: &str, longest: usize) -> Result<String, UtxoError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if text.is_empty() || text.len() > longest || !text.bytes().all(fits) {
        return Err(wrong(format!(
            "the {what} is not 1 to {longest} letters, digits, underscores and hyphens"
        )));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_shown() {
        let all = "aerospike://a,b:3100,[::1]:3200,[::2]/test?set=x-1&durable_delete=off";
        let all: Address = format!("{all}&wiped_before_rejoin=yes").parse().unwrap();
        let hosts = [("a", 3000), ("b", 3100), ("::1", 3200), ("::2", 3000)];
        assert_eq!(all.hosts, hosts.map(|(host, port)| (host.to_owned(), port)));
        assert_eq!((all.namespace.as_str(), all.set.as_str()), ("test", "x-1"));
        assert_eq!((all.durable, all.wiped), (Durable::Off, true));
        let shown = "aerospike://a:3000,b:3100,[::1]:3200,[::2]:3000/test?set=x-1&durable_delete=off\
                     &wiped_before_rejoin=yes";
        assert_eq!(all.to_string(), shown);
        let plain: Address = "aerospike://a/test".parse().unwrap();
        assert_eq!(
            (plain.set.as_str(), plain.durable, plain.wiped),
            ("utxo", Durable::Auto, false)
        );
        assert_eq!(plain.to_string(), "aerospike://a:3000/test?set=utxo");
        assert_eq!(shown.parse::<Address>().unwrap(), all, "what is shown opens the same store");
    }

    #[test]
    fn a_wrong_address_is_refused_without_being_shown() {
        let long = "x".repeat(41);
        for address in [
            "",
            "http://a/test",
            "aerospike://a",
            "aerospike:///test",
            "aerospike://a,/test",
            "aerospike://a/",
            "aerospike://a/te st",
            "aerospike://a:/test",
            "aerospike://a:x/test",
            "aerospike://a:65536/test",
            "aerospike://[::1/test",
            "aerospike://a/test?set=",
            "aerospike://a/test?set=a/b",
            &format!("aerospike://a/test?set={long}"),
            "aerospike://a/test?durable_delete=maybe",
            "aerospike://a/test?wiped_before_rejoin=maybe",
            "aerospike://a/test?wiped_before_rejoin",
            "aerospike://a/test?secret=1",
            "aerospike://me:secret@a/test",
        ] {
            let refused = address.parse::<Address>().unwrap_err().to_string();
            assert!(refused.contains("nothing was changed"), "{refused}");
            assert!(!refused.contains("secret") && !refused.contains("maybe"), "{refused}");
        }
    }
}
