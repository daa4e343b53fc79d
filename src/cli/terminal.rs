//! What a terminal shows and reads. Everything that others wrote is neutralised once more before it is printed, so that no
//! text can move the cursor, hide another or look like a line of ours.

use crate::domain::text::{LineBreaks, is_hidden, neutralise};
use icu_properties::CodePointMapData;
use icu_properties::props::{EastAsianWidth, GeneralCategory, GeneralCategoryGroup};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal as _, Read as _, Write};
use std::os::fd::AsFd;

/// The most columns that are used, however wide the terminal is.
const WIDEST: usize = 100;
/// The columns where no terminal says how many it has: what is piped is mostly read in a window of this size.
const UNKNOWN: usize = 80;
/// A narrower terminal has no room for labels, and is taken for this wide.
const NARROWEST: usize = 20;
/// A column of texts narrower than this is not worth having: labels get lines of their own.
const LEAST_TEXT: usize = 24;
/// What stands before each row that another's text could otherwise begin. No line of ours starts with it.
const BAR: &str = "| ";
/// As [`BAR`], where the row goes on with a member of JSON that began above. No text can make the one into the other.
const BAR_ON: &str = "|>";

/// A person who has not answered after so many tries is not going to.
const TRIES: usize = 3;
/// An answer is a word; a longer line is none.
const ANSWER_BYTES: u64 = 256;

/// A text that stands within a line of ours.
pub(super) fn safe(text: &str) -> Cow<'_, str> {
    neutralise(text, LineBreaks::Escape).text
}

/// The columns that everything keeps to: those of the narrowest terminal that this process is at, at most 100.
///
/// Output that is piped counts as well: what is read in a pager wraps at the pager's terminal.
pub(super) fn width() -> usize {
    let terminals = [columns(&io::stdin()), columns(&io::stdout()), columns(&io::stderr())];
    terminals.into_iter().flatten().min().unwrap_or(UNKNOWN).clamp(NARROWEST, WIDEST)
}

fn columns(stream: &impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    // A terminal without a size says 0.
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// The most columns that a terminal could take for `text`: an upper bound, so that a row that keeps to it never becomes
/// two. Terminals differ on symbols and on East Asia's ambiguous letters, and some draw marks beside their letter.
pub(super) fn columns_of(text: &str) -> usize {
    text.chars().map(columns_of_character).sum()
}

fn columns_of_character(character: char) -> usize {
    if character.is_ascii() {
        return 1;
    }
    // The longest dash has its name from its width.
    if character == '\u{2E3B}' {
        return 3;
    }
    let narrow = matches!(
        CodePointMapData::<EastAsianWidth>::new().get(character),
        EastAsianWidth::Neutral | EastAsianWidth::Narrow | EastAsianWidth::Halfwidth
    );
    // Letters, marks and digits are as wide as the table says; emoji of any kind are symbols to it or lie above.
    if narrow && (character.is_alphanumeric() || is_mark(character)) && character < '\u{10000}' { 1 } else { 2 }
}

fn is_mark(character: char) -> bool {
    GeneralCategoryGroup::Mark.contains(CodePointMapData::<GeneralCategory>::new().get(character))
}

/// What becomes of the blanks between two rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// They are left out, as between lines of prose.
    Drop,
    /// They begin the next row: a value is shown with every character that it has.
    Keep,
}

/// Prose in rows of at most `width` columns (see [`columns_of`]); at least one row. Words that are longer are broken.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    rows(text, width, Between::Drop)
}

fn rows(text: &str, width: usize, between: Between) -> Vec<String> {
    let mut rows = Vec::new();
    let mut row = String::new();
    let mut filled = 0;
    // A value is broken within a word rather than to leave half of a row empty.
    let least = if between == Between::Keep { width / 2 } else { 0 };
    // The last blank of the row that has more than that before it: its place, and the columns up to it.
    let mut blank: Option<(usize, usize)> = None;
    for cluster in clusters(text) {
        let columns = columns_of(cluster);
        while filled > 0 && filled + columns > width {
            let rest = match blank.take() {
                Some((place, before)) if cluster != " " => {
                    filled -= before;
                    row.split_off(place)
                }
                _ => {
                    filled = 0;
                    String::new()
                }
            };
            rows.push(std::mem::replace(&mut row, rest));
            if between == Between::Drop {
                let kept = row.trim_start_matches(' ').to_owned();
                filled -= row.len() - kept.len();
                row = kept;
            }
        }
        if cluster == " " {
            if between == Between::Drop && filled == 0 && !rows.is_empty() {
                continue;
            }
            if filled > least {
                blank = Some((row.len(), filled));
            }
        }
        row.push_str(cluster);
        filled += columns;
    }
    rows.push(row);
    rows
}

/// Characters with the marks that are drawn on them: [`neutralise`] leaves four at most, so that none is wider than a row.
fn clusters(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut places = rest.char_indices().skip(1);
        let end = places.find(|(_, character)| !is_drawn_on_another(*character)).map_or(rest.len(), |(place, _)| place);
        let (cluster, after) = rest.split_at_checked(end)?;
        rest = after;
        (!cluster.is_empty()).then_some(cluster)
    })
}

fn is_drawn_on_another(character: char) -> bool {
    let category = CodePointMapData::<GeneralCategory>::new().get(character);
    matches!(category, GeneralCategory::NonspacingMark | GeneralCategory::EnclosingMark)
}

