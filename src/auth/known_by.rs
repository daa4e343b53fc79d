//! What a caller is known by: exactly one kind of credential each.

use super::token::TokenHash;
use crate::domain::text::Identifier;
use std::collections::BTreeMap;

/// The longest SPIFFE id, in bytes, as its standard says.
const SPIFFE_BYTES: usize = 2048;
const SPIFFE: &str = "spiffe://";

/// What a caller is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnownBy {
    /// A bearer token of this hash.
    Token(TokenHash),
    /// A client's certificate of this name.
    Certificate(CertificateName),
    /// A process of this effective user id at the other end of a Unix socket.
    User(u32),
    /// A token of an issuer.
    Claims(RequiredClaims),
}

/// A name in a client's certificate, compared byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// Its SPIFFE id: its only URI.
    Spiffe(SpiffePattern),
    /// One of its DNS names, in lower case.
    Dns(String),
    /// One of its URIs.
    Uri(String),
}

/// What a token of an issuer must say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredClaims {
    /// The issuer, by its name in the configuration.
    pub issuer: Identifier,
    /// Claims that must be these texts, or lists that have them.
    pub claims: BTreeMap<String, String>,
    /// The claim that names the person, or the one principal that an agent may act for. None: no claim is asked.
    pub principal_claim: Option<String>,
}

impl KnownBy {
    /// Whether one credential could, as far as can be told beforehand, be both. What cannot be told beforehand (a certificate
    /// of several names, a claim that is a list) is ambiguous when it comes, and refused then.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Token(one), Self::Token(other)) => one == other,
            (Self::User(one), Self::User(other)) => one == other,
            (Self::Certificate(one), Self::Certificate(other)) => one.overlaps(other),
            (Self::Claims(one), Self::Claims(other)) => one.overlaps(other),
            (Self::Token(_) | Self::User(_) | Self::Certificate(_) | Self::Claims(_), _) => false,
        }
    }

    /// The kind of it in words, for problems of a configuration.
    pub const fn noun(&self) -> &'static str {
        match self {
            Self::Token(_) => "token",
            Self::Certificate(_) => "certificate",
            Self::User(_) => "uid",
            Self::Claims(_) => "claims",
        }
    }
}

impl CertificateName {
    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Spiffe(one), Self::Spiffe(other)) => one.overlaps(other),
            (Self::Dns(one), Self::Dns(other)) | (Self::Uri(one), Self::Uri(other)) => one == other,
            (Self::Spiffe(_) | Self::Dns(_) | Self::Uri(_), _) => false,
        }
    }
}

impl RequiredClaims {
    /// Two of one issuer are apart only where they ask for different texts of one claim.
    fn overlaps(&self, other: &Self) -> bool {
        let apart = |(name, text): (&String, &String)| other.claims.get(name).is_some_and(|other| other != text);
        self.issuer == other.issuer && !self.claims.iter().any(apart)
    }
}

/// A SPIFFE id, in whose path `*` stands for any run of characters within one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpiffePattern {
    domain: String,
    segments: Vec<String>,
}

impl SpiffePattern {
    /// Reads `spiffe://TRUST-DOMAIN/PATH`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (domain, segments) = parts(text, true)?;
        Ok(Self { domain: domain.to_owned(), segments: segments.into_iter().map(str::to_owned).collect() })
    }

    /// The one id that it is; none if it has a wildcard.
    pub fn exact(&self) -> Option<String> {
        let exact = !self.segments.iter().any(|segment| segment.contains('*'));
        exact.then(|| format!("{SPIFFE}{}/{}", self.domain, self.segments.join("/")))
    }

    /// Whether `uri` is a SPIFFE id of this form.
    pub fn matches(&self, uri: &str) -> bool {
        let Ok((domain, segments)) = parts(uri, false) else { return false };
        let segment = |(pattern, name): (&String, &&str)| crate::domain::pattern::Pattern::new(pattern).matches(name);
        domain == self.domain
            && segments.len() == self.segments.len()
            && self.segments.iter().zip(&segments).all(segment)
    }

    /// Whether there is a SPIFFE id of both forms.
    fn overlaps(&self, other: &Self) -> bool {
        let meet = |(one, other): (&String, &String)| meet(one.as_bytes(), other.as_bytes());
        self.domain == other.domain
            && self.segments.len() == other.segments.len()
            && self.segments.iter().zip(&other.segments).all(meet)
    }
}

/// Trust domain and path of a SPIFFE id, or of a pattern of them.
fn parts(text: &str, pattern: bool) -> Result<(&str, Vec<&str>), &'static str> {
    let rest = text.strip_prefix(SPIFFE).ok_or("does not begin with `spiffe://`")?;
    if text.len() > SPIFFE_BYTES {
        return Err("is longer than 2048 bytes");
    }
    let (domain, path) = rest.split_once('/').ok_or("has no path: a trust domain alone is no workload")?;
    let in_domain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    if domain.is_empty() || domain.len() > 255 || !domain.bytes().all(in_domain) {
        return Err("has a trust domain of other characters than a to z, 0 to 9, `.`, `-` and `_`");
    }
    let in_path = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte) || (pattern && byte == b'*');
    let segments: Vec<&str> = path.split('/').collect();
    for segment in &segments {
        if segment.is_empty() || [".", ".."].contains(segment) {
            return Err("has an empty or relative part in its path");
        }
        if !segment.bytes().all(in_path) {
            return Err("has a path of other characters than letters, digits, `.`, `-`, `_` and, in a pattern, `*`");
        }
    }
    Ok((domain, segments))
}

