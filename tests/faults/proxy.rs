//! What lies between a sidecar and its database, and can fail: cut, silent, or leading elsewhere.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A listener that forwards to a port of this machine.
pub struct Proxy {
    port: u16,
    way: Arc<watch::Sender<Way>>,
}

#[derive(Clone, Copy, Debug)]
struct Way {
    target: u16,
    /// Nothing is forwarded, and nothing is closed.
    silent: bool,
    /// Connections of an earlier one are closed.
    generation: u64,
}

impl Proxy {
    pub async fn to(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (way, ways) = watch::channel(Way { target, silent: false, generation: 0 });
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(forward(near, ways.clone()));
            }
        });
        Self { port, way: Arc::new(way) }
    }

    /// The URL of a database behind it.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Closes every connection.
    pub fn cut(&self) {
        self.way.send_modify(|way| way.generation += 1);
    }

    /// Forwards nothing more; what was sent meanwhile is forwarded once it does again.
    pub fn silent(&self, silent: bool) {
        self.way.send_modify(|way| way.silent = silent);
    }

    /// Leads to another port from now on, and closes every connection to the one before.
    pub fn lead_to(&self, target: u16) {
        self.way.send_modify(|way| (way.target, way.generation) = (target, way.generation + 1));
    }
}

async fn forward(near: TcpStream, mut ways: watch::Receiver<Way>) {
    let begun = *ways.borrow_and_update();
    if ways.wait_for(|way| !way.silent || way.generation != begun.generation).await.is_err() {
        return;
    }
    let far = SocketAddr::from((Ipv4Addr::LOCALHOST, ways.borrow_and_update().target));
    let Ok(far) = TcpStream::connect(far).await else { return };
    let generation = ways.borrow().generation;
    let ((near_reads, near_writes), (far_reads, far_writes)) = (near.into_split(), far.into_split());
    let there = tokio::spawn(pump(near_reads, far_writes, ways.clone(), generation));
    pump(far_reads, near_writes, ways, generation).await;
    // What the sidecar has sent before it went away still arrives.
    let _ = there.await;
}

/// Forwards one direction until either end closes or the way is cut.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut ways: watch::Receiver<Way>, generation: u64) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            cut = ways.wait_for(|way| way.generation != generation) => {
                drop(cut);
                return;
            }
        };
        let Ok(read @ 1..) = read else { return };
        if !matches!(ways.wait_for(|way| !way.silent || way.generation != generation).await, Ok(way) if way.generation == generation)
        {
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
