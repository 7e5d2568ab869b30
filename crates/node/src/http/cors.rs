//! Which pages of other origins may read answers (CORS). By default none may: a browser then keeps what it gets from
//! them.

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
    VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;

/// What a page may send and read beside what every page may.
const REQUEST_HEADERS: &str = "authorization, content-type, if-none-match";
const METHODS: &str = "GET, POST";
const ANSWER_HEADERS: &str = "etag, retry-after, www-authenticate";
/// How many seconds a browser may remember that it may.
const MAX_AGE_SECONDS: &str = "600";
const RESOURCE_POLICY: &str = "cross-origin-resource-policy";

/// The origins whose pages may read answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Origins {
    any: bool,
    named: Vec<String>,
}

impl Origins {
    /// Reads a list such as `https://a.example, http://localhost:3000`, or `*` for every origin.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut origins = Self::default();
        for origin in text.split(',').map(str::trim).filter(|origin| !origin.is_empty()) {
            if origin == "*" {
                origins.any = true;
                continue;
            }
            let uri: Option<Uri> = origin.parse().ok();
            let scheme = uri.as_ref().and_then(Uri::scheme_str);
            let host = uri.as_ref().and_then(Uri::host).filter(|host| !host.is_empty());
            let has_more =
                origin.splitn(3, '/').nth(2).is_some_and(|rest| rest.contains(['/', '?', '@']));
            if !matches!(scheme, Some("http" | "https")) || host.is_none() || has_more {
                return Err(format!(
                    "`{origin}` is not an origin: https://host, http://host:port or * is wanted"
                ));
            }
            let origin = origin.to_ascii_lowercase();
            // Browsers leave out the port that a scheme has anyway.
            let usual = if scheme == Some("https") { ":443" } else { ":80" };
            origins.named.push(origin.strip_suffix(usual).unwrap_or(&origin).to_owned());
        }
        Ok(origins)
    }

    /// The value that lets the page of a request read the answer.
    fn allows(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        if self.any {
            return Some(HeaderValue::from_static("*"));
        }
        let text = origin.to_str().ok()?.to_ascii_lowercase();
        self.named.contains(&text).then(|| origin.clone())
    }

    /// The answer to a browser that asks whether a page may send a request, if it may. It needs no token: browsers send
    /// none with that question.
    pub(super) fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response> {
        if *method != Method::OPTIONS || !headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        self.allows(headers)?;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        for (name, value) in [
            (ACCESS_CONTROL_ALLOW_METHODS, METHODS),
            (ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS),
            (ACCESS_CONTROL_MAX_AGE, MAX_AGE_SECONDS),
        ] {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Some(response)
    }

    /// Says in an answer that the page of the request may read it, if it may.
    pub(super) fn mark(&self, asked: &HeaderMap, response: &mut Response) {
        if self.any || !self.named.is_empty() {
            response.headers_mut().append(VARY, HeaderValue::from_static("origin"));
        }
        let Some(origin) = self.allows(asked) else { return };
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(ANSWER_HEADERS));
        let policy = HeaderName::from_static(RESOURCE_POLICY);
        headers.insert(policy, HeaderValue::from_static("cross-origin"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(origin: &str) -> HeaderMap {
        HeaderMap::from_iter([
            (ORIGIN, HeaderValue::from_str(origin).unwrap()),
            (ACCESS_CONTROL_REQUEST_METHOD, HeaderValue::from_static("POST")),
        ])
    }

    #[test]
    fn only_pages_of_configured_origins_may_ask_and_read() {
        let origins = Origins::parse("https://a.example, http://localhost:3000").unwrap();
        let any = Origins::parse("*").unwrap();
        let may = |origins: &Origins, origin: &str| {
            let mut response = Response::new(Body::empty());
            origins.mark(&asked(origin), &mut response);
            let marked = response.headers().contains_key(ACCESS_CONTROL_ALLOW_ORIGIN);
            let preflight = origins.preflight(&Method::OPTIONS, &asked(origin)).is_some();
            assert_eq!(marked, preflight, "{origin}");
            marked
        };
        assert!(may(&origins, "https://a.example") && may(&origins, "http://localhost:3000"));
        for other in ["http://a.example", "https://a.example:8443", "https://b.example", "null"] {
            assert!(!may(&origins, other), "{other}");
            assert!(!may(&Origins::default(), other), "{other}");
            assert!(may(&any, other), "{other}");
        }
        assert!(any.preflight(&Method::GET, &asked("https://a.example")).is_none());
        assert!(any.preflight(&Method::OPTIONS, &HeaderMap::new()).is_none());
    }

    #[test]
    fn an_origin_with_the_port_of_its_scheme_is_the_one_without_it() {
        let named = |text| Origins::parse(text).unwrap().named;
        assert_eq!(named("https://a.example:443"), ["https://a.example"]);
        assert_eq!(
            named("HTTP://A.example:80, http://[::1]:80"),
            ["http://a.example", "http://[::1]"]
        );
        for kept in ["https://a.example:80", "http://a.example:443", "http://a.example:8080"] {
            assert_eq!(named(kept), [kept]);
        }
    }

    #[test]
    fn a_text_that_is_not_a_list_of_origins_is_refused() {
        for wrong in ["a.example", "ftp://a", "https://a.example/path", "https://", "https://me@a"]
        {
            assert!(Origins::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Origins::parse("").unwrap(), Origins::default());
    }
}