/// Whether some text is of both forms, in each of which `*` is any run of characters.
fn meet(one: &[u8], other: &[u8]) -> bool {
    // Row by row: whether what is left of `one` from here and of `other` from each place have a text in common.
    let mut below: Vec<bool> = Vec::new();
    for at in (0..=one.len()).rev() {
        let first = one.get(at);
        let mut row = vec![false; other.len() + 1];
        for place in (0..=other.len()).rev() {
            let second = other.get(place);
            let is = |row: &[bool], place: usize| row.get(place).copied().unwrap_or(false);
            let met = match (first, second) {
                (None, None) => true,
                (Some(b'*'), _) if is(&below, place) => true,
                (_, Some(b'*')) if is(&row, place + 1) => true,
                (Some(b'*'), Some(_)) => is(&row, place + 1),
                (Some(_), Some(b'*')) => is(&below, place),
                (Some(first), Some(second)) => first == second && is(&below, place + 1),
                (None, Some(_)) | (Some(_), None) => false,
            };
            if let Some(cell) = row.get_mut(place) {
                *cell = met;
            }
        }
        below = row;
    }
    below.first().copied().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::pattern::Pattern;
    use proptest::prelude::*;

    fn spiffe(text: &str) -> SpiffePattern {
        SpiffePattern::parse(text).unwrap()
    }

    #[test]
    fn a_star_never_crosses_a_slash_or_reaches_the_trust_domain() {
        let pattern = spiffe("spiffe://acme.com/ns/*/sa/agent-*");
        for (uri, want) in [
            ("spiffe://acme.com/ns/prod/sa/agent-1", true),
            ("spiffe://acme.com/ns/prod/sa/agent-", true),
            ("spiffe://acme.com/ns/prod/x/sa/agent-1", false),
            ("spiffe://acme.com/ns/prod/sa/agent-1/x", false),
            ("spiffe://acme.com/ns/sa/agent-1", false),
            ("spiffe://acme.com/ns//sa/agent-1", false),
            ("spiffe://acme.com/ns/../sa/agent-1", false),
            ("spiffe://acme.com/ns/prod%2Fx/sa/agent-1", false),
            ("spiffe://evil.com/ns/prod/sa/agent-1", false),
            ("spiffe://ACME.com/ns/prod/sa/agent-1", false),
            ("SPIFFE://acme.com/ns/prod/sa/agent-1", false),
            ("https://acme.com/ns/prod/sa/agent-1", false),
            ("spiffe://acme.com/ns/prod/sa/agent-1?x", false),
            ("spiffe://acme.com:80/ns/prod/sa/agent-1", false),
            ("spiffe://acme.com/ns/*/sa/agent-*", false),
        ] {
            assert_eq!(pattern.matches(uri), want, "{uri}");
        }
        for wrong in ["spiffe://*/x", "spiffe://a", "spiffe://a/", "spiffe:///x", "spiffe://A/x", "x", "spiffe://a/b?c"]
        {
            assert!(SpiffePattern::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(spiffe("spiffe://a/b").exact().as_deref(), Some("spiffe://a/b"));
        assert_eq!(pattern.exact(), None);
    }

    #[test]
    fn what_one_credential_could_be_both_of_is_known_beforehand() {
        let certificate = |text: &str| KnownBy::Certificate(CertificateName::Spiffe(spiffe(text)));
        for (one, other, want) in [
            ("spiffe://a/x", "spiffe://a/x", true),
            ("spiffe://a/x", "spiffe://b/x", false),
            ("spiffe://a/*", "spiffe://a/x", true),
            ("spiffe://a/*", "spiffe://a/x/y", false),
            ("spiffe://a/*/y", "spiffe://a/x/*", true),
            ("spiffe://a/ab*", "spiffe://a/*ba", true),
            ("spiffe://a/ab*", "spiffe://a/ba*", false),
        ] {
            assert_eq!(certificate(one).overlaps(&certificate(other)), want, "{one} {other}");
            assert_eq!(certificate(other).overlaps(&certificate(one)), want, "{one} {other}");
        }
        let claims = |issuer: &str, pairs: &[(&str, &str)]| {
            KnownBy::Claims(RequiredClaims {
                issuer: Identifier::parse(issuer).unwrap(),
                claims: pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
                principal_claim: None,
            })
        };
        assert!(claims("corp", &[]).overlaps(&claims("corp", &[("azp", "chat")])));
        assert!(claims("corp", &[("azp", "chat")]).overlaps(&claims("corp", &[("scope", "x")])));
        assert!(!claims("corp", &[("azp", "chat")]).overlaps(&claims("corp", &[("azp", "agent"), ("scope", "x")])));
        assert!(!claims("corp", &[]).overlaps(&claims("other", &[])));
        assert!(!claims("corp", &[]).overlaps(&KnownBy::User(1)));
    }

    proptest! {
        #[test]
        fn what_both_patterns_match_makes_them_meet(one in "[ab*]{0,6}", other in "[ab*]{0,6}") {
            let names = (0..=6_u32).flat_map(|length| (0..1_u32 << length).map(move |bits| (length, bits)));
            let mut names = names.map(|(length, bits)| -> String {
                (0..length).map(|place| if bits >> place & 1 == 0 { 'a' } else { 'b' }).collect()
            });
            let both = |name: String| Pattern::new(&one).matches(&name) && Pattern::new(&other).matches(&name);
            let found = names.any(both);
            let met = meet(one.as_bytes(), other.as_bytes());
            prop_assert!(met || !found);
            // Six letters hold every text that two such patterns need, unless both have many.
            let letters = |text: &str| text.bytes().filter(|byte| *byte != b'*').count();
            prop_assert!(found || !met || letters(&one) + letters(&other) > 6);
        }
    }
}
