-- One table for many sidecars: what each tells the others, and the operations that are one round trip.

-- When a row last changed in a way that is told, by the store's time, and what finds the rows since then. Erasing what a
-- person is shown is no change. What is told of a row stands in the index.
ALTER TABLE approvals ADD COLUMN update_time BIGINT NOT NULL DEFAULT 0;
CREATE INDEX approvals_by_update ON approvals (update_time, id) INCLUDE (version);

-- The store's time, in microseconds since the Unix epoch; an argument that is given replaces it (tests move time so).
CREATE FUNCTION store_now(given BIGINT) RETURNS BIGINT
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
    RETURN coalesce(given, (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT);

-- Uses approvals up: many calls at once, each with every condition of its own, each told by its place in the arrays. A call
-- that returns nothing changed nothing. An approval that retries an execution is left as it is, and told by an empty
-- version: what it retries has to be looked at.
CREATE FUNCTION consume_approvals(
    _given BIGINT,
    _principal TEXT[], _agent TEXT[], _conversation TEXT[], _connector TEXT[], _account TEXT[], _action TEXT[],
    _objective_transcript TEXT[], _objective_id TEXT[], _objective_revision BIGINT[], _fingerprint TEXT[],
    _arguments_digest TEXT[], _tool_definition_digest TEXT[], _connection TEXT[], _labels TEXT[], _id TEXT[],
    _report_within BIGINT[], _approval_id TEXT[], _caller TEXT[], _attempt_id TEXT[], _idempotency_key TEXT[],
    _policy_revision TEXT[], _accepted_digest TEXT[], _accepted_version BIGINT[], _decision TEXT[], _reason TEXT[],
    _record_id TEXT[]
) RETURNS TABLE (call BIGINT, version BIGINT, store_now BIGINT)
    LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    _locked TEXT[];
    _now BIGINT;
    _used BIGINT;
BEGIN
    -- An approval that somebody else is at holds up nobody: it is left out, and told by an empty version as well.
    SELECT array_agg(locked.id) INTO _locked FROM (
        SELECT approvals.id FROM approvals WHERE approvals.id = ANY (_approval_id)
        ORDER BY approvals.id FOR NO KEY UPDATE SKIP LOCKED
    ) locked;
    _now := store_now(_given);
    RETURN QUERY
    WITH called AS (
        SELECT
            called.principal, called.agent, called.conversation, called.connector, called.account, called.action,
            called.objective_transcript, called.objective_id, called.objective_revision, called.fingerprint,
            called.arguments_digest, called.tool_definition_digest, called.connection, called.labels, called.id,
            called.report_within, called.approval_id, called.caller, called.attempt_id, called.idempotency_key,
            called.policy_revision, called.accepted_digest, called.accepted_version, called.decision, called.reason,
            called.record_id, called.call
        FROM unnest(
            _principal, _agent, _conversation, _connector, _account, _action, _objective_transcript, _objective_id,
            _objective_revision, _fingerprint, _arguments_digest, _tool_definition_digest, _connection, _labels, _id,
            _report_within, _approval_id, _caller, _attempt_id, _idempotency_key, _policy_revision, _accepted_digest,
            _accepted_version, _decision, _reason, _record_id
        ) WITH ORDINALITY AS called (
            principal, agent, conversation, connector, account, action, objective_transcript, objective_id,
            objective_revision, fingerprint, arguments_digest, tool_definition_digest, connection, labels, id,
            report_within, approval_id, caller, attempt_id, idempotency_key, policy_revision, accepted_digest,
            accepted_version, decision, reason, record_id, call
        )
    ), used AS (
        UPDATE approvals SET state = 'consumed', consume_time = _now, execution_id = called.id, open_until = NULL,
            update_time = _now, version = approvals.version + 1
        FROM called
        WHERE approvals.id = called.approval_id AND approvals.id = ANY (_locked)
            AND approvals.state = 'approved' AND approvals.use_by > _now AND approvals.retry_of IS NULL
            AND approvals.principal = called.principal AND approvals.agent = called.agent
            AND approvals.conversation IS NOT DISTINCT FROM called.conversation
            AND approvals.connector = called.connector AND approvals.account IS NOT DISTINCT FROM called.account
            AND approvals.action = called.action
            AND approvals.objective_transcript IS NOT DISTINCT FROM called.objective_transcript
            AND approvals.objective_id IS NOT DISTINCT FROM called.objective_id
            AND approvals.objective_revision IS NOT DISTINCT FROM called.objective_revision
            AND approvals.fingerprint = called.fingerprint AND approvals.arguments_digest = called.arguments_digest
            AND approvals.tool_definition_digest IS NOT DISTINCT FROM called.tool_definition_digest
            AND (called.accepted_digest IS NULL OR approvals.requirement_digest = called.accepted_digest)
            AND (called.accepted_version IS NULL OR approvals.version = called.accepted_version)
            AND NOT EXISTS (
                SELECT 1 FROM executions WHERE executions.caller = called.caller
                    AND executions.principal = called.principal AND executions.agent = called.agent
                    AND executions.attempt_id = called.attempt_id
            )
        RETURNING
            called.principal, called.agent, called.conversation, called.connector, called.account, called.action,
            called.objective_transcript, called.objective_id, called.objective_revision, called.fingerprint,
            called.arguments_digest, called.tool_definition_digest, called.connection, called.labels, called.id,
            called.report_within, called.approval_id, called.caller, called.attempt_id, called.idempotency_key,
            called.policy_revision, called.accepted_digest, called.accepted_version, called.decision, called.reason,
            called.record_id, called.call, approvals.version AS new_version
    ), started AS (
        INSERT INTO executions (
            principal, agent, conversation, connector, account, action, objective_transcript, objective_id,
            objective_revision, fingerprint, arguments_digest, tool_definition_digest, connection, labels, id,
            version, start_time, report_by, approval_id, caller, attempt_id, idempotency_key, policy_revision, state
        ) SELECT
            used.principal, used.agent, used.conversation, used.connector, used.account, used.action,
            used.objective_transcript, used.objective_id, used.objective_revision, used.fingerprint,
            used.arguments_digest, used.tool_definition_digest, used.connection, used.labels, used.id, 1, _now,
            _now + used.report_within, used.approval_id, used.caller, used.attempt_id, used.idempotency_key,
            used.policy_revision, 'started'
        FROM used
    ), recorded AS (
        INSERT INTO audit_records (
            kind, caller, principal, agent, conversation, connector, account, action, approval_id, execution_id,
            fingerprint, policy_revision, decision, reason, labels, id, time
        ) SELECT
            'approval.consumed', used.caller, used.principal, used.agent, used.conversation, used.connector,
            used.account, used.action, used.approval_id, used.id, used.fingerprint, used.policy_revision,
            used.decision, used.reason, used.labels, used.record_id, _now
        FROM used
    ), closed AS (
        UPDATE approval_audience SET state = 'consumed', open_until = NULL FROM used
        WHERE approval_audience.approval_id = used.approval_id
    )
    SELECT used.call, used.new_version, _now FROM used;
    GET DIAGNOSTICS _used = ROW_COUNT;
    -- Other tables and their indexes may have been waited for since: nothing is used up past its deadline.
    IF EXISTS (
        SELECT 1 FROM approvals WHERE approvals.id = ANY (_approval_id) AND approvals.execution_id = ANY (_id)
            AND approvals.use_by <= store_now(_given)
    ) THEN
        RAISE EXCEPTION 'a deadline came meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    IF _used < cardinality(_approval_id) THEN
        RETURN QUERY SELECT called.call, NULL::BIGINT, _now
            FROM unnest(_approval_id) WITH ORDINALITY AS called (approval_id, call)
            JOIN approvals ON approvals.id = called.approval_id
            WHERE approvals.state = 'approved'
                AND (approvals.retry_of IS NOT NULL OR approvals.id <> ALL (coalesce(_locked, '{}')));
    END IF;
END
$$;

-- Records a question, where that is all there is to do: an unknown request id, a wait that takes it, the same question not
-- open, no limit reached. Anything else returns nothing and has written nothing: it is done in steps. Creation and deadline
-- are relative to the store's time; the wait's end bounds the deadline, and is returned.
CREATE FUNCTION request_approval(
    _given BIGINT, _first_lock BIGINT, _second_lock BIGINT, _id TEXT, _version BIGINT, _create_time BIGINT,
    _decide_by BIGINT, _principal TEXT, _agent TEXT, _conversation TEXT, _connector TEXT,
    _account TEXT, _action TEXT, _objective_transcript TEXT, _objective_id TEXT, _objective_revision BIGINT,
    _fingerprint TEXT, _arguments_digest TEXT, _tool_definition_digest TEXT, _connection TEXT, _labels TEXT,
    _requested_by TEXT, _scope TEXT, _tags TEXT, _policy_revision TEXT, _reason TEXT, _rules TEXT, _clauses TEXT,
    _exclude_requester BIGINT, _decide_within_us BIGINT, _use_within_us BIGINT, _requirement_digest TEXT,
    _retry_of TEXT, _retried_outcome TEXT, _wait_id TEXT, _message TEXT, _agent_note TEXT, _omissions TEXT,
    _preview_json TEXT, _audience_kinds TEXT[], _audience_names TEXT[], _key_id TEXT, _sealed BYTEA, _request_id TEXT,
    _request_digest TEXT, _most_of_principal BIGINT, _most_of_agent BIGINT, _event_kind TEXT, _event_caller TEXT,
    _event_principal TEXT, _event_agent TEXT, _event_conversation TEXT, _event_connector TEXT, _event_account TEXT,
    _event_action TEXT, _event_approval_id TEXT, _event_execution_id TEXT, _event_wait_id TEXT,
    _event_fingerprint TEXT, _event_policy_revision TEXT, _event_person TEXT, _event_decision TEXT,
    _event_reason TEXT, _event_note TEXT, _event_labels TEXT, _record_id TEXT
) RETURNS TABLE (store_now BIGINT, ends_by BIGINT)
    LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    _now BIGINT;
    _until BIGINT;
BEGIN
    -- Questions of one caller for one principal, and for one agent, are recorded one after the other: so the limits hold,
    -- and none is recorded twice. Each statement below sees what was committed before it began.
    PERFORM pg_advisory_xact_lock(_first_lock);
    PERFORM pg_advisory_xact_lock(_second_lock);
    IF _wait_id IS NOT NULL THEN
        -- Whoever ends the wait waits for this row, and then sees the question.
        SELECT waits.expire_time INTO _until FROM waits
        WHERE waits.id = _wait_id AND waits.state = 'open' AND waits.principal = _principal AND waits.agent = _agent
            AND waits.objective_transcript = _objective_transcript AND waits.objective_id = _objective_id
            AND waits.objective_revision = _objective_revision
        FOR SHARE;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    _now := store_now(_given);
    IF _now >= _until
        OR EXISTS (
            SELECT 1 FROM request_ids WHERE request_ids.caller = _requested_by AND request_ids.principal = _principal
                AND request_ids.agent = _agent AND request_ids.request_id = _request_id
        )
        OR EXISTS (
            SELECT 1 FROM approvals WHERE approvals.open_until IS NOT NULL AND approvals.requested_by = _requested_by
                AND approvals.principal = _principal AND approvals.agent = _agent
                AND approvals.conversation IS NOT DISTINCT FROM _conversation AND approvals.connector = _connector
                AND approvals.account IS NOT DISTINCT FROM _account AND approvals.action = _action
                AND approvals.objective_transcript IS NOT DISTINCT FROM _objective_transcript
                AND approvals.objective_id IS NOT DISTINCT FROM _objective_id
                AND approvals.objective_revision IS NOT DISTINCT FROM _objective_revision
                AND approvals.fingerprint = _fingerprint AND approvals.arguments_digest = _arguments_digest
                AND approvals.tool_definition_digest IS NOT DISTINCT FROM _tool_definition_digest
                AND approvals.retry_of IS NOT DISTINCT FROM _retry_of
                AND approvals.requirement_digest = _requirement_digest
                AND approvals.wait_id IS NOT DISTINCT FROM _wait_id
        )
        OR _most_of_principal <= (
            SELECT count(*) FROM (
                SELECT 1 FROM approvals WHERE approvals.requested_by = _requested_by
                    AND approvals.principal = _principal AND approvals.open_until > _now LIMIT _most_of_principal
            ) counted
        )
        OR _most_of_agent <= (
            SELECT count(*) FROM (
                SELECT 1 FROM approvals WHERE approvals.requested_by = _requested_by
                    AND approvals.agent = _agent AND approvals.open_until > _now LIMIT _most_of_agent
            ) counted
        )
    THEN
        RETURN;
    END IF;
    _create_time := _now + _create_time;
    _decide_by := least(_now + _decide_by, _until);
    INSERT INTO approvals (
        id, version, state, create_time, decide_by, open_until, ends_by, update_time,
        principal, agent, conversation, connector, account, action, objective_transcript, objective_id,
        objective_revision, fingerprint, arguments_digest, tool_definition_digest, connection, labels, requested_by,
        scope, tags, policy_revision, reason, rules, clauses, exclude_requester, decide_within_us, use_within_us,
        requirement_digest, retry_of, retried_outcome, wait_id, message, agent_note, omissions, preview_json
    ) VALUES (
        _id, _version, 'pending', _create_time, _decide_by, _decide_by, _until, _now,
        _principal, _agent, _conversation, _connector, _account, _action, _objective_transcript, _objective_id,
        _objective_revision, _fingerprint, _arguments_digest, _tool_definition_digest, _connection, _labels,
        _requested_by, _scope, _tags, _policy_revision, _reason, _rules, _clauses, _exclude_requester,
        _decide_within_us, _use_within_us, _requirement_digest, _retry_of, _retried_outcome, _wait_id, _message,
        _agent_note, _omissions, _preview_json
    );
    INSERT INTO approval_audience (approval_id, kind, name, state, create_time, open_until)
        SELECT _id, audience.kind, audience.name, 'pending', _create_time, _decide_by
        FROM unnest(_audience_kinds, _audience_names) AS audience (kind, name);
    INSERT INTO approval_arguments (approval_id, key_id, sealed) VALUES (_id, _key_id, _sealed);
    IF _request_id IS NOT NULL THEN
        INSERT INTO request_ids (caller, principal, agent, request_id, digest, approval_id, create_time)
            VALUES (_requested_by, _principal, _agent, _request_id, _request_digest, _id, _now);
    END IF;
    INSERT INTO audit_records (
        kind, caller, principal, agent, conversation, connector, account, action, approval_id, execution_id, wait_id,
        fingerprint, policy_revision, person, decision, reason, note, labels, id, time
    ) VALUES (
        _event_kind, _event_caller, _event_principal, _event_agent, _event_conversation, _event_connector,
        _event_account, _event_action, _event_approval_id, _event_execution_id, _event_wait_id, _event_fingerprint,
        _event_policy_revision, _event_person, _event_decision, _event_reason, _event_note, _event_labels, _record_id,
        _now
    );
    -- Other tables may have been waited for since.
    IF store_now(_given) >= _until THEN
        RAISE EXCEPTION 'a deadline came meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN QUERY SELECT _now, _until;
END
$$;

-- Saves a changed approval: its state, the decisions that are new, its audience and its records, if the row still has the
-- version that was expected and the change still holds. Returns the store's time, or nothing and has written nothing.
CREATE FUNCTION save_approval(
    _given BIGINT, _state TEXT, _decide_time BIGINT, _use_by BIGINT, _consume_time BIGINT, _execution_id TEXT,
    _close_time BIGINT, _closed_by TEXT, _state_reason TEXT, _open_until BIGINT, _version BIGINT, _id TEXT,
    _expected BIGINT, _valid_before BIGINT, _decision_sequence BIGINT[], _decision_person TEXT[],
    _decision_groups TEXT[], _decision_as_owner BIGINT[], _decision_verdict TEXT[], _decision_reason TEXT[],
    _decision_caller TEXT[], _decision_decide_time BIGINT[], _event_kind TEXT[], _event_caller TEXT[],
    _event_principal TEXT[], _event_agent TEXT[], _event_conversation TEXT[], _event_connector TEXT[],
    _event_account TEXT[], _event_action TEXT[], _event_approval_id TEXT[], _event_execution_id TEXT[],
    _event_wait_id TEXT[], _event_fingerprint TEXT[], _event_policy_revision TEXT[], _event_person TEXT[],
    _event_decision TEXT[], _event_reason TEXT[], _event_note TEXT[], _event_labels TEXT[], _record_id TEXT[]
) RETURNS BIGINT
    LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    _created BIGINT;
    _decided BIGINT;
    _now BIGINT;
BEGIN
    SELECT approvals.create_time, approvals.decide_time INTO _created, _decided FROM approvals
        WHERE approvals.id = _id AND approvals.version = _expected FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    _now := store_now(_given);
    -- A change that no longer holds, or does not hold yet: whoever made it took the time to be another.
    IF _now >= _valid_before OR _now < _close_time OR (_now < _decide_time AND _decide_time IS DISTINCT FROM _decided) THEN
        RETURN NULL;
    END IF;
    UPDATE approvals SET state = _state, decide_time = _decide_time, use_by = _use_by, consume_time = _consume_time,
        execution_id = _execution_id, close_time = _close_time, closed_by = _closed_by, state_reason = _state_reason,
        open_until = _open_until, update_time = _now, version = _version
    WHERE approvals.id = _id;
    UPDATE approval_audience SET state = _state, open_until = _open_until WHERE approval_audience.approval_id = _id;
    -- Decisions are only ever added at the end.
    INSERT INTO approval_decisions (approval_id, sequence, person, groups, as_owner, verdict, reason, caller, decide_time)
        SELECT
            _id, decision.sequence, decision.person, decision.groups, decision.as_owner, decision.verdict,
            decision.reason, decision.caller, decision.decide_time
        FROM unnest(
            _decision_sequence, _decision_person, _decision_groups, _decision_as_owner, _decision_verdict,
            _decision_reason, _decision_caller, _decision_decide_time
        ) AS decision (sequence, person, groups, as_owner, verdict, reason, caller, decide_time)
        ON CONFLICT (approval_id, sequence) DO NOTHING;
    INSERT INTO approval_audience (approval_id, kind, name, state, create_time, open_until)
        SELECT _id, 'person', decision.person, _state, _created, _open_until
        FROM unnest(_decision_person) AS decision (person)
        ON CONFLICT (approval_id, kind, name) DO NOTHING;
    INSERT INTO audit_records (
        kind, caller, principal, agent, conversation, connector, account, action, approval_id, execution_id, wait_id,
        fingerprint, policy_revision, person, decision, reason, note, labels, id, time
    ) SELECT
        event.kind, event.caller, event.principal, event.agent, event.conversation, event.connector, event.account,
        event.action, event.approval_id, event.execution_id, event.wait_id, event.fingerprint, event.policy_revision,
        event.person, event.decision, event.reason, event.note, event.labels, event.id, _now
    FROM unnest(
        _event_kind, _event_caller, _event_principal, _event_agent, _event_conversation, _event_connector,
        _event_account, _event_action, _event_approval_id, _event_execution_id, _event_wait_id, _event_fingerprint,
        _event_policy_revision, _event_person, _event_decision, _event_reason, _event_note, _event_labels, _record_id
    ) AS event (
        kind, caller, principal, agent, conversation, connector, account, action, approval_id, execution_id, wait_id,
        fingerprint, policy_revision, person, decision, reason, note, labels, id
    );
    -- Other tables may have been waited for since.
    IF store_now(_given) >= _valid_before THEN
        RAISE EXCEPTION 'a deadline came meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN _now;
END
$$;

-- Starts an execution that uses no approval up and retries nothing, if its attempt is new. Returns the store's time, to
-- which start and report times are relative, or nothing and has written nothing.
CREATE FUNCTION start_execution(
    _given BIGINT, _principal TEXT, _agent TEXT, _conversation TEXT, _connector TEXT, _account TEXT, _action TEXT,
    _objective_transcript TEXT, _objective_id TEXT, _objective_revision BIGINT, _fingerprint TEXT,
    _arguments_digest TEXT, _tool_definition_digest TEXT, _connection TEXT, _labels TEXT, _id TEXT, _version BIGINT,
    _start_time BIGINT, _report_by BIGINT, _approval_id TEXT, _caller TEXT, _attempt_id TEXT, _idempotency_key TEXT,
    _retry_of TEXT, _policy_revision TEXT, _state TEXT, _report_time BIGINT, _reported_by TEXT,
    _remote_reference TEXT, _error_code TEXT, _detail TEXT, _duration_us BIGINT, _event_kind TEXT, _event_caller TEXT,
    _event_principal TEXT, _event_agent TEXT, _event_conversation TEXT, _event_connector TEXT, _event_account TEXT,
    _event_action TEXT, _event_approval_id TEXT, _event_execution_id TEXT, _event_wait_id TEXT,
    _event_fingerprint TEXT, _event_policy_revision TEXT, _event_person TEXT, _event_decision TEXT,
    _event_reason TEXT, _event_note TEXT, _event_labels TEXT, _record_id TEXT
) RETURNS BIGINT
    LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    _now BIGINT := store_now(_given);
BEGIN
    INSERT INTO executions (
        principal, agent, conversation, connector, account, action, objective_transcript, objective_id,
        objective_revision, fingerprint, arguments_digest, tool_definition_digest, connection, labels, id, version,
        start_time, report_by, approval_id, caller, attempt_id, idempotency_key, retry_of, policy_revision, state,
        report_time, reported_by, remote_reference, error_code, detail, duration_us
    ) VALUES (
        _principal, _agent, _conversation, _connector, _account, _action, _objective_transcript, _objective_id,
        _objective_revision, _fingerprint, _arguments_digest, _tool_definition_digest, _connection, _labels, _id,
        _version, _now + _start_time, _now + _report_by, _approval_id, _caller, _attempt_id, _idempotency_key,
        _retry_of, _policy_revision, _state, _report_time, _reported_by, _remote_reference, _error_code, _detail,
        _duration_us
    ) ON CONFLICT (caller, principal, agent, attempt_id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO audit_records (
        kind, caller, principal, agent, conversation, connector, account, action, approval_id, execution_id, wait_id,
        fingerprint, policy_revision, person, decision, reason, note, labels, id, time
    ) VALUES (
        _event_kind, _event_caller, _event_principal, _event_agent, _event_conversation, _event_connector,
        _event_account, _event_action, _event_approval_id, _event_execution_id, _event_wait_id, _event_fingerprint,
        _event_policy_revision, _event_person, _event_decision, _event_reason, _event_note, _event_labels, _record_id,
        _now
    );
    RETURN _now;
END
$$;

-- Saves a changed execution and its records, under the same conditions as an approval.
CREATE FUNCTION save_execution(
    _given BIGINT, _state TEXT, _report_time BIGINT, _reported_by TEXT, _remote_reference TEXT, _error_code TEXT,
    _detail TEXT, _duration_us BIGINT, _version BIGINT, _id TEXT, _expected BIGINT, _valid_before BIGINT,
    _event_kind TEXT[], _event_caller TEXT[], _event_principal TEXT[], _event_agent TEXT[],
    _event_conversation TEXT[], _event_connector TEXT[], _event_account TEXT[], _event_action TEXT[],
    _event_approval_id TEXT[], _event_execution_id TEXT[], _event_wait_id TEXT[], _event_fingerprint TEXT[],
    _event_policy_revision TEXT[], _event_person TEXT[], _event_decision TEXT[], _event_reason TEXT[],
    _event_note TEXT[], _event_labels TEXT[], _record_id TEXT[]
) RETURNS BIGINT
    LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    _now BIGINT;
BEGIN
    PERFORM 1 FROM executions WHERE executions.id = _id AND executions.version = _expected FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    _now := store_now(_given);
    IF _now >= _valid_before THEN
        RETURN NULL;
    END IF;
    UPDATE executions SET state = _state, report_time = _report_time, reported_by = _reported_by,
        remote_reference = _remote_reference, error_code = _error_code, detail = _detail, duration_us = _duration_us,
        version = _version
    WHERE executions.id = _id;
    INSERT INTO audit_records (
        kind, caller, principal, agent, conversation, connector, account, action, approval_id, execution_id, wait_id,
        fingerprint, policy_revision, person, decision, reason, note, labels, id, time
    ) SELECT
        event.kind, event.caller, event.principal, event.agent, event.conversation, event.connector, event.account,
        event.action, event.approval_id, event.execution_id, event.wait_id, event.fingerprint, event.policy_revision,
        event.person, event.decision, event.reason, event.note, event.labels, event.id, _now
    FROM unnest(
        _event_kind, _event_caller, _event_principal, _event_agent, _event_conversation, _event_connector,
        _event_account, _event_action, _event_approval_id, _event_execution_id, _event_wait_id, _event_fingerprint,
        _event_policy_revision, _event_person, _event_decision, _event_reason, _event_note, _event_labels, _record_id
    ) AS event (
        kind, caller, principal, agent, conversation, connector, account, action, approval_id, execution_id, wait_id,
        fingerprint, policy_revision, person, decision, reason, note, labels, id
    );
    -- Other tables may have been waited for since.
    IF store_now(_given) >= _valid_before THEN
        RAISE EXCEPTION 'a deadline came meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN _now;
END
$$;
