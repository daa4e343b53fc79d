//! What is known of an attempt that is to be repeated.

use crate::domain::ids::ExecutionId;

/// What a person should know of the attempt that is to be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetriedExecution {
    /// Which.
    pub id: ExecutionId,
    /// What was known of it when the retry was asked.
    pub known: KnownOutcome,
}

/// What may be known of an execution that is to be retried; one that succeeded is not retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownOutcome {
    /// It was still under way.
    Started,
    /// Its effect did not happen.
    Failed,
    /// Nobody knew.
    Unknown,
}

impl KnownOutcome {
    /// The word for it in tables and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    /// The outcome of that word, if it is one.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Started, Self::Failed, Self::Unknown].into_iter().find(|known| known.as_str() == word)
    }

    /// Whether doing it again may do it twice.
    pub const fn may_do_twice(self) -> bool {
        match self {
            Self::Started | Self::Unknown => true,
            Self::Failed => false,
        }
    }
}
