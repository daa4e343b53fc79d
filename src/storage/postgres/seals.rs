//! The statements of the log of seals. Whoever seals holds the row of the log until it is done, so that there is one chain,
//! however many try.

use super::PostgresStore;
use super::reads::{present, store_now, timed};
use super::table::{Fault, Operation};
use super::time::TableTime;
use super::transaction::{begin, now};
use super::values::Batch;
use crate::domain::audit::leaf::StoredRecord;
use crate::domain::audit::log::{AuditLog, Sealing, StoredCheckpoint};
use crate::domain::audit::tree::Hash;
use crate::domain::hex::hex;
use crate::domain::time::Timestamp;
use crate::storage::changes::Touched;
use crate::storage::rows::{self, Bind as _, Columns as _, event_columns};
use crate::storage::seals::{
    self, AuditEntry, CheckpointQuery, LogRows, LogStanding, SealPass, SealStore, SealedSlice,
};
use crate::storage::{Loaded, StoreError};
use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, query};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a slice may take: see the sweeps.
const ROOM: Duration = Duration::from_millis(6);

macro_rules! log_columns {
    () => {
        "origin, size, frontier, sealed_to, gaps, deleted_below, lease_holder, lease_until"
    };
}

const LOG: &str = concat!(
    "SELECT store_now, ",
    log_columns!(),
    " FROM (SELECT store_now($1) AS store_now) clock LEFT JOIN audit_log ON audit_log.id = 1"
);
const LOCK_LOG: &str = concat!("SELECT ", log_columns!(), " FROM audit_log WHERE id = 1 FOR NO KEY UPDATE");
const BEGIN_LOG: &str = "INSERT INTO audit_log (id, origin, size, frontier, sealed_to, gaps, deleted_below)
    VALUES (1, $1, 0, '[]', 0, '[]', 0) ON CONFLICT (id) DO NOTHING";
const SAVE_LOG: &str = "UPDATE audit_log SET size = $1, frontier = $2, sealed_to = $3, gaps = $4, deleted_below = $5,
    lease_holder = $6, lease_until = $7 WHERE id = 1 AND size = $8";
/// The first record above what is sealed, and one where one was missing: a few are looked at.
const OLDEST: &str = "SELECT min(time) AS oldest FROM (
    (SELECT time FROM audit_records WHERE position > $1 ORDER BY position LIMIT 1)
    UNION ALL
    (SELECT noted.time FROM unnest($2::BIGINT[], $3::BIGINT[]) AS gap (first, last)
        JOIN audit_records noted ON noted.position BETWEEN gap.first AND gap.last LIMIT 16)) unsealed";
const AFTER: &str = concat!(
    "SELECT position, id, time, ",
    event_columns!(),
    ", leaf FROM (SELECT position, id, time, ",
    event_columns!(),
    " FROM audit_records WHERE position > $1 ORDER BY position LIMIT $2) noted LEFT JOIN audit_seals \
     ON record_position = position ORDER BY position"
);
const WITHIN: &str = concat!(
    "SELECT position, id, time, ",
    event_columns!(),
    ", leaf FROM unnest($1::BIGINT[], $2::BIGINT[]) AS gap (first, last) \
     JOIN audit_records ON position BETWEEN gap.first AND gap.last \
     LEFT JOIN audit_seals ON record_position = position LIMIT $3"
);
const INSERT_SEALS: &str = "INSERT INTO audit_seals (leaf, record_position, record_id, leaf_hash)
    SELECT leaf, record_position, record_id, leaf_hash
    FROM unnest($1::BIGINT[], $2::BIGINT[], $3::TEXT[], $4::TEXT[]) AS seal (leaf, record_position, record_id, leaf_hash)";
const INSERT_NODES: &str = "INSERT INTO audit_nodes (level, place, node_hash)
    SELECT level, place, node_hash FROM unnest($1::BIGINT[], $2::BIGINT[], $3::TEXT[]) AS node (level, place, node_hash)";
const LOOK: &str = "SELECT position, leaf FROM (SELECT position FROM audit_records WHERE position > $1
    AND position <= (SELECT sealed_to FROM audit_log WHERE id = 1) ORDER BY position LIMIT $2) noted
    LEFT JOIN audit_seals ON record_position = position ORDER BY position";
