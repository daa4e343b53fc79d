//! Who calls, and how much: credentials that open no door, and callers at their limits.

use super::{DOMAIN, Metadata, RETRY_STORE, metadata, refusal};
use crate::auth::{AuthError, LimitReached};
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// A request that reached a handler without a caller of the right role.
pub(in super::super) fn unauthenticated() -> Status {
    unauthorised(AuthError::Missing)
}

/// A request without the right credential.
pub(in super::super) fn unauthorised(error: AuthError) -> Status {
    match error {
        AuthError::Missing => nobody(
            "CREDENTIALS_MISSING",
            "send one `authorization: Bearer TOKEN` with every call, or call on a connection that is a caller's",
        ),
        AuthError::Invalid => nobody(
            "CREDENTIALS_INVALID",
            "the credential is no caller's: check the token or certificate and the `callers` of the configuration",
        ),
        AuthError::Expired => nobody("CREDENTIALS_EXPIRED", "the credential has expired: use the one that replaced it"),
        AuthError::Ambiguous => nobody(
            "CREDENTIALS_AMBIGUOUS",
            "the credential is that of more than one caller, so it is nobody's: see the `callers` of the configuration",
        ),
        AuthError::Untrusted => nobody(
            "CERTIFICATE_NOT_TRUSTED",
            "the authorities of this listener no longer vouch for the certificate of this connection: connect with another",
        ),
        AuthError::Jwt(problem) => {
            let word = problem.as_str();
            refusal(
                Code::Unauthenticated,
                "JWT_INVALID",
                format!("the token of an issuer is not good ({word}): see the `issuers` of the configuration"),
                metadata([("problem", word.to_owned())]),
            )
        }
        AuthError::KeyUnknown => retried(
            Code::Unauthenticated,
            "JWT_KEY_UNKNOWN",
            "the token is signed with a key that its issuer's key set does not have: if the key is new, try again later",
        ),
        AuthError::KeysMissing => retried(
            Code::Unavailable,
            "ISSUER_KEYS_MISSING",
            "the keys of the token's issuer could not be had so far, so nobody comes in with its tokens: try again",
        ),
        AuthError::WrongRole { has, needs } => refusal(
            Code::PermissionDenied,
            "ROLE_NOT_ALLOWED",
            format!("this service is for callers of the role {needs}; this one's is {has}"),
            metadata([("role", has.to_string()), ("needed_role", needs.to_string())]),
        ),
    }
}

/// A caller at one of its limits. Nothing was begun.
pub(in super::super) fn limit_reached(limit: LimitReached) -> Status {
    let (reason, name, most, again_after) = match limit {
        LimitReached::Calls { most } => ("CALLER_CALLS_LIMIT", "calls_per_caller", most, Duration::from_millis(50)),
        LimitReached::Streams { most } => ("CALLER_STREAMS_LIMIT", "streams_per_caller", most, RETRY_STORE),
        LimitReached::Rate { per_second, again_after } => {
            ("CALLER_RATE_LIMIT", "rate_per_caller", per_second, again_after)
        }
    };
    let message = match limit {
        LimitReached::Calls { .. } => format!("this caller has {most} calls under way, which is all that it may"),
        LimitReached::Streams { .. } => format!("this caller has {most} streams open, which is all that it may"),
        LimitReached::Rate { .. } => format!("this caller may make {most} calls a second"),
    };
    let known = metadata([("per", "caller".to_owned()), ("limit_name", name.to_owned()), ("limit", most.to_string())]);
    let mut details = ErrorDetails::with_error_info(reason, DOMAIN, known);
    details.set_retry_info(Some(again_after));
    details.add_quota_failure_violation(format!("limits.{name}"), message.clone());
    let message = format!("{message}: nothing was begun; try again with the same ids");
    Status::with_error_details(Code::ResourceExhausted, message, details)
}

fn nobody(reason: &str, message: &str) -> Status {
    refusal(Code::Unauthenticated, reason, message, Metadata::new())
}

fn retried(code: Code, reason: &str, message: &str) -> Status {
    let mut details = ErrorDetails::with_error_info(reason, DOMAIN, Metadata::new());
    details.set_retry_info(Some(RETRY_STORE));
    Status::with_error_details(code, message, details)
}
