//! Gossipsub between nodes on loopback ports.

use std::sync::Arc;
use std::time::Duration;

use secateur_sidecar::gossip::{Gossip as _, GossipError, Message, Swarm, SwarmOptions};

use crate::book::{Book, message, notice_with};

const PATIENCE: Duration = Duration::from_mins(1);

fn options(dial: Vec<String>) -> SwarmOptions {
    SwarmOptions {
        listen: vec!["/ip4/127.0.0.1/tcp/0".to_owned()],
        dial,
        topic: "secateur/notices/7".to_owned(),
        redial_every: Duration::from_millis(100),
    }
}

/// Three in a row: the last one hears the first one only through the one between them.
#[tokio::test]
async fn a_notice_is_passed_on_only_if_it_is_right() {
    let books: Vec<_> = (0..3).map(|_| Book::new([(1, 3)])).collect();
    let start = |n: usize, dial| Swarm::start(&options(dial), Some(Arc::clone(&books[n]) as _));
    let first = start(0, vec![]).unwrap();
    let middle = start(1, vec![first.listening().await.unwrap()]).unwrap();
    let last = start(2, vec![middle.listening().await.unwrap()]).unwrap();
    let joined = async {
        assert!(first.wait_for_peers(1).await);
        assert!(middle.wait_for_peers(2).await);
        assert!(last.wait_for_peers(1).await);
    };
    tokio::time::timeout(PATIENCE, joined).await.expect("they find each other");
    let mut heard = last.subscribe();
    let bad = Message::notice(notice_with(1, 0, b"bad")).unwrap();
    let delivery = first.broadcast(bad).await.unwrap();
    assert!(!delivery.confirms && !delivery.is_settled());
    // Said again until it comes through: who listens to whom takes a moment to be known.
    let said = async {
        loop {
            first.broadcast(message(1, 1)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let came = async {
        let received = heard.next().await.unwrap();
        assert_eq!(received.message, message(1, 1));
    };
    tokio::select! {
        () = came => {}
        () = said => {}
        () = tokio::time::sleep(PATIENCE) => panic!("it did not come"),
    }
    assert!(books[1].has(1, 1) && books[2].has(1, 1));
    assert_eq!(last.counts().refused, 0, "what is wrong was passed on");
    assert!(!books[1].has(1, 0));
}

#[tokio::test]
async fn an_address_that_is_none_is_refused() {
    let error = Swarm::start(&options(vec!["127.0.0.1:1".to_owned()]), None).unwrap_err();
    assert!(matches!(error, GossipError::Invalid { .. }), "{error}");
}
