//! Reading and saving approvals.

use super::*;
use crate::domain::preview::{Omission, OmissionKind, Preview};

pub(in super::super) async fn a_decision_is_read_back_as_it_was_saved(fixture: Fixture) {
    let mut two = question();
    two.requirement = requirement(&[&["group:finance"], &["person:kim", "owner"]]);
    let asked = fixture.ask(two).await;
    let once = fixture.decide(&asked, "dana:finance,security", Verdict::Approve).await;
    assert_eq!(fixture.approval(asked.id).await, once);
    assert_eq!(once.state, ApprovalState::Pending);
    fixture.clock.advance(Duration::from_secs(5));
    let twice = fixture.decide(&once, "kim", Verdict::Approve).await;
    assert_eq!(fixture.approval(asked.id).await, twice);
    assert!(matches!(twice.state, ApprovalState::Approved(_)));
    assert_eq!(twice.decisions.len(), 2);
}

pub(in super::super) async fn every_state_is_read_back_as_it_was_saved(fixture: Fixture) {
    let mut saved = vec![fixture.ask(question_about("pending")).await];
    saved.push(fixture.approved(question_about("approved")).await);
    let asked = fixture.ask(question_about("denied")).await;
    saved.push(fixture.decide(&asked, "olga", Verdict::Deny).await);
    for (call, reason) in [("cancelled", None), ("cancelled why", Some("no longer needed"))] {
        let asked = fixture.ask(question_about(call)).await;
        let cancelled = asked.cancel(&id("runner"), reason, fixture.now()).unwrap();
        saved.push(fixture.save(cancelled, asked.version).await);
        let approved = fixture.approved(question_about(&format!("{call} after"))).await;
        let cancelled = approved.cancel(&id("runner"), reason, fixture.now()).unwrap();
        saved.push(fixture.save(cancelled, approved.version).await);
        let approved = fixture.approved(question_about(&format!("{call} by a person"))).await;
        let revoked = approved.revoke(&person("olga"), reason, fixture.now()).unwrap();
        saved.push(fixture.save(revoked, approved.version).await);
    }
    let (consumed, execution) = fixture.consumed(question_about("consumed")).await;
    let confirmed = consumed.state.confirmed().unwrap();
    assert_eq!(consumed.state, ApprovalState::Consumed { at: fixture.now(), execution: execution.id, confirmed });
    assert_eq!(consumed.version, 3);
    let unanswered = fixture.ask(question_about("expired")).await;
    let unused = fixture.approved(question_about("expired unused")).await;
    for approval in saved {
        assert_eq!(fixture.approval(approval.id).await, approval);
    }
    fixture.clock.advance(DECIDE_WITHIN);
    for approval in [unanswered, unused] {
        let change = approval.expired(fixture.now()).unwrap();
        let expired = fixture.save_change(change, approval.version).await;
        assert_eq!(fixture.approval(approval.id).await, expired);
    }
}

pub(in super::super) async fn a_stale_version_saves_nothing(fixture: Fixture) {
    let asked = fixture.ask(question()).await;
    let approve = Answer { verdict: Verdict::Approve, reason: None, shown_fingerprint: None };
    let Commanded::Changed(late) = asked.decide(&person("olga"), &approve, fixture.now()).unwrap() else { panic!() };
    fixture.decide(&asked, "olga", Verdict::Deny).await;
    let before = fixture.dump().await;
    for expected in [1, 3, 0, u64::MAX] {
        let saved = fixture.store.save_approval((*late).clone(), expected).await.unwrap();
        assert_eq!(saved, Saved::Conflict, "{expected}");
    }
    assert_eq!(fixture.dump().await, before);
}

pub(in super::super) async fn of_simultaneous_decisions_one_is_saved(fixture: Fixture) {
    let asked = fixture.ask(question()).await;
    let tasks: Vec<_> = (0..40)
        .map(|number| {
            let verdict = if number % 2 == 0 { Verdict::Approve } else { Verdict::Deny };
            let answer = Answer { verdict, reason: Some(number.to_string()), shown_fingerprint: None };
            let Commanded::Changed(change) = asked.decide(&person("olga"), &answer, fixture.now()).unwrap() else {
                panic!()
            };
            let store = Arc::clone(&fixture.store);
            tokio::spawn(async move {
                (store.save_approval((*change).clone(), 1).await.unwrap() == Saved::Yes).then_some(change.next)
            })
        })
        .collect();
    let mut saved = Vec::new();
    for task in tasks {
        saved.extend(task.await.unwrap());
    }
    assert_eq!(saved.len(), 1);
    assert_eq!(fixture.approval(asked.id).await, saved[0]);
}

