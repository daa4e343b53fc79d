//! The statements of the log of seals. What is written comes behind all others, as upkeep does.

use super::sweeps::{room, slice_rest};
use super::writer::{Counters, Write};
use super::{SqliteStore, finish, reads};
use crate::domain::audit::leaf::StoredRecord;
use crate::domain::audit::log::{AuditLog, Sealing, StoredCheckpoint};
use crate::domain::audit::tree::Hash;
use crate::domain::hex::hex;
use crate::domain::time::Timestamp;
use crate::storage::changes::Touched;
use crate::storage::rows::{self, event_columns};
use crate::storage::seals::{
    self, AuditEntry, CheckpointQuery, LogRows, LogStanding, SealPass, SealStore, Sealed, SealedSlice,
};
use crate::storage::{Loaded, StoreError};
use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;
use sqlx::{Connection as _, Row as _, SqliteConnection, query};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

const LOG: &str = "SELECT origin, size, frontier, sealed_to, gaps, deleted_below, lease_holder, lease_until
    FROM audit_log WHERE id = 1";
const BEGIN_LOG: &str = "INSERT INTO audit_log (id, origin, size, frontier, sealed_to, gaps, deleted_below)
    VALUES (1, $1, 0, '[]', 0, '[]', 0) ON CONFLICT (id) DO NOTHING";
const SAVE_LOG: &str = "UPDATE audit_log SET size = $1, frontier = $2, sealed_to = $3, gaps = $4, deleted_below = $5,
    lease_holder = $6, lease_until = $7 WHERE id = 1 AND size = $8";
/// The first record above what is sealed, and one where one was missing: a few are looked at.
const OLDEST: &str = "SELECT min(time) AS oldest FROM (SELECT time FROM (SELECT time FROM audit_records
        WHERE position > $1 ORDER BY position LIMIT 1)
    UNION ALL SELECT time FROM (SELECT noted.time AS time FROM json_each($2) AS gap
        CROSS JOIN audit_records noted ON noted.position BETWEEN gap.value ->> 0 AND gap.value ->> 1 LIMIT 16))";
const AFTER: &str = concat!(
    "SELECT position, id, time, ",
    event_columns!(),
    ", leaf FROM (SELECT position, id, time, ",
    event_columns!(),
    " FROM audit_records WHERE position > $1 ORDER BY position LIMIT $2) LEFT JOIN audit_seals \
     ON record_position = position ORDER BY position"
);
const WITHIN: &str = concat!(
    "SELECT position, audit_records.id AS id, time, ",
    event_columns!(),
    ", leaf FROM json_each($1) AS gap \
     CROSS JOIN audit_records ON position BETWEEN gap.value ->> 0 AND gap.value ->> 1 \
     LEFT JOIN audit_seals ON record_position = position LIMIT $2"
);
const INSERT_SEALS: &str = "INSERT INTO audit_seals (leaf, record_position, record_id, leaf_hash)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each($1)";
const INSERT_NODES: &str = "INSERT INTO audit_nodes (level, place, node_hash)
    SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each($1)";
const LOOK: &str = "SELECT position, leaf FROM (SELECT position FROM audit_records WHERE position > $1
    AND position <= (SELECT sealed_to FROM audit_log WHERE id = 1) ORDER BY position LIMIT $2)
    LEFT JOIN audit_seals ON record_position = position ORDER BY position";
const ENTRIES: &str = concat!(
    "SELECT leaf, record_position, record_id, leaf_hash, position, id, time, ",
    event_columns!(),
    " FROM (SELECT leaf, record_position, record_id, leaf_hash FROM audit_seals WHERE leaf >= $1 ORDER BY leaf LIMIT $2) \
     LEFT JOIN audit_records ON position = record_position ORDER BY leaf"
);
const ENTRY_OF: &str = concat!(
    "SELECT leaf, record_position, record_id, leaf_hash, position, id, time, ",
    event_columns!(),
    " FROM (SELECT leaf, record_position, record_id, leaf_hash FROM audit_seals WHERE record_id = $1 ORDER BY leaf LIMIT 1) \
     LEFT JOIN audit_records ON position = record_position"
);
const LEAVES: &str =
    "SELECT leaf AS place, leaf_hash AS hash FROM audit_seals WHERE leaf >= $1 AND leaf < $2 ORDER BY leaf";
const NODES: &str = "SELECT place, node_hash AS hash FROM audit_nodes
    WHERE level = $3 AND place >= $1 AND place < $2 ORDER BY place";
const CHECKPOINTS_AFTER: &str = "SELECT sequence, size, deleted_below, time, key_id, note FROM audit_checkpoints
    WHERE sequence > $1 ORDER BY sequence LIMIT $2";
const CHECKPOINTS_BEFORE: &str = "SELECT sequence, size, deleted_below, time, key_id, note FROM audit_checkpoints
    WHERE sequence < $1 ORDER BY sequence DESC LIMIT $2";
