//! JSON-RPC over HTTP: just enough to build a chain, and to find out how fast a source can answer.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use serde_json::{Value, json};

/// One address.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
}

/// One call of a batch.
pub fn call(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

/// HTTP on loopback. What the product needs brings TLS along, and TLS wants a provider.
pub fn http() -> Result<reqwest::Client> {
    rustls::crypto::ring::default_provider().install_default().unwrap_or_default();
    Ok(reqwest::Client::builder().tls_certs_only([]).timeout(Duration::from_mins(2)).build()?)
}

impl Client {
    /// A client of that address.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self { http: http()?, url: url.to_owned() })
    }

    /// Posts a call or a batch; the answer as it came.
    pub async fn raw(&self, body: &Value) -> Result<Bytes> {
        let request = self.http.post(&self.url).header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await?;
        Ok(answer.error_for_status()?.bytes().await?)
    }

    /// Asks something that must work.
    pub async fn ask(&self, method: &str, params: Value) -> Result<Value> {
        let mut answer: Value = serde_json::from_slice(&self.raw(&call(method, &params)).await?)?;
        match answer.get_mut("result") {
            Some(result) => Ok(result.take()),
            None => bail!("{method}: {answer}"),
        }
    }

    /// Sends calls in one request; all of them must work.
    pub async fn batch(&self, calls: Vec<Value>) -> Result<()> {
        let answer: Value = serde_json::from_slice(&self.raw(&Value::Array(calls)).await?)?;
        let answers = answer.as_array().with_context(|| format!("not a batch: {answer}"))?;
        match answers.iter().find(|one| one.get("result").is_none()) {
            Some(bad) => bail!("{bad}"),
            None => Ok(()),
        }
    }
}
