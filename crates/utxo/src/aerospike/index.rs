//! Secondary indexes: made at open where they are missing, and waited for. A query before its index is
//! ready would find fewer records than there are.

use std::sync::Arc;
use std::time::Duration;

use aerospike::{AdminPolicy, Client, CollectionIndexType, IndexType, Node, ResultCode, Version};
use tokio::time::Instant;

use crate::UtxoError;

use super::address::Address;
use super::answers::{self, failed};
use super::cluster::ADMIN;
use super::records::Index;

/// How long an index may take to be built over what is there.
const LONGEST: Duration = Duration::from_mins(30);
/// How often a node is asked.
const ASK: Duration = Duration::from_millis(250);
/// How often people are told.
const TELL: Duration = Duration::from_secs(10);

/// The name of an index: one of a namespace, whatever its set.
pub(super) fn name(address: &Address, index: Index) -> String {
    format!("{}_{}", address.set, index.bin())
}

/// Makes the indexes that are missing, and waits until every node can be asked by all of them.
pub(super) async fn prepare(client: &Client, address: &Address) -> Result<(), UtxoError> {
    for index in Index::ALL {
        let made = client
            .create_index_on_bin(
                &ADMIN,
                &address.namespace,
                &address.set,
                index.bin(),
                &name(address, index),
                IndexType::Numeric,
                CollectionIndexType::Default,
                None,
            )
            .await;
        match made {
            Ok(_) => {}
            Err(error) if error.matches(&[ResultCode::IndexFound]) || answers::is_ok(&error) => {}
            Err(error) if error.matches(&[ResultCode::IndexMaxCount]) => {
                return Err(UtxoError::store(format!(
                    "namespace {} has as many secondary indexes as a server takes (256), and a store \
                     needs {}: {}; no record was touched. Use another namespace, or drop indexes",
                    address.namespace,
                    Index::ALL.len(),
                    answers::shown(&error)
                )));
            }
            Err(error) => return Err(failed(&error)),
        }
    }
    for index in Index::ALL {
        wait(client, address, &name(address, index)).await?;
    }
    Ok(())
}

async fn wait(client: &Client, address: &Address, name: &str) -> Result<(), UtxoError> {
    let began = Instant::now();
    let mut told = began;
    loop {
        let nodes = client.nodes();
        let mut ready = !nodes.is_empty();
        for node in &nodes {
            ready &= is_ready(&ask(node, &address.namespace, name).await?);
        }
        if ready {
            return Ok(());
        }
        if began.elapsed() > LONGEST {
            return Err(UtxoError::Store {
                reason: format!(
                    "Aerospike: the secondary index {name} is not ready after {} minutes; no record was \
                     touched. Look at the server's log, and try again",
                    LONGEST.as_secs() / 60
                ),
                retryable: true,
            });
        }
        if told.elapsed() > TELL {
            told = Instant::now();
            tracing::info!(index = name, "waiting until the secondary index is ready");
        }
        tokio::time::sleep(ASK).await;
    }
}

/// What a node says of an index.
async fn ask(node: &Arc<Node>, namespace: &str, name: &str) -> Result<String, UtxoError> {
    let command = if *node.version() >= Version::new(8, 1, 0, 0) {
        format!("sindex-stat:namespace={namespace};indexname={name}")
    } else {
        format!("sindex/{namespace}/{name}")
    };
    let policy: AdminPolicy = ADMIN;
    let answers = node.info(&policy, &[command.as_str()]).await.map_err(|error| failed(&error))?;
    Ok(answers.into_values().next().unwrap_or_default())
}

/// Whether an answer says that everything is in the index. A node that does not know the index yet says
/// so with an error: it hears of it later.
fn is_ready(answer: &str) -> bool {
    let loaded = answer.split([';', ':']).find_map(|pair| pair.trim().strip_prefix("load_pct="));
    loaded.and_then(|percent| percent.parse::<u32>().ok()).is_some_and(|percent| percent >= 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_ready_only_when_a_node_says_that_it_is_loaded() {
        assert!(is_ready("entries=12;used_bytes=16777216;load_pct=100;load_time=0"));
        assert!(is_ready("keys=1;load_pct=100"));
        for not_yet in [
            "",
            "entries=12;load_pct=99;load_time=0",
            "load_pct=",
            "load_pct=x",
            "FAIL:201:no-index",
            "ERROR:201:INDEX NOT FOUND",
            "entries=100;xload_pct=100",
        ] {
            assert!(!is_ready(not_yet), "{not_yet}");
        }
    }
}
