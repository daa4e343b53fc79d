//! Runs `tests/cases/policy/*.json` (a policy, a call, the wanted answer) and `tests/cases/policy_problems/*.json` (a
//! policy, the wanted problems). A new rule needs a file there and no Rust. A text may be given as a list of its lines.

use crate::domain::arguments::Arguments;
use crate::domain::decision::{Decision, PolicyAnswer};
use crate::domain::fingerprint::DefinitionDigest;
use crate::domain::policy::{CatalogPath, Policy, PolicyCall, Problem, SourceFile};
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Midday of 1 January 2026, where a case does not say otherwise.
const NOW: i64 = 1_767_268_800_000_000;

#[test]
fn every_policy_case_gets_its_answer() {
    let mut wrong = Vec::new();
    for (name, case) in cases("policy") {
        let policy = load(&case["input"]).unwrap_or_else(|problems| panic!("{name}: {problems:#?}"));
        let call = OwnedCall::read(&case["input"]["call"]);
        let answer = shown(&policy.evaluate(&call.borrow(), true));
        let want = case["want"].as_object().unwrap_or_else(|| panic!("{name}: no want"));
        assert!(want.contains_key("decision") && want.contains_key("reason"), "{name}: want decision and reason");
        for (key, wanted) in want {
            if &answer[key] != wanted {
                wrong.push(format!("{name}: {key} is {}, wanted {wanted}", answer[key]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_bad_policy_is_refused_with_all_its_problems() {
    let mut wrong = Vec::new();
    for (name, case) in cases("policy_problems") {
        let problems = load(&case["input"]).err().unwrap_or_else(|| panic!("{name}: it loads"));
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        if json!(problems) != case["want"] {
            wrong.push(format!("{name}: {problems:#?}, wanted {:#}", case["want"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn cases(folder: &str) -> Vec<(String, Value)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let mut cases = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        let case: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(case["description"].is_string(), "{name}: no description");
        for key in case.as_object().unwrap().keys() {
            assert!(["description", "input", "want"].contains(&key.as_str()), "{name}: unknown key {key}");
        }
        cases.push((name, case));
    }
    cases
}

pub(super) fn load(input: &Value) -> Result<Policy, Vec<Problem>> {
    for key in input.as_object().unwrap().keys() {
        assert!(["policy", "files", "catalogs", "call"].contains(&key.as_str()), "unknown key {key}");
    }
    let file = |(path, text): (&String, &Value)| SourceFile { path: path.clone(), text: lines(text) };
    let files: Vec<SourceFile> = match input["files"].as_object() {
        Some(files) => files.iter().map(file).collect(),
        None => vec![SourceFile { path: "policy.yaml".to_owned(), text: lines(&input["policy"]) }],
    };
    let catalogs: BTreeMap<String, String> = match input["catalogs"].as_object() {
        Some(catalogs) => catalogs.iter().map(|(path, text)| (path.clone(), lines(text))).collect(),
        None => BTreeMap::new(),
    };
    Policy::load(&files, &mut |path: &CatalogPath| {
        catalogs.get(&path.file).cloned().ok_or_else(|| "does not exist".to_owned())
    })
}

/// A text, or the lines of one.
fn lines(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) => lines.iter().map(|line| format!("{}\n", line.as_str().unwrap())).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => panic!("neither text nor lines: {value}"),
    }
}

/// A call that owns what a `PolicyCall` borrows.
pub(super) struct OwnedCall {
    principal: Identifier,
    agent: Identifier,
    conversation: Option<Identifier>,
    connector: Identifier,
    account: Option<Identifier>,
    action: Identifier,
    arguments: Arguments,
    tool_definition_digest: Option<DefinitionDigest>,
    now: Timestamp,
}

impl OwnedCall {
    /// Omitted members are those of an ordinary call, with which nothing is wrong.
    pub(super) fn read(call: &Value) -> Self {
        const KEYS: [&str; 9] = [
            "principal",
            "agent",
            "conversation",
            "connector",
            "account",
            "action",
            "arguments",
            "tool_definition_digest",
            "now_micros",
        ];
        for key in call.as_object().unwrap().keys() {
            assert!(KEYS.contains(&key.as_str()), "unknown key {key}");
        }
        let given = |key: &str| call[key].as_str().map(|text| Identifier::parse(text).unwrap());
        let or = |key: &str, default: &str| given(key).unwrap_or_else(|| Identifier::parse(default).unwrap());
        // Arguments given as a text keep spellings that JSON values would lose.
        let text = match &call["arguments"] {
            Value::Null => "{}".to_owned(),
            Value::String(text) => text.clone(),
            Value::Object(_) | Value::Array(_) | Value::Bool(_) | Value::Number(_) => call["arguments"].to_string(),
        };
        Self {
            principal: or("principal", "olga"),
            agent: or("agent", "assistant"),
            conversation: given("conversation"),
            connector: or("connector", "mail"),
            account: given("account"),
            action: or("action", "SEND"),
            arguments: Arguments::parse(&text, 256 * 1024).unwrap(),
            tool_definition_digest: call["tool_definition_digest"]
                .as_str()
                .map(|text| DefinitionDigest::parse(text).unwrap()),
            now: Timestamp::from_micros(call["now_micros"].as_i64().unwrap_or(NOW)),
        }
    }

    pub(super) fn borrow(&self) -> PolicyCall<'_> {
        PolicyCall {
            principal: &self.principal,
            agent: &self.agent,
            conversation: self.conversation.as_ref(),
            connector: &self.connector,
            account: self.account.as_ref(),
            action: &self.action,
            arguments: &self.arguments,
            tool_definition_digest: self.tool_definition_digest,
            now: self.now,
        }
    }
}

/// The answer as cases name it.
fn shown(answer: &PolicyAnswer) -> Value {
    let requirement = match &answer.decision {
        Decision::ConfirmationRequired(requirement) => {
            let clauses: Vec<Value> = requirement
                .clauses()
                .iter()
                .map(|clause| {
                    let any_of: Vec<String> = clause.any_of().iter().map(ToString::to_string).collect();
                    json!({ "any_of": any_of, "quorum": clause.quorum() })
                })
                .collect();
            json!({
                "clauses": clauses,
                "exclude_requester": requirement.exclude_requester(),
                "decide_within_seconds": requirement.decide_within().as_secs(),
                "use_within_seconds": requirement.use_within().as_secs(),
            })
        }
        Decision::Allow | Decision::Deny => Value::Null,
    };
    let rules: Vec<Value> = answer
        .rules
        .iter()
        .map(|rule| {
            let mut shown = json!({ "name": rule.name, "effect": rule.effect.as_str() });
            if let Some(error) = &rule.error {
                shown["error"] = json!(error);
            }
            shown
        })
        .collect();
    let details: BTreeMap<String, &str> =
        answer.checks.iter().map(|check| (check.number.to_string(), check.detail.as_str())).collect();
    json!({
        "decision": answer.decision.as_str(),
        "reason": answer.reason.as_str(),
        "message": answer.message,
        "scope": answer.scope.map(|scope| scope.as_str()),
        "tags": *answer.tags,
        "rules": rules,
        "requirement": requirement,
        "report_within_seconds": answer.report_within.as_secs(),
        "details": details,
    })
}
