//! What is secret in a test, and whether any of it stands where it must not: in the log, on a page, in a database, in an error.
//!
//! Everything that this process logs while somebody listens is kept, ours down to the finest. A secret is searched for as it
//! is, in hexadecimal digits and in base64, at whatever place of the encoded text it stands. What is found is named by what it
//! is and where it was, never by itself.

// Each test target uses its own part of this.
#![allow(dead_code)]

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::{Mutex, OnceLock, PoisonError};
use tracing_subscriber::EnvFilter;

/// What is logged by everybody in general: all of ours, and of the others what they say of what they do. What they say of
/// each byte on a wire is for the test that asks for it.
const LOGGED: &str = "debug,h2=info,hyper_util=info,sqlx=info,countersign=trace";
/// A shorter one would be found by chance.
const LEAST: usize = 10;
/// How each consume token begins, whoever made it.
const TOKEN: &[u8] = b"cs1.";

/// Secrets, each with what it is.
#[derive(Clone, Debug, Default)]
pub struct Secrets(BTreeSet<(String, Vec<u8>)>);

impl Secrets {
    /// Notes a secret.
    pub fn add(&mut self, what: impl Into<String>, secret: impl AsRef<[u8]>) {
        let secret = secret.as_ref();
        if secret.len() >= LEAST {
            self.0.insert((what.into(), secret.to_vec()));
        }
    }

    /// Notes a consume token, and what alone makes it one.
    pub fn add_token(&mut self, token: &str) {
        self.add("a consume token", token);
        if let Some((_, code)) = token.rsplit_once('.') {
            self.add("the code of a consume token", code);
        }
    }

    /// What is searched for.
    pub fn search(&self) -> Search {
        let (mut whats, mut needles) = (Vec::new(), Vec::new());
        for (what, secret) in &self.0 {
            for (form, needle) in forms(secret) {
                whats.push(format!("{what}{form}"));
                needles.push(needle);
            }
        }
        whats.push("a consume token".to_owned());
        needles.push(TOKEN.to_vec());
        let automaton = AhoCorasick::builder().match_kind(MatchKind::Standard).build(needles).unwrap();
        Search { whats, automaton }
    }
}

/// How a secret may be written.
fn forms(secret: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![
        ("", secret.to_vec()),
        (" in hexadecimal digits", hex.to_uppercase().into_bytes()),
        (" in hexadecimal digits", hex.into_bytes()),
    ];
    for before in 0..3 {
        // What stands before it moves the boundaries of the digits: those that only the secret decides are searched for.
        let mut moved = vec![0; before];
        moved.extend(secret);
        moved.truncate(moved.len() / 3 * 3);
        let decided_by_others = [0, 2, 3][before];
        for encoded in [STANDARD_NO_PAD.encode(&moved), URL_SAFE_NO_PAD.encode(&moved)] {
            forms.push((" in base64", encoded.into_bytes().split_off(decided_by_others)));
        }
    }
    forms.retain(|(_, needle)| needle.len() >= LEAST);
    forms
}

/// Secrets that are searched for.
#[derive(Debug)]
pub struct Search {
    whats: Vec<String>,
    automaton: AhoCorasick,
}

impl Search {
    /// What of it stands in `text`, which is at `place`.
    pub fn within(&self, place: &str, text: &[u8]) -> BTreeSet<String> {
        let found = self.automaton.find_overlapping_iter(text).filter(|found| {
            let is_token = found.pattern().as_usize() + 1 == self.whats.len();
            !is_token || is_whole_token(&text[found.start()..])
        });
        found.map(|found| format!("{} in {place}", self.whats[found.pattern().as_usize()])).collect()
    }
}

/// Whether a token begins here that somebody could use: `cs1.<16 digits>.<an id>.<64 digits>`.
fn is_whole_token(text: &[u8]) -> bool {
    let Some(token) = text.get(..4 + 16 + 1 + 36 + 1 + 64) else { return false };
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    token[4..20].iter().all(is_digit) && token[20] == b'.' && token[57] == b'.' && token[58..].iter().all(is_digit)
}

/// Fails where anything was found, unless the test is failing already.
#[track_caller]
pub fn nothing(found: &BTreeSet<String>) {
    if !found.is_empty() && !std::thread::panicking() {
        panic!("secrets stand where they must not: {found:#?}");
    }
}

/// Somebody who listens to the log, from when this was made.
#[derive(Debug)]
pub struct Listening(u64);

