//! Nodes of a mesh on loopback ports, with a cable for each way between two of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use secateur_sidecar::gossip::{
    Delivery, Gossip as _, Mesh, MeshOptions, Message, Peer, ServeOptions,
};
use tokio::net::TcpListener;

use crate::book::Book;
use crate::cable::Cable;

/// Quick to come back, and asking only on connecting unless a test says otherwise.
pub fn options() -> MeshOptions {
    MeshOptions {
        // A busy machine is not a fault.
        timeout: Duration::from_secs(20),
        ask_every: Duration::from_hours(1),
        first_pause: Duration::from_millis(10),
        max_pause: Duration::from_millis(100),
        ..MeshOptions::default()
    }
}

pub fn peer(name: &str, url: &str) -> Peer {
    Peer { name: name.to_owned(), url: url.to_owned() }
}

pub fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// A node that serves on a port of its own.
pub async fn serve(mesh: &Mesh, options: &ServeOptions) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    mesh.serve(listener, options).unwrap();
    address
}

pub struct Node {
    pub name: String,
    pub book: Arc<Book>,
    pub mesh: Mesh,
    pub address: SocketAddr,
    /// To each other node.
    pub cables: Vec<(String, Cable)>,
}

impl Node {
    pub async fn broadcast(&self, message: Message) -> Delivery {
        self.mesh.broadcast(message).await.unwrap()
    }

    pub async fn connected(&self) {
        for (peer, _) in &self.cables {
            assert!(self.mesh.wait_for(peer, true).await);
        }
    }
}

/// So many nodes, each a peer of each other one; `decided` is what each of them knows.
pub async fn nodes(count: usize, decided: &[(u64, u32)]) -> Vec<Node> {
    let mut listeners = Vec::new();
    for _ in 0..count {
        listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let addresses: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
    let name = |n: usize| format!("node{n}");
    let mut nodes = Vec::new();
    for (n, listener) in listeners.into_iter().enumerate() {
        let mut cables = Vec::new();
        for (other, address) in addresses.iter().enumerate().filter(|(other, _)| *other != n) {
            cables.push((name(other), Cable::to(*address).await));
        }
        let peers = cables.iter().map(|(peer_name, cable)| peer(peer_name, &cable.url)).collect();
        let book = Book::new(decided.iter().copied());
        let options = MeshOptions { peers, seed: n as u64, ..options() };
        let mesh = Mesh::start(&options, Some(Arc::clone(&book) as _)).unwrap();
        mesh.serve(listener, &ServeOptions::default()).unwrap();
        nodes.push(Node { name: name(n), book, mesh, address: addresses[n], cables });
    }
    for node in &nodes {
        node.connected().await;
    }
    nodes
}

/// Cuts every cable from and to a node, or heals them.
pub async fn isolate(nodes: &[Node], which: usize, cut: bool) {
    let alone = nodes[which].name.clone();
    for (n, node) in nodes.iter().enumerate() {
        for (to, cable) in &node.cables {
            if n == which || *to == alone {
                if cut { cable.cut() } else { cable.heal() }
            }
        }
    }
    for (n, node) in nodes.iter().enumerate() {
        for (to, _) in &node.cables {
            if n == which || *to == alone {
                assert!(node.mesh.wait_for(to, !cut).await);
            }
        }
    }
}
