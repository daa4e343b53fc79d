//! The statement that passes the gate and the function that says why it stayed shut: held to each other over random rows,
//! invocations, answers of the policy, attempts and times. The seed is printed by whatever fails.

use super::*;
use crate::domain::consume::{Attempted, ConsumeRefusal, WhyNot, why_not, why_not_without_token};
use crate::domain::decision::{Decision, PolicyAnswer, PolicyReason};
use crate::domain::execution::ExecutionState;
use crate::domain::invocation::Subject;
use crate::domain::requirement::Requirement;
use crate::storage::AuditQuery;
use std::collections::BTreeMap;

/// Rounds of cases; each asks as many questions at once as there are phases in it.
const ROUNDS: usize = 100;
/// Of each round: cases at once, and at one microsecond before, at, and after the deadlines.
const PHASES: [usize; 4] = [11, 3, 3, 3];

pub(in super::super) async fn the_statement_and_why_not_agree(fixture: Fixture) {
    let seed = 20_261_130;
    let fixture = Arc::new(fixture);
    let mut random = Random::seeded(seed);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut earlier: Vec<Execution> = Vec::new();
    for round in 0..ROUNDS {
        let mut prepared = prepare(&fixture, &mut random, round, &mut earlier).await;
        let start = fixture.now();
        for (phase, cases) in PHASES.into_iter().enumerate() {
            // Of both deadlines, those of questions lie later: they come in every other round.
            let deadline = start.plus(if round % 2 == 0 { USE_WITHIN } else { DECIDE_WITHIN });
            match phase {
                0 => {}
                1 => fixture.advance_to(deadline.minus(TICK)),
                2 => fixture.advance_to(deadline),
                _ => fixture.advance_to(deadline.plus(TICK)),
            }
            for approval in prepared.split_off(prepared.len() - cases) {
                let context = format!("seed {seed}, round {round}, phase {phase}");
                let kind = one_case(&fixture, &mut random, &approval, &mut earlier, context).await;
                *seen.entry(kind).or_default() += 1;
                if random.one_in(3) && !earlier.is_empty() {
                    settle_one(&fixture, &mut random, &mut earlier).await;
                }
            }
        }
    }
    for kind in [
        "nothing",
        "meets today",
        "replay",
        "TokenInvalid",
        "Mismatch",
        "AttemptIdReused",
        "AttemptOver",
        "State pending",
        "State denied",
        "State cancelled",
        "State revoked",
        "State expired",
        "State consumed",
        "RetryNotNeeded",
        "PolicyDenied",
        "ConfirmationRaised",
    ] {
        assert!(seen.get(kind).is_some_and(|count| *count >= 5), "too few of {kind}: {seen:?}");
    }
}

/// Many at once, of few approvals and attempts, so that they meet in one commit and stand in each other's way.
pub(in super::super) async fn many_at_once_and_why_not_agree(fixture: Fixture) {
    let seed = 30_112_026;
    let fixture = Arc::new(fixture);
    let mut random = Random::seeded(seed);
    let mut earlier: Vec<Execution> = Vec::new();
    let (mut passed, mut refused, mut late) = (0, 0, 0);
    for round in 0..60 {
        let prepared = prepare(&fixture, &mut random, round, &mut earlier).await;
        let few = 1 + random.below(8);
        let mut calls: Vec<(Start, Accepting, bool)> = Vec::new();
        for _ in 0..2 + random.below(40) {
            let approval = random.pick(&prepared[..few]).clone();
            let mut start = some_attempt(&mut random, &approval, &earlier);
            if !calls.is_empty() && random.one_in(4) {
                start.attempt = random.pick(&calls).0.attempt;
            }
            let today = some_policy(&mut random, &approval);
            let attempted =
                Attempted { approval: start.approval, subject: &start.subject, retry_of: None, today: &today };
            let facts = fixture.store.consume_facts(start.approval, &attempt_key(&start), None).await.unwrap();
            let why = why_not(&facts.row, &attempted, |_| true, facts.now);
            let accepting = match (&today.decision, &why) {
                // Where today's policy denies, no statement runs.
                (Decision::Deny, _) => continue,
                (Decision::Allow, _) => Accepting::AnyRequirement,
                (Decision::ConfirmationRequired(_), WhyNot::MeetsToday { version }) => Accepting::Version(*version),
                (Decision::ConfirmationRequired(requirement), _) => Accepting::Digest(requirement.digest()),
            };
            calls.push((start, accepting, matches!(why, WhyNot::Nothing | WhyNot::MeetsToday { .. })));
        }
        let tasks: Vec<_> = calls
            .iter()
            .cloned()
            .map(|(start, accepting, _)| {
                let fixture = Arc::clone(&fixture);
                tokio::spawn(async move { fixture.store.consume(start, accepting).await.unwrap() })
            })
            .collect();
        let mut answers = Vec::new();
        for task in tasks {
            answers.push(task.await.unwrap());
        }
        for (number, ((start, _, alone), answer)) in calls.iter().zip(&answers).enumerate() {
            let context = format!("seed {seed}, round {round}, call {number}: {start:?}");
            let won_by = |other: &Start| other.approval == start.approval || attempt_key(other) == attempt_key(start);
            let winners =
                calls.iter().zip(&answers).filter(|((other, ..), won)| won.is_some() && won_by(other)).count();
            if let Some(execution) = answer {
                assert!(*alone, "what is refused alone is refused among others: {context}");
                assert_eq!(winners, 1, "one wins: {context}");
                let retried = match execution.retry_of {
                    Some(id) => fixture.store.execution(id).await.unwrap().row,
                    None => None,
                };
                let expected = start.clone().at(retried.as_ref(), fixture.now());
                assert_is_written(&fixture, &expected).await;
                assert_eq!(*execution, expected.next, "{context}");
                passed += 1;
            } else if *alone {
                assert!(winners > 0, "somebody else was first: {context}");
                late += 1;
            } else {
                refused += 1;
            }
        }
        earlier.extend(answers.into_iter().flatten());
        if random.one_in(2) && !earlier.is_empty() {
            settle_one(&fixture, &mut random, &mut earlier).await;
        }
    }
    assert!(passed > 60 && refused > 300 && late > 100, "{passed} {refused} {late}");
}

