//! Everything that can be wrong with an archive is found by `verify`.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use secateur_archive::{
    Archive, ArchiverOptions, Check, Codec, Depth, Finding, PartKey, VerifyOptions, VerifyReport,
};
use secateur_core::{Block, Part};

use crate::chain::{self, CHAIN, archive_all, memory, options};
use crate::whole::verify;

/// A small archive in memory.
struct Small {
    store: Arc<InMemory>,
    archive: Archive,
    parts: Vec<Part>,
}

async fn small(blocks: &[Block], codec: Codec, per_part: u64) -> Small {
    let (store, archive) = memory();
    let stage = tempfile::tempdir().unwrap();
    let options: ArchiverOptions = options(stage.path(), codec, per_part);
    let parts = archive_all(&archive, options, blocks).await.unwrap();
    assert!(verify(&archive, Depth::Full).await.is_clean());
    Small { store, archive, parts }
}

impl Small {
    async fn get(&self, key: &str) -> Bytes {
        self.store.get(&Path::from(key)).await.unwrap().bytes().await.unwrap()
    }

    async fn put(&self, key: &str, bytes: impl Into<Bytes>) {
        self.store.put(&Path::from(key), bytes.into().into()).await.unwrap();
    }

    async fn remove(&self, key: &str) {
        self.store.delete(&Path::from(key)).await.unwrap();
    }

    async fn names(&self) -> Vec<String> {
        let names = self.store.list(None).map_ok(|meta| meta.location.to_string());
        let mut names: Vec<String> = names.try_collect().await.unwrap();
        names.sort();
        names
    }

    fn manifest_of(&self, at: usize) -> String {
        self.parts[at].locator.key.replace(".zst", ".json")
    }

    async fn full(&self) -> VerifyReport {
        verify(&self.archive, Depth::Full).await
    }
}

#[tokio::test]
async fn every_single_flipped_byte_of_an_archive_is_found() {
    let small = small(&chain::opaque(0, 6, 10), Codec::Opaque, 3).await;
    assert_eq!(small.parts.len(), 2);
    let mut flipped = 0u32;
    for name in small.names().await {
        let whole = small.get(&name).await;
        for at in 0..whole.len() {
            let mut bytes = whole.to_vec();
            bytes[at] ^= 1 << (at % 8);
            small.put(&name, bytes).await;
            for depth in [Depth::Hashes, Depth::Full] {
                let report = verify(&small.archive, depth).await;
                assert!(!report.is_clean(), "byte {at} of {name}, {depth:?}");
            }
            flipped += 1;
        }
        small.put(&name, whole).await;
    }
    assert!(flipped > 2_000);
    assert!(small.full().await.is_clean());
}

#[tokio::test]
async fn every_truncation_and_every_appended_byte_is_found_and_read_as_damage() {
    let small = small(&chain::evm(2), Codec::Evm, 1).await;
    for name in small.names().await {
        let whole = small.get(&name).await;
        for len in (0..whole.len()).step_by(13).chain([whole.len() - 1]) {
            small.put(&name, whole.slice(..len)).await;
            let report = small.full().await;
            assert!(!report.is_clean(), "{name} cut to {len} bytes");
            if PartKey::parse_object(&name).is_ok() {
                let missing = whole.len() - len;
                let s = if missing == 1 { "" } else { "s" };
                let wanted = format!(
                    "it is {missing} byte{s} shorter than its manifest says: {len}, not {}",
                    whole.len()
                );
                let Finding::Damaged { reason, .. } = &report.findings[0] else {
                    panic!("{report:?}")
                };
                assert_eq!(*reason, wanted);
            }
        }
        small.put(&name, [&whole[..], b"\n"].concat()).await;
        assert!(!small.full().await.is_clean(), "{name} with a byte more");
        small.put(&name, whole).await;
    }
}

#[tokio::test]
async fn other_chains_in_an_archive_are_told_and_not_looked_at() {
    let small = small(&chain::opaque(0, 6, 10), Codec::Opaque, 3).await;
    assert_eq!(small.full().await.other_chains, [] as [u64; 0]);
    let stage = tempfile::tempdir().unwrap();
    for id in [CHAIN + 9, CHAIN - 1] {
        let mut other = options(stage.path(), Codec::Opaque, 3);
        other.chain_id = id;
        archive_all(&small.archive, other, &chain::opaque(0, 3, 10)).await.unwrap();
    }
    let report = small.full().await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.other_chains, [CHAIN - 1, CHAIN + 9]);
    assert_eq!(report.progress.parts, 2);
}

