//! What may stand between a sidecar and its database: something that stops forwarding, and something that hands one
//! connection of the database to several sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, watch};
use tokio::task::{JoinHandle, JoinSet};

/// The database of `url` through the port of a proxy.
pub(super) fn through(port: u16, database: &str) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/{database}?sslmode=disable")
}

/// A proxy that forwards until it is told to stop: then its connections stay open, and nothing comes through.
pub(super) struct Proxy {
    pub(super) port: u16,
    hanging: watch::Sender<bool>,
    open: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// In front of a port of this machine.
    pub(super) async fn before(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (hanging, hangs) = watch::channel(false);
        let open = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&open);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (hangs, counted) = (hangs.clone(), Arc::clone(&counted));
                counted.fetch_add(1, Ordering::SeqCst);
                connections.spawn(async move {
                    relay(client, target, hangs).await;
                    counted.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { port, hanging, open, task }
    }

    /// Stops forwarding, on what is open and on what will be.
    pub(super) fn hang(&self) {
        self.hanging.send_replace(true);
    }

    /// Forwards again: also what was kept back.
    pub(super) fn go_on(&self) {
        self.hanging.send_replace(false);
    }

    /// Connections that their clients have not closed.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(client: TcpStream, target: u16, hangs: watch::Receiver<bool>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = forward(from_client, to_server, hangs.clone()) => {}
        () = forward(from_server, to_client, hangs) => {}
    }
}

/// Reads on while it hangs, so that it notices who goes away.
async fn forward(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut hangs: watch::Receiver<bool>) {
    let mut kept: Vec<u8> = Vec::new();
    let mut buffer = [0_u8; 8_192];
    loop {
        let hanging = *hangs.borrow_and_update();
        if !hanging && !kept.is_empty() && to.write_all(&std::mem::take(&mut kept)).await.is_err() {
            return;
        }
        tokio::select! {
            read = from.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return,
                Ok(count) => kept.extend_from_slice(&buffer[..count]),
            },
            changed = hangs.changed() => if changed.is_err() { return },
        }
    }
}

/// A proxy that has one connection to the database, and hands it to whichever session has something to say: what poolers do
/// between transactions.
pub(super) struct Pooler {
    pub(super) port: u16,
    task: JoinHandle<()>,
}

impl Pooler {
    /// In front of a port of this machine.
    pub(super) async fn before(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            let shared: Arc<Mutex<Option<Shared>>> = Arc::default();
            let mut sessions = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                sessions.spawn(session(client, target, Arc::clone(&shared)));
            }
        });
        Self { port, task }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The connection, and what the database said when it was made.
struct Shared {
    server: TcpStream,
    greeting: Vec<u8>,
}

async fn session(client: TcpStream, target: u16, shared: Arc<Mutex<Option<Shared>>>) {
    let (mut from_client, mut to_client) = client.into_split();
    let Some(startup) = startup(&mut from_client).await else { return };
    {
        let mut shared = shared.lock().await;
        if shared.is_none() {
            let mut server = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
            server.write_all(&startup).await.unwrap();
            let greeting = until_ready(&mut server).await;
            *shared = Some(Shared { server, greeting });
        }
        if let Some(shared) = &*shared {
            to_client.write_all(&shared.greeting).await.unwrap();
        }
    }
    while let Some(group) = group(&mut from_client).await {
        let mut shared = shared.lock().await;
        let Some(Shared { server, .. }) = &mut *shared else { return };
        server.write_all(&group).await.unwrap();
        if answer(server, &mut to_client).await.is_none() {
            return;
        }
    }
}

/// A client's first message, which has no letter before its length.
async fn startup(client: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let length = client.read_u32().await.ok()?;
    let mut message = length.to_be_bytes().to_vec();
    message.resize(usize::try_from(length).ok()?, 0);
    client.read_exact(&mut message[4..]).await.ok()?;
    Some(message)
}

/// One message: its letter, its length, and the rest.
async fn message(from: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut message = vec![0_u8; 5];
    from.read_exact(&mut message).await.ok()?;
    let length = u32::from_be_bytes(message[1..].try_into().unwrap());
    message.resize(usize::try_from(length).unwrap() + 1, 0);
    from.read_exact(&mut message[5..]).await.ok()?;
    Some(message)
}

/// What a client says until it wants an answer: a query, or a synchronisation. None once it says goodbye.
async fn group(client: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut group = Vec::new();
    loop {
        let message = message(client).await?;
        group.extend_from_slice(&message);
        match message[0] {
            b'Q' | b'S' => return Some(group),
            b'X' => return None,
            _ => {}
        }
    }
}

/// What the database says until it is ready for the next one.
async fn until_ready(server: &mut TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    loop {
        let message = message(server).await.unwrap();
        said.extend_from_slice(&message);
        if message[0] == b'Z' {
            return said;
        }
    }
}

async fn answer(server: &mut TcpStream, client: &mut OwnedWriteHalf) -> Option<()> {
    client.write_all(&until_ready(server).await).await.ok()
}
