//! With a token: what stands against it, alone, in pairs, and all at once.

use super::*;
use crate::domain::approval::ApprovalState;
use crate::domain::requirement::{Approver, Clause};
use crate::domain::testing::{arguments, changed, confirmed, consumed, definition, documented, id, near, sealed};
use std::time::Duration;

/// One thing that stands against a consumption.
struct Obstacle {
    reason: &'static str,
    put: fn(&mut Scene),
}

/// Everything, in the gate's order. A stage may be one of several, of which a scene can hold only one.
const ORDER: &[&[Obstacle]] = &[
    &[
        Obstacle { reason: "TOKEN_INVALID", put: |scene| scene.in_bounds = false },
        Obstacle { reason: "TOKEN_INVALID", put: |scene| scene.facts.approval = None },
    ],
    &[Obstacle { reason: "PRINCIPAL_MISMATCH", put: |scene| scene.attempted.principal = id("olaf") }],
    &[Obstacle { reason: "CONNECTOR_MISMATCH", put: |scene| scene.attempted.connector = id("outlook") }],
    &[Obstacle { reason: "ACTION_MISMATCH", put: |scene| scene.attempted.action = id("GMAIL_SEND_DRAFT") }],
    &[
        Obstacle { reason: "CONVERSATION_MISMATCH", put: |scene| scene.attempted.conversation = Some(id("another")) },
        Obstacle { reason: "CONVERSATION_MISMATCH", put: |scene| scene.attempted.conversation = None },
    ],
    &[Obstacle { reason: "AGENT_MISMATCH", put: |scene| scene.attempted.agent = id("another") }],
    &[
        Obstacle { reason: "ACCOUNT_MISMATCH", put: |scene| scene.attempted.account = Some(id("work-mailbox-b")) },
        Obstacle { reason: "ACCOUNT_MISMATCH", put: |scene| scene.attempted.account = None },
    ],
    &[Obstacle { reason: "OBJECTIVE_CHANGED", put: |scene| scene.attempted.objective = None }],
    &[Obstacle {
        reason: "ARGUMENTS_CHANGED",
        put: |scene| scene.attempted.arguments_digest = arguments("{\"to\":\"eve\"}"),
    }],
    &[
        Obstacle {
            reason: "TOOL_DEFINITION_CHANGED",
            put: |scene| scene.attempted.tool_definition_digest = Some(definition("2")),
        },
        Obstacle { reason: "TOOL_DEFINITION_CHANGED", put: |scene| scene.attempted.tool_definition_digest = None },
    ],
    &[Obstacle {
        reason: "ATTEMPT_ID_REUSED",
        put: |scene| scene.facts.attempt = Some(Execution { approval: None, ..started() }),
    }],
    &[
        Obstacle { reason: "APPROVAL_PENDING", put: |scene| in_approval_state(scene, StateName::Pending) },
        Obstacle { reason: "APPROVAL_DENIED", put: |scene| in_approval_state(scene, StateName::Denied) },
        Obstacle { reason: "APPROVAL_CANCELLED", put: |scene| in_approval_state(scene, StateName::Cancelled) },
        Obstacle { reason: "APPROVAL_REVOKED", put: |scene| in_approval_state(scene, StateName::Revoked) },
        Obstacle { reason: "APPROVAL_EXPIRED", put: |scene| in_approval_state(scene, StateName::Expired) },
        Obstacle { reason: "APPROVAL_EXPIRED", put: overdue },
        Obstacle { reason: "APPROVAL_CONSUMED", put: |scene| in_approval_state(scene, StateName::Consumed) },
    ],
    &[Obstacle {
        reason: "RETRY_NOT_NEEDED",
        put: |scene| {
            let retried = scene.facts.retried.take().unwrap();
            scene.facts.retried = Some(in_state(retried, ExecutionState::Succeeded(report(at(2)))));
        },
    }],
    &[Obstacle { reason: "POLICY_DENIED DENIED_BY_RULE", put: |scene| scene.today = denies() }],
    &[Obstacle {
        reason: "CONFIRMATION_RAISED",
        put: |scene| {
            // Today's answer is one: a policy that denies does not ask as well.
            if scene.today.decision != Decision::Deny {
                scene.today = asks(requirement(&[(&["group:finance"], 3)], false));
            }
        },
    }],
];

