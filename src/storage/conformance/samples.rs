//! Values for tests.

use crate::domain::approval::{Approval, Person, Question, RetriedExecution};
use crate::domain::decision::{Effect, MatchedRule, PolicyReason};
use crate::domain::execution::{Execution, Report, Start};
use crate::domain::fingerprint::{ArgumentsDigest, DefinitionDigest, Digest, Fingerprint};
use crate::domain::ids::{ApprovalId, AttemptId, ExecutionId};
use crate::domain::invocation::{Objective, Subject};
use crate::domain::preview::{Omission, OmissionKind, Preview};
use crate::domain::requirement::{Approver, Clause, Requirement};
use crate::domain::scope::Scope;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::storage::{AttemptKey, QuestionLimits, RequestKey, SealedArguments};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

/// When tests begin.
pub(in super::super) const START: Timestamp = Timestamp::from_micros(1_800_000_000_123_456);
pub(in super::super) const DECIDE_WITHIN: Duration = Duration::from_secs(600);
pub(in super::super) const USE_WITHIN: Duration = Duration::from_secs(300);
pub(in super::super) const REPORT_WITHIN: Duration = Duration::from_secs(60);
pub(in super::super) const NO_LIMITS: QuestionLimits = QuestionLimits {
    per_principal: u32::MAX,
    per_agent: u32::MAX,
    per_action: u32::MAX,
    asked: None,
    cool_off: Duration::ZERO,
};

pub(in super::super) fn id(text: &str) -> Identifier {
    Identifier::parse(text).unwrap_or_else(|_| panic!("{text:?} is no identifier"))
}

pub(in super::super) fn approval_id() -> ApprovalId {
    ApprovalId::new(Uuid::now_v7())
}

pub(in super::super) fn execution_id() -> ExecutionId {
    ExecutionId::new(Uuid::now_v7())
}

pub(in super::super) fn attempt_id() -> AttemptId {
    AttemptId::new(Uuid::new_v4())
}

fn digest(of: &str) -> [u8; 32] {
    Sha256::digest(of.as_bytes()).into()
}

pub(in super::super) fn fingerprint(of: &str) -> Fingerprint {
    Fingerprint::from_digest(Digest::from_bytes(digest(of)))
}

pub(in super::super) fn arguments(of: &str) -> ArgumentsDigest {
    ArgumentsDigest::from_digest(Digest::from_bytes(digest(of)))
}

pub(in super::super) fn definition(of: &str) -> DefinitionDigest {
    DefinitionDigest::from_digest(Digest::from_bytes(digest(of)))
}

pub(in super::super) fn objective(revision: u64) -> Objective {
    Objective { transcript: id("transcript-1"), id: id("objective-1"), revision }
}

/// Arguments as a store sees them: bytes that it cannot read.
pub(in super::super) fn sealed_arguments() -> SealedArguments {
    SealedArguments { key_id: "00112233445566ff".to_owned(), bytes: (0..=255).collect() }
}

/// A requirement of these clauses, each of one person.
pub(in super::super) fn requirement(clauses: &[&[&str]]) -> Requirement {
    let clauses = clauses
        .iter()
        .map(|entries| Clause::new(entries.iter().map(|entry| Approver::parse(entry).unwrap()), 1).unwrap());
    Requirement::new(clauses, false, DECIDE_WITHIN, USE_WITHIN).unwrap()
}

/// An invocation with everything given.
pub(in super::super) fn subject() -> Subject {
    Subject {
        principal: id("olga"),
        agent: id("assistant"),
        conversation: Some(id("chat-1")),
        connector: id("gmail"),
        account: Some(id("Work mailbox A")),
        connection: Some(id("connection-1")),
        action: id("GMAIL_SEND_EMAIL"),
        objective: Some(objective(3)),
        fingerprint: fingerprint("call"),
        arguments_digest: arguments("call"),
        tool_definition_digest: Some(definition("tool")),
        labels: BTreeMap::from([("trace".to_owned(), "abc".to_owned())]),
    }
}

/// A question about it that its principal may answer alone.
pub(in super::super) fn question() -> Question {
    Question {
        subject: subject(),
        requested_by: id("runner"),
        scope: Scope::Write,
        tags: vec!["createHint".to_owned(), "openWorldHint".to_owned()],
        preview: Some(Preview {
            json: r#"{"recipient_email":"dana@acme.com"}"#.to_owned(),
            omissions: vec![Omission {
                field: None,
                pointer: "/body".to_owned(),
                kind: OmissionKind::Truncated,
                count: 12,
            }],
        }),
        message: "assistant wants to run GMAIL_SEND_EMAIL".to_owned(),
        agent_note: Some("the weekly report".to_owned()),
        policy_revision: "revision-1".to_owned(),
        reason: PolicyReason::ConfirmationByRule,
        rules: vec![MatchedRule {
            connector: "gmail".to_owned(),
            name: "outside-recipients".to_owned(),
            effect: Effect::Confirm,
            error: Some("no such key".to_owned()),
        }],
        requirement: requirement(&[&["owner"]]),
        retry_of: None,
        wait: None,
    }
}

