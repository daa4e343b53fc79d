//! Runs policy tests (`domain/policy/case_file`) from files or folders against the policies that they name.

use crate::domain::decision::{Decision, PolicyAnswer};
use crate::domain::policy::case_file::{Case, CaseFile, Definition, show_clause};
use crate::domain::policy::{Policy, PolicyCall, Problem};
use crate::domain::requirement::Clause;
use crate::policy_files::{PolicyLoadError, load_policy, read_text};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

/// What became of all files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestReport {
    /// The number of cases that were run.
    pub cases: usize,
    /// Those whose answer was another than they want, in order.
    pub failures: Vec<Failure>,
    /// Files and policies that could not be read, so that their cases were not run.
    pub problems: Vec<TestProblem>,
}

/// A case whose answer was another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The file, as it was found.
    pub file: String,
    /// The line on which the case starts, from 1.
    pub line: usize,
    /// Its name.
    pub name: String,
    /// What differs; never empty.
    pub differences: Vec<Difference>,
}

/// One part of an answer that is another than wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key under `want`.
    pub key: &'static str,
    /// What the case wants.
    pub want: String,
    /// What the policy answered.
    pub got: String,
}

/// Why cases could not be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestProblem {
    /// A path that cannot be read, or has no tests.
    Unreadable(String),
    /// What is wrong with a file of tests.
    Tests(Problem),
    /// What is wrong with a policy.
    Policy(Problem),
}

impl std::fmt::Display for TestProblem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable(message) => formatter.write_str(message),
            Self::Tests(problem) | Self::Policy(problem) => write!(formatter, "{problem}"),
        }
    }
}

/// Runs the tests of `paths`: files, or folders with their `*.yaml` (not of subfolders). Each file is run against `policy`
/// where that is given, else against the policy that it names.
pub fn run_tests(paths: &[PathBuf], policy: Option<&Path>) -> TestReport {
    let mut runner = Runner { report: TestReport::default(), policies: BTreeMap::new() };
    for path in paths {
        for file in runner.files(path) {
            runner.run_file(&file, policy);
        }
    }
    runner.report
}

/// Asks the policy what the case asks, and compares.
pub fn run_case(case: &Case, policy: &Policy) -> Vec<Difference> {
    let call = &case.call;
    let pinned = match call.definition {
        Definition::Absent => None,
        Definition::Digest(digest) => Some(digest),
        Definition::Catalog => {
            policy.entry(call.connector.as_str(), call.action.as_str()).and_then(|entry| entry.definition)
        }
    };
    let answer = policy.evaluate(
        &PolicyCall {
            principal: &call.principal,
            agent: &call.agent,
            conversation: call.conversation.as_ref(),
            connector: &call.connector,
            account: call.account.as_ref(),
            action: &call.action,
            arguments: &call.arguments,
            tool_definition_digest: pinned,
            now: call.now,
        },
        false,
    );
    compare(case, &answer)
}

fn compare(case: &Case, answer: &PolicyAnswer) -> Vec<Difference> {
    let want = &case.want;
    let requirement = match &answer.decision {
        Decision::ConfirmationRequired(requirement) => Some(requirement),
        Decision::Allow | Decision::Deny => None,
    };
    let rules: Vec<String> = answer.rules.iter().map(|rule| rule.name.clone()).collect();
    let failed = answer.rules.iter().filter(|rule| rule.error.is_some()).map(|rule| rule.name.clone()).collect();
    let mut comparison = Comparison(Vec::new());
    comparison.words("decision", Some(want.decision), answer.decision.as_str());
    comparison.words("reason", want.reason.map(|reason| reason.as_str()), answer.reason.as_str());
    comparison.values("rules", want.rules.as_ref(), &rules, |names| list(names));
    comparison.values("rules_in_error", want.rules_in_error.as_ref(), &failed, |names| list(names));
    let clauses = requirement.map(|requirement| requirement.clauses().to_vec()).unwrap_or_default();
    comparison.values("clauses", want.clauses.as_ref(), &clauses, |clauses| show_clauses(clauses));
    let excluded = requirement.map(|requirement| requirement.exclude_requester());
    comparison.values("exclude_requester", want.exclude_requester.map(Some).as_ref(), &excluded, show);
    let decide_within = requirement.map(|requirement| requirement.decide_within());
    comparison.values("decide_within", want.decide_within.map(Some).as_ref(), &decide_within, show);
    let use_within = requirement.map(|requirement| requirement.use_within());
    comparison.values("use_within", want.use_within.map(Some).as_ref(), &use_within, show);
    if let Some(part) = &want.message_contains
        && !answer.message.contains(part.as_str())
    {
        comparison.differ("message_contains", format!("{part:?}"), format!("{:?}", answer.message));
    }
    comparison.0
}

