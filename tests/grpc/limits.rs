//! Limits against fatigue: how many questions may be open at once.

use crate::grpc::harness::*;
use crate::grpc::moves::*;
use countersign::proto::*;
use tonic::Code;

async fn fill(sidecar: &Sidecar, principal: &str, from: usize, count: usize) -> Vec<(Approval, String, Invocation)> {
    let mut asked = Vec::new();
    for index in from..from + count {
        let invocation =
            Invocation { principal: principal.to_owned(), ..in_conversation(&format!("{principal} {index}")) };
        let (approval, token) = sidecar.ask(invocation.clone()).await;
        asked.push((approval, token, invocation));
    }
    asked
}

#[track_caller]
fn too_many(result: Result<RequestApprovalResponse, tonic::Status>, per: &str, limit: &str) {
    let status = refused(result, Code::ResourceExhausted, "TOO_MANY_OPEN_APPROVALS");
    assert_eq!((told(&status, "per").as_str(), told(&status, "limit").as_str()), (per, limit));
    assert!(status.message().contains(per) && status.message().contains(limit));
}

#[tokio::test]
async fn limits_hold_at_their_exact_number_for_principal_and_agent() {
    let sidecar = Sidecar::with(POLICY, (3, 5)).await;
    let mine = fill(&sidecar, "olga", 0, 3).await;
    too_many(sidecar.request(in_conversation("one more")).await, "principal", "3");
    // What is open already is still answered, and so is what nobody is asked about.
    assert!(sidecar.request(mine[0].2.clone()).await.unwrap().existing);
    assert_eq!(sidecar.request(fetch()).await.unwrap().decision(), Decision::Allow);
    fill(&sidecar, "pia", 0, 2).await;
    let sixth = Invocation { principal: "pia".to_owned(), ..in_conversation("one more") };
    too_many(sidecar.request(sixth.clone()).await, "agent", "5");
    // Another agent, another caller.
    sidecar.ask(Invocation { agent: "other-1".to_owned(), ..sixth.clone() }).await;
    let other = sidecar.request_as("runtime-2", asking(in_conversation("one more"))).await.unwrap();
    assert!(!other.existing);
    let refusals: Vec<AuditRecord> =
        sidecar.audit().await.into_iter().filter(|record| record.kind == "request.refused").collect();
    assert_eq!(refusals.len(), 2);
    for record in refusals {
        assert_eq!((record.reason.as_str(), record.approval_id.as_str()), ("TOO_MANY_OPEN_APPROVALS", ""));
    }
}

#[tokio::test]
async fn whatever_closes_a_question_makes_room_for_one_and_approving_does_not() {
    let sidecar = Sidecar::with(POLICY, (3, 100)).await;
    let mut open = fill(&sidecar, "olga", 0, 3).await;
    for (round, ending) in ["cancelled", "denied", "consumed", "revoked", "expired"].into_iter().enumerate() {
        too_many(sidecar.request(in_conversation("one more")).await, "principal", "3");
        let (approval, token, invocation) = open.remove(0);
        match ending {
            "cancelled" => drop(sidecar.cancel_as("runtime", &approval).await.unwrap()),
            "denied" => drop(sidecar.decide("olga", &approval.id, Verdict::Deny).await.unwrap()),
            "expired" => {
                // The others have been open as long: all of them make room.
                sidecar.stand_at(&approval.decide_by, -1);
                too_many(sidecar.request(in_conversation("one more")).await, "principal", "3");
                sidecar.stand_at(&approval.decide_by, 0);
                open.clear();
                open.extend(fill(&sidecar, "olga", 900, 2).await);
            }
            _ => {
                sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
                too_many(sidecar.request(in_conversation("one more")).await, "principal", "3");
                if ending == "consumed" {
                    sidecar.consume(&token, invocation).await.unwrap();
                } else {
                    sidecar.take_back("olga", &approval.id).await.unwrap();
                }
            }
        }
        open.extend(fill(&sidecar, "olga", 10 * (round + 1), 1).await);
    }
    too_many(sidecar.request(in_conversation("one more")).await, "principal", "3");
}

#[tokio::test]
async fn of_many_simultaneous_questions_no_more_than_the_limit_are_opened() {
    let sidecar = Sidecar::with(POLICY, (7, 100)).await;
    let mut calls = tokio::task::JoinSet::new();
    for index in 0..40 {
        let mut agent = sidecar.agent();
        calls.spawn(async move { agent.request_approval(asking(in_conversation(&format!("{index}")))).await });
    }
    let (opened, kept): (Vec<_>, Vec<_>) = calls.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!(opened.len(), 7);
    for result in kept {
        too_many(result.map(tonic::Response::into_inner), "principal", "7");
    }
    assert_eq!(sidecar.listed("olga", &[ApprovalState::Pending]).await.len(), 7);
}
