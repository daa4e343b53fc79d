//! Replacing server secrets while the sidecar serves, and what it does when the table needs one that it lacks.

use crate::backend::intruder;
use crate::grpc::harness::*;
use crate::grpc::health::{SERVICES, check, plaintext};
use crate::grpc::metrics::scrape;
use crate::grpc::moves::*;
use crate::grpc::rotation::{FIRST, first_page, key_id, key_of, new_secret};
use crate::grpc::sealing::erase;
use crate::grpc::wire::http_get;
use sqlx::Row as _;
use std::path::PathBuf;
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_types::StatusExt as _;

/// The configuration is read again, and names these secrets, the first of which makes what is new.
pub async fn take(sidecar: &Sidecar, names: &[&str]) {
    let mut config = config_in(sidecar.folder());
    let files: Vec<PathBuf> = names.iter().map(|name| sidecar.folder().join(name)).collect();
    config.secret_file = files[0].clone();
    config.further_secret_files = files[1..].to_vec();
    sidecar.running().reload().configuration(&config).await;
}

/// The key id of what is made now.
async fn makes_with(sidecar: &Sidecar, conversation: &str) -> String {
    let (_, token) = sidecar.ask(in_conversation(conversation)).await;
    key_of(&token).to_owned()
}

/// Whether it is ready, and what it lacks.
pub async fn readiness(sidecar: &Sidecar) -> (bool, Vec<String>) {
    let (status, body) = http_get(sidecar.running().health_address(), "/readyz").await;
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["ready"], status == 200);
    let missing = body["missing_secrets"].as_array().unwrap();
    (status == 200, missing.iter().map(|id| id.as_str().unwrap().to_owned()).collect())
}

#[tokio::test]
async fn a_secret_is_replaced_without_a_restart_and_without_a_refused_token() {
    let sidecar = Sidecar::start().await;
    let old = key_id(&sidecar.folder().join(FIRST));
    let new = new_secret(&sidecar, "new.secret");
    let (asked, old_token) = sidecar.approved(in_conversation("asked")).await;
    let next_page = first_page(&sidecar).await;

    take(&sidecar, &[FIRST, "new.secret"]).await;
    assert_eq!(makes_with(&sidecar, "further").await, old, "a further one makes nothing");
    take(&sidecar, &["new.secret", FIRST]).await;
    let (later, new_token) = sidecar.approved(in_conversation("later")).await;
    assert_eq!((key_of(&old_token), key_of(&new_token)), (old.as_str(), new.as_str()));
    sidecar.approver().list_approvals(next_page).await.unwrap();
    for approval in [&asked, &later] {
        sidecar.arguments_for("olga", &approval.id).await.unwrap();
    }
    sidecar.consume(&old_token, in_conversation("asked")).await.unwrap();
    sidecar.consume(&new_token, in_conversation("later")).await.unwrap();
    assert_eq!(readiness(&sidecar).await, (true, vec![]));
}

#[tokio::test]
async fn one_in_use_is_not_taken_out_and_one_that_nothing_needs_is() {
    let sidecar = Sidecar::start().await;
    new_secret(&sidecar, "new.secret");
    let (asked, token) = sidecar.approved(in_conversation("asked")).await;
    take(&sidecar, &["new.secret", FIRST]).await;
    take(&sidecar, &["new.secret"]).await;
    sidecar.arguments_for("olga", &asked.id).await.unwrap();
    sidecar.attempt(&token, &new_attempt(), in_conversation("asked")).await.unwrap();

    erase(&sidecar, &asked.id).await;
    take(&sidecar, &["new.secret"]).await;
    refused(sidecar.consume(&token, in_conversation("asked")).await, Code::FailedPrecondition, "TOKEN_INVALID");
    assert_eq!(readiness(&sidecar).await, (true, vec![]));
    sidecar.still_tells_the_story().await;
}

#[tokio::test]
async fn secrets_that_are_wrong_change_nothing() {
    let sidecar = Sidecar::start().await;
    let old = key_id(&sidecar.folder().join(FIRST));
    for name in ["new.secret", "stranger.secret"] {
        new_secret(&sidecar, name);
    }
    let copy = std::fs::read(sidecar.folder().join(FIRST)).unwrap();
    std::fs::write(sidecar.folder().join("copy.secret"), copy).unwrap();
    std::fs::write(sidecar.folder().join("broken.secret"), "hunter2").unwrap();
    for names in [
        &["absent.secret"][..],
        &["absent.secret", FIRST],
        &["broken.secret", FIRST],
        &[FIRST, "broken.secret"],
        &[FIRST, "absent.secret"],
        &[FIRST, "copy.secret"],
        // Strangers alone.
        &["stranger.secret"],
        &["stranger.secret", "new.secret"],
    ] {
        take(&sidecar, names).await;
        assert_eq!(makes_with(&sidecar, &names.join("-")).await, old, "{names:?}");
    }
    assert!(!sidecar.folder().join("absent.secret").exists(), "none is made for a table that was used");
    // The one that makes what is new does not go before another one does.
    take(&sidecar, &[FIRST, "new.secret"]).await;
    for approval in sidecar.listed("olga", &[]).await {
        erase(&sidecar, &approval).await;
    }
    take(&sidecar, &["new.secret"]).await;
    assert_eq!(makes_with(&sidecar, "after").await, old);
    assert_eq!(readiness(&sidecar).await, (true, vec![]));
}

