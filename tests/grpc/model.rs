//! A long run of commands chosen at random, given to the real sidecar and to a small reference at once: every answer, every
//! refusal's reason and every state is the same. `COUNTERSIGN_TEST_SEED` repeats a run, `COUNTERSIGN_TEST_STEPS` makes it
//! longer.

#[path = "../random/mod.rs"]
mod random;
mod reference;

use crate::grpc::harness::*;
use countersign::proto::*;
use random::Random;
use reference::{Call, FINANCE, MINUTE, OWNER, Reference, STRANGER};
use std::time::Duration;
use tonic::Status;

/// Commands where nothing is said.
const STEPS: usize = 1_500;

/// The sidecar and the reference, with the ids of the one by the numbers of the other.
struct Run {
    sidecar: Sidecar,
    reference: Reference,
    random: Random,
    approvals: Vec<(Approval, String)>,
    executions: Vec<Permit>,
    attempts: Vec<String>,
    trail: Vec<String>,
    permits: usize,
    refusals: std::collections::BTreeMap<String, usize>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_random_run_answers_as_the_small_reference_does() {
    let steps = std::env::var("COUNTERSIGN_TEST_STEPS").map_or(STEPS, |text| text.parse().unwrap());
    let random = Random::seeded();
    println!("seed {}", random.seed());
    let mut run = Run {
        sidecar: Sidecar::start().await,
        reference: Reference::default(),
        random,
        approvals: Vec::new(),
        executions: Vec::new(),
        attempts: Vec::new(),
        trail: Vec::new(),
        permits: 0,
        refusals: std::collections::BTreeMap::new(),
    };
    run.reference.now = run.sidecar.now();
    for _ in 0..steps {
        run.step().await;
    }
    run.compare_all().await;
    println!("{} approvals, {} executions, refusals: {:?}", run.approvals.len(), run.permits, run.refusals);
    assert!(steps < STEPS || run.is_telling(), "a run that came across too little: {:?}", run.refusals);
}

fn invocation(call: Option<Call>) -> Invocation {
    match call {
        None => fetch(),
        Some(call) => Invocation {
            conversation: format!("conversation-{}", call.conversation),
            arguments_json: format!("{{\"to\":\"kim@example.com\",\"number\":{}}}", call.arguments),
            ..if call.deletes { deletion() } else { email() }
        },
    }
}

fn why<T>(answer: Result<T, Status>) -> Result<T, String> {
    answer.map_err(|status| reason(&status))
}

impl Run {
    async fn step(&mut self) {
        match self.random.below(100) {
            0..18 => self.request().await,
            18..40 => self.decide().await,
            40..44 => self.cancel().await,
            44..49 => self.revoke().await,
            49..64 => self.consume().await,
            64..71 => self.consume_again().await,
            71..75 => self.start().await,
            75..86 => self.report().await,
            86..97 => self.let_time_pass(),
            97..99 => self.compare_all().await,
            _ => {
                self.trail.push("restart".to_owned());
                self.sidecar.restart().await;
            }
        }
    }

    /// One of the last approvals, mostly: on the older ones nothing happens any more.
    fn some_approval(&mut self) -> Option<usize> {
        let count = self.approvals.len();
        let recent = if self.random.below(10) == 0 { count } else { count.min(6) };
        (count > 0).then(|| count - 1 - self.random.below(recent))
    }

    fn some_call(&mut self) -> Call {
        Call { deletes: self.random.below(3) == 0, conversation: self.random.below(3), arguments: self.random.below(2) }
    }

    /// A new attempt, mostly, else one of the last.
    fn some_attempt(&mut self) -> usize {
        let count = self.attempts.len();
        if count > 0 && self.random.below(3) == 0 {
            return count - 1 - self.random.below(count.min(5));
        }
        self.attempts.push(new_attempt());
        count
    }

