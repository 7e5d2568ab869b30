//! Where parts end: for any grain and any clock, and whoever writes them.

use proptest::prelude::*;
use secateur_archive::{Codec, Day, Depth, Grain, Manifest};
use secateur_core::Block;

use crate::chain::{self, CHAIN, archive_all, memory, opaque_block, options};
use crate::whole::verify;

fn parts_of(blocks: &[Block], grain: Grain) -> Vec<Manifest> {
    use futures_util::TryStreamExt;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_store, archive) = memory();
        let stage = tempfile::tempdir().unwrap();
        let mut options = options(stage.path(), Codec::Opaque, 1);
        options.grain = grain;
        options.first = blocks[0].meta.height;
        archive_all(&archive, options, blocks).await.unwrap();
        assert!(verify(&archive, Depth::Full).await.is_clean());
        archive.parts(CHAIN, 0).try_collect().await.unwrap()
    })
}

fn len(block: &Block) -> u64 {
    84 + block.payloads.total_len()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn parts_end_where_the_grain_says_and_nowhere_else(
        first in 0u64..50,
        sizes in prop::collection::vec((0usize..400, 0u64..200_000), 1..40),
        daily in any::<bool>(),
        max_blocks in prop::option::of(1u64..12),
        max_bytes in 100u64..3_000,
    ) {
        let grain = Grain { daily, max_blocks, max_bytes };
        // The clock goes back now and then.
        let blocks: Vec<Block> = sizes.iter().zip(first..).map(|((size, time), height)| {
            let mut block = opaque_block(height, *size, 0);
            block.meta.timestamp = 1_700_000_000 + (height - first) * 20_000 + time;
            block
        }).collect();
        let at = |height: u64| &blocks[usize::try_from(height - first).unwrap()];
        let parts = parts_of(&blocks, grain);
        let mut next = first;
        let mut day = None;
        for part in &parts {
            prop_assert_eq!(part.first, next);
            let own = Day::of_timestamp(at(part.first).meta.timestamp);
            prop_assert_eq!(part.day, day.map_or(own, |day: Day| day.max(own)));
            day = Some(part.day);
            let raw: u64 = (part.first..=part.last).map(|height| len(at(height))).sum();
            prop_assert_eq!(raw, part.raw_size);
            prop_assert!(raw <= max_bytes || part.blocks() == 1);
            prop_assert!(max_blocks.is_none_or(|max| part.blocks() <= max));
            if daily {
                for height in part.first..=part.last {
                    prop_assert!(Day::of_timestamp(at(height).meta.timestamp) <= part.day);
                }
            }
            next = part.last + 1;
            // It ended for a reason: full, or the next block did not fit.
            let full = max_blocks == Some(part.blocks()) || raw >= max_bytes;
            let no_room = blocks.last().unwrap().meta.height >= next && (
                raw + len(at(next)) > max_bytes
                    || (daily && Day::of_timestamp(at(next).meta.timestamp) > part.day));
            prop_assert!(full || no_room, "part {part:?} ended early");
        }
        // The same blocks make the same parts, byte for byte.
        prop_assert_eq!(parts_of(&blocks, grain), parts);
    }
}

#[tokio::test]
async fn two_archivers_that_start_apart_agree_from_their_first_common_day_on() {
    let blocks = chain::opaque(0, 60, 20);
    let mut seen = Vec::new();
    for first in [0usize, 4] {
        let (_store, archive) = memory();
        let stage = tempfile::tempdir().unwrap();
        let mut options = options(stage.path(), Codec::Opaque, 1_000);
        options.first = first as u64;
        let parts = archive_all(&archive, options, &blocks[first..]).await.unwrap();
        seen.push(parts.into_iter().map(|p| (p.first, p.last)).collect::<Vec<_>>());
    }
    assert_eq!(seen[0], [(0, 0), (1, 12), (13, 24), (25, 36), (37, 48)]);
    assert_eq!(seen[1], [(4, 12), (13, 24), (25, 36), (37, 48)]);
}
