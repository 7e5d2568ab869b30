//! By which names this node may be called. A page from elsewhere can make a browser send requests
//! here under the page's own name (DNS rebinding); where no token stands in the way, the name does.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{Request, Version};

use super::errors::Refusal;
use crate::security::Guard;

/// The names that are ours beside `localhost` and addresses.
#[derive(Debug)]
pub(super) struct Hosts {
    own: Option<String>,
}

impl Hosts {
    /// Names are checked on a loopback address that asks for no token. Anywhere else a token is
    /// asked for, and no foreign page has one.
    pub(super) fn to_check(address: SocketAddr, guard: &Guard) -> Option<Self> {
        let open = address.ip().to_canonical().is_loopback() && !guard.reads_need_a_token();
        // The machine's own name; where it cannot be read, there is one name less.
        let own = || {
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
            Some(name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty())
        };
        open.then(|| Self { own: own() })
    }

    /// Refuses a request that calls us by a name that is not ours.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        let Some(host) = host(request)? else { return Ok(()) };
        if self.is_ours(&host) { Ok(()) } else { Err(Refusal::wrong_host(&host)) }
    }

    fn is_ours(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        bare.parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || self.own.as_deref() == Some(host)
    }
}

/// The name that a request calls us by, without its port.
fn host<B>(request: &Request<B>) -> Result<Option<String>, Refusal> {
    if let Some(authority) = request.uri().authority() {
        return Ok(Some(authority.host().to_owned()));
    }
    let mut named = request.headers().get_all(HOST).iter();
    match (named.next(), named.next()) {
        (Some(value), None) => {
            let authority: Option<Authority> =
                value.to_str().ok().and_then(|text| text.trim().parse().ok());
            let authority = authority.ok_or_else(|| Refusal::bad("the host header is no name"))?;
            Ok(Some(authority.host().to_owned()))
        }
        // No browser speaks HTTP/1.0 any more.
        (None, None) if request.version() < Version::HTTP_11 => Ok(None),
        (None, _) => Err(Refusal::bad("the host header is missing")),
        (Some(_), Some(_)) => Err(Refusal::bad("the host header is there twice")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_our_own_names_are_ours_and_nothing_else_is() {
        let hosts = Hosts { own: Some("here".into()) };
        for ours in ["localhost", "LocalHost.", "a.localhost", "127.0.0.1", "[::1]", "here"] {
            assert!(hosts.is_ours(ours), "{ours}");
        }
        for foreign in ["", "evil.example", "localhost.evil.example", "here.evil", "127.0.0.1.nip"]
        {
            assert!(!hosts.is_ours(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_host_is_read_without_its_port_and_a_doubtful_one_is_refused() {
        let ask = |request: axum::http::request::Builder| host(&request.body(()).unwrap());
        let named = |name: &str| ask(Request::get("/").header(HOST, name));
        assert_eq!(named("localhost:7740").unwrap().unwrap(), "localhost");
        assert_eq!(named("[::1]:7740").unwrap().unwrap(), "[::1]");
        assert_eq!(named("u@evil.example").unwrap().unwrap(), "evil.example");
        assert!(named("").is_err() && named("a b").is_err());
        assert!(ask(Request::get("/")).is_err());
        assert!(ask(Request::get("/").version(Version::HTTP_10)).unwrap().is_none());
        assert!(ask(Request::get("/").header(HOST, "a").header(HOST, "b")).is_err());
        let absolute = Request::get("http://evil.example/").header(HOST, "localhost");
        assert_eq!(ask(absolute).unwrap().unwrap(), "evil.example");
    }
}
