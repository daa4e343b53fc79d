//! The operations of several steps. What each has to wait for it locks first, always in the same order: the locks that
//! stand for what is not there yet, the wait, the approvals by their ids, the execution. Only then it reads the time, and
//! runs its script: from there on nothing that it changes or counts on is changed by others.
//!
//! A question holds the row of its wait until it is committed, and whoever ends a wait locks that row before looking for
//! its approvals: they cannot miss each other.

mod locks;
mod statements;

use super::reads::FindRequest;
use super::requesting;
use super::table::{Fault, Operation};
use super::time::TableTime;
use crate::domain::execution::{Execution, Start};
use crate::domain::ids::{ApprovalId, WaitId};
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::{Opened, Opening, Resuming, Wait};
use crate::storage::changes::Touched;
use crate::storage::script::{self, lock_key};
use crate::storage::{Accepting, Loaded, NewApproval, OpenedWait, Requested, ResumedWait, WaitRecord, Waited};
use async_trait::async_trait;
use sqlx::{Connection as _, PgConnection, Postgres, Transaction};
use statements::TransactionRows;

/// The statements that search, for the test that looks at how each is run.
#[cfg(test)]
pub(super) const ALL: [&[&str]; 2] = [&locks::ALL, &statements::ALL];

/// Each statement sees what was committed before it began, whatever the database's default is.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/// See `Store::open_wait`.
pub(super) struct OpenWait(pub(super) Opening);

#[async_trait]
impl Operation for OpenWait {
    type Answer = Loaded<Waited<OpenedWait>>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let Opening { principal, agent, objective, .. } = &self.0;
        let mut transaction = begin(connection).await?;
        // At most one is active, and there is a limit for all of them: they are opened one after the other.
        locks::lock(&mut transaction, lock_key(&["waits", principal.as_str(), agent.as_str()])).await?;
        let wait = locks::lock_active_wait(&mut transaction, principal, agent, &objective.transcript).await?;
        let withdraws = |wait: &Wait, now| match self.0.against(Some(wait), now) {
            Ok(Opened::Changed(change)) => change.withdrawal.is_some(),
            Ok(Opened::Made { instead_of, .. }) => instead_of.is_some(),
            Ok(Opened::AsItWas) | Err(_) => false,
        };
        let now = settled(&mut transaction, time, wait.as_ref(), withdraws).await?;
        let mut rows = TransactionRows::new(&mut transaction, now, touched).with_wait(wait);
        let answer = script::open_wait(&mut rows, &self.0).await?;
        transaction.commit().await?;
        Ok(answer)
    }
}

/// See `Store::resume_wait`.
pub(super) struct ResumeWait {
    pub(super) id: WaitId,
    pub(super) resuming: Resuming,
}

#[async_trait]
impl Operation for ResumeWait {
    type Answer = Loaded<Option<Waited<ResumedWait>>>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let mut transaction = begin(connection).await?;
        let wait = locks::lock_wait(&mut transaction, self.id).await?;
        let now = settled(&mut transaction, time, wait.as_ref(), is_over).await?;
        let mut rows = TransactionRows::new(&mut transaction, now, touched).with_wait(wait);
        let Loaded { row, .. } = script::resume_wait(&mut rows, self.id, &self.resuming).await?;
        // Its approvals are no part of what is locked: some may have changed since.
        let now = locks::now(&mut transaction, time).await?;
        transaction.commit().await?;
        Ok(Loaded { row, now })
    }
}

/// See `Store::close_wait`.
pub(super) struct CloseWait {
    pub(super) id: WaitId,
    pub(super) caller: Identifier,
    pub(super) reason: Option<String>,
}

#[async_trait]
impl Operation for CloseWait {
    type Answer = Loaded<Option<Waited<WaitRecord>>>;

    async fn run(
        &self,
        connection: &mut PgConnection,
        time: &TableTime,
        touched: &mut Touched,
    ) -> Result<Self::Answer, Fault> {
        let mut transaction = begin(connection).await?;
        let wait = locks::lock_wait(&mut transaction, self.id).await?;
        let withdraws =
            |wait: &Wait, now| is_over(wait, now) || matches!(wait.close(&self.caller, None, now), Ok(Some(_)));
        let now = settled(&mut transaction, time, wait.as_ref(), withdraws).await?;
        let mut rows = TransactionRows::new(&mut transaction, now, touched).with_wait(wait);
        let answer = script::close_wait(&mut rows, self.id, &self.caller, self.reason.as_deref()).await?;
        transaction.commit().await?;
        Ok(answer)
    }
}

