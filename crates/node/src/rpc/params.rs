//! Parameters: hexadecimal quantities, hashes, block tags and log filters, as geth reads them.
//! Nothing here recurses or gathers more than a named number of items, whatever was sent.

use std::collections::HashSet;
use std::hash::Hash;

use alloy_primitives::{Address, B256, hex};
use secateur_core::Height;
use secateur_sidecar::VersionedHash;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::errors::{RpcError, TOO_LARGE};

/// Addresses of one filter, and alternatives of one topic, at most.
const MAX_ALTERNATIVES: usize = 1_000;
/// Topics of a log.
const MAX_TOPICS: usize = 4;
/// Versioned hashes of one `engine_getBlobsV1`.
const MAX_HASHES: usize = 128;
/// No method takes more parameters.
const MAX_PARAMS: usize = 4;

/// A named block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    Earliest,
    Latest,
    Safe,
    Finalized,
    Pending,
}

/// Which block is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    Tag(Tag),
    Number(Height),
    Hash(B256),
}

/// Which logs are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) blocks: FilterBlocks,
    /// Any of these; empty means every address.
    pub(super) addresses: HashSet<Address>,
    /// By position, any of these; empty means every topic, but there must be one.
    pub(super) topics: Vec<HashSet<B256>>,
}

/// The blocks of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilterBlocks {
    Hash(B256),
    Range { from: At, to: At },
}

/// A number as Ethereum writes it.
pub(super) fn quantity(number: u64) -> String {
    format!("{number:#x}")
}

/// Takes at most so many items of an array; None if there are more. All of it must be JSON.
pub(super) fn few(text: &str, most: usize) -> Result<Option<Vec<&RawValue>>, serde_json::Error> {
    let (items, more) = first(text, most)?;
    Ok((!more).then_some(items))
}

/// The first items of an array, at most so many, and whether there are more. All of it must be
/// JSON.
pub(super) fn first(text: &str, most: usize) -> Result<(Vec<&RawValue>, bool), serde_json::Error> {
    let mut from = serde_json::Deserializer::from_str(text);
    let items = Few { most }.deserialize(&mut from)?;
    from.end()?;
    Ok(items)
}

struct Few {
    most: usize,
}

impl<'de> DeserializeSeed<'de> for Few {
    type Value = (Vec<&'de RawValue>, bool);

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Few {
    type Value = (Vec<&'de RawValue>, bool);

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<Self::Value, S::Error> {
        let mut taken = Vec::new();
        while taken.len() < self.most {
            let Some(item) = items.next_element()? else { return Ok((taken, false)) };
            taken.push(item);
        }
        let mut more = false;
        while items.next_element::<IgnoredAny>()?.is_some() {
            more = true;
        }
        Ok((taken, more))
    }
}

/// The parameters of one call, by position.
pub(super) struct Params<'a>(Vec<&'a RawValue>);

impl<'a> Params<'a> {
    /// Reads them; a method takes at most `most`.
    pub(super) fn read(raw: Option<&'a RawValue>, most: usize) -> Result<Self, RpcError> {
        let most = most.min(MAX_PARAMS);
        let too_many =
            || RpcError::invalid_params(format!("too many parameters: at most {most} are taken"));
        let items = match raw.map(RawValue::get) {
            None | Some("null") => Vec::new(),
            Some(text) if text.starts_with('[') => {
                few(text, most).map_err(|error| unreadable(&error))?.ok_or_else(too_many)?
            }
            Some(_) => {
                return Err(RpcError::invalid_params("parameters are an array, by position"));
            }
        };
        Ok(Self(items))
    }

    fn given(&self, place: usize) -> Option<&'a str> {
        self.0.get(place).map(|raw| raw.get()).filter(|text| *text != "null")
    }

    fn must(&self, place: usize) -> Result<&'a str, RpcError> {
        self.given(place)
            .ok_or_else(|| RpcError::invalid_params(format!("parameter {place} is missing")))
    }

    /// A block by its number or tag.
    pub(super) fn number(&self, place: usize) -> Result<At, RpcError> {
        parse_number(self.must(place)?).map_err(named(place))
    }