#[tokio::test]
async fn missing_parts_are_found_at_the_beginning_in_the_middle_and_at_the_end() {
    let small = small(&chain::opaque(0, 40, 10), Codec::Opaque, 5).await;
    for (at, part) in small.parts.iter().enumerate() {
        let (object, manifest) = (part.locator.key.clone(), small.manifest_of(at));
        let (zst, json) = (small.get(&object).await, small.get(&manifest).await);
        let last = at + 1 == small.parts.len();

        small.remove(&manifest).await;
        let report = small.full().await;
        if last {
            assert_eq!(report.unlisted.as_ref(), Some(&object));
        } else {
            assert!(report.findings.contains(&Finding::NoManifest { key: object.clone() }));
        }
        small.remove(&object).await;
        let gap = Finding::Gap { range: part.first..=part.last };
        let upto = Some(small.parts.last().unwrap().last);
        let options = VerifyOptions { depth: Depth::Quick, upto };
        let report = small.archive.verify(CHAIN, options, |_| {}).await.unwrap();
        assert_eq!(report.findings, [gap]);
        assert_eq!(small.archive.gaps(CHAIN, upto).await.unwrap(), [part.first..=part.last]);

        small.put(&manifest, json).await;
        let report = small.full().await;
        assert!(report.findings.contains(&Finding::NoObject { key: object.clone() }));
        // A manifest alone lists nothing.
        assert_eq!(small.archive.gaps(CHAIN, upto).await.unwrap(), [part.first..=part.last]);
        assert_eq!(small.archive.find(CHAIN, part.last).await.unwrap(), None);
        small.put(&object, zst).await;
        assert!(small.full().await.is_clean());
    }
}

#[tokio::test]
async fn swapped_duplicated_and_foreign_parts_are_found() {
    let blocks = chain::opaque(0, 30, 10);
    let small = small(&blocks, Codec::Opaque, 5).await;
    let object = |at: usize| small.parts[at].locator.key.clone();
    let clean = || async { assert!(small.full().await.is_clean()) };

    // Swapped: each under the other's name.
    let (a, b) = (small.get(&object(1)).await, small.get(&object(2)).await);
    small.put(&object(1), b.clone()).await;
    small.put(&object(2), a.clone()).await;
    assert!(small.full().await.found >= 2);
    small.put(&object(1), a.clone()).await;
    small.put(&object(2), b).await;
    clean().await;

    // Duplicated: under another day, under another hash, in another folder, at the top.
    let json = small.get(&small.manifest_of(1)).await;
    let day = object(1).replace("day=2023-11-15", "day=2023-11-16");
    assert_ne!(day, object(1));
    let hash = object(1).replace(&object(1)[object(1).len() - 12..], "00000000.zst");
    let folder = object(1).replace("/part=", "/copy/part=");
    let top = "part.zst".to_owned();
    let chain = object(1).replace("chain=1337", "chain=01337");
    for copy in [day, hash, folder, top, chain] {
        small.put(&copy, a.clone()).await;
        small.put(&copy.replace(".zst", ".json"), json.clone()).await;
        let report = small.full().await;
        assert!(!report.is_clean(), "{copy}");
        small.remove(&copy).await;
        small.remove(&copy.replace(".zst", ".json")).await;
    }
    clean().await;

    // Foreign: whole and well named, but of another chain's history.
    let other: Vec<Block> = {
        let mut other = chain::opaque(0, 30, 10);
        for block in &mut other {
            block.meta.hash.0[31] ^= 1;
            if block.meta.height > 0 {
                block.meta.parent_hash.0[31] ^= 1;
            }
        }
        other
    };
    let fork = self::small(&other, Codec::Opaque, 5).await;
    let theirs = fork.parts[1].locator.key.clone();
    assert_ne!(theirs, object(1));
    small.put(&theirs, fork.get(&theirs).await).await;
    small.put(&fork.manifest_of(1), fork.get(&fork.manifest_of(1)).await).await;
    let report = small.full().await;
    let overlap = |finding: &Finding| matches!(finding, Finding::Overlap { .. });
    assert!(report.findings.iter().any(overlap), "{report:?}");
    // In the place of ours: it does not link.
    small.remove(&object(1)).await;
    small.remove(&small.manifest_of(1)).await;
    let report = small.full().await;
    let broken = |finding: &Finding| matches!(finding, Finding::BrokenLink { .. });
    assert_eq!(report.findings.iter().filter(|finding| broken(finding)).count(), 2, "{report:?}");
}

/// What hashes alone cannot find: a part that was made with a wrong block in it.
#[tokio::test]
async fn a_part_with_a_false_block_is_found_by_the_full_depth() {
    let mut blocks = chain::evm(14);
    let (store, archive) = memory();
    let stage = tempfile::tempdir().unwrap();
    // The receipts are not in the header's own bytes, so a writer that checks hashes takes it.
    let wrong = blocks[1..].iter().position(|block| !block.payloads.receipts.is_empty()).unwrap();
    let wrong = 1 + wrong as u64;
    let receipts = &mut blocks[usize::try_from(wrong).unwrap()].payloads.receipts;
    let last = receipts.len() - 1;
    receipts[last] ^= 1;
    let parts =
        archive_all(&archive, options(stage.path(), Codec::Evm, 100), &blocks).await.unwrap();
    drop(store);
    assert!(verify(&archive, Depth::Hashes).await.is_clean());
    let report = verify(&archive, Depth::Full).await;
    assert_eq!(report.found, 1, "{report:?}");
    assert!(archive.read_back(&parts[1], Check::Hash).await.is_ok());
    assert!(archive.read_back(&parts[1], Check::Full).await.is_err());
    assert!(archive.fetch_block(&parts[1], wrong, Check::Full).await.is_err());
    assert!(archive.fetch_block(&parts[1], wrong + 1, Check::Full).await.is_ok());
}

