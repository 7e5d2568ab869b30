//! What a follower asks a source beside whole blocks: its chain, its newest and its final block,
//! hashes by height.

use bytes::Bytes;
use secateur_core::{BlockHash, BlockMeta, Height};
use serde_json::{Value, json};

use super::FollowError;
use super::convert::{check_header, stated_hash};
use super::envelope::{Answer, Call};
use super::error::Misfit;
use super::source::Source;

/// How a source's newest blocks stand.
#[derive(Debug, Clone)]
pub(super) struct Heads {
    pub(super) chain_id: u64,
    pub(super) newest: BlockMeta,
    pub(super) last_final: Final,
}

/// The newest block that is final.
#[derive(Debug, Clone)]
pub(super) enum Final {
    /// The source says which.
    Block(BlockMeta),
    /// Enough blocks stand on it.
    Deep(Height),
    /// None yet.
    None,
    /// The source cannot say.
    Unknown(String),
}

impl Final {
    /// Its height, if there is one.
    pub(super) fn height(&self) -> Option<Height> {
        match self {
            Self::Block(meta) => Some(meta.height),
            Self::Deep(height) => Some(*height),
            Self::None | Self::Unknown(_) => None,
        }
    }

    /// Its hash, if the source says which block it is.
    pub(super) fn hash(&self) -> Option<BlockHash> {
        match self {
            Self::Block(meta) => Some(meta.hash),
            Self::Deep(_) | Self::None | Self::Unknown(_) => None,
        }
    }
}

/// Asks for chain, head and finality in one request.
pub(super) async fn heads(
    source: &Source,
    confirmations: Option<u64>,
) -> Result<Heads, FollowError> {
    let mut calls = vec![Call::new("eth_chainId", json!([])), header_call(&json!("latest"))];
    if confirmations.is_none() {
        calls.push(header_call(&json!("finalized")));
    }
    let mut answers = source.ask(&calls).await?.into_iter();
    let chain_id = number(source, "eth_chainId", answers.next())?;
    let newest = result(source, "latest", answers.next())?
        .ok_or_else(|| FollowError::trouble(format!("{} has no newest block", source.name())))?;
    let newest = header(None, &newest)?;
    let last_final = match (confirmations, answers.next()) {
        (Some(depth), _) => newest.height.checked_sub(depth).map_or(Final::None, Final::Deep),
        (None, Some(Ok(Some(raw)))) => final_of(&newest, header(None, &raw)?),
        (None, Some(Ok(None)) | None) => Final::None,
        (None, Some(Err(refusal))) => Final::Unknown(refusal.to_string()),
    };
    Ok(Heads { chain_id, newest, last_final })
}

/// What a source calls final, unless it cannot be: above its newest block, or another one of that
/// height. Two machines behind one address may answer so, and what is final stays final.
fn final_of(newest: &BlockMeta, last_final: BlockMeta) -> Final {
    if last_final.height < newest.height || last_final.hash == newest.hash {
        return Final::Block(last_final);
    }
    let (height, newest) = (last_final.height, newest.height);
    tracing::debug!(height, newest, "a final block that is not below the newest one is no news");
    Final::None
}

/// Asks which chain it is.
pub(super) async fn chain_id(source: &Source) -> Result<u64, FollowError> {
    let answer = source.ask_one(Call::new("eth_chainId", json!([]))).await?;
    number(source, "eth_chainId", Some(answer))
}

/// Asks for the headers of some heights; one that the source does not have is `None`.
pub(super) async fn headers(
    source: &Source,
    heights: &[Height],
) -> Result<Vec<Option<BlockMeta>>, FollowError> {
    let calls: Vec<Call> = heights.iter().map(|height| header_call(&hex(*height))).collect();
    let answers = source.ask(&calls).await?;
    let mut found = Vec::with_capacity(heights.len());
    for (height, answer) in heights.iter().zip(answers) {
        let raw = result(source, "eth_getBlockByNumber", Some(answer))?;
        found.push(raw.map(|raw| header(Some(*height), &raw)).transpose()?);
    }
    Ok(found)
}

/// Asks for the hashes of some heights. What the source does not have, does not give or gives wrong is
/// `None`: a node that prunes blocks may refuse old ones.
pub(super) async fn probe(
    source: &Source,
    heights: &[Height],
) -> Result<Vec<Option<BlockHash>>, FollowError> {
    let calls: Vec<Call> = heights.iter().map(|height| header_call(&hex(*height))).collect();
    let answers = source.ask(&calls).await?;
    let hash = |(height, answer): (&Height, Answer)| {
        let raw = answer.ok().flatten()?;
        check_header(Some(*height), &raw).ok().map(|meta| meta.hash)
    };
    Ok(heights.iter().zip(answers).map(hash).collect())
}

fn header_call(which: &Value) -> Call {
    Call::new("eth_getBlockByNumber", json!([which, false]))
}

/// A height as a parameter.
pub(super) fn hex(height: Height) -> Value {
    Value::String(format!("{height:#x}"))
}

fn header(asked: Option<Height>, raw: &Bytes) -> Result<BlockMeta, FollowError> {
    check_header(asked, raw).map_err(|reason| match asked {
        Some(height) => {
            let (hash, bytes) = (stated_hash(raw), raw.len() as u64);
            FollowError::Header(Box::new(Misfit { height, hash, bytes, reason }))
        }
        None => FollowError::trouble(format!("the source's newest header was refused: {reason}")),
    })
}

/// The result of an answer; a refusal is trouble with the source.
fn result(
    source: &Source,
    what: &str,
    answer: Option<Answer>,
) -> Result<Option<Bytes>, FollowError> {
    match answer {
        Some(Ok(result)) => Ok(result),
        Some(Err(refusal)) => {
            let name = source.name();
            Err(FollowError::trouble(format!("the source {name} refuses {what}: {refusal}")))
        }
        None => Err(FollowError::trouble(format!("{} did not answer {what}", source.name()))),
    }
}

fn number(source: &Source, what: &str, answer: Option<Answer>) -> Result<u64, FollowError> {
    let raw = result(source, what, answer)?;
    let text = raw.and_then(|raw| serde_json::from_slice::<String>(&raw).ok());
    let digits = text.as_deref().and_then(|text| text.strip_prefix("0x"));
    digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or_else(|| {
        FollowError::trouble(format!("the source {} answers {what} with no number", source.name()))
    })
}