    /// A block by its number, tag or hash, or by an object that names one of them.
    pub(super) fn number_or_hash(&self, place: usize) -> Result<At, RpcError> {
        parse_number_or_hash(self.must(place)?).map_err(named(place))
    }

    /// A hash.
    pub(super) fn hash(&self, place: usize) -> Result<B256, RpcError> {
        let parse = |raw| parse_bytes(&parse_text(raw)?).map(B256::new);
        parse(self.must(place)?).map_err(named(place))
    }

    /// A quantity.
    pub(super) fn index(&self, place: usize) -> Result<u64, RpcError> {
        let parse = |raw| parse_quantity(&parse_text(raw)?);
        parse(self.must(place)?).map_err(named(place))
    }

    /// True or false; false where nothing is said.
    pub(super) fn flag(&self, place: usize) -> Result<bool, RpcError> {
        match self.given(place) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(named(place)("true or false is wanted".into())),
        }
    }

    /// Versioned hashes of blobs; only so many are taken at once.
    pub(super) fn hashes(&self, place: usize) -> Result<Vec<VersionedHash>, RpcError> {
        let items = few(self.must(place)?, MAX_HASHES)
            .map_err(|_| named(place)("an array is wanted".into()))?
            .ok_or_else(|| {
                let reason = format!("Too large request: at most {MAX_HASHES} hashes are taken");
                RpcError::new(TOO_LARGE, reason)
            })?;
        let parse = |raw: &RawValue| parse_bytes(&parse_text(raw.get())?).map(VersionedHash);
        items.into_iter().map(|raw| parse(raw).map_err(named(place))).collect()
    }

    /// A log filter.
    pub(super) fn filter(&self, place: usize) -> Result<Filter, RpcError> {
        parse_filter(self.must(place)?).map_err(named(place))
    }
}

fn unreadable(error: &serde_json::Error) -> RpcError {
    RpcError::invalid_params(format!("the parameters cannot be read: {error}"))
}

fn named(place: usize) -> impl Fn(String) -> RpcError {
    move |reason| RpcError::invalid_params(format!("parameter {place}: {reason}"))
}

fn parse_text(raw: &str) -> Result<String, String> {
    serde_json::from_str(raw).map_err(|_| "a string is wanted".into())
}

/// A quantity: no leading zeros, at most 64 bits.
pub(super) fn parse_quantity(text: &str) -> Result<u64, String> {
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .ok_or("a hexadecimal number begins with 0x")?;
    match digits.as_bytes() {
        [] => Err("a hexadecimal number has at least one digit; zero is 0x0".into()),
        [b'0', _, ..] => Err("a hexadecimal number has no leading zeros".into()),
        // The standard parser would take a sign.
        found if !found.iter().all(u8::is_ascii_hexdigit) => Err("not a hexadecimal number".into()),
        _ => u64::from_str_radix(digits, 16)
            .map_err(|_| "a hexadecimal number of more than 64 bits".into()),
    }
}

/// Exactly so many bytes in hexadecimal digits.
fn parse_bytes<const N: usize>(text: &str) -> Result<[u8; N], String> {
    let wrong = || format!("0x and {} hexadecimal digits are wanted", 2 * N);
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).ok_or_else(wrong)?;
    let mut bytes = [0; N];
    // The decoder would skip a second prefix.
    if digits.len() != 2 * N || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    hex::decode_to_slice(digits, &mut bytes).map_err(|_| wrong())?;
    Ok(bytes)
}

fn parse_number(raw: &str) -> Result<At, String> {
    let tag = match parse_text(raw)?.as_str() {
        "earliest" => Tag::Earliest,
        "latest" => Tag::Latest,
        "safe" => Tag::Safe,
        "finalized" => Tag::Finalized,
        "pending" => Tag::Pending,
        text => return parse_quantity(text).map(At::Number),
    };
    Ok(At::Tag(tag))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockFields<'a> {
    #[serde(borrow)]
    block_number: Option<&'a RawValue>,
    #[serde(borrow)]
    block_hash: Option<&'a RawValue>,
}

