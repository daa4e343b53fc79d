//! For measurements, and no part of the store's contract: what an approval has that is one of many copies.

use crate::domain::fingerprint::{ArgumentsDigest, Fingerprint};
use crate::domain::ids::ApprovalId;

/// Everything of an approval but what tells two of them apart, in the order in which it is copied.
macro_rules! copied_columns {
    () => {
        "version, state, decide_time, use_by, consume_time, execution_id, close_time, closed_by, state_reason, create_time, \
         decide_by, open_until, principal, agent, conversation, connector, account, connection, action, \
         objective_transcript, objective_id, objective_revision, tool_definition_digest, labels, requested_by, scope, tags, \
         policy_revision, reason, rules, clauses, exclude_requester, decide_within_us, use_within_us, requirement_digest, \
         retry_of, retried_outcome, message, agent_note, omissions, preview_json"
    };
}

pub(super) use copied_columns;

/// What a copy of an approval has of its own; all else is its template's.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ApprovalCopy {
    /// Its id.
    pub id: ApprovalId,
    /// What it covers.
    pub fingerprint: Fingerprint,
    /// The arguments alone.
    pub arguments: ArgumentsDigest,
}
