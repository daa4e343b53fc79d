//! What reaches a terminal.

use super::*;
use serde_json::json;

fn asked(input: &str) -> (Option<bool>, String) {
    let (mut out, mut input) = (Vec::new(), input.as_bytes());
    let read = async || answer(&mut input);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let answer = runtime.block_on(ask_with("Allow this?", read, &mut out)).unwrap();
    (answer, String::from_utf8(out).unwrap())
}

#[test]
fn only_yes_and_no_are_answers() {
    for (input, want) in [
        ("y\n", Some(true)),
        ("YES\r\n", Some(true)),
        ("  n  \n", Some(false)),
        ("no", Some(false)),
        ("maybe\ny\n", Some(true)),
        ("\n\nno\n", Some(false)),
        ("", None),
        ("yes please\n", None),
        ("1\ntrue\nok\ny\n", None),
        ("maybe\n", None),
    ] {
        assert_eq!(asked(input).0, want, "{input:?}");
    }
}

#[test]
fn a_line_that_is_too_long_is_one_answer_and_its_end_is_not_another() {
    let long = format!("{}y\n", " ".repeat(256));
    assert_eq!(
        asked(&long),
        (None, "Allow this? [y]es/[n]o: Please answer y or n.\nAllow this? [y]es/[n]o: \n".to_owned())
    );
    assert_eq!(asked(&format!("{}\nn\n", "y".repeat(100_000))).0, Some(false));
}

#[test]
fn json_is_lossless_and_has_nothing_that_a_terminal_interprets() {
    let hostile = "\u{1b}[2J\u{9b}31m\u{202e}\u{7f}\u{e0001}é\n\"";
    let text = json(&json!({ "a": hostile, hostile: 1 }));
    assert!(text.chars().all(|character| character == '\n' || !is_hidden(character)), "{text:?}");
    assert!(text.contains('é'));
    let read: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["a"], hostile);
    assert_eq!(read[hostile], 1);
}

#[test]
fn rows_keep_to_the_width_and_break_between_words_where_they_can() {
    let text = format!("{} {}", "word ".repeat(40), "x".repeat(150));
    let rows = wrap(&text, 80);
    assert!(rows.iter().all(|row| columns_of(row) <= 80), "{rows:?}");
    assert!(rows.iter().take(2).all(|row| row.trim_end().ends_with("word")), "{rows:?}");
    assert_eq!(rows.concat().matches('x').count(), 150);
    assert_eq!(wrap("", 80), [""]);
    assert_eq!(wrap("exactly ten words", 7), ["exactly", "ten", "words"]);
    let mut out = Vec::new();
    Layout { indent: 2, label: 6, width: 80 }.field(&mut out, "note", &"abc ".repeat(40)).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.starts_with("  note  abc ") && out.lines().nth(1).unwrap().starts_with("        | abc"), "{out}");
    assert!(out.lines().all(|line| line.len() <= 80));
}

#[test]
fn a_value_loses_no_character_to_its_rows() {
    let text = format!("\"{}\"", "ab  c ".repeat(70) + &"x".repeat(99));
    for width in 6..120 {
        let rows = rows(&text, width, Between::Keep);
        assert_eq!(rows.concat(), text);
        assert!(rows.iter().all(|row| columns_of(row) <= width), "{width}: {rows:?}");
    }
}

#[test]
fn columns_are_never_fewer_than_a_terminal_takes() {
    for (text, least) in [
        ("abc", 3),
        ("\u{E9}", 1),
        ("\u{4E00}\u{FF21}", 4),
        ("\u{A1}\u{3B1}\u{2605}", 6),
        ("\u{1F600}\u{1F1E9}\u{1F321}", 6),
        ("\u{263A}", 2),
        ("a\u{301}", 1),
        ("\u{2E3B}", 3),
    ] {
        assert!(columns_of(text) >= least, "{text}");
    }
    assert_eq!(columns_of("\u{E4}\u{F6}\u{5D0}\u{E01}"), 4, "letters of one column stay so");
    assert_eq!(wrap("e\u{301}e\u{301}e\u{301}", 2), ["e\u{301}", "e\u{301}", "e\u{301}"], "a mark stays on its letter");
}

#[test]
fn a_row_of_a_table_goes_on_behind_a_bar_at_a_terminal_alone() {
    let rows = [vec!["id".to_owned(), "a".to_owned() + &" ".repeat(30) + "id  APPROVED"]];
    let table = |limit| {
        let mut out = Vec::new();
        table_within(&mut out, limit, 0, 60, &rows).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(table(None).lines().count(), 1);
    let narrow = table(Some(30));
    assert!(narrow.lines().count() > 1 && narrow.lines().skip(1).all(|line| line.starts_with('|')), "{narrow}");
    assert!(narrow.lines().all(|line| line.len() <= 30), "{narrow}");
}

#[test]
fn a_field_cannot_make_a_line_of_its_own() {
    let mut out = Vec::new();
    Layout { indent: 2, label: 8, width: 80 }.field(&mut out, "agent", "a\n  state   approved\u{1b}[1A").unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "  agent   a\\u{A}  state   approved\\u{1B}[1A\n");
    let mut out = Vec::new();
    table(&mut out, 0, 8, &[vec!["a\tb".to_owned(), "c".to_owned()], vec!["123456789".to_owned()]]).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "a\\u{9}b   c\n1234567…\n");
}
