//! Waits, and what becomes of the approvals in them.

use super::*;
use crate::domain::approval::StateName;
use crate::domain::audit::AuditKind;
use crate::domain::ids::{AttemptId, WaitId};
use crate::domain::invocation::{Objective, Subject};
use crate::domain::limits;
use crate::domain::wait::{Ending, Opening, Resuming, Wait, WaitRefusal, WaitState, WaitStateName};
use crate::storage::{AuditQuery, OpenedWait, RefusedWait, ResumedWait, Sweep, WaitRecord};
use uuid::Uuid;

const LASTS: Duration = Duration::from_secs(3_600);

pub(super) fn opening() -> Opening {
    Opening {
        id: WaitId::new(Uuid::now_v7()),
        caller: id("runner"),
        principal: id("olga"),
        agent: id("assistant"),
        conversation: Some(id("chat-1")),
        objective: objective(3),
        summary: "until olga has answered".to_owned(),
        expire_after: Some(LASTS),
        replace: false,
    }
}

fn other_objective() -> Objective {
    Objective { id: id("objective-2"), ..objective(0) }
}

fn resuming(wait: &Wait, attempt: AttemptId) -> Resuming {
    Resuming {
        caller: id("runner"),
        principal: wait.principal.clone(),
        agent: wait.agent.clone(),
        transcript: wait.objective.transcript.clone(),
        version: wait.version,
        attempt,
    }
}

/// The question about that call, in a wait.
fn question_in(wait: &Wait, call: &str) -> Question {
    let question = question_about(call);
    let subject = Subject { objective: Some(wait.objective.clone()), ..question.subject.clone() };
    Question { wait: Some(wait.id), subject, ..question }
}

impl Fixture {
    async fn open(&self, opening: Opening) -> Result<OpenedWait, RefusedWait> {
        self.store.open_wait(opening).await.unwrap().row.map_err(|refused| *refused)
    }

    /// Opens a wait, which is new.
    pub(super) async fn waiting(&self, opening: Opening) -> Wait {
        let opened = self.open(opening).await.unwrap();
        assert!(!opened.existing);
        opened.record.wait
    }

    async fn record_of(&self, wait: &Wait) -> WaitRecord {
        self.store.wait(wait.id).await.unwrap().row.unwrap()
    }

    async fn resume(&self, wait: &Wait, attempt: AttemptId) -> Result<ResumedWait, WaitRefusal> {
        let loaded = self.store.resume_wait(wait.id, resuming(wait, attempt)).await.unwrap();
        loaded.row.unwrap().map_err(|refused| refused.refusal)
    }

    async fn close(&self, wait: &Wait, caller: &str) -> Result<WaitRecord, WaitRefusal> {
        let loaded = self.store.close_wait(wait.id, &id(caller), Some("no longer wanted")).await.unwrap();
        loaded.row.unwrap().map_err(|refused| refused.refusal)
    }

    async fn state_of(&self, approval: &Approval) -> StateName {
        self.approval(approval.id).await.state.name()
    }

    /// One approval of each state, in a wait; what was open first.
    async fn one_of_each(&self, wait: &Wait) -> Vec<Approval> {
        let pending = self.ask(question_in(wait, "pending")).await;
        let approved = self.approved(question_in(wait, "approved")).await;
        let denied = self.ask(question_in(wait, "denied")).await;
        let denied = self.decide(&denied, "olga", Verdict::Deny).await;
        let cancelled = self.ask(question_in(wait, "cancelled")).await;
        let commanded = cancelled.cancel(&id("runner"), None, self.now()).unwrap();
        let cancelled = self.save(commanded, cancelled.version).await;
        let revoked = self.approved(question_in(wait, "revoked")).await;
        let commanded = revoked.revoke(&person("olga"), None, self.now()).unwrap();
        let revoked = self.save(commanded, revoked.version).await;
        let (consumed, _) = self.consumed(question_in(wait, "consumed")).await;
        vec![pending, approved, denied, cancelled, revoked, consumed]
    }

    async fn sweep_waits(&self, limit: u32) -> u32 {
        self.store.sweep(Sweep::ExpireWaits, limit).await.unwrap().rows
    }

    async fn kinds_of(&self, wait: &Wait) -> Vec<AuditKind> {
        let query = AuditQuery { wait: Some(wait.id), limit: 1_000, ..AuditQuery::default() };
        let records = self.store.audit_records(query).await.unwrap().row;
        records.into_iter().rev().map(|record| record.event.kind).collect()
    }
}

