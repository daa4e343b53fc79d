//! The migrations: embedded, append-only, each applied once, all in one transaction under one lock row.

use crate::storage::SchemaVersions;
use sqlx::{PgConnection, raw_sql};

pub(super) async fn migrate(connection: &mut PgConnection) -> Result<SchemaVersions, sqlx::Error> {
    for sql in [
        include_str!("migrations/0001_first.sql"),
        include_str!("migrations/0002_waits.sql"),
        include_str!("migrations/0003_backlog.sql"),
        include_str!("migrations/0004_shared.sql"),
    ] {
        raw_sql(sql).execute(&mut *connection).await?;
    }
    Ok(SchemaVersions { before: 0, after: 4 })
}
