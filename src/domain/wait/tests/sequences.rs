//! Random commands at random times: what holds for every one of them.

use crate::domain::approval::{Approval, Question, StateName, Verdict};
use crate::domain::invocation::Objective;
use crate::domain::testing::{
    approval_id, at, attempt_id, decided, id, near, person, question, requirement, subject_with, wait_id,
};
use crate::domain::time::Timestamp;
use crate::domain::wait::{Opened, Opening, Resumed, Resuming, Wait, WaitChange, WaitState, WaitStateName};
use proptest::prelude::*;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Command {
    Open { objective: usize, revision: u64, summary: usize, seconds: Option<u64>, replace: bool },
    Resume { attempt: u128, stale: bool },
    Close,
    Expire,
    Ask { revision: u64, number: u128 },
    Approve,
}

fn commands() -> impl Strategy<Value = Vec<(Command, i64)>> {
    let seconds = prop::option::of(1..5_u64);
    let open = (0..2_usize, 0..3_u64, 0..2_usize, seconds, any::<bool>()).prop_map(
        |(objective, revision, summary, seconds, replace)| Command::Open {
            objective,
            revision,
            summary,
            seconds,
            replace,
        },
    );
    let command = prop_oneof![
        4 => open,
        3 => (1..4_u128, prop::bool::weighted(0.2)).prop_map(|(attempt, stale)| Command::Resume { attempt, stale }),
        1 => Just(Command::Close),
        1 => Just(Command::Expire),
        4 => (0..3_u64, 1..u128::MAX).prop_map(|(revision, number)| Command::Ask { revision, number }),
        3 => Just(Command::Approve),
    ];
    // Mostly a microsecond or none; sometimes straight to the end of a wait, or over it.
    let step = prop_oneof![6 => 0..3_i64, 1 => 999_998..1_000_003_i64, 1 => 3_999_998..4_000_003_i64];
    prop::collection::vec((command, step), 0..40)
}

/// One transcript's waits with their approvals, as a store keeps them.
#[derive(Default)]
struct Table {
    waits: Vec<Wait>,
    approvals: Vec<Approval>,
}

impl Table {
    fn active(&self) -> Option<Wait> {
        let mut active = self.waits.iter().filter(|wait| !matches!(wait.state, WaitState::Closed { .. }));
        let first = active.next().cloned();
        assert!(active.next().is_none(), "more than one is active");
        first
    }

    /// Saves a change of a wait as a store does, and holds it to what every change promises.
    fn save(&mut self, change: &WaitChange, now: Timestamp) {
        let next = &change.change.next;
        let wait = self.waits.iter_mut().find(|wait| wait.id == next.id).unwrap();
        let raised = next.objective.revision > wait.objective.revision;
        let news = raised || wait.state != next.state || wait.summary != next.summary;
        assert_eq!(next.version, wait.version + u64::from(news), "{change:?}");
        assert_eq!((&next.objective.id, next.create_time), (&wait.objective.id, wait.create_time));
        assert!(next.objective.revision >= wait.objective.revision && next.update_time >= wait.update_time);
        assert!(next.expire_time >= wait.expire_time && !change.change.events.is_empty());
        assert!(!matches!(wait.state, WaitState::Closed { .. }), "what is over stays as it is");
        assert!(change.change.valid_before.is_none_or(|deadline| now < deadline));
        let ends = matches!(next.state, WaitState::Closed { .. });
        assert_eq!(change.withdrawal.is_some(), ends || raised);
        *wait = next.clone();
        if let Some(withdrawal) = &change.withdrawal {
            for approval in self.approvals.iter_mut().filter(|approval| approval.question.wait == Some(next.id)) {
                if let Some(change) = withdrawal.of(approval, now) {
                    *approval = change.next;
                }
            }
        }
    }

    /// What is open belongs to a wait that is active, and to its present objective.
    fn holds(&self, now: Timestamp) {
        let _at_most_one = self.active();
        for approval in &self.approvals {
            let state = approval.state_at(now);
            if !matches!(state, StateName::Pending | StateName::Approved) {
                continue;
            }
            let wait = self.waits.iter().find(|wait| Some(wait.id) == approval.question.wait).unwrap();
            assert_eq!(approval.question.subject.objective.as_ref(), Some(&wait.objective));
            match wait.state_at(now) {
                WaitStateName::Open => {}
                WaitStateName::Resumed => assert_eq!(state, StateName::Approved, "pending, and the agent goes on"),
                over => panic!("{state} in a wait that is {over}"),
            }
        }
    }

