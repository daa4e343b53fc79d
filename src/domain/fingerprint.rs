//! Digests: the fingerprint that binds an approval to one invocation, and those of other texts.
//!
//! A fingerprint is a consistency check. It covers all of the arguments, whatever a person was shown; it neither
//! encrypts nor judges whether two texts mean the same.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::arguments::Arguments;
use super::canonical::push_string;
use super::hex::{self, parse_hex};

/// A text that is not a digest of the kind that is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DigestProblem {
    /// What the text has to start with; may be empty. 64 lower-case hexadecimal digits follow.
    pub prefix: &'static str,
}

impl fmt::Display for DigestProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.prefix.is_empty() {
            write!(formatter, "{} and ", self.prefix)?;
        }
        formatter.write_str("64 lower-case hexadecimal digits are needed")
    }
}

impl std::error::Error for DigestProblem {}

/// SHA-256 of some bytes, written as 64 lower-case hexadecimal digits. The types below keep digests of different
/// things apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// A digest that was computed elsewhere.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads `prefix` and exactly 64 lower-case hexadecimal digits.
    pub fn parse(text: &str, prefix: &'static str) -> Result<Self, DigestProblem> {
        text.strip_prefix(prefix).and_then(parse_hex).map(Self).ok_or(DigestProblem { prefix })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [0; 64];
        hex::fill(&mut digits, &self.0);
        // Digits are text.
        formatter.write_str(std::str::from_utf8(&digits).unwrap_or_default())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

/// A type of digest with its own prefix, which no other type's text has.
macro_rules! digest_type {
    ($(#[$meta:meta])* $name:ident, $prefix:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Digest);

        impl $name {
            /// What its text starts with.
            pub const PREFIX: &'static str = $prefix;

            /// A digest that was computed elsewhere.
            pub const fn from_digest(digest: Digest) -> Self {
                Self(digest)
            }

            /// Its 32 bytes.
            pub const fn as_bytes(&self) -> &[u8; 32] {
                self.0.as_bytes()
            }

            /// Reads its text: the prefix and exactly 64 lower-case hexadecimal digits.
            pub fn parse(text: &str) -> Result<Self, DigestProblem> {
                Digest::parse(text, $prefix).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str($prefix)?;
                fmt::Display::fmt(&self.0, formatter)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{self}")
            }
        }

        impl std::str::FromStr for $name {
            type Err = DigestProblem;

            fn from_str(text: &str) -> Result<Self, DigestProblem> {
                Self::parse(text)
            }
        }
    };
}

digest_type!(
    /// What an approval covers, version 1: `v1:` and 64 lower-case hexadecimal digits.
    Fingerprint,
    "v1:"
);

digest_type!(
    /// SHA-256 of a tool's definition in canonical JSON: `td1:` and 64 lower-case hexadecimal digits.
    DefinitionDigest,
    "td1:"
);

digest_type!(
    /// SHA-256 of an invocation's arguments in canonical JSON: 64 lower-case hexadecimal digits.
    ArgumentsDigest,
    ""
);

/// What a fingerprint covers. The texts need not be valid identifiers: it can be computed over any.
#[derive(Debug, Clone, Copy)]
pub struct FingerprintInput<'a> {
    /// The external identity that the connector acts as; empty where it has none.
    pub account: &'a str,
    /// The operation.
    pub action: &'a str,
    /// The integration.
    pub connector: &'a str,
    /// What the agent is working on, if it says.
    pub objective: Option<ObjectiveRef<'a>>,
    /// All of the arguments.
    pub arguments: &'a Arguments,
}

/// An objective in one revision.
#[derive(Debug, Clone, Copy)]
pub struct ObjectiveRef<'a> {
    /// The transcript that it belongs to.
    pub transcript: &'a str,
    /// Its id, or that of the input.
    pub id: &'a str,
    /// Its revision, up to [`super::limits::MAX_REVISION`].
    pub revision: u64,
}

