//! What was answered stays, and time goes on.

use super::*;
use crate::domain::audit::{AuditEvent, AuditKind};
use crate::storage::{AuditQuery, StoreError, StoredKey};

pub(in super::super) async fn nothing_acknowledged_is_lost(fixture: Fixture) {
    let key = Some(request_key("request-1", "d"));
    fixture.request(question_about("asked"), key, NO_LIMITS).await;
    fixture.approved(question_about("approved")).await;
    let (_, execution) = fixture.consumed(question_about("consumed")).await;
    fixture.report(&execution, Outcome::Unknown).await;
    fixture.store.start(start(subject())).await.unwrap();
    fixture.store.add_key(StoredKey { id: "00".to_owned(), check: "ff".to_owned() }).await.unwrap();
    let refused = AuditEvent::about(AuditKind::ConsumeRefused, &subject(), None, "REFUSED");
    fixture.store.record(vec![refused]).await.unwrap();
    let before = fixture.dump().await;
    let mut fixture = fixture.reopen().await;
    assert_eq!(fixture.dump().await, before);
    for _ in 0..3 {
        fixture = fixture.reopen().await;
    }
    assert_eq!(fixture.dump().await, before);
    fixture.ask(question_about("after")).await;
}

pub(in super::super) async fn a_write_outlives_its_caller(fixture: Fixture) {
    let approved = fixture.approved(question()).await;
    let start = start_of(&approved);
    let consuming = fixture.store.consume(start.clone(), Accepting::AnyRequirement);
    // Polled once, which hands it over, and dropped before there is an answer.
    let answer = tokio::time::timeout(Duration::ZERO, consuming).await;
    assert!(answer.is_err(), "the answer came too early for this test");
    // It is nobody's any more, and done all the same: each look gives it the time of a read.
    let mut looks = 0;
    let facts = loop {
        let facts = fixture.store.consume_facts(Some(approved.id), &attempt_key(&start), None).await.unwrap().row;
        if facts.attempt.is_some() || looks == 10_000 {
            break facts;
        }
        looks += 1;
    };
    assert_eq!(facts.attempt.unwrap().id, start.id, "the answer that was missed can be asked for again");
    assert!(matches!(facts.approval.unwrap().state, ApprovalState::Consumed { .. }));
}

pub(in super::super) async fn an_acknowledged_write_is_seen_by_every_read(fixture: Fixture) {
    let tasks: Vec<_> = (0..50)
        .map(|call| {
            let store = Arc::clone(&fixture.store);
            tokio::spawn(async move {
                let id = approval_id();
                let question = question_about(&call.to_string());
                let new = NewApproval { id, question, request: None, arguments: sealed_arguments(), limits: NO_LIMITS };
                store.request(new).await.unwrap();
                store.approval(id).await.unwrap().row.is_some()
            })
        })
        .collect();
    for task in tasks {
        assert!(task.await.unwrap());
    }
}

pub(in super::super) async fn time_does_not_go_back_with_the_clock(fixture: Fixture) {
    assert_eq!(fixture.store.time().await.unwrap(), START);
    fixture.clock.advance(Duration::from_secs(100));
    let approved = fixture.approved(question()).await;
    let confirmed = approved.state.confirmed().unwrap();
    fixture.clock.set_wall(START.minus(Duration::from_secs(1_000_000)));
    assert_eq!(fixture.store.time().await.unwrap(), START.plus(Duration::from_secs(100)));
    fixture.clock.advance(USE_WITHIN.checked_sub(TICK).unwrap());
    assert_eq!(fixture.store.time().await.unwrap(), confirmed.use_by.minus(TICK));
    fixture.clock.advance(TICK);
    assert!(fixture.consume(start_of(&approved)).await.is_none(), "setting the clock back prolongs nothing");
    fixture.clock.set_wall(confirmed.use_by.plus(Duration::from_secs(7)));
    assert_eq!(fixture.store.time().await.unwrap(), confirmed.use_by.plus(Duration::from_secs(7)));
    fixture.clock.set_wall(START);
    assert_eq!(fixture.store.time().await.unwrap(), confirmed.use_by.plus(Duration::from_secs(7)));
    assert_eq!(fixture.store.estimated_time(), confirmed.use_by.plus(Duration::from_secs(7)));
}

pub(in super::super) async fn time_does_not_go_back_over_a_restart(fixture: Fixture) {
    fixture.clock.advance(Duration::from_secs(200));
    let event = AuditEvent::about(AuditKind::ConsumeRefused, &subject(), None, "");
    fixture.store.record(vec![event]).await.unwrap();
    let newest = fixture.store.time().await.unwrap();
    fixture.clock.set_wall(START);
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.store.time().await.unwrap(), newest);
    fixture.clock.advance(Duration::from_secs(9));
    let asked = fixture.ask(question()).await;
    assert_eq!(asked.create_time, newest.plus(Duration::from_secs(9)));
}

pub(in super::super) async fn time_is_not_before_any_row(fixture: Fixture) {
    let clock = Arc::clone(&fixture.clock);
    let store = Arc::clone(&fixture.store);
    let writing = tokio::spawn(async move {
        for call in 0..200 {
            clock.advance(TICK);
            let question = question_about(&call.to_string());
            let new = NewApproval {
                id: approval_id(),
                question,
                request: None,
                arguments: sealed_arguments(),
                limits: NO_LIMITS,
            };
            store.request(new).await.unwrap();
        }
    });
    let mut last = START;
    while !writing.is_finished() {
        let query = AuditQuery { limit: 1, ..AuditQuery::default() };
        let loaded = fixture.store.audit_records(query).await.unwrap();
        assert!(loaded.now >= last);
        last = loaded.now;
        assert!(loaded.row.iter().all(|record| record.time <= loaded.now));
    }
    writing.await.unwrap();
}

pub(in super::super) async fn a_closed_store_answers_unavailable(fixture: Fixture) {
    let asked = fixture.ask(question()).await;
    fixture.store.close().await;
    fixture.store.close().await;
    let unavailable = |error| matches!(error, StoreError::Unavailable { .. });
    assert!(unavailable(fixture.store.time().await.unwrap_err()));
    assert!(unavailable(fixture.store.approval(asked.id).await.unwrap_err()));
    assert!(unavailable(fixture.store.start(start(subject())).await.unwrap_err()));
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.approval(asked.id).await, asked);
}
