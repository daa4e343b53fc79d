//! What is found in logs that were altered. Through the whole product: `tests/grpc/proven.rs`.

use super::*;
use crate::domain::audit::leaf::{Stored, StoredRecord};
use crate::domain::hex::hex;

const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
const KEY: [u8; 32] = [7; 32];

fn own() -> VerifierKey {
    VerifierKey { name: "log".to_owned(), public: KEY }
}

/// Signs as nobody would: with the key and the hash of the message.
fn signature(key: &[u8; 32], message: &[u8]) -> Vec<u8> {
    [*key, leaf_hash(message)].concat()
}

/// An export to be altered.
#[derive(Clone)]
struct Sample {
    log: LogSaid,
    notes: Vec<String>,
    entries: Vec<EntrySaid>,
    unsealed: Vec<String>,
}

fn record(position: i64, time: Timestamp) -> StoredRecord {
    let texts = [("id", format!("id-{position}")), ("kind", "x".to_owned())];
    let texts = texts.into_iter().map(|(name, text)| (name, Stored::Text(text))).collect();
    StoredRecord { position, time, texts }
}

fn note(checkpoint: &Checkpoint, key: &VerifierKey) -> String {
    let text = checkpoint.text();
    let code = signature(&key.public, text.as_bytes());
    Note::signed(text, key, &code).to_string()
}

impl Sample {
    /// Nine records, with checkpoints after the fourth and the eighth.
    fn new() -> Self {
        let (mut frontier, mut notes, mut entries) = (Frontier::default(), Vec::new(), Vec::new());
        for position in 1..=9_i64 {
            let record = record(position, START.plus(GAP_KEPT * u32::try_from(position).unwrap()));
            let text = record.leaf_text();
            let hash = leaf_hash(text.as_bytes());
            let (leaf, record_id) = (frontier.size(), record.id().to_owned());
            entries.push(EntrySaid { leaf, position, record_id, leaf_hash: hex(&hash), leaf_text: Some(text) });
            frontier.push(hash, &mut Vec::new());
            if position % 4 == 0 {
                let deleted_below = if position == 8 { 2 } else { 0 };
                let until = Some(record.time);
                let (size, root, origin) = (frontier.size(), frontier.root(), "log".to_owned());
                notes.push(note(&Checkpoint { origin, size, root, until, deleted_below }, &own()));
            }
        }
        let log = LogSaid { origin: "log".to_owned(), size: 9, root: Some(frontier.root()), deleted_below: 2 };
        Self { log, notes, entries, unsealed: vec![record(10, START.plus(GAP_KEPT * 10)).leaf_text()] }
    }

    fn verified(&self, kept: &[String]) -> Verdict {
        let signed = |key: &[u8; 32], message: &[u8], code: &[u8]| signature(key, message) == code;
        let mut verifier = Verifier::new(vec![own()], Box::new(signed));
        verifier.log(self.log.clone());
        kept.iter().for_each(|note| verifier.kept_elsewhere(note));
        self.notes.iter().for_each(|note| verifier.checkpoint(note));
        self.entries.iter().cloned().for_each(|entry| verifier.entry(entry));
        self.unsealed.iter().for_each(|text| verifier.unsealed(text));
        let count = |number: usize| u64::try_from(number).unwrap();
        verifier.end(count(self.entries.len()), count(self.unsealed.len()));
        verifier.finish()
    }
}

fn found(verdict: &Verdict) -> Vec<(FindingKind, Option<u64>)> {
    verdict.findings.iter().map(|finding| (finding.kind, finding.leaf)).collect()
}

#[test]
fn nothing_is_found_in_a_log_as_it_was_sealed() {
    let sample = Sample::new();
    let verdict = sample.verified(&sample.notes);
    assert_eq!(found(&verdict), []);
    assert_eq!((verdict.size, verdict.signed, verdict.records, verdict.unsealed, verdict.checkpoints), (9, 8, 9, 1, 4));
}

