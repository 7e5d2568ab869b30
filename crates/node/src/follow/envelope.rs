//! JSON-RPC's own words: what a call looks like, and how an answer is told from a refusal.

use bytes::Bytes;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// So much of a source's own message is shown.
const MAX_SHOWN: usize = 200;

/// One call.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) method: &'static str,
    pub(super) params: Value,
}

impl Call {
    pub(super) fn new(method: &'static str, params: Value) -> Self {
        Self { method, params }
    }

    fn with_id(&self, id: usize) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "method": self.method, "params": self.params })
    }
}

/// What a source says to one call: its result, without one `null`, or a refusal.
pub(super) type Answer = Result<Option<Bytes>, Refusal>;

/// A call that a source refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", .code.map(|code| format!(" (code {code})")).unwrap_or_default())]
pub(super) struct Refusal {
    /// None where the source said nothing, and its answer was refused here.
    pub(super) code: Option<i64>,
    pub(super) message: String,
}

/// What kind of no it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Asked too often: the same call works later.
    TooOften,
    /// It took the source too long: fewer calls at once, or the same call later, may work.
    TooSlow,
    /// Asked for too much at once.
    TooMuch,
    /// The method is not there.
    NoMethod,
    /// Anything else.
    Other,
}

impl Refusal {
    /// An answer that is longer than is read here.
    pub(super) fn too_long(limit: usize) -> Self {
        let message = format!("one answer is longer than {} MiB", limit >> 20);
        Self { code: None, message }
    }

    /// Sources agree on few codes, so that the words count as well.
    pub(super) fn kind(&self) -> Kind {
        let text = self.message.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
        // Before the codes: a Secateur has one code for every limit.
        if says(&["answer is longer than"]) {
            return Kind::TooMuch;
        }
        if matches!(self.code, Some(429 | -32_005 | -32_029)) {
            return Kind::TooOften;
        }
        // A time limit of geth and of a Secateur; elsewhere what is asked for is not there now.
        if self.code == Some(-32_002) {
            return Kind::TooSlow;
        }
        if says(&["rate limit", "too many requests", "capacity exceeded", "request limit"]) {
            return Kind::TooOften;
        }
        if says(&["response too large", "response size", "batch too large", "batch limit"]) {
            return Kind::TooMuch;
        }
        let unknown = ["method not found", "does not exist", "not supported", "unknown method"];
        if self.code == Some(-32_601)
            || says(&unknown)
            || says(&["is not available", "unsupported"])
        {
            return Kind::NoMethod;
        }
        Kind::Other
    }
}

impl Refusal {
    /// Whether it is about a batch as a whole, though it came under the id of one call: geth refuses
    /// batches that are too large in this way.
    fn is_of_batch(&self) -> bool {
        self.code == Some(-32_600) || self.kind() == Kind::TooMuch
    }
}

/// The body of a request for some calls: a batch, or a single call where only one is given.
pub(super) fn request(calls: &[&Call], batched: bool) -> Vec<u8> {
    let value = match calls {
        [call] if !batched => call.with_id(0),
        calls => calls.iter().enumerate().map(|(id, call)| call.with_id(id)).collect(),
    };
    value.to_string().into_bytes()
}

/// A body that is no answer to what was asked.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Nonsense {
    /// One refusal for a whole batch.
    #[error("it refuses the batch: {0}")]
    Batch(Refusal),
    #[error("its answer is not JSON-RPC: {0}")]
    NotRpc(String),
    #[error("it answered {found} of {asked} calls")]
    Missing { found: usize, asked: usize },
    #[error("it answered a call that was not asked, or one twice")]
    Stray,
}

#[derive(Deserialize)]
struct Reply<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct RpcError {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
}

impl Reply<'_> {
    fn answer(self, body: &Bytes) -> Answer {
        match (self.error, self.result) {
            (Some(error), _) => Err(error.into()),
            (None, Some(result)) => Ok(Some(body.slice_ref(result.get().as_bytes()))),
            (None, None) => Ok(None),
        }
    }
}

impl From<RpcError> for Refusal {
    fn from(error: RpcError) -> Self {
        Self { code: Some(error.code), message: shown(&error.message) }
    }
}

/// A source's words, short and in one line.
pub(super) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_SHOWN).collect()
}

/// The list of a body, which has no more answers than there were calls: a list of very many tiny
/// ones would take many times its own length in memory.
fn replies(body: &Bytes, asked: usize) -> Result<Vec<Reply<'_>>, serde_json::Error> {
    let mut from = serde_json::Deserializer::from_slice(body);
    let replies = from.deserialize_seq(AtMost(asked))?;
    from.end()?;
    Ok(replies)
}

struct AtMost(usize);

impl<'de> Visitor<'de> for AtMost {
    type Value = Vec<Reply<'de>>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of answers")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<Self::Value, S::Error> {
        let mut replies = Vec::new();
        while let Some(reply) = items.next_element()? {
            if replies.len() >= self.0 {
                return Err(S::Error::custom("there are more answers than calls"));
            }
            replies.push(reply);
        }
        Ok(replies)
    }
}

