//! The one writer: what shares a commit, and what a failure does to its neighbours.

use super::*;
use crate::domain::audit::{AuditEvent, AuditKind};
use crate::storage::changes::{Told, Touched};
use crate::storage::conformance::{NO_LIMITS, approval_id, question_about, sealed_arguments, start, start_of, subject};
use sqlx::SqliteConnection;

/// Runs several at once and waits for all.
async fn join_all<T: Send + 'static>(
    all: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let tasks: Vec<_> = all.into_iter().map(tokio::spawn).collect();
    let mut done = Vec::new();
    for task in tasks {
        done.push(task.await.unwrap());
    }
    done
}

fn event(decision: &str) -> AuditEvent {
    AuditEvent::about(AuditKind::ConsumeRefused, &subject(), None, decision)
}

fn new(call: &str) -> NewApproval {
    NewApproval {
        id: approval_id(),
        question: question_about(call),
        request: None,
        arguments: sealed_arguments(),
        limits: NO_LIMITS,
    }
}

/// How many audit records there are, which is what was counted, and nothing that was undone.
async fn recorded(store: &SqliteStore) -> usize {
    let query = AuditQuery { limit: 1_000_000, ..AuditQuery::default() };
    let records = store.audit_records(query).await.unwrap().row.len();
    let counted: u64 = store.statistics().records.iter().map(|(_, count)| count).sum();
    assert_eq!(usize::try_from(counted).unwrap(), records);
    records
}

/// Writes something, then violates a constraint.
struct Violating;

#[async_trait]
impl Write for Violating {
    type Answer = ();

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        now: Timestamp,
        touched: &mut Touched,
    ) -> Result<(), StoreError> {
        writes::record(connection, &[event("of a failing write")], now, touched).await?;
        query("INSERT INTO keys (id, check_value, create_time) VALUES (NULL, 'x', 0)").execute(connection).await?;
        Ok(())
    }
}

/// Violates a constraint that is checked only when the transaction commits.
struct FailingCommit;

#[async_trait]
impl Write for FailingCommit {
    type Answer = ();

    async fn run(&self, connection: &mut SqliteConnection, _: Timestamp, _: &mut Touched) -> Result<(), StoreError> {
        query("PRAGMA defer_foreign_keys = ON").execute(&mut *connection).await?;
        query("INSERT INTO approval_audience VALUES ('nothing', 'person', 'x', 'pending', 0, 1)")
            .execute(connection)
            .await?;
        Ok(())
    }
}

struct Panicking;

#[async_trait]
impl Write for Panicking {
    type Answer = ();

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        now: Timestamp,
        touched: &mut Touched,
    ) -> Result<(), StoreError> {
        writes::record(connection, &[event("of a panicking write")], now, touched).await?;
        panic!("on purpose");
    }
}

/// Holds the writer until it is told to go on, so that others wait meanwhile.
struct Holding(Arc<tokio::sync::Notify>, Arc<tokio::sync::Notify>);

#[async_trait]
impl Write for Holding {
    type Answer = ();

    async fn run(&self, _: &mut SqliteConnection, _: Timestamp, _: &mut Touched) -> Result<(), StoreError> {
        self.0.notify_one();
        self.1.notified().await;
        Ok(())
    }
}

/// Runs `writes` so that all of them wait when the writer takes them.
async fn as_one_batch<T: Send + 'static>(
    store: &Arc<SqliteStore>,
    writes: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let (held, go_on) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let holding = {
        let (store, hold) = (Arc::clone(store), Holding(Arc::clone(&held), Arc::clone(&go_on)));
        tokio::spawn(async move { store.write(hold).await })
    };
    held.notified().await;
    let tasks: Vec<_> = writes.into_iter().map(tokio::spawn).collect();
    // On this runtime of one thread each task runs until it waits for its answer.
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
    go_on.notify_one();
    holding.await.unwrap().unwrap();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

