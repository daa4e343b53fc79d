//! A row of `executions`.

use super::{Bind, Columns, Fields, bind_subject, integer, list, maybe_text, micros, text};
use crate::domain::execution::{Execution, ExecutionState, ExecutionStateName, Report};
use crate::domain::ids::{ApprovalId, AttemptId, ExecutionId};
use crate::domain::time::Timestamp;
use crate::storage::StoreError;
use std::time::Duration;

/// The columns of a state's facts.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::storage) struct ExecutionColumns {
    state: ExecutionStateName,
    report: Option<Report>,
}

impl ExecutionColumns {
    /// The facts of `state`.
    pub(in crate::storage) fn of(state: &ExecutionState) -> Self {
        Self { state: state.name(), report: state.report().cloned() }
    }

    /// The state that has exactly these facts.
    fn state(self) -> Option<ExecutionState> {
        match (self.state, self.report) {
            (ExecutionStateName::Started, None) => Some(ExecutionState::Started),
            (ExecutionStateName::Succeeded, Some(report)) => Some(ExecutionState::Succeeded(report)),
            (ExecutionStateName::Failed, Some(report)) => Some(ExecutionState::Failed(report)),
            (ExecutionStateName::Unknown, report) => Some(ExecutionState::Unknown(report)),
            (ExecutionStateName::Started, Some(_))
            | (ExecutionStateName::Succeeded | ExecutionStateName::Failed, None) => None,
        }
    }

    /// Binds seven values: state, `report_time`, `reported_by`, `remote_reference`, `error_code`, `detail` and
    /// `duration_us`.
    pub(in crate::storage) fn bind<S: Bind>(&self, statement: S) -> S {
        let report = self.report.as_ref();
        statement
            .bind(self.state.as_str())
            .bind(report.map(|report| report.at.micros()))
            .bind(maybe_text(report.map(|report| &report.by)))
            .bind(report.and_then(|report| report.remote_reference.clone()))
            .bind(report.and_then(|report| report.error_code.clone()))
            .bind(report.and_then(|report| report.detail.clone()))
            .bind(report.and_then(|report| report.duration).map(micros))
    }
}

/// Binds an execution: the invocation's columns (see `bind_subject`), `connection`, `labels`, `id`, `version`,
/// `start_time`, `report_by`, `approval_id`, `caller`, `attempt_id`, `idempotency_key`, `retry_of`, `policy_revision` and
/// those of its state.
pub(in crate::storage) fn bind_execution<S: Bind>(statement: S, execution: &Execution) -> S {
    let statement = bind_subject(statement, &execution.subject)
        .bind(maybe_text(execution.subject.connection.as_ref()))
        .bind(list(&execution.subject.labels))
        .bind(execution.id.to_string())
        .bind(integer(execution.version))
        .bind(execution.start_time.micros())
        .bind(execution.report_by.micros())
        .bind(execution.approval.map(|id| id.to_string()))
        .bind(text(&execution.caller))
        .bind(execution.attempt.to_string())
        .bind(execution.idempotency_key.clone())
        .bind(execution.retry_of.map(|id| id.to_string()))
        .bind(execution.policy_revision.clone());
    ExecutionColumns::of(&execution.state).bind(statement)
}

/// Reads an execution.
pub(in crate::storage) fn execution(row: &impl Columns) -> Result<Execution, StoreError> {
    let fields = Fields::new(row, "executions", "id");
    let columns =
        ExecutionColumns { state: fields.parsed("state", ExecutionStateName::parse)?, report: report(&fields)? };
    Ok(Execution {
        id: fields.parsed("id", ExecutionId::parse)?,
        approval: fields.maybe_parsed("approval_id", ApprovalId::parse)?,
        subject: fields.subject()?,
        caller: fields.identifier("caller")?,
        attempt: fields.parsed("attempt_id", AttemptId::parse)?,
        idempotency_key: fields.get("idempotency_key")?,
        retry_of: fields.maybe_parsed("retry_of", ExecutionId::parse)?,
        policy_revision: fields.get("policy_revision")?,
        start_time: fields.time("start_time")?,
        report_by: fields.time("report_by")?,
        state: fields.known(columns.state())?,
        version: fields.count("version")?,
    })
}

fn report(fields: &Fields<'_>) -> Result<Option<Report>, StoreError> {
    let (at, by): (Option<Timestamp>, _) = (fields.maybe_time("report_time")?, fields.maybe_identifier("reported_by")?);
    let remote_reference: Option<String> = fields.get("remote_reference")?;
    let error_code: Option<String> = fields.get("error_code")?;
    let detail: Option<String> = fields.get("detail")?;
    let duration = match fields.get::<Option<i64>>("duration_us")? {
        None => None,
        Some(span) => Some(Duration::from_micros(fields.known(u64::try_from(span).ok())?)),
    };
    match (at, by) {
        (Some(at), Some(by)) => Ok(Some(Report { at, by, remote_reference, error_code, detail, duration })),
        (None, None)
            if remote_reference.is_none() && error_code.is_none() && detail.is_none() && duration.is_none() =>
        {
            Ok(None)
        }
        _ => Err(fields.corrupt()),
    }
}
