//! The closed loop against a real S3 service, which the environment names: `make e2e-s3`.

use crate::indexed::{Bench, archive};
use crate::tool::ask;

#[test]
#[ignore = "needs an S3 service: `make e2e-s3`"]
fn a_chain_is_archived_in_a_bucket_proved_pruned_and_fetched_again() {
    let base = std::env::var("SECATEUR_TEST_S3_URL").expect("SECATEUR_TEST_S3_URL");
    // A prefix of its own: nothing here deletes, and an archive is one chain's.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let url = format!("{}/{}", base.trim_end_matches('/'), now.as_nanos());
    let mut bench = Bench::start(&format!("[archive]\nurl = \"{url}\"\nread_through = true\n"), 4);
    let blocks = bench.grow(100);
    bench.index("index", &format!("--archive {url} --part-blocks 30 --once")).ends(0);
    let proved = archive(&url, "verify --full --upto 89 --json").ends(0).json();
    assert_eq!(proved["parts"], 3);
    assert_eq!(bench.prune(5), Some(89));
    let fetched = archive(&url, "fetch 40 --json").ends(0).json();
    assert_eq!(fetched["hash"], blocks[40].meta.hash.to_string());
    assert!(fetched["read_bytes"].as_u64().unwrap() <= 2 << 20);
    assert_eq!(ask(&bench.data(), "status")["archived"], 89);
    let into = bench.path("restored");
    archive(&url, &format!("restore 0..89 --into {}", into.display())).ends(0);
    assert_eq!(crate::tool::open_store(&into).get_block(61).unwrap(), blocks[61]);
    println!("archived in {url}");
}