fn in_approval_state(scene: &mut Scene, state: StateName) {
    let Some(approved) = scene.facts.approval.clone() else { return };
    let now = scene.now;
    let pending =
        Approval { state: ApprovalState::Pending, decisions: approved.decisions[..1].to_vec(), ..approved.clone() };
    *scene.approval() = match state {
        StateName::Approved => approved,
        StateName::Pending => pending,
        StateName::Denied => decided(&pending, &person("eve", &["finance"]), Verdict::Deny, now),
        StateName::Cancelled => changed(approved.cancel(&id("agents"), None, now)).next,
        StateName::Revoked => changed(approved.revoke(&person("olga", &[]), None, now)).next,
        StateName::Expired => approved.expired(confirmed(&approved).use_by).unwrap().next,
        StateName::Consumed => consumed(&approved, execution_id(9), now),
    };
}

fn overdue(scene: &mut Scene) {
    if let Some(approval) = &scene.facts.approval {
        scene.now = confirmed(approval).use_by;
    }
}

/// The answer to a scene with these obstacles. The fingerprint is that of what is attempted, as it is in a real call.
fn told_with(obstacles: &[&Obstacle]) -> String {
    let mut scene = Scene::with_token();
    for obstacle in obstacles {
        (obstacle.put)(&mut scene);
    }
    scene.attempted = sealed(scene.attempted);
    scene.told()
}

#[test]
fn where_nothing_stands_against_it_it_is_tried_again() {
    assert_eq!(told_with(&[]), "nothing");
}

#[test]
fn the_order_is_the_documented_one() {
    let stages: Vec<String> = ORDER
        .iter()
        .map(|stage| {
            let mut words: Vec<&str> = stage.iter().filter_map(|obstacle| obstacle.reason.split(' ').next()).collect();
            words.dedup();
            words.join(" | ")
        })
        .collect();
    let computed = stages.join("\n");
    let documented = documented(include_str!("../../consume.rs"), "The order with a token").join("\n");
    assert_eq!(documented, computed, "the documentation of the module is to read:\n{computed}");
}

#[test]
fn each_obstacle_alone_is_told_by_its_own_reason() {
    for obstacle in ORDER.iter().copied().flatten() {
        assert_eq!(told_with(&[obstacle]), obstacle.reason);
    }
}

#[test]
fn of_two_obstacles_the_first_in_order_is_told() {
    for (index, stage) in ORDER.iter().enumerate() {
        for first in *stage {
            for second in ORDER[index + 1..].iter().copied().flatten() {
                for both in [[first, second], [second, first]] {
                    assert_eq!(told_with(&both), first.reason, "with {}", second.reason);
                }
            }
        }
    }
}

#[test]
fn of_all_obstacles_from_one_on_that_one_is_told() {
    for (index, stage) in ORDER.iter().enumerate() {
        for first in *stage {
            let mut all = vec![first];
            all.extend(ORDER[index + 1..].iter().map(|later| &later[0]));
            assert_eq!(told_with(&all), first.reason);
        }
    }
}

#[test]
fn bounds_are_asked_about_the_approval_not_about_what_the_caller_says() {
    let mut scene = Scene::with_token();
    scene.attempted.principal = id("olaf");
    let attempted = Attempted {
        approval: scene.facts.approval.as_ref().map(|approval| approval.id),
        subject: &scene.attempted,
        retry_of: None,
        today: &scene.today,
    };
    let answer = why_not(&scene.facts, &attempted, |subject| subject.principal == id("olaf"), scene.now);
    assert_eq!(answer, WhyNot::Refused(ConsumeRefusal::TokenInvalid));
}

#[test]
fn an_approval_is_used_until_the_microsecond_before_use_by() {
    let mut scene = Scene::with_token();
    let use_by = confirmed(scene.approval()).use_by;
    for (micros, want) in [(-1, "nothing"), (0, "APPROVAL_EXPIRED"), (1, "APPROVAL_EXPIRED")] {
        scene.now = near(use_by, micros);
        assert_eq!(scene.told(), want, "{micros:+} µs");
    }
}

