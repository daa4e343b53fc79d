-- The audit, provable: seals, tree and checkpoints. None of it is written by a call, so that none waits for it.

-- The log of seals as it stands: one row. Frontier: hashes, a JSON list; gaps: positions that were missing, and since when.
CREATE TABLE audit_log (
    id            BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    origin        TEXT COLLATE "C" NOT NULL,
    size          BIGINT NOT NULL CHECK (size >= 0),
    frontier      TEXT COLLATE "C" NOT NULL,
    sealed_to     BIGINT NOT NULL,
    gaps          TEXT COLLATE "C" NOT NULL,
    deleted_below BIGINT NOT NULL CHECK (deleted_below BETWEEN 0 AND size),
    lease_holder  TEXT COLLATE "C",
    lease_until   BIGINT,
    CHECK ((lease_holder IS NULL) = (lease_until IS NULL))
);

-- One for each record, in the order of sealing, kept for ever. The record's id says which it was once it is gone.
CREATE TABLE audit_seals (
    leaf            BIGINT NOT NULL PRIMARY KEY CHECK (leaf >= 0),
    record_position BIGINT NOT NULL UNIQUE,
    record_id       TEXT COLLATE "C" NOT NULL,
    leaf_hash       TEXT COLLATE "C" NOT NULL CHECK (length(leaf_hash) = 64)
);

-- Proving a record: finds it by its id. Records themselves have no such index, which every call would pay for.
CREATE INDEX audit_seals_by_record ON audit_seals (record_id, leaf);

-- Roots of complete subtrees of 2^level leaves, for proofs.
CREATE TABLE audit_nodes (
    level     BIGINT NOT NULL,
    place     BIGINT NOT NULL CHECK (place >= 0),
    node_hash TEXT COLLATE "C" NOT NULL CHECK (length(node_hash) = 64),
    PRIMARY KEY (level, place)
);

-- Signed notes, in the order in which they were made.
CREATE TABLE audit_checkpoints (
    sequence      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    size          BIGINT NOT NULL,
    deleted_below BIGINT NOT NULL,
    time          BIGINT NOT NULL,
    key_id        TEXT COLLATE "C" NOT NULL,
    note          TEXT COLLATE "C" NOT NULL
);

-- Telling the checkpoint of a size.
CREATE INDEX audit_checkpoints_by_size ON audit_checkpoints (size);
