//! Upkeep: what is written down and removed because time has passed, and what is not.

use super::*;
use crate::domain::audit::{AuditEvent, AuditKind};
use crate::domain::execution::ExecutionState;
use crate::storage::{AuditQuery, Sweep, Swept};

const KEPT: Duration = Duration::from_secs(60 * 60);
/// More than any of these tests has.
const ALL: u32 = 10_000;

impl Fixture {
    async fn sweep(&self, step: Sweep) -> u32 {
        self.store.sweep(step, ALL).await.unwrap().rows
    }

    /// Every step, each once.
    async fn sweep_all(&self) -> Vec<u32> {
        let mut rows = Vec::new();
        for step in EVERY {
            rows.push(self.sweep(step).await);
        }
        rows
    }

    async fn events(&self, query: AuditQuery) -> Vec<AuditEvent> {
        let records = self.store.audit_records(AuditQuery { limit: 1_000, ..query }).await.unwrap().row;
        records.into_iter().rev().map(|record| record.event).collect()
    }

    async fn events_of(&self, approval: &Approval) -> Vec<AuditEvent> {
        self.events(AuditQuery { approval: Some(approval.id), ..AuditQuery::default() }).await
    }
}

const EVERY: [Sweep; 7] = [
    Sweep::ExpireApprovals,
    Sweep::TimeOutExecutions,
    Sweep::EraseApprovals { kept: KEPT },
    Sweep::DeleteApprovals { kept: KEPT },
    Sweep::DeleteExecutions { kept: KEPT },
    Sweep::DeleteWaits { kept: KEPT },
    Sweep::DeleteAuditRecords { kept: KEPT },
];

/// An approval in each state that it can be in by itself, and by whom and how it may have come there.
async fn one_of_each(fixture: &Fixture, round: usize) -> Vec<Approval> {
    let call = |name: &str| {
        let mut question = question_about(&format!("{name} {round}"));
        question.subject.principal = id(["olga", "dana"][round % 2]);
        question.requirement =
            requirement(if round.is_multiple_of(2) { &[&["owner"]] } else { &[&["owner"], &["group:finance"]] });
        if round.is_multiple_of(3) {
            question.subject.conversation = None;
            question.subject.account = None;
            question.subject.labels.clear();
        }
        question
    };
    let approve = async |name: &str| {
        let mut approval = fixture.ask(call(name)).await;
        for person in [approval.question.subject.principal.as_str().to_owned(), "eve:finance".to_owned()] {
            if matches!(approval.state, ApprovalState::Pending) {
                approval = fixture.decide(&approval, &person, Verdict::Approve).await;
            }
        }
        approval
    };
    let pending = fixture.ask(call("pending")).await;
    let denied = fixture.ask(call("denied")).await;
    let denied = fixture.decide(&denied, denied.question.subject.principal.clone().as_str(), Verdict::Deny).await;
    let approved = approve("approved").await;
    let cancelled = approve("cancelled").await;
    let change = cancelled.cancel(&id("runner"), Some("no longer"), fixture.now()).unwrap();
    let cancelled = fixture.save(change, cancelled.version).await;
    let revoked = approve("revoked").await;
    let owner = person(revoked.question.subject.principal.as_str());
    let change = revoked.revoke(&owner, None, fixture.now()).unwrap();
    let revoked = fixture.save(change, revoked.version).await;
    let consumed = approve("consumed").await;
    fixture.consume(start_of(&consumed)).await.unwrap();
    let consumed = fixture.approval(consumed.id).await;
    vec![pending, denied, approved, cancelled, revoked, consumed]
}

pub(in super::super) async fn expiring_writes_what_the_domain_says(fixture: Fixture) {
    let mut expired = 0;
    for round in 0..12 {
        let made = one_of_each(&fixture, round).await;
        let start = fixture.now();
        for deadline in [start.plus(USE_WITHIN), start.plus(DECIDE_WITHIN)] {
            for instant in [deadline.minus(TICK), deadline, deadline.plus(TICK)] {
                fixture.advance_to(instant);
                let mut expected = Vec::new();
                for approval in &made {
                    let before = fixture.approval(approval.id).await;
                    let mut events = fixture.events_of(&before).await;
                    let change = before.expired(fixture.now());
                    events.extend(change.iter().flat_map(|change| change.events.clone()));
                    expected.push((change.map_or(before, |change| change.next), events));
                }
                let due = expected.iter().filter(|(after, _)| matches!(after.state, ApprovalState::Expired { .. }));
                let due = due.count();
                expired += fixture.sweep(Sweep::ExpireApprovals).await;
                let mut seen = 0;
                for (after, events) in expected {
                    assert_eq!(fixture.approval(after.id).await, after, "at {instant}, deadline {deadline}");
                    assert_eq!(fixture.events_of(&after).await, events, "at {instant}, deadline {deadline}");
                    seen += usize::from(matches!(after.state, ApprovalState::Expired { .. }));
                }
                assert_eq!(seen, due);
            }
        }
    }
    assert_eq!(expired, 24, "one pending and one approved of each round");
}

