//! What the suite needs to know of the database below it: here a SQLite file in the folder of its sidecar.

use crate::grpc::harness::{DATABASE, Sidecar};
use countersign::clock::Clock;
use countersign::config::Config;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _, SqliteConnection};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A connection of somebody else's.
pub type Connection = SqliteConnection;

/// Makes what a sidecar of this folder will open.
pub fn prepare(_folder: &Path) {}

/// Lets go of it.
pub fn forget(_folder: &Path) {}

/// Names the database of this folder.
pub fn configure(config: &mut Config, folder: &Path) {
    config.store.sqlite_mut().unwrap().path = folder.join(DATABASE);
}

/// Puts this clock in the place of the database's: a file has none of its own, and goes by that of its process.
pub fn keep_time(_config: &mut Config, _clock: Arc<dyn Clock>) {}

/// Somebody else at the same file: a backup tool, an operator's shell.
pub async fn intruder(sidecar: &Sidecar) -> Connection {
    SqliteConnectOptions::new().filename(sidecar.folder().join(DATABASE)).connect().await.unwrap()
}

pub async fn run(connection: &mut Connection, statement: &'static str) {
    sqlx::query(statement).execute(connection).await.unwrap();
}

/// Keeps everybody else from writing, until [`let_write`].
pub async fn hold_writes(connection: &mut Connection) {
    run(connection, "BEGIN IMMEDIATE").await;
}

pub async fn let_write(connection: &mut Connection) {
    run(connection, "ROLLBACK").await;
}

/// Keeps everybody from the table as far as can be, until [`bring_back`].
pub async fn take_away(sidecar: &Sidecar) -> Connection {
    let mut connection = intruder(sidecar).await;
    hold_writes(&mut connection).await;
    connection
}

pub async fn bring_back(_sidecar: &Sidecar, mut away: Connection) {
    let_write(&mut away).await;
    away.close().await.unwrap();
}

/// Lets no audit record be written, or none of this kind, until [`take_records`].
pub async fn refuse_records(connection: &mut Connection, kind: Option<&str>) {
    let when = kind.map(|kind| format!("WHEN NEW.kind = '{kind}' ")).unwrap_or_default();
    let trigger = format!(
        "CREATE TRIGGER full BEFORE INSERT ON audit_records {when}BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
    );
    sqlx::query(AssertSqlSafe(trigger)).execute(connection).await.unwrap();
}

pub async fn take_records(connection: &mut Connection) {
    run(connection, "DROP TRIGGER full").await;
}

/// Lets no execution of the conversation `poison` be written.
pub async fn refuse_poison(connection: &mut Connection) {
    run(
        connection,
        "CREATE TRIGGER poison BEFORE INSERT ON executions WHEN NEW.conversation = 'poison' \
         BEGIN SELECT RAISE(ABORT, 'no'); END",
    )
    .await;
}

/// Lets this connection write rows that no binary of ours would.
pub async fn without_checks(connection: &mut Connection) {
    run(connection, "PRAGMA ignore_check_constraints = ON").await;
}

/// Every row of every table, as text.
pub async fn every_row(sidecar: &Sidecar) -> BTreeMap<String, Vec<String>> {
    let mut other = intruder(sidecar).await;
    let tables = sqlx::query("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'");
    let names: Vec<String> =
        tables.fetch_all(&mut other).await.unwrap().iter().map(|row| row.get::<String, _>(0)).collect();
    let mut all = BTreeMap::new();
    for name in names {
        let columns = sqlx::query(AssertSqlSafe(format!("SELECT name FROM pragma_table_info('{name}')")));
        let columns: Vec<String> =
            columns.fetch_all(&mut other).await.unwrap().iter().map(|row| row.get::<String, _>(0)).collect();
        let quoted: Vec<String> = columns.iter().map(|column| format!("quote(\"{column}\")")).collect();
        let rows = sqlx::query(AssertSqlSafe(format!("SELECT {} FROM {name} ORDER BY 1", quoted.join("||'|'||"))));
        let rows = rows.fetch_all(&mut other).await.unwrap();
        all.insert(name, rows.iter().map(|row| row.get::<String, _>(0)).collect());
    }
    other.close().await.unwrap();
    all
}

/// What lets somebody into the database.
pub fn passwords(_folder: &Path) -> Vec<String> {
    Vec::new()
}

/// The bytes of the database below this folder, as far as they can be read just now, by the name of where.
pub fn bytes_of(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let of_the_database = |name: &String| name.starts_with(DATABASE) && !name.contains("secret");
    crate::grpc::harness::files(folder).into_iter().filter(|(name, _)| of_the_database(name)).collect()
}

/// Everything that is kept, by the name of where: each file of the folder.
pub async fn kept(sidecar: &Sidecar) -> Vec<(String, Vec<u8>)> {
    crate::grpc::harness::files(sidecar.folder())
}
