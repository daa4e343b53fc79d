//! What a request says of itself, as an expression reads it.

use std::fmt;

use jiff::SignedDuration;

use super::times::Instant;
use crate::domain::json::Json;
use crate::domain::time::Timestamp;

/// The facts of one request, in the caller's own words.
#[derive(Clone, Copy)]
pub struct FactsInput<'a> {
    /// The action's arguments: a JSON object.
    pub args: &'a Json,
    /// On whose behalf.
    pub principal: &'a str,
    /// The agent that acts.
    pub agent: &'a str,
    /// The conversation; empty where none is given.
    pub conversation: &'a str,
    /// The account; empty where none is given.
    pub account: &'a str,
    /// The action.
    pub action: &'a str,
    /// The action's scope as the catalog has it: `read`, `write` or `admin`.
    pub scope: &'a str,
    /// The action's tags as the catalog has them.
    pub tags: &'a [String],
    /// The store's time.
    pub now: Timestamp,
}

/// The facts of one request, for any number of expressions. They borrow everything: to make them costs nothing, and an
/// argument is looked at only where an expression reads it.
pub struct Facts<'a> {
    pub(super) args: &'a Json,
    pub(super) principal: &'a str,
    pub(super) agent: &'a str,
    pub(super) conversation: &'a str,
    pub(super) account: &'a str,
    pub(super) action: &'a str,
    pub(super) scope: &'a str,
    pub(super) tags: &'a [String],
    /// Absent outside of the years 1 to 9999: an error to whoever reads it.
    pub(super) now: Option<Instant>,
}

impl<'a> Facts<'a> {
    /// The facts of one request.
    pub fn new(input: FactsInput<'a>) -> Self {
        let FactsInput { args, principal, agent, conversation, account, action, scope, tags, now } = input;
        let now = Instant::new(SignedDuration::from_micros(now.micros()));
        Self { args, principal, agent, conversation, account, action, scope, tags, now }
    }
}

/// Without the arguments.
impl fmt::Debug for Facts<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Facts");
        fields.field("principal", &self.principal).field("agent", &self.agent).field("action", &self.action);
        fields.finish_non_exhaustive()
    }
}

impl fmt::Debug for FactsInput<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Facts::new(*self).fmt(formatter)
    }
}
