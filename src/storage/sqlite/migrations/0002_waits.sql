-- Waits, sealed arguments, and what the background work finds its rows by. Conventions as in the first migration.

-- The record of an agent that has stopped until people answer.
CREATE TABLE waits (
    id                   TEXT NOT NULL PRIMARY KEY,
    version              INTEGER NOT NULL CHECK (version >= 1),

    -- Where it stands, with the facts of that state and of no other. A resumed wait that was closed keeps none of its
    -- resumption: the audit does.
    state                TEXT NOT NULL,
    resume_time          INTEGER,
    resumed_by           TEXT,
    attempt_id           TEXT,
    close_time           INTEGER,
    closed_by            TEXT,
    close_kind           TEXT CHECK (close_kind IN ('closed', 'replaced', 'expired')),
    close_reason         TEXT,

    create_time          INTEGER NOT NULL,
    update_time          INTEGER NOT NULL,
    expire_time          INTEGER NOT NULL,

    opened_by            TEXT NOT NULL,
    principal            TEXT NOT NULL,
    agent                TEXT NOT NULL,
    conversation         TEXT,
    objective_transcript TEXT NOT NULL,
    objective_id         TEXT NOT NULL,
    objective_revision   INTEGER NOT NULL CHECK (objective_revision BETWEEN 0 AND 9007199254740991),
    summary              TEXT NOT NULL,

    CHECK (
        CASE state
            WHEN 'open' THEN
                resume_time IS NULL AND resumed_by IS NULL AND attempt_id IS NULL
                AND close_time IS NULL AND closed_by IS NULL AND close_kind IS NULL AND close_reason IS NULL
            WHEN 'resumed' THEN
                resume_time IS NOT NULL AND resumed_by IS NOT NULL AND attempt_id IS NOT NULL
                AND close_time IS NULL AND closed_by IS NULL AND close_kind IS NULL AND close_reason IS NULL
            WHEN 'closed' THEN
                resume_time IS NULL AND resumed_by IS NULL AND attempt_id IS NULL
                AND close_time IS NOT NULL AND close_kind IS NOT NULL AND (closed_by IS NULL) = (close_kind = 'expired')
            ELSE 0
        END
    )
) STRICT;

-- Opening a wait: finds the active one, of which there is at most one.
CREATE UNIQUE INDEX waits_active ON waits (principal, agent, objective_transcript) WHERE state <> 'closed';
-- Sweeping: what is overdue.
CREATE INDEX waits_by_deadline ON waits (expire_time) WHERE state <> 'closed';
-- Retention: what has been closed for long enough.
CREATE INDEX waits_to_delete ON waits (close_time) WHERE state = 'closed';

-- No deadline of an approval is later than its wait, as that stood when it was asked: using it up needs no look at the wait.
ALTER TABLE approvals ADD COLUMN ends_by INTEGER
    CHECK ((ends_by IS NULL) = (wait_id IS NULL))
    CHECK (ends_by IS NULL OR (decide_by <= ends_by AND (use_by IS NULL OR use_by <= ends_by)));

-- Telling of a wait: its newest approvals.
CREATE INDEX approvals_by_wait ON approvals (wait_id, create_time, id) WHERE wait_id IS NOT NULL;
-- Ending a wait: its approvals that are open. Resuming it: those that wait for people.
CREATE INDEX approvals_open_by_wait ON approvals (wait_id, open_until) WHERE wait_id IS NOT NULL AND open_until IS NOT NULL;

-- A record about a wait is about no invocation. SQLite does not lift a NOT NULL, so the table is made anew, with its
-- positions and the highest that was ever given.
CREATE TABLE audit_records_anew (
    position        INTEGER PRIMARY KEY AUTOINCREMENT,
    id              TEXT NOT NULL,
    time            INTEGER NOT NULL,
    kind            TEXT NOT NULL,
    caller          TEXT,
    principal       TEXT NOT NULL,
    agent           TEXT NOT NULL,
    conversation    TEXT,
    connector       TEXT,
    account         TEXT,
    action          TEXT,
    approval_id     TEXT,
    execution_id    TEXT,
    wait_id         TEXT,
    fingerprint     TEXT,
    policy_revision TEXT,
    person          TEXT,
    decision        TEXT NOT NULL,
    reason          TEXT,
    note            TEXT,
    labels          TEXT NOT NULL,

    -- All of an invocation, or none of it.
    CHECK ((connector IS NULL) = (fingerprint IS NULL)),
    CHECK ((action IS NULL) = (fingerprint IS NULL))
) STRICT;
INSERT INTO sqlite_sequence (name, seq) SELECT 'audit_records_anew', seq FROM sqlite_sequence WHERE name = 'audit_records';
INSERT INTO audit_records_anew (position, id, time, kind, caller, principal, agent, conversation, connector, account,
    action, approval_id, execution_id, fingerprint, policy_revision, person, decision, reason, note, labels)
    SELECT position, id, time, kind, caller, principal, agent, conversation, connector, account, action, approval_id,
        execution_id, fingerprint, policy_revision, person, decision, reason, note, labels FROM audit_records;
