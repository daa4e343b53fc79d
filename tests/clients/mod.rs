//! What the stories of clients in other languages share: the real binary, serving over TCP or a Unix socket, and the telling.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]
// Each target that includes this uses a part of it.
#![allow(dead_code)]

use std::fs::{self, DirBuilder, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A debug build on a busy machine starts within this.
const START: Duration = Duration::from_secs(60);
/// With nothing in flight there is nothing to wait for.
const STOP: Duration = Duration::from_secs(5);
const ROLES: [&str; 3] = ["agent", "approver", "operator"];

/// How a client reaches the sidecar.
#[derive(Clone, Copy, Debug)]
pub enum Transport {
    Tcp,
    UnixSocket,
}

/// Runs a story against a sidecar of its own, and holds both to what they owe. `story` takes the addresses and the files of
/// the tokens as flags, and says at its end that it holds.
pub fn tell(mut story: Command, transport: Transport) {
    let folder = Folder::new();
    let mut sidecar = Sidecar::start(&folder.0, transport);
    let token = |role: &str| folder.dev().join(format!("{role}.token"));
    story.args(["--address", &sidecar.address]).args(["--health-address", &sidecar.health_address]);
    for role in ROLES {
        story.arg(format!("--{role}-token")).arg(token(role));
    }
    let told = run(&mut story, "the story");
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    println!("{text}");
    let (stopped, log) = sidecar.stop();
    assert!(
        told.status.success(),
        "the story ended with {}:\n{text}\n{}\nthe sidecar's log:\n{log}",
        told.status,
        String::from_utf8_lossy(&told.stderr)
    );
    assert!(text.contains("the story holds: "), "the story was not told to its end");

    assert_eq!(stopped, Some(0), "SIGTERM ends the sidecar with 0 within {STOP:?}; its log:\n{log}");
    for role in ROLES {
        let secret = fs::read_to_string(token(role)).unwrap();
        assert!(!log.contains(secret.trim()), "the log tells the {role}'s token");
    }
    assert!(!log.contains("cs1."), "the log tells a consume token");
    assert!(!log.contains("acme.com"), "the log tells arguments");
}

/// The folder of a language's packages below `target/`, and a lock on it: another test run over the same target folder waits
/// until the lock is dropped.
pub fn home(language: &str) -> (PathBuf, File) {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join(language);
    fs::create_dir_all(&home).unwrap();
    let lock = File::create(home.join("lock")).unwrap();
    lock.lock().unwrap();
    (home, lock)
}

pub fn run(command: &mut Command, what: &str) -> Output {
    command.stdin(Stdio::null()).output().unwrap_or_else(|cause| panic!("{what} does not run: {cause}"))
}

pub fn must(output: &Output, otherwise: &str) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{otherwise}\n{}{}", text(&output.stdout), text(&output.stderr));
}

/// The real binary, serving in a folder of its own; killed when dropped.
pub struct Sidecar {
    process: Child,
    pub address: String,
    pub health_address: String,
    lines: Receiver<String>,
    log: String,
}

impl Sidecar {
    pub fn start(folder: &Path, transport: Transport) -> Self {
        let listen = match transport {
            Transport::Tcp => "127.0.0.1:0".to_owned(),
            Transport::UnixSocket => format!("unix:{}", folder.join("doors.sock").display()),
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
        // What this process was told of a sidecar is not meant for this one.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("COUNTERSIGN_") {
                command.env_remove(name);
            }
        }
        let mut process = command
            .args(["serve", "--dev", "--listen", &listen, "--health-listen", "127.0.0.1:0", "--dev-dir"])
            .arg(folder.join("dev"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = process.stderr.take().unwrap();
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let mut sidecar =
            Self { process, address: String::new(), health_address: String::new(), lines, log: String::new() };
        let deadline = Instant::now() + START;
        while sidecar.address.is_empty() {
            match sidecar.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let (Some(address), Some(health)) = (value(&line, "address"), value(&line, "health_address")) {
                        (sidecar.address, sidecar.health_address) = (address, health);
                    }
                    sidecar.note(&line);
                }
                Err(why) => panic!("the sidecar does not serve ({why}); its log:\n{}", sidecar.log),
            }
        }
        sidecar
    }

    fn note(&mut self, line: &str) {
        self.log.push_str(line);
        self.log.push('\n');
    }

    /// Asks it to stop, and answers its exit code, if it had one in time, and its whole log.
    fn stop(&mut self) -> (Option<i32>, String) {
        // The shell's own: not every machine has the program.
        let asked = Command::new("sh").args(["-c", &format!("kill -TERM {}", self.process.id())]).status().unwrap();
        assert!(asked.success(), "the sidecar has ended by itself; its log:\n{}", self.log);
        // Its standard error ends with it.
        let deadline = Instant::now() + STOP;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.note(&line),
                Err(RecvTimeoutError::Timeout) => return (None, self.log.clone()),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        (self.process.wait().unwrap().code(), self.log.clone())
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The value of `key=value` in a log line.
fn value(line: &str, key: &str) -> Option<String> {
    line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned)
}

/// A new folder, removed when dropped. It is where the system keeps such things: the path of a socket has to be short.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("countersign-story-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }

    pub fn dev(&self) -> PathBuf {
        self.0.join("dev")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
