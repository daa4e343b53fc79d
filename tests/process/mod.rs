//! The real binary as processes of their own, the folders that they run in, and clients for each door.

// Each test target uses its own part of this.
#![allow(dead_code)]

pub mod calls;

use countersign::auth::token::TokenHash;
use countersign::client::{self, Authenticated, Bearer};
use countersign::proto::agent_service_client::AgentServiceClient;
use countersign::proto::approver_service_client::ApproverServiceClient;
use countersign::proto::operator_service_client::OperatorServiceClient;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// A debug build on a busy machine starts within this.
const PATIENCE: Duration = Duration::from_secs(60);

/// Writing asks the owner.
pub const POLICY: &str = "
version: countersign.policy/v1
connectors:
  gmail:
    ceiling: write
    actions:
      GMAIL_SEND_EMAIL: { scope: write, curated: true }
";

/// A folder with a policy and a configuration of an agent, an approver who asserts people, and an operator.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// One with these tables in its configuration as well.
    pub fn new(policy: &str, tables: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("countersign-process-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("policy.yaml"), policy).unwrap();
        let caller = |name: &str, role: &str, rest: &str| {
            let hash = TokenHash::of(token(role).as_bytes());
            format!("[[callers]]\nname = \"{name}\"\nrole = \"{role}\"\ntoken_sha256 = \"{hash}\"\n{rest}\n")
        };
        let config = [
            "listen = \"127.0.0.1:0\"\nhealth_listen = \"127.0.0.1:0\"\npolicy = \"policy.yaml\"\n".to_owned(),
            "[limits]\nopen_per_principal = 1000000\nopen_per_agent = 1000000\nopen_per_action = 1000000\nasked_per_principal = 0\n".to_owned(),
            tables.to_owned(),
            caller("runtime", "agent", "agents = [\"*\"]\nprincipals = [\"*\"]"),
            caller("chat", "approver", "asserts_principal = [\"*\"]"),
            caller("ops", "operator", ""),
        ];
        fs::write(folder.join("countersign.toml"), config.concat()).unwrap();
        Self(folder)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn token(role: &str) -> String {
    format!("cst_test_token_of_the_process_of_{role}")
}

/// One process of it.
#[derive(Debug)]
pub struct Sidecar {
    child: Child,
    address: String,
    said: Arc<Mutex<String>>,
    /// Reads what it writes, to the end.
    reading: Option<std::thread::JoinHandle<()>>,
}

/// One that may not serve yet.
#[derive(Debug)]
pub struct Starting {
    sidecar: Sidecar,
    serving: mpsc::Receiver<Option<String>>,
}

impl Starting {
    /// Waits until it serves.
    pub fn serving(mut self) -> Sidecar {
        let found = self.serving.recv_timeout(PATIENCE);
        let found = found.unwrap_or_else(|_| panic!("it does not start in time: {}", self.sidecar.said()));
        // Without an address it did not start, and this says why.
        self.sidecar.address = found.unwrap_or_else(|| panic!("it does not start: {}", self.sidecar.said()));
        self.sidecar
    }
}

impl Sidecar {
    /// Starts one in this folder and waits until it serves.
    pub fn start(folder: &Folder) -> Self {
        Self::begin(folder).serving()
    }

    /// Starts one in this folder.
    pub fn begin(folder: &Folder) -> Starting {
        let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COUNTERSIGN_")) {
            command.env_remove(name);
        }
        command.args(["serve", "--config", "countersign.toml"]).current_dir(folder.path());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut answers = child.stdout.take().unwrap();
        let answered = std::thread::spawn(move || {
            let mut all = String::new();
            let _ = answers.read_to_string(&mut all);
            all
        });
        let (found, serving) = mpsc::channel();
        let said = Arc::new(Mutex::new(String::new()));
        let all = Arc::clone(&said);
        let reading = std::thread::spawn(move || {
            let mut line = String::new();
            while log.read_line(&mut line).is_ok_and(|read| read > 0) {
                let address = line.split_once(" address=").and_then(|(_, rest)| rest.split_whitespace().next());
                if let Some(address) = address {
                    let _ = found.send(Some(address.to_owned()));
                }
                all.lock().unwrap().push_str(&line);
                line.clear();
            }
            all.lock().unwrap().push_str(&answered.join().unwrap_or_default());
            let _ = found.send(None);
        });
        Starting { sidecar: Self { child, address: String::new(), said, reading: Some(reading) }, serving }
    }

    /// What it has logged.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Where its doors are, or the agent's.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn clients(&self) -> Clients {
        Clients::of(&self.address)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// `SIGKILL`: it learns nothing of it.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// `SIGTERM`, and whether it then ended with 0.
    pub fn terminate(&mut self) -> bool {
        let asked = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status().unwrap();
        assert!(asked.success());
        self.child.wait().unwrap().success()
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reading) = self.reading.take() {
            let _ = reading.join();
        }
        if !std::thread::panicking() {
            assert_eq!(secrets_in(&self.said()), None, "it is in what the process wrote");
        }
    }
}

/// What is secret and stands in this, by what it is.
fn secrets_in(said: &str) -> Option<&'static str> {
    let roles = ["agent", "approver", "operator"];
    let is_told = |secret: &str| said.contains(secret);
    // A token has an id behind its key id.
    let has_token = said.split("cs1.").skip(1).any(|rest| rest.as_bytes().get(16) == Some(&b'.'));
    match () {
        () if roles.iter().any(|role| is_told(&token(role))) => Some("a bearer token"),
        () if has_token => Some("a consume token"),
        () => None,
    }
}

#[test]
fn a_secret_in_what_a_process_wrote_is_found() {
    assert_eq!(secrets_in("the form is cs1.<key id>.<approval id>.<mac>"), None);
    assert_eq!(secrets_in(&format!("token={}", token("agent"))), Some("a bearer token"));
    assert_eq!(secrets_in("used cs1.0123456789abcdef.019b"), Some("a consume token"));
}

/// A client for each door, over one connection.
#[derive(Clone)]
pub struct Clients {
    pub agent: AgentServiceClient<Authenticated>,
    pub approver: ApproverServiceClient<Authenticated>,
    pub operator: OperatorServiceClient<Authenticated>,
}

impl Clients {
    /// Those of the sidecar at this address.
    pub fn of(address: &str) -> Self {
        let channel = client::channel_to(address).unwrap();
        let bearer = |role: &str| Bearer::new(&token(role)).unwrap();
        Self {
            agent: client::agent(channel.clone(), bearer("agent")),
            approver: client::approver(channel.clone(), bearer("approver")),
            operator: client::operator(channel, bearer("operator")),
        }
    }
}
