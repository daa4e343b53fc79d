//! An attempt id that has been seen before: never a second start.

use super::*;
use crate::domain::testing::{approval_id, changed, consumed, definition, fingerprint, id, near};

/// The scene after this attempt has started execution number 1, one microsecond ago.
fn after_start(mut scene: Scene) -> Scene {
    let approval = scene.token.then(|| approval_id(1));
    scene.facts.attempt = Some(Start { approval, ..start(subject()) }.at(None, at(3)).next);
    if scene.token {
        *scene.approval() = consumed(scene.approval(), execution_id(1), at(3));
    }
    scene.now = at(4);
    scene
}

fn both() -> [Scene; 2] {
    [after_start(Scene::with_token()), after_start(Scene::without_token())]
}

fn earlier(scene: &mut Scene) -> &mut Execution {
    scene.facts.attempt.as_mut().unwrap()
}

#[test]
fn a_lost_answer_can_be_asked_for_again() {
    for scene in both() {
        let stored = scene.facts.attempt.clone().unwrap();
        assert_eq!(scene.answer(), WhyNot::Replay(Box::new(stored)), "its times, key and id are the stored ones");
    }
}

#[test]
fn an_attempt_is_replayed_until_the_microsecond_before_report_by() {
    for mut scene in both() {
        let report_by = earlier(&mut scene).report_by;
        assert_eq!(report_by, at(3).plus(REPORT_WITHIN));
        for (micros, want) in [(-1, "replay of 1"), (0, "ATTEMPT_OVER"), (1, "ATTEMPT_OVER")] {
            scene.now = near(report_by, micros);
            assert_eq!(scene.told(), want, "{micros:+} µs");
        }
    }
}

#[test]
fn an_attempt_with_an_outcome_is_over() {
    for mut scene in both() {
        for state in [
            ExecutionState::Succeeded(report(at(3))),
            ExecutionState::Failed(report(at(3))),
            ExecutionState::Unknown(Some(report(at(3)))),
            ExecutionState::Unknown(None),
        ] {
            earlier(&mut scene).state = state;
            assert_eq!(scene.answer(), WhyNot::Refused(ConsumeRefusal::AttemptOver(execution_id(1))));
        }
    }
}

#[test]
fn an_attempt_that_started_something_else_is_refused() {
    let others: [fn(&mut Execution); 6] = [
        |execution| execution.approval = Some(approval_id(2)),
        |execution| execution.subject.conversation = Some(id("another")),
        |execution| execution.subject.conversation = None,
        |execution| execution.subject.tool_definition_digest = Some(definition("2")),
        |execution| execution.subject.tool_definition_digest = None,
        |execution| execution.subject.fingerprint = fingerprint("another"),
    ];
    for (index, change) in others.into_iter().enumerate() {
        for mut scene in both() {
            change(earlier(&mut scene));
            assert_eq!(scene.told(), "ATTEMPT_ID_REUSED", "{index}");
            scene.today = denies();
            assert_eq!(scene.told(), "ATTEMPT_ID_REUSED", "{index}, also where the policy denies");
            earlier(&mut scene).state = ExecutionState::Failed(report(at(3)));
            assert_eq!(scene.told(), "ATTEMPT_ID_REUSED", "{index}, also where it is over");
        }
    }
}

#[test]
fn an_attempt_does_not_cross_between_a_token_and_none() {
    let mut scene = after_start(Scene::with_token());
    earlier(&mut scene).approval = None;
    assert_eq!(scene.told(), "ATTEMPT_ID_REUSED", "started without an approval, now with a token");
    let mut scene = after_start(Scene::without_token());
    earlier(&mut scene).approval = Some(approval_id(1));
    assert_eq!(scene.told(), "ATTEMPT_ID_REUSED", "started with an approval, now without a token");
}

#[test]
fn what_binds_nothing_does_not_hinder_a_replay() {
    for mut scene in both() {
        scene.attempted.connection = Some(id("connection-2"));
        scene.attempted.labels.clear();
        assert_eq!(scene.told(), "replay of 1");
    }
}

#[test]
fn a_policy_that_denies_now_comes_before_the_replay_and_before_its_end() {
    for mut scene in both() {
        scene.today = denies();
        assert_eq!(scene.told(), "POLICY_DENIED DENIED_BY_RULE");
        earlier(&mut scene).state = ExecutionState::Succeeded(report(at(3)));
        assert_eq!(scene.told(), "POLICY_DENIED DENIED_BY_RULE");
        scene.now = at(1_000_000_000);
        assert_eq!(scene.told(), "POLICY_DENIED DENIED_BY_RULE");
    }
}

#[test]
fn a_replay_is_the_same_whatever_the_approval_has_become() {
    let approved = Scene::with_token().facts.approval.unwrap();
    let use_by = approved.state.confirmed().unwrap().use_by;
    for approval in [
        approved.clone(),
        consumed(&approved, execution_id(9), at(3)),
        changed(approved.cancel(&id("agents"), None, at(3))).next,
        changed(approved.revoke(&person("olga", &[]), None, at(3))).next,
        approved.expired(use_by).unwrap().next,
    ] {
        let mut scene = after_start(Scene::with_token());
        scene.facts.approval = Some(approval);
        assert_eq!(scene.told(), "replay of 1");
        earlier(&mut scene).state = ExecutionState::Unknown(None);
        assert_eq!(scene.told(), "ATTEMPT_OVER", "the attempt comes before the state");
    }
}

#[test]
fn a_replay_starts_nothing_and_so_needs_neither_the_retry_nor_a_new_confirmation() {
    for mut scene in both() {
        scene.facts.retried = Some(in_state(retried(), ExecutionState::Succeeded(report(at(2)))));
        scene.today = asks(requirement(&[(&["group:security"], 3)], false));
        assert_eq!(scene.told(), "replay of 1");
    }
}

#[test]
fn another_attempt_at_a_used_approval_is_told_that_it_is_used() {
    let mut scene = after_start(Scene::with_token());
    scene.facts.attempt = None;
    assert_eq!(scene.told(), "APPROVAL_CONSUMED");
}
