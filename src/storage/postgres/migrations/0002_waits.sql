-- Waits, sealed arguments, and what the background work finds its rows by. Conventions as in the first migration.

-- The record of an agent that has stopped until people answer.
CREATE TABLE waits (
    id                   TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version              BIGINT NOT NULL CHECK (version >= 1),

    -- Where it stands, with the facts of that state and of no other. A resumed wait that was closed keeps none of its
    -- resumption: the audit does.
    state                TEXT COLLATE "C" NOT NULL,
    resume_time          BIGINT,
    resumed_by           TEXT COLLATE "C",
    attempt_id           TEXT COLLATE "C",
    close_time           BIGINT,
    closed_by            TEXT COLLATE "C",
    close_kind           TEXT COLLATE "C" CHECK (close_kind IN ('closed', 'replaced', 'expired')),
    close_reason         TEXT COLLATE "C",

    create_time          BIGINT NOT NULL,
    update_time          BIGINT NOT NULL,
    expire_time          BIGINT NOT NULL,

    opened_by            TEXT COLLATE "C" NOT NULL,
    principal            TEXT COLLATE "C" NOT NULL,
    agent                TEXT COLLATE "C" NOT NULL,
    conversation         TEXT COLLATE "C",
    objective_transcript TEXT COLLATE "C" NOT NULL,
    objective_id         TEXT COLLATE "C" NOT NULL,
    objective_revision   BIGINT NOT NULL CHECK (objective_revision BETWEEN 0 AND 9007199254740991),
    summary              TEXT COLLATE "C" NOT NULL,

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
            ELSE false
        END
    )
);

-- Opening a wait: finds the active one, of which there is at most one.
CREATE UNIQUE INDEX waits_active ON waits (principal, agent, objective_transcript) WHERE state <> 'closed';
-- Sweeping: what is overdue.
CREATE INDEX waits_by_deadline ON waits (expire_time) WHERE state <> 'closed';
-- Retention: what has been closed for long enough.
CREATE INDEX waits_to_delete ON waits (close_time) WHERE state = 'closed';

-- No deadline of an approval is later than its wait, as that stood when it was asked: using it up needs no look at the wait.
ALTER TABLE approvals
    ADD COLUMN ends_by BIGINT,
    ADD CHECK ((ends_by IS NULL) = (wait_id IS NULL)),
    ADD CHECK (ends_by IS NULL OR (decide_by <= ends_by AND (use_by IS NULL OR use_by <= ends_by)));

-- Telling of a wait: its newest approvals.
CREATE INDEX approvals_by_wait ON approvals (wait_id, create_time, id) WHERE wait_id IS NOT NULL;
-- Ending a wait: its approvals that are open. Resuming it: those that wait for people.
CREATE INDEX approvals_open_by_wait ON approvals (wait_id, open_until) WHERE wait_id IS NOT NULL AND open_until IS NOT NULL;

-- A record about a wait is about no invocation.
ALTER TABLE audit_records
    ALTER COLUMN connector DROP NOT NULL,
    ALTER COLUMN action DROP NOT NULL,
    ALTER COLUMN fingerprint DROP NOT NULL,
    ADD COLUMN wait_id TEXT COLLATE "C",
    -- All of an invocation, or none of it.
    ADD CHECK ((connector IS NULL) = (fingerprint IS NULL)),
    ADD CHECK ((action IS NULL) = (fingerprint IS NULL));

-- Listing audit records of one wait, newest first.
CREATE INDEX audit_records_by_wait ON audit_records (wait_id, position) WHERE wait_id IS NOT NULL;

-- The arguments of an approval, whole, sealed under a key of its own (a byte for the format, a nonce, the ciphertext of
-- AES-256-GCM). Every open approval has a row: its key is also that of the token which is out.
CREATE TABLE approval_arguments (
    approval_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES approvals (id) ON DELETE CASCADE,
    key_id      TEXT COLLATE "C" NOT NULL,
    sealed      BYTEA NOT NULL
);

-- Starting: which secrets still seal something.
CREATE INDEX approval_arguments_by_key ON approval_arguments (key_id);

-- The deadline of what is open, copied as the state is, so that a list tells what is overdue without the approval.
ALTER TABLE approval_audience ADD COLUMN open_until BIGINT;
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
