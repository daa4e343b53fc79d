//! What a person is shown of an approval: everything that the decision is about, and what of it cannot be shown as it is.
//! The demonstration and `approvals` show the same.

use super::terminal::{Layout, WIDTH, safe, wrap};
use crate::domain::canonical::{Canonical, Limits, MAX_BYTES, Top};
use crate::domain::json::Json;
use crate::domain::span::show_span;
use crate::domain::text::{LineBreaks, neutralise};
use crate::domain::time::Timestamp;
use crate::proto;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Duration;

/// The column of labels.
const LABEL: usize = 16;

/// The question: what would run, with which arguments, who must confirm, until when.
pub(super) fn question(out: &mut dyn Write, indent: usize, approval: &proto::Approval) -> io::Result<()> {
    let layout = Layout { indent, label: LABEL };
    layout.field(out, "question", &approval.message)?;
    if let Some(retried) = &approval.retried {
        let twice = if retried.may_do_twice { "; doing it again may do it twice" } else { "" };
        layout.field(out, "retries", &format!("{} ({}){twice}", retried.execution_id, retried.state))?;
    }
    layout.lines(out, "arguments", preview(&approval.preview_json, &masked(approval)))?;
    let mut label = "not as it is";
    for omission in &approval.omissions {
        layout.field(out, label, &omitted(omission))?;
        label = "";
    }
    if !approval.agent_note.is_empty() {
        layout.lines(out, "the agent says", note(&approval.agent_note, indent + LABEL))?;
        layout.field(out, "", "(the agent's own words, checked by nobody)")?;
    }
    layout.field(out, "scope", &scope(approval))?;
    for rule in &approval.rules {
        let error = if rule.error.is_empty() { String::new() } else { format!("; it failed: {}", rule.error) };
        layout.field(out, "asked by rule", &format!("{} of {}{error}", rule.name, rule.connector))?;
    }
    requirement(out, layout, approval)?;
    layout.field(out, "decide by", &time(approval.decide_by.as_ref()))?;
    layout.field(out, "fingerprint", &approval.fingerprint)
}

/// The whole record: the question, and what became of it.
pub(super) fn record(out: &mut dyn Write, indent: usize, approval: &proto::Approval) -> io::Result<()> {
    let layout = Layout { indent, label: LABEL };
    layout.field(out, "approval", &approval.id)?;
    standing(out, indent, approval)?;
    question(out, indent, approval)?;
    layout.optional(out, "conversation", &approval.conversation)?;
    layout.optional(out, "connection", &approval.connection)?;
    if let Some(objective) = &approval.objective {
        let text = format!("{} of {}, revision {}", objective.id, objective.transcript, objective.revision);
        layout.field(out, "objective", &text)?;
    }
    layout.optional(out, "tool definition", &approval.tool_definition_digest)?;
    layout.field(out, "asked by", &approval.requested_by)?;
    layout.field(out, "asked at", &time(approval.create_time.as_ref()))?;
    layout.field(out, "reason", &approval.reason)?;
    layout.field(out, "policy", &approval.policy_revision)?;
    if approval.use_by.is_some() {
        layout.field(out, "use by", &time(approval.use_by.as_ref()))?;
    }
    if approval.consume_time.is_some() {
        layout.field(out, "used at", &time(approval.consume_time.as_ref()))?;
    }
    layout.optional(out, "execution", &approval.execution_id)
}

/// Where it stands, and who has decided so far.
pub(super) fn standing(out: &mut dyn Write, indent: usize, approval: &proto::Approval) -> io::Result<()> {
    let layout = Layout { indent, label: LABEL };
    layout.field(out, "state", state(approval.state()))?;
    layout.optional(out, "state reason", &approval.state_reason)?;
    approval.decisions.iter().try_for_each(|decision| layout.field(out, "decision", &decided(decision)))
}

/// Who must confirm, a line for each clause.
fn requirement(out: &mut dyn Write, layout: Layout, approval: &proto::Approval) -> io::Result<()> {
    let Some(requirement) = &approval.requirement else { return Ok(()) };
    let mut label = "who confirms";
    for clause in &requirement.clauses {
        let owner = |who: &String| if who == "owner" { format!("owner ({})", approval.principal) } else { who.clone() };
        let people: Vec<String> = clause.any_of.iter().map(owner).collect();
        layout.field(out, label, &format!("{} of {}", clause.quorum, people.join(", ")))?;
        label = "and";
    }
    if requirement.exclude_requester {
        layout.field(out, "but not", &approval.principal)?;
    }
    if let Some(within) = duration(requirement.use_within.as_ref()) {
        layout.field(out, "to be used", &format!("within {} of the last confirmation, once", show_span(within)))?;
    }
    Ok(())
}

