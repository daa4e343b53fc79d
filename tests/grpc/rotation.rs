//! Replacing the server secret: the old one stays beside the new one for as long as anything needs it, and no longer.

use crate::grpc::harness::*;
use crate::grpc::moves::*;
use crate::grpc::rotation_live::readiness;
use crate::grpc::sealing::erase;
use countersign::config::Config;
use countersign::proto::*;
use countersign::secrets::ServerSecret;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::Code;

pub const FIRST: &str = SECRET;

pub fn new_secret(sidecar: &Sidecar, name: &str) -> String {
    let path = sidecar.folder().join(name);
    ServerSecret::generate().unwrap().write(&path).unwrap();
    key_id(&path)
}

pub fn key_id(path: &Path) -> String {
    ServerSecret::read(path).unwrap().unwrap().keys().unwrap().id().to_owned()
}

/// Restarts with these secrets, the first of which makes what is new. The reason, if it does not start, or is not ready.
async fn restart(sidecar: &mut Sidecar, names: &[&str]) -> Result<(), String> {
    let files: Vec<PathBuf> = names.iter().map(|name| sidecar.folder().join(name)).collect();
    let change = |config: &mut Config| {
        config.secret_file = files[0].clone();
        config.further_secret_files = files[1..].to_vec();
    };
    sidecar.restart_with(change).await.map_err(|error| error.to_string())?;
    let (ready, missing) = readiness(sidecar).await;
    if ready { Ok(()) } else { Err(format!("not ready for want of {}", missing.join(", "))) }
}

pub fn key_of(token: &str) -> &str {
    token.split('.').nth(1).unwrap()
}

pub async fn first_page(sidecar: &Sidecar) -> ListApprovalsRequest {
    let request = ListApprovalsRequest { principal: "olga".to_owned(), page_size: 1, ..Default::default() };
    let page = sidecar.approver().list_approvals(request.clone()).await.unwrap().into_inner();
    ListApprovalsRequest { page_token: page.next_page_token, ..request }
}

#[tokio::test]
async fn what_the_old_secret_made_is_good_beside_the_new_one() {
    let mut sidecar = Sidecar::start().await;
    let old = key_id(&sidecar.folder().join(FIRST));
    let (asked, old_token) = sidecar.approved(in_conversation("asked")).await;
    sidecar.ask(in_conversation("another")).await;
    let next_page = first_page(&sidecar).await;
    assert_eq!(key_of(&old_token), old);

    let new = new_secret(&sidecar, "new.secret");
    restart(&mut sidecar, &["new.secret", FIRST]).await.unwrap();
    let page = sidecar.approver().list_approvals(next_page).await.unwrap().into_inner();
    assert_eq!(page.approvals[0].id, asked.id, "a page token of the old secret goes on");
    let again = sidecar.request(in_conversation("asked")).await.unwrap();
    assert!(again.existing && again.approval.unwrap().id == asked.id);
    assert_eq!(key_of(&again.consume_token), new, "the same question has a token of the new secret");
    let whole = sidecar.arguments_for("olga", &asked.id).await.unwrap();
    assert_eq!(whole.fingerprint, asked.fingerprint);
    sidecar.consume(&old_token, in_conversation("asked")).await.unwrap();
    let used = sidecar.consume(&again.consume_token, in_conversation("asked")).await;
    refused(used, Code::FailedPrecondition, "APPROVAL_CONSUMED");

    // The other way round as well: a token of the new one, and what it sealed.
    let (later, later_token) = sidecar.approved(in_conversation("later")).await;
    restart(&mut sidecar, &[FIRST, "new.secret"]).await.unwrap();
    sidecar.arguments_for("olga", &later.id).await.unwrap();
    sidecar.consume(&later_token, in_conversation("later")).await.unwrap();
}

