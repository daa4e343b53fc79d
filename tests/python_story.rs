//! A real Python client (grpcio, with stubs generated from `proto/`) drives the whole story against the real binary.
//! `tests/python/story.py` tells it; here are its environment and the sidecar. Python is part of the contract: where it
//! is missing, or its packages cannot be had, this fails and never skips.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A debug build on a busy machine starts within this.
const START: Duration = Duration::from_secs(60);
/// With nothing in flight there is nothing to wait for.
const STOP: Duration = Duration::from_secs(5);

#[test]
fn a_python_client_lives_the_whole_story_against_the_binary() {
    let python = Python::ready();
    let generated = python.generate();
    let folder = Folder::new();
    let mut sidecar = Sidecar::start(&folder.0);
    let token = |role: &str| folder.0.join(format!("{role}.token"));

    let mut story = python.command();
    story.arg("tests/python/story.py").env("PYTHONPATH", &generated);
    story.args(["--address", &sidecar.address]).args(["--health-address", &sidecar.health_address]);
    for role in ["agent", "approver", "operator"] {
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
    for role in ["agent", "approver", "operator"] {
        let secret = fs::read_to_string(token(role)).unwrap();
        assert!(!log.contains(secret.trim()), "the log tells the {role}'s token");
    }
    assert!(!log.contains("cs1."), "the log tells a consume token");
    assert!(!log.contains("acme.com"), "the log tells arguments");
}

/// A Python with the packages of `tests/python/requirements.txt`, kept under `target/` and made anew when they change.
struct Python {
    environment: PathBuf,
    stubs: PathBuf,
    /// Another test run over the same target folder waits until this one is over.
    _lock: File,
}

impl Python {
    fn ready() -> Self {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("python");
        fs::create_dir_all(&home).unwrap();
        let lock = File::create(home.join("lock")).unwrap();
        lock.lock().unwrap();
        let python = Self { environment: home.join("venv"), stubs: home.join("gen"), _lock: lock };
        let wanted = fs::read_to_string("tests/python/requirements.txt").unwrap();
        let installed = python.environment.join("installed-requirements.txt");
        if !fs::read_to_string(&installed).is_ok_and(|installed| installed == wanted) {
            python.install();
            fs::write(&installed, wanted).unwrap();
        }
        python
    }

    fn install(&self) {
        if self.environment.exists() {
            fs::remove_dir_all(&self.environment).unwrap();
        }
        let interpreter = std::env::var_os("COUNTERSIGN_TEST_PYTHON").unwrap_or_else(|| "python3".into());
        let mut made = Command::new(&interpreter);
        made.args(["-m", "venv"]).arg(&self.environment);
        must(
            &run(&mut made, "python3 (3.10 to 3.13, with venv; COUNTERSIGN_TEST_PYTHON names another)"),
            "`python3 -m venv` made no environment: install Python 3.10 to 3.13 with its venv module",
        );
        let mut pip = self.command();
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
        pip.args(["--require-hashes", "--only-binary=:all:", "--requirement=tests/python/requirements.txt"]);
        must(
            &run(&mut pip, "pip"),
            "pip could not install tests/python/requirements.txt: it needs a package index, and wheels for this Python",
        );
    }

    /// Writes the stubs of every proto, and answers where they are.
    fn generate(&self) -> PathBuf {
        if self.stubs.exists() {
            fs::remove_dir_all(&self.stubs).unwrap();
        }
        fs::create_dir_all(&self.stubs).unwrap();
        let mut protos: Vec<PathBuf> =
            fs::read_dir("proto/countersign/v1").unwrap().map(|entry| entry.unwrap().path()).collect();
        protos.sort();
        let mut compiler = self.command();
        compiler.args(["-m", "grpc_tools.protoc", "-I", "proto"]).args(protos);
        for kind in ["--python_out", "--grpc_python_out"] {
            compiler.arg(kind).arg(&self.stubs);
        }
        must(&run(&mut compiler, "grpc_tools.protoc"), "no stubs could be generated from proto/");
        self.stubs.clone()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.environment.join("bin/python"));
        command
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env_remove("PYTHONHOME")
            .env_remove("PYTHONPATH")
            // The sidecar is on this machine; no proxy is to be asked about it.
            .env("no_grpc_proxy", "127.0.0.1");
        command
    }
}

/// The real binary, serving in a folder of its own; killed when dropped.
struct Sidecar {
    process: Child,
    address: String,
    health_address: String,
    lines: Receiver<String>,
    log: String,
}

impl Sidecar {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
        // What this process was told of a sidecar is not meant for this one.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("COUNTERSIGN_") {
                command.env_remove(name);
            }
        }
        let mut process = command
            .args(["serve", "--dev", "--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0", "--dev-dir"])
            .arg(folder)
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
        let asked = Command::new("kill").arg("-TERM").arg(self.process.id().to_string()).status().unwrap();
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

/// A new folder, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("python_story-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(command: &mut Command, what: &str) -> Output {
    command.stdin(Stdio::null()).output().unwrap_or_else(|cause| panic!("{what} does not run: {cause}"))
}

fn must(output: &Output, otherwise: &str) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{otherwise}\n{}{}", text(&output.stdout), text(&output.stderr));
}
