//! A row of `waits`.

use super::{Bind, Columns, Fields, integer, maybe_text, text};
use crate::domain::ids::{AttemptId, WaitId};
use crate::domain::invocation::Objective;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::{Ending, Resumption, Wait, WaitState};
use crate::storage::StoreError;

/// Every column of a wait.
macro_rules! wait_columns {
    () => {
        "id, opened_by, principal, agent, conversation, objective_transcript, objective_id, create_time, state, \
         resume_time, resumed_by, attempt_id, close_time, closed_by, close_kind, close_reason, objective_revision, \
         summary, update_time, expire_time, version"
    };
}

pub(in crate::storage) use wait_columns;

const CLOSED: &str = "closed";
const REPLACED: &str = "replaced";
const EXPIRED: &str = "expired";

/// The columns of a state's facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::storage) struct WaitColumns {
    state: String,
    resume_time: Option<Timestamp>,
    resumed_by: Option<Identifier>,
    attempt: Option<AttemptId>,
    close_time: Option<Timestamp>,
    closed_by: Option<Identifier>,
    close_kind: Option<String>,
    close_reason: Option<String>,
}

impl WaitColumns {
    /// The facts of `state`, each in its column and every other column empty.
    pub(in crate::storage) fn of(state: &WaitState) -> Self {
        let in_state = |state: &str| Self { state: state.to_owned(), ..Self::default() };
        match state {
            WaitState::Open => in_state("open"),
            WaitState::Resumed(Resumption { at, by, attempt }) => Self {
                resume_time: Some(*at),
                resumed_by: Some(by.clone()),
                attempt: Some(*attempt),
                ..in_state("resumed")
            },
            WaitState::Closed { at, ending } => {
                let (kind, by, reason) = match ending {
                    Ending::Closed { by, reason } => (CLOSED, Some(by), reason.clone()),
                    Ending::Replaced { by } => (REPLACED, Some(by), None),
                    Ending::Expired => (EXPIRED, None, None),
                };
                Self {
                    close_time: Some(*at),
                    closed_by: by.cloned(),
                    close_kind: Some(kind.to_owned()),
                    close_reason: reason,
                    ..in_state("closed")
                }
            }
        }
    }

    /// The state that has exactly these facts.
    fn state(&self) -> Option<WaitState> {
        let state = match self.state.as_str() {
            "open" => WaitState::Open,
            "resumed" => WaitState::Resumed(Resumption {
                at: self.resume_time?,
                by: self.resumed_by.clone()?,
                attempt: self.attempt?,
            }),
            "closed" => {
                let ending = match self.close_kind.as_deref()? {
                    CLOSED => Ending::Closed { by: self.closed_by.clone()?, reason: self.close_reason.clone() },
                    REPLACED => Ending::Replaced { by: self.closed_by.clone()? },
                    EXPIRED => Ending::Expired,
                    _ => return None,
                };
                WaitState::Closed { at: self.close_time?, ending }
            }
            _ => return None,
        };
        // A fact of another state beside these is as wrong as a missing one.
        (Self::of(&state) == *self).then_some(state)
    }

    fn read(fields: &Fields<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            state: fields.get("state")?,
            resume_time: fields.maybe_time("resume_time")?,
            resumed_by: fields.maybe_identifier("resumed_by")?,
            attempt: fields.maybe_parsed("attempt_id", AttemptId::parse)?,
            close_time: fields.maybe_time("close_time")?,
            closed_by: fields.maybe_identifier("closed_by")?,
            close_kind: fields.get("close_kind")?,
            close_reason: fields.get("close_reason")?,
        })
    }

    /// Binds thirteen values: `state`, `resume_time`, `resumed_by`, `attempt_id`, `close_time`, `closed_by`,
    /// `close_kind`, `close_reason`, `objective_revision`, `summary`, `update_time`, `expire_time` and `version`.
    pub(in crate::storage) fn bind<S: Bind>(&self, statement: S, wait: &Wait) -> S {
        statement
            .bind(self.state.clone())
            .bind(self.resume_time.map(Timestamp::micros))
            .bind(maybe_text(self.resumed_by.as_ref()))
            .bind(self.attempt.map(|id| id.to_string()))
            .bind(self.close_time.map(Timestamp::micros))
            .bind(maybe_text(self.closed_by.as_ref()))
            .bind(self.close_kind.clone())
            .bind(self.close_reason.clone())
            .bind(integer(wait.objective.revision))
            .bind(wait.summary.clone())
            .bind(wait.update_time.micros())
            .bind(wait.expire_time.micros())
            .bind(integer(wait.version))
    }
}

/// Binds every column of a wait: see `wait_columns`.
pub(in crate::storage) fn bind_wait<S: Bind>(statement: S, wait: &Wait) -> S {
    let statement = statement
        .bind(wait.id.to_string())
        .bind(text(&wait.opened_by))
        .bind(text(&wait.principal))
        .bind(text(&wait.agent))
        .bind(maybe_text(wait.conversation.as_ref()))
        .bind(text(&wait.objective.transcript))
        .bind(text(&wait.objective.id))
        .bind(wait.create_time.micros());
    WaitColumns::of(&wait.state).bind(statement, wait)
}

/// Reads a wait.
pub(in crate::storage) fn wait(row: &impl Columns) -> Result<Wait, StoreError> {
    let fields = Fields::new(row, "waits", "id");
    Ok(Wait {
        id: fields.parsed("id", WaitId::parse)?,
        opened_by: fields.identifier("opened_by")?,
        principal: fields.identifier("principal")?,
        agent: fields.identifier("agent")?,
        conversation: fields.maybe_identifier("conversation")?,
        objective: Objective {
            transcript: fields.identifier("objective_transcript")?,
            id: fields.identifier("objective_id")?,
            revision: fields.count("objective_revision")?,
        },
        summary: fields.get("summary")?,
        create_time: fields.time("create_time")?,
        update_time: fields.time("update_time")?,
        expire_time: fields.time("expire_time")?,
        state: fields.known(WaitColumns::read(&fields)?.state())?,
        version: fields.count("version")?,
    })
}
