//! The operations of several steps, each the same on every database: what is read, what the domain says of it, what is
//! written. A database gives the [`Rows`] of one transaction; the scripts run on them.

use super::{
    CoolingOff, EarlierRequest, Loaded, NewApproval, OpenLimit, OpenedWait, QuestionLimits, RefusedWait, RequestKey,
    Requested, ResumedWait, Saved, SealedArguments, StoreError, WaitRecord, Waited,
};
use crate::domain::approval::{Approval, ApprovalState, Question};
use crate::domain::audit::AuditEvent;
use crate::domain::change::Change;
use crate::domain::execution::{Execution, Start};
use crate::domain::ids::{ApprovalId, ExecutionId, WaitId};
use crate::domain::invocation::Subject;
use crate::domain::limits;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::domain::wait::{Opened, Opening, Resumed, Resuming, Wait, WaitChange, WaitRefusal, Withdrawal};
use async_trait::async_trait;
use sha2::{Digest as _, Sha256};

/// The rows that one transaction reads and writes. Where the database has more than one writer, whatever a script changes
/// or counts on stays as it was read until the transaction ends.
#[async_trait]
pub(super) trait Rows: Send {
    /// Why a script does not come to its end. Nothing of it stays then.
    type Fault: From<StoreError> + Send;

    /// The store's time in this transaction: read after whatever the transaction had to wait for.
    fn now(&self) -> Timestamp;

    /// A wait, to be changed or to be counted on.
    async fn wait(&mut self, id: WaitId) -> Result<Option<Wait>, Self::Fault>;

    /// The active wait of this principal, agent and transcript, to be changed.
    async fn active_wait(
        &mut self,
        principal: &Identifier,
        agent: &Identifier,
        transcript: &Identifier,
    ) -> Result<Option<Wait>, Self::Fault>;

    /// How many waits of this principal and agent are active; counts no further than `most`.
    async fn active_waits(&mut self, principal: &Identifier, agent: &Identifier, most: u32)
    -> Result<u32, Self::Fault>;

    /// Inserts a wait.
    async fn insert_wait(&mut self, wait: &Wait) -> Result<(), Self::Fault>;

    /// Saves a changed wait whose row has the version `expected`; whether it had.
    async fn update_wait(&mut self, wait: &Wait, expected: u64) -> Result<bool, Self::Fault>;

    /// The approvals of a wait that are open or overdue, to be changed.
    async fn open_of_wait(&mut self, id: WaitId) -> Result<Vec<Approval>, Self::Fault>;

    /// How many approvals of a wait wait for people at the store's time.
    async fn pending_of_wait(&mut self, id: WaitId) -> Result<u32, Self::Fault>;

    /// The newest approvals of a wait, newest first, at most `most`.
    async fn newest_of_wait(&mut self, id: WaitId, most: u32) -> Result<Vec<ApprovalId>, Self::Fault>;

    /// These approvals, in any order; those that there are.
    async fn approvals_of(&mut self, ids: &[ApprovalId]) -> Result<Vec<Approval>, Self::Fault>;

    /// What a `request_id` stood for.
    async fn earlier_request(
        &mut self,
        caller: &Identifier,
        principal: &Identifier,
        agent: &Identifier,
        id: &Identifier,
    ) -> Result<Option<EarlierRequest>, Self::Fault>;

    /// The same question, open or overdue, oldest first, to be changed.
    async fn same_question(&mut self, question: &Question) -> Result<Vec<Approval>, Self::Fault>;

    /// How many approvals are open that this caller asked for this principal; counts no further than `most`.
    async fn open_of_principal(
        &mut self,
        caller: &Identifier,
        principal: &Identifier,
        most: u32,
    ) -> Result<u32, Self::Fault>;

    /// How many approvals are open that this caller asked for this agent; counts no further than `most`.
    async fn open_of_agent(&mut self, caller: &Identifier, agent: &Identifier, most: u32) -> Result<u32, Self::Fault>;

