//! Checkpoints: what the log was at some size, said in the form that verifiers and witnesses of such logs read: C2SP's
//! `tlog-checkpoint`, which is a `signed-note`. Signing and verifying is the caller's.
//!
//! ```text
//! countersign.v1/8c3c...        the log's origin
//! 1042                          its size
//! mZ0k...=                      its root, in base64
//! records-until 17672256...     optional: every record of this time (in microseconds) or earlier is in it, but for late ones
//! records-deleted-below 900     optional: records of leaves below this one may have been deleted
//!                               an empty line, then the signatures: an em dash, the key's name, its id and signature
//! ```

use super::tree::Hash;
use crate::domain::time::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use std::fmt;

/// A note of ours has some hundred bytes; one with the signatures of witnesses a few thousand.
pub const NOTE_BYTES: usize = 64 * 1024;
/// Signatures of one note at most.
const SIGNATURES: usize = 64;
/// No signature of any kind that there is has fewer: one that does was cut off.
const SIGNATURE_BYTES: usize = 64;
/// What a line with a signature begins with: an em dash and a space.
const SIGNATURE: &str = "\u{2014} ";
/// The line that says until when the log is whole.
const UNTIL: &str = "records-until ";
/// The line that says which records may be gone.
const DELETED: &str = "records-deleted-below ";
/// Ed25519, as `signed-note` numbers it.
const ED25519: u8 = 1;
/// No origin is longer.
const ORIGIN_BYTES: usize = 256;

/// What a checkpoint says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which log: the same in each of its checkpoints.
    pub origin: String,
    /// How many leaves it has.
    pub size: u64,
    /// The root over them.
    pub root: Hash,
    /// Every record of this time or earlier is among them, but for those that are committed late.
    pub until: Option<Timestamp>,
    /// Records of leaves below this one may have been deleted. 0: none.
    pub deleted_below: u64,
}

/// A text with signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What is signed, with the line break at its end.
    pub text: String,
    /// Its signatures.
    pub signatures: Vec<NoteSignature>,
}

/// One signature of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteSignature {
    /// The name of the key.
    pub name: String,
    /// The id of the key.
    pub key_id: [u8; 4],
    /// The signature itself.
    pub signature: Vec<u8>,
}

/// A key that notes are verified with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierKey {
    /// Its name: of a log's own key, the origin.
    pub name: String,
    /// Its public half, Ed25519.
    pub public: [u8; 32],
}

/// Whether this signature of this message is one of the key's.
pub type IsSigned<'a> = dyn Fn(&[u8; 32], &[u8], &[u8]) -> bool + 'a;

impl VerifierKey {
    /// Its id, by which signatures name it.
    pub fn id(&self) -> [u8; 4] {
        let digest = Sha256::new()
            .chain_update(self.name.as_bytes())
            .chain_update([b'\n', ED25519])
            .chain_update(self.public)
            .finalize();
        let mut id = [0; 4];
        id.iter_mut().zip(digest).for_each(|(byte, of)| *byte = of);
        id
    }

    /// Reads `NAME+ID+KEY`, as `signed-note` writes it; none if it is none, of another kind, or its id is not its own.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, rest) = text.trim_end_matches('\n').split_once('+')?;
        let (id, key) = rest.split_once('+')?;
        let key = STANDARD.decode(key).ok()?;
        let public = key.strip_prefix(&[ED25519])?.try_into().ok()?;
        let key = Self { name: name.to_owned(), public };
        (is_name(name) && crate::domain::hex::hex(&key.id()) == id).then_some(key)
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key: Vec<u8> = std::iter::once(ED25519).chain(self.public).collect();
        write!(formatter, "{}+{}+{}", self.name, crate::domain::hex::hex(&self.id()), STANDARD.encode(key))
    }
}

/// Whether this may name a log and its key.
pub fn is_name(text: &str) -> bool {
    let fits = !text.is_empty() && text.len() <= ORIGIN_BYTES;
    fits && text.chars().all(|letter| letter != '+' && !letter.is_whitespace() && !letter.is_control())
}

impl Checkpoint {
    /// What is signed.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n{}\n{}\n", self.origin, self.size, STANDARD.encode(self.root));
        if let Some(until) = self.until {
            text.push_str(&format!("{UNTIL}{}\n", until.micros()));
        }
        if self.deleted_below > 0 {
            text.push_str(&format!("{DELETED}{}\n", self.deleted_below));
        }
        text
    }

    /// Reads the text of a note. Lines that are not of ours are passed over, as the form asks; one of ours that cannot be read
    /// makes it none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        let origin = lines.next().filter(|origin| is_name(origin))?.to_owned();
        let size = number(lines.next()?)?;
        let root = lines.next()?;
        let root: Hash = STANDARD.decode(root).ok()?.try_into().ok()?;
        let mut checkpoint = Self { origin, size, root, until: None, deleted_below: 0 };
        for line in lines {
            if line.is_empty() {
                return None;
            }
            if let Some(until) = line.strip_prefix(UNTIL) {
                if checkpoint.until.is_some() {
                    return None;
                }
                let micros = i64::try_from(number(until)?).ok()?;
                checkpoint.until = Some(Timestamp::from_micros(micros));
            } else if let Some(below) = line.strip_prefix(DELETED) {
                if checkpoint.deleted_below > 0 {
                    return None;
                }
                checkpoint.deleted_below = number(below).filter(|below| (1..=size).contains(below))?;
            }
        }
        Some(checkpoint)
    }
}

