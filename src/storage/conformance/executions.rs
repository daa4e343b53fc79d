//! Executions without an approval, and what became of them.

use super::*;
use crate::domain::execution::{ExecutionState, ExecutionStateName, Report};
use crate::domain::invocation::Subject;
use crate::storage::ExecutionQuery;

pub(in super::super) async fn an_attempt_without_an_approval_starts_once(fixture: Fixture) {
    let attempt = attempt_id();
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let store = Arc::clone(&fixture.store);
            let start = Start { attempt, ..start(subject()) };
            tokio::spawn(async move { store.start(start).await.unwrap() })
        })
        .collect();
    let mut started = Vec::new();
    for task in tasks {
        started.extend(task.await.unwrap());
    }
    assert_eq!(started.len(), 1);
    let stored = fixture.store.execution(started[0].id).await.unwrap().row.unwrap();
    assert_eq!(stored, started[0]);
    assert_eq!((stored.approval, stored.state.clone(), stored.version), (None, ExecutionState::Started, 1));
    assert_eq!(stored.report_by, START.plus(REPORT_WITHIN));
}

pub(in super::super) async fn a_retry_is_of_the_same_principal_and_agent_and_still_needed(fixture: Fixture) {
    let first = fixture.store.start(start(subject())).await.unwrap().unwrap();
    let retry = |subject| Start { retry_of: Some(first.id), ..start(subject) };
    let before = fixture.dump().await;
    for refused in [
        retry(Subject { principal: id("dana"), ..subject() }),
        retry(Subject { agent: id("other"), ..subject() }),
        Start { retry_of: Some(execution_id()), ..start(subject()) },
    ] {
        assert!(fixture.store.start(refused).await.unwrap().is_none());
    }
    assert_eq!(fixture.dump().await, before);
    let equal = fixture.store.start(retry(subject())).await.unwrap().unwrap();
    assert_eq!((equal.retry_of, &equal.idempotency_key), (Some(first.id), &first.idempotency_key));
    let other = retry(question_about("other").subject);
    let key = other.new_idempotency_key.clone();
    assert_eq!(fixture.store.start(other).await.unwrap().unwrap().idempotency_key, key);
    fixture.report(&first, Outcome::Succeeded).await;
    let before = fixture.dump().await;
    assert!(fixture.store.start(retry(subject())).await.unwrap().is_none());
    assert_eq!(fixture.dump().await, before);
}

pub(in super::super) async fn every_outcome_is_read_back_as_it_was_saved(fixture: Fixture) {
    for outcome in [Outcome::Succeeded, Outcome::Failed, Outcome::Unknown] {
        for full in [true, false] {
            let started = fixture.store.start(start(subject())).await.unwrap().unwrap();
            fixture.clock.advance(Duration::from_secs(1));
            let mut said = report(fixture.now());
            if !full {
                said = Report { remote_reference: None, error_code: None, detail: None, duration: None, ..said };
            }
            let Reported::Changed(change) = started.report(outcome, said).unwrap() else { panic!() };
            let next = change.next.clone();
            assert_eq!(fixture.store.save_execution(*change, 1).await.unwrap(), Saved::Yes);
            assert_eq!(fixture.store.execution(started.id).await.unwrap().row.unwrap(), next);
            if outcome == Outcome::Unknown {
                let settled = fixture.report(&next, Outcome::Succeeded).await;
                assert_eq!(fixture.store.execution(started.id).await.unwrap().row.unwrap(), settled);
            }
        }
    }
    let started = fixture.store.start(start(subject())).await.unwrap().unwrap();
    fixture.clock.advance(REPORT_WITHIN);
    let swept = started.clone().as_of(fixture.now());
    assert_eq!(swept.state, ExecutionState::Unknown(None));
    let change = Change { next: swept.clone(), events: Vec::new(), valid_before: None };
    assert_eq!(fixture.store.save_execution(change, started.version).await.unwrap(), Saved::Yes);
    assert_eq!(fixture.store.execution(started.id).await.unwrap().row.unwrap(), swept);
}