pub(in super::super) async fn timing_out_writes_what_the_domain_says(fixture: Fixture) {
    let mut made = Vec::new();
    for (call, outcome) in [
        ("none", None),
        ("succeeded", Some(Outcome::Succeeded)),
        ("failed", Some(Outcome::Failed)),
        ("unknown", Some(Outcome::Unknown)),
    ] {
        let (_, execution) = fixture.consumed(question_about(call)).await;
        let mut subject = question_about(call).subject;
        subject.labels.clear();
        subject.objective = None;
        let alone = fixture.store.start(start(subject)).await.unwrap().unwrap();
        for execution in [execution, alone] {
            match outcome {
                Some(outcome) => made.push(fixture.report(&execution, outcome).await),
                None => made.push(execution),
            }
        }
    }
    let deadline = fixture.now().plus(REPORT_WITHIN);
    for (instant, rows) in [(deadline.minus(TICK), 0), (deadline, 2), (deadline.plus(TICK), 0)] {
        fixture.advance_to(instant);
        let mut expected = Vec::new();
        for execution in &made {
            let before = fixture.store.execution(execution.id).await.unwrap().row.unwrap();
            let about = AuditQuery { execution: Some(execution.id), ..AuditQuery::default() };
            let mut events = fixture.events(about.clone()).await;
            let change = before.timed_out(fixture.now());
            events.extend(change.iter().flat_map(|change| change.events.clone()));
            expected.push((change.map_or(before, |change| change.next), about, events));
        }
        assert_eq!(fixture.sweep(Sweep::TimeOutExecutions).await, rows);
        for (after, about, events) in expected {
            assert_eq!(fixture.store.execution(after.id).await.unwrap().row.unwrap(), after, "at {instant}");
            assert_eq!(fixture.events(about).await, events, "at {instant}");
        }
    }
    let timed_out = fixture.store.execution(made[0].id).await.unwrap().row.unwrap();
    assert_eq!(timed_out.state, ExecutionState::Unknown(None));
    let settled = fixture.report(&timed_out, Outcome::Succeeded).await;
    assert_eq!(fixture.store.execution(settled.id).await.unwrap().row.unwrap(), settled, "and can be settled");
}

pub(in super::super) async fn sweeping_twice_is_sweeping_once(fixture: Fixture) {
    one_of_each(&fixture, 0).await;
    fixture.store.start(start(subject())).await.unwrap().unwrap();
    for span in [DECIDE_WITHIN, KEPT, KEPT, KEPT] {
        fixture.clock.advance(span);
        fixture.gives_up().await;
        let dump = fixture.dump().await;
        let rows = fixture.sweep_all().await;
        assert!(rows.iter().any(|rows| *rows > 0), "{rows:?}");
        let swept = fixture.dump().await;
        assert_ne!(dump, swept);
        assert_eq!(fixture.sweep_all().await, [0; 7]);
        assert_eq!(fixture.dump().await, swept);
        if swept.lines().all(|line| {
            [
                "schema_",
                "sqlite_sequence",
                "audit_log",
                "audit_seals",
                "audit_nodes",
                "audit_checkpoints",
                "approver_presence",
            ]
            .iter()
            .any(|kept| line.starts_with(kept))
        }) {
            return;
        }
    }
    panic!("something is kept for ever: {}", fixture.dump().await);
}

pub(in super::super) async fn a_sweep_deals_with_what_has_waited_longest_and_no_more_than_it_may(fixture: Fixture) {
    let mut asked = Vec::new();
    for call in 0..10 {
        asked.push(fixture.ask(question_about(&format!("call {call}"))).await);
        fixture.clock.advance(Duration::from_secs(1));
    }
    fixture.advance_to(asked[9].decide_by);
    for (rows, overdue, left) in [(4, 9, 6), (4, 5, 2), (2, 1, 0), (0, 0, 0)] {
        let Swept { rows: found, overdue: most, .. } = fixture.store.sweep(Sweep::ExpireApprovals, 4).await.unwrap();
        assert_eq!((found, most), (rows, Duration::from_secs(overdue)));
        for (index, approval) in asked.iter().enumerate() {
            let is_open = matches!(fixture.approval(approval.id).await.state, ApprovalState::Pending);
            assert_eq!(is_open, index >= 10 - left, "call {index} with {left} left");
        }
    }
}

