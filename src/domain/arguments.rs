//! The arguments of an action, in canonical form.

use std::fmt;
use std::sync::OnceLock;

use super::canonical::{Canonical, Limits, Refusal, Top};
use super::fingerprint::ArgumentsDigest;
use super::json::Json;

/// The most bytes of arguments where the configuration says nothing else: 256 KiB, as they are handed over.
pub const DEFAULT_MAX_ARGUMENTS_BYTES: usize = 256 * 1024;

/// The JSON object that is passed to an action. Its value is read, and its digest computed, when first asked for.
#[derive(Clone)]
pub struct Arguments {
    canonical: Canonical,
    value: OnceLock<Json>,
    digest: OnceLock<ArgumentsDigest>,
}

impl Arguments {
    /// Reads arguments as a caller hands them over; the empty text means `{}`.
    pub fn parse(text: &str, max_bytes: usize) -> Result<Self, Refusal> {
        Canonical::of(text, Limits { max_bytes, top: Top::Object }).map(Self::from_canonical)
    }

    /// Takes back arguments from their canonical text, which must be an object's.
    pub fn from_stored(canonical: &str) -> Result<Self, Refusal> {
        Canonical::object_from_stored(canonical).map(Self::from_canonical)
    }

    /// The canonical text.
    pub fn canonical(&self) -> &str {
        self.canonical.as_str()
    }

    /// The value, always an object.
    pub fn value(&self) -> &Json {
        self.value.get_or_init(|| Json::read(&self.canonical))
    }

    /// SHA-256 of the canonical text.
    pub fn digest(&self) -> ArgumentsDigest {
        *self.digest.get_or_init(|| ArgumentsDigest::of(self.canonical().as_bytes()))
    }

    fn from_canonical(canonical: Canonical) -> Self {
        Self { canonical, value: OnceLock::new(), digest: OnceLock::new() }
    }
}

/// No arguments: `{}`.
impl Default for Arguments {
    fn default() -> Self {
        Self::from_canonical(Canonical::empty_object())
    }
}

/// Equal are arguments of one value.
impl PartialEq for Arguments {
    fn eq(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for Arguments {}

/// Shows the length alone: arguments are the principal's data.
impl fmt::Debug for Arguments {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Arguments({} bytes)", self.canonical().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::canonical::Problem;

    #[test]
    fn arguments_of_one_value_are_equal_and_have_one_digest() {
        let one = parse(r#"{"b":1.0,"a":"\u0041"}"#);
        let other = parse(r#" { "a":"A", "b":1 }"#);
        assert_eq!(one, other);
        assert_eq!(one.canonical(), r#"{"a":"A","b":1}"#);
        assert_eq!(one.digest(), other.digest());
        assert_ne!(one.digest(), parse(r#"{"a":"A","b":2}"#).digest());
    }

    #[test]
    fn empty_text_is_no_arguments() {
        assert_eq!(parse(""), Arguments::default());
        assert_eq!(parse("{}"), Arguments::default());
        assert_eq!(Arguments::default().value(), &Json::Object(vec![]));
        // `printf '{}' | sha256sum`
        assert_eq!(
            Arguments::default().digest().to_string(),
            "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
    }

    #[test]
    fn limit_counts_the_bytes_as_handed_over() {
        assert!(Arguments::parse(r#"{"a": 1}"#, 8).is_ok());
        let refusal = Arguments::parse(r#"{"a":  1}"#, 8).unwrap_err();
        assert_eq!(refusal.problem, Problem::TooLarge { max_bytes: 8 });
    }

    #[test]
    fn stored_arguments_come_back_and_nothing_else_does() {
        let arguments = parse(&format!("{{\"a\":1{},\"b\":1e20}}", "0".repeat(500)));
        let stored = arguments.canonical().to_owned();
        assert_eq!(Arguments::from_stored(&stored).unwrap(), arguments);
        for (text, problem) in [
            ("{\"a\": 1}", Problem::NotCanonical),
            ("{\"a\":1.0}", Problem::NotCanonical),
            ("[]", Problem::NotAnObject),
            ("", Problem::UnexpectedEnd),
        ] {
            assert_eq!(Arguments::from_stored(text).unwrap_err().problem, problem, "{text}");
        }
    }

    #[test]
    fn debug_shows_no_content() {
        assert_eq!(format!("{:?}", parse(r#"{"password":"hunter2"}"#)), "Arguments(22 bytes)");
    }

    fn parse(text: &str) -> Arguments {
        Arguments::parse(text, DEFAULT_MAX_ARGUMENTS_BYTES).unwrap()
    }
}