#[tokio::test]
async fn a_secret_that_the_table_needs_and_the_sidecar_lacks_is_named_until_it_has_it() {
    let sidecar = Sidecar::start().await;
    let other = new_secret(&sidecar, "other.secret");
    let unknown = new_secret(&sidecar, "unknown.secret");
    take(&sidecar, &["other.secret", FIRST]).await;
    let (approval, token) = sidecar.approved(in_conversation("other")).await;
    take(&sidecar, &[FIRST, "other.secret"]).await;
    // As another sidecar of the same table would make it, once this one has let go of the secret.
    let mut table = intruder(&sidecar).await;
    let sealed = "SELECT approval_id, key_id, sealed FROM approval_arguments WHERE approval_id = $1";
    let row = sqlx::query(sealed).bind(&approval.id).fetch_one(&mut table).await.unwrap();
    erase(&sidecar, &approval.id).await;
    take(&sidecar, &[FIRST]).await;
    refused(sidecar.consume(&token, in_conversation("other")).await, Code::FailedPrecondition, "TOKEN_INVALID");
    sqlx::query("INSERT INTO approval_arguments (approval_id, key_id, sealed) VALUES ($1, $2, $3)")
        .bind(row.get::<String, _>(0))
        .bind(row.get::<String, _>(1))
        .bind(row.get::<Vec<u8>, _>(2))
        .execute(&mut table)
        .await
        .unwrap();

    // What needs it says so at once, and readiness follows.
    let status = refused(sidecar.consume(&token, in_conversation("other")).await, Code::Unavailable, "SECRET_MISSING");
    assert_eq!(told(&status, "key_ids"), other);
    assert!(status.get_details_retry_info().unwrap().retry_delay.is_some() && status.message().contains(&other));
    let status = refused(sidecar.arguments_for("olga", &approval.id).await, Code::Unavailable, "SECRET_MISSING");
    assert_eq!(told(&status, "key_ids"), other);
    let reasons: Vec<String> = sidecar.audit().await.into_iter().map(|record| record.reason).collect();
    assert_eq!(reasons.iter().filter(|reason| *reason == "SECRET_MISSING").count(), 2, "{reasons:?}");
    sidecar.running().secrets().look().await;
    assert_eq!(readiness(&sidecar).await, (false, vec![other.clone()]));
    for service in SERVICES {
        let alive = if service == "liveness" { ServingStatus::Serving } else { ServingStatus::NotServing };
        assert_eq!(check(plaintext(&sidecar), service).await.unwrap(), alive, "{service:?}");
    }
    assert_eq!(scrape(&sidecar).await.value("countersign_secrets_missing"), 1.0);

    // Nothing is taken for genuine meanwhile, and what needs it not goes on.
    for forged in [token.replace(&other, &unknown), token.replace("cs1.", "cs2."), format!("{token}0")] {
        let answer = sidecar.consume(&forged, in_conversation("other")).await;
        refused(answer, Code::FailedPrecondition, "TOKEN_INVALID");
    }
    sidecar.still_tells_the_story().await;
    // Secrets that lack it too are no reason to keep those in force.
    take(&sidecar, &[FIRST, "unknown.secret"]).await;
    assert_eq!(readiness(&sidecar).await, (false, vec![other.clone()]));

    take(&sidecar, &[FIRST, "other.secret"]).await;
    assert_eq!(readiness(&sidecar).await, (true, vec![]));
    assert_eq!(check(plaintext(&sidecar), "").await.unwrap(), ServingStatus::Serving);
    assert_eq!(scrape(&sidecar).await.value("countersign_secrets_missing"), 0.0);
    sidecar.consume(&token, in_conversation("other")).await.unwrap();
    sidecar.arguments_for("olga", &approval.id).await.unwrap();
}

#[tokio::test]
async fn it_is_ready_again_once_nothing_needs_the_secret_any_more() {
    let sidecar = Sidecar::start().await;
    let other = new_secret(&sidecar, "other.secret");
    let (approval, _) = sidecar.ask(in_conversation("asked")).await;
    let mut table = intruder(&sidecar).await;
    sqlx::query("INSERT INTO keys (id, check_value, create_time) SELECT $1, check_value, create_time FROM keys")
        .bind(&other)
        .execute(&mut table)
        .await
        .unwrap();
    sqlx::query("UPDATE approval_arguments SET key_id = $1").bind(&other).execute(&mut table).await.unwrap();
    sidecar.running().secrets().look().await;
    assert_eq!(readiness(&sidecar).await, (false, vec![other]));
    erase(&sidecar, &approval.id).await;
    sidecar.running().secrets().look().await;
    assert_eq!(readiness(&sidecar).await, (true, vec![]));
}
