//! What goes wrong with validators over real sockets: partitions, providers that fail and lie,
//! processes that end between any two steps, dead proposers, lying signers.

use std::sync::Arc;

use secateur_sidecar::engine::Unpermitted;
use secateur_sidecar::notice::Signers;
use secateur_sidecar::{BlobState, SidecarError, Trust};
use secateur_store::Table;

use crate::validators::{Net, Rules, directory, id, term};
use crate::wrapped::{Does, Holds, Said, Wrapped, reached};

/// A net whose first validator has this provider, and says what it says through a tap.
async fn net_with(rules: Rules, count: usize, first: &Arc<Wrapped>, said: &Arc<Said>) -> Net {
    let (provider, said) = (Arc::clone(first), Arc::clone(said));
    Net::with(
        rules,
        count,
        Arc::new(move |n, usual| if n == 0 { Arc::clone(&provider) as _ } else { usual }),
        Arc::new(move |n, mesh| if n == 0 { said.tap(mesh) } else { mesh }),
    )
    .await
}

/// A directory of its own for what the first validator archives; the others read the same one.
fn wrapped(does: Does) -> (tempfile::TempDir, Arc<Wrapped>) {
    let dir = tempfile::tempdir().unwrap();
    let provider = Wrapped::new(directory(dir.path().to_owned()), does);
    (dir, provider)
}

