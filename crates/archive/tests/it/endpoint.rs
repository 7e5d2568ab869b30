//! Any S3 service that is given by the environment; `make e2e-s3` runs this.

use secateur_archive::{Archive, ArchiveUrl, Check, Codec, Depth, Retry, S3Settings, Settings};

use crate::chain::{self, CHAIN, archive_all, options};
use crate::whole::verify;

#[tokio::test]
#[ignore = "needs SECATEUR_TEST_S3_URL and the service's credentials in the environment"]
async fn a_chain_goes_to_the_service_of_the_environment_and_comes_back() {
    let base = std::env::var("SECATEUR_TEST_S3_URL").expect("SECATEUR_TEST_S3_URL is not set");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let url = format!("{}/run-{}", base.trim_end_matches('/'), now.as_millis());
    let url: ArchiveUrl = url.parse().unwrap();
    let allow_http = std::env::var_os("SECATEUR_E2E_ALLOW_HTTP").is_some();
    let s3 = S3Settings { allow_http, ..S3Settings::default() };
    let archive = Archive::open(&url, &Settings { s3, retry: Retry::default() }).unwrap();
    println!("the archive is {}", archive.provider());

    let blocks = chain::evm(60);
    let stage = tempfile::tempdir().unwrap();
    let options_evm = options(stage.path(), Codec::Evm, 25);
    let half = archive_all(&archive, options_evm.clone(), &blocks[..30]).await.unwrap();
    let rest = archive_all(&archive, options_evm, &blocks).await.unwrap();
    assert_eq!((half.len(), rest.len()), (3, 2));
    for part in half.iter().chain(&rest) {
        archive.read_back(part, Check::Full).await.unwrap();
        let block = archive.fetch_block(part, part.last, Check::Full).await.unwrap();
        assert_eq!(block, blocks[usize::try_from(part.last).unwrap()]);
    }
    assert!(verify(&archive, Depth::Full).await.is_clean());
    assert_eq!(archive.chains().await.unwrap(), [CHAIN]);

    // More than one piece, under another chain.
    let stage = tempfile::tempdir().unwrap();
    let mut large = options(stage.path(), Codec::Opaque, 12);
    large.chain_id = CHAIN + 1;
    let blocks = chain::opaque(1, 12, 2_000_000);
    large.first = 1;
    let parts = archive_all(&archive, large, &blocks).await.unwrap();
    assert!(parts[0].size > 16 << 20);
    let block = archive.fetch_block(&parts[0], 5, Check::Full).await.unwrap();
    assert!(block == blocks[4]);
}
