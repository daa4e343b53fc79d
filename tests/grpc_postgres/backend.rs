//! What the suite needs to know of the database below it: here one of a Postgres server, which the sidecars of a folder share.

use crate::cluster::Database;
use crate::grpc::harness::{SECRET, Sidecar, files};
use countersign::clock::Clock;
use countersign::config::{Config, PostgresSettings, StoreSettings};
use countersign::secrets::ServerSecret;
use countersign::storage::Store as _;
use countersign::storage::postgres::{PostgresStore, TlsMode};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A connection of somebody else's.
pub type Connection = PgConnection;

/// Whose database is which, by folder.
static DATABASES: Mutex<Option<HashMap<PathBuf, Arc<Database>>>> = Mutex::new(None);

fn databases<T>(with: impl FnOnce(&mut HashMap<PathBuf, Arc<Database>>) -> T) -> T {
    with(DATABASES.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

fn database(folder: &Path) -> Arc<Database> {
    databases(|databases| Arc::clone(&databases[folder]))
}

/// Makes what a sidecar of this folder will open, and the secret that it must be given.
pub fn prepare(folder: &Path) {
    // On a thread of its own: this may be one that runs futures.
    let making = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Database::fresh(async |url| {
            PostgresStore::open(settings(url, None).options()).await.unwrap().close().await;
        }))
    });
    let made = Arc::new(making.join().expect("a database is made"));
    databases(|databases| databases.insert(folder.to_owned(), made));
    ServerSecret::generate().unwrap().write(&folder.join(SECRET)).unwrap();
}

/// Lets go of it.
pub fn forget(folder: &Path) {
    let gone = databases(|databases| databases.remove(folder));
    drop(gone);
}

/// Gives another folder the same database and secret, as another machine has them.
pub fn share(folder: &Path, with: &Path) {
    let shared = database(folder);
    databases(|databases| databases.insert(with.to_owned(), shared));
    std::fs::copy(folder.join(SECRET), with.join(SECRET)).unwrap();
}

fn settings(url: String, password: Option<String>) -> PostgresSettings {
    PostgresSettings {
        password: password.map(zeroize::Zeroizing::new),
        tls: TlsMode::Prefer,
        // All that write may be held up at once in a test, and reads go on.
        connections: 12,
        // A machine that runs many tests at once is slow, not stuck.
        acquire_timeout: Duration::from_secs(30),
        poll_every: Duration::from_millis(100),
        ..PostgresSettings::at(url)
    }
}

/// Names the database of this folder.
pub fn configure(config: &mut Config, folder: &Path) {
    let database = database(folder);
    config.store = StoreSettings::Postgres(settings(database.url(), database.password()));
}

/// Puts this clock in the place of the database's.
pub fn keep_time(config: &mut Config, clock: Arc<dyn Clock>) {
    if let StoreSettings::Postgres(settings) = &mut config.store {
        settings.clock = Some(clock);
    }
}

/// Somebody else at the same database: an operator's shell.
pub async fn intruder(sidecar: &Sidecar) -> Connection {
    database(sidecar.folder()).connect().await
}

pub async fn run(connection: &mut Connection, statement: &'static str) {
    sqlx::raw_sql(statement).execute(connection).await.unwrap();
}

