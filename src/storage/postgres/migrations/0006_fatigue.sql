-- Limits against questions that wear people out.

-- Recording a question: how much its principal was asked of late, by whomever. The record of a question is written with it
-- and never changed, so that deciding and using an approval cost nothing here.
CREATE INDEX audit_records_asked ON audit_records (principal, time) WHERE kind = 'approval.requested';
-- Recording a question: whether a person has just denied it. Only what was denied is in it.
CREATE INDEX approvals_denied ON approvals (principal, fingerprint, decide_time) WHERE state = 'denied';

-- When somebody who may answer was last seen to look, through any sidecar. One row.
CREATE TABLE approver_presence (
    id        BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    seen_time BIGINT NOT NULL
);

-- Records a question, where that is all there is to do: an unknown request id, a wait that takes it, the same question neither
-- open nor just denied, no limit reached. Anything else returns nothing and has written nothing: it is done in steps. Creation and deadline
-- are relative to the store's time; the wait's end bounds the deadline, and is returned. (`request_approval` is what earlier versions call, and has fewer limits.)
CREATE FUNCTION record_question(
    _given BIGINT, _locks BIGINT[], _id TEXT, _version BIGINT, _create_time BIGINT, _decide_by BIGINT, _principal TEXT, _agent TEXT, _conversation TEXT, _connector TEXT,
    _account TEXT, _action TEXT, _objective_transcript TEXT, _objective_id TEXT, _objective_revision BIGINT,
    _fingerprint TEXT, _arguments_digest TEXT, _tool_definition_digest TEXT, _connection TEXT, _labels TEXT,
    _requested_by TEXT, _scope TEXT, _tags TEXT, _policy_revision TEXT, _reason TEXT, _rules TEXT, _clauses TEXT,
    _exclude_requester BIGINT, _decide_within_us BIGINT, _use_within_us BIGINT, _requirement_digest TEXT,
    _retry_of TEXT, _retried_outcome TEXT, _wait_id TEXT, _message TEXT, _agent_note TEXT, _omissions TEXT,
    _preview_json TEXT, _audience_kinds TEXT[], _audience_names TEXT[], _key_id TEXT, _sealed BYTEA, _request_id TEXT,
    _request_digest TEXT, _most_of_principal BIGINT, _most_of_agent BIGINT, _most_of_action BIGINT, _most_asked BIGINT,
    _asked_within_us BIGINT, _cool_off_us BIGINT, _event_kind TEXT, _event_caller TEXT,
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
    _lock BIGINT;
BEGIN
    -- Questions for one principal, and those of one caller for one agent, are recorded one after the other: so the limits
    -- hold, and none is recorded twice. Each statement below sees what was committed before it began.
    FOREACH _lock IN ARRAY _locks LOOP
        PERFORM pg_advisory_xact_lock(_lock);
    END LOOP;
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
        OR _most_of_action <= (
            SELECT count(*) FROM (
                SELECT 1 FROM approvals WHERE approvals.requested_by = _requested_by
                    AND approvals.principal = _principal AND approvals.open_until > _now
                    AND approvals.connector = _connector AND approvals.action = _action LIMIT _most_of_action
            ) counted
        )
        OR (CASE WHEN _most_asked IS NULL THEN false ELSE EXISTS (
            SELECT 1 FROM audit_records WHERE audit_records.kind = 'approval.requested'
                AND audit_records.principal = _principal AND audit_records.time > _now - _asked_within_us
            ORDER BY audit_records.time DESC LIMIT 1 OFFSET _most_asked - 1
        ) END)
        OR (CASE WHEN _cool_off_us = 0 THEN false ELSE EXISTS (
            SELECT 1 FROM approvals WHERE approvals.state = 'denied' AND approvals.principal = _principal
                AND approvals.fingerprint = _fingerprint AND approvals.decide_time > _now - _cool_off_us
                AND approvals.agent = _agent AND approvals.conversation IS NOT DISTINCT FROM _conversation
        ) END)
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
