//! `export`: blocks pulled from a running node over loopback gRPC, by polling (v1) and as a stream
//! (v2), beside a bare gRPC stream: a server that does nothing but send the very same messages from
//! memory.
//!
//! Node and bare server are processes of their own, the client is this one, and they take turns.

mod bare;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use secateur_proto::export::{v1, v2};
use tonic::transport::Channel;

use super::Setting;
use crate::contestants::Identity;
use crate::machine::Machine;
use crate::measure::{float, median, share};
use crate::processes::node::{MAX_MESSAGE, Node, connect};
use crate::results::{Case, Figure, Line, Report};
use crate::workload::{Feed, Pool, Shape, Sizes};

pub use bare::{CHILD, answer};

/// Its name.
pub const NAME: &str = "export";

const SHAPES: [(&str, Shape); 2] = [
    ("20KB", Shape { bytes: 20_000, transactions: 10 }),
    ("200KB", Shape { bytes: 200_000, transactions: 200 }),
];
const SEED: u64 = 20_260_801;
/// Blocks of one append.
const GROUP: usize = 64;
/// v1 needs a call a block; it is measured on a part of them.
const V1_SHARE: u64 = 8;

/// Bytes a second of each way, round by round.
#[derive(Debug, Default)]
struct Rates {
    stream: Vec<f64>,
    bare: Vec<f64>,
    polling: Vec<f64>,
}

/// Runs every case.
pub fn run(setting: &Setting) -> Result<Report> {
    let (bytes, rounds) = if setting.quick { (64 << 20, 3) } else { (512 << 20, 7) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut cases = Vec::new();
    for (name, shape) in SHAPES {
        if !setting.wants(name, name) {
            continue;
        }
        let at = setting.data.join("export");
        let rates = runtime.block_on(measure(&at, shape, bytes, rounds, name))?;
        cases.push(case(name, &rates));
        std::fs::remove_dir_all(&at)?;
    }
    Ok(Report {
        name: NAME,
        work: "blocks pulled from a node over loopback gRPC".into(),
        mode: if setting.quick { "quick" } else { "full" },
        machine: Machine::look(&setting.data),
        cases,
        plotted: "vs_bare",
    })
}

async fn measure(at: &Path, shape: Shape, bytes: u64, rounds: u32, name: &str) -> Result<Rates> {
    eprintln!("{NAME}: {name}, filling {} MiB …", bytes >> 20);
    std::fs::create_dir_all(at)?;
    let node = Node::start(&at.join("data"), &[])?;
    let blocks = bytes / shape.bytes as u64;
    fill(&node, Sizes::Fixed(shape), blocks).await?;
    let channel = connect(&node.address).await?;
    let messages = at.join("messages");
    let whole = bare::record(&mut stream_client(channel.clone()), &messages).await?;
    let bare = bare::Server::start(&messages)?;
    let bare_channel = connect(&bare.address).await?;
    let mut rates = Rates::default();
    for round in 1..=rounds {
        eprintln!("{NAME}: {name}, round {round} …");
        rates.stream.push(stream(&mut stream_client(channel.clone()), whole).await?);
        rates.bare.push(stream(&mut stream_client(bare_channel.clone()), whole).await?);
        rates.polling.push(poll(channel.clone(), (blocks / V1_SHARE).max(1)).await?);
    }
    Ok(rates)
}

/// Appends so many blocks.
async fn fill(node: &Node, sizes: Sizes, blocks: u64) -> Result<()> {
    let mut admin = node.admin().await?;
    let (mut pool, mut feed) = (Pool::new(sizes, GROUP, 1, SEED)?, Feed::new(SEED));
    for _ in 0..blocks.div_ceil(GROUP as u64) {
        feed.prepare(&mut pool);
        for group in pool.groups() {
            admin.append(group).await?;
        }
        feed.appended(&pool, 1);
    }
    Ok(())
}

type StreamClient = v2::export_client::ExportClient<Channel>;

fn stream_client(channel: Channel) -> StreamClient {
    StreamClient::new(channel).max_decoding_message_size(MAX_MESSAGE)
}

/// Takes the whole stream; payload bytes a second.
async fn stream(client: &mut StreamClient, whole: u64) -> Result<f64> {
    let began = Instant::now();
    let mut messages = client.stream(v2::StreamRequest::default()).await?.into_inner();
    let mut bytes = 0;
    while let Some(message) = messages.message().await? {
        bytes += bare::payload_bytes(&message);
    }
    ensure!(bytes == whole, "{bytes} bytes came, not {whole}");
    Ok(share(float(bytes), began.elapsed().as_secs_f64()))
}

/// Pulls so many blocks by cursor; payload bytes a second.
async fn poll(channel: Channel, blocks: u64) -> Result<f64> {
    let mut client =
        v1::export_client::ExportClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
    let (mut cursor, mut bytes) = (None, 0);
    let began = Instant::now();
    loop {
        let request = v1::ExportBlocksRequest { cursor, max_bytes: None };
        let answer = client.export_blocks(request).await?.into_inner();
        bytes += answer.chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum::<u64>();
        cursor = answer.next_cursor;
        let reached = cursor.as_ref().context("the store is empty")?.block_number;
        if reached > blocks {
            break;
        }
        ensure!(!answer.chunks.is_empty(), "the export ended at block {reached}");
    }
    Ok(share(float(bytes), began.elapsed().as_secs_f64()))
}

fn case(name: &str, rates: &Rates) -> Case {
    let ratios = |others: &[f64]| -> Vec<f64> {
        rates.stream.iter().zip(others).map(|(ours, theirs)| share(*ours, *theirs)).collect()
    };
    let (vs_bare, vs_v1) = (ratios(&rates.bare), ratios(&rates.polling));
    let line = |key, name: &str, settings: &str, rates: &[f64], limited_by| Line {
        identity: Identity {
            key,
            name: name.into(),
            version: "this checkout".into(),
            settings: settings.into(),
        },
        reached: vec![("MB/s", Figure::Ratio(median(rates) / 1e6))],
        limited_by,
    };
    Case {
        labels: vec![("size", name.to_owned())],
        figures: vec![
            ("vs_bare", Figure::Ratio(median(&vs_bare))),
            ("vs_v1", Figure::Ratio(median(&vs_v1))),
        ],
        rounds: vs_bare,
        contestants: vec![
            line("v2", "export v2", "one stream, all blocks", &rates.stream, "CPU"),
            line("bare", "bare gRPC stream", "the same messages from memory", &rates.bare, "CPU"),
            line("v1", "export v1", "a call a block, one at a time", &rates.polling, "latency"),
        ],
        phases: Vec::new(),
    }
}