/// Checks that a start stands in the table as the domain made it, with its record.
async fn assert_is_written(fixture: &Fixture, change: &Change<Execution>) {
    let stored = fixture.store.execution(change.next.id).await.unwrap().row;
    assert_eq!(stored.as_ref(), Some(&change.next));
    let query = AuditQuery { execution: Some(change.next.id), limit: 10, ..AuditQuery::default() };
    let records = fixture.store.audit_records(query).await.unwrap().row;
    let first: Vec<_> = records.into_iter().rev().take(1).map(|record| record.event).collect();
    assert_eq!(first, change.events);
}

pub(in super::super) async fn the_statement_without_a_token_and_why_not_agree(fixture: Fixture) {
    let seed = 7_112_026;
    let mut random = Random::seeded(seed);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut earlier: Vec<Execution> = Vec::new();
    for case in 0..800 {
        let mut start = start(small_subject(&mut random, case));
        if !earlier.is_empty() && random.one_in(2) {
            start.retry_of = Some(random.pick(&earlier).id);
        } else if random.one_in(8) {
            start.retry_of = Some(execution_id());
        }
        if !earlier.is_empty() && random.one_in(4) {
            let replayed = random.pick(&earlier);
            (start.attempt, start.caller) = (replayed.attempt, replayed.caller.clone());
            if random.one_in(2) {
                start.subject = replayed.subject.clone();
            }
        }
        let today = policy(if random.one_in(6) { Decision::Deny } else { Decision::Allow });
        let attempted = Attempted { approval: None, subject: &start.subject, retry_of: start.retry_of, today: &today };
        let facts = fixture.store.consume_facts(None, &attempt_key(&start), start.retry_of).await.unwrap();
        let why = why_not_without_token(&facts.row, &attempted, facts.now);
        let context = format!("seed {seed}, case {case}: {why:?}");
        *seen.entry(kind_of(&why)).or_default() += 1;
        let passed = match &today.decision {
            Decision::Deny => None,
            Decision::Allow | Decision::ConfirmationRequired(_) => fixture.store.start(start.clone()).await.unwrap(),
        };
        match why {
            WhyNot::Nothing => {
                let execution = passed.unwrap_or_else(|| panic!("the statement found something: {context}"));
                assert_eq!(execution, start.clone().at(facts.row.retried.as_ref(), facts.now).next, "{context}");
                earlier.push(execution);
            }
            WhyNot::Refused(_) | WhyNot::Replay(_) => assert!(passed.is_none(), "{context}"),
            WhyNot::MeetsToday { .. } => panic!("there is no approval: {context}"),
        }
        if random.one_in(2) && !earlier.is_empty() {
            settle_one(&fixture, &mut random, &mut earlier).await;
        }
    }
    for kind in
        ["nothing", "replay", "AttemptIdReused", "AttemptOver", "PolicyDenied", "RetryNotNeeded", "RetriedUnknown"]
    {
        assert!(seen.get(kind).is_some_and(|count| *count >= 5), "too few of {kind}: {seen:?}");
    }
}

