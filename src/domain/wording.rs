//! What a person is told in words: fixed templates over neutralised identifiers, never arguments.

use super::approval::{KnownOutcome, RetriedExecution};
use super::invocation::Subject;
use super::preview::{Omission, OmissionKind};
use super::text::{LineBreaks, confusable_words, neutralise};

/// One sentence about what is asked; a second one where it repeats an earlier attempt.
pub fn question(subject: &Subject, retry_of: Option<&RetriedExecution>) -> String {
    let shown = name;
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

/// A name within a sentence. One that is more than a word could go on as the sentence, so it is quoted.
fn name(text: &str) -> String {
    let neutral = neutralise(text, LineBreaks::Escape).text;
    let word = |character: char| character.is_alphanumeric() || "._-@:+/#\\{}".contains(character);
    if neutral.chars().all(word) && !neutral.ends_with('.') {
        return neutral.into_owned();
    }
    format!("\"{}\"", neutral.replace('"', "\\u{22}"))
}

/// Where a text that stands beside the preview may not be what it looks like: it mixes scripts, or has characters that a
/// person does not see as what they are.
pub fn deceptive(subject: &Subject, agent_note: Option<&str>) -> Vec<Omission> {
    let objective = subject.objective.as_ref();
    let identifiers = [
        ("principal", Some(&subject.principal)),
        ("agent", Some(&subject.agent)),
        ("conversation", subject.conversation.as_ref()),
        ("connector", Some(&subject.connector)),
        ("account", subject.account.as_ref()),
        ("connection", subject.connection.as_ref()),
        ("action", Some(&subject.action)),
        ("objective.transcript", objective.map(|objective| &objective.transcript)),
        ("objective.id", objective.map(|objective| &objective.id)),
    ];
    let identifiers =
        identifiers.into_iter().filter_map(|(field, text)| text.map(|text| (field, text.as_str(), LineBreaks::Escape)));
    identifiers
        .chain(agent_note.map(|note| ("agent_note", note, LineBreaks::Keep)))
        .flat_map(|(field, text, line_breaks)| {
            [
                (OmissionKind::Neutralised, neutralise(text, line_breaks).escaped),
                (OmissionKind::Confusable, confusable_words(text)),
            ]
            .map(|(kind, count)| (field, kind, count))
        })
        .filter(|(_, _, count)| *count > 0)
        .map(|(field, kind, count)| Omission { field: Some(field.to_owned()), pointer: String::new(), kind, count })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::testing::{id, subject};

    fn found(subject: &Subject, note: Option<&str>) -> Vec<(String, OmissionKind, u64)> {
        let omissions = deceptive(subject, note).into_iter();
        omissions.map(|omission| (omission.field.unwrap_or_default(), omission.kind, omission.count)).collect()
    }

    #[test]
    fn a_name_cannot_go_on_as_the_sentence() {
        let mut subject = subject();
        subject.account = Some(id("the sandbox on behalf of \"nobody\". A dry run"));
        assert_eq!(
            question(&subject, None),
            "assistant asks to run GMAIL_SEND_EMAIL of gmail as \"the sandbox on behalf of \\u{22}nobody\\u{22}. A dry run\" on \
             behalf of olga."
        );
        subject.account = Some(id("work."));
        assert!(question(&subject, None).contains(" as \"work.\" on behalf"));
    }

    #[test]
    fn plain_names_are_not_reported() {
        assert_eq!(found(&subject(), Some("Please, Olga: it is for K\u{f6}ln.")), []);
    }

    #[test]
    fn every_text_beside_the_preview_is_looked_at() {
        let mut subject = subject();
        subject.account = Some(id("w\u{43e}rk"));
        subject.action = id("SEND\u{2800}EMAIL");
        let found = found(&subject, Some("\u{440}ay \u{430}ll"));
        assert_eq!(
            found,
            [
                ("account".to_owned(), OmissionKind::Confusable, 1),
                ("action".to_owned(), OmissionKind::Neutralised, 1),
                ("agent_note".to_owned(), OmissionKind::Confusable, 2),
            ]
        );
    }
}
