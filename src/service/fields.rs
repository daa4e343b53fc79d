//! Reads the fields of requests into types that cannot be wrong, and names everything that is wrong at once.

use super::errors;
use crate::domain::arguments::Arguments;
use crate::domain::fingerprint::{DefinitionDigest, Fingerprint};
use crate::domain::ids::{ApprovalId, AttemptId, ExecutionId, WaitId};
use crate::domain::invocation::{Invocation, Objective, Said};
use crate::domain::limits;
use crate::domain::text::{Identifier, LineBreaks, bounded_note, neutralise};
use crate::domain::time::Timestamp;
use crate::engine::NamedWait;
use crate::proto;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tonic::Status;

/// More than these are counted, not listed: a status travels in headers, which are bounded.
const LISTED: usize = 8;

/// What is wrong with a request.
#[derive(Debug, Default)]
pub(super) struct Violations {
    found: Vec<(String, String)>,
    more: usize,
    /// Where the arguments are refused, by which rule and where: metadata of the error.
    arguments: Option<[(&'static str, String); 2]>,
}

impl Violations {
    /// Notes that `field` is wrong.
    pub(super) fn add(&mut self, field: &str, what: impl Into<String>) {
        if self.found.len() < LISTED {
            self.found.push((field.to_owned(), what.into()));
        } else {
            self.more += 1;
        }
    }

    /// An error if anything is wrong.
    pub(super) fn finish(self) -> Result<(), Status> {
        let Some((field, what)) = self.found.first() else { return Ok(()) };
        let others = self.found.len() - 1 + self.more;
        let mut message = format!("{field}: {what}");
        if others > 0 {
            message.push_str(&format!(" (and {others} more)"));
        }
        let reason = if self.arguments.is_some() { "INVALID_ARGUMENTS_JSON" } else { "INVALID_REQUEST" };
        let mut metadata = HashMap::from([("field".to_owned(), field.clone())]);
        metadata.extend(self.arguments.into_iter().flatten().map(|(key, value)| (key.to_owned(), value)));
        Err(errors::bad_request(reason, message, metadata, self.found))
    }

    /// What a read of something wrong stands for: no more than the error that `finish` gives.
    pub(super) fn and<T>(self, read: Option<T>) -> Result<T, Status> {
        self.finish()?;
        read.ok_or_else(errors::unreadable)
    }

    /// A required identifier.
    pub(super) fn identifier(&mut self, field: &str, text: &str) -> Option<Identifier> {
        match Identifier::parse(text) {
            Ok(id) => Some(id),
            Err(problem) => {
                self.add(field, problem.to_string());
                None
            }
        }
    }

    /// An identifier, or none where the text is empty.
    pub(super) fn optional_identifier(&mut self, field: &str, text: &str) -> Option<Identifier> {
        if text.is_empty() { None } else { self.identifier(field, text) }
    }

    /// A required approval's id.
    pub(super) fn approval_id(&mut self, field: &str, text: &str) -> Option<ApprovalId> {
        self.uuid(field, ApprovalId::parse(text))
    }

    /// A required execution's id.
    pub(super) fn execution_id(&mut self, field: &str, text: &str) -> Option<ExecutionId> {
        self.uuid(field, ExecutionId::parse(text))
    }

    /// An approval, named by principal, agent and id, as every request of an agent names it.
    pub(super) fn approval_of_agent(
        &mut self,
        principal: &str,
        agent: &str,
        id: &str,
    ) -> Option<(Identifier, Identifier, ApprovalId)> {
        let principal = self.identifier("principal", principal);
        let agent = self.identifier("agent", agent);
        let id = self.approval_id("approval_id", id);
        Some((principal?, agent?, id?))
    }

    /// The same for an execution.
    pub(super) fn execution_of_agent(
        &mut self,
        principal: &str,
        agent: &str,
        id: &str,
    ) -> Option<(Identifier, Identifier, ExecutionId)> {
        let principal = self.identifier("principal", principal);
        let agent = self.identifier("agent", agent);
        let id = self.execution_id("execution_id", id);
        Some((principal?, agent?, id?))
    }

    /// A required wait's id.
    pub(super) fn wait_id(&mut self, field: &str, text: &str) -> Option<WaitId> {
        self.uuid(field, WaitId::parse(text))
    }

    /// The same for a wait.
    pub(super) fn wait_of_agent(&mut self, principal: &str, agent: &str, id: &str) -> Option<NamedWait> {
        let principal = self.identifier("principal", principal);
        let agent = self.identifier("agent", agent);
        let id = self.wait_id("wait_id", id);
        Some(NamedWait { principal: principal?, agent: agent?, id: id? })
    }

    /// A required attempt's id.
    pub(super) fn attempt_id(&mut self, field: &str, text: &str) -> Option<AttemptId> {
        self.uuid(field, AttemptId::parse(text))
    }

    fn uuid<T>(&mut self, field: &str, id: Option<T>) -> Option<T> {
        if id.is_none() {
            self.add(field, "must be a UUID in its hyphenated form, and not the nil UUID");
        }
        id
    }

    /// A fingerprint, or none where the text is empty.
    pub(super) fn optional_fingerprint(&mut self, field: &str, text: &str) -> Option<Fingerprint> {
        if text.is_empty() {
            return None;
        }
        let read = Fingerprint::parse(text).ok();
        if read.is_none() {
            self.add(field, "must be `v1:` and 64 lower-case hexadecimal digits");
        }
        read
    }

    /// Somebody's own words, neutralised, or none where the text is empty.
    pub(super) fn optional_note(&mut self, field: &str, text: &str) -> Option<String> {
        if text.is_empty() {
            return None;
        }
        match bounded_note(text, limits::NOTE_CHARACTERS) {
            Ok(note) => Some(note),
            Err(problem) => {
                self.add(field, problem.to_string());
                None
            }
        }
    }

    /// Somebody's own words, neutralised.
    pub(super) fn note(&mut self, field: &str, text: &str) -> Option<String> {
        if text.is_empty() {
            self.add(field, "is required");
        }
        self.optional_note(field, text)
    }

    /// A short text from the remote service, neutralised, or none where it is empty.
    pub(super) fn optional_text(&mut self, field: &str, text: &str, most: usize) -> Option<String> {
        if text.is_empty() {
            return None;
        }
        if text.len() > most {
            self.add(field, format!("has {} bytes; at most {most} are allowed", text.len()));
            return None;
        }
        Some(neutralise(text, LineBreaks::Keep).text.into_owned())
    }

    /// A span between two bounds, or none where it is absent.
    pub(super) fn optional_span(
        &mut self,
        field: &str,
        span: Option<&prost_types::Duration>,
        least: Duration,
        most: Duration,
    ) -> Option<Duration> {
        let span = span?;
        let read = u64::try_from(span.seconds)
            .ok()
            .zip(u32::try_from(span.nanos).ok().filter(|nanos| *nanos < 1_000_000_000))
            .map(|(seconds, nanos)| Duration::new(seconds, nanos))
            .filter(|span| (least..=most).contains(span));
        if read.is_none() {
            self.add(field, format!("must be from {least:?} to {most:?}"));
        }
        read
    }

    /// An instant, to the microsecond, or none where it is absent.
    pub(super) fn optional_time(&mut self, field: &str, time: Option<&prost_types::Timestamp>) -> Option<Timestamp> {
        let time = time?;
        if !(0..1_000_000_000).contains(&time.nanos) {
            self.add(field, "is no instant: nanos are from 0 to 999999999");
            return None;
        }
        let micros = time.seconds.checked_mul(1_000_000);
        let micros = micros.and_then(|micros| micros.checked_add(i64::from(time.nanos / 1_000)));
        if micros.is_none() {
            self.add(field, "is too far off: seconds are from -9223372036854 to 9223372036854");
        }
        micros.map(Timestamp::from_micros)
    }

    /// A required invocation.
    pub(super) fn invocation(&mut self, said: Option<proto::Invocation>, arguments_bytes: usize) -> Option<Invocation> {
        let (said, arguments) = self.said(said, arguments_bytes)?;
        Some(Invocation::new(said, arguments))
    }

    /// The same in its two parts, for what needs none of its digests.
    pub(super) fn said(
        &mut self,
        said: Option<proto::Invocation>,
        arguments_bytes: usize,
    ) -> Option<(Said, Arguments)> {
        let Some(said) = said else {
            self.add("invocation", "is required");
            return None;
        };
        let principal = self.identifier("invocation.principal", &said.principal);
        let agent = self.identifier("invocation.agent", &said.agent);
        let conversation = self.optional_identifier("invocation.conversation", &said.conversation);
        let connector = self.identifier("invocation.connector", &said.connector);
        let account = self.optional_identifier("invocation.account", &said.account);
        let connection = self.optional_identifier("invocation.connection", &said.connection);
        let action = self.identifier("invocation.action", &said.action);
        let objective = said.objective.as_ref();
        let objective = objective.and_then(|objective| self.objective("invocation.objective", objective));
        let tool_definition_digest = self.definition(&said.tool_definition_digest);
        let labels = self.labels(said.labels);
        let arguments = self.arguments(&said.arguments_json, arguments_bytes);
        let said = Said {
            principal: principal?,
            agent: agent?,
            conversation,
            connector: connector?,
            account,
            connection,
            action: action?,
            objective,
            tool_definition_digest,
            labels,
        };
        Some((said, arguments?))
    }

    fn arguments(&mut self, text: &str, most: usize) -> Option<Arguments> {
        match Arguments::parse(text, most) {
            Ok(arguments) => Some(arguments),
            Err(refusal) => {
                self.add("invocation.arguments_json", refusal.to_string());
                self.arguments =
                    Some([("problem", refusal.problem.code().to_owned()), ("pointer", refusal.pointer.clone())]);
                None
            }
        }
    }

    /// What an agent is working on, in the field of that name.
    pub(super) fn objective(&mut self, field: &str, objective: &proto::Objective) -> Option<Objective> {
        let transcript = self.identifier(&format!("{field}.transcript"), &objective.transcript);
        let id = self.identifier(&format!("{field}.id"), &objective.id);
        if objective.revision > limits::MAX_REVISION {
            self.add(&format!("{field}.revision"), "must be at most 2^53-1");
            return None;
        }
        Some(Objective { transcript: transcript?, id: id?, revision: objective.revision })
    }

    fn definition(&mut self, text: &str) -> Option<DefinitionDigest> {
        if text.is_empty() {
            return None;
        }
        let read = DefinitionDigest::parse(text).ok();
        if read.is_none() {
            self.add("invocation.tool_definition_digest", "must be `td1:` and 64 lower-case hexadecimal digits");
        }
        read
    }

    fn labels(&mut self, labels: HashMap<String, String>) -> BTreeMap<String, String> {
        if labels.len() > limits::LABELS {
            self.add(
                "invocation.labels",
                format!("has {} entries; at most {} are allowed", labels.len(), limits::LABELS),
            );
            return BTreeMap::new();
        }
        for (name, value) in &labels {
            if let Err(problem) = Identifier::parse(name) {
                self.add("invocation.labels", format!("a name: {problem}"));
            } else if name.len() > limits::LABEL_NAME_BYTES {
                self.add("invocation.labels", format!("a name has more than {} bytes", limits::LABEL_NAME_BYTES));
            }
            if value.len() > limits::LABEL_VALUE_BYTES {
                self.add("invocation.labels", format!("a value has more than {} bytes", limits::LABEL_VALUE_BYTES));
            } else if !value.is_empty()
                && let Err(problem) = Identifier::parse(value)
            {
                self.add("invocation.labels", format!("a value: {problem}"));
            }
        }
        labels.into_iter().collect()
    }
}
