//! Random commands at random times: what holds for every one of them.

use crate::domain::approval::{Answer, Approval, CommandRefusal, Commanded, Person, StateName, Verdict};
use crate::domain::change::Change;
use crate::domain::consume::{Attempted, ConsumeFacts, WhyNot, why_not};
use crate::domain::decision::{Decision, PolicyReason};
use crate::domain::testing::{asked, at, consumed, execution_id, fingerprint, id, near, person, policy, requirement};
use crate::domain::time::Timestamp;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
enum Command {
    Decide { who: usize, verdict: Verdict, shown: Option<bool> },
    Cancel,
    Revoke { who: usize },
    Consume { allowed: bool },
    Expire,
}

/// A command, how long after the one before it is given, and how long its change takes to reach the table: microseconds.
type Step = (Command, i64, i64);

fn people() -> [Person; 6] {
    [
        person("dana", &["finance"]),
        person("eve", &["finance", "security"]),
        person("sam", &["security"]),
        person("olga", &["finance"]),
        person("kim", &[]),
        person("ned", &[]),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let command = prop_oneof![
        6 => (0..6_usize, prop_oneof![4 => Just(Verdict::Approve), 1 => Just(Verdict::Deny)],
              prop_oneof![4 => Just(None), 2 => Just(Some(true)), 1 => Just(Some(false))])
            .prop_map(|(who, verdict, shown)| Command::Decide { who, verdict, shown }),
        1 => Just(Command::Cancel),
        1 => (0..6_usize).prop_map(|who| Command::Revoke { who }),
        2 => any::<bool>().prop_map(|allowed| Command::Consume { allowed }),
        1 => Just(Command::Expire),
    ];
    // Mostly a microsecond; sometimes straight to a deadline or over it.
    let wait = prop_oneof![8 => 0..3_i64, 1 => 299_999_990..300_000_010_i64, 1 => 599_999_990..600_000_010_i64];
    prop::collection::vec((command, wait, prop_oneof![6 => Just(0_i64), 1 => 0..400_000_000_i64]), 0..24)
}

fn approvals() -> impl Strategy<Value = Approval> {
    (prop::sample::select(vec!["owner", "two", "clauses"]), any::<bool>()).prop_map(|(kind, exclude_requester)| {
        asked(match kind {
            "owner" => requirement(&[(&["owner", "person:kim"], 1)], exclude_requester),
            "two" => requirement(&[(&["group:finance"], 2)], exclude_requester),
            _ => requirement(&[(&["group:finance"], 1), (&["group:security", "person:kim"], 1)], exclude_requester),
        })
    })
}

/// What a command would change: nothing, or the change that the store is asked to save.
fn change(approval: &Approval, command: &Command, now: Timestamp) -> Option<Change<Approval>> {
    let commanded = match command {
        Command::Decide { who, verdict, shown } => {
            let shown_fingerprint =
                shown.map(|same| if same { approval.question.subject.fingerprint } else { fingerprint("other") });
            approval.decide(&people()[*who], &Answer { verdict: *verdict, reason: None, shown_fingerprint }, now)
        }
        Command::Cancel => approval.cancel(&id("agents"), None, now),
        Command::Revoke { who } => approval.revoke(&people()[*who], None, now),
        Command::Expire => return approval.expired(now),
        Command::Consume { allowed } => return consume(approval, *allowed, now),
    };
    match commanded {
        Ok(Commanded::Changed(change)) => Some(*change),
        Ok(Commanded::AsItWas)
        | Err(CommandRefusal::State(_) | CommandRefusal::NotAnApprover | CommandRefusal::ShownFingerprintDiffers) => {
            None
        }
    }
}

fn consume(approval: &Approval, allowed: bool, now: Timestamp) -> Option<Change<Approval>> {
    let today = if allowed {
        policy(Decision::Allow, PolicyReason::Allowed)
    } else {
        policy(Decision::ConfirmationRequired(approval.question.requirement.clone()), PolicyReason::ConfirmationByRule)
    };
    let attempted =
        Attempted { approval: Some(approval.id), subject: &approval.question.subject, retry_of: None, today: &today };
    let facts = ConsumeFacts { approval: Some(approval.clone()), ..ConsumeFacts::default() };
    (why_not(&facts, &attempted, |_| true, now) == WhyNot::Nothing).then(|| Change {
        next: consumed(approval, execution_id(1), now),
        events: Vec::new(),
        valid_before: approval.state.confirmed().map(|confirmed| confirmed.use_by),
    })
}

/// Runs the steps as an engine and a store would, and checks each.
fn run(mut approval: Approval, steps: &[Step]) -> Result<Vec<StateName>, TestCaseError> {
    let mut now = at(0);
    let mut passed = vec![approval.state.name()];
    let mut past = vec![approval.clone()];
    for (command, wait, delay) in steps {
        now = near(now, *wait);
        reads_agree(&approval, now)?;
        let Some(Change { next, valid_before, .. }) = change(&approval, command, now) else { continue };
        let from = approval.state_at(now);
        if matches!(command, Command::Expire) {
            prop_assert_eq!(from, StateName::Expired);
        } else {
            prop_assert!(!is_final(from), "{:?} changed what was {}", command, from);
            prop_assert!(valid_before.is_some_and(|deadline| now < deadline), "a change is to be saved in time");
        }
        let saved = near(now, *delay);
        if valid_before.is_some_and(|deadline| saved >= deadline) {
            // The store refuses it: the record is overdue.
            prop_assert_eq!(approval.state_at(saved), StateName::Expired);
            continue;
        }
        prop_assert_eq!(next.version, approval.version + 1);
        prop_assert!(next.decisions.starts_with(&approval.decisions), "decisions only grow");
        prop_assert!(next.decisions.len() - approval.decisions.len() <= 1);
        prop_assert_eq!(&next.question, &approval.question);
        prop_assert_eq!(
            (next.id, next.create_time, next.decide_by),
            (approval.id, approval.create_time, approval.decide_by)
        );
        prop_assert!(!is_final(approval.state.name()), "{:?} left {}", command, approval.state.name());
        state_rests_on_decisions(&next)?;
        approval = next;
        now = saved;
        passed.push(approval.state.name());
        past.push(approval.clone());
    }
    holds_its_own_past(&approval, &past)?;
    let uses = passed.iter().filter(|state| **state == StateName::Consumed).count();
    prop_assert!(uses <= 1, "used {} times", uses);
    Ok(passed)
}

/// The last record alone gives back each that was saved before it.
fn holds_its_own_past(approval: &Approval, past: &[Approval]) -> Result<(), TestCaseError> {
    for (version, saved) in (1..).zip(past) {
        prop_assert_eq!(approval.at_version(version), Some(saved.clone()));
    }
    prop_assert_eq!(approval.last_change(), approval.version);
    prop_assert_eq!((approval.at_version(0), approval.at_version(approval.version + 1)), (None, None));
    prop_assert_eq!(approval.is_final(), is_final(approval.state.name()));
    let erased = Approval { version: approval.version + 1, ..approval.clone() };
    prop_assert_eq!((erased.last_change(), erased.at_version(erased.version)), (approval.version, None));
    Ok(())
}

fn reads_agree(approval: &Approval, now: Timestamp) -> Result<(), TestCaseError> {
    let shown = approval.clone().as_of(now);
    prop_assert_eq!(shown.state.name(), approval.state_at(now));
    prop_assert_eq!(&shown.clone().as_of(now), &shown, "reading twice is reading once");
    prop_assert_eq!(approval.expired(now).map_or_else(|| approval.clone(), |change| change.next), shown);
    Ok(())
}

/// Approved, revoked and consumed rest on a met requirement; denied on a denial; pending on neither.
fn state_rests_on_decisions(approval: &Approval) -> Result<(), TestCaseError> {
    let met = approval.meets(&approval.question.requirement);
    let denied = approval.decisions.iter().any(|decision| decision.verdict == Verdict::Deny);
    match approval.state.name() {
        StateName::Pending => prop_assert!(!met && !denied),
        StateName::Denied => prop_assert!(approval.decisions.last().unwrap().verdict == Verdict::Deny),
        StateName::Approved | StateName::Revoked | StateName::Consumed => prop_assert!(met && !denied),
        StateName::Cancelled | StateName::Expired => {
            prop_assert!(!denied);
            prop_assert_eq!(met, approval.state.confirmed().is_some());
        }
    }
    Ok(())
}

fn is_final(state: StateName) -> bool {
    !matches!(state, StateName::Pending | StateName::Approved)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_commands_breaks_an_approval(approval in approvals(), steps in steps()) {
        run(approval, &steps)?;
    }
}

#[test]
fn the_random_sequences_reach_every_state() {
    let mut runner = TestRunner::deterministic();
    let mut ends = BTreeSet::new();
    for _ in 0..500 {
        let (approval, steps) = (approvals(), steps()).new_tree(&mut runner).unwrap().current();
        ends.extend(run(approval, &steps).unwrap().last().copied());
    }
    assert_eq!(ends, BTreeSet::from(StateName::ALL));
}
