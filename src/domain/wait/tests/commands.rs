//! What each command leaves behind: facts, versions, times, audit, and what becomes of the approvals.

use crate::domain::approval::{Approval, ApprovalState, Question, StateName, Verdict};
use crate::domain::audit::{AuditEvent, AuditKind};
use crate::domain::limits;
use crate::domain::testing::{
    DECIDE_WITHIN, SENTINEL, USE_WITHIN, approval_id, at, attempt_id, changed, confirmed, consumed, decided,
    execution_id, id, near, opening, person, question, requirement, resuming, subject, wait_id, waiting,
};
use crate::domain::time::Timestamp;
use crate::domain::wait::{
    Cause, Ending, Opened, Opening, Resumed, Resuming, Resumption, Wait, WaitChange, WaitRefusal, WaitState, Withdrawal,
};
use std::time::Duration;

#[track_caller]
fn reopened(wait: &Wait, opening: &Opening, now: Timestamp) -> WaitChange {
    match opening.against(Some(wait), now) {
        Ok(Opened::Changed(change)) => *change,
        other => panic!("it changed nothing: {other:?}"),
    }
}

#[track_caller]
fn resumed(wait: &Wait, now: Timestamp) -> Wait {
    match wait.resume(&Resuming { version: wait.version, ..resuming() }, 0, now) {
        Ok(Resumed::Changed(change)) => change.next,
        other => panic!("not resumed: {other:?}"),
    }
}

fn kinds(events: &[AuditEvent]) -> Vec<AuditKind> {
    events.iter().map(|event| event.kind).collect()
}

/// A question asked in [`waiting`], over by then.
fn in_wait(ends_by: Timestamp) -> Approval {
    let question = Question { wait: Some(wait_id(1)), ..question(requirement(&[(&["owner"], 1)], false)) };
    Approval::ask(approval_id(1), question, Some(ends_by), at(0)).next
}

#[test]
fn a_new_wait_has_what_was_said_and_a_day_where_nothing_was() {
    let Ok(Opened::Made { instead_of: None, wait }) = opening().against(None, at(0)) else { panic!() };
    let made = &wait.next;
    assert_eq!((made.id, made.version, made.state.clone()), (wait_id(1), 1, WaitState::Open));
    assert_eq!((made.create_time, made.update_time, made.expire_time), (at(0), at(0), at(0).plus(DECIDE_WITHIN)));
    let said = opening();
    assert_eq!((&made.opened_by, &made.objective, &made.summary), (&said.caller, &said.objective, &said.summary));
    let event = AuditEvent {
        conversation: Some(id("conversation-1")),
        wait: Some(wait_id(1)),
        ..AuditEvent::of(AuditKind::WaitOpened, &id("olga"), &id("assistant"), Some(&id("agents")), "OPEN")
    };
    assert_eq!(wait.events, [event]);
    let silent = Opening { expire_after: None, ..opening() };
    let Ok(Opened::Made { wait, .. }) = silent.against(None, at(0)) else { panic!() };
    assert_eq!(wait.next.expire_time, at(0).plus(limits::WAIT_EXPIRES_AFTER));
}

#[test]
fn opening_again_keeps_who_and_when_and_grows_only_by_what_it_says() {
    let first = waiting();
    let another = Opening { caller: id("others"), conversation: None, expire_after: None, ..opening() };
    assert_eq!(another.against(Some(&first), at(5)), Ok(Opened::AsItWas));
    let said = Opening { summary: "now this".to_owned(), ..another.clone() };
    let WaitChange { change, withdrawal } = reopened(&first, &said, at(5));
    assert_eq!(withdrawal, None);
    assert_eq!(kinds(&change.events), [AuditKind::WaitUpdated]);
    let expected = Wait { summary: "now this".to_owned(), version: 2, update_time: at(5), ..first.clone() };
    assert_eq!(change.next, expected);
    assert_eq!(change.valid_before, Some(first.expire_time));

    let longer = Opening { expire_after: Some(DECIDE_WITHIN), ..another.clone() };
    let change = reopened(&first, &longer, at(5)).change;
    assert_eq!((change.next.version, change.next.expire_time), (1, near(first.expire_time, 5)), "time is no news");
    assert_eq!(kinds(&change.events), [AuditKind::WaitUpdated]);
    assert_eq!(longer.against(Some(&first), at(0)), Ok(Opened::AsItWas));
    let shorter = Opening { expire_after: Some(Duration::from_secs(1)), ..another.clone() };
    assert_eq!(shorter.against(Some(&first), at(5)), Ok(Opened::AsItWas), "its approvals count on its time");

    let gone_on = resumed(&first, at(6));
    let change = reopened(&gone_on, &another, at(7)).change;
    assert_eq!((change.next.state.clone(), change.next.version), (WaitState::Open, 3));
    assert_eq!(kinds(&change.events), [AuditKind::WaitReopened]);
    let change = reopened(&gone_on, &said, at(7)).change;
    assert_eq!((change.next.summary.as_str(), change.next.version), ("now this", 3), "one change, one version");
    assert_eq!(kinds(&change.events), [AuditKind::WaitReopened, AuditKind::WaitUpdated]);
}

