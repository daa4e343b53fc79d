//! What rows that belong together must not say.

/// What each of these finds is a row that its neighbours contradict, in words that every database understands.
pub(in super::super) const CONTRADICTIONS: [&str; 13] = [
    "SELECT a.approval_id FROM approval_audience a LEFT JOIN approvals p ON p.id = a.approval_id
        WHERE a.state IS DISTINCT FROM p.state OR a.create_time IS DISTINCT FROM p.create_time
            OR a.open_until IS DISTINCT FROM p.open_until",
    "SELECT p.id FROM approvals p WHERE NOT EXISTS (SELECT 1 FROM approval_audience a
        WHERE a.approval_id = p.id AND a.kind = 'person' AND a.name = p.principal)",
    "SELECT d.approval_id FROM approval_decisions d WHERE NOT EXISTS (SELECT 1 FROM approval_audience a
        WHERE a.approval_id = d.approval_id AND a.kind = 'person' AND a.name = d.person)",
    "SELECT approval_id FROM approval_decisions GROUP BY approval_id HAVING max(sequence) <> count(*) - 1",
    "SELECT p.id FROM approvals p LEFT JOIN executions e ON e.id = p.execution_id
        WHERE p.state = 'consumed' AND (e.approval_id IS DISTINCT FROM p.id OR e.start_time <> p.consume_time
            OR e.fingerprint <> p.fingerprint OR e.principal <> p.principal OR e.agent <> p.agent)",
    "SELECT e.id FROM executions e LEFT JOIN approvals p ON p.id = e.approval_id
        WHERE p.id IS NOT NULL AND p.execution_id IS DISTINCT FROM e.id",
    "SELECT p.id FROM approvals p WHERE (SELECT count(*) FROM audit_records r
        WHERE r.approval_id = p.id AND r.kind = 'approval.' || p.state)
            <> CASE p.state WHEN 'pending' THEN 0 ELSE 1 END",
    "SELECT e.id FROM executions e WHERE (SELECT count(*) FROM audit_records r WHERE r.execution_id = e.id
        AND r.kind IN ('approval.consumed', 'execution.started')) <> 1",
    "SELECT p.id FROM approvals p JOIN waits w ON w.id = p.wait_id WHERE p.principal <> w.principal
        OR p.agent <> w.agent OR p.objective_transcript <> w.objective_transcript OR p.objective_id <> w.objective_id
        OR p.ends_by > w.expire_time",
    "SELECT p.id FROM approvals p JOIN waits w ON w.id = p.wait_id WHERE p.open_until IS NOT NULL
        AND (w.state = 'closed' OR p.objective_revision <> w.objective_revision)",
    "SELECT p.id FROM approvals p JOIN waits w ON w.id = p.wait_id WHERE p.state = 'cancelled'
        AND p.state_reason LIKE 'wait %' AND p.state_reason NOT LIKE 'wait ' || w.id || ' %'",
    "SELECT w.id FROM waits w WHERE (SELECT count(*) FROM audit_records r
        WHERE r.wait_id = w.id AND r.kind = 'wait.' || w.close_kind) <> CASE w.state WHEN 'closed' THEN 1 ELSE 0 END",
    "SELECT p.id FROM approvals p WHERE p.open_until IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM approval_arguments a WHERE a.approval_id = p.id)",
];

/// A contradiction that only rows with a time of their last change can be in.
pub(in super::super) const TOLD_TOO_EARLY: &str = "SELECT p.id FROM approvals p
    WHERE p.update_time < greatest(p.create_time, p.consume_time, p.close_time, p.decide_time, (SELECT max(d.decide_time)
        FROM approval_decisions d WHERE d.approval_id = p.id))";
