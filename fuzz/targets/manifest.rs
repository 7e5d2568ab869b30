//! A manifest: what is accepted has one spelling, and agrees with the name it was found under.
//! The input is the name, a line's end, and the manifest.
#![no_main]

use libfuzzer_sys::fuzz_target;
use secateur_archive::{Manifest, PartKey};
use secateur_fuzz::{MESSAGE, within};

fuzz_target!(|input: &[u8]| {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return };
    let (name, json) = (&input[..end], &input[end + 1..]);
    let Ok(name) = std::str::from_utf8(name) else { return };
    let Ok(key) = PartKey::parse_object(name) else { return };
    let limit = 16 * json.len() + 4 * MESSAGE;
    let Ok(manifest) = within(limit, || Manifest::from_bytes(&key, json)) else { return };
    assert_eq!(manifest.to_bytes().expect("it was read"), json);
    assert_eq!(manifest.key(), key);
    assert!(manifest.first <= manifest.last && manifest.origin <= manifest.first);
    let part = manifest.part("file:///archive");
    part.check().expect("a manifest makes a part that a node takes");
});
