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
-- Resuming and closing a wait: its approvals.
CREATE INDEX approvals_by_wait ON approvals (wait_id) WHERE wait_id IS NOT NULL;

-- The arguments of an approval, whole, sealed under a key of its own (AES-256-GCM; its nonce stands before the text).
CREATE TABLE approval_arguments (
    approval_id TEXT NOT NULL PRIMARY KEY REFERENCES approvals (id) ON DELETE CASCADE,
    key_id      TEXT NOT NULL,
    sealed      BLOB NOT NULL
) STRICT;

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
