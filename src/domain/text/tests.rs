use proptest::prelude::*;

use super::*;
use crate::domain::limits::NOTE_CHARACTERS;

/// One of each kind: control, bidirectional, zero width, soft hyphen, byte order mark, variation selector, tag,
/// private use, unassigned, noncharacter, separators, fillers and joiners that Unicode calls letters or marks.
const HIDDEN: &[char] = &[
    '\0',
    '\u{7}',
    '\r',
    '\u{7F}',
    '\u{85}',
    '\u{9F}',
    '\u{AD}',
    '\u{34F}',
    '\u{61C}',
    '\u{115F}',
    '\u{1160}',
    '\u{17B4}',
    '\u{180B}',
    '\u{180E}',
    '\u{200B}',
    '\u{200D}',
    '\u{200E}',
    '\u{200F}',
    '\u{2028}',
    '\u{2029}',
    '\u{202A}',
    '\u{202E}',
    '\u{2060}',
    '\u{2066}',
    '\u{2069}',
    '\u{3164}',
    '\u{E000}',
    '\u{FE0F}',
    '\u{FEFF}',
    '\u{FFA0}',
    '\u{FFF9}',
    '\u{378}',
    '\u{FFFE}',
    '\u{1D173}',
    '\u{1D159}',
    '\u{16FE4}',
    '\u{E0001}',
    '\u{E0041}',
    '\u{E01EF}',
    '\u{F0000}',
    '\u{10FFFF}',
];

#[test]
fn hidden_characters_are_known() {
    for character in HIDDEN {
        assert!(is_hidden(*character), "{character:?}");
    }
    for character in "aé ß字한עبहि👍€\u{301}\u{A0}\u{3000}".chars() {
        assert!(!is_hidden(character), "{character:?}");
    }
}

#[test]
fn ordinary_identifiers_are_taken_as_they_are() {
    for text in ["a", "GMAIL_SEND_EMAIL", "work mailbox A", "konto-ü", "字", "__proto__", "a\u{301}", "spiffe://x/y"]
    {
        let identifier = Identifier::parse(text).unwrap();
        assert_eq!(identifier.as_str(), text);
        assert_eq!(identifier.to_string(), text);
    }
}

#[test]
fn identifier_has_1_to_256_bytes() {
    assert_eq!(Identifier::parse(""), Err(IdentifierProblem::Empty));
    assert!(Identifier::parse(&"a".repeat(256)).is_ok());
    assert_eq!(Identifier::parse(&"a".repeat(257)), Err(IdentifierProblem::TooLong { bytes: 257 }));
    assert!(Identifier::parse(&"é".repeat(128)).is_ok());
    assert_eq!(Identifier::parse(&"é".repeat(129)), Err(IdentifierProblem::TooLong { bytes: 258 }));
}

#[test]
fn identifier_with_a_hidden_character_is_refused_wherever_it_stands() {
    for character in HIDDEN.iter().chain(&['\n', '\t']) {
        for (text, offset) in
            [(format!("{character}a"), 0), (format!("ab{character}c"), 2), (format!("a{character}"), 1)]
        {
            let problem = Identifier::parse(&text).unwrap_err();
            assert_eq!(problem, IdentifierProblem::Hidden { character: *character, offset }, "{text:?}");
        }
    }
}

#[test]
fn identifier_with_white_space_at_an_end_is_refused() {
    for text in [" a", "a ", " ", "\u{A0}a", "a\u{3000}", "a\u{2003}"] {
        assert_eq!(Identifier::parse(text), Err(IdentifierProblem::WhiteSpaceAtEnd), "{text:?}");
    }
}

#[test]
fn identifiers_that_differ_in_case_or_normalisation_differ() {
    assert_ne!(Identifier::parse("Gmail"), Identifier::parse("gmail"));
    assert_ne!(Identifier::parse("\u{E9}"), Identifier::parse("e\u{301}"));
}

