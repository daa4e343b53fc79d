//! Without a token: the policy alone lets it through.

use super::*;
use crate::domain::testing::{documented, id};

/// A reason, and what brings it about.
type Obstacle = (&'static str, fn(&mut Scene));

/// What stands against a start, in the order in which it is told.
const ORDER: &[Obstacle] = &[
    ("ATTEMPT_ID_REUSED", |scene| scene.facts.attempt = Some(started())),
    ("POLICY_DENIED DENIED_BY_RULE", |scene| scene.today = denies()),
    ("APPROVAL_REQUIRED CONFIRMATION_BY_RULE", |scene| {
        // Today's answer is one: a policy that denies does not ask as well.
        if scene.today.decision != Decision::Deny {
            scene.today = asks(two_of_finance());
        }
    }),
    ("NOT_FOUND", |scene| scene.facts.retried.as_mut().unwrap().subject.principal = id("olaf")),
    ("RETRY_NOT_NEEDED", |scene| {
        scene.facts.retried.as_mut().unwrap().state = ExecutionState::Succeeded(report(at(2)));
    }),
];

#[test]
fn what_the_policy_allows_is_tried_again() {
    assert_eq!(Scene::without_token().told(), "nothing");
    let mut first = Scene::without_token();
    (first.retry_of, first.facts.retried) = (None, None);
    assert_eq!(first.told(), "nothing", "a call that retries nothing");
}

#[test]
fn the_order_is_the_documented_one() {
    let reasons: Vec<&str> = ORDER.iter().filter_map(|(reason, _)| reason.split(' ').next()).collect();
    let computed = reasons.join("\n");
    let documented = documented(include_str!("../../consume.rs"), "The order without one").join("\n");
    assert_eq!(documented, computed, "the documentation of the module is to read:\n{computed}");
}

#[test]
fn each_obstacle_alone_and_before_each_later_one_is_told() {
    for (index, (reason, put)) in ORDER.iter().enumerate() {
        let mut scene = Scene::without_token();
        put(&mut scene);
        assert_eq!(scene.told(), *reason);
        for (later, put_later) in &ORDER[index + 1..] {
            for steps in [[put, put_later], [put_later, put]] {
                let mut scene = Scene::without_token();
                steps.into_iter().for_each(|step| step(&mut scene));
                assert_eq!(scene.told(), *reason, "with {later}");
            }
        }
    }
}

#[test]
fn every_reason_of_the_policy_is_passed_on() {
    for reason in PolicyReason::ALL {
        let mut scene = Scene::without_token();
        scene.today = policy(Decision::Deny, reason);
        assert_eq!(scene.told(), format!("POLICY_DENIED {reason}"));
        scene.today = policy(Decision::ConfirmationRequired(two_of_finance()), reason);
        assert_eq!(scene.told(), format!("APPROVAL_REQUIRED {reason}"));
    }
}

#[test]
fn what_is_retried_is_of_the_same_principal_and_agent() {
    let mut gone = Scene::without_token();
    gone.facts.retried = None;
    let mut principal = Scene::without_token();
    principal.attempted.principal = id("olaf");
    let mut agent = Scene::without_token();
    agent.attempted.agent = id("another");
    for scene in [gone, principal, agent] {
        assert_eq!(scene.told(), "NOT_FOUND", "one answer for all");
    }
}

#[test]
fn a_retry_may_be_of_another_call_but_not_of_one_that_succeeded() {
    let mut scene = Scene::without_token();
    scene.attempted.action = id("GMAIL_SEND_DRAFT");
    scene.attempted.conversation = None;
    for (state, want) in [
        (ExecutionState::Started, "nothing"),
        (ExecutionState::Failed(report(at(2))), "nothing"),
        (ExecutionState::Unknown(None), "nothing"),
        (ExecutionState::Unknown(Some(report(at(2)))), "nothing"),
        (ExecutionState::Succeeded(report(at(2))), "RETRY_NOT_NEEDED"),
    ] {
        scene.facts.retried = Some(in_state(retried(), state));
        assert_eq!(scene.told(), want);
    }
}