fn parse_number_or_hash(raw: &str) -> Result<At, String> {
    // A quantity is never as long as a hash.
    const HASH_LEN: usize = 66;
    if raw.starts_with('{') {
        let fields: BlockFields<'_> = serde_json::from_str(raw).map_err(|e| e.to_string())?;
        return match (fields.block_number, fields.block_hash) {
            (Some(number), None) => parse_number(number.get()),
            (None, Some(hash)) => parse_hash(hash),
            _ => Err("either blockNumber or blockHash is wanted".into()),
        };
    }
    let text = parse_text(raw)?;
    if text.len() == HASH_LEN {
        return parse_bytes(&text).map(|hash| At::Hash(B256::new(hash)));
    }
    parse_number(raw)
}

fn parse_hash(raw: &RawValue) -> Result<At, String> {
    parse_bytes(&parse_text(raw.get())?).map(|hash| At::Hash(B256::new(hash)))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FilterFields<'a> {
    #[serde(borrow)]
    from_block: Option<&'a RawValue>,
    #[serde(borrow)]
    to_block: Option<&'a RawValue>,
    #[serde(borrow)]
    block_hash: Option<&'a RawValue>,
    #[serde(borrow)]
    address: Option<&'a RawValue>,
    #[serde(borrow)]
    topics: Option<&'a RawValue>,
}

fn parse_filter(raw: &str) -> Result<Filter, String> {
    if !raw.starts_with('{') {
        return Err("a filter object is wanted".into());
    }
    let fields: FilterFields<'_> = serde_json::from_str(raw).map_err(|e| e.to_string())?;
    let end = |name: &str, raw: Option<&RawValue>| match raw {
        None => Ok(At::Tag(Tag::Latest)),
        Some(raw) => parse_number(raw.get()).map_err(|reason| format!("{name}: {reason}")),
    };
    let blocks = match (fields.block_hash, fields.from_block, fields.to_block) {
        (Some(raw), None, None) => match parse_hash(raw) {
            Ok(At::Hash(hash)) => FilterBlocks::Hash(hash),
            Ok(_) => return Err("blockHash: a hash is wanted".into()),
            Err(reason) => return Err(format!("blockHash: {reason}")),
        },
        (Some(_), ..) => return Err("blockHash goes without fromBlock and toBlock".into()),
        (None, from, to) => {
            FilterBlocks::Range { from: end("fromBlock", from)?, to: end("toBlock", to)? }
        }
    };
    let addresses = match fields.address {
        None => HashSet::new(),
        Some(raw) => alternatives(raw.get(), |text| parse_bytes(text).map(Address::new))
            .map_err(|reason| format!("address: {reason}"))?
            .unwrap_or_default(),
    };
    let topics = match fields.topics {
        None => Vec::new(),
        Some(raw) => parse_topics(raw.get()).map_err(|reason| format!("topics: {reason}"))?,
    };
    Ok(Filter { blocks, addresses, topics })
}

fn parse_topics(raw: &str) -> Result<Vec<HashSet<B256>>, String> {
    let positions = few(raw, MAX_TOPICS)
        .map_err(|_| "an array is wanted")?
        .ok_or_else(|| format!("a log has at most {MAX_TOPICS} topics"))?;
    let parse = |text: &str| parse_bytes(text).map(B256::new);
    positions
        .into_iter()
        .map(|raw| match raw.get() {
            "null" => Ok(HashSet::new()),
            // One that may be anything makes the others idle.
            text => alternatives(text, parse).map(Option::unwrap_or_default),
        })
        .collect()
}

/// One item or several; None if one of several is null.
fn alternatives<T: Eq + Hash>(
    raw: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<HashSet<T>>, String> {
    if !raw.starts_with('[') {
        return Ok(Some(HashSet::from([parse(&parse_text(raw)?)?])));
    }
    let items = few(raw, MAX_ALTERNATIVES)
        .map_err(|e| e.to_string())?
        .ok_or_else(|| format!("at most {MAX_ALTERNATIVES} are taken"))?;
    let mut found = HashSet::new();
    let mut any = false;
    for item in items {
        if item.get() == "null" {
            any = true;
        } else {
            found.insert(parse(&parse_text(item.get())?)?);
        }
    }
    Ok((!any).then_some(found))
}
