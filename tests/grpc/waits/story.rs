//! The loop that an agent runs: stop, ask, wait, go on, act, close.

use super::*;
use tonic::Code;

#[tokio::test]
async fn an_agent_stops_asks_goes_on_with_every_verdict_and_acts() {
    let sidecar = Sidecar::start().await;
    let opened = sidecar.open_wait(opening()).await.unwrap();
    let wait = opened.wait.unwrap();
    assert!(!opened.existing);
    assert_eq!((wait.state(), wait.version, wait.summary.as_str()), (WaitState::Open, 1, &opening().summary[..]));
    assert_eq!((&wait.objective, wait.conversation.as_str()), (&opening().objective, "conversation-1"));
    assert_eq!((wait.opened_by.as_str(), wait.pending_approvals), ("runtime", 0));
    assert_eq!(micros(&wait.expire_time) - micros(&wait.create_time), 3_600_000_000);

    let (sending, token) = sidecar.ask_in(&wait, email()).await;
    let reply = Invocation { action: "GMAIL_REPLY".to_owned(), ..email() };
    let (replying, reply_token) = sidecar.ask_in(&wait, reply.clone()).await;
    assert_eq!(sending.wait_id, wait.id);
    let attempt = new_attempt();
    let pending = sidecar.resume_wait(&wait, &attempt).await;
    let pending = refused(pending, Code::FailedPrecondition, "WAIT_PENDING");
    assert_eq!((told(&pending, "pending"), told(&pending, "wait_id")), ("2".to_owned(), wait.id.clone()));
    sidecar.decide("olga", &sending.id, Verdict::Approve).await.unwrap();
    assert_eq!(sidecar.get_wait(&wait).await.pending_approvals, 1);
    let deny = DecideRequest {
        approval_id: replying.id.clone(),
        principal: "olga".to_owned(),
        verdict: Verdict::Deny.into(),
        reason: "not like this".to_owned(),
        ..Default::default()
    };
    sidecar.approver().decide(deny).await.unwrap();

    // The denial wakes the agent as the approval does, and says why.
    let resumed = sidecar.resume_wait(&wait, &attempt).await.unwrap();
    let gone_on = resumed.wait.clone().unwrap();
    assert_eq!((gone_on.state(), gone_on.version, resumed.replayed), (WaitState::Resumed, 2, false));
    assert_eq!(gone_on.resumed_by, "runtime");
    assert_eq!(gone_on.approval_ids, [sending.id.clone(), replying.id.clone()]);
    let states: Vec<ApprovalState> = resumed.approvals.iter().map(Approval::state).collect();
    assert_eq!(states, [ApprovalState::Approved, ApprovalState::Denied]);
    assert_eq!(resumed.approvals[1].state_reason, "not like this");
    assert_eq!(resumed.approvals[1].decisions[0].reason, "not like this");
    assert!(resumed.approvals.iter().all(|approval| approval.preview_json.is_empty()), "what people are shown");
    let again = sidecar.resume_wait(&wait, &attempt).await.unwrap();
    assert_eq!((again.replayed, &again.wait, &again.approvals), (true, &resumed.wait, &resumed.approvals));

    // What was approved is used after the agent has gone on; what was denied is not.
    sidecar.consume(&token, email()).await.unwrap();
    refused(sidecar.consume(&reply_token, reply).await, Code::FailedPrecondition, "APPROVAL_DENIED");
    let closed = sidecar.close_wait(&gone_on).await.unwrap();
    assert_eq!((closed.state(), closed.close_kind(), closed.version), (WaitState::Closed, WaitCloseKind::Closed, 3));
    assert_eq!((closed.close_reason.as_str(), closed.closed_by.as_str()), ("the user left", "runtime"));
    assert_eq!(sidecar.read(&sending).await.state(), ApprovalState::Consumed, "what is final stays");
    let kinds = sidecar.kinds_of_wait(&wait).await;
    for (kind, count) in [("wait.opened", 1), ("wait.resumed", 1), ("wait.replayed", 1), ("wait.closed", 1)] {
        assert_eq!(kinds.iter().filter(|one| *one == kind).count(), count, "{kind}: {kinds:?}");
    }
}