const CHECKPOINTS_OF_SIZE: &str = "SELECT sequence, size, deleted_below, time, key_id, note FROM audit_checkpoints
    WHERE size = $1 ORDER BY sequence DESC LIMIT $2";
const INSERT_CHECKPOINT: &str =
    "INSERT INTO audit_checkpoints (size, deleted_below, time, key_id, note) VALUES ($1, $2, $3, $4, $5)";

/// Every statement of this file that searches, for the test that looks at how each is run.
#[cfg(test)]
pub(super) const ALL: [&str; 13] = [
    LOG,
    SAVE_LOG,
    OLDEST,
    AFTER,
    WITHIN,
    LOOK,
    ENTRIES,
    ENTRY_OF,
    LEAVES,
    NODES,
    CHECKPOINTS_AFTER,
    CHECKPOINTS_BEFORE,
    CHECKPOINTS_OF_SIZE,
];

/// Whoever held the lease is gone: the file has one process, which has just opened it.
const LET_GO: &str =
    "UPDATE audit_log SET lease_holder = NULL, lease_until = NULL WHERE id = 1 AND lease_holder IS NOT NULL";

/// Lets nobody hold the log.
pub(super) async fn let_go(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    query(LET_GO).execute(connection).await.map(drop)
}

/// The rows of one transaction.
struct TransactionRows<'a> {
    connection: &'a mut SqliteConnection,
    now: Timestamp,
}

/// A record, and whether it has a seal.
fn record(row: &SqliteRow) -> Result<(StoredRecord, bool), StoreError> {
    let leaf: Option<i64> = row.try_get("leaf")?;
    Ok((rows::stored_record(row)?, leaf.is_some()))
}

#[async_trait]
impl LogRows for TransactionRows<'_> {
    type Fault = StoreError;

    fn now(&self) -> Timestamp {
        self.now
    }

    async fn log(&mut self) -> Result<Option<AuditLog>, StoreError> {
        let row = query(LOG).fetch_optional(&mut *self.connection).await?;
        row.as_ref().map(rows::audit_log).transpose()
    }

    async fn after(&mut self, position: i64, limit: u32) -> Result<Vec<(StoredRecord, bool)>, StoreError> {
        let found = query(AFTER).bind(position).bind(i64::from(limit)).fetch_all(&mut *self.connection).await?;
        found.iter().map(record).collect()
    }

    async fn within(&mut self, ranges: &[(i64, i64)], limit: u32) -> Result<Vec<(StoredRecord, bool)>, StoreError> {
        let ranges = rows::list(&ranges);
        let found = query(WITHIN).bind(ranges).bind(i64::from(limit)).fetch_all(&mut *self.connection).await?;
        found.iter().map(record).collect()
    }

    async fn insert(&mut self, sealing: &Sealing) -> Result<(), StoreError> {
        let seals: Vec<_> =
            sealing.seals.iter().map(|seal| (seal.leaf, seal.position, &seal.record_id, hex(&seal.hash))).collect();
        query(INSERT_SEALS).bind(rows::list(&seals)).execute(&mut *self.connection).await?;
        if !sealing.nodes.is_empty() {
            let nodes: Vec<_> = sealing.nodes.iter().map(|node| (node.level, node.index, hex(&node.hash))).collect();
            query(INSERT_NODES).bind(rows::list(&nodes)).execute(&mut *self.connection).await?;
        }
        Ok(())
    }

    async fn save(&mut self, log: &AuditLog, size: u64) -> Result<bool, StoreError> {
        let saved = rows::bind_log(query(SAVE_LOG), log).bind(rows::integer(size));
        Ok(saved.execute(&mut *self.connection).await?.rows_affected() == 1)
    }

    async fn insert_checkpoint(&mut self, checkpoint: &StoredCheckpoint) -> Result<(), StoreError> {
        query(INSERT_CHECKPOINT)
            .bind(rows::integer(checkpoint.size))
            .bind(rows::integer(checkpoint.deleted_below))
            .bind(checkpoint.time.micros())
            .bind(checkpoint.key_id.clone())
            .bind(checkpoint.note.clone())
            .execute(&mut *self.connection)
            .await?;
        Ok(())
    }
}

struct BeginLog(String);

#[async_trait]
impl Write for BeginLog {
    type Answer = ();

    async fn run(&self, connection: &mut SqliteConnection, _: Timestamp, _: &mut Touched) -> Result<(), StoreError> {
        query(BEGIN_LOG).bind(self.0.clone()).execute(connection).await?;
        Ok(())
    }
}

struct SealSlice {
    pass: SealPass,
    counters: Arc<Counters>,
}

#[async_trait]
impl Write for SealSlice {
    type Answer = Loaded<SealedSlice>;

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        now: Timestamp,
        _: &mut Touched,
    ) -> Result<Self::Answer, StoreError> {
        let started = Instant::now();
        let sealed: Sealed = seals::seal(&mut TransactionRows { connection, now }, &self.pass).await?;
        let elapsed = started.elapsed();
        let (room, rest) = (room(&self.counters), slice_rest(elapsed));
        Ok(Loaded { row: SealedSlice { sealed, elapsed, room, rest }, now })
    }
}

