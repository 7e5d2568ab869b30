//! The mesh over real sockets: four nodes, partitions, restarts, and what is asked for afterwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use secateur_sidecar::gossip::{
    Delivery, Gossip as _, GossipError, Mesh, MeshOptions, Message, ServeOptions,
};
use tokio::net::TcpListener;

use crate::book::{Book, message, notice, notice_with};
use crate::nodes::{isolate, nodes, options, peer, serve, url};

fn acked(delivery: &Delivery) -> Vec<&str> {
    delivery.acked.iter().map(String::as_str).collect()
}

#[tokio::test]
async fn a_notice_reaches_every_peer_and_each_says_so() {
    let nodes = nodes(4, &[(1, 2)]).await;
    let mut heard: Vec<_> = nodes.iter().map(|node| node.mesh.subscribe()).collect();
    nodes[0].book.put(1, 0);
    let delivery = nodes[0].broadcast(message(1, 0)).await;
    assert_eq!(acked(&delivery), ["node1", "node2", "node3"]);
    assert!(delivery.is_settled() && delivery.refused.is_empty());
    for (node, heard) in nodes.iter().zip(&mut heard).skip(1) {
        assert!(node.book.has(1, 0));
        let received = heard.next().await.unwrap();
        assert_eq!(received.message, message(1, 0));
        assert_eq!(received.from.as_deref(), Some("127.0.0.1"));
        assert_eq!(node.mesh.counts().taken, 1);
    }
    assert!(heard[0].try_next().is_none(), "its own does not come back");
}

#[tokio::test]
async fn a_node_that_was_cut_off_asks_for_what_it_missed() {
    let decided: Vec<_> = (1..=5).map(|height| (height, 1)).collect();
    let nodes = nodes(4, &decided).await;
    isolate(&nodes, 3, true).await;
    for height in 1..=5 {
        nodes[0].book.put(height, 0);
        let delivery = nodes[0].broadcast(message(height, 0)).await;
        assert_eq!(acked(&delivery), ["node1", "node2"], "{height}");
        assert_eq!(delivery.waiting, ["node3"]);
        assert!(!delivery.is_settled());
    }
    assert_eq!(nodes[3].book.len(), 0);
    isolate(&nodes, 3, false).await;
    // Nobody says anything again: it asks on connecting.
    nodes[3].book.wait_for(5).await;
    // And who says it again is told that it is there.
    let delivery = nodes[0].broadcast(message(5, 0)).await;
    assert!(delivery.is_settled(), "{delivery:?}");
}

#[tokio::test]
async fn a_node_that_is_no_peer_of_the_author_gets_a_notice_by_asking() {
    let first = Book::new([(1, 1)]);
    let author = Mesh::start(&options(), Some(Arc::clone(&first) as _)).unwrap();
    let author_at = serve(&author, &ServeOptions::default()).await;
    first.put(1, 0);
    let chain = |to, name: &str| {
        let book = Book::new([(1, 1)]);
        let options = MeshOptions {
            peers: vec![peer(name, &url(to))],
            ask_every: Duration::from_millis(20),
            ..options()
        };
        let mesh = Mesh::start(&options, Some(Arc::clone(&book) as _)).unwrap();
        (book, mesh)
    };
    let (middle, middle_mesh) = chain(author_at, "author");
    let middle_at = serve(&middle_mesh, &ServeOptions::default()).await;
    let (last, last_mesh) = chain(middle_at, "middle");
    let mut heard = last_mesh.subscribe();
    middle.wait_for(1).await;
    last.wait_for(1).await;
    assert_eq!(heard.next().await.unwrap().from.as_deref(), Some("middle"));
    assert_eq!(last_mesh.counts().taken, 1);
}

#[tokio::test]
async fn what_comes_again_is_known_and_comes_to_readers_once() {
    let nodes = nodes(3, &[(1, 1)]).await;
    let mut heard = nodes[2].mesh.subscribe();
    for _ in 0..3 {
        for node in &nodes[..2] {
            node.book.put(1, 0);
            assert!(node.broadcast(message(1, 0)).await.is_settled());
        }
    }
    let counts = nodes[2].mesh.counts();
    assert_eq!((counts.taken, counts.duplicates, counts.refused), (1, 5, 0));
    assert!(heard.try_next().is_some() && heard.try_next().is_none());
}

#[tokio::test]
async fn a_wrong_notice_is_refused_by_name_and_an_early_one_waits() {
    let nodes = nodes(2, &[(1, 1)]).await;
    let bad = Message::notice(notice_with(1, 0, b"bad")).unwrap();
    for _ in 0..2 {
        let delivery = nodes[0].broadcast(bad.clone()).await;
        assert_eq!(delivery.refused, [("node1".to_owned(), "signature".to_owned())]);
        // It was answered for good; saying it again is no use.
        assert!(delivery.is_settled());
    }
    let early = nodes[0].broadcast(message(2, 0)).await;
    assert_eq!((early.waiting.len(), early.acked.len()), (1, 0));
    nodes[1].book.decide(2, 1);
    let again = nodes[0].broadcast(message(2, 0)).await;
    assert_eq!(acked(&again), ["node1"]);
    let counts = nodes[1].mesh.counts();
    assert_eq!((counts.refused, counts.duplicates, counts.later, counts.taken), (1, 1, 1, 1));
}

