//! SIGHUP on the real process: callers and policy are read again, and what is wrong changes nothing and is said.

use crate::support::{Countersign, Folder, runtime, text};
use countersign::client::{self, Bearer};
use countersign::proto::{EvaluateRequest, GetPolicyRequest, GetPolicyResponse, Invocation};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tonic::{Code, Status};

/// Far longer than anything takes, also on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

const OPERATOR: &str = "operator";

/// A `serve --config` of its own, whose log is read.
struct Served {
    child: Child,
    folder: Folder,
    log: mpsc::Receiver<String>,
    address: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn token(name: &str) -> String {
    format!("cst_test_token_of_{name}_0123456789")
}

/// A `[[callers]]` section.
fn caller(name: &str, more: &str) -> String {
    format!("[[callers]]\nname = \"{name}\"\ntoken_file = \"{name}.token\"\n{more}\n")
}

fn agent(name: &str) -> String {
    caller(name, "role = \"agent\"\nagents = [\"*\"]\nprincipals = [\"*\"]")
}

/// A configuration with these callers, and an operator.
fn config(callers: &[String]) -> String {
    let operator = caller(OPERATOR, "role = \"operator\"");
    format!(
        "listen = \"127.0.0.1:0\"\nhealth_listen = \"127.0.0.1:0\"\npolicy = \"policy.yaml\"\npolicy_settle = \"20ms\"\n{}{operator}",
        callers.concat()
    )
}

fn policy(connector: &str) -> String {
    format!("version: countersign.policy/v1\nconnectors: {{ {connector}: {{ accounts: none }} }}\n")
}

impl Served {
    fn start(name: &str, callers: &[String]) -> Self {
        let folder = Folder::new(name);
        for name in ["one", "two", OPERATOR] {
            folder.write(&format!("{name}.token"), token(name));
        }
        folder.write("policy.yaml", policy("first"));
        let file = folder.write("countersign.toml", config(callers));
        let mut child = Countersign::new(&["serve", "--config", text(&file), "--log-format", "human"]).spawn();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (said, log) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines {
                // A test that has ended reads no more.
                if line.is_ok_and(|line| said.send(line).is_err()) {
                    return;
                }
            }
        });
        let mut served = Self { child, folder, log, address: String::new() };
        let line = served.says(" address=").pop().unwrap();
        served.address = line.split(" address=").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        served
    }

    /// Everything that the log says up to the next line with `text`.
    fn says(&self, text: &str) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            let line = self.log.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("never {text:?} after {said:#?}"));
            said.push(line);
            if said.last().unwrap().contains(text) {
                return said;
            }
        }
    }

    fn hang_up(&self) {
        // The shell's own: not every machine has the program.
        let sent = Command::new("sh").args(["-c", &format!("kill -HUP {}", self.child.id())]).status().unwrap();
        assert!(sent.success());
    }

    /// Writes the configuration, and has it read.
    fn reads(&self, callers: &[String], until: &str) -> Vec<String> {
        self.folder.write("countersign.toml", config(callers));
        self.hang_up();
        self.says(until)
    }

    fn evaluate(&self, name: &str) -> Result<String, Status> {
        let invocation = Invocation {
            principal: "dana".to_owned(),
            agent: "assistant".to_owned(),
            connector: "first".to_owned(),
            action: "LIST".to_owned(),
            ..Invocation::default()
        };
        runtime().block_on(async {
            let channel = client::channel_to(&self.address).unwrap();
            let request = EvaluateRequest { invocation: Some(invocation), explain: false };
            let answer = client::agent(channel, Bearer::new(&token(name)).unwrap()).evaluate(request).await?;
            Ok(answer.into_inner().reason)
        })
    }

    fn policy(&self) -> GetPolicyResponse {
        runtime().block_on(async {
            let channel = client::channel_to(&self.address).unwrap();
            let mut operator = client::operator(channel, Bearer::new(&token(OPERATOR)).unwrap());
            operator.get_policy(GetPolicyRequest {}).await.unwrap().into_inner()
        })
    }

    fn policy_that(&self, holds: impl Fn(&GetPolicyResponse) -> bool) -> GetPolicyResponse {
        let start = Instant::now();
        loop {
            let told = self.policy();
            if holds(&told) {
                return told;
            }
            assert!(start.elapsed() < PATIENCE, "{told:?}");
        }
    }
}

const READ: &str = "the configuration was read again";

