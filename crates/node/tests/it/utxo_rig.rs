//! A UTXO service as a process of its own, with clients, and the transactions that tests feed it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use prost::Message as _;
use secateur_proto::ERROR_TRAILER;
use secateur_proto::utxo::v1 as pb;
use secateur_proto::utxo::v1::pruner_client::PrunerClient;
use secateur_proto::utxo::v1::store_client::StoreClient;
use serde_json::Value;
use tempfile::TempDir;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::http_client::send;
use crate::tool::Running;

/// No test waits longer for what it wants to see.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// A running `secateur utxo serve`.
pub struct Served {
    pub process: Running,
    pub http: String,
    pub grpc: String,
    pub channel: Channel,
    token: MetadataValue<Ascii>,
}

/// A directory for it, with a configuration.
pub struct Home {
    _place: TempDir,
    pub data: PathBuf,
}

impl Home {
    /// `settings` are lines of `[utxo]`.
    pub fn new(settings: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let small = "block_height_retention = 10\ncoinbase_maturity = 2\n";
        let text = format!("[utxo]\n{small}{settings}\n");
        std::fs::write(data.join("secateur.toml"), text).unwrap();
        Self { _place: place, data }
    }

    pub fn serve(&self, words: &str) -> Served {
        Served::start(&self.data, words)
    }
}

pub fn id(number: u32) -> [u8; 32] {
    let mut id = [7; 32];
    id[..4].copy_from_slice(&number.to_be_bytes());
    id
}

/// An id as people write it.
pub fn shown(number: u32) -> String {
    secateur_utxo::TxId(id(number)).to_string()
}

pub fn block(height: u64) -> pb::BlockRef {
    let number = u32::try_from(height).unwrap();
    pb::BlockRef { hash: id(1_000_000 + number).to_vec().into(), height }
}

/// A coinbase of a block.
pub fn coinbase(number: u32, outputs: u32, height: u64) -> pb::NewTransaction {
    pb::NewTransaction {
        txid: id(number).to_vec().into(),
        outputs,
        coinbase: true,
        body: vec![1; 8].into(),
        mined: Some(block(height)),
        ..pb::NewTransaction::default()
    }
}

/// A transaction that spends `(transaction, output)`.
pub fn spend(number: u32, inputs: &[(u32, u32)], mined: Option<u64>) -> pb::NewTransaction {
    let input =
        |(parent, n): &(u32, u32)| pb::OutPoint { txid: id(*parent).to_vec().into(), n: *n };
    pb::NewTransaction {
        txid: id(number).to_vec().into(),
        inputs: inputs.iter().map(input).collect(),
        outputs: 1,
        body: vec![2; 8].into(),
        mined: mined.map(block),
        ..pb::NewTransaction::default()
    }
}

impl Served {
    pub fn start(data: &Path, words: &str) -> Self {
        let words =
            format!("utxo serve --listen 127.0.0.1:0 --http 127.0.0.1:0 --log warn {words}");
        let mut process = Running::start(data, &words);
        let line = process.wait_for("listening");
        let word = |key: &str| {
            let found = line.split_whitespace().find_map(|word| word.strip_prefix(key));
            found.unwrap_or_else(|| panic!("no {key} in {line}")).to_owned()
        };
        let file = std::fs::read_to_string(data.join("utxo/node.json")).unwrap();
        let file: Value = serde_json::from_str(&file).unwrap();
        let token = format!("Bearer {}", file["admin_token"].as_str().unwrap()).parse().unwrap();
        let grpc = word("grpc=");
        let channel = Endpoint::from_shared(format!("http://{grpc}")).unwrap().connect_lazy();
        Self { process, http: word("http="), grpc, channel, token }
    }

    pub fn asked<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.token.clone());
        request
    }

    pub fn store(&self) -> StoreClient<Channel> {
        StoreClient::new(self.channel.clone())
    }

    pub fn pruner(&self) -> PrunerClient<Channel> {
        PrunerClient::new(self.channel.clone())
    }

    /// Creates transactions; each answer is its outcome, or the label of why it was refused.
    pub async fn create(&self, height: u64, transactions: Vec<pb::NewTransaction>) -> Vec<String> {
        let request = self.asked(pb::CreateRequest { height, transactions });
        let made = self.store().create(request).await.unwrap().into_inner();
        let one = |one: pb::Created| match one.error.clone() {
            Some(error) => error.label,
            None => one.outcome().as_str_name().to_owned(),
        };
        made.created.into_iter().map(one).collect()
    }

    pub async fn tell(&self, event: pb::trigger_request::Event) -> Result<bool, Status> {
        let request = self.asked(pb::TriggerRequest { event: Some(event) });
        Ok(self.pruner().trigger(request).await?.into_inner().triggers)
    }

    pub async fn block(&self, height: u64) -> bool {
        let block = pb::BlockEvent { height, mined_set: true };
        self.tell(pb::trigger_request::Event::Block(block)).await.unwrap()
    }

    pub async fn persisted(&self, height: u64) -> bool {
        let persisted = pb::BlockPersistedEvent { height };
        self.tell(pb::trigger_request::Event::BlockPersisted(persisted)).await.unwrap()
    }

    pub async fn status(&self) -> pb::StatusResponse {
        let request = self.asked(pb::StatusRequest {});
        self.pruner().status(request).await.unwrap().into_inner()
    }

    pub async fn jobs(&self) -> Vec<pb::Job> {
        let request = self.asked(pb::JobsRequest {});
        self.pruner().jobs(request).await.unwrap().into_inner().jobs
    }

    pub async fn explain(&self, number: u32) -> pb::ExplainResponse {
        let request = self.asked(pb::ExplainRequest { txid: shown(number) });
        self.pruner().explain(request).await.unwrap().into_inner()
    }

    pub async fn is_here(&self, number: u32) -> bool {
        self.explain(number).await.record.is_some()
    }

    /// Waits until a height is processed: the service is asked until it says so.
    pub async fn processed(&self, height: u64) -> pb::StatusResponse {
        let asked = async {
            loop {
                let status = self.status().await;
                if status.processed >= Some(height) {
                    return status;
                }
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("the height is never processed")
    }

    /// Waits until the health of a service changes to this.
    pub async fn health(&self, service: &str, serving: bool) {
        let request = HealthCheckRequest { service: service.into() };
        let wanted = if serving { 1 } else { 2 };
        let watched = async {
            let watch = HealthClient::new(self.channel.clone()).watch(request).await.unwrap();
            let mut watch = watch.into_inner();
            while watch.message().await.unwrap().unwrap().status != wanted {}
        };
        tokio::time::timeout(PATIENCE, watched).await.expect("the health never changes so");
    }

    /// Asks HTTP.
    pub fn get(&self, route: &str) -> (u16, String) {
        let reply = send(&self.http, &format!("GET {route}"), &[], b"");
        (reply.status, String::from_utf8(reply.body).unwrap())
    }

    /// Asks it to stop, and waits for a clean end.
    pub fn stop(self) {
        self.process.signal("TERM");
        let (code, rest) = self.process.end();
        assert_eq!(code, 0, "{rest}");
    }
}

/// The label in a status's trailer.
#[track_caller]
pub fn label(status: &Status) -> String {
    let trailer = status.metadata().get_bin(ERROR_TRAILER).expect("details").to_bytes().unwrap();
    pb::UtxoError::decode(trailer).unwrap().label
}
