//! One question from asking to the outcome: what its clients did, what they were told, and what that promises.

use crate::process::Clients;
use crate::process::calls::*;
use crate::random::Random;
use countersign::proto::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use uuid::Uuid;

/// What is done once a person has approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Two attempts at once, of which one may win.
    Consume,
    /// An attempt, while the agent withdraws the question.
    ConsumeWhileCancelled,
    /// An attempt, while the person takes the approval back.
    ConsumeWhileRevoked,
    /// An attempt, while the wait in which it was asked is closed.
    ConsumeWhileWaitCloses,
}

/// One attempt at the gate.
#[derive(Debug)]
struct Attempt {
    id: String,
    told: Told<Permit>,
}

/// One question with all that became of it, as its clients know it.
#[derive(Debug)]
pub struct Story {
    request_id: String,
    invocation: Invocation,
    verdict: Verdict,
    then: Then,
    waits: Told<String>,
    asked: Told<(String, String)>,
    decided: Told<Approval>,
    withdrawn: Told<Approval>,
    closed: Told<Wait>,
    attempts: Vec<Attempt>,
    outcome: Outcome,
    reported: Told<Execution>,
}

impl Story {
    pub fn new(random: &mut Random) -> Self {
        let conversation = Uuid::new_v4().to_string();
        let then = match random.below(10) {
            0..=4 => Then::Consume,
            5..=6 => Then::ConsumeWhileCancelled,
            7 => Then::ConsumeWhileRevoked,
            _ => Then::ConsumeWhileWaitCloses,
        };
        Self {
            request_id: format!("request-{conversation}"),
            invocation: Invocation {
                objective: (then == Then::ConsumeWhileWaitCloses).then(|| objective(&conversation)),
                ..invocation(&conversation, random.below(1_000_000))
            },
            verdict: if random.below(8) == 0 { Verdict::Deny } else { Verdict::Approve },
            then,
            waits: Told::NotTried,
            asked: Told::NotTried,
            decided: Told::NotTried,
            withdrawn: Told::NotTried,
            closed: Told::NotTried,
            attempts: (0..2).map(|_| Attempt { id: Uuid::new_v4().to_string(), told: Told::NotTried }).collect(),
            outcome: if random.below(2) == 0 { Outcome::Succeeded } else { Outcome::Failed },
            reported: Told::NotTried,
        }
    }

    /// Goes through it, counting the answers; false once one does not come.
    pub async fn live(&mut self, clients: &Clients, answers: &AtomicUsize) -> bool {
        let count = || answers.fetch_add(1, Ordering::SeqCst);
        if self.then == Then::ConsumeWhileWaitCloses {
            self.waits = Told::of(open_wait(clients, &self.invocation).await);
            if self.waits.done().is_none() {
                return false;
            }
            count();
        }
        self.asked = Told::of(self.ask(clients).await);
        let Told::Done((approval, token)) = self.asked.clone() else { return false };
        count();
        self.decided = Told::of(decide(clients, &approval, self.verdict).await);
        if self.decided.done().is_none() {
            return false;
        }
        count();
        let [first, second] = [0, 1].map(|index| self.attempts[index].id.clone());
        let consume = |attempt| consume(clients, &token, attempt, &self.invocation);
        match self.then {
            Then::Consume => {
                let (one, other) = tokio::join!(consume(&first), consume(&second));
                self.attempts[1].told = Told::of(other);
                self.attempts[0].told = Told::of(one);
            }
            Then::ConsumeWhileCancelled => {
                let (permit, cancelled) = tokio::join!(consume(&first), cancel(clients, &approval));
                self.attempts[0].told = Told::of(permit);
                self.withdrawn = Told::of(cancelled);
            }
            Then::ConsumeWhileRevoked => {
                let (permit, revoked) = tokio::join!(consume(&first), revoke(clients, &approval));
                self.attempts[0].told = Told::of(permit);
                self.withdrawn = Told::of(revoked);
            }
            Then::ConsumeWhileWaitCloses => {
                let wait = self.waits.done().cloned().unwrap_or_default();
                let (permit, closed) = tokio::join!(consume(&first), close_wait(clients, &wait));
                self.attempts[0].told = Told::of(permit);
                self.closed = Told::of(closed);
            }
        }
        let lost = self.attempts.iter().any(|attempt| attempt.told == Told::Nothing);
        if lost || self.withdrawn == Told::Nothing || self.closed == Told::Nothing {
            return false;
        }
        count();
        let execution = self.permits().next().map(|permit| permit.execution_id.clone());
        if let Some(execution) = execution {
            self.reported = Told::of(report(clients, &execution, self.outcome).await);
            if self.reported == Told::Nothing {
                return false;
            }
            count();
        }
        true
    }

