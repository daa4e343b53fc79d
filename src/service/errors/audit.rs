//! The refusals of the audit, a part of the one place where failures meet gRPC.

#![warn(clippy::wildcard_enum_match_arm)]

use super::{Metadata, internal, not_found, refusal, too_many_calls};
use crate::engine::AuditRefusal;
use tonic::{Code, Status};

/// The status of something that cannot be told or proven.
pub(super) fn status(refused: &AuditRefusal) -> Status {
    match refused {
        AuditRefusal::RecordNotSealed => not_found(
            "AUDIT_RECORD_NOT_SEALED",
            "audit_record",
            "no record of this id is sealed: there is none, or it was written a moment ago",
        ),
        AuditRefusal::CheckpointUnknown => not_found(
            "AUDIT_CHECKPOINT_NOT_FOUND",
            "audit_checkpoint",
            "there is no such checkpoint yet: ask for one with `sign_now`",
        ),
        AuditRefusal::SizeUnknown => refusal(
            Code::InvalidArgument,
            "AUDIT_SIZE_UNKNOWN",
            "the sizes must be from 1 to that of the log, the older one not above the newer one",
            Metadata::new(),
        ),
        AuditRefusal::TooManyExports => too_many_calls(),
        AuditRefusal::Damaged(cause) => internal(cause),
    }
}
