//! The values that an expression computes with. They borrow the request: nothing is converted before it is read.

use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::Arc;

use super::limits::MAX_STEPS;
use super::problem::Reason;
use super::times::Instant;
use crate::domain::json::Json;

/// A value. A number of the arguments becomes `Int` where it is integral and within 64 bits, else `Double`; no `Double`
/// is ever infinite or not a number.
#[derive(Clone)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Text<'a>),
    List(List<'a>),
    Map(Map<'a>),
    Instant(Instant),
    Span(jiff::SignedDuration),
}

#[derive(Clone)]
pub(super) enum Text<'a> {
    Borrowed(&'a str),
    Built(Arc<str>),
}

#[derive(Clone)]
pub(super) enum List<'a> {
    Json(&'a [Json]),
    Strings(&'a [String]),
    Built(Arc<[Value<'a>]>),
}

/// A map; its keys are strings.
#[derive(Clone)]
pub(super) enum Map<'a> {
    Json(&'a [(String, Json)]),
    Built(Arc<[(Text<'a>, Value<'a>)]>),
}

/// An element that nobody has read yet: a number that is not exact is an error to whoever reads it, and to nobody else.
#[derive(Clone)]
pub(super) enum Item<'a> {
    Json(&'a Json),
    Ready(Value<'a>),
}

/// The work that may still be done for one call, by all of its expressions together.
#[derive(Debug)]
pub struct Meter {
    left: u64,
}

impl Meter {
    /// What one call may cost: [`MAX_STEPS`].
    pub fn full() -> Self {
        Self { left: MAX_STEPS }
    }

    /// # Errors
    /// `TooMuchWork` once more than [`MAX_STEPS`] were asked for, and from then on whatever else is asked for: what a
    /// call's later expressions get must not depend on how little of the budget the one that broke it left over.
    pub(super) fn spend(&mut self, steps: u64) -> Result<(), Reason> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(Reason::TooMuchWork)
            }
        }
    }

    /// Work that grows with a length: one step for each `unit` of it, rounded down.
    pub(super) fn spend_length(&mut self, length: usize, unit: usize) -> Result<(), Reason> {
        self.spend(u64::try_from(length.checked_div(unit).unwrap_or(length)).unwrap_or(u64::MAX))
    }

    /// Text that is looked at or copied.
    pub(super) fn spend_text(&mut self, text: &str) -> Result<(), Reason> {
        self.spend_length(text.len(), 32)
    }
}

impl<'a> Value<'a> {
    /// Reads an argument.
    ///
    /// # Errors
    /// `NumberNotExact`.
    pub fn read(json: &'a Json) -> Result<Self, Reason> {
        Ok(match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(int) => Self::Int(int),
                None => match number.as_double() {
                    Some(double) if double.is_finite() => Self::Double(double),
                    _ => return Err(Reason::NumberNotExact),
                },
            },
            Json::String(text) => Self::Text(Text::Borrowed(text)),
            Json::Array(elements) => Self::List(List::Json(elements)),
            Json::Object(members) => Self::Map(Map::Json(members)),
        })
    }

    /// The same value, borrowing nothing: what a constant of an expression is kept as. An argument that is not exact
    /// never is in one.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Int(value) => Value::Int(value),
            Self::Double(value) => Value::Double(value),
            Self::Text(text) => Value::Text(text.into_owned()),
            Self::Instant(value) => Value::Instant(value),
            Self::Span(value) => Value::Span(value),
            Self::List(list) => {
                let elements = list.items().map(|item| item.read().map_or(Value::Null, Self::into_owned));
                Value::List(List::Built(elements.collect()))
            }
            Self::Map(map) => {
                let members = map
                    .entries()
                    .map(|(name, item)| (name.into_owned(), item.read().map_or(Value::Null, Self::into_owned)));
                Value::Map(Map::Built(members.collect()))
            }
        }
    }

    pub fn double(value: f64) -> Result<Self, Reason> {
        if value.is_finite() { Ok(Self::Double(value)) } else { Err(Reason::Overflow) }
    }

    /// CEL's `==`: numbers by value across types, lists and maps by their elements. Null equals itself alone. Values of
    /// any other two kinds are no answer: CEL calls them unequal, and a rule that denies a text would then let pass what
    /// holds it in a list.
    ///
    /// Two lists of one length, or the members of one name in two maps of one size, are compared to the end also after
    /// a difference, so that an error does not depend on the order in which members stand or sides are written.
    ///
    /// # Errors
    /// Two kinds, or a number that is not exact, among what is compared; `TooMuchWork`.
    pub fn equals(&self, other: &Self, meter: &mut Meter) -> Result<bool, Reason> {
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(left), Self::Bool(right)) => left == right,
            (Self::Int(left), Self::Int(right)) => left == right,
            (Self::Double(left), Self::Double(right)) => left == right,
            (Self::Int(int), Self::Double(double)) | (Self::Double(double), Self::Int(int)) => {
                compare_int_to_double(*int, *double) == Ordering::Equal
            }
            (Self::Text(left), Self::Text(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                meter.spend_text(left)?;
                **left == **right
            }
            (Self::Instant(left), Self::Instant(right)) => left == right,
            (Self::Span(left), Self::Span(right)) => left == right,
            (Self::List(left), Self::List(right)) => return left.equals(right, meter),
            (Self::Map(left), Self::Map(right)) => return left.equals(right, meter),
            // Whether something is null is how its absence is asked.
            (Self::Null, _) | (_, Self::Null) => false,
            _ => return Err(Reason::WrongType),
        })
    }

    /// CEL's order: numbers by value across types, strings by code points, `false` before `true`.
    ///
    /// # Errors
    /// `WrongType` where the two have no order; `TooMuchWork`.
    pub fn compare(&self, other: &Self, meter: &mut Meter) -> Result<Ordering, Reason> {
        Ok(match (self, other) {
            (Self::Bool(left), Self::Bool(right)) => left.cmp(right),
            (Self::Int(left), Self::Int(right)) => left.cmp(right),
            (Self::Double(left), Self::Double(right)) => left.partial_cmp(right).ok_or(Reason::WrongType)?,
            (Self::Int(int), Self::Double(double)) => compare_int_to_double(*int, *double),
            (Self::Double(double), Self::Int(int)) => compare_int_to_double(*int, *double).reverse(),
            (Self::Text(left), Self::Text(right)) => {
                meter.spend_length(left.len().min(right.len()), 32)?;
                left.cmp(right)
            }
            (Self::Instant(left), Self::Instant(right)) => left.cmp(right),
            (Self::Span(left), Self::Span(right)) => left.cmp(right),
            _ => return Err(Reason::WrongType),
        })
    }
}

