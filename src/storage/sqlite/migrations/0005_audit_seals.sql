-- The audit, provable: seals, tree and checkpoints. None of it is written by a call, so that none waits for it.

-- The log of seals as it stands: one row. Frontier: hashes, a JSON list; gaps: positions that were missing, and since when.
CREATE TABLE audit_log (
    id            INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    origin        TEXT NOT NULL,
    size          INTEGER NOT NULL CHECK (size >= 0),
    frontier      TEXT NOT NULL,
    sealed_to     INTEGER NOT NULL,
    gaps          TEXT NOT NULL,
    deleted_below INTEGER NOT NULL CHECK (deleted_below BETWEEN 0 AND size),
    lease_holder  TEXT,
    lease_until   INTEGER,
    CHECK ((lease_holder IS NULL) = (lease_until IS NULL))
) STRICT;

-- One for each record, in the order of sealing, kept for ever. The record's id says which it was once it is gone.
CREATE TABLE audit_seals (
    leaf            INTEGER NOT NULL PRIMARY KEY CHECK (leaf >= 0),
    record_position INTEGER NOT NULL UNIQUE,
    record_id       TEXT NOT NULL,
    leaf_hash       TEXT NOT NULL CHECK (length(leaf_hash) = 64)
) STRICT;

-- Proving a record: finds it by its id. Records themselves have no such index, which every call would pay for.
CREATE INDEX audit_seals_by_record ON audit_seals (record_id, leaf);

-- Roots of complete subtrees of 2^level leaves, for proofs.
CREATE TABLE audit_nodes (
    level     INTEGER NOT NULL,
    place     INTEGER NOT NULL CHECK (place >= 0),
    node_hash TEXT NOT NULL CHECK (length(node_hash) = 64),
    PRIMARY KEY (level, place)
) STRICT, WITHOUT ROWID;

-- Signed notes, in the order in which they were made.
CREATE TABLE audit_checkpoints (
    sequence      INTEGER PRIMARY KEY AUTOINCREMENT,
    size          INTEGER NOT NULL,
    deleted_below INTEGER NOT NULL,
    time          INTEGER NOT NULL,
    key_id        TEXT NOT NULL,
    note          TEXT NOT NULL
) STRICT;

-- Telling the checkpoint of a size.
CREATE INDEX audit_checkpoints_by_size ON audit_checkpoints (size);
