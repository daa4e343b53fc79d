//! Connections that break, hang, or are all in use.

use super::proxy::{Proxy, through};
use super::*;
use crate::storage::changes::Touched;
use crate::storage::postgres::fault::Fault;
use crate::storage::postgres::table::Operation;
use crate::storage::postgres::time::TableTime;
use sqlx::{Connection as _, PgConnection, query_scalar, raw_sql};
use std::sync::atomic::{AtomicU32, Ordering};

/// A statement that is run as an operation.
struct Sql(&'static str);

#[async_trait]
impl Operation for Sql {
    type Answer = ();

    async fn run(&self, connection: &mut PgConnection, _: &TableTime, _: &mut Touched) -> Result<(), Fault> {
        raw_sql(self.0).execute(connection).await?;
        Ok(())
    }
}

/// What counts how often it is run, and ends in some way.
struct Ends(Arc<AtomicU32>, fn(u32) -> Result<(), Fault>);

#[async_trait]
impl Operation for Ends {
    type Answer = ();

    async fn run(&self, _: &mut PgConnection, _: &TableTime, _: &mut Touched) -> Result<(), Fault> {
        (self.1)(self.0.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

/// What takes a lock and forgets to end its transaction.
struct Forgets(bool);

#[async_trait]
impl Operation for Forgets {
    type Answer = ();

    async fn run(&self, connection: &mut PgConnection, _: &TableTime, _: &mut Touched) -> Result<(), Fault> {
        let mut transaction = connection.begin().await?;
        raw_sql("LOCK TABLE blocks IN ACCESS EXCLUSIVE MODE").execute(&mut *transaction).await?;
        if self.0 { Ok(()) } else { Err(Fault::Store(StoreError::Corrupt { table: "blocks", id: "x".to_owned() })) }
    }
}

async fn open(database: &cluster::Database, change: impl FnOnce(&mut PostgresOptions)) -> PostgresStore {
    let mut options = options(database, None);
    change(&mut options);
    PostgresStore::open(options).await.unwrap()
}

fn one(options: &mut PostgresOptions) {
    options.connections = 1;
}

/// Ends every session of a sidecar's operations, and waits until they have ended.
async fn end_sessions(connection: &mut PgConnection) {
    query(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'countersign'",
    )
    .fetch_all(connection)
    .await
    .unwrap();
}

fn cause(error: StoreError) -> String {
    match error {
        StoreError::Unavailable { cause } => cause,
        other => panic!("not unavailable: {other}"),
    }
}

#[tokio::test]
async fn a_full_pool_names_itself() {
    let database = fresh().await;
    let store = open(&database, |options| {
        one(options);
        options.acquire_timeout = Duration::from_secs(2);
    })
    .await;
    let mut holder = database.connect().await;
    let mut held = holder.begin().await.unwrap();
    raw_sql("LOCK TABLE blocks IN ACCESS EXCLUSIVE MODE").execute(&mut *held).await.unwrap();
    let table = store.table.clone();
    let waiting = tokio::spawn(async move { table.run(Sql("SELECT FROM blocks")).await });
    waits_for_a_lock(&database).await;
    assert!(cause(store.time().await.unwrap_err()).contains("every connection of the pool is in use"));
    held.rollback().await.unwrap();
    waiting.await.unwrap().unwrap();
    store.time().await.unwrap();
}

async fn waits_for_a_lock(database: &cluster::Database) {
    let mut connection = database.connect().await;
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while query_scalar::<_, i64>(waits).fetch_one(&mut connection).await.unwrap() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_lock_or_a_statement_that_takes_too_long_is_given_up_and_holds_nothing() {
    let database = fresh().await;
    let store = open(&database, |options| {
        one(options);
        options.statement_timeout = Duration::from_millis(100);
    })
    .await;
    let mut holder = database.connect().await;
    let mut held = holder.begin().await.unwrap();
    raw_sql("LOCK TABLE blocks IN ACCESS EXCLUSIVE MODE").execute(&mut *held).await.unwrap();
    let late = store.table.run(Sql("SELECT FROM blocks")).await.unwrap_err();
    assert!(cause(late).contains("55P03"));
    let late = store.table.run(Sql("SELECT pg_sleep(60)")).await.unwrap_err();
    assert!(cause(late).contains("57014"));
    store.time().await.unwrap();
    assert_eq!(store.statistics().reconnects, 0, "the connection is still good");
}

#[tokio::test]
async fn a_session_that_was_ended_is_noticed_by_nobody() {
    let database = fresh().await;
    let store = open(&database, |_| {}).await;
    let mut connection = database.connect().await;
    for _ in 0..20 {
        let busy: Vec<_> = (0..4).map(|_| store.time()).collect();
        for done in futures_util::future::join_all(busy).await {
            done.unwrap();
        }
        end_sessions(&mut connection).await;
    }
    store.time().await.unwrap();
    assert!(store.statistics().reconnects >= 20);
}

#[tokio::test]
async fn a_session_that_is_ended_in_the_middle_of_a_statement_is_noticed_by_nobody() {
    let database = fresh().await;
    let store = open(&database, one).await;
    let (mut holder, mut connection) = (database.connect().await, database.connect().await);
    let mut held = holder.begin().await.unwrap();
    raw_sql("LOCK TABLE blocks IN ACCESS EXCLUSIVE MODE").execute(&mut *held).await.unwrap();
    let table = store.table.clone();
    let waiting = tokio::spawn(async move { table.run(Sql("SELECT FROM blocks")).await });
    waits_for_a_lock(&database).await;
    end_sessions(&mut connection).await;
    held.rollback().await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_connection_that_hangs_holds_nobody_and_no_place() {
    let cluster::Server::Own(server) = cluster::Server::shared() else { return };
    let database = fresh().await;
    let proxy = Proxy::before(server.port()).await;
    let store = open(&database, |options| {
        options.url = through(proxy.port, database.name());
        options.connections = 2;
        options.acquire_timeout = Duration::from_millis(500);
        options.statement_timeout = Duration::from_millis(500);
    })
    .await;
    store.time().await.unwrap();
    proxy.hang();
    // Far more calls than places, each in vain: with an answer, and within what time-outs allow.
    for _ in 0..3 {
        let calls = futures_util::future::join_all((0..20).map(|_| store.time()));
        for answer in tokio::time::timeout(Duration::from_secs(60), calls).await.expect("a call was held") {
            cause(answer.unwrap_err());
        }
    }
    proxy.go_on();
    let serving = async { while store.time().await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(60), serving).await.expect("it does not serve again");
    for answer in futures_util::future::join_all((0..20).map(|_| store.time())).await {
        answer.unwrap();
    }
    store.close().await;
    let gone = async {
        while proxy.open() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("a connection was left open");
}

#[tokio::test]
async fn a_read_that_nobody_waits_for_any_more_leaves_its_connection_usable() {
    let database = fresh().await;
    let store = open(&database, one).await;
    for turn in 0..50 {
        let read = store.table.read(Sql("BEGIN; SELECT pg_sleep(0.001); COMMIT"));
        let _ = tokio::time::timeout(Duration::from_micros(turn * 60), read).await;
        assert_eq!(store.keys().await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_transaction_that_was_not_ended_holds_no_lock() {
    let database = fresh().await;
    let store = open(&database, |_| {}).await;
    let mut connection = database.connect().await;
    raw_sql("SET lock_timeout = '60s'").execute(&mut connection).await.unwrap();
    for answers in [true, false] {
        assert_eq!(store.table.run(Forgets(answers)).await.is_ok(), answers);
        raw_sql("SELECT FROM blocks").execute(&mut connection).await.unwrap();
    }
}

#[tokio::test]
async fn what_others_were_in_the_way_of_runs_again_and_not_for_ever() {
    let database = fresh().await;
    let store = open(&database, one).await;
    let runs = Arc::new(AtomicU32::new(0));
    let third = Ends(Arc::clone(&runs), |run| if run < 3 { Err(Fault::Again("busy".to_owned())) } else { Ok(()) });
    store.table.run(third).await.unwrap();
    assert_eq!((runs.swap(0, Ordering::SeqCst), store.statistics().retries), (3, 2));
    let never = Ends(Arc::clone(&runs), |_| Err(Fault::Again("busy".to_owned())));
    assert_eq!(cause(store.table.run(never).await.unwrap_err()), "busy");
    assert_eq!(runs.swap(0, Ordering::SeqCst), 4);
    let broken = Ends(Arc::clone(&runs), |_| Err(Fault::Broken("cut".to_owned())));
    assert_eq!(cause(store.table.run(broken).await.unwrap_err()), "cut");
    assert_eq!(runs.swap(0, Ordering::SeqCst), 2);
    let panics = Ends(Arc::clone(&runs), |_| panic!("a fault of ours"));
    let error = store.table.run(panics).await.unwrap_err();
    assert!(matches!(error, StoreError::Inconsistent { .. }), "{error}");
    store.time().await.unwrap();
    assert_eq!(store.statistics().retries, 5);
}

#[tokio::test]
async fn a_constraint_is_no_outage() {
    let database = fresh().await;
    let store = open(&database, one).await;
    let twice = "INSERT INTO schema_lock VALUES (2)";
    let error = store.table.run(Sql(twice)).await.unwrap_err();
    assert!(matches!(error, StoreError::Inconsistent { .. }), "{error}");
    let error = store.table.run(Sql("SELECT FROM nowhere")).await.unwrap_err();
    assert!(matches!(error, StoreError::Inconsistent { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_restarts_is_served_from_again() {
    let server = cluster::Cluster::start();
    let store = PostgresStore::open(PostgresOptions {
        acquire_timeout: Duration::from_secs(30),
        ..PostgresOptions::new(server.url("postgres"))
    })
    .await
    .unwrap();
    for round in 0..2 {
        for answer in futures_util::future::join_all((0..8).map(|_| store.time())).await {
            answer.unwrap();
        }
        if round == 0 {
            server.restart();
        } else {
            server.stop_immediate();
        }
        if round == 1 {
            let later = async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                server.start_again();
            };
            // Who comes while it is away waits for it.
            let (answer, ()) = tokio::join!(store.time(), later);
            answer.unwrap();
        }
        for answer in futures_util::future::join_all((0..8).map(|_| store.time())).await {
            answer.unwrap();
        }
    }
    store.close().await;
}

#[tokio::test]
async fn closing_or_dropping_a_store_ends_every_session_and_task() {
    let database = fresh().await;
    let mut connection = database.connect().await;
    for closes in [true, false] {
        let store = open(&database, |_| {}).await;
        let mut changes = store.changes();
        store.time().await.unwrap();
        if closes {
            store.close().await;
            assert!(cause(store.time().await.unwrap_err()).contains("closed"));
        }
        drop(store);
        while changes.next().await.is_some() {}
        let others =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let gone = async {
            while query_scalar::<_, i64>(others).fetch_one(&mut connection).await.unwrap() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), gone).await.expect("a session was left");
    }
}
