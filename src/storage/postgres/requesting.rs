//! Recording a question: in one round trip where that is all there is to do, in steps where it is not.

use super::table::{Fault, Operation};
use super::time::TableTime;
use super::transaction;
use super::values::kept;
use super::writes::{RECORD_KINDS, call, calling};
use crate::domain::approval::Approval;
use crate::domain::time::Timestamp;
use crate::storage::changes::Touched;
use crate::storage::rows;
use crate::storage::{Loaded, NewApproval, Requested, script};
use async_trait::async_trait;
use sqlx::{PgConnection, Row as _};
use std::sync::{Arc, LazyLock};

/// Values of a question, as `rows::bind_question` binds them.
const QUESTION_VALUES: usize = 32;
static REQUEST: LazyLock<Arc<str>> =
    LazyLock::new(|| call("record_question", 6 + QUESTION_VALUES + 12 + RECORD_KINDS.len(), "store_now, ends_by"));

/// See `Store::request`.
pub(super) struct Request(pub(super) NewApproval);

/// The keys of the locks under which questions for one principal are recorded one after the other, and those of one caller for
/// one agent, in the order in which they are taken. An older version knows one of them less, in the same order.
pub(super) fn locks(new: &NewApproval) -> Vec<i64> {
    let question = &new.question;
    let (caller, subject) = (question.requested_by.as_str(), &question.subject);
    let mut keys = vec![
        script::lock_key(&["open-principal", caller, subject.principal.as_str()]),
        script::lock_key(&["open-agent", caller, subject.agent.as_str()]),
    ];
    if new.limits.asked.is_some() {
        keys.push(script::lock_key(&["asked-principal", subject.principal.as_str()]));
    }
    keys.sort_unstable();
    keys
}

#[async_trait]
impl Operation for Request {
    type Answer = Loaded<Requested>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let NewApproval { id, question, request, arguments, limits } = &self.0;
        // The times of it are relative to the store's, which is known once it is recorded.
        let relative = Approval::ask(*id, question.clone(), None, Timestamp::from_micros(0));
        let statement = calling(&REQUEST, time)
            .bind(locks(&self.0))
            .bind(id.to_string())
            .bind(rows::integer(relative.next.version))
            .bind(relative.next.create_time.micros())
            .bind(relative.next.decide_by.micros());
        let audience = rows::audience(question);
        let (kinds, names): (Vec<&str>, Vec<&str>) =
            audience.into_iter().map(|(kind, name)| (kind, name.as_str())).unzip();
        let mut statement = rows::bind_question(statement, question)
            .bind(kinds)
            .bind(names)
            .bind(kept(arguments.key_id.clone()))
            .bind(arguments.bytes.as_slice())
            .bind(request.as_ref().map(|key| rows::text(&key.id)))
            .bind(request.as_ref().map(|key| key.digest.clone()))
            .bind(i64::from(limits.per_principal))
            .bind(i64::from(limits.per_agent))
            .bind(i64::from(limits.per_action))
            .bind(limits.asked.map(|asked| i64::from(asked.most)))
            .bind(limits.asked.map(|asked| rows::micros(asked.within)))
            .bind(rows::micros(limits.cool_off));
        for event in &relative.events {
            statement = rows::bind_event(statement, event).bind(rows::record_id(time.estimated()).to_string());
        }
        let Some(row) = statement.fetch_optional(&mut *connection).await? else {
            let (row, now) = transaction::request_slowly(connection, time, touched, &self.0).await?;
            return Ok(Loaded { row, now });
        };
        let now = Timestamp::from_micros(row.try_get("store_now")?);
        let ends_by: Option<i64> = row.try_get("ends_by")?;
        time.told(now);
        let made = Approval::ask(*id, question.clone(), ends_by.map(Timestamp::from_micros), now);
        touched.approval(*id, made.next.version);
        made.events.iter().for_each(|event| touched.recorded(event.kind, 1));
        Ok(Loaded { row: Requested::Created(made.next), now })
    }
}
