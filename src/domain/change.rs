//! What a command of the domain returns: the next value, what the audit says of it, and until when it holds.

use super::audit::AuditEvent;
use super::time::Timestamp;

/// A value that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<T> {
    /// The value as it is to be saved.
    pub next: T,
    /// What is recorded in the same transaction.
    pub events: Vec<AuditEvent>,
    /// From this instant on the change no longer holds and must not be saved: a decision that reaches the table after the
    /// deadline was made too late, however early it was taken.
    pub valid_before: Option<Timestamp>,
}