/// See `Store::request`: whatever is to be done. The store's time with it.
pub(super) async fn request_slowly(
    connection: &mut PgConnection,
    time: &TableTime,
    touched: &mut Touched,
    new: &NewApproval,
) -> Result<(Requested, Timestamp), Fault> {
    let question = &new.question;
    if let Some(key) = &new.request {
        let (caller, subject) = (&question.requested_by, &question.subject);
        let (principal, agent) = (&subject.principal, &subject.agent);
        // What an id stands for never changes: whoever asks again waits for nobody.
        let find = FindRequest { caller, principal, agent, id: &key.id };
        let Loaded { row: earlier, now } = find.run(connection, time, touched).await?;
        if let Some(earlier) = earlier {
            return Ok((script::answered(earlier, key), now));
        }
    }
    let mut transaction = begin(connection).await?;
    for key in requesting::locks(new) {
        locks::lock(&mut transaction, key).await?;
    }
    let wait = match question.wait {
        Some(id) => locks::lock_wait(&mut transaction, id).await?,
        None => None,
    };
    let mut now = settled(&mut transaction, time, wait.as_ref(), is_over).await?;
    // Of a wait that is over, everything is locked by now.
    if !wait.as_ref().is_some_and(|wait| is_over(wait, now))
        && locks::lock_same_question(&mut transaction, question).await?
    {
        now = locks::now(&mut transaction, time).await?;
    }
    let mut rows = TransactionRows::new(&mut transaction, now, touched).with_wait(wait);
    let requested = script::request(&mut rows, new).await?;
    transaction.commit().await?;
    Ok((requested, now))
}

/// See `Store::start`: a start that retries an execution.
pub(super) async fn start_slowly(
    connection: &mut PgConnection,
    time: &TableTime,
    touched: &mut Touched,
    start: &Start,
) -> Result<Option<Execution>, Fault> {
    let mut transaction = begin(connection).await?;
    if let Some(retried) = start.retry_of {
        locks::lock_execution(&mut transaction, retried).await?;
    }
    let now = locks::now(&mut transaction, time).await?;
    let started = script::start(&mut TransactionRows::new(&mut transaction, now, touched), start).await?;
    transaction.commit().await?;
    Ok(started)
}

/// See `Store::consume`: of one call by itself, which waits for whoever is at its approval, and looks at what that retries.
pub(super) async fn consume_slowly(
    connection: &mut PgConnection,
    time: &TableTime,
    touched: &mut Touched,
    start: &Start,
    approval: ApprovalId,
    accepting: Accepting,
) -> Result<Option<Execution>, Fault> {
    let mut transaction = begin(connection).await?;
    let used = use_up(&mut transaction, time, touched, start, approval, accepting).await?;
    let Some((used, execution)) = used else {
        transaction.rollback().await?;
        return Ok(None);
    };
    // Other tables and their indexes may have been waited for since.
    if locks::now(&mut transaction, time).await? >= used.use_by {
        transaction.rollback().await?;
        return Ok(None);
    }
    transaction.commit().await?;
    touched.approval(approval, used.version);
    Ok(Some(execution))
}

/// What was used up, and what has started. None if not all of it could be done.
async fn use_up(
    connection: &mut PgConnection,
    time: &TableTime,
    touched: &mut Touched,
    start: &Start,
    approval: ApprovalId,
    accepting: Accepting,
) -> Result<Option<(statements::UsedUp, Execution)>, Fault> {
    let Some(retried) = locks::lock_approval(connection, approval).await? else { return Ok(None) };
    if let Some(retried) = retried {
        // Whoever reports that it has succeeded after all comes before, or after.
        locks::lock_execution(connection, retried).await?;
    }
    let now = locks::now(connection, time).await?;
    let used = statements::use_up(connection, start, approval, accepting, now).await?;
    let Some(used) = used else { return Ok(None) };
    let mut rows = TransactionRows::new(connection, now, touched);
    let started = script::start_used(&mut rows, start, approval, retried).await?;
    Ok(started.map(|execution| (used, execution)))
}

/// Expires at most `limit` waits whose time is over, longest overdue first, but for those that others are at: how many, and
/// when the first of them was over.
pub(super) async fn expire_waits(
    connection: &mut PgConnection,
    time: &TableTime,
    touched: &mut Touched,
    limit: u32,
) -> Result<(u32, Option<Timestamp>), Fault> {
    let mut transaction = begin(connection).await?;
    let mut overdue = locks::lock_overdue_waits(&mut transaction, time, limit).await?;
    let ids: Vec<WaitId> = overdue.iter().map(|wait| wait.id).collect();
    locks::lock_open_of_waits(&mut transaction, &ids).await?;
    let now = locks::now(&mut transaction, time).await?;
    // The database's clock may have been set back since.
    overdue.retain(|wait| is_over(wait, now));
    let mut rows = TransactionRows::new(&mut transaction, now, touched);
    let expired = script::expire_waits(&mut rows, overdue).await?;
    transaction.commit().await?;
    Ok(expired)
}

/// The store's time, in a transaction.
pub(super) async fn now(connection: &mut PgConnection, time: &TableTime) -> Result<Timestamp, Fault> {
    locks::now(connection, time).await
}

/// Begins a transaction.
pub(super) async fn begin(connection: &mut PgConnection) -> Result<Transaction<'_, Postgres>, Fault> {
    Ok(connection.begin_with(BEGIN).await?)
}

/// The time at which all is locked that the wait, which is, takes with it: its open approvals, where it `withdraws` them.
async fn settled(
    connection: &mut PgConnection,
    time: &TableTime,
    wait: Option<&Wait>,
    withdraws: impl Fn(&Wait, Timestamp) -> bool,
) -> Result<Timestamp, Fault> {
    let now = locks::now(connection, time).await?;
    match wait {
        Some(wait) if withdraws(wait, now) => {
            locks::lock_open_of_waits(connection, &[wait.id]).await?;
            locks::now(connection, time).await
        }
        _ => Ok(now),
    }
}

fn is_over(wait: &Wait, now: Timestamp) -> bool {
    wait.expired(now).is_some()
}