    /// How many approvals are open that this caller asked for this principal, of this connector's action; counts no further
    /// than `most`.
    async fn open_of_action(&mut self, caller: &Identifier, subject: &Subject, most: u32) -> Result<u32, Self::Fault>;

    /// When the question was asked that is the `most`th newest of this principal since that instant, of whichever caller;
    /// none if there are not so many.
    async fn asked_since(
        &mut self,
        principal: &Identifier,
        since: Timestamp,
        most: u32,
    ) -> Result<Option<Timestamp>, Self::Fault>;

    /// The approval of these identities and this fingerprint that was denied last, if that was after `since`. Neither the
    /// connection nor the tool's definition, the wait, what is retried or who asks makes it another.
    async fn denied_since(&mut self, subject: &Subject, since: Timestamp) -> Result<Option<Approval>, Self::Fault>;

    /// Inserts a new approval, with its audience and its sealed arguments.
    async fn insert_approval(&mut self, approval: &Approval, arguments: &SealedArguments) -> Result<(), Self::Fault>;

    /// Has a `request_id` stand for this approval.
    async fn insert_request_id(&mut self, key: &RequestKey, approval: &Approval) -> Result<(), Self::Fault>;

    /// Saves a changed approval with its audit records, under the conditions of `Store::save_approval`.
    async fn save_approval(&mut self, change: &Change<Approval>, expected: u64) -> Result<Saved, Self::Fault>;

    /// Has everyone who sees this approval see that it is used up.
    async fn close_audience(&mut self, id: ApprovalId) -> Result<(), Self::Fault>;

    /// One execution, to be counted on.
    async fn execution(&mut self, id: ExecutionId) -> Result<Option<Execution>, Self::Fault>;

    /// Inserts an execution; false, and nothing inserted, if its attempt is known.
    async fn insert_execution(&mut self, execution: &Execution) -> Result<bool, Self::Fault>;

    /// Writes audit records, each with an id and the store's time.
    async fn record(&mut self, events: &[AuditEvent]) -> Result<(), Self::Fault>;
}

/// See `Store::request`.
pub(super) async fn request<R: Rows>(rows: &mut R, new: &NewApproval) -> Result<Requested, R::Fault> {
    let NewApproval { id, question, request, arguments, limits } = new;
    let (caller, principal, agent) = (&question.requested_by, &question.subject.principal, &question.subject.agent);
    if let Some(key) = request
        && let Some(earlier) = rows.earlier_request(caller, principal, agent, &key.id).await?
    {
        return Ok(answered(earlier, key));
    }
    let ends_by = match room(rows, question).await? {
        Ok(ends_by) => ends_by,
        Err(refused) => return Ok(refused),
    };
    for same in rows.same_question(question).await? {
        if let Some(change) = same.expired(rows.now()) {
            save(rows, &change, same.version).await?;
            continue;
        }
        if let Some(key) = request {
            rows.insert_request_id(key, &same).await?;
        }
        return Ok(Requested::Existing(same));
    }
    if let Some(refused) = too_much(rows, question, limits).await? {
        return Ok(refused);
    }
    let Change { next: asked, events, .. } = Approval::ask(*id, question.clone(), ends_by, rows.now());
    rows.insert_approval(&asked, arguments).await?;
    if let Some(key) = request {
        rows.insert_request_id(key, &asked).await?;
    }
    rows.record(&events).await?;
    Ok(Requested::Created(asked))
}

