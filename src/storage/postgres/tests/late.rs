//! What was waited for, or took its time: by the database's own clock.

use super::*;
use crate::domain::approval::{Answer, Commanded, Question, StateName, Verdict};
use crate::domain::requirement::Requirement;
use crate::storage::changes::Told;
use crate::storage::conformance::*;
use sqlx::PgConnection;

const SOON: Duration = Duration::from_secs(1);
/// More than that.
const LATER: Duration = Duration::from_millis(1_600);
const LONG: Duration = Duration::from_secs(30);

async fn run(connection: &mut PgConnection, statement: &'static str) {
    sqlx::raw_sql(statement).execute(connection).await.unwrap();
}

async fn asked(store: &PostgresStore, question: Question) -> Approval {
    let new =
        NewApproval { id: approval_id(), question, request: None, arguments: sealed_arguments(), limits: NO_LIMITS };
    match store.request(new).await.unwrap().row {
        Requested::Created(approval) => approval,
        other => panic!("{other:?}"),
    }
}

/// An approval that may be used for so long.
async fn approved(store: &PostgresStore, about: &str, use_within: Duration) -> Approval {
    let question = question_about(about);
    let clauses = question.requirement.clauses().to_vec();
    let requirement = Requirement::new(clauses, false, LONG, use_within).unwrap();
    let asked = asked(store, Question { requirement, ..question }).await;
    let answer = Answer { verdict: Verdict::Approve, reason: None, shown_fingerprint: None };
    let owner = person(asked.question.subject.principal.as_str());
    let now = store.time().await.unwrap();
    let Commanded::Changed(change) = asked.decide(&owner, &answer, now).unwrap() else { panic!("nothing changed") };
    let next = change.next.clone();
    assert_eq!(store.save_approval(*change, asked.version).await.unwrap(), Saved::Yes);
    next
}

#[tokio::test]
async fn nothing_is_used_up_past_its_deadline_whatever_table_was_waited_for() {
    let database = fresh().await;
    let store = Arc::new(PostgresStore::open(options(&database, None)).await.unwrap());
    let mut other = database.connect().await;
    for lock in ["LOCK TABLE executions IN SHARE MODE", "LOCK TABLE audit_records IN SHARE MODE"] {
        let approval = approved(&store, lock, SOON).await;
        run(&mut other, "BEGIN").await;
        run(&mut other, lock).await;
        let (consuming, start) = (Arc::clone(&store), start_of(&approval));
        let consuming = tokio::spawn(async move { consuming.consume(start, Accepting::AnyRequirement).await });
        tokio::time::sleep(LATER).await;
        run(&mut other, "COMMIT").await;
        assert_eq!(consuming.await.unwrap().unwrap(), None, "{lock}");
        let approval = store.approval(approval.id).await.unwrap();
        assert_eq!(approval.row.unwrap().as_of(approval.now).state.name(), StateName::Expired);
    }
}

#[tokio::test]
async fn an_approval_that_somebody_is_at_holds_up_no_other() {
    let database = fresh().await;
    let store = Arc::new(PostgresStore::open(options(&database, None)).await.unwrap());
    let (held, free) = (approved(&store, "held", LONG).await, approved(&store, "free", LONG).await);
    let mut other = database.connect().await;
    run(&mut other, "BEGIN").await;
    query("SELECT 1 FROM approvals WHERE id = $1 FOR UPDATE")
        .bind(held.id.to_string())
        .execute(&mut other)
        .await
        .unwrap();
    let (consuming, start) = (Arc::clone(&store), start_of(&held));
    let consuming = tokio::spawn(async move { consuming.consume(start, Accepting::AnyRequirement).await });
    for _ in 0..3 {
        let free = tokio::time::timeout(LONG, store.consume(start_of(&free), Accepting::AnyRequirement)).await;
        free.expect("it waited for the other").unwrap();
    }
    assert!(!consuming.is_finished());
    assert!(store.approval(free.id).await.unwrap().row.unwrap().closed().is_some());
    run(&mut other, "COMMIT").await;
    assert!(consuming.await.unwrap().unwrap().is_some(), "nobody had used it up");
}

#[tokio::test]
async fn what_is_not_yet_so_is_not_saved() {
    let database = fresh().await;
    let store = PostgresStore::open(options(&database, None)).await.unwrap();
    let asked = asked(&store, question_about("pending")).await;
    let expired = asked.expired(asked.decide_by).unwrap();
    assert_eq!(store.save_approval(expired, asked.version).await.unwrap(), Saved::Conflict);
    let answer = Answer { verdict: Verdict::Approve, reason: None, shown_fingerprint: None };
    let owner = person(asked.question.subject.principal.as_str());
    let ahead = asked.create_time.plus(LONG);
    let Commanded::Changed(change) = asked.decide(&owner, &answer, ahead).unwrap() else { panic!("nothing changed") };
    assert_eq!(store.save_approval(*change, asked.version).await.unwrap(), Saved::Conflict);
    assert_eq!(store.approval(asked.id).await.unwrap().row.unwrap(), asked);
}

#[tokio::test]
async fn a_change_is_told_however_long_its_commit_took() {
    let database = fresh().await;
    let quick = PostgresOptions {
        statement_timeout: Duration::from_millis(500),
        poll_every: Duration::from_millis(100),
        notify: false,
        ..options(&database, None)
    };
    let store = PostgresStore::open(quick).await.unwrap();
    let asked = asked(&store, question_about("slow")).await;
    let mut changes = store.changes();
    let mut other = database.connect().await;
    run(&mut other, "BEGIN").await;
    let write = "UPDATE approvals SET version = version + 1, update_time = store_now(NULL) WHERE id = $1";
    query(write).bind(asked.id.to_string()).execute(&mut other).await.unwrap();
    // Longer than any write of a sidecar's may take, and a second more.
    tokio::time::sleep(Duration::from_secs(5)).await;
    run(&mut other, "COMMIT").await;
    let told = async {
        loop {
            match changes.next().await.expect("the store is there") {
                Told::Lagged => return,
                Told::Touched(touched) => {
                    if touched.iter().any(|touch| touch.id == asked.id && touch.version == 2) {
                        return;
                    }
                }
            }
        }
    };
    tokio::time::timeout(LONG, told).await.expect("it was never told");
}
