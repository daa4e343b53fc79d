//! What clients did and what they were told, with the times of both.

use crate::process::Clients;
use crate::process::calls::{self, Told};
use crate::random::Random;
use countersign::proto::{ApprovalState, ConsumeRequest, Invocation, Outcome, Permit, Verdict};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tonic::{Code, Status};
use uuid::Uuid;

/// Writing asks the owner: about mail at leisure, about a reply within a second.
pub const POLICY: &str = "
version: countersign.policy/v1
connectors:
  gmail:
    ceiling: write
    actions:
      GMAIL_SEND_EMAIL: { scope: write, curated: true, report_within: 10m }
      GMAIL_REPLY: { scope: write, curated: true, decide_within: 1s, use_within: 1s, report_within: 10m }
";

/// What a call may be refused for, or the beginning of it.
const REASONS: [&str; 8] = [
    "APPROVAL_",
    "ATTEMPT_OVER",
    "OUTCOME_FINAL",
    "LOST_RACE",
    "TOO_MANY_CALLS",
    "WAIT_CLOSED",
    "WAIT_PENDING",
    "WAIT_ALREADY_RESUMED",
];

/// The time of this machine, which is the databases' as well, in microseconds since the Unix epoch.
pub fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// One question, as its clients know it. Its conversation is its own, so that every row tells which question it is of.
#[derive(Clone, Debug)]
pub struct Question {
    pub number: usize,
    pub conversation: String,
    pub request_id: String,
    pub invocation: Invocation,
    pub wait: Option<String>,
    /// The approval and its token.
    pub asked: Option<(String, String)>,
    pub execution: Option<String>,
}

/// A call of a client about a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    OpenWait,
    Ask,
    Decide(Verdict),
    Consume(String),
    Cancel,
    Revoke,
    ResumeWait(String),
    CloseWait,
    Report(Outcome),
    Read,
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    Wait(String),
    Asked { approval: String, token: String, state: ApprovalState },
    State(ApprovalState),
    Permit(Permit),
    Resumed,
    Closed,
    Reported(Outcome),
}

/// One call, from its first byte to its answer.
#[derive(Clone, Debug)]
pub struct Event {
    pub question: usize,
    /// Which sidecar.
    pub through: usize,
    pub call: Call,
    pub start: i64,
    /// None while no answer has come.
    pub end: Option<i64>,
    pub told: Told<Fact>,
    /// Why nothing was told.
    pub why: String,
}

/// All of it.
#[derive(Debug, Default)]
pub struct History(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    questions: Vec<Question>,
    events: Vec<Event>,
    complaints: Vec<String>,
}

impl History {
    /// A new question: quick ones have deadlines of a second.
    pub fn question(&self, random: &mut Random, quick: bool, in_wait: bool) -> Question {
        let conversation = Uuid::new_v4().to_string();
        let mut invocation = calls::invocation(&conversation, random.below(1_000_000));
        invocation.objective = in_wait.then(|| calls::objective(&conversation));
        if quick {
            invocation.action = "GMAIL_REPLY".to_owned();
        }
        let mut inner = self.inner();
        let question = Question {
            number: inner.questions.len(),
            request_id: format!("request-{conversation}"),
            conversation,
            invocation,
            wait: None,
            asked: None,
            execution: None,
        };
        inner.questions.push(question.clone());
        question
    }

    /// Every question whose approval somebody knows.
    pub fn asked(&self) -> Vec<Question> {
        self.inner().questions.iter().filter(|question| question.asked.is_some()).cloned().collect()
    }

    /// Calls once through this sidecar and keeps what was told.
    pub async fn call(&self, question: &Question, call: Call, through: usize, clients: &Clients) -> Told<Fact> {
        let place = {
            let mut inner = self.inner();
            inner.events.push(Event {
                question: question.number,
                through,
                call: call.clone(),
                start: now(),
                end: None,
                told: Told::NotTried,
                why: String::new(),
            });
            inner.events.len() - 1
        };
        let answer = run(question, &call, clients).await;
        let end = now();
        let why = answer.as_ref().err().map(|status| format!("{:?}: {}", status.code(), status.message()));
        // Whatever happens to a database, nothing of ours is at its wit's end.
        let internal = answer.as_ref().err().is_some_and(|status| status.code() == Code::Internal);
        let told = Told::of(answer);
        let mut inner = self.inner();
        if let Told::Refused(reason) = &told
            && !REASONS.iter().any(|known| reason.starts_with(known))
        {
            inner.complaints.push(format!("question {}: {call:?} was refused as {reason}", question.number));
        }
        if internal {
            let complaint = format!("question {}: {call:?} was answered with INTERNAL", question.number);
            inner.complaints.push(complaint);
        }
        if let Some(fact @ Fact::Asked { .. }) = told.done() {
            inner.questions[question.number].learns(fact);
        }
        let event = &mut inner.events[place];
        (event.end, event.told, event.why) = (Some(end), told.clone(), why.unwrap_or_default());
        told
    }

