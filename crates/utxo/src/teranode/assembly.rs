//! What block assembly is doing, asked before every run.

use std::pin::Pin;
use std::time::Duration;

use secateur_proto::teranode::blockassembly::EmptyMessage;
use secateur_proto::teranode::blockassembly::block_assembly_api_client::BlockAssemblyApiClient;

use super::{ChainOptions, Keyed, MAX_MESSAGE, in_time};
use crate::UtxoError;
use crate::pruner::{Assembly, AssemblyState};

const WHAT: &str = "block assembly";
/// What it says while no reorganisation or reset is under way.
const RUNNING: &str = "running";

/// A block assembly that is asked over gRPC.
#[derive(Debug, Clone)]
pub struct ChainAssembly {
    client: BlockAssemblyApiClient<Keyed>,
    timeout: Duration,
}

impl ChainAssembly {
    /// Makes ready to ask; nothing is sent yet. It must be called inside a runtime.
    pub fn new(options: &ChainOptions) -> Result<Self, UtxoError> {
        let client = BlockAssemblyApiClient::new(options.channel(WHAT)?)
            .max_decoding_message_size(MAX_MESSAGE);
        Ok(Self { client, timeout: options.timeout })
    }
}

impl Assembly for ChainAssembly {
    fn state(&self) -> Pin<Box<dyn Future<Output = Result<AssemblyState, UtxoError>> + Send + '_>> {
        let mut client = self.client.clone();
        Box::pin(async move {
            let asked = client.get_block_assembly_state(EmptyMessage {});
            let said = in_time(WHAT, self.timeout, asked).await?;
            Ok(AssemblyState {
                running: said.block_assembly_state.trim().eq_ignore_ascii_case(RUNNING),
                height: said.current_height.into(),
            })
        })
    }
}