pub(in super::super) async fn what_is_erased_keeps_everything_but_what_it_showed(fixture: Fixture) {
    let made = one_of_each(&fixture, 1).await;
    let final_at = fixture.now();
    let erase = Sweep::EraseApprovals { kept: KEPT };
    fixture.advance_to(final_at.plus(KEPT).minus(TICK));
    assert_eq!(fixture.sweep(erase).await, 0);
    fixture.advance_to(final_at.plus(KEPT));
    let mut before = Vec::new();
    for approval in &made {
        before.push((fixture.approval(approval.id).await, fixture.events_of(approval).await));
    }
    assert_eq!(fixture.sweep(erase).await, 4, "denied, cancelled, revoked and consumed");
    for (approval, events) in before {
        let is_open = matches!(approval.state, ApprovalState::Pending | ApprovalState::Approved(_));
        let erased = Approval {
            question: Question { preview: None, agent_note: None, ..approval.question.clone() },
            ..approval.clone()
        };
        let after = fixture.approval(approval.id).await;
        assert_eq!(after, if is_open { approval } else { erased }, "the version too: nothing became of it");
        assert_eq!(fixture.events_of(&after).await, events);
    }
    // What is overdue and not written down yet is not final in the table: first the one, then the other.
    assert_eq!(fixture.sweep(Sweep::ExpireApprovals).await, 2);
    fixture.advance_to(final_at.plus(DECIDE_WITHIN).plus(KEPT));
    assert_eq!(fixture.sweep(erase).await, 2);
}

pub(in super::super) async fn what_is_erased_is_deleted_in_its_time(fixture: Fixture) {
    let kept = KEPT * 2;
    let (erase, delete) = (Sweep::EraseApprovals { kept: KEPT }, Sweep::DeleteApprovals { kept });
    let asked = fixture.request(question(), Some(request_key("r-1", "d")), NO_LIMITS).await;
    let Requested::Created(asked) = asked else { panic!("{asked:?}") };
    let denied = fixture.decide(&asked, "olga", Verdict::Deny).await;
    let other = fixture.ask(question_about("open")).await;
    let final_at = fixture.now();
    fixture.advance_to(final_at.plus(kept).minus(TICK));
    assert_eq!((fixture.sweep(erase).await, fixture.sweep(delete).await), (1, 0));
    let again = fixture.request(question(), Some(request_key("r-1", "d")), NO_LIMITS).await;
    assert!(matches!(&again, Requested::Existing(existing) if existing.id == denied.id), "{again:?}");
    fixture.advance_to(final_at.plus(kept));
    let events = fixture.events_of(&denied).await;
    assert_eq!(fixture.sweep(delete).await, 1);
    assert!(fixture.store.approval(denied.id).await.unwrap().row.is_none());
    assert_eq!(fixture.events_of(&denied).await, events, "the audit is kept for its own time");
    assert!(fixture.store.approval(other.id).await.unwrap().row.is_some(), "what is not final is never deleted");
    let anew = fixture.request(question(), Some(request_key("r-1", "another")), NO_LIMITS).await;
    assert!(matches!(anew, Requested::Created(_)), "the request id went with it: {anew:?}");
}

pub(in super::super) async fn an_execution_is_kept_while_it_is_retried_or_under_way(fixture: Fixture) {
    let delete = Sweep::DeleteExecutions { kept: KEPT };
    let (_, execution) = fixture.consumed(question()).await;
    let failed = fixture.report(&execution, Outcome::Failed).await;
    let under_way = fixture.store.start(start(subject())).await.unwrap().unwrap();
    let ended = fixture.now();
    fixture.advance_to(ended.plus(KEPT).minus(TICK));
    assert_eq!(fixture.sweep(delete).await, 0);
    let retry = fixture.ask(retrying(&failed, fixture.now(), question_about("again"))).await;
    fixture.advance_to(ended.plus(KEPT));
    assert_eq!(fixture.sweep(delete).await, 0, "a pending approval retries it");
    let retry = fixture.decide(&retry, "olga", Verdict::Approve).await;
    fixture.clock.advance(KEPT);
    assert_eq!(fixture.sweep(delete).await, 0, "one that is overdue is open until that is written down");
    assert_eq!(fixture.sweep(Sweep::ExpireApprovals).await, 1);
    assert!(fixture.approval(retry.id).await.version > retry.version);
    // What it was used by goes with it: they were final together.
    assert_eq!(fixture.sweep(Sweep::EraseApprovals { kept: KEPT }).await, 1);
    assert_eq!(fixture.sweep(Sweep::DeleteApprovals { kept: KEPT }).await, 1);
    assert_eq!(fixture.sweep(delete).await, 1);
    assert!(fixture.store.execution(failed.id).await.unwrap().row.is_none());
    assert!(fixture.store.execution(under_way.id).await.unwrap().row.is_some(), "nobody knows what became of it");
    assert_eq!(fixture.sweep(Sweep::TimeOutExecutions).await, 1);
    assert_eq!(fixture.sweep(delete).await, 1, "its time to report was over long ago");
}

