//! A part: whatever is read links, counts and unpacks to no more than its table says.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use secateur_archive::{Check, Digest, read_part};
use secateur_fuzz::within;

/// One frame unpacks to 48 MiB at most, and its blocks are copied out of it once; the compressor's
/// own state comes on top.
const LIMIT: usize = 112 << 20;

fuzz_target!(|input: &[u8]| {
    let bytes = Bytes::copy_from_slice(input);
    check(&bytes);
    // Behind hashes that fit: the same with a frame, a header and a footer that were sealed anew.
    let mut sealed = input.to_vec();
    if reseal(&mut sealed).is_some() {
        check(&Bytes::from(sealed));
    }
});

fn check(bytes: &Bytes) {
    let Ok((manifest, blocks)) = within(LIMIT, || read_part(bytes, Check::Full)) else { return };
    assert_eq!(manifest.size, bytes.len() as u64);
    assert_eq!(manifest.sha256, Digest::of(bytes));
    assert_eq!(manifest.blocks(), blocks.len() as u64);
    let mut parent = manifest.parent_hash;
    for (block, height) in blocks.iter().zip(manifest.first..) {
        assert_eq!((block.meta.height, block.meta.parent_hash), (height, parent));
        parent = block.meta.hash;
    }
    assert_eq!(parent, manifest.last_hash);
}

/// Puts the hashes of a part of one frame right, as an attacker would.
fn reseal(bytes: &mut [u8]) -> Option<()> {
    let (table, footer, header) = (8 + 3 * 8 + 9, 8 + 96 + 40 + 32, 136);
    let start = bytes.len().checked_sub(table + footer).filter(|start| *start > header)?;
    let frame = Digest::of(&bytes[header..start]);
    bytes[start + 112..start + 144].copy_from_slice(&frame.0);
    let head = Digest::of(&bytes[..header]);
    bytes[start + 72..start + 104].copy_from_slice(&head.0);
    let own = Digest::of(&bytes[start + 8..start + footer - 32]);
    bytes[start + footer - 32..start + footer].copy_from_slice(&own.0);
    Some(())
}
