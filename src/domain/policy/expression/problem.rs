//! What can be wrong with an expression: at load, with its text; later, with what it is asked about.

use std::fmt;

/// A place in the text of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

impl Place {
    /// The place of a byte of `source`; its end, where the byte is beyond it.
    pub(super) fn of(source: &str, offset: usize) -> Self {
        let before = source.char_indices().take_while(|(at, _)| *at < offset).map(|(_, letter)| letter);
        before.fold(Self { line: 1, column: 1 }, |place, letter| {
            if letter == '\n' {
                Self { line: place.line + 1, column: 1 }
            } else {
                Self { column: place.column + 1, ..place }
            }
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 1 {
            write!(formatter, "line {}, column {}", self.line, self.column)
        } else {
            write!(formatter, "column {}", self.column)
        }
    }
}

/// Why an expression is refused at load, in words for whoever writes the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionProblem {
    /// What is wrong and, where there is one, the way out.
    pub message: String,
    /// Where in the expression; absent where the problem is all of it.
    pub place: Option<Place>,
}

impl ExpressionProblem {
    pub(super) fn whole(message: impl Into<String>) -> Self {
        Self { message: message.into(), place: None }
    }

    pub(super) fn at(place: Place, message: impl Into<String>) -> Self {
        Self { message: message.into(), place: Some(place) }
    }
}

impl fmt::Display for ExpressionProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(place) => write!(formatter, "{place}: {}", self.message),
            None => formatter.write_str(&self.message),
        }
    }
}

impl std::error::Error for ExpressionProblem {}

/// Why an expression has no answer. **The rule counts as matching**. It never holds anything of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvaluationError {
    /// What went wrong.
    pub reason: Reason,
    /// The part of the expression in which it did.
    pub place: Option<Place>,
}

impl fmt::Display for EvaluationError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(place) => write!(formatter, "{} ({place})", self.reason.text()),
            None => formatter.write_str(self.reason.text()),
        }
    }
}

impl std::error::Error for EvaluationError {}

/// The kinds of evaluation error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The result is something else than a bool.
    NotBool,
    /// A member or key that is read is not there.
    MissingMember,
    /// An index is outside its list.
    IndexOutOfRange,
    /// An operator or function met a value of a type that it is not defined for.
    WrongType,
    /// A number is neither a signed 64-bit integer nor what a double would be written as.
    NumberNotExact,
    /// A number, time or span left its range.
    Overflow,
    /// A division or remainder by zero.
    DivisionByZero,
    /// A text does not say the number, time or span that it is converted to.
    NotConvertible,
    /// A comprehension over, or a list of, more than [`MAX_ELEMENTS`](super::limits::MAX_ELEMENTS).
    TooManyElements,
    /// A built string of more than [`MAX_BUILT_BYTES`](super::limits::MAX_BUILT_BYTES).
    TextTooLong,
    /// All expressions of the call together took more than [`MAX_STEPS`](super::limits::MAX_STEPS).
    TooMuchWork,
    /// The evaluator failed.
    Internal,
}

impl Reason {
    /// In words, without anything of the request.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotBool => "the result is not a bool",
            Self::MissingMember => "a member that is read is missing",
            Self::IndexOutOfRange => "an index is outside its list",
            Self::WrongType => "a value has a type that this is not defined for",
            Self::NumberNotExact => "a number is neither a 64-bit integer nor exactly a double",
            Self::Overflow => "a result is out of range",
            Self::DivisionByZero => "a division by zero",
            Self::NotConvertible => "a text cannot be converted",
            Self::TooManyElements => "a list or map has more than 1,000 elements",
            Self::TextTooLong => "a built string is longer than 256 KiB",
            Self::TooMuchWork => "the rules of this call take too much work altogether",
            Self::Internal => "the evaluator failed",
        }
    }

    /// Whether no `||`, `&&`, `exists` or `all` may pass over it: a limit that was hit is no part of the logic.
    pub(super) const fn is_final(self) -> bool {
        match self {
            Self::TooManyElements | Self::TextTooLong | Self::TooMuchWork | Self::Internal => true,
            Self::NotBool
            | Self::MissingMember
            | Self::IndexOutOfRange
            | Self::WrongType
            | Self::NumberNotExact
            | Self::Overflow
            | Self::DivisionByZero
            | Self::NotConvertible => false,
        }
    }
}

/// A reason with the byte of the source at which it arose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub reason: Reason,
    pub offset: usize,
}
