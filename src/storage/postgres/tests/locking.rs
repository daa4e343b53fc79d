//! What operations of several steps wait for, and that they go by what is so once they have.

use super::*;
use crate::domain::approval::{Question, StateName};
use crate::domain::execution::Outcome;
use crate::domain::ids::{AttemptId, WaitId};
use crate::domain::invocation::{Objective, Subject};
use crate::domain::wait::{Wait, WaitRefusal, WaitStateName};
use crate::storage::changes::Touched;
use crate::storage::conformance::*;
use crate::storage::postgres::requesting::Request;
use crate::storage::postgres::table::Operation as _;
use crate::storage::postgres::time::TableTime;
use crate::storage::{Requested, Sweep};
use sqlx::PgConnection;
use uuid::Uuid;

const LASTS: Duration = Duration::from_secs(3_600);
const LOCK_WAIT: &str = "SELECT 1 FROM waits WHERE id = $1 FOR UPDATE";
const LOCK_APPROVAL: &str = "SELECT 1 FROM approvals WHERE id = $1 FOR UPDATE";
const SUCCEED: &str =
    "UPDATE executions SET state = 'succeeded', report_time = start_time, reported_by = 'runner', version = version + 1
    WHERE id = $1";

fn opening() -> Opening {
    Opening {
        id: WaitId::new(Uuid::now_v7()),
        caller: id("runner"),
        principal: id("olga"),
        agent: id("assistant"),
        conversation: None,
        objective: objective(3),
        summary: "until olga has answered".to_owned(),
        expire_after: Some(LASTS),
        replace: false,
    }
}

fn question_in(wait: &Wait, call: &str) -> Question {
    let question = question_about(call);
    let subject = Subject { objective: Some(wait.objective.clone()), ..question.subject.clone() };
    Question { wait: Some(wait.id), subject, ..question }
}

fn new(question: Question) -> NewApproval {
    NewApproval { id: approval_id(), question, request: None, arguments: sealed_arguments(), limits: NO_LIMITS }
}

fn resuming(wait: &Wait) -> Resuming {
    Resuming {
        caller: id("runner"),
        principal: wait.principal.clone(),
        agent: wait.agent.clone(),
        transcript: wait.objective.transcript.clone(),
        version: wait.version,
        attempt: AttemptId::new(Uuid::new_v4()),
    }
}

/// A database, a store on it, and what somebody else holds in it.
struct Held {
    database: Arc<cluster::Database>,
    fixture: Fixture,
    other: PgConnection,
}

impl Held {
    async fn new() -> Self {
        let database = Arc::new(fresh().await);
        let other = database.connect().await;
        let fixture = Fixture::new(Arc::<cluster::Database>::clone(&database)).await;
        Self { database, fixture, other }
    }

    async fn waiting(&self) -> Wait {
        self.fixture.store.open_wait(opening()).await.unwrap().row.unwrap().record.wait
    }

    fn time(&self) -> TableTime {
        let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&self.fixture.clock);
        TableTime::since(self.fixture.now(), Some(clock))
    }

    async fn begin(&mut self) {
        query("BEGIN").execute(&mut self.other).await.unwrap();
    }

    async fn hold(&mut self, statement: &'static str, id: impl ToString) {
        self.begin().await;
        query(statement).bind(id.to_string()).execute(&mut self.other).await.unwrap();
    }

    /// Begins `call`, waits until it waits for what is held, does something, lets go, and returns what it answers.
    async fn let_go_after<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &mut self,
        call: impl FnOnce(Arc<dyn Store>) -> F,
        meanwhile: impl FnOnce(&Fixture),
    ) -> T {
        let call = tokio::spawn(call(Arc::clone(&self.fixture.store)));
        let mut looking = self.database.connect().await;
        loop {
            let waiting = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event_type = 'Lock'";
            let waiting: i64 = query(waiting).fetch_one(&mut looking).await.unwrap().get(0);
            if waiting > 0 {
                break;
            }
            assert!(!call.is_finished(), "it waited for nothing");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        meanwhile(&self.fixture);
        query("COMMIT").execute(&mut self.other).await.unwrap();
        call.await.unwrap()
    }
}

