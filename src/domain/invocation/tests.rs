use super::*;
use crate::domain::testing::{arguments, definition, fingerprint, id, sealed, subject, subject_with};
use proptest::prelude::*;

/// A change of one binding, and what is told of it.
type Changed = (Binding, &'static str, fn(&mut Subject));

/// Every binding, changed in each way in which one can change.
const CHANGES: &[Changed] = &[
    (Binding::Principal, "another", |subject| subject.principal = id("olaf")),
    (Binding::Principal, "in another case", |subject| subject.principal = id("Olga")),
    (Binding::Connector, "another", |subject| subject.connector = id("outlook")),
    (Binding::Connector, "in another case", |subject| subject.connector = id("Gmail")),
    (Binding::Action, "another", |subject| subject.action = id("GMAIL_SEND_DRAFT")),
    (Binding::Action, "a prefix", |subject| subject.action = id("GMAIL_SEND")),
    (Binding::Conversation, "another", |subject| subject.conversation = Some(id("conversation-2"))),
    (Binding::Conversation, "none", |subject| subject.conversation = None),
    (Binding::Agent, "another", |subject| subject.agent = id("assistant-2")),
    (Binding::Account, "another", |subject| subject.account = Some(id("work-mailbox-b"))),
    (Binding::Account, "none", |subject| subject.account = None),
    (Binding::Objective, "none", |subject| subject.objective = None),
    (Binding::Objective, "another transcript", |subject| objective(subject).transcript = id("transcript-2")),
    (Binding::Objective, "another id", |subject| objective(subject).id = id("objective-2")),
    (Binding::Objective, "a later revision", |subject| objective(subject).revision += 1),
    (Binding::Objective, "an earlier revision", |subject| objective(subject).revision -= 1),
    (Binding::Arguments, "others", |subject| subject.arguments_digest = arguments("{\"to\":\"eve\"}")),
    (Binding::ToolDefinition, "another", |subject| subject.tool_definition_digest = Some(definition("2"))),
    (Binding::ToolDefinition, "none", |subject| subject.tool_definition_digest = None),
];

fn objective(subject: &mut Subject) -> &mut Objective {
    subject.objective.as_mut().unwrap()
}

#[test]
fn the_order_and_the_reasons_are_the_contract() {
    let told: Vec<&str> = Binding::ALL.into_iter().map(Binding::reason).collect();
    assert_eq!(
        told,
        [
            "PRINCIPAL_MISMATCH",
            "CONNECTOR_MISMATCH",
            "ACTION_MISMATCH",
            "CONVERSATION_MISMATCH",
            "AGENT_MISMATCH",
            "ACCOUNT_MISMATCH",
            "OBJECTIVE_CHANGED",
            "ARGUMENTS_CHANGED",
            "TOOL_DEFINITION_CHANGED",
        ]
    );
}

#[test]
fn a_call_is_the_same_as_itself() {
    assert_eq!(subject().first_difference(&subject()), None);
    let bare = subject_with(|subject| {
        subject.conversation = None;
        subject.account = None;
        subject.objective = None;
        subject.tool_definition_digest = None;
    });
    assert_eq!(bare.first_difference(&bare), None, "absent equals absent");
}

#[test]
fn each_binding_changed_alone_is_told_by_its_own_reason_in_both_directions() {
    for (binding, how, change) in CHANGES {
        let changed = subject_with(change);
        assert_eq!(subject().first_difference(&changed), Some(*binding), "{how}");
        assert_eq!(changed.first_difference(&subject()), Some(*binding), "{how}, the other way round");
    }
    for binding in Binding::ALL {
        assert!(CHANGES.iter().any(|(changed, ..)| *changed == binding), "{binding:?} is never changed");
    }
}

#[test]
fn of_any_changed_bindings_the_first_in_order_is_told() {
    for set in 1_u32..1 << Binding::ALL.len() {
        let changed: Vec<Binding> = Binding::ALL
            .into_iter()
            .enumerate()
            .filter(|(index, _)| set & (1 << index) != 0)
            .map(|(_, binding)| binding)
            .collect();
        let now = subject_with(|subject| {
            for binding in &changed {
                CHANGES.iter().find(|(of, ..)| of == binding).unwrap().2(subject);
            }
        });
        assert_eq!(subject().first_difference(&now), changed.first().copied(), "{changed:?}");
    }
}

#[test]
fn the_fingerprint_binds_even_where_everything_else_seems_equal() {
    let other = Subject { fingerprint: fingerprint("another"), ..subject() };
    assert_eq!(subject().first_difference(&other), Some(Binding::Arguments));
    let other = Subject { arguments_digest: arguments("[]"), ..subject() };
    assert_eq!(subject().first_difference(&other), Some(Binding::Arguments), "so does the arguments' digest");
}

#[test]
fn neither_a_connection_nor_labels_bind() {
    for now in [
        Subject { connection: Some(id("connection-2")), ..subject() },
        Subject { connection: None, ..subject() },
        Subject { labels: BTreeMap::new(), ..subject() },
    ] {
        assert_eq!(subject().first_difference(&now), None);
    }
}

#[test]
fn texts_that_look_alike_differ() {
    for (asked, now) in [
        ("caf\u{e9}", "cafe\u{301}"),
        ("paypal", "p\u{430}ypal"),
        ("\u{df}", "ss"),
        ("\u{212a}elvin", "Kelvin"),
        ("i", "\u{131}"),
    ] {
        let named = |name| subject_with(|subject| subject.action = id(name));
        assert_eq!(named(asked).first_difference(&named(now)), Some(Binding::Action), "{asked:?} and {now:?}");
    }
}

/// Every text of a subject, in a fixed order.
const TEXTS: usize = 8;

fn of_texts(texts: &[String; TEXTS]) -> Subject {
    let [principal, agent, conversation, connector, account, action, transcript, objective] = texts;
    Subject {
        principal: id(principal),
        agent: id(agent),
        conversation: Some(id(conversation)),
        connector: id(connector),
        account: Some(id(account)),
        action: id(action),
        objective: Some(Objective { transcript: id(transcript), id: id(objective), revision: 1 }),
        ..subject()
    }
}

#[test]
fn characters_moved_across_the_border_of_two_fields_never_make_two_calls_equal() {
    for delimiter in ["", ":", "|", "/", ",", ".", "\"", "\\", "\",\"", "group:", "null"] {
        for left in 0..TEXTS {
            for right in (0..TEXTS).filter(|right| *right != left) {
                let with = |one: String, other: String| {
                    let mut texts = std::array::from_fn(|index| format!("field{index}"));
                    texts[left] = one;
                    texts[right] = other;
                    // The fingerprint is left equal: the fields alone must tell the calls apart.
                    of_texts(&texts)
                };
                let here = with(format!("a{delimiter}b"), "c".to_owned());
                let there = with("a".to_owned(), format!("b{delimiter}c"));
                assert!(here.first_difference(&there).is_some(), "{delimiter:?} between fields {left} and {right}");
            }
        }
    }
}

#[test]
fn two_fields_that_swap_their_texts_are_two_calls() {
    for left in 0..TEXTS {
        for right in left + 1..TEXTS {
            let texts: [String; TEXTS] = std::array::from_fn(|index| format!("field{index}"));
            let mut swapped = texts.clone();
            swapped.swap(left, right);
            assert!(of_texts(&texts).first_difference(&of_texts(&swapped)).is_some(), "fields {left} and {right}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn calls_are_the_same_exactly_if_all_their_texts_are(
        one in prop::array::uniform8("[ab:|]{1,2}"),
        changed in 0..TEXTS,
        text in "[ab:|]{1,2}",
    ) {
        let mut other = one.clone();
        other[changed] = text;
        let difference = sealed(of_texts(&one)).first_difference(&sealed(of_texts(&other)));
        prop_assert_eq!(difference.is_none(), one == other);
    }
}