impl Listening {
    /// To everything that is logged from now on.
    pub fn begin() -> Self {
        LEVEL.get_or_init(|| {
            let lines = tracing_subscriber::fmt()
                .with_env_filter(EnvFilter::new(LOGGED))
                .with_ansi(false)
                .with_writer(|| Lines)
                .with_filter_reloading();
            let handle = lines.reload_handle();
            // Another one that was set before hears everything in its place: then what is here says so.
            lines.try_init().expect("nobody else listens to the whole process");
            Box::new(move |filter: &str| handle.reload(EnvFilter::new(filter)).unwrap())
        });
        let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        let from = log.begin + u64::try_from(log.lines.len()).unwrap();
        *log.listeners.entry(from).or_default() += 1;
        Self(from)
    }

    /// What was logged since.
    pub fn heard(&self) -> Vec<u8> {
        let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        log.lines[usize::try_from(self.0 - log.begin).unwrap()..].to_vec()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listeners) = log.listeners.get_mut(&self.0) {
            *listeners -= 1;
            if *listeners == 0 {
                log.listeners.remove(&self.0);
            }
        }
        // Nobody asks for what is older than the first who still listens.
        let end = log.begin + u64::try_from(log.lines.len()).unwrap();
        let first = log.listeners.keys().next().copied().unwrap_or(end);
        let old = usize::try_from(first - log.begin).unwrap();
        if old > 0 {
            log.lines.drain(..old);
            log.begin = first;
        }
    }
}

/// Everything of everybody, down to the bytes on the wire, is logged until this is dropped.
#[derive(Debug)]
pub struct Everything;

impl Everything {
    pub fn begin() -> Self {
        if let Some(level) = LEVEL.get() {
            level("trace");
        }
        Self
    }
}

impl Drop for Everything {
    fn drop(&mut self) {
        if let Some(level) = LEVEL.get() {
            level(LOGGED);
        }
    }
}

/// What sets the finest that is logged.
static LEVEL: OnceLock<SetLevel> = OnceLock::new();
type SetLevel = Box<dyn Fn(&str) + Send + Sync>;
static LOG: Mutex<Log> = Mutex::new(Log { begin: 0, lines: Vec::new(), listeners: BTreeMap::new() });

/// The log of this process, as far as somebody still listens to it.
#[derive(Debug)]
struct Log {
    /// How much was logged before what is here.
    begin: u64,
    lines: Vec<u8>,
    /// Where those who listen began, and how many did there.
    listeners: BTreeMap<u64, usize>,
}

struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        if !log.listeners.is_empty() {
            log.lines.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_secret_is_found_however_it_is_written_and_wherever_it_stands() {
    let secret = [0, 1, 0xfe, 0xff, 7, 8, 9, 10, 0xfb, 0xef, 0xbe, 13, 14, 15, 16, 0x3e];
    let mut secrets = Secrets::default();
    secrets.add("the secret", secret);
    secrets.add("too short to be one", "short");
    let search = secrets.search();
    for before in ["", "x", "xy", "xyz", "abcd"] {
        for after in ["", "1", "22", "333"] {
            let mut around = before.as_bytes().to_vec();
            around.extend(secret);
            around.extend(after.as_bytes());
            let hex: String = around.iter().map(|byte| format!("{byte:02X}")).collect();
            for text in [
                around.clone(),
                hex.to_lowercase().into_bytes(),
                hex.into_bytes(),
                STANDARD_NO_PAD.encode(&around).into_bytes(),
                URL_SAFE_NO_PAD.encode(&around).into_bytes(),
            ] {
                assert!(!search.within("a place", &text).is_empty(), "{before:?} {after:?} {text:?}");
            }
        }
    }
    assert!(search.within("a place", b"short and harmless, AAECAwQF, 0001fd").is_empty());
}

#[test]
fn a_token_that_nobody_noted_is_found_by_its_form() {
    let token = format!("cs1.{}.019b0000-0000-7000-8000-000000000000.{}", "0a".repeat(8), "b1".repeat(32));
    let search = Secrets::default().search();
    assert_eq!(
        search.within("a line", format!("token={token}").as_bytes()),
        ["a consume token in a line".to_owned()].into()
    );
    for harmless in ["cs1.", "cs1.<key id>.<approval id>.<mac>", &token[..token.len() - 1], &token.replace("b1", "b_")]
    {
        assert!(search.within("a line", harmless.as_bytes()).is_empty(), "{harmless}");
    }
}

#[test]
fn what_is_logged_while_somebody_listens_is_heard_and_no_longer_kept_than_that() {
    let listening = Listening::begin();
    tracing::trace!(target: "countersign", "a line of the test of {}", "listening");
    let heard = listening.heard();
    let line = "a line of the test of listening".as_bytes();
    assert!(heard.windows(line.len()).any(|part| part == line));
    let mut secrets = Secrets::default();
    secrets.add("what must not be logged", line);
    assert_eq!(secrets.search().within("the log", &heard), ["what must not be logged in the log".to_owned()].into());
}
