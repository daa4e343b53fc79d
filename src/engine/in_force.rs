//! The policy in force, and how the last attempt to load one went. Both are swapped whole: a call takes the policy once,
//! without a lock, and uses that one to its end, whatever is loaded meanwhile.

use super::Engine;
use crate::domain::limits::{RELOAD_PROBLEM_BYTES, RELOAD_PROBLEMS};
use crate::domain::policy::{Policy, Problem};
use crate::domain::text::{LineBreaks, neutralise};
use crate::domain::time::Timestamp;
use std::sync::Arc;

/// A policy since it is in force, and how loading goes.
#[derive(Clone, Debug)]
pub struct InForce {
    /// The policy.
    pub policy: Arc<Policy>,
    /// When a policy of this revision came into force, by the store's time.
    pub since: Timestamp,
    /// How loading goes.
    pub reload: ReloadStatus,
}

/// How loading the policy goes, for whoever runs the sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadStatus {
    /// How often files were loaded, the first time included.
    pub succeeded: u64,
    /// How often files were refused.
    pub failed: u64,
    /// When files were last loaded, by the store's time.
    pub last_success: Timestamp,
    /// When files were last loaded or refused, by the store's time.
    pub last_attempt: Timestamp,
    /// What was wrong with the files that were refused last; none if the last attempt went well. At most
    /// [`RELOAD_PROBLEMS`] and one line on how many more there are, each of at most [`RELOAD_PROBLEM_BYTES`] bytes,
    /// neutralised.
    pub problems: Vec<String>,
}

impl ReloadStatus {
    /// Whether the newest files were refused, so that the policy in force is an older one.
    pub fn last_failed(&self) -> bool {
        !self.problems.is_empty()
    }
}

impl InForce {
    /// The first policy, loaded at `now`.
    pub(super) fn first(policy: Arc<Policy>, now: Timestamp) -> Self {
        let reload =
            ReloadStatus { succeeded: 1, failed: 0, last_success: now, last_attempt: now, problems: Vec::new() };
        Self { policy, since: now, reload }
    }

    fn replaced_by(&self, policy: &Arc<Policy>, now: Timestamp) -> Self {
        // Files that mean the same as before have been in force since then.
        let since = if policy.revision() == self.policy.revision() { self.since } else { now };
        let reload = ReloadStatus {
            succeeded: self.reload.succeeded.saturating_add(1),
            failed: self.reload.failed,
            last_success: now,
            last_attempt: now,
            problems: Vec::new(),
        };
        Self { policy: Arc::clone(policy), since, reload }
    }

    fn kept(&self, problems: &[Problem], now: Timestamp) -> Self {
        let reload = ReloadStatus {
            failed: self.reload.failed.saturating_add(1),
            last_attempt: now,
            problems: told(problems),
            ..self.reload.clone()
        };
        Self { reload, ..self.clone() }
    }
}

impl Engine {
    /// The policy in force. Whoever asks it more than once for one call keeps it for all of them.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.in_force.load().policy)
    }

    /// The policy in force with its times, and how loading goes.
    pub fn in_force(&self) -> Arc<InForce> {
        self.in_force.load_full()
    }

    /// Puts a policy in force, for every call that begins from now on.
    pub fn replace_policy(&self, policy: Policy) {
        let (policy, now) = (Arc::new(policy), self.store.estimated_time());
        self.in_force.rcu(|in_force| in_force.replaced_by(&policy, now));
        self.metrics.policy.loaded(policy.revision(), now);
    }

    /// Keeps the policy in force, and tells of files that were refused for these problems.
    pub fn keep_policy(&self, problems: &[Problem]) {
        let now = self.store.estimated_time();
        self.in_force.rcu(|in_force| in_force.kept(problems, now));
        self.metrics.policy.refused();
    }
}

/// As much of the problems as an operator is told. A refusal without a problem still is one.
fn told(problems: &[Problem]) -> Vec<String> {
    let mut told: Vec<String> =
        problems.iter().take(RELOAD_PROBLEMS).map(|problem| cut(&problem.to_string())).collect();
    let more = problems.len().saturating_sub(RELOAD_PROBLEMS);
    if more > 0 {
        told.push(format!("and {more} more: the log has them all"));
    }
    if told.is_empty() {
        told.push("the files were refused".to_owned());
    }
    told
}

fn cut(text: &str) -> String {
    let mut text = neutralise(text, LineBreaks::Escape).text.into_owned();
    if text.len() > RELOAD_PROBLEM_BYTES {
        const ELLIPSIS: &str = "…";
        let mut end = RELOAD_PROBLEM_BYTES - ELLIPSIS.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(ELLIPSIS);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(connector: &str) -> Arc<Policy> {
        let text = format!("version: countersign.policy/v1\nconnectors: {{ {connector}: {{}} }}\n");
        let file = crate::domain::policy::SourceFile { path: "p.yaml".to_owned(), text };
        Arc::new(Policy::load(&[file], &mut |_| Err("is none".to_owned())).unwrap())
    }

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn a_refusal_keeps_the_policy_and_its_time_and_a_load_forgets_the_refusal() {
        let first = InForce::first(policy("a"), at(1));
        let refused = first.kept(&[Problem::of_file("p.yaml", "is wrong")], at(2));
        assert_eq!((refused.policy.revision(), refused.since), (first.policy.revision(), at(1)));
        assert_eq!((refused.reload.last_success, refused.reload.last_attempt), (at(1), at(2)));
        assert_eq!((refused.reload.succeeded, refused.reload.failed), (1, 1));
        assert_eq!(refused.reload.problems, ["p.yaml: is wrong"]);
        let same = refused.replaced_by(&policy("a"), at(3));
        assert_eq!((same.since, same.reload.last_success, same.reload.last_failed()), (at(1), at(3), false));
        let other = same.replaced_by(&policy("b"), at(4));
        assert_eq!((other.since, other.reload.succeeded, other.reload.failed), (at(4), 3, 1));
    }

    #[test]
    fn what_an_operator_is_told_is_bounded_and_neutral() {
        let hostile = Problem::of_file("p\u{202e}\n.yaml", "\u{e9}".repeat(RELOAD_PROBLEM_BYTES));
        let told = told(&vec![hostile; RELOAD_PROBLEMS + 5]);
        assert_eq!(told.len(), RELOAD_PROBLEMS + 1);
        assert_eq!(told.last().unwrap(), "and 5 more: the log has them all");
        for problem in &told {
            assert!(problem.len() <= RELOAD_PROBLEM_BYTES && !problem.contains(['\n', '\u{202e}']), "{problem:?}");
        }
        assert!(InForce::first(policy("a"), at(1)).kept(&[], at(2)).reload.last_failed(), "a refusal is one");
    }
}