const ENTRIES: &str = concat!(
    "SELECT leaf, record_position, record_id, leaf_hash, position, id, time, ",
    event_columns!(),
    " FROM (SELECT leaf, record_position, record_id, leaf_hash FROM audit_seals WHERE leaf >= $1 ORDER BY leaf LIMIT $2) seal \
     LEFT JOIN audit_records ON position = record_position ORDER BY leaf"
);
const ENTRY_OF: &str = concat!(
    "SELECT leaf, record_position, record_id, leaf_hash, position, id, time, ",
    event_columns!(),
    " FROM (SELECT leaf, record_position, record_id, leaf_hash FROM audit_seals WHERE record_id = $1 ORDER BY leaf LIMIT 1) seal \
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
pub(super) const ALL: [&str; 14] = [
    LOG,
    LOCK_LOG,
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

/// The rows of one transaction, which holds the log.
struct TransactionRows<'a> {
    connection: &'a mut PgConnection,
    now: Timestamp,
    log: Option<AuditLog>,
}

/// A record, and whether it has a seal.
fn record(row: &PgRow) -> Result<(StoredRecord, bool), StoreError> {
    Ok((rows::stored_record(row)?, row.integer("leaf").flatten().is_some()))
}

/// The first and the last position of each range.
fn ends(ranges: impl IntoIterator<Item = (i64, i64)>) -> Batch {
    let mut ends = Batch::of("ii");
    for (first, last) in ranges {
        ends.row().bind(first).bind(last);
    }
    ends
}

#[async_trait]
impl LogRows for TransactionRows<'_> {
    type Fault = Fault;

    fn now(&self) -> Timestamp {
        self.now
    }

    async fn log(&mut self) -> Result<Option<AuditLog>, Fault> {
        Ok(self.log.clone())
    }

    async fn after(&mut self, position: i64, limit: u32) -> Result<Vec<(StoredRecord, bool)>, Fault> {
        let found = query(AFTER).bind(position).bind(i64::from(limit)).fetch_all(&mut *self.connection).await?;
        Ok(found.iter().map(record).collect::<Result<_, _>>()?)
    }

    async fn within(&mut self, ranges: &[(i64, i64)], limit: u32) -> Result<Vec<(StoredRecord, bool)>, Fault> {
        let statement = ends(ranges.iter().copied()).bind_to(query(WITHIN)).bind(i64::from(limit));
        let found = statement.fetch_all(&mut *self.connection).await?;
        Ok(found.iter().map(record).collect::<Result<_, _>>()?)
    }

    async fn insert(&mut self, sealing: &Sealing) -> Result<(), Fault> {
        let mut seals = Batch::of("iitt");
        for seal in &sealing.seals {
            let row = seals.row().bind(rows::integer(seal.leaf)).bind(seal.position);
            row.bind(seal.record_id.clone()).bind(hex(&seal.hash));
        }
        seals.bind_to(query(INSERT_SEALS)).execute(&mut *self.connection).await?;
        if !sealing.nodes.is_empty() {
            let mut nodes = Batch::of("iit");
            for node in &sealing.nodes {
                nodes.row().bind(i64::from(node.level)).bind(rows::integer(node.index)).bind(hex(&node.hash));
            }
            nodes.bind_to(query(INSERT_NODES)).execute(&mut *self.connection).await?;
        }
        Ok(())
    }

    async fn save(&mut self, log: &AuditLog, size: u64) -> Result<bool, Fault> {
        let saved = rows::bind_log(query(SAVE_LOG), log).bind(rows::integer(size));
        Ok(saved.execute(&mut *self.connection).await?.rows_affected() == 1)
    }

    async fn insert_checkpoint(&mut self, checkpoint: &StoredCheckpoint) -> Result<(), Fault> {
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

/// Locks the log, and reads it and then the time.
async fn locked(connection: &mut PgConnection, time: &TableTime) -> Result<(Option<AuditLog>, Timestamp), Fault> {
    let row = query(LOCK_LOG).fetch_optional(&mut *connection).await?;
    let log = row.as_ref().map(rows::audit_log).transpose()?;
    Ok((log, now(connection, time).await?))
}

struct BeginLog(String);

#[async_trait]
impl Operation for BeginLog {
    type Answer = ();

    async fn run(&self, connection: &mut PgConnection, _: &TableTime, _: &mut Touched) -> Result<(), Fault> {
        query(BEGIN_LOG).bind(self.0.clone()).execute(connection).await?;
        Ok(())
    }
}

struct SealSlice(SealPass);

#[async_trait]
impl Operation for SealSlice {
    type Answer = Loaded<SealedSlice>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        _: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let mut transaction = begin(connection).await?;
        let (log, now) = locked(&mut transaction, time).await?;
        let started = Instant::now();
        let mut rows = TransactionRows { connection: &mut transaction, now, log };
        let sealed = seals::seal(&mut rows, &self.0).await?;
        let elapsed = started.elapsed();
        transaction.commit().await?;
        Ok(Loaded { row: SealedSlice { sealed, elapsed, room: ROOM, rest: elapsed }, now })
    }
}

struct AddCheckpoint {
    holder: String,
    origin: String,
    checkpoint: StoredCheckpoint,
}

#[async_trait]
impl Operation for AddCheckpoint {
    type Answer = bool;

    async fn run(&self, connection: &mut PgConnection, time: &TableTime, _: &mut Touched) -> Result<bool, Fault> {
        let mut transaction = begin(connection).await?;
        let (log, now) = locked(&mut transaction, time).await?;
        let mut rows = TransactionRows { connection: &mut transaction, now, log };
        let added = seals::add_checkpoint(&mut rows, &self.holder, &self.origin, &self.checkpoint).await?;
        if added {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
        }
        Ok(added)
    }
}

struct ReadLog;

#[async_trait]
impl Operation for ReadLog {
    type Answer = Loaded<Option<LogStanding>>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        _: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let found = timed(LOG, time).fetch_all(&mut *connection).await?;
        let now = store_now(&found, time)?;
        let log = present(&found, "origin").next().map(rows::audit_log).transpose()?;
        let Some(log) = log else { return Ok(Loaded { row: None, now }) };
        let gaps = ends(log.gaps.iter().map(|gap| (gap.first, gap.last)));
        let oldest = gaps.bind_to(query(OLDEST).bind(log.sealed_to)).fetch_one(connection).await?;
        let oldest = oldest.integer("oldest").flatten();
        Ok(Loaded { row: Some(LogStanding { log, oldest_unsealed: oldest.map(Timestamp::from_micros) }), now })
    }
}

