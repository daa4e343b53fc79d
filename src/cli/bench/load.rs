//! A caller that costs little: one HTTP/2 connection, headers that are encoded once, as many calls in flight as asked for.
//! A general client would take more of the machine than the server that is to be measured.

use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// No answer within this is none.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most that a window of HTTP/2 can be: answers never wait for one.
const LARGEST_WINDOW: u32 = 0x7fff_ffff;
/// What a connection's window is at first (RFC 9113, section 6.9.2).
const FIRST_WINDOW: u32 = 65_535;
/// Received before the connection's window is filled up again.
const REFILL: u32 = 1 << 30;

// Types and flags of frames (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// What a run came to.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// Calls that were answered with a message.
    pub(super) answered: u32,
    /// From the first call to the last answer.
    pub(super) elapsed: Duration,
    /// How long each took, in the order of the answers.
    pub(super) latencies: Vec<Duration>,
}

impl Sample {
    /// Answers per second.
    pub(super) fn rate(&self) -> f64 {
        f64::from(self.answered) / self.elapsed.as_secs_f64()
    }

    /// Goes on with another run.
    pub(super) fn extend(&mut self, other: Self) {
        self.answered = self.answered.saturating_add(other.answered);
        self.elapsed = self.elapsed.saturating_add(other.elapsed);
        self.latencies.extend(other.latencies);
    }

    /// How long the call took that no more than this share of all calls took longer than, in microseconds.
    pub(super) fn latency_us(&self, share: f64) -> f64 {
        let mut micros: Vec<f64> = self.latencies.iter().map(|latency| latency.as_secs_f64() * 1e6).collect();
        super::report::quantile(&mut micros, share)
    }
}

/// A connection, in the clear or through TLS.
enum Socket {
    Plain(TcpStream),
    Sealed(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl io::Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Sealed(socket) => socket.read(buffer),
        }
    }
}

impl io::Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Sealed(socket) => socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Sealed(socket) => socket.flush(),
        }
    }
}

/// One connection that calls one method.
pub(super) struct Caller {
    socket: Socket,
    /// The method's headers as they are sent each time but the first.
    repeated: Vec<u8>,
    /// As they are sent the first time.
    first: Option<Vec<u8>>,
    next_stream: u32,
    /// How much may be sent on the connection.
    window: i64,
    unacknowledged: u32,
    input: Vec<u8>,
    output: Vec<u8>,
    open: HashMap<u32, Open>,
    last: Vec<u8>,
}

struct Open {
    since: Instant,
    bytes: usize,
}

impl Caller {
    /// Connects, to call `path` with this token.
    pub(super) fn connect(address: SocketAddr, path: &str, token: Option<&str>) -> io::Result<Self> {
        Self::over(Socket::Plain(dial(address)?), address, path, token)
    }

    /// The same through TLS; the handshake is done with the first call.
    pub(super) fn sealed(
        address: SocketAddr,
        path: &str,
        token: Option<&str>,
        tls: &Arc<ClientConfig>,
    ) -> io::Result<Self> {
        let session = ClientConnection::new(Arc::clone(tls), address.ip().into()).map_err(io::Error::other)?;
        Self::over(Socket::Sealed(Box::new(StreamOwned::new(session, dial(address)?))), address, path, token)
    }

