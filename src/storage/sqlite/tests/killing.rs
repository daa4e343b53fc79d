//! A process that is killed in the middle of its work has lost nothing that it acknowledged.

use super::*;
use crate::clock::SystemClock;
use crate::domain::approval::{Answer, ApprovalState, Commanded, StateName, Verdict};
use crate::storage::conformance::{NO_LIMITS, approval_id, id, person, question_about, sealed_arguments, start_of};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

const FOLDER: &str = "COUNTERSIGN_TEST_KILLED_FOLDER";
const THIS: &str = "storage::sqlite::tests::killing::works_until_it_is_killed";
const SWEEPS: &str = "storage::sqlite::tests::killing::sweeps_until_it_is_killed";
const ROUNDS: usize = 3;

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let folder = Folder::new();
    let mut acknowledged = BTreeSet::new();
    for round in 0..ROUNDS {
        let mut child = child(THIS, &folder);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let enough = 60 * (round + 1);
        let mut seen = 0;
        while seen < enough {
            let line = lines.next().expect("the child ended by itself").unwrap();
            if let Some(id) = line.strip_prefix("consumed ") {
                acknowledged.insert(id.to_owned());
                seen += 1;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had said before it died counts too; a line that it did not finish does not.
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        acknowledged.extend(
            rest.iter()
                .filter_map(|line| line.strip_prefix("consumed "))
                .filter(|id| id.len() == 36)
                .map(str::to_owned),
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options = SqliteOptions::new(folder.database(), Arc::new(SystemClock::new()));
            let store = SqliteStore::open(options).await.expect("the lock went with the process");
            for id in &acknowledged {
                let id = ApprovalId::parse(id).unwrap();
                let approval = store.approval(id).await.unwrap().row.expect("an acknowledged approval is there");
                let ApprovalState::Consumed { execution, .. } = approval.state else {
                    panic!("acknowledged as consumed: {:?}", approval.state)
                };
                let execution = store.execution(execution).await.unwrap().row.unwrap();
                assert_eq!(execution.approval, Some(id));
            }
            store.close().await;
            check(&folder.database()).await;
        });
    }
    assert!(acknowledged.len() >= 60 + 120 + 180);
}

/// A process that does what this test does.
fn child(test: &str, folder: &Folder) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .env(FOLDER, &folder.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_kill_in_the_middle_of_a_sweep_leaves_each_row_before_or_after_it() {
    let folder = Folder::new();
    for round in 1..=ROUNDS {
        let mut child = child(SWEEPS, &folder);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..40 * round {
            lines
                .by_ref()
                .find(|line| line.as_ref().unwrap().starts_with("swept "))
                .expect("it ended by itself")
                .unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        drop(lines);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            check(&folder.database()).await;
            // All the deadlines have come.
            let clock = Arc::new(SystemClock::new());
            let store = SqliteStore::open(SqliteOptions::new(folder.database(), clock)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
            while store.sweep(Sweep::ExpireApprovals, 1_000).await.unwrap().rows > 0 {}
            let states = vec![StateName::Pending];
            let query = ApprovalQuery { person: id("olga"), groups: Vec::new(), states, before: None, limit: 10 };
            assert!(store.approvals(query).await.unwrap().row.is_empty());
            store.close().await;
            check(&folder.database()).await;
        });
    }
}

/// What the other killed process does.
#[tokio::test]
#[ignore = "run by the test above, in a process of its own"]
async fn sweeps_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let path = PathBuf::from(folder).join("countersign.db");
    let options = SqliteOptions::new(path, Arc::new(SystemClock::new()));
    let store = Arc::new(SqliteStore::open(options).await.unwrap());
    for worker in 0..8 {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for call in 0.. {
                let mut question = question_about(&format!("{} {worker} {call}", std::process::id()));
                question.requirement = question.requirement.deciding_within(Duration::from_millis(1));
                let arguments = sealed_arguments();
                let new = NewApproval { id: approval_id(), question, arguments, request: None, limits: NO_LIMITS };
                store.request(new).await.unwrap();
            }
        });
    }
    let kept = Duration::from_millis(20);
    loop {
        for step in [Sweep::ExpireApprovals, Sweep::EraseApprovals { kept }, Sweep::DeleteApprovals { kept: kept * 2 }]
        {
            let swept = store.sweep(step, 16).await.unwrap();
            if swept.rows > 0 {
                let mut out = std::io::stdout().lock();
                writeln!(out, "swept {}", swept.rows).unwrap();
                out.flush().unwrap();
            }
        }
    }
}

/// What the killed process does. Without a folder it does nothing.
#[tokio::test]
#[ignore = "run by the test above, in a process of its own"]
async fn works_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let path = PathBuf::from(folder).join("countersign.db");
    let options = SqliteOptions::new(path, Arc::new(SystemClock::new()));
    let store = Arc::new(SqliteStore::open(options).await.unwrap());
    let workers: Vec<_> = (0..16)
        .map(|worker| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for call in 0.. {
                    let call = format!("{} {worker} {call}", std::process::id());
                    let new = NewApproval {
                        id: approval_id(),
                        question: question_about(&call),
                        request: None,
                        arguments: sealed_arguments(),
                        limits: NO_LIMITS,
                    };
                    let asked = store.request(new).await.unwrap();
                    let Requested::Created(approval) = asked.row else { panic!("not created") };
                    let answer = Answer { verdict: Verdict::Approve, reason: None, shown_fingerprint: None };
                    let decided = approval.decide(&person("olga"), &answer, asked.now).unwrap();
                    let Commanded::Changed(change) = decided else { panic!("not changed") };
                    assert_eq!(store.save_approval(*change, 1).await.unwrap(), Saved::Yes);
                    store.consume(start_of(&approval), Accepting::AnyRequirement).await.unwrap().unwrap();
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "consumed {}", approval.id).unwrap();
                    out.flush().unwrap();
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
}
