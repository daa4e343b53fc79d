//! Why a request has no caller.

use super::Role;
use super::jwt::JwtProblem;

/// Why a request has no caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// No credential came with it, or not in the form `Bearer TOKEN`, and its connection is nobody's that is known.
    Missing,
    /// The credential is nobody's.
    Invalid,
    /// The credential has expired.
    Expired,
    /// The credential is that of more than one caller.
    Ambiguous,
    /// The listener's authorities no longer vouch for the connection's certificate.
    Untrusted,
    /// The token of an issuer is not good.
    Jwt(JwtProblem),
    /// The token of an issuer is signed with a key that is not known, or not yet.
    KeyUnknown,
    /// The issuer's keys have not been had so far.
    KeysMissing,
    /// The caller has another role than the service's.
    WrongRole {
        /// The caller's.
        has: Role,
        /// The service's.
        needs: Role,
    },
}

impl AuthError {
    /// The stable reason of it.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Missing => "CREDENTIALS_MISSING",
            Self::Invalid => "CREDENTIALS_INVALID",
            Self::Expired => "CREDENTIALS_EXPIRED",
            Self::Ambiguous => "CREDENTIALS_AMBIGUOUS",
            Self::Untrusted => "CERTIFICATE_NOT_TRUSTED",
            Self::Jwt(_) => "JWT_INVALID",
            Self::KeyUnknown => "JWT_KEY_UNKNOWN",
            Self::KeysMissing => "ISSUER_KEYS_MISSING",
            Self::WrongRole { .. } => "ROLE_NOT_ALLOWED",
        }
    }
}
