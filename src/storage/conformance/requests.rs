//! Recording a question.

use super::*;
use crate::domain::approval::{KnownOutcome, RetriedExecution, StateName};
use crate::domain::invocation::Subject;
use crate::storage::OpenLimit;

pub(in super::super) async fn a_new_question_is_pending_until_its_deadline(fixture: Fixture) {
    let asked = fixture.ask(question()).await;
    assert_eq!(asked.state, ApprovalState::Pending);
    assert_eq!((asked.create_time, asked.decide_by), (START, START.plus(DECIDE_WITHIN)));
    assert_eq!((asked.version, asked.question.clone()), (1, question()));
    let loaded = fixture.store.approval(asked.id).await.unwrap();
    assert_eq!(loaded.row.unwrap(), asked);
    assert_eq!(loaded.now, START);
}

pub(in super::super) async fn the_same_question_is_asked_once(fixture: Fixture) {
    let asked = fixture.ask(question()).await;
    let before = fixture.dump().await;
    assert_eq!(fixture.request(question(), None, NO_LIMITS).await, Requested::Existing(asked.clone()));
    let mut reconnected = question();
    reconnected.subject.connection = Some(id("connection-2"));
    reconnected.subject.labels.clear();
    reconnected.policy_revision = "revision-9".to_owned();
    reconnected.agent_note = None;
    assert_eq!(
        fixture.request(reconnected, None, NO_LIMITS).await,
        Requested::Existing(asked.clone()),
        "the connection, labels, revision and note are no part of the question"
    );
    assert_eq!(fixture.dump().await, before);
    let approved = fixture.decide(&asked, "olga", Verdict::Approve).await;
    assert_eq!(fixture.request(question(), None, NO_LIMITS).await, Requested::Existing(approved));
}

pub(in super::super) async fn each_part_of_a_question_alone_makes_it_another(fixture: Fixture) {
    let first = fixture.ask(question()).await;
    let (_, execution) = fixture.consumed(question_about("earlier")).await;
    let mut others: Vec<(&str, Question)> =
        other_bindings(&subject()).into_iter().map(|(part, subject)| (part, question_of(subject))).collect();
    others.push(("caller", Question { requested_by: id("another runner"), ..question() }));
    others.push(("retry", retrying(&execution, fixture.now(), question())));
    others.push((
        "another retry",
        Question {
            retry_of: Some(RetriedExecution { id: execution_id(), known: KnownOutcome::Started }),
            ..question()
        },
    ));
    others.push(("clauses", Question { requirement: requirement(&[&["owner", "group:finance"]]), ..question() }));
    let mut seen = vec![first.id];
    for (part, other) in others {
        let asked = match fixture.request(other.clone(), None, NO_LIMITS).await {
            Requested::Created(asked) => asked,
            answer => panic!("another {part} is another question: {answer:?}"),
        };
        assert!(!seen.contains(&asked.id));
        seen.push(asked.id);
        assert_eq!(fixture.request(other, None, NO_LIMITS).await, Requested::Existing(asked), "{part}");
    }
    assert_eq!(fixture.request(question(), None, NO_LIMITS).await, Requested::Existing(first));
}

pub(in super::super) async fn absent_is_a_value_of_its_own(fixture: Fixture) {
    let bare = Subject {
        conversation: None,
        account: None,
        connection: None,
        objective: None,
        tool_definition_digest: None,
        ..subject()
    };
    let asked = fixture.ask(question_of(bare.clone())).await;
    assert_eq!(fixture.request(question_of(bare.clone()), None, NO_LIMITS).await, Requested::Existing(asked.clone()));
    for other in [
        Subject { conversation: Some(id("chat-1")), ..bare.clone() },
        Subject { account: Some(id("Work mailbox A")), ..bare.clone() },
        Subject { objective: Some(objective(0)), ..bare.clone() },
        Subject { tool_definition_digest: Some(definition("tool")), ..bare.clone() },
    ] {
        assert!(matches!(fixture.request(question_of(other), None, NO_LIMITS).await, Requested::Created(_)));
    }
    let approved = fixture.decide(&asked, "olga", Verdict::Approve).await;
    assert!(fixture.consume(start_of(&approved)).await.is_some());
}