#[test]
fn a_refusal_for_the_state_shows_the_record_as_it_stands() {
    let mut scene = Scene::with_token();
    overdue(&mut scene);
    let WhyNot::Refused(ConsumeRefusal::State(shown, StateName::Expired)) = scene.answer() else {
        panic!("{:?}", scene.answer());
    };
    assert_eq!(*shown, scene.approval().clone().as_of(scene.now));
}

#[test]
fn every_reason_of_today_s_policy_is_passed_on() {
    for reason in PolicyReason::ALL {
        let mut scene = Scene::with_token();
        scene.today = policy(Decision::Deny, reason);
        assert_eq!(scene.told(), format!("POLICY_DENIED {reason}"));
    }
}

#[test]
fn a_retry_is_needed_unless_what_it_retries_has_succeeded() {
    for (state, want) in [
        (ExecutionState::Started, "nothing"),
        (ExecutionState::Failed(report(at(2))), "nothing"),
        (ExecutionState::Unknown(None), "nothing"),
        (ExecutionState::Unknown(Some(report(at(2)))), "nothing"),
        (ExecutionState::Succeeded(report(at(2))), "RETRY_NOT_NEEDED"),
    ] {
        let mut scene = Scene::with_token();
        scene.facts.retried = Some(in_state(retried(), state));
        assert_eq!(scene.told(), want);
    }
}

#[test]
fn today_s_requirement_is_met_by_the_recorded_decisions_or_asks_again() {
    let clauses = |clauses: &[(&[&str], u32)], excluded| asks(requirement(clauses, excluded));
    let met = "meets today, version 3";
    for (claim, today, want) in [
        ("nothing is asked any more", policy(Decision::Allow, PolicyReason::Allowed), "nothing"),
        ("the same is asked", asks(two_of_finance()), "nothing"),
        ("fewer are asked", clauses(&[(&["group:finance"], 1)], false), met),
        ("others too may answer", clauses(&[(&["group:finance", "group:security"], 2)], false), met),
        ("the requester is excluded and was none of them", clauses(&[(&["group:finance"], 2)], true), met),
        ("more are asked", clauses(&[(&["group:finance"], 3)], false), "CONFIRMATION_RAISED"),
        ("another group is asked", clauses(&[(&["group:security"], 1)], false), "CONFIRMATION_RAISED"),
        (
            "one more clause is asked",
            clauses(&[(&["group:finance"], 2), (&["owner"], 1)], false),
            "CONFIRMATION_RAISED",
        ),
        ("a group of another name is asked", clauses(&[(&["group:Finance"], 2)], false), "CONFIRMATION_RAISED"),
    ] {
        let mut scene = Scene::with_token();
        scene.today = today;
        assert_eq!(scene.told(), want, "{claim}");
    }
}

#[test]
fn an_excluded_requester_s_own_approval_is_not_enough_any_more() {
    let mut scene = Scene::with_token();
    let approval = asked(requirement(&[(&["owner"], 1)], false));
    *scene.approval() = decided(&approval, &person("olga", &["finance"]), Verdict::Approve, at(1));
    scene.today = asks(requirement(&[(&["owner", "group:finance"], 1)], true));
    assert_eq!(scene.told(), "CONFIRMATION_RAISED");
}

#[test]
fn neither_times_nor_the_order_of_clauses_are_a_higher_requirement() {
    let both = |reversed: bool| {
        let kim = Clause::new([Approver::Group(id("finance")), Approver::Person(id("kim"))], 1).unwrap();
        let mut clauses = vec![Clause::owner(), kim];
        if reversed {
            clauses.reverse();
        }
        let time = Duration::from_secs(if reversed { 1 } else { 2 });
        Requirement::new(clauses, false, time, time).unwrap()
    };
    let mut scene = Scene::with_token();
    let approval = decided(&asked(both(false)), &person("olga", &[]), Verdict::Approve, at(1));
    *scene.approval() = decided(&approval, &person("kim", &[]), Verdict::Approve, at(2));
    scene.today = asks(both(true));
    assert_eq!(scene.told(), "nothing");
}