/// Why people are not asked this now: the most particular reason first.
async fn too_much<R: Rows>(
    rows: &mut R,
    question: &Question,
    limits: &QuestionLimits,
) -> Result<Option<Requested>, R::Fault> {
    let (caller, subject, now) = (&question.requested_by, &question.subject, rows.now());
    if !limits.cool_off.is_zero()
        && let Some(denied) = rows.denied_since(subject, now.minus(limits.cool_off)).await?
    {
        let ApprovalState::Denied { at } = denied.state else {
            return Err(StoreError::Corrupt { table: "approvals", id: denied.id.to_string() }.into());
        };
        let until = at.plus(limits.cool_off);
        return Ok(Some(Requested::CoolingOff(Box::new(CoolingOff { denied, until }))));
    }
    if rows.open_of_action(caller, subject, limits.per_action).await? >= limits.per_action {
        return Ok(Some(Requested::LimitReached(OpenLimit::PerAction)));
    }
    if rows.open_of_principal(caller, &subject.principal, limits.per_principal).await? >= limits.per_principal {
        return Ok(Some(Requested::LimitReached(OpenLimit::PerPrincipal)));
    }
    if rows.open_of_agent(caller, &subject.agent, limits.per_agent).await? >= limits.per_agent {
        return Ok(Some(Requested::LimitReached(OpenLimit::PerAgent)));
    }
    if let Some(asked) = limits.asked
        && let Some(first) = rows.asked_since(&subject.principal, now.minus(asked.within), asked.most).await?
    {
        return Ok(Some(Requested::AskedTooOften { again_at: first.plus(asked.within) }));
    }
    Ok(None)
}

/// What is answered to a `request_id` that stood for this.
pub(super) fn answered(earlier: EarlierRequest, key: &RequestKey) -> Requested {
    if earlier.digest == key.digest { Requested::Existing(earlier.approval) } else { Requested::RequestIdReused }
}

/// See `Store::start`.
pub(super) async fn start<R: Rows>(rows: &mut R, start: &Start) -> Result<Option<Execution>, R::Fault> {
    let retried = match start.retry_of {
        None => None,
        Some(id) => match rows.execution(id).await? {
            Some(retried) if retried.is_theirs(&start.subject) && !retried.has_succeeded() => Some(retried),
            Some(_) | None => return Ok(None),
        },
    };
    started(rows, start, retried.as_ref()).await
}

/// What is left of a consumption whose approval was just used up, and retries this execution if it does any. None, and
/// nothing written, if the attempt is known: then nothing may be used up either.
pub(super) async fn start_used<R: Rows>(
    rows: &mut R,
    start: &Start,
    approval: ApprovalId,
    retried: Option<ExecutionId>,
) -> Result<Option<Execution>, R::Fault> {
    let retried = match retried {
        Some(retried) => rows.execution(retried).await?,
        None => None,
    };
    let Some(execution) = started(rows, start, retried.as_ref()).await? else { return Ok(None) };
    rows.close_audience(approval).await?;
    Ok(Some(execution))
}

async fn started<R: Rows>(
    rows: &mut R,
    start: &Start,
    retried: Option<&Execution>,
) -> Result<Option<Execution>, R::Fault> {
    let change = start.clone().at(retried, rows.now());
    if !rows.insert_execution(&change.next).await? {
        return Ok(None);
    }
    rows.record(&change.events).await?;
    Ok(Some(change.next))
}

/// See `Store::open_wait`.
pub(super) async fn open_wait<R: Rows>(
    rows: &mut R,
    opening: &Opening,
) -> Result<Loaded<Waited<OpenedWait>>, R::Fault> {
    let now = rows.now();
    let Opening { principal, agent, objective, .. } = opening;
    let active = rows.active_wait(principal, agent, &objective.transcript).await?;
    let (wait, existing) = match (opening.against(active.as_ref(), now), active) {
        (Ok(Opened::AsItWas), Some(active)) => (active, true),
        (Ok(Opened::Changed(change)), Some(active)) => (save_wait(rows, *change, active.version).await?, true),
        (Ok(Opened::Made { instead_of: None, wait }), _)
            if rows.active_waits(principal, agent, limits::WAITS_ACTIVE).await? >= limits::WAITS_ACTIVE =>
        {
            let refusal = WaitRefusal::TooMany(limits::WAITS_ACTIVE);
            return Ok(Loaded { row: refused(refusal, wait.next), now });
        }
        (Ok(Opened::Made { instead_of, wait }), active) => {
            if let (Some(first), Some(active)) = (instead_of, active) {
                save_wait(rows, *first, active.version).await?;
            }
            rows.insert_wait(&wait.next).await?;
            rows.record(&wait.events).await?;
            (wait.next, false)
        }
        (Err(refusal), Some(wait)) => return Ok(Loaded { row: refused(refusal, wait), now }),
        // Without an active wait there is none to stay as it is, to change, or to stand in the way.
        (Ok(Opened::AsItWas | Opened::Changed(_)) | Err(_), None) => return Err(corrupt(opening.id).into()),
    };
    let record = wait_record(rows, wait).await?;
    Ok(Loaded { row: Ok(OpenedWait { record, existing }), now })
}

