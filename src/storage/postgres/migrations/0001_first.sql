-- Times are integer microseconds since the Unix epoch, ids are UUID text, enums are checked text, lists are JSON text.
-- Identifiers are compared by their bytes (the collation "C"), whatever the database's own collation is.
-- Every index costs each insert: the line above one names the query that needs it.

CREATE TABLE approvals (
    id                     TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version                BIGINT NOT NULL CHECK (version >= 1),

    -- Where it stands, with the facts of that state and of no other.
    state                  TEXT COLLATE "C" NOT NULL,
    decide_time            BIGINT,
    use_by                 BIGINT,
    consume_time           BIGINT,
    execution_id           TEXT COLLATE "C",
    close_time             BIGINT,
    closed_by              TEXT COLLATE "C",
    state_reason           TEXT COLLATE "C",

    create_time            BIGINT NOT NULL,
    decide_by              BIGINT NOT NULL,

    -- The deadline of what is open. Final approvals have none, and so are in none of the indexes on it.
    open_until             BIGINT,

    -- The invocation.
    principal              TEXT COLLATE "C" NOT NULL,
    agent                  TEXT COLLATE "C" NOT NULL,
    conversation           TEXT COLLATE "C",
    connector              TEXT COLLATE "C" NOT NULL,
    account                TEXT COLLATE "C",
    connection             TEXT COLLATE "C",
    action                 TEXT COLLATE "C" NOT NULL,
    objective_transcript   TEXT COLLATE "C",
    objective_id           TEXT COLLATE "C",
    objective_revision     BIGINT CHECK (objective_revision BETWEEN 0 AND 9007199254740991),
    fingerprint            TEXT COLLATE "C" NOT NULL,
    arguments_digest       TEXT COLLATE "C" NOT NULL,
    tool_definition_digest TEXT COLLATE "C",
    labels                 TEXT COLLATE "C" NOT NULL,

    -- The question.
    requested_by           TEXT COLLATE "C" NOT NULL,
    scope                  TEXT COLLATE "C" NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
    tags                   TEXT COLLATE "C" NOT NULL,
    policy_revision        TEXT COLLATE "C" NOT NULL,
    reason                 TEXT COLLATE "C" NOT NULL,
    rules                  TEXT COLLATE "C" NOT NULL,
    clauses                TEXT COLLATE "C" NOT NULL,
    exclude_requester      BIGINT NOT NULL CHECK (exclude_requester IN (0, 1)),
    decide_within_us       BIGINT NOT NULL CHECK (decide_within_us >= 0),
    use_within_us          BIGINT NOT NULL CHECK (use_within_us >= 0),
    requirement_digest     TEXT COLLATE "C" NOT NULL,
    retry_of               TEXT COLLATE "C",
    retried_outcome        TEXT COLLATE "C" CHECK (retried_outcome IN ('started', 'failed', 'unknown')),
    wait_id                TEXT COLLATE "C",
    message                TEXT COLLATE "C" NOT NULL,
    agent_note             TEXT COLLATE "C",
    omissions              TEXT COLLATE "C" NOT NULL,
    preview_json           TEXT COLLATE "C" NOT NULL,

    CHECK ((objective_transcript IS NULL) = (objective_id IS NULL)),
    CHECK ((objective_transcript IS NULL) = (objective_revision IS NULL)),
    CHECK ((retry_of IS NULL) = (retried_outcome IS NULL)),
    CHECK (open_until IS NOT DISTINCT FROM CASE state WHEN 'pending' THEN decide_by WHEN 'approved' THEN use_by END),
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
            ELSE false
        END
    )
);

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
    approval_id TEXT COLLATE "C" NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
    sequence    BIGINT NOT NULL CHECK (sequence >= 0),
    person      TEXT COLLATE "C" NOT NULL,
    groups      TEXT COLLATE "C" NOT NULL,
    as_owner    BIGINT NOT NULL CHECK (as_owner IN (0, 1)),
    verdict     TEXT COLLATE "C" NOT NULL CHECK (verdict IN ('APPROVE', 'DENY')),
    reason      TEXT COLLATE "C",
    caller      TEXT COLLATE "C" NOT NULL,
    decide_time BIGINT NOT NULL,
    PRIMARY KEY (approval_id, sequence)
);

-- Who sees an approval: its principal, every person and group of its requirement, everyone who decided. State and
-- creation are copies of the approval's, written in the same transaction, so that a list costs no more than its page.
CREATE TABLE approval_audience (
    approval_id TEXT COLLATE "C" NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
    kind        TEXT COLLATE "C" NOT NULL CHECK (kind IN ('person', 'group')),
    name        TEXT COLLATE "C" NOT NULL,
    state       TEXT COLLATE "C" NOT NULL
                CHECK (state IN ('pending', 'approved', 'denied', 'cancelled', 'revoked', 'expired', 'consumed')),
    create_time BIGINT NOT NULL,
    PRIMARY KEY (approval_id, kind, name)
);

-- Listing approvals: one person's or group's of one state, newest first.
CREATE INDEX approval_audience_newest ON approval_audience (kind, name, state, create_time, approval_id);