#[test]
fn callers_come_and_go_with_a_hangup_and_no_restart() {
    let served = Served::start("reload-callers", &[agent("one")]);
    assert_eq!(served.evaluate("one").unwrap(), "ACTION_UNKNOWN");
    assert_eq!(served.evaluate("two").unwrap_err().code(), Code::Unauthenticated);
    let said = served.reads(&[agent("two")], READ).join("\n");
    assert!(said.contains("caller=one what=\"removed\"") && said.contains("caller=two what=\"added\""), "{said}");
    assert_eq!(served.evaluate("one").unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(served.evaluate("two").unwrap(), "ACTION_UNKNOWN");
    let narrower = caller("two", "role = \"agent\"\nagents = [\"*\"]\nprincipals = [\"eve\"]");
    let said = served.reads(&[narrower], READ).join("\n");
    assert!(said.contains("caller=two what=\"changed\""), "{said}");
    assert_eq!(served.evaluate("two").unwrap_err().code(), Code::PermissionDenied);
    let expired =
        caller("two", "role = \"agent\"\nagents = [\"*\"]\nprincipals = [\"*\"]\nexpires = \"2020-01-01T00:00:00Z\"");
    let said = served.reads(&[expired], READ).join("\n");
    assert!(said.contains("has expired") && said.contains("caller=two"), "{said}");
    assert_eq!(served.evaluate("two").unwrap_err().code(), Code::Unauthenticated);
    // Another token in the same file is another credential.
    served.folder.write("two.token", token("renewed"));
    served.reads(&[agent("two")], READ);
    assert_eq!(served.evaluate("renewed").unwrap(), "ACTION_UNKNOWN");
    assert_eq!(served.evaluate("two").unwrap_err().code(), Code::Unauthenticated);
}

#[test]
fn a_configuration_with_problems_changes_nothing_and_all_of_them_are_said() {
    let served = Served::start("reload-problems", &[agent("one")]);
    let wrong = [agent("two"), caller("x", "role = \"king\""), "[limits]\nopen_per_agent = 0\nopen = 1\n".to_owned()];
    let said = served.reads(&wrong, "the configuration is refused").join("\n");
    for problem in ["role: \"king\"", "x.token", "limits.open_per_agent: 0", "limits.open: is no key"] {
        assert!(said.contains(problem), "{problem} not in\n{said}");
    }
    assert_eq!(served.evaluate("one").unwrap(), "ACTION_UNKNOWN");
    assert_eq!(served.evaluate("two").unwrap_err().code(), Code::Unauthenticated);
    for broken in ["listen = \n", "\u{0}", ""] {
        fs::write(served.folder.path("countersign.toml"), broken).unwrap();
        served.hang_up();
        if broken.is_empty() {
            // An empty file is a configuration, in which nobody may call.
            served.says("nobody can call");
            assert_eq!(served.evaluate("one").unwrap_err().code(), Code::Unauthenticated);
        } else {
            served.says("the configuration is refused");
            assert_eq!(served.evaluate("one").unwrap(), "ACTION_UNKNOWN");
        }
    }
    fs::remove_file(served.folder.path("countersign.toml")).unwrap();
    served.hang_up();
    served.says("the configuration is refused");
    served.reads(&[agent("one")], READ);
    assert_eq!(served.evaluate("one").unwrap(), "ACTION_UNKNOWN");
}

#[test]
fn what_is_taken_at_start_alone_is_said_to_need_a_restart() {
    let served = Served::start("reload-restart", &[agent("one")]);
    let changed = config(&[agent("one"), agent("two")])
        .replace("listen = \"127.0.0.1:0\"\nhealth", "listen = \"127.0.0.1:1\"\nhealth")
        .replace("policy = \"policy.yaml\"", "policy = \"other.yaml\"");
    served.folder.write("countersign.toml", format!("reflection = true\n{changed}"));
    served.hang_up();
    let said = served.says(READ);
    let restart: Vec<&String> = said.iter().filter(|line| line.contains("it needs a restart")).collect();
    assert_eq!(restart.len(), 3, "{said:#?}");
    for key in ["key=\"listen\"", "key=\"policy\"", "key=\"reflection\""] {
        assert!(restart.iter().any(|line| line.contains(key)), "{key}: {said:#?}");
    }
    assert_eq!(served.evaluate("two").unwrap(), "ACTION_UNKNOWN", "what can be taken is");
    served.reads(&[agent("one")], READ);
}

#[test]
fn the_policy_is_taken_by_itself_and_read_again_when_told_to() {
    let served = Served::start("reload-policy", &[agent("one")]);
    let first = served.policy().revision;
    served.folder.write("policy.yaml", policy("second"));
    let said = served.says("another policy is in force").pop().unwrap();
    assert!(said.contains(&format!("was=\"{first}\"")), "{said}");
    let second = served.policy_that(|told| told.revision != first).revision;
    assert_eq!(served.evaluate("one").unwrap(), "CONNECTOR_UNKNOWN");
    served.folder.write("policy.yaml", policy("second").replace("connectors", "conectors"));
    let said = served.says("the policy's files are refused").join("\n");
    assert!(said.contains("policy.yaml:2:1: conectors: "), "{said}");
    let told = served.policy_that(|told| !told.problems.is_empty());
    assert_eq!(told.revision, second);
    // Said once; again when somebody asks.
    served.hang_up();
    let said = served.says("the policy's files are refused").join("\n");
    assert!(said.contains("policy.yaml:2:1: conectors: ") && said.contains("SIGHUP"), "{said}");
    served.folder.write("policy.yaml", policy("second"));
    served.says("the policy was read again and means the same");
    served.policy_that(|told| told.problems.is_empty() && told.revision == second);
}
