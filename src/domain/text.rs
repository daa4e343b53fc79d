//! Text that people and logs are shown, and the identifiers made of it.
//!
//! Two texts that differ must not look alike because a character of one cannot be seen, and no text may reorder or
//! cover the text beside it. What could do so is *hidden*: control, format (bidirectional controls among them),
//! private-use and unassigned characters, line and paragraph separators, and whatever Unicode calls default-ignorable.
//! An identifier with such a character is refused; in every other text it becomes a visible escape, `\u{202E}`.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

use icu_properties::props::{DefaultIgnorableCodePoint, GeneralCategory, Script};
use icu_properties::{CodePointMapData, CodePointSetData};

/// The longest identifier, in bytes of UTF-8: room for a SPIFFE id or a mail address, small enough for an index.
pub const MAX_IDENTIFIER_BYTES: usize = 256;

/// So many combining marks may stand on one character (UTS 39 draws the line there); further ones are escaped, since
/// a tower of marks covers the lines above it.
const MAX_MARKS: u32 = 4;

/// A name that a caller gives to something: principal, agent, connector, action and the like.
///
/// 1 to [`MAX_IDENTIFIER_BYTES`] bytes of UTF-8 without hidden characters and without white space at the ends.
/// Compared byte for byte: no case folding, no normalisation. Cloning shares the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identifier(Arc<str>);

/// Why a text is not an [`Identifier`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentifierProblem {
    /// It has no character at all.
    Empty,
    /// It is longer than [`MAX_IDENTIFIER_BYTES`].
    TooLong {
        /// Its length, in bytes.
        bytes: usize,
    },
    /// It contains a character that cannot be seen; see [`is_hidden`].
    Hidden {
        /// The first such character.
        character: char,
        /// Where it stands, in bytes from the start.
        offset: usize,
    },
    /// White space stands at its start or its end.
    WhiteSpaceAtEnd,
}

/// What becomes of line feeds and tabs when a text is neutralised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineBreaks {
    /// Line feed and tab stay: for prose, such as a value in a preview or a note. So do the no-break and ideographic
    /// spaces, which are ordinary in French and East Asian prose.
    Keep,
    /// They are escaped: for text that stands within a line of ours, such as an identifier or a member's name. No
    /// character but U+0020 may look like a space there.
    Escape,
}

/// A text in which nothing is hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neutralised<'a> {
    /// The text, with escapes in place of what was hidden.
    pub text: Cow<'a, str>,
    /// How many characters were escaped.
    pub escaped: u64,
}

/// Why a caller's free text is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteProblem {
    /// It has more characters than allowed.
    TooLong {
        /// The limit, in characters.
        max_chars: usize,
    },
}

impl Identifier {
    /// Takes `text` as an identifier, or says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, IdentifierProblem> {
        if text.is_empty() {
            return Err(IdentifierProblem::Empty);
        }
        if text.len() > MAX_IDENTIFIER_BYTES {
            return Err(IdentifierProblem::TooLong { bytes: text.len() });
        }
        if !is_plain_ascii(text)
            && let Some((offset, character)) = text.char_indices().find(|(_, character)| is_hidden(*character))
        {
            return Err(IdentifierProblem::Hidden { character, offset });
        }
        if text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace) {
            return Err(IdentifierProblem::WhiteSpaceAtEnd);
        }
        Ok(Self(Arc::from(text)))
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Identifier {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Lets a map of identifiers be asked with a plain text; equality, order and hash are those of the text.
impl Borrow<str> for Identifier {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Identifier {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Identifier {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for Identifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", &*self.0)
    }
}

impl fmt::Display for IdentifierProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(formatter, "it is empty"),
            Self::TooLong { bytes } => {
                write!(formatter, "it has {bytes} bytes, at most {MAX_IDENTIFIER_BYTES} are allowed")
            }
            Self::Hidden { character, offset } => {
                write!(formatter, "the character U+{:04X} at byte {offset} is not allowed", u32::from(*character))
            }
            Self::WhiteSpaceAtEnd => write!(formatter, "it starts or ends with white space"),
        }
    }
}

impl std::error::Error for IdentifierProblem {}

impl fmt::Display for NoteProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { max_chars } => write!(formatter, "it has more than {max_chars} characters"),
        }
    }
}

impl std::error::Error for NoteProblem {}

/// Whether a character cannot be seen, or moves or covers others: it has no place in an identifier, and is escaped
/// wherever a person reads.
pub fn is_hidden(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    // The other categories are letters, marks, numbers, punctuation, symbols and spaces.
    let hidden_category = matches!(
        CodePointMapData::<GeneralCategory>::new().get(character),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::PrivateUse
            | GeneralCategory::Surrogate
            | GeneralCategory::Unassigned
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
    );
    // Drawn as nothing, though to Unicode a symbol (a null notehead) and a letter (a filler of Khitan script).
    let blank = matches!(character, '\u{1D159}' | '\u{16FE4}');
    hidden_category || blank || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(character)
}