    /// Holds what was told against what the sidecar says now, and finishes what was cut off, as a client would.
    pub async fn hold_against(&mut self, clients: &Clients) {
        // Whoever had no answer asks again under the same id, and knows the question by its first answer.
        if self.then == Then::ConsumeWhileWaitCloses && !self.hold_wait(clients).await {
            return;
        }
        let (id, token) = self.ask(clients).await.unwrap();
        if let Some((known, _)) = self.asked.done() {
            assert_eq!(known, &id, "the same request is the same approval: {self:?}");
        }
        self.asked = Told::Done((id.clone(), token.clone()));
        let approval = get(clients, &id).await.unwrap();
        let state = approval.state();
        if let Some(told) = self.decided.done() {
            assert_eq!(told.decisions, approval.decisions, "a decision that was answered stands as it was: {self:?}");
            assert_ne!(state, ApprovalState::Pending, "{self:?}");
        }
        if self.decided.done().is_some_and(|told| told.state() == ApprovalState::Denied) {
            assert_eq!(state, ApprovalState::Denied, "{self:?}");
        }
        if let Some(told) = self.withdrawn.done() {
            assert_eq!(told, &approval, "what was withdrawn stays so: {self:?}");
        }
        if self.closed.done().is_some() {
            let open = matches!(state, ApprovalState::Pending | ApprovalState::Approved);
            assert!(!open, "nothing of a closed wait is open: {self:?}");
        }
        let permits: Vec<Permit> = self.permits().cloned().collect();
        assert!(permits.len() <= 1, "one approval, two permits: {self:?}");
        for permit in &permits {
            assert_eq!((state, &approval.execution_id), (ApprovalState::Consumed, &permit.execution_id), "{self:?}");
        }
        match state {
            ApprovalState::Consumed => self.hold_used(clients, &approval, &token).await,
            ApprovalState::Approved => self.finish(clients, &token).await,
            _ => {
                for attempt in &self.attempts {
                    let refused = consume(clients, &token, &attempt.id, &self.invocation).await.unwrap_err();
                    assert_eq!(refused.code(), Code::FailedPrecondition, "{self:?}: {refused:?}");
                }
            }
        }
        self.hold_audit(clients, &id).await;
    }

    /// Holds what was told of the wait, and opens it if nobody knows whether it was. False where nothing can be asked in it
    /// any more and nothing had been.
    async fn hold_wait(&mut self, clients: &Clients) -> bool {
        if let Some(told) = self.closed.done() {
            assert_eq!(told, &get_wait(clients, &told.id).await.unwrap(), "a wait that was closed stays so: {self:?}");
        }
        if self.waits.done().is_none() {
            // The transcript has one active wait, whether or not the first answer was lost.
            self.waits = Told::of(open_wait(clients, &self.invocation).await);
        }
        let id = self.waits.done().expect("a wait").clone();
        let open = get_wait(clients, &id).await.unwrap().state() == WaitState::Open;
        // An answered request is found by its own id also after its wait was closed.
        open || self.asked.done().is_some()
    }

    /// Asks, in the wait where there is one.
    async fn ask(&self, clients: &Clients) -> Result<(String, String), Status> {
        let wait = self.waits.done().cloned().unwrap_or_default();
        let answer = ask_in(clients, &self.request_id, &self.invocation, &wait).await?;
        Ok((answer.approval.unwrap().id, answer.consume_token))
    }