#[test]
fn problem_of_an_identifier_names_the_character_and_does_not_print_it() {
    let text = Identifier::parse("a\u{202E}b").unwrap_err().to_string();
    assert_eq!(text, "the character U+202E at byte 1 is not allowed");
}

#[test]
fn hidden_characters_become_escapes() {
    let shown = neutralise("pay\u{202E}oT\u{200B}\r\n\tx", LineBreaks::Keep);
    assert_eq!((&*shown.text, shown.escaped), ("pay\\u{202E}oT\\u{200B}\\u{D}\n\tx", 3));
    let line = neutralise("a\nb\tc", LineBreaks::Escape);
    assert_eq!((&*line.text, line.escaped), ("a\\u{A}b\\u{9}c", 2));
}

#[test]
fn ordinary_text_is_borrowed_and_unchanged() {
    for text in
        ["", "plain ~!", "Größe: 5 € für Zoë", "字は、\u{3000}漢字", "prix\u{202F}: 5\u{A0}€", "שלום", "👍🏽", "e\u{301}"]
    {
        let shown = neutralise(text, LineBreaks::Keep);
        assert!(matches!(shown.text, Cow::Borrowed(_)), "{text:?}");
        assert_eq!((&*shown.text, shown.escaped), (text, 0));
    }
}

#[test]
fn blanks_that_look_like_a_space_or_like_nothing_become_escapes() {
    assert_eq!(neutralise("a\u{2800}b\u{2003}c\u{1680}", LineBreaks::Keep).text, "a\\u{2800}b\\u{2003}c\\u{1680}");
    assert_eq!(neutralise("a\u{A0}b\u{202F}c\u{3000}", LineBreaks::Escape).text, "a\\u{A0}b\\u{202F}c\\u{3000}");
}

#[test]
fn a_tower_of_marks_is_cut_after_the_fourth() {
    let shown = neutralise("e\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}x\u{301}", LineBreaks::Keep);
    assert_eq!(shown.text, "e\u{301}\u{302}\u{303}\u{304}\\u{305}\\u{306}x\u{301}");
    assert_eq!(shown.escaped, 2);
}

#[test]
fn a_mark_cannot_stand_on_text_that_is_not_its_own() {
    for (text, shown) in [
        ("\u{338}a", "\\u{338}a"),
        ("a\n\u{338}b", "a\n\\u{338}b"),
        ("\u{200B}\u{338}", "\\u{200B}\\u{338}"),
        ("\u{20DD}", "\\u{20DD}"),
    ] {
        assert_eq!(neutralise(text, LineBreaks::Keep).text, shown, "{text:?}");
    }
}

#[test]
fn words_of_mixed_scripts_are_counted() {
    for (text, count) in [
        ("paypal", 0),
        ("p\u{430}ypal", 1),
        ("p\u{430}ypal.com p\u{430}y \u{430}\u{440}", 2),
        ("\u{3B1}lpha", 1),
        ("p\u{200B}\u{430}y", 1),
        ("p\u{301}\u{430}", 1),
        ("имя name", 0),
        ("имя-name имя_name", 0),
        ("größe 字a", 0),
    ] {
        assert_eq!(confusable_words(text), count, "{text:?}");
    }
}

#[test]
fn forged_addresses_are_counted() {
    for text in [
        "kim@\u{430}\u{440}\u{435}\u{445}.com",
        "\u{43A}\u{456}\u{43C}@apex.com",
        "\u{430}\u{440}\u{435}\u{445}.com",
        "https://\u{430}\u{440}\u{435}\u{445}.com/login",
        "k\u{F6}nig@apex.com",
        "kim@ap\u{E9}x.com",
        "ｋｉｍ@apex.com",
        "ａｐｅｘ.com",
        "ａｐｅｘ．ｃｏｍ",
        "kim＠apex.com",
        "\u{1D424}\u{1D422}\u{1D426}@apex.com",
        "\u{1D41A}\u{1D429}\u{1D41E}\u{1D431}.com",
        "apex\u{2024}com",
        "apex\u{3002}com",
        "apex.com\u{2044}login.evil.example",
        "apex.com\u{2215}login",
        "apex.com\u{30CE}login.evil.example",
        "apex\u{2010}bank.com",
        "kim@apex.com\u{A0}.evil.example",
        "apex.com\u{A0}evil.example",
        "\u{251}pex.com",
        "ap\u{131}x.com",
        "\u{13A0}pex.com",
    ] {
        assert_eq!(confusable_words(&format!("to {text}, please")), 1, "{text:?}");
    }
    assert_eq!(confusable_words("\u{430}\u{440}\u{435}\u{445}.com p\u{430}y kim＠apex.com ok"), 3);
}

