//! What is refused when a database is opened, and what to do about it.

use super::proxy::{Pooler, Proxy, through};
use super::*;
use crate::storage::migrations::Migration;
use crate::storage::postgres::connecting::Connector;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, raw_sql};
use std::str::FromStr as _;

async fn run(connection: &mut PgConnection, sql: impl Into<String>) {
    raw_sql(AssertSqlSafe(sql.into())).execute(connection).await.unwrap();
}

/// A role of this database's own, which may log in and no more.
async fn role(database: &cluster::Database) -> String {
    let role = format!("{}_app", database.name());
    let mut connection = database.connect().await;
    run(&mut connection, format!("CREATE ROLE {role} LOGIN")).await;
    role
}

fn as_role(database: &cluster::Database, role: &str) -> PostgresOptions {
    let options = options(database, None);
    let (scheme, rest) = options.url.split_once("://").unwrap();
    let (_, place) = rest.split_once('@').unwrap();
    PostgresOptions { url: format!("{scheme}://{role}@{place}"), password: None, ..options }
}

async fn refusal(options: PostgresOptions) -> OpenError {
    match PostgresStore::open(options).await {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_with_its_place() {
    let nobodys = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let error = refusal(PostgresOptions::new(through(nobodys, "approvals"))).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{nobodys}/approvals")), "{error}");
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let database = cluster::Database::empty().await;
    let mut options = options(&database, None);
    options.url = options.url.replace(database.name(), "nowhere");
    let error = refusal(options).await;
    assert!(matches!(&error, OpenError::NoSuchDatabase { database, .. } if database == "nowhere"), "{error}");
}

#[tokio::test]
async fn a_role_that_is_not_known_is_refused_by_name() {
    let database = cluster::Database::empty().await;
    let error = refusal(as_role(&database, "stranger")).await;
    assert!(matches!(&error, OpenError::Refused { user, .. } if user == "stranger"), "{error}");
}

#[tokio::test]
async fn a_database_that_has_not_every_character_is_refused() {
    let database = cluster::Database::empty().await;
    let (mut connection, narrow) = (database.connect().await, format!("{}_narrow", database.name()));
    run(&mut connection, format!("CREATE DATABASE {narrow} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")).await;
    let mut options = options(&database, None);
    options.url = options.url.replace(database.name(), &narrow);
    let error = refusal(options).await;
    run(&mut connection, format!("DROP DATABASE {narrow} WITH (FORCE)")).await;
    assert!(matches!(&error, OpenError::NotUtf8 { encoding } if encoding == "SQL_ASCII"), "{error}");
}

#[tokio::test]
async fn a_role_whose_commits_may_be_lost_is_refused() {
    let database = fresh().await;
    let (role, mut connection) = (role(&database).await, database.connect().await);
    run(&mut connection, format!("ALTER ROLE {role} SET synchronous_commit = off")).await;
    let error = refusal(as_role(&database, &role)).await;
    assert!(matches!(error, OpenError::NotDurable), "{error}");
    run(&mut connection, format!("ALTER ROLE {role} RESET synchronous_commit")).await;
    run(&mut connection, format!("ALTER ROLE {role} SET default_transaction_read_only = on")).await;
    let error = refusal(as_role(&database, &role)).await;
    assert!(matches!(error, OpenError::ReadOnly { standby: false }), "{error}");
    run(&mut connection, format!("ALTER ROLE {role} RESET default_transaction_read_only")).await;
    run(&mut connection, format!("ALTER ROLE {role} SET search_path = nowhere")).await;
    let error = refusal(as_role(&database, &role)).await;
    assert!(matches!(error, OpenError::NoSchema), "{error}");
    run(&mut connection, format!("DROP ROLE {role}")).await;
}

#[tokio::test]
async fn what_a_role_is_set_to_does_not_reach_what_promises_rest_on() {
    let database = fresh().await;
    let mut connection = database.connect().await;
    for setting in [
        "default_transaction_isolation = 'serializable'",
        "TimeZone = 'Asia/Tokyo'",
        "statement_timeout = 0",
        "synchronous_commit = off",
    ] {
        run(&mut connection, format!("ALTER DATABASE {} SET {setting}", database.name())).await;
    }
    let connector = Connector::of(&options(&database, None), Duration::from_secs(1)).await.unwrap();
    let mut ours = connector.connect().await.unwrap();
    for (setting, want) in [
        ("default_transaction_isolation", "read committed"),
        ("TimeZone", "UTC"),
        ("statement_timeout", "30s"),
        ("lock_timeout", "24s"),
        ("idle_in_transaction_session_timeout", "2s"),
        ("synchronous_commit", "on"),
        ("client_connection_check_interval", "1s"),
        ("application_name", "countersign"),
    ] {
        let row = query("SELECT current_setting($1)").bind(setting).fetch_one(&mut ours).await.unwrap();
        assert_eq!(row.get::<String, _>(0), want, "{setting}");
    }
}

#[tokio::test]
async fn five_that_open_an_empty_database_at_once_all_serve() {
    for _ in 0..3 {
        let database = Arc::new(cluster::Database::empty().await);
        let opening: Vec<_> = (0..5)
            .map(|_| {
                let options = options(&database, None);
                tokio::spawn(async move { PostgresStore::open(options).await.unwrap() })
            })
            .collect();
        let mut made = 0;
        for opening in opening {
            let store = opening.await.unwrap();
            store.time().await.unwrap();
            assert_eq!(store.schema().after, schema::known());
            made += usize::from(store.schema().before == 0);
        }
        assert!(made >= 1);
        let mut connection = database.connect().await;
        let rows = query("SELECT version FROM schema_migrations ORDER BY version").fetch_all(&mut connection).await;
        let versions: Vec<i64> = rows.unwrap().iter().map(|row| row.get(0)).collect();
        assert_eq!(versions, (1..=schema::known()).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_role_that_may_change_no_table_serves_a_schema_that_is_up_to_date() {
    let database = fresh().await;
    let (role, mut connection) = (role(&database).await, database.connect().await);
    run(&mut connection, "REVOKE CREATE ON SCHEMA public FROM PUBLIC").await;
    run(&mut connection, format!("GRANT USAGE ON SCHEMA public TO {role}")).await;
    run(&mut connection, format!("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"))
        .await;
    run(&mut connection, format!("REVOKE ALL ON schema_lock, schema_migrations FROM {role}")).await;
    run(&mut connection, format!("GRANT SELECT ON schema_migrations TO {role}")).await;
    let store = PostgresStore::open(as_role(&database, &role)).await.unwrap();
    store.time().await.unwrap();
    store.close().await;
    run(&mut connection, format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test]
async fn a_schema_that_is_behind_is_migrated_by_whoever_may_and_was_asked_to() {
    let database = cluster::Database::empty().await;
    let (role, mut connection) = (role(&database).await, database.connect().await);
    run(&mut connection, "REVOKE CREATE ON SCHEMA public FROM PUBLIC").await;
    let error = refusal(as_role(&database, &role)).await;
    assert!(matches!(error, OpenError::SchemaBehind { found: 0, known: 6, cause: Some(_) }), "{error}");
    assert!(error.to_string().contains("countersign migrate"), "{error}");
    let error = refusal(PostgresOptions { migrate: false, ..options(&database, None) }).await;
    assert!(matches!(error, OpenError::SchemaBehind { found: 0, known: 6, cause: None }), "{error}");
    let tables = query("SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace");
    assert_eq!(tables.fetch_all(&mut connection).await.unwrap().len(), 0, "nothing was left behind");
    PostgresStore::open(options(&database, None)).await.unwrap().close().await;
    PostgresStore::open(PostgresOptions { migrate: false, ..options(&database, None) }).await.unwrap();
    run(&mut connection, format!("DROP ROLE {role}")).await;
}

#[tokio::test]
async fn the_tables_of_other_programs_are_left_alone() {
    let database = cluster::Database::empty().await;
    let mut connection = database.connect().await;
    for (sql, name) in [
        ("CREATE TABLE keys (id INT)", "keys"),
        ("CREATE VIEW approvals AS SELECT 1 AS id", "approvals"),
        ("CREATE TABLE schema_migrations (version BIGINT, dirty BOOLEAN)", "schema_migrations"),
    ] {
        run(&mut connection, sql).await;
        let error = refusal(options(&database, None)).await;
        assert!(matches!(&error, OpenError::Foreign { table } if table == name), "{error}");
        run(&mut connection, "DROP SCHEMA public CASCADE; CREATE SCHEMA public").await;
    }
    run(&mut connection, "CREATE TABLE orders (id INT)").await;
    PostgresStore::open(options(&database, None)).await.unwrap();
}

#[tokio::test]
async fn a_newer_schema_and_a_changed_migration_are_refused() {
    let database = fresh().await;
    let mut connection = database.connect().await;
    run(&mut connection, "INSERT INTO schema_migrations VALUES (7, '0007_next', 'x', 5, 0)").await;
    PostgresStore::open(options(&database, None)).await.unwrap();
    run(&mut connection, "INSERT INTO schema_migrations VALUES (8, '0008_far', 'x', 8, 0)").await;
    let error = refusal(options(&database, None)).await;
    assert!(matches!(error, OpenError::SchemaNewer { found: 8, compatible_from: 8, known: 6 }), "{error}");
    run(&mut connection, "DELETE FROM schema_migrations WHERE version > 6").await;
    run(&mut connection, "UPDATE schema_migrations SET checksum = 'x' WHERE version = 2").await;
    let error = refusal(options(&database, None)).await;
    assert!(matches!(&error, OpenError::MigrationChanged { version: 2, name } if name == "0002_waits"), "{error}");
}

const A: Migration = Migration { version: 1, name: "0001_a", sql: "CREATE TABLE a (x INT);", compatible_from: 1 };
const B: Migration = Migration {
    version: 2,
    name: "0002_b",
    sql: "CREATE TABLE b (x INT); ALTER TABLE a ADD COLUMN y TEXT;",
    compatible_from: 1,
};

async fn settle(
    database: &cluster::Database,
    migrations: &[Migration],
    patience: Duration,
) -> Result<SchemaVersions, OpenError> {
    let connector = Connector::of(&options(database, None), patience).await?;
    let mut connection = connector.connect().await.unwrap();
    schema::settle(&connector, &mut connection, migrations, true, None).await
}

#[tokio::test]
async fn each_migration_is_applied_once_and_a_failing_one_leaves_nothing_behind() {
    let database = cluster::Database::empty().await;
    let patience = Duration::from_secs(30);
    let from_to = |before, after| SchemaVersions { before, after };
    assert_eq!(settle(&database, &[A], patience).await.unwrap(), from_to(0, 1));
    let broken = Migration { sql: "CREATE TABLE b (x INT); INSERT INTO nowhere VALUES (1);", ..B };
    settle(&database, &[A, broken], patience).await.unwrap_err();
    assert_eq!(settle(&database, &[A, B], patience).await.unwrap(), from_to(1, 2));
    assert_eq!(settle(&database, &[A, B], patience).await.unwrap(), from_to(2, 2));
    assert_eq!(settle(&database, &[A], patience).await.unwrap(), from_to(2, 2), "a newer schema stays");
    run(&mut database.connect().await, "INSERT INTO a (x, y) VALUES (1, 'y'); INSERT INTO b VALUES (1)").await;
}

#[tokio::test]
async fn whoever_holds_the_lock_of_the_migrations_is_waited_for_and_not_for_ever() {
    let database = cluster::Database::empty().await;
    settle(&database, &[A], Duration::from_secs(30)).await.unwrap();
    let mut holder = database.connect().await;
    let mut held = holder.begin().await.unwrap();
    raw_sql("SELECT id FROM schema_lock FOR UPDATE").execute(&mut *held).await.unwrap();
    let error = settle(&database, &[A, B], Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(error, OpenError::MigrationLocked { .. }), "{error}");
    let waiting = settle(&database, &[A, B], Duration::from_secs(30));
    let releasing = async {
        tokio::task::yield_now().await;
        held.rollback().await.unwrap();
    };
    assert_eq!(tokio::join!(waiting, releasing).0.unwrap(), SchemaVersions { before: 1, after: 2 });
}

#[tokio::test]
async fn a_standby_is_refused() {
    let server = cluster::Cluster::start();
    PostgresStore::open(PostgresOptions::new(server.url("postgres"))).await.unwrap().close().await;
    let admin = PgConnectOptions::from_str(&server.url("postgres")).unwrap();
    let mut connection = admin.connect().await.unwrap();
    let data: String = query("SHOW data_directory").fetch_one(&mut connection).await.unwrap().get(0);
    connection.close().await.unwrap();
    std::fs::write(std::path::Path::new(&data).join("standby.signal"), "").unwrap();
    server.restart();
    let error = refusal(PostgresOptions::new(server.url("postgres"))).await;
    assert!(matches!(error, OpenError::ReadOnly { standby: true }), "{error}");
}

#[tokio::test]
async fn a_database_that_stops_answering_is_waited_for_no_longer_than_a_statement() {
    let cluster::Server::Own(server) = cluster::Server::shared() else { return };
    let database = fresh().await;
    let proxy = Proxy::before(server.port()).await;
    proxy.hang();
    let options = PostgresOptions {
        url: through(proxy.port, database.name()),
        acquire_timeout: Duration::from_millis(200),
        ..options(&database, None)
    };
    let error = refusal(options).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_pool_that_gives_connections_out_between_transactions_is_refused() {
    let cluster::Server::Own(server) = cluster::Server::shared() else { return };
    let database = fresh().await;
    let pooler = Pooler::before(server.port()).await;
    let url = through(pooler.port, database.name());
    let error = refusal(PostgresOptions { url, ..options(&database, None) }).await;
    assert!(matches!(error, OpenError::TransactionPooling), "{error}");
}