/// Asks the questions of a round at once, so that they share commits, and returns the approvals as they then are.
async fn prepare(
    fixture: &Arc<Fixture>,
    random: &mut Random,
    round: usize,
    earlier: &mut Vec<Execution>,
) -> Vec<Approval> {
    let count: usize = PHASES.iter().sum();
    let retried = earlier.iter().rposition(|execution| execution.state == ExecutionState::Started);
    let tasks: Vec<_> = (0..count)
        .map(|case| {
            let (fixture, mut random) = (Arc::clone(fixture), Random::seeded(random.next()));
            let retried = retried.map(|index| earlier[index].clone());
            tokio::spawn(async move {
                some_approval(&fixture, &mut random, &format!("call {round} {case}"), retried.as_ref()).await
            })
        })
        .collect();
    let mut approvals = Vec::new();
    for task in tasks {
        let (approval, execution) = task.await.unwrap();
        approvals.push(approval);
        earlier.extend(execution);
    }
    // Meanwhile what some of them retry has an outcome.
    if let Some(index) = retried.filter(|_| !random.one_in(3)) {
        settle(fixture, random, &mut earlier[index]).await;
    }
    approvals
}

/// Attempts to use this approval and compares; returns what the domain said of it.
async fn one_case(
    fixture: &Fixture,
    random: &mut Random,
    approval: &Approval,
    earlier: &mut Vec<Execution>,
    context: String,
) -> String {
    let start = some_attempt(random, approval, earlier);
    let today = some_policy(random, approval);
    let (named, key) = (start.approval, attempt_key(&start));
    let attempted = Attempted { approval: named, subject: &start.subject, retry_of: start.retry_of, today: &today };
    let facts = fixture.store.consume_facts(named, &key, start.retry_of).await.unwrap();
    let why = why_not(&facts.row, &attempted, |_| true, facts.now);
    let context = format!("{context}: {why:?}");
    let consume = |accepting| fixture.store.consume(start.clone(), accepting);
    // Where today's policy denies, no statement runs.
    let passed = match &today.decision {
        Decision::Deny => None,
        Decision::Allow => consume(Accepting::AnyRequirement).await.unwrap(),
        Decision::ConfirmationRequired(requirement) => consume(Accepting::Digest(requirement.digest())).await.unwrap(),
    };
    match &why {
        WhyNot::Nothing => {
            let execution = passed.unwrap_or_else(|| panic!("the statement found something: {context}"));
            let expected = start.clone().at(facts.row.retried.as_ref(), facts.now);
            assert_is_written(fixture, &expected).await;
            assert_eq!(execution, expected.next, "{context}");
            earlier.push(execution);
        }
        WhyNot::MeetsToday { version } => {
            assert!(passed.is_none(), "the digest should have differed: {context}");
            assert!(consume(Accepting::Version(version + 1)).await.unwrap().is_none(), "{context}");
            let again = consume(Accepting::Version(*version)).await.unwrap();
            earlier.push(again.unwrap_or_else(|| panic!("the version is that of the row: {context}")));
        }
        WhyNot::Refused(_) | WhyNot::Replay(_) => {
            assert!(passed.is_none(), "the statement let pass what is refused: {context}");
            let after = fixture.store.consume_facts(named, &key, start.retry_of).await.unwrap().row;
            assert_eq!((after.approval, after.attempt), (facts.row.approval, facts.row.attempt), "{context}");
        }
    }
    kind_of(&why)
}

fn small_subject(random: &mut Random, case: usize) -> Subject {
    let call = format!("call {}", if random.one_in(3) { case } else { random.below(4) });
    let mut subject = question_about(&call).subject;
    subject.principal = id(random.pick::<&str>(&["olga", "dana"]));
    subject.agent = id(random.pick::<&str>(&["assistant", "other"]));
    subject
}

/// An approval in some state; if it is consumed, with the execution.
async fn some_approval(
    fixture: &Fixture,
    random: &mut Random,
    call: &str,
    retried: Option<&Execution>,
) -> (Approval, Option<Execution>) {
    let mut question = question_about(call);
    question.subject.principal = id(random.pick::<&str>(&["olga", "dana"]));
    question.requirement = requirements(random.below(3));
    if random.one_in(2) {
        question.subject.conversation = None;
        question.subject.objective = None;
    }
    if let Some(retried) = retried.filter(|_| random.one_in(3))
        && retried.known_outcome(fixture.now()).is_some()
    {
        question = retrying(retried, fixture.now(), question);
    }
    let principal = question.subject.principal.as_str().to_owned();
    let mut approval = fixture.ask(question).await;
    let path = random.below(14);
    if path == 0 {
        approval = fixture.decide(&approval, &format!("{principal}:finance"), Verdict::Deny).await;
    } else if path >= 3 {
        for person in [format!("{principal}:security"), "eve:finance".to_owned()] {
            if matches!(approval.state, ApprovalState::Pending) {
                approval = fixture.decide(&approval, &person, Verdict::Approve).await;
            }
        }
    }
    match path {
        3 => {
            let cancelled = approval.cancel(&id("runner"), None, fixture.now()).unwrap();
            approval = fixture.save(cancelled, approval.version).await;
        }
        4 => {
            let revoked = approval.revoke(&person(&principal), None, fixture.now()).unwrap();
            approval = fixture.save(revoked, approval.version).await;
        }
        5 => {
            let execution = fixture.consume(start_of(&approval)).await;
            return (fixture.approval(approval.id).await, execution);
        }
        _ => {}
    }
    (approval, None)
}