#[tokio::test]
async fn a_wait_that_ends_while_its_row_is_waited_for_has_ended() {
    let mut held = Held::new().await;
    let over = |fixture: &Fixture| fixture.clock.advance(LASTS);
    let expired = WaitRefusal::Over(WaitStateName::Expired);

    let wait = held.waiting().await;
    held.hold(LOCK_WAIT, wait.id).await;
    let close =
        |store: Arc<dyn Store>| async move { store.close_wait(wait.id, &id("runner"), None).await.unwrap().row };
    let refused = held.let_go_after(close, over).await.unwrap().unwrap_err();
    assert_eq!(refused.refusal, expired);

    let wait = held.waiting().await;
    held.hold(LOCK_WAIT, wait.id).await;
    let attempt = resuming(&wait);
    let resume = |store: Arc<dyn Store>| async move { store.resume_wait(wait.id, attempt).await.unwrap().row };
    let refused = held.let_go_after(resume, over).await.unwrap().unwrap_err();
    assert_eq!(refused.refusal, expired);

    let wait = held.waiting().await;
    held.hold(LOCK_WAIT, wait.id).await;
    // Where it is one round trip, a clock that a test moves is read before it is sent.
    let (asked, mut connection) = (new(question_in(&wait, "call")), held.database.connect().await);
    let time = held.time();
    let ask = |_| async move {
        let touched = &mut Touched::default();
        transaction::request_slowly(&mut connection, &time, touched, &asked).await.unwrap().0
    };
    let Requested::WaitRefused(refused) = held.let_go_after(ask, over).await else { panic!("not refused") };
    assert_eq!(refused.refusal, expired);

    let wait = held.waiting().await;
    held.hold(LOCK_WAIT, wait.id).await;
    let open = |store: Arc<dyn Store>| async move { store.open_wait(opening()).await.unwrap().row };
    let opened = held.let_go_after(open, over).await.unwrap();
    assert!(!opened.existing && opened.record.wait.id != wait.id, "another one was made");
    held.database.check().await;
}

#[tokio::test]
async fn a_retry_whose_time_is_over_while_its_row_is_waited_for_is_not_used() {
    let mut held = Held::new().await;
    let (_, first) = held.fixture.consumed(question_about("first")).await;
    let now = held.fixture.now();
    let retry = held.fixture.approved(retrying(&first, now, question_about("first"))).await;
    held.hold(LOCK_APPROVAL, retry.id).await;
    let start = start_of(&retry);
    let consume = |store: Arc<dyn Store>| async move { store.consume(start, Accepting::AnyRequirement).await.unwrap() };
    let started = held.let_go_after(consume, |fixture| fixture.clock.advance(USE_WITHIN)).await;
    assert_eq!(started, None);
    assert_eq!(held.fixture.approval(retry.id).await, retry);
    held.database.check().await;
}

#[tokio::test]
async fn what_is_reported_as_succeeded_meanwhile_is_not_retried() {
    let mut held = Held::new().await;
    let (_, first) = held.fixture.consumed(question_about("first")).await;
    let first = held.fixture.report(&first, Outcome::Unknown).await;
    let now = held.fixture.now();
    let retry = held.fixture.approved(retrying(&first, now, question_about("first"))).await;
    held.hold(SUCCEED, first.id).await;
    let retried = start_of(&retry);
    let consume =
        |store: Arc<dyn Store>| async move { store.consume(retried, Accepting::AnyRequirement).await.unwrap() };
    assert_eq!(held.let_go_after(consume, |_| {}).await, None);
    assert_eq!(held.fixture.approval(retry.id).await, retry);

    let (_, second) = held.fixture.consumed(question_about("second")).await;
    held.hold(SUCCEED, second.id).await;
    let again = Start { retry_of: Some(second.id), ..start(subject()) };
    let begin = |store: Arc<dyn Store>| async move { store.start(again).await.unwrap() };
    assert_eq!(held.let_go_after(begin, |_| {}).await, None);
    held.database.check().await;
}