#[test]
fn each_alteration_is_found_where_it_is() {
    type Alter = fn(&mut Sample);
    let cases: &[(&str, Alter, &[(FindingKind, Option<u64>)])] = &[
        (
            "a record",
            |it| it.entries[5].leaf_text = Some(record(6, START.plus(GAP_KEPT * 7)).leaf_text()),
            &[(FindingKind::RecordChanged, Some(5))],
        ),
        (
            "an unsigned record",
            |it| it.entries[8].leaf_text = Some("{}".to_owned()),
            &[(FindingKind::RecordReplaced, Some(8))],
        ),
        ("a record that is gone", |it| it.entries[5].leaf_text = None, &[(FindingKind::RecordMissing, Some(5))]),
        ("a record whose time had come", |it| it.entries[1].leaf_text = None, &[]),
        (
            "two records",
            |it| {
                let (two, four) = (it.entries[2].leaf_text.clone(), it.entries[4].leaf_text.clone());
                (it.entries[2].leaf_text, it.entries[4].leaf_text) = (four, two);
            },
            &[(FindingKind::RecordReordered, Some(2)), (FindingKind::RecordReordered, Some(4))],
        ),
        ("a seal", |it| it.entries[5].leaf_hash = hex(&[0; 32]), &[(FindingKind::SealChanged, Some(5))]),
        ("a seal that is none", |it| it.entries[5].leaf_hash = "x".to_owned(), &[(FindingKind::SealChanged, Some(5))]),
        ("a seal's record", |it| it.entries[5].record_id = "id-1".to_owned(), &[(FindingKind::SealChanged, Some(5))]),
        (
            "a seal and its record",
            |it| {
                let text = record(6, START.plus(GAP_KEPT * 7)).leaf_text();
                it.entries[5].leaf_hash = hex(&leaf_hash(text.as_bytes()));
                it.entries[5].leaf_text = Some(text);
            },
            &[(FindingKind::LogRewritten, Some(4))],
        ),
        (
            "a seal that is gone",
            |it| drop(it.entries.remove(5)),
            &[(FindingKind::SealMissing, Some(5)), (FindingKind::LogCut, Some(8))],
        ),
        ("the end", |it| it.entries.truncate(6), &[(FindingKind::LogCut, Some(6)), (FindingKind::LogCut, Some(6))]),
        (
            "a checkpoint's text",
            |it| it.notes[0] = it.notes[0].replacen("\n4\n", "\n5\n", 1),
            &[(FindingKind::CheckpointForged, None)],
        ),
        ("a checkpoint that is none", |it| it.notes[0] = "x".to_owned(), &[(FindingKind::CheckpointForged, None)]),
        ("the root", |it| it.log.root = Some([0; 32]), &[(FindingKind::FrontierChanged, None)]),
        ("what may be deleted", |it| it.log.deleted_below = 5, &[(FindingKind::FrontierChanged, None)]),
        ("no checkpoint", |it| (it.notes, it.log.deleted_below) = (Vec::new(), 0), &[(FindingKind::Unsigned, None)]),
        (
            "a record that was put in",
            |it| it.unsealed.push(record(99, START).leaf_text()),
            &[(FindingKind::RecordInserted, None)],
        ),
        (
            "a record once more",
            |it| {
                it.unsealed.push(record(3, START.plus(GAP_KEPT * 10)).leaf_text());
            },
            &[(FindingKind::RecordDuplicate, None)],
        ),
    ];
    for (name, alter, want) in cases {
        let mut sample = Sample::new();
        alter(&mut sample);
        let verdict = sample.verified(&[]);
        assert_eq!(found(&verdict), *want, "{name}: {:#?}", verdict.findings);
    }
}

#[test]
fn a_log_is_an_extension_of_what_was_kept_elsewhere() {
    let sample = Sample::new();
    let mut cut = sample.clone();
    cut.entries.truncate(4);
    cut.notes.truncate(1);
    (cut.log.size, cut.log.deleted_below) = (4, 0);
    cut.log.root = None;
    assert_eq!(found(&cut.verified(&sample.notes[..1])), []);
    assert_eq!(found(&cut.verified(&sample.notes)), [(FindingKind::LogCut, Some(4))]);
    let other = VerifierKey { name: "log".to_owned(), public: [8; 32] };
    let foreign = Checkpoint { origin: "log".to_owned(), size: 4, root: [0; 32], until: None, deleted_below: 0 };
    let of_other_key = note(&foreign, &other);
    assert_eq!(found(&sample.verified(std::slice::from_ref(&of_other_key))), [(FindingKind::CheckpointForged, None)]);
    let forked = note(&foreign, &own());
    assert_eq!(found(&sample.verified(&[forked])), [(FindingKind::LogRewritten, Some(0))]);
    let another = note(&Checkpoint { origin: "another".to_owned(), ..foreign }, &own());
    assert_eq!(found(&sample.verified(&[another])), [(FindingKind::OriginChanged, None)]);
    let mut unknown = sample.clone();
    unknown.notes.push(of_other_key);
    let verdict = unknown.verified(&[]);
    assert_eq!((found(&verdict), verdict.unknown_keys), (Vec::new(), 1));
}

#[test]
fn an_export_without_its_end_is_not_whole() {
    let sample = Sample::new();
    let mut verifier = Verifier::new(vec![own()], Box::new(|_, _, _| true));
    verifier.log(sample.log);
    sample.entries.into_iter().for_each(|entry| verifier.entry(entry));
    verifier.end(8, 0);
    assert!(verifier.finish().findings.iter().any(|finding| finding.kind == FindingKind::ExportIncomplete));
}

#[test]
fn kinds_have_words_of_their_own() {
    let words: std::collections::BTreeSet<&str> = FindingKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(words.len(), FindingKind::ALL.len());
}