pub(in super::super) async fn a_wait_is_read_back_as_it_was_saved(fixture: Fixture) {
    let said = opening();
    let wait = fixture.waiting(said.clone()).await;
    assert_eq!((wait.id, wait.version, wait.state.clone()), (said.id, 1, WaitState::Open));
    assert_eq!((wait.create_time, wait.expire_time), (START, START.plus(LASTS)));
    let loaded = fixture.store.wait(wait.id).await.unwrap();
    let bare = WaitRecord { wait: wait.clone(), approvals: Vec::new(), more_approvals: false, pending: 0 };
    assert_eq!((loaded.row.unwrap(), loaded.now), (bare, START));
    fixture.clock.advance(TICK);
    let resumed = fixture.resume(&wait, attempt_id()).await.unwrap();
    assert_eq!(fixture.record_of(&wait).await, resumed.record);
    fixture.clock.advance(TICK);
    let said = Opening { summary: "\u{0}'; --".to_owned(), objective: objective(4), ..opening() };
    let again = fixture.open(said.clone()).await.unwrap();
    assert!(again.existing);
    assert_eq!(fixture.record_of(&wait).await, again.record);
    assert_eq!((&again.record.wait.summary, again.record.wait.objective.revision), (&said.summary, 4));
    fixture.clock.advance(TICK);
    let closed = fixture.close(&wait, "another").await.unwrap();
    let ending = Ending::Closed { by: id("another"), reason: Some("no longer wanted".to_owned()) };
    assert_eq!(closed.wait.state, WaitState::Closed { at: fixture.now(), ending });
    assert_eq!(closed.wait.version, 4);
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.record_of(&wait).await, closed);
    let nothing = WaitId::new(Uuid::now_v7());
    assert!(fixture.store.wait(nothing).await.unwrap().row.is_none());
    assert!(fixture.store.resume_wait(nothing, resuming(&wait, attempt_id())).await.unwrap().row.is_none());
    assert!(fixture.store.close_wait(nothing, &id("runner"), None).await.unwrap().row.is_none());
}

pub(in super::super) async fn one_wait_of_a_principal_agent_and_transcript_is_active(fixture: Fixture) {
    let first = fixture.waiting(opening()).await;
    let before = fixture.dump().await;
    let again = fixture.open(Opening { expire_after: None, ..opening() }).await.unwrap();
    assert_eq!((again.existing, &again.record.wait), (true, &first));
    let conflict = fixture.open(Opening { objective: other_objective(), ..opening() }).await.unwrap_err();
    assert_eq!(conflict, RefusedWait { refusal: WaitRefusal::ObjectiveConflict, wait: first.clone() });
    let stale = fixture.open(Opening { objective: objective(2), replace: true, ..opening() }).await.unwrap_err();
    assert_eq!(stale, RefusedWait { refusal: WaitRefusal::ObjectiveStale, wait: first.clone() });
    assert_eq!(fixture.dump().await, before, "what is refused or as before writes nothing");
    for other in [
        Opening { principal: id("Olga"), ..opening() },
        Opening { agent: id("other"), ..opening() },
        Opening { objective: Objective { transcript: id("transcript-2"), ..objective(3) }, ..opening() },
    ] {
        fixture.waiting(other).await;
    }
    let second = fixture.waiting(Opening { objective: other_objective(), replace: true, ..opening() }).await;
    assert_eq!(fixture.record_of(&first).await.wait.state.name(), WaitStateName::Replaced);
    fixture.close(&second, "runner").await.unwrap();
    let third = fixture.waiting(opening()).await;
    assert_ne!(third.id, first.id);
}

pub(in super::super) async fn a_hundred_simultaneous_openings_make_one_wait(fixture: Fixture) {
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let store = Arc::clone(&fixture.store);
            let opening = Opening { expire_after: None, ..opening() };
            tokio::spawn(async move { store.open_wait(opening).await.unwrap().row.unwrap() })
        })
        .collect();
    let (mut made, mut ids) = (0, std::collections::BTreeSet::new());
    for task in tasks {
        let opened = task.await.unwrap();
        made += usize::from(!opened.existing);
        ids.insert(opened.record.wait.id);
    }
    assert_eq!((made, ids.len()), (1, 1));
}