/// The answers of a body, in the order of the calls.
pub(super) fn answers(body: &Bytes, asked: usize, batched: bool) -> Result<Vec<Answer>, Nonsense> {
    let not_rpc = |error: serde_json::Error| Nonsense::NotRpc(shown(&error.to_string()));
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'{') {
        let reply: Reply<'_> = serde_json::from_slice(body).map_err(not_rpc)?;
        return match reply.answer(body) {
            Err(refusal) if batched => Err(Nonsense::Batch(refusal)),
            _ if batched => Err(Nonsense::Missing { found: 1, asked }),
            answer => Ok(vec![answer]),
        };
    }
    let replies = replies(body, asked).map_err(not_rpc)?;
    let mut found: Vec<Option<Answer>> = vec![None; asked];
    let mut count = 0;
    for reply in replies {
        let id = reply.id.and_then(|id| id.get().parse::<usize>().ok());
        let Some(id) = id else {
            // A batch that is refused as a whole may also come as a list of one.
            return Err(reply.answer(body).err().map_or(Nonsense::Stray, Nonsense::Batch));
        };
        match found.get_mut(id) {
            Some(place) if place.is_none() => *place = Some(reply.answer(body)),
            _ => return Err(Nonsense::Stray),
        }
        count += 1;
    }
    if count == 1
        && asked > 1
        && let Some(Err(refusal)) = found.iter().flatten().next()
        && refusal.is_of_batch()
    {
        return Err(Nonsense::Batch(refusal.clone()));
    }
    let answers: Option<Vec<Answer>> = found.into_iter().collect();
    answers.ok_or(Nonsense::Missing { found: count, asked })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &'static str, asked: usize) -> Result<Vec<Answer>, Nonsense> {
        answers(&Bytes::from_static(body.as_bytes()), asked, true)
    }

    #[test]
    fn answers_of_a_batch_come_in_the_order_of_its_calls() {
        let body = r#" [{"id":1,"result":null},{"jsonrpc":"2.0","id":0,"result":{"a": [1]}}]"#;
        let found = read(body, 2).unwrap();
        assert_eq!(found, [Ok(Some(Bytes::from_static(br#"{"a": [1]}"#))), Ok(None)]);
        let refused = r#"[{"id":0,"error":{"code":-32601,"message":"no\nway"}}]"#;
        let refusal = read(refused, 1).unwrap().remove(0).unwrap_err();
        assert_eq!((refusal.message.as_str(), refusal.kind()), ("noway", Kind::NoMethod));
    }

    #[test]
    fn answers_that_are_missing_doubled_or_strange_are_noticed() {
        let missing = Nonsense::Missing { found: 1, asked: 2 };
        assert_eq!(read(r#"[{"id":1,"result":1}]"#, 2), Err(missing));
        assert_eq!(read(r#"[{"id":0,"result":1},{"id":0,"result":1}]"#, 2), Err(Nonsense::Stray));
        assert_eq!(read(r#"[{"id":2,"result":1}]"#, 2), Err(Nonsense::Stray));
        assert_eq!(read(r#"[{"result":1}]"#, 1), Err(Nonsense::Stray));
        for body in [r#"[{"id":0,"result":[1,2"#, "", "<html>", "[]]", r#"[{"id":0}"#, "7"] {
            assert!(matches!(read(body, 1), Err(Nonsense::NotRpc(_))), "{body}");
        }
        let whole = r#"{"id":null,"error":{"code":-32600,"message":"no batches"}}"#;
        assert!(matches!(read(whole, 2), Err(Nonsense::Batch(_))));
        let many: Bytes = format!("[{}{{}}]", "{},".repeat(9)).into();
        assert!(
            matches!(answers(&many, 9, true), Err(Nonsense::NotRpc(why)) if why.contains("more answers"))
        );
        assert!(matches!(
            read(r#"[{"id":null,"error":{"code":1,"message":"x"}}]"#, 2),
            Err(Nonsense::Batch(_))
        ));
    }

    #[test]
    fn a_batch_that_is_refused_under_the_id_of_its_first_call_is_refused_as_a_whole() {
        let geth = r#"[{"id":0,"error":{"code":-32600,"message":"batch too large"}}]"#;
        assert!(matches!(read(geth, 3), Err(Nonsense::Batch(_))));
        let one = read(geth, 1).unwrap().remove(0).unwrap_err();
        assert_eq!(one.message, "batch too large", "a single call has its own answer");
        let other = r#"[{"id":0,"error":{"code":-32601,"message":"no such method"}}]"#;
        assert_eq!(read(other, 3), Err(Nonsense::Missing { found: 1, asked: 3 }));
    }

    #[test]
    fn refusals_are_told_apart_by_code_or_words() {
        let kind =
            |code, message: &str| Refusal { code: Some(code), message: message.into() }.kind();
        assert_eq!(kind(-32_005, "limit"), Kind::TooOften);
        assert_eq!(kind(-32_000, "Rate limit reached"), Kind::TooOften);
        assert_eq!(kind(-32_003, "response too large"), Kind::TooMuch);
        assert_eq!(kind(-32_000, "the method eth_x does not exist"), Kind::NoMethod);
        assert_eq!(kind(-32_000, "finalized block not found"), Kind::Other);
    }

    /// A Secateur's code for an answer that is too long is others' code for too many requests, and its
    /// time limit was a refused block.
    #[test]
    fn a_limit_of_length_is_asked_for_less_and_a_limit_of_time_is_asked_again() {
        let kind = |code, message: &str| Refusal { code, message: message.into() }.kind();
        let long = "the answer is longer than 167772160 bytes; ask for each receipt";
        assert_eq!(kind(Some(-32_005), long), Kind::TooMuch);
        assert_eq!(Refusal::too_long(256 << 20).kind(), Kind::TooMuch);
        assert_eq!(Refusal::too_long(256 << 20).to_string(), "one answer is longer than 256 MiB");
        assert_eq!(kind(Some(-32_002), "the request took longer"), Kind::TooSlow);
    }
}
