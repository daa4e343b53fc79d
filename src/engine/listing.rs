//! Lists, page by page. A page token is opaque, authenticated, and good for the very query that it was made for.

use super::{Engine, EngineError};
use crate::domain::approval::{Approval, Person, StateName};
use crate::domain::audit::AuditRecord;
use crate::domain::execution::{Execution, ExecutionStateName};
use crate::domain::ids::{ApprovalId, ExecutionId, WaitId};
use crate::domain::limits;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::storage::{ApprovalQuery, AuditQuery, ExecutionQuery};

/// What a row weighs beside its texts: ids, times, numbers, and what marks each field.
const ROW_BYTES: usize = 512;
/// The names of an approval: ten identifiers of 256 bytes at most.
const NAMES_BYTES: usize = 10 * 256;

/// A page.
#[derive(Debug)]
pub struct Listed<T> {
    /// What is on it.
    pub rows: Vec<T>,
    /// For the next page; none on the last.
    pub next_page_token: Option<String>,
}

/// Which executions to list. What is none or empty wants all.
#[derive(Clone, Debug, Default)]
pub struct ExecutionFilter {
    /// Only those of this principal.
    pub principal: Option<Identifier>,
    /// Only those of this agent.
    pub agent: Option<Identifier>,
    /// Only those of this connector.
    pub connector: Option<Identifier>,
    /// Only those in one of these states now.
    pub states: Vec<ExecutionStateName>,
    /// Only the one that this approval started.
    pub approval: Option<ApprovalId>,
    /// Only those that started at this instant or later.
    pub started_from: Option<Timestamp>,
    /// Only those that started before this instant.
    pub started_before: Option<Timestamp>,
}

/// Which audit records to list.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Only those about this approval.
    pub approval: Option<ApprovalId>,
    /// Only those about this execution.
    pub execution: Option<ExecutionId>,
    /// Only those about this wait and what was asked in it.
    pub wait: Option<WaitId>,
    /// Only those on behalf of this principal.
    pub principal: Option<Identifier>,
}

impl Engine {
    /// The approvals that this person sees, newest first, as they stand now.
    ///
    /// # Errors
    /// The page token is not of this query; the store.
    pub async fn list_approvals(
        &self,
        person: &Person,
        states: &[StateName],
        page_size: u32,
        page_token: &str,
    ) -> Result<Listed<Approval>, EngineError> {
        let mut query = vec!["approvals".to_owned(), person.caller.to_string(), person.id.to_string()];
        query.extend(states.iter().map(ToString::to_string));
        let query = joined(&query);
        let before = match self.cursor(&query, page_token)? {
            None => None,
            Some(cursor) => Some(approval_cursor(&cursor).ok_or(EngineError::PageTokenInvalid)?),
        };
        let loaded = self
            .store
            .approvals(ApprovalQuery {
                person: person.id.clone(),
                groups: person.groups.clone(),
                states: states.to_vec(),
                before,
                limit: page_size.saturating_add(1),
            })
            .await?;
        let (rows, last) = one_page(loaded.row, page_size, weight_of_approval);
        let next_page_token =
            last.map(|last| self.keys().page_token(&query, &format!("{}|{}", last.create_time.micros(), last.id)));
        Ok(Listed { rows: rows.into_iter().map(|approval| approval.as_of(loaded.now)).collect(), next_page_token })
    }

    /// Audit records, newest first.
    ///
    /// # Errors
    /// The page token is not of this query; the store.
    pub async fn list_audit_records(
        &self,
        caller: &Identifier,
        filter: AuditFilter,
        page_size: u32,
        page_token: &str,
    ) -> Result<Listed<AuditRecord>, EngineError> {
        let query = joined(&[
            "audit".to_owned(),
            caller.to_string(),
            filter.approval.map_or(String::new(), |id| id.to_string()),
            filter.execution.map_or(String::new(), |id| id.to_string()),
            filter.wait.map_or(String::new(), |id| id.to_string()),
            filter.principal.as_ref().map_or(String::new(), ToString::to_string),
        ]);
        let before = match self.cursor(&query, page_token)? {
            None => None,
            Some(cursor) => Some(cursor.parse().map_err(|_| EngineError::PageTokenInvalid)?),
        };
        let loaded = self
            .store
            .audit_records(AuditQuery {
                approval: filter.approval,
                execution: filter.execution,
                wait: filter.wait,
                principal: filter.principal,
                before,
                limit: page_size.saturating_add(1),
            })
            .await?;
        let (rows, last) = one_page(loaded.row, page_size, weight_of_record);
        let next_page_token = last.map(|last| self.keys().page_token(&query, &last.position.to_string()));
        Ok(Listed { rows, next_page_token })
    }

