//! JSON values as they are read from canonical text, with numbers kept exactly.
//!
//! Not a general JSON library: the text was checked when it was made canonical, so reading it cannot fail.

use std::fmt;

use super::canonical::{Canonical, Unescaped, compare_names, push_string, write_decimal};

/// A JSON value.
#[derive(Clone, PartialEq, Eq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, exact.
    Number(Number),
    /// A string, unescaped.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object: names, each once, and values; as read, in canonical order.
    Object(Vec<(String, Json)>),
}

/// A number by its canonical text, so that none of its digits is lost; equal numbers have equal texts.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Number(Box<str>);

impl Json {
    /// The value that a canonical text stands for.
    pub fn read(canonical: &Canonical) -> Self {
        Reader { rest: canonical.as_str() }.value()
    }

    /// Appends the value's canonical text. Members are sorted; their names must differ, and numbers and depth must be
    /// such as can be read back, which holds for whatever was read.
    pub fn write_canonical(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(number) => out.push_str(&number.0),
            Self::String(text) => push_string(text, out),
            Self::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write_canonical(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                let mut sorted: Vec<&(String, Self)> = members.iter().collect();
                if !sorted.is_sorted_by(|left, right| compare_names(&left.0, &right.0).is_lt()) {
                    sorted.sort_by(|left, right| compare_names(&left.0, &right.0));
                }
                out.push('{');
                for (index, (name, value)) in sorted.into_iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    push_string(name, out);
                    out.push(':');
                    value.write_canonical(out);
                }
                out.push('}');
            }
        }
    }

    /// The value's canonical text.
    pub fn to_canonical(&self) -> String {
        let mut out = String::new();
        self.write_canonical(&mut out);
        out
    }

    /// The member of that name, if this is an object that has one. Takes time linear in the number of members.
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.as_object()?.iter().find(|member| member.0 == name).map(|member| &member.1)
    }

    /// The text, if this is a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// The value, if this is `true` or `false`.
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// The items, if this is an array.
    pub fn as_array(&self) -> Option<&[Self]> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    /// The members, if this is an object.
    pub fn as_object(&self) -> Option<&[(String, Self)]> {
        if let Self::Object(members) = self { Some(members) } else { None }
    }
}

/// Shows kind and size alone: the value may be part of a call's arguments.
impl fmt::Debug for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => formatter.write_str("null"),
            Self::Bool(_) => formatter.write_str("bool"),
            Self::Number(_) => formatter.write_str("number"),
            Self::String(text) => write!(formatter, "string({} bytes)", text.len()),
            Self::Array(items) => write!(formatter, "array({} items)", items.len()),
            Self::Object(members) => write!(formatter, "object({} members)", members.len()),
        }
    }
}

impl Number {
    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number as a signed 64-bit integer, if it is one.
    pub fn as_i64(&self) -> Option<i64> {
        // Integers up to 21 digits are written in full; a point or an exponent means fraction or beyond 64 bits.
        self.0.parse().ok()
    }

    /// The number as a double, if a double carries it unchanged: if RFC 8785 writes the nearest double with this text.
    pub fn as_double(&self) -> Option<f64> {
        let double: f64 = self.0.parse().ok()?;
        (Self::from_double(double)? == *self).then_some(double)
    }

    /// The number that RFC 8785 writes for a double; none for infinities and what is not a number.
    pub fn from_double(double: f64) -> Option<Self> {
        if !double.is_finite() {
            return None;
        }
        // The fewest digits that lead back to this double, as `-1.25e-7`.
        let scientific = format!("{double:e}");
        let (mantissa, exponent) = scientific.split_once('e')?;
        let digits = mantissa.trim_start_matches('-');
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let mut text = String::new();
        write_decimal(mantissa.starts_with('-'), whole, fraction, exponent.parse().ok()?, &mut text);
        Some(Self(text.into()))
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self(value.to_string().into())
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self(value.to_string().into())
    }
}

impl fmt::Display for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Shows nothing: it may be part of a call's arguments.
impl fmt::Debug for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("number")
    }
}

