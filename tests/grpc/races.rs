//! Real concurrency: whatever meets, one history comes of it, and who was late is told what happened.

use crate::grpc::harness::*;
use crate::grpc::steps::*;
use countersign::proto::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::Barrier;
use tonic::Code;

const ROUNDS: usize = 12;

/// Finance alone confirms, as many of them as the quorum says.
fn finance(quorum: u32) -> String {
    let people: Vec<String> = (1..=20).map(|number| format!("person-{number}")).collect();
    format!(
        "version: countersign.policy/v1\ngroups: {{ finance: [dana, eve, finn, {}] }}\nconnectors:\n  gmail:\n    \
         ceiling: write\n    confirm: never\n    actions: {{ GMAIL_SEND_EMAIL: {{ scope: write, curated: true }} }}\n    \
         rules:\n      - {{ name: finance, effect: confirm, approvers: [{{ any_of: [\"group:finance\"], quorum: {quorum} }}] }}\n",
        people.join(", ")
    )
}

/// Runs both at the same moment, each on a task of its own.
async fn at_once<A, B>(
    first: impl Future<Output = A> + Send + 'static,
    second: impl Future<Output = B> + Send + 'static,
) -> (A, B)
where
    A: Send + 'static,
    B: Send + 'static,
{
    let barrier = Arc::new(Barrier::new(2));
    let other = Arc::clone(&barrier);
    let first = tokio::spawn(async move {
        barrier.wait().await;
        first.await
    });
    let second = tokio::spawn(async move {
        other.wait().await;
        second.await
    });
    (first.await.unwrap(), second.await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn consume_against_cancel_has_one_winner() {
    let sidecar = Arc::new(Sidecar::start().await);
    let mut wins = BTreeSet::new();
    for round in 0..ROUNDS {
        let call = in_conversation(round, email());
        let (approval, token) = sidecar.approved(call.clone()).await;
        let (one, two, withdrawn) = (Arc::clone(&sidecar), Arc::clone(&sidecar), approval.clone());
        let consume = async move { one.consume(&token, call).await };
        let cancel = async move { two.cancel(&withdrawn).await };
        let (consumed, cancelled) = at_once(consume, cancel).await;
        let state = sidecar.one_history(&approval).await;
        wins.insert(state.as_str_name());
        if consumed.is_ok() {
            assert_eq!(state, ApprovalState::Consumed);
            refused(cancelled, Code::FailedPrecondition, "APPROVAL_CONSUMED");
        } else {
            assert_eq!(state, ApprovalState::Cancelled);
            let late = refused(consumed, Code::FailedPrecondition, "APPROVAL_CANCELLED");
            assert_eq!(told(&late, "state_by"), "runtime");
            assert_eq!(cancelled.unwrap().state(), ApprovalState::Cancelled);
        }
    }
    assert!(!wins.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn consume_against_revoke_has_one_winner() {
    let sidecar = Arc::new(Sidecar::start().await);
    for round in 0..ROUNDS {
        let call = in_conversation(round, email());
        let (approval, token) = sidecar.approved(call.clone()).await;
        let (one, two, taken_back) = (Arc::clone(&sidecar), Arc::clone(&sidecar), approval.clone());
        let consume = async move { one.consume(&token, call).await };
        let revoke = async move { two.revoke("olga", &taken_back).await };
        let (consumed, revoked) = at_once(consume, revoke).await;
        let state = sidecar.one_history(&approval).await;
        if consumed.is_ok() {
            assert_eq!(state, ApprovalState::Consumed);
            refused(revoked, Code::FailedPrecondition, "APPROVAL_CONSUMED");
        } else {
            assert_eq!(state, ApprovalState::Revoked);
            let late = refused(consumed, Code::FailedPrecondition, "APPROVAL_REVOKED");
            assert_eq!(told(&late, "state_by"), "olga");
            assert_eq!(revoked.unwrap().state(), ApprovalState::Revoked);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn approve_against_deny_has_one_winner_and_tells_the_other_who_what_and_when() {
    let sidecar = Arc::new(Sidecar::under(&finance(1)).await);
    for round in 0..ROUNDS {
        let (approval, token) = sidecar.ask(in_conversation(round, email())).await;
        let answer = |person: &'static str, verdict: Verdict| {
            let (sidecar, id) = (Arc::clone(&sidecar), approval.id.clone());
            async move { sidecar.decide(person, &id, verdict).await }
        };
        let (approved, denied) = at_once(answer("dana", Verdict::Approve), answer("eve", Verdict::Deny)).await;
        let state = sidecar.one_history(&approval).await;
        let (late, by, verdict, why) = match state {
            ApprovalState::Approved => (denied, "dana", "APPROVE", "APPROVAL_APPROVED"),
            ApprovalState::Denied => (approved, "eve", "DENY", "APPROVAL_DENIED"),
            state => panic!("{state:?}"),
        };
        let late = refused(late, Code::FailedPrecondition, why);
        assert_eq!((told(&late, "decided_by"), told(&late, "verdict")), (by.to_owned(), verdict.to_owned()));
        assert_eq!(told(&late, "decide_time"), "2026-01-01T00:00:00.000000Z");
        for part in [by, verdict, "2026-01-01T00:00:00.000000Z"] {
            assert!(late.message().contains(part), "{}", late.message());
        }
        let gate = sidecar.consume(&token, in_conversation(round, email())).await;
        assert_eq!(gate.is_ok(), state == ApprovalState::Approved);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_persons_two_answers_at_once_leave_one_standing() {
    let sidecar = Arc::new(Sidecar::under(&finance(2)).await);
    for round in 0..ROUNDS {
        let (approval, _) = sidecar.ask(in_conversation(round, email())).await;
        let answer = |verdict: Verdict| {
            let (sidecar, id) = (Arc::clone(&sidecar), approval.id.clone());
            async move { sidecar.decide("dana", &id, verdict).await }
        };
        let (approved, denied) = at_once(answer(Verdict::Approve), answer(Verdict::Deny)).await;
        // A no always stands: it was first, or it replaced the yes.
        assert_eq!(denied.unwrap().state(), ApprovalState::Denied);
        assert_eq!(sidecar.one_history(&approval).await, ApprovalState::Denied);
        if approved.is_err() {
            refused(approved, Code::FailedPrecondition, "APPROVAL_DENIED");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_approvals_at_once_both_count_for_a_quorum_of_two() {
    let sidecar = Arc::new(Sidecar::under(&finance(2)).await);
    for round in 0..ROUNDS {
        let (approval, token) = sidecar.ask(in_conversation(round, email())).await;
        let approve = |person: &'static str| {
            let (sidecar, id) = (Arc::clone(&sidecar), approval.id.clone());
            async move { sidecar.decide(person, &id, Verdict::Approve).await.unwrap().state() }
        };
        let states = at_once(approve("dana"), approve("eve")).await;
        let states = BTreeSet::from([states.0.as_str_name(), states.1.as_str_name()]);
        assert_eq!(states, BTreeSet::from(["APPROVAL_STATE_APPROVED", "APPROVAL_STATE_PENDING"]));
        assert_eq!(sidecar.one_history(&approval).await, ApprovalState::Approved);
        assert_eq!(sidecar.get(&approval).await.decisions.len(), 2);
        sidecar.consume(&token, in_conversation(round, email())).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_twenty_people_at_once_every_answer_counts() {
    let sidecar = Arc::new(Sidecar::under(&finance(20)).await);
    let (approval, _) = sidecar.ask(email()).await;
    let approver = sidecar.approver();
    let mut people = tokio::task::JoinSet::new();
    for number in 1..=20 {
        let mut approver = approver.clone();
        let request = DecideRequest {
            approval_id: approval.id.clone(),
            principal: format!("person-{number}"),
            verdict: Verdict::Approve.into(),
            ..DecideRequest::default()
        };
        people.spawn(async move {
            loop {
                match approver.decide(request.clone()).await {
                    Ok(_) => return,
                    // Nothing was changed, and it says so: the same answer again.
                    Err(status) => assert_eq!((status.code(), reason(&status).as_str()), (Code::Aborted, "LOST_RACE")),
                }
            }
        });
    }
    people.join_all().await;
    assert_eq!(sidecar.one_history(&approval).await, ApprovalState::Approved);
    let decided = sidecar.get(&approval).await.decisions;
    assert_eq!(decided.iter().map(|decision| &decision.principal).collect::<BTreeSet<_>>().len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_question_asked_at_once_is_one_question() {
    let sidecar = Sidecar::start().await;
    for round in 0..ROUNDS {
        let agent = sidecar.agent();
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..20 {
            let mut agent = agent.clone();
            let request = RequestApprovalRequest {
                invocation: Some(in_conversation(round, email())),
                // Some say which request it is, each another one; it is the same question all the same.
                request_id: if number % 2 == 0 { String::new() } else { format!("{round}-{number}") },
                ..RequestApprovalRequest::default()
            };
            calls.spawn(async move { agent.request_approval(request).await.unwrap().into_inner() });
        }
        let answers = calls.join_all().await;
        assert_eq!(answers.iter().filter(|answer| !answer.existing).count(), 1);
        let first = &answers[0];
        assert!(answers.iter().all(|it| (&it.approval, &it.consume_token) == (&first.approval, &first.consume_token)));
        assert_eq!(sidecar.one_history(first.approval.as_ref().unwrap()).await, ApprovalState::Pending);
    }
    assert_eq!(sidecar.count("approval.requested").await, ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_request_id_at_once_stands_for_one_request() {
    let sidecar = Sidecar::start().await;
    for round in 0..ROUNDS {
        let agent = sidecar.agent();
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..20 {
            let mut agent = agent.clone();
            let request = RequestApprovalRequest {
                request_id: format!("request-{round}"),
                // Two questions under one id: whichever is first, it stands for that one alone.
                invocation: Some(in_conversation(format!("{round}-{}", number % 2), email())),
                ..RequestApprovalRequest::default()
            };
            calls.spawn(async move { (number % 2, agent.request_approval(request).await) });
        }
        let mut answers = BTreeSet::new();
        let mut first = 0;
        for (question, answer) in calls.join_all().await {
            match answer {
                Ok(answer) => {
                    let answer = answer.into_inner();
                    first += usize::from(!answer.existing);
                    answers.insert((question, answer.approval.unwrap().id));
                }
                Err(status) => {
                    assert_eq!((status.code(), reason(&status).as_str()), (Code::AlreadyExists, "REQUEST_ID_REUSED"));
                }
            }
        }
        assert_eq!((answers.len(), first), (1, 1), "{answers:?}");
    }
    assert_eq!(sidecar.count("approval.requested").await, ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_limit_of_open_questions_holds_also_at_once() {
    let sidecar = Sidecar::with(POLICY, (5, 1_000)).await;
    let agent = sidecar.agent();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..20 {
        let mut agent = agent.clone();
        let request = RequestApprovalRequest {
            invocation: Some(in_conversation(number, email())),
            ..RequestApprovalRequest::default()
        };
        calls.spawn(async move { agent.request_approval(request).await });
    }
    let (asked, refusals): (Vec<_>, Vec<_>) = calls.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!((asked.len(), sidecar.count("approval.requested").await), (5, 5));
    for refusal in refusals {
        refused(refusal, Code::ResourceExhausted, "TOO_MANY_OPEN_APPROVALS");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn decide_against_cancel_is_one_after_the_other() {
    let sidecar = Arc::new(Sidecar::start().await);
    for round in 0..ROUNDS {
        let verdict = if round % 2 == 0 { Verdict::Approve } else { Verdict::Deny };
        let (approval, token) = sidecar.ask(in_conversation(round, email())).await;
        let (one, two, withdrawn) = (Arc::clone(&sidecar), Arc::clone(&sidecar), approval.clone());
        let id = approval.id.clone();
        let decide = async move { one.decide("olga", &id, verdict).await };
        let cancel = async move { two.cancel(&withdrawn).await };
        let (decided, cancelled) = at_once(decide, cancel).await;
        let state = sidecar.one_history(&approval).await;
        match (verdict, decided) {
            // Also what was approved can be withdrawn, so the cancellation stands in the end.
            (Verdict::Approve, Ok(decided)) => {
                assert_eq!((decided.state(), state), (ApprovalState::Approved, ApprovalState::Cancelled));
                cancelled.unwrap();
            }
            (_, Ok(decided)) => {
                assert_eq!((decided.state(), state), (ApprovalState::Denied, ApprovalState::Denied));
                refused(cancelled, Code::FailedPrecondition, "APPROVAL_DENIED");
            }
            (_, late) => {
                assert_eq!(state, ApprovalState::Cancelled);
                refused(late, Code::FailedPrecondition, "APPROVAL_CANCELLED");
                cancelled.unwrap();
            }
        }
        let why = if state == ApprovalState::Denied { "APPROVAL_DENIED" } else { "APPROVAL_CANCELLED" };
        let gate = sidecar.consume(&token, in_conversation(round, email())).await;
        refused(gate, Code::FailedPrecondition, why);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_outcomes_at_once_leave_one_and_name_it() {
    let sidecar = Arc::new(Sidecar::start().await);
    for _ in 0..ROUNDS {
        let execution = sidecar.started(fetch()).await.execution_id;
        let report = |outcome: Outcome| {
            let (sidecar, id) = (Arc::clone(&sidecar), execution.clone());
            async move { sidecar.report(&id, outcome, "").await }
        };
        let (succeeded, failed) = at_once(report(Outcome::Succeeded), report(Outcome::Failed)).await;
        assert!(succeeded.is_ok() != failed.is_ok());
        let (late, stands) = if succeeded.is_ok() { (failed, "succeeded") } else { (succeeded, "failed") };
        let late = refused(late, Code::FailedPrecondition, "OUTCOME_FINAL");
        assert_eq!(told(&late, "state"), stands);
    }
    assert_eq!(sidecar.count("execution.reported").await, ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_retry_against_the_success_of_its_first_attempt_is_one_after_the_other() {
    let sidecar = Arc::new(Sidecar::start().await);
    for round in 0..ROUNDS {
        let call = in_conversation(round, email());
        let earlier = sidecar.started(fetch()).await.execution_id;
        let asked = sidecar.ask_to_retry(&earlier, call.clone()).await.unwrap();
        let approval = asked.approval.unwrap();
        sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
        let (one, two) = (Arc::clone(&sidecar), Arc::clone(&sidecar));
        let consume = async move { one.consume(&asked.consume_token, call).await };
        let report = async move { two.report(&earlier, Outcome::Succeeded, "").await };
        let (consumed, reported) = at_once(consume, report).await;
        reported.unwrap();
        let state = sidecar.one_history(&approval).await;
        if consumed.is_ok() {
            assert_eq!(state, ApprovalState::Consumed);
        } else {
            refused(consumed, Code::FailedPrecondition, "RETRY_NOT_NEEDED");
            assert_eq!(state, ApprovalState::Approved);
        }
    }
}