pub(in super::super) async fn audit_records_are_deleted_in_their_order_and_their_time(fixture: Fixture) {
    let record = |word: &str| AuditEvent::about(AuditKind::ConsumeRefused, &subject(), None, word);
    fixture.store.record(vec![record("1"), record("2")]).await.unwrap();
    let first = fixture.now();
    fixture.clock.advance(TICK);
    fixture.store.record(vec![record("3")]).await.unwrap();
    let delete = Sweep::DeleteAuditRecords { kept: KEPT };
    // What a checkpoint does not account for is kept, however old it is.
    fixture.advance_to(first.plus(KEPT).minus(TICK));
    for deleted_below in [None, Some(0)] {
        if let Some(below) = deleted_below {
            fixture.sealed(3, below).await;
        }
        assert_eq!(fixture.store.sweep(delete, ALL).await.unwrap().rows, 0, "{deleted_below:?}");
    }
    fixture.sealed(0, 3).await;
    for (instant, limit, left) in [
        (first.plus(KEPT).minus(TICK), ALL, vec!["1", "2", "3"]),
        (first.plus(KEPT), 1, vec!["2", "3"]),
        (first.plus(KEPT), ALL, vec!["3"]),
        (first.plus(KEPT).plus(TICK), ALL, vec![]),
    ] {
        fixture.advance_to(instant);
        fixture.store.sweep(delete, limit).await.unwrap();
        let words = fixture.events(AuditQuery::default()).await.into_iter().map(|event| event.decision);
        assert_eq!(words.collect::<Vec<_>>(), left, "at {instant}");
    }
    fixture.store.record(vec![record("4")]).await.unwrap();
    fixture.advance_to(fixture.now().plus(KEPT));
    assert_eq!(fixture.store.sweep(delete, ALL).await.unwrap().rows, 0, "it is not sealed");
    let newest = fixture.store.audit_records(AuditQuery { limit: 1, ..AuditQuery::default() }).await.unwrap().row;
    assert_eq!(newest[0].position, 4, "no position is given twice");
}

pub(in super::super) async fn sweeping_and_consuming_and_deciding_never_both(fixture: Fixture) {
    let fixture = Arc::new(fixture);
    for round in 0..20 {
        let mut made = Vec::new();
        for call in 0..6 {
            let question = question_about(&format!("{round} {call}"));
            made.push(if call % 2 == 0 { fixture.approved(question).await } else { fixture.ask(question).await });
        }
        // Time moves while they race: who comes first has it.
        let (deadline, step) = (fixture.now().plus(USE_WITHIN), TICK * 2);
        fixture.advance_to(deadline.minus(step));
        let racing: Vec<_> = made
            .iter()
            .cloned()
            .map(|approval| {
                let fixture = Arc::clone(&fixture);
                tokio::spawn(async move {
                    let now = fixture.now();
                    if matches!(approval.state, ApprovalState::Pending) {
                        let answer = Answer { verdict: Verdict::Deny, reason: None, shown_fingerprint: None };
                        let Ok(Commanded::Changed(change)) = approval.decide(&person("olga"), &answer, now) else {
                            return false;
                        };
                        fixture.store.save_approval(*change, approval.version).await.unwrap() == Saved::Yes
                    } else {
                        fixture.consume(start_of(&approval)).await.is_some()
                    }
                })
            })
            .collect();
        let mut swept = 0;
        for _ in 0..4 {
            let sweeping = {
                let fixture = Arc::clone(&fixture);
                tokio::spawn(async move { fixture.sweep(Sweep::ExpireApprovals).await })
            };
            fixture.clock.advance(TICK);
            swept += sweeping.await.unwrap();
        }
        let mut won = 0;
        for racing in racing {
            won += u32::from(racing.await.unwrap());
        }
        fixture.clock.advance(DECIDE_WITHIN);
        swept += fixture.sweep(Sweep::ExpireApprovals).await;
        assert_eq!(won + swept, 6, "round {round}");
        for approval in made {
            let kinds: Vec<AuditKind> =
                fixture.events_of(&approval).await.into_iter().map(|event| event.kind).collect();
            let ends = kinds.iter().filter(|kind| {
                matches!(kind, AuditKind::ApprovalExpired | AuditKind::ApprovalConsumed | AuditKind::ApprovalDenied)
            });
            assert_eq!(ends.count(), 1, "{kinds:?}");
        }
    }
}
