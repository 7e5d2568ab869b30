//! The seam without sockets: within a process, and on an embedder's own channel.

use std::sync::Arc;

use futures_util::StreamExt as _;
use secateur_sidecar::gossip::{
    EnvelopeError, Gossip, Handoff, InProcess, Kind, Message, Verdict, check_proposal_part,
};

use crate::book::{Book, message, notice_with};

#[tokio::test]
async fn nodes_in_one_process_hear_each_other_unless_they_are_cut() {
    let net = InProcess::new();
    let books: Vec<_> = (0..4).map(|_| Book::new((1..=300).map(|height| (height, 1)))).collect();
    let names = ["a", "b", "c", "d"];
    let join = |n: usize| net.join(names[n], Some(Arc::clone(&books[n]) as _));
    let nodes: Vec<_> = (0..4).map(join).collect();
    let mut heard = nodes[1].subscribe().into_stream();
    net.isolate("d");
    net.cut("a", "c");
    for height in 1..=300 {
        books[0].put(height, 0);
        let delivery = nodes[0].broadcast(message(height, 0)).await.unwrap();
        assert_eq!(delivery.acked, ["b"]);
        assert_eq!(delivery.waiting, ["c", "d"]);
    }
    assert_eq!(heard.next().await.unwrap().message, message(1, 0));
    // From one who has it, though not from its author.
    assert_eq!(nodes[2].catch_up().await, 300);
    assert_eq!(nodes[3].catch_up().await, 0);
    net.heal_all();
    assert_eq!(nodes[3].catch_up().await, 300);
    assert_eq!(nodes[3].catch_up().await, 0);
    let delivery = nodes[0].broadcast(message(1, 0)).await.unwrap();
    assert!(delivery.is_settled() && delivery.acked.len() == 3);
    // One that comes back has its notices, not its memory of what was said.
    let again = join(3);
    let delivery = nodes[0].broadcast(message(1, 0)).await.unwrap();
    assert!(delivery.is_settled());
    assert_eq!((again.counts().taken, again.counts().duplicates), (0, 1));
}

#[tokio::test]
async fn two_nodes_in_one_process_are_healed_alone() {
    let net = InProcess::new();
    let (book, other) = (Book::new([(1, 1)]), Book::new([(1, 1)]));
    let a = net.join("a", Some(Arc::clone(&book) as _));
    let _b = net.join("b", Some(Arc::clone(&other) as _));
    net.cut("b", "a");
    assert_eq!(a.broadcast(message(1, 0)).await.unwrap().waiting, ["b"]);
    net.heal("a", "b");
    assert!(a.broadcast(message(1, 0)).await.unwrap().is_settled());
    assert!(other.has(1, 0));
}

#[tokio::test]
async fn an_embedder_carries_the_bytes_and_a_notice_is_refused_in_a_proposal_part() {
    let book = Book::new([(1, 2)]);
    let (here, mut outgoing) = Handoff::new(None);
    let (there, _unused) = Handoff::new(Some(Arc::clone(&book) as _));
    let mut heard = there.subscribe();
    let delivery = here.broadcast(message(1, 0)).await.unwrap();
    assert!(!delivery.confirms && !delivery.is_settled());
    let bytes = outgoing.next().await.unwrap();
    let from = Some("embedder".to_owned());
    assert_eq!(there.receive(from.clone(), bytes.clone()).await, Verdict::New);
    assert_eq!(there.receive(from.clone(), bytes.clone()).await, Verdict::Known);
    assert_eq!(heard.next().await.unwrap().from, from);
    let misplaced = EnvelopeError::Misplaced { found: Kind::Notice, wanted: Kind::ProposalPart };
    assert_eq!(check_proposal_part(&bytes), Err(misplaced.clone()));
    assert_eq!(Message::decode_as(Kind::ProposalPart, &bytes), Err(misplaced));
    let part = Message::new(Kind::ProposalPart, &b"part"[..]).unwrap().encode();
    let verdict = there.receive(None, part).await;
    assert_eq!(verdict, Verdict::Refused("misplaced".to_owned()));
    let bad = Message::notice(notice_with(1, 1, b"bad")).unwrap().encode();
    assert_eq!(there.receive(None, bad).await, Verdict::Refused("signature".to_owned()));
    drop(outgoing);
    assert!(here.broadcast(message(1, 1)).await.is_err());
}