impl Fingerprint {
    /// SHA-256 over the canonical JSON of
    /// `{"account":…,"action":…,"arguments":{…},"connector":…,"objective":null|{"id":…,"revision":…,"transcript":…},"v":1}`.
    pub fn of(input: &FingerprintInput<'_>) -> Self {
        // Hashed piece by piece, so that the arguments are not copied.
        let mut hash = Sha256::new();
        let mut text = String::with_capacity(256);
        text.push_str("{\"account\":");
        push_string(input.account, &mut text);
        text.push_str(",\"action\":");
        push_string(input.action, &mut text);
        text.push_str(",\"arguments\":");
        hash.update(&text);
        hash.update(input.arguments.canonical());
        text.clear();
        text.push_str(",\"connector\":");
        push_string(input.connector, &mut text);
        text.push_str(",\"objective\":");
        match input.objective {
            None => text.push_str("null"),
            Some(ObjectiveRef { transcript, id, revision }) => {
                text.push_str("{\"id\":");
                push_string(id, &mut text);
                text.push_str(",\"revision\":");
                text.push_str(&revision.to_string());
                text.push_str(",\"transcript\":");
                push_string(transcript, &mut text);
                text.push('}');
            }
        }
        text.push_str(",\"v\":1}");
        hash.update(&text);
        Self(Digest(hash.finalize().into()))
    }
}

impl DefinitionDigest {
    /// The digest of a tool's definition, given its canonical text.
    pub fn of(canonical: &[u8]) -> Self {
        Self(Digest::of(canonical))
    }
}

