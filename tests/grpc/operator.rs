//! What whoever runs the sidecar is told of its policy.

use crate::grpc::harness::*;
use crate::grpc::moves::*;
use countersign::proto::*;

async fn policy(sidecar: &Sidecar) -> GetPolicyResponse {
    sidecar.operator().get_policy(GetPolicyRequest {}).await.unwrap().into_inner()
}

#[tokio::test]
async fn the_policy_in_force_is_told_with_its_files_numbers_and_time() {
    let sidecar = Sidecar::start().await;
    let told = policy(&sidecar).await;
    assert_eq!(told.revision.len(), 64);
    assert_eq!(micros(&told.load_time), START.micros());
    assert_eq!(micros(&told.attempt_time), START.micros());
    assert_eq!(told.files.len(), 1);
    assert!(told.files[0].ends_with("policy.yaml"));
    assert!(told.problems.is_empty());
    let connectors: Vec<(&str, bool, u32, u32)> =
        told.connectors.iter().map(|one| (one.name.as_str(), one.enabled, one.actions, one.rules)).collect();
    assert_eq!(
        connectors,
        [("calendar", true, 1, 0), ("gmail", true, 4, 2), ("off", false, 0, 0), ("outlook", true, 1, 0)]
    );
}

#[tokio::test]
async fn the_revision_is_of_what_the_policy_means_and_stands_in_every_answer() {
    let mut sidecar = Sidecar::start().await;
    let first = policy(&sidecar).await.revision;
    assert_eq!(sidecar.evaluate(email()).await.unwrap().policy_revision, first);
    let (approval, _) = sidecar.ask(email()).await;
    assert_eq!(approval.policy_revision, first);
    // White space, comments and the order of keys mean nothing; anything else does.
    sidecar.restart_under(&format!("# a comment\n{POLICY}\n")).await;
    assert_eq!(policy(&sidecar).await.revision, first);
    sidecar.restart_under(&POLICY.replace("ceiling: admin", "ceiling: write")).await;
    let second = policy(&sidecar).await.revision;
    assert_ne!(second, first);
    assert_eq!(sidecar.evaluate(email()).await.unwrap().policy_revision, second);
    assert_eq!(sidecar.read(&approval).await.policy_revision, first, "the policy that asked");
}

#[tokio::test]
async fn what_a_failed_rule_says_of_itself_is_nothing_of_the_arguments() {
    let policy = r#"
version: countersign.policy/v1
connectors:
  gmail:
    ceiling: admin
    actions: { GMAIL_SEND_EMAIL: { scope: write, curated: true } }
    rules:
      - { name: type, when: "args.to.endsWith('x')", effect: confirm }
      - { name: missing, when: "args.absent == 1", effect: confirm }
      - { name: conversion, when: "int(args.body) > 1", effect: confirm }
      - { name: time, when: "timestamp(args.body) > now", effect: confirm }
      - { name: index, when: "args.list[9] == 1", effect: confirm }
      - { name: passes, when: "args.list.size() > 99", effect: confirm }
"#;
    let sidecar = Sidecar::under(policy).await;
    let arguments = r#"{"to":["SENTINEL-1"],"body":"SENTINEL-2","list":["SENTINEL-3"]}"#;
    let invocation = Invocation { arguments_json: arguments.to_owned(), ..email() };
    let explained = EvaluateRequest { invocation: Some(invocation.clone()), explain: true };
    let answer = sidecar.agent().evaluate(explained).await.unwrap().into_inner();
    let (approval, _) = sidecar.ask(invocation).await;
    assert_eq!(answer.reason, "CONFIRMATION_BY_RULE");
    for rules in [&answer.rules, &approval.rules] {
        let failed: Vec<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
        assert_eq!(failed, ["type", "missing", "conversion", "time", "index"], "in the policy's order");
        assert!(
            rules.iter().all(|rule| !rule.error.is_empty() && rule.effect == "confirm" && rule.connector == "gmail")
        );
    }
    let told = format!("{answer:?} {} {:?}", approval.message, approval.rules);
    assert!(!told.contains("SENTINEL"), "{told}");
}