    fn over(socket: Socket, address: SocketAddr, path: &str, token: Option<&str>) -> io::Result<Self> {
        let authority = address.to_string();
        let bearer = token.map(|token| format!("Bearer {token}"));
        let mut headers = vec![
            (":authority", authority.as_str()),
            (":path", path),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "countersign-bench"),
        ];
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        let (first, repeated) = encode(&headers);
        let mut output = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // SETTINGS_INITIAL_WINDOW_SIZE
        let mut settings = vec![0, 4];
        settings.extend(LARGEST_WINDOW.to_be_bytes());
        frame(&mut output, SETTINGS, 0, 0, &settings);
        frame(&mut output, WINDOW_UPDATE, 0, 0, &(LARGEST_WINDOW - FIRST_WINDOW).to_be_bytes());
        Ok(Self {
            socket,
            repeated,
            first: Some(first),
            next_stream: 1,
            window: FIRST_WINDOW.into(),
            unacknowledged: 0,
            input: Vec::new(),
            output,
            open: HashMap::new(),
            last: Vec::new(),
        })
    }

    /// Calls with each of these messages, `in_flight` at once, until there are no more or `longest` is over.
    ///
    /// # Errors
    /// The connection; a call that is answered without a message, which is a refusal.
    pub(super) fn run<'m>(
        &mut self,
        in_flight: usize,
        longest: Duration,
        mut messages: impl Iterator<Item = &'m [u8]>,
    ) -> io::Result<Sample> {
        let begin = Instant::now();
        let mut sample = Sample::default();
        let mut over = false;
        loop {
            let now = Instant::now();
            over = over || now.duration_since(begin) >= longest;
            while !over && self.open.len() < in_flight {
                match messages.next() {
                    Some(message) => self.call(message, now)?,
                    None => over = true,
                }
            }
            self.socket.write_all(&self.output)?;
            self.socket.flush()?;
            self.output.clear();
            if self.open.is_empty() {
                sample.elapsed = begin.elapsed();
                return Ok(sample);
            }
            self.receive(&mut sample)?;
        }
    }

    /// One call, and the message that answers it.
    pub(super) fn call_once(&mut self, message: &[u8]) -> io::Result<Vec<u8>> {
        self.last.clear();
        self.run(1, PATIENCE, std::iter::once(message))?;
        // Before the message stand a flag and four bytes of length.
        Ok(self.last.get(5..).map(<[u8]>::to_vec).unwrap_or_default())
    }

    fn call(&mut self, message: &[u8], now: Instant) -> io::Result<()> {
        let stream = self.next_stream;
        self.next_stream = stream.saturating_add(2);
        let headers = self.first.take();
        frame(&mut self.output, HEADERS, END_HEADERS, stream, headers.as_ref().unwrap_or(&self.repeated));
        let length = u32::try_from(message.len()).map_err(io::Error::other)?;
        self.window -= i64::from(length) + 5;
        if self.window < 0 {
            return Err(io::Error::other("the server takes no more"));
        }
        let mut body = Vec::with_capacity(message.len() + 5);
        body.push(0);
        body.extend(length.to_be_bytes());
        body.extend(message);
        frame(&mut self.output, DATA, END_STREAM, stream, &body);
        self.open.insert(stream, Open { since: now, bytes: 0 });
        Ok(())
    }

    fn receive(&mut self, sample: &mut Sample) -> io::Result<()> {
        let mut chunk = [0; 64 * 1024];
        let read = self.socket.read(&mut chunk)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut input = std::mem::take(&mut self.input);
        input.extend(chunk.iter().take(read));
        let now = Instant::now();
        let mut rest = input.as_slice();
        while let Some((head, after)) = rest.split_first_chunk::<9>() {
            let [a, b, c, kind, flags, stream @ ..] = *head;
            let length = u32::from_be_bytes([0, a, b, c]);
            let Some((payload, after)) = after.split_at_checked(length as usize) else { break };
            self.take(kind, flags, u32::from_be_bytes(stream), payload, now, sample)?;
            rest = after;
        }
        self.input = rest.to_vec();
        Ok(())
    }

    fn take(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
        now: Instant,
        sample: &mut Sample,
    ) -> io::Result<()> {
        match kind {
            DATA => {
                if let Some(open) = self.open.get_mut(&stream) {
                    open.bytes += payload.len();
                }
                if self.open.len() == 1 {
                    self.last.extend(payload);
                }
                self.unacknowledged += u32::try_from(payload.len()).unwrap_or(0);
                if self.unacknowledged >= REFILL {
                    frame(&mut self.output, WINDOW_UPDATE, 0, 0, &self.unacknowledged.to_be_bytes());
                    self.unacknowledged = 0;
                }
            }
            SETTINGS if flags & ACK == 0 => frame(&mut self.output, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(&mut self.output, PING, ACK, 0, payload),
            WINDOW_UPDATE if stream == 0 => {
                let more = payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
                self.window += i64::from(more);
            }
            GOAWAY => return Err(io::Error::other("the server ends the connection")),
            _ => {}
        }
        if kind == RST_STREAM || (matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0) {
            let Some(open) = self.open.remove(&stream) else { return Ok(()) };
            if open.bytes < 5 {
                return Err(io::Error::other("a call was refused"));
            }
            sample.answered += 1;
            sample.latencies.push(now.duration_since(open.since));
        }
        Ok(())
    }
}

fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn frame(output: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    output.extend(length);
    output.extend([kind, flags]);
    output.extend(stream.to_be_bytes());
    output.extend(payload);
}

/// The headers as they are sent first, when the server is told to remember them, and from then on (RFC 7541): one byte
/// for each, as from any client that calls more than once.
fn encode(headers: &[(&str, &str)]) -> (Vec<u8>, Vec<u8>) {
    // `:method: POST` and `:scheme: http` are known to everyone.
    let (mut first, mut repeated) = (vec![0x83, 0x86], vec![0x83, 0x86]);
    // What is remembered last has the lowest number, and numbers begin after those of what everyone knows.
    let mut index = 61 + u8::try_from(headers.len()).unwrap_or(0);
    for (name, value) in headers {
        first.push(0x40);
        push_string(&mut first, name);
        push_string(&mut first, value);
        repeated.push(0x80 | index);
        index -= 1;
    }
    (first, repeated)
}

fn push_string(output: &mut Vec<u8>, text: &str) {
    match u8::try_from(text.len()) {
        Ok(length) if length < 127 => output.push(length),
        // In 7 bits, and the rest in the bytes after: none of ours is longer than two of them can say.
        _ => {
            let rest = text.len().saturating_sub(127);
            output.push(127);
            output.push(0x80 | u8::try_from(rest & 0x7f).unwrap_or(0));
            output.push(u8::try_from(rest >> 7).unwrap_or(0));
        }
    }
    output.extend(text.as_bytes());
}
