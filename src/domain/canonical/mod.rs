//! Canonical JSON: one value has one text, in every language.
//!
//! Members are sorted by UTF-16 code units, there is no white space, and strings are written as RFC 8785 writes them,
//! without Unicode normalisation. Numbers are written in RFC 8785's (ECMAScript's) notation, but from their exact
//! decimal value: `1`, `1.0` and `1e0` are one value, and `9007199254740993` is not `9007199254740992`. For every number
//! that a double carries unchanged this gives RFC 8785's bytes; where RFC 8785 would merge two numbers, we do not.
//!
//! The text is read once: parsed, checked, sorted and written in one pass, in time linear in its length (sorting the
//! names of an object that is out of order adds a logarithm of their number, and copies that object once, at each of
//! at most [`MAX_DEPTH`] levels). What is out of bounds, ambiguous or not JSON is refused, never repaired.
//!
//! The limits hold for the text as it is handed over. A canonical text can go beyond them: `1e20` grows to 21 digits,
//! and an integer of 500 digits is written `…e+499`. So canonicalising a canonical text changes nothing, except that
//! such numbers may be refused; [`Canonical::from_stored`] takes back every canonical text.

mod number;
mod reader;
mod refusal;
mod string;

use std::fmt;

pub(super) use number::write_decimal;
pub(super) use string::{Unescaped, compare_names, push_string};

pub use refusal::{Problem, Refusal};

use reader::{NumberLimits, Reader};

/// The deepest nesting of objects and arrays; the outermost one is the first level, scalars are none.
pub const MAX_DEPTH: usize = 64;

/// The most bytes of any JSON text: 1 MiB, for the definition of a tool. Arguments have a lower limit of their own.
pub const MAX_BYTES: usize = 1024 * 1024;

/// The most digits of a number, before its exponent, leading and trailing zeros included. The exponent itself may have
/// as many, so that `1e0000…` has an end.
pub const MAX_DIGITS: usize = 800;

/// The largest exponent that may be written, and its negative the smallest.
pub const MAX_EXPONENT: u32 = 400;

/// What a text may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of the text as handed over.
    pub max_bytes: usize,
    /// What may stand at the top.
    pub top: Top,
}

/// What may stand at the top of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Top {
    /// An object. The empty text means `{}`.
    Object,
    /// Any value. The empty text is refused.
    Any,
}

/// A text that is canonical JSON: who holds one need not check it again.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Canonical(String);

impl Canonical {
    /// The canonical text of `text`.
    pub fn of(text: &str, limits: Limits) -> Result<Self, Refusal> {
        canonicalise(text, limits).map(Self)
    }

    /// Takes back a text that [`canonicalise`] made, and refuses every other. It may be longer, and its numbers may have
    /// larger exponents, than [`canonicalise`] takes.
    pub fn from_stored(text: &str) -> Result<Self, Refusal> {
        Self::stored(text, Top::Any)
    }

    /// As [`Canonical::from_stored`], for an object's text.
    pub fn object_from_stored(text: &str) -> Result<Self, Refusal> {
        Self::stored(text, Top::Object)
    }

    /// `{}`.
    pub fn empty_object() -> Self {
        Self("{}".to_owned())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, handed on.
    pub fn into_string(self) -> String {
        self.0
    }

    fn stored(text: &str, top: Top) -> Result<Self, Refusal> {
        let canonical = Reader::new(text, NumberLimits::STORED).read(top)?;
        if canonical != text {
            let same = canonical.bytes().zip(text.bytes()).take_while(|(ours, theirs)| ours == theirs).count();
            return Err(Refusal::at_top(Problem::NotCanonical, same));
        }
        Ok(Self(canonical))
    }
}

/// Shows the length alone: the text may be a call's arguments.
impl fmt::Debug for Canonical {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Canonical({} bytes)", self.0.len())
    }
}

/// Writes the value of a JSON text in the one way that there is to write it, or says where and why it is refused.
pub fn canonicalise(text: &str, limits: Limits) -> Result<String, Refusal> {
    if text.len() > limits.max_bytes {
        return Err(Refusal::at_top(Problem::TooLarge { max_bytes: limits.max_bytes }, limits.max_bytes));
    }
    if text.is_empty() && limits.top == Top::Object {
        return Ok("{}".to_owned());
    }
    Reader::new(text, NumberLimits::HANDED_OVER).read(limits.top)
}

/// As [`canonicalise`], for bytes that need not be UTF-8; what is not is refused, at its place.
pub fn canonicalise_bytes(bytes: &[u8], limits: Limits) -> Result<String, Refusal> {
    if bytes.len() > limits.max_bytes {
        return Err(Refusal::at_top(Problem::TooLarge { max_bytes: limits.max_bytes }, limits.max_bytes));
    }
    let problem = match std::str::from_utf8(bytes) {
        Ok(text) => return canonicalise(text, limits),
        Err(problem) => problem,
    };
    let offset = problem.valid_up_to();
    // What comes before is valid; reading it finds either an earlier problem or the place where it breaks off.
    let before = bytes.get(..offset).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default();
    match canonicalise(before, limits) {
        Err(refusal) if refusal.offset < offset => Err(refusal),
        Err(refusal) => Err(Refusal { problem: Problem::InvalidUtf8, offset, ..refusal }),
        Ok(_) => Err(Refusal::at_top(Problem::InvalidUtf8, offset)),
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
