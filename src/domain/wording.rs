//! What a person is told in words: fixed templates over neutralised identifiers, never arguments.

use super::approval::{KnownOutcome, RetriedExecution};
use super::invocation::Subject;
use super::preview::{Omission, OmissionKind};
use super::text::{LineBreaks, confusable_words, neutralise};

/// One sentence about what is asked; a second one where it repeats an earlier attempt.
pub fn question(subject: &Subject, retry_of: Option<&RetriedExecution>) -> String {
    let shown = |text: &str| neutralise(text, LineBreaks::Escape).text.into_owned();
    let account = subject.account.as_ref().map_or(String::new(), |account| format!(" as {}", shown(account.as_str())));
    let mut message = format!(
        "{} asks to run {} of {}{account} on behalf of {}.",
        shown(subject.agent.as_str()),
        shown(subject.action.as_str()),
        shown(subject.connector.as_str()),
        shown(subject.principal.as_str()),
    );
    if let Some(retried) = retry_of {
        message.push_str(match retried.known {
            KnownOutcome::Started => " It repeats an attempt that is still under way: doing it again may do it twice.",
            KnownOutcome::Failed => " It repeats an attempt that failed without an effect.",
            KnownOutcome::Unknown => {
                " It repeats an attempt of which nobody knows the outcome: doing it again may do it twice."
            }
        });
    }
    message
}

/// Where a text that stands beside the preview may not be what it looks like.
pub fn confusable(subject: &Subject, agent_note: Option<&str>) -> Vec<Omission> {
    let optional = [
        ("conversation", subject.conversation.as_ref()),
        ("account", subject.account.as_ref()),
        ("connection", subject.connection.as_ref()),
    ];
    let required = [
        ("principal", &subject.principal),
        ("agent", &subject.agent),
        ("connector", &subject.connector),
        ("action", &subject.action),
    ];
    let identifiers = required
        .into_iter()
        .chain(optional.into_iter().filter_map(|(field, text)| text.map(|text| (field, text))))
        .map(|(field, text)| (field, text.as_str()));
    identifiers
        .chain(agent_note.map(|note| ("agent_note", note)))
        .filter_map(|(field, text)| {
            let count = confusable_words(text);
            (count > 0).then(|| Omission {
                field: Some(field.to_owned()),
                pointer: String::new(),
                kind: OmissionKind::Confusable,
                count,
            })
        })
        .collect()
}
