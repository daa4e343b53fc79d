//! Whose a wait is: what is out of one's bounds, or of another pair, is not there.

use super::*;
use tonic::Code;

fn opening_of(principal: &str) -> OpenWaitRequest {
    OpenWaitRequest { principal: principal.to_owned(), ..opening() }
}

/// Both were refused, and no client could tell which was which.
#[track_caller]
fn alike<T: std::fmt::Debug>(one: Result<T, Status>, other: Result<T, Status>) {
    let (one, other) = (one.expect_err("the one"), other.expect_err("the other"));
    assert_eq!((one.code(), reason(&one).as_str()), (Code::NotFound, "WAIT_NOT_FOUND"));
    assert_eq!(all_of(&one), all_of(&other));
}

/// What a caller gets that names a wait under this principal and agent.
async fn is_absent_for(sidecar: &Sidecar, caller: &str, principal: &str, agent: &str, wait: &Wait) {
    let theirs = Wait { principal: principal.to_owned(), agent: agent.to_owned(), ..wait.clone() };
    let nothing = Wait { id: new_attempt(), ..theirs.clone() };
    alike(sidecar.get_wait_as(caller, &theirs).await, sidecar.get_wait_as(caller, &nothing).await);
    alike(sidecar.close_wait_as(caller, &theirs).await, sidecar.close_wait_as(caller, &nothing).await);
}

async fn cannot_resume(sidecar: &Sidecar, caller: &str, principal: &str, agent: &str, wait: &Wait) {
    let theirs = Wait { principal: principal.to_owned(), agent: agent.to_owned(), ..wait.clone() };
    let nothing = Wait { id: new_attempt(), ..theirs.clone() };
    let mut client = sidecar.agent_as(caller);
    let attempt = new_attempt();
    let of_theirs = client.resume_wait(resuming(&theirs, &attempt)).await;
    alike(of_theirs, client.resume_wait(resuming(&nothing, &attempt)).await);
}

#[tokio::test]
async fn a_tenants_caller_cannot_tell_anothers_wait_from_nothing() {
    let sidecar = Sidecar::start().await;
    let opened = sidecar.agent_as("tenant-a").open_wait(opening_of("tenant-a")).await.unwrap().into_inner();
    let wait = opened.wait.unwrap();
    let records = sidecar.audit().await.len();
    for closed in [false, true] {
        for (principal, agent) in [("tenant-a", "assistant"), ("tenant-b", "assistant"), ("tenant-b", "other-1")] {
            is_absent_for(&sidecar, "tenant-b", principal, agent, &wait).await;
            cannot_resume(&sidecar, "tenant-b", principal, agent, &wait).await;
        }
        is_absent_for(&sidecar, "nobody", "tenant-a", "assistant", &wait).await;
        cannot_resume(&sidecar, "nobody", "tenant-a", "assistant", &wait).await;
        // A question that names it is theirs to ask, and the wait is not there.
        let ask = |wait_id: String| RequestApprovalRequest {
            wait_id,
            ..asking(Invocation { principal: "tenant-b".to_owned(), ..email() })
        };
        let of_theirs = sidecar.request_as("tenant-b", ask(wait.id.clone())).await;
        alike(of_theirs, sidecar.request_as("tenant-b", ask(new_attempt())).await);
        if !closed {
            assert_eq!(sidecar.get_wait_as("tenant-a", &wait).await.unwrap(), wait, "it is there, and as it was");
            assert_eq!(sidecar.audit().await.len(), records + 2, "of the two questions alone");
            sidecar.close_wait_as("tenant-a", &wait).await.unwrap();
        }
    }
    for principal in ["tenant-a", "tenant-c"] {
        let result = sidecar.agent_as("tenant-b").open_wait(opening_of(principal)).await;
        refused(result, Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS");
    }
    let other = OpenWaitRequest { agent: "other-1".to_owned(), ..opening_of("tenant-b") };
    refused(sidecar.agent_as("tenant-b").open_wait(other).await, Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS");
}

#[tokio::test]
async fn principals_behind_one_credential_do_not_see_each_others_waits() {
    let sidecar = Sidecar::start().await;
    let wait = sidecar.waiting().await;
    is_absent_for(&sidecar, "runtime", "pia", "assistant", &wait).await;
    is_absent_for(&sidecar, "runtime", "olga", "other-1", &wait).await;
    is_absent_for(&sidecar, "runtime", "assistant", "olga", &wait).await;
    // Going on says why it is refused, both being within this caller's bounds.
    let of = |principal: &str, agent: &str| {
        let other = Wait { principal: principal.to_owned(), agent: agent.to_owned(), ..wait.clone() };
        resuming(&other, &new_attempt())
    };
    let mut agent = sidecar.agent();
    let result = agent.resume_wait(of("pia", "other-1")).await;
    refused(result, Code::FailedPrecondition, "PRINCIPAL_MISMATCH");
    refused(agent.resume_wait(of("olga", "other-1")).await, Code::FailedPrecondition, "AGENT_MISMATCH");
    for stranger in
        [Invocation { principal: "pia".to_owned(), ..email() }, Invocation { agent: "other-1".to_owned(), ..email() }]
    {
        let theirs = sidecar.request_in(&wait, stranger.clone()).await;
        let nothing = Wait { id: new_attempt(), ..wait.clone() };
        alike(theirs, sidecar.request_in(&nothing, stranger.clone()).await);
        let allowed = Invocation { action: "GMAIL_FETCH_EMAILS".to_owned(), ..stranger };
        alike(sidecar.request_in(&wait, allowed.clone()).await, sidecar.request_in(&nothing, allowed).await);
    }
    assert_eq!(sidecar.get_wait(&wait).await, wait);
}

#[tokio::test]
async fn a_caller_whose_bounds_have_the_wait_alone_learns_nothing_of_whom_it_names() {
    let sidecar = Sidecar::start().await;
    let opened = sidecar.agent_as("tenant-a").open_wait(opening_of("tenant-a")).await.unwrap().into_inner();
    let wait = opened.wait.unwrap();
    cannot_resume(&sidecar, "tenant-a", "tenant-b", "assistant", &wait).await;
    cannot_resume(&sidecar, "tenant-a", "tenant-a", "other-1", &wait).await;
    let resumed = sidecar.agent_as("tenant-a").resume_wait(resuming(&wait, &new_attempt())).await;
    assert_eq!(resumed.unwrap().into_inner().wait.unwrap().resumed_by, "tenant-a");
}

#[tokio::test]
async fn another_caller_of_the_same_agent_may_go_on_and_close_but_not_answer_for_anothers_attempt() {
    let sidecar = Sidecar::start().await;
    let wait = sidecar.waiting().await;
    let attempt = new_attempt();
    sidecar.resume_wait(&wait, &attempt).await.unwrap();
    let mut second = sidecar.agent_as("runtime-2");
    // Attempt ids are each caller's own.
    let same = second.resume_wait(resuming(&wait, &attempt)).await;
    refused(same, Code::FailedPrecondition, "WAIT_ALREADY_RESUMED");
    let closed = sidecar.close_wait_as("runtime-2", &wait).await.unwrap();
    assert_eq!(closed.closed_by, "runtime-2");
}
