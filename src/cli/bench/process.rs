//! The servers that are measured: processes of this very binary, whose time and memory the system counts.

use super::load::Caller;
use super::world::{PASSWORD, Place};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// `grpc.health.v1.HealthCheckResponse` that says `SERVING`.
const SERVING: [u8; 2] = [8, 1];
const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// More than its metrics ever have.
const PAGE_BYTES: u64 = 1024 * 1024;

/// A sidecar that takes longer to start does not start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Before it is known.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A server; it ends when this is dropped.
pub(super) struct Server {
    child: Child,
    /// Where it is called.
    pub(super) address: SocketAddr,
    /// Where its health and its metrics are.
    health: SocketAddr,
    /// From its start until its health was `SERVING`.
    pub(super) started_in: Duration,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process has in memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// All that is resident, files that are mapped into it included.
    pub(super) resident: u64,
    /// What is its own.
    pub(super) own: u64,
}

impl Server {
    /// A sidecar, as `serve` runs it, from the moment it is spawned until it serves.
    pub(super) fn sidecar(config: &Path, place: &Place) -> io::Result<Self> {
        let mut command = this_binary()?;
        command.arg("serve").arg("--config").arg(config);
        match place {
            Place::File(path) => command.arg("--sqlite").arg(path),
            Place::Server { url, secret } => {
                command.envs(std::env::var_os(PASSWORD).map(|password| (PASSWORD, password)));
                command.arg("--postgres").arg(url).arg("--secret-file").arg(secret)
            }
        };
        let begin = Instant::now();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let log = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut server = Self { child, address: NOWHERE, health: NOWHERE, started_in: Duration::ZERO };
        let (address, health) = told(BufReader::new(log))?;
        let answer = Caller::connect(health, HEALTH, None)?.call_once(&[])?;
        if answer != SERVING {
            return Err(io::Error::other("the sidecar does not serve"));
        }
        server.started_in = begin.elapsed();
        server.address = address;
        server.health = health;
        Ok(server)
    }

    /// The floor's server, whose answers' field has so many bytes.
    pub(super) fn echo(answer: usize) -> io::Result<Self> {
        let mut command = this_binary()?;
        command.arg("bench-echo").arg("--answer").arg(answer.to_string());
        let begin = Instant::now();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut server = Self { child, address: NOWHERE, health: NOWHERE, started_in: Duration::ZERO };
        let mut line = String::new();
        BufReader::new(out.take(64)).read_line(&mut line)?;
        server.address = line.trim().parse().map_err(io::Error::other)?;
        server.started_in = begin.elapsed();
        Ok(server)
    }

    /// What all its threads have computed so far.
    pub(super) fn cpu(&self) -> io::Result<Duration> {
        let mut nanos: u64 = 0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            // A thread may end while they are listed.
            let Ok(text) = std::fs::read_to_string(thread?.path().join("schedstat")) else { continue };
            let own = text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
            nanos = nanos.saturating_add(own.ok_or_else(|| io::Error::other("the system does not count threads"))?);
        }
        Ok(Duration::from_nanos(nanos))
    }

    /// What one of its metrics counts now; 0 where it has not counted yet.
    pub(super) fn counted(&self, metric: &str) -> io::Result<u64> {
        let mut socket = TcpStream::connect(self.health)?;
        socket.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut page = String::new();
        socket.take(PAGE_BYTES).read_to_string(&mut page)?;
        let value = page.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
        value.map_or(Ok(0), |value| value.trim().parse().map_err(io::Error::other))
    }

    /// What it has in memory now.
    pub(super) fn memory(&self) -> io::Result<Memory> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let read = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|word| word.parse::<u64>().ok());
            kib.map(|kib| kib.saturating_mul(1_024)).ok_or_else(|| io::Error::other("the system does not count memory"))
        };
        Ok(Memory { resident: read("VmRSS:")?, own: read("RssAnon:")? })
    }
}

/// This binary, in an environment that says nothing to it.
fn this_binary() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COUNTERSIGN_")) {
        command.env_remove(name);
    }
    Ok(command)
}

/// Where a sidecar serves, as soon as its log says so.
fn told(mut log: impl BufRead + Send + 'static) -> io::Result<(SocketAddr, SocketAddr)> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut said = String::new();
        let mut line = String::new();
        while log.read_line(&mut line).is_ok_and(|read| read > 0) {
            if let Some(found) = addresses(&line) {
                let _ = tell.send(Ok(found));
                break;
            }
            said.push_str(&line);
            line.clear();
        }
        let _ = tell.send(Err(said));
        // What else it logs is nothing to wait for, and must not fill the pipe.
        let _ = io::copy(&mut log, &mut io::sink());
    });
    match told.recv_timeout(PATIENCE) {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(said)) => Err(io::Error::other(format!("the sidecar did not start: {said}"))),
        Err(_) => Err(io::Error::other("the sidecar does not say that it serves")),
    }
}

/// Where a sidecar serves, by the line of its log that says so.
fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let line: Value = serde_json::from_str(line).ok()?;
    let read = |name: &str| line.get(name)?.as_str()?.parse().ok();
    Some((read("address")?, read("health_address")?))
}
