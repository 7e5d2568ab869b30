//! The header row: what decodes is of a known version, encodes to the same bytes, and has a class
//! table that can lay out every length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_fuzz::{MESSAGE, format, within};
use secateur_store::{ALIGNMENT, Header, MAX_CLASSES};

/// Where the version ends: behind the magic and itself.
const BEHIND_VERSION: usize = 12;

fuzz_target!(|input: &[u8]| {
    let Ok(header) = within(MESSAGE, || Header::decode(input)) else { return };
    let again = format::header_row(&header);
    assert_eq!(again.get(BEHIND_VERSION..), input.get(BEHIND_VERSION..));
    assert_eq!(again.first_chunk::<8>(), input.first_chunk::<8>());
    let classes = header.classes.classes();
    assert!((1..=MAX_CLASSES).contains(&classes.len()));
    assert!(classes.iter().all(|class| *class > 0 && class % ALIGNMENT == 0));
    for len in [0, 1, 4095, 4096, u64::from(header.classes.largest()) * 3 + 1] {
        let parts = header.classes.split(len);
        let mut laid = 0;
        for (class, part) in parts.take(8) {
            assert!(part > 0 && part <= class && header.classes.position(class).is_some());
            laid += u64::from(part);
        }
        assert_eq!(laid, len);
    }
});
