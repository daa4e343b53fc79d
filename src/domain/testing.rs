//! Builders for tests: one plausible question, the people around it, and what becomes of it. Times are microseconds
//! after [`START`], so that a deadline's neighbours are one apart.

use super::approval::{
    Answer, Approval, ApprovalState, CommandRefusal, Commanded, Confirmed, Person, Question, Verdict,
};
use super::change::Change;
use super::decision::{Decision, Effect, MatchedRule, PolicyAnswer, PolicyReason};
use super::execution::{Execution, ExecutionState, Outcome, Report, ReportRefusal, Reported, Start};
use super::fingerprint::{ArgumentsDigest, DefinitionDigest, Fingerprint};
use super::ids::{ApprovalId, AttemptId, ExecutionId, WaitId};
use super::invocation::{Objective, Subject};
use super::preview::Preview;
use super::requirement::{Approver, Clause, Requirement};
use super::scope::Scope;
use super::text::Identifier;
use super::time::Timestamp;
use super::wait::{Opened, Opening, Resuming, Wait};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

/// When the questions of these tests are asked, in microseconds since the Unix epoch.
pub const START: i64 = 1_767_225_600_000_000;
/// How long people have to decide.
pub const DECIDE_WITHIN: Duration = Duration::from_secs(600);
/// How long the agent then has to use it.
pub const USE_WITHIN: Duration = Duration::from_secs(300);
/// How long the enforcing process has to report.
pub const REPORT_WITHIN: Duration = Duration::from_secs(60);

/// Stands in every text that a person is shown or that an agent or a remote service wrote: none of it is for the audit
/// or for logs.
pub const SENTINEL: &str = "sentinel-4b1d";

/// The instant so many microseconds after [`START`].
pub fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(START + micros)
}

/// The instant so many microseconds away from another.
pub fn near(instant: Timestamp, micros: i64) -> Timestamp {
    Timestamp::from_micros(instant.micros() + micros)
}

/// An identifier.
pub fn id(text: &str) -> Identifier {
    Identifier::parse(text).unwrap()
}

/// The approval's id of that number.
pub fn approval_id(number: u128) -> ApprovalId {
    ApprovalId::new(Uuid::from_u128(number))
}

/// The execution's id of that number.
pub fn execution_id(number: u128) -> ExecutionId {
    ExecutionId::new(Uuid::from_u128(number))
}

/// The attempt's id of that number.
pub fn attempt_id(number: u128) -> AttemptId {
    AttemptId::new(Uuid::from_u128(number))
}

/// The digest of these arguments.
pub fn arguments(text: &str) -> ArgumentsDigest {
    ArgumentsDigest::parse(&hex(text)).unwrap()
}

/// The digest of this definition of a tool.
pub fn definition(text: &str) -> DefinitionDigest {
    DefinitionDigest::parse(&format!("td1:{}", hex(text))).unwrap()
}

/// The fingerprint of this text.
pub fn fingerprint(text: &str) -> Fingerprint {
    Fingerprint::parse(&format!("v1:{}", hex(text))).unwrap()
}

/// An invocation in which nothing is absent: olga's assistant sends an email.
pub fn subject() -> Subject {
    let subject = Subject {
        principal: id("olga"),
        agent: id("assistant"),
        conversation: Some(id("conversation-1")),
        connector: id("gmail"),
        account: Some(id("work-mailbox-a")),
        connection: Some(id("connection-1")),
        action: id("GMAIL_SEND_EMAIL"),
        objective: Some(Objective { transcript: id("transcript-1"), id: id("objective-1"), revision: 1 }),
        fingerprint: fingerprint(""),
        arguments_digest: arguments("{}"),
        tool_definition_digest: Some(definition("1")),
        labels: BTreeMap::from([("ticket".to_owned(), "T-1".to_owned())]),
    };
    sealed(subject)
}

/// [`subject`] with something changed, and the fingerprint that it then has.
pub fn subject_with(change: impl FnOnce(&mut Subject)) -> Subject {
    let mut subject = subject();
    change(&mut subject);
    sealed(subject)
}

