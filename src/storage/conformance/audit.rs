//! The audit, and the server secrets that a table knows.

use super::*;
use crate::domain::audit::{AuditEvent, AuditKind, AuditRecord};
use crate::domain::ids::WaitId;
use crate::storage::{AuditQuery, StoredKey};

async fn records(fixture: &Fixture, query: AuditQuery) -> Vec<AuditRecord> {
    fixture.store.audit_records(AuditQuery { limit: 1_000, ..query }).await.unwrap().row
}

async fn newest(fixture: &Fixture, seen: &mut usize) -> Vec<AuditKind> {
    let all = records(fixture, AuditQuery::default()).await;
    let new = all.len() - *seen;
    *seen = all.len();
    all.into_iter().take(new).map(|record| record.event.kind).rev().collect()
}

pub(in super::super) async fn every_change_has_its_records_and_what_failed_has_none(fixture: Fixture) {
    let seen = &mut 0;
    let asked = fixture.ask(question()).await;
    assert_eq!(newest(&fixture, seen).await, [AuditKind::ApprovalRequested]);
    fixture.request(question(), None, NO_LIMITS).await;
    assert_eq!(newest(&fixture, seen).await, [], "the same question is not asked again");
    let approved = fixture.decide(&asked, "olga", Verdict::Approve).await;
    assert_eq!(newest(&fixture, seen).await, [AuditKind::ApprovalDecided, AuditKind::ApprovalApproved]);
    let Commanded::Changed(stale) = asked.cancel(&id("runner"), None, fixture.now()).unwrap() else { panic!() };
    assert_eq!(fixture.store.save_approval(*stale, 1).await.unwrap(), Saved::Conflict);
    let wrong = Start { subject: question_about("other").subject, ..start_of(&approved) };
    assert!(fixture.consume(wrong).await.is_none());
    let full = QuestionLimits { per_principal: 0, per_agent: 0, ..NO_LIMITS };
    fixture.request(question_about("more"), None, full).await;
    assert_eq!(newest(&fixture, seen).await, []);
    let execution = fixture.consume(start_of(&approved)).await.unwrap();
    assert_eq!(newest(&fixture, seen).await, [AuditKind::ApprovalConsumed]);
    fixture.report(&execution, Outcome::Succeeded).await;
    assert_eq!(newest(&fixture, seen).await, [AuditKind::ExecutionReported]);
    let free = start(subject());
    fixture.store.start(free.clone()).await.unwrap().unwrap();
    assert_eq!(newest(&fixture, seen).await, [AuditKind::ExecutionStarted]);
    assert!(fixture.store.start(free).await.unwrap().is_none());
    assert_eq!(newest(&fixture, seen).await, []);
    let asked = fixture.ask(question_about("overdue")).await;
    fixture.advance_to(asked.decide_by);
    fixture.ask(question_about("overdue")).await;
    let kinds = [AuditKind::ApprovalRequested, AuditKind::ApprovalExpired, AuditKind::ApprovalRequested];
    assert_eq!(newest(&fixture, seen).await, kinds);
    fixture.store.record(Vec::new()).await.unwrap();
    assert_eq!(newest(&fixture, seen).await, []);
}

pub(in super::super) async fn records_are_listed_newest_first_and_by_what_they_are_about(fixture: Fixture) {
    let mut consumed = Vec::new();
    for principal in ["olga", "dana", "olga"] {
        let mut question = question_about(principal);
        question.subject.principal = id(principal);
        consumed.push(fixture.consumed(question).await);
        fixture.clock.advance(Duration::from_secs(1));
    }
    let all = records(&fixture, AuditQuery::default()).await;
    assert_eq!(all.len(), 12);
    assert!(all.windows(2).all(|pair| pair[0].position > pair[1].position && pair[0].time >= pair[1].time));
    for approval in [None, Some(consumed[0].0.id), Some(consumed[1].0.id), Some(approval_id())] {
        for execution in [None, Some(consumed[0].1.id), Some(consumed[2].1.id)] {
            for principal in [None, Some(id("olga")), Some(id("dana")), Some(id("Olga"))] {
                for before in [None, Some(all[5].position), Some(all[11].position)] {
                    let principal = principal.clone();
                    let query =
                        AuditQuery { approval, execution, wait: None, principal: principal.clone(), before, limit: 3 };
                    let want: Vec<&AuditRecord> = all
                        .iter()
                        .filter(|record| approval.is_none() || record.event.approval == approval)
                        .filter(|record| execution.is_none() || record.event.execution == execution)
                        .filter(|record| principal.as_ref().is_none_or(|name| record.event.principal == *name))
                        .filter(|record| before.is_none_or(|before| record.position < before))
                        .take(3)
                        .collect();
                    let got = fixture.store.audit_records(query.clone()).await.unwrap().row;
                    assert_eq!(got.iter().collect::<Vec<_>>(), want, "{query:?}");
                }
            }
        }
    }
}

pub(in super::super) async fn a_record_is_read_back_as_it_was_written(fixture: Fixture) {
    let mut events = Vec::new();
    for kind in AuditKind::ALL {
        let mut event = AuditEvent::about(kind, &subject(), Some(&id("runner")), "DENY");
        event.approval = Some(approval_id());
        event.wait = Some(WaitId::new(uuid::Uuid::now_v7()));
        event.execution = Some(execution_id());
        event.policy_revision = Some("revision".to_owned());
        event.person = Some(id("kim"));
        event.reason = Some("'; DROP TABLE audit_records; -- \u{0}\u{202e}".to_owned());
        events.push(event);
        let mut bare = AuditEvent::about(kind, &subject(), None, "");
        (bare.conversation, bare.account) = (None, None);
        bare.labels.clear();
        events.push(bare);
        events.push(AuditEvent::of(kind, &id("olga"), &id("assistant"), None, "OPEN"));
    }
    fixture.clock.advance(Duration::from_secs(3));
    fixture.store.record(events.clone()).await.unwrap();
    let read = records(&fixture, AuditQuery::default()).await;
    let ids: std::collections::BTreeSet<_> = read.iter().map(|record| record.id).collect();
    assert_eq!(ids.len(), events.len());
    for record in &read {
        assert_eq!(record.time, fixture.now());
        let (seconds, _) = record.id.uuid().get_timestamp().unwrap().to_unix();
        assert_eq!(i64::try_from(seconds).unwrap(), record.time.micros() / 1_000_000, "UUIDv7 of the store's time");
    }
    assert_eq!(read.into_iter().rev().map(|record| record.event).collect::<Vec<_>>(), events);
}

pub(in super::super) async fn keys_are_noted_once(fixture: Fixture) {
    assert!(fixture.store.keys().await.unwrap().is_empty());
    let key = |id: &str, check: &str| StoredKey { id: id.to_owned(), check: check.to_owned() };
    fixture.store.add_key(key("0011", "aa")).await.unwrap();
    fixture.clock.advance(TICK);
    fixture.store.add_key(key("0000", "bb")).await.unwrap();
    fixture.store.add_key(key("0011", "cc")).await.unwrap();
    let keys = fixture.store.keys().await.unwrap();
    assert_eq!(keys, [key("0011", "aa"), key("0000", "bb")], "what is there stays as it is");
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.store.keys().await.unwrap(), keys);
}