/// Exact, also where a double no longer tells neighbouring integers apart. `double` is finite.
fn compare_int_to_double(int: i64, double: f64) -> Ordering {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    if double >= TWO_TO_63 {
        return Ordering::Less;
    }
    if double < -TWO_TO_63 {
        return Ordering::Greater;
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked, and the fraction is compared below")]
    let whole = double.trunc() as i64;
    let fraction = double.fract();
    int.cmp(&whole).then(0.0_f64.partial_cmp(&fraction).unwrap_or(Ordering::Equal))
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Built(text) => text,
        }
    }
}

impl Text<'_> {
    fn into_owned(self) -> Text<'static> {
        match self {
            Self::Borrowed(text) => Text::Built(text.into()),
            Self::Built(text) => Text::Built(text),
        }
    }
}

impl<'a> Item<'a> {
    pub fn read(&self) -> Result<Value<'a>, Reason> {
        match self {
            Self::Json(json) => Value::read(json),
            Self::Ready(value) => Ok(value.clone()),
        }
    }
}

impl<'a> List<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::Json(elements) => elements.len(),
            Self::Strings(elements) => elements.len(),
            Self::Built(elements) => elements.len(),
        }
    }

    pub fn get(&self, index: usize) -> Option<Item<'a>> {
        match self {
            Self::Json(elements) => elements.get(index).map(Item::Json),
            Self::Strings(elements) => {
                elements.get(index).map(|text| Item::Ready(Value::Text(Text::Borrowed(text.as_str()))))
            }
            Self::Built(elements) => elements.get(index).map(|value| Item::Ready(value.clone())),
        }
    }

    pub fn items(&self) -> impl Iterator<Item = Item<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Whether an element equals this value; those after it are not read. An element of another kind is passed over
    /// where a later one is equal, as `exists` does.
    ///
    /// # Errors
    /// `WrongType` where none is equal and one is of another kind; an element before it that is not exact; `TooMuchWork`.
    pub fn contains(&self, value: &Value<'_>, meter: &mut Meter) -> Result<bool, Reason> {
        meter.spend_length(self.len(), 2)?;
        match self {
            Self::Json(elements) => any(elements.iter(), |element| Value::read(element)?.equals(value, meter)),
            Self::Strings(elements) => {
                any(elements.iter(), |element| Value::Text(Text::Borrowed(element.as_str())).equals(value, meter))
            }
            Self::Built(elements) => any(elements.iter(), |element| element.equals(value, meter)),
        }
    }

    fn equals(&self, other: &Self, meter: &mut Meter) -> Result<bool, Reason> {
        if self.len() != other.len() {
            return Ok(false);
        }
        let mut equal = true;
        for (left, right) in self.items().zip(other.items()) {
            meter.spend(1)?;
            equal &= left.read()?.equals(&right.read()?, meter)?;
        }
        Ok(equal)
    }
}