struct AddCheckpoint {
    holder: String,
    origin: String,
    checkpoint: StoredCheckpoint,
}

#[async_trait]
impl Write for AddCheckpoint {
    type Answer = bool;

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        now: Timestamp,
        _: &mut Touched,
    ) -> Result<bool, StoreError> {
        let rows = &mut TransactionRows { connection, now };
        seals::add_checkpoint(rows, &self.holder, &self.origin, &self.checkpoint).await
    }
}

impl SqliteStore {
    /// Runs one statement that reads.
    async fn found(&self, statement: super::values::Statement<'_>) -> Result<Vec<SqliteRow>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self.within(async { Ok(statement.fetch_all(&mut *reader).await?) }).await;
        finish(reader, outcome)
    }
}

#[async_trait]
impl SealStore for SqliteStore {
    async fn audit_log(&self) -> Result<Loaded<Option<LogStanding>>, StoreError> {
        let mut reader = self.reader().await?;
        let outcome = self
            .within(async {
                let mut transaction = reader.begin().await?;
                reads::touch(&mut transaction).await?;
                let now = self.time.now();
                let log = TransactionRows { connection: &mut transaction, now }.log().await?;
                let Some(log) = log else { return Ok(Loaded { row: None, now }) };
                let oldest = query(OLDEST).bind(log.sealed_to).bind(rows::gaps_text(&log));
                let oldest: Option<i64> = oldest.fetch_one(&mut *transaction).await?.try_get("oldest")?;
                let row = Some(LogStanding { log, oldest_unsealed: oldest.map(Timestamp::from_micros) });
                Ok(Loaded { row, now })
            })
            .await;
        finish(reader, outcome)
    }

    async fn begin_audit_log(&self, origin: &str) -> Result<(), StoreError> {
        self.writer()?.write_behind(BeginLog(origin.to_owned())).await
    }

    async fn seal(&self, pass: SealPass) -> Result<Loaded<SealedSlice>, StoreError> {
        self.writer()?.write_behind(SealSlice { pass, counters: Arc::clone(&self.counters) }).await
    }

    async fn look_for_unsealed(&self, after: i64, limit: u32) -> Result<(Vec<i64>, Option<i64>), StoreError> {
        let found = self.found(query(LOOK).bind(after).bind(i64::from(limit))).await?;
        let mut unsealed = Vec::new();
        let mut last = None;
        for row in &found {
            let (position, leaf): (i64, Option<i64>) = (row.try_get("position")?, row.try_get("leaf")?);
            if leaf.is_none() {
                unsealed.push(position);
            }
            last = Some(position);
        }
        Ok((unsealed, last))
    }

    async fn records_after(&self, after: i64, limit: u32) -> Result<Vec<(StoredRecord, bool)>, StoreError> {
        let found = self.found(query(AFTER).bind(after).bind(i64::from(limit))).await?;
        found.iter().map(record).collect()
    }

    async fn audit_entries(&self, from: u64, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        let found = self.found(query(ENTRIES).bind(rows::integer(from)).bind(i64::from(limit))).await?;
        found.iter().map(rows::audit_entry).collect()
    }

    async fn audit_entry_of(&self, record_id: &str) -> Result<Option<AuditEntry>, StoreError> {
        let found = self.found(query(ENTRY_OF).bind(record_id.to_owned())).await?;
        found.first().map(rows::audit_entry).transpose()
    }

    async fn audit_hashes(&self, level: u8, first: u64, count: u32) -> Result<BTreeMap<u64, Hash>, StoreError> {
        let end = first.saturating_add(u64::from(count));
        let statement = if level == 0 { query(LEAVES) } else { query(NODES) };
        let mut statement = statement.bind(rows::integer(first)).bind(rows::integer(end));
        if level > 0 {
            statement = statement.bind(i64::from(level));
        }
        self.found(statement).await?.iter().map(rows::audit_hash).collect()
    }

    async fn audit_checkpoints(
        &self,
        wanted: CheckpointQuery,
        limit: u32,
    ) -> Result<Vec<(i64, StoredCheckpoint)>, StoreError> {
        let statement = match wanted {
            CheckpointQuery::After(sequence) => query(CHECKPOINTS_AFTER).bind(sequence),
            CheckpointQuery::Before(sequence) => query(CHECKPOINTS_BEFORE).bind(sequence.unwrap_or(i64::MAX)),
            CheckpointQuery::OfSize(size) => query(CHECKPOINTS_OF_SIZE).bind(rows::integer(size)),
        };
        self.found(statement.bind(i64::from(limit))).await?.iter().map(rows::checkpoint).collect()
    }

    async fn add_checkpoint(
        &self,
        holder: &str,
        origin: &str,
        checkpoint: StoredCheckpoint,
    ) -> Result<bool, StoreError> {
        let (holder, origin) = (holder.to_owned(), origin.to_owned());
        self.writer()?.write_behind(AddCheckpoint { holder, origin, checkpoint }).await
    }
}
