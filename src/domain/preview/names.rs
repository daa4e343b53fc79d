//! Which names of members announce a secret.

use crate::domain::json::Json;

use super::config::PreviewConfig;

/// Words that announce a secret wherever they stand in a name: letters only, lower case.
const LONG_WORDS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "passkey",
    "passwort",
    "kennwort",
    "motdepasse",
    "contraseña",
    "contrasena",
    "secret",
    "credential",
    "authorization",
    "authorisation",
    "cookie",
    "apikey",
    "privatekey",
    "sessionkey",
    "accesskey",
    "signingkey",
    "encryptionkey",
    "masterkey",
    "sharedkey",
    "sshkey",
    "accountkey",
    "connectionstring",
    "accesstoken",
    "refreshtoken",
    "authtoken",
    "apitoken",
    "sessiontoken",
    "securitytoken",
    "csrftoken",
    "xsrftoken",
    "bearertoken",
    "recoverycode",
    "verificationcode",
    "securitycode",
    "seedphrase",
    "cardnumber",
    "creditcard",
    "socialsecurity",
];

/// Words that announce a secret as a whole word, singular or plural.
const SHORT_WORDS: &[&str] = &[
    "pin",
    "otp",
    "totp",
    "ssn",
    "cvv",
    "cvc",
    "pwd",
    "pswd",
    "pass",
    "pw",
    "jwt",
    "token",
    "bearer",
    "psk",
    "auth",
    "pat",
    "sig",
    "signature",
    "sas",
    "mfa",
    "tan",
];

/// After a short word these say that the value is someone or something known by it, not the secret: a mask there would
/// hide who is meant.
const IDENTITIES: &[&str] = &["email", "mail", "to", "user", "username", "recipient", "id", "name", "address", "type"];

/// Expressions that are no secret: people, quantities of language, places in a list, kinds rather than contents.
const EXCEPTIONS: &[&str] = &[
    "secretary",
    "secretaries",
    "secretariat",
    "max_tokens",
    "min_tokens",
    "num_tokens",
    "n_tokens",
    "total_tokens",
    "prompt_tokens",
    "completion_tokens",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "thinking_tokens",
    "max_new_tokens",
    "max_output_tokens",
    "max_completion_tokens",
    "token_count",
    "token_limit",
    "token_budget",
    "token_usage",
    "tokens_used",
    "tokens_per_minute",
    "token_type",
    "page_token",
    "next_token",
    "continuation_token",
    "sync_token",
    "cursor_token",
    "pagination_token",
    "auth_type",
    "auth_method",
    "auth_mode",
    "auth_required",
    "requires_auth",
    "auth_provider",
    "pass_count",
    "pass_rate",
    "pass_fail",
    "pass_through",
    "pass_number",
    "pass_threshold",
    "boarding_pass",
    "email_signature",
    "mail_signature",
    "signature_html",
    "signature_block",
    "signature_request",
    "signature_count",
    "include_signature",
    "add_signature",
    "cookie_policy",
    "cookie_banner",
    "cookie_consent",
];

/// Names of parameters that carry a secret where they stand in a URL, though not elsewhere.
const URL_PARAMETERS: &[&str] =
    &["key", "sig", "signature", "code", "sid", "session", "sessionid", "pass", "pw", "hmac", "assertion"];

/// Members whose text names what the object's value is: `{name: "Authorization", value: …}`.
const LABELS: &[&str] =
    &["name", "key", "header", "headername", "param", "parameter", "variable", "label", "type", "id"];

/// Members whose text names where something is entered: `{element: "Password field", text: …}`.
const INPUTS: &[&str] = &["field", "fieldname", "input", "inputname", "element", "selector", "locator", "placeholder"];

/// Members that hold what a label names.
const VALUES: &[&str] =
    &["value", "values", "val", "default", "defaultvalue", "headervalue", "fieldvalue", "stringvalue"];

/// Members that hold what is entered.
const ENTERED: &[&str] = &["text", "content", "data", "keys"];

/// A label is a name; a longer text is prose.
const MAX_LABEL_BYTES: usize = 64;

