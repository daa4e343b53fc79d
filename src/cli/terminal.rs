//! What a terminal shows and reads. Everything that others wrote is neutralised once more before it is printed, so that no
//! text can move the cursor, hide another or look like a line of ours.

use crate::domain::text::{LineBreaks, is_hidden, neutralise};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal as _, Read as _, Write};

/// The columns that our own lines keep to; a longer word is left whole, so that it can be copied.
pub(super) const WIDTH: usize = 100;

/// A person who has not answered after so many tries is not going to.
const TRIES: usize = 3;
/// An answer is a word; a longer line is none.
const ANSWER_BYTES: u64 = 256;

/// A text that stands within a line of ours.
pub(super) fn safe(text: &str) -> Cow<'_, str> {
    neutralise(text, LineBreaks::Escape).text
}

/// Words of `text` in lines of at most `width` characters; at least one line.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut length) = (String::new(), 0);
    for word in text.split(' ') {
        let word_length = word.chars().count();
        if length > 0 && length + 1 + word_length > width {
            lines.push(std::mem::take(&mut line));
            length = 0;
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        line.push_str(word);
        length += word_length;
    }
    lines.push(line);
    lines
}

/// Lines of `label  text`, in which labels have a column of their own and long texts go on below themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Spaces before a label.
    pub(super) indent: usize,
    /// The columns of a label, the space after it included.
    pub(super) label: usize,
}

impl Layout {
    /// One labelled text of others; it is made safe.
    pub(super) fn field(self, out: &mut dyn Write, label: &str, text: &str) -> io::Result<()> {
        let text = safe(text);
        self.lines(out, label, wrap(&text, WIDTH.saturating_sub(self.indent + self.label)))
    }

    /// As [`Layout::field`], and nothing at all where the text is empty.
    pub(super) fn optional(self, out: &mut dyn Write, label: &str, text: &str) -> io::Result<()> {
        if text.is_empty() { Ok(()) } else { self.field(out, label, text) }
    }

    /// Labelled lines, which must be safe already.
    pub(super) fn lines(
        self,
        out: &mut dyn Write,
        label: &str,
        lines: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> io::Result<()> {
        let mut label = label;
        for line in lines {
            let text =
                format!("{:indent$}{label:<width$}{}", "", line.as_ref(), indent = self.indent, width = self.label);
            writeln!(out, "{}", text.trim_end())?;
            label = "";
        }
        Ok(())
    }
}

/// Rows in columns as wide as their widest cell, all made safe; a cell longer than `longest` characters is cut.
pub(super) fn table(out: &mut dyn Write, indent: usize, longest: usize, rows: &[Vec<String>]) -> io::Result<()> {
    let cell = |text: &String| {
        let text = safe(text);
        match text.char_indices().nth(longest) {
            None => text.into_owned(),
            Some(_) => text.chars().take(longest.saturating_sub(1)).chain(['…']).collect(),
        }
    };
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    let mut widths: Vec<usize> = Vec::new();
    for row in &rows {
        for (column, text) in row.iter().enumerate() {
            let length = text.chars().count();
            match widths.get_mut(column) {
                Some(width) => *width = (*width).max(length),
                None => widths.push(length),
            }
        }
    }
    for row in rows {
        let mut line = " ".repeat(indent);
        for (text, width) in row.iter().zip(&widths) {
            // Writing to a string does not fail.
            let _ = write!(line, "{text:<width$}  ");
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// JSON for programs that is harmless on a terminal too: what a terminal would interpret or not show is escaped as JSON
/// escapes it, so that no text is lost.
pub(super) fn json(value: &Value) -> String {
    let text = format!("{value:#}");
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        // Line feeds are of the layout: those of a string are escaped already.
        if character != '\n' && is_hidden(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Asks the person at standard input for yes or no, again where the answer is neither; none if the input ends or never
/// answers.
///
/// # Errors
/// The input or the output fails.
pub(super) async fn ask(question: &str, out: &mut dyn Write) -> io::Result<Option<bool>> {
    // Reading waits for a person: on a thread of its own, so that everything else goes on.
    let read = async || {
        let line = tokio::task::spawn_blocking(|| answer(&mut io::stdin().lock()));
        line.await.map_err(io::Error::other)?
    };
    let answer = ask_with(question, read, out).await?;
    // At a terminal the person's own line feed has ended the line.
    if let (Some(yes), false) = (answer, io::stdin().is_terminal()) {
        writeln!(out, "{}", if yes { "yes" } else { "no" })?;
    }
    Ok(answer)
}

async fn ask_with(
    question: &str,
    mut read: impl AsyncFnMut() -> io::Result<Answer>,
    out: &mut dyn Write,
) -> io::Result<Option<bool>> {
    for _ in 0..TRIES {
        write!(out, "{question} [y]es/[n]o: ")?;
        out.flush()?;
        match read().await? {
            Answer::Yes => return Ok(Some(true)),
            Answer::No => return Ok(Some(false)),
            Answer::Neither => writeln!(out, "Please answer y or n.")?,
            Answer::End => {
                writeln!(out)?;
                return Ok(None);
            }
        }
    }
    Ok(None)
}

/// What a line of input says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    Neither,
    End,
}

fn answer(input: &mut dyn BufRead) -> io::Result<Answer> {
    let mut line = Vec::new();
    if input.take(ANSWER_BYTES).read_until(b'\n', &mut line)? == 0 {
        return Ok(Answer::End);
    }
    if !line.ends_with(b"\n") {
        // The rest of a long line is no further answer.
        loop {
            let mut rest = Vec::new();
            let read = input.take(ANSWER_BYTES).read_until(b'\n', &mut rest)?;
            if read == 0 || rest.ends_with(b"\n") {
                break;
            }
        }
    }
    let word = String::from_utf8_lossy(&line).trim().to_ascii_lowercase();
    Ok(match word.as_str() {
        "y" | "yes" => Answer::Yes,
        "n" | "no" => Answer::No,
        _ => Answer::Neither,
    })
}

#[cfg(test)]
mod tests {
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
    fn lines_keep_to_the_width_and_words_stay_whole() {
        let text = format!("{} {}", "word ".repeat(40), "x".repeat(150));
        let lines = wrap(&text, 80);
        assert!(lines.iter().all(|line| line.chars().count() <= 80 || line.len() == 150), "{lines:?}");
        assert_eq!(wrap("", 80), [""]);
        let mut out = Vec::new();
        Layout { indent: 2, label: 6 }.field(&mut out, "note", &"abc ".repeat(40)).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.starts_with("  note  abc ") && out.lines().nth(1).unwrap().starts_with("        abc"), "{out}");
        assert!(out.lines().all(|line| line.len() <= WIDTH));
    }

    #[test]
    fn a_field_cannot_make_a_line_of_its_own() {
        let mut out = Vec::new();
        Layout { indent: 2, label: 8 }.field(&mut out, "agent", "a\n  state   approved\u{1b}[1A").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "  agent   a\\u{A}  state   approved\\u{1B}[1A\n");
        let mut out = Vec::new();
        table(&mut out, 0, 8, &[vec!["a\tb".to_owned(), "c".to_owned()], vec!["123456789".to_owned()]]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a\\u{9}b   c\n1234567…\n");
    }
}