#[tokio::test]
async fn a_node_reads_back_only_what_it_was_told() {
    let small = small(&chain::opaque(0, 20, 10), Codec::Opaque, 5).await;
    let part = small.parts[1].clone();
    assert!(small.archive.read_back(&part, Check::Full).await.is_ok());
    let lies: [fn(&mut Part); 7] = [
        |part| part.first += 1,
        |part| part.last -= 1,
        |part| part.parent_hash.0[0] ^= 1,
        |part| part.last_hash.0[0] ^= 1,
        |part| part.sha256 = "0".repeat(64),
        |part| part.size += 1,
        |part| part.locator.key = "../../etc/passwd".to_owned(),
    ];
    for lie in lies {
        let mut wrong = part.clone();
        lie(&mut wrong);
        assert!(small.archive.read_back(&wrong, Check::Framing).await.is_err(), "{wrong:?}");
    }
}

#[tokio::test]
async fn what_cut_off_writes_left_is_told_and_swept_and_no_foreign_name_hides_behind_a_number() {
    let dir = tempfile::tempdir().unwrap();
    let stage = tempfile::tempdir().unwrap();
    let archive = chain::directory(dir.path());
    let blocks = chain::opaque(0, 20, 10);
    let options = options(stage.path(), Codec::Opaque, 5);
    let parts = archive_all(&archive, options.clone(), &blocks[..15]).await.unwrap();
    let left = |key: &str, bytes: &[u8]| {
        let path = dir.path().join(key);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let (there, object) = (parts[0].locator.key.as_str(), parts[1].locator.key.clone());
    let json = object.replace(".zst", ".json");
    let young = object.replace(&object[object.len() - 12..], "00000000.zst");
    let ours = [
        left(&format!("{there}#1"), b"12345"),
        left(&format!("{json}#2"), b"123"),
        left(&format!("{young}#1"), b"1"),
    ];
    let report = verify(&archive, Depth::Full).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.leftovers.files, report.leftovers.bytes), (3, 9));
    // Those whose name is there go when an archiver comes, the others when they are old.
    archive_all(&archive, options.clone(), &blocks).await.unwrap();
    let is_there: Vec<bool> = ours.iter().map(|path| path.exists()).collect();
    assert_eq!(is_there, [false, false, true]);
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_hours(25);
    std::fs::File::open(&ours[2]).unwrap().set_modified(long_ago).unwrap();
    archive_all(&archive, options, &blocks).await.unwrap();
    assert!(!ours[2].exists());

    let day = there.rsplit_once('/').unwrap().0.to_owned();
    for foreign in ["notes#1".to_owned(), format!("{day}/notes#1"), format!("{there}x#1")] {
        let path = left(&foreign, b"x");
        let report = verify(&archive, Depth::Quick).await;
        assert_eq!(report.findings, [Finding::Foreign { key: foreign }]);
        std::fs::remove_file(path).unwrap();
    }
}

#[tokio::test]
async fn an_unlisted_part_that_is_not_whole_is_damaged_and_stops_an_archiver_by_its_name() {
    let blocks = chain::opaque(0, 15, 10);
    for last in [false, true] {
        let small = small(&blocks, Codec::Opaque, 5).await;
        let at = if last { small.parts.len() - 1 } else { 1 };
        let (object, manifest) = (small.parts[at].locator.key.clone(), small.manifest_of(at));
        let whole = small.get(&object).await;
        small.remove(&manifest).await;
        let mut flipped = whole.to_vec();
        flipped[whole.len() / 2] ^= 1;
        let cut = whole.slice(..whole.len() / 2);
        for bytes in [Bytes::from(flipped), cut] {
            small.put(&object, bytes).await;
            for depth in [Depth::Hashes, Depth::Full] {
                let report = verify(&small.archive, depth).await;
                let damaged = |finding: &Finding| matches!(finding, Finding::Damaged { key, .. } if *key == object);
                assert!(report.findings.iter().any(damaged), "{report:?}");
                assert_eq!(report.unlisted, None);
            }
            let stage = tempfile::tempdir().unwrap();
            let options = options(stage.path(), Codec::Opaque, 5);
            let error = archive_all(&small.archive, options, &blocks).await.unwrap_err();
            let told = error.to_string();
            assert!(told.contains("remove that object") && told.contains(&object), "{told}");
        }
        small.put(&object, whole).await;
        let found = small.full().await.found;
        assert_eq!(found, if last { 0 } else { 2 }, "it has no manifest, and leaves a gap");
    }
}