impl Note {
    /// Reads a note; none if it is none.
    pub fn parse(note: &str) -> Option<Self> {
        if note.len() > NOTE_BYTES {
            return None;
        }
        let (text, signatures) = note.rsplit_once("\n\n")?;
        let text = format!("{text}\n");
        let mut read = Vec::new();
        for line in signatures.strip_suffix('\n')?.split('\n') {
            let (name, code) = line.strip_prefix(SIGNATURE)?.split_once(' ')?;
            let code = STANDARD.decode(code).ok()?;
            let (key_id, signature) = code.split_first_chunk::<4>()?;
            if !is_name(name) || signature.len() < SIGNATURE_BYTES || read.len() == SIGNATURES {
                return None;
            }
            read.push(NoteSignature { name: name.to_owned(), key_id: *key_id, signature: signature.to_vec() });
        }
        Some(Self { text, signatures: read })
    }

    /// Every note of a text that has several, one behind the other with an empty line after each. What is no whole note, as
    /// where the power failed while one was written, is passed over.
    pub fn parse_all(text: &str) -> Vec<Self> {
        let blocks: Vec<&str> = text.split("\n\n").collect();
        let signed = blocks.windows(2).filter_map(|pair| match pair {
            [text, signatures] if signatures.starts_with(SIGNATURE) => {
                let text = text.trim_start_matches('\n');
                Self::parse(&format!("{text}\n\n{}\n", signatures.trim_end_matches('\n')))
            }
            _ => None,
        });
        signed.collect()
    }

    /// The note of this text with this signature of this key.
    pub fn signed(text: String, key: &VerifierKey, signature: &[u8]) -> Self {
        let signature = NoteSignature { name: key.name.clone(), key_id: key.id(), signature: signature.to_vec() };
        Self { text, signatures: vec![signature] }
    }

    /// Which of these keys signed it: none, if none of them did.
    ///
    /// # Errors
    /// A signature that names one of the keys is not that key's.
    pub fn verified<'k>(
        &self,
        keys: &'k [VerifierKey],
        is_signed: &IsSigned<'_>,
    ) -> Result<Option<&'k VerifierKey>, Forged> {
        let mut by = None;
        for signature in &self.signatures {
            let named = |key: &&VerifierKey| key.name == signature.name && key.id() == signature.key_id;
            let Some(key) = keys.iter().find(named) else { continue };
            if !is_signed(&key.public, self.text.as_bytes(), &signature.signature) {
                return Err(Forged);
            }
            by = by.or(Some(key));
        }
        Ok(by)
    }
}

/// A signature is not that of the key that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forged;

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.text)?;
        for signature in &self.signatures {
            let code: Vec<u8> = signature.key_id.iter().chain(&signature.signature).copied().collect();
            writeln!(formatter, "{SIGNATURE}{} {}", signature.name, STANDARD.encode(code))?;
        }
        Ok(())
    }
}

