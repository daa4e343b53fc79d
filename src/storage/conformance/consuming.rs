//! The one gate: an approval is used up once, for what was approved, in time.

use super::*;
use crate::domain::approval::StateName;
use crate::domain::execution::ExecutionState;
use crate::domain::invocation::Subject;
use std::collections::BTreeMap;

pub(in super::super) async fn of_a_hundred_attempts_one_consumes(fixture: Fixture) {
    let approved = fixture.approved(question()).await;
    let started = simultaneously(&fixture, (0..100).map(|_| start_of(&approved)).collect()).await;
    assert_eq!(started.len(), 1);
    let stored = fixture.approval(approved.id).await;
    assert!(matches!(stored.state, ApprovalState::Consumed { execution, .. } if execution == started[0].id));
    assert_eq!(fixture.store.execution(started[0].id).await.unwrap().row.unwrap(), started[0]);
    assert_eq!(executions_in(&fixture.dump().await), 1);
}

pub(in super::super) async fn one_attempt_from_fifty_tasks_starts_once(fixture: Fixture) {
    let approved = fixture.approved(question()).await;
    let attempt = attempt_id();
    let starts = (0..50).map(|_| Start { attempt, ..start_of(&approved) }).collect();
    let started = simultaneously(&fixture, starts).await;
    assert_eq!(started.len(), 1);
    assert_eq!(executions_in(&fixture.dump().await), 1);
    let start = Start { attempt, ..start_of(&approved) };
    let facts = fixture.store.consume_facts(Some(approved.id), &attempt_key(&start), None).await.unwrap().row;
    assert_eq!(facts.attempt.unwrap(), started[0], "whoever lost finds the one that won");
}

pub(in super::super) async fn each_binding_alone_keeps_the_gate_shut(fixture: Fixture) {
    let bare = Subject {
        conversation: None,
        account: None,
        objective: None,
        tool_definition_digest: None,
        ..question_about("bare").subject
    };
    for approved_for in [subject(), bare] {
        let approved = fixture.approved(question_of(approved_for.clone())).await;
        let before = fixture.dump().await;
        for (binding, other) in other_bindings(&approved_for) {
            if other == approved_for {
                continue;
            }
            let start = Start { subject: other, ..start_of(&approved) };
            assert!(fixture.consume(start.clone()).await.is_none(), "another {binding}");
            let version = Accepting::Version(approved.version);
            assert!(fixture.store.consume(start.clone(), version).await.unwrap().is_none(), "another {binding}");
            let digest = Accepting::Digest(approved.question.requirement.digest());
            assert!(fixture.store.consume(start, digest).await.unwrap().is_none(), "another {binding}");
            assert_eq!(fixture.dump().await, before, "another {binding} leaves everything as it was");
        }
        assert!(fixture.consume(start_of(&approved)).await.is_some(), "the right call still passes");
    }
}

pub(in super::super) async fn connection_and_labels_do_not_bind(fixture: Fixture) {
    let approved = fixture.approved(question()).await;
    let now = Subject {
        connection: Some(id("connection-after-reauthorisation")),
        labels: BTreeMap::from([("trace".to_owned(), "def".to_owned())]),
        ..subject()
    };
    let start = Start { subject: now.clone(), ..start_of(&approved) };
    let execution = fixture.consume(start.clone()).await.unwrap();
    assert_eq!(execution, start.at(None, fixture.now()).next);
    assert_eq!(execution.subject, now, "what is about to run is what is recorded");
    assert_eq!(fixture.store.execution(execution.id).await.unwrap().row.unwrap(), execution);
    assert_eq!(fixture.approval(approved.id).await.question, approved.question);
}

pub(in super::super) async fn an_approval_is_used_only_before_its_deadline(fixture: Fixture) {
    for (call, offset, passes) in [("before", -1_i64, true), ("at", 0, false), ("after", 1, false)] {
        let approved = fixture.approved(question_about(call)).await;
        let use_by = approved.state.confirmed().unwrap().use_by;
        fixture.advance_to(Timestamp::from_micros(use_by.micros() + offset));
        let before = fixture.dump().await;
        let execution = fixture.consume(start_of(&approved)).await;
        assert_eq!(execution.is_some(), passes, "{call}");
        assert_eq!(fixture.dump().await == before, !passes, "{call}");
        if let Some(execution) = execution {
            assert_eq!(execution.start_time, use_by.minus(TICK));
            assert_eq!(execution.report_by, use_by.minus(TICK).plus(REPORT_WITHIN));
        }
    }
}