    /// Executions, newest first, as they stand now. A page may be short, or empty, and yet not the last.
    ///
    /// # Errors
    /// The page token is not of this query; the store.
    pub async fn list_executions(
        &self,
        caller: &Identifier,
        filter: ExecutionFilter,
        page_size: u32,
        page_token: &str,
    ) -> Result<Listed<Execution>, EngineError> {
        let optional = |text: &Option<Identifier>| text.as_ref().map_or(String::new(), ToString::to_string);
        let instant = |time: Option<Timestamp>| time.map_or(String::new(), |time| time.micros().to_string());
        let mut query = vec![
            "executions".to_owned(),
            caller.to_string(),
            optional(&filter.principal),
            optional(&filter.agent),
            optional(&filter.connector),
            filter.approval.map_or(String::new(), |id| id.to_string()),
            instant(filter.started_from),
            instant(filter.started_before),
        ];
        query.extend(filter.states.iter().map(|state| state.as_str().to_owned()));
        let query = joined(&query);
        let before = match self.cursor(&query, page_token)? {
            None => None,
            Some(cursor) => Some(execution_cursor(&cursor).ok_or(EngineError::PageTokenInvalid)?),
        };
        let ExecutionFilter { principal, agent, connector, states, approval, started_from, started_before } = filter;
        let loaded = self
            .store
            .executions(ExecutionQuery {
                principal,
                agent,
                connector,
                states,
                approval,
                started_from,
                started_before,
                before,
                limit: page_size.saturating_add(1),
            })
            .await?;
        let (rows, last) = one_page(loaded.row.executions, page_size, weight_of_execution);
        let last = last.map(|last| (last.start_time, last.id)).or(loaded.row.looked_until);
        let next_page_token = last.map(|(time, id)| self.keys().page_token(&query, &format!("{}|{id}", time.micros())));
        Ok(Listed { rows: rows.into_iter().map(|execution| execution.as_of(loaded.now)).collect(), next_page_token })
    }

    fn cursor(&self, query: &[u8], page_token: &str) -> Result<Option<String>, EngineError> {
        if page_token.is_empty() {
            return Ok(None);
        }
        self.keys().page_cursor(query, page_token).map(Some).ok_or(EngineError::PageTokenInvalid)
    }
}

/// Every part behind its length, so that no two queries read the same.
fn joined(parts: &[String]) -> Vec<u8> {
    parts.iter().flat_map(|part| (part.len() as u64).to_be_bytes().into_iter().chain(part.bytes())).collect()
}

/// The rows of one page out of one more than a page, and its last row if there is another page. A page has one row at
/// least, so that whoever pages gets further.
fn one_page<T: Clone>(mut rows: Vec<T>, page_size: u32, weight: impl Fn(&T) -> usize) -> (Vec<T>, Option<T>) {
    let found = rows.len();
    let mut bytes = 0_usize;
    let fitting = rows.iter().take(page_size as usize).take_while(|row| {
        bytes = bytes.saturating_add(weight(row));
        bytes <= limits::PAGE_BYTES
    });
    let size = fitting.count().max(1);
    rows.truncate(size);
    let last = if found > size { rows.last().cloned() } else { None };
    (rows, last)
}

pub(super) fn weight_of_approval(approval: &Approval) -> usize {
    let question = &approval.question;
    let optional = |text: Option<&str>| text.map_or(0, str::len);
    let preview = question.preview.as_ref();
    let shown = optional(preview.map(|preview| preview.json.as_str()))
        + question.message.len()
        + optional(question.agent_note.as_deref());
    let omissions = preview.map_or(&[][..], |preview| &preview.omissions);
    let omissions = omissions.iter().map(|one| one.pointer.len() + optional(one.field.as_deref()) + 32);
    let tags = question.tags.iter().map(|tag| tag.len() + 8);
    let rules =
        question.rules.iter().map(|rule| rule.connector.len() + rule.name.len() + optional(rule.error.as_deref()) + 32);
    let approvers = question.requirement.clauses().iter().flat_map(|clause| clause.any_of());
    let decisions = approval.decisions.iter().map(|decision| {
        let groups: usize = decision.groups.iter().map(|group| group.as_str().len() + 8).sum();
        decision.person.as_str().len() + groups + optional(decision.reason.as_deref()) + 64
    });
    let lists: usize = omissions.chain(tags).chain(rules).chain(decisions).sum();
    let approvers: usize = approvers.map(|entry| entry.to_string().len() + 16).sum();
    ROW_BYTES + NAMES_BYTES + shown + lists + approvers
}

fn weight_of_record(record: &AuditRecord) -> usize {
    let event = &record.event;
    let optional = |text: Option<&Identifier>| text.map_or(0, |text| text.as_str().len());
    let names = [&event.principal, &event.agent].map(|name| name.as_str().len());
    let others = [&event.connector, &event.action, &event.caller, &event.conversation, &event.account, &event.person]
        .map(|name| optional(name.as_ref()));
    let labels = event.labels.iter().map(|(name, value)| name.len() + value.len() + 16);
    ROW_BYTES
        + names.into_iter().chain(others).chain(labels).sum::<usize>()
        + event.reason.as_ref().map_or(0, String::len)
        + event.note.as_ref().map_or(0, String::len)
}

fn weight_of_execution(execution: &Execution) -> usize {
    let said = execution.state.report().map_or(0, |report| {
        [&report.remote_reference, &report.error_code, &report.detail].into_iter().flatten().map(String::len).sum()
    });
    ROW_BYTES + NAMES_BYTES + said
}

fn execution_cursor(text: &str) -> Option<(Timestamp, ExecutionId)> {
    let (time, id) = text.split_once('|')?;
    Some((Timestamp::from_micros(time.parse().ok()?), ExecutionId::parse(id)?))
}

fn approval_cursor(text: &str) -> Option<(Timestamp, ApprovalId)> {
    let (time, id) = text.split_once('|')?;
    Some((Timestamp::from_micros(time.parse().ok()?), ApprovalId::parse(id)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::testing::moved;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn queries_read_the_same_where_they_are_and_nowhere_else((one, other) in moved(4), fewer in any::<bool>()) {
            let mut other = other;
            if fewer {
                let last = other.pop().unwrap_or_default();
                other.iter_mut().take(1).for_each(|first| first.push_str(&last));
            }
            prop_assert_eq!(joined(&one) == joined(&other), one == other);
        }
    }
}
