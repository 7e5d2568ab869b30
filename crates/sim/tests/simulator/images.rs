//! What a crash can leave of a file: images, torn writes, and which subsets of unsynced writes are tried.

use std::collections::HashSet;

use secateur_sim::crash::images_of;
use secateur_sim::image::{FileImage, FileOp, SectorFate};
use secateur_sim::rng::Rng;
use secateur_sim::world::{Point, PointFile};

fn write(offset: u64, bytes: &[u8]) -> FileOp {
    FileOp::Write(offset, bytes.into())
}

#[test]
fn an_image_reads_what_was_written_across_pages_and_zero_elsewhere() {
    let mut image = FileImage::default();
    image.apply(&FileOp::SetLen(20_000));
    image.apply(&write(4000, &[7; 5000]));
    let mut out = vec![1u8; 20_000];
    assert!(image.read(0, &mut out));
    assert!(out[..4000].iter().chain(&out[9000..]).all(|b| *b == 0));
    assert!(out[4000..9000].iter().all(|b| *b == 7));
    assert!(!image.read(19_999, &mut [0; 2]));
}

#[test]
fn equal_contents_have_equal_digests_whatever_their_history() {
    let mut one = FileImage::default();
    one.apply(&write(0, &[1; 9000]));
    one.apply(&FileOp::Punch(0, 9000));
    one.apply(&write(100, b"abc"));
    let mut two = FileImage::default();
    two.apply(&FileOp::SetLen(9000));
    two.apply(&write(100, b"abc"));
    assert_eq!(one.digest(), two.digest());
    two.flip(100, 1);
    assert_ne!(one.digest(), two.digest());
}

#[test]
fn a_torn_write_keeps_garbles_or_drops_whole_sectors() {
    let mut image = FileImage::default();
    image.apply(&FileOp::SetLen(2048));
    let mut fates =
        [SectorFate::New, SectorFate::Old, SectorFate::Garbage(u64::MAX)].into_iter().cycle();
    image.apply_torn(&write(0, &[9; 1536]), || fates.next().unwrap());
    let mut out = vec![0u8; 1536];
    image.read(0, &mut out);
    assert_eq!((out[0], out[511], out[512], out[1023], out[1024]), (9, 9, 0, 0, 9 ^ 255));
}

#[test]
fn a_shorter_length_forgets_what_was_behind_it() {
    let mut image = FileImage::default();
    image.apply(&write(0, &[5; 5000]));
    image.set_len(10);
    image.set_len(5000);
    let mut out = [1u8; 4990];
    assert!(image.read(10, &mut out) && out.iter().all(|b| *b == 0));
}

fn point(writes: usize) -> Point {
    let pending = (0..writes).map(|at| FileOp::Write(at as u64 * 512, [1u8; 512].into()));
    let file =
        PointFile { name: "f".into(), durable: FileImage::default(), pending: pending.collect() };
    Point { step: 0, files: vec![file], index: None }
}

#[test]
fn every_subset_of_a_few_writes_is_tried() {
    let mut seen = HashSet::new();
    images_of(&point(5), &mut Rng::new(1, 1), |image| {
        seen.insert(image.digest());
    });
    assert!(seen.len() >= 32, "{}", seen.len());
}

#[test]
fn many_writes_are_tried_by_prefix_drop_keep_and_chance() {
    let mut count = 0;
    images_of(&point(20), &mut Rng::new(1, 1), |_| count += 1);
    assert!((21 + 20 + 20 + 16..=21 + 20 + 20 + 16 + 20).contains(&count), "{count}");
}
