//! What is said to the agent and what it answers: the form, tags, replies and their ids.
//!
//! Everything here is text or bytes of bounded length; no request is made.

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::json;

use super::super::BlobTags;
use crate::BLOB_LEN;

/// An item's id is no longer than this; those of today have 43 characters.
const MAX_ITEM_ID: usize = 128;
/// A cursor is no longer than this.
const MAX_CURSOR: usize = 1_024;
/// So much of a complaint is passed on.
const MAX_COMPLAINT: usize = 200;
const OCTETS: &str = "application/octet-stream";

/// A multipart form with a blob in it.
pub(super) struct Form {
    pub(super) content_type: String,
    pub(super) body: Bytes,
}

impl Form {
    pub(super) fn new(tags: &BlobTags, name: &str, blob: &Bytes) -> Self {
        let mark = tags.blob_keccak.0.first_chunk::<20>().map(alloy_primitives::hex::encode);
        // A blob cannot hold its own hash, so this never occurs in it.
        let boundary = format!("secateur-{}", mark.unwrap_or_default());
        let mut body = BytesMut::with_capacity(BLOB_LEN + 4_096);
        let mut field = |head: &str, bytes: &[u8]| {
            let opening = format!("--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n");
            body.put_slice(opening.as_bytes());
            body.put_slice(bytes);
            body.put_slice(b"\r\n");
        };
        let file = format!("name=\"file\"; filename=\"{name}\"\r\nContent-Type: {OCTETS}");
        field(&file, blob);
        field("name=\"content_type\"", OCTETS.as_bytes());
        field("name=\"tags\"", json!(pairs(tags)).to_string().as_bytes());
        body.put_slice(format!("--{boundary}--\r\n").as_bytes());
        let content_type = format!("multipart/form-data; boundary={boundary}");
        Self { content_type, body: body.freeze() }
    }
}

/// A blob's tags as the agent takes them.
fn pairs(tags: &BlobTags) -> Vec<serde_json::Value> {
    let pair = |key: &str, value: String| json!({ "key": key, "value": value });
    vec![
        pair("chain_id", tags.chain_id.to_string()),
        pair("height", tags.height.to_string()),
        pair("round", tags.round.to_string()),
        pair("blob_index", tags.blob_index.to_string()),
        pair("kzg_commitment", tags.kzg_commitment.to_string()),
        pair("versioned_hash", tags.versioned_hash.to_string()),
        pair("proposer", tags.proposer.to_string()),
        pair("blob_keccak", tags.blob_keccak.to_string()),
    ]
}

/// A question for items with a blob's tags.
pub(super) fn query(tags: &BlobTags, first: usize, after: Option<&str>) -> String {
    json!({ "filters": pairs(tags), "first": first, "after": after }).to_string()
}

#[derive(Deserialize)]
struct Uploaded {
    success: Option<bool>,
    dataitem_id: Option<String>,
    error: Option<serde_json::Value>,
}

/// The item's id from the answer to an upload, or what is wrong with that answer.
pub(super) fn uploaded(reply: &[u8]) -> Result<String, String> {
    let reply: Uploaded = read(reply)?;
    if reply.success != Some(true) {
        let said = reply.error.map_or_else(|| "without a reason".to_owned(), |e| shorten(&e));
        return Err(format!("without success ({said})"));
    }
    let id = reply.dataitem_id.ok_or("without a dataitem_id")?;
    check_item_id(&id).map_err(|reason| format!("with a dataitem_id that is none: {reason}"))?;
    Ok(id)
}

/// A page of items.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) ids: Vec<String>,
    /// Where the next one begins, if there is one.
    pub(super) next: Option<String>,
}

#[derive(Deserialize)]
struct Found {
    success: Option<bool>,
    #[serde(default)]
    items: Vec<Item>,
    page_info: Option<PageInfo>,
}

#[derive(Deserialize)]
struct Item {
    dataitem_id: String,
}

