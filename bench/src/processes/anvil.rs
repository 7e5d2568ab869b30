//! anvil, as `scripts/prepare` installs it: an EVM node that mines when it is told to.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{Kept, Start, told};
use crate::rpc::{Client, call};

/// Transactions of a block, and events of a transaction.
pub const TRANSACTIONS: usize = 20;
pub const EVENTS: usize = 5;
/// Empty blocks behind the last one with events, so that it is final for everybody.
const BEHIND: u64 = 100;
const ACCOUNTS: usize = 10;
/// `Transfer(address,address,uint256)`.
pub const TRANSFER: &str = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";

/// A running anvil with its chain.
pub struct Anvil {
    /// Where it answers.
    pub url: String,
    /// The contract that emits the events.
    pub contract: String,
    /// The last block with events.
    pub last: u64,
    /// Its events.
    pub events: u64,
    _process: Kept,
}

impl Anvil {
    /// Starts it and builds a chain of so many blocks with events.
    pub async fn build(directory: &std::path::Path, blocks: u64) -> Result<Self> {
        let binary = told("BENCH_ANVIL")?;
        let words = "--port 0 --no-mining --order fifo --hardfork prague --timestamp 1700000000 \
                     --slots-in-an-epoch 1 --prune-history --accounts";
        let start = Start::new(directory, binary).words(words.split_whitespace());
        let process = Kept::start(start.words([ACCOUNTS.to_string()]))?;
        let find = |line: &str| line.strip_prefix("Listening on ").map(str::to_owned);
        let url = format!("http://{}", process.line(Duration::from_secs(30), find)?);
        let client = Client::new(&url)?;
        let accounts: Vec<String> =
            serde_json::from_value(client.ask("eth_accounts", json!([])).await?)?;
        let first = accounts.first().context("anvil has no accounts")?;
        let contract = deploy(&client, first).await?;
        for _ in 0..blocks {
            let calls = accounts.iter().cycle().take(TRANSACTIONS).map(|from| {
                let request = json!({ "from": from, "to": contract, "gas": "0x186a0",
                    "maxFeePerGas": "0x77359400", "maxPriorityFeePerGas": "0x1" });
                call("eth_sendTransaction", &json!([request]))
            });
            client.batch(calls.collect()).await?;
            client.ask("evm_mine", json!([])).await?;
        }
        client.ask("anvil_mine", json!([format!("{BEHIND:#x}"), "0xc"])).await?;
        let last = blocks + 1;
        let events = blocks * (TRANSACTIONS * EVENTS) as u64;
        let anvil = Self { url, contract, last, events, _process: process };
        let logs = anvil.logs_of(&client, last, last).await?;
        ensure!(logs == TRANSACTIONS * EVENTS, "the last block has {logs} events");
        Ok(anvil)
    }

    /// How many events a range of blocks has.
    async fn logs_of(&self, client: &Client, from: u64, to: u64) -> Result<usize> {
        let logs = client.ask("eth_getLogs", self.filter(from, to)).await?;
        Ok(logs.as_array().map_or(0, Vec::len))
    }

    /// The parameters that ask for the events of a range.
    pub fn filter(&self, from: u64, to: u64) -> Value {
        json!([{ "fromBlock": format!("{from:#x}"), "toBlock": format!("{to:#x}"),
            "address": self.contract, "topics": [format!("0x{TRANSFER}")] }])
    }
}

/// Deploys the contract: every call emits events that look like ERC-20 transfers, from the caller,
/// to `block number + i`, of as much as there is gas left.
async fn deploy(client: &Client, from: &str) -> Result<String> {
    let mut body = String::new();
    for event in 0..EVENTS {
        // GAS, PUSH1 0, MSTORE; NUMBER, PUSH1 i, ADD; CALLER; PUSH32 topic; LOG3 of 32 bytes.
        body += &format!("5a600052 4360{event:02x}01 33 7f{TRANSFER} 60206000a3").replace(' ', "");
    }
    body += "00";
    // PUSH2 length, DUP1, PUSH1 12, PUSH1 0, CODECOPY, PUSH1 0, RETURN.
    let code = format!("0x61{:04x}80600c6000396000f3{body}", body.len() / 2);
    let request = json!([{ "from": from, "data": code, "gas": "0xf4240" }]);
    let transaction = client.ask("eth_sendTransaction", request).await?;
    client.ask("evm_mine", json!([])).await?;
    let receipt = client.ask("eth_getTransactionReceipt", json!([transaction])).await?;
    let address = receipt.get("contractAddress").and_then(Value::as_str);
    Ok(address.with_context(|| format!("no contract: {receipt}"))?.to_owned())
}
