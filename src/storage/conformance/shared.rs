//! What a database promises that many processes serve at once.

use super::*;
use crate::domain::audit::{AuditEvent, AuditKind};
use crate::storage::changes::{Changes, Told};
use crate::storage::{AskedLimit, OpenLimit, Sweep};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

/// No store is slower than this to hear of what another committed, on a machine that is not stuck.
const HEARD: Duration = Duration::from_secs(60);

/// Runs that many at once, through one store and the other in turn.
async fn through_both<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    fixture: &Fixture,
    other: &Fixture,
    many: usize,
    run: impl Fn(Arc<dyn Store>, usize) -> F,
) -> Vec<T> {
    let stores = [&fixture.store, &other.store];
    let tasks: Vec<_> = (0..many).map(|number| tokio::spawn(run(Arc::clone(stores[number % 2]), number))).collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

fn asked(question: Question, limits: QuestionLimits) -> NewApproval {
    NewApproval { id: approval_id(), question, request: None, arguments: sealed_arguments(), limits }
}

/// Waits until this version of the approval, or a later one, has been told.
async fn heard(changes: &mut Changes, id: ApprovalId, version: u64) {
    let hearing = async {
        loop {
            match changes.next().await {
                Some(Told::Touched(part)) if part.iter().any(|told| told.id == id && told.version >= version) => return,
                Some(_) => {}
                None => panic!("the store is open"),
            }
        }
    };
    assert!(tokio::time::timeout(HEARD, hearing).await.is_ok(), "version {version} of {id} was not told");
}

pub(in super::super) async fn of_a_hundred_attempts_through_two_stores_one_consumes(fixture: Fixture) {
    let other = fixture.beside().await;
    for round in 0..10 {
        let approved = fixture.approved(question_about(&round.to_string())).await;
        let start = start_of(&approved);
        let answers = through_both(&fixture, &other, 100, |store, _| {
            let start = Start { id: execution_id(), attempt: attempt_id(), ..start.clone() };
            async move { store.consume(start, Accepting::AnyRequirement).await.unwrap() }
        });
        let winners: Vec<Execution> = answers.await.into_iter().flatten().collect();
        assert_eq!(winners.len(), 1);
        let ApprovalState::Consumed { execution, .. } = other.approval(approved.id).await.state else { panic!() };
        assert_eq!(execution, winners[0].id);
    }
}

pub(in super::super) async fn one_attempt_through_two_stores_starts_once(fixture: Fixture) {
    let other = fixture.beside().await;
    for round in 0..10 {
        let approved = fixture.approved(question_about(&round.to_string())).await;
        let (with, without) = (start_of(&approved), start(subject()));
        let answers = through_both(&fixture, &other, 50, |store, number| {
            // The same attempt twice over: half of them for an approval, and none of the ids is the same.
            let start = if number % 4 < 2 { with.clone() } else { without.clone() };
            let start = Start { id: execution_id(), attempt: with.attempt, ..start };
            async move {
                match start.approval {
                    Some(_) => store.consume(start, Accepting::AnyRequirement).await.unwrap(),
                    None => store.start(start).await.unwrap(),
                }
            }
        });
        assert_eq!(answers.await.into_iter().flatten().count(), 1);
    }
}

pub(in super::super) async fn the_same_question_through_two_stores_is_one_approval(fixture: Fixture) {
    let other = fixture.beside().await;
    for round in 0..5 {
        let answers = through_both(&fixture, &other, 100, |store, _| {
            let new = asked(question_about(&round.to_string()), NO_LIMITS);
            async move { store.request(new).await.unwrap().row }
        });
        let (mut created, mut ids) = (0, BTreeSet::new());
        for answer in answers.await {
            match answer {
                Requested::Created(approval) => {
                    created += 1;
                    ids.insert(approval.id);
                }
                Requested::Existing(approval) => drop(ids.insert(approval.id)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((created, ids.len()), (1, 1));
    }
}

pub(in super::super) async fn limits_hold_over_two_stores(fixture: Fixture) {
    let other = fixture.beside().await;
    let limits = [
        (QuestionLimits { per_action: 7, ..NO_LIMITS }, OpenLimit::PerAction),
        (QuestionLimits { per_principal: 7, per_agent: 1_000, ..NO_LIMITS }, OpenLimit::PerPrincipal),
        (QuestionLimits { per_principal: 1_000, per_agent: 7, ..NO_LIMITS }, OpenLimit::PerAgent),
    ];
    for (round, (limits, reached)) in limits.into_iter().enumerate() {
        let answers = through_both(&fixture, &other, 60, |store, number| {
            let mut question = question_about(&number.to_string());
            (question.subject.principal, question.subject.agent) = match reached {
                OpenLimit::PerPrincipal | OpenLimit::PerAction => {
                    (id(&format!("one-{round}")), id(&format!("agent-{round}-{number}")))
                }
                OpenLimit::PerAgent => (id(&format!("principal-{round}-{number}")), id(&format!("one-{round}"))),
            };
            let new = asked(question, limits);
            async move { store.request(new).await.unwrap().row }
        });
        let mut created = 0;
        for answer in answers.await {
            match answer {
                Requested::Created(_) => created += 1,
                Requested::LimitReached(limit) => assert_eq!(limit, reached),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(created, 7);
    }
}

pub(in super::super) async fn questions_of_two_stores_and_many_callers_never_exceed_the_rate(fixture: Fixture) {
    let other = fixture.beside().await;
    let within = Duration::from_secs(60);
    let limits = QuestionLimits { asked: Some(AskedLimit { most: 7, within }), ..NO_LIMITS };
    let answers = through_both(&fixture, &other, 60, |store, number| {
        let mut question = question_about(&number.to_string());
        question.requested_by = id(&format!("runner-{number}"));
        question.subject.agent = id(&format!("agent-{number}"));
        let new = asked(question, limits);
        async move { store.request(new).await.unwrap().row }
    });
    let mut created = 0;
    for answer in answers.await {
        match answer {
            Requested::Created(_) => created += 1,
            Requested::AskedTooOften { again_at } => assert_eq!(again_at, START.plus(within)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(created, 7);
}

pub(in super::super) async fn a_denial_through_one_store_cools_off_at_the_other(fixture: Fixture) {
    let other = fixture.beside().await;
    fatigue::denied_and_asked_at_once(&fixture, &other).await;
}

pub(in super::super) async fn who_looks_through_one_store_is_seen_by_the_other(fixture: Fixture) {
    let other = fixture.beside().await;
    let after = Duration::from_secs(120);
    let unwatched = async |fixture: &Fixture| {
        let loaded = fixture.store.backlog().await.unwrap();
        loaded.row.is_unwatched(loaded.now, after)
    };
    let asked = fixture.ask(question()).await;
    fixture.advance_to(asked.create_time.plus(after).minus(TICK));
    assert!(!unwatched(&fixture).await && !unwatched(&other).await, "nobody had the time to look");
    fixture.clock.advance(TICK);
    assert!(unwatched(&fixture).await && unwatched(&other).await);
    other.store.note_approver().await.unwrap();
    assert!(!unwatched(&fixture).await && !unwatched(&other).await);
    fixture.clock.advance(after.saturating_sub(TICK));
    assert!(!unwatched(&fixture).await && !unwatched(&other).await);
    fixture.clock.advance(TICK);
    assert!(unwatched(&fixture).await && unwatched(&other).await);
}

pub(in super::super) async fn a_question_and_the_end_of_its_wait_do_not_miss_each_other_over_two_stores(
    fixture: Fixture,
) {
    let other = fixture.beside().await;
    waits::asked_and_closed_at_once(&fixture, &other).await;
}

pub(in super::super) async fn simultaneous_openings_through_two_stores_make_one_wait(fixture: Fixture) {
    let other = fixture.beside().await;
    let answers = through_both(&fixture, &other, 100, |store, _| async move {
        store.open_wait(waits::opening()).await.unwrap().row.unwrap()
    });
    let opened = answers.await;
    assert_eq!(opened.iter().filter(|opened| !opened.existing).count(), 1);
    assert_eq!(opened.iter().map(|opened| opened.record.wait.id).collect::<BTreeSet<_>>().len(), 1);
}

pub(in super::super) async fn of_simultaneous_decisions_through_two_stores_one_is_saved(fixture: Fixture) {
    let other = fixture.beside().await;
    for round in 0..10 {
        let asked = fixture.ask(question_about(&round.to_string())).await;
        let answer = Answer { verdict: Verdict::Approve, reason: None, shown_fingerprint: None };
        let owner = person(asked.question.subject.principal.as_str());
        let Commanded::Changed(change) = asked.decide(&owner, &answer, fixture.now()).unwrap() else { panic!() };
        let answers = through_both(&fixture, &other, 20, |store, _| {
            let change = change.clone();
            async move { store.save_approval(*change, 1).await.unwrap() }
        });
        assert_eq!(answers.await.into_iter().filter(|saved| *saved == Saved::Yes).count(), 1);
        assert_eq!(other.approval(asked.id).await, change.next);
    }
}

pub(in super::super) async fn what_two_stores_sweep_at_once_is_swept_once(fixture: Fixture) {
    let other = fixture.beside().await;
    let mut last = START;
    for call in 0..40 {
        last = fixture.ask(question_about(&call.to_string())).await.decide_by;
    }
    fixture.advance_to(last);
    let (mut swept, mut passes) = (0, 0);
    // A pass leaves to another what that one is at: it may find less than there is.
    while swept < 40 {
        let answers = through_both(&fixture, &other, 8, |store, _| async move {
            store.sweep(Sweep::ExpireApprovals, 7).await.unwrap().rows
        });
        swept += answers.await.into_iter().sum::<u32>();
        passes += 1;
        assert!(passes < 100, "of 40, {swept} were swept");
    }
    assert_eq!(swept, 40);
    assert_eq!(other.store.sweep(Sweep::ExpireApprovals, 100).await.unwrap().rows, 0);
}

pub(in super::super) async fn what_one_store_acknowledged_the_other_reads(fixture: Fixture) {
    let other = fixture.beside().await;
    for round in 0..20 {
        let asked = fixture.ask(question_about(&round.to_string())).await;
        assert_eq!(other.approval(asked.id).await, asked);
        let approved = other.decide(&asked, asked.question.subject.principal.as_str(), Verdict::Approve).await;
        assert_eq!(fixture.approval(asked.id).await, approved);
        let execution = fixture.consume(start_of(&approved)).await.unwrap();
        let reported = other.report(&execution, Outcome::Succeeded).await;
        assert_eq!(fixture.store.execution(execution.id).await.unwrap().row, Some(reported));
    }
}

pub(in super::super) async fn what_one_store_changes_the_other_tells(fixture: Fixture) {
    let other = fixture.beside().await;
    let mut changes = other.store.changes();
    for round in 0..5 {
        let asked = fixture.ask(question_about(&round.to_string())).await;
        heard(&mut changes, asked.id, 1).await;
        let approved = fixture.decide(&asked, asked.question.subject.principal.as_str(), Verdict::Approve).await;
        heard(&mut changes, asked.id, 2).await;
        fixture.consume(start_of(&approved)).await.unwrap();
        heard(&mut changes, asked.id, 3).await;
        let late = fixture.ask(question_about(&format!("late {round}"))).await;
        fixture.advance_to(late.decide_by);
        assert_eq!(fixture.store.sweep(Sweep::ExpireApprovals, 10).await.unwrap().rows, 1);
        heard(&mut changes, late.id, 2).await;
    }
}

pub(in super::super) async fn two_stores_that_seal_at_once_make_one_log(fixture: Fixture) {
    const RECORDS: usize = 120;
    let other = fixture.beside().await;
    fixture.store.begin_audit_log("one").await.unwrap();
    other.store.begin_audit_log("another").await.unwrap();
    let event = || AuditEvent::about(AuditKind::ConsumeRefused, &subject(), None, "DENY");
    let written = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for (number, store) in [&fixture.store, &other.store].into_iter().enumerate() {
        for _ in 0..3 {
            let (store, written) = (Arc::clone(store), Arc::clone(&written));
            tasks.push(tokio::spawn(async move {
                for _ in 0..RECORDS / 6 {
                    store.record(vec![event()]).await.unwrap();
                    written.fetch_add(1, Ordering::SeqCst);
                }
            }));
        }
        let (store, written) = (Arc::clone(store), Arc::clone(&written));
        tasks.push(tokio::spawn(async move {
            // Both take themselves for the one that seals: they have one name, and nobody is kept out by a lease.
            let pass = || seals::pass("both", 5 + u32::try_from(number).unwrap());
            while written.load(Ordering::SeqCst) < RECORDS {
                // One of two that are at it may have to come again.
                let _ = store.seal(pass()).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    fixture.seal_all("both").await;
    let entries = fixture.entries().await;
    assert_eq!(entries.len(), RECORDS);
    let positions: BTreeSet<i64> = entries.iter().map(|entry| entry.position).collect();
    assert_eq!(positions.len(), RECORDS, "each once");
    fixture.is_whole().await;
    assert_eq!(fixture.log().await.origin, "one", "the log is begun once");
}