/// See `Store::resume_wait`.
pub(super) async fn resume_wait<R: Rows>(
    rows: &mut R,
    id: WaitId,
    resuming: &Resuming,
) -> Result<Loaded<Option<Waited<ResumedWait>>>, R::Fault> {
    let now = rows.now();
    let Some(wait) = current_wait(rows, id).await? else { return Ok(Loaded { row: None, now }) };
    let pending = rows.pending_of_wait(id).await?;
    let (wait, replayed) = match wait.resume(resuming, pending, now) {
        Ok(Resumed::Replayed) => (wait, true),
        Ok(Resumed::Changed(change)) => {
            let change = WaitChange { change: *change, withdrawal: None };
            (save_wait(rows, change, wait.version).await?, false)
        }
        Err(refusal) => return Ok(Loaded { row: Some(refused(refusal, wait)), now }),
    };
    let record = wait_record(rows, wait).await?;
    let mut approvals = rows.approvals_of(&record.approvals).await?;
    approvals.sort_by_key(|approval| record.approvals.iter().position(|id| *id == approval.id));
    Ok(Loaded { row: Some(Ok(ResumedWait { record, approvals, replayed })), now })
}

/// See `Store::close_wait`.
pub(super) async fn close_wait<R: Rows>(
    rows: &mut R,
    id: WaitId,
    caller: &Identifier,
    reason: Option<&str>,
) -> Result<Loaded<Option<Waited<WaitRecord>>>, R::Fault> {
    let now = rows.now();
    let Some(wait) = current_wait(rows, id).await? else { return Ok(Loaded { row: None, now }) };
    let wait = match wait.close(caller, reason, now) {
        Ok(None) => wait,
        Ok(Some(change)) => save_wait(rows, change, wait.version).await?,
        Err(refusal) => return Ok(Loaded { row: Some(refused(refusal, wait)), now }),
    };
    let record = wait_record(rows, wait).await?;
    Ok(Loaded { row: Some(Ok(record)), now })
}

/// Expires these waits, whose time is over, with all of their approvals that still stand in the table as open: how many, and
/// when the first of them was over.
pub(super) async fn expire_waits<R: Rows>(
    rows: &mut R,
    overdue: Vec<Wait>,
) -> Result<(u32, Option<Timestamp>), R::Fault> {
    let (mut expired, mut first) = (0_u32, None);
    for wait in overdue {
        let change = wait.expired(rows.now()).ok_or_else(|| corrupt(wait.id))?;
        save_wait(rows, change, wait.version).await?;
        first = first.or(Some(wait.expire_time));
        expired = expired.saturating_add(1);
    }
    Ok((expired, first))
}

/// A wait with what is told of its approvals.
pub(super) async fn wait_record<R: Rows>(rows: &mut R, wait: Wait) -> Result<WaitRecord, R::Fault> {
    let most = limits::WAIT_APPROVALS as usize;
    let mut approvals = rows.newest_of_wait(wait.id, limits::WAIT_APPROVALS.saturating_add(1)).await?;
    let more_approvals = approvals.len() > most;
    approvals.truncate(most);
    approvals.reverse();
    let pending = rows.pending_of_wait(wait.id).await?;
    Ok(WaitRecord { wait, approvals, more_approvals, pending })
}

