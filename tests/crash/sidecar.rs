//! The binary as a process of its own, over files that outlive it.

use countersign::auth::token::TokenHash;
use countersign::client::{self, Authenticated, Bearer};
use countersign::proto::agent_service_client::AgentServiceClient;
use countersign::proto::approver_service_client::ApproverServiceClient;
use countersign::proto::operator_service_client::OperatorServiceClient;
use sqlx::{Connection as _, Row as _};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// A debug build on a busy machine starts within this.
const PATIENCE: Duration = Duration::from_secs(60);

const POLICY: &str = "
version: countersign.policy/v1
connectors:
  gmail:
    ceiling: write
    actions:
      GMAIL_SEND_EMAIL: { scope: write, curated: true }
";

/// The folder of one test: configuration, policy, database and secret.
pub struct Files(PathBuf);

impl Files {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("countersign-crash-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("policy.yaml"), POLICY).unwrap();
        let caller = |name: &str, role: &str, rest: &str| {
            let hash = TokenHash::of(token(role).as_bytes());
            format!("[[callers]]\nname = \"{name}\"\nrole = \"{role}\"\ntoken_sha256 = \"{hash}\"\n{rest}\n")
        };
        let config = [
            "listen = \"127.0.0.1:0\"\nhealth_listen = \"127.0.0.1:0\"\npolicy = \"policy.yaml\"\n".to_owned(),
            "[limits]\nopen_per_principal = 1000000\nopen_per_agent = 1000000\n".to_owned(),
            caller("runtime", "agent", "agents = [\"*\"]\nprincipals = [\"*\"]"),
            caller("chat", "approver", "asserts_principal = [\"*\"]"),
            caller("ops", "operator", ""),
        ];
        fs::write(folder.join("countersign.toml"), config.concat()).unwrap();
        Self(folder)
    }

    /// The size of the database or of its log, whichever is larger.
    pub fn largest_file(&self) -> u64 {
        let sizes = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
        sizes.max().unwrap()
    }

    /// What the database itself says of its state, once nobody has it open.
    pub async fn check_database(&self) {
        let path = self.0.join("countersign.db");
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
        let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
        let whole: String = sqlx::query("PRAGMA integrity_check").fetch_one(&mut connection).await.unwrap().get(0);
        assert_eq!(whole, "ok");
        let orphans = sqlx::query("PRAGMA foreign_key_check").fetch_all(&mut connection).await.unwrap();
        assert!(orphans.is_empty());
        let twice: i64 = sqlx::query(
            "SELECT count(*) FROM (SELECT approval_id FROM executions WHERE approval_id IS NOT NULL \
             GROUP BY approval_id HAVING count(*) > 1)",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap()
        .get(0);
        assert_eq!(twice, 0, "approvals with more than one execution");
        let loose: i64 = sqlx::query(
            "SELECT count(*) FROM approvals LEFT JOIN executions ON executions.id = approvals.execution_id \
             WHERE (approvals.state = 'consumed') <> (executions.id IS NOT NULL)",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap()
        .get(0);
        assert_eq!(loose, 0, "used approvals without their execution");
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn token(role: &str) -> String {
    format!("cst_crash_test_token_of_the_{role}")
}

/// One process of it.
pub struct Sidecar {
    child: Child,
    address: String,
}

impl Sidecar {
    pub fn start(files: &Files) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COUNTERSIGN_")) {
            command.env_remove(name);
        }
        command.args(["serve", "--config", "countersign.toml"]).current_dir(&files.0);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (found, serving) = mpsc::channel();
        std::thread::spawn(move || {
            let mut said = String::new();
            let mut line = String::new();
            while log.read_line(&mut line).is_ok_and(|read| read > 0) {
                let address = line.split_once(" address=").and_then(|(_, rest)| rest.split_whitespace().next());
                if let Some(address) = address {
                    let _ = found.send(Ok(address.to_owned()));
                }
                said.push_str(&line);
                line.clear();
            }
            // Without an address it did not start, and this says why.
            let _ = found.send(Err(said));
        });
        let address =
            serving.recv_timeout(PATIENCE).expect("it starts in time").unwrap_or_else(|said| panic!("{said}"));
        Self { child, address }
    }

    pub fn clients(&self) -> Clients {
        let channel = client::channel_to(&self.address).unwrap();
        let bearer = |role: &str| Bearer::new(&token(role)).unwrap();
        Clients {
            agent: client::agent(channel.clone(), bearer("agent")),
            approver: client::approver(channel.clone(), bearer("approver")),
            operator: client::operator(channel, bearer("operator")),
        }
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
    }
}

/// A client for each door, over one connection.
#[derive(Clone)]
pub struct Clients {
    pub agent: AgentServiceClient<Authenticated>,
    pub approver: ApproverServiceClient<Authenticated>,
    pub operator: OperatorServiceClient<Authenticated>,
}