/// Whether one of these is. An error before it ends the search, but for a wrong type, which is the answer where none is.
fn any<T>(elements: impl Iterator<Item = T>, mut is: impl FnMut(T) -> Result<bool, Reason>) -> Result<bool, Reason> {
    let mut none = Ok(false);
    for element in elements {
        match is(element) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(Reason::WrongType) => none = Err(Reason::WrongType),
            Err(reason) => return Err(reason),
        }
    }
    none
}

impl<'a> Map<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::Json(members) => members.len(),
            Self::Built(members) => members.len(),
        }
    }

    /// The member of exactly this name.
    pub fn get(&self, name: &str, meter: &mut Meter) -> Result<Option<Item<'a>>, Reason> {
        meter.spend_length(self.len(), 32)?;
        Ok(match self {
            Self::Json(members) => {
                members.iter().find(|(member, _)| member == name).map(|(_, value)| Item::Json(value))
            }
            Self::Built(members) => {
                members.iter().find(|(member, _)| **member == *name).map(|(_, value)| Item::Ready(value.clone()))
            }
        })
    }

    pub fn entry(&self, index: usize) -> Option<(Text<'a>, Item<'a>)> {
        match self {
            Self::Json(members) => {
                members.get(index).map(|(name, value)| (Text::Borrowed(name.as_str()), Item::Json(value)))
            }
            Self::Built(members) => members.get(index).map(|(name, value)| (name.clone(), Item::Ready(value.clone()))),
        }
    }

    pub fn entries(&self) -> impl Iterator<Item = (Text<'a>, Item<'a>)> + '_ {
        (0..self.len()).filter_map(|index| self.entry(index))
    }

    fn equals(&self, other: &Self, meter: &mut Meter) -> Result<bool, Reason> {
        if self.len() != other.len() {
            return Ok(false);
        }
        let mut equal = true;
        for (index, (name, left)) in self.entries().enumerate() {
            meter.spend(1)?;
            // Members mostly stand in the same order.
            let neighbour = other.entry(index).filter(|(other, _)| **other == *name).map(|(_, item)| item);
            let right = match neighbour {
                Some(item) => Some(item),
                None => other.get(&name, meter)?,
            };
            equal &= match right {
                Some(right) => left.read()?.equals(&right.read()?, meter)?,
                None => false,
            };
        }
        Ok(equal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_doubles_compare_exactly_at_the_edges_of_both() {
        use Ordering::{Equal, Greater, Less};
        for (int, double, want) in [
            (0, 0.0, Equal),
            (0, -0.0, Equal),
            (0, 5e-324, Less),
            (0, -5e-324, Greater),
            (1, 1.5, Less),
            (2, 1.5, Greater),
            (-1, -1.5, Greater),
            (-2, -1.5, Less),
            (9_007_199_254_740_992, 9_007_199_254_740_992.0, Equal),
            (9_007_199_254_740_993, 9_007_199_254_740_992.0, Greater),
            (9_007_199_254_740_991, 9_007_199_254_740_992.0, Less),
            (-9_007_199_254_740_993, -9_007_199_254_740_992.0, Less),
            (i64::MAX, 9_223_372_036_854_775_808.0, Less),
            (i64::MAX, 9_223_372_036_854_774_784.0, Greater),
            (i64::MIN, -9_223_372_036_854_775_808.0, Equal),
            (i64::MIN, -9_223_372_036_854_777_856.0, Greater),
            (i64::MAX, f64::MAX, Less),
            (i64::MIN, f64::MIN, Greater),
        ] {
            assert_eq!(compare_int_to_double(int, double), want, "{int} against {double}");
        }
    }
}
