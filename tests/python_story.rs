//! A real Python client (grpcio, with stubs generated from `proto/`) drives the whole story against the real binary, over TCP
//! and over a Unix socket. `tests/python/story.py` tells it; here is its environment. Python is part of the contract: where
//! it is missing, or its packages cannot be had, this fails and never skips.

#![allow(clippy::unwrap_used, clippy::panic)]

mod certificates;
mod clients;
mod process;

use certificates::Authority;
use clients::{Transport, home, must, run, tell};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

static PYTHON: LazyLock<Python> = LazyLock::new(Python::ready);

#[test]
fn a_python_client_lives_the_whole_story_over_tcp() {
    tell(PYTHON.story(), Transport::Tcp);
}

#[test]
fn a_python_client_lives_the_whole_story_over_a_unix_socket() {
    tell(PYTHON.story(), Transport::UnixSocket);
}

#[test]
fn a_python_client_calls_through_tls_and_shows_its_certificate() {
    let tls = "[tls]\ncertificate_file = \"sidecar.pem\"\nkey_file = \"sidecar.key\"\nclient_ca_file = \"ca.pem\"\n";
    let folder = process::Folder::new(process::POLICY, tls);
    let authority = Authority::new("authority");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("ca.pem", &authority.pem());
    let (own, chat) = (authority.server(&["127.0.0.1"]), authority.client("spiffe://acme.example/chat"));
    for (name, text) in [
        ("sidecar.pem", &own.certificate),
        ("sidecar.key", &own.key),
        ("chat.pem", &chat.certificate),
        ("chat.key", &chat.key),
    ] {
        write(name, text);
    }
    let sidecar = process::Sidecar::start(&folder);
    let mut call = PYTHON.command();
    call.arg("tests/python/sealed.py").env("PYTHONPATH", &PYTHON.stubs);
    call.args([sidecar.address(), &process::token("agent")]).arg(folder.path());
    must(&run(&mut call, "python"), "the client is not content");
}

/// A Python with the packages of `tests/python/requirements.txt`, kept under `target/` and made anew when they change.
struct Python {
    environment: PathBuf,
    stubs: PathBuf,
    _lock: File,
}

impl Python {
    fn ready() -> Self {
        let (home, lock) = home("python");
        let python = Self { environment: home.join("venv"), stubs: home.join("gen"), _lock: lock };
        let wanted = fs::read_to_string("tests/python/requirements.txt").unwrap();
        let installed = python.environment.join("installed-requirements.txt");
        if !fs::read_to_string(&installed).is_ok_and(|installed| installed == wanted) {
            python.install();
            fs::write(&installed, wanted).unwrap();
        }
        python.generate();
        python
    }

    fn story(&self) -> Command {
        let mut story = self.command();
        story.arg("tests/python/story.py").env("PYTHONPATH", &self.stubs);
        story
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

    /// Writes the stubs of every proto.
    fn generate(&self) {
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
