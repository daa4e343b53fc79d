//! Lists, page by page. A page token is opaque, authenticated, and good for the very query that it was made for.

use super::{Engine, EngineError};
use crate::domain::approval::{Approval, Person, StateName};
use crate::domain::audit::AuditRecord;
use crate::domain::ids::{ApprovalId, ExecutionId};
use crate::domain::limits;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::storage::{ApprovalQuery, AuditQuery};

/// A page.
#[derive(Debug)]
pub struct Listed<T> {
    /// What is on it.
    pub rows: Vec<T>,
    /// For the next page; none on the last.
    pub next_page_token: Option<String>,
}

/// Which audit records to list.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Only those about this approval.
    pub approval: Option<ApprovalId>,
    /// Only those about this execution.
    pub execution: Option<ExecutionId>,
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
        let (rows, last) = one_page(loaded.row, page_size, approval_bytes);
        let next_page_token =
            last.map(|last| self.keys.page_token(&query, &format!("{}|{}", last.create_time.micros(), last.id)));
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
                principal: filter.principal,
                before,
                limit: page_size.saturating_add(1),
            })
            .await?;
        let (rows, last) = one_page(loaded.row, page_size, record_bytes);
        let next_page_token = last.map(|last| self.keys.page_token(&query, &last.position.to_string()));
        Ok(Listed { rows, next_page_token })
    }

    fn cursor(&self, query: &[u8], page_token: &str) -> Result<Option<String>, EngineError> {
        if page_token.is_empty() {
            return Ok(None);
        }
        self.keys.page_cursor(query, page_token).map(Some).ok_or(EngineError::PageTokenInvalid)
    }
}

/// Every part behind its length, so that no two queries read the same.
fn joined(parts: &[String]) -> Vec<u8> {
    parts.iter().flat_map(|part| (part.len() as u64).to_be_bytes().into_iter().chain(part.bytes())).collect()
}

/// The rows of one page out of one more than a page, and its last row if there is another page. A page ends early where
/// it would be larger than a client takes; one row always fits.
fn one_page<T: Clone>(mut rows: Vec<T>, page_size: u32, bytes: impl Fn(&T) -> usize) -> (Vec<T>, Option<T>) {
    let mut room = limits::PAGE_BYTES;
    let fitting = rows.iter().take_while(|row| {
        let rest = room.checked_sub(bytes(row));
        room = rest.unwrap_or(0);
        rest.is_some()
    });
    let size = fitting.count().max(1).min(page_size as usize);
    let more = rows.len() > size;
    rows.truncate(size);
    let last = if more { rows.last().cloned() } else { None };
    (rows, last)
}

/// About what an approval measures in an answer: what callers and people may have made long, and room for the rest.
fn approval_bytes(approval: &Approval) -> usize {
    let question = &approval.question;
    let omissions: usize = question.preview.omissions.iter().map(|omission| omission.pointer.len() + 32).sum();
    let rules: usize =
        question.rules.iter().map(|rule| rule.name.len() + rule.error.as_ref().map_or(0, String::len) + 64).sum();
    let decisions: usize = approval
        .decisions
        .iter()
        .map(|decision| decision.reason.as_ref().map_or(0, String::len) + decision.groups.len() * 256 + 320)
        .sum();
    let said = approval.closed().and_then(|closed| closed.reason).map_or(0, str::len);
    let note = question.agent_note.as_ref().map_or(0, String::len);
    4_096 + question.preview.json.len() + omissions + rules + decisions + said + note
}

fn record_bytes(record: &AuditRecord) -> usize {
    let labels: usize = record.event.labels.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
    2_048 + labels + record.event.note.as_ref().map_or(0, String::len)
}

fn approval_cursor(text: &str) -> Option<(Timestamp, ApprovalId)> {
    let (time, id) = text.split_once('|')?;
    Some((Timestamp::from_micros(time.parse().ok()?), ApprovalId::parse(id)?))
}