async fn tried(net: &Net, height: u64) {
    let failed = |job: &secateur_sidecar::engine::Job| job.attempts > 0;
    net.at(0)
        .until("an attempt has failed", |store| {
            store.status(height).unwrap().blobs.iter().all(|b| b.job.as_ref().is_some_and(failed))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_validator_that_was_cut_off_holds_everything_and_prunes_once_it_is_back() {
    let net = Net::start(Rules::of(4), 4).await;
    net.isolate(3, true).await;
    for height in 1..=4 {
        net.decide(height, usize::try_from(height).unwrap() - 1, &[0, 1]).await;
    }
    net.finalize(4).await;
    for n in 0..3 {
        net.at(n).until_pruned(1..=3).await;
        assert_eq!(net.at(n).states(4), [BlobState::Pending; 2], "its proposer is cut off");
    }
    net.at(3).until_pruned([4]).await;
    assert_eq!(net.at(3).prune().heights, 0);
    for height in 1..=3 {
        assert_eq!(net.at(3).states(height), [BlobState::Pending; 2]);
        assert_eq!(net.at(3).store().get(height).unwrap().len(), 2);
    }
    net.isolate(3, false).await;
    for validator in net.all() {
        validator.until_pruned(1..=4).await;
    }
    net.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_is_down_or_gives_other_bytes_archives_nothing_until_it_is_right() {
    for does in [Does::Down, Does::GivesOthers] {
        let (_dir, provider) = wrapped(does);
        let net = net_with(Rules::of(2), 2, &provider, &Said::new(Holds::Nothing)).await;
        net.decide(1, 0, &[0, 1]).await;
        net.finalize(1).await;
        tried(&net, 1).await;
        for validator in net.all() {
            assert_eq!(validator.states(1), [BlobState::Pending; 2], "{does:?}");
            assert_eq!(validator.prune().heights, 0);
        }
        provider.set(Does::Right);
        for validator in net.all() {
            validator.until_pruned([1]).await;
        }
        net.verify();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blob_that_is_stuck_at_its_provider_does_not_hold_up_another() {
    let (_dir, provider) = wrapped(Does::StuckAt(1));
    let net = net_with(Rules::of(2), 2, &provider, &Said::new(Holds::Nothing)).await;
    net.decide(1, 0, &[0]).await;
    net.decide(2, 0, &[1]).await;
    net.finalize(2).await;
    for validator in net.all() {
        validator.until_pruned([2]).await;
        assert_eq!(validator.states(1), [BlobState::Pending]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_is_looked_for_and_not_put_again() {
    let (_dir, provider) = wrapped(Does::LosesReplies);
    let net = net_with(Rules::of(2), 2, &provider, &Said::new(Holds::Nothing)).await;
    net.decide(1, 0, &[0]).await;
    net.finalize(1).await;
    tried(&net, 1).await;
    for validator in net.all() {
        validator.until_pruned([1]).await;
    }
    assert_eq!(*provider.puts.borrow(), 1, "it was found");
}

/// I17, I20: whenever a proposer ends, it goes on after its restart and says the same bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposer_that_ends_between_any_two_steps_goes_on_and_says_the_same() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum After {
        Upload,
        Record,
        Signature,
        Broadcast,
    }
    for ends in [After::Upload, After::Record, After::Signature, After::Broadcast] {
        let stuck = if ends == After::Upload { Does::StuckAfterPut } else { Does::Right };
        let (_dir, provider) = wrapped(stuck);
        let said = Said::new(match ends {
            After::Signature => Holds::BeforeSending,
            After::Broadcast => Holds::AfterSending,
            After::Upload | After::Record => Holds::Nothing,
        });
        let mut net = net_with(Rules::of(2), 2, &provider, &said).await;
        if ends == After::Record {
            net.at(0).commits.crash_after(Table::Announcements);
        }
        net.decide(1, 0, &[0]).await;
        match ends {
            After::Upload => reached(&provider.puts, 1).await,
            After::Record => assert!(net.validators[0].as_mut().unwrap().has_failed().await),
            After::Signature | After::Broadcast => reached(&said.count, 1).await,
        }
        let records = |net: &Net| net.at(0).store().records(1, 0).unwrap();
        let before = records(&net);
        assert_eq!(before.is_empty(), ends == After::Upload, "{ends:?}");
        let told = said.notices.lock().len();
        assert_eq!(told > 0, matches!(ends, After::Signature | After::Broadcast));
        net.end(0, false).await;
        provider.set(Does::Right);
        *said.holds.lock() = Holds::Nothing;
        net.restart(0).await;
        net.finalize(1).await;
        for validator in net.all() {
            validator.until_pruned([1]).await;
        }
        // It is said until it is answered for, and that is noted.
        net.at(0)
            .until("it was answered", |store| store.summary().unwrap().announcements == 0)
            .await;
        assert!(before.is_empty() || records(&net) == before, "{ends:?}");
        let said = said.notices.lock().clone();
        assert!(said.len() > told, "{ends:?}");
        assert!(said.iter().all(|notice| *notice == said[0]), "{ends:?}: {said:?}");
        net.verify();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_what_is_archived_and_what_is_pruned() {
    let mut net = Net::start(Rules::of(2), 2).await;
    net.decide(1, 0, &[0, 1]).await;
    net.decide(2, 1, &[2]).await;
    net.finalize(1).await;
    for n in [0, 1] {
        net.at(n).until_pruned([1]).await;
        let archived = |store: &crate::validators::Store| store.summary().unwrap().pending == 0;
        net.at(n).until("all is archived", archived).await;
        let before = (net.at(n).status(1), net.at(n).status(2));
        net.end(n, true).await;
        net.restart(n).await;
        assert_eq!((net.at(n).status(1), net.at(n).status(2)), before);
        assert_eq!(net.at(n).states(2), [BlobState::Archived]);
        let gone = net.at(n).store().get(1).unwrap_err();
        assert!(matches!(gone, SidecarError::BlobsPruned { .. }), "{gone}");
        assert_eq!(net.at(n).store().get(2).unwrap().len(), 1);
    }
    net.finalize(2).await;
    for validator in net.all() {
        validator.until_pruned([2]).await;
    }
    net.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_notice_nothing_is_pruned() {
    let (_dir, provider) = wrapped(Does::Right);
    let said = Said::new(Holds::BeforeSending);
    let net = net_with(Rules::of(2), 2, &provider, &said).await;
    net.decide(1, 0, &[0]).await;
    net.finalize(1).await;
    reached(&said.count, 1).await;
    net.at(0).until_pruned([1]).await;
    assert_eq!(net.at(1).prune().heights, 0);
    assert_eq!(net.at(1).states(1), [BlobState::Pending]);
    assert_eq!(net.at(1).store().get(1).unwrap().len(), 1);
    assert_eq!(net.at(1).store().summary().unwrap().archival_lag(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_validators_of_the_height_are_believed() {
    let mut rules = Rules::of(1);
    rules.terms.extend([term(1, 0, Some(2)), term(2, 3, None)]);
    let net = Net::start(rules, 3).await;
    for (height, proposer) in [(1, 0), (2, 1), (3, 2), (4, 1)] {
        net.decide(height, proposer, &[0]).await;
    }
    net.finalize(4).await;
    for validator in net.all() {
        validator.until_pruned(1..=3).await;
    }
    // It has left the set: nobody would believe it, so it neither archives nor signs nor prunes.
    let held = |store: &crate::validators::Store| {
        let job = store.status(4).unwrap().blobs[0].job;
        job.is_some_and(|job| job.held == Some(Unpermitted::NotValidator))
    };
    net.at(1).until("it may not sign", held).await;
    for validator in net.all() {
        assert_eq!(validator.prune().heights, 0);
        assert_eq!(validator.states(4), [BlobState::Pending]);
    }
    // What it signed before is believed by all; that it was sent is noted a moment later.
    let said = |store: &crate::validators::Store| store.summary().unwrap().announcements == 0;
    net.at(1).until("all is announced", said).await;
    net.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_proposer_is_stood_in_for() {
    let (_dir, provider) = wrapped(Does::Down);
    let rules = Rules { signers: Signers::AnyValidatorAfter(2), ..Rules::of(3) };
    let mut net = net_with(rules, 3, &provider, &Said::new(Holds::Nothing)).await;
    net.decide(1, 0, &[0, 1]).await;
    tried(&net, 1).await;
    net.end(0, false).await;
    net.decide(2, 1, &[]).await;
    net.finalize(1).await;
    for validator in net.all() {
        assert_eq!(validator.prune().heights, 0, "it is too early");
        assert_eq!(validator.states(1), [BlobState::Pending; 2]);
    }
    net.decide(3, 1, &[]).await;
    for validator in net.all() {
        validator.until_pruned([1]).await;
        for blob in validator.status(1).blobs {
            assert_eq!(blob.records[0].record.signer, id(1));
        }
    }
    net.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_fetch_a_signer_that_lies_is_not_believed_until_a_copy_is_there() {
    let (_dir, liar) = wrapped(Does::Pretends);
    let archive = tempfile::tempdir().unwrap();
    let reader = Wrapped::new(directory(archive.path().to_owned()), Does::Right);
    let rules = Rules { trust: Trust::Fetch, ..Rules::of(2) };
    let (first, second) = (Arc::clone(&liar), Arc::clone(&reader));
    let provider_of =
        move |n, _| if n == 0 { Arc::clone(&first) as _ } else { Arc::clone(&second) as _ };
    let net = Net::with(rules, 2, Arc::new(provider_of), Arc::new(|_, mesh| mesh)).await;
    net.decide(1, 0, &[0]).await;
    net.finalize(1).await;
    reached(&reader.gets, 1).await;
    assert_eq!(net.at(1).states(1), [BlobState::Archived]);
    assert_eq!(net.at(1).prune().heights, 0);
    assert_eq!(net.at(1).store().get(1).unwrap().len(), 1);
    // Somebody puts a real copy where it was said to be.
    let locator = net.at(1).status(1).blobs[0].records[0].record.locators[0].clone();
    let path = archive.path().join(&locator.key);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, &net.at(1).store().get(1).unwrap()[0].blob).unwrap();
    net.finalize(1).await;
    net.at(1).until_pruned([1]).await;
    assert!(net.at(1).status(1).blobs[0].fetched_at.is_some());
    net.verify();
}