#[tokio::test]
async fn what_waits_together_is_one_commit() {
    let folder = Folder::new();
    let store = Arc::new(open(&folder).await);
    let before = store.statistics();
    let answers = as_one_batch(
        &store,
        (0..200).map(|call| {
            let store = Arc::clone(&store);
            async move { store.request(new(&call.to_string())).await.is_ok() }
        }),
    )
    .await;
    assert!(answers.into_iter().all(|ok| ok));
    let after = store.statistics();
    assert_eq!(after.writes - before.writes, 201);
    assert_eq!(after.commits - before.commits, 2, "the one that held the writer, and one for all who waited");
    assert_eq!(recorded(&store).await, 200);
}

#[tokio::test]
async fn a_batch_is_bounded() {
    let folder = Folder::new();
    let store = Arc::new(open(&folder).await);
    as_one_batch(
        &store,
        (0..600).map(|_| {
            let store = Arc::clone(&store);
            async move { store.record(vec![event("")]).await.unwrap() }
        }),
    )
    .await;
    assert_eq!(store.statistics().commits, 1 + 3, "256, 256 and 88");
}

#[tokio::test]
async fn a_failing_write_fails_alone() {
    let folder = Folder::new();
    let store = Arc::new(open(&folder).await);
    let mut changes = store.changes();
    let answers = as_one_batch(
        &store,
        (0..30).map(|number| {
            let store = Arc::clone(&store);
            async move {
                if number % 10 == 5 {
                    store.write(Violating).await
                } else {
                    store.request(new(&number.to_string())).await.map(|_| ())
                }
            }
        }),
    )
    .await;
    for (number, answer) in answers.iter().enumerate() {
        assert_eq!(answer.is_err(), number % 10 == 5, "{number}: {answer:?}");
    }
    assert_eq!(recorded(&store).await, 27, "nothing is written twice, and nothing of what failed");
    let mut told = 0;
    while let Some(Told::Touched(part)) = changes.now() {
        told += part.len();
    }
    assert_eq!(told, 27, "what was undone is not told");
    assert_eq!(store.statistics().undone, 1);
    assert_eq!(store.statistics().reconnects, 0);
}

#[tokio::test]
async fn a_domain_refusal_is_an_answer_and_undoes_nothing() {
    let folder = Folder::new();
    let store = Arc::new(open(&folder).await);
    let answers = as_one_batch(
        &store,
        (0..20).map(|number| {
            let store = Arc::clone(&store);
            async move {
                match number % 2 {
                    0 => store.request(new(&number.to_string())).await.is_ok(),
                    _ => {
                        let unknown = Start { approval: Some(approval_id()), ..start(subject()) };
                        store.consume(unknown, Accepting::AnyRequirement).await.unwrap().is_none()
                    }
                }
            }
        }),
    )
    .await;
    assert!(answers.into_iter().all(|ok| ok));
    assert_eq!((store.statistics().undone, store.statistics().commits), (0, 2));
}

#[tokio::test]
async fn a_failing_commit_is_told_to_everyone_in_it_and_later_writes_recover() {
    let folder = Folder::new();
    let store = Arc::new(open(&folder).await);
    store.record(vec![event("before")]).await.unwrap();
    let mut changes = store.changes();
    let answers = as_one_batch(
        &store,
        (0..10).map(|number| {
            let store = Arc::clone(&store);
            async move {
                if number == 4 { store.write(FailingCommit).await } else { store.record(vec![event("in it")]).await }
            }
        }),
    )
    .await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(StoreError::Unavailable { .. }))), "{answers:?}");
    assert_eq!(recorded(&store).await, 1);
    assert_eq!(changes.now(), Some(Told::Lagged), "nobody knows what is on the disk");
    store.record(vec![event("after")]).await.unwrap();
    assert_eq!(recorded(&store).await, 2);
    assert_eq!(store.statistics().reconnects, 1);
}

