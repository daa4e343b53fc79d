//! Passing the gate with an approval: the statements of many calls run as one text, so that what the driver asks for each
//! is paid once for all of them. The calls run in their order, each with every condition of its own.

use super::transaction::TransactionRows;
use super::values::Statement;
use super::writer::Write;
use super::writes::record_id;
use crate::domain::audit::AuditEvent;
use crate::domain::execution::{Execution, Start};
use crate::domain::ids::ApprovalId;
use crate::domain::time::Timestamp;
use crate::storage::changes::Touched;
use crate::storage::rows::{self, event_columns, execution_columns, same_subject, subject_columns};
use crate::storage::{Accepting, StoreError, script};
use async_trait::async_trait;
use sqlx::{AssertSqlSafe, SqliteConnection, query};
use std::sync::{Arc, LazyLock};

// `OR FAIL` in each: what fails undoes the whole transaction, so that SQLite need not keep what would undo the statement
// alone.

/// Uses an approval up. Every condition of the gate is here: what it is bound to, the state, the deadline by the store's
/// own time, the requirement that was met, a new attempt, and a retry that is still needed.
const USE_UP: &str = concat!(
    "UPDATE OR FAIL approvals SET state = 'consumed', consume_time = $18, execution_id = $16, open_until = NULL, \
     version = version + 1 \
     WHERE id = $1 AND state = 'approved' AND use_by > $18 AND ",
    same_subject!(),
    " AND ($33 IS NULL OR requirement_digest = $33) AND ($34 IS NULL OR version = $34) \
     AND NOT EXISTS (SELECT 1 FROM executions WHERE executions.caller = $21 AND executions.principal = $2 \
     AND executions.agent = $3 AND executions.attempt_id = $22) \
     AND NOT EXISTS (SELECT 1 FROM executions WHERE executions.id = approvals.retry_of \
     AND executions.state = 'succeeded') RETURNING $55 AS call, id, retry_of, version"
);
/// Each of the following does something only where the one before it did. A retry is left to `script::start_used`, which
/// looks at what is retried.
const START: &str = concat!(
    "INSERT OR FAIL INTO executions (",
    execution_columns!(),
    ") SELECT $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, \
     $25, $26, $27, $28, $29, $30, $31, $32 \
     WHERE changes() = 1 AND NOT EXISTS (SELECT 1 FROM approvals WHERE id = $1 AND retry_of IS NOT NULL)"
);
const RECORD: &str = concat!(
    "INSERT OR FAIL INTO audit_records (",
    event_columns!(),
    ", id, time) SELECT $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, \
     $54 WHERE changes() = 1"
);
const CLOSE_AUDIENCE: &str = "UPDATE OR FAIL approval_audience SET state = 'consumed', open_until = NULL
    WHERE approval_id = $1 AND state <> 'consumed' AND changes() = 1";
/// The values of one call.
const VALUES: usize = 55;

/// Calls in one text: the smallest that holds them. What it holds more is NULL, of which nothing comes.
const SIZES: [usize; 3] = [1, 8, 32];
/// Calls in the largest.
const MOST: usize = 32;

/// The text of so many calls, each with its own values.
static TEXTS: LazyLock<[Arc<str>; 3]> = LazyLock::new(|| {
    SIZES.map(|calls| {
        let one = [USE_UP, START, RECORD, CLOSE_AUDIENCE].join(";\n");
        (0..calls).map(|call| renumbered(&one, call * VALUES)).collect::<Vec<_>>().join(";\n").into()
    })
});

/// Every statement of this file that searches, for the test that looks at how each is run.
#[cfg(test)]
pub(super) const ALL: [&str; 3] = [USE_UP, START, CLOSE_AUDIENCE];

/// See `Store::consume`.
pub(super) struct Consume {
    pub(super) start: Start,
    pub(super) approval: ApprovalId,
    pub(super) accepting: Accepting,
}

#[async_trait]
impl Write for Consume {
    type Answer = Option<Execution>;

    async fn run(
        &self,
        connection: &mut SqliteConnection,
        now: Timestamp,
        touched: &mut Touched,
    ) -> Result<Self::Answer, StoreError> {
        Ok(consume_all(connection, &[self], now, touched).await?.pop().flatten())
    }
}