#[test]
fn a_higher_revision_withdraws_and_a_lower_one_is_stale_whatever_else_is_said() {
    let mut higher = Opening { expire_after: None, ..opening() };
    higher.objective.revision = 2;
    for wait in [waiting(), resumed(&waiting(), at(1))] {
        let WaitChange { change, withdrawal } = reopened(&wait, &higher, at(2));
        assert_eq!((change.next.objective.revision, change.next.version), (2, wait.version + 1));
        let withdrawal = withdrawal.unwrap();
        assert_eq!((withdrawal.cause, withdrawal.caller), (Cause::Superseded, Some(id("agents"))));
        let mut lower = Opening { replace: true, summary: "other".to_owned(), ..opening() };
        lower.objective.revision = 1;
        assert_eq!(lower.against(Some(&change.next), at(3)), Err(WaitRefusal::ObjectiveStale));
    }
}

#[test]
fn replacing_ends_the_first_and_makes_another() {
    let mut other = Opening { id: wait_id(2), caller: id("others"), replace: true, ..opening() };
    other.objective.id = id("objective-2");
    other.objective.revision = 0;
    let Ok(Opened::Made { instead_of: Some(first), wait }) = other.against(Some(&waiting()), at(3)) else { panic!() };
    let ended = &first.change.next;
    assert_eq!(ended.state, WaitState::Closed { at: at(3), ending: Ending::Replaced { by: id("others") } });
    assert_eq!((ended.version, ended.update_time), (2, at(3)));
    assert_eq!(kinds(&first.change.events), [AuditKind::WaitReplaced]);
    assert_eq!(first.withdrawal.as_ref().unwrap().cause, Cause::Replaced);
    assert_eq!((wait.next.id, wait.next.objective.clone()), (wait_id(2), other.objective.clone()));
    other.replace = false;
    assert_eq!(other.against(Some(&waiting()), at(3)), Err(WaitRefusal::ObjectiveConflict));
}

#[test]
fn one_attempt_resumes_and_is_told_so_again() {
    let wait = waiting();
    let Ok(Resumed::Changed(change)) = wait.resume(&resuming(), 0, at(4)) else { panic!() };
    let resumption = Resumption { at: at(4), by: id("agents"), attempt: attempt_id(1) };
    assert_eq!(change.next.state, WaitState::Resumed(resumption));
    assert_eq!((change.next.version, change.next.update_time), (2, at(4)));
    assert_eq!(kinds(&change.events), [AuditKind::WaitResumed]);
    assert_eq!(change.valid_before, Some(wait.expire_time));
    let gone_on = change.next;
    assert_eq!(gone_on.resume(&resuming(), 3, at(5)), Ok(Resumed::Replayed), "whatever has changed since");
    let by_another = Resuming { caller: id("others"), ..resuming() };
    assert_eq!(gone_on.resume(&by_another, 0, at(5)), Err(WaitRefusal::AlreadyResumed));
    // Once it is open again the attempt of before stands for nothing: what it saw has changed.
    let open = reopened(&gone_on, &Opening { expire_after: None, ..opening() }, at(6)).change.next;
    assert_eq!(open.resume(&resuming(), 0, at(7)), Err(WaitRefusal::VersionChanged));
}