/// Lines of `label  text`, in which labels have a column of their own and long texts go on below themselves.
///
/// Whatever another wrote, no row but that with our label is without a bar.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Spaces before a label.
    pub(super) indent: usize,
    /// The columns of a label, the space after it included.
    pub(super) label: usize,
    /// The columns of all of it.
    pub(super) width: usize,
}

impl Layout {
    /// As wide as the terminal, see [`width`].
    pub(super) fn new(indent: usize, label: usize) -> Self {
        Self { indent, label, width: width() }
    }

    /// One labelled text of others; it is made safe. Where it takes several rows, those after the first have a bar.
    pub(super) fn field(self, out: &mut dyn Write, label: &str, text: &str) -> io::Result<()> {
        let text = safe(text);
        let labelled = !label.is_empty() && self.has_column();
        if labelled && columns_of(&text) <= self.room() {
            return self.lines(out, label, [text]);
        }
        // A digest that fits behind its label is not broken, so that it can be compared and copied.
        if labelled && !text.contains(' ') && self.indent + label.len() + 1 + columns_of(&text) <= self.width {
            return Self { label: label.len() + 1, ..self }.lines(out, label, [text]);
        }
        let rows = wrap(&text, self.room().saturating_sub(BAR.len())).into_iter().enumerate();
        self.lines(out, label, rows.map(|(row, text)| if labelled && row == 0 { text } else { format!("{BAR}{text}") }))
    }

    /// As [`Layout::field`], and nothing at all where the text is empty.
    pub(super) fn optional(self, out: &mut dyn Write, label: &str, text: &str) -> io::Result<()> {
        if text.is_empty() { Ok(()) } else { self.field(out, label, text) }
    }

    /// Prose of another's, line by line, with a bar before every row; blanks of any kind become spaces.
    pub(super) fn quote(self, out: &mut dyn Write, label: &str, text: &str) -> io::Result<()> {
        let text: String = neutralise(text, LineBreaks::Keep)
            .text
            .replace('\t', "  ")
            .chars()
            .map(|character| if character != '\n' && character.is_whitespace() { ' ' } else { character })
            .collect();
        let room = self.room().saturating_sub(BAR.len());
        let rows = text.split('\n').flat_map(|line| wrap(line, room)).map(|row| format!("{BAR}{row}"));
        self.lines(out, label, rows)
    }

    /// Lines of a value, safe but for their length, with a bar before every row and another where a line goes on. No
    /// character is left out.
    pub(super) fn value(self, out: &mut dyn Write, label: &str, lines: &[String]) -> io::Result<()> {
        let room = self.room().saturating_sub(BAR.len());
        let rows = lines.iter().flat_map(|line| {
            let bars = [BAR].into_iter().chain(std::iter::repeat(BAR_ON));
            rows(line, room, Between::Keep).into_iter().zip(bars).map(|(row, bar)| format!("{bar}{row}"))
        });
        self.lines(out, label, rows)
    }

    /// Words of ours below a text of another's, without a bar.
    pub(super) fn ours(self, out: &mut dyn Write, text: &str) -> io::Result<()> {
        self.lines(out, "", wrap(text, self.room()))
    }

    /// Labelled rows, which must be safe and short enough already.
    fn lines(
        self,
        out: &mut dyn Write,
        label: &str,
        lines: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> io::Result<()> {
        let (mut label, mut column) = (label, self.label);
        if !self.has_column() {
            if !label.is_empty() {
                writeln!(out, "{label}")?;
            }
            (label, column) = ("", 0);
        }
        let indent = if self.has_column() { self.indent } else { 0 };
        for line in lines {
            let text = format!("{:indent$}{label:<column$}{}", "", line.as_ref());
            writeln!(out, "{}", text.trim_end())?;
            label = "";
        }
        Ok(())
    }

    /// The columns of a text.
    fn room(self) -> usize {
        if self.has_column() { self.width.saturating_sub(self.indent + self.label) } else { self.width }
    }

    /// Whether there is room for labels beside texts.
    fn has_column(self) -> bool {
        self.width >= self.indent + self.label + LEAST_TEXT
    }
}

/// Rows in columns as wide as their widest cell, all made safe; a cell longer than `longest` characters is cut. On a
/// terminal that is too narrow the row goes on below itself, behind a bar; elsewhere a row is a line, for programs.
pub(super) fn table(out: &mut dyn Write, indent: usize, longest: usize, rows: &[Vec<String>]) -> io::Result<()> {
    let limit = columns(&io::stdout()).map(|columns| columns.max(NARROWEST));
    table_within(out, limit, indent, longest, rows)
}

fn table_within(
    out: &mut dyn Write,
    limit: Option<usize>,
    indent: usize,
    longest: usize,
    rows: &[Vec<String>],
) -> io::Result<()> {
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
            let padding = width.saturating_sub(text.chars().count()) + 2;
            line.push_str(text);
            line.push_str(&" ".repeat(padding));
        }
        let line = line.trim_end();
        let Some(limit) = limit.filter(|limit| columns_of(line) > *limit) else {
            writeln!(out, "{line}")?;
            continue;
        };
        for (number, row) in wrap(line, limit.saturating_sub(indent + BAR.len())).iter().enumerate() {
            let bar = if number > 0 { format!("{:indent$}{BAR}", "") } else { String::new() };
            writeln!(out, "{}", format!("{bar}{row}").trim_end())?;
        }
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
mod tests;
