//! Why a text is refused, and where.

use std::fmt;

use crate::domain::text::{LineBreaks, neutralise};

use super::{MAX_DEPTH, MAX_DIGITS, MAX_EXPONENT};

/// The most characters of one member's name in a pointer; a longer one is cut and ends in `…`.
const MAX_STEP_CHARS: usize = 64;

/// The most bytes of a pointer; a longer one is cut and ends in `…`.
const MAX_POINTER_BYTES: usize = 512;

/// A text that is not taken: what is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The JSON Pointer (RFC 6901) of the value with the problem; empty: the whole text. For a problem in a member's
    /// name, that of its object. Fit for printing: hidden characters are escaped, and it is at most about 512 bytes long.
    pub pointer: String,
    /// What is wrong.
    pub problem: Problem,
    /// Where the reader stood, in bytes from the start of the text.
    pub offset: usize,
}

/// What is wrong with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// It is longer than allowed.
    TooLarge {
        /// The limit, in bytes.
        max_bytes: usize,
    },
    /// It is not UTF-8.
    InvalidUtf8,
    /// It starts with a byte order mark.
    ByteOrderMark,
    /// It ends where more is needed.
    UnexpectedEnd,
    /// A character that JSON does not allow at this place.
    UnexpectedCharacter,
    /// After the value there is more.
    TrailingText,
    /// What stands at the top is not an object.
    NotAnObject,
    /// Objects and arrays are nested deeper than [`MAX_DEPTH`].
    TooDeep,
    /// An object has two members of one name, compared after unescaping.
    DuplicateMember,
    /// A `\u` escape names one half of a surrogate pair without the other.
    UnpairedSurrogate,
    /// A backslash is followed by what is no escape.
    InvalidEscape,
    /// A string contains a control character as it is, not escaped.
    ControlCharacter,
    /// A number is not written as JSON writes numbers.
    InvalidNumber,
    /// A number, or its exponent, has more than [`MAX_DIGITS`] digits.
    TooManyDigits,
    /// A number is written with an exponent beyond ±[`MAX_EXPONENT`].
    ExponentOutOfRange,
    /// A stored text is not in canonical form.
    NotCanonical,
}

/// One step from a value to what it is in; collected from the inside out while a refusal travels up.
#[derive(Debug)]
pub(super) enum Step {
    /// A member's name, unescaped.
    Name(String),
    /// An item's index.
    Index(usize),
}

impl Problem {
    /// Its stable name, for machines.
    pub fn code(self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "TOO_LARGE",
            Self::InvalidUtf8 => "INVALID_UTF8",
            Self::ByteOrderMark => "BYTE_ORDER_MARK",
            Self::UnexpectedEnd => "UNEXPECTED_END",
            Self::UnexpectedCharacter => "UNEXPECTED_CHARACTER",
            Self::TrailingText => "TRAILING_TEXT",
            Self::NotAnObject => "NOT_AN_OBJECT",
            Self::TooDeep => "TOO_DEEP",
            Self::DuplicateMember => "DUPLICATE_MEMBER",
            Self::UnpairedSurrogate => "UNPAIRED_SURROGATE",
            Self::InvalidEscape => "INVALID_ESCAPE",
            Self::ControlCharacter => "CONTROL_CHARACTER",
            Self::InvalidNumber => "INVALID_NUMBER",
            Self::TooManyDigits => "TOO_MANY_DIGITS",
            Self::ExponentOutOfRange => "EXPONENT_OUT_OF_RANGE",
            Self::NotCanonical => "NOT_CANONICAL",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { max_bytes } => write!(formatter, "the text is longer than {max_bytes} bytes"),
            Self::InvalidUtf8 => formatter.write_str("not UTF-8"),
            Self::ByteOrderMark => formatter.write_str("a byte order mark at the start"),
            Self::UnexpectedEnd => formatter.write_str("the text ends too early"),
            Self::UnexpectedCharacter => formatter.write_str("a character that JSON does not allow here"),
            Self::TrailingText => formatter.write_str("more text after the value"),
            Self::NotAnObject => formatter.write_str("an object is needed at the top"),
            Self::TooDeep => write!(formatter, "nested deeper than {MAX_DEPTH} levels"),
            Self::DuplicateMember => formatter.write_str("a second member of the same name"),
            Self::UnpairedSurrogate => formatter.write_str("an unpaired surrogate in a string"),
            Self::InvalidEscape => formatter.write_str("an escape that JSON does not have"),
            Self::ControlCharacter => formatter.write_str("an unescaped control character in a string"),
            Self::InvalidNumber => formatter.write_str("not a number as JSON writes one"),
            Self::TooManyDigits => write!(formatter, "a number of more than {MAX_DIGITS} digits"),
            Self::ExponentOutOfRange => write!(formatter, "an exponent beyond ±{MAX_EXPONENT}"),
            Self::NotCanonical => formatter.write_str("not in canonical form"),
        }
    }
}

impl Refusal {
    /// A refusal of the text as a whole.
    pub(super) fn at_top(problem: Problem, offset: usize) -> Self {
        Self { pointer: String::new(), problem, offset }
    }

    /// A refusal at the end of a path, given from the inside out.
    pub(super) fn at_path(problem: Problem, offset: usize, trail: &[Step]) -> Self {
        let mut pointer = String::new();
        for step in trail.iter().rev() {
            let before = pointer.len();
            match step {
                Step::Index(index) => pointer.push_str(&format!("/{index}")),
                Step::Name(name) => push_name(name, &mut pointer),
            }
            if pointer.len() > MAX_POINTER_BYTES {
                pointer.truncate(before);
                pointer.push_str("/…");
                break;
            }
        }
        Self { pointer, problem, offset }
    }
}

/// What is wrong and where, in one line that is safe to print.
impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (at byte {}", self.problem, self.offset)?;
        if self.pointer.is_empty() { write!(formatter, ")") } else { write!(formatter, ", in {})", self.pointer) }
    }
}

impl std::error::Error for Refusal {}

fn push_name(name: &str, pointer: &mut String) {
    let end = name.char_indices().nth(MAX_STEP_CHARS).map_or(name.len(), |(offset, _)| offset);
    let shown = name.get(..end).unwrap_or_default();
    pointer.push('/');
    for character in neutralise(shown, LineBreaks::Escape).text.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            _ => pointer.push(character),
        }
    }
    if end < name.len() {
        pointer.push('…');
    }
}