#[test]
fn prose_of_any_script_is_not_counted() {
    for text in [
        "Köln, naïve Größe: 5 € für Zoë, z.B.\u{A0}Köln/Bonn",
        "Die Node.js-Lösung von „apex.com“ und »apex.com« kostet 5.000\u{A0}km",
        "«\u{A0}exemple.com\u{A0}»\u{A0}: voilà l’été, d’apex.com\u{A0}!",
        "Привет, как дела? Это письмо.Да и/или нет: протокол TCP/IP-сети.",
        "Γειά σου, τι κάνεις; και/ή όχι",
        "これはテストです。次はexample.comです。価格：１００円、ＡＢＣ",
        "请访问example.com。谢谢！第１章",
        "안녕하세요. example.com에서 만나요",
        "สวัสดีexample.comครับ",
        "שלום עולם. مرحبا بالعالم",
        "see apex.com\u{2014}it’s fine… “kim@apex.com” ‘apex.com’s’ • a.b",
        "👍 ok, kim@apex.com 👍🏽",
        "kim@apex.com \u{2014} 5 €",
    ] {
        assert_eq!(confusable_words(text), 0, "{text:?}");
    }
}

#[test]
fn note_is_bounded_in_characters_and_stored_without_anything_hidden() {
    assert_eq!(bounded_note("", 5).unwrap(), "");
    assert_eq!(bounded_note("a\nb\u{202E}", 5).unwrap(), "a\nb\\u{202E}");
    assert!(bounded_note("ééééé", 5).is_ok());
    assert_eq!(bounded_note("éééééé", 5), Err(NoteProblem::TooLong { max_chars: 5 }));
    let worst = bounded_note(&"\u{10FFFF}".repeat(NOTE_CHARACTERS), NOTE_CHARACTERS).unwrap();
    assert_eq!(worst.len(), 10 * NOTE_CHARACTERS);
}

proptest! {
    #[test]
    fn neutralised_text_hides_nothing(text in hostile_text(), keep in any::<bool>()) {
        let line_breaks = if keep { LineBreaks::Keep } else { LineBreaks::Escape };
        let shown = neutralise(&text, line_breaks);
        for character in shown.text.chars() {
            prop_assert!(!is_hidden(character) || (keep && matches!(character, '\n' | '\t')), "{character:?}");
        }
        prop_assert!(shown.text.len() <= 6 * text.len());
        prop_assert_eq!(shown.escaped == 0, shown.text == text);
        let again = neutralise(&shown.text, line_breaks);
        prop_assert_eq!(again.escaped, 0);
    }

    #[test]
    fn identifier_is_taken_exactly_if_neutral_and_within_bounds(text in hostile_text()) {
        let hidden = text.chars().any(is_hidden);
        let bounded = (1..=256).contains(&text.len());
        let ends = text.trim() != text;
        prop_assert_eq!(Identifier::parse(&text).is_ok(), bounded && !hidden && !ends);
    }
}

fn hostile_text() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        4 => prop::char::range('a', 'z'),
        2 => prop::sample::select(HIDDEN),
        1 => prop::sample::select(&['\n', '\t', ' ', '\u{A0}', '\u{3000}', '\u{2800}', '\u{301}', '\u{20DD}'][..]),
        2 => any::<char>(),
    ];
    prop::collection::vec(character, 0..40).prop_map(|characters| characters.into_iter().collect())
}
