//! What clients were told, held against what the tables say.

// What the conformance suite holds every database to.
#[path = "../../src/storage/conformance/contradictions.rs"]
mod contradictions;

use crate::cluster::Cluster;
use crate::history::{Call, Event, Fact, History, now};
use crate::load::Load;
use crate::place::{PATIENCE, PAUSE, Place, blocking};
use crate::process::calls::Told;
use crate::{CALLS, run};
use contradictions::{CONTRADICTIONS, TOLD_TOO_EARLY};
use countersign::proto::{ApprovalState, Outcome, Verdict};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, query, raw_sql};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

/// Histories of questions that are printed at most.
const SHOWN: usize = 12;

/// Of every row that was changed, whether that was in time.
const OUT_OF_TIME: [(&str, &str); 4] = [
    ("used at or after its deadline", "SELECT conversation FROM approvals WHERE consume_time >= use_by"),
    (
        "decided at or after its deadline",
        "SELECT conversation FROM approvals p WHERE EXISTS
            (SELECT 1 FROM approval_decisions d WHERE d.approval_id = p.id AND d.decide_time >= p.decide_by)",
    ),
    (
        "expired before its deadline",
        "SELECT conversation FROM approvals WHERE state = 'expired' AND close_time < coalesce(use_by, decide_by)",
    ),
    (
        "withdrawn at or after its deadline",
        "SELECT conversation FROM approvals
            WHERE state IN ('cancelled', 'revoked') AND close_time >= coalesce(use_by, decide_by)",
    ),
];
/// What must be of one question alone.
const TWICE: [(&str, &str); 3] = [
    (
        "executed twice",
        "SELECT conversation FROM executions WHERE approval_id IS NOT NULL
            GROUP BY approval_id, conversation HAVING count(*) > 1",
    ),
    ("asked about twice", "SELECT conversation FROM approvals GROUP BY conversation HAVING count(*) > 1"),
    ("waited for twice", "SELECT conversation FROM waits GROUP BY conversation HAVING count(*) > 1"),
];

/// Every row that a question has.
#[derive(Debug, Default)]
struct Rows {
    approval: Option<ApprovalRow>,
    decisions: Vec<(String, i64)>,
    execution: Option<ExecutionRow>,
    wait: Option<(String, String)>,
    request: Option<String>,
}

#[derive(Debug)]
struct ApprovalRow {
    id: String,
    state: ApprovalState,
    decide_by: i64,
    use_by: Option<i64>,
    execution: Option<String>,
}

#[derive(Debug)]
struct ExecutionRow {
    id: String,
    attempt: String,
    state: String,
    start: i64,
}

impl Place {
    /// Fails with every contradiction between what was told and what is, and the history of whatever they are about. It may
    /// be asked in the middle of work.
    pub async fn check(&self, seed: u64) {
        self.contradictions().await.fail(&self.history, seed, &self.logs());
    }

    /// Everything that does not fit together.
    async fn contradictions(&self) -> Found {
        let told = self.history.events();
        let mut connection = self.connection().await;
        let mut snapshot = connection.begin().await.unwrap();
        query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").execute(&mut *snapshot).await.unwrap();
        let mut found = Found::default();
        for contradiction in CONTRADICTIONS.into_iter().chain([TOLD_TOO_EARLY]) {
            let rows = query(contradiction).fetch_all(&mut *snapshot).await.unwrap();
            if !rows.is_empty() {
                let ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
                found.general.push(format!("rows contradict each other: {ids:?} of {contradiction}"));
            }
        }
        let conversations = self.history.conversations();
        let questions: HashMap<String, usize> = conversations.into_iter().zip(0..).collect();
        for (what, statement) in OUT_OF_TIME.into_iter().chain(TWICE) {
            for row in query(statement).fetch_all(&mut *snapshot).await.unwrap() {
                found.add(questions.get(&row.get::<String, _>(0)).copied(), what.to_owned());
            }
        }
        let rows = read(&mut snapshot, &questions, &mut found).await;
        snapshot.rollback().await.unwrap();
        // What was begun meanwhile explains rows, too.
        let mut tried: BTreeMap<usize, Vec<Event>> = BTreeMap::new();
        self.history.events().into_iter().for_each(|event| tried.entry(event.question).or_default().push(event));
        let mut acknowledged: BTreeMap<usize, Vec<Event>> = BTreeMap::new();
        for event in told.into_iter().filter(|event| event.end.is_some()) {
            acknowledged.entry(event.question).or_default().push(event);
        }
        let nothing = Rows::default();
        for (question, tried) in &tried {
            let told = acknowledged.get(question).map_or(&[][..], Vec::as_slice);
            hold(*question, tried, told, rows.get(question).unwrap_or(&nothing), &mut found);
        }
        found.general.extend(self.history.complaints());
        found
    }