fn scope(approval: &proto::Approval) -> String {
    let scope = short(approval.scope().as_str_name(), "SCOPE_").to_ascii_lowercase();
    if approval.tags.is_empty() { scope } else { format!("{scope}; tags {}", approval.tags.join(", ")) }
}

/// One person's decision, in a line.
pub(super) fn decided(decision: &proto::PersonDecision) -> String {
    let verdict = short(decision.verdict().as_str_name(), "VERDICT_");
    let owner = decision.as_owner.then(|| "owner".to_owned());
    let standing: Vec<String> =
        owner.into_iter().chain(decision.groups.iter().map(|name| format!("group:{name}"))).collect();
    let standing = if standing.is_empty() { String::new() } else { format!(" ({})", standing.join(", ")) };
    let reason = if decision.reason.is_empty() { String::new() } else { format!(": {}", decision.reason) };
    format!("{verdict} by {}{standing} at {}{reason}", decision.principal, time(decision.decide_time.as_ref()))
}

/// A state's word.
pub(super) fn state(state: proto::ApprovalState) -> &'static str {
    short(state.as_str_name(), "APPROVAL_STATE_")
}

/// An enum value's name without its enum's.
pub(super) fn short(name: &'static str, prefix: &str) -> &'static str {
    name.strip_prefix(prefix).unwrap_or(name)
}

/// A span as it came; none if it is none that a policy could have. Checked here, as what a sidecar sends may be anything.
pub(super) fn duration(duration: Option<&prost_types::Duration>) -> Option<Duration> {
    let duration = duration?;
    let nanos = u32::try_from(duration.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(duration.seconds).ok()?, nanos))
}

/// An instant as RFC 3339; empty if there is none.
pub(super) fn time(time: Option<&prost_types::Timestamp>) -> String {
    time.map_or(String::new(), |time| {
        let micros = time.seconds.saturating_mul(1_000_000).saturating_add(i64::from(time.nanos) / 1_000);
        Timestamp::from_micros(micros).to_string()
    })
}

fn omitted(omission: &proto::Omission) -> String {
    let place = match (omission.field.as_str(), omission.pointer.as_str()) {
        ("", "") => "the whole",
        ("", pointer) => pointer,
        (field, _) => field,
    };
    let count = omission.count;
    let what = match omission.kind() {
        proto::OmissionKind::Masked => "masked: it is or looks like a secret".to_owned(),
        proto::OmissionKind::Truncated => format!("cut: {count} bytes more"),
        proto::OmissionKind::Elided => format!("left out: {count} more"),
        proto::OmissionKind::Nested => format!("nested too deeply to show: {count} values"),
        proto::OmissionKind::Neutralised => format!("hidden characters made visible: {count}"),
        proto::OmissionKind::Confusable => {
            format!("words of mixed alphabets, which may not be what they seem: {count}")
        }
        proto::OmissionKind::Unspecified => "not shown as it is".to_owned(),
    };
    format!("{place}: {what}")
}

/// The agent's words, each line behind a bar, so that none can pass for a line of ours.
fn note(text: &str, column: usize) -> Vec<String> {
    let text = neutralise(text, LineBreaks::Keep).text.replace('\t', "  ");
    text.lines().flat_map(|line| wrap(line, WIDTH.saturating_sub(column + 2))).map(|line| format!("| {line}")).collect()
}

fn masked(approval: &proto::Approval) -> BTreeSet<&str> {
    approval
        .omissions
        .iter()
        .filter(|omission| omission.field.is_empty() && omission.kind() == proto::OmissionKind::Masked)
        .map(|omission| omission.pointer.as_str())
        .collect()
}

/// The preview, a member a line. What is masked stands without quotation marks, which no argument's text can imitate.
fn preview(text: &str, masked: &BTreeSet<&str>) -> Vec<String> {
    let Ok(canonical) = Canonical::of(text, Limits { max_bytes: MAX_BYTES, top: Top::Any }) else {
        return vec![format!("(not readable) {}", safe(text))];
    };
    let mut printer = Printer { lines: vec![String::new()], masked };
    printer.value(&Json::read(&canonical), &mut String::new(), 0);
    printer.lines
}

struct Printer<'a> {
    lines: Vec<String>,
    masked: &'a BTreeSet<&'a str>,
}

