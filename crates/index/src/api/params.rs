//! What a request may say: numbers, hashes, addresses and places, each read strictly.

use alloy_primitives::{Address, B256};
use secateur_core::Height;
use serde::Deserialize;

use super::answers::Refusal;
use crate::sink::{BlockKey, MAX_PAGE, Place, Role};

/// The page of a request that names none.
const PAGE: usize = 100;

/// Of blocks.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BlocksAsked {
    pub(super) before: Option<String>,
    pub(super) from_block: Option<Height>,
    pub(super) limit: Option<usize>,
}

/// `before` (or `from`) and `limit` of every list; a list reads those it knows.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paging {
    pub(super) before: Option<String>,
    pub(super) limit: Option<usize>,
}

/// The same from a height on.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Onwards {
    pub(super) from: Option<u64>,
    pub(super) limit: Option<usize>,
}

/// Of an address's history.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryAsked {
    pub(super) role: Option<String>,
    pub(super) from_block: Option<Height>,
    pub(super) to_block: Option<Height>,
    pub(super) before: Option<String>,
    pub(super) limit: Option<usize>,
}

/// Of logs.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogsAsked {
    pub(super) address: Option<String>,
    pub(super) topic0: Option<String>,
    pub(super) from_block: Option<Height>,
    pub(super) to_block: Option<Height>,
    pub(super) before: Option<String>,
    pub(super) limit: Option<usize>,
}

/// How many rows a page has.
pub(super) fn limit(asked: Option<usize>) -> Result<usize, Refusal> {
    match asked {
        None => Ok(PAGE),
        Some(0) => Err(Refusal::bad("limit is 0; a page has at least one row")),
        Some(limit) if limit > MAX_PAGE => {
            Err(Refusal::bad(format!("limit is {limit}; a page has at most {MAX_PAGE} rows")))
        }
        Some(limit) => Ok(limit),
    }
}

/// A block by its number or its hash.
pub(super) fn block_key(text: &str) -> Result<BlockKey, Refusal> {
    let bad = || Refusal::bad("a block is named by its number or by its hash");
    if text.starts_with("0x") || text.len() == 64 {
        return text.parse().map(BlockKey::Hash).map_err(|_| bad());
    }
    number(text).map(BlockKey::Number).ok_or_else(bad)
}

/// A decimal number; no sign, no blanks.
pub(super) fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// An address in hexadecimal digits; how its letters are written is not looked at.
pub(super) fn address(text: &str) -> Result<Address, Refusal> {
    fixed(text)
        .map(Address::new)
        .ok_or_else(|| Refusal::bad("an address is 0x and 40 hexadecimal digits"))
}

/// A topic.
pub(super) fn topic(text: &str) -> Result<B256, Refusal> {
    fixed(text)
        .map(B256::new)
        .ok_or_else(|| Refusal::bad("a topic is 0x and 64 hexadecimal digits"))
}

fn fixed<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.strip_prefix("0x")?;
    let mut bytes = [0u8; N];
    alloy_primitives::hex::decode_to_slice(digits, &mut bytes).ok()?;
    (digits.len() == 2 * N).then_some(bytes)
}

/// A place as `next` says it: `<block>-<index>`.
pub(super) fn place(text: Option<&str>) -> Result<Option<Place>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    let read = || {
        let (block, index) = text.split_once('-')?;
        let index = u32::try_from(number(index)?).ok()?;
        Some(Place { block_number: number(block)?, index })
    };
    read()
        .map(Some)
        .ok_or_else(|| Refusal::bad("before is not a place that `next` of a page named"))
}

/// A role.
pub(super) fn role(text: Option<&str>) -> Result<Role, Refusal> {
    match text {
        None | Some("any") => Ok(Role::Any),
        Some("from") => Ok(Role::From),
        Some("to") => Ok(Role::To),
        Some(_) => Err(Refusal::bad("role is any, from or to")),
    }
}
