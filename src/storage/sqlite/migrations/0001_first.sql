-- Times are integer microseconds since the Unix epoch, ids are UUID text, enums are checked text, lists are JSON text.
-- Identifiers are compared by their bytes (BINARY, SQLite's default collation).
-- Every index costs each insert: the line above one names the query that needs it.

CREATE TABLE approvals (
    id                     TEXT NOT NULL PRIMARY KEY,
    version                INTEGER NOT NULL CHECK (version >= 1),

    -- Where it stands, with the facts of that state and of no other.
    state                  TEXT NOT NULL,
    decide_time            INTEGER,
    use_by                 INTEGER,
    consume_time           INTEGER,
    execution_id           TEXT,
    close_time             INTEGER,
    closed_by              TEXT,
    state_reason           TEXT,

    create_time            INTEGER NOT NULL,
    decide_by              INTEGER NOT NULL,

    -- The deadline of what is open. Final approvals have none, and so are in none of the indexes on it.
    open_until             INTEGER,

    -- The invocation.
    principal              TEXT NOT NULL,
    agent                  TEXT NOT NULL,
    conversation           TEXT,
    connector              TEXT NOT NULL,
    account                TEXT,
    connection             TEXT,
    action                 TEXT NOT NULL,
    objective_transcript   TEXT,
    objective_id           TEXT,
    objective_revision     INTEGER CHECK (objective_revision BETWEEN 0 AND 9007199254740991),
    fingerprint            TEXT NOT NULL,
    arguments_digest       TEXT NOT NULL,
    tool_definition_digest TEXT,
    labels                 TEXT NOT NULL,

    -- The question.
    requested_by           TEXT NOT NULL,
    scope                  TEXT NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
    tags                   TEXT NOT NULL,
    policy_revision        TEXT NOT NULL,
    reason                 TEXT NOT NULL,
    rules                  TEXT NOT NULL,
    clauses                TEXT NOT NULL,
    exclude_requester      INTEGER NOT NULL CHECK (exclude_requester IN (0, 1)),
    decide_within_us       INTEGER NOT NULL CHECK (decide_within_us >= 0),
    use_within_us          INTEGER NOT NULL CHECK (use_within_us >= 0),
    requirement_digest     TEXT NOT NULL,
    retry_of               TEXT,
    retried_outcome        TEXT CHECK (retried_outcome IN ('started', 'failed', 'unknown')),
    wait_id                TEXT,
    message                TEXT NOT NULL,
    agent_note             TEXT,
    omissions              TEXT NOT NULL,
    preview_json           TEXT NOT NULL,

    CHECK ((objective_transcript IS NULL) = (objective_id IS NULL)),
    CHECK ((objective_transcript IS NULL) = (objective_revision IS NULL)),
    CHECK ((retry_of IS NULL) = (retried_outcome IS NULL)),
    -- A generated column could not be read from an index alone.
    CHECK (open_until IS CASE state WHEN 'pending' THEN decide_by WHEN 'approved' THEN use_by END),
    CHECK (
        CASE state
            WHEN 'pending' THEN
                decide_time IS NULL AND use_by IS NULL AND consume_time IS NULL AND execution_id IS NULL
                AND close_time IS NULL AND closed_by IS NULL AND state_reason IS NULL
            WHEN 'approved' THEN
                decide_time IS NOT NULL AND use_by IS NOT NULL AND consume_time IS NULL AND execution_id IS NULL
                AND close_time IS NULL AND closed_by IS NULL AND state_reason IS NULL
            WHEN 'denied' THEN
                decide_time IS NOT NULL AND use_by IS NULL AND consume_time IS NULL AND execution_id IS NULL
                AND close_time IS NULL AND closed_by IS NULL AND state_reason IS NULL
            WHEN 'cancelled' THEN
                (decide_time IS NULL) = (use_by IS NULL) AND consume_time IS NULL AND execution_id IS NULL
                AND close_time IS NOT NULL AND closed_by IS NOT NULL
            WHEN 'revoked' THEN
                decide_time IS NOT NULL AND use_by IS NOT NULL AND consume_time IS NULL AND execution_id IS NULL
                AND close_time IS NOT NULL AND closed_by IS NOT NULL
            WHEN 'expired' THEN
                (decide_time IS NULL) = (use_by IS NULL) AND consume_time IS NULL AND execution_id IS NULL
                AND close_time IS NOT NULL AND closed_by IS NULL AND state_reason IS NULL
            WHEN 'consumed' THEN
                decide_time IS NOT NULL AND use_by IS NOT NULL AND consume_time IS NOT NULL AND execution_id IS NOT NULL
                AND close_time IS NULL AND closed_by IS NULL AND state_reason IS NULL
            ELSE 0
        END
    )
) STRICT;

-- Recording a question: finds the same question, still open.
CREATE INDEX approvals_same_question ON approvals (requested_by, principal, fingerprint)
    WHERE open_until IS NOT NULL;
-- Recording a question: counts what its caller has open for the principal, past what is overdue.
CREATE INDEX approvals_open_by_principal ON approvals (requested_by, principal, open_until)
    WHERE open_until IS NOT NULL;
-- Recording a question: counts what its caller has open for the agent.
CREATE INDEX approvals_open_by_agent ON approvals (requested_by, agent, open_until)
    WHERE open_until IS NOT NULL;

-- Every decision, in order. Small rows that are read by the approval: clustered by it.
CREATE TABLE approval_decisions (
    approval_id TEXT NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
    sequence    INTEGER NOT NULL CHECK (sequence >= 0),
    person      TEXT NOT NULL,
    groups      TEXT NOT NULL,
    as_owner    INTEGER NOT NULL CHECK (as_owner IN (0, 1)),
    verdict     TEXT NOT NULL CHECK (verdict IN ('APPROVE', 'DENY')),
    reason      TEXT,
    caller      TEXT NOT NULL,
    decide_time INTEGER NOT NULL,
    PRIMARY KEY (approval_id, sequence)
) STRICT, WITHOUT ROWID;

-- Who sees an approval: its principal, every person and group of its requirement, everyone who decided. State and
-- creation are copies of the approval's, written in the same transaction, so that a list costs no more than its page.
CREATE TABLE approval_audience (
    approval_id TEXT NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
    kind        TEXT NOT NULL CHECK (kind IN ('person', 'group')),
    name        TEXT NOT NULL,
    state       TEXT NOT NULL
                CHECK (state IN ('pending', 'approved', 'denied', 'cancelled', 'revoked', 'expired', 'consumed')),
    create_time INTEGER NOT NULL,
    PRIMARY KEY (approval_id, kind, name)
) STRICT, WITHOUT ROWID;

-- Listing approvals: one person's or group's of one state, newest first.
CREATE INDEX approval_audience_newest ON approval_audience (kind, name, state, create_time, approval_id);

-- No foreign keys to approvals or to the retried execution: each is kept for its own time.
CREATE TABLE executions (
    id                     TEXT NOT NULL PRIMARY KEY,
    version                INTEGER NOT NULL CHECK (version >= 1),

    state                  TEXT NOT NULL,
    report_time            INTEGER,
    reported_by            TEXT,
    remote_reference       TEXT,
    error_code             TEXT,
    detail                 TEXT,
    duration_us            INTEGER CHECK (duration_us >= 0),

    start_time             INTEGER NOT NULL,
    report_by              INTEGER NOT NULL,

    approval_id            TEXT,
    caller                 TEXT NOT NULL,
    attempt_id             TEXT NOT NULL,
    idempotency_key        TEXT NOT NULL,
    retry_of               TEXT,
    policy_revision        TEXT NOT NULL,

    principal              TEXT NOT NULL,
    agent                  TEXT NOT NULL,
    conversation           TEXT,
    connector              TEXT NOT NULL,
    account                TEXT,
    connection             TEXT,
    action                 TEXT NOT NULL,
    objective_transcript   TEXT,
    objective_id           TEXT,
    objective_revision     INTEGER CHECK (objective_revision BETWEEN 0 AND 9007199254740991),
    fingerprint            TEXT NOT NULL,
    arguments_digest       TEXT NOT NULL,
    tool_definition_digest TEXT,
    labels                 TEXT NOT NULL,

    CHECK ((objective_transcript IS NULL) = (objective_id IS NULL)),
    CHECK ((objective_transcript IS NULL) = (objective_revision IS NULL)),
    CHECK (
        CASE state
            WHEN 'started' THEN
                report_time IS NULL AND reported_by IS NULL AND remote_reference IS NULL AND error_code IS NULL
                AND detail IS NULL AND duration_us IS NULL
            WHEN 'succeeded' THEN report_time IS NOT NULL AND reported_by IS NOT NULL
            WHEN 'failed' THEN report_time IS NOT NULL AND reported_by IS NOT NULL
            WHEN 'unknown' THEN
                (report_time IS NOT NULL AND reported_by IS NOT NULL)
                OR (report_time IS NULL AND reported_by IS NULL AND remote_reference IS NULL AND error_code IS NULL
                    AND detail IS NULL AND duration_us IS NULL)
            ELSE 0
        END
    )
) STRICT;

-- Consuming and starting: an attempt starts once. The statements ask first; this is the backstop.
CREATE UNIQUE INDEX executions_by_attempt ON executions (caller, principal, agent, attempt_id);

-- Which approval answered a caller's own id of a request, for as long as the approval is kept.
CREATE TABLE request_ids (
    caller      TEXT NOT NULL,
    principal   TEXT NOT NULL,
    agent       TEXT NOT NULL,
    request_id  TEXT NOT NULL,
    digest      TEXT NOT NULL,
    approval_id TEXT NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
    create_time INTEGER NOT NULL,
    PRIMARY KEY (caller, principal, agent, request_id)
) STRICT, WITHOUT ROWID;

-- Deleting an approval: the foreign key above looks for its children.
CREATE INDEX request_ids_by_approval ON request_ids (approval_id);

-- Insert-only. AUTOINCREMENT: a position is never given twice, also after retention has deleted the newest.
CREATE TABLE audit_records (
    position        INTEGER PRIMARY KEY AUTOINCREMENT,
    id              TEXT NOT NULL,
    time            INTEGER NOT NULL,
    kind            TEXT NOT NULL,
    caller          TEXT,
    principal       TEXT NOT NULL,
    agent           TEXT NOT NULL,
    conversation    TEXT,
    connector       TEXT NOT NULL,
    account         TEXT,
    action          TEXT NOT NULL,
    approval_id     TEXT,
    execution_id    TEXT,
    fingerprint     TEXT NOT NULL,
    policy_revision TEXT,
    person          TEXT,
    decision        TEXT NOT NULL,
    reason          TEXT,
    note            TEXT,
    labels          TEXT NOT NULL
) STRICT;

-- Listing audit records of one approval, of one execution, on behalf of one principal. An index of a rowid table ends
-- with the rowid, so each is in the order of the positions.
CREATE INDEX audit_records_by_approval ON audit_records (approval_id) WHERE approval_id IS NOT NULL;
CREATE INDEX audit_records_by_execution ON audit_records (execution_id) WHERE execution_id IS NOT NULL;
CREATE INDEX audit_records_by_principal ON audit_records (principal);

-- What is stopped at once, whatever has been approved.
CREATE TABLE blocks (
    id          TEXT NOT NULL PRIMARY KEY,
    kind        TEXT NOT NULL CHECK (kind IN ('principal', 'agent', 'connector', 'account')),
    name        TEXT NOT NULL,
    reason      TEXT,
    blocked_by  TEXT NOT NULL,
    create_time INTEGER NOT NULL,
    UNIQUE (kind, name)
) STRICT;

-- The server secrets that this database has been used with: enough to tell whether a sidecar holds one.
CREATE TABLE keys (
    id          TEXT NOT NULL PRIMARY KEY,
    check_value TEXT NOT NULL,
    create_time INTEGER NOT NULL
) STRICT;

-- One row, written to find out whether the file can be written again after a commit has failed.
CREATE TABLE touches (
    id   INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    time INTEGER NOT NULL
) STRICT;
