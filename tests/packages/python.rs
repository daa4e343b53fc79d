//! The Python package: its wheel, installed into an environment with the tools that check it and what the proxy needs.

use crate::clients::{home, must, run};
use crate::content;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

const PACKAGE: &str = "clients/python";
const REQUIREMENTS: [&str; 2] = ["clients/python/requirements-dev.txt", "examples/connector-proxy/requirements.txt"];

pub static PYTHON: LazyLock<Python> = LazyLock::new(Python::ready);

#[test]
fn the_python_package_passes_its_own_tests() {
    let mut tests = PYTHON.command();
    tests.args(["-m", "unittest", "discover", "-s", "clients/python/tests"]);
    must(&run(&mut tests, "the Python package's tests"), "the Python package's tests fail");
}

#[test]
fn the_python_package_and_the_proxy_hold_for_a_strict_type_checker() {
    let cache = PYTHON.home.join("mypy");
    let mut check = PYTHON.command();
    check.args(["-m", "mypy", "--cache-dir"]).arg(&cache).args(["--config-file", "clients/python/pyproject.toml"]);
    check.args(["clients/python/src", "clients/python/tests"]);
    must(&run(&mut check, "mypy"), "clients/python does not pass mypy --strict");
    // Against the wheel that is installed, which has to say that it is typed.
    let mut check = PYTHON.command();
    check.args(["-m", "mypy", "--strict", "--cache-dir"]).arg(&cache).current_dir("examples/connector-proxy");
    must(&run(check.args(["proxy.py", "permits.py"]), "mypy"), "the connector's proxy does not pass mypy --strict");
}

/// A Python with the package's wheel and everything pinned beside it, kept under `target/` and made anew when that changes.
pub struct Python {
    home: PathBuf,
    _lock: File,
}

impl Python {
    fn ready() -> Self {
        let (home, lock) = home("python-package");
        let python = Self { home, _lock: lock };
        let wanted = content(&REQUIREMENTS);
        let installed = python.home.join("installed-requirements.txt");
        if !fs::read_to_string(&installed).is_ok_and(|installed| installed == wanted) {
            python.install();
            fs::write(&installed, wanted).unwrap();
            let _ = fs::remove_file(python.home.join("installed-package.txt"));
        }
        let wanted = content(&["clients/python/pyproject.toml", "clients/python/README.md", "clients/python/src"]);
        let installed = python.home.join("installed-package.txt");
        if !fs::read_to_string(&installed).is_ok_and(|installed| installed == wanted) {
            python.package();
            fs::write(&installed, wanted).unwrap();
        }
        python
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(self.home.join("venv/bin/python"));
        command
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env_remove("PYTHONHOME")
            .env_remove("PYTHONPATH")
            // What it is to reach is on this machine.
            .env("no_proxy", "127.0.0.1");
        command
    }

    fn install(&self) {
        let environment = self.home.join("venv");
        if environment.exists() {
            fs::remove_dir_all(&environment).unwrap();
        }
        let interpreter = std::env::var_os("COUNTERSIGN_TEST_PYTHON").unwrap_or_else(|| "python3".into());
        let mut made = Command::new(&interpreter);
        made.args(["-m", "venv"]).arg(&environment);
        must(
            &run(&mut made, "python3 (3.10 or newer, with venv; COUNTERSIGN_TEST_PYTHON names another)"),
            "`python3 -m venv` made no environment: install Python 3.10 or newer with its venv module",
        );
        for requirements in REQUIREMENTS {
            let mut pip = self.pip();
            pip.args(["--require-hashes", "--only-binary=:all:", "--requirement", requirements]);
            let otherwise = format!("pip could not install {requirements}: it needs a package index");
            must(&run(&mut pip, "pip"), &otherwise);
        }
    }

    /// Builds the wheel with the tool that is pinned, and installs it.
    fn package(&self) {
        let mut pip = self.pip();
        pip.args(["--no-deps", "--no-index", "--no-build-isolation", "--force-reinstall", PACKAGE]);
        must(&run(&mut pip, "pip"), "the Python package cannot be built and installed");
    }

    fn pip(&self) -> Command {
        let mut pip = self.command();
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
        pip
    }
}