pub(in super::super) async fn only_an_approved_approval_is_used(fixture: Fixture) {
    // One that passed its deadline, then the others, none of which has.
    let unused = fixture.approved(question_about("expired")).await;
    fixture.clock.advance(USE_WITHIN);
    let change = unused.expired(fixture.now()).unwrap();
    let mut approvals = vec![fixture.save_change(change, unused.version).await];
    approvals.push(fixture.ask(question_about("pending")).await);
    let asked = fixture.ask(question_about("denied")).await;
    approvals.push(fixture.decide(&asked, "olga", Verdict::Deny).await);
    let approved = fixture.approved(question_about("cancelled")).await;
    let cancelled = approved.cancel(&id("runner"), None, fixture.now()).unwrap();
    approvals.push(fixture.save(cancelled, approved.version).await);
    let approved = fixture.approved(question_about("revoked")).await;
    let revoked = approved.revoke(&person("olga"), None, fixture.now()).unwrap();
    approvals.push(fixture.save(revoked, approved.version).await);
    approvals.push(fixture.consumed(question_about("consumed")).await.0);
    let mut states: Vec<StateName> = approvals.iter().map(|approval| approval.state.name()).collect();
    states.sort();
    let all_but_approved: Vec<StateName> =
        StateName::ALL.into_iter().filter(|state| *state != StateName::Approved).collect();
    assert_eq!(states, all_but_approved);
    let before = fixture.dump().await;
    for approval in approvals {
        assert!(fixture.consume(start_of(&approval)).await.is_none(), "{}", approval.state.name());
    }
    assert_eq!(fixture.dump().await, before);
}

pub(in super::super) async fn the_requirement_is_a_condition(fixture: Fixture) {
    let other = requirement(&[&["owner"], &["group:finance"]]);
    let approved = fixture.approved(question_about("digest")).await;
    let own = approved.question.requirement.digest();
    let before = fixture.dump().await;
    for refused in [
        Accepting::Digest(other.digest()),
        Accepting::Version(approved.version - 1),
        Accepting::Version(approved.version + 1),
        Accepting::Version(u64::MAX),
    ] {
        let start = start_of(&approved);
        assert!(fixture.store.consume(start, refused).await.unwrap().is_none(), "{refused:?}");
    }
    assert_eq!(fixture.dump().await, before);
    assert!(fixture.store.consume(start_of(&approved), Accepting::Digest(own)).await.unwrap().is_some());
    let approved = fixture.approved(question_about("version")).await;
    let version = Accepting::Version(approved.version);
    assert!(fixture.store.consume(start_of(&approved), version).await.unwrap().is_some());
    let approved = fixture.approved(question_about("any")).await;
    assert!(fixture.store.consume(start_of(&approved), Accepting::AnyRequirement).await.unwrap().is_some());
}

pub(in super::super) async fn an_attempt_starts_once_whatever_it_is_for(fixture: Fixture) {
    let (_, earlier) = fixture.consumed(question_about("first")).await;
    let free = fixture.store.start(start(subject())).await.unwrap().unwrap();
    let approved = fixture.approved(question_about("second")).await;
    let before = fixture.dump().await;
    for attempt in [earlier.attempt, free.attempt] {
        assert!(fixture.consume(Start { attempt, ..start_of(&approved) }).await.is_none());
        let another = Start { attempt, ..start(subject()) };
        assert!(fixture.store.start(another).await.unwrap().is_none());
    }
    assert_eq!(fixture.dump().await, before);
    assert!(fixture.consume(start_of(&approved)).await.is_some());
}

pub(in super::super) async fn an_attempt_is_of_one_caller_principal_and_agent(fixture: Fixture) {
    let attempt = attempt_id();
    let mut subjects = vec![("runner", subject())];
    subjects.push(("another runner", subject()));
    subjects.push(("runner", Subject { principal: id("dana"), ..subject() }));
    subjects.push(("runner", Subject { agent: id("other"), ..subject() }));
    for (caller, subject) in subjects {
        let approved = fixture.approved(question_of(subject)).await;
        let start = Start { attempt, caller: id(caller), ..start_of(&approved) };
        assert!(fixture.consume(start.clone()).await.is_some(), "{start:?}");
        assert!(fixture.store.start(Start { approval: None, id: execution_id(), ..start }).await.unwrap().is_none());
    }
    assert_eq!(executions_in(&fixture.dump().await), 4);
}