/// Until when at most an approval of this question is open; none without a wait. A wait that does not take it answers
/// instead.
async fn room<R: Rows>(rows: &mut R, question: &Question) -> Result<Result<Option<Timestamp>, Requested>, R::Fault> {
    let Some(id) = question.wait else { return Ok(Ok(None)) };
    let subject = &question.subject;
    let wait = current_wait(rows, id).await?.filter(|wait| wait.is_of(&subject.principal, &subject.agent));
    let Some(wait) = wait else { return Ok(Err(Requested::WaitUnknown)) };
    Ok(match wait.accepts(subject, rows.now()) {
        Ok(ends_by) => Ok(Some(ends_by)),
        Err(refusal) => Err(Requested::WaitRefused(Box::new(RefusedWait { refusal, wait }))),
    })
}

/// A wait that is written down as expired first, if its time is over.
async fn current_wait<R: Rows>(rows: &mut R, id: WaitId) -> Result<Option<Wait>, R::Fault> {
    let Some(wait) = rows.wait(id).await? else { return Ok(None) };
    let Some(change) = wait.expired(rows.now()) else { return Ok(Some(wait)) };
    save_wait(rows, change, wait.version).await.map(Some)
}

/// Saves a changed wait, withdraws its approvals where the change says so, and writes the audit.
async fn save_wait<R: Rows>(rows: &mut R, change: WaitChange, expected: u64) -> Result<Wait, R::Fault> {
    let WaitChange { change: Change { next, events, .. }, withdrawal } = change;
    if !rows.update_wait(&next, expected).await? {
        // It was read in this very transaction.
        return Err(corrupt(next.id).into());
    }
    rows.record(&events).await?;
    if let Some(withdrawal) = withdrawal {
        withdraw(rows, &withdrawal).await?;
    }
    Ok(next)
}

async fn withdraw<R: Rows>(rows: &mut R, withdrawal: &Withdrawal) -> Result<(), R::Fault> {
    for approval in rows.open_of_wait(withdrawal.wait).await? {
        if let Some(change) = withdrawal.of(&approval, rows.now()) {
            save(rows, &change, approval.version).await?;
        }
    }
    Ok(())
}

/// Saves a change of an approval that was read, to be changed, in this very transaction.
async fn save<R: Rows>(rows: &mut R, change: &Change<Approval>, expected: u64) -> Result<(), R::Fault> {
    match rows.save_approval(change, expected).await? {
        Saved::Yes => Ok(()),
        Saved::Conflict => Err(StoreError::Corrupt { table: "approvals", id: change.next.id.to_string() }.into()),
    }
}

fn refused<T>(refusal: WaitRefusal, wait: Wait) -> Waited<T> {
    Err(Box::new(RefusedWait { refusal, wait }))
}

fn corrupt(id: WaitId) -> StoreError {
    StoreError::Corrupt { table: "waits", id: id.to_string() }
}

/// The number of the lock that stands for what these words name together: others may have it as well, by chance, and then
/// merely wait for each other.
pub(super) fn lock_key(parts: &[&str]) -> i64 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    let digest: [u8; 32] = hash.finalize().into();
    digest.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::testing::moved;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_have_one_lock_where_they_are_the_same_and_nowhere_else((one, other) in moved(3), joined in any::<bool>()) {
            let words = |fields: &[String]| fields.to_vec();
            let (one, mut other) = (words(&one), words(&other));
            if joined {
                let last = other.pop().unwrap_or_default();
                other.last_mut().unwrap().push_str(&last);
            }
            let of = |words: &[String]| lock_key(&words.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert_eq!(of(&one) == of(&other), one == other);
        }
    }

    #[test]
    fn other_words_have_another_lock() {
        let keys = [
            lock_key(&[]),
            lock_key(&[""]),
            lock_key(&["a"]),
            lock_key(&["a", "b"]),
            lock_key(&["b", "a"]),
            lock_key(&["ab"]),
            lock_key(&["a", "", "b"]),
            lock_key(&["", "ab"]),
        ];
        let different: std::collections::BTreeSet<i64> = keys.into_iter().collect();
        assert_eq!(different.len(), keys.len());
    }

    #[test]
    fn a_lock_is_the_same_in_every_version() {
        assert_eq!(lock_key(&["waits", "user-1", "agent"]), -862_663_553_242_812_211);
    }
}