pub(in super::super) async fn what_ends_a_wait_withdraws_what_is_open_in_it_and_nothing_else(fixture: Fixture) {
    for ending in ["closed", "replaced", "superseded"] {
        let of = |opening: Opening| Opening { principal: id(ending), ..opening };
        let wait = fixture.waiting(of(opening())).await;
        let beside = fixture.waiting(Opening { agent: id("beside"), ..of(opening()) }).await;
        let of_principal = |mut question: Question| {
            question.subject.principal = id(ending);
            question
        };
        let pending = fixture.ask(of_principal(question_in(&wait, "pending"))).await;
        let approved = fixture.approved(of_principal(question_in(&wait, "approved"))).await;
        let denied = fixture.ask(of_principal(question_in(&wait, "denied"))).await;
        let denied = fixture.decide(&denied, ending, Verdict::Deny).await;
        let (consumed, _) = fixture.consumed(of_principal(question_in(&wait, "consumed"))).await;
        let mut of_another_agent = of_principal(question_in(&beside, "beside"));
        of_another_agent.subject.agent = id("beside");
        let of_another_agent = fixture.ask(of_another_agent).await;
        let alone = fixture.ask(of_principal(question_about("alone"))).await;
        fixture.clock.advance(TICK);
        match ending {
            "closed" => drop(fixture.close(&wait, "another").await.unwrap()),
            "replaced" => {
                let other = Opening { objective: other_objective(), replace: true, ..of(opening()) };
                fixture.waiting(Opening { caller: id("another"), ..other }).await;
            }
            _ => {
                let higher = Opening { objective: objective(4), caller: id("another"), ..of(opening()) };
                assert!(fixture.open(higher).await.unwrap().existing);
            }
        }
        for approval in [&pending, &approved] {
            let withdrawn = fixture.approval(approval.id).await;
            let ApprovalState::Cancelled { at, by, reason, confirmed } = &withdrawn.state else {
                panic!("{ending}: {:?}", withdrawn.state)
            };
            assert_eq!((*at, by, *confirmed), (fixture.now(), &id("another"), approval.state.confirmed()));
            assert!(reason.as_ref().unwrap().starts_with(&format!("wait {} ", wait.id)));
            assert_eq!(withdrawn.version, approval.version + 1);
        }
        for approval in [&denied, &consumed, &of_another_agent, &alone] {
            assert_eq!(&fixture.approval(approval.id).await, approval, "{ending}");
        }
        let kinds = fixture.kinds_of(&wait).await;
        assert_eq!(kinds.iter().filter(|kind| **kind == AuditKind::ApprovalCancelled).count(), 2);
        assert!(fixture.consume(start_of(&approved)).await.is_none(), "the approval's own row decides");
    }
}

pub(in super::super) async fn a_question_belongs_to_an_open_wait_of_its_own_and_ends_with_it(fixture: Fixture) {
    let wait = fixture.waiting(Opening { expire_after: Some(USE_WITHIN), ..opening() }).await;
    let asked = fixture.ask(question_in(&wait, "call")).await;
    assert_eq!((asked.decide_by, asked.ends_by), (wait.expire_time, Some(wait.expire_time)));
    let same = fixture.request(question_in(&wait, "call"), None, NO_LIMITS).await;
    assert_eq!(same, Requested::Existing(asked.clone()));
    fixture.clock.advance(Duration::from_secs(10));
    let approved = fixture.decide(&asked, "olga", Verdict::Approve).await;
    assert_eq!(approved.state.confirmed().unwrap().use_by, wait.expire_time);
    assert_eq!(fixture.approval(asked.id).await, approved);
    let alone = fixture.ask(question_about("call")).await;
    assert_eq!((alone.decide_by, alone.ends_by), (fixture.now().plus(DECIDE_WITHIN), None));

    let refused = |question: Question| {
        let fixture = &fixture;
        async move {
            let before = fixture.dump().await;
            let answer = fixture.request(question, None, NO_LIMITS).await;
            assert_eq!(fixture.dump().await, before);
            match answer {
                Requested::WaitRefused(refused) => Some(refused.refusal),
                Requested::WaitUnknown => None,
                other => panic!("{other:?}"),
            }
        }
    };
    let in_wait = || question_in(&wait, "another");
    let differs = Some(WaitRefusal::ObjectiveDiffers);
    for objective in [None, Some(objective(4)), Some(objective(2)), Some(other_objective())] {
        let subject = Subject { objective, ..in_wait().subject };
        assert_eq!(refused(Question { subject, ..in_wait() }).await, differs);
    }
    for subject in
        [Subject { principal: id("Olga"), ..in_wait().subject }, Subject { agent: id("other"), ..in_wait().subject }]
    {
        assert_eq!(refused(Question { subject, ..in_wait() }).await, None);
    }
    assert_eq!(refused(Question { wait: Some(WaitId::new(Uuid::now_v7())), ..in_wait() }).await, None);
    fixture.resume(&wait, attempt_id()).await.unwrap();
    assert_eq!(refused(in_wait()).await, Some(WaitRefusal::NotOpen));
    // What a request id stands for is answered whatever became of its wait.
    fixture.open(Opening { expire_after: None, ..opening() }).await.unwrap();
    let key = Some(request_key("request-1", "d"));
    let Requested::Created(keyed) = fixture.request(question_in(&wait, "keyed"), key.clone(), NO_LIMITS).await else {
        panic!()
    };
    fixture.close(&wait, "runner").await.unwrap();
    assert_eq!(refused(in_wait()).await, Some(WaitRefusal::Over(WaitStateName::Closed)));
    let again = fixture.request(question_in(&wait, "keyed"), key, NO_LIMITS).await;
    let Requested::Existing(again) = again else { panic!("{again:?}") };
    assert_eq!((again.id, again.state.name()), (keyed.id, StateName::Cancelled));
}

