//! People's answers: who may give one, what it does in each state, and until when.

use crate::grpc::harness::*;
use crate::grpc::moves::*;
use countersign::proto::*;
use tonic::{Code, Status};

pub const APPROVE: Verdict = Verdict::Approve;

pub const DENY: Verdict = Verdict::Deny;

/// Payments that groups, one person, the owner, or anybody but the requester must confirm.
pub const BANK: &str = r#"
version: countersign.policy/v1
groups: { finance: [dana, eve, finn], security: [sam, dana] }
connectors:
  gmail:
    ceiling: admin
    confirm: never
    actions:
      WIRE: { scope: write, curated: true }
      PAIR: { scope: write, curated: true }
      PEER: { scope: write, curated: true }
      OWN: { scope: write, curated: true }
      EITHER: { scope: write, curated: true }
    rules:
      - { name: both-groups, actions: [WIRE], effect: confirm, approvers: [{ any_of: ["group:finance"] }, { any_of: ["group:security"] }] }
      - { name: two-of-finance, actions: [PAIR], effect: confirm, approvers: [{ any_of: ["group:finance"], quorum: 2 }] }
      - { name: not-oneself, actions: [PEER], effect: confirm, exclude_requester: true, approvers: [{ any_of: [owner, "group:finance", "person:kim"] }] }
      - { name: owner, actions: [OWN], effect: confirm }
      - { name: owner-and-kim, actions: [EITHER], effect: confirm, approvers: [{ any_of: [owner] }, { any_of: ["person:kim"] }] }
"#;

pub fn payment(action: &str, principal: &str, conversation: &str) -> Invocation {
    Invocation { action: action.to_owned(), principal: principal.to_owned(), ..in_conversation(conversation) }
}

#[track_caller]
pub fn not_found<T: std::fmt::Debug>(result: Result<T, Status>) {
    refused(result, Code::NotFound, "APPROVAL_NOT_FOUND");
}

#[track_caller]
fn not_an_approver<T: std::fmt::Debug>(result: Result<T, Status>) {
    refused(result, Code::PermissionDenied, "NOT_AN_APPROVER");
}

#[tokio::test]
async fn one_person_cannot_fill_two_clauses_and_people_are_matched_to_them() {
    let sidecar = Sidecar::under(BANK).await;
    let cases: [(&[&str], bool); 9] = [
        (&["dana"], false),
        (&["dana", "dana", "dana"], false),
        (&["eve", "finn"], false),
        (&["sam"], false),
        (&["eve", "sam"], true),
        (&["sam", "eve"], true),
        (&["dana", "eve"], true),
        (&["dana", "sam"], true),
        (&["eve", "finn", "dana"], true),
    ];
    for (index, (people, met)) in cases.into_iter().enumerate() {
        let (approval, token) = sidecar.ask(payment("WIRE", "olga", &format!("case {index}"))).await;
        let mut state = ApprovalState::Pending;
        for person in people {
            assert_eq!(state, ApprovalState::Pending, "the last one completes it: {people:?}");
            state = sidecar.decide(person, &approval.id, APPROVE).await.unwrap().state();
        }
        assert_eq!(state == ApprovalState::Approved, met, "{people:?}");
        let used = sidecar.consume(&token, payment("WIRE", "olga", &format!("case {index}"))).await;
        if met {
            used.unwrap();
        } else {
            refused(used, Code::FailedPrecondition, "APPROVAL_PENDING");
        }
    }
}

