//! Permits for others to check: what is signed, that a replayed answer has the same, and whose keys check it while secrets
//! are replaced.

use crate::grpc::harness::*;
use crate::grpc::rotation::{FIRST, new_secret};
use crate::grpc::rotation_live::take;
use crate::grpc::sealing::erase;
use crate::grpc::steps::*;
use crate::grpc::wire::{http, http_get};
use countersign::domain::arguments::Arguments;
use countersign::domain::permit::{Claims, Expected, PermitNames, PermitRefusal};
use countersign::domain::text::Identifier;
use countersign::domain::time::Timestamp;
use countersign::proto::*;
use countersign::secrets::PermitKeys;
use std::time::Duration;

/// The keys that the sidecar publishes.
pub async fn published(sidecar: &Sidecar) -> PermitKeys {
    let (status, text) = http_get(sidecar.running().health_address(), "/.well-known/jwks.json").await;
    assert_eq!(status, 200);
    PermitKeys::parse(&text).unwrap()
}

async fn claims_of(sidecar: &Sidecar, permit: &Permit) -> Claims {
    published(sidecar).await.verify(&permit.permit_jwt).unwrap()
}

fn whole_seconds(time: Option<prost_types::Timestamp>) -> i64 {
    time.unwrap().seconds
}

#[tokio::test]
async fn a_permit_says_which_call_was_let_through_and_until_when() {
    let sidecar = Sidecar::start().await;
    sidecar.advance(Duration::from_micros(123_999_999));
    let digest = format!("td1:{}", "5".repeat(64));
    let call = Invocation { tool_definition_digest: digest.clone(), ..email() };
    let (approval, token) = sidecar.approved(call.clone()).await;
    let attempt = new_attempt();
    let answer = sidecar.attempt(&token, &attempt, call.clone()).await.unwrap();
    let permit = answer.permit.unwrap();
    let claims = claims_of(&sidecar, &permit).await;
    let listed = sidecar.operator().list_executions(ListExecutionsRequest::default()).await.unwrap().into_inner();
    let execution = &listed.executions[0];
    assert_eq!(claims.issuer.as_str(), "countersign");
    assert_eq!(claims.audience.as_str(), "countersign-permit");
    assert_eq!(claims.issued_at, whole_seconds(execution.start_time));
    assert_eq!(claims.expires_at, whole_seconds(permit.report_by));
    assert_eq!(claims.execution.to_string(), permit.execution_id);
    assert_eq!(claims.approval.unwrap().to_string(), approval.id);
    assert_eq!(claims.attempt.to_string(), attempt);
    assert_eq!(claims.principal.as_str(), call.principal);
    assert_eq!(claims.agent.as_str(), call.agent);
    assert_eq!(claims.conversation.unwrap().as_str(), call.conversation);
    assert_eq!(claims.connector.as_str(), call.connector);
    assert_eq!(claims.account.unwrap().as_str(), call.account);
    assert_eq!(claims.action.as_str(), call.action);
    assert_eq!(claims.arguments_digest, Arguments::parse(&call.arguments_json, 1_000).unwrap().digest());
    assert_eq!(claims.fingerprint.to_string(), approval.fingerprint);
    assert_eq!(claims.idempotency_key, permit.idempotency_key);
    assert_eq!(claims.tool_definition_digest.unwrap().to_string(), digest);
    assert_eq!(claims.policy_revision, approval.policy_revision);
}

#[tokio::test]
async fn what_a_call_does_not_have_its_permit_does_not_say() {
    let sidecar = Sidecar::start().await;
    let call = Invocation {
        conversation: String::new(),
        account: String::new(),
        connector: "calendar".to_owned(),
        action: "ADD_EVENT".to_owned(),
        objective: None,
        ..email()
    };
    let permit = sidecar.started(call).await;
    let claims = claims_of(&sidecar, &permit).await;
    assert_eq!((claims.approval, claims.account, claims.conversation), (None, None, None));
    assert_eq!(claims.tool_definition_digest, None);
}

#[tokio::test]
async fn a_permit_is_good_until_the_second_of_report_by_and_no_longer() {
    let sidecar = Sidecar::start().await;
    let permit = sidecar.started(fetch()).await;
    let claims = claims_of(&sidecar, &permit).await;
    let report_by = micros(permit.report_by);
    let expected = |now| Expected {
        issuer: "countersign",
        audience: "countersign-permit",
        arguments: None,
        connector: None,
        account: None,
        action: None,
        principal: None,
        agent: None,
        conversation: None,
        now: Timestamp::from_micros(now),
        tolerance: Duration::ZERO,
    };
    assert_eq!(claims.check(&expected(report_by)), [PermitRefusal::Expired]);
    assert_eq!(claims.check(&expected(report_by - 1_000_000)), []);
    assert_eq!(claims.check(&expected(sidecar.now())), []);
}