pub(in super::super) async fn the_same_question_in_another_wait_is_another(fixture: Fixture) {
    let wait = fixture.waiting(opening()).await;
    let first = fixture.ask(question_in(&wait, "call")).await;
    let alone = fixture.ask(question_about("call")).await;
    fixture.close(&wait, "runner").await.unwrap();
    let second = fixture.waiting(opening()).await;
    let other = fixture.ask(question_in(&second, "call")).await;
    assert!(first.id != alone.id && alone.id != other.id && first.id != other.id);
    assert_eq!(fixture.state_of(&first).await, StateName::Cancelled);
    assert_eq!(fixture.approval(alone.id).await, alone);
}

pub(in super::super) async fn a_wait_is_resumed_once_nothing_is_pending(fixture: Fixture) {
    let wait = fixture.waiting(opening()).await;
    let all = fixture.one_of_each(&wait).await;
    let record = fixture.record_of(&wait).await;
    assert_eq!((record.approvals.len(), record.more_approvals, record.pending), (6, false, 1));
    let attempt = attempt_id();
    assert_eq!(fixture.resume(&wait, attempt).await, Err(WaitRefusal::Pending(1)));
    // What is overdue is not pending, whether or not somebody has written that down.
    fixture.advance_to(all[0].decide_by);
    let resumed = fixture.resume(&wait, attempt).await.unwrap();
    assert!(!resumed.replayed);
    assert_eq!(resumed.record.pending, 0);
    let ids: Vec<ApprovalId> = resumed.approvals.iter().map(|approval| approval.id).collect();
    assert_eq!((&ids, resumed.record.wait.version), (&resumed.record.approvals, 2));
    for approval in &resumed.approvals {
        assert_eq!(&fixture.approval(approval.id).await, approval, "as it stands in the table");
    }
    let before = fixture.dump().await;
    let again = fixture.resume(&wait, attempt).await.unwrap();
    assert_eq!(again, ResumedWait { replayed: true, ..resumed });
    assert_eq!(fixture.resume(&wait, attempt_id()).await, Err(WaitRefusal::AlreadyResumed));
    assert_eq!(fixture.dump().await, before);
}

pub(in super::super) async fn of_a_hundred_attempts_one_resumes(fixture: Fixture) {
    let wait = fixture.waiting(opening()).await;
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let (store, wait) = (Arc::clone(&fixture.store), wait.clone());
            tokio::spawn(async move {
                store.resume_wait(wait.id, resuming(&wait, attempt_id())).await.unwrap().row.unwrap()
            })
        })
        .collect();
    let mut won = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => won += 1,
            Err(refused) => assert_eq!(refused.refusal, WaitRefusal::AlreadyResumed),
        }
    }
    assert_eq!(won, 1);
}

