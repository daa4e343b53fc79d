//! The role that `deploy/postgres/role.sql` makes is enough to serve with, and not for more.

use crate::backend::intruder;
use crate::grpc::audit::everything;
use crate::grpc::harness::*;
use crate::grpc::moves::*;
use countersign::config::StoreSettings;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use std::time::Duration;

const ROLE: &str = include_str!("../../deploy/postgres/role.sql");
/// What the roles are called in the file.
const NAME: &str = "countersign";

/// Makes a role of this name, which may do what the file says of `countersign` in the database of this connection.
async fn made(owner: &mut PgConnection, name: &str, also: &str) {
    let make = format!("CREATE ROLE {name} LOGIN PASSWORD '{name}'");
    sqlx::raw_sql(AssertSqlSafe(make)).execute(&mut *owner).await.unwrap();
    let grants = ROLE.replace(&format!("TO {NAME};"), &format!("TO {name};"));
    let grants = grants.replace(&format!("TO {NAME}'"), &format!("TO {name}'"));
    let grants = grants.replace(&format!("FROM {NAME}, "), &format!("FROM {name}, "));
    let grants = grants.replace(&format!("('{NAME}', "), &format!("('{name}', "));
    let grants = grants.replace(also, also.trim_start_matches("-- "));
    // As often as one likes.
    for _ in 0..2 {
        sqlx::raw_sql(AssertSqlSafe(grants.clone())).execute(&mut *owner).await.unwrap();
    }
}

/// Starts the sidecar again as that role.
async fn serve_as(sidecar: &mut Sidecar, name: &str, change: impl FnOnce(&mut countersign::config::Config)) {
    let started = sidecar.restart_with(|config| {
        let StoreSettings::Postgres(settings) = &mut config.store else { panic!("no Postgres") };
        let (_, rest) = settings.url.split_once('@').unwrap();
        settings.url = format!("postgres://{name}@{rest}");
        settings.password = Some(zeroize::Zeroizing::new(name.to_owned()));
        settings.migrate = false;
        change(config);
    });
    started.await.unwrap();
}

async fn gone(owner: &mut PgConnection, name: &str) {
    let drop = format!("DROP OWNED BY {name}; DROP ROLE {name}");
    sqlx::raw_sql(AssertSqlSafe(drop)).execute(owner).await.unwrap();
}

#[tokio::test]
async fn the_role_of_a_sidecar_is_enough_for_everything_that_it_does() {
    let mut sidecar = Sidecar::start().await;
    let mut owner = intruder(&sidecar).await;
    let name = format!("countersign_role_{}_everything", std::process::id());
    made(&mut owner, &name, "").await;
    serve_as(&mut sidecar, &name, |_| {}).await;
    everything(&sidecar).await;
    sidecar.still_tells_the_story().await;
    sidecar.ask(in_conversation("nobody answers")).await;
    let (_, token) = sidecar.approved(in_conversation("nobody reports")).await;
    sidecar.consume(&token, in_conversation("nobody reports")).await.unwrap();
    // Everything that is over is written down, emptied, and deleted but for the audit.
    sidecar.advance(Duration::from_secs(400 * 24 * 60 * 60));
    let swept = sidecar.sweep().await;
    assert!(swept.expired > 0 && swept.timed_out > 0 && swept.erased > 0 && swept.deleted > 0, "{swept:?}");
    assert!(!sidecar.audit().await.is_empty());

    let mut served = as_role(&sidecar, &name).await;
    for refused in [
        "UPDATE audit_records SET kind = 'execution.started'",
        "DELETE FROM audit_records",
        "TRUNCATE audit_records",
        "UPDATE approval_decisions SET verdict = 'approve'",
        "UPDATE approval_arguments SET key_id = 'x'",
        "DELETE FROM keys",
        "UPDATE keys SET check_value = 'x'",
        "INSERT INTO blocks SELECT * FROM blocks",
        "INSERT INTO schema_migrations SELECT * FROM schema_migrations",
        "CREATE TABLE mine (id BIGINT)",
        "CREATE TEMPORARY TABLE mine (id BIGINT)",
        "CREATE FUNCTION store_now(given TEXT) RETURNS BIGINT LANGUAGE sql RETURN 1",
        "CREATE SCHEMA mine",
        "ALTER TABLE approvals ADD COLUMN mine TEXT",
        "DROP TABLE approvals",
    ] {
        let problem = sqlx::raw_sql(refused).execute(&mut served).await.expect_err(refused);
        let code = problem.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned());
        assert_eq!(code.as_deref(), Some("42501"), "{refused}: {problem}");
    }
    served.close().await.unwrap();
    sidecar.stop().await;
    gone(&mut owner, &name).await;
    owner.close().await.unwrap();
}

#[tokio::test]
async fn with_what_is_said_beside_it_the_audit_is_shortened_too() {
    let mut sidecar = Sidecar::start().await;
    let mut owner = intruder(&sidecar).await;
    let name = format!("countersign_role_{}_audit", std::process::id());
    let line = ROLE.lines().find(|line| line.starts_with("-- GRANT DELETE")).unwrap();
    made(&mut owner, &name, &line.replace(&format!("TO {NAME};"), &format!("TO {name};"))).await;
    serve_as(&mut sidecar, &name, |config| config.retention.audit_records = Some(Duration::from_secs(60))).await;
    sidecar.ask(email()).await;
    sidecar.advance(Duration::from_secs(24 * 60 * 60));
    // What may be deleted is signed first.
    for _ in 0..2 {
        sidecar.running().sealer().checkpoint_now().await.unwrap();
    }
    assert!(sidecar.sweep().await.deleted > 0);
    sidecar.stop().await;
    gone(&mut owner, &name).await;
    owner.close().await.unwrap();
}

/// A connection to the sidecar's database with what the role has.
async fn as_role(sidecar: &Sidecar, name: &str) -> PgConnection {
    let mut connection = intruder(sidecar).await;
    sqlx::raw_sql(AssertSqlSafe(format!("SET SESSION AUTHORIZATION {name}"))).execute(&mut connection).await.unwrap();
    connection
}
