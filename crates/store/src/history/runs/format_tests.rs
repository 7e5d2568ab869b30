//! What the bytes of a run must keep, and what they must refuse.

use super::*;
use proptest::prelude::*;

const RUN_NUMBER: u64 = 0x0102_0304_0506_0708;

fn tx(key: u64, height_delta: u32, index: u32) -> RunEntry {
    let receipt = Some(ReceiptSpan { offset: index * 10, len: 10, checksum: !index });
    RunEntry { key, height_delta, what: What::Transaction { index, receipt } }
}

fn encode(entry: &RunEntry) -> Result<[u8; ENTRY_LEN], CoreError> {
    let mut out = Writer::new();
    entry.write(&mut out)?;
    Ok(out.finish().try_into().unwrap())
}

/// `count` entries, each key twice.
fn entries(count: u32) -> Vec<RunEntry> {
    (0..count).map(|i| tx(u64::from(i / 2) << 20, i, i)).collect()
}

fn what() -> impl Strategy<Value = What> {
    let span = (0..=U24_MAX, 1..=U24_MAX, any::<u32>())
        .prop_map(|(offset, len, checksum)| ReceiptSpan { offset, len, checksum });
    prop_oneof![
        1 => Just(What::Block),
        4 => (0..U24_MAX, prop::option::of(span))
            .prop_map(|(index, receipt)| What::Transaction { index, receipt }),
    ]
}

/// Entries with keys of all sizes, and with keys so few that they fill pages.
fn any_entry() -> impl Strategy<Value = RunEntry> {
    let key = prop_oneof![5 => 0..=MAX_KEY, 2 => 0u64..4, 1 => MAX_KEY - 1..=MAX_KEY];
    (key, any::<u32>(), what()).prop_map(|(key, height_delta, what)| RunEntry {
        key,
        height_delta,
        what,
    })
}

