//! What the sidecar does, between the doors and the table: loads, lets the domain decide, saves. On the hot path the save
//! comes first (`consume`).

mod approvals;
mod consume;
mod error;
mod executions;
mod listing;
mod request;
mod waits;

pub use consume::{ConsumeCall, Permit};
pub use error::EngineError;
pub use executions::OutcomeReport;
pub use listing::{AuditFilter, Listed};
pub use request::{Asked, Question};
pub use waits::{NamedWait, OpenedWait, ResumedWait, WaitRecord};

use crate::auth::AgentBounds;
use crate::domain::approval::Person;
use crate::domain::decision::PolicyAnswer;
use crate::domain::invocation::Invocation;
use crate::domain::policy::{Policy, PolicyCall};
use crate::domain::preview::Previewer;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::secrets::Keys;
use crate::storage::{OpenLimits, Store};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// How often a change is tried again when others changed the record in between.
const TRIES: usize = 4;

/// The sidecar's rules over its table.
pub struct Engine {
    store: Arc<dyn Store>,
    policy: Arc<Policy>,
    policy_time: Timestamp,
    previewer: Previewer,
    keys: Keys,
    limits: OpenLimits,
}

/// An agent's caller, as the engine knows it.
#[derive(Clone, Debug)]
pub struct AgentCaller {
    /// Its name.
    pub name: Identifier,
    /// For whom it may act.
    pub bounds: Arc<AgentBounds>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Engine").field("policy", &self.policy.revision()).finish_non_exhaustive()
    }
}

impl Engine {
    /// The engine over this table, under this policy.
    pub fn new(
        store: Arc<dyn Store>,
        policy: Arc<Policy>,
        previewer: Previewer,
        keys: Keys,
        limits: OpenLimits,
    ) -> Self {
        let policy_time = store.estimated_time();
        Self { store, policy, policy_time, previewer, keys, limits }
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// When the policy came into force.
    pub fn policy_time(&self) -> Timestamp {
        self.policy_time
    }

    /// The table.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// May it run? Changes nothing, and asks nothing of the store.
    ///
    /// # Errors
    /// The invocation is out of the caller's bounds.
    pub fn evaluate(
        &self,
        caller: &AgentCaller,
        invocation: &Invocation,
        explain: bool,
    ) -> Result<PolicyAnswer, EngineError> {
        within(caller, invocation)?;
        self.ask_policy(invocation, explain)
    }

    /// The policy's answer at this moment. Something that panics allows nothing.
    fn ask_policy(&self, invocation: &Invocation, explain: bool) -> Result<PolicyAnswer, EngineError> {
        let subject = &invocation.subject;
        let call = PolicyCall {
            principal: &subject.principal,
            agent: &subject.agent,
            conversation: subject.conversation.as_ref(),
            connector: &subject.connector,
            account: subject.account.as_ref(),
            action: &subject.action,
            arguments: &invocation.arguments,
            tool_definition_digest: subject.tool_definition_digest,
            now: self.store.estimated_time(),
        };
        catch_unwind(AssertUnwindSafe(|| self.policy.evaluate(&call, explain))).map_err(|_| EngineError::Panicked)
    }

    /// A person at the approver's door, with every group that the policy has the person in now.
    pub fn person(&self, id: Identifier, caller: Identifier) -> Person {
        Person { groups: self.policy.groups().of(&id), id, caller }
    }
}

fn within(caller: &AgentCaller, invocation: &Invocation) -> Result<(), EngineError> {
    let subject = &invocation.subject;
    if caller.bounds.allow(&subject.principal, &subject.agent) { Ok(()) } else { Err(EngineError::OutOfBounds) }
}