#[tokio::test]
async fn a_quorum_counts_different_people_and_records_each_with_groups_and_time() {
    let sidecar = Sidecar::under(BANK).await;
    let (approval, _) = sidecar.ask(payment("PAIR", "olga", "pair")).await;
    let requirement = approval.requirement.clone().unwrap();
    assert_eq!(requirement.clauses, [Clause { any_of: vec!["group:finance".to_owned()], quorum: 2 }]);
    let once = sidecar.decide("dana", &approval.id, APPROVE).await.unwrap();
    let twice = sidecar.decide("dana", &approval.id, APPROVE).await.unwrap();
    assert_eq!(once, twice, "the same again changes nothing, not even the version");
    sidecar.advance(std::time::Duration::from_micros(7));
    let request = DecideRequest {
        approval_id: approval.id.clone(),
        principal: "eve".to_owned(),
        verdict: APPROVE.into(),
        reason: "checked\u{202E}".to_owned(),
        shown_fingerprint: approval.fingerprint.clone(),
    };
    let done = sidecar.approver().decide(request).await.unwrap().into_inner().approval.unwrap();
    assert_eq!(done.state(), ApprovalState::Approved);
    assert_eq!((once.version, done.version), (2, 3));
    let said: Vec<(&str, Vec<&str>, bool, &str)> = done
        .decisions
        .iter()
        .map(|one| {
            let groups = one.groups.iter().map(String::as_str).collect();
            (one.principal.as_str(), groups, one.as_owner, one.reason.as_str())
        })
        .collect();
    assert_eq!(
        said,
        [("dana", vec!["finance", "security"], false, ""), ("eve", vec!["finance"], false, r"checked\u{202E}")]
    );
    assert_eq!(micros(&done.decide_time), micros(&approval.create_time) + 7);
    assert_eq!(micros(&done.decisions[0].decide_time) + 7, micros(&done.decisions[1].decide_time));
    assert_eq!(micros(&done.use_by), micros(&done.decide_time) + 600_000_000);
}

#[tokio::test]
async fn a_requester_who_is_excluded_sees_the_approval_and_cannot_decide_it() {
    let sidecar = Sidecar::under(BANK).await;
    for requester in ["dana", "kim", "olga"] {
        let (approval, _) = sidecar.ask(payment("PEER", requester, requester)).await;
        assert!(approval.requirement.as_ref().unwrap().exclude_requester);
        assert_eq!(sidecar.seen_by(requester, &approval.id).await.unwrap(), approval);
        for verdict in [APPROVE, DENY] {
            not_an_approver(sidecar.decide(requester, &approval.id, verdict).await);
        }
        let done = sidecar.decide("eve", &approval.id, APPROVE).await.unwrap();
        assert_eq!(done.state(), ApprovalState::Approved);
        assert!(!done.decisions[0].as_owner);
        // To take it back is always theirs.
        assert_eq!(sidecar.take_back(requester, &approval.id).await.unwrap().state(), ApprovalState::Revoked);
    }
}

#[tokio::test]
async fn who_sees_an_approval_is_told_they_may_not_and_who_does_not_that_there_is_none() {
    let sidecar = Sidecar::under(BANK).await;
    let (wire, _) = sidecar.ask(payment("WIRE", "olga", "wire")).await;
    let (own, _) = sidecar.ask(payment("OWN", "olga", "own")).await;
    let (either, _) = sidecar.ask(payment("EITHER", "olga", "either")).await;
    for verdict in [APPROVE, DENY] {
        not_an_approver(sidecar.decide("olga", &wire.id, verdict).await);
        for (person, approval) in [
            ("kim", &wire),
            ("finance", &wire),
            ("group:finance", &wire),
            ("assistant", &wire),
            ("runtime", &wire),
            ("Dana", &wire),
            ("dana", &own),
            ("kim", &own),
            ("owner", &own),
            ("dana", &either),
            ("person:kim", &either),
        ] {
            not_found(sidecar.decide(person, &approval.id, verdict).await);
        }
    }
    assert_eq!(sidecar.read(&wire).await, wire);
    // Refusals of who sees it are recorded; who does not leaves no trace on it.
    let refusals: Vec<AuditRecord> =
        sidecar.audit_of(&wire.id).await.into_iter().filter(|record| record.kind == "decide.refused").collect();
    let told: Vec<(&str, &str, &str, &str)> = refusals
        .iter()
        .map(|one| (one.person.as_str(), one.caller.as_str(), one.decision.as_str(), one.reason.as_str()))
        .collect();
    assert_eq!(told, [("olga", "chat", "APPROVE", "NOT_AN_APPROVER"), ("olga", "chat", "DENY", "NOT_AN_APPROVER")]);
    // Either of two clauses alone is half of it.
    assert_eq!(sidecar.decide("kim", &either.id, APPROVE).await.unwrap().state(), ApprovalState::Pending);
    assert_eq!(sidecar.decide("olga", &either.id, APPROVE).await.unwrap().state(), ApprovalState::Approved);
}