/// The same about another call.
pub(in super::super) fn question_about(call: &str) -> Question {
    let question = question();
    let subject =
        Subject { fingerprint: fingerprint(call), arguments_digest: arguments(call), ..question.subject.clone() };
    Question { subject, ..question }
}

/// The same question about `subject`.
pub(in super::super) fn question_of(subject: Subject) -> Question {
    Question { subject, ..question() }
}

/// The same question as a retry.
pub(in super::super) fn retrying(execution: &Execution, now: Timestamp, question: Question) -> Question {
    let known = execution.known_outcome(now).unwrap();
    Question { retry_of: Some(RetriedExecution { id: execution.id, known }), ..question }
}

/// A person in no group, or in those after a colon: `dana:finance,security`.
pub(in super::super) fn person(text: &str) -> Person {
    let (name, groups) = text.split_once(':').unwrap_or((text, ""));
    let groups = groups.split(',').filter(|group| !group.is_empty()).map(id).collect();
    Person { id: id(name), groups, vouched: [].into(), caller: id("console") }
}

pub(in super::super) fn request_key(name: &str, digest: &str) -> RequestKey {
    RequestKey { id: id(name), digest: digest.to_owned() }
}

/// A start that uses `approval` up, with a new attempt id.
pub(in super::super) fn start_of(approval: &Approval) -> Start {
    Start { approval: Some(approval.id), ..start(approval.question.subject.clone()) }
}

/// A start without an approval, with a new attempt id.
pub(in super::super) fn start(subject: Subject) -> Start {
    let id = execution_id();
    Start {
        id,
        approval: None,
        subject,
        caller: super::id("runner"),
        attempt: attempt_id(),
        new_idempotency_key: format!("key-{id}"),
        retry_of: None,
        policy_revision: "revision-2".to_owned(),
        decision: "ALLOW",
        reason: PolicyReason::Allowed,
        report_within: REPORT_WITHIN,
    }
}

/// Who makes the attempt of `start`.
pub(in super::super) fn attempt_key(start: &Start) -> AttemptKey {
    AttemptKey {
        caller: start.caller.clone(),
        principal: start.subject.principal.clone(),
        agent: start.subject.agent.clone(),
        attempt: start.attempt,
    }
}

pub(in super::super) fn report(now: Timestamp) -> Report {
    Report {
        at: now,
        by: id("runner"),
        remote_reference: Some("msg-1".to_owned()),
        error_code: Some("550".to_owned()),
        detail: Some("mailbox full".to_owned()),
        duration: Some(Duration::from_micros(1_234_567)),
    }
}

/// What each binding of `subject` could be instead, one at a time.
pub(in super::super) fn other_bindings(subject: &Subject) -> Vec<(&'static str, Subject)> {
    let of = |change: &dyn Fn(&mut Subject)| {
        let mut other = subject.clone();
        change(&mut other);
        other
    };
    vec![
        ("principal", of(&|s| s.principal = id("dana"))),
        ("principal in another case", of(&|s| s.principal = id("Olga"))),
        ("agent", of(&|s| s.agent = id("other"))),
        ("conversation", of(&|s| s.conversation = Some(id("chat-2")))),
        ("no conversation", of(&|s| s.conversation = None)),
        ("connector", of(&|s| s.connector = id("outlook"))),
        ("account", of(&|s| s.account = Some(id("Work mailbox B")))),
        ("no account", of(&|s| s.account = None)),
        ("action", of(&|s| s.action = id("GMAIL_DELETE_EMAIL"))),
        ("transcript", of(&|s| s.objective = Some(Objective { transcript: id("transcript-2"), ..objective(3) }))),
        ("objective", of(&|s| s.objective = Some(Objective { id: id("objective-2"), ..objective(3) }))),
        ("revision", of(&|s| s.objective = Some(objective(4)))),
        ("no objective", of(&|s| s.objective = None)),
        ("fingerprint", of(&|s| s.fingerprint = fingerprint("another call"))),
        ("arguments", of(&|s| s.arguments_digest = arguments("another call"))),
        ("tool definition", of(&|s| s.tool_definition_digest = Some(definition("another tool")))),
        ("no tool definition", of(&|s| s.tool_definition_digest = None)),
    ]
}