#[derive(Deserialize)]
struct PageInfo {
    #[serde(default)]
    has_next_page: bool,
    next_cursor: Option<String>,
}

/// A page from the answer to a question. Ids that are none are passed over.
pub(super) fn page(reply: &[u8], most: usize) -> Result<Page, String> {
    let found: Found = read(reply)?;
    if found.success == Some(false) {
        return Err("without success".to_owned());
    }
    if found.items.len() > most {
        return Err("more items than it was asked for".to_owned());
    }
    let ids = found.items.into_iter().map(|item| item.dataitem_id);
    let next = found.page_info.filter(|info| info.has_next_page).and_then(|info| info.next_cursor);
    if next.as_ref().is_some_and(|cursor| cursor.len() > MAX_CURSOR) {
        return Err("with a cursor that is too long".to_owned());
    }
    Ok(Page { ids: ids.filter(|id| check_item_id(id).is_ok()).collect(), next })
}

fn read<'a, T: Deserialize<'a>>(reply: &'a [u8]) -> Result<T, String> {
    if reply.trim_ascii().is_empty() {
        return Err("nothing".to_owned());
    }
    serde_json::from_slice(reply).map_err(|_| "something that is not its JSON".to_owned())
}

/// How Ultramarine begins the locator of an item.
const SCHEME: &str = "load-s3://";

/// The item that a locator names: its id, or the same as Ultramarine writes it.
pub(super) fn item_id(locator: &str) -> Result<&str, String> {
    let id = locator.strip_prefix(SCHEME).unwrap_or(locator);
    check_item_id(id).map(|()| id)
}

/// Refuses an id that is not plain: it goes into an address.
pub(super) fn check_item_id(id: &str) -> Result<(), String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if id.is_empty() || id.len() > MAX_ITEM_ID || !id.bytes().all(plain) {
        return Err(format!("1 to {MAX_ITEM_ID} letters, digits, '-' and '_' are wanted"));
    }
    Ok(())
}

#[derive(Deserialize)]
struct Complaint {
    error: serde_json::Value,
}

/// What an answer with an error status complains of.
pub(super) fn complaint(body: &[u8]) -> String {
    match serde_json::from_slice::<Complaint>(body) {
        Ok(complaint) => shorten(&complaint.error),
        Err(_) if body.is_empty() => "nothing".to_owned(),
        Err(_) => "something that is not its JSON".to_owned(),
    }
}

