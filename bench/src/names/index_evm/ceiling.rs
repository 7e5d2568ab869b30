//! What the source can give: its answers, fetched as fast as it lets us and thrown away.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use crate::processes::anvil::Anvil;
use crate::rpc::{Client, call};

/// Blocks of a batch, and batches under way at once: whichever pair is the fastest counts.
const WAYS: [(u64, usize); 4] = [(10, 4), (10, 16), (50, 4), (50, 8)];
/// Blocks of one `eth_getLogs`.
const RANGE: u64 = 100;

/// The ways, in words.
pub const BLOCKS: &str = "all blocks with transactions and all receipts, in batches of 10 or 50 \
                          blocks, 4 to 16 at once, the fastest way; nothing is parsed";
pub const LOGS: &str = "the events alone, by ranges of 100 blocks, 4 or 16 at once, the faster way";

/// How long the source takes.
pub struct Ceiling {
    /// For all blocks with their transactions, and all receipts.
    pub blocks: Duration,
    /// For the events alone.
    pub logs: Duration,
}

/// Finds out.
pub async fn look(anvil: &Anvil) -> Result<Ceiling> {
    let client = Client::new(&anvil.url)?;
    let (mut blocks, mut logs) = (Duration::MAX, Duration::MAX);
    for (count, at_once) in WAYS {
        let batch = |first: u64| {
            let heights = first..(first + count).min(anvil.last + 1);
            let calls = heights.flat_map(|height| {
                let height = format!("{height:#x}");
                [
                    call("eth_getBlockByNumber", &json!([height, true])),
                    call("eth_getBlockReceipts", &json!([height])),
                ]
            });
            Value::Array(calls.collect())
        };
        let took = fetch(&client, anvil.last, count, at_once, batch).await?;
        eprintln!("  batches of {count} blocks, {at_once} at once: {:.2} s", took.as_secs_f64());
        blocks = blocks.min(took);
    }
    for at_once in [4, 16] {
        let range = |first: u64| {
            let last = (first + RANGE - 1).min(anvil.last);
            call("eth_getLogs", &anvil.filter(first, last))
        };
        logs = logs.min(fetch(&client, anvil.last, RANGE, at_once, range).await?);
    }
    Ok(Ceiling { blocks, logs })
}

/// Fetches everything up to a block, so many blocks a request.
async fn fetch(
    client: &Client,
    last: u64,
    count: u64,
    at_once: usize,
    body: impl Fn(u64) -> Value,
) -> Result<Duration> {
    let bodies: Vec<Value> = (0..=last).step_by(usize::try_from(count)?).map(body).collect();
    let began = Instant::now();
    let answers = stream::iter(&bodies).map(|body| client.raw(body)).buffer_unordered(at_once);
    let bytes = answers.try_fold(0, |sum, answer| async move { Ok(sum + answer.len()) }).await?;
    ensure!(bytes > 0, "the source sent nothing");
    Ok(began.elapsed())
}