/// The subject with a fingerprint over everything that a fingerprint covers.
pub fn sealed(subject: Subject) -> Subject {
    let covered = (&subject.account, &subject.action, subject.arguments_digest, &subject.connector, &subject.objective);
    Subject { fingerprint: fingerprint(&format!("{covered:?}")), ..subject }
}

/// A requirement of clauses, each entries and a quorum.
pub fn requirement(clauses: &[(&[&str], u32)], exclude_requester: bool) -> Requirement {
    let clauses = clauses.iter().map(|(any_of, quorum)| {
        Clause::new(any_of.iter().map(|entry| Approver::parse(entry).unwrap()), *quorum).unwrap()
    });
    Requirement::new(clauses, exclude_requester, DECIDE_WITHIN, USE_WITHIN).unwrap()
}

/// The question about [`subject`] under that requirement.
pub fn question(requirement: Requirement) -> Question {
    Question {
        subject: subject(),
        requested_by: id("agents"),
        scope: Scope::Write,
        tags: vec!["createHint".to_owned()],
        preview: Some(Preview { json: format!("{{\"body\":\"{SENTINEL}\"}}"), omissions: Vec::new() }),
        message: format!("a sentence with {SENTINEL}"),
        agent_note: Some(format!("a note with {SENTINEL}")),
        policy_revision: "revision-1".to_owned(),
        reason: PolicyReason::ConfirmationByRule,
        rules: vec![MatchedRule {
            connector: "gmail".to_owned(),
            name: "outside-recipients".to_owned(),
            effect: Effect::Confirm,
            error: None,
        }],
        requirement,
        retry_of: None,
        wait: None,
    }
}

/// The approval number 1, asked at [`START`].
pub fn asked(requirement: Requirement) -> Approval {
    Approval::ask(approval_id(1), question(requirement), None, at(0)).next
}

/// A person of these groups.
pub fn person(name: &str, groups: &[&str]) -> Person {
    let groups = groups.iter().map(|group| id(group)).collect();
    Person { id: id(name), groups, vouched: [].into(), caller: id("chat") }
}

/// The verdict without a word.
pub fn answer(verdict: Verdict) -> Answer {
    Answer { verdict, reason: None, shown_fingerprint: None }
}

/// What a command changed; fails where it changed nothing.
#[track_caller]
pub fn changed(commanded: Result<Commanded, CommandRefusal>) -> Change<Approval> {
    match commanded {
        Ok(Commanded::Changed(change)) => *change,
        other => panic!("the command changed nothing: {other:?}"),
    }
}

/// The approval after this person's verdict.
#[track_caller]
pub fn decided(approval: &Approval, person: &Person, verdict: Verdict, now: Timestamp) -> Approval {
    changed(approval.decide(person, &answer(verdict), now)).next
}

/// The approval as the store leaves it when it is used.
#[track_caller]
pub fn consumed(approval: &Approval, execution: ExecutionId, now: Timestamp) -> Approval {
    let ApprovalState::Approved(confirmed) = approval.state else { panic!("not approved: {:?}", approval.state) };
    let state = ApprovalState::Consumed { at: now, execution, confirmed };
    Approval { state, version: approval.version + 1, ..approval.clone() }
}

/// Until when an approved approval may be used.
#[track_caller]
pub fn confirmed(approval: &Approval) -> Confirmed {
    approval.state.confirmed().unwrap()
}

/// A policy's answer.
pub fn policy(decision: Decision, reason: PolicyReason) -> PolicyAnswer {
    PolicyAnswer {
        decision,
        reason,
        message: String::new(),
        scope: Some(Scope::Write),
        tags: std::sync::Arc::default(),
        rules: Vec::new(),
        report_within: REPORT_WITHIN,
        checks: Vec::new(),
        policy_revision: "revision-2".to_owned(),
    }
}

/// The start of execution number 1 by attempt number 1, of approval number 1.
pub fn start(subject: Subject) -> Start {
    Start {
        id: execution_id(1),
        approval: Some(approval_id(1)),
        subject,
        caller: id("agents"),
        attempt: attempt_id(1),
        new_idempotency_key: "key-1".to_owned(),
        retry_of: None,
        policy_revision: "revision-2".to_owned(),
        decision: "CONFIRMATION_REQUIRED",
        reason: PolicyReason::ConfirmationByRule,
        report_within: REPORT_WITHIN,
    }
}

