//! The two clocks of an approval: at its deadline it is over, for every door, and nothing shows it otherwise.

use crate::grpc::harness::*;
use crate::grpc::steps::*;
use countersign::proto::*;
use std::time::Duration;
use tonic::Code;

const AROUND: [(i64, bool); 3] = [(-1, true), (0, false), (1, false)];

/// An approval `offset` microseconds from the deadline of its state.
pub async fn near_its_deadline(state: ApprovalState, offset: i64) -> (Sidecar, Approval, String) {
    let sidecar = Sidecar::start().await;
    if state == ApprovalState::Pending {
        let (approval, token) = sidecar.ask(email()).await;
        sidecar.move_to(approval.decide_by, offset);
        (sidecar, approval, token)
    } else {
        let (approval, token) = sidecar.approved(email()).await;
        sidecar.move_to(approval.use_by, offset);
        (sidecar, approval, token)
    }
}

#[tokio::test]
async fn nothing_shows_what_is_overdue_as_open() {
    for state in [ApprovalState::Pending, ApprovalState::Approved] {
        for (offset, open) in AROUND {
            let (sidecar, approval, _) = near_its_deadline(state, offset).await;
            let expected = if open { state } else { ApprovalState::Expired };
            let shown = sidecar.get(&approval).await;
            assert_eq!(shown.state(), expected, "{offset}");
            assert_eq!((shown.decide_by, shown.use_by), (approval.decide_by, approval.use_by));
            let request =
                ApproverServiceGetApprovalRequest { approval_id: approval.id.clone(), principal: "olga".to_owned() };
            let seen = sidecar.approver().get_approval(request).await.unwrap().into_inner().approval.unwrap();
            assert_eq!(seen, shown);
            assert_eq!(sidecar.list("olga").await, [shown]);
            for wanted in [state, ApprovalState::Expired] {
                let request = ListApprovalsRequest {
                    principal: "olga".to_owned(),
                    states: vec![wanted.into()],
                    ..ListApprovalsRequest::default()
                };
                let listed = sidecar.approver().list_approvals(request).await.unwrap().into_inner().approvals;
                assert_eq!(listed.len(), usize::from(wanted == expected), "{wanted:?} at {offset}");
            }
        }
    }
}

#[tokio::test]
async fn people_decide_before_the_deadline_and_not_from_it_on() {
    for verdict in [Verdict::Approve, Verdict::Deny] {
        for (offset, open) in AROUND {
            let (sidecar, approval, token) = near_its_deadline(ApprovalState::Pending, offset).await;
            let decided = sidecar.decide("olga", &approval.id, verdict).await;
            if open {
                let decided = decided.unwrap();
                assert_eq!(micros(decided.decide_time), micros(approval.decide_by) + offset);
                if verdict == Verdict::Approve {
                    assert_eq!(micros(decided.use_by), micros(decided.decide_time) + 600_000_000);
                }
            } else {
                let late = refused(decided, Code::FailedPrecondition, "APPROVAL_EXPIRED");
                assert_eq!(told(&late, "state_time"), "2026-01-01T00:10:00.000000Z");
                refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_EXPIRED");
                assert!(sidecar.get(&approval).await.decisions.is_empty());
                assert_eq!(sidecar.one_history(&approval).await, ApprovalState::Expired);
            }
        }
    }
}

#[tokio::test]
async fn what_is_overdue_is_neither_cancelled_nor_revoked() {
    for state in [ApprovalState::Pending, ApprovalState::Approved] {
        for (offset, open) in AROUND {
            let (sidecar, approval, _) = near_its_deadline(state, offset).await;
            let revoked = sidecar.revoke("olga", &approval).await;
            match (state, open) {
                (ApprovalState::Approved, true) => {
                    assert_eq!(revoked.unwrap().state(), ApprovalState::Revoked);
                    continue;
                }
                (_, true) => drop(refused(revoked, Code::FailedPrecondition, "APPROVAL_PENDING")),
                (_, false) => drop(refused(revoked, Code::FailedPrecondition, "APPROVAL_EXPIRED")),
            }
            let cancelled = sidecar.cancel(&approval).await;
            if open {
                assert_eq!(cancelled.unwrap().state(), ApprovalState::Cancelled);
            } else {
                refused(cancelled, Code::FailedPrecondition, "APPROVAL_EXPIRED");
                assert_eq!(sidecar.one_history(&approval).await, ApprovalState::Expired);
            }
        }
    }
}

#[tokio::test]
async fn the_same_question_is_asked_anew_once_the_first_is_overdue() {
    for state in [ApprovalState::Pending, ApprovalState::Approved] {
        for (offset, open) in AROUND {
            let (sidecar, approval, token) = near_its_deadline(state, offset).await;
            let again = sidecar.request(email()).await.unwrap();
            assert_eq!(again.existing, open);
            if open {
                assert_eq!((again.approval.unwrap(), again.consume_token), (approval, token));
                continue;
            }
            let second = again.approval.unwrap();
            assert_ne!(second.id, approval.id);
            assert_eq!(micros(second.decide_by), sidecar.now() + 600_000_000);
            assert_eq!(sidecar.one_history(&approval).await, ApprovalState::Expired, "written down with the new one");
            sidecar.decide("olga", &second.id, Verdict::Approve).await.unwrap();
            refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_EXPIRED");
            sidecar.consume(&again.consume_token, email()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_is_overdue_counts_for_no_limit() {
    let sidecar = Sidecar::with(POLICY, (2, 1_000)).await;
    let (first, _) = sidecar.ask(in_conversation(1, email())).await;
    sidecar.ask(in_conversation(2, email())).await;
    sidecar.move_to(first.decide_by, -1);
    let third = sidecar.request(in_conversation(3, email())).await;
    refused(third, Code::ResourceExhausted, "TOO_MANY_OPEN_APPROVALS");
    sidecar.advance(Duration::from_micros(1));
    sidecar.ask(in_conversation(3, email())).await;
}

#[tokio::test]
async fn a_question_may_shorten_its_time_and_not_lengthen_it() {
    let sidecar = Sidecar::start().await;
    for (index, (seconds, effective)) in
        [(1, 1), (60, 60), (600, 600), (601, 600), (86_400, 600)].into_iter().enumerate()
    {
        let request = RequestApprovalRequest {
            invocation: Some(in_conversation(index, email())),
            decide_within: Some(prost_types::Duration { seconds, nanos: 0 }),
            ..RequestApprovalRequest::default()
        };
        let approval = sidecar.agent().request_approval(request).await.unwrap().into_inner().approval.unwrap();
        assert_eq!(micros(approval.decide_by), micros(approval.create_time) + effective * 1_000_000);
        let decided = sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
        assert_eq!(micros(decided.use_by), micros(decided.decide_time) + 600_000_000, "its use has its own clock");
    }
    for (seconds, nanos) in [(0, 0), (0, 999_999_999), (-1, 0), (604_801, 0), (i64::MAX, 0), (1, -1)] {
        let request = RequestApprovalRequest {
            invocation: Some(in_conversation("refused", email())),
            decide_within: Some(prost_types::Duration { seconds, nanos }),
            ..RequestApprovalRequest::default()
        };
        let status = refused(sidecar.agent().request_approval(request).await, Code::InvalidArgument, "INVALID_REQUEST");
        assert_eq!(told(&status, "field"), "decide_within");
    }
}
