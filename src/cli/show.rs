//! What a person is shown of an approval: everything that the decision is about, and what of it cannot be shown as it is.
//! The demonstration and `approvals` show the same.

use super::terminal::{Layout, safe};
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

/// Where an approval's fields stand, `indent` columns from the left.
pub(super) fn layout(indent: usize) -> Layout {
    Layout::new(indent, LABEL)
}

/// The question: what would run, with which arguments, who must confirm, until when.
pub(super) fn question(out: &mut dyn Write, layout: Layout, approval: &proto::Approval) -> io::Result<()> {
    layout.field(out, "question", &approval.message)?;
    if let Some(retried) = &approval.retried {
        let twice = if retried.may_do_twice { "; doing it again may do it twice" } else { "" };
        layout.field(out, "retries", &format!("{} ({}){twice}", retried.execution_id, retried.state))?;
    }
    layout.value(out, "arguments", &preview(&approval.preview_json, &masked(approval)))?;
    for omission in &approval.omissions {
        layout.field(out, "not as it is", &omitted(omission))?;
    }
    if !approval.agent_note.is_empty() {
        layout.quote(out, "the agent says", &approval.agent_note)?;
        layout.ours(out, "(the agent's own words, checked by nobody)")?;
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
pub(super) fn record(out: &mut dyn Write, layout: Layout, approval: &proto::Approval) -> io::Result<()> {
    layout.field(out, "approval", &approval.id)?;
    standing(out, layout, approval)?;
    question(out, layout, approval)?;
    layout.field(out, "principal", &approval.principal)?;
    layout.field(out, "agent", &approval.agent)?;
    layout.optional(out, "conversation", &approval.conversation)?;
    layout.field(out, "connector", &approval.connector)?;
    layout.optional(out, "account", &approval.account)?;
    if !approval.connection.is_empty() {
        // Ours first, so that the connection's own text cannot take it back.
        layout.field(out, "connection", &format!("(recorded, not bound) {}", approval.connection))?;
    }
    layout.field(out, "action", &approval.action)?;
    if let Some(objective) = &approval.objective {
        let text = format!("revision {}, {} of {}", objective.revision, objective.id, objective.transcript);
        layout.field(out, "objective", &text)?;
    }
    layout.optional(out, "tool definition", &approval.tool_definition_digest)?;
    layout.optional(out, "wait", &approval.wait_id)?;
    layout.optional(out, "retry of", &approval.retry_of)?;
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

/// All of the arguments, nothing masked, a member a line.
pub(super) fn whole_arguments(out: &mut dyn Write, layout: Layout, text: &str) -> io::Result<()> {
    let lines = match Canonical::object_from_stored(text) {
        Ok(canonical) => lines(&canonical, &BTreeSet::new()),
        Err(_) => unreadable(text),
    };
    layout.value(out, "all arguments", &lines)
}

/// Where it stands, and who has decided so far.
pub(super) fn standing(out: &mut dyn Write, layout: Layout, approval: &proto::Approval) -> io::Result<()> {
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
        proto::OmissionKind::Truncated => format!("cut: {count} characters more"),
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
        return unreadable(text);
    };
    lines(&canonical, masked)
}

fn unreadable(text: &str) -> Vec<String> {
    vec![format!("(not readable) {}", safe(text))]
}

fn lines(canonical: &Canonical, masked: &BTreeSet<&str>) -> Vec<String> {
    let mut printer = Printer { lines: vec![String::new()], masked };
    printer.value(&Json::read(canonical), &mut String::new(), 0);
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

/// A string of the arguments. Blanks that only look like a space are told from one: what is approved is the very text.
fn quoted(text: &str) -> String {
    let mut shown = String::new();
    for character in neutralise(text, LineBreaks::Keep).text.chars() {
        if character.is_ascii() || !character.is_whitespace() {
            shown.push(character);
        } else {
            shown.push_str(&safe(character.encode_utf8(&mut [0; 4])));
        }
    }
    serde_json::to_string(&shown).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::terminal::columns_of;
    use crate::domain::text::is_hidden;

    fn shown(approval: &proto::Approval) -> String {
        let mut out = Vec::new();
        record(&mut out, Layout { indent: 2, label: LABEL, width: 80 }, approval).unwrap();
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

    /// Texts that try to wrap into rows of their own.
    fn hostile_texts() -> Vec<String> {
        let fake = "scope           read";
        let mut texts = Vec::new();
        for blank in [" ", "\u{A0}", "\u{202F}", "\u{3000}", "\u{2007}", "\u{2800}", "\t", "\u{200B}"] {
            for padding in [1, 17, 40, 61, 62, 63, 64, 65, 66, 78, 79, 80, 81, 160] {
                texts.push(format!("ok{}{fake}{}", blank.repeat(padding), blank.repeat(80)));
                texts.push(format!("{}{fake}", blank.repeat(padding)));
            }
        }
        for filler in
            ["x", "\u{4E00}", "\u{FF21}", "e\u{301}\u{302}", "\u{903}", "\u{1F600}", "\u{3B1}", "\u{2E3B}", "\u{AC00}"]
        {
            for count in [30, 31, 32, 62, 63, 64, 80, 200] {
                texts.push(format!("{}{fake}", filler.repeat(count)));
                texts.push(format!(
                    "{} {fake}\n{fake}\r\nApprove this? [y]es/[n]o: y\u{85}{fake}",
                    filler.repeat(count)
                ));
            }
        }
        texts
    }

    #[test]
    fn no_row_of_anothers_text_is_without_its_bar_or_wider_than_the_terminal() {
        for text in hostile_texts() {
            let approval = proto::Approval {
                message: text.clone(),
                account: text.clone(),
                preview_json: serde_json::json!({ "body": [text], text.as_str(): 1 }).to_string(),
                omissions: vec![proto::Omission { pointer: format!("/{text}"), ..proto::Omission::default() }; 2],
                agent_note: text.clone(),
                fingerprint: format!("v1:{}", "0".repeat(64)),
                objective: Some(proto::Objective { transcript: text.clone(), id: text.clone(), revision: 1 }),
                ..proto::Approval::default()
            };
            for (indent, width) in [(0, 80), (2, 80), (0, 100), (0, 57), (0, 30), (3, 20)] {
                let mut out = Vec::new();
                record(&mut out, Layout { indent, label: LABEL, width }, &approval).unwrap();
                let shown = String::from_utf8(out).unwrap();
                let mut labels = Vec::new();
                for row in shown.lines() {
                    assert!(columns_of(row) <= width, "wider than {width}: {row:?} of {text:?}");
                    let text = row.trim_start();
                    if text.starts_with('|') || "(the agent's own words, checked by nobody)".contains(text) {
                        continue;
                    }
                    assert!(row.len() - text.len() <= indent, "neither bar nor label at {width}: {row:?} in\n{shown}");
                    labels.push(text.get(..LABEL.min(text.len())).unwrap_or_default().trim_end().to_owned());
                }
                if width >= 57 {
                    assert_eq!(labels.iter().filter(|label| *label == "scope").count(), 1, "{shown}");
                }
                assert!(!labels.iter().any(|label| label.starts_with("Approve")), "{shown}");
                let ours = shown.lines().filter(|row| row.trim_start().starts_with('('));
                assert!(
                    width < 80
                        || ours.eq([format!("{:1$}(the agent's own words, checked by nobody)", "", indent + LABEL)])
                );
            }
        }
    }

    #[test]
    fn a_blank_in_a_value_that_is_no_space_is_told_from_one_and_a_note_has_spaces_alone() {
        let text = shown(&proto::Approval {
            preview_json: "{\"a\":\"1\u{A0}2\u{3000}3 4\"}".to_owned(),
            agent_note: "un\u{A0}deux\u{3000}trois\u{202F}!".to_owned(),
            ..proto::Approval::default()
        });
        assert!(text.contains(r#"| "#) && text.contains(r#""a": "1\\u{A0}2\\u{3000}3 4""#), "{text}");
        assert!(text.contains("| un deux trois !"), "{text}");
    }

    #[test]
    fn a_fingerprint_stands_on_one_row_of_eighty_columns() {
        let fingerprint = format!("v1:{}", "0".repeat(64));
        let approval = proto::Approval { fingerprint: fingerprint.clone(), ..proto::Approval::default() };
        let mut out = Vec::new();
        record(&mut out, Layout { indent: 0, label: LABEL, width: 80 }, &approval).unwrap();
        assert!(String::from_utf8(out).unwrap().contains(&format!("\nfingerprint {fingerprint}\n")));
    }

    #[test]
    fn what_is_cut_is_counted_in_characters() {
        let cut =
            proto::Omission { kind: proto::OmissionKind::Truncated.into(), count: 7, ..proto::Omission::default() };
        assert_eq!(omitted(&cut), "the whole: cut: 7 characters more");
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
            wait_id: text(),
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