/// The execution of [`start`], started at [`START`].
pub fn started() -> Execution {
    start(subject()).at(None, at(0)).next
}

/// The same execution in another state.
pub fn in_state(execution: Execution, state: ExecutionState) -> Execution {
    Execution { state, ..execution }
}

/// A report without a word.
pub fn report(now: Timestamp) -> Report {
    Report { at: now, by: id("agents"), remote_reference: None, error_code: None, detail: None, duration: None }
}

/// What a report changed; fails where it changed nothing.
#[track_caller]
pub fn recorded(reported: Result<Reported, ReportRefusal>) -> Change<Execution> {
    match reported {
        Ok(Reported::Changed(change)) => *change,
        other => panic!("the report changed nothing: {other:?}"),
    }
}

/// The execution after this report.
#[track_caller]
pub fn settled(execution: &Execution, outcome: Outcome, report: Report) -> Execution {
    recorded(execution.report(outcome, report)).next
}

/// The wait's id of that number.
pub fn wait_id(number: u128) -> WaitId {
    WaitId::new(Uuid::from_u128(number))
}

/// Olga's assistant stops for the objective of [`subject`]; the wait would be number 1.
pub fn opening() -> Opening {
    Opening {
        id: wait_id(1),
        caller: id("agents"),
        principal: id("olga"),
        agent: id("assistant"),
        conversation: Some(id("conversation-1")),
        objective: Objective { transcript: id("transcript-1"), id: id("objective-1"), revision: 1 },
        summary: format!("a summary with {SENTINEL}"),
        expire_after: Some(DECIDE_WITHIN),
        replace: false,
    }
}

/// Wait number 1, opened at [`START`].
#[track_caller]
pub fn waiting() -> Wait {
    match opening().against(None, at(0)) {
        Ok(Opened::Made { wait, .. }) => wait.next,
        other => panic!("no wait was made: {other:?}"),
    }
}

/// Attempt number 1 to go on with [`waiting`].
pub fn resuming() -> Resuming {
    Resuming {
        caller: id("agents"),
        principal: id("olga"),
        agent: id("assistant"),
        transcript: id("transcript-1"),
        version: 1,
        attempt: attempt_id(1),
    }
}

/// The block of a module's documentation that follows `heading`: the lines between its fences.
#[track_caller]
pub fn documented<'a>(source: &'a str, heading: &str) -> Vec<&'a str> {
    let mut lines =
        source.lines().map_while(|line| line.strip_prefix("//!")).map(|line| line.strip_prefix(' ').unwrap_or(line));
    assert!(lines.any(|line| line.contains(heading)), "no {heading:?} in the documentation");
    lines.skip_while(|line| !line.starts_with("```")).skip(1).take_while(|line| !line.starts_with("```")).collect()
}

fn hex(text: &str) -> String {
    super::hex::hex(&Sha256::digest(text.as_bytes()))
}

/// Texts in their fields, and the same or others: text moved across the border to the next field, or back, whole fields
/// exchanged, or nothing done. What joins fields must tell them apart where they differ, and only there. The texts are full of
/// what stands between fields somewhere, and are valid identifiers where they are not empty.
pub fn moved(fields: usize) -> impl Strategy<Value = (Vec<String>, Vec<String>)> {
    let texts = prop::collection::vec("[a1,:|.\"\\\\\\[\\]{}/=-]{0,5}", fields);
    (texts, 0..fields, 0..fields, 0..6_usize, 0..5_usize).prop_map(|(before, one, other, how_far, how)| {
        let mut after = before.clone();
        let next = (one + 1) % after.len();
        match how {
            0 => {}
            1 => {
                let kept = after[one].len().saturating_sub(how_far);
                let text = after[one].split_off(kept);
                after[next].insert_str(0, &text);
            }
            2 => {
                let end = how_far.min(after[next].len());
                let rest = after[next].split_off(end);
                let text = std::mem::replace(&mut after[next], rest);
                after[one].push_str(&text);
            }
            3 => after.swap(one, other),
            _ => {
                let text = std::mem::take(&mut after[one]);
                after[other].push_str(&text);
            }
        }
        (before, after)
    })
}