#[test]
fn refusals_come_in_their_order() {
    let mut next = Resuming {
        principal: id("pia"),
        agent: id("other"),
        transcript: id("transcript-2"),
        version: 9,
        attempt: attempt_id(2),
        ..resuming()
    };
    let wait = waiting();
    let ended = wait.close(&id("agents"), None, at(1)).unwrap().unwrap().change.next;
    let over = |refusal| matches!(refusal, Err(WaitRefusal::Over(_)));
    assert!(over(ended.resume(&next, 1, at(2))) && over(wait.resume(&next, 1, wait.expire_time)));
    let expect = |next: &Resuming, refusal| assert_eq!(wait.resume(next, 7, at(2)), Err(refusal));
    expect(&next, WaitRefusal::PrincipalMismatch);
    next.principal = id("olga");
    expect(&next, WaitRefusal::AgentMismatch);
    next.agent = id("assistant");
    expect(&next, WaitRefusal::TranscriptChanged);
    next.transcript = id("transcript-1");
    assert_eq!(resumed(&wait, at(1)).resume(&next, 7, at(2)), Err(WaitRefusal::AlreadyResumed));
    expect(&next, WaitRefusal::VersionChanged);
    next.version = 1;
    expect(&next, WaitRefusal::Pending(7));
    assert!(wait.resume(&next, 0, at(2)).is_ok());
}

#[test]
fn closing_says_why_and_is_once() {
    let wait = waiting();
    let closed = wait.close(&id("closer"), Some("the user left"), at(4)).unwrap().unwrap();
    let ending = Ending::Closed { by: id("closer"), reason: Some("the user left".to_owned()) };
    assert_eq!(closed.change.next.state, WaitState::Closed { at: at(4), ending });
    assert_eq!(closed.change.valid_before, Some(wait.expire_time));
    let [event] = &closed.change.events[..] else { panic!() };
    assert_eq!((event.kind, event.caller.clone()), (AuditKind::WaitClosed, Some(id("closer"))));
    assert_eq!((event.note.as_deref(), event.reason.as_deref()), (Some("the user left"), None));
    assert_eq!(closed.change.next.close(&id("closer"), None, at(5)), Ok(None));
    // Its time comes and goes: what is over stays as it ended.
    let late = near(wait.expire_time, 1);
    assert_eq!(closed.change.next.expired(late), None);
    assert_eq!(closed.change.next.close(&id("closer"), None, late), Ok(None));
}

#[test]
fn a_wait_is_over_at_its_time_and_not_before() {
    let wait = waiting();
    for (offset, over) in [(-1, false), (0, true), (1, true)] {
        let now = near(wait.expire_time, offset);
        assert_eq!(wait.expired(now).is_some(), over, "{offset}");
        assert_eq!(wait.resume(&resuming(), 0, now).is_err(), over);
        assert_eq!(wait.close(&id("agents"), None, now).is_err(), over);
        assert_eq!(wait.accepts(&subject(), now).is_err(), over);
    }
    let ended = wait.expired(near(wait.expire_time, 9)).unwrap().change;
    assert_eq!(ended.next.state, WaitState::Closed { at: wait.expire_time, ending: Ending::Expired });
    assert_eq!((ended.next.update_time, ended.next.version), (wait.expire_time, 2), "whenever it is written down");
    assert_eq!((ended.events[0].caller.clone(), ended.valid_before), (None, None));
}

#[test]
fn no_deadline_of_an_approval_is_later_than_its_wait() {
    assert_eq!(in_wait(at(1)).decide_by, at(1));
    assert_eq!(in_wait(near(at(0).plus(DECIDE_WITHIN), 1)).decide_by, at(0).plus(DECIDE_WITHIN));
    let ends_by = near(at(0).plus(USE_WITHIN), 7);
    let approval = in_wait(ends_by);
    assert_eq!(approval.decide_by, ends_by);
    let last = near(ends_by, -1);
    for (decided_at, use_by) in [(at(6), near(ends_by, -1)), (at(7), ends_by), (at(8), ends_by), (last, ends_by)] {
        let approved = decided(&approval, &person("olga", &[]), Verdict::Approve, decided_at);
        assert_eq!(confirmed(&approved).use_by, use_by);
    }
    let alone = Approval::ask(approval_id(1), question(requirement(&[(&["owner"], 1)], false)), None, at(0)).next;
    assert_eq!((alone.decide_by, alone.ends_by), (at(0).plus(DECIDE_WITHIN), None));
}

