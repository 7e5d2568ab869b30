//! An archive that hangs: whoever looks up what is only there learns that the archive does not answer,
//! and not that the request asked for too much.

use secateur_archive::{Archiver, ArchiverOptions, Codec, Grain, Retry};
use secateur_index::source::{GrpcOptions, GrpcSource, Source as _};
use secateur_proto::history::v1::{self as pb, block_ref};
use serde_json::{Value, json};
use tonic::Code;

use crate::http_client::send;
use crate::indexed::Bench;
use crate::json_client::Client;
use crate::s3::{Bucket, Fault};

/// A node that keeps the newest of 24 blocks, and reads the others from a bucket.
fn bench(bucket: &Bucket, runtime: &tokio::runtime::Runtime) -> Bench {
    let config = format!(
        "[limits]\ntimeout_seconds = 3\n[archive]\nurl = \"s3://history/chains/test\"\n\
         endpoint = \"{}\"\nregion = \"garage\"\ncredentials = \"{}\"\nread_through = true\n",
        bucket.endpoint,
        bucket.dir.path().join("credentials").display()
    );
    let mut bench = Bench::start(&config, 2);
    let blocks = bench.grow(24);
    let stage = tempfile::tempdir().unwrap();
    let mut options = ArchiverOptions::new(stage.path(), 1337, Codec::Evm, 0);
    options.grain = Grain { max_blocks: Some(blocks.len() as u64), ..Grain::default() };
    let archived = runtime.block_on(async {
        let archive = bucket.archive(Retry::default());
        let mut archiver = Archiver::open(archive, options).await.unwrap();
        for block in &blocks {
            archiver.push(block).await.unwrap();
        }
        let part = archiver.publish().await.unwrap().unwrap();
        let options = GrpcOptions {
            token_file: Some(bench.data().join("node.json")),
            ..GrpcOptions::new(format!("http://{}", bench.node.grpc))
        };
        GrpcSource::new(&options).unwrap().ack_archived(&part).await.unwrap()
    });
    assert_eq!(archived, Some(23));
    assert!(bench.prune(4).unwrap() >= 10);
    bench
}

/// The request's own time ended before the archive's, so that its caller heard -32002 or 503, "ask for
/// less". The archive's ends first now.
#[test]
fn a_lookup_whose_archive_hangs_names_the_archive_and_not_the_caller() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bucket = runtime.block_on(Bucket::start());
    let bench = bench(&bucket, &runtime);
    bucket.plan(|_, _| Some(Fault::HangBefore));
    let names_it = |text: &str| {
        assert!(text.contains("s3://history/chains/test did not answer within"), "{text}");
    };
    let reply = send(&bench.node.http, "GET /v1/blocks/3", &[], b"");
    assert_eq!((reply.status, reply.header("retry-after")), (502, Some("1")));
    let body = reply.json();
    assert_eq!(body["code"], "archive");
    names_it(body["error"].as_str().unwrap());

    let client = Client::new(&format!("http://{}", bench.node.http));
    let call = |id: u64, height: &str| {
        let params = json!([height, false]);
        json!({ "jsonrpc": "2.0", "id": id, "method": "eth_getBlockByNumber", "params": params })
    };
    let answers = client.post(&json!([call(1, "0x3"), call(2, "0x4"), call(3, "latest")]));
    names_it(answers[0]["error"]["message"].as_str().unwrap());
    for place in [0, 1] {
        let error = &answers[place]["error"];
        assert_eq!(error["code"], -32_000, "{answers}");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with("archive: s3://history/chains/test "), "{message}");
    }
    assert_eq!(answers[2]["result"]["number"], "0x17", "what is here is answered all the same");
    let page = send(&bench.node.http, "GET /metrics", &[], b"");
    let page = String::from_utf8(page.body).unwrap();
    let line = page.lines().find(|line| line.contains("read_through") && line.contains("timeout"));
    assert!(line.is_some_and(|line| line.ends_with(" 2")), "the second call did not ask: {line:?}");
    let logs = json!([{ "fromBlock": "0x0", "toBlock": "0x5" }]);
    let logs =
        client.post(&json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": logs }));
    assert_eq!(logs["error"]["code"], -32_000, "{logs}");

    let block = Some(pb::BlockRef { r#ref: Some(block_ref::Ref::Number(3)) });
    let request = pb::GetBlockRequest { block, without_payloads: false };
    let status = bench.runtime.block_on(bench.clients.history.clone().get_block(request));
    let status = status.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    names_it(status.message());

    bucket.healthy();
    let answer: Value = client.post(&call(1, "0x3"));
    assert_eq!(answer["result"]["number"], "0x3", "{answer}");
}