#[tokio::test]
async fn a_panicking_write_fails_alone_and_ends_neither_the_writer_nor_its_neighbours() {
    let folder = Folder::new();
    let store = Arc::new(open(&folder).await);
    let answers =
        as_one_batch(
            &store,
            (0..10).map(|number| {
                let store = Arc::clone(&store);
                async move {
                    if number == 4 { store.write(Panicking).await } else { store.record(vec![event("in it")]).await }
                }
            }),
        )
        .await;
    let failed: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert!(matches!(failed[..], [StoreError::Inconsistent { .. }]), "{failed:?}");
    assert_eq!(recorded(&store).await, 9);
    store.time().await.unwrap();
}

#[tokio::test]
async fn a_full_disk_is_unavailable_until_there_is_room() {
    let folder = Folder::new();
    let store = Arc::new(open(&folder).await);
    store.request(new("before")).await.unwrap();
    store.write(Limiting).await.unwrap();
    store.time().await.unwrap();
    let mut big = new("big");
    big.question.preview.as_mut().unwrap().json = "x".repeat(4_000_000);
    let error = store.request(big).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    // SQLite undoes the transaction by itself, after which the connection is made anew, here without the limit.
    assert_eq!(store.statistics().reconnects, 1);
    store.request(new("after")).await.unwrap();
    assert_eq!(recorded(&store).await, 2);
}

/// Lets the file of this connection grow by few pages only, as a disk that is nearly full does.
struct Limiting;

#[async_trait]
impl Write for Limiting {
    type Answer = ();

    async fn run(&self, connection: &mut SqliteConnection, _: Timestamp, _: &mut Touched) -> Result<(), StoreError> {
        query("PRAGMA max_page_count = 200").fetch_one(connection).await?;
        Ok(())
    }
}

#[tokio::test]
async fn a_tool_that_writes_meanwhile_is_waited_for() {
    let folder = Folder::new();
    let store = Arc::new(open(&folder).await);
    let mut tool = open::writer_options(&folder.database()).connect().await.unwrap();
    let mut transaction = tool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let waiting = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.request(new("waits")).await })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    query("INSERT INTO keys VALUES ('00', 'ff', 0)").execute(&mut *transaction).await.unwrap();
    assert!(!waiting.is_finished());
    transaction.commit().await.unwrap();
    assert!(matches!(waiting.await.unwrap().unwrap().row, Requested::Created(_)));
}

#[tokio::test]
async fn a_queue_that_stays_full_is_unavailable() {
    let folder = Folder::new();
    let store = open_with(&folder, |options| {
        options.queue = 1;
        options.acquire_timeout = Duration::from_millis(50);
        options.write_timeout = Duration::from_millis(300);
    });
    let store = Arc::new(store.await.unwrap());
    let (held, go_on) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let holding = {
        let (store, hold) = (Arc::clone(&store), Holding(Arc::clone(&held), Arc::clone(&go_on)));
        tokio::spawn(async move { store.write(hold).await })
    };
    held.notified().await;
    let answers = join_all((0..3).map(|_| {
        let store = Arc::clone(&store);
        async move { store.record(vec![event("waits")]).await }
    }))
    .await;
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    assert!(holding.await.unwrap().is_err(), "its answer took too long");
    go_on.notify_one();
    store.record(vec![event("after")]).await.unwrap();
    assert_eq!(recorded(&store).await, 2, "what was accepted was written, what was not was not");
}

