//! A stand-in for the service that a connector calls: it answers everything, and remembers what it was told.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// One call, as it came.
#[derive(Clone, Debug)]
pub struct Called {
    /// Its first line.
    pub request: String,
    /// The lines of its head, in lower-case names.
    pub head: Vec<String>,
    /// Its body.
    pub body: String,
}

/// The service.
pub struct Upstream {
    pub address: SocketAddr,
    called: Arc<Mutex<Vec<Called>>>,
}

impl Upstream {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let called = Arc::<Mutex<Vec<Called>>>::default();
        let remembers = Arc::clone(&called);
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // Who cannot be answered has gone away.
                let _ = answered(stream, &remembers);
            }
        });
        Self { address, called }
    }

    pub fn called(&self) -> Vec<Called> {
        self.called.lock().unwrap().clone()
    }
}

fn answered(stream: TcpStream, called: &Mutex<Vec<Called>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let request = lines.first()?.clone();
    let head: Vec<String> = lines.iter().skip(1).map(|line| line.replacen(": ", ":", 1)).collect();
    let head: Vec<String> = head
        .iter()
        .filter_map(|line| line.split_once(':').map(|(name, value)| format!("{}: {value}", name.to_lowercase())))
        .collect();
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: "))?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    // Remembered before it is answered: whoever has the answer finds the call.
    called.lock().unwrap().push(Called { request, head, body: String::from_utf8(body).ok()? });
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{\"id\":\"m-1\"}";
    reader.get_mut().write_all(answer.as_bytes()).ok()
}
