//! Two clocks, to the microsecond: `now >= deadline` is too late.

use crate::domain::approval::{Approval, ApprovalState, CommandRefusal, Commanded, StateName, Verdict};
use crate::domain::requirement::{Clause, Requirement};
use crate::domain::testing::{
    DECIDE_WITHIN, USE_WITHIN, answer, asked, at, changed, confirmed, decided, id, near, person, question, requirement,
};
use crate::domain::time::Timestamp;
use std::time::Duration;

fn pending() -> Approval {
    asked(requirement(&[(&["group:finance"], 1)], false))
}

fn approved() -> Approval {
    decided(&pending(), &person("dana", &["finance"]), Verdict::Approve, at(7))
}

/// Asserts that `command` still works one microsecond before the deadline, and neither at it nor after it; and that what
/// it changes must reach the table before the deadline.
#[track_caller]
fn ends_at(deadline: Timestamp, command: impl Fn(Timestamp) -> Result<Commanded, CommandRefusal>) {
    let change = changed(command(near(deadline, -1)));
    assert_eq!(change.valid_before, Some(deadline));
    for late in [0, 1] {
        assert_eq!(command(near(deadline, late)), Err(CommandRefusal::State(StateName::Expired)), "{late:+} µs");
    }
}

#[test]
fn people_decide_until_the_microsecond_before_decide_by() {
    let approval = pending();
    assert_eq!(approval.decide_by, at(0).plus(DECIDE_WITHIN));
    for verdict in [Verdict::Approve, Verdict::Deny] {
        ends_at(approval.decide_by, |now| approval.decide(&person("dana", &["finance"]), &answer(verdict), now));
    }
}

#[test]
fn the_agent_s_time_starts_with_the_completing_decision() {
    let two = asked(requirement(&[(&["group:finance"], 2)], false));
    let one = decided(&two, &person("dana", &["finance"]), Verdict::Approve, at(5));
    let last = near(one.decide_by, -1);
    let both = decided(&one, &person("eve", &["finance"]), Verdict::Approve, last);
    assert_eq!(confirmed(&both).at, last);
    assert_eq!(confirmed(&both).use_by, last.plus(USE_WITHIN));
    assert_eq!(both.state_at(both.decide_by), StateName::Approved, "the people's clock is over, the agent's is not");
}

#[test]
fn a_question_is_cancelled_until_its_deadline() {
    let approval = pending();
    ends_at(approval.decide_by, |now| approval.cancel(&id("agents"), None, now));
    let approval = approved();
    ends_at(confirmed(&approval).use_by, |now| approval.cancel(&id("agents"), None, now));
}

#[test]
fn an_approval_is_revoked_until_use_by() {
    let approval = approved();
    for who in [person("dana", &["finance"]), person("olga", &[])] {
        ends_at(confirmed(&approval).use_by, |now| approval.revoke(&who, None, now));
    }
}

#[test]
fn what_is_overdue_reads_as_expired_from_its_deadline_on() {
    for (approval, deadline, used) in [
        (pending(), pending().decide_by, None),
        (approved(), confirmed(&approved()).use_by, Some(confirmed(&approved()))),
    ] {
        let before = near(deadline, -1);
        assert_eq!(approval.state_at(before), approval.state.name());
        assert_eq!(approval.expired(before), None);
        assert_eq!(approval.clone().as_of(before), approval);
        for late in [0, 1, i64::MAX - deadline.micros()] {
            let now = near(deadline, late);
            assert_eq!(approval.state_at(now), StateName::Expired);
            let shown = approval.clone().as_of(now);
            assert_eq!(shown.state, ApprovalState::Expired { at: deadline, confirmed: used }, "{late:+} µs");
            assert_eq!(shown.version, approval.version + 1);
            let change = approval.expired(now).unwrap();
            assert_eq!(change.next, shown, "what is read is what is written down");
            assert_eq!(change.valid_before, None, "an expiry is never too late");
        }
    }
}

#[test]
fn a_deadline_beyond_the_end_of_time_is_its_last_instant() {
    let requirement = Requirement::new([Clause::owner()], false, Duration::MAX, Duration::MAX).unwrap();
    let approval = asked(requirement);
    assert_eq!(approval.decide_by, Timestamp::from_micros(i64::MAX));
    let approved = decided(&approval, &person("olga", &[]), Verdict::Approve, at(1));
    assert_eq!(confirmed(&approved).use_by, Timestamp::from_micros(i64::MAX));
}

#[test]
fn a_shorter_time_to_decide_is_the_question_s_own() {
    let short = requirement(&[(&["owner"], 1)], false).deciding_within(Duration::from_micros(3));
    let approval = Approval::ask(crate::domain::testing::approval_id(2), question(short.clone()), None, at(0)).next;
    assert_eq!(approval.decide_by, at(3));
    assert_eq!(short.clone().deciding_within(Duration::from_secs(900)), short, "it only ever shortens");
}