async fn tables(connection: &mut Connection) -> Vec<String> {
    let tables = sqlx::query(
        "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY relname",
    );
    tables.fetch_all(connection).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Keeps everybody else from writing, until [`let_write`].
pub async fn hold_writes(connection: &mut Connection) {
    let all = tables(connection).await.join(", ");
    let lock = format!("BEGIN; LOCK TABLE {all} IN EXCLUSIVE MODE");
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(connection).await.unwrap();
}

pub async fn let_write(connection: &mut Connection) {
    run(connection, "ROLLBACK").await;
}

/// What keeps a table away.
pub struct Away(Arc<Database>);

/// Keeps everybody from the table as far as can be, until [`bring_back`].
pub async fn take_away(sidecar: &Sidecar) -> Away {
    let database = database(sidecar.folder());
    database.shut().await;
    Away(database)
}

pub async fn bring_back(_sidecar: &Sidecar, away: Away) {
    away.0.open_again().await;
}

/// Lets no audit record be written, or none of this kind, until [`take_records`].
pub async fn refuse_records(connection: &mut Connection, kind: Option<&str>) {
    let when = kind.map(|kind| format!(" WHEN (NEW.kind = '{kind}')")).unwrap_or_default();
    let refuse = format!(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         RAISE EXCEPTION 'the disk is full' USING ERRCODE = 'disk_full'; END $$; \
         CREATE TRIGGER full_disk BEFORE INSERT ON audit_records FOR EACH ROW{when} EXECUTE FUNCTION full_disk()"
    );
    sqlx::raw_sql(AssertSqlSafe(refuse)).execute(connection).await.unwrap();
}

pub async fn take_records(connection: &mut Connection) {
    run(connection, "DROP TRIGGER full_disk ON audit_records; DROP FUNCTION full_disk()").await;
}

/// Lets no execution of the conversation `poison` be written.
pub async fn refuse_poison(connection: &mut Connection) {
    run(
        connection,
        "CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         RAISE EXCEPTION 'no' USING ERRCODE = 'disk_full'; END $$; \
         CREATE TRIGGER poison BEFORE INSERT ON executions FOR EACH ROW WHEN (NEW.conversation = 'poison') \
         EXECUTE FUNCTION poison()",
    )
    .await;
}

/// Lets rows be written that no binary of ours would write.
pub async fn without_checks(connection: &mut Connection) {
    run(
        connection,
        "DO $$ DECLARE named RECORD; BEGIN \
         FOR named IN SELECT conrelid::regclass AS owner, conname FROM pg_constraint \
             WHERE contype = 'c' AND connamespace = 'public'::regnamespace LOOP \
         EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', named.owner, named.conname); \
         END LOOP; END $$",
    )
    .await;
}

/// Every row of every table, as text.
pub async fn every_row(sidecar: &Sidecar) -> BTreeMap<String, Vec<String>> {
    let mut other = intruder(sidecar).await;
    let mut all = BTreeMap::new();
    for name in tables(&mut other).await {
        let select = format!("SELECT whole::text FROM {name} AS whole ORDER BY whole::text COLLATE \"C\"");
        let rows = sqlx::query(AssertSqlSafe(select)).fetch_all(&mut other).await.unwrap();
        all.insert(name, rows.iter().map(|row| row.get::<String, _>(0)).collect());
    }
    other.close().await.unwrap();
    all
}

/// What lets somebody into the database.
pub fn passwords(folder: &Path) -> Vec<String> {
    databases(|databases| databases.get(folder).and_then(|database| database.password())).into_iter().collect()
}

/// The bytes of the database below this folder, as far as they can be read just now, by the name of where.
pub fn bytes_of(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let Some(database) = databases(|databases| databases.get(folder).map(Arc::clone)) else { return Vec::new() };
    // On a thread of its own: this may be one that runs futures.
    let reading = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let looking = tokio::time::timeout(Duration::from_secs(5), whole_text(&database));
            looking.await.ok().and_then(Result::ok).unwrap_or_default()
        })
    });
    reading.join().unwrap_or_default()
}

/// Every row of every table as one text. A test may have shut the database, or hold its tables.
async fn whole_text(database: &Database) -> Result<Vec<(String, Vec<u8>)>, sqlx::Error> {
    let mut other = database.try_connect().await?;
    let mut all = Vec::new();
    for name in tables(&mut other).await {
        let select = format!("SELECT string_agg(whole::text, E'\\n') FROM {name} AS whole");
        let rows: Option<String> = sqlx::query_scalar(AssertSqlSafe(select)).fetch_one(&mut other).await?;
        all.push((name, rows.unwrap_or_default().into_bytes()));
    }
    other.close().await?;
    Ok(all)
}

/// Everything that is kept, by the name of where: each row, each value of bytes as it is, and each file of the folder.
pub async fn kept(sidecar: &Sidecar) -> Vec<(String, Vec<u8>)> {
    let mut kept = files(sidecar.folder());
    for (table, rows) in every_row(sidecar).await {
        kept.extend(rows.into_iter().map(|row| (table.clone(), row.into_bytes())));
    }
    let mut other = intruder(sidecar).await;
    let sealed = sqlx::query("SELECT sealed FROM approval_arguments").fetch_all(&mut other).await.unwrap();
    kept.extend(sealed.iter().map(|row| ("sealed arguments".to_owned(), row.get(0))));
    other.close().await.unwrap();
    kept
}
