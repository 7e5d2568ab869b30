//! Blocks and receipts of the Kasane chain, an EVM in a canister. Its bytes are drawn in
//! `docs/format/kasane.md`; its transactions themselves are not in them.
//!
//! How the chain hashes a block is not part of its payloads, so a hash is believed; that numbers, ids,
//! places and lengths of all three payloads agree is checked.

use alloy_primitives::{Address, B256, Bytes, Log, LogData};
use secateur_core::{
    BlockHash, BlockMeta, CoreError, Height, Payloads, Reader, TxId, receipts, tx_index,
};

/// Transactions of a block, at most.
const MAX_TXS: u32 = 1_024;
/// What the second form of a receipt begins with.
const RECEIPT_V2: [u8; 8] = *b"rcptv2\0\x02";
/// Bytes that a transaction returns, at most.
const MAX_RETURN: u32 = 32 * 1_024;
/// Logs of a transaction, at most.
const MAX_LOGS: u32 = 64;
/// Topics of a log, at most.
const MAX_TOPICS: u32 = 4;
/// Bytes of a log's data, at most.
const MAX_LOG_DATA: u32 = 4_096;

/// A block of the Kasane chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KasaneBlock {
    /// What names it, as it says itself.
    pub meta: BlockMeta,
    /// Its transactions in order.
    pub txs: Vec<KasaneTx>,
}

/// What a receipt of the Kasane chain says of its transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KasaneTx {
    /// Its id.
    pub id: TxId,
    /// Whether it succeeded.
    pub status: bool,
    /// The gas it used.
    pub gas_used: u64,
    /// The contract it created.
    pub contract: Option<Address>,
    /// Its logs in order.
    pub logs: Vec<Log>,
}

impl KasaneBlock {
    /// Takes a block's three payloads apart. It must be the block of that height and, where its source
    /// names it, the one that the source names.
    pub fn decode(
        height: Height,
        told: Option<&BlockMeta>,
        payloads: &Payloads,
    ) -> Result<Self, CoreError> {
        let (meta, tx_ids) = head(height, told, &payloads.block)?;
        check_places(height, &tx_ids, &payloads.tx_index)?;
        let mut entries = receipts(&payloads.receipts);
        let mut txs = Vec::with_capacity(tx_ids.len());
        for (index, id) in (0u32..).zip(tx_ids) {
            let entry = entries.next().transpose()?.filter(|entry| entry.tx_id == id);
            let entry = entry.ok_or_else(|| {
                wrong(format!("transaction {index} of the block has no receipt in its place"))
            })?;
            txs.push(receipt(entry.bytes, (id, height, index))?);
        }
        if entries.next().is_some() {
            return Err(wrong("there are more receipts than transactions".into()));
        }
        Ok(Self { meta, txs })
    }

    /// What names a block, by its own bytes alone.
    pub fn meta(
        height: Height,
        told: Option<&BlockMeta>,
        block: &[u8],
    ) -> Result<BlockMeta, CoreError> {
        head(height, told, block).map(|(meta, _)| meta)
    }
}

fn wrong(reason: String) -> CoreError {
    CoreError::Decode { what: "kasane block", reason }
}

/// A number that counts what follows, if it is no larger than it may be.
fn count(reader: &mut Reader<'_>, what: &str, most: u32) -> Result<u32, CoreError> {
    let count = reader.u32()?;
    if count > most {
        return Err(reader.error(format!("{count} {what}; at most {most} are allowed")));
    }
    Ok(count)
}

/// Reads a block's own bytes, and compares them with what its source says.
fn head(
    height: Height,
    told: Option<&BlockMeta>,
    bytes: &[u8],
) -> Result<(BlockMeta, Vec<TxId>), CoreError> {
    let mut reader = Reader::new("kasane block", bytes);
    let number = reader.u64()?;
    if number != height {
        return Err(reader.error(format!("it says that it is block {number}")));
    }
    let parent_hash = BlockHash(reader.array()?);
    let hash = BlockHash(reader.array()?);
    let timestamp = reader.u64()?;
    // Base fee, gas limit and gas used; beneficiary; list of transactions; state.
    reader.take(3 * 8 + 20 + 32 + 32)?;
    let txs = count(&mut reader, "transactions", MAX_TXS)?;
    let tx_ids = (0..txs).map(|_| reader.array().map(TxId)).collect::<Result<_, _>>()?;
    reader.finish()?;
    let meta = BlockMeta { height, hash, parent_hash, timestamp };
    match told {
        Some(told) if *told != meta => {
            Err(wrong(format!("it names itself {}, its source {}", meta.hash, told.hash)))
        }
        _ => Ok((meta, tx_ids)),
    }
}

/// The transaction index names the same transactions in the same places.
fn check_places(height: Height, tx_ids: &[TxId], payload: &[u8]) -> Result<(), CoreError> {
    let mut entries = tx_index(payload);
    for (index, id) in (0u32..).zip(tx_ids) {
        let entry = entries.next().transpose()?;
        let entry = entry.map(|entry| (entry.tx_id, entry.height, entry.index));
        if entry != Some((*id, height, index)) {
            return Err(wrong(format!("its tx_index does not name transaction {index}")));
        }
    }
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(wrong("its tx_index names more transactions than it has".into())),
    }
}

fn receipt(bytes: &[u8], place: (TxId, Height, u32)) -> Result<KasaneTx, CoreError> {
    let (bytes, is_v2) =
        bytes.strip_prefix(&RECEIPT_V2).map_or((bytes, false), |rest| (rest, true));
    let mut reader = Reader::new("kasane receipt", bytes);
    let said = (TxId(reader.array()?), reader.u64()?, reader.u32()?);
    if said != place {
        let (id, height, index) = said;
        return Err(reader.error(format!("it is of transaction {id}, {index} of block {height}")));
    }
    let (id, ..) = place;
    let status = reader.flag()?;
    let gas_used = reader.u64()?;
    // The price of gas; the fees for data, for the operator, and in all.
    reader.take(8 + if is_v2 { 3 * 16 } else { 0 })?;
    // What it returned, by its hash and itself.
    reader.take(32)?;
    let returned = count(&mut reader, "bytes returned", MAX_RETURN)?;
    reader.take(returned as usize)?;
    let creates = reader.u8()? != 0;
    let contract = Address::new(reader.array()?);
    let logs = count(&mut reader, "logs", MAX_LOGS)?;
    let logs = (0..logs).map(|_| log(&mut reader)).collect::<Result<_, _>>()?;
    reader.finish()?;
    Ok(KasaneTx { id, status, gas_used, contract: creates.then_some(contract), logs })
}

fn log(reader: &mut Reader<'_>) -> Result<Log, CoreError> {
    let address = Address::new(reader.array()?);
    let topics = count(reader, "topics", MAX_TOPICS)?;
    let topics = (0..topics).map(|_| reader.array().map(B256::new)).collect::<Result<_, _>>()?;
    let len = count(reader, "bytes of a log", MAX_LOG_DATA)?;
    let data = Bytes::copy_from_slice(reader.take(len as usize)?);
    Ok(Log { address, data: LogData::new_unchecked(topics, data) })
}
