//! Evaluations, and their audit where every one is to be a record. The record is written behind the answer, many to a commit,
//! and never left out: where as many wait as may, the next evaluation waits for a place, and is refused if there is none in
//! time. What a crash can lose is what waited; an orderly stop writes all of it.

use super::{AgentCaller, Engine, EngineError, allowed, answer_of};
use crate::domain::arguments::Arguments;
use crate::domain::audit::{AuditEvent, AuditKind};
use crate::domain::decision::PolicyAnswer;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::invocation::{Invocation, Said, Subject};
use crate::domain::limits;
use crate::domain::policy::{Policy, PolicyCall};
use crate::metrics::Metrics;
use crate::storage::{Store, StoreError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Records in one write of the store, which others wait for as well.
const BATCH: usize = 64;
/// How long an evaluation waits for a place before it is refused; where nothing was written for so long since the last place
/// was taken, it is refused at once.
const HOLD: Duration = Duration::from_secs(2);
/// How long after a failed write the same is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// What an evaluation came to.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// Its id, a UUIDv7, which its audit record has as its note.
    pub id: Uuid,
    /// What an approval of this very call would be bound to.
    pub fingerprint: Fingerprint,
    /// The policy's answer.
    pub answer: PolicyAnswer,
}

/// A record that waits, with its place.
type Waiting = (AuditEvent, OwnedSemaphorePermit);

/// The way to the audit of evaluations.
#[derive(Debug)]
pub struct EvaluationAudit {
    places: Arc<Semaphore>,
    queue: Mutex<Option<mpsc::UnboundedSender<Waiting>>>,
    writing: Mutex<Option<JoinHandle<()>>>,
    full_since: Arc<Mutex<Option<Instant>>>,
    metrics: Arc<Metrics>,
}

impl EvaluationAudit {
    /// Starts writing records of evaluations to `store`, on this runtime.
    pub fn start(store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Self {
        // The places bound it.
        let (queue, waiting) = mpsc::unbounded_channel();
        let full_since = Arc::default();
        let writing = tokio::spawn(write(store, waiting, Arc::clone(&full_since), Arc::clone(&metrics)));
        Self {
            places: Arc::new(Semaphore::new(limits::EVALUATIONS_WAITING)),
            queue: Mutex::new(Some(queue)),
            writing: Mutex::new(Some(writing)),
            full_since,
            metrics,
        }
    }

    /// Leaves a record to be written.
    async fn leave(&self, event: AuditEvent) -> Result<(), StoreError> {
        let place = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                self.metrics.evaluation_audit.held.one();
                let since =
                    *self.full_since.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
                let hold = HOLD.saturating_sub(since.elapsed());
                let place = tokio::time::timeout(hold, Arc::clone(&self.places).acquire_owned()).await;
                place.ok().and_then(Result::ok).ok_or_else(|| self.no_place())?
            }
        };
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queue.as_ref().ok_or_else(|| self.no_place())?;
        self.metrics.evaluation_audit.waiting.add(1);
        queue.send((event, place)).map_err(|_| {
            self.metrics.evaluation_audit.waiting.add(-1);
            self.no_place()
        })
    }

    fn no_place(&self) -> StoreError {
        self.metrics.evaluation_audit.refused.one();
        StoreError::Unavailable { cause: "the audit of evaluations takes no more".to_owned() }
    }

    /// Takes no more, and waits until everything that was left is written.
    pub async fn finish(&self) {
        self.places.close();
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writing) = writing
            && writing.await.is_err()
        {
            tracing::error!("the audit of evaluations did not end by itself");
        }
    }
}

/// Writes what waits, in the order in which it was left, until nobody leaves anything more.
async fn write(
    store: Arc<dyn Store>,
    mut waiting: mpsc::UnboundedReceiver<Waiting>,
    full_since: Arc<Mutex<Option<Instant>>>,
    metrics: Arc<Metrics>,
) {
    loop {
        let mut batch = Vec::with_capacity(BATCH);
        if waiting.recv_many(&mut batch, BATCH).await == 0 {
            return;
        }
        let (events, places): (Vec<AuditEvent>, Vec<OwnedSemaphorePermit>) = batch.into_iter().unzip();
        let mut failed = false;
        while let Err(error) = store.record(events.clone()).await {
            if !failed {
                tracing::error!(cause = %error, records = events.len(), "records of evaluations cannot be written yet");
            }
            failed = true;
            tokio::time::sleep(AGAIN).await;
        }
        if failed {
            tracing::info!("records of evaluations are written again");
        }
        metrics.evaluation_audit.waiting.add(-i64::try_from(places.len()).unwrap_or(i64::MAX));
        *full_since.lock().unwrap_or_else(PoisonError::into_inner) = None;
        drop(places);
    }
}

impl Engine {
    /// May it run under this policy? Changes nothing, and asks nothing of the store; only where every evaluation is audited
    /// does it wait for a place for its record. The questions of one call are put to one policy, which the call takes when it
    /// begins.
    ///
    /// # Errors
    /// The call is out of the caller's bounds; there is no place for the record.
    pub async fn evaluate(
        &self,
        policy: &Policy,
        caller: &AgentCaller,
        (said, arguments): (Said, Arguments),
        explain: bool,
    ) -> Result<Evaluation, EngineError> {
        allowed(caller, &said.principal, &said.agent)?;
        let call = PolicyCall {
            principal: &said.principal,
            agent: &said.agent,
            conversation: said.conversation.as_ref(),
            connector: &said.connector,
            account: said.account.as_ref(),
            action: &said.action,
            arguments: &arguments,
            tool_definition_digest: said.tool_definition_digest,
            now: self.store.estimated_time(),
        };
        let (id, answer) = (Uuid::now_v7(), answer_of(policy, &call, explain)?);
        let fingerprint = match &self.evaluation_audit {
            // The other digests of a call are for records alone.
            None => said.fingerprint(&arguments),
            Some(audit) => {
                let subject = Invocation::new(said, arguments).subject;
                audit.leave(record(caller, &subject, id, &answer)).await?;
                subject.fingerprint
            }
        };
        self.metrics.evaluations.one(answer.reason);
        Ok(Evaluation { id, fingerprint, answer })
    }
}

fn record(caller: &AgentCaller, subject: &Subject, id: Uuid, answer: &PolicyAnswer) -> AuditEvent {
    AuditEvent {
        policy_revision: Some(answer.policy_revision.clone()),
        reason: Some(answer.reason.as_str().to_owned()),
        note: Some(id.to_string()),
        ..AuditEvent::about(AuditKind::EvaluationDecided, subject, Some(&caller.name), answer.decision.as_str())
    }
}