/// Replaces whatever is hidden, or only looks empty, by a visible escape such as `\u{202E}`.
///
/// Escaped are hidden characters ([`is_hidden`]; with [`LineBreaks::Keep`] line feed and tab stay), blanks that cannot
/// be told from a space or from nothing ([`LineBreaks`] says which stay), combining marks without a character to stand
/// on, and those beyond the fourth on one character. A carriage return is a control character and is escaped.
///
/// The text grows at most sixfold. Ordinary ASCII is borrowed. Neutralising twice changes nothing more.
pub fn neutralise(text: &str, line_breaks: LineBreaks) -> Neutralised<'_> {
    if is_plain_ascii(text) {
        return Neutralised { text: Cow::Borrowed(text), escaped: 0 };
    }
    let mut changed = String::new();
    let mut escaped = 0_u64;
    // Where the text not yet copied starts; while nothing was escaped, nothing is copied.
    let mut pending = 0;
    let mut marks = MAX_MARKS;
    for (offset, character) in text.char_indices() {
        let combining = !character.is_ascii() && is_combining(character);
        let shown = if combining {
            marks = marks.saturating_add(1);
            marks <= MAX_MARKS && !is_hidden(character)
        } else {
            is_shown(character, line_breaks)
        };
        if !shown {
            changed.push_str(text.get(pending..offset).unwrap_or_default());
            push_escape(character, &mut changed);
            escaped += 1;
            pending = offset + character.len_utf8();
        }
        if !shown || matches!(character, '\n' | '\t') {
            // A mark on an escape or on a line break would change the look of what is ours.
            marks = MAX_MARKS;
        } else if !combining {
            marks = 0;
        }
    }
    if escaped == 0 {
        return Neutralised { text: Cow::Borrowed(text), escaped };
    }
    changed.push_str(text.get(pending..).unwrap_or_default());
    Neutralised { text: Cow::Owned(changed), escaped }
}

/// How many words may not be what they look like, as a forged name or address.
///
/// In prose a word is a run of letters, digits and marks, and one that mixes Latin with Cyrillic or Greek letters
/// counts; hidden characters do not end it. What is written like an address, up to white space of ASCII, is one word,
/// and counts if anything in it can be taken for something else: with an `@`, any letter or punctuation beyond ASCII;
/// without, but with a `.` before a label of ASCII letters, letters of scripts that resemble Latin. Full-width and
/// mathematical letters, and what only looks like `@`, `.` or `/`, make an address as the genuine ones do. Quotes, long
/// dashes and accents, and scripts that are written without spaces around an address, are ordinary and do not count.
pub fn confusable_words(text: &str) -> u64 {
    if text.is_ascii() {
        return 0;
    }
    text.split(|character: char| character.is_ascii_whitespace())
        .filter(|word| !word.is_ascii())
        .map(|word| mixed_runs(word).max(u64::from(is_forged_address(word))))
        .fold(0, u64::saturating_add)
}

/// Whether a word is written like an address and is not what it looks like.
fn is_forged_address(word: &str) -> bool {
    let word = word.trim_matches(|character: char| !character.is_alphanumeric());
    let looks: Vec<char> = word.chars().map(look).collect();
    let is_plain = |at: Option<usize>| at.and_then(|at| looks.get(at)).is_some_and(char::is_ascii_alphanumeric);
    let is_letter = |at: usize| looks.get(at).is_some_and(char::is_ascii_alphabetic);
    let is_joint =
        |at: Option<usize>| at.and_then(|at| looks.get(at)).is_some_and(|look| matches!(look, '.' | '@' | '/' | '-'));
    let scripts = CodePointMapData::<Script>::new();
    let unspaced = word.chars().any(|character| is_unspaced(scripts.get(character)));
    let (mut mailbox, mut domain) = (false, false);
    let (mut foreign, mut lookalike) = (false, false);
    for (at, (character, look)) in word.chars().zip(&looks).enumerate() {
        // In a script without spaces the full stop U+3002 ends a sentence before the next one.
        let sentence_end = unspaced && matches!(character, '\u{3002}' | '\u{FF0E}' | '\u{FF61}');
        mailbox |= *look == '@';
        domain |= *look == '.' && !sentence_end && is_letter(at + 1) && is_letter(at + 2);
        if character.is_ascii() || is_combining(character) || is_hidden(character) && !character.is_whitespace() {
            continue;
        }
        let script = scripts.get(character);
        let between = is_plain(at.checked_sub(1)) && is_plain(Some(at + 1));
        if character.is_alphabetic() && *look != '/' {
            foreign = true;
            lookalike |= if *look == character {
                !(is_unspaced(script) || is_accented_latin(character, script))
            } else {
                // Full-width letters are ordinary in East Asian prose, away from an address.
                !unspaced || is_joint(at.checked_sub(1)) || is_joint(Some(at + 1))
            };
        } else if matches!(look, '.' | '/' | '@' | '-') && !sentence_end {
            lookalike |= between || !unspaced;
        } else if *look != character || character.is_whitespace() {
            lookalike |= !unspaced;
        } else {
            foreign |= !unspaced && !is_prose_punctuation(character);
        }
    }
    mailbox && (foreign || lookalike) || domain && lookalike
}

