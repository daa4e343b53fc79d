//! The statement that passes the gate and the function that says why it stayed shut: held to each other over random rows,
//! invocations, answers of the policy, attempts and times. The seed is printed by whatever fails.

use super::*;
use crate::domain::consume::{Attempted, ConsumeRefusal, WhyNot, why_not, why_not_without_token};
use crate::domain::decision::{Decision, PolicyAnswer, PolicyReason};
use crate::domain::execution::ExecutionState;
use crate::domain::invocation::Subject;
use crate::domain::requirement::Requirement;
use std::collections::BTreeMap;

const CASES: usize = 2_500;

pub(in super::super) async fn the_statement_and_why_not_agree(fixture: Fixture) {
    let seed = 20_261_130;
    let mut random = Random::seeded(seed);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut earlier: Vec<Execution> = Vec::new();
    for case in 0..CASES {
        let approval = some_approval(&fixture, &mut random, case, &earlier).await;
        let (start, named) = some_attempt(&mut random, &approval, &earlier);
        let today = some_policy(&mut random, &approval);
        let attempted = Attempted { approval: named, subject: &start.subject, retry_of: start.retry_of, today: &today };
        let facts = fixture.store.consume_facts(named, &attempt_key(&start), start.retry_of).await.unwrap();
        let why = why_not(&facts.row, &attempted, |_| true, facts.now);
        let before = fixture.dump_of_interest(named, &start).await;
        let context = format!("seed {seed}, case {case}: {why:?}");
        *seen.entry(kind_of(&why)).or_default() += 1;
        // Where today's policy denies, no statement runs.
        let passed = match &today.decision {
            Decision::Deny => None,
            Decision::Allow => fixture.store.consume(start.clone(), Accepting::AnyRequirement).await.unwrap(),
            Decision::ConfirmationRequired(requirement) => {
                let digest = Accepting::Digest(requirement.digest());
                fixture.store.consume(start.clone(), digest).await.unwrap()
            }
        };
        match why {
            WhyNot::Nothing => {
                let execution = passed.unwrap_or_else(|| panic!("the statement found something: {context}"));
                assert_eq!(execution, start.clone().at(facts.row.retried.as_ref(), facts.now).next, "{context}");
                earlier.push(execution);
            }
            WhyNot::MeetsToday { version } => {
                assert!(passed.is_none(), "the digest should have differed: {context}");
                let stale = Accepting::Version(version + 1);
                assert!(fixture.store.consume(start.clone(), stale).await.unwrap().is_none(), "{context}");
                let again = fixture.store.consume(start.clone(), Accepting::Version(version)).await.unwrap();
                earlier.push(again.unwrap_or_else(|| panic!("the version is that of the row: {context}")));
            }
            WhyNot::Refused(_) | WhyNot::Replay(_) => {
                assert!(passed.is_none(), "the statement let pass what is refused: {context}");
                assert_eq!(fixture.dump_of_interest(named, &start).await, before, "{context}");
            }
        }
        if random.one_in(3) && !earlier.is_empty() {
            settle_one(&fixture, &mut random, &mut earlier).await;
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

pub(in super::super) async fn the_statement_without_a_token_and_why_not_agree(fixture: Fixture) {
    let seed = 7_112_026;
    let mut random = Random::seeded(seed);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut earlier: Vec<Execution> = Vec::new();
    for case in 0..CASES / 2 {
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
            _ => fixture.store.start(start.clone()).await.unwrap(),
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

impl Fixture {
    /// What a refusal must leave as it was: the approval, the attempt, and the number of audit records.
    async fn dump_of_interest(&self, approval: Option<ApprovalId>, start: &Start) -> String {
        let facts = self.store.consume_facts(approval, &attempt_key(start), None).await.unwrap().row;
        let query = crate::storage::AuditQuery { limit: 1, ..Default::default() };
        let newest = self.store.audit_records(query).await.unwrap().row;
        format!("{:?} {:?} {:?}", facts.approval, facts.attempt, newest.first().map(|record| record.position))
    }
}

fn small_subject(random: &mut Random, case: usize) -> Subject {
    let call = format!("call {}", if random.one_in(3) { case } else { random.below(4) });
    let mut subject = question_about(&call).subject;
    subject.principal = id(*random.pick(&["olga", "dana"]));
    subject.agent = id(*random.pick(&["assistant", "other"]));
    subject
}

/// An approval in some state, near one of its deadlines.
async fn some_approval(fixture: &Fixture, random: &mut Random, case: usize, earlier: &[Execution]) -> Approval {
    let mut question = question_about(&format!("call {case}"));
    question.subject.principal = id(*random.pick(&["olga", "dana"]));
    question.requirement = requirements(random.below(3));
    if random.one_in(2) {
        question.subject.conversation = None;
        question.subject.objective = None;
    }
    if let Some(retried) = earlier.last().filter(|_| random.one_in(3))
        && retried.known_outcome(fixture.now()).is_some()
    {
        question = retrying(retried, fixture.now(), question);
    }
    let principal = question.subject.principal.as_str().to_owned();
    let mut approval = fixture.ask(question).await;
    let path = random.below(12);
    if path == 0 {
        approval = fixture.decide(&approval, &format!("{principal}:finance"), Verdict::Deny).await;
    } else if path >= 2 {
        for person in [format!("{principal}:security"), "eve:finance".to_owned()] {
            if matches!(approval.state, ApprovalState::Pending) {
                approval = fixture.decide(&approval, &person, Verdict::Approve).await;
            }
        }
    }
    match path {
        2 => {
            let cancelled = approval.cancel(&id("runner"), None, fixture.now()).unwrap();
            approval = fixture.save(cancelled, approval.version).await;
        }
        3 => {
            let revoked = approval.revoke(&person(&principal), None, fixture.now()).unwrap();
            approval = fixture.save(revoked, approval.version).await;
        }
        4 => {
            fixture.consume(start_of(&approval)).await;
            approval = fixture.approval(approval.id).await;
        }
        _ => {}
    }
    let deadline = approval.state.confirmed().map_or(approval.decide_by, |confirmed| confirmed.use_by);
    if random.one_in(4) {
        fixture.advance_to(match random.below(3) {
            0 => deadline.minus(TICK),
            1 => deadline,
            _ => deadline.plus(TICK),
        });
    } else if random.one_in(3) {
        fixture.clock.advance(TICK);
    }
    if random.one_in(10)
        && let Some(change) = approval.expired(fixture.now())
    {
        approval = fixture.save_change(change, approval.version).await;
    }
    approval
}

/// A start that is mostly, but not always, for what was approved.
fn some_attempt(random: &mut Random, approval: &Approval, earlier: &[Execution]) -> (Start, Option<ApprovalId>) {
    let mut start = start_of(approval);
    match random.below(8) {
        0 => {
            let others = other_bindings(&start.subject);
            start.subject = random.pick(&others).1.clone();
        }
        1 => start.subject.connection = None,
        2 => start.approval = Some(approval_id()),
        _ => {}
    }
    if let ApprovalState::Consumed { execution, .. } = &approval.state
        && random.one_in(2)
        && let Some(replayed) = earlier.iter().find(|earlier| earlier.id == *execution)
    {
        start.attempt = replayed.attempt;
    } else if !earlier.is_empty() && random.one_in(5) {
        let reused = random.pick(earlier);
        start.attempt = reused.attempt;
        if random.one_in(2) {
            // The same attempt again, as after a lost answer.
            start.approval = reused.approval;
            start.subject = reused.subject.clone();
        }
    }
    let named = start.approval;
    (start, named)
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
        tags: Vec::new(),
        rules: Vec::new(),
        report_within: REPORT_WITHIN,
        checks: Vec::new(),
        policy_revision: "revision-2".to_owned(),
    }
}

/// Gives a late or random execution an outcome.
async fn settle_one(fixture: &Fixture, random: &mut Random, earlier: &mut [Execution]) {
    let index = if random.one_in(2) { earlier.len() - 1 } else { random.below(earlier.len()) };
    let outcome = *random.pick(&[Outcome::Succeeded, Outcome::Failed, Outcome::Unknown]);
    let current = fixture.store.execution(earlier[index].id).await.unwrap().row.unwrap();
    if !matches!(current.state, ExecutionState::Started) {
        return;
    }
    if let Ok(Reported::Changed(change)) = current.report(outcome, report(fixture.now())) {
        earlier[index] = change.next.clone();
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