/// The compiled words.
#[derive(Debug, Clone)]
pub(super) struct SensitiveNames {
    long: WordList,
    short: WordList,
    exceptions: Vec<Exception>,
}

/// Words by their first byte, so that a text is searched for all of them in one pass.
#[derive(Debug, Clone)]
struct WordList {
    by_first_byte: Vec<Vec<String>>,
}

#[derive(Debug, Clone)]
struct Exception {
    letters: String,
    words: Vec<String>,
}

/// Which members of an object hold what a sensitive label beside them names.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Labels {
    value: bool,
    entered: bool,
}

impl Labels {
    /// Whether the member of that name does.
    pub(super) fn cover(self, name: &str) -> bool {
        if !(self.value || self.entered) || name.len() > MAX_LABEL_BYTES {
            return false;
        }
        let name = letters(name);
        self.value && VALUES.contains(&&*name) || self.entered && ENTERED.contains(&&*name)
    }
}

impl SensitiveNames {
    /// The built-in words and those of `config`.
    pub(super) fn new(config: &PreviewConfig) -> Self {
        let with = |words: &[&str], more: &[String]| -> Vec<String> {
            words.iter().map(|word| (*word).to_owned()).chain(more.iter().cloned()).collect()
        };
        let exception = |text: String| Exception { letters: letters(&text), words: singular_words(&text) };
        Self {
            long: with(LONG_WORDS, &config.sensitive_words).iter().map(|word| letters(word)).collect(),
            short: with(SHORT_WORDS, &config.sensitive_short_words)
                .iter()
                .flat_map(|word| singular_words(word))
                .collect(),
            exceptions: with(EXCEPTIONS, &config.not_sensitive).into_iter().map(exception).collect(),
        }
    }

    /// Whether a member of that name holds a secret.
    pub(super) fn is_sensitive(&self, name: &str) -> bool {
        let letters = letters(name);
        // Most names have no such letters in them at all; only of the others are the words looked at.
        self.has_long_word(&letters)
            || self.short.is_within(&letters) && self.has_short_word(name)
            || has_two_factor(name)
    }

    /// Whether the letters of a text end with a word that announces a secret wherever it stands.
    pub(super) fn ends_sensitive(&self, text: &str) -> bool {
        self.long.ends(&letters(text))
    }

    /// Whether a text is the name of a secret, given as a value: `Authorization` in `{name: …, value: …}`.
    pub(super) fn is_sensitive_label(&self, text: &str) -> bool {
        text.len() <= MAX_LABEL_BYTES && self.is_sensitive(text)
    }

    /// What the sensitive labels among an object's members say of the others.
    pub(super) fn sensitive_labels(&self, members: &[(String, Json)]) -> Labels {
        let mut labels = Labels::default();
        for (name, value) in members {
            let Some(text) = value.as_str().filter(|_| name.len() <= MAX_LABEL_BYTES) else { continue };
            let name = letters(name);
            let (label, input) = (LABELS.contains(&&*name), INPUTS.contains(&&*name));
            if (label || input) && self.is_sensitive_label(text) {
                labels.value = true;
                labels.entered |= input;
            }
        }
        labels
    }

    fn has_long_word(&self, letters: &str) -> bool {
        if !self.long.is_within(letters) {
            return false;
        }
        let mut letters = letters.to_owned();
        for exception in &self.exceptions {
            if letters.contains(&exception.letters) {
                // A space, so that what stood before and after does not become one word.
                letters = letters.replace(&exception.letters, " ");
            }
        }
        self.long.is_within(&letters)
    }

    fn has_short_word(&self, name: &str) -> bool {
        let mut words = singular_words(name);
        if !words.iter().any(|word| self.short.contains(word)) {
            return false;
        }
        for exception in &self.exceptions {
            let length = exception.words.len();
            let mut start = 0;
            while let Some(found) = words.get_mut(start..start + length) {
                if found == exception.words {
                    found.iter_mut().for_each(String::clear);
                }
                start += 1;
            }
        }
        let of_someone = |at: usize| words.get(at + 1).is_some_and(|next| IDENTITIES.contains(&next.as_str()));
        words.iter().enumerate().any(|(at, word)| self.short.contains(word) && !of_someone(at))
    }
}

