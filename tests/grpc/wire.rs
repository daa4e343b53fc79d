//! HTTP/2 and HTTP/1.1 by hand, for what no client library would send.

use countersign::address::Address;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// One HTTP/2 connection with one call on it.
pub struct RawCall(Box<dyn Bytes>);

/// A connection, over whatever it goes.
pub trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Bytes for S {}

impl RawCall {
    /// Opens a connection and sends the head of a call, its `:path` exactly as given.
    pub async fn open(address: impl Into<Address>, path: &str, token: Option<&str>) -> Self {
        let connection: Box<dyn Bytes> = match address.into() {
            Address::Tcp(address) => Box::new(TcpStream::connect(address).await.unwrap()),
            Address::Unix(path) => Box::new(UnixStream::connect(path).await.unwrap()),
        };
        let mut call = Self(connection);
        call.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        call.frame(SETTINGS, 0, 0, &[]).await;
        // HPACK (RFC 7541): POST and http from the static table, the rest literally.
        let mut head = vec![0x83, 0x86, 0x04];
        text(&mut head, path);
        head.push(0x01);
        text(&mut head, "sidecar");
        for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")] {
            head.push(0);
            text(&mut head, name);
            text(&mut head, value);
        }
        if let Some(token) = token {
            head.push(0);
            text(&mut head, "authorization");
            text(&mut head, &format!("Bearer {token}"));
        }
        call.frame(HEADERS, END_HEADERS, 1, &head).await;
        call
    }

    /// Waits until the server has read everything that was sent so far.
    pub async fn has_arrived(&mut self) {
        self.frame(PING, 0, 0, b"arrived?").await;
        loop {
            let (kind, flags, _) = self.next().await.expect("the connection lives");
            if kind == PING && flags & ACK != 0 {
                return;
            }
        }
    }

    /// Waits until the server says that it takes no new calls.
    pub async fn goes_away(&mut self) {
        while self.next().await.expect("the connection lives").0 != GOAWAY {}
    }

    /// Sends the message and ends the request.
    pub async fn send(&mut self, message: &[u8]) {
        let mut body = vec![0];
        body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        body.extend(message);
        self.frame(DATA, END_STREAM, 1, &body).await;
    }

    /// Whether a message came back before the call, or the connection, ended. A refusal has none.
    pub async fn gets_an_answer(mut self) -> bool {
        let mut answered = false;
        loop {
            match self.next().await {
                Some((DATA, ..)) => answered = true,
                Some((HEADERS, flags, 1)) if flags & END_STREAM != 0 => return answered,
                Some((RESET, _, 1)) | None => return answered,
                Some(_) => {}
            }
        }
    }

    async fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        // A server that has hung up is found out by reading.
        let _ = self.0.write_all(&frame).await;
    }

    /// The next frame's kind, flags and stream; none once the server has hung up.
    async fn next(&mut self) -> Option<(u8, u8, u32)> {
        let read = async {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            self.0.read_exact(&mut payload).await.ok()?;
            if (head[3], head[4]) == (PING, 0) || (head[3], head[4]) == (SETTINGS, 0) {
                // Unanswered, a graceful end would wait for ever.
                let payload = if head[3] == PING { payload } else { Vec::new() };
                self.frame(head[3], ACK, 0, &payload).await;
            }
            Some((head[3], head[4], u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]])))
        };
        tokio::time::timeout(Duration::from_secs(10), read).await.expect("the server says something")
    }
}

fn text(head: &mut Vec<u8>, text: &str) {
    assert!(text.len() < 127, "one byte of length");
    head.push(u8::try_from(text.len()).unwrap());
    head.extend(text.as_bytes());
}

/// The status and the body of a plain HTTP/1.1 request.
pub async fn http_get(address: SocketAddr, path: &str) -> (u16, String) {
    let (status, _, body) = http(address, path, "").await;
    (status, body)
}

/// The status, the head and the body of a plain HTTP/1.1 request with these further header lines.
pub async fn http(address: SocketAddr, path: &str, headers: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: sidecar\r\n{headers}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}
