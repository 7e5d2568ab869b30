//! The arena's first page: whose arena it is, and whether its index was ever committed.

use secateur_core::Writer;

use crate::StoreError;
use crate::class::ALIGNMENT;
use crate::ground::{Arena, Family};

/// Regions begin behind the arena's header.
pub const ARENA_HEADER_LEN: u64 = ALIGNMENT as u64;

/// Where the arena says that its index was committed once, and what it says there. From then on
/// an arena without an index is lost data, never a store that is yet to be made.
const BEGUN_OFFSET: u64 = 512;
const BEGUN: [u8; 8] = *b"SECBEGUN";

/// The arena's first bytes: the family's word, version, store id, checksum.
pub(crate) fn arena_header(family: Family, version: u32, store_id: &[u8; 16]) -> Vec<u8> {
    let mut out = Writer::new();
    out.bytes(family.arena_word()).u32(version).bytes(store_id);
    let mut bytes = out.finish();
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes
}

/// Writes the header of a new arena. One that belongs to a store already is refused.
pub(crate) fn begin_arena(arena: &impl Arena, header: &[u8]) -> Result<(), StoreError> {
    if arena_is_begun(arena)? {
        return Err(StoreError::Foreign(
            "there is an arena but its index is lost; restore the index file".into(),
        ));
    }
    arena.grow(ARENA_HEADER_LEN)?;
    arena.write_at(0, header)?;
    arena.sync()
}

/// Refuses another family's arena, before anything of its ground is touched.
#[cfg(feature = "disk")]
pub(crate) fn check_arena_word(arena: &impl Arena, family: Family) -> Result<(), StoreError> {
    let mut word = [0u8; 8];
    if arena.len()? >= ARENA_HEADER_LEN {
        arena.read_at(0, &mut word)?;
    }
    let others = Family::ALL.into_iter().filter(|other| *other != family);
    match others.into_iter().find(|other| *other.arena_word() == word) {
        Some(other) => Err(StoreError::Foreign(format!("these are the files of {other}"))),
        None => Ok(()),
    }
}

/// Refuses an arena that does not begin with `wanted`.
pub(crate) fn check_arena_header(arena: &impl Arena, wanted: &[u8]) -> Result<(), StoreError> {
    if arena.len()? < ARENA_HEADER_LEN {
        return Err(StoreError::corrupt("arena", "it is shorter than its header"));
    }
    let mut found = vec![0u8; wanted.len()];
    arena.read_at(0, &mut found)?;
    if found != wanted {
        return Err(StoreError::Foreign(
            "the arena's header is damaged or belongs to another store".into(),
        ));
    }
    Ok(())
}

/// Refuses an arena that ends before its regions do.
pub(crate) fn check_arena_len(arena: &impl Arena, arena_end: u64) -> Result<(), StoreError> {
    let len = arena.len()?;
    if len < arena_end {
        return Err(StoreError::corrupt(
            "arena",
            format!(
                "it is {len} bytes long, but regions reach to {arena_end}: the file was truncated"
            ),
        ));
    }
    Ok(())
}

/// Whether the arena belongs to a store that was committed at least once.
pub(crate) fn arena_is_begun(arena: &impl Arena) -> Result<bool, StoreError> {
    let len = arena.len()?;
    if len < ARENA_HEADER_LEN {
        return Ok(false);
    }
    let mut mark = [0u8; BEGUN.len()];
    arena.read_at(BEGUN_OFFSET, &mut mark)?;
    Ok(len > ARENA_HEADER_LEN || mark == BEGUN)
}

/// Sets that mark. The header row is durable by now; a crash before leaves it to the next open.
pub(crate) fn mark_begun(arena: &impl Arena) -> Result<(), StoreError> {
    let mut mark = [0u8; BEGUN.len()];
    arena.read_at(BEGUN_OFFSET, &mut mark)?;
    if mark == BEGUN {
        return Ok(());
    }
    arena.write_at(BEGUN_OFFSET, &BEGUN)?;
    arena.sync()
}