#[tokio::test]
async fn who_ends_a_wait_waits_for_a_question_that_is_being_recorded() {
    let mut held = Held::new().await;
    let wait = held.waiting().await;
    let time = held.time();
    held.begin().await;
    let asked = Request(new(question_in(&wait, "call")));
    let asked = asked.run(&mut held.other, &time, &mut Touched::default()).await.unwrap().row;
    let Requested::Created(asked) = asked else { panic!("not created") };
    let close =
        |store: Arc<dyn Store>| async move { store.close_wait(wait.id, &id("runner"), None).await.unwrap().row };
    let closed = held.let_go_after(close, |_| {}).await.unwrap().unwrap();
    assert_eq!((closed.approvals, closed.pending), (vec![asked.id], 0));
    assert_eq!(held.fixture.approval(asked.id).await.state.name(), StateName::Cancelled);
    held.database.check().await;
}

#[tokio::test]
async fn a_sweep_passes_over_the_wait_that_somebody_is_at() {
    let mut held = Held::new().await;
    let wait = held.waiting().await;
    held.fixture.clock.advance(LASTS);
    held.hold(LOCK_WAIT, wait.id).await;
    assert_eq!(held.fixture.store.sweep(Sweep::ExpireWaits, 10).await.unwrap().rows, 0);
    query("COMMIT").execute(&mut held.other).await.unwrap();
    assert_eq!(held.fixture.store.sweep(Sweep::ExpireWaits, 10).await.unwrap().rows, 1);
    held.database.check().await;
}

#[tokio::test]
async fn whatever_is_done_at_once_in_a_few_waits_ends_whole() {
    let held = Held::new().await;
    let beside = held.database.open(Arc::clone(&held.fixture.clock)).await;
    let stores = [Arc::clone(&held.fixture.store), beside];
    for round in 0..3 {
        let mut waits = Vec::new();
        for number in 0..3 {
            let transcript = id(&format!("transcript-{round}-{number}"));
            let opening = Opening { objective: Objective { transcript, ..objective(3) }, ..opening() };
            let wait = held.fixture.store.open_wait(opening.clone()).await.unwrap().row.unwrap().record.wait;
            let mut approved = Vec::new();
            for call in 0..4 {
                approved.push(held.fixture.approved(question_in(&wait, &format!("{round}-{number}-{call}"))).await);
            }
            waits.push((opening, wait, approved));
        }
        let mut tasks = Vec::new();
        for (number, (opening, wait, approved)) in waits.iter().cycle().take(60).enumerate() {
            let store = Arc::clone(&stores[number % 2]);
            let (opening, wait, approved) = (opening.clone(), wait.clone(), approved.clone());
            tasks.push(tokio::spawn(async move {
                let revision = 3 + u64::try_from(number / 12).unwrap();
                match (number / 3) % 6 {
                    0 => drop(store.request(new(question_in(&wait, &format!("asked {number}")))).await.unwrap()),
                    // The same again and again: in steps.
                    1 => drop(store.request(new(approved[0].question.clone())).await.unwrap()),
                    2 => {
                        let objective = Objective { revision, ..opening.objective };
                        // One that was closed meanwhile is followed by another.
                        let opening = Opening { id: WaitId::new(Uuid::now_v7()), objective, ..opening };
                        drop(store.open_wait(opening).await.unwrap());
                    }
                    3 => drop(store.resume_wait(wait.id, resuming(&wait)).await.unwrap()),
                    4 if number > 40 => drop(store.close_wait(wait.id, &id("runner"), None).await.unwrap()),
                    _ => {
                        for approval in approved.iter().rev() {
                            store.consume(start_of(approval), Accepting::AnyRequirement).await.unwrap();
                        }
                    }
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        held.fixture.clock.advance(LASTS);
        for store in &stores {
            while store.sweep(Sweep::ExpireWaits, 2).await.unwrap().rows > 0 {}
        }
        held.database.check().await;
    }
}