    /// Something that must not be, beside what the tables say.
    pub fn complain(&self, complaint: String) {
        self.inner().complaints.push(complaint);
    }

    pub fn complaints(&self) -> Vec<String> {
        self.inner().complaints.clone()
    }

    pub fn events(&self) -> Vec<Event> {
        self.inner().events.clone()
    }

    /// The conversation of each question.
    pub fn conversations(&self) -> Vec<String> {
        self.inner().questions.iter().map(|question| question.conversation.clone()).collect()
    }

    /// How many calls have told something.
    pub fn answers(&self) -> usize {
        self.inner().events.iter().filter(|event| event.done().is_some()).count()
    }

    /// How often each thing was told, so that a run that shows nothing does not pass for one that holds.
    pub fn seen(&self) -> BTreeMap<String, usize> {
        let mut seen = BTreeMap::new();
        for event in self.events() {
            let what = match &event.told {
                Told::Done(Fact::Permit(_)) => "permits".to_owned(),
                Told::Done(_) => format!("{:?}", event.call).split('(').next().unwrap_or_default().to_owned(),
                Told::Refused(reason) => reason.clone(),
                Told::Nothing | Told::NotTried => "unanswered".to_owned(),
            };
            *seen.entry(what).or_insert(0) += 1;
        }
        seen
    }

    /// What was done about one question, in the order of time.
    pub fn tail(&self, question: usize) -> String {
        let mut events: Vec<Event> = self.events().into_iter().filter(|event| event.question == question).collect();
        events.sort_by_key(|event| event.start);
        let first = events.first().map_or(0, |event| event.start);
        let line = |event: &Event| {
            let end = event.end.map_or("...".to_owned(), |end| format!("{}", (end - first) / 1_000));
            let (start, told) = ((event.start - first) / 1_000, &event.told);
            format!("    {start:>6}..{end:<6} ms  sidecar {}  {:?}: {told:?} {}", event.through, event.call, event.why)
        };
        let lines: Vec<String> = events.iter().map(line).collect();
        format!("  question {question}, from {first}:\n{}", lines.join("\n"))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Event {
    /// What was done, where it was.
    pub fn done(&self) -> Option<&Fact> {
        self.told.done()
    }

    /// The state of the approval that the answer showed, if it showed one.
    pub fn shown(&self) -> Option<ApprovalState> {
        match &self.told {
            Told::Done(Fact::Asked { state, .. } | Fact::State(state)) => Some(*state),
            Told::Done(Fact::Permit(_)) => Some(ApprovalState::Consumed),
            Told::Refused(reason) => match reason.as_str() {
                "APPROVAL_PENDING" => Some(ApprovalState::Pending),
                "APPROVAL_APPROVED" => Some(ApprovalState::Approved),
                "APPROVAL_DENIED" => Some(ApprovalState::Denied),
                "APPROVAL_CANCELLED" => Some(ApprovalState::Cancelled),
                "APPROVAL_REVOKED" => Some(ApprovalState::Revoked),
                "APPROVAL_EXPIRED" => Some(ApprovalState::Expired),
                "APPROVAL_CONSUMED" => Some(ApprovalState::Consumed),
                _ => None,
            },
            Told::Done(_) | Told::NotTried | Told::Nothing => None,
        }
    }
}

async fn run(question: &Question, call: &Call, clients: &Clients) -> Result<Fact, Status> {
    let (approval, token) = question.asked.clone().unwrap_or_default();
    let (wait, execution) = (question.wait.clone().unwrap_or_default(), question.execution.clone().unwrap_or_default());
    Ok(match call {
        Call::OpenWait => Fact::Wait(calls::open_wait(clients, &question.invocation).await?),
        Call::Ask => {
            let asked = calls::ask_in(clients, &question.request_id, &question.invocation, &wait).await?;
            let approval = asked.approval.unwrap();
            Fact::Asked { state: approval.state(), approval: approval.id, token: asked.consume_token }
        }
        Call::Decide(verdict) => Fact::State(calls::decide(clients, &approval, *verdict).await?.state()),
        Call::Consume(attempt) => {
            let request = ConsumeRequest {
                consume_token: token,
                attempt_id: attempt.clone(),
                invocation: Some(question.invocation.clone()),
                retry_of: String::new(),
            };
            Fact::Permit(clients.agent.clone().consume(request).await?.into_inner().permit.unwrap())
        }
        Call::Cancel => Fact::State(calls::cancel(clients, &approval).await?.state()),
        Call::Revoke => Fact::State(calls::revoke(clients, &approval).await?.state()),
        Call::ResumeWait(attempt) => {
            let version = calls::get_wait(clients, &wait).await?.version;
            calls::resume_wait(clients, &wait, version, &question.conversation, attempt).await?;
            Fact::Resumed
        }
        Call::CloseWait => {
            calls::close_wait(clients, &wait).await?;
            Fact::Closed
        }
        Call::Report(outcome) => {
            calls::report(clients, &execution, *outcome).await?;
            Fact::Reported(*outcome)
        }
        Call::Read => Fact::State(calls::get(clients, &approval).await?.state()),
    })
}