struct Comparison(Vec<Difference>);

impl Comparison {
    fn words(&mut self, key: &'static str, want: Option<&str>, got: &str) {
        if let Some(want) = want.filter(|want| *want != got) {
            self.differ(key, want.to_owned(), got.to_owned());
        }
    }

    fn values<T: PartialEq>(&mut self, key: &'static str, want: Option<&T>, got: &T, show: impl Fn(&T) -> String) {
        if let Some(want) = want.filter(|want| *want != got) {
            self.differ(key, show(want), show(got));
        }
    }

    fn differ(&mut self, key: &'static str, want: String, got: String) {
        self.0.push(Difference { key, want, got });
    }
}

fn list(names: &[String]) -> String {
    format!("[{}]", names.join(", "))
}

fn show_clauses(clauses: &[Clause]) -> String {
    list(&clauses.iter().map(show_clause).collect::<Vec<_>>())
}

/// A value that only a requirement has.
fn show<T: Debug>(value: &Option<T>) -> String {
    value.as_ref().map_or_else(|| "nobody is asked".to_owned(), |value| format!("{value:?}"))
}

struct Runner {
    report: TestReport,
    /// Every policy that was loaded, or could not be; each is read once.
    policies: BTreeMap<PathBuf, Option<Policy>>,
}

impl Runner {
    /// The files of a path.
    fn files(&mut self, path: &Path) -> Vec<PathBuf> {
        if !path.is_dir() {
            return vec![path.to_owned()];
        }
        let mut files: Vec<PathBuf> = match fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
            Ok(entries) => entries.into_iter().map(|entry| entry.path()).collect(),
            Err(error) => {
                self.unreadable(format!("{}: cannot be read: {error}", path.display()));
                return Vec::new();
            }
        };
        files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml") && !file.is_dir());
        files.sort();
        if files.is_empty() {
            self.unreadable(format!("{}: has no `*.yaml`", path.display()));
        }
        files
    }

    fn run_file(&mut self, path: &Path, policy: Option<&Path>) {
        let shown = path.display().to_string();
        let text = match read_text(path) {
            Ok(text) => text,
            Err(why) => return self.unreadable(format!("{shown}: {why}")),
        };
        let file = match CaseFile::parse(&shown, &text) {
            Ok(file) => file,
            Err(problems) => return self.report.problems.extend(problems.into_iter().map(TestProblem::Tests)),
        };
        let beside = file.policy.as_ref().map(|named| path.parent().unwrap_or(Path::new("")).join(named));
        let Some(policy) = policy.map(Path::to_owned).or(beside) else {
            return self.unreadable(format!("{shown}: names no `policy`; give it with --policy"));
        };
        let Some(policy) = load(&mut self.policies, &mut self.report.problems, policy) else { return };
        for case in &file.cases {
            self.report.cases += 1;
            let differences = run_case(case, policy);
            if !differences.is_empty() {
                let (file, line, name) = (shown.clone(), case.line, case.name.clone());
                self.report.failures.push(Failure { file, line, name, differences });
            }
        }
    }

    fn unreadable(&mut self, message: String) {
        self.report.problems.push(TestProblem::Unreadable(message));
    }
}

/// The policy at `path`. What is wrong with it is said once.
fn load<'a>(
    policies: &'a mut BTreeMap<PathBuf, Option<Policy>>,
    problems: &mut Vec<TestProblem>,
    path: PathBuf,
) -> Option<&'a Policy> {
    let policy = policies.entry(path).or_insert_with_key(|path| match load_policy(path) {
        Ok(policy) => Some(policy),
        Err(PolicyLoadError { problems: more }) => {
            problems.extend(more.into_iter().map(TestProblem::Policy));
            None
        }
    });
    policy.as_ref()
}

#[cfg(test)]
mod tests;