#[tokio::test]
async fn writes_of_a_thousand_callers_share_few_commits() {
    let folder = Folder::new();
    let store = Arc::new(open(&folder).await);
    let mut approved = Vec::new();
    for chunk in 0..10 {
        let made = join_all((0..100).map(|call| {
            let store = Arc::clone(&store);
            async move { approve(&store, &format!("{chunk} {call}")).await }
        }));
        approved.extend(made.await);
    }
    let before = store.statistics();
    let started = std::time::Instant::now();
    let consumed = join_all(approved.into_iter().map(|approval| {
        let store = Arc::clone(&store);
        async move { store.consume(start_of(&approval), Accepting::AnyRequirement).await.unwrap().is_some() }
    }))
    .await;
    let elapsed = started.elapsed();
    assert!(consumed.into_iter().all(|ok| ok));
    let after = store.statistics();
    let (writes, commits) = (after.writes - before.writes, after.commits - before.commits);
    println!("{writes} simultaneous consumes: {commits} commits, {elapsed:?}");
    assert_eq!(writes, 1_000);
    assert!(commits <= 50, "{commits} commits");
}

async fn approve(store: &SqliteStore, call: &str) -> Approval {
    use crate::domain::approval::{Answer, Commanded, Verdict};
    let Requested::Created(asked) = store.request(new(call)).await.unwrap().row else { panic!("not created") };
    let answer = Answer { verdict: Verdict::Approve, reason: None, shown_fingerprint: None };
    let person = crate::storage::conformance::person("olga");
    let Commanded::Changed(change) = asked.decide(&person, &answer, START).unwrap() else { panic!("not changed") };
    let next = change.next.clone();
    assert_eq!(store.save_approval(*change, 1).await.unwrap(), Saved::Yes);
    next
}

#[tokio::test]
async fn who_can_read_and_not_write_is_not_ready() {
    let folder = Folder::new();
    let store = Arc::new(open(&folder).await);
    store.time().await.unwrap();
    let mut other = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.database()).connect().await.unwrap();
    let held = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let error = store.time().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    held.rollback().await.unwrap();
    store.time().await.unwrap();
    assert!(!store.counters.is_failing(), "a commit that changed something was seen");
}

#[tokio::test]
async fn a_database_that_was_removed_or_replaced_takes_no_more_writes() {
    for removed in ["countersign.db", "countersign.db-wal"] {
        let folder = Folder::new();
        let store = Arc::new(open(&folder).await);
        store.record(vec![event("before")]).await.unwrap();
        let file = folder.0.join(removed);
        let kept = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        for _ in 0..2 {
            let error = store.record(vec![event("after")]).await.unwrap_err();
            assert!(matches!(error, StoreError::Unavailable { .. }), "{removed}: {error}");
            store.time().await.unwrap_err();
        }
        // Another file of that name is another file.
        std::fs::write(&file, kept).unwrap();
        store.record(vec![event("after")]).await.unwrap_err();
    }
}

/// The bytes of the log, wherever in it the newest page is.
fn log_bytes(folder: &Folder) -> u64 {
    std::fs::metadata(folder.0.join("countersign.db-wal")).map_or(0, |log| log.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_stays_short_under_load_and_is_gone_at_the_end() {
    let folder = Folder::new();
    let store = Arc::new(open_with(&folder, |options| options.log_pages = 64).await.unwrap());
    let note = "x".repeat(3_000);
    let mut longest = 0;
    // Some 160 MB of pages, of which 64 are 256 KiB: long enough for what moves them to catch up, however busy the machine is.
    let mut written: u64 = 0;
    while written < 160_000_000 {
        let records = (0..32).map(|_| {
            let (store, note) = (Arc::clone(&store), note.clone());
            async move {
                let event = AuditEvent { note: Some(note), ..event("") };
                store.record(vec![event; 4]).await.unwrap();
                // Whoever reads meanwhile holds on to a part of the log.
                store.audit_records(AuditQuery { limit: 1, ..AuditQuery::default() }).await.unwrap();
            }
        });
        join_all(records).await;
        written += 32 * 4 * 3_000;
        longest = longest.max(log_bytes(&folder));
    }
    println!("{written} bytes were written, the log had {longest} at most");
    assert!(longest < written / 2, "{longest}");
    store.close().await;
    assert_eq!(log_bytes(&folder), 0, "it is moved whole, and removed");
    check(&folder.database()).await;
}
