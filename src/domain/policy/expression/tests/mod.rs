//! What expressions mean, what is refused at load, and what the hostile get.

mod hostile;
mod load;
mod meaning;
mod oracle;

use super::{EvaluationError, Expression, Facts, FactsInput, Meter, Reason};
use crate::domain::arguments::Arguments;
use crate::domain::json::Json;
use crate::domain::time::Timestamp;

/// 2026-03-01T22:30:15.5Z, a Sunday.
const NOW: Timestamp = Timestamp::from_micros(1_772_404_215_500_000);

/// Arguments from JSON text. A string `"#123"` becomes the number of exactly that canonical text.
fn args(text: &str) -> Json {
    from_serde(serde_json::from_str(text).unwrap())
}

fn from_serde(value: serde_json::Value) -> Json {
    match value {
        serde_json::Value::Null => Json::Null,
        serde_json::Value::Bool(value) => Json::Bool(value),
        serde_json::Value::Number(value) => number(&value.to_string()),
        serde_json::Value::String(text) => match text.strip_prefix('#') {
            Some(text) => number(text),
            None => Json::String(text),
        },
        serde_json::Value::Array(elements) => Json::Array(elements.into_iter().map(from_serde).collect()),
        serde_json::Value::Object(members) => {
            Json::Object(members.into_iter().map(|(name, value)| (name, from_serde(value))).collect())
        }
    }
}

fn number(text: &str) -> Json {
    let arguments = Arguments::parse(&format!("{{\"number\":{text}}}"), 1024).unwrap();
    arguments.value().get("number").unwrap().clone()
}

fn compile(source: &str) -> Expression {
    Expression::compile(source).unwrap_or_else(|problem| panic!("{source}: {problem}"))
}

fn refusal(source: &str) -> String {
    match Expression::compile(source) {
        Ok(_) => panic!("{source} was not refused"),
        Err(problem) => problem.to_string(),
    }
}

fn answer_at(source: &str, arguments: &Json, now: Timestamp) -> Result<bool, EvaluationError> {
    let tags = ["createHint".to_owned(), "destructiveHint".to_owned()];
    let facts = Facts::new(FactsInput {
        args: arguments,
        principal: "dana",
        agent: "assistant",
        conversation: "",
        account: "work-mailbox-a",
        action: "GMAIL_SEND_EMAIL",
        scope: "write",
        tags: &tags,
        now,
    });
    compile(source).matches(&facts, &mut Meter::full())
}

fn answer(source: &str, arguments: &Json) -> Result<bool, Reason> {
    answer_at(source, arguments, NOW).map_err(|error| error.reason)
}

#[track_caller]
fn holds(source: &str, arguments: &Json) {
    assert_eq!(answer(source, arguments), Ok(true), "{source}");
}

#[track_caller]
fn fails(source: &str, arguments: &Json, reason: Reason) {
    assert_eq!(answer(source, arguments), Err(reason), "{source}");
}
