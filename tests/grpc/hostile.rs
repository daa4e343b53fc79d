//! Hostile text in every field of every request: it is refused by name, or it is only text.

mod fields;

use crate::grpc::harness::*;
use crate::grpc::moves::*;
use countersign::proto::*;
use fields::{Takes, fields, hostile, report};
use std::collections::HashSet;
use std::sync::Arc;
use tokio::task::JoinSet;
use tonic::{Code, Status};

/// Any agent may call anything, and people confirm all of it: every identifier reaches the record.
pub const OPEN: &str = r#"
version: countersign.policy/v1
defaults: { ceiling: admin, confirm: always }
connectors:
  gmail: { ceiling: admin, confirm: always, unlisted: admin }
"#;

/// What a status costs in headers, where its message is percent-encoded and its details are base64: clients refuse more
/// than 8 KiB of them.
fn header_bytes(status: &Status) -> usize {
    let escaped = |byte: u8| if (0x20..0x7f).contains(&byte) && byte != b'%' { 1 } else { 3 };
    status.message().bytes().map(escaped).sum::<usize>() + status.details().len() * 4 / 3
}

/// A refusal that is the sidecar's own, small enough to travel and fit to be printed.
#[track_caller]
pub fn proper(status: &Status, what: &str) {
    assert!(!matches!(status.code(), Code::Internal | Code::Unknown | Code::Unavailable), "{what}: {status:?}");
    assert!(!reason(status).is_empty());
    assert!(header_bytes(status) < 7_500, "{what}: {} bytes", header_bytes(status));
    let hidden = status.message().chars().find(|one| countersign::domain::text::is_hidden(*one));
    assert_eq!(hidden, None, "{what}: {:?}", status.message());
}

#[tokio::test]
async fn hostile_text_in_any_field_is_refused_by_name_or_is_only_text() {
    let sidecar = Arc::new(Sidecar::with(OPEN, (1_000_000, 1_000_000)).await);
    let texts: Vec<(String, bool)> = hostile().into_iter().chain([(String::new(), false)]).collect();
    for field in fields() {
        // All at once, so that they share their commits.
        let mut calls = JoinSet::new();
        for (text, identifier) in texts.iter().cloned() {
            let (send, sidecar) = (field.send, Arc::clone(&sidecar));
            calls.spawn(async move { (send(&sidecar, text.clone()).await, text, identifier) });
        }
        for (result, text, identifier) in calls.join_all().await {
            let what = format!("{} of {:?}", field.name, text.chars().take(40).collect::<String>());
            if let Err(status) = &result {
                proper(status, &what);
            }
            let named = result.as_ref().err().map(wrong_fields).unwrap_or_default();
            if field.takes == Takes::Token {
                assert!(named.is_empty() || named == ["page_token"], "{what}: {named:?}");
            } else if field.takes.takes(&text, identifier) {
                assert!(named.is_empty(), "{what}: {result:?}");
            } else {
                let status = result.expect_err(&what);
                assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status:?}");
                assert_eq!(named, [field.name], "{what}");
            }
        }
    }
    sidecar.still_tells_the_story().await;
}

