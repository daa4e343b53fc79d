//! What the sidecar does, between the doors and the table: loads, lets the domain decide, saves. On the hot path the save
//! comes first (`consume`).

mod approvals;
mod arguments;
mod audit;
mod consume;
mod error;
mod evaluations;
mod executions;
mod in_force;
mod keys;
mod listing;
mod request;
mod waits;
mod watching;

pub use arguments::WholeArguments;
pub use audit::{AuditExport, Exported, LogTold, RecordProof};
pub use consume::{ConsumeCall, Permit};
pub use error::AuditRefusal;
pub use error::EngineError;
pub use evaluations::{Evaluation, EvaluationAudit};
pub use executions::OutcomeReport;
pub use in_force::{InForce, ReloadStatus};
pub use keys::Secrets;
pub use listing::{AuditFilter, ExecutionFilter, Listed};
pub use request::{Asked, Question};
pub use waits::{NamedWait, OpenedWait, ResumedWait, WaitRecord};
pub use watching::{ApprovalWatch, ApprovalsWatch, Seen};

use crate::auth::AgentBounds;
use crate::domain::approval::Person;
use crate::domain::decision::PolicyAnswer;
use crate::domain::invocation::Invocation;
use crate::domain::permit::PermitNames;
use crate::domain::policy::{Policy, PolicyCall};
use crate::domain::preview::Previewer;
use crate::domain::text::Identifier;
use crate::metrics::Metrics;
use crate::sealer::Sealer;
use crate::storage::{QuestionLimits, Store};
use arc_swap::ArcSwap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

/// How often a change is tried again when others changed the record in between.
const TRIES: usize = 4;

/// The sidecar's rules over its table.
pub struct Engine {
    store: Arc<dyn Store>,
    in_force: ArcSwap<InForce>,
    previewer: Previewer,
    secrets: ArcSwap<Secrets>,
    limits: QuestionLimits,
    metrics: Arc<Metrics>,
    evaluation_audit: Option<Arc<EvaluationAudit>>,
    permits: Option<PermitNames>,
    watching: Arc<watching::Hub>,
    sealer: OnceLock<Arc<Sealer>>,
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
        formatter.debug_struct("Engine").field("policy", &self.policy().revision()).finish_non_exhaustive()
    }
}

impl Engine {
    /// The engine over this table, under this policy.
    pub fn new(
        store: Arc<dyn Store>,
        policy: Arc<Policy>,
        previewer: Previewer,
        secrets: Secrets,
        limits: QuestionLimits,
    ) -> Self {
        let in_force = ArcSwap::from_pointee(InForce::first(policy, store.estimated_time()));
        Self {
            store,
            in_force,
            previewer,
            secrets: ArcSwap::from_pointee(secrets),
            limits,
            watching: Arc::default(),
            metrics: Arc::default(),
            evaluation_audit: None,
            permits: None,
            sealer: OnceLock::new(),
        }
    }

    /// The same, counting here.
    #[must_use]
    pub fn counting(self, metrics: Arc<Metrics>) -> Self {
        let in_force = self.in_force();
        metrics.policy.loaded(in_force.policy.revision(), in_force.reload.last_success);
        metrics.secrets_missing.set(i64::try_from(self.secrets().missing.len()).unwrap_or(i64::MAX));
        Self { metrics, ..self }
    }

    /// The same, leaving a record of every evaluation here.
    #[must_use]
    pub fn auditing_evaluations(self, audit: Arc<EvaluationAudit>) -> Self {
        Self { evaluation_audit: Some(audit), ..self }
    }

    /// The same, signing permits under these names.
    #[must_use]
    pub fn signing_permits(self, names: PermitNames) -> Self {
        Self { permits: Some(names), ..self }
    }

    /// Names whoever seals the audit of this table; the first one that is named stays.
    pub fn sealed_by(&self, sealer: Arc<Sealer>) {
        // A second one would be of a second store, and an engine has one.
        let _ = self.sealer.set(sealer);
    }

    /// What is counted.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The table.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The answer of the policy of this moment.
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
        answer_of(&self.in_force.load().policy, &call, explain)
    }

    /// A person at the approver's door, with every group that the policy has the person in now: those that it lists the person
    /// in, and of the `vouched` ones those that it declares external.
    pub fn person(&self, id: Identifier, caller: Identifier, vouched: &Arc<[Identifier]>) -> Person {
        let groups = self.in_force.load().policy.groups().of_vouched(&id, vouched);
        Person { groups, vouched: Arc::clone(vouched), id, caller }
    }
}

fn within(caller: &AgentCaller, invocation: &Invocation) -> Result<(), EngineError> {
    allowed(caller, &invocation.subject.principal, &invocation.subject.agent)
}

fn allowed(caller: &AgentCaller, principal: &Identifier, agent: &Identifier) -> Result<(), EngineError> {
    if caller.bounds.allow(principal, agent) { Ok(()) } else { Err(EngineError::OutOfBounds) }
}

/// A policy's answer. Something that panics allows nothing.
fn answer_of(policy: &Policy, call: &PolicyCall<'_>, explain: bool) -> Result<PolicyAnswer, EngineError> {
    catch_unwind(AssertUnwindSafe(|| policy.evaluate(call, explain))).map_err(|_| EngineError::Panicked)
}