    fn one_of(&mut self, people: &[&'static str]) -> &'static str {
        people[self.random.below(people.len())]
    }

    async fn request(&mut self) {
        let call = self.some_call();
        let request_id = (self.random.below(3) == 0).then(|| self.random.below(40));
        let want = self.reference.request(call, request_id);
        let request = RequestApprovalRequest {
            invocation: Some(invocation(Some(call))),
            request_id: request_id.map(|id| format!("request-{id}")).unwrap_or_default(),
            ..RequestApprovalRequest::default()
        };
        let got = why(self.sidecar.agent().request_approval(request).await.map(tonic::Response::into_inner));
        self.note(format!("request {call:?} as {request_id:?}"), got.as_ref().err());
        match (got, want) {
            (Ok(got), Ok((number, existing))) => {
                assert_eq!(got.existing, existing, "{}", self.trail());
                let approval = got.approval.unwrap();
                match self.approvals.get(number) {
                    Some((known, token)) => {
                        assert_eq!((&known.id, token), (&approval.id, &got.consume_token), "{}", self.trail());
                    }
                    None => self.approvals.push((approval.clone(), got.consume_token)),
                }
                self.compare(number, &approval);
            }
            (got, want) => self.same(got.map(drop), want.map(drop)),
        }
    }

    async fn decide(&mut self) {
        let Some(number) = self.some_approval() else { return };
        let person = self.one_of(&[OWNER, OWNER, OWNER, FINANCE[0], FINANCE[1], FINANCE[2], STRANGER]);
        let verdict = if self.random.below(8) == 0 { Verdict::Deny } else { Verdict::Approve };
        let want = self.reference.decide(number, person, verdict);
        let id = self.approvals[number].0.id.clone();
        let got = why(self.sidecar.decide(person, &id, verdict).await);
        self.note(format!("{person} says {verdict:?} to {number}"), got.as_ref().err());
        self.settle(number, got, want);
    }

    async fn cancel(&mut self) {
        let Some(number) = self.some_approval() else { return };
        let want = self.reference.cancel(number);
        let approval = self.approvals[number].0.clone();
        let got = why(self.sidecar.cancel(&approval).await);
        self.note(format!("cancel {number}"), got.as_ref().err());
        self.settle(number, got, want);
    }

    async fn revoke(&mut self) {
        let Some(number) = self.some_approval() else { return };
        let person = self.one_of(&[OWNER, FINANCE[0], FINANCE[1], STRANGER]);
        let want = self.reference.revoke(number, person);
        let approval = self.approvals[number].0.clone();
        let got = why(self.sidecar.revoke(person, &approval).await);
        self.note(format!("{person} revokes {number}"), got.as_ref().err());
        self.settle(number, got, want);
    }

    /// The same attempt once more, as whoever lost the answer makes it.
    async fn consume_again(&mut self) {
        let count = self.executions.len();
        if count == 0 {
            return;
        }
        let (approval, call, attempt) = self.reference.attempt(count - 1 - self.random.below(count.min(6)));
        let want = self.reference.consume(approval, call, attempt);
        let token = approval.map(|number| self.approvals[number].1.clone()).unwrap_or_default();
        self.pass(format!("consume {approval:?} again by {attempt}"), &token, call, attempt, want).await;
    }

    async fn consume(&mut self) {
        let Some(number) = self.some_approval() else { return };
        // Mostly the call that was asked about.
        let asked = self.reference.approvals[number].call;
        let call = if self.random.below(8) == 0 { self.some_call() } else { asked };
        let attempt = self.some_attempt();
        let want = self.reference.consume(Some(number), Some(call), attempt);
        let token = self.approvals[number].1.clone();
        self.pass(format!("consume {number} as {call:?} by {attempt}"), &token, Some(call), attempt, want).await;
    }

    async fn start(&mut self) {
        let attempt = self.some_attempt();
        let want = self.reference.consume(None, None, attempt);
        self.pass(format!("start by {attempt}"), "", None, attempt, want).await;
    }

    async fn pass(
        &mut self,
        what: String,
        token: &str,
        call: Option<Call>,
        attempt: usize,
        want: Result<(usize, bool), String>,
    ) {
        let got = why(self.sidecar.attempt(token, &self.attempts[attempt], invocation(call)).await);
        self.note(what, got.as_ref().err());
        match (got, want) {
            (Ok(got), Ok((number, replayed))) => {
                assert_eq!(got.replayed, replayed, "{}", self.trail());
                let permit = got.permit.unwrap();
                match self.executions.get(number) {
                    Some(known) => assert_eq!(known, &permit, "{}", self.trail()),
                    None => {
                        self.permits += 1;
                        self.executions.push(permit);
                    }
                }
            }
            (got, want) => self.same(got.map(drop), want.map(drop)),
        }
    }

    async fn report(&mut self) {
        let count = self.executions.len();
        if count == 0 {
            return;
        }
        let number = count - 1 - self.random.below(count.min(6));
        let outcome = [Outcome::Succeeded, Outcome::Failed, Outcome::Unknown][self.random.below(3)];
        let evidence = self.random.below(2) == 0;
        let want = self.reference.report(number, outcome, evidence);
        let detail = if evidence { "seen in the outbox" } else { "" };
        let got = why(self.sidecar.report(&self.executions[number].execution_id, outcome, detail).await);
        self.note(format!("report {outcome:?} of {number}, evidence: {evidence}"), got.as_ref().err());
        match (got, want) {
            (Ok(got), Ok(want)) => {
                let state = got.state().as_str_name().trim_start_matches("EXECUTION_STATE_").to_owned();
                assert_eq!(state, want.as_str_name().trim_start_matches("OUTCOME_"), "{}", self.trail());
            }
            (got, want) => self.same(got.map(drop), want.map(drop)),
        }
    }

    /// A little, or up to a deadline of the last approvals: just before it, at it, or just after.
    fn let_time_pass(&mut self) {
        let span = match self.random.below(4) {
            0 => 1,
            1 => 7_000_000,
            2 => 4 * MINUTE,
            _ => {
                let now = self.reference.now;
                let deadlines = self.reference.deadlines().filter(|deadline| *deadline > now + 1);
                let next = deadlines.min().unwrap_or(now + MINUTE);
                next - now - 1 + i64::try_from(self.random.below(3)).unwrap()
            }
        };
        self.trail.push(format!("{span} µs pass"));
        self.reference.now += span;
        self.sidecar.advance(Duration::from_micros(u64::try_from(span).unwrap()));
    }

    /// Everything that there is, read and compared.
    async fn compare_all(&mut self) {
        for number in 0..self.approvals.len() {
            let got = self.sidecar.get(&self.approvals[number].0).await;
            self.compare(number, &got);
        }
        let listed = self.sidecar.list(OWNER).await.len();
        assert_eq!(listed, self.approvals.len(), "the owner sees all of them");
    }

    fn settle(&self, number: usize, got: Result<Approval, String>, want: Result<(), String>) {
        match (got, want) {
            (Ok(got), Ok(())) => self.compare(number, &got),
            (got, want) => self.same(got.map(drop), want),
        }
    }

    #[track_caller]
    fn same(&self, got: Result<(), String>, want: Result<(), String>) {
        assert_eq!(got, want, "{}", self.trail());
    }

    fn compare(&self, number: usize, got: &Approval) {
        let want = &self.reference.approvals[number];
        let state = want.state(self.reference.now);
        // What is overdue reads as the change that somebody will write down.
        let version = want.version + u64::from(state == ApprovalState::Expired);
        let execution = want.execution.map(|number| self.executions[number].execution_id.clone()).unwrap_or_default();
        let got_all = (got.state(), got.version, got.execution_id.clone());
        assert_eq!(got_all, (state, version, execution), "approval {number} after {}", self.trail());
    }

    fn note(&mut self, what: String, refusal: Option<&String>) {
        let end = refusal.map_or(String::new(), |refusal| format!(" -> {refusal}"));
        self.trail.push(format!("{what}{end}"));
        if let Some(refusal) = refusal {
            *self.refusals.entry(refusal.clone()).or_default() += 1;
        }
    }

    /// The last commands, and how to see it again.
    fn trail(&self) -> String {
        let last = self.trail.len().saturating_sub(25);
        format!("seed {}, step {}:\n{}", self.random.seed(), self.trail.len(), self.trail[last..].join("\n"))
    }

    /// Whether the run came across enough for its silence to mean something.
    fn is_telling(&self) -> bool {
        let met = ["ATTEMPT_ID_REUSED", "ATTEMPT_OVER", "APPROVAL_CONSUMED", "APPROVAL_PENDING", "APPROVAL_EXPIRED"];
        self.permits >= 20 && met.iter().all(|reason| self.refusals.contains_key(*reason))
    }
}