    /// What is used was used by one attempt that was made; that one gets the same permit as long as nobody reported.
    async fn hold_used(&mut self, clients: &Clients, approval: &Approval, token: &str) {
        let reported = self.reported.done().is_some();
        let mut winners = 0;
        for attempt in &mut self.attempts {
            match consume(clients, token, &attempt.id, &self.invocation).await {
                Ok(again) => {
                    winners += 1;
                    assert_eq!(again.execution_id, approval.execution_id);
                    assert_ne!(attempt.told, Told::NotTried, "an attempt that nobody made has won");
                    if let Some(told) = attempt.told.done() {
                        assert_eq!(told, &again, "a permit that was answered is the same again");
                    }
                    attempt.told = Told::Done(again);
                }
                Err(status) => {
                    let why = status.get_details_error_info().unwrap().reason;
                    winners += usize::from(why == "ATTEMPT_OVER");
                    assert!(why == "APPROVAL_CONSUMED" || why == "ATTEMPT_OVER", "{why}");
                    assert!(why == "APPROVAL_CONSUMED" || reported || self.reported == Told::Nothing, "{why}");
                }
            }
        }
        assert_eq!(winners, 1, "one attempt has used it: {self:?}");
        // The same outcome again is accepted, another one is not: so what was answered has been kept.
        let execution = report(clients, &approval.execution_id, self.outcome).await.unwrap();
        if let Some(told) = self.reported.done() {
            assert_eq!(told, &execution, "a report that was answered stands as it was");
        }
        self.reported = Told::Done(execution);
        let other = if self.outcome == Outcome::Succeeded { Outcome::Failed } else { Outcome::Succeeded };
        let refused = report(clients, &approval.execution_id, other).await.unwrap_err();
        assert_eq!(refused.get_details_error_info().unwrap().reason, "OUTCOME_FINAL");
    }

    /// What was approved and not used can be used now, once, also by an attempt whose answer was lost.
    async fn finish(&mut self, clients: &Clients, token: &str) {
        let permit = consume(clients, token, &self.attempts[0].id, &self.invocation).await.unwrap();
        let refused = consume(clients, token, &self.attempts[1].id, &self.invocation).await.unwrap_err();
        assert_eq!(refused.get_details_error_info().unwrap().reason, "APPROVAL_CONSUMED");
        self.reported = Told::of(report(clients, &permit.execution_id, self.outcome).await);
        assert!(self.reported.done().is_some());
        self.attempts[0].told = Told::Done(permit);
    }

    /// The audit tells one history, and the same one.
    async fn hold_audit(&self, clients: &Clients, id: &str) {
        let request = ListAuditRecordsRequest { approval_id: id.to_owned(), page_size: 1_000, ..Default::default() };
        let records = clients.operator.clone().list_audit_records(request).await.unwrap().into_inner().records;
        let count = |kind: &str| records.iter().filter(|record| record.kind == kind).count();
        let approval = get(clients, id).await.unwrap();
        assert_eq!(count("approval.requested"), 1, "{self:?}");
        assert_eq!(count("approval.decided"), approval.decisions.len(), "{self:?}");
        for (kind, state) in [
            ("approval.denied", ApprovalState::Denied),
            ("approval.cancelled", ApprovalState::Cancelled),
            ("approval.revoked", ApprovalState::Revoked),
            ("approval.consumed", ApprovalState::Consumed),
        ] {
            assert_eq!(count(kind), usize::from(approval.state() == state), "{kind}: {self:?}");
        }
        assert_eq!(count("execution.reported"), usize::from(approval.state() == ApprovalState::Consumed), "{self:?}");
    }

    fn permits(&self) -> impl Iterator<Item = &Permit> {
        self.attempts.iter().filter_map(|attempt| attempt.told.done())
    }

    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    pub fn invocation(&self) -> &Invocation {
        &self.invocation
    }

    pub fn was_asked(&self) -> bool {
        self.asked.done().is_some()
    }

    /// Whether something that was tried had no answer.
    pub fn was_cut_off(&self) -> bool {
        self.asked == Told::Nothing
            || self.decided == Told::Nothing
            || self.withdrawn == Told::Nothing
            || self.waits == Told::Nothing
            || self.closed == Told::Nothing
            || self.reported == Told::Nothing
            || self.attempts.iter().any(|attempt| attempt.told == Told::Nothing)
    }

    pub fn has_permit(&self) -> bool {
        self.permits().next().is_some()
    }

    pub fn was_withdrawn(&self) -> bool {
        self.withdrawn.done().is_some() || self.closed.done().is_some()
    }

    pub fn was_reported(&self) -> bool {
        self.reported.done().is_some()
    }
}
