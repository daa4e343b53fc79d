//! Names with `*` as the only wildcard: any run of characters, also none, within the one field that it is compared with.
//! Everything else is compared byte for byte; there is no case folding and no normalisation.

/// A pattern for agents, accounts or actions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pattern {
    text: Box<str>,
    /// Whether `*` is a character like any other.
    exact: bool,
}

impl Pattern {
    /// The pattern of this text, which is an identifier in which `*` stands for any run of characters.
    pub fn new(text: &str) -> Self {
        Self { text: text.into(), exact: false }
    }

    /// The pattern of this name alone, in which `*` stands for itself: what a request or a token says is no pattern.
    pub fn exactly(name: &str) -> Self {
        Self { text: name.into(), exact: true }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether `name` as a whole is of this form. Takes time in the product of both lengths at worst, and no memory.
    pub fn matches(&self, name: &str) -> bool {
        if self.exact {
            return &*self.text == name;
        }
        let Some((start, rest)) = self.text.split_once('*') else { return &*self.text == name };
        let Some(mut name) = name.strip_prefix(start) else { return false };
        let Some((middle, end)) = rest.rsplit_once('*') else { return name.ends_with(rest) };
        // Leftmost matches of the middle parts leave the most for those that follow.
        for part in middle.split('*') {
            match name.split_once(part) {
                Some((_, after)) => name = after,
                None => return false,
            }
        }
        name.ends_with(end)
    }
}

/// Whether one of `patterns` matches.
pub fn any_matches(patterns: &[Pattern], name: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_trial(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|taken| by_trial(rest, &name[taken..])),
            Some((byte, rest)) => name.first() == Some(byte) && by_trial(rest, &name[1..]),
        }
    }

    #[test]
    fn a_star_is_any_run_and_nothing_else_is_special() {
        for (pattern, name, want) in [
            ("GMAIL_SEND_*", "GMAIL_SEND_EMAIL", true),
            ("GMAIL_SEND_*", "GMAIL_SEND_", true),
            ("GMAIL_SEND_*", "gmail_send_email", false),
            ("GMAIL_SEND_*", "XGMAIL_SEND_EMAIL", false),
            ("*", "", true),
            ("*", "anything/at.all", true),
            ("a*a", "a", false),
            ("a*b*a", "aba", true),
            ("a*b*a", "aa", false),
            ("*x*", "axb", true),
            ("a?", "ab", false),
            ("[ab]", "a", false),
            ("a.c", "abc", false),
            ("caf\u{e9}", "cafe\u{301}", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(name), want, "{pattern:?} {name:?}");
        }
    }

    #[test]
    fn an_exact_name_has_no_wildcard() {
        for name in ["*", "a*", "", "kim"] {
            assert!(Pattern::exactly(name).matches(name));
        }
        assert!(!Pattern::exactly("*").matches("kim") && !Pattern::exactly("k*").matches("kim"));
    }

    #[test]
    fn a_hostile_pattern_takes_no_time_to_speak_of() {
        let pattern = Pattern::new(&"a*".repeat(128));
        assert!(!pattern.matches(&format!("{}b", "a".repeat(127))));
    }

    proptest! {
        #[test]
        fn matching_agrees_with_trying_every_run(pattern in "[ab*]{0,8}", name in "[ab*]{0,10}") {
            prop_assert_eq!(Pattern::new(&pattern).matches(&name), by_trial(pattern.as_bytes(), name.as_bytes()));
        }

        #[test]
        fn a_name_matches_itself(name in "\\PC{0,12}") {
            prop_assert!(Pattern::new(&name).matches(&name));
        }
    }
}