#[tokio::test]
async fn a_secret_is_removed_once_nothing_needs_it_and_not_before() {
    let mut sidecar = Sidecar::start().await;
    let old = key_id(&sidecar.folder().join(FIRST));
    let (asked, token) = sidecar.approved(in_conversation("asked")).await;
    sidecar.ask(in_conversation("another")).await;
    let next_page = first_page(&sidecar).await;
    let new = new_secret(&sidecar, "new.secret");
    let refused_alone = restart(&mut sidecar, &["new.secret"]).await.unwrap_err();
    assert!(refused_alone.contains(&old), "{refused_alone}");

    restart(&mut sidecar, &["new.secret", FIRST]).await.unwrap();
    let (later, _) = sidecar.ask(in_conversation("later")).await;
    for (names, missing) in [(&["new.secret"][..], &old), (&[FIRST], &new)] {
        let problem = restart(&mut sidecar, names).await.unwrap_err();
        assert!(problem.contains(missing), "{problem}");
    }
    // Final alone is not enough: its arguments are still sealed under it.
    restart(&mut sidecar, &["new.secret", FIRST]).await.unwrap();
    for approval in [asked.id.clone(), next_approval(&sidecar, "another").await] {
        sidecar.cancel_as("runtime", &Approval { id: approval, ..asked.clone() }).await.unwrap();
    }
    restart(&mut sidecar, &["new.secret"]).await.unwrap_err();
    restart(&mut sidecar, &["new.secret", FIRST]).await.unwrap();
    for approval in sidecar.listed("olga", &[ApprovalState::Cancelled]).await {
        erase(&sidecar, &approval).await;
    }
    restart(&mut sidecar, &["new.secret"]).await.unwrap();
    refused(sidecar.consume(&token, in_conversation("asked")).await, Code::FailedPrecondition, "TOKEN_INVALID");
    let page = sidecar.approver().list_approvals(next_page).await;
    refused(page, Code::InvalidArgument, "PAGE_TOKEN_INVALID");
    sidecar.arguments_for("olga", &later.id).await.unwrap();
    sidecar.still_tells_the_story().await;
    // What was retired is no stranger when it comes back beside the others.
    restart(&mut sidecar, &["new.secret", FIRST]).await.unwrap();
}

#[tokio::test]
async fn erasing_frees_the_secret_by_itself() {
    let mut sidecar = Sidecar::start().await;
    sidecar.ask(email()).await;
    new_secret(&sidecar, "new.secret");
    restart(&mut sidecar, &["new.secret", FIRST]).await.unwrap();
    // Nobody answers; a day after its deadline nothing of it is kept in clear or sealed.
    sidecar.advance(Duration::from_secs(25 * 60 * 60));
    restart(&mut sidecar, &["new.secret"]).await.unwrap_err();
    restart(&mut sidecar, &["new.secret", FIRST]).await.unwrap();
    sidecar.sweep().await;
    restart(&mut sidecar, &["new.secret"]).await.unwrap();
    sidecar.still_tells_the_story().await;
}

async fn next_approval(sidecar: &Sidecar, conversation: &str) -> String {
    sidecar.request(in_conversation(conversation)).await.unwrap().approval.unwrap().id
}

#[tokio::test]
async fn a_secret_that_is_none_of_the_tables_serves_nobody() {
    let mut sidecar = Sidecar::start().await;
    let old = key_id(&sidecar.folder().join(FIRST));
    sidecar.ask(email()).await;
    new_secret(&sidecar, "stranger.secret");
    new_secret(&sidecar, "another.secret");
    for names in [&["stranger.secret"][..], &["stranger.secret", "another.secret"]] {
        let problem = restart(&mut sidecar, names).await.unwrap_err();
        assert!(problem.contains(&old), "{problem}");
    }
    let problem = restart(&mut sidecar, &["absent.secret"]).await.unwrap_err();
    assert!(problem.contains("absent.secret"), "{problem}");
    assert!(!sidecar.folder().join("absent.secret").exists(), "none is made for a table that was used");
    restart(&mut sidecar, &[FIRST]).await.unwrap();
    sidecar.still_tells_the_story().await;
}

#[tokio::test]
async fn every_file_that_is_wrong_is_named_at_once_and_no_secret_is_told() {
    let mut sidecar = Sidecar::start().await;
    let text = std::fs::read_to_string(sidecar.folder().join(FIRST)).unwrap();
    for (name, text) in [("copy.secret", text.as_str()), ("broken.secret", &text[1..]), ("word.secret", "hunter2")] {
        std::fs::write(sidecar.folder().join(name), text).unwrap();
    }
    std::fs::create_dir(sidecar.folder().join("folder.secret")).unwrap();
    let names = [FIRST, "copy.secret", "broken.secret", "word.secret", "absent.secret", "folder.secret"];
    let problem = restart(&mut sidecar, &names).await.unwrap_err();
    assert_eq!(problem.lines().count(), 5, "{problem}");
    for name in &names[1..] {
        assert_eq!(problem.lines().filter(|line| line.contains(name)).count(), 1, "{name} in {problem}");
    }
    assert!(!problem.contains("hunter2") && !problem.contains(&text[1..60]), "{problem}");
    restart(&mut sidecar, &[FIRST]).await.unwrap();
}
