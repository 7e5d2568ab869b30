//! The node's own check of a part before it counts: the whole object is read back, and every block
//! in it is compared with the block that is here.

use secateur_archive::{Check, PartKey};
use secateur_core::{Block, Part};
use secateur_store::StoreError;
use secateur_store::ground::disk::DiskStore;

use super::Vault;
use crate::service::ApiError;

fn refused(reason: &str) -> ApiError {
    ApiError::Refused(format!("ack_archived: {reason}"))
}

impl Vault {
    /// Notes a part in the store, after it was read back where the configuration wants that. How
    /// far everything is archived is the answer.
    pub(crate) fn acknowledge(
        &self,
        store: &DiskStore,
        part: &Part,
    ) -> Result<Option<u64>, ApiError> {
        if self.verify_acks && !store.check_archived(part)? {
            self.check(store, part)?;
        }
        Ok(store.ack_archived(part)?)
    }

    fn check(&self, store: &DiskStore, part: &Part) -> Result<(), ApiError> {
        let provider = self.archive.provider();
        if part.locator.provider != provider {
            return Err(refused(&format!(
                "the part is in {}, and this node's archive is {provider} (archive.url)",
                part.locator.provider
            )));
        }
        let key = PartKey::parse_object(&part.locator.key).map_err(|error| {
            refused(&format!("{} is no part's name: {error}", part.locator.key))
        })?;
        if key.chain_id != store.header().chain_id {
            return Err(refused(&format!(
                "{} is of chain {}, and this is chain {}",
                part.locator.key,
                key.chain_id,
                store.header().chain_id
            )));
        }
        Self::wait(self.compare(store, part))?
    }

    /// Reads every byte of a part, in its order.
    async fn compare(&self, store: &DiskStore, part: &Part) -> Result<(), ApiError> {
        let told = |error: secateur_archive::ArchiveError| {
            let reason = format!("{} cannot be read back: {error}", part.locator.key);
            if error.is_retryable() { ApiError::Archive(reason) } else { refused(&reason) }
        };
        let reader = self.archive.reader(part).await.map_err(told)?;
        // Every block is compared with its original, so hashes need not be recomputed here.
        let mut scan = reader.scan(Check::Framing);
        while let Some(blocks) = scan.next_blocks().await.map_err(told)? {
            for block in &blocks {
                same(store, block)?;
            }
        }
        let manifest = scan.finish().await.map_err(told)?;
        let found = manifest.part(self.archive.provider());
        if found != *part {
            return Err(refused(&format!(
                "{} reads back as blocks {} to {} with {} bytes and SHA-256 {}, not as it was \
                 acknowledged",
                part.locator.key, found.first, found.last, found.size, found.sha256
            )));
        }
        Ok(())
    }
}

/// Refuses a block that is not, byte for byte, the one that is here.
fn same(store: &DiskStore, block: &Block) -> Result<(), ApiError> {
    let height = block.meta.height;
    match store.get_block(height) {
        Ok(own) if own == *block => Ok(()),
        Ok(_) => Err(refused(&format!("block {height} of the part is not the one that is here"))),
        Err(StoreError::Lookup(answer)) => {
            Err(refused(&format!("block {height} is not here to compare it with ({answer})")))
        }
        Err(error) => Err(error.into()),
    }
}