pub(in super::super) async fn a_stale_version_settles_nothing(fixture: Fixture) {
    let started = fixture.store.start(start(subject())).await.unwrap().unwrap();
    let Reported::Changed(late) = started.report(Outcome::Failed, report(fixture.now())).unwrap() else { panic!() };
    fixture.report(&started, Outcome::Succeeded).await;
    let before = fixture.dump().await;
    for expected in [0, 1, 3, u64::MAX] {
        let saved = fixture.store.save_execution((*late).clone(), expected).await.unwrap();
        assert_eq!(saved, Saved::Conflict, "{expected}");
    }
    let mut stranger = (*late).clone();
    stranger.next.id = execution_id();
    assert_eq!(fixture.store.save_execution(stranger, 1).await.unwrap(), Saved::Conflict);
    assert_eq!(fixture.dump().await, before);
}

pub(in super::super) async fn an_outcome_is_saved_only_before_its_deadline(fixture: Fixture) {
    for (offset, want) in [(-1_i64, Saved::Yes), (0, Saved::Conflict), (1, Saved::Conflict)] {
        let started = fixture.store.start(start(subject())).await.unwrap().unwrap();
        let Reported::Changed(change) = started.report(Outcome::Succeeded, report(fixture.now())).unwrap() else {
            panic!()
        };
        assert_eq!(change.valid_before, Some(started.report_by));
        fixture.advance_to(Timestamp::from_micros(started.report_by.micros() + offset));
        let before = fixture.dump().await;
        assert_eq!(fixture.store.save_execution(*change, 1).await.unwrap(), want, "{offset}");
        assert_eq!(fixture.dump().await == before, want == Saved::Conflict, "{offset}");
    }
}

pub(in super::super) async fn a_list_has_what_is_wanted_newest_first(fixture: Fixture) {
    let seed = 23;
    let mut random = Random::seeded(seed);
    let (people, agents) = (["olga", "dana", "o"], ["assistant", "other"]);
    let mut all: Vec<Execution> = Vec::new();
    for call in 0..120 {
        let mut question = question_about(&call.to_string());
        question.subject.principal = id(random.pick::<&str>(&people));
        question.subject.agent = id(random.pick::<&str>(&agents));
        let started = if random.one_in(3) {
            fixture.consumed(question).await.1
        } else {
            fixture.store.start(start(question.subject)).await.unwrap().unwrap()
        };
        let outcome = *random.pick(&[Outcome::Succeeded, Outcome::Failed, Outcome::Unknown]);
        all.push(if random.one_in(2) { fixture.report(&started, outcome).await } else { started });
        // Many start at the same instant.
        if random.one_in(3) {
            fixture.clock.advance(Duration::from_secs(u64::try_from(random.below(9)).unwrap()));
        }
    }
    all.sort_by_key(|execution| std::cmp::Reverse((execution.start_time, execution.id)));
    for case in 0..400 {
        let some_time = |random: &mut Random| random.one_in(3).then(|| random.pick(&all).start_time);
        let query = ExecutionQuery {
            principal: random.one_in(3).then(|| id(random.pick::<&str>(&people))),
            agent: random.one_in(3).then(|| id(random.pick::<&str>(&agents))),
            connector: random.one_in(4).then(|| id(random.pick::<&str>(&["gmail", "nothing"]))),
            states: ExecutionStateName::ALL.into_iter().filter(|_| random.one_in(3)).collect(),
            approval: random.one_in(4).then(|| random.pick(&all).approval.unwrap_or_else(approval_id)),
            started_from: some_time(&mut random),
            started_before: some_time(&mut random),
            before: random.one_in(2).then(|| random.pick(&all)).map(|last| (last.start_time, last.id)),
            limit: u32::try_from(random.below(40)).unwrap(),
        };
        let now = fixture.now();
        let wanted = all.iter().filter(|execution| query.wants(execution, now));
        let want: Vec<&Execution> = wanted.take(usize::try_from(query.limit).unwrap()).collect();
        let got = fixture.store.executions(query.clone()).await.unwrap();
        assert_eq!((got.now, got.row.looked_until), (now, None));
        assert_eq!(got.row.executions.iter().collect::<Vec<_>>(), want, "seed {seed}, case {case}: {query:?}");
        if random.one_in(20) {
            fixture.clock.advance(Duration::from_secs(5));
        }
    }
}
