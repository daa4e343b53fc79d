//! Generated from `proto/`, with every proto's comments. Only `service`, `auth`'s table of RPCs and the command line's
//! client may name these types.

#[allow(missing_docs, unused_qualifications, rust_2018_idioms, clippy::all, clippy::pedantic, clippy::restriction)]
mod generated {
    tonic::include_proto!("countersign.v1");
}

pub use generated::*;

/// Every proto with its imports, compiled: for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// These carry arguments, previews, notes or tokens, so what prints them says no more than their name.
macro_rules! redacted_debug {
    ($($message:ident),+ $(,)?) => {$(
        impl std::fmt::Debug for $message {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.debug_struct(stringify!($message)).finish_non_exhaustive()
            }
        }
    )+};
}

redacted_debug!(
    Invocation,
    Approval,
    RequestApprovalRequest,
    RequestApprovalResponse,
    ConsumeRequest,
    Permit,
    CancelApprovalRequest,
    DecideRequest,
    RevokeApprovalRequest,
    PersonDecision,
    AuditRecord,
    ReportOutcomeRequest,
    Execution,
    Wait,
    OpenWaitRequest,
    CloseWaitRequest,
    GetApprovalArgumentsResponse,
    AuditEntry,
    UnsealedAuditRecord,
);
