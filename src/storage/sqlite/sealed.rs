//! Sealed arguments: a row for every approval from its first instant on until they are erased, and at least for as long as
//! it is open.

use super::reads;
use crate::domain::ids::ApprovalId;
use crate::storage::{SealedArguments, StoreError, Viewer, WithArguments};
use sqlx::{Row as _, SqliteConnection, query};

const INSERT: &str = "INSERT INTO approval_arguments (approval_id, key_id, sealed) VALUES (?, ?, ?)";
const SELECT: &str = "SELECT key_id, sealed FROM approval_arguments WHERE approval_id = $1";
/// From one key to the next in the index, and never over the rows of a key.
const KEYS_IN_USE: &str = "WITH RECURSIVE used (key_id) AS (
        SELECT min(key_id) FROM approval_arguments
        UNION ALL
        SELECT (SELECT min(key_id) FROM approval_arguments WHERE key_id > used.key_id)
            FROM used WHERE used.key_id IS NOT NULL
    ) SELECT key_id FROM used WHERE key_id IS NOT NULL";

/// Every statement of this file that searches, for the test that looks at how each is run.
#[cfg(test)]
pub(super) const ALL: [&str; 2] = [SELECT, KEYS_IN_USE];

/// Keeps the arguments of a new approval.
pub(super) async fn insert(
    connection: &mut SqliteConnection,
    id: ApprovalId,
    arguments: &SealedArguments,
) -> Result<(), StoreError> {
    query(INSERT)
        .bind(id.to_string())
        .bind(arguments.key_id.clone())
        .bind(arguments.bytes.clone())
        .execute(connection)
        .await?;
    Ok(())
}

/// See `Store::arguments_seen_by`.
pub(super) async fn seen_by(
    connection: &mut SqliteConnection,
    id: ApprovalId,
    viewer: Viewer<'_>,
) -> Result<Option<WithArguments>, StoreError> {
    let Some(approval) = reads::approval_seen_by(connection, id, viewer).await? else { return Ok(None) };
    let corrupt = || StoreError::Corrupt { table: "approval_arguments", id: id.to_string() };
    let Some(row) = query(SELECT).bind(id.to_string()).fetch_optional(connection).await? else {
        // Only what is final is erased.
        approval.closed().ok_or_else(corrupt)?;
        return Ok(Some(WithArguments { approval, arguments: None }));
    };
    let key_id = row.try_get("key_id").map_err(|_| corrupt())?;
    let bytes: Vec<u8> = row.try_get("sealed").map_err(|_| corrupt())?;
    // Of what was asked before any arguments were kept, the row only says which secret the token is of.
    let arguments = (!bytes.is_empty()).then_some(SealedArguments { key_id, bytes });
    Ok(Some(WithArguments { approval, arguments }))
}

/// See `Store::keys_in_use`.
pub(super) async fn keys_in_use(connection: &mut SqliteConnection) -> Result<Vec<String>, StoreError> {
    let rows = query(KEYS_IN_USE).fetch_all(connection).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}