/// A start that is mostly, but not always, for what was approved.
fn some_attempt(random: &mut Random, approval: &Approval, earlier: &[Execution]) -> Start {
    let mut start = start_of(approval);
    match random.below(8) {
        0 => {
            let others = other_bindings(&start.subject);
            start.subject = random.pick(&others).1.clone();
        }
        1 => start.subject.connection = None,
        2 if random.one_in(2) => start.approval = Some(approval_id()),
        _ => {}
    }
    if let ApprovalState::Consumed { execution, .. } = &approval.state
        && !random.one_in(4)
        && let Some(replayed) = earlier.iter().find(|earlier| earlier.id == *execution)
    {
        // The same attempt again, as after a lost answer.
        start.attempt = replayed.attempt;
    } else if !earlier.is_empty() && random.one_in(5) {
        let reused = random.pick(earlier);
        start.attempt = reused.attempt;
        if random.one_in(2) {
            start.approval = reused.approval;
            start.subject = reused.subject.clone();
        }
    }
    start
}

/// Requirements that the same decisions meet, or not.
fn requirements(which: usize) -> Requirement {
    match which {
        0 => requirement(&[&["owner"]]),
        1 => requirement(&[&["owner", "group:finance"]]),
        2 => requirement(&[&["owner"], &["group:finance"]]),
        _ => requirement(&[&["person:nobody"]]),
    }
}

fn some_policy(random: &mut Random, approval: &Approval) -> PolicyAnswer {
    policy(match random.below(10) {
        0 => Decision::Deny,
        1 | 2 => Decision::Allow,
        3..6 => Decision::ConfirmationRequired(requirements(random.below(4))),
        // The same people, less time.
        _ => Decision::ConfirmationRequired(
            approval.question.requirement.clone().deciding_within(Duration::from_secs(1)),
        ),
    })
}

fn policy(decision: Decision) -> PolicyAnswer {
    let reason = match decision {
        Decision::Allow => PolicyReason::Allowed,
        Decision::Deny => PolicyReason::DeniedByRule,
        Decision::ConfirmationRequired(_) => PolicyReason::ConfirmationByMode,
    };
    PolicyAnswer {
        decision,
        reason,
        message: String::new(),
        scope: None,
        tags: Arc::default(),
        rules: Vec::new(),
        report_within: REPORT_WITHIN,
        checks: Vec::new(),
        policy_revision: "revision-2".to_owned(),
    }
}

/// Gives the last or a random execution an outcome.
async fn settle_one(fixture: &Fixture, random: &mut Random, earlier: &mut [Execution]) {
    let index = if random.one_in(2) { earlier.len() - 1 } else { random.below(earlier.len()) };
    settle(fixture, random, &mut earlier[index]).await;
}

async fn settle(fixture: &Fixture, random: &mut Random, execution: &mut Execution) {
    let outcome = *random.pick(&[Outcome::Succeeded, Outcome::Succeeded, Outcome::Failed, Outcome::Unknown]);
    let current = fixture.store.execution(execution.id).await.unwrap().row.unwrap();
    if !matches!(current.state, ExecutionState::Started) {
        return;
    }
    if let Ok(Reported::Changed(change)) = current.report(outcome, report(fixture.now())) {
        *execution = change.next.clone();
        assert_eq!(fixture.store.save_execution(*change, current.version).await.unwrap(), Saved::Yes);
    }
}

fn kind_of(why: &WhyNot) -> String {
    match why {
        WhyNot::Nothing => "nothing".to_owned(),
        WhyNot::MeetsToday { .. } => "meets today".to_owned(),
        WhyNot::Replay(_) => "replay".to_owned(),
        WhyNot::Refused(ConsumeRefusal::State(_, state)) => format!("State {state}"),
        WhyNot::Refused(refusal) => {
            let text = format!("{refusal:?}");
            text.split('(').next().unwrap_or_default().to_owned()
        }
    }
}
