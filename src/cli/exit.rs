//! How a command ends.

/// How a command ended, as its exit code says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// The answer is no.
    No,
    /// The command was used wrongly.
    Usage,
    /// Something could not be reached, read or written.
    Unreachable,
}

impl Exit {
    /// The process's exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
        }
    }
}
