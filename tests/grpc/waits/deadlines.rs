//! The clock of a wait: at its end it is over, for every door, and nothing in it is open for longer.

use super::*;
use countersign::storage::Sweep;
use tonic::Code;

const AROUND: [(i64, bool); 3] = [(-1, true), (0, false), (1, false)];

#[tokio::test]
async fn a_wait_is_over_at_its_time_and_not_a_microsecond_before() {
    for resumed in [false, true] {
        for (offset, active) in AROUND {
            let sidecar = Sidecar::start().await;
            let mut wait = sidecar.waiting().await;
            let attempt = new_attempt();
            if resumed {
                wait = sidecar.resume_wait(&wait, &attempt).await.unwrap().wait.unwrap();
            }
            sidecar.stand_at(&wait.expire_time, offset);
            let shown = sidecar.get_wait(&wait).await;
            if active {
                assert_eq!(shown, wait);
                let again = sidecar.resume_wait(&wait, &attempt).await.unwrap();
                assert_eq!(again.replayed, resumed);
                sidecar.close_wait(&wait).await.unwrap();
                continue;
            }
            assert_eq!((shown.state(), shown.close_kind()), (WaitState::Closed, WaitCloseKind::Expired));
            assert_eq!((&shown.close_time, &shown.update_time), (&wait.expire_time, &wait.expire_time));
            assert_eq!((shown.version, shown.closed_by.as_str()), (wait.version + 1, ""));
            let resume = sidecar.resume_wait(&wait, &attempt).await;
            let over = refused(resume, Code::FailedPrecondition, "WAIT_EXPIRED");
            assert_eq!(told(&over, "state_time"), "2026-01-01T01:00:00.000000Z");
            refused(sidecar.close_wait(&wait).await, Code::FailedPrecondition, "WAIT_EXPIRED");
            refused(sidecar.request_in(&wait, email()).await, Code::FailedPrecondition, "WAIT_EXPIRED");
            assert_eq!(sidecar.get_wait(&wait).await, shown, "written down as it was read");
            let opened = sidecar.open_wait(opening()).await.unwrap();
            assert!(!opened.existing && opened.wait.unwrap().id != wait.id);
            assert_eq!(sidecar.kinds_of_wait(&wait).await.iter().filter(|kind| *kind == "wait.expired").count(), 1);
        }
    }
}

#[tokio::test]
async fn opening_at_its_time_makes_another_and_before_it_finds_it() {
    for (offset, active) in AROUND {
        let sidecar = Sidecar::start().await;
        let wait = sidecar.waiting().await;
        sidecar.stand_at(&wait.expire_time, offset);
        let conflict = sidecar.open_wait(opening_for("input-2", 1)).await;
        if active {
            refused(conflict, Code::FailedPrecondition, "OBJECTIVE_CONFLICT");
            let longer = sidecar.open_wait(opening()).await.unwrap();
            assert!(longer.existing);
            let longer = longer.wait.unwrap();
            assert_eq!(micros(&longer.expire_time), sidecar.store_micros() + 3_600_000_000);
            assert_eq!(longer.version, wait.version, "more time is no news");
        } else {
            assert!(!conflict.unwrap().existing);
            assert_eq!(sidecar.kinds_of_wait(&wait).await, ["wait.opened", "wait.expired"]);
        }
    }
}

#[tokio::test]
async fn no_approval_is_open_for_longer_than_its_wait() {
    let sidecar = Sidecar::start().await;
    let short = OpenWaitRequest { expire_after: span(900, 0), ..opening() };
    let wait = sidecar.open_wait(short).await.unwrap().wait.unwrap();
    let (approval, token) = sidecar.ask_in(&wait, email()).await;
    assert_eq!(
        micros(&approval.decide_by),
        micros(&approval.create_time) + 600_000_000,
        "the policy's time is shorter"
    );
    sidecar.stand_at(&approval.decide_by, -1);
    let approved = sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
    assert_eq!(approved.use_by, wait.expire_time, "the wait's is shorter");
    let reply = Invocation { action: "GMAIL_REPLY".to_owned(), ..email() };
    let (late, _) = sidecar.ask_in(&wait, reply).await;
    assert_eq!(late.decide_by, wait.expire_time);
    // More time for the wait is more time for what is asked from now on.
    let longer = sidecar.open_wait(opening()).await.unwrap().wait.unwrap();
    assert_eq!(sidecar.read(&late).await, late);
    let after = Invocation { conversation: "after".to_owned(), ..email() };
    let (after, _) = sidecar.ask_in(&longer, after).await;
    assert_eq!(micros(&after.decide_by), micros(&after.create_time) + 600_000_000);
    sidecar.stand_at(&wait.expire_time, 0);
    assert_eq!(sidecar.get_wait(&wait).await.state(), WaitState::Open);
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "APPROVAL_EXPIRED");
    let decided = sidecar.decide("olga", &late.id, Verdict::Approve).await;
    refused(decided, Code::FailedPrecondition, "APPROVAL_EXPIRED");
}

#[tokio::test]
async fn what_an_expired_wait_had_is_expired_before_anybody_writes_it_down_and_after() {
    for offset in [-1, 0, 1] {
        let sidecar = Sidecar::start().await;
        let short = OpenWaitRequest { expire_after: span(60, 0), ..opening() };
        let wait = sidecar.open_wait(short).await.unwrap().wait.unwrap();
        let (approved, token) = sidecar.approved_in(&wait, email()).await;
        let reply = Invocation { action: "GMAIL_REPLY".to_owned(), ..email() };
        let (pending, _) = sidecar.ask_in(&wait, reply).await;
        sidecar.stand_at(&wait.expire_time, offset);
        let open = offset < 0;
        let shown = sidecar.get_wait(&wait).await;
        assert_eq!(shown.pending_approvals, u32::from(open));
        let store = std::sync::Arc::clone(sidecar.running().engine().store());
        let sweep = || async { store.sweep(Sweep::ExpireWaits, 10).await.unwrap().rows };
        for swept in [false, true] {
            if swept {
                assert_eq!(sweep().await, u32::from(!open));
                assert_eq!(sweep().await, 0);
            }
            let states = [&approved, &pending].map(|approval| sidecar.read(approval));
            for (state, opened) in states.into_iter().zip([ApprovalState::Approved, ApprovalState::Pending]) {
                let state = state.await;
                assert_eq!(state.state(), if open { opened } else { ApprovalState::Expired });
                assert_eq!(state.state_reason, "");
            }
            assert_eq!(sidecar.get_wait(&wait).await, shown);
        }
        let consumed = sidecar.consume(&token, email()).await;
        if open {
            consumed.unwrap();
        } else {
            refused(consumed, Code::FailedPrecondition, "APPROVAL_EXPIRED");
        }
    }
}

#[tokio::test]
async fn a_wall_clock_set_back_and_a_restart_open_nothing_again() {
    let mut sidecar = Sidecar::start().await;
    let wait = sidecar.waiting().await;
    sidecar.stand_at(&wait.expire_time, 0);
    let expired = sidecar.get_wait(&wait).await;
    refused(sidecar.close_wait(&wait).await, Code::FailedPrecondition, "WAIT_EXPIRED");
    sidecar.clock.set_wall(START.plus(std::time::Duration::from_secs(3_500)));
    assert_eq!(sidecar.get_wait(&wait).await, expired);
    sidecar.restart().await;
    assert_eq!(sidecar.get_wait(&wait).await, expired);
    refused(sidecar.resume_wait(&wait, &new_attempt()).await, Code::FailedPrecondition, "WAIT_EXPIRED");
}
