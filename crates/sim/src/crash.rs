//! What a crash can leave of a point: subsets of the pending writes, whole and torn.

use crate::image::{FileOp, SectorFate};
use crate::rng::Rng;
use crate::world::{Image, Point};

/// Up to this many pending changes, every subset is tried.
const ALL_SUBSETS_UP_TO: usize = 8;
/// Beyond, so many seeded subsets besides prefixes, single drops and single keeps.
const SEEDED_SUBSETS: usize = 16;
/// Writes that are torn, at the most, for each point.
const TORN_WRITES: usize = 8;

/// Which pending changes landed, and how one of them was torn.
#[derive(Debug, Clone)]
struct Landing {
    kept: Vec<bool>,
    torn: Option<usize>,
}

/// Calls `visit` with every image of the point that the plan asks for.
pub fn images_of(point: &Point, rng: &mut Rng, mut visit: impl FnMut(Image)) {
    let writes: Vec<usize> = pending(point)
        .enumerate()
        .filter(|(_, op)| matches!(op, FileOp::Write(..)))
        .map(|(at, _)| at)
        .collect();
    let count = pending(point).count();
    for kept in subsets(count, rng) {
        visit(build(point, &Landing { kept, torn: None }, rng));
    }
    let stride = writes.len().div_ceil(TORN_WRITES).max(1);
    for torn in writes.into_iter().step_by(stride) {
        for kept in [vec![true; count], (0..count).map(|at| at < torn).collect()] {
            visit(build(point, &Landing { kept, torn: Some(torn) }, rng));
        }
    }
}

/// One image of the point, drawn: all that is pending, none of it, a beginning or any part of it,
/// and now and then one write of it torn.
pub fn image_of(point: &Point, rng: &mut Rng) -> Image {
    let count = pending(point).count();
    let end = rng.below(count as u64 + 1);
    let kept: Vec<bool> = match rng.below(4) {
        0 => vec![true; count],
        1 => vec![false; count],
        2 => (0..count as u64).map(|at| at < end).collect(),
        _ => (0..count).map(|_| rng.flip()).collect(),
    };
    let is_write = |(_, op): &(usize, &FileOp)| matches!(op, FileOp::Write(..));
    let writes: Vec<usize> =
        pending(point).enumerate().filter(is_write).map(|(at, _)| at).collect();
    let drawn = usize::try_from(rng.below(writes.len() as u64)).unwrap_or(0);
    let torn = writes.get(drawn).copied().filter(|_| rng.below(3) == 0);
    build(point, &Landing { kept, torn }, rng)
}

fn pending(point: &Point) -> impl Iterator<Item = &FileOp> {
    point.files.iter().flat_map(|file| &file.pending)
}

fn subsets(count: usize, rng: &mut Rng) -> Vec<Vec<bool>> {
    if count <= ALL_SUBSETS_UP_TO {
        let of = |mask: usize| (0..count).map(|at| mask >> at & 1 == 1).collect();
        return (0..1 << count).map(of).collect();
    }
    let prefixes = (0..=count).map(|end| (0..count).map(|at| at < end).collect());
    let drops = (0..count).map(|out| (0..count).map(|at| at != out).collect());
    let keeps = (0..count).map(|only| (0..count).map(|at| at == only).collect());
    let mut all: Vec<Vec<bool>> = prefixes.chain(drops).chain(keeps).collect();
    all.extend((0..SEEDED_SUBSETS).map(|_| (0..count).map(|_| rng.flip()).collect()));
    all
}

fn build(point: &Point, landing: &Landing, rng: &mut Rng) -> Image {
    let mut image = Image { index: point.index.clone(), ..Image::default() };
    let mut fates = landing.kept.iter().enumerate();
    for file in &point.files {
        let mut content = file.durable.clone();
        for (op, (at, kept)) in file.pending.iter().zip(&mut fates) {
            if landing.torn == Some(at) {
                content.apply_torn(op, || match rng.below(4) {
                    0 => SectorFate::Old,
                    1 => SectorFate::Garbage(rng.u64() | 1),
                    _ => SectorFate::New,
                });
            } else if *kept {
                content.apply(op);
            }
        }
        image.files.insert(file.name.clone(), content);
    }
    image
}
