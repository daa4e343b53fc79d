//! A real TypeScript client (@grpc/grpc-js, with stubs that ts-proto generates from `proto/`) drives the whole story against
//! the real binary, over TCP and over a Unix socket. `tests/typescript/src/story.ts` tells it; here is its environment.
//! TypeScript is part of the contract: where Node is missing or too old, or its packages cannot be had, this fails and never
//! skips.

#![allow(clippy::unwrap_used, clippy::panic)]

mod clients;

use clients::{Transport, home, must, run, tell};
use prost::Message as _;
use prost_types::compiler::{CodeGeneratorRequest, CodeGeneratorResponse};
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// The oldest Node that is tried.
const OLDEST_NODE: u32 = 20;
const SOURCES: &str = "tests/typescript";
/// What the packages that are installed depend on.
const PACKAGES: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];
/// 64-bit numbers and times come whole, and modules are named as Node finds them.
const OPTIONS: &str = "outputServices=grpc-js,esModuleInterop=true,importSuffix=.js,forceLong=bigint,useDate=false,\
                       outputJsonMethods=to-only,exportCommonSymbols=false";

static TYPESCRIPT: LazyLock<TypeScript> = LazyLock::new(TypeScript::ready);

#[test]
fn a_typescript_client_lives_the_whole_story_over_tcp() {
    tell(TYPESCRIPT.story(), Transport::Tcp);
}

#[test]
fn a_typescript_client_lives_the_whole_story_over_a_unix_socket() {
    tell(TYPESCRIPT.story(), Transport::UnixSocket);
}

#[test]
fn every_package_is_held_to_its_hash_and_to_no_registry() {
    let lock: serde_json::Value = serde_json::from_str(&text("package-lock.json")).unwrap();
    let packages = lock["packages"].as_object().unwrap();
    assert!(packages.len() > 1);
    for (name, package) in packages.iter().filter(|(name, _)| !name.is_empty()) {
        assert!(package["integrity"].as_str().is_some_and(|hash| hash.starts_with("sha512-")), "{name} has no hash");
        assert!(package["resolved"].is_null(), "{name} names a registry");
    }
}

/// A copy of `tests/typescript` under `target/`, where its packages are installed and its stubs and scripts are written.
struct TypeScript {
    home: PathBuf,
    _lock: File,
}

impl TypeScript {
    fn ready() -> Self {
        let (home, lock) = home("typescript");
        let typescript = Self { home, _lock: lock };
        typescript.check_node();
        let changed = [typescript.install(), typescript.generate(), typescript.copy()].contains(&true);
        typescript.compile(changed);
        typescript
    }

    fn story(&self) -> Command {
        let mut story = self.command("node");
        story.arg("out/src/story.js");
        story
    }

    fn check_node(&self) {
        let wanted = format!("Node {OLDEST_NODE} or newer, with npm");
        let version = run(self.command("node").arg("--version"), &format!("node ({wanted})"));
        let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
        let major = version.strip_prefix('v').and_then(|version| version.split('.').next()?.parse::<u32>().ok());
        assert!(major >= Some(OLDEST_NODE), "this Node is {version:?}: install {wanted}");
    }

    /// Installs what the lock file says, unless that is what is there. Like the next two, says whether anything changed.
    fn install(&self) -> bool {
        let wanted = PACKAGES.map(|name| fs::read_to_string(Path::new(SOURCES).join(name)).unwrap()).concat();
        let installed = self.home.join("node_modules/installed-packages.txt");
        if fs::read_to_string(&installed).is_ok_and(|installed| installed == wanted) {
            return false;
        }
        for name in PACKAGES {
            fs::copy(Path::new(SOURCES).join(name), self.home.join(name)).unwrap();
        }
        must(
            &run(self.command("npm").arg("ci"), "npm (it comes with Node)"),
            "npm could not install tests/typescript/package-lock.json: it needs a package registry",
        );
        fs::write(&installed, wanted).unwrap();
        true
    }

