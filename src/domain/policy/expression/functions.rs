//! The functions that an expression may call, and nothing else: their names, what they take, and what they do.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "what is not defined for a type is a type error, whichever type it is"
)]

use super::limits::MAX_BUILT_BYTES;
use super::problem::Reason;
use super::times::{Instant, Offset, parse_instant, parse_span, write_span};
use super::value::{Meter, Text, Value};

/// The type of a value, as far as it is known at load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool,
    Int,
    Double,
    String,
    List,
    Map,
    Timestamp,
    Duration,
}

impl Kind {
    /// As a sentence has it.
    pub const fn described(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "a bool",
            Self::Int => "an int",
            Self::Double => "a double",
            Self::String => "a string",
            Self::List => "a list",
            Self::Map => "a map",
            Self::Timestamp => "a timestamp",
            Self::Duration => "a duration",
        }
    }
}

/// How a function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// `f(x)`
    Global,
    /// `x.f()`
    Member,
    /// Either.
    Both,
}

/// One function of the list.
pub(super) struct Signature {
    pub name: &'static str,
    pub style: Style,
    /// What the first argument, or the receiver, may be.
    pub operand: &'static [Kind],
    /// What the argument after it may be, where there is one.
    pub argument: Option<&'static [Kind]>,
    pub result: Kind,
    pub function: Function,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    ToInt,
    ToDouble,
    ToText,
    ToInstant,
    ToSpan,
}

/// A part of a timestamp, or of a duration, that a getter returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    FullYear,
    Month,
    Date,
    DayOfMonth,
    DayOfWeek,
    DayOfYear,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

const TEXT: &[Kind] = &[Kind::String];

/// CEL's standard functions, without those of types that arguments never have (`bytes`, `uint`) and without `type`,
/// `dyn` and `string` of a double (every implementation writes it in its own way).
pub(super) const SIGNATURES: &[Signature] = &[
    Signature {
        name: "size",
        style: Style::Both,
        operand: &[Kind::String, Kind::List, Kind::Map],
        argument: None,
        result: Kind::Int,
        function: Function::Size,
    },
    text_test("contains", Function::Contains),
    text_test("startsWith", Function::StartsWith),
    text_test("endsWith", Function::EndsWith),
    conversion("int", &[Kind::Int, Kind::Double, Kind::String, Kind::Timestamp], Kind::Int, Function::ToInt),
    conversion("double", &[Kind::Double, Kind::Int, Kind::String], Kind::Double, Function::ToDouble),
    conversion(
        "string",
        &[Kind::String, Kind::Int, Kind::Bool, Kind::Timestamp, Kind::Duration],
        Kind::String,
        Function::ToText,
    ),
    conversion("timestamp", &[Kind::Timestamp, Kind::String, Kind::Int], Kind::Timestamp, Function::ToInstant),
    conversion("duration", &[Kind::Duration, Kind::String], Kind::Duration, Function::ToSpan),
];

const fn text_test(name: &'static str, function: Function) -> Signature {
    Signature { name, style: Style::Member, operand: TEXT, argument: Some(TEXT), result: Kind::Bool, function }
}

const fn conversion(name: &'static str, operand: &'static [Kind], result: Kind, function: Function) -> Signature {
    Signature { name, style: Style::Global, operand, argument: None, result, function }
}

/// The getters: in UTC, or at a fixed distance from it that is given as a literal.
pub(super) const PARTS: &[(&str, Part)] = &[
    ("getFullYear", Part::FullYear),
    ("getMonth", Part::Month),
    ("getDate", Part::Date),
    ("getDayOfMonth", Part::DayOfMonth),
    ("getDayOfWeek", Part::DayOfWeek),
    ("getDayOfYear", Part::DayOfYear),
    ("getHours", Part::Hours),
    ("getMinutes", Part::Minutes),
    ("getSeconds", Part::Seconds),
    ("getMilliseconds", Part::Milliseconds),
];

impl Part {
    /// Whether a duration has it too.
    pub const fn of_span(self) -> bool {
        matches!(self, Self::Hours | Self::Minutes | Self::Seconds | Self::Milliseconds)
    }
}

/// Calls a function. `argument` is there exactly where the signature has one.
///
/// # Errors
/// `WrongType` for what the signature does not list; `NotConvertible`, `Overflow`, `TooMuchWork`.
pub(super) fn call<'a>(
    function: Function,
    operand: &Value<'a>,
    argument: Option<&Value<'a>>,
    meter: &mut Meter,
) -> Result<Value<'a>, Reason> {
    match function {
        Function::Size => size(operand, meter),
        Function::Contains => test_text(operand, argument, meter, |text, part| text.contains(part)),
        Function::StartsWith => test_text(operand, argument, meter, |text, part| text.starts_with(part)),
        Function::EndsWith => test_text(operand, argument, meter, |text, part| text.ends_with(part)),
        Function::ToInt => to_int(operand).map(Value::Int),
        Function::ToDouble => to_double(operand),
        Function::ToText => to_text(operand),
        Function::ToInstant => to_instant(operand).map(Value::Instant),
        Function::ToSpan => match operand {
            Value::Span(span) => Ok(Value::Span(*span)),
            Value::Text(text) => {
                meter.spend_text(text)?;
                parse_span(text).map(Value::Span).ok_or(Reason::NotConvertible)
            }
            _ => Err(Reason::WrongType),
        },
    }
}