#[test]
fn what_is_open_is_withdrawn_by_name_and_what_is_final_stays() {
    let olga = person("olga", &[]);
    let pending = in_wait(at(0).plus(DECIDE_WITHIN));
    let approved = decided(&pending, &olga, Verdict::Approve, at(1));
    let wait = waiting();
    let closed = wait.close(&id("closer"), Some("no longer wanted"), at(2)).unwrap().unwrap().withdrawal.unwrap();
    let because = |cause: Cause| Withdrawal { cause, said: None, ..closed.clone() };
    let id_of_it = wait.id;
    for (withdrawal, sentence, code) in [
        (closed.clone(), format!("wait {id_of_it} was closed: no longer wanted"), "WAIT_CLOSED"),
        (because(Cause::Closed), format!("wait {id_of_it} was closed"), "WAIT_CLOSED"),
        (
            because(Cause::Replaced),
            format!("wait {id_of_it} was replaced by one for another objective"),
            "WAIT_REPLACED",
        ),
        (because(Cause::Expired), format!("wait {id_of_it} has expired"), "WAIT_EXPIRED"),
        (
            because(Cause::Superseded),
            format!("wait {id_of_it} is for a later revision of its objective"),
            "OBJECTIVE_SUPERSEDED",
        ),
    ] {
        for approval in [&pending, &approved] {
            let change = withdrawal.of(approval, at(2)).unwrap();
            let state = ApprovalState::Cancelled {
                at: at(2),
                by: id("closer"),
                reason: Some(sentence.clone()),
                confirmed: approval.state.confirmed(),
            };
            assert_eq!((&change.next.state, change.next.version), (&state, approval.version + 1));
            let [event] = &change.events[..] else { panic!() };
            assert_eq!((event.kind, event.wait), (AuditKind::ApprovalCancelled, Some(id_of_it)));
            assert_eq!((event.reason.as_deref(), event.note.as_deref()), (Some(code), withdrawal.said.as_deref()));
        }
    }
    let others = [
        decided(&pending, &olga, Verdict::Deny, at(1)),
        changed(pending.cancel(&id("agents"), None, at(1))).next,
        changed(approved.revoke(&olga, None, at(1))).next,
        consumed(&approved, execution_id(1), at(1)),
        pending.expired(pending.decide_by).unwrap().next,
    ];
    for approval in others {
        assert_eq!(closed.of(&approval, near(pending.decide_by, 1)), None, "{:?}", approval.state);
    }
}

#[test]
fn what_an_expired_wait_leaves_is_overdue_and_reads_the_same_before_and_after() {
    let wait = waiting();
    let pending = in_wait(wait.expire_time);
    let approved = decided(&pending, &person("olga", &[]), Verdict::Approve, near(wait.expire_time, -1));
    let withdrawal = wait.expired(wait.expire_time).unwrap().withdrawal.unwrap();
    for approval in [pending, approved] {
        let change = withdrawal.of(&approval, wait.expire_time).unwrap();
        assert_eq!(change.next.state.name(), StateName::Expired);
        assert_eq!(change.next, approval.as_of(wait.expire_time));
    }
    // Were one open for longer all the same, it would end in the name of who opened the wait.
    let longer = near(wait.expire_time, 1);
    let longer = Approval { decide_by: longer, ..in_wait(longer) };
    let change = withdrawal.of(&longer, wait.expire_time).unwrap();
    assert_eq!(change.next.state.closed_by(), Some(&id("agents")));
    assert_eq!(change.events[0].caller, None);
}

#[test]
fn what_is_printed_has_none_of_the_agents_words() {
    let wait = waiting();
    let closed = wait.close(&id("closer"), None, at(1)).unwrap().unwrap();
    let printed = format!("{wait:?} {:?} {closed:?}", opening());
    assert!(wait.summary.contains(SENTINEL) && !printed.contains(SENTINEL), "{printed}");
}