/// What a statement of two values finds, and a third where it has one.
struct Find(&'static str, i64, i64, Option<i64>);

#[async_trait]
impl Operation for Find {
    type Answer = Vec<PgRow>;

    async fn run(&self, connection: &mut PgConnection, _: &TableTime, _: &mut Touched) -> Result<Vec<PgRow>, Fault> {
        let statement = query(self.0).bind(self.1).bind(self.2);
        let statement = match self.3 {
            Some(third) => statement.bind(third),
            None => statement,
        };
        Ok(statement.fetch_all(connection).await?)
    }
}

struct FindEntry(String);

#[async_trait]
impl Operation for FindEntry {
    type Answer = Option<AuditEntry>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        _: &TableTime,
        _: &mut Touched,
    ) -> Result<Option<AuditEntry>, Fault> {
        let found = query(ENTRY_OF).bind(self.0.clone()).fetch_optional(connection).await?;
        Ok(found.as_ref().map(rows::audit_entry).transpose()?)
    }
}

#[async_trait]
impl SealStore for PostgresStore {
    async fn audit_log(&self) -> Result<Loaded<Option<LogStanding>>, StoreError> {
        self.table.read(ReadLog).await
    }

    async fn begin_audit_log(&self, origin: &str) -> Result<(), StoreError> {
        self.table.run(BeginLog(origin.to_owned())).await
    }

    async fn seal(&self, pass: SealPass) -> Result<Loaded<SealedSlice>, StoreError> {
        self.table.run(SealSlice(pass)).await
    }

    async fn look_for_unsealed(&self, after: i64, limit: u32) -> Result<(Vec<i64>, Option<i64>), StoreError> {
        let found = self.table.read(Find(LOOK, after, i64::from(limit), None)).await?;
        let positions = found.iter().filter_map(|row| row.integer("position").flatten());
        let last = positions.last();
        let unsealed = found.iter().filter(|row| row.integer("leaf").flatten().is_none());
        Ok((unsealed.filter_map(|row| row.integer("position").flatten()).collect(), last))
    }

    async fn records_after(&self, after: i64, limit: u32) -> Result<Vec<(StoredRecord, bool)>, StoreError> {
        self.table.read(Find(AFTER, after, i64::from(limit), None)).await?.iter().map(record).collect()
    }

    async fn audit_entries(&self, from: u64, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        let found = self.table.read(Find(ENTRIES, rows::integer(from), i64::from(limit), None)).await?;
        found.iter().map(rows::audit_entry).collect()
    }

    async fn audit_entry_of(&self, record_id: &str) -> Result<Option<AuditEntry>, StoreError> {
        self.table.read(FindEntry(record_id.to_owned())).await
    }

    async fn audit_hashes(&self, level: u8, first: u64, count: u32) -> Result<BTreeMap<u64, Hash>, StoreError> {
        let (first, end) = (rows::integer(first), rows::integer(first.saturating_add(u64::from(count))));
        let find = match level {
            0 => Find(LEAVES, first, end, None),
            level => Find(NODES, first, end, Some(i64::from(level))),
        };
        self.table.read(find).await?.iter().map(rows::audit_hash).collect()
    }

    async fn audit_checkpoints(
        &self,
        wanted: CheckpointQuery,
        limit: u32,
    ) -> Result<Vec<(i64, StoredCheckpoint)>, StoreError> {
        let limit = i64::from(limit);
        let find = match wanted {
            CheckpointQuery::After(sequence) => Find(CHECKPOINTS_AFTER, sequence, limit, None),
            CheckpointQuery::Before(sequence) => Find(CHECKPOINTS_BEFORE, sequence.unwrap_or(i64::MAX), limit, None),
            CheckpointQuery::OfSize(size) => Find(CHECKPOINTS_OF_SIZE, rows::integer(size), limit, None),
        };
        self.table.read(find).await?.iter().map(rows::checkpoint).collect()
    }

    async fn add_checkpoint(
        &self,
        holder: &str,
        origin: &str,
        checkpoint: StoredCheckpoint,
    ) -> Result<bool, StoreError> {
        let (holder, origin) = (holder.to_owned(), origin.to_owned());
        self.table.run(AddCheckpoint { holder, origin, checkpoint }).await
    }
}
