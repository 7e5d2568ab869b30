//! The three files of a disk ground with bytes changed, cut off or added: header slots, redb's
//! pages, the arena. Opening them and reading every block, by
//! number and by hash, gives the bytes that were stored, or
//! an answer, or an error; never other bytes. redb may panic on what it reads; the index turns
//! that into an error.
#![no_main]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use secateur_core::Reader;
use secateur_fuzz::fixture::{self, FIRST, HEAD, StoppedClock};
use secateur_fuzz::volume::MemoryVolume;
use secateur_fuzz::within;
use secateur_store::ground::disk::{ARENA_FILE, INDEX_FILE, RESERVE_FILE, open_ground};
use secateur_store::{Layout, Sabotage, Store, StoreError};

/// Changes that one input makes.
const MAX_CHANGES: usize = 16;
/// Where the slots end.
const SLOTS: usize = 8192;
/// The files, their copies in the probe, and redb's cache.
const LIMIT: usize = 256 << 20;

type Files = BTreeMap<String, Vec<u8>>;

static FILES: LazyLock<[Files; 2]> = LazyLock::new(|| {
    // The index catches panics of redb; libFuzzer's hook would abort before it can. One that is
    // not caught still ends the target.
    std::panic::set_hook(Box::new(|_| ()));
    [Layout::Packed, Layout::PerBlock].map(|layout| {
        let volume = MemoryVolume::default();
        let ground = open_ground(&volume, 0, Sabotage::None).expect("an empty volume");
        drop(fixture::populate(ground, layout).expect("the fixture is legal"));
        volume.to_files()
    })
});

/// Set in an input's first byte, it asks for the per-block layout.
const PER_BLOCK: u8 = 64;

fuzz_target!(|input: &[u8]| {
    let [packed, per_block] = &*FILES;
    let own = input.first().is_some_and(|first| first & PER_BLOCK != 0);
    let mut files = if own { per_block } else { packed }.clone();
    damage(&mut files, input);
    within(LIMIT, || {
        let volume = MemoryVolume::from_files(&files);
        let run = AssertUnwindSafe(|| read_all(volume).unwrap_or_default());
        if let Err(panic) = catch_unwind(run) {
            let text = panic.downcast_ref::<String>().map_or("without a text", String::as_str);
            eprintln!("panicked at something that nothing caught: {text}");
            resume_unwind(panic);
        }
    });
});

/// `file u8 · offset u24 · len u8 · bytes`, again and again: the bytes are flipped in. File 0 is the
/// index's slots, 1 its pages, 2 the arena, 3 the reserve, and so on; from 128 on the file is cut
/// off at the offset, or lengthened to it.
fn damage(files: &mut Files, input: &[u8]) {
    let mut from = Reader::new("input", input);
    for _ in 0..MAX_CHANGES {
        let (Ok(which), Ok([a, b, c])) = (from.u8(), from.array::<3>()) else { return };
        let name = [INDEX_FILE, INDEX_FILE, ARENA_FILE, RESERVE_FILE][usize::from(which) % 4];
        let file = files.entry(name.to_owned()).or_default();
        let offset = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(0);
        if which >= 128 {
            file.resize(offset % (file.len() + 8192), 0xa5);
            continue;
        }
        let Ok(len) = from.u8() else { return };
        let Ok(bytes) = from.take(usize::from(len).min(from.remaining())) else { return };
        let (from, to) = match which % 4 {
            0 => (0, SLOTS),
            1 => (SLOTS, file.len()),
            _ => (0, file.len()),
        };
        let Some(part) = file.get_mut(from..to).filter(|part| !part.is_empty()) else { continue };
        let offset = offset % part.len();
        part.iter_mut().skip(offset).zip(bytes).for_each(|(to, from)| *to ^= *from);
    }
}

fn read_all(volume: MemoryVolume) -> Result<(), StoreError> {
    let ground = open_ground(&volume, 0, Sabotage::None)?;
    let store = Store::open(ground, Arc::new(StoppedClock))?;
    for height in FIRST..=HEAD {
        let block = fixture::block(height);
        check(store.get_block(height), &block);
        check(store.get_block_by_hash(&block.meta.hash), &block);
        check(store.get_receipt(&fixture::tx_of(height)), &b"receipt".to_vec());
    }
    Ok(())
}

fn check<T: PartialEq + Debug>(answer: Result<T, StoreError>, stored: &T) {
    match answer {
        Ok(found) => assert_eq!(found, *stored, "other bytes"),
        Err(StoreError::Lookup(_)) => (),
        Err(error) => assert!(
            error.is_corruption()
                || matches!(error, StoreError::Io { .. } | StoreError::StaleGeneration { .. }),
            "{error}"
        ),
    }
}
