//! JSON over HTTP for tests that are not async.

use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Runtime;

/// Posts JSON to one address.
#[derive(Debug)]
pub struct Client {
    runtime: Runtime,
    http: reqwest::Client,
    url: String,
}

impl Client {
    pub fn new(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { runtime, http: http(), url: url.to_owned() }
    }

    #[track_caller]
    pub fn post(&self, value: &Value) -> Value {
        let send = self.http.post(&self.url).header("content-type", "application/json");
        let send = send.body(value.to_string());
        let body = self.runtime.block_on(async {
            // Inside the runtime already when the request is made.
            send.send().await.unwrap().bytes().await.unwrap()
        });
        serde_json::from_slice(&body).unwrap()
    }
}

/// A client without certificates, for loopback.
pub fn http() -> reqwest::Client {
    rustls::crypto::ring::default_provider().install_default().unwrap_or_default();
    let builder = reqwest::Client::builder().tls_certs_only([]);
    builder.timeout(Duration::from_mins(1)).build().unwrap()
}
