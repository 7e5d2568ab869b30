use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::{MAX_LOCATOR_LEN, Reader, Writer};

/// Made by `docs/format/notice-vectors.py`, which shares nothing with the code under test.
const VECTORS: &str = include_str!("../../../../docs/format/notice-vectors.json");
const PAGE: &str = include_str!("../../../../docs/format/notice.md");

fn unhex(value: &Value) -> Vec<u8> {
    let digits = value.as_str().unwrap();
    (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

fn array<const N: usize>(value: &Value) -> [u8; N] {
    unhex(value).try_into().unwrap()
}

fn number<T: TryFrom<u64>>(value: &Value) -> T {
    T::try_from(value.as_u64().unwrap()).ok().unwrap()
}

fn string(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn round(value: &Value) -> i32 {
    i32::try_from(value.as_i64().unwrap()).unwrap()
}

/// The notice of a vector, from its content and signature alone.
fn of_vector(vector: &Value) -> Notice {
    let (content, signature) = (&vector["content"], array(&vector["signature"]));
    if vector["form"] == "v0" {
        let provider = string(&content["provider_id"]);
        let body = NoticeBodyV0 {
            height: number(&content["height"]),
            round: round(&content["round"]),
            blob_index: number(&content["blob_index"]),
            kzg_commitment: array(&content["kzg_commitment"]),
            blob_keccak: array(&content["blob_keccak"]),
            locator: Locator { provider, key: string(&content["locator"]) },
            archived_by: unhex(&content["archived_by"]),
            archived_at: number(&content["archived_at"]),
        };
        return Notice::V0(ArchiveNoticeV0 { body, signature });
    }
    let locators = content["locators"].as_array().unwrap();
    let body = NoticeBody {
        chain_id: number(&content["chain_id"]),
        height: number(&content["height"]),
        round: round(&content["round"]),
        blob_index: number(&content["blob_index"]),
        kzg_commitment: array(&content["kzg_commitment"]),
        blob_keccak: array(&content["blob_keccak"]),
        locators: locators
            .iter()
            .map(|one| Locator { provider: string(&one["provider"]), key: string(&one["key"]) })
            .collect(),
        archived_by: unhex(&content["archived_by"]),
        archived_at_height: number(&content["archived_at_height"]),
    };
    Notice::V1(ArchiveNotice { body, archived_at: number(&content["archived_at"]), signature })
}

fn vectors(which: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(VECTORS).unwrap();
    all[which].as_array().unwrap().clone()
}

#[test]
fn every_vector_is_what_we_write_and_read() {
    let vectors = vectors("accepted");
    assert_eq!(vectors.len(), 11);
    for vector in vectors {
        let notice = of_vector(&vector);
        let wire = unhex(&vector["wire"]);
        let name = &vector["name"];
        assert_eq!(notice.preimage(), unhex(&vector["preimage"]), "{name}");
        assert_eq!(notice.encode().unwrap(), wire, "{name}");
        assert_eq!(Notice::decode(&wire).unwrap(), notice, "{name}");
    }
}

#[test]
fn every_vector_of_bad_bytes_is_refused() {
    let vectors = vectors("refused");
    assert!(vectors.len() > 40);
    for vector in vectors {
        let wire = unhex(&vector["wire"]);
        let found = Notice::decode(&wire);
        assert!(found.is_err(), "{} {}: {found:?}", vector["form"], vector["why"]);
    }
}

#[test]
fn the_page_shows_the_digests_of_the_vectors_and_the_bytes_of_the_plain_ones() {
    for vector in vectors("accepted") {
        let (digest, name) = (string(&vector["digest"]), &vector["name"]);
        assert!(PAGE.contains(&digest), "{name}: {digest}");
        if name != "plain" {
            continue;
        }
        let wire = string(&vector["wire"]);
        let shown = PAGE
            .lines()
            .skip_while(|line| *line != format!("### {}", string(&vector["form"])))
            .filter(|line| line.starts_with("| `"))
            .map_while(|line| line.split('`').nth(3))
            .scan(0, |len, row| {
                *len += row.len();
                (*len <= wire.len()).then_some(row)
            })
            .collect::<String>();
        assert_eq!(shown, wire, "the table of {}", vector["form"]);
    }
}

fn body() -> NoticeBody {
    NoticeBody {
        chain_id: 1337,
        height: 7,
        round: 0,
        blob_index: 2,
        kzg_commitment: [3; 48],
        blob_keccak: [4; 32],
        locators: vec![locator("fs", "blobs/7/2")],
        archived_by: vec![5; 20],
        archived_at_height: 9,
    }
}

fn locator(provider: &str, key: &str) -> Locator {
    Locator { provider: provider.into(), key: key.into() }
}

fn notice(body: NoticeBody) -> ArchiveNotice {
    ArchiveNotice { body, archived_at: 1_700_000_000, signature: [6; 64] }
}

#[test]
fn a_notice_of_exactly_the_limit_is_read_and_one_byte_more_is_refused() {
    let mut body = body();
    body.locators = (0..16).map(|at| locator(&format!("{at:02}"), "")).collect();
    let mut left = MAX_NOTICE_LEN - body.encoded_len();
    for locator in &mut body.locators {
        let len = left.min(MAX_LOCATOR_LEN);
        locator.key = "k".repeat(len);
        left -= len;
    }
    assert_eq!(left, 0);
    let bytes = notice(body.clone()).encode().unwrap();
    assert_eq!(bytes.len(), MAX_NOTICE_LEN);
    assert_eq!(ArchiveNotice::decode(&bytes).unwrap().body, body);
    let last = body.locators.last_mut().unwrap();
    last.key.push('k');
    let error = notice(body).encode().unwrap_err();
    assert!(matches!(error, CoreError::TooLong { len: 16_385, .. }), "{error}");
    let longer = [bytes.as_slice(), &[0]].concat();
    let error = ArchiveNotice::decode(&longer).unwrap_err();
    assert!(matches!(error, CoreError::TooLong { len: 16_385, .. }), "{error}");
}

#[test]
fn a_huge_count_or_length_is_refused_before_anything_is_taken() {
    let good = notice(body()).encode().unwrap();
    // The count of locators, the length of the locators' field and of the first provider.
    for at in [129, 125, 133] {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(ArchiveNotice::decode(&bytes).is_err(), "{at}");
    }
}

#[test]
fn texts_that_are_cut_elsewhere_are_signed_differently() {
    let with = |locators: Vec<Locator>| NoticeBody { locators, ..body() }.preimage();
    let all = [
        with(vec![locator("ab", "cd")]),
        with(vec![locator("a", "bcd")]),
        with(vec![locator("abc", "d")]),
        with(vec![locator("a", "b"), locator("c", "d")]),
        with(vec![locator("c", "d"), locator("a", "b")]),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(!all[at + 1..].contains(one));
    }
}

#[test]
fn what_is_not_signed_is_the_time_and_nothing_else() {
    let one = notice(body());
    let later = ArchiveNotice { archived_at: 0, ..one.clone() };
    assert_eq!(Notice::V1(one.clone()).preimage(), Notice::V1(later).preimage());
    assert!(Notice::V1(one.clone()).says(&Statement::V1(body())));
    let changes: [fn(&mut NoticeBody); 9] = [
        |body| body.chain_id += 1,
        |body| body.height += 1,
        |body| body.round += 1,
        |body| body.blob_index += 1,
        |body| body.kzg_commitment[47] ^= 1,
        |body| body.blob_keccak[31] ^= 1,
        |body| body.locators[0].key.push('x'),
        |body| body.archived_by.push(0),
        |body| body.archived_at_height += 1,
    ];
    for change in changes {
        let mut other = body();
        change(&mut other);
        assert_ne!(other.preimage(), body().preimage());
        assert!(!Notice::V1(one.clone()).says(&Statement::V1(other)));
    }
}

fn any_locator() -> impl Strategy<Value = Locator> {
    // Any characters: what is signed must be told apart even where it is refused.
    let text = || prop::collection::vec(any::<char>(), 0..40).prop_map(String::from_iter);
    (text(), text()).prop_map(|(provider, key)| Locator { provider, key })
}

prop_compose! {
    fn any_body()(
        numbers in any::<(u64, u64, i32, u32, u64)>(),
        commitment in any::<[u8; 32]>(),
        blob_keccak in any::<[u8; 32]>(),
        locators in prop::collection::vec(any_locator(), 0..=MAX_LOCATORS),
        archived_by in prop::collection::vec(any::<u8>(), 0..=MAX_SIGNER_LEN),
    ) -> NoticeBody {
        let (chain_id, height, round, blob_index, archived_at_height) = numbers;
        let mut kzg_commitment = [7; 48];
        kzg_commitment[8..40].copy_from_slice(&commitment);
        NoticeBody {
            chain_id, height, round, blob_index, kzg_commitment, blob_keccak, locators,
            archived_by, archived_at_height,
        }
    }
}

fn plain_locator() -> impl Strategy<Value = Locator> {
    ("[a-z0-9ü片]{1,40}", "[!-~ü]{1,80}").prop_map(|(provider, key)| Locator { provider, key })
}

prop_compose! {
    fn good_body()(
        body in any_body(),
        locators in prop::collection::vec(plain_locator(), 1..=MAX_LOCATORS),
        archived_by in prop::collection::vec(any::<u8>(), 1..=MAX_SIGNER_LEN),
    ) -> NoticeBody {
        let mut locators = locators;
        for (at, locator) in locators.iter_mut().enumerate() {
            // None of them twice.
            locator.provider = format!("{}-{at}", locator.provider);
        }
        NoticeBody { locators, archived_by, ..body }
    }
}

fn v0_of(body: &NoticeBody) -> NoticeBodyV0 {
    NoticeBodyV0 {
        height: body.height,
        round: body.round,
        blob_index: body.blob_index,
        kzg_commitment: body.kzg_commitment,
        blob_keccak: body.blob_keccak,
        locator: body.locators[0].clone(),
        archived_by: body.archived_by.clone(),
        archived_at: body.archived_at_height,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// I20. A function that can be undone gives no two contents the same bytes.
    #[test]
    fn the_signed_bytes_can_be_read_back_so_no_two_contents_share_them(body in any_body()) {
        let preimage = body.preimage();
        let (domain, rest) = preimage.split_at(DOMAIN_V1.len());
        prop_assert_eq!(domain, DOMAIN_V1);
        let mut reader = Reader::new("preimage", rest);
        prop_assert_eq!(NoticeBody::read(&mut reader).unwrap(), body);
        prop_assert_eq!(reader.remaining(), 0);
    }

    #[test]
    fn the_signed_bytes_of_neither_form_begin_as_those_of_the_other(body in good_body()) {
        prop_assert!(!v0_of(&body).preimage().starts_with(DOMAIN_V1));
        prop_assert!(!body.preimage().starts_with(DOMAIN_V0));
    }

    #[test]
    fn a_notice_reads_back_what_was_written(
        body in good_body(), archived_at: u64, half: [u8; 32],
    ) {
        let mut signature = [1; 64];
        signature[..32].copy_from_slice(&half);
        prop_assert_eq!(&NoticeBody::decode(&body.encode().unwrap()).unwrap(), &body);
        let v0 = ArchiveNoticeV0 { body: v0_of(&body), signature };
        let v1 = ArchiveNotice { body, archived_at, signature };
        for notice in [Notice::V1(v1), Notice::V0(v0)] {
            let bytes = notice.encode().unwrap();
            prop_assert_eq!(NoticeForm::of(&bytes), Some(notice.form()));
            prop_assert_eq!(Notice::decode(&bytes).unwrap(), notice.clone());
            let statement = notice.statement();
            prop_assert!(notice.says(&statement));
            prop_assert_eq!(notice.claim(), statement.claim());
        }
    }

    #[test]
    fn whatever_is_read_is_written_the_same_again(
        body in good_body(), v0: bool, at: prop::sample::Index, byte: u8, cut in 0..3usize,
    ) {
        let signature = [9; 64];
        let notice = if v0 {
            Notice::V0(ArchiveNoticeV0 { body: v0_of(&body), signature })
        } else {
            Notice::V1(ArchiveNotice { body, archived_at: 5, signature })
        };
        let mut bytes = notice.encode().unwrap();
        let at = at.index(bytes.len());
        match cut {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => { bytes.remove(at); }
        }
        if let Ok(read) = Notice::decode(&bytes) {
            prop_assert_eq!(read.encode().unwrap(), bytes);
        }
    }

    #[test]
    fn no_bytes_make_the_decoders_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600), first in prop::sample::select(vec![1, 10]),
    ) {
        let mut framed = vec![first];
        framed.extend_from_slice(&bytes);
        for bytes in [&bytes, &framed] {
            if let Ok(read) = Notice::decode(bytes) {
                prop_assert_eq!(&read.encode().unwrap(), bytes);
            }
            if let Ok(read) = NoticeBodyV0::decode(bytes) {
                prop_assert_eq!(&read.encode().unwrap(), bytes);
            }
            if let Ok(read) = NoticeBody::decode(bytes) {
                prop_assert_eq!(&read.encode().unwrap(), bytes);
            }
        }
    }
}

#[test]
fn a_number_of_protobuf_has_one_spelling() {
    // 300 = 0b10_0101100.
    let mut body = v0_of(&body());
    body.height = 300;
    let bytes = body.encode().unwrap();
    assert!(bytes.starts_with(&[0x08, 0xac, 0x02]));
    let mut longer = Writer::new();
    longer.bytes(&[0x08, 0xac, 0x82, 0x00]).bytes(&bytes[3..]);
    let error = NoticeBodyV0::decode(&longer.finish()).unwrap_err();
    assert!(error.to_string().contains("longer than it must be"), "{error}");
}