/// A number in decimal digits, without zeros before it.
fn number(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::hex::hex;
    use proptest::prelude::*;

    fn sample() -> Checkpoint {
        Checkpoint {
            origin: "countersign.v1/8c3c0b0e-0000-4000-8000-000000000001".to_owned(),
            size: 7,
            root: [1; 32],
            until: Some(Timestamp::from_micros(1_767_225_600_000_000)),
            deleted_below: 3,
        }
    }

    #[test]
    fn a_key_is_written_as_signed_notes_write_it() {
        // The example of the package that the form comes from.
        let text = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
        let key = VerifierKey::parse(text).unwrap();
        assert_eq!((key.name.as_str(), hex(&key.id())), ("PeterNeumann", "c74f20a3".to_owned()));
        assert_eq!(key.to_string(), text);
        for wrong in [
            "",
            "PeterNeumann",
            "PeterNeumann+c74f20a4+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
            "Peter+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
            "PeterNeumann+c74f20a3+Ahpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
            "PeterNeumann+c74f20a3+ARpc2Qc",
            "Peter Neumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        ] {
            assert!(VerifierKey::parse(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn a_note_of_others_is_read() {
        // As above.
        let note = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n\n\
            \u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";
        let read = Note::parse(note).unwrap();
        assert_eq!(read.to_string(), note);
        assert!(read.text.ends_with("problem is.\n"));
        assert_eq!((read.signatures.len(), read.signatures[0].signature.len()), (1, 64));
    }

    #[test]
    fn a_checkpoint_is_this_text() {
        let root = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
        let text = format!("{}\n7\n{root}\nrecords-until 1767225600000000\nrecords-deleted-below 3\n", sample().origin);
        assert_eq!(sample().text(), text);
        assert_eq!(Checkpoint::parse(&text), Some(sample()));
        let bare = Checkpoint { until: None, deleted_below: 0, ..sample() };
        assert_eq!(Checkpoint::parse(&bare.text()), Some(bare));
        let others = format!("o\n0\n{root}\nanother line\n");
        assert_eq!(Checkpoint::parse(&others).unwrap().size, 0);
        for wrong in [
            "".to_owned(),
            format!("o\n7\n{root}"),
            format!("o\n07\n{root}\n"),
            format!("o\n+7\n{root}\n"),
            format!("o\n7\n{root}\n\n"),
            format!("\n7\n{root}\n"),
            format!("o o\n7\n{root}\n"),
            "o\n7\nAQEB\n".to_owned(),
            format!("o\n7\n{root}\nrecords-until x\n"),
            format!("o\n7\n{root}\nrecords-until 1\nrecords-until 2\n"),
            format!("o\n7\n{root}\nrecords-deleted-below 8\n"),
            format!("o\n7\n{root}\nrecords-deleted-below 1\nrecords-deleted-below 2\n"),
        ] {
            assert_eq!(Checkpoint::parse(&wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn notes_one_behind_the_other_are_read_and_half_of_one_is_passed_over() {
        let key = VerifierKey { name: "own".to_owned(), public: [1; 32] };
        let notes = ["one\n", "two\ntwo\n", "three\n"].map(|text| Note::signed(text.to_owned(), &key, &[9; 64]));
        let [one, two, three] = notes.clone().map(|note| note.to_string());
        assert_eq!(Note::parse_all(&one), notes[..1]);
        assert_eq!(Note::parse_all(&format!("{one}\n{two}\n{three}\n")), notes);
        let half = two.get(..two.len() - 9).unwrap();
        assert_eq!(Note::parse_all(&format!("{one}\ntw\n\n{three}\n")), [notes[0].clone(), notes[2].clone()]);
        assert_eq!(Note::parse_all(&format!("{one}\n{half}\n\n{three}\n")), [notes[0].clone(), notes[2].clone()]);
        assert!(Note::parse_all("").is_empty() && Note::parse_all("\n\n\n\n").is_empty());
    }

    #[test]
    fn a_note_is_verified_by_the_keys_that_it_names_alone() {
        let key = |name: &str, byte| VerifierKey { name: name.to_owned(), public: [byte; 32] };
        let (own, other) = (key("own", 1), key("other", 2));
        let note = Note::signed("text\n".to_owned(), &own, &[9; 64]);
        let good = |public: &[u8; 32], message: &[u8], signature: &[u8]| {
            *public == [1; 32] && message == b"text\n" && signature == [9; 64]
        };
        let keys = [other.clone(), own.clone()];
        assert_eq!(note.verified(&keys, &good), Ok(Some(&keys[1])));
        assert_eq!(note.verified(&keys[..1], &good), Ok(None));
        let changed = Note { text: "texT\n".to_owned(), ..note.clone() };
        assert_eq!(changed.verified(&keys, &good), Err(Forged));
        // Who signs as well takes nothing from it.
        let mut witnessed = note;
        witnessed.signatures.push(NoteSignature { name: "w".to_owned(), key_id: [0; 4], signature: vec![1] });
        assert_eq!(witnessed.verified(&keys, &good), Ok(Some(&keys[1])));
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_back(note in "([a-z0-9 \u{2014}\n]|\n\n\u{2014} a AAAAAAAA\n){0,60}", text in any::<String>()) {
            for note in [note, text] {
                if let Some(read) = Note::parse(&note) {
                    prop_assert_eq!(read.to_string(), note);
                }
            }
        }

        #[test]
        fn no_two_checkpoints_have_one_text(
            sizes in (0_u64..4, 0_u64..4), roots in (0_u8..3, 0_u8..3), untils in (0_i64..3, 0_i64..3), floors in (0_u64..4, 0_u64..4),
        ) {
            let make = |size, root, until: i64, floor| Checkpoint {
                size, root: [root; 32], until: (until > 0).then(|| Timestamp::from_micros(until)), deleted_below: floor, ..sample()
            };
            let one = make(sizes.0, roots.0, untils.0, floors.0);
            let other = make(sizes.1, roots.1, untils.1, floors.1);
            prop_assert_eq!(one == other, one.text() == other.text());
        }
    }
}