#[tokio::test]
async fn a_restart_between_any_two_steps_changes_nothing() {
    let mut sidecar = Sidecar::start().await;
    let wait = sidecar.waiting().await;
    sidecar.restart().await;
    assert_eq!(sidecar.get_wait(&wait).await, wait);
    assert_eq!(
        sidecar.open_wait(opening()).await.unwrap(),
        OpenWaitResponse { wait: Some(wait.clone()), existing: true }
    );
    let (approval, token) = sidecar.ask_in(&wait, email()).await;
    sidecar.restart().await;
    assert_eq!(sidecar.ask_in(&wait, email()).await, (approval.clone(), token.clone()));
    sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    sidecar.restart().await;
    let attempt = new_attempt();
    let resumed = sidecar.resume_wait(&wait, &attempt).await.unwrap();
    sidecar.restart().await;
    let again = sidecar.resume_wait(&wait, &attempt).await.unwrap();
    assert_eq!(again, ResumeWaitResponse { replayed: true, ..resumed.clone() });
    let another = sidecar.resume_wait(&wait, &new_attempt()).await;
    refused(another, Code::FailedPrecondition, "WAIT_ALREADY_RESUMED");
    sidecar.consume(&token, email()).await.unwrap();
    sidecar.restart().await;
    let closed = sidecar.close_wait(&wait).await.unwrap();
    sidecar.restart().await;
    assert_eq!(sidecar.close_wait(&wait).await.unwrap(), closed);
    assert_eq!(sidecar.get_wait(&wait).await, closed);
    assert!(
        sidecar.open_wait(opening()).await.unwrap().wait.unwrap().id != wait.id,
        "what is over is not opened again"
    );
}

#[tokio::test]
async fn the_same_question_in_two_waits_and_in_none_is_three_approvals() {
    let sidecar = Sidecar::start().await;
    let (alone, alone_token) = sidecar.ask(email()).await;
    let wait = sidecar.waiting().await;
    let (first, first_token) = sidecar.ask_in(&wait, email()).await;
    let again = sidecar.request_in(&wait, email()).await.unwrap();
    assert_eq!((again.approval.as_ref(), again.existing), (Some(&first), true), "in the same wait it is asked once");
    let replacing = OpenWaitRequest { replace: true, ..opening_for("input-2", 1) };
    sidecar.open_wait(replacing).await.unwrap();
    let back = sidecar.open_wait(OpenWaitRequest { replace: true, ..opening() }).await.unwrap().wait.unwrap();
    assert_ne!(back.id, wait.id);
    let (second, second_token) = sidecar.ask_in(&back, email()).await;
    let ids = [&alone.id, &first.id, &second.id];
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    assert_eq!(sidecar.read(&first).await.state(), ApprovalState::Cancelled);
    for approval in [&alone, &second] {
        sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    }
    refused(sidecar.consume(&first_token, email()).await, Code::FailedPrecondition, "APPROVAL_CANCELLED");
    sidecar.consume(&second_token, email()).await.unwrap();
    sidecar.close_wait(&back).await.unwrap();
    sidecar.consume(&alone_token, email()).await.unwrap();
}

#[tokio::test]
async fn a_request_id_stands_for_its_wait_too() {
    let sidecar = Sidecar::start().await;
    let wait = sidecar.waiting().await;
    let request =
        RequestApprovalRequest { request_id: "request-1".to_owned(), wait_id: wait.id.clone(), ..asking(email()) };
    let asked = sidecar.request_as("runtime", request.clone()).await.unwrap();
    let alone = RequestApprovalRequest { wait_id: String::new(), ..request.clone() };
    refused(sidecar.request_as("runtime", alone).await, Code::AlreadyExists, "REQUEST_ID_REUSED");
    sidecar.close_wait(&wait).await.unwrap();
    // The answer that was missed can be asked for again, whatever became of the wait.
    let again = sidecar.request_as("runtime", request).await.unwrap();
    assert!(again.existing);
    let approval = again.approval.unwrap();
    assert_eq!((&approval.id, approval.state()), (&asked.approval.unwrap().id, ApprovalState::Cancelled));
}

