-- Limits against questions that wear people out.

-- Recording a question: how much its principal was asked of late, by whomever. The record of a question is written with it
-- and never changed, so that deciding and using an approval cost nothing here.
CREATE INDEX audit_records_asked ON audit_records (principal, time) WHERE kind = 'approval.requested';
-- Recording a question: whether a person has just denied it. Only what was denied is in it.
CREATE INDEX approvals_denied ON approvals (principal, fingerprint, decide_time) WHERE state = 'denied';

-- When somebody who may answer was last seen to look, through any sidecar. One row.
CREATE TABLE approver_presence (
    id        INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    seen_time INTEGER NOT NULL
) STRICT;