impl ArgumentsDigest {
    /// The digest of arguments, given their canonical text.
    pub fn of(canonical: &[u8]) -> Self {
        Self(Digest::of(canonical))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::domain::canonical::{Limits, MAX_BYTES, Top, canonicalise};
    use crate::domain::testing::moved;
    use proptest::prelude::*;

    const VECTORS: &str = include_str!("../../tests/vectors/canonical-and-fingerprint.json");

    #[test]
    fn fingerprints_of_the_published_vectors_are_reproduced() {
        let vectors: serde_json::Value = serde_json::from_str(VECTORS).unwrap();
        let vectors = vectors["fingerprint"].as_array().unwrap();
        assert!(vectors.len() >= 12);
        for vector in vectors {
            let text = |name: &str| vector[name].as_str().unwrap();
            let arguments = parse(text("arguments_json"));
            let objective = &vector["objective"];
            let objective = objective.is_object().then(|| ObjectiveRef {
                transcript: objective["transcript"].as_str().unwrap(),
                id: objective["id"].as_str().unwrap(),
                revision: objective["revision"].as_u64().unwrap(),
            });
            let input = FingerprintInput {
                account: text("account"),
                action: text("action"),
                connector: text("connector"),
                objective,
                arguments: &arguments,
            };
            assert_eq!(Fingerprint::of(&input).to_string(), text("fingerprint"), "{}", text("name"));
        }
    }

    #[test]
    fn fingerprint_is_the_digest_of_the_canonical_json_it_is_documented_as() {
        let arguments = parse(r#"{"b":[1e2],"a":"ü"}"#);
        let input = FingerprintInput {
            account: "a\"\u{1}",
            action: "b",
            connector: "c",
            objective: Some(ObjectiveRef { transcript: "t", id: "i", revision: crate::domain::limits::MAX_REVISION }),
            arguments: &arguments,
        };
        let text = r#"{"v":1,"objective":{"transcript":"t","revision":9007199254740991,"id":"i"},"connector":"c",
            "arguments":{"b":[1e2],"a":"ü"},"action":"b","account":"a\"\u0001"}"#;
        let canonical = canonicalise(text, Limits { max_bytes: MAX_BYTES, top: Top::Object }).unwrap();
        assert_eq!(Fingerprint::of(&input).0, Digest::of(canonical.as_bytes()));
    }

    #[test]
    fn text_moved_across_a_border_changes_the_fingerprint() {
        let mut seen = HashSet::new();
        let none = Arguments::default();
        let objective = Some(ObjectiveRef { transcript: "t", id: "i", revision: 1 });
        let swapped = Some(ObjectiveRef { transcript: "i", id: "t", revision: 1 });
        for (account, action, connector, objective) in [
            ("ab", "c", "d", None),
            ("a", "bc", "d", None),
            ("", "abc", "d", None),
            ("a", "c", "bd", None),
            ("a\",\"action\":\"b", "c", "d", None),
            ("a\\", "\"c", "d", None),
            ("a\\\"", "c", "d", None),
            ("a\nb", "c", "d", None),
            ("a", "b\nc", "d", None),
            ("ab", "c", "d", objective),
            ("ab", "c", "d", swapped),
            ("ab", "c", "d\",\"objective\":null,\"v\":1}", None),
        ] {
            let input = FingerprintInput { account, action, connector, objective, arguments: &none };
            assert!(seen.insert(Fingerprint::of(&input)), "{input:?}");
        }
    }

    proptest! {
        #[test]
        fn fingerprints_are_equal_where_all_that_they_cover_is_and_nowhere_else((one, other) in moved(6), revision in 0..2_u64) {
            let of = |fields: &[String], revision| {
                let member = |name: &str, text: &str| format!("{}:{}", serde_json::json!(name), serde_json::json!(text));
                let arguments = parse(&format!("{{{}}}", member("k", &fields[5])));
                Fingerprint::of(&FingerprintInput {
                    account: &fields[0],
                    action: &fields[1],
                    connector: &fields[2],
                    objective: Some(ObjectiveRef { transcript: &fields[3], id: &fields[4], revision }),
                    arguments: &arguments,
                })
            };
            prop_assert_eq!(of(&one, 0) == of(&other, revision), one == other && revision == 0);
        }

        #[test]
        fn digests_of_arguments_are_equal_where_the_arguments_are_and_nowhere_else((one, other) in moved(4)) {
            let of = |fields: &[String]| {
                let text = serde_json::json!({ "a": fields[0], "b": [fields[1], fields[2]], "c": { "d": fields[3] } });
                parse(&text.to_string()).digest()
            };
            prop_assert_eq!(of(&one) == of(&other), one == other);
        }
    }

    #[test]
    fn digest_is_read_back_from_its_own_text_alone() {
        let digest = Digest::of(b"x");
        let hex = digest.to_string();
        assert_eq!(hex.len(), 64);
        assert_eq!(Digest::parse(&hex, ""), Ok(digest));
        let fingerprint = Fingerprint::from_digest(digest);
        assert_eq!(fingerprint.to_string(), format!("v1:{hex}"));
        assert_eq!(Fingerprint::parse(&fingerprint.to_string()), Ok(fingerprint));
        assert_eq!(format!("td1:{hex}").parse(), Ok(DefinitionDigest::from_digest(digest)));
        for wrong in [
            hex.clone(),
            format!("V1:{hex}"),
            format!("v2:{hex}"),
            format!("td1:{hex}"),
            format!("v1:{}", hex.to_uppercase()),
            format!("v1:{hex}0"),
            format!("v1: {hex}"),
            format!("v1:{}", hex.get(1..).unwrap()),
            format!("v1:{}g", hex.get(1..).unwrap()),
            format!("v1:{}é", hex.get(2..).unwrap()),
            String::new(),
        ] {
            assert_eq!(Fingerprint::parse(&wrong), Err(DigestProblem { prefix: "v1:" }), "{wrong}");
        }
        assert!(ArgumentsDigest::parse(&format!("v1:{hex}")).is_err());
    }

    fn parse(text: &str) -> Arguments {
        Arguments::parse(text, MAX_BYTES).unwrap()
    }
}