    /// Writes the stubs of every proto, and of those of gRPC's own that a client needs beside them. ts-proto is a plugin of
    /// protoc; what protoc would tell it, it is told here.
    fn generate(&self) -> bool {
        let answer = self.plugin(&generator_request().encode_to_vec());
        let answer = CodeGeneratorResponse::decode(answer.as_slice()).unwrap();
        assert!(answer.error.is_none(), "no stubs could be generated from proto/: {}", answer.error());
        let folder = self.home.join("gen");
        let stubs = answer.file.iter().map(|file| (folder.join(file.name()), file.content().to_owned()));
        fill(&folder, &stubs.collect())
    }

    fn copy(&self) -> bool {
        let folder = self.home.join("src");
        let names = fs::read_dir(Path::new(SOURCES).join("src")).unwrap().map(|entry| entry.unwrap().file_name());
        let sources = names.map(|name| (folder.join(&name), text(Path::new("src").join(name))));
        let settings = write_changed(&self.home.join("tsconfig.json"), &text("tsconfig.json"));
        fill(&folder, &sources.collect()) || settings
    }

    fn plugin(&self, request: &[u8]) -> Vec<u8> {
        let mut plugin = self.command("node");
        plugin.arg("node_modules/ts-proto/protoc-gen-ts_proto");
        let mut child = plugin.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(request).unwrap();
        let output = child.wait_with_output().unwrap();
        must(&output, "ts-proto does not run");
        output.stdout
    }

    fn compile(&self, changed: bool) {
        let compiled = self.home.join("compiled");
        if changed || !compiled.exists() {
            let _ = fs::remove_file(&compiled);
            must(
                &run(self.command("node").arg("node_modules/typescript/bin/tsc"), "tsc"),
                "tests/typescript does not compile with the stubs that are generated from proto/",
            );
            File::create(&compiled).unwrap();
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // The sidecar is on this machine; no proxy is to be asked about it.
        command.current_dir(&self.home).env("no_grpc_proxy", "127.0.0.1").env_remove("NODE_OPTIONS");
        command
    }
}

/// What protoc tells a plugin: every file with its imports first, and which of them are wanted.
fn generator_request() -> CodeGeneratorRequest {
    let mut files: Vec<FileDescriptorProto> = Vec::new();
    for set in [
        countersign::proto::DESCRIPTORS,
        tonic_types::pb::FILE_DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
    ] {
        for mut file in FileDescriptorSet::decode(set).unwrap().file {
            // Some crates compiled theirs without folders, as nothing imports them.
            if !file.name().contains('/') {
                file.name = Some(format!("{}/{}", file.package().replace('.', "/"), file.name()));
            }
            if !files.iter().any(|known| known.name == file.name) {
                files.push(file);
            }
        }
    }
    CodeGeneratorRequest {
        file_to_generate: files.iter().map(|file| file.name().to_owned()).collect(),
        parameter: Some(OPTIONS.to_owned()),
        proto_file: files,
        compiler_version: None,
    }
}

fn text(name: impl AsRef<Path>) -> String {
    fs::read_to_string(Path::new(SOURCES).join(name)).unwrap()
}

/// Makes a folder hold these files and no others; whether it did not before.
fn fill(folder: &Path, files: &BTreeMap<PathBuf, String>) -> bool {
    let written: Vec<bool> = files.iter().map(|(path, text)| write_changed(path, text)).collect();
    remove_others(folder, files) || written.contains(&true)
}

fn write_changed(path: &Path, text: &str) -> bool {
    let changed = !fs::read_to_string(path).is_ok_and(|written| written == text);
    if changed {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    changed
}

fn remove_others(folder: &Path, files: &BTreeMap<PathBuf, String>) -> bool {
    let mut removed = false;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            removed |= remove_others(&path, files);
        } else if !files.contains_key(&path) {
            fs::remove_file(path).unwrap();
            removed = true;
        }
    }
    removed
}