#[tokio::test]
async fn a_node_that_is_started_again_gets_what_was_said_meanwhile() {
    let nodes = nodes(3, &[(1, 1), (2, 1)]).await;
    let address = nodes[2].address;
    nodes[2].mesh.stop().await;
    assert!(matches!(nodes[2].mesh.broadcast(message(1, 0)).await, Err(GossipError::Stopped)));
    nodes[0].book.put(1, 0);
    let delivery = nodes[0].broadcast(message(1, 0)).await;
    assert_eq!(acked(&delivery), ["node1"]);
    assert_eq!(delivery.waiting, ["node2"]);
    // The same port, the same notices, a new process.
    let listener = TcpListener::bind(address).await.unwrap();
    let peers = vec![peer("node0", &url(nodes[0].address)), peer("node1", &url(nodes[1].address))];
    let book = Arc::clone(&nodes[2].book);
    let again = MeshOptions { peers, ..options() };
    let again = Mesh::start(&again, Some(Arc::clone(&book) as _)).unwrap();
    again.serve(listener, &ServeOptions::default()).unwrap();
    book.wait_for(1).await;
    assert!(nodes[0].mesh.wait_for("node2", true).await);
    nodes[0].book.put(2, 0);
    let delivery = nodes[0].broadcast(message(2, 0)).await;
    assert_eq!(acked(&delivery), ["node1", "node2"]);
    assert!(again.broadcast(message(2, 0)).await.unwrap().is_settled());
}

/// More than fits on a page: many heights, some of which nobody has, and one with many notices.
#[tokio::test]
async fn asking_goes_on_page_by_page_past_what_nobody_has() {
    let holder = Book::new([]);
    for height in 0..2_000 {
        if height >= 600 {
            holder.put(height, 0);
        }
    }
    for index in 0..3_000 {
        holder.put(1_500, index);
    }
    let mesh = Mesh::start(&options(), Some(Arc::clone(&holder) as _)).unwrap();
    let at = serve(&mesh, &ServeOptions::default()).await;
    let decided = (0..2_000).map(|height| (height, if height == 1_500 { 3_000 } else { 1 }));
    let book = Book::new(decided);
    let asks = MeshOptions { peers: vec![peer("holder", &url(at))], ..options() };
    let asker = Mesh::start(&asks, Some(Arc::clone(&book) as _)).unwrap();
    let wanted = 1_400 + 2_999;
    book.wait_for(wanted).await;
    assert_eq!(book.len(), wanted);
    // Asked again, by hand: nothing is new, and the lowest heights are still lacking.
    assert!(asker.wait_for("holder", true).await);
    assert_eq!(asker.catch_up().await, 0);
    holder.put(7, 0);
    assert_eq!(asker.catch_up().await, 1);
    assert!(book.has(7, 0));
}

#[tokio::test]
async fn who_reads_too_slowly_loses_the_oldest_and_nobody_waits() {
    let decided: Vec<_> = (0..1_500).map(|height| (height, 1)).collect();
    let nodes = nodes(2, &decided).await;
    let mut slow = nodes[1].mesh.subscribe();
    let mut quick = nodes[1].mesh.subscribe();
    for height in 0..1_500 {
        let delivery = nodes[0].broadcast(message(height, 0)).await;
        assert_eq!(acked(&delivery), ["node1"]);
        assert_eq!(quick.next().await.unwrap().message.content(), &notice(height, 0));
    }
    let first = slow.next().await.unwrap();
    assert_eq!(first.message, message(1_500 - 1_024, 0));
    assert_eq!((slow.lost(), quick.lost()), (1_500 - 1_024, 0));
    assert_eq!(nodes[1].mesh.counts().lost, 1_500 - 1_024);
}

#[tokio::test]
async fn a_peer_that_never_answers_does_not_stop_the_others() {
    let good = Book::new([(1, 1), (2, 1)]);
    let good_mesh = Mesh::start(&options(), Some(Arc::clone(&good) as _)).unwrap();
    let good_at = serve(&good_mesh, &ServeOptions::default()).await;
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_at = silent.local_addr().unwrap();
    let holding = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((socket, _)) = silent.accept().await {
            held.push(socket);
        }
    });
    let peers = vec![
        peer("silent", &url(silent_at)),
        peer("nobody", "http://127.0.0.1:1"),
        peer("good", &url(good_at)),
    ];
    let timeout = Duration::from_millis(700);
    let mesh = Mesh::start(&MeshOptions { peers, timeout, ..options() }, None).unwrap();
    assert!(mesh.wait_for("good", true).await);
    for height in [1, 2] {
        let began = Instant::now();
        let delivery = mesh.broadcast(message(height, 0)).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!(acked(&delivery), ["good"]);
        assert_eq!(delivery.waiting, ["silent", "nobody"]);
    }
    assert_eq!(mesh.counts().unanswered, 4);
    let states: Vec<_> = mesh.peers().into_iter().map(|state| state.connected).collect();
    assert_eq!(states, [false, false, true]);
    holding.abort();
}
