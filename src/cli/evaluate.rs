//! `countersign evaluate`: asks a policy's files about one call, without a sidecar.

use super::exit::Exit;
use super::input::{self, InputProblem};
use super::terminal::{self, Layout, safe};
use crate::clock::{Clock as _, SystemClock};
use crate::domain::arguments::DEFAULT_MAX_ARGUMENTS_BYTES;
use crate::domain::decision::{CheckOutcome, Decision, PolicyAnswer};
use crate::domain::fingerprint::{DefinitionDigest, Fingerprint, FingerprintInput};
use crate::domain::policy::PolicyCall;
use crate::domain::requirement::Requirement;
use crate::domain::span::show_span;
use crate::domain::text::Identifier;
use crate::domain::time::Timestamp;
use crate::policy_files::load_policy;
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;

/// What `evaluate` is told.
#[derive(Args, Debug)]
pub(super) struct EvaluateCommand {
    /// The policy's file, or its folder of *.yaml.
    #[arg(long, value_name = "PATH", env = "COUNTERSIGN_POLICY")]
    policy: PathBuf,
    /// On whose behalf the agent acts.
    #[arg(long, value_name = "P", value_parser = identifier)]
    principal: Identifier,
    /// The program that acts.
    #[arg(long, value_name = "A", value_parser = identifier)]
    agent: Identifier,
    /// The session in which it acts.
    #[arg(long, value_name = "C", value_parser = identifier)]
    conversation: Option<Identifier>,
    /// The integration.
    #[arg(long, value_name = "C", value_parser = identifier)]
    connector: Identifier,
    /// The external identity that the connector acts as.
    #[arg(long, value_name = "A", value_parser = identifier)]
    account: Option<Identifier>,
    /// The operation.
    #[arg(long, value_name = "X", value_parser = identifier)]
    action: Identifier,
    /// The digest of the tool's definition as the agent sees it (`td1:...`).
    #[arg(long, value_name = "DIGEST", value_parser = DefinitionDigest::parse)]
    definition: Option<DefinitionDigest>,
    /// The time that `now` is in rules, such as 2030-01-31T09:00:00Z [default: the clock's].
    #[arg(long, value_name = "RFC3339", value_parser = instant)]
    now: Option<Timestamp>,
    /// Say how every check came out.
    #[arg(long)]
    explain: bool,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
    /// The arguments, a JSON object; an empty file means `{}`; `-` reads standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// 0 for `ALLOW`, 1 for any other decision and for arguments that are refused, 3 where there is no policy or no file.
pub(super) fn run(command: &EvaluateCommand, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let policy = match load_policy(&command.policy) {
        Ok(policy) => policy,
        Err(problems) => {
            writeln!(err, "{problems}")?;
            return Ok(Exit::Unreachable);
        }
    };
    let arguments = match input::arguments(&command.file, DEFAULT_MAX_ARGUMENTS_BYTES) {
        Ok(arguments) => arguments,
        Err(InputProblem::Unreadable(cause)) => {
            writeln!(err, "{}: {cause}", command.file.display())?;
            return Ok(Exit::Unreachable);
        }
        Err(InputProblem::Refused(refusal)) => {
            if command.json {
                writeln!(out, "{}", terminal::json(&json!({ "refused": input::refusal_json(&refusal) })))?;
            }
            writeln!(err, "the arguments are refused: {refusal}")?;
            return Ok(Exit::No);
        }
    };
    let call = PolicyCall {
        principal: &command.principal,
        agent: &command.agent,
        conversation: command.conversation.as_ref(),
        connector: &command.connector,
        account: command.account.as_ref(),
        action: &command.action,
        arguments: &arguments,
        tool_definition_digest: command.definition,
        now: command.now.unwrap_or_else(|| SystemClock::new().wall()),
    };
    let answer = policy.evaluate(&call, command.explain);
    let fingerprint = Fingerprint::of(&FingerprintInput {
        account: command.account.as_ref().map_or("", Identifier::as_str),
        action: command.action.as_str(),
        connector: command.connector.as_str(),
        objective: None,
        arguments: &arguments,
    });
    if command.json {
        writeln!(out, "{}", terminal::json(&as_json(&answer, &fingerprint)))?;
    } else {
        for_people(&answer, &fingerprint, out)?;
    }
    Ok(match answer.decision {
        Decision::Allow => Exit::Done,
        Decision::Deny | Decision::ConfirmationRequired(_) => Exit::No,
    })
}

fn for_people(answer: &PolicyAnswer, fingerprint: &Fingerprint, out: &mut dyn Write) -> io::Result<()> {
    let layout = Layout::new(0, 15);
    layout.field(out, "decision", answer.decision.as_str())?;
    layout.field(out, "reason", answer.reason.as_str())?;
    layout.field(out, "message", &answer.message)?;
    if let Some(scope) = answer.scope {
        layout.field(out, "scope", scope.as_str())?;
    }
    layout.optional(out, "tags", &answer.tags.join(", "))?;
    for rule in &answer.rules {
        let error =
            rule.error.as_ref().map_or(String::new(), |error| format!("; in error, which counts as matching: {error}"));
        layout.field(out, "rule", &format!("{} ({}){error}", rule.name, rule.effect.as_str()))?;
    }
    if let Decision::ConfirmationRequired(asked) = &answer.decision {
        for clause in asked.clauses() {
            let people: Vec<String> = clause.any_of().iter().map(ToString::to_string).collect();
            layout.field(out, "who confirms", &format!("{} of {}", clause.quorum(), people.join(", ")))?;
        }
        if asked.exclude_requester() {
            layout.field(out, "", "the principal may not")?;
        }
        layout.field(out, "decide within", &show_span(asked.decide_within()))?;
        layout.field(out, "use within", &show_span(asked.use_within()))?;
    }
    layout.field(out, "fingerprint", &fingerprint.to_string())?;
    layout.field(out, "revision", &answer.policy_revision)?;
    if answer.checks.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    for check in &answer.checks {
        let (mark, outcome) = match check.outcome {
            CheckOutcome::Passed => (" ", "passed"),
            CheckOutcome::Decided => (">", "decided"),
            CheckOutcome::NotReached => (" ", "not reached"),
        };
        let label = format!("{mark} {:>2} {}", check.number, check.name);
        Layout::new(0, 32).field(out, &label, &format!("{outcome:<12}{}", safe(&check.detail)))?;
    }
    Ok(())
}

fn as_json(answer: &PolicyAnswer, fingerprint: &Fingerprint) -> Value {
    let rules: Vec<Value> = answer
        .rules
        .iter()
        .map(|rule| {
            json!({
                "connector": rule.connector,
                "name": rule.name,
                "effect": rule.effect.as_str(),
                "error": rule.error.as_deref().unwrap_or_default(),
            })
        })
        .collect();
    let checks: Vec<Value> = answer
        .checks
        .iter()
        .map(|check| {
            let outcome = match check.outcome {
                CheckOutcome::Passed => "PASSED",
                CheckOutcome::Decided => "DECIDED",
                CheckOutcome::NotReached => "NOT_REACHED",
            };
            json!({ "number": check.number, "name": check.name, "outcome": outcome, "detail": check.detail })
        })
        .collect();
    json!({
        "decision": answer.decision.as_str(),
        "reason": answer.reason.as_str(),
        "message": answer.message,
        "scope": answer.scope.map(|scope| scope.as_str()),
        "tags": *answer.tags,
        "rules": rules,
        "requirement": match &answer.decision {
            Decision::ConfirmationRequired(asked) => requirement_json(asked),
            Decision::Allow | Decision::Deny => Value::Null,
        },
        "fingerprint": fingerprint.to_string(),
        "policy_revision": answer.policy_revision,
        "checks": checks,
    })
}

fn requirement_json(asked: &Requirement) -> Value {
    let clauses: Vec<Value> = asked
        .clauses()
        .iter()
        .map(|clause| {
            let any_of: Vec<String> = clause.any_of().iter().map(ToString::to_string).collect();
            json!({ "any_of": any_of, "quorum": clause.quorum() })
        })
        .collect();
    json!({
        "clauses": clauses,
        "exclude_requester": asked.exclude_requester(),
        "decide_within": show_span(asked.decide_within()),
        "use_within": show_span(asked.use_within()),
    })
}

fn identifier(text: &str) -> Result<Identifier, String> {
    Identifier::parse(text).map_err(|problem| problem.to_string())
}

fn instant(text: &str) -> Result<Timestamp, String> {
    let instant: jiff::Timestamp =
        text.parse().map_err(|_| format!("{text:?} is no time such as 2030-01-31T09:00:00Z"))?;
    Ok(Timestamp::from_micros(instant.as_microsecond()))
}