    /// Waits until nothing in the tables is open past its deadline: every sidecar sweeps, and none is asked to.
    pub async fn nothing_is_overdue(&self) {
        let since = Instant::now();
        let mut connection = self.connection().await;
        loop {
            let asked = query(
                "SELECT (SELECT count(*) FROM approvals WHERE open_until <= store_now(NULL))
                    + (SELECT count(*) FROM waits WHERE state <> 'closed' AND expire_time <= store_now(NULL))",
            );
            let overdue: i64 = asked.fetch_one(&mut connection).await.unwrap().get(0);
            if overdue == 0 {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{overdue} are open past their deadline:\n{}", self.logs());
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// A connection of the test's own. A database that is starting is waited for.
    pub async fn connection(&self) -> PgConnection {
        let since = Instant::now();
        loop {
            match PgConnection::connect(&self.url()).await {
                Ok(connection) => return connection,
                Err(error) => assert!(since.elapsed() < PATIENCE, "the database does not answer: {error}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The rows of each question. What is of none was asked for by nobody.
async fn read(
    snapshot: &mut PgConnection,
    questions: &HashMap<String, usize>,
    found: &mut Found,
) -> BTreeMap<usize, Rows> {
    let mut all: BTreeMap<usize, Rows> = BTreeMap::new();
    let mut of = |row: &PgRow, found: &mut Found, take: &mut dyn FnMut(&mut Rows)| match questions
        .get(&row.get::<String, _>("conversation"))
    {
        Some(question) => take(all.entry(*question).or_default()),
        None => found.general.push("a row is of no question".to_owned()),
    };
    let select = "SELECT p.conversation, p.id, p.state, p.decide_by, p.use_by, p.execution_id, r.request_id,
        p.open_until <= store_now(NULL) AS overdue
        FROM approvals p LEFT JOIN request_ids r ON r.approval_id = p.id";
    for row in query(select).fetch_all(&mut *snapshot).await.unwrap() {
        // What is overdue is expired, whether or not anybody has written that down.
        let state = match row.get::<Option<bool>, _>("overdue") {
            Some(true) => ApprovalState::Expired,
            _ => state(row.get("state")),
        };
        of(&row, found, &mut |rows| {
            rows.request = row.get("request_id");
            rows.approval = Some(ApprovalRow {
                id: row.get("id"),
                state,
                decide_by: row.get("decide_by"),
                use_by: row.get("use_by"),
                execution: row.get("execution_id"),
            });
        });
    }
    let select = "SELECT p.conversation, d.verdict, d.decide_time
        FROM approval_decisions d JOIN approvals p ON p.id = d.approval_id";
    for row in query(select).fetch_all(&mut *snapshot).await.unwrap() {
        of(&row, found, &mut |rows| rows.decisions.push((row.get("verdict"), row.get("decide_time"))));
    }
    for row in query("SELECT conversation, id, attempt_id, state, start_time FROM executions")
        .fetch_all(&mut *snapshot)
        .await
        .unwrap()
    {
        of(&row, found, &mut |rows| {
            rows.execution = Some(ExecutionRow {
                id: row.get("id"),
                attempt: row.get("attempt_id"),
                state: row.get("state"),
                start: row.get("start_time"),
            });
        });
    }
    for row in query("SELECT conversation, id, state FROM waits").fetch_all(&mut *snapshot).await.unwrap() {
        of(&row, found, &mut |rows| rows.wait = Some((row.get("id"), row.get("state"))));
    }
    all
}

/// Everything about one question: what was begun, what was told before the tables were read, and its rows.
fn hold(question: usize, tried: &[Event], told: &[Event], rows: &Rows, found: &mut Found) {
    let mut no = |what: String| found.add(Some(question), what);
    let began = |call: &Call| tried.iter().filter(|event| event.call == *call).map(|event| event.start).min();
    let is = rows.approval.as_ref().map(|approval| approval.state);

    // What is there was asked for.
    if rows.approval.is_some() && began(&Call::Ask).is_none() {
        no("an approval that nobody asked for".to_owned());
    }
    for (verdict, time) in &rows.decisions {
        let call = Call::Decide(if verdict == "APPROVE" { Verdict::Approve } else { Verdict::Deny });
        match began(&call) {
            None => no(format!("a decision that nobody made: {verdict}")),
            // A decision has the time that the sidecar takes for the store's when it decides.
            Some(began) if *time + 1_000_000 < began => no(format!("a decision from before it was made: {verdict}")),
            Some(_) => {}
        }
    }
    if rows.decisions.len() > 1 {
        no("one person, two decisions".to_owned());
    }
    if let Some(execution) = &rows.execution {
        match began(&Call::Consume(execution.attempt.clone())) {
            None => no("an execution of an attempt that nobody made".to_owned()),
            Some(began) if execution.start < began => no("an execution from before its attempt".to_owned()),
            Some(_) => {}
        }
        let reported = match execution.state.as_str() {
            "succeeded" => began(&Call::Report(Outcome::Succeeded)).is_some(),
            "failed" => began(&Call::Report(Outcome::Failed)).is_some(),
            state => state == "started",
        };
        if !reported {
            no(format!("an outcome that nobody reported: {}", execution.state));
        }
    }

    // What was acknowledged is there.
    for event in told {
        let Some(fact) = event.done() else { continue };
        match fact {
            Fact::Wait(id) if rows.wait.as_ref().is_none_or(|(known, _)| known != id) => {
                no("a wait is missing".to_owned());
            }
            Fact::Asked { approval, .. } if rows.approval.as_ref().is_none_or(|row| row.id != *approval) => {
                no(format!("an approval is missing: {approval}"));
            }
            Fact::Asked { .. } if rows.request.is_none() => no("the id of a request is missing".to_owned()),
            Fact::Permit(permit) => {
                let attempt =
                    Call::Consume(rows.execution.as_ref().map_or_else(String::new, |row| row.attempt.clone()));
                let execution = rows.execution.as_ref().map(|row| row.id.as_str());
                if execution != Some(permit.execution_id.as_str()) || event.call != attempt {
                    no(format!("a permit's execution is missing: {}", permit.execution_id));
                }
                let used = rows.approval.as_ref().and_then(|row| row.execution.as_deref());
                if used != Some(permit.execution_id.as_str()) {
                    no(format!("a permit's approval is not used up by it: {}", permit.execution_id));
                }
            }
            Fact::State(_) => {
                let done = match &event.call {
                    Call::Decide(verdict) => {
                        let verdict = if *verdict == Verdict::Approve { "APPROVE" } else { "DENY" };
                        rows.decisions.iter().any(|(known, _)| known == verdict)
                    }
                    Call::Cancel => is == Some(ApprovalState::Cancelled),
                    Call::Revoke => is == Some(ApprovalState::Revoked),
                    _ => true,
                };
                if !done {
                    no(format!("{:?} was acknowledged and is missing", event.call));
                }
            }
            Fact::Resumed if rows.wait.as_ref().is_none_or(|(_, state)| state == "open") => {
                no("a resumption is missing".to_owned());
            }
            Fact::Closed => {
                if rows.wait.as_ref().is_none_or(|(_, state)| state != "closed") {
                    no("the end of a wait is missing".to_owned());
                }
                if matches!(is, Some(ApprovalState::Pending | ApprovalState::Approved)) {
                    no("something of a closed wait is open".to_owned());
                }
            }
            Fact::Reported(outcome) => {
                let outcome = if *outcome == Outcome::Succeeded { "succeeded" } else { "failed" };
                if rows.execution.as_ref().is_none_or(|row| row.state != outcome) {
                    no(format!("an outcome is missing: {outcome}"));
                }
            }
            Fact::Wait(_) | Fact::Asked { .. } | Fact::Resumed => {}
        }
    }
    let attempts: BTreeSet<String> = told
        .iter()
        .filter(|event| matches!(event.done(), Some(Fact::Permit(_))))
        .map(|event| format!("{:?}", event.call))
        .collect();
    if attempts.len() > 1 {
        no(format!("two attempts have a permit: {attempts:?}"));
    }
    in_time(tried, told, rows, &mut no);
    in_order(told, is, &mut no);
}

/// Nothing that was begun at or after a deadline was done.
fn in_time(tried: &[Event], told: &[Event], rows: &Rows, no: &mut dyn FnMut(String)) {
    let Some(approval) = &rows.approval else { return };
    for event in told.iter().filter(|event| event.done().is_some()) {
        let deadline = match &event.call {
            Call::Decide(_) => approval.decide_by,
            Call::Consume(_) | Call::Revoke | Call::Cancel => approval.use_by.unwrap_or(approval.decide_by),
            _ => continue,
        };
        let began = tried.iter().filter(|other| other.call == event.call).map(|other| other.start).min();
        if began.is_some_and(|began| began >= deadline) {
            no(format!("{:?} was begun at or after the deadline and done", event.call));
        }
    }
}

/// What was shown later is what may have become of what was shown before, and so is what the tables say now.
fn in_order(told: &[Event], is: Option<ApprovalState>, no: &mut dyn FnMut(String)) {
    let shown: Vec<(&Event, ApprovalState)> =
        told.iter().filter_map(|event| event.shown().map(|state| (event, state))).collect();
    for (event, state) in &shown {
        if !is.is_some_and(|is| may_become(*state, is)) {
            no(format!("{:?} showed {state:?}, and it is {is:?}", event.call));
        }
        for (later, then) in &shown {
            if event.end.is_some_and(|end| end < later.start) && !may_become(*state, *then) {
                no(format!("{:?} showed {state:?}, and after it {:?} showed {then:?}", event.call, later.call));
            }
        }
    }
}

fn may_become(was: ApprovalState, is: ApprovalState) -> bool {
    use ApprovalState::{Approved, Cancelled, Consumed, Denied, Expired, Pending, Revoked};
    match was {
        Pending => true,
        Approved => matches!(is, Approved | Cancelled | Revoked | Expired | Consumed),
        Denied | Cancelled | Revoked | Expired | Consumed => was == is,
        ApprovalState::Unspecified => false,
    }
}

/// The state that a row's text names.
pub fn state(name: String) -> ApprovalState {
    let name = format!("APPROVAL_STATE_{}", name.to_uppercase());
    ApprovalState::from_str_name(&name).unwrap()
}

/// What was found.
#[derive(Debug, Default)]
struct Found {
    general: Vec<String>,
    of: BTreeMap<usize, BTreeSet<String>>,
}

impl Found {
    fn add(&mut self, question: Option<usize>, what: String) {
        match question {
            Some(question) => drop(self.of.entry(question).or_default().insert(what)),
            None => self.general.push(what),
        }
    }

    fn fail(&self, history: &History, seed: u64, logs: &str) {
        if self.general.is_empty() && self.of.is_empty() {
            return;
        }
        let mut text = format!("seed {seed}, found at {}:\n{}\n", now(), self.general.join("\n"));
        for (question, contradictions) in self.of.iter().take(SHOWN) {
            for contradiction in contradictions {
                text.push_str(&format!("question {question}: {contradiction}\n"));
            }
            text.push_str(&history.tail(*question));
            text.push('\n');
        }
        panic!("{text}\nof {} questions in all\n{logs}", self.of.len());
    }
}

#[test]
fn a_table_that_forgets_what_was_acknowledged_is_found_out() {
    run(async |random| {
        let cluster = blocking(Cluster::start);
        let place = Place::of(&cluster);
        let load = Load::on(&place, random);
        load.answers(CALLS).await;
        load.ends().await;
        place.check(random.seed()).await;
        for (forgotten, what) in [
            ("UPDATE executions SET attempt_id = 'other ' || attempt_id", "a permit's execution"),
            (
                "UPDATE approval_decisions SET verdict = 'DENY' WHERE verdict = 'APPROVE'",
                "Decide(Approve) was acknowledged",
            ),
            ("DELETE FROM request_ids", "the id of a request is missing"),
            ("DELETE FROM audit_records WHERE kind = 'approval.consumed'", "rows contradict each other"),
            ("DELETE FROM approvals", "an approval is missing"),
        ] {
            let mut connection = place.connection().await;
            // Whatever the schema holds together is let go of.
            let forget = format!("SET session_replication_role = replica; {forgotten}");
            raw_sql(AssertSqlSafe(forget)).execute(&mut connection).await.unwrap();
            let found = place.contradictions().await;
            let all: Vec<&String> = found.general.iter().chain(found.of.values().flatten()).collect();
            assert!(all.iter().any(|found| found.contains(what)), "{what}: {all:?}");
        }
    });
}

#[test]
fn a_history_that_contradicts_the_tables_is_found_out() {
    let event = |call: Call, start: i64, told: Told<Fact>| Event {
        question: 0,
        through: 0,
        call,
        start,
        end: Some(start + 5),
        told,
        why: String::new(),
    };
    let shown = |state| Told::Done(Fact::State(state));
    let row = |state| Rows {
        approval: Some(ApprovalRow { id: "a".to_owned(), state, decide_by: 50, use_by: Some(50), execution: None }),
        ..Rows::default()
    };
    let found = |events: &[Event], rows: &Rows| {
        let mut found = Found::default();
        hold(0, events, events, rows, &mut found);
        found.of.into_values().flatten().collect::<Vec<_>>()
    };
    let asked = event(Call::Ask, 0, Told::Nothing);
    let cases = [
        (event(Call::Cancel, 10, shown(ApprovalState::Cancelled)), ApprovalState::Approved, "Cancel was acknowledged"),
        (event(Call::Revoke, 10, shown(ApprovalState::Revoked)), ApprovalState::Consumed, "Revoke was acknowledged"),
        (event(Call::Cancel, 60, shown(ApprovalState::Cancelled)), ApprovalState::Cancelled, "after the deadline"),
        (event(Call::Read, 10, shown(ApprovalState::Denied)), ApprovalState::Approved, "showed Denied"),
        (event(Call::Decide(Verdict::Deny), 10, shown(ApprovalState::Denied)), ApprovalState::Denied, "is missing"),
    ];
    for (told, is, what) in cases {
        let found = found(&[asked.clone(), told], &row(is));
        assert!(found.iter().any(|found| found.contains(what)), "{what}: {found:?}");
    }
    let read = |start, state| event(Call::Read, start, shown(state));
    let back = [asked.clone(), read(10, ApprovalState::Approved), read(20, ApprovalState::Pending)];
    assert_eq!(found(&back, &row(ApprovalState::Approved)).len(), 1);
    let forth = [asked, read(10, ApprovalState::Pending), read(20, ApprovalState::Approved)];
    assert_eq!(found(&forth, &row(ApprovalState::Expired)), [""; 0]);
}
