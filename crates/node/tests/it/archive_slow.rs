//! A part that takes long to read back: the node's way to its archive is a slow link.

use std::time::{Duration, Instant};

use secateur_archive::{Archiver, ArchiverOptions, Codec, Grain, Retry};
use secateur_core::{Block, Part};
use secateur_index::source::{GrpcOptions, GrpcSource, Source as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::grpc::chain;
use crate::indexed::Bench;
use crate::s3::Bucket;

/// Bytes that the link carries in a second.
const RATE: u64 = 2 << 20;
/// Bytes of the part; reading it takes three seconds.
const BYTES: usize = 6 << 20;

/// A link to a service that carries its answers slowly; the address of its near end.
async fn slow_link(to: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let Ok((asking, _)) = listener.accept().await else { return };
            let answering = TcpStream::connect(&to).await.unwrap();
            let (mut questions, mut answers_to) = asking.into_split();
            let (mut answers, mut questions_to) = answering.into_split();
            tokio::spawn(
                async move { tokio::io::copy(&mut questions, &mut questions_to).await.ok() },
            );
            tokio::spawn(async move {
                let mut piece = vec![0; 64 << 10];
                while let Ok(len @ 1..) = answers.read(&mut piece).await {
                    tokio::time::sleep(Duration::from_micros(len as u64 * 1_000_000 / RATE)).await;
                    if answers_to.write_all(&piece[..len]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    near
}

/// Archives blocks as one part.
async fn archive(bucket: &Bucket, blocks: &[Block]) -> Part {
    let stage = tempfile::tempdir().unwrap();
    let mut options = ArchiverOptions::new(stage.path(), 1337, Codec::Opaque, 0);
    options.grain = Grain { max_blocks: Some(blocks.len() as u64), ..Grain::default() };
    let archive = bucket.archive(Retry::default());
    let mut archiver = Archiver::open(archive, options).await.unwrap();
    for block in blocks {
        archiver.push(block).await.unwrap();
    }
    archiver.publish().await.unwrap().unwrap()
}

#[test]
fn a_part_may_take_longer_to_read_back_than_any_other_call_takes() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bucket = runtime.block_on(Bucket::start());
    let to = bucket.endpoint.trim_start_matches("http://").to_owned();
    let endpoint = runtime.block_on(slow_link(to));
    let credentials = bucket.dir.path().join("credentials");
    let config = format!(
        "[limits]\ntimeout_seconds = 1\n[archive]\nurl = \"s3://history/chains/test\"\n\
         endpoint = \"{endpoint}\"\nregion = \"garage\"\ncredentials = \"{}\"\n",
        credentials.display()
    );
    let bench = Bench::start(&config, 1);
    let blocks = chain(0..=23, BYTES / 24, 1);
    bench.runtime.block_on(bench.clients.append(&blocks));
    let part = runtime.block_on(archive(&bucket, &blocks));
    assert!(part.size > BYTES as u64 * 9 / 10, "{part:?}");
    let options = GrpcOptions {
        token_file: Some(bench.data().join("node.json")),
        // What other calls may take: far less than this one does.
        timeout: Duration::from_secs(1),
        ..GrpcOptions::new(format!("http://{}", bench.node.grpc))
    };
    let began = Instant::now();
    let archived = runtime.block_on(async {
        let source = GrpcSource::new(&options).unwrap();
        source.ack_archived(&part).await
    });
    assert_eq!(archived.unwrap(), Some(23));
    assert!(began.elapsed() > Duration::from_secs(2), "the link was not slow");
    assert_eq!(bench.runtime.block_on(bench.clients.status()).archived, Some(23));
}