/// Code points, elements or members.
fn size<'a>(operand: &Value<'a>, meter: &mut Meter) -> Result<Value<'a>, Reason> {
    let size = match operand {
        Value::Text(text) => {
            meter.spend_text(text)?;
            text.chars().count()
        }
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        _ => return Err(Reason::WrongType),
    };
    i64::try_from(size).map(Value::Int).map_err(|_| Reason::Overflow)
}

fn test_text<'a>(
    operand: &Value<'a>,
    argument: Option<&Value<'a>>,
    meter: &mut Meter,
    test: impl Fn(&str, &str) -> bool,
) -> Result<Value<'a>, Reason> {
    let (Value::Text(text), Some(Value::Text(part))) = (operand, argument) else {
        return Err(Reason::WrongType);
    };
    meter.spend_text(text)?;
    meter.spend_text(part)?;
    Ok(Value::Bool(test(text, part)))
}

/// A double is cut off towards zero; a timestamp is its seconds since the Unix epoch.
fn to_int(operand: &Value<'_>) -> Result<i64, Reason> {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    match operand {
        Value::Int(int) => Ok(*int),
        Value::Double(double) if *double > -TWO_TO_63 && *double < TWO_TO_63 =>
        {
            #[expect(clippy::cast_possible_truncation, reason = "the range is checked, and the fraction is to go")]
            Ok(double.trunc() as i64)
        }
        Value::Double(_) => Err(Reason::Overflow),
        Value::Text(text) if text.len() <= 64 => text.parse().map_err(|_| Reason::NotConvertible),
        Value::Text(_) => Err(Reason::NotConvertible),
        Value::Instant(instant) => Ok(instant.since_epoch().as_secs()),
        _ => Err(Reason::WrongType),
    }
}

fn to_double<'a>(operand: &Value<'a>) -> Result<Value<'a>, Reason> {
    match operand {
        Value::Double(double) => Ok(Value::Double(*double)),
        #[expect(clippy::cast_precision_loss, reason = "the nearest double is what CEL asks for")]
        Value::Int(int) => Ok(Value::Double(*int as f64)),
        Value::Text(text) => {
            // Names such as `inf` and `nan` parse too, and are no numbers here.
            let is_number = text.len() <= 1024
                && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
            let double = text.parse::<f64>().ok().filter(|_| is_number).ok_or(Reason::NotConvertible)?;
            Value::double(double)
        }
        _ => Err(Reason::WrongType),
    }
}

fn to_text<'a>(operand: &Value<'a>) -> Result<Value<'a>, Reason> {
    let text = match operand {
        Value::Text(text) => return Ok(Value::Text(text.clone())),
        Value::Int(int) => int.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Instant(instant) => instant.to_string(),
        Value::Span(span) => write_span(*span),
        _ => return Err(Reason::WrongType),
    };
    Ok(Value::Text(Text::Built(text.into())))
}

fn to_instant(operand: &Value<'_>) -> Result<Instant, Reason> {
    match operand {
        Value::Instant(instant) => Ok(*instant),
        Value::Text(text) => parse_instant(text).ok_or(Reason::NotConvertible),
        Value::Int(seconds) => Instant::new(jiff::SignedDuration::from_secs(*seconds)).ok_or(Reason::Overflow),
        _ => Err(Reason::WrongType),
    }
}

/// A part of a timestamp there, or of a duration, where no `zone` is given.
///
/// # Errors
/// `WrongType` for anything else; `Overflow` where the calendar does not reach.
pub(super) fn part<'a>(part: Part, operand: &Value<'a>, zone: Option<Offset>) -> Result<Value<'a>, Reason> {
    let value = match (operand, zone) {
        (Value::Instant(instant), zone) => {
            let civil = instant.civil(zone.unwrap_or(Offset::UTC)).ok_or(Reason::Overflow)?;
            match part {
                Part::FullYear => i64::from(civil.year()),
                Part::Month => i64::from(civil.month()) - 1,
                Part::Date => i64::from(civil.day()),
                Part::DayOfMonth => i64::from(civil.day()) - 1,
                Part::DayOfWeek => i64::from(civil.weekday().to_sunday_zero_offset()),
                Part::DayOfYear => i64::from(civil.day_of_year()) - 1,
                Part::Hours => i64::from(civil.hour()),
                Part::Minutes => i64::from(civil.minute()),
                Part::Seconds => i64::from(civil.second()),
                Part::Milliseconds => i64::from(civil.millisecond()),
            }
        }
        (Value::Span(span), None) if part.of_span() => match part {
            Part::Hours => span.as_hours(),
            Part::Minutes => span.as_mins(),
            Part::Seconds => span.as_secs(),
            _ => i64::try_from(span.as_millis()).map_err(|_| Reason::Overflow)?,
        },
        _ => return Err(Reason::WrongType),
    };
    Ok(Value::Int(value))
}

/// Two strings in one.
///
/// # Errors
/// `TextTooLong`, `TooMuchWork`.
pub(super) fn concatenate<'a>(left: &str, right: &str, meter: &mut Meter) -> Result<Value<'a>, Reason> {
    if left.len().saturating_add(right.len()) > MAX_BUILT_BYTES {
        return Err(Reason::TextTooLong);
    }
    meter.spend_text(left)?;
    meter.spend_text(right)?;
    Ok(Value::Text(Text::Built([left, right].concat().into())))
}