/// A foreign text in our own messages: short, and on one line.
fn shorten(value: &serde_json::Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_COMPLAINT).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::tags;
    use super::*;

    #[test]
    fn a_form_holds_the_blob_its_type_and_its_tags() {
        let blob = Bytes::from(vec![b'-'; BLOB_LEN]);
        let form = Form::new(&tags(), "name.bin", &blob);
        let boundary = form.content_type.split_once("boundary=").unwrap().1;
        assert_eq!(boundary, format!("secateur-{}", "ab".repeat(20)));
        assert!(boundary.len() <= 70, "RFC 2046 allows no more");
        let text = String::from_utf8(form.body.to_vec()).unwrap();
        let fields: Vec<_> = text.split(&format!("--{boundary}")).collect();
        assert_eq!(fields.len(), 5);
        let (head, body) = fields[1].split_once("\r\n\r\n").unwrap();
        assert!(head.contains("name=\"file\"; filename=\"name.bin\""), "{head}");
        assert_eq!(body.strip_suffix("\r\n").unwrap().as_bytes(), &blob[..]);
        assert!(fields[2].ends_with("\"content_type\"\r\n\r\napplication/octet-stream\r\n"));
        let (_, json) = fields[3].split_once("\r\n\r\n").unwrap();
        let json: Vec<serde_json::Value> = serde_json::from_str(json.trim()).unwrap();
        let value = |key: &str| {
            json.iter().find(|tag| tag["key"] == key).unwrap()["value"].as_str().unwrap().to_owned()
        };
        assert_eq!((value("height"), value("round")), ("42".into(), "0".into()));
        assert_eq!((value("blob_index"), value("chain_id")), ("3".into(), "7".into()));
        assert_eq!(value("kzg_commitment"), format!("0x{}", "c0".repeat(48)));
        assert_eq!(value("proposer"), format!("0x{}", "09".repeat(20)));
        assert_eq!(fields[4], "--\r\n");
    }

    #[test]
    fn only_a_clear_success_with_a_plain_id_is_one() {
        let good = br#"{"success":true,"dataitem_id":"abc_-9","message":"x","custom_tags":[]}"#;
        assert_eq!(uploaded(good).unwrap(), "abc_-9");
        for bad in [
            "",
            "  \n",
            "<html></html>",
            "null",
            "[]",
            r#"{"dataitem_id":"abc"}"#,
            r#"{"success":false,"dataitem_id":"abc"}"#,
            r#"{"success":"true","dataitem_id":"abc"}"#,
            r#"{"success":true}"#,
            r#"{"success":true,"dataitem_id":null}"#,
            r#"{"success":true,"dataitem_id":""}"#,
            r#"{"success":true,"dataitem_id":"../../x"}"#,
            r#"{"success":true,"dataitem_id":"a?b"}"#,
        ] {
            assert!(uploaded(bad.as_bytes()).is_err(), "{bad}");
        }
        let long = format!(r#"{{"success":true,"dataitem_id":"{}"}}"#, "a".repeat(129));
        assert!(uploaded(long.as_bytes()).is_err());
        let said = uploaded(br#"{"success":false,"error":"no\nroom"}"#).unwrap_err();
        assert_eq!(said, "without success (no room)");
    }

    #[test]
    fn a_page_names_plain_items_and_where_the_next_begins() {
        let reply = br#"{"success":true,"count":2,"items":[{"dataitem_id":"a","content_type":"x"},
            {"dataitem_id":"../b"}],"page_info":{"has_next_page":true,"next_cursor":"c"}}"#;
        let wanted = Page { ids: vec!["a".into()], next: Some("c".into()) };
        assert_eq!(page(reply, 2).unwrap(), wanted);
        assert!(page(reply, 1).is_err());
        let last = br#"{"items":[],"page_info":{"has_next_page":false,"next_cursor":"c"}}"#;
        assert_eq!(page(last, 2).unwrap(), Page { ids: vec![], next: None });
        for bad in ["", "<html>", "[]", r#"{"success":false}"#, r#"{"items":[1]}"#] {
            assert!(page(bad.as_bytes(), 2).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_complaint_is_short_and_on_one_line() {
        assert_eq!(complaint(br#"{"error":"invalid\r\nkey"}"#), "invalid  key");
        assert_eq!(complaint(br#"{"error":{"code":7}}"#), r#"{"code":7}"#);
        let long = format!(r#"{{"error":"{}"}}"#, "x".repeat(5_000));
        assert_eq!(complaint(long.as_bytes()).len(), MAX_COMPLAINT);
        assert_eq!(complaint(b"<html>"), "something that is not its JSON");
        assert_eq!(complaint(b""), "nothing");
    }

    proptest::proptest! {
        #[test]
        fn any_answer_is_read_or_refused(
            reply in proptest::collection::vec(proptest::num::u8::ANY, 0..256),
            text in "[\\{\\}\\[\\]\":,a-z_ \\\\]{0,64}",
        ) {
            for reply in [&reply[..], text.as_bytes()] {
                if let Ok(id) = uploaded(reply) {
                    check_item_id(&id).unwrap();
                }
                if let Ok(page) = page(reply, 25) {
                    assert!(page.ids.iter().all(|id| check_item_id(id).is_ok()));
                }
                assert!(complaint(reply).chars().count() <= MAX_COMPLAINT);
            }
        }
    }
}
