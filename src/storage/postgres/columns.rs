//! What statements read, as the rows of approvals and executions have it: in the same order, by the same names.

/// What approvals and executions both have.
macro_rules! shared_columns {
    () => {
        concat!("id, version, state, ", subject_columns!(), ", connection, labels, retry_of, policy_revision")
    };
}

/// What approvals have beside that.
macro_rules! question_columns {
    () => {
        "decide_time, use_by, consume_time, execution_id, close_time, closed_by, state_reason, create_time, decide_by, \
         ends_by, requested_by, scope, tags, reason, rules, clauses, exclude_requester, decide_within_us, use_within_us, \
         requirement_digest, retried_outcome, wait_id, message, agent_note, omissions, preview_json"
    };
}

/// What executions have beside that.
macro_rules! outcome_columns {
    () => {
        "report_time, reported_by, remote_reference, error_code, detail, duration_us, start_time, report_by, \
         approval_id, caller, attempt_id, idempotency_key"
    };
}

/// The names of an approval's columns, where a part of the statement has gathered them.
macro_rules! approval_names {
    () => {
        concat!(shared_columns!(), ", ", question_columns!(), ", decisions")
    };
}

/// The columns of a row of `approvals` with its decisions. Within JSON an escaped U+0000 is written as JSON does.
macro_rules! approval_columns {
    () => {
        concat!(
            shared_columns!(),
            ", ",
            question_columns!(),
            ", (SELECT coalesce(replace(json_agg(json_build_object('person', d.person, 'groups', d.groups, \
             'as_owner', d.as_owner, 'verdict', d.verdict, 'reason', d.reason, 'caller', d.caller, \
             'decide_time', d.decide_time) ORDER BY d.sequence)::TEXT, chr(1114111) || '0', '\\u0000'), '[]') \
             FROM approval_decisions d WHERE d.approval_id = approvals.id) AS decisions"
        )
    };
}

/// The store's time as `store_now`, once, for whatever is joined to it: a row of it comes back even where nothing else does.
macro_rules! clock {
    () => {
        "(SELECT store_now($1) AS store_now) clock"
    };
}

/// The approval of the id `$2` that the agent `$4` of the principal `$3` sees.
macro_rules! seen_by_agent {
    () => {
        " LEFT JOIN approvals ON id = $2 AND principal = $3 AND agent = $4"
    };
}

/// The approval of the id `$2` that the person `$3` of the groups `$4` sees. The audience is asked first: what the person
/// does not see is not looked up.
macro_rules! seen_by_person {
    () => {
        " LEFT JOIN approvals ON id = (SELECT seen.approval_id FROM approval_audience seen WHERE seen.approval_id = $2 \
         AND (seen.kind = 'person' AND seen.name = $3 OR seen.kind = 'group' AND seen.name = ANY ($4)) LIMIT 1)"
    };
}

/// One execution among the facts of a consumption.
macro_rules! executed {
    ($fact:literal, $condition:literal) => {
        concat!(
            " UNION ALL SELECT '",
            $fact,
            "', ",
            shared_columns!(),
            ", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
             NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, ",
            outcome_columns!(),
            " FROM executions WHERE ",
            $condition
        )
    };
}

pub(super) use {
    approval_columns, approval_names, clock, executed, outcome_columns, question_columns, seen_by_agent,
    seen_by_person, shared_columns,
};
