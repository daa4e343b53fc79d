//! The stable reasons of refusals, as label values. A test holds them to the one file in which failures meet gRPC.

/// Every one, in order.
pub const REASONS: &[&str] = &[
    "ACCOUNT_MISMATCH",
    "ACTION_MISMATCH",
    "AGENT_MISMATCH",
    "APPROVAL_APPROVED",
    "APPROVAL_CANCELLED",
    "APPROVAL_CONSUMED",
    "APPROVAL_DENIED",
    "APPROVAL_EXPIRED",
    "APPROVAL_NOT_FOUND",
    "APPROVAL_PENDING",
    "APPROVAL_REQUIRED",
    "APPROVAL_REVOKED",
    "ARGUMENTS_CHANGED",
    "ARGUMENTS_ERASED",
    "ASKED_TOO_OFTEN",
    "ATTEMPT_ID_REUSED",
    "ATTEMPT_OVER",
    "AUDIT_CHECKPOINT_NOT_FOUND",
    "AUDIT_RECORD_NOT_SEALED",
    "AUDIT_SIZE_UNKNOWN",
    "CALLER_CALLS_LIMIT",
    "CALLER_OUT_OF_BOUNDS",
    "CALLER_RATE_LIMIT",
    "CALLER_STREAMS_LIMIT",
    "CERTIFICATE_NOT_TRUSTED",
    "CONFIRMATION_RAISED",
    "CONNECTOR_MISMATCH",
    "CONVERSATION_MISMATCH",
    "COOLING_OFF",
    "CREDENTIALS_AMBIGUOUS",
    "CREDENTIALS_ENDED",
    "CREDENTIALS_EXPIRED",
    "CREDENTIALS_INVALID",
    "CREDENTIALS_MISSING",
    "DEADLINE_EXCEEDED",
    "EXECUTION_NOT_FOUND",
    "INTERNAL",
    "INVALID_ARGUMENTS_JSON",
    "INVALID_MESSAGE",
    "INVALID_REQUEST",
    "ISSUER_KEYS_MISSING",
    "JWT_INVALID",
    "JWT_KEY_UNKNOWN",
    "LOST_RACE",
    "MESSAGE_TOO_LARGE",
    "METHOD_UNKNOWN",
    "NOT_AN_APPROVER",
    "OBJECTIVE_CHANGED",
    "OUTCOME_EVIDENCE_MISSING",
    "OUTCOME_FINAL",
    "PAGE_TOKEN_INVALID",
    "POLICY_DENIED",
    "PRINCIPAL_MISMATCH",
    "PRINCIPAL_REQUIRED",
    "REQUEST_ID_REUSED",
    "RETRY_NOT_NEEDED",
    "ROLE_NOT_ALLOWED",
    "SECRET_MISSING",
    "SHOWN_FINGERPRINT_DIFFERS",
    "STOPPING",
    "STORE_UNAVAILABLE",
    "TOKEN_INVALID",
    "TOOL_DEFINITION_CHANGED",
    "TOO_MANY_CALLS",
    "TOO_MANY_OPEN_APPROVALS",
    "TOO_MANY_WATCHERS",
    "WAIT_ALREADY_RESUMED",
    "WAIT_CLOSED",
    "WAIT_EXPIRED",
    "WAIT_NOT_FOUND",
    "WAIT_NOT_OPEN",
    "WAIT_OBJECTIVE_DIFFERS",
    "WAIT_PENDING",
    "WAIT_REPLACED",
    "WAIT_VERSION_CHANGED",
    "WATCH_INTERRUPTED",
    "WATCH_TOO_SLOW",
];

#[cfg(test)]
mod tests {
    use super::REASONS;
    use crate::domain::approval::StateName;
    use crate::domain::invocation::Binding;

    #[test]
    fn the_reasons_are_in_order_and_none_is_there_twice() {
        assert!(REASONS.is_sorted_by(|before, after| before < after));
    }

    #[test]
    fn every_reason_that_a_refusal_may_have_is_one_of_them() {
        let errors = concat!(
            include_str!("../service/errors.rs"),
            include_str!("../service/errors/audit.rs"),
            include_str!("../service/errors/callers.rs"),
            include_str!("../service/errors/fatigue.rs")
        );
        // Words of outcomes, which are values and not reasons.
        let outcomes = ["SUCCEEDED", "FAILED", "UNKNOWN"];
        let quoted = errors.split('"').skip(1).step_by(2).filter(|text| {
            text.len() > 3
                && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
                && !outcomes.contains(text)
        });
        let states = StateName::ALL.into_iter().map(StateName::reason);
        let bindings = Binding::ALL.into_iter().map(Binding::reason);
        for reason in quoted.chain(states).chain(bindings) {
            assert!(REASONS.contains(&reason), "{reason}");
        }
    }
}