/// The ASCII character that a compatibility form or a piece of punctuation is taken for; others as they are.
fn look(character: char) -> char {
    match character {
        '\u{FF01}'..='\u{FF5E}' => char::from_u32(u32::from(character).saturating_sub(0xFEE0)).unwrap_or(character),
        '\u{FE6B}' => '@',
        '\u{2024}' | '\u{3002}' | '\u{FF61}' | '\u{FE52}' | '\u{B7}' | '\u{2027}' | '\u{A4F8}' | '\u{6D4}'
        | '\u{701}' | '\u{702}' => '.',
        '\u{2044}' | '\u{2215}' | '\u{2571}' | '\u{29F8}' | '\u{30CE}' | '\u{4E3F}' | '\u{3033}' => '/',
        '\u{2010}'..='\u{2013}' | '\u{2212}' | '\u{2043}' | '\u{FE58}' | '\u{FE63}' => '-',
        // Mathematical, letterlike and encircled letters and digits.
        '\u{1D400}'..='\u{1D7CB}' | '\u{2100}'..='\u{214F}' | '\u{24B6}'..='\u{24E9}' | '\u{1F130}'..='\u{1F189}'
            if character.is_alphabetic() =>
        {
            'x'
        }
        '\u{1D7CE}'..='\u{1D7FF}' => '0',
        _ => character,
    }
}

/// Scripts whose prose has no spaces (or hardly any) around an address, and whose letters resemble no Latin ones.
fn is_unspaced(script: Script) -> bool {
    [
        Script::Han,
        Script::Hiragana,
        Script::Katakana,
        Script::Hangul,
        Script::Bopomofo,
        Script::Thai,
        Script::Lao,
        Script::Khmer,
        Script::Myanmar,
    ]
    .contains(&script)
}

/// A Latin letter that differs from those of ASCII as readers of European languages know it.
fn is_accented_latin(character: char, script: Script) -> bool {
    script == Script::Latin
        && matches!(character, '\u{AA}'..='\u{24F}' | '\u{1E00}'..='\u{1EFF}')
        && !matches!(character, '\u{131}' | '\u{17F}' | '\u{1C0}'..='\u{1C3}')
}

/// Quotes, the long dash and the like, which stand next to an address in prose.
fn is_prose_punctuation(character: char) -> bool {
    matches!(
        CodePointMapData::<GeneralCategory>::new().get(character),
        GeneralCategory::InitialPunctuation | GeneralCategory::FinalPunctuation
    ) || matches!(character, '\u{2014}' | '\u{2026}' | '\u{201E}' | '\u{201A}' | '\u{2022}')
}

fn mixed_runs(word: &str) -> u64 {
    let scripts = CodePointMapData::<Script>::new();
    let mut runs = 0_u64;
    let (mut latin, mut lookalike) = (false, false);
    for character in word.chars() {
        if character.is_ascii_alphabetic() {
            latin = true;
        } else if character.is_alphanumeric() {
            let script = scripts.get(character);
            latin |= script == Script::Latin;
            lookalike |= script == Script::Cyrillic || script == Script::Greek;
        } else if character.is_ascii() || !(is_combining(character) || is_hidden(character)) {
            runs += u64::from(latin && lookalike);
            (latin, lookalike) = (false, false);
        }
    }
    runs + u64::from(latin && lookalike)
}

/// A caller's free text (a reason, an agent's note) as it is stored and shown: neutralised, line feeds and tabs kept.
///
/// At most `max_chars` characters as they were handed over. What is stored is therefore bounded too: the longest
/// escape, that of one hidden character, has ten bytes.
pub fn bounded_note(text: &str, max_chars: usize) -> Result<String, NoteProblem> {
    // Counting stops at the limit, so that a huge text costs no more than a long one.
    if text.chars().nth(max_chars).is_some() {
        return Err(NoteProblem::TooLong { max_chars });
    }
    Ok(neutralise(text, LineBreaks::Keep).text.into_owned())
}

/// Printable ASCII and nothing else: nothing to check and nothing to escape.
fn is_plain_ascii(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Whether a character that is no combining mark is shown as it is.
fn is_shown(character: char, line_breaks: LineBreaks) -> bool {
    let keep = line_breaks == LineBreaks::Keep;
    match character {
        '\n' | '\t' => keep,
        ' '..='~' => true,
        // No-break, narrow no-break and ideographic space.
        '\u{A0}' | '\u{202F}' | '\u{3000}' => keep,
        // The empty Braille pattern is a symbol to Unicode and a blank to the eye.
        '\u{2800}' => false,
        _ => !is_hidden(character) && !character.is_whitespace(),
    }
}

/// A mark that is drawn on the character before it, rather than beside it.
fn is_combining(character: char) -> bool {
    matches!(
        CodePointMapData::<GeneralCategory>::new().get(character),
        GeneralCategory::NonspacingMark | GeneralCategory::EnclosingMark
    )
}

fn push_escape(character: char, text: &mut String) {
    text.extend(format!("\\u{{{:X}}}", u32::from(character)).chars());
}

#[cfg(test)]
mod tests;