pub(in super::super) async fn an_overdue_wait_is_expired_by_whoever_comes_first(fixture: Fixture) {
    for first in ["open", "resume", "close", "ask", "sweep"] {
        let of = |opening: Opening| Opening { principal: id(first), ..opening };
        let wait = fixture.waiting(of(Opening { expire_after: Some(USE_WITHIN), ..opening() })).await;
        let mut question = question_in(&wait, "call");
        question.subject.principal = id(first);
        let pending = fixture.ask(question.clone()).await;
        fixture.advance_to(wait.expire_time.minus(TICK));
        assert_eq!(fixture.sweep_waits(10).await, 0);
        assert_eq!(fixture.record_of(&wait).await.pending, 1);
        fixture.advance_to(wait.expire_time.plus(TICK));
        let stands = fixture.record_of(&wait).await;
        assert_eq!((stands.wait.clone(), stands.pending), (wait.clone(), 0), "as it stands in the table");
        match first {
            "open" => drop(fixture.waiting(of(opening())).await),
            "resume" => {
                let refused = fixture.resume(&wait, attempt_id()).await.unwrap_err();
                assert_eq!(refused, WaitRefusal::Over(WaitStateName::Expired));
            }
            "close" => {
                let refused = fixture.close(&wait, "runner").await.unwrap_err();
                assert_eq!(refused, WaitRefusal::Over(WaitStateName::Expired));
            }
            "ask" => {
                let Requested::WaitRefused(refused) = fixture.request(question, None, NO_LIMITS).await else {
                    panic!()
                };
                assert_eq!(refused.refusal, WaitRefusal::Over(WaitStateName::Expired));
            }
            _ => assert_eq!(fixture.sweep_waits(10).await, 1),
        }
        let ended = fixture.record_of(&wait).await.wait;
        assert_eq!(ended, wait.clone().as_of(fixture.now()), "{first}");
        assert_eq!(fixture.approval(pending.id).await, pending.as_of(fixture.now()), "{first}");
        let kinds = fixture.kinds_of(&wait).await;
        assert_eq!(kinds.iter().filter(|kind| **kind == AuditKind::WaitExpired).count(), 1, "{first}");
        assert_eq!(fixture.sweep_waits(10).await, 0, "{first}");
        assert_eq!(fixture.kinds_of(&wait).await, kinds);
    }
}

pub(in super::super) async fn waits_expire_a_few_at_a_time_the_longest_overdue_first(fixture: Fixture) {
    let mut waits = Vec::new();
    for number in 0..7_u32 {
        let expire_after = Some(LASTS + TICK * number);
        waits.push(fixture.waiting(Opening { principal: id(&format!("p-{number}")), expire_after, ..opening() }).await);
    }
    fixture.advance_to(waits[4].expire_time);
    assert_eq!(fixture.sweep_waits(0).await, 0);
    for (expired, total) in [(2, 2), (2, 4), (1, 5), (0, 5)] {
        assert_eq!(fixture.sweep_waits(2).await, expired);
        for (number, wait) in waits.iter().enumerate() {
            let state = fixture.record_of(wait).await.wait.state.name();
            assert_eq!(state == WaitStateName::Expired, number < total, "{number} of {total}");
        }
    }
}

pub(in super::super) async fn a_question_and_the_end_of_its_wait_do_not_miss_each_other(fixture: Fixture) {
    asked_and_closed_at_once(&fixture, &fixture).await;
}

/// Asks in waits that are closed meanwhile, through another process or the same.
pub(super) async fn asked_and_closed_at_once(fixture: &Fixture, closer: &Fixture) {
    for round in 0..10 {
        let wait = fixture.waiting(Opening { principal: id(&format!("p-{round}")), ..opening() }).await;
        let asking: Vec<_> = (0..20)
            .map(|call| {
                let store = Arc::clone(&fixture.store);
                let mut question = question_in(&wait, &call.to_string());
                question.subject.principal = wait.principal.clone();
                let new = NewApproval {
                    id: approval_id(),
                    question,
                    arguments: sealed_arguments(),
                    request: None,
                    limits: NO_LIMITS,
                };
                tokio::spawn(async move { store.request(new).await.unwrap().row })
            })
            .collect();
        let closing = {
            let (store, wait) = (Arc::clone(&closer.store), wait.id);
            tokio::spawn(async move { store.close_wait(wait, &id("runner"), None).await.unwrap().row.unwrap() })
        };
        closing.await.unwrap().unwrap();
        for asked in asking {
            match asked.await.unwrap() {
                Requested::Created(approval) => assert_eq!(fixture.state_of(&approval).await, StateName::Cancelled),
                Requested::WaitRefused(refused) => {
                    assert_eq!(refused.refusal, WaitRefusal::Over(WaitStateName::Closed));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

pub(in super::super) async fn of_many_approvals_the_newest_are_told(fixture: Fixture) {
    let wait = fixture.waiting(opening()).await;
    let most = usize::try_from(limits::WAIT_APPROVALS).unwrap();
    let mut asked = Vec::new();
    for number in 0..most + 2 {
        asked.push(fixture.ask(question_in(&wait, &number.to_string())).await.id);
        fixture.clock.advance(TICK);
        let record = fixture.record_of(&wait).await;
        assert_eq!(record.approvals, asked[asked.len().saturating_sub(most)..]);
        assert_eq!((record.more_approvals, record.pending as usize), (asked.len() > most, asked.len()));
    }
    let closed = fixture.close(&wait, "runner").await.unwrap();
    assert_eq!((closed.approvals.len(), closed.more_approvals, closed.pending), (most, true, 0));
    for id in asked {
        assert_eq!(fixture.approval(id).await.state.name(), StateName::Cancelled, "all of them, told or not");
    }
}