/// Reads canonical text, which is known to be whole and to be nested at most 64 levels deep. What cannot be there is
/// read as `null` rather than being a failure that every caller would have to answer.
struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    fn value(&mut self) -> Json {
        match self.rest.as_bytes().first() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => Json::String(self.string()),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.word("null", Json::Null),
        }
    }

    fn object(&mut self) -> Json {
        let mut members = Vec::new();
        self.skip("{");
        while self.rest.starts_with('"') {
            let name = self.string();
            self.skip(":");
            members.push((name, self.value()));
            self.skip(",");
        }
        self.skip("}");
        Json::Object(members)
    }

    fn array(&mut self) -> Json {
        let mut items = Vec::new();
        self.skip("[");
        while !self.rest.starts_with(']') && !self.rest.is_empty() {
            items.push(self.value());
            self.skip(",");
        }
        self.skip("]");
        Json::Array(items)
    }

    fn string(&mut self) -> String {
        self.skip("\"");
        let mut escaped = false;
        let mut escapes = 0_usize;
        let end = self.rest.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            escapes += usize::from(escaped);
            ends
        });
        let (inside, after) = end.and_then(|end| self.rest.split_at_checked(end)).unwrap_or((self.rest, ""));
        self.rest = after;
        self.skip("\"");
        if escapes == 0 { inside.to_owned() } else { Unescaped::new(inside).collect() }
    }

    fn number(&mut self) -> Json {
        let end = self.rest.find([',', ']', '}']).unwrap_or(self.rest.len());
        let (text, after) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = after;
        Json::Number(Number(text.into()))
    }

    fn word(&mut self, word: &str, value: Json) -> Json {
        match self.rest.strip_prefix(word) {
            Some(after) => self.rest = after,
            // Not canonical text: read no further, so that reading ends.
            None => self.rest = "",
        }
        value
    }

    fn skip(&mut self, text: &str) {
        self.rest = self.rest.strip_prefix(text).unwrap_or(self.rest);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::canonical::{Limits, MAX_BYTES, Top};

    #[test]
    fn a_value_is_read_with_its_types() {
        let json = read(r#"{"a":[1,"x\n\"\u0001é",true,false,null,{},[]],"b":{"c":-2.5}}"#);
        assert_eq!(json.get("b").and_then(|b| b.get("c")), Some(&Json::Number(Number("-2.5".into()))));
        let items = json.get("a").and_then(Json::as_array).unwrap();
        assert_eq!(items[0], Json::Number(Number::from(1_i64)));
        assert_eq!(items[1].as_str(), Some("x\n\"\u{1}é"));
        assert_eq!((items[2].as_bool(), items[3].as_bool(), items[4].as_bool()), (Some(true), Some(false), None));
        assert_eq!(items[4..], [Json::Null, Json::Object(vec![]), Json::Array(vec![])]);
        assert_eq!(json.get("missing"), None);
        assert_eq!(items[0].get("a"), None);
    }

    #[test]
    fn a_member_that_other_readers_take_for_a_number_is_an_object() {
        let json = read(r#"{"n":{"$serde_json::private::Number":"1"}}"#);
        assert!(json.get("n").and_then(Json::as_object).is_some());
    }

    #[test]
    fn integers_are_those_that_fit_64_bits_however_they_are_written() {
        for (text, integer) in [
            ("0", Some(0)),
            ("-0.0", Some(0)),
            ("1.50e1", Some(15)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("1e18", Some(1_000_000_000_000_000_000)),
            ("1e21", None),
            ("0.5", None),
            ("1e-7", None),
        ] {
            assert_eq!(number(text).as_i64(), integer, "{text}");
        }
    }

    #[test]
    fn doubles_are_those_that_carry_the_number_unchanged() {
        for (text, double) in [
            ("0.5", Some(0.5)),
            ("0.1", Some(0.1)),
            ("-1e300", Some(-1e300)),
            ("1e20", Some(1e20)),
            ("5e-324", Some(5e-324)),
            ("1.7976931348623157e308", Some(f64::MAX)),
            ("9007199254740992", Some(9007199254740992.0)),
            ("9007199254740993", None),
            ("0.10000000000000001", None),
            ("0.1000000000000000055511151231257827", None),
            ("1e309", None),
            ("1e-330", None),
            ("4e-324", None),
        ] {
            assert_eq!(number(text).as_double(), double, "{text}");
        }
    }

    #[test]
    fn members_put_together_by_hand_are_written_in_order() {
        let json = Json::Object(vec![
            ("\u{FB33}".to_owned(), Json::Null),
            ("\u{1F600}".to_owned(), Json::Number(Number::from(7_u64))),
            ("a\"".to_owned(), Json::Bool(true)),
        ]);
        assert_eq!(json.to_canonical(), "{\"a\\\"\":true,\"\u{1F600}\":7,\"\u{FB33}\":null}");
    }

    #[test]
    fn debug_shows_no_content() {
        let json = read(r#"{"hunter2":"hunter2","n":[424242,"hunter2"]}"#);
        assert_eq!(format!("{json:?}"), "object(2 members)");
        assert_eq!(format!("{:?}", json.get("n").and_then(Json::as_array).unwrap()), "[number, string(7 bytes)]");
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_as_it_was(json in any_json()) {
            let mut text = String::new();
            json.write_canonical(&mut text);
            let canonical = canonical(&text);
            prop_assert_eq!(canonical.as_str(), &text);
            let again = Json::read(&canonical);
            prop_assert!(again.to_canonical() == text);
        }

        #[test]
        fn a_double_comes_back_from_its_number(double in prop::num::f64::ANY) {
            match Number::from_double(double) {
                Some(number) => prop_assert_eq!(number.as_double(), Some(double)),
                None => prop_assert!(!double.is_finite()),
            }
        }
    }

    /// Any value, with hostile names and strings.
    pub(in crate::domain) fn any_json() -> impl Strategy<Value = Json> {
        let text = || prop_oneof![prop::string::string_regex("[a-c\"\\\\\n]{0,4}").unwrap(), any::<String>()];
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::Bool),
            any::<i64>().prop_map(|value| Json::Number(value.into())),
            any::<f64>().prop_filter_map("finite", |value| Number::from_double(value).map(Json::Number)),
            text().prop_map(Json::String),
        ];
        leaf.prop_recursive(5, 60, 8, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Json::Array),
                prop::collection::btree_map(text(), inner, 0..6)
                    .prop_map(|map| Json::Object(map.into_iter().collect())),
            ]
        })
    }

    fn canonical(text: &str) -> Canonical {
        Canonical::of(text, Limits { max_bytes: MAX_BYTES, top: Top::Any }).unwrap()
    }

    fn read(text: &str) -> Json {
        Json::read(&canonical(text))
    }

    fn number(text: &str) -> Number {
        let Json::Number(number) = read(text) else { panic!("{text}") };
        number
    }
}
