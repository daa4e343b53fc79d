//! What one sidecar changes, another one tells: whatever becomes of notifications and connections.

use super::proxy::{Proxy, through};
use super::*;
use crate::domain::ids::ApprovalId;
use crate::storage::changes::{Changes, Told};
use crate::storage::conformance::{NO_LIMITS, approval_id, question_about, sealed_arguments};
use sqlx::{PgConnection, raw_sql};

/// No store is slower than this, on a machine that is not stuck.
const HEARD: Duration = Duration::from_secs(60);

async fn open(database: &cluster::Database, change: impl FnOnce(&mut PostgresOptions)) -> PostgresStore {
    let mut options = options(database, None);
    change(&mut options);
    PostgresStore::open(options).await.unwrap()
}

/// Whatever is looked for is found by then, long after the test.
fn never_looks(options: &mut PostgresOptions) {
    options.poll_every = Duration::from_secs(3_600);
}

fn never_notifies(options: &mut PostgresOptions) {
    options.notify = false;
}

async fn ask(store: &PostgresStore, about: &str) -> ApprovalId {
    let question = question_about(about);
    let new =
        NewApproval { id: approval_id(), question, request: None, arguments: sealed_arguments(), limits: NO_LIMITS };
    match store.request(new).await.unwrap().row {
        Requested::Created(approval) => approval.id,
        other => panic!("not created: {other:?}"),
    }
}

async fn heard(changes: &mut Changes, id: ApprovalId) {
    let hearing = async {
        loop {
            match changes.next().await {
                Some(Told::Touched(part)) if part.iter().any(|told| told.id == id) => return,
                Some(_) => {}
                None => panic!("the store is open"),
            }
        }
    };
    assert!(tokio::time::timeout(HEARD, hearing).await.is_ok(), "{id} was not told");
}

async fn sessions(connection: &mut PgConnection, name: &str) -> i64 {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1";
    query(count).bind(name).fetch_one(connection).await.unwrap().get(0)
}

/// Waits until a store that listens has looked once: what then is told without looking came by notification.
async fn listens(store: &PostgresStore, connection: &mut PgConnection) -> Changes {
    let mut changes = store.changes();
    while sessions(connection, "countersign listening").await == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // By another process that it does not know: found by its first look alone, or by one that a notice asks for.
    let id = ask(store, &format!("begin {}", approval_id())).await;
    heard(&mut changes, id).await;
    changes
}

#[tokio::test]
async fn a_notification_is_heard_without_looking() {
    let database = fresh().await;
    let (here, there) = (open(&database, never_looks).await, open(&database, never_looks).await);
    let mut changes = listens(&there, &mut database.connect().await).await;
    for round in 0..20 {
        let id = ask(&here, &format!("{round}")).await;
        heard(&mut changes, id).await;
    }
}

#[tokio::test]
async fn what_nobody_notified_of_is_found_by_looking() {
    let database = fresh().await;
    let (here, there) = (open(&database, never_notifies).await, open(&database, never_notifies).await);
    let mut changes = there.changes();
    for round in 0..5 {
        let id = ask(&here, &format!("{round}")).await;
        heard(&mut changes, id).await;
    }
    // Nobody listens for a while, and then somebody does again.
    drop(changes);
    ask(&here, "unheard").await;
    let mut changes = there.changes();
    let id = ask(&here, "heard").await;
    heard(&mut changes, id).await;
}

#[tokio::test]
async fn a_listening_session_that_is_ended_listens_again_and_reads_what_it_missed() {
    let database = fresh().await;
    let (here, there) = (open(&database, never_looks).await, open(&database, never_looks).await);
    let mut connection = database.connect().await;
    let mut changes = listens(&there, &mut connection).await;
    for round in 0..5 {
        let end = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name LIKE 'countersign %'";
        query(end).fetch_all(&mut connection).await.unwrap();
        let id = ask(&here, &format!("{round}")).await;
        heard(&mut changes, id).await;
    }
}

#[tokio::test]
async fn a_listening_connection_that_hangs_is_made_anew() {
    let cluster::Server::Own(server) = cluster::Server::shared() else { return };
    let database = fresh().await;
    let proxy = Proxy::before(server.port()).await;
    let here = open(&database, |_| {}).await;
    let there = open(&database, |options| {
        options.url = through(proxy.port, database.name());
        options.acquire_timeout = Duration::from_millis(500);
    })
    .await;
    let mut changes = listens(&there, &mut database.connect().await).await;
    for round in 0..3 {
        let open = proxy.open();
        proxy.hang();
        let id = ask(&here, &format!("{round}")).await;
        // It is noticed, and the connection that hangs is not kept.
        let noticed = async {
            while proxy.open() >= open {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(HEARD, noticed).await.expect("a connection that hangs was kept");
        proxy.go_on();
        heard(&mut changes, id).await;
    }
}

#[tokio::test]
async fn a_forged_notification_keeps_nothing_from_being_told() {
    let database = fresh().await;
    let (here, there) = (open(&database, |_| {}).await, open(&database, |_| {}).await);
    let mut connection = database.connect().await;
    let mut changes = listens(&there, &mut connection).await;
    let id = approval_id();
    for payload in [
        format!("{} {}:{}", uuid::Uuid::new_v4().simple(), id.uuid().simple(), u64::MAX),
        "many".to_owned(),
        "\u{1F4A3}".repeat(1_000),
        format!("{} many", uuid::Uuid::new_v4().simple()),
    ] {
        query("SELECT pg_notify('countersign:public', $1)").bind(payload).execute(&mut connection).await.unwrap();
    }
    let question = question_about("forged");
    let new = NewApproval { id, question, request: None, arguments: sealed_arguments(), limits: NO_LIMITS };
    let store = here;
    // The forged one may be told as well: the version that is in the table is what counts.
    store.request(new).await.unwrap();
    let told = async {
        loop {
            if let Some(Told::Touched(part)) = changes.next().await
                && part.iter().any(|told| told.id == id && told.version == 1)
            {
                return;
            }
        }
    };
    tokio::time::timeout(HEARD, told).await.expect("the approval was not told");
}

#[tokio::test]
async fn more_than_can_be_told_is_told_as_missed() {
    let database = fresh().await;
    let (here, there) = (open(&database, never_notifies).await, open(&database, never_notifies).await);
    let mut changes = there.changes();
    let id = ask(&here, "one").await;
    heard(&mut changes, id).await;
    // Of one time, which no look has behind it however long the copying takes; and without what that does not need.
    let copies = "DO $$ DECLARE name TEXT; BEGIN
            FOR name IN SELECT indexname FROM pg_indexes WHERE tablename = 'approvals'
                AND indexname NOT IN ('approvals_pkey', 'approvals_by_update')
            LOOP EXECUTE 'DROP INDEX ' || name; END LOOP; END $$;
        INSERT INTO approvals SELECT (jsonb_populate_record(a, jsonb_build_object(
            'id', 'ffffffff-ffff-7fff-8fff-' || lpad(to_hex(number), 12, '0'),
            'update_time', a.update_time + 3600000000))).* FROM approvals a, generate_series(1, 60000) AS number";
    raw_sql(copies).execute(&mut database.connect().await).await.unwrap();
    let missed = async { while changes.next().await != Some(Told::Lagged) {} };
    tokio::time::timeout(HEARD, missed).await.expect("it was not told that some were missed");
    let id = ask(&here, "another").await;
    heard(&mut changes, id).await;
}