DROP TABLE audit_records;
ALTER TABLE audit_records_anew RENAME TO audit_records;

-- Listing audit records of one approval, of one execution, of one wait, on behalf of one principal.
CREATE INDEX audit_records_by_approval ON audit_records (approval_id) WHERE approval_id IS NOT NULL;
CREATE INDEX audit_records_by_execution ON audit_records (execution_id) WHERE execution_id IS NOT NULL;
CREATE INDEX audit_records_by_wait ON audit_records (wait_id) WHERE wait_id IS NOT NULL;
CREATE INDEX audit_records_by_principal ON audit_records (principal);

-- The arguments of an approval, whole, sealed under a key of its own (a byte for the format, a nonce, the ciphertext of
-- AES-256-GCM). Every open approval has a row: its key is also that of the token which is out.
CREATE TABLE approval_arguments (
    approval_id TEXT NOT NULL PRIMARY KEY REFERENCES approvals (id) ON DELETE CASCADE,
    key_id      TEXT NOT NULL,
    sealed      BLOB NOT NULL
) STRICT;

-- What is open was asked before any arguments were kept, under the one secret that there was: nothing is sealed, and its
-- token needs that secret all the same.
INSERT INTO approval_arguments (approval_id, key_id, sealed)
    SELECT approvals.id, newest.id, x'' FROM approvals
    CROSS JOIN (SELECT id FROM keys ORDER BY create_time DESC, id LIMIT 1) newest
    WHERE approvals.open_until IS NOT NULL;

-- Starting: which secrets still seal something.
CREATE INDEX approval_arguments_by_key ON approval_arguments (key_id);

-- The deadline of what is open, copied as the state is, so that a list tells what is overdue without the approval.
ALTER TABLE approval_audience ADD COLUMN open_until INTEGER;
UPDATE approval_audience SET open_until = (SELECT open_until FROM approvals WHERE approvals.id = approval_id);
-- Listing approvals: one person's or group's of one state, newest first. In place of the first migration's: with the
-- deadline, what is overdue and not written down yet is stepped over within the index.
DROP INDEX approval_audience_newest;
CREATE INDEX approval_audience_newest ON approval_audience (kind, name, state, create_time, approval_id, open_until);
-- Listing what is open, or overdue and not written down yet, where that is little: however much there is of the other.
CREATE INDEX approval_audience_by_deadline ON approval_audience (kind, name, state, open_until, create_time, approval_id)
    WHERE open_until IS NOT NULL;

-- Listing executions, newest first. They are made in this order, so that it grows at its end alone.
CREATE INDEX executions_newest ON executions (start_time, id);

-- Sweeping: what is overdue.
CREATE INDEX approvals_by_deadline ON approvals (open_until) WHERE open_until IS NOT NULL;
-- Erasing: what has been final for long enough and still shows something. An erased preview is the empty text.
CREATE INDEX approvals_to_erase ON approvals (coalesce(consume_time, close_time, decide_time))
    WHERE open_until IS NULL AND preview_json <> '';
-- Retention: what has been final for even longer.
CREATE INDEX approvals_to_delete ON approvals (coalesce(consume_time, close_time, decide_time))
    WHERE open_until IS NULL AND preview_json = '';
-- Retention: whether an execution is still to be retried. Few are.
CREATE INDEX approvals_retrying ON approvals (retry_of) WHERE retry_of IS NOT NULL AND open_until IS NOT NULL;

-- Sweeping: what nobody has reported in time.
CREATE INDEX executions_by_deadline ON executions (report_by) WHERE state = 'started';
-- Retention: what has had an outcome, or none in time, for long enough.
CREATE INDEX executions_to_delete ON executions (coalesce(report_time, report_by)) WHERE state <> 'started';
