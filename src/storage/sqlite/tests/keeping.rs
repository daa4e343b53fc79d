//! Sealed arguments in the file: gone with their approval, kept for what is open, and none of before they were kept.

use super::*;
use crate::domain::approval::{Approval, Commanded};
use crate::storage::changes::Touched;
use crate::storage::conformance::{Fixture, id, question, question_about};
use crate::storage::{SealedArguments, Viewer};

async fn run(folder: &Folder, statement: &'static str) {
    let mut connection = open::writer_options(&folder.database()).connect().await.unwrap();
    query(statement).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

async fn kept(store: &dyn Store, approval: &Approval) -> Result<Option<SealedArguments>, StoreError> {
    let viewer = Viewer::Agent { principal: &id("olga"), agent: &id("assistant") };
    Ok(store.arguments_seen_by(approval.id, viewer).await?.row.unwrap().arguments)
}

#[tokio::test]
async fn they_go_with_their_approval_and_with_no_other() {
    let folder = Arc::new(Folder::new());
    let fixture = Fixture::new(Arc::clone(&folder) as Arc<dyn Database>).await;
    let (gone, stays) = (fixture.ask(question()).await, fixture.ask(question_about("other")).await);
    let mut connection = open::writer_options(&folder.database()).connect().await.unwrap();
    query("DELETE FROM approvals WHERE id = $1").bind(gone.id.to_string()).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let rows = fixture.dump().await;
    let rows: Vec<&str> = rows.lines().filter(|line| line.starts_with("approval_arguments:")).collect();
    assert!(rows.len() == 1 && rows[0].contains(&stays.id.to_string()), "{rows:?}");
}

#[tokio::test]
async fn what_is_final_may_be_without_them_and_what_is_open_may_not() {
    let folder = Arc::new(Folder::new());
    let fixture = Fixture::new(Arc::clone(&folder) as Arc<dyn Database>).await;
    let (open, closed) = (fixture.ask(question()).await, fixture.ask(question_about("closed")).await);
    let cancelled = closed.cancel(&id("runner"), None, fixture.now()).unwrap();
    assert!(matches!(cancelled, Commanded::Changed(_)));
    let closed = fixture.save(cancelled, 1).await;
    assert!(kept(fixture.store.as_ref(), &open).await.unwrap().is_some());
    run(&folder, "DELETE FROM approval_arguments").await;
    assert_eq!(kept(fixture.store.as_ref(), &closed).await.unwrap(), None);
    let error = kept(fixture.store.as_ref(), &open).await.unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt { table: "approval_arguments", id } if *id == open.id.to_string()));
}

#[tokio::test]
async fn what_was_asked_before_any_were_kept_is_open_without_them_and_its_secret_is_in_use() {
    let folder = Folder::new();
    let fault = |error: OpenError| panic!("{error}");
    std::fs::write(folder.database(), "").unwrap();
    let mut connection = open::writer_options(&folder.database()).connect().await.unwrap();
    schema::migrate(&mut connection, &schema::MIGRATIONS[..1], START, Path::new("v1")).await.unwrap_or_else(fault);
    query("INSERT INTO keys VALUES ('00aa', 'check', 0)").execute(&mut connection).await.unwrap();
    let open_id = crate::storage::conformance::approval_id();
    let pending = Approval::ask(open_id, question(), None, START).next;
    let closed = Approval::ask(crate::storage::conformance::approval_id(), question_about("closed"), None, START).next;
    let Commanded::Changed(cancelled) = closed.cancel(&id("runner"), None, START).unwrap() else { panic!() };
    // The statement of today names columns that the first schema has not.
    let later = "ALTER TABLE approvals ADD COLUMN ends_by INTEGER; \
                 ALTER TABLE approval_audience ADD COLUMN open_until INTEGER";
    sqlx::raw_sql(later).execute(&mut connection).await.unwrap();
    for approval in [&pending, &cancelled.next] {
        writes::insert_approval(&mut connection, approval, &mut Touched::default()).await.unwrap();
    }
    let earlier = "ALTER TABLE approvals DROP COLUMN ends_by; ALTER TABLE approval_audience DROP COLUMN open_until";
    sqlx::raw_sql(earlier).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();

    let store = open(&folder).await;
    assert_eq!(store.schema().before, 1);
    assert_eq!(kept(&store, &pending).await.unwrap(), None);
    assert_eq!(kept(&store, &cancelled.next).await.unwrap(), None);
    assert_eq!(store.keys_in_use().await.unwrap(), ["00aa"]);
}

/// A million rows of two keys cost what two rows do: the statement goes from key to key.
#[tokio::test]
async fn the_keys_in_use_are_found_without_reading_their_rows() {
    let folder = Folder::new();
    let store = open(&folder).await;
    let mut reader = store.reader().await.unwrap();
    for statement in sealed::ALL {
        let explained = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
        let plan = query(explained).fetch_all(&mut *reader).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|row| row.get::<String, _>("detail")).collect();
        let of_table: Vec<&String> = plan.iter().filter(|step| step.contains("approval_arguments")).collect();
        assert!(!of_table.is_empty() && of_table.iter().all(|step| step.starts_with("SEARCH")), "{plan:#?}");
    }
}
