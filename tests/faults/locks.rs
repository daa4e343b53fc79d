//! Statements that wait on a row until it is too late: the time that counts is the one after the wait.

use crate::cluster::Cluster;
use crate::history::{Call, Fact, Question};
use crate::place::{PATIENCE, PAUSE, Place, Way, blocking};
use crate::process::calls::Told;
use crate::random::Random;
use crate::run;
use countersign::proto::{ApprovalState, Verdict};
use sqlx::{Connection as _, Row as _, query};
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

/// Asks something that is over within a second, and goes on to where `call` is due.
async fn due(place: &Place, random: &mut Random, call: &Call) -> Question {
    let mut question = place.history.question(random, true, false);
    let steps = match call {
        Call::Decide(_) => vec![Call::Ask],
        _ => vec![Call::Ask, Call::Decide(Verdict::Approve)],
    };
    for step in steps {
        let told = place.callers.call(&place.history, &question, step, random.below(2)).await;
        question.learns(told.done().unwrap_or_else(|| panic!("{told:?}")));
    }
    question
}

#[test]
fn what_waits_on_a_row_until_past_the_deadline_is_refused_as_expired() {
    run(async |random| {
        let cluster = blocking(Cluster::start);
        let place = Place::empty(cluster.url("postgres"));
        place.start(&[Way::patient(cluster.url("postgres")), Way::patient(cluster.url("postgres"))]);
        let attempt = || Call::Consume(Uuid::new_v4().to_string());
        let mut watcher = place.connection().await;
        for call in [Call::Decide(Verdict::Approve), Call::Decide(Verdict::Deny), attempt(), Call::Revoke, Call::Cancel]
        {
            // On a busy machine the second may be over before anything waits: then it is asked again.
            let since = Instant::now();
            let told = loop {
                assert!(since.elapsed() < PATIENCE, "{call:?} never waits for a row");
                let question = due(&place, random, &call).await;
                let id = question.asked.as_ref().map(|(id, _)| id.clone()).unwrap();
                let mut holder = place.connection().await;
                let mut held = holder.begin().await.unwrap();
                query("SELECT 1 FROM approvals WHERE id = $1 FOR UPDATE").bind(&id).execute(&mut *held).await.unwrap();
                let (history, callers, of) = (Arc::clone(&place.history), Arc::clone(&place.callers), call.clone());
                let seat = random.below(2);
                let answer = tokio::spawn(async move { history.call(&question, of, seat, &callers.of(seat)).await });
                // It waits, and then the deadline passes.
                let mut waited = false;
                loop {
                    let asked = query(
                        "SELECT (SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
                            AND query !~ 'SKIP LOCKED') AS waiting, open_until <= store_now(NULL) AS over FROM approvals WHERE id = $1",
                    );
                    let row = asked.bind(&id).fetch_one(&mut watcher).await.unwrap();
                    let over = row.get::<Option<bool>, _>("over").unwrap_or(true);
                    waited |= !over && row.get::<i64, _>("waiting") > 0;
                    if over {
                        break;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                held.rollback().await.unwrap();
                let told = answer.await.unwrap();
                if waited {
                    break told;
                }
            };
            assert_eq!(told, Told::Refused("APPROVAL_EXPIRED".to_owned()), "{call:?}");
        }
        place.nothing_is_overdue().await;
        place.check(random.seed()).await;
        let consumed = place.history.events().into_iter().any(|event| matches!(event.done(), Some(Fact::Permit(_))));
        let withdrawn = place.history.events().into_iter().any(|event| event.shown() == Some(ApprovalState::Cancelled));
        assert!(!consumed && !withdrawn);
    });
}