impl Printer<'_> {
    fn value(&mut self, value: &Json, pointer: &mut String, depth: usize) {
        match value {
            Json::Null if self.masked.contains(pointer.as_str()) => self.push("(masked)"),
            Json::Null => self.push("null"),
            Json::Bool(value) => self.push(if *value { "true" } else { "false" }),
            Json::Number(number) => self.push(number.as_str()),
            Json::String(text) => self.push(&quoted(text)),
            Json::Array(items) if items.is_empty() => self.push("[]"),
            Json::Object(members) if members.is_empty() => self.push("{}"),
            Json::Array(items) => {
                self.push("[");
                for (index, item) in items.iter().enumerate() {
                    self.line(depth + 1);
                    self.below(item, &index.to_string(), pointer, depth + 1);
                    self.push(if index + 1 < items.len() { "," } else { "" });
                }
                self.line(depth);
                self.push("]");
            }
            Json::Object(members) => {
                self.push("{");
                for (index, (name, member)) in members.iter().enumerate() {
                    self.line(depth + 1);
                    self.push(&format!("{}: ", quoted(name)));
                    self.below(member, &name.replace('~', "~0").replace('/', "~1"), pointer, depth + 1);
                    self.push(if index + 1 < members.len() { "," } else { "" });
                }
                self.line(depth);
                self.push("}");
            }
        }
    }

    fn below(&mut self, value: &Json, step: &str, pointer: &mut String, depth: usize) {
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(step);
        self.value(value, pointer, depth);
        pointer.truncate(length);
    }

    fn push(&mut self, text: &str) {
        if let Some(line) = self.lines.last_mut() {
            line.push_str(text);
        }
    }

    fn line(&mut self, depth: usize) {
        self.lines.push("  ".repeat(depth));
    }
}

fn quoted(text: &str) -> String {
    let text = neutralise(text, LineBreaks::Keep).text;
    serde_json::to_string(&*text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::text::is_hidden;

    fn shown(approval: &proto::Approval) -> String {
        let mut out = Vec::new();
        record(&mut out, 2, approval).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_is_masked_cannot_be_imitated_by_a_text() {
        let omission = |pointer: &str| proto::Omission {
            pointer: pointer.to_owned(),
            kind: proto::OmissionKind::Masked.into(),
            ..proto::Omission::default()
        };
        let approval = proto::Approval {
            preview_json: r#"{"a/b~":null,"c":null,"d":["(masked)",null],"n":9007199254740993}"#.to_owned(),
            omissions: vec![omission("/a~1b~0"), omission("/d/1")],
            ..proto::Approval::default()
        };
        let text = shown(&approval);
        for line in [
            r#""a/b~": (masked),"#,
            r#""c": null,"#,
            r#""(masked)","#,
            r#""n": 9007199254740993"#,
            "/d/1: masked: it is or",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }

    #[test]
    fn hostile_text_in_every_field_makes_no_line_and_moves_no_cursor() {
        let hostile = "x\u{1b}[2J\u{9b}1A\r\n  state           APPROVED\u{202e}\u{200b}\t";
        let text = || hostile.to_owned();
        let approval = proto::Approval {
            id: text(),
            principal: text(),
            agent: text(),
            conversation: text(),
            connector: text(),
            account: text(),
            connection: text(),
            action: text(),
            objective: Some(proto::Objective { transcript: text(), id: text(), revision: 1 }),
            tags: vec![text()],
            fingerprint: text(),
            tool_definition_digest: text(),
            preview_json: format!("{{\"a\":{}}}", serde_json::to_string(hostile).unwrap()),
            omissions: vec![proto::Omission { pointer: text(), field: text(), ..proto::Omission::default() }],
            message: text(),
            agent_note: text(),
            policy_revision: text(),
            rules: vec![proto::MatchedRule { connector: text(), name: text(), effect: text(), error: text() }],
            requirement: Some(proto::Requirement {
                clauses: vec![proto::Clause { any_of: vec![text(), "owner".to_owned()], quorum: 1 }],
                exclude_requester: true,
                ..proto::Requirement::default()
            }),
            decisions: vec![proto::PersonDecision {
                principal: text(),
                groups: vec![text()],
                reason: text(),
                ..proto::PersonDecision::default()
            }],
            requested_by: text(),
            execution_id: text(),
            retry_of: text(),
            state_reason: text(),
            retried: Some(proto::RetriedExecution { execution_id: text(), state: text(), may_do_twice: true }),
            reason: text(),
            ..proto::Approval::default()
        };
        for approval in [approval.clone(), proto::Approval { preview_json: text(), ..approval }] {
            let shown = shown(&approval);
            assert!(shown.chars().all(|character| character == '\n' || !is_hidden(character)), "{shown:?}");
            let states: Vec<&str> = shown.lines().filter(|line| line.trim_start().starts_with("state  ")).collect();
            assert_eq!(states, ["  state           UNSPECIFIED"]);
        }
    }
}
