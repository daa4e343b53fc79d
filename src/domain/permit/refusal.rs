//! Why a permit is worth nothing to who checks it.

use std::fmt;

/// Why a permit is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermitRefusal {
    /// It is no permit by its form; what is wrong with it.
    Malformed(String),
    /// It names another algorithm than the one there is.
    AlgorithmRefused,
    /// It is a token of another kind.
    TypeMismatch,
    /// No key of its id is at hand.
    KeyUnknown,
    /// Its key did not sign this.
    SignatureInvalid,
    /// Another issuer.
    IssuerMismatch,
    /// It is for somebody else to check.
    AudienceMismatch,
    /// It begins later than now, by more than the clocks may be apart.
    NotYetValid,
    /// Its time is over.
    Expired,
    /// It is for another principal.
    PrincipalMismatch,
    /// It is for another connector.
    ConnectorMismatch,
    /// It is for another action.
    ActionMismatch,
    /// It is for another conversation.
    ConversationMismatch,
    /// It is for another agent.
    AgentMismatch,
    /// It is for another account.
    AccountMismatch,
    /// It is for other arguments.
    ArgumentsChanged,
}

impl PermitRefusal {
    /// Every stable reason, in the order in which they are looked for.
    pub const REASONS: [&'static str; 16] = [
        "PERMIT_MALFORMED",
        "PERMIT_ALGORITHM_REFUSED",
        "PERMIT_TYPE_MISMATCH",
        "PERMIT_KEY_UNKNOWN",
        "PERMIT_SIGNATURE_INVALID",
        "PERMIT_ISSUER_MISMATCH",
        "PERMIT_AUDIENCE_MISMATCH",
        "PERMIT_NOT_YET_VALID",
        "PERMIT_EXPIRED",
        "PERMIT_PRINCIPAL_MISMATCH",
        "PERMIT_CONNECTOR_MISMATCH",
        "PERMIT_ACTION_MISMATCH",
        "PERMIT_CONVERSATION_MISMATCH",
        "PERMIT_AGENT_MISMATCH",
        "PERMIT_ACCOUNT_MISMATCH",
        "PERMIT_ARGUMENTS_CHANGED",
    ];

    /// The stable reason.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "PERMIT_MALFORMED",
            Self::AlgorithmRefused => "PERMIT_ALGORITHM_REFUSED",
            Self::TypeMismatch => "PERMIT_TYPE_MISMATCH",
            Self::KeyUnknown => "PERMIT_KEY_UNKNOWN",
            Self::SignatureInvalid => "PERMIT_SIGNATURE_INVALID",
            Self::IssuerMismatch => "PERMIT_ISSUER_MISMATCH",
            Self::AudienceMismatch => "PERMIT_AUDIENCE_MISMATCH",
            Self::NotYetValid => "PERMIT_NOT_YET_VALID",
            Self::Expired => "PERMIT_EXPIRED",
            Self::PrincipalMismatch => "PERMIT_PRINCIPAL_MISMATCH",
            Self::ConnectorMismatch => "PERMIT_CONNECTOR_MISMATCH",
            Self::ActionMismatch => "PERMIT_ACTION_MISMATCH",
            Self::ConversationMismatch => "PERMIT_CONVERSATION_MISMATCH",
            Self::AgentMismatch => "PERMIT_AGENT_MISMATCH",
            Self::AccountMismatch => "PERMIT_ACCOUNT_MISMATCH",
            Self::ArgumentsChanged => "PERMIT_ARGUMENTS_CHANGED",
        }
    }
}

impl fmt::Display for PermitRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => write!(formatter, "this is no permit: {what}"),
            Self::AlgorithmRefused => formatter.write_str("a permit is signed with EdDSA and nothing else"),
            Self::TypeMismatch => formatter.write_str("this is a token of another kind than a permit"),
            Self::KeyUnknown => formatter.write_str("no key of the id that it names is at hand"),
            Self::SignatureInvalid => formatter.write_str("the key that it names did not sign this"),
            Self::IssuerMismatch => formatter.write_str("it was issued by another issuer"),
            Self::AudienceMismatch => formatter.write_str("it is for another audience"),
            Self::NotYetValid => formatter.write_str("it begins later than now: compare the clocks"),
            Self::Expired => formatter.write_str("its time is over"),
            Self::PrincipalMismatch => formatter.write_str("it is for another principal"),
            Self::ConnectorMismatch => formatter.write_str("it is for another connector"),
            Self::ActionMismatch => formatter.write_str("it is for another action"),
            Self::ConversationMismatch => formatter.write_str("it is for another conversation"),
            Self::AgentMismatch => formatter.write_str("it is for another agent"),
            Self::AccountMismatch => formatter.write_str("it is for another account"),
            Self::ArgumentsChanged => formatter.write_str("it is for other arguments"),
        }
    }
}

impl std::error::Error for PermitRefusal {}
