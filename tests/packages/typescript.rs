//! The TypeScript package: both of its builds, in a copy under `target/`.

use crate::clients::{home, must, run};
use crate::{content, files};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

const PACKAGE: &str = "clients/typescript";
/// What the packages that are installed depend on.
const PACKAGES: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];

pub static TYPESCRIPT: LazyLock<TypeScript> = LazyLock::new(TypeScript::ready);

#[test]
fn the_typescript_package_passes_its_own_tests_as_esm_and_as_commonjs() {
    let mut tests = TYPESCRIPT.command("node");
    tests.args(["--test", "test/canonical.test.mjs"]);
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/canonical-and-fingerprint.json");
    tests.env("COUNTERSIGN_VECTORS", vectors);
    must(&run(&mut tests, "node"), "the TypeScript package's tests fail");
}

#[test]
fn the_typescript_package_needs_nothing_to_run_and_its_tools_are_held_to_their_hashes() {
    let package: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(format!("{PACKAGE}/package.json")).unwrap()).unwrap();
    assert!(package["dependencies"].is_null());
    let lock: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(format!("{PACKAGE}/package-lock.json")).unwrap()).unwrap();
    let packages = lock["packages"].as_object().unwrap();
    assert!(packages.len() > 1);
    for (name, package) in packages.iter().filter(|(name, _)| !name.is_empty()) {
        assert!(package["integrity"].as_str().is_some_and(|hash| hash.starts_with("sha512-")), "{name} has no hash");
        assert!(package["resolved"].is_null(), "{name} names a registry");
    }
}

/// The package, built.
pub struct TypeScript {
    home: PathBuf,
    _lock: File,
}

impl TypeScript {
    fn ready() -> Self {
        let (home, lock) = home("typescript-package");
        let typescript = Self { home, _lock: lock };
        let wanted = content(&PACKAGES.map(|name| format!("{PACKAGE}/{name}")).each_ref().map(String::as_str));
        let installed = typescript.home.join("installed.txt");
        if !fs::read_to_string(&installed).is_ok_and(|installed| installed == wanted) {
            typescript.copy();
            must(
                &run(typescript.command("npm").arg("ci"), "npm (it comes with Node 20 or newer)"),
                "npm could not install clients/typescript/package-lock.json: it needs a package registry",
            );
            fs::write(&installed, wanted).unwrap();
        }
        let wanted = content(&[PACKAGE]);
        let built = typescript.home.join("built.txt");
        if !fs::read_to_string(&built).is_ok_and(|built| built == wanted) {
            typescript.copy();
            for script in ["build", "check"] {
                let mut npm = typescript.command("npm");
                must(&run(npm.args(["run", "--silent", script]), "npm"), &format!("`npm run {script}` fails"));
            }
            fs::write(&built, wanted).unwrap();
        }
        typescript
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.home).env_remove("NODE_OPTIONS");
        command
    }

    /// Makes the copy what the package is, and leaves beside it what was installed.
    fn copy(&self) {
        for folder in ["src", "test", "scripts", "dist"] {
            let _ = fs::remove_dir_all(self.home.join(folder));
        }
        for file in files(Path::new(PACKAGE)) {
            let copy = self.home.join(file.strip_prefix(PACKAGE).unwrap());
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(&file, copy).unwrap();
        }
    }
}
