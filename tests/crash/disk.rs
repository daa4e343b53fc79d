//! A disk without room. `RLIMIT_FSIZE` holds root as well, which modes do not, and can be lifted under a running process.

use crate::files::Files;
use crate::process::Sidecar;
use crate::process::calls::{ask, get};
use crate::story::Story;
use countersign::proto::EvaluateRequest;
use std::process::Command;
use tonic::Code;
use tonic_types::StatusExt as _;

/// What the files of a process may measure, in bytes.
fn limit(sidecar: &Sidecar, bytes: &str) {
    let pid = sidecar.pid().to_string();
    let set = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:unlimited")]).status();
    assert!(set.expect("prlimit is part of util-linux").success());
}

#[test]
fn a_full_disk_is_unavailable_loses_nothing_and_is_recovered_from_without_a_restart() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let files = Files::new();
        let mut sidecar = files.start();
        let clients = sidecar.clients();
        let mut random = crate::random::Random::from(7);
        let before = Story::new(&mut random);
        let (known, token) = ask(&clients, before.request_id(), before.invocation()).await.unwrap();

        limit(&sidecar, "4096");
        let mut refused = Vec::new();
        for _ in 0..20 {
            let story = Story::new(&mut random);
            let status = ask(&clients, story.request_id(), story.invocation()).await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{status:?}");
            let info = status.get_details_error_info().unwrap();
            assert_eq!(info.reason, "STORE_UNAVAILABLE");
            assert!(!status.message().contains("sqlite") && !status.message().contains("disk"), "{status:?}");
            refused.push(story);
        }
        assert!(sidecar.is_running(), "the system's signal does not end it");
        // What needs no table goes on, and what is in the table can still be read.
        let request = EvaluateRequest { invocation: Some(before.invocation().clone()), explain: false };
        clients.agent.clone().evaluate(request).await.unwrap();
        assert_eq!(get(&clients, &known).await.unwrap().id, known);

        limit(&sidecar, "unlimited");
        for story in &mut refused {
            // The same request under the same id is now recorded, once; then it goes its whole way.
            story.hold_against(&clients).await;
        }
        assert_eq!(ask(&clients, before.request_id(), before.invocation()).await.unwrap(), (known, token));
        assert!(sidecar.terminate(), "and a stop in order ends with 0");
        files.check_database().await;
    });
}

#[test]
fn a_kill_on_a_full_disk_leaves_a_file_that_opens_with_all_that_was_acknowledged() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let files = Files::new();
        let mut random = crate::random::Random::seeded();
        println!("seed {}", random.seed());
        let mut told = Vec::new();
        for round in 0..8 {
            let mut sidecar = files.start();
            let clients = sidecar.clients();
            // Somewhere in the middle of the load there is no more room.
            limit(&sidecar, &(files.largest_file() + 4_096 * (1 + random.below(20)) as u64).to_string());
            let mut full = false;
            for _ in 0..200 {
                let story = Story::new(&mut random);
                match ask(&clients, story.request_id(), story.invocation()).await {
                    Ok(answer) => told.push((story, answer)),
                    Err(status) => {
                        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
                        full = true;
                        break;
                    }
                }
            }
            assert!(full, "round {round}: the limit is reached");
            sidecar.kill();
        }
        let sidecar = files.start();
        let clients = sidecar.clients();
        for (story, answer) in &told {
            assert_eq!(&ask(&clients, story.request_id(), story.invocation()).await.unwrap(), answer);
        }
        drop(sidecar);
        files.check_database().await;
    });
}