#[tokio::test]
async fn every_field_of_text_is_in_the_list_above() {
    use prost::Message as _;
    let set = prost_types::FileDescriptorSet::decode(DESCRIPTORS).unwrap();
    let files = || set.file.iter().filter(|file| file.package() == "countersign.v1");
    let message = |name: &str| {
        let name = name.trim_start_matches(".countersign.v1.");
        files().flat_map(|file| &file.message_type).find(|one| one.name() == name).unwrap()
    };
    let mut found = HashSet::new();
    for method in files().flat_map(|file| &file.service).flat_map(|service| &service.method) {
        let mut open = vec![(String::new(), message(method.input_type()))];
        while let Some((prefix, message)) = open.pop() {
            for field in &message.field {
                let name = format!("{prefix}{}", field.name());
                match field.r#type() {
                    prost_types::field_descriptor_proto::Type::String => {
                        found.insert(name);
                    }
                    prost_types::field_descriptor_proto::Type::Message
                        if field.type_name().starts_with(".countersign") =>
                    {
                        let entry = message.nested_type.iter().any(|nested| field.type_name().ends_with(nested.name()));
                        // A batch's items are those of `Evaluate`.
                        if entry {
                            found.insert(name);
                        } else if name != "requests" {
                            open.push((format!("{name}."), message_of(&set, field.type_name())));
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    let listed: HashSet<String> = fields().iter().map(|field| field.name.to_owned()).collect();
    assert_eq!(found, listed);
}

fn message_of<'a>(set: &'a prost_types::FileDescriptorSet, name: &str) -> &'a prost_types::DescriptorProto {
    let name = name.trim_start_matches(".countersign.v1.");
    set.file.iter().flat_map(|file| &file.message_type).find(|one| one.name() == name).unwrap()
}

#[tokio::test]
async fn what_is_an_identifier_goes_through_the_whole_story_byte_for_byte() {
    let sidecar = Arc::new(Sidecar::under(OPEN).await);
    let mut stories = JoinSet::new();
    for (text, _) in hostile().into_iter().filter(|(_, identifier)| *identifier) {
        let sidecar = Arc::clone(&sidecar);
        stories.spawn(async move { tells_the_story_of(&sidecar, text).await });
    }
    stories.join_all().await;
}

/// Asks, approves, uses and reports, all of it under one name.
async fn tells_the_story_of(sidecar: &Sidecar, text: String) {
    let label_name = if text.len() <= 64 { text.clone() } else { "name".to_owned() };
    let invocation = Invocation {
        principal: text.clone(),
        agent: text.clone(),
        conversation: text.clone(),
        connector: "gmail".to_owned(),
        account: text.clone(),
        connection: text.clone(),
        action: text.clone(),
        arguments_json: serde_json::json!({ &text: &text }).to_string(),
        objective: Some(Objective { transcript: text.clone(), id: text.clone(), revision: 0 }),
        tool_definition_digest: String::new(),
        labels: [(label_name, text.clone())].into(),
    };
    let request =
        RequestApprovalRequest { request_id: text.clone(), invocation: Some(invocation.clone()), ..Default::default() };
    let answer = sidecar.request_as("runtime", request).await.unwrap();
    let (approval, token) = (answer.approval.unwrap(), answer.consume_token);
    let approval = sidecar.decide(&text, &approval.id, Verdict::Approve).await.unwrap();
    assert_eq!(approval.state(), ApprovalState::Approved);
    for got in [
        &approval.principal,
        &approval.agent,
        &approval.conversation,
        &approval.account,
        &approval.connection,
        &approval.action,
        &approval.objective.as_ref().unwrap().transcript,
        &approval.objective.as_ref().unwrap().id,
        &approval.decisions[0].principal,
    ] {
        assert_eq!(*got, text);
    }
    assert!(approval.decisions[0].as_owner);
    assert_eq!(
        sidecar.listed(&text, &[]).await,
        std::slice::from_ref(&approval.id),
        "no name reads another's: {text:?}"
    );
    let permit = sidecar.consume(&token, invocation.clone()).await.unwrap().permit.unwrap();
    let execution = sidecar.report_on(&invocation, &permit.execution_id, Outcome::Succeeded).await.unwrap();
    for got in [&execution.principal, &execution.agent, &execution.conversation, &execution.account, &execution.action]
    {
        assert_eq!(*got, text);
    }
    let filter = ListAuditRecordsRequest { principal: text.clone(), ..Default::default() };
    let records = sidecar.operator().list_audit_records(filter).await.unwrap().into_inner().records;
    assert_eq!(records.len(), 5);
    for record in &records {
        assert_eq!((&record.principal, &record.action), (&text, &text));
        assert_eq!(record.labels, invocation.labels);
    }
    assert!(records.iter().any(|record| record.person == text));
}

#[tokio::test]
async fn what_is_only_text_comes_back_with_nothing_hidden() {
    let sidecar = Arc::new(Sidecar::with(OPEN, (1_000_000, 1_000_000)).await);
    let mut stories = JoinSet::new();
    for (index, (text, _)) in hostile().into_iter().enumerate().filter(|(_, (text, _))| text.len() <= 400) {
        let sidecar = Arc::clone(&sidecar);
        stories.spawn(async move { comes_back_visible(&sidecar, index, text).await });
    }
    stories.join_all().await;
}

/// Says it as the agent's note, a person's reason and a report's texts.
async fn comes_back_visible(sidecar: &Sidecar, index: usize, text: String) {
    let invocation = in_conversation(&index.to_string());
    let request =
        RequestApprovalRequest { invocation: Some(invocation.clone()), agent_note: text.clone(), ..Default::default() };
    let answer = sidecar.request_as("runtime", request).await.unwrap();
    let asked = answer.approval.unwrap();
    let answer_of = DecideRequest {
        approval_id: asked.id.clone(),
        principal: "olga".to_owned(),
        verdict: Verdict::Approve.into(),
        reason: text.clone(),
        ..Default::default()
    };
    let approval = sidecar.approver().decide(answer_of).await.unwrap().into_inner().approval.unwrap();
    let permit = sidecar.consume(&answer.consume_token, invocation).await.unwrap().permit.unwrap();
    let report = ReportOutcomeRequest {
        execution_id: permit.execution_id,
        detail: text.clone(),
        remote_reference: text.clone(),
        ..report()
    };
    let execution = sidecar.agent().report_outcome(report).await.unwrap().into_inner().execution.unwrap();
    let shown =
        [approval.agent_note, approval.decisions[0].reason.clone(), execution.detail, execution.remote_reference];
    for got in shown {
        let visible = |one: char| one == '\n' || one == '\t' || !countersign::domain::text::is_hidden(one);
        assert!(got.chars().all(visible), "{got:?}");
        if text.chars().all(|one| (' '..='~').contains(&one)) {
            assert_eq!(got, text, "plain text stays as it is");
        }
    }
}
