//! What waits for people, and since when.

use super::*;
use crate::storage::Backlog;

async fn backlog(fixture: &Fixture) -> Backlog {
    let loaded = fixture.store.backlog().await.unwrap();
    assert_eq!(loaded.now, fixture.now());
    loaded.row
}

pub(in super::super) async fn the_backlog_is_what_waits_for_people_and_nothing_else(fixture: Fixture) {
    assert_eq!(backlog(&fixture).await, Backlog { pending: 0, oldest: None, approver_seen: None });
    let mut asked = Vec::new();
    for call in ["1", "2", "3", "4", "5"] {
        asked.push(fixture.ask(question_about(call)).await);
        fixture.clock.advance(Duration::from_secs(1));
    }
    let waiting = |count: u64, oldest: &Approval| Backlog {
        pending: count,
        oldest: Some(oldest.create_time),
        approver_seen: None,
    };
    assert_eq!(backlog(&fixture).await, waiting(5, &asked[0]));
    fixture.decide(&asked[0], "olga", Verdict::Deny).await;
    assert_eq!(backlog(&fixture).await, waiting(4, &asked[1]));
    let approved = fixture.decide(&asked[1], "olga", Verdict::Approve).await;
    assert_eq!(backlog(&fixture).await, waiting(3, &asked[2]), "what is approved waits for the agent");
    fixture.consume(start_of(&approved)).await.unwrap();
    let cancelled = asked[3].cancel(&id("runner"), None, fixture.now()).unwrap();
    fixture.save(cancelled, asked[3].version).await;
    assert_eq!(backlog(&fixture).await, waiting(2, &asked[2]));
}

pub(in super::super) async fn an_overdue_question_waits_for_nobody(fixture: Fixture) {
    let first = fixture.ask(question_about("1")).await;
    fixture.clock.advance(Duration::from_secs(1));
    let second = fixture.ask(question_about("2")).await;
    fixture.advance_to(first.decide_by.minus(TICK));
    assert_eq!(backlog(&fixture).await, Backlog { pending: 2, oldest: Some(first.create_time), approver_seen: None });
    fixture.advance_to(first.decide_by);
    assert_eq!(backlog(&fixture).await, Backlog { pending: 1, oldest: Some(second.create_time), approver_seen: None });
    fixture.advance_to(second.decide_by);
    assert_eq!(backlog(&fixture).await, Backlog { pending: 0, oldest: None, approver_seen: None });
}