/// What a lookup finds, by the summary and then the pages that it names.
fn look_up(summary: &Summary, bytes: &[u8], key: u64) -> Vec<RunEntry> {
    let Some((first, last)) = summary.pages_of(key) else { return Vec::new() };
    let page = |number: u32| &bytes[number as usize * PAGE..][..PAGE];
    (first..=last)
        .flat_map(|number| find_in_page(RUN_NUMBER, number, page(number), key).unwrap())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_entry_is_found_by_its_key_and_nothing_else_is(
        mut entries in prop::collection::vec(any_entry(), 0..1500),
        absent in prop::collection::vec(0..=MAX_KEY, 50),
    ) {
        entries.sort_unstable();
        let bytes = encode_run(RUN_NUMBER, &entries).unwrap();
        let summary = Summary::decode(&Summary::of(&entries).unwrap().encode()).unwrap();
        prop_assert_eq!(summary.entries, entries.len() as u64);
        prop_assert_eq!(bytes.len(), summary.fences.len() * PAGE);

        let mut all = Vec::new();
        for (number, page) in (0u32..).zip(bytes.chunks(PAGE)) {
            let held = decode_page(RUN_NUMBER, number, page).unwrap();
            prop_assert_eq!(held[0].key, summary.fences[number as usize]);
            all.extend(held);
        }
        prop_assert_eq!(&all, &entries);

        let around = entries.iter().flat_map(|entry| [entry.key, entry.key.saturating_sub(1)]);
        for key in around.chain(absent).chain([0, MAX_KEY]) {
            let begin = entries.partition_point(|entry| entry.key < key);
            let end = entries.partition_point(|entry| entry.key <= key);
            prop_assert_eq!(look_up(&summary, &bytes, key), &entries[begin..end]);
        }
    }

    #[test]
    fn an_entry_reads_back_and_is_ordered_as_its_bytes(a in any_entry(), b in any_entry()) {
        let (a_bytes, b_bytes) = (encode(&a).unwrap(), encode(&b).unwrap());
        prop_assert_eq!(RunEntry::decode(&a_bytes).unwrap(), a);
        prop_assert_eq!(a.cmp(&b), a_bytes.cmp(&b_bytes));
        let same_place = RunEntry { what: b.what, ..a };
        prop_assert_eq!(a.cmp(&same_place), a_bytes.cmp(&encode(&same_place).unwrap()));
    }

    /// Any 24 bytes are refused or are the one encoding of what they decode to.
    #[test]
    fn an_entry_has_one_encoding(mut bytes in any::<[u8; ENTRY_LEN]>(), zero in 0u8..16) {
        for (bit, field) in [11..14, 14..17, 17..20, 20..24].into_iter().enumerate() {
            if zero >> bit & 1 == 1 {
                bytes[field].fill(if bit == 0 { 0xFF } else { 0 });
            }
        }
        if let Ok(entry) = RunEntry::decode(&bytes) {
            prop_assert_eq!(encode(&entry).unwrap(), bytes);
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// The format on disk: these vectors must never change.
#[test]
fn the_bytes_of_an_entry_are_these() {
    let receipt = Some(ReceiptSpan { offset: 0x11_1213, len: 0x14_1516, checksum: 0x1718_191A });
    let mut entry = RunEntry {
        key: 0x01_0203_0405_0607,
        height_delta: 0x0809_0A0B,
        what: What::Transaction { index: 0x0E_0F10, receipt },
    };
    let bytes = |entry: &RunEntry| hex(&encode(entry).unwrap());
    assert_eq!(bytes(&entry), "0102030405060708090a0b0e0f101112131415161718191a");
    entry.what = What::Transaction { index: 5, receipt: None };
    assert_eq!(bytes(&entry), "0102030405060708090a0b00000500000000000000000000");
    entry.what = What::Block;
    assert_eq!(bytes(&entry), "0102030405060708090a0bffffff00000000000000000000");
}

/// The format on disk: a page's header, and the checksum that binds it to its place.
#[test]
fn the_first_bytes_of_a_page_are_these() {
    let page = encode_run(RUN_NUMBER, &entries(3)).unwrap();
    assert_eq!(hex(&page[..16]), "0bf800a0000300000000000000000000");
    assert_eq!(PAGE_ENTRIES, 170);
}

#[test]
fn a_key_has_56_bits_and_depends_on_the_kind_and_the_seed() {
    let id: [u8; 32] = std::array::from_fn(|i| u8::try_from(i).unwrap());
    let transaction = key_of(IdKind::Transaction, 7, &id);
    let block = key_of(IdKind::Block, 7, &id);
    assert_eq!((transaction, block), (0xC8_B1D5_56BF_772E, 0xAF_28D1_FA03_1E44));
    assert_ne!(transaction, key_of(IdKind::Transaction, 8, &id));
    let keys = (0..1000).map(|seed| key_of(IdKind::Block, seed, &id));
    assert!(keys.clone().all(|key| key <= MAX_KEY) && keys.max().unwrap() > MAX_KEY / 2);
}

#[test]
fn a_number_that_does_not_fit_is_refused() {
    let span = |offset, len| Some(ReceiptSpan { offset, len, checksum: u32::MAX });
    let good = |key, index, receipt| {
        let what = What::Transaction { index, receipt };
        encode(&RunEntry { key, height_delta: u32::MAX, what }).is_ok()
    };
    assert!(good(MAX_KEY, U24_MAX - 1, span(U24_MAX, U24_MAX)));
    assert!(!good(MAX_KEY + 1, 0, None));
    assert!(!good(0, U24_MAX, None), "it would read as a block");
    assert!(!good(0, U24_MAX + 1, None));
    assert!(!good(0, 0, span(U24_MAX + 1, 1)));
    assert!(!good(0, 0, span(0, U24_MAX + 1)));
    assert!(!good(0, 0, span(0, 0)), "it would read as no receipt");
    let wide = RunEntry { key: MAX_KEY + 1, height_delta: 0, what: What::Block };
    assert!(encode_run(1, &[wide]).is_err() && Summary::of(&[wide]).is_err());
}

#[test]
fn entries_out_of_order_are_refused() {
    let mut swapped = entries(10);
    swapped.swap(4, 5);
    assert!(encode_run(1, &swapped).is_err() && Summary::of(&swapped).is_err());
    let page = encode_page(1, 0, &swapped).unwrap();
    assert!(decode_page(1, 0, &page).is_err());
}

/// All bytes of a page are under its checksum or are the checksum; none is outside.
#[test]
fn every_flipped_byte_of_a_page_is_an_error() {
    for count in [1, 100, 170] {
        let page = encode_run(RUN_NUMBER, &entries(count)).unwrap();
        assert_eq!(page.len(), PAGE);
        assert_eq!(decode_page(RUN_NUMBER, 0, &page).unwrap(), entries(count));
        for at in 0..PAGE {
            let mut bad = page.clone();
            bad[at] ^= 1 << (at % 8);
            assert!(decode_page(RUN_NUMBER, 0, &bad).is_err(), "byte {at}");
            assert!(find_in_page(RUN_NUMBER, 0, &bad, 0).is_err(), "byte {at}");
            assert!(decode_page(RUN_NUMBER, 0, &page[..at]).is_err(), "cut at {at}");
        }
        assert!(decode_page(RUN_NUMBER, 0, &[page, vec![0]].concat()).is_err());
    }
}

#[test]
fn a_page_of_another_place_is_refused() {
    let bytes = encode_run(RUN_NUMBER, &entries(400)).unwrap();
    let second = &bytes[PAGE..2 * PAGE];
    assert_eq!(decode_page(RUN_NUMBER, 1, second).unwrap(), entries(400)[170..340]);
    for (run, page) in [(RUN_NUMBER, 0), (RUN_NUMBER, 2), (RUN_NUMBER + 1, 1), (0, 1)] {
        assert!(decode_page(run, page, second).is_err());
        assert!(find_in_page(run, page, second, 0).is_err());
    }
    assert!(decode_page(0, 0, &[0; PAGE]).is_err(), "a page that was never written");
}

/// With a right checksum: what a faulty writer could have made.
#[test]
fn a_page_with_a_wrong_count_or_bytes_that_must_be_zero_is_refused() {
    let good = encode_run(1, &entries(10)).unwrap();
    for (at, value) in [(5, 0), (5, 9), (5, 11), (5, 171), (4, 1), (6, 1), (15, 1), (PAGE - 1, 1)] {
        let mut bad = good.clone();
        bad[at] = value;
        let crc = page_crc(1, 0, &bad[CRC_LEN..]);
        bad[..CRC_LEN].copy_from_slice(&crc.to_be_bytes());
        assert!(decode_page(1, 0, &bad).is_err(), "{value} at {at}");
    }
    assert!(decode_page(1, 0, &encode_page(1, 0, &[]).unwrap()).is_err());
}

#[test]
fn the_pages_of_a_key_are_few_and_reach_over_a_border() {
    let mut run = entries(340);
    for entry in &mut run[160..180] {
        entry.key = 90 << 20;
    }
    run.sort_unstable();
    let summary = Summary::of(&run).unwrap();
    assert_eq!(summary.fences, [0, 90 << 20]);
    assert_eq!(summary.pages_of(0), Some((0, 0)));
    assert_eq!(summary.pages_of(50 << 20), Some((0, 0)));
    assert_eq!(summary.pages_of(90 << 20), Some((0, 1)));
    assert_eq!(summary.pages_of(91 << 20), Some((1, 1)));

    let above: Vec<RunEntry> = entries(340).iter().map(|e| tx(e.key + 9, 0, 0)).collect();
    let mut below = Summary::of(&above).unwrap();
    below.filter = Filter::build(&[3]).unwrap();
    assert_eq!(below.pages_of(3), None, "below the first fence, though the filter claims it");
    assert_eq!(Summary::of(&[]).unwrap().pages_of(0), None);

    let same = vec![tx(5, 0, 0); 1000];
    assert_eq!(Summary::of(&same).unwrap().pages_of(5), Some((0, 5)));
    assert_eq!(
        look_up(&Summary::of(&same).unwrap(), &encode_run(RUN_NUMBER, &same).unwrap(), 5),
        same
    );
}

#[test]
fn every_flipped_byte_and_every_truncation_of_a_summary_is_an_error() {
    for count in [0, 1, 400] {
        let bytes = Summary::of(&entries(count)).unwrap().encode();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << (at % 8);
            assert!(Summary::decode(&bad).is_err(), "byte {at}");
            assert!(Summary::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }
}

/// With a right checksum: what a faulty writer could have made.
#[test]
fn a_summary_that_contradicts_itself_is_refused() {
    let good = Summary::of(&entries(400)).unwrap();
    let refused = |change: &dyn Fn(&mut Summary)| {
        let mut bad = good.clone();
        change(&mut bad);
        Summary::decode(&bad.encode()).is_err()
    };
    assert!(!refused(&|_| ()));
    assert!(!refused(&|s| s.entries = 510), "as many pages");
    for absurd in [0, 340, 511, 1 << 40, u64::MAX] {
        assert!(refused(&|s| s.entries = absurd), "{absurd}");
    }
    assert!(refused(&|s| s.fences.swap(0, 1)));
    let wide = |s: &mut Summary| {
        s.fences[2] = MAX_KEY + 1;
        s.filter = Filter::build(&s.fences).unwrap();
    };
    assert!(refused(&wide));
    assert!(refused(&|s| s.fences[2] += 1), "a fence is a key, so the filter has it");
    assert!(refused(&|s| s.filter = Filter::build(&[]).unwrap()));
    assert!(refused(&|s| s.filter = Filter::build(&[1 << 50]).unwrap()));
    let empty = Summary::of(&[]).unwrap();
    assert!(Summary::decode(&empty.encode()).unwrap().fences.is_empty());
    let with_filter = Summary { filter: good.filter, ..empty };
    assert!(Summary::decode(&with_filter.encode()).is_err());
}

/// The specification's bound: 3 bytes of memory for each id.
#[test]
fn a_full_run_needs_less_than_three_bytes_an_id() {
    let count = 1u64 << 20;
    let mut run: Vec<RunEntry> = (0..count)
        .map(|i| {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&i.to_be_bytes());
            tx(key_of(IdKind::Transaction, 1, &id), 0, 0)
        })
        .collect();
    run.sort_unstable();
    let summary = Summary::of(&run).unwrap();
    let bytes = summary.memory_bytes();
    assert!(bytes as u64 <= count * 5 / 2, "{bytes} bytes");
}