impl FromIterator<String> for WordList {
    fn from_iter<I: IntoIterator<Item = String>>(words: I) -> Self {
        let mut by_first_byte = vec![Vec::new(); 256];
        for word in words {
            let first = word.bytes().next().map(usize::from);
            if let Some(list) = first.and_then(|first| by_first_byte.get_mut(first)) {
                list.push(word);
            }
        }
        Self { by_first_byte }
    }
}

impl WordList {
    fn starting_with(&self, byte: u8) -> &[String] {
        self.by_first_byte.get(usize::from(byte)).map_or(&[], Vec::as_slice)
    }

    fn contains(&self, word: &str) -> bool {
        word.bytes().next().is_some_and(|first| self.starting_with(first).iter().any(|ours| ours == word))
    }

    /// Whether one of the words stands anywhere in `text`.
    fn is_within(&self, text: &str) -> bool {
        let bytes = text.as_bytes();
        bytes.iter().enumerate().any(|(at, first)| {
            let rest = bytes.get(at..).unwrap_or_default();
            self.starting_with(*first).iter().any(|word| rest.starts_with(word.as_bytes()))
        })
    }

    /// Whether one of the words stands at the end of `text`.
    fn ends(&self, text: &str) -> bool {
        self.by_first_byte.iter().flatten().any(|word| text.ends_with(word.as_str()))
    }
}

/// Whether `2fa` stands in a name as a word; its digit is no letter, so it is not among the others.
fn has_two_factor(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.windows(3).enumerate().any(|(at, window)| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        window.eq_ignore_ascii_case(b"2fa")
            && !before.is_some_and(u8::is_ascii_digit)
            && !bytes.get(at + 3).is_some_and(|after| after.is_ascii_lowercase() || after.is_ascii_digit())
    })
}

/// Whether a parameter of a URL carries a secret by its name alone.
pub(super) fn is_url_secret(parameter: &str) -> bool {
    URL_PARAMETERS.iter().any(|name| parameter.eq_ignore_ascii_case(name))
}

/// The letters of a text, in lower case, and nothing else.
pub(super) fn letters(text: &str) -> String {
    if text.is_ascii() {
        return text
            .bytes()
            .filter(u8::is_ascii_alphabetic)
            .map(|byte| char::from(byte.to_ascii_lowercase()))
            .collect();
    }
    text.chars().filter(|character| character.is_alphabetic()).flat_map(char::to_lowercase).collect()
}

/// The words of a name in lower case: parted by whatever is no letter, and as camelCase parts them. `JWTTokens` is two
/// words, and so is `userPINs`.
pub(super) fn split_words(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    for part in name.split(|character: char| !character.is_alphabetic()).filter(|part| !part.is_empty()) {
        let characters: Vec<char> = part.chars().collect();
        let mut word = String::new();
        for (at, character) in characters.iter().enumerate() {
            let before = at.checked_sub(1).and_then(|at| characters.get(at));
            if before
                .is_some_and(|before| starts_word(*before, *character, characters.get(at + 1..).unwrap_or_default()))
            {
                words.push(std::mem::take(&mut word));
            }
            word.extend(character.to_lowercase());
        }
        words.push(word);
    }
    words
}

/// Whether `character` starts a word after `before`, given what follows.
fn starts_word(before: char, character: char, after: &[char]) -> bool {
    if !character.is_uppercase() {
        return false;
    }
    if !before.is_uppercase() {
        return true;
    }
    // The last capital of a row starts a word, except before the `s` of a plural: `PINs`, `PINsOf`.
    match after {
        ['s'] => false,
        ['s', next, ..] if next.is_uppercase() => false,
        [next, ..] => next.is_lowercase(),
        [] => false,
    }
}

fn singular_words(name: &str) -> Vec<String> {
    let mut words = split_words(name);
    for word in &mut words {
        // `pass`, `address` and `sas` are no plurals.
        if word.len() > 2 && word.ends_with('s') && !word.ends_with("ss") && word != "sas" {
            word.pop();
        }
    }
    words
}