/// Runs these calls one after the other, within a transaction; what each answers.
pub(super) async fn consume_all(
    connection: &mut SqliteConnection,
    calls: &[&Consume],
    now: Timestamp,
    touched: &mut Touched,
) -> Result<Vec<Option<Execution>>, StoreError> {
    let mut answers = Vec::with_capacity(calls.len());
    for calls in calls.chunks(MOST) {
        consume_some(connection, calls, now, touched, &mut answers).await?;
    }
    Ok(answers)
}

async fn consume_some(
    connection: &mut SqliteConnection,
    calls: &[&Consume],
    now: Timestamp,
    touched: &mut Touched,
    answers: &mut Vec<Option<Execution>>,
) -> Result<(), StoreError> {
    let text = SIZES.iter().zip(TEXTS.iter()).find(|(size, _)| calls.len() <= **size).map(|(_, text)| text);
    let Some(text) = text else { return Err(StoreError::Inconsistent { cause: "too many calls".to_owned() }) };
    let mut statement = query(AssertSqlSafe(Arc::clone(text)));
    let mut changes = Vec::with_capacity(calls.len());
    for (number, call) in (0_i64..).zip(calls) {
        let change = call.start.clone().at(None, now);
        let (digest, version) = match call.accepting {
            Accepting::AnyRequirement => (None, None),
            Accepting::Digest(digest) => (Some(digest.to_string()), None),
            Accepting::Version(version) => (None, Some(rows::integer(version))),
        };
        statement =
            rows::bind_execution(statement.bind(call.approval.to_string()), &change.next).bind(digest).bind(version);
        statement = bind_record(statement, &change.events, now)?.bind(number);
        changes.push(change);
    }
    let rows = statement.fetch_all(&mut *connection).await?;
    let mut used = rows.iter().map(rows::used).collect::<Result<Vec<_>, _>>()?.into_iter().peekable();
    for (number, (call, change)) in calls.iter().zip(changes).enumerate() {
        let Some(used) = used.next_if(|used| used.call == number) else {
            answers.push(None);
            continue;
        };
        touched.approval(call.approval, used.version);
        answers.push(match used.retry_of {
            None => {
                change.events.iter().for_each(|event| touched.recorded(event.kind, 1));
                Some(change.next)
            }
            Some(retried) => {
                let rows = &mut TransactionRows { connection: &mut *connection, now, touched: &mut *touched };
                let started = script::start_used(rows, &call.start, call.approval, Some(retried)).await?;
                // Two calls of one attempt in one text: undone, each is run alone.
                let twice = || format!("the attempt {} started twice", call.start.attempt);
                Some(started.ok_or_else(|| StoreError::Inconsistent { cause: twice() })?)
            }
        });
    }
    Ok(())
}

/// Binds the one record of a start, with its id and time.
fn bind_record<'q>(
    statement: Statement<'q>,
    events: &[AuditEvent],
    now: Timestamp,
) -> Result<Statement<'q>, StoreError> {
    let [event] = events else {
        return Err(StoreError::Inconsistent { cause: "a start has one record".to_owned() });
    };
    Ok(rows::bind_event(statement, event).bind(record_id(now).to_string()).bind(now.micros()))
}

/// A statement whose values are numbered from `by` on.
fn renumbered(statement: &str, by: usize) -> String {
    let mut parts = statement.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
        let (number, rest) = part.split_at_checked(digits).unwrap_or((part, ""));
        let number = number.parse::<usize>().unwrap_or_default().saturating_add(by);
        text.push_str(&format!("${number}{rest}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_a_text_has_its_own_values() {
        assert_eq!(renumbered("$1 = a AND b > $18 OR c IN ($2,$3)", 54), "$55 = a AND b > $72 OR c IN ($56,$57)");
        for (calls, text) in SIZES.iter().zip(TEXTS.iter()) {
            let numbers: std::collections::BTreeSet<usize> = text
                .split('$')
                .skip(1)
                .map(|part| {
                    part[..part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len())].parse().unwrap()
                })
                .collect();
            assert_eq!(numbers, (1..=calls * VALUES).collect(), "each value is used, and none is missing");
        }
        assert_eq!(SIZES.iter().max(), Some(&MOST));
    }
}
