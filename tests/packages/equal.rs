//! Canonical JSON, digests and fingerprints of thousands of texts, hostile ones among them, are the same in every language: to the
//! byte where a text is taken, and by problem and place where it is refused.

use crate::clients::must;
use crate::python::PYTHON;
use crate::random::Random;
use crate::typescript::TYPESCRIPT;
use countersign::domain::arguments::Arguments;
use countersign::domain::canonical::{Limits, MAX_BYTES, Top, canonicalise_bytes};
use countersign::domain::fingerprint::{Fingerprint, FingerprintInput, ObjectiveRef};
use countersign::domain::hex::hex;
use countersign::domain::text::{LineBreaks, neutralise};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

const DOCUMENTS: usize = 6_000;
const FINGERPRINTS: usize = 500;

#[test]
fn python_writes_every_value_as_the_sidecar_does() {
    let mut compare = PYTHON.command();
    compare.arg("clients/python/tests/compare.py");
    agrees(compare, "Python");
}

#[test]
fn typescript_writes_every_value_as_the_sidecar_does() {
    let mut compare = TYPESCRIPT.command("node");
    compare.arg("test/compare.mjs");
    agrees(compare, "TypeScript");
}

/// One process answers for everything.
fn agrees(mut compare: Command, language: &str) {
    let mut random = Random::seeded();
    let seed = random.seed();
    let (mut questions, mut answers) = (Vec::new(), Vec::new());
    for _ in 0..DOCUMENTS {
        let document = Documents { random: &mut random, budget: 60 }.document();
        questions.push(format!("C {}", word(&document)));
        answers.push(ours(&document));
    }
    for _ in 0..FINGERPRINTS {
        let (question, answer) = fingerprint(&mut random);
        questions.push(question);
        answers.push(answer);
    }
    let taken = answers.iter().filter(|answer| answer.starts_with("ok")).count();
    assert!(taken > DOCUMENTS / 4 && taken < DOCUMENTS, "{taken} of them are taken: too one-sided to say anything");

    let mut child = compare.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = questions.join("\n") + "\n";
    let writing = std::thread::spawn(move || drop(input.write_all(text.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    must(&output, &format!("{language} does not answer; COUNTERSIGN_TEST_SEED={seed}"));
    let theirs = String::from_utf8(output.stdout).unwrap();
    assert_eq!(theirs.lines().count(), questions.len());
    for ((question, ours), theirs) in questions.iter().zip(&answers).zip(theirs.lines()) {
        let same = ours == theirs || same_but_for_how_it_is_shown(ours, theirs);
        assert!(same, "{language}, COUNTERSIGN_TEST_SEED={seed}\n{question}\nours:   {ours}\ntheirs: {theirs}");
    }
}

/// The sidecar's pointers are cut and made fit for printing; those of the packages are exact.
fn same_but_for_how_it_is_shown(ours: &str, theirs: &str) -> bool {
    let parts = |text: &str| -> (String, String) {
        let words: Vec<&str> = text.split(' ').collect();
        (words[..words.len().min(3)].join(" "), words.get(3).copied().unwrap_or_default().to_owned())
    };
    let ((ours, shown), (theirs, exact)) = (parts(ours), parts(theirs));
    let exact = String::from_utf8(bytes(&exact)).unwrap();
    let cut = exact.len() > 500 || exact.split('/').any(|step| step.chars().count() > 64);
    // Each step by itself, as a mark that stands first in a name has nothing to stand on.
    let shows = |step: &str| {
        let name = step.replace("~1", "/").replace("~0", "~");
        neutralise(&name, LineBreaks::Escape).text.replace('~', "~0").replace('/', "~1")
    };
    let escaped: Vec<String> = exact.split('/').map(shows).collect();
    ours.starts_with("no ") && ours == theirs && (cut || hex(escaped.join("/").as_bytes()) == shown)
}

fn ours(document: &[u8]) -> String {
    match canonicalise_bytes(document, Limits { max_bytes: MAX_BYTES, top: Top::Object }) {
        Ok(canonical) => {
            let digest = Arguments::from_stored(&canonical).unwrap().digest();
            format!("ok {} {digest}", hex(canonical.as_bytes()))
        }
        Err(refusal) => {
            let pointer = hex(refusal.pointer.as_bytes());
            format!("no {} {} {pointer}", refusal.problem.code(), refusal.offset).trim_end().to_owned()
        }
    }
}

fn fingerprint(random: &mut Random) -> (String, String) {
    let mut documents = Documents { random, budget: 20 };
    let arguments = loop {
        let document = documents.document();
        let text = std::str::from_utf8(&document).ok();
        if let Some(arguments) = text.and_then(|text| Arguments::parse(text, MAX_BYTES).ok()) {
            break (document, arguments);
        }
        documents.budget = 20;
    };
    let [connector, account, action, transcript, id] = std::array::from_fn(|_| documents.characters());
    let revision = documents.random.next() >> 11 >> documents.random.below(53);
    let objective = (documents.random.below(3) > 0).then_some(());
    let made = Fingerprint::of(&FingerprintInput {
        account: &account,
        action: &action,
        connector: &connector,
        objective: objective.map(|()| ObjectiveRef { transcript: &transcript, id: &id, revision }),
        arguments: &arguments.1,
    });
    let mut question = format!("F {} {} {}", word(&connector), word(&account), word(&action));
    let _ = write!(question, " {}", word(&arguments.0));
    if objective.is_some() {
        let _ = write!(question, " {} {} {revision}", word(&transcript), word(&id));
    }
    (question, format!("ok {made}"))
}

fn word(bytes: impl AsRef<[u8]>) -> String {
    if bytes.as_ref().is_empty() { "-".to_owned() } else { hex(bytes.as_ref()) }
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// Makes texts that are JSON, and texts that nearly are.
struct Documents<'a> {
    random: &'a mut Random,
    /// How many more values the document may have.
    budget: usize,
}

impl Documents<'_> {
    fn document(&mut self) -> Vec<u8> {
        self.budget = 1 + self.random.below(60);
        let mut text = String::new();
        match self.random.below(40) {
            0 => {
                // Around the deepest nesting that there may be.
                let depth = 60 + self.random.below(8);
                let open = ["[", "{\"a\":"][self.random.below(2)];
                let close = if open == "[" { "]" } else { "}" };
                text = format!("{{\"d\":{}{}{}}}", open.repeat(depth), self.scalar(), close.repeat(depth));
            }
            1 => {
                let size = [255, 256, 257, 1_000, 20_000][self.random.below(5)];
                text = format!("{{\"{}\":\"{}\"}}", "n".repeat(size % 300), "x\u{e9}".repeat(size));
            }
            2 => text = self.number(),
            3 => text = self.space().to_owned(),
            _ => self.object(&mut text, 1),
        }
        let mut bytes = text.into_bytes();
        if self.random.below(3) == 0 {
            self.damage(&mut bytes);
        }
        bytes
    }

    fn value(&mut self, out: &mut String, depth: usize) {
        if self.budget == 0 || depth > 8 {
            return out.push_str(&self.scalar());
        }
        self.budget -= 1;
        match self.random.below(10) {
            0..3 => self.object(out, depth + 1),
            3..5 => self.array(out, depth + 1),
            _ => out.push_str(&self.scalar()),
        }
    }

    fn object(&mut self, out: &mut String, depth: usize) {
        out.push('{');
        let members = self.random.below(7);
        for index in 0..members {
            let before = if index > 0 { "," } else { "" };
            let (space, between, after) = (self.space(), self.space(), self.space());
            let name = self.string();
            let _ = write!(out, "{before}{space}{name}{between}:{after}");
            self.value(out, depth);
            out.push_str(self.space());
        }
        out.push('}');
    }

    fn array(&mut self, out: &mut String, depth: usize) {
        out.push('[');
        for index in 0..self.random.below(6) {
            let before = if index > 0 { "," } else { "" };
            let _ = write!(out, "{before}{}", self.space());
            self.value(out, depth);
            out.push_str(self.space());
        }
        out.push(']');
    }

    fn scalar(&mut self) -> String {
        match self.random.below(8) {
            0 => ["true", "false", "null", "tru", "nulll", "True", "NaN", "-Infinity"][self.edge(3, 8)].to_owned(),
            1..4 => self.string(),
            _ => self.number(),
        }
    }

    /// Mostly one of the first `usual`, now and then any of `all`.
    fn edge(&mut self, usual: usize, all: usize) -> usize {
        let end = if self.random.below(12) == 0 { all } else { usual };
        self.random.below(end)
    }

    fn number(&mut self) -> String {
        let digits = |random: &mut Random, count: usize| -> String {
            let few = ["0", "9", "0123456789", "00000000000000000001"][random.below(4)].as_bytes();
            (0..count).map(|_| char::from(few[random.below(few.len())])).collect()
        };
        let random = &mut *self.random;
        let sign = ["", "-"][random.below(2)];
        let known = [
            "0",
            "9007199254740993",
            "9007199254740992",
            "1e21",
            "1e20",
            "999999999999999999999",
            "1000000000000000000000",
            "1e-6",
            "1e-7",
            "0.000001",
            "0.0000001",
            "1e400",
            "1e-400",
            "1e401",
            "1E+0400",
            "5e-324",
            "1.7976931348623157e308",
            "00",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "1e+",
            "0x1",
            "1_0",
            "0e0",
            "0.0e-0",
            "10e-1",
            "123e-2",
            "1.50",
            "1e00000000001",
        ];
        match random.below(8) {
            0 | 1 => {
                let most = if random.below(6) == 0 { known.len() } else { 17 };
                format!("{sign}{}", known[random.below(most)])
            }
            2 => format!("{sign}{}", random.next()),
            3 => format!("{sign}{}", f64::from_bits(random.next() & !(1 << 62))),
            4 => {
                // Around the most digits.
                let count = 797 + random.below(6);
                let cut = random.below(count);
                let all = digits(random, count);
                format!("{sign}1{}.5{}", &all[..cut], &all[cut..])
            }
            _ => {
                let whole = random.below(24);
                let whole = digits(random, whole);
                let whole = whole.trim_start_matches('0');
                let count = random.below(10);
                let fraction = digits(random, count);
                let fraction = if fraction.is_empty() { String::new() } else { format!(".{fraction}") };
                let exponent = match random.below(4) {
                    0 => format!("e{}{}", ["", "+", "-"][random.below(3)], random.below(30)),
                    1 => format!("E{}{}", ["", "+", "-"][random.below(3)], 390 + random.below(12)),
                    _ => String::new(),
                };
                format!("{sign}{}{fraction}{exponent}", if whole.is_empty() { "0" } else { whole })
            }
        }
    }

    /// A string as it may be written: some characters escaped that need it, some that do not.
    fn string(&mut self) -> String {
        let mut written = "\"".to_owned();
        for character in self.characters().chars() {
            match self.random.below(6) {
                0 => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        let _ = if self.random.below(2) == 0 {
                            write!(written, "\\u{unit:04x}")
                        } else {
                            write!(written, "\\u{unit:04X}")
                        };
                    }
                }
                _ => match character {
                    '"' | '\\' => written.extend(['\\', character]),
                    '/' if self.random.below(2) == 0 => written.push_str("\\/"),
                    '\n' => written.push_str("\\n"),
                    '\u{8}' => written.push_str("\\b"),
                    '\0'..='\u{1f}' => {
                        let _ = write!(written, "\\u{:04x}", u32::from(character));
                    }
                    _ => written.push(character),
                },
            }
        }
        if self.random.below(60) == 0 {
            written.push_str(
                ["\\ud800", "\\udc00\\ud800", "\\uD800\\u0041", "\\ud83d\\", "\\x", "\\u12g4", "\u{1}"]
                    [self.random.below(7)],
            );
        }
        written.push('"');
        written
    }

    fn characters(&mut self) -> String {
        const FEW: [char; 24] = [
            'a',
            'a',
            'b',
            'A',
            '0',
            '~',
            '/',
            '"',
            '\\',
            '\n',
            '\t',
            '\u{8}',
            '\u{1f}',
            '\0',
            '\u{7f}',
            '\u{e9}',
            '\u{2028}',
            '\u{202e}',
            '\u{d7ff}',
            '\u{e000}',
            '\u{ffff}',
            '\u{fb33}',
            '\u{10000}',
            '\u{1f600}',
        ];
        let length = [0, 1, 1, 2, 3, 8][self.random.below(6)];
        (0..length)
            .map(|_| match self.random.below(8) {
                0 => loop {
                    let code = u32::try_from(self.random.below(0x11_0000)).unwrap();
                    if let Some(character) = char::from_u32(code) {
                        break character;
                    }
                },
                _ => FEW[self.random.below(FEW.len())],
            })
            .collect()
    }

    fn space(&mut self) -> &'static str {
        ["", "", "", "", " ", "\t", "\n\r ", "\u{b}", "\u{a0}"][self.edge(7, 9)]
    }

    /// Cuts, repeats, swaps or puts in a few bytes.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.random.below(2) {
            let at = self.random.below(bytes.len() + 1);
            let pieces: [&[u8]; 20] = [
                b"{",
                b"}",
                b"[",
                b"]",
                b",",
                b":",
                b"\"",
                b"\\",
                b"0",
                b"-",
                b"\xff",
                b"\xed\xa0\x80",
                b"\xc3",
                b"\xe2\x82",
                b"\xf0\x9f\x98",
                b"\xc0\x80",
                b"\xef\xbb\xbf",
                b"\0",
                b"e",
                b"\x1f",
            ];
            match self.random.below(4) {
                0 => bytes.truncate(at),
                1 if at < bytes.len() => drop(bytes.remove(at)),
                2 if at < bytes.len() => bytes[at] = pieces[self.random.below(pieces.len())][0],
                _ => drop(bytes.splice(at..at, pieces[self.random.below(pieces.len())].iter().copied())),
            }
        }
    }
}