    fn pending(&self, wait: &Wait, now: Timestamp) -> u32 {
        let of_it = self.approvals.iter().filter(|approval| approval.question.wait == Some(wait.id));
        u32::try_from(of_it.filter(|approval| approval.state_at(now) == StateName::Pending).count()).unwrap()
    }

    /// Carries one command out; whether an agent went on.
    fn carry_out(&mut self, command: Command, number: u128, now: Timestamp) -> bool {
        let active = self.active();
        match (command, active) {
            (Command::Open { objective, revision, summary, seconds, replace }, active) => {
                let opening = Opening {
                    id: wait_id(number),
                    caller: id("agents"),
                    principal: id("olga"),
                    agent: id("assistant"),
                    conversation: None,
                    objective: Objective { transcript: id("transcript-1"), id: id(["a", "b"][objective]), revision },
                    summary: ["one", "two"][summary].to_owned(),
                    expire_after: seconds.map(Duration::from_secs),
                    replace,
                };
                match opening.against(active.as_ref(), now) {
                    Ok(Opened::AsItWas) | Err(_) => {}
                    Ok(Opened::Changed(change)) => self.save(&change, now),
                    Ok(Opened::Made { instead_of, wait }) => {
                        if let Some(first) = instead_of {
                            self.save(&first, now);
                        }
                        self.waits.push(wait.next);
                    }
                }
            }
            (Command::Resume { attempt, stale }, Some(wait)) => {
                let resuming = Resuming {
                    caller: id("agents"),
                    principal: id("olga"),
                    agent: id("assistant"),
                    transcript: id("transcript-1"),
                    version: wait.version + u64::from(stale),
                    attempt: attempt_id(attempt),
                };
                if let Ok(Resumed::Changed(change)) = wait.resume(&resuming, self.pending(&wait, now), now) {
                    self.save(&WaitChange { change: *change, withdrawal: None }, now);
                    return true;
                }
            }
            (Command::Close, Some(wait)) => {
                if let Ok(Some(change)) = wait.close(&id("agents"), None, now) {
                    self.save(&change, now);
                }
            }
            (Command::Expire, Some(wait)) => {
                if let Some(change) = wait.expired(now) {
                    self.save(&change, now);
                }
            }
            (Command::Ask { revision, number }, Some(wait)) => {
                let objective = Objective { revision, ..wait.objective.clone() };
                let subject = subject_with(|subject| subject.objective = Some(objective));
                if let Ok(ends_by) = wait.accepts(&subject, now) {
                    let requirement = requirement(&[(&["owner"], 1)], false);
                    let question = Question { wait: Some(wait.id), subject, ..question(requirement) };
                    self.approvals.push(Approval::ask(approval_id(number), question, Some(ends_by), now).next);
                }
            }
            (Command::Approve, _) => {
                let mut pending = self.approvals.iter_mut().filter(|one| one.state_at(now) == StateName::Pending);
                if let Some(approval) = pending.next() {
                    *approval = decided(approval, &person("olga", &[]), Verdict::Approve, now);
                }
            }
            (Command::Resume { .. } | Command::Close | Command::Expire | Command::Ask { .. }, None) => {}
        }
        false
    }
}

#[test]
fn whatever_is_commanded_one_wait_is_active_and_nothing_outlives_its_wait() {
    let seen = std::cell::Cell::new((0, 0));
    proptest!(ProptestConfig::with_cases(600), |(steps in commands())| {
        let mut table = Table::default();
        let mut now = at(0);
        let (mut resumptions, mut withdrawn) = seen.get();
        for (number, (command, step)) in (1..).zip(steps) {
            now = near(now, step);
            resumptions += usize::from(table.carry_out(command, number, now));
            table.holds(now);
        }
        withdrawn += table.approvals.iter().filter(|one| one.state.name() == StateName::Cancelled).count();
        seen.set((resumptions, withdrawn));
    });
    assert!(seen.get().0 > 50 && seen.get().1 > 50, "too little happened: {seen:?}");
}
