//! An index with a consumer's token: it reads, acknowledges what it has and what is archived, and may
//! change nothing else.

use secateur_proto::history::v1 as pb;

use crate::blobs_rig::write_private;
use crate::indexed::Bench;

const CONSUMER: &str = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";

/// A node that keeps everything which is not archived, and knows a consumer's token.
fn bench() -> (Bench, tempfile::TempDir) {
    let secrets = tempfile::tempdir().unwrap();
    let tokens = secrets.path().join("consumers");
    write_private(&tokens, &format!("{CONSUMER}\n"));
    let config = format!(
        "[auth]\nconsumer_tokens = \"{}\"\n[archive]\nurl = \"ARCHIVE\"\n",
        tokens.display()
    );
    (Bench::start(&config, 2), secrets)
}

impl Bench {
    /// The flags of a worker that shows a consumer's token and knows nothing of the data directory.
    fn consumer(&self, secrets: &tempfile::TempDir, more: &str) -> crate::tool::Run {
        let token = secrets.path().join("token");
        write_private(&token, CONSUMER);
        let flags =
            format!("--source http://{} --token-file {} {more}", self.node.grpc, token.display());
        let nowhere = std::path::Path::new("/nonexistent");
        crate::tool::run(nowhere, &self.words("index", &flags))
    }
}

/// The worker's only way to acknowledge was a token that could also prune, roll back and append. With a
/// consumer's token everything that a worker does is done, parts included, once the consumer is there.
#[test]
fn an_index_and_its_archiver_work_with_a_consumers_token_once_the_consumer_is_registered() {
    let (mut bench, secrets) = bench();
    bench.grow(40);
    let archive = bench.archive();
    let more = format!("--consumer index --archive {archive} --part-blocks 10 --once");
    let refused = bench.consumer(&secrets, &more).ends(11);
    let refused = refused.complains("no hold of the consumer index");
    refused.complains("an administrator of the source");

    let named = |strength: pb::Strength| pb::RegisterConsumerRequest {
        name: "index".into(),
        strength: strength.into(),
    };
    let register = |strength| {
        let mut admin = bench.clients.admin.clone();
        bench.runtime.block_on(admin.register_consumer(named(strength))).unwrap();
    };
    register(pb::Strength::Soft);
    // A soft hold is less than a hard one that was asked for.
    bench.consumer(&secrets, &format!("{more} --hard")).ends(11).complains("no hard hold");
    bench.consumer(&secrets, &more).ends(0);
    register(pb::Strength::Hard);
    bench.consumer(&secrets, &format!("{more} --hard")).ends(0);
    let status = bench.runtime.block_on(bench.clients.status());
    assert_eq!(status.archived, Some(39));
    let holds = bench.clients.history.clone();
    let holds = bench.runtime.block_on(async move {
        holds.clone().list_holds(pb::ListHoldsRequest {}).await.unwrap().into_inner().holds
    });
    let hold = holds.iter().find(|hold| hold.name == "export:index").unwrap();
    assert_eq!((hold.limit, hold.strength()), (Some(39), pb::Strength::Hard));
}