pub(in super::super) async fn a_hundred_simultaneous_equal_questions_make_one_approval(fixture: Fixture) {
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let store = Arc::clone(&fixture.store);
            let new = NewApproval {
                id: approval_id(),
                question: question(),
                request: None,
                arguments: sealed_arguments(),
                limits: NO_LIMITS,
            };
            tokio::spawn(async move { store.request(new).await.unwrap().row })
        })
        .collect();
    let (mut created, mut ids) = (0, std::collections::BTreeSet::new());
    for task in tasks {
        match task.await.unwrap() {
            Requested::Created(approval) => {
                created += 1;
                ids.insert(approval.id);
            }
            Requested::Existing(approval) => {
                ids.insert(approval.id);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((created, ids.len()), (1, 1));
}

pub(in super::super) async fn an_overdue_question_is_expired_and_asked_again(fixture: Fixture) {
    for (approve, deadline_after) in [(false, DECIDE_WITHIN), (true, USE_WITHIN)] {
        for late in [Duration::ZERO, TICK] {
            let call = format!("call {approve} {late:?}");
            let mut first = fixture.ask(question_about(&call)).await;
            if approve {
                first = fixture.decide(&first, "olga", Verdict::Approve).await;
            }
            let deadline = fixture.now().plus(deadline_after);
            fixture.advance_to(deadline.minus(TICK));
            let again = fixture.request(question_about(&call), None, NO_LIMITS).await;
            assert_eq!(again, Requested::Existing(first.clone()), "still open");
            fixture.advance_to(deadline.plus(late));
            let second = fixture.ask(question_about(&call)).await;
            assert_ne!(second.id, first.id);
            let expired = fixture.approval(first.id).await;
            assert_eq!(expired.state, ApprovalState::Expired { at: deadline, confirmed: first.state.confirmed() });
            assert_eq!(expired.version, first.version + 1);
            let newest = audit_of(&fixture, first.id).await;
            assert_eq!(newest.first().unwrap().as_str(), "approval.expired");
        }
    }
}

pub(in super::super) async fn a_question_that_is_final_is_asked_again(fixture: Fixture) {
    let mut seen = std::collections::BTreeSet::new();
    let asked = fixture.ask(question()).await;
    seen.insert(asked.id);
    fixture.decide(&asked, "olga", Verdict::Deny).await;
    let asked = fixture.ask(question()).await;
    seen.insert(asked.id);
    let cancelled = asked.cancel(&id("runner"), None, fixture.now()).unwrap();
    fixture.save(cancelled, asked.version).await;
    let approved = fixture.approved(question()).await;
    seen.insert(approved.id);
    let revoked = approved.revoke(&person("olga"), None, fixture.now()).unwrap();
    fixture.save(revoked, approved.version).await;
    let (consumed, _) = fixture.consumed(question()).await;
    seen.insert(consumed.id);
    seen.insert(fixture.ask(question()).await.id);
    assert_eq!(seen.len(), 5);
}

pub(in super::super) async fn a_request_id_returns_its_approval_as_it_stands(fixture: Fixture) {
    let key = request_key("request-1", "d1");
    let Requested::Created(asked) = fixture.request(question(), Some(key.clone()), NO_LIMITS).await else {
        panic!("not created")
    };
    assert_eq!(fixture.request(question(), Some(key.clone()), NO_LIMITS).await, Requested::Existing(asked.clone()));
    let denied = fixture.decide(&asked, "olga", Verdict::Deny).await;
    let before = fixture.dump().await;
    assert_eq!(
        fixture.request(question(), Some(key.clone()), NO_LIMITS).await,
        Requested::Existing(denied.clone()),
        "a retry gets the first answer's approval, also when it is final"
    );
    assert_eq!(fixture.dump().await, before);
    let earlier = fixture.store.earlier_request(&id("runner"), &id("olga"), &id("assistant"), &key.id).await.unwrap();
    let earlier = earlier.row.unwrap();
    assert_eq!((earlier.digest.as_str(), earlier.approval), ("d1", denied));
}

pub(in super::super) async fn a_request_id_stands_for_one_request(fixture: Fixture) {
    let key = request_key("request-1", "d1");
    fixture.request(question(), Some(key), NO_LIMITS).await;
    let before = fixture.dump().await;
    let other = request_key("request-1", "d2");
    for question in [question(), question_about("something else")] {
        assert_eq!(fixture.request(question, Some(other.clone()), NO_LIMITS).await, Requested::RequestIdReused);
    }
    assert_eq!(fixture.dump().await, before);
}

pub(in super::super) async fn a_request_id_is_of_one_caller_principal_and_agent(fixture: Fixture) {
    let key = request_key("request-1", "d1");
    fixture.request(question(), Some(key), NO_LIMITS).await;
    let other = request_key("request-1", "d2");
    let mut caller = question();
    caller.requested_by = id("another runner");
    let (mut principal, mut agent) = (question(), question());
    principal.subject.principal = id("dana");
    agent.subject.agent = id("other");
    for question in [caller, principal, agent] {
        let answer = fixture.request(question, Some(other.clone()), NO_LIMITS).await;
        assert!(matches!(answer, Requested::Created(_)), "{answer:?}");
    }
    for (caller, principal, agent) in
        [("x", "olga", "assistant"), ("runner", "x", "assistant"), ("runner", "olga", "x")]
    {
        let earlier = fixture.store.earlier_request(&id(caller), &id(principal), &id(agent), &other.id).await.unwrap();
        assert!(earlier.row.is_none(), "{caller} {principal} {agent}");
    }
}

pub(in super::super) async fn a_new_request_id_stands_for_the_question_that_is_open(fixture: Fixture) {
    let asked = fixture.ask(question()).await;
    let key = request_key("request-2", "d2");
    assert_eq!(fixture.request(question(), Some(key.clone()), NO_LIMITS).await, Requested::Existing(asked.clone()));
    let denied = fixture.decide(&asked, "olga", Verdict::Deny).await;
    assert_eq!(fixture.request(question(), Some(key), NO_LIMITS).await, Requested::Existing(denied));
}

pub(in super::super) async fn open_approvals_of_a_principal_are_limited(fixture: Fixture) {
    let limits = QuestionLimits { per_principal: 3, per_agent: 100, ..NO_LIMITS };
    for call in 0..3 {
        // Another agent each time: what counts is the principal.
        let mut question = question_about(&call.to_string());
        question.subject.agent = id(&format!("agent-{call}"));
        assert!(matches!(fixture.request(question, None, limits).await, Requested::Created(_)));
    }
    let before = fixture.dump().await;
    let key = Some(request_key("refused", "d"));
    let full = fixture.request(question_about("more"), key.clone(), limits).await;
    assert_eq!(full, Requested::LimitReached(OpenLimit::PerPrincipal));
    assert_eq!(fixture.dump().await, before, "nothing is recorded, not even the request id");
    let (mut caller, mut principal) = (question_about("more"), question_about("more"));
    caller.requested_by = id("another runner");
    principal.subject.principal = id("dana");
    for other in [caller, principal] {
        assert!(matches!(fixture.request(other, None, limits).await, Requested::Created(_)));
    }
    let none = QuestionLimits { per_principal: 0, per_agent: 100, ..NO_LIMITS };
    let mut fresh = question();
    fresh.subject.principal = id("nobody yet");
    assert_eq!(fixture.request(fresh, None, none).await, Requested::LimitReached(OpenLimit::PerPrincipal));
}

pub(in super::super) async fn open_approvals_of_an_agent_are_limited(fixture: Fixture) {
    let limits = QuestionLimits { per_principal: 2, per_agent: 4, ..NO_LIMITS };
    for call in 0..4 {
        let mut question = question_about(&call.to_string());
        question.subject.principal = id(&format!("principal-{call}"));
        assert!(matches!(fixture.request(question, None, limits).await, Requested::Created(_)));
    }
    let before = fixture.dump().await;
    let full = fixture.request(question_about("more"), None, limits).await;
    assert_eq!(full, Requested::LimitReached(OpenLimit::PerAgent));
    assert_eq!(fixture.dump().await, before);
    let (mut caller, mut agent) = (question_about("more"), question_about("more"));
    caller.requested_by = id("another runner");
    agent.subject.agent = id("other");
    for other in [caller, agent] {
        assert!(matches!(fixture.request(other, None, limits).await, Requested::Created(_)));
    }
}

pub(in super::super) async fn what_is_overdue_or_final_counts_against_no_limit(fixture: Fixture) {
    let limits = QuestionLimits { per_principal: 2, per_agent: 2, ..NO_LIMITS };
    fixture.ask(question_about("0")).await;
    let approved = fixture.approved(question_about("1")).await;
    fixture.advance_to(START.plus(USE_WITHIN).minus(TICK));
    let full = |answer| matches!(answer, Requested::LimitReached(OpenLimit::PerPrincipal));
    assert!(full(fixture.request(question_about("2"), None, limits).await));
    fixture.clock.advance(TICK);
    assert_eq!(approved.state_at(fixture.now()), StateName::Expired);
    let third = fixture.request(question_about("2"), None, limits).await;
    assert!(matches!(third, Requested::Created(_)), "an unused approval counts until its deadline: {third:?}");
    assert!(full(fixture.request(question_about("3"), None, limits).await));
    fixture.advance_to(START.plus(DECIDE_WITHIN));
    let Requested::Created(fourth) = fixture.request(question_about("3"), None, limits).await else {
        panic!("a question counts until its deadline")
    };
    assert!(full(fixture.request(question_about("4"), None, limits).await));
    fixture.decide(&fourth, "olga", Verdict::Deny).await;
    assert!(matches!(fixture.request(question_about("4"), None, limits).await, Requested::Created(_)));
}

pub(in super::super) async fn the_same_question_is_answered_however_full_it_is(fixture: Fixture) {
    let limits = QuestionLimits { per_principal: 1, per_agent: 1, ..NO_LIMITS };
    let key = Some(request_key("request-1", "d"));
    let Requested::Created(asked) = fixture.request(question(), key.clone(), limits).await else { panic!() };
    assert_eq!(fixture.request(question(), None, limits).await, Requested::Existing(asked.clone()));
    assert_eq!(fixture.request(question(), key, limits).await, Requested::Existing(asked));
}

pub(in super::super) async fn simultaneous_questions_never_exceed_a_limit(fixture: Fixture) {
    let limits = QuestionLimits { per_principal: 7, per_agent: 100, ..NO_LIMITS };
    let tasks: Vec<_> = (0..60)
        .map(|call| {
            let store = Arc::clone(&fixture.store);
            let question = question_about(&call.to_string());
            let new = NewApproval { id: approval_id(), question, request: None, arguments: sealed_arguments(), limits };
            tokio::spawn(async move { store.request(new).await.unwrap().row })
        })
        .collect();
    let mut created = 0;
    for task in tasks {
        match task.await.unwrap() {
            Requested::Created(_) => created += 1,
            Requested::LimitReached(OpenLimit::PerPrincipal) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(created, 7);
}

async fn audit_of(fixture: &Fixture, approval: ApprovalId) -> Vec<crate::domain::audit::AuditKind> {
    let query = crate::storage::AuditQuery { approval: Some(approval), limit: 100, ..Default::default() };
    let records = fixture.store.audit_records(query).await.unwrap().row;
    records.into_iter().map(|record| record.event.kind).collect()
}
