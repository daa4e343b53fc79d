//! What a database that is a file owes beyond the suite: it is one sidecar's, and its own files are nobody else's.

use crate::grpc::audit::everything;
use crate::grpc::harness::*;
use crate::grpc::rotation::{key_id, new_secret};
use crate::grpc::shutdown::{prepared, refused_start, start};
use crate::grpc::sweeping::DAY;
use countersign::clock::ManualClock;
use countersign::config::Config;
use countersign::proto::*;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn files_are_readable_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let sidecar = Sidecar::start().await;
    everything(&sidecar).await;
    let mut looked_at = 0;
    for entry in std::fs::read_dir(sidecar.folder()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_str().unwrap().to_owned();
        if name.starts_with("countersign.db") {
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{name}");
            looked_at += 1;
        }
    }
    assert!(looked_at >= 4, "database, log, lock and secret");
}

#[tokio::test]
async fn what_is_erased_is_in_no_file_any_more_nor_in_the_log_of_the_database() {
    let sidecar = Sidecar::start().await;
    let call =
        Invocation { arguments_json: r#"{"to":"a@example.com","body":"SENTINEL-ERASED"}"#.to_owned(), ..email() };
    let (approval, _) = sidecar.ask(call).await;
    sidecar.cancel(&approval).await.unwrap();
    let files = || {
        let files =
            std::fs::read_dir(sidecar.folder()).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
        files.filter(|bytes| bytes.windows(15).any(|part| part == b"SENTINEL-ERASED")).count()
    };
    assert!(files() > 0, "until then it is somewhere");
    sidecar.advance(DAY + DAY);
    assert_eq!(sidecar.sweep().await.erased, 1);
    for _ in 0..100 {
        // The writer empties its log when it is asked for something next, which readiness does every second.
        sidecar.running().engine().store().time().await.unwrap();
        if files() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it is still in a file");
}

#[tokio::test]
async fn a_second_sidecar_on_the_same_database_is_refused_naming_the_holder() {
    let (_folder, config) = prepared(POLICY);
    let running = start(&config).await.unwrap();
    let told = refused_start(&config).await;
    let me = std::process::id().to_string();
    assert!(told.contains("countersign.db") && told.contains(&me), "{told}");
    // The first one is none the worse for it.
    let channel = countersign::client::channel(running.address()).unwrap();
    let bearer = countersign::client::Bearer::new(&token("runtime")).unwrap();
    let request = RequestApprovalRequest { invocation: Some(email()), ..Default::default() };
    countersign::client::agent(channel, bearer).request_approval(request).await.unwrap();
    assert!(running.stop().await);
    assert!(start(&config).await.unwrap().stop().await);
}

#[tokio::test]
async fn a_clock_far_behind_the_table_refuses_the_start_and_a_little_does_not() {
    let (_folder, config) = prepared(POLICY);
    let late = Arc::new(ManualClock::at(START.plus(Duration::from_secs(3_600))));
    serve(&config, late).await.unwrap().stop().await;
    let told = refused_start(&config).await;
    assert!(told.contains("clock"), "{told}");
    let nearly = Arc::new(ManualClock::at(START.plus(Duration::from_secs(3_600 - 300))));
    serve(&config, nearly).await.unwrap().stop().await;
    let mut accepting = config.clone();
    accepting.store.sqlite_mut().unwrap().accept_clock = true;
    let running = start(&accepting).await.unwrap();
    let now = running.engine().store().estimated_time();
    assert!(now >= START.plus(Duration::from_secs(3_600)), "time goes on from where it was");
    running.stop().await;
}

#[tokio::test]
async fn a_file_that_is_no_database_of_ours_is_refused_and_left_as_it_is() {
    let (folder, config) = prepared(POLICY);
    let path = folder.path().join("countersign.db");
    let content = "not a database at all, but long enough to be looked at as one ".repeat(20);
    std::fs::write(&path, &content).unwrap();
    let told = refused_start(&config).await;
    assert!(told.contains("countersign.db"), "{told}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    std::fs::remove_file(&path).unwrap();
    let mut elsewhere = config.clone();
    elsewhere.store.sqlite_mut().unwrap().path = folder.path().join("missing/countersign.db");
    let told = refused_start(&elsewhere).await;
    assert!(told.contains("missing"), "{told}");
}

#[tokio::test]
async fn a_file_is_not_served_without_the_secrets_that_it_needs_and_says_what_to_do() {
    let mut sidecar = Sidecar::start().await;
    let old = key_id(&sidecar.folder().join(SECRET));
    sidecar.ask(email()).await;
    let new = new_secret(&sidecar, "new.secret");
    let another = new_secret(&sidecar, "another.secret");
    for (names, says) in [
        (&["new.secret"][..], &[old.as_str(), &new, "`store.further_secret_files`"][..]),
        (&["new.secret", "another.secret"], &[&old, &new, &another]),
        (&["absent.secret"], &["absent.secret", &old, "countersign secret new"]),
    ] {
        let problem = start_with(&mut sidecar, names).await.unwrap_err();
        assert!(says.iter().all(|part| problem.contains(part)), "{problem}");
    }
    start_with(&mut sidecar, &["new.secret", SECRET]).await.unwrap();
    let problem = start_with(&mut sidecar, &["new.secret"]).await.unwrap_err();
    assert!(problem.contains(&format!("still needs the server secret of the key id {old}")), "{problem}");
    assert!(problem.contains("store.further_secret_files"), "{problem}");
}

async fn start_with(sidecar: &mut Sidecar, names: &[&str]) -> Result<(), String> {
    let files: Vec<PathBuf> = names.iter().map(|name| sidecar.folder().join(name)).collect();
    let change = |config: &mut Config| {
        config.secret_file = files[0].clone();
        config.further_secret_files = files[1..].to_vec();
    };
    sidecar.restart_with(change).await.map_err(|error| error.to_string())
}