#[tokio::test]
async fn of_many_approvals_the_newest_hundred_are_told() {
    let sidecar = Sidecar::with(POLICY, (1_000, 1_000)).await;
    let wait = sidecar.waiting().await;
    let mut asked = Vec::new();
    for number in 0..103 {
        let call = Invocation { conversation: format!("c-{number}"), ..email() };
        asked.push(sidecar.ask_in(&wait, call).await.0.id);
        sidecar.advance(std::time::Duration::from_micros(1));
        let known = sidecar.get_wait(&wait).await;
        assert_eq!(known.approval_ids, asked[asked.len().saturating_sub(100)..]);
        assert_eq!((known.more_approvals, known.version), (number >= 100, 1));
        assert_eq!(known.pending_approvals, number + 1, "all of them count");
    }
    let pending = refused(sidecar.resume_wait(&wait, &new_attempt()).await, Code::FailedPrecondition, "WAIT_PENDING");
    assert_eq!(told(&pending, "pending"), "103");
    for id in &asked {
        sidecar.decide("olga", id, Verdict::Deny).await.unwrap();
    }
    let resumed = sidecar.resume_wait(&wait, &new_attempt()).await.unwrap();
    let ids: Vec<&String> = resumed.approvals.iter().map(|approval| &approval.id).collect();
    assert_eq!(ids, asked[3..].iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn who_watches_is_told_that_an_approval_went_with_its_wait() {
    use crate::grpc::watching::{all, state};
    let sidecar = Sidecar::start().await;
    let wait = sidecar.waiting().await;
    let (pending, _) = sidecar.ask_in(&wait, email()).await;
    let mut stream = sidecar.watch(&pending).await;
    assert_eq!(state(&mut stream).await, pending);
    sidecar.close_wait(&wait).await.unwrap();
    let told = all(stream).await;
    assert_eq!(told, [sidecar.read(&pending).await]);
    assert_eq!(told[0].state(), ApprovalState::Cancelled);
}

#[tokio::test]
async fn a_command_let_go_is_done_whole_or_not_at_all_and_can_be_asked_again() {
    use crate::grpc::gone::{let_go, turns};
    let mut sidecar = Sidecar::start().await;
    let opening_in = |turn: u32| {
        let transcript = format!("transcript-{turn}");
        let objective = Some(Objective { transcript, id: "input-1".to_owned(), revision: 1 });
        OpenWaitRequest { objective, expire_after: None, ..opening() }
    };
    let mut agent = sidecar.agent();
    for turn in turns() {
        let_go(turn, agent.clone().open_wait(opening_in(turn))).await;
    }
    let mut waits = Vec::new();
    for turn in turns() {
        let wait = agent.open_wait(opening_in(turn)).await.unwrap().into_inner().wait.unwrap();
        assert_eq!(wait.version, 1);
        waits.push((turn, wait, new_attempt()));
    }
    assert_eq!(sidecar.audit().await.iter().filter(|record| record.kind == "wait.opened").count(), waits.len());
    for (turn, wait, attempt) in &waits {
        let_go(*turn, agent.clone().resume_wait(resuming(wait, attempt))).await;
    }
    for (_, wait, attempt) in &waits {
        let resumed = sidecar.resume_wait(wait, attempt).await.unwrap();
        assert_eq!(resumed.wait.unwrap().version, 2);
    }
    for (turn, wait, _) in &waits {
        let request = CloseWaitRequest {
            principal: wait.principal.clone(),
            agent: wait.agent.clone(),
            wait_id: wait.id.clone(),
            reason: String::new(),
        };
        let_go(*turn, agent.clone().close_wait(request)).await;
    }
    sidecar.restart().await;
    for (_, wait, _) in &waits {
        let closed = sidecar.close_wait(wait).await.unwrap();
        assert_eq!((closed.version, closed.state()), (3, WaitState::Closed));
        let kinds = sidecar.kinds_of_wait(wait).await;
        let once = ["wait.opened", "wait.resumed", "wait.closed"];
        let changes: Vec<&String> = kinds.iter().filter(|kind| *kind != "wait.replayed").collect();
        assert_eq!(changes, once, "{kinds:?}");
    }
}