pub(in super::super) async fn a_change_is_saved_only_before_its_deadline(fixture: Fixture) {
    for (call, offset, want) in
        [("before", -1_i64, Saved::Yes), ("at", 0, Saved::Conflict), ("after", 1, Saved::Conflict)]
    {
        let asked = fixture.ask(question_about(call)).await;
        let answer = Answer { verdict: Verdict::Approve, reason: None, shown_fingerprint: None };
        let Commanded::Changed(change) = asked.decide(&person("olga"), &answer, fixture.now()).unwrap() else {
            panic!()
        };
        assert_eq!(change.valid_before, Some(asked.decide_by));
        fixture.advance_to(Timestamp::from_micros(asked.decide_by.micros() + offset));
        let before = fixture.dump().await;
        assert_eq!(fixture.store.save_approval(*change, 1).await.unwrap(), want, "{call}");
        assert_eq!(fixture.dump().await == before, want == Saved::Conflict, "{call}");
    }
}

pub(in super::super) async fn what_is_unknown_is_absent_and_cannot_be_saved(fixture: Fixture) {
    assert!(fixture.store.approval(approval_id()).await.unwrap().row.is_none());
    assert!(fixture.store.execution(execution_id()).await.unwrap().row.is_none());
    let mut stranger = fixture.ask(question()).await;
    stranger.id = approval_id();
    let before = fixture.dump().await;
    let Commanded::Changed(change) = stranger.cancel(&id("runner"), None, fixture.now()).unwrap() else { panic!() };
    assert_eq!(fixture.store.save_approval(*change, 1).await.unwrap(), Saved::Conflict);
    assert_eq!(fixture.dump().await, before);
}

pub(in super::super) async fn hostile_text_is_kept_as_it_is(fixture: Fixture) {
    let hostile = [
        "'; DROP TABLE approvals; --",
        "a\u{0}b",
        "\u{1b}[31mred",
        "line\nbreak\ttab\r",
        "\u{202e}desrever",
        r#"{"json":"\ud800 \\ \" "}"#,
        "%_*?[]$1 ?1 :name @name",
        "\u{10ffff}\u{feff}e\u{301}é",
        "",
    ];
    for text in hostile {
        let mut question = question_about(text);
        let omission =
            Omission { field: None, pointer: text.to_owned(), kind: OmissionKind::Confusable, count: u64::MAX };
        question.preview = Some(Preview { json: format!("[{text}]"), omissions: vec![omission] });
        question.message = text.to_owned();
        question.agent_note = Some(text.to_owned());
        question.policy_revision = text.to_owned();
        question.tags = vec![text.to_owned(), text.to_owned()];
        question.rules[0].name = text.to_owned();
        question.rules[0].error = Some(text.to_owned());
        question.subject.labels = [(text.to_owned(), text.to_owned())].into();
        let asked = fixture.ask(question).await;
        assert_eq!(fixture.approval(asked.id).await, asked, "{text:?}");
        let answer = Answer { verdict: Verdict::Approve, reason: Some(text.to_owned()), shown_fingerprint: None };
        let decided = asked.decide(&person("olga"), &answer, fixture.now()).unwrap();
        let approved = fixture.save(decided, 1).await;
        assert_eq!(fixture.approval(asked.id).await, approved, "{text:?}");
        let revoked = approved.revoke(&person("olga"), Some(text), fixture.now()).unwrap();
        let revoked = fixture.save(revoked, 2).await;
        assert_eq!(fixture.approval(asked.id).await, revoked, "{text:?}");
    }
    for name in
        ["'; DROP TABLE approvals; --", "a%_*", "__proto__", "constructor", "NULL", "0", "olga\"", "é", "e\u{301}"]
    {
        let mut question = question();
        question.subject.principal = id(name);
        question.subject.conversation = Some(id(name));
        question.requested_by = id(name);
        let asked = fixture.ask(question).await;
        assert_eq!(fixture.approval(asked.id).await, asked, "{name:?}");
    }
}