#[tokio::test]
async fn a_decision_on_something_else_than_was_shown_is_refused() {
    let sidecar = Sidecar::start().await;
    let (approval, _) = sidecar.ask(email()).await;
    let (other, _) =
        sidecar.ask(Invocation { arguments_json: r#"{"to":"b@example.com"}"#.to_owned(), ..email() }).await;
    let shown = |fingerprint: &str, verdict: Verdict| DecideRequest {
        approval_id: approval.id.clone(),
        principal: "olga".to_owned(),
        verdict: verdict.into(),
        shown_fingerprint: fingerprint.to_owned(),
        ..Default::default()
    };
    for verdict in [APPROVE, DENY] {
        let result = sidecar.approver().decide(shown(&other.fingerprint, verdict)).await;
        let status = refused(result, Code::FailedPrecondition, "SHOWN_FINGERPRINT_DIFFERS");
        assert_eq!(told(&status, "fingerprint"), approval.fingerprint);
    }
    let upper = approval.fingerprint.to_uppercase();
    let long = format!("{}0", approval.fingerprint);
    for malformed in
        ["v1:", "v2:d6c9", &approval.fingerprint[3..], &upper, &long, &format!("{} ", approval.fingerprint)]
    {
        wrong(sidecar.approver().decide(shown(malformed, APPROVE)).await, "shown_fingerprint");
    }
    assert_eq!(sidecar.read(&approval).await, approval);
    let right = sidecar.approver().decide(shown(&approval.fingerprint, APPROVE)).await.unwrap().into_inner();
    assert_eq!(right.approval.unwrap().state(), ApprovalState::Approved);
    // Said again about something else it is refused, too.
    let again = sidecar.approver().decide(shown(&other.fingerprint, APPROVE)).await;
    refused(again, Code::FailedPrecondition, "SHOWN_FINGERPRINT_DIFFERS");
}

#[tokio::test]
async fn one_denial_ends_it_and_a_mind_changes_only_towards_no_while_pending() {
    let sidecar = Sidecar::under(BANK).await;
    let (approval, token) = sidecar.ask(payment("PAIR", "olga", "1")).await;
    sidecar.decide("dana", &approval.id, APPROVE).await.unwrap();
    let denied = sidecar.decide("eve", &approval.id, DENY).await.unwrap();
    assert_eq!(denied.state(), ApprovalState::Denied);
    for (person, verdict, why) in [
        ("finn", APPROVE, "APPROVAL_DENIED"),
        ("finn", DENY, "APPROVAL_DENIED"),
        ("dana", DENY, "APPROVAL_DENIED"),
        ("eve", APPROVE, "APPROVAL_DENIED"),
    ] {
        let status = refused(sidecar.decide(person, &approval.id, verdict).await, Code::FailedPrecondition, why);
        assert_eq!((told(&status, "decided_by").as_str(), told(&status, "verdict").as_str()), ("eve", "DENY"));
    }
    for (person, verdict) in [("eve", DENY), ("dana", APPROVE)] {
        assert_eq!(sidecar.decide(person, &approval.id, verdict).await.unwrap(), denied, "said before: as it stands");
    }
    let consumed = sidecar.consume(&token, payment("PAIR", "olga", "1")).await;
    refused(consumed, Code::FailedPrecondition, "APPROVAL_DENIED");

    let (approval, _) = sidecar.ask(payment("PAIR", "olga", "2")).await;
    sidecar.decide("dana", &approval.id, APPROVE).await.unwrap();
    let changed = sidecar.decide("dana", &approval.id, DENY).await.unwrap();
    assert_eq!(changed.state(), ApprovalState::Denied);
    assert_eq!(changed.decisions.len(), 2);
    refused(sidecar.decide("dana", &approval.id, APPROVE).await, Code::FailedPrecondition, "APPROVAL_DENIED");

    let (approval, _) = sidecar.ask(payment("OWN", "olga", "3")).await;
    sidecar.decide("olga", &approval.id, APPROVE).await.unwrap();
    // Approved, it can be taken back, but not decided once more.
    refused(sidecar.decide("olga", &approval.id, DENY).await, Code::FailedPrecondition, "APPROVAL_APPROVED");
}

#[tokio::test]
async fn whatever_is_over_says_who_ended_it_how_and_when() {
    let sidecar = Sidecar::under(BANK).await;
    for ending in ["approved", "denied", "cancelled", "revoked", "expired", "consumed"] {
        let invocation = payment("EITHER", "olga", ending);
        let (approval, token) = sidecar.ask(invocation.clone()).await;
        let first = if ending == "denied" { DENY } else { APPROVE };
        let decided = sidecar.decide("kim", &approval.id, first).await.unwrap();
        sidecar.advance(std::time::Duration::from_secs(1));
        match ending {
            "cancelled" => drop(sidecar.cancel_as("runtime-2", &approval).await.unwrap()),
            "expired" => sidecar.stand_at(&approval.decide_by, 0),
            "denied" => {}
            _ => drop(sidecar.decide("olga", &approval.id, APPROVE).await.unwrap()),
        }
        match ending {
            "revoked" => drop(sidecar.take_back("kim", &approval.id).await.unwrap()),
            "consumed" => drop(sidecar.consume(&token, invocation.clone()).await.unwrap()),
            _ => {}
        }
        let why = format!("APPROVAL_{}", ending.to_uppercase());
        let status = refused(sidecar.decide("olga", &approval.id, DENY).await, Code::FailedPrecondition, &why);
        let stands = sidecar.read(&approval).await;
        assert_eq!(told(&status, "approval_id"), approval.id);
        assert_eq!(told(&status, "state"), ending);
        let last = stands.decisions.last().unwrap();
        assert_eq!(told(&status, "decided_by"), last.principal, "{ending}");
        assert_eq!(told(&status, "verdict"), if ending == "denied" { "DENY" } else { "APPROVE" });
        let shown = |time: i64| countersign::domain::time::Timestamp::from_micros(time).to_string();
        assert_eq!(told(&status, "decide_time"), shown(micros(&last.decide_time)));
        let ended = match ending {
            "denied" => micros(&decided.decide_time),
            "expired" => micros(&approval.decide_by),
            "consumed" => micros(&stands.consume_time),
            _ => sidecar.store_micros(),
        };
        assert_eq!(told(&status, "state_time"), shown(ended), "{ending}");
        let by = match ending {
            "cancelled" => "runtime-2",
            "revoked" => "kim",
            _ => "",
        };
        assert_eq!(told(&status, "state_by"), by);
        assert!(status.message().contains(ending) && status.message().contains(&last.principal), "{status:?}");
        let violated = tonic_types::StatusExt::get_details_precondition_failure(&status).unwrap().violations;
        assert_eq!((violated[0].r#type.as_str(), violated[0].subject.as_str()), (why.as_str(), "approval"));
        assert_eq!(sidecar.read(&approval).await, stands, "nothing changed");
    }
}

#[tokio::test]
async fn deadlines_count_to_the_microsecond_for_every_command() {
    for (offset, in_time) in [(-1, true), (0, false), (1, false)] {
        for verdict in [APPROVE, DENY] {
            let sidecar = Sidecar::start().await;
            let (approval, _) = sidecar.ask(email()).await;
            sidecar.stand_at(&approval.decide_by, offset);
            let result = sidecar.decide("olga", &approval.id, verdict).await;
            let seen = sidecar.seen_by("olga", &approval.id).await.unwrap().state();
            if in_time {
                assert_eq!(result.unwrap().state(), seen);
                assert_ne!(seen, ApprovalState::Expired);
            } else {
                refused(result, Code::FailedPrecondition, "APPROVAL_EXPIRED");
                assert_eq!(seen, ApprovalState::Expired);
            }
        }
        let sidecar = Sidecar::start().await;
        // Both of one age; the one is cancelled while pending, the others once approved.
        let (pending, _) = sidecar.ask(in_conversation("pending")).await;
        sidecar.stand_at(&pending.decide_by, offset);
        let cancelled = sidecar.cancel_as("runtime", &pending).await;
        let (to_cancel, _) = sidecar.approved(in_conversation("approved")).await;
        let (to_revoke, _) = sidecar.approved(in_conversation("revoked")).await;
        sidecar.stand_at(&to_cancel.use_by, offset);
        let withdrawn = sidecar.cancel_as("runtime", &to_cancel).await;
        let revoked = sidecar.take_back("olga", &to_revoke.id).await;
        for (result, state) in [
            (cancelled, ApprovalState::Cancelled),
            (withdrawn, ApprovalState::Cancelled),
            (revoked, ApprovalState::Revoked),
        ] {
            if in_time {
                assert_eq!(result.unwrap().state(), state);
            } else {
                refused(result, Code::FailedPrecondition, "APPROVAL_EXPIRED");
            }
        }
    }
}

#[tokio::test]
async fn a_group_is_who_is_in_it_when_deciding() {
    let mut sidecar = Sidecar::under(BANK).await;
    let (approval, token) = sidecar.ask(payment("PAIR", "olga", "pair")).await;
    sidecar.decide("dana", &approval.id, APPROVE).await.unwrap();
    not_found(sidecar.decide("kim", &approval.id, APPROVE).await);

    let hired = BANK.replace("finance: [dana, eve, finn]", "finance: [kim, finn], audit: [kim]");
    sidecar.restart_under(&hired).await;
    // Who left sees what they decided, and decides no more; who never did sees nothing.
    not_found(sidecar.decide("eve", &approval.id, APPROVE).await);
    let seen = sidecar.seen_by("dana", &approval.id).await.unwrap();
    assert_eq!(seen.decisions.len(), 1);
    not_an_approver(sidecar.decide("dana", &approval.id, DENY).await);
    assert_eq!(sidecar.decide("dana", &approval.id, APPROVE).await.unwrap(), seen, "what was said stands");
    assert!(sidecar.listed("dana", &[]).await.contains(&approval.id));
    assert!(sidecar.listed("eve", &[]).await.is_empty());
    // Who came may, with the groups of that day, and what dana said then still counts.
    let done = sidecar.decide("kim", &approval.id, APPROVE).await.unwrap();
    assert_eq!(done.state(), ApprovalState::Approved);
    assert_eq!(done.decisions[0].groups, ["finance", "security"]);
    assert_eq!(done.decisions[1].groups, ["audit", "finance"]);

    let dissolved = BANK.replace("finance: [dana, eve, finn]", "finance: [finn, zoe]");
    sidecar.restart_under(&dissolved).await;
    let used = sidecar.consume(&token, payment("PAIR", "olga", "pair")).await.unwrap();
    assert_eq!(used.permit.unwrap().approval_id, approval.id);
}

#[tokio::test]
async fn a_verdict_that_is_none_is_refused() {
    let sidecar = Sidecar::start().await;
    let (approval, _) = sidecar.ask(email()).await;
    for verdict in [0, 3, 4, -1, i32::MAX, i32::MIN] {
        let request = DecideRequest {
            approval_id: approval.id.clone(),
            principal: "olga".to_owned(),
            verdict,
            ..Default::default()
        };
        wrong(sidecar.approver().decide(request).await, "verdict");
    }
    let (_, token) = sidecar.approved(in_conversation("report")).await;
    let execution = sidecar.consume(&token, in_conversation("report")).await.unwrap().permit.unwrap().execution_id;
    for outcome in [0, 4, -1, i32::MAX] {
        let request = ReportOutcomeRequest {
            principal: "olga".to_owned(),
            agent: "assistant".to_owned(),
            execution_id: execution.clone(),
            outcome,
            ..Default::default()
        };
        wrong(sidecar.agent().report_outcome(request).await, "outcome");
    }
    assert_eq!(sidecar.read(&approval).await, approval);
}

#[tokio::test]
async fn a_caller_speaks_only_for_the_persons_of_its_bounds() {
    let sidecar = Sidecar::start().await;
    let (approval, _) = sidecar.ask(deletion()).await;
    let decide = |person: &str| DecideRequest {
        approval_id: approval.id.clone(),
        principal: person.to_owned(),
        verdict: APPROVE.into(),
        ..Default::default()
    };
    let (list, get, revoke) = (
        |person: &str| ListApprovalsRequest { principal: person.to_owned(), ..Default::default() },
        |person: &str| ApproverServiceGetApprovalRequest {
            approval_id: approval.id.clone(),
            principal: person.to_owned(),
        },
        |person: &str| RevokeApprovalRequest {
            approval_id: approval.id.clone(),
            principal: person.to_owned(),
            ..Default::default()
        },
    );
    for (caller, person) in [
        ("dana", "eve"),
        ("dana", "olga"),
        ("dana", "Dana"),
        ("dana", "dana2"),
        ("eve", "dana"),
        ("team", "dana"),
        ("team", "team"),
        ("team", "Team-x"),
        ("team", "x-team-x"),
    ] {
        let mut door = sidecar.approver_as(caller);
        let why = "CALLER_OUT_OF_BOUNDS";
        refused(door.decide(decide(person)).await, Code::PermissionDenied, why);
        refused(door.get_approval(get(person)).await, Code::PermissionDenied, why);
        refused(door.list_approvals(list(person)).await, Code::PermissionDenied, why);
        refused(door.revoke_approval(revoke(person)).await, Code::PermissionDenied, why);
    }
    for caller in ["chat", "team"] {
        let mut door = sidecar.approver_as(caller);
        let why = "PRINCIPAL_REQUIRED";
        let status = refused(door.decide(decide("")).await, Code::InvalidArgument, why);
        assert_eq!(wrong_fields(&status), ["principal"]);
        refused(door.get_approval(get("")).await, Code::InvalidArgument, why);
        refused(door.list_approvals(list("")).await, Code::InvalidArgument, why);
        refused(door.revoke_approval(revoke("")).await, Code::InvalidArgument, why);
    }
    let seen = sidecar.approver_as("team").list_approvals(list("team-x")).await.unwrap().into_inner();
    assert!(seen.approvals.is_empty());
    assert_eq!(sidecar.read(&approval).await, approval);
    // A person's own credential needs no name, and takes its own.
    for person in ["", "dana"] {
        let done = sidecar.approver_as("dana").decide(decide(person)).await.unwrap().into_inner().approval.unwrap();
        assert_eq!(done.decisions.len(), 1);
        assert_eq!(done.decisions[0].principal, "dana");
    }
    let decided: Vec<AuditRecord> =
        sidecar.audit_of(&approval.id).await.into_iter().filter(|one| one.kind == "approval.decided").collect();
    assert_eq!((decided[0].caller.as_str(), decided[0].person.as_str()), ("dana", "dana"));
}

#[tokio::test]
async fn of_many_simultaneous_answers_the_record_keeps_one_story() {
    let sidecar = Sidecar::under(BANK).await;
    let (approval, _) = sidecar.ask(payment("PAIR", "olga", "race")).await;
    let mut calls = tokio::task::JoinSet::new();
    for index in 0..30 {
        let mut door = sidecar.approver();
        let request = DecideRequest {
            approval_id: approval.id.clone(),
            principal: ["dana", "eve", "finn"][index % 3].to_owned(),
            verdict: if index % 3 == 2 { DENY } else { APPROVE }.into(),
            ..Default::default()
        };
        calls.spawn(async move { door.decide(request).await });
    }
    for result in calls.join_all().await {
        if let Err(status) = result {
            assert!(matches!(status.code(), Code::FailedPrecondition | Code::Aborted), "{status:?}");
        }
    }
    let stands = sidecar.read(&approval).await;
    let denied = stands.decisions.iter().any(|one| one.verdict() == DENY);
    assert_eq!(stands.state(), if denied { ApprovalState::Denied } else { ApprovalState::Approved });
    let mut people: Vec<&str> = stands.decisions.iter().map(|one| one.principal.as_str()).collect();
    people.dedup();
    assert_eq!(people.len(), stands.decisions.len());
    let kinds: Vec<String> = sidecar.audit_of(&approval.id).await.into_iter().map(|record| record.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "approval.decided").count(), stands.decisions.len());
    assert_eq!(
        kinds.iter().filter(|kind| ["approval.approved", "approval.denied"].contains(&kind.as_str())).count(),
        1
    );
}