#[tokio::test]
async fn a_replayed_answer_has_the_same_permit_to_the_last_byte() {
    let mut sidecar = Sidecar::start().await;
    let (_, token) = sidecar.approved(email()).await;
    let attempt = new_attempt();
    let first = sidecar.attempt(&token, &attempt, email()).await.unwrap();
    sidecar.advance(Duration::from_secs(7));
    let again = sidecar.attempt(&token, &attempt, email()).await.unwrap();
    assert!(again.replayed && !first.replayed);
    assert_eq!(first.permit, again.permit);
    sidecar.restart().await;
    let restarted = sidecar.attempt(&token, &attempt, email()).await.unwrap();
    assert_eq!(first.permit, restarted.permit);
    // Under another policy the execution is still the one that began under the first.
    sidecar.restart_under(&format!("{POLICY}\n  further:\n    enabled: false\n")).await;
    let later = sidecar.attempt(&token, &attempt, email()).await.unwrap();
    assert_eq!(first.permit, later.permit);
}

#[tokio::test]
async fn two_permits_are_never_one() {
    let sidecar = Sidecar::start().await;
    let (one, other) = (sidecar.started(fetch()).await, sidecar.started(fetch()).await);
    assert_ne!(one.permit_jwt, other.permit_jwt);
    assert_ne!(claims_of(&sidecar, &one).await.execution, claims_of(&sidecar, &other).await.execution);
}

#[tokio::test]
async fn names_are_as_configured_and_permits_can_be_switched_off() {
    let mut sidecar = Sidecar::start().await;
    let id = |text: &str| Identifier::parse(text).unwrap();
    let names = PermitNames {
        issuer: id("prod \"eu\""),
        audience: id("everyone"),
        audiences: [(id("gmail"), id("mail-proxy"))].into(),
    };
    sidecar.restart_with(|config| config.permits = Some(names)).await.unwrap();
    let claims = claims_of(&sidecar, &sidecar.started(fetch()).await).await;
    assert_eq!((claims.issuer.as_str(), claims.audience.as_str()), ("prod \"eu\"", "mail-proxy"));
    let event = Invocation {
        connector: "calendar".to_owned(),
        action: "ADD_EVENT".to_owned(),
        account: String::new(),
        ..email()
    };
    assert_eq!(claims_of(&sidecar, &sidecar.started(event).await).await.audience.as_str(), "everyone");
    sidecar.restart_with(|config| config.permits = None).await.unwrap();
    assert_eq!(sidecar.started(fetch()).await.permit_jwt, "");
}

#[tokio::test]
async fn the_keys_are_public_and_nothing_else_is() {
    let sidecar = Sidecar::start().await;
    let address = sidecar.running().health_address();
    let (status, headers, body) = http(address, "/.well-known/jwks.json", "").await;
    assert_eq!(status, 200);
    let headers = headers.to_lowercase();
    assert!(headers.contains("content-type: application/jwk-set+json"), "{headers}");
    assert!(headers.contains("cache-control: public, max-age=300"), "{headers}");
    assert_eq!(http_get(address, "/jwks.json").await, (200, body.clone()));
    let set: serde_json::Value = serde_json::from_str(&body).unwrap();
    let keys = set["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 1);
    let members: Vec<&str> = keys[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(members, ["alg", "crv", "kid", "kty", "use", "x"]);
    let said = ["alg", "crv", "kty", "use"].map(|name| keys[0][name].as_str().unwrap());
    assert_eq!(said, ["EdDSA", "Ed25519", "OKP", "sig"]);
}

#[tokio::test]
async fn a_secret_is_replaced_while_every_permit_goes_on_being_verified_until_its_secret_is_gone() {
    let sidecar = Sidecar::start().await;
    new_secret(&sidecar, "new.secret");
    let (approval, token) = sidecar.approved(email()).await;
    let before = sidecar.consume(&token, email()).await.unwrap().permit.unwrap().permit_jwt;
    let before_keys = published(&sidecar).await;

    take(&sidecar, &[FIRST, "new.secret"]).await;
    let both = published(&sidecar).await;
    assert_ne!(both, before_keys, "whoever asks now knows the new key before anything is signed with it");
    let between = sidecar.started(fetch()).await.permit_jwt;
    before_keys.verify(&between).unwrap();

    take(&sidecar, &["new.secret", FIRST]).await;
    let attempt = new_attempt();
    let after = sidecar.attempt("", &attempt, fetch()).await.unwrap().permit.unwrap().permit_jwt;
    assert_eq!(published(&sidecar).await, both, "which is first changes no key");
    for permit in [&before, &between, &after] {
        both.verify(permit).unwrap();
    }
    assert_eq!(before_keys.verify(&after), Err(PermitRefusal::KeyUnknown));
    assert_eq!(sidecar.attempt("", &attempt, fetch()).await.unwrap().permit.unwrap().permit_jwt, after);

    erase(&sidecar, &approval.id).await;
    take(&sidecar, &["new.secret"]).await;
    let left = published(&sidecar).await;
    left.verify(&after).unwrap();
    for permit in [&before, &between] {
        assert_eq!(left.verify(permit), Err(PermitRefusal::KeyUnknown));
    }
}

#[tokio::test]
async fn a_permit_is_in_no_list_record_or_debug_text() {
    let sidecar = Sidecar::start().await;
    let answer = sidecar.consume("", fetch()).await.unwrap();
    let jwt = answer.permit.clone().unwrap().permit_jwt;
    let payload = jwt.split('.').nth(1).unwrap();
    assert!(!format!("{answer:?}").contains(payload));
    for (name, bytes) in files(sidecar.folder()) {
        let kept = bytes.windows(payload.len()).any(|part| part == payload.as_bytes());
        assert!(!kept, "{name} keeps the permit");
    }
}