-- No foreign keys to approvals or to the retried execution: each is kept for its own time.
CREATE TABLE executions (
    id                     TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version                BIGINT NOT NULL CHECK (version >= 1),

    state                  TEXT COLLATE "C" NOT NULL,
    report_time            BIGINT,
    reported_by            TEXT COLLATE "C",
    remote_reference       TEXT COLLATE "C",
    error_code             TEXT COLLATE "C",
    detail                 TEXT COLLATE "C",
    duration_us            BIGINT CHECK (duration_us >= 0),

    start_time             BIGINT NOT NULL,
    report_by              BIGINT NOT NULL,

    approval_id            TEXT COLLATE "C",
    caller                 TEXT COLLATE "C" NOT NULL,
    attempt_id             TEXT COLLATE "C" NOT NULL,
    idempotency_key        TEXT COLLATE "C" NOT NULL,
    retry_of               TEXT COLLATE "C",
    policy_revision        TEXT COLLATE "C" NOT NULL,

    principal              TEXT COLLATE "C" NOT NULL,
    agent                  TEXT COLLATE "C" NOT NULL,
    conversation           TEXT COLLATE "C",
    connector              TEXT COLLATE "C" NOT NULL,
    account                TEXT COLLATE "C",
    connection             TEXT COLLATE "C",
    action                 TEXT COLLATE "C" NOT NULL,
    objective_transcript   TEXT COLLATE "C",
    objective_id           TEXT COLLATE "C",
    objective_revision     BIGINT CHECK (objective_revision BETWEEN 0 AND 9007199254740991),
    fingerprint            TEXT COLLATE "C" NOT NULL,
    arguments_digest       TEXT COLLATE "C" NOT NULL,
    tool_definition_digest TEXT COLLATE "C",
    labels                 TEXT COLLATE "C" NOT NULL,

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
            ELSE false
        END
    )
);

-- Consuming and starting: an attempt starts once. The statements ask first; this is the backstop.
CREATE UNIQUE INDEX executions_by_attempt ON executions (caller, principal, agent, attempt_id);

-- Which approval answered a caller's own id of a request, for as long as the approval is kept.
CREATE TABLE request_ids (
    caller      TEXT COLLATE "C" NOT NULL,
    principal   TEXT COLLATE "C" NOT NULL,
    agent       TEXT COLLATE "C" NOT NULL,
    request_id  TEXT COLLATE "C" NOT NULL,
    digest      TEXT COLLATE "C" NOT NULL,
    approval_id TEXT COLLATE "C" NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
    create_time BIGINT NOT NULL,
    PRIMARY KEY (caller, principal, agent, request_id)
);

-- Deleting an approval: the foreign key above looks for its children.
CREATE INDEX request_ids_by_approval ON request_ids (approval_id);

-- Insert-only. A position is never given twice. Positions are given before they are committed: of two sidecars the later
-- one may be seen first.
CREATE TABLE audit_records (
    position        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id              TEXT COLLATE "C" NOT NULL,
    time            BIGINT NOT NULL,
    kind            TEXT COLLATE "C" NOT NULL,
    caller          TEXT COLLATE "C",
    principal       TEXT COLLATE "C" NOT NULL,
    agent           TEXT COLLATE "C" NOT NULL,
    conversation    TEXT COLLATE "C",
    connector       TEXT COLLATE "C" NOT NULL,
    account         TEXT COLLATE "C",
    action          TEXT COLLATE "C" NOT NULL,
    approval_id     TEXT COLLATE "C",
    execution_id    TEXT COLLATE "C",
    fingerprint     TEXT COLLATE "C" NOT NULL,
    policy_revision TEXT COLLATE "C",
    person          TEXT COLLATE "C",
    decision        TEXT COLLATE "C" NOT NULL,
    reason          TEXT COLLATE "C",
    note            TEXT COLLATE "C",
    labels          TEXT COLLATE "C" NOT NULL
);

-- Listing audit records of one approval, of one execution, on behalf of one principal, newest first.
CREATE INDEX audit_records_by_approval ON audit_records (approval_id, position) WHERE approval_id IS NOT NULL;
CREATE INDEX audit_records_by_execution ON audit_records (execution_id) WHERE execution_id IS NOT NULL;
CREATE INDEX audit_records_by_principal ON audit_records (principal, position);

-- What is stopped at once, whatever has been approved.
CREATE TABLE blocks (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    kind        TEXT COLLATE "C" NOT NULL CHECK (kind IN ('principal', 'agent', 'connector', 'account')),
    name        TEXT COLLATE "C" NOT NULL,
    reason      TEXT COLLATE "C",
    blocked_by  TEXT COLLATE "C" NOT NULL,
    create_time BIGINT NOT NULL,
    UNIQUE (kind, name)
);

-- The server secrets that this database has been used with: enough to tell whether a sidecar holds one.
CREATE TABLE keys (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    check_value TEXT COLLATE "C" NOT NULL,
    create_time BIGINT NOT NULL
);
