//! A cable between two nodes that can be cut: a proxy on a loopback port.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub struct Cable {
    pub url: String,
    whole: watch::Sender<bool>,
    _pumps: JoinSet<()>,
}

impl Cable {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let whole = watch::Sender::new(true);
        let mut pumps = JoinSet::new();
        let state = whole.subscribe();
        pumps.spawn(async move {
            let mut sockets = JoinSet::new();
            loop {
                let Ok((socket, _)) = listener.accept().await else { return };
                // While it is cut, who connects is hung up on.
                if *state.borrow() {
                    sockets.spawn(pump(socket, target, state.clone()));
                }
            }
        });
        Self { url, whole, _pumps: pumps }
    }

    pub fn cut(&self) {
        self.whole.send_replace(false);
    }

    pub fn heal(&self) {
        self.whole.send_replace(true);
    }
}

async fn pump(mut near: TcpStream, to: SocketAddr, mut whole: watch::Receiver<bool>) {
    let Ok(mut far) = TcpStream::connect(to).await else { return };
    tokio::select! {
        _ = whole.wait_for(|whole| !whole) => {}
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
    }
}