pub(in super::super) async fn what_has_succeeded_is_not_done_again(fixture: Fixture) {
    let (_, first) = fixture.consumed(question_about("first")).await;
    let retry = fixture.approved(retrying(&first, fixture.now(), question_about("first"))).await;
    let done = fixture.report(&first, Outcome::Succeeded).await;
    assert!(matches!(done.state, ExecutionState::Succeeded(_)));
    let before = fixture.dump().await;
    assert!(fixture.consume(start_of(&retry)).await.is_none());
    assert_eq!(fixture.dump().await, before);
    for (call, outcome) in [("failed", Outcome::Failed), ("unknown", Outcome::Unknown)] {
        let (_, first) = fixture.consumed(question_about(call)).await;
        let reported = fixture.report(&first, outcome).await;
        let retry = fixture.approved(retrying(&reported, fixture.now(), question_about(call))).await;
        let execution = fixture.consume(start_of(&retry)).await.unwrap();
        assert_eq!(execution.retry_of, Some(first.id), "{call}");
    }
}

pub(in super::super) async fn an_equal_retry_inherits_the_key(fixture: Fixture) {
    let (_, first) = fixture.consumed(question_about("first")).await;
    let equal = fixture.approved(retrying(&first, fixture.now(), question_about("first"))).await;
    // What the start itself names is not asked: with an approval, the approval says what is retried.
    let start = Start { retry_of: Some(execution_id()), ..start_of(&equal) };
    let execution = fixture.consume(start.clone()).await.unwrap();
    assert_eq!(execution, start.at(Some(&first), fixture.now()).next);
    assert_eq!(execution.idempotency_key, first.idempotency_key);
    let other = fixture.approved(retrying(&first, fixture.now(), question_about("other"))).await;
    let start = start_of(&other);
    let execution = fixture.consume(start.clone()).await.unwrap();
    assert_eq!(execution.idempotency_key, start.new_idempotency_key);
    assert_eq!(execution.retry_of, Some(first.id));
}

pub(in super::super) async fn without_an_approval_nothing_is_used_up(fixture: Fixture) {
    let approved = fixture.approved(question()).await;
    let before = fixture.dump().await;
    assert!(fixture.consume(start(subject())).await.is_none(), "no approval was named");
    let unknown = Start { approval: Some(approval_id()), ..start_of(&approved) };
    assert!(fixture.consume(unknown).await.is_none(), "there is no such approval");
    let sideways = fixture.store.start(start_of(&approved)).await.unwrap();
    assert!(sideways.is_none(), "a start without the gate does not go by an approval's name");
    assert_eq!(fixture.dump().await, before);
}

pub(in super::super) async fn the_facts_are_those_of_the_attempt(fixture: Fixture) {
    let (approval, first) = fixture.consumed(question_about("first")).await;
    let retry = fixture.approved(retrying(&first, fixture.now(), question_about("first"))).await;
    let start = start_of(&retry);
    let key = attempt_key(&start);
    let facts = |approval, key, retry_of| {
        let store = Arc::clone(&fixture.store);
        async move { store.consume_facts(approval, &key, retry_of).await.unwrap().row }
    };
    let all = facts(Some(retry.id), key.clone(), Some(execution_id())).await;
    assert_eq!((all.approval, all.attempt, all.retried), (Some(retry), None, Some(first.clone())));
    let replay = super::super::AttemptKey { attempt: first.attempt, ..key.clone() };
    let all = facts(Some(approval.id), replay.clone(), None).await;
    assert_eq!((all.approval, all.attempt, all.retried), (Some(approval), Some(first.clone()), None));
    let all = facts(None, replay.clone(), Some(first.id)).await;
    assert_eq!((all.approval, all.attempt, all.retried), (None, Some(first.clone()), Some(first.clone())));
    let all = facts(Some(approval_id()), key, Some(first.id)).await;
    assert_eq!((all.approval, all.attempt, all.retried), (None, None, None));
    for other in [
        super::super::AttemptKey { caller: id("x"), ..replay.clone() },
        super::super::AttemptKey { principal: id("x"), ..replay.clone() },
        super::super::AttemptKey { agent: id("x"), ..replay },
    ] {
        assert_eq!(facts(None, other, None).await.attempt, None);
    }
}

/// Consumes with all of these at once and returns what passed.
async fn simultaneously(fixture: &Fixture, starts: Vec<Start>) -> Vec<Execution> {
    let tasks: Vec<_> = starts
        .into_iter()
        .map(|start| {
            let store = Arc::clone(&fixture.store);
            tokio::spawn(async move { store.consume(start, Accepting::AnyRequirement).await.unwrap() })
        })
        .collect();
    let mut started = Vec::new();
    for task in tasks {
        started.extend(task.await.unwrap());
    }
    started
}

/// Rows of executions in a dump.
fn executions_in(dump: &str) -> usize {
    dump.lines().filter(|line| line.starts_with("executions:")).count()
}
