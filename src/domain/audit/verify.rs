//! Verifying an export of the audit: what was changed, removed, inserted, put in another order or cut, and whether everything
//! is what the checkpoints signed. Part by part, so that a log of any length needs little memory: the ids that were seen, and
//! a few hashes.

mod finding;
#[cfg(test)]
mod tests;

pub use finding::{Finding, FindingKind, Verdict};

use super::checkpoint::{Checkpoint, IsSigned, Note, VerifierKey};
use super::log::GAP_KEPT;
use super::tree::{Frontier, Hash, leaf_hash};
use crate::domain::canonical::Canonical;
use crate::domain::hex::parse_hex;
use crate::domain::json::Json;
use crate::domain::time::Timestamp;
use std::collections::{BTreeMap, HashSet};

/// Findings that are told; of more, their number is.
const FINDINGS: usize = 10_000;

/// The log as the sidecar said it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSaid {
    /// Which log.
    pub origin: String,
    /// Its seals.
    pub size: u64,
    /// The root over them.
    pub root: Option<Hash>,
    /// Below which leaf records may have been deleted.
    pub deleted_below: u64,
}

/// A seal with its record as it was exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySaid {
    /// Its place in the log.
    pub leaf: u64,
    /// The record's position.
    pub position: i64,
    /// The record's id.
    pub record_id: String,
    /// What was sealed, in hexadecimal digits.
    pub leaf_hash: String,
    /// The record; none if it is not there.
    pub leaf_text: Option<String>,
}

/// Holds the parts of an export against each other, in their order.
pub struct Verifier<'a> {
    keys: Vec<VerifierKey>,
    is_signed: Box<IsSigned<'a>>,
    log: Option<LogSaid>,
    /// The leaf that is to come.
    next: u64,
    /// What is to be found at a size, in the order of the sizes.
    expected: BTreeMap<u64, Vec<Expected>>,
    /// Seals as they stand, and as the records say they should be.
    sealed: Frontier,
    recorded: Frontier,
    /// The size up to which all is as it was signed.
    good: u64,
    /// Whether what follows can be held against no checkpoint any more.
    lost: bool,
    suspects: Vec<Suspect>,
    missing: Vec<Suspect>,
    until: Option<Timestamp>,
    /// Ids and positions that were seen.
    ids: HashSet<String>,
    positions: HashSet<i64>,
    /// Records that stand where another was sealed, by their own id.
    moved: BTreeMap<String, Suspect>,
    ended: bool,
    verdict: Verdict,
}

impl std::fmt::Debug for Verifier<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Verifier").field("entries", &self.verdict.entries).finish_non_exhaustive()
    }
}

/// A checkpoint that a key of ours signed.
#[derive(Clone, Debug)]
struct Expected {
    checkpoint: Checkpoint,
    kept_elsewhere: bool,
}

/// An entry that is not as it should be.
#[derive(Clone, Debug)]
struct Suspect {
    leaf: u64,
    position: i64,
    record_id: String,
    /// The id of the record that stands there.
    found_id: Option<String>,
}

/// What a leaf says that is looked at.
struct LeafSaid {
    id: String,
    position: String,
    time: Option<Timestamp>,
}

impl<'a> Verifier<'a> {
    /// With these keys, by which checkpoints are to be signed.
    pub fn new(keys: Vec<VerifierKey>, is_signed: Box<IsSigned<'a>>) -> Self {
        Self {
            keys,
            is_signed,
            log: None,
            next: 0,
            expected: BTreeMap::new(),
            sealed: Frontier::default(),
            recorded: Frontier::default(),
            good: 0,
            lost: false,
            suspects: Vec::new(),
            missing: Vec::new(),
            until: None,
            ids: HashSet::new(),
            positions: HashSet::new(),
            moved: BTreeMap::new(),
            ended: false,
            verdict: Verdict::default(),
        }
    }

    /// A key more.
    pub fn trust(&mut self, key: VerifierKey) {
        if !self.keys.contains(&key) {
            self.keys.push(key);
        }
    }

    /// Whether a key is there at all.
    pub fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// A checkpoint that was kept elsewhere: the log must be an extension of it.
    pub fn kept_elsewhere(&mut self, note: &str) {
        self.take(note, true);
    }

    /// The log as it was said to be.
    pub fn log(&mut self, log: LogSaid) {
        self.log = Some(log);
    }

    /// A checkpoint of the export.
    pub fn checkpoint(&mut self, note: &str) {
        self.take(note, false);
    }

    /// The next seal with its record.
    pub fn entry(&mut self, entry: EntrySaid) {
        let next = self.next;
        if self.verdict.entries == 0 {
            self.held_against(0);
        }
        self.verdict.entries = self.verdict.entries.saturating_add(1);
        let EntrySaid { leaf, position, record_id, leaf_hash: hash, leaf_text } = entry;
        if leaf != next {
            let what = if leaf > next {
                format!("the seals from leaf {next} to {} are not there", leaf.saturating_sub(1))
            } else {
                format!("a seal says that it is leaf {leaf}, and leaf {next} was to come")
            };
            self.find(Finding { leaf: Some(next), ..Finding::of(FindingKind::SealMissing, what) });
            self.lost = true;
        }
        self.next = leaf.saturating_add(1);
        let actual = leaf_text.as_deref().map(|text| leaf_hash(text.as_bytes()));
        let sealed: Option<Hash> = parse_hex(&hash);
        let said = leaf_text.as_deref().map(read);
        let found_id = said.as_ref().map(|said| said.id.clone());
        let suspect = Suspect { leaf, position, record_id: record_id.clone(), found_id: found_id.clone() };
        match (&actual, &sealed) {
            (Some(actual), Some(sealed)) if actual == sealed => {
                let names_another =
                    said.as_ref().is_some_and(|said| said.id != record_id || said.position != position.to_string());
                if names_another {
                    self.found(
                        FindingKind::SealChanged,
                        &suspect,
                        "the seal names another record than the one it seals",
                    );
                }
            }
            (Some(_), Some(_)) => {
                if let Some(found) = found_id.filter(|found| *found != record_id) {
                    self.moved.insert(found, suspect.clone());
                }
                self.suspects.push(suspect.clone());
            }
            (Some(_), None) => self.found(FindingKind::SealChanged, &suspect, "the seal is no hash"),
            (None, Some(_)) => self.missing.push(suspect.clone()),
            (None, None) => {
                self.found(FindingKind::SealChanged, &suspect, "the seal is no hash, and its record is not there");
            }
        }
        if self.verdict.deleted_below() > leaf && actual.is_none() {
            self.missing.pop();
            self.verdict.deleted = self.verdict.deleted.saturating_add(1);
        }
        if let Some(said) = said {
            self.verdict.records = self.verdict.records.saturating_add(1);
            self.seen(&said, &suspect);
        }
        let hash = sealed.or(actual).unwrap_or([0; 32]);
        self.sealed.push(hash, &mut Vec::new());
        self.recorded.push(actual.unwrap_or(hash), &mut Vec::new());
        self.held_against(self.sealed.size());
    }

    /// A record that had no seal.
    pub fn unsealed(&mut self, leaf_text: &str) {
        self.verdict.unsealed = self.verdict.unsealed.saturating_add(1);
        let said = read(leaf_text);
        let overdue = self.verdict.until.zip(said.time).is_some_and(|(until, time)| time < until.minus(GAP_KEPT));
        let suspect = Suspect {
            leaf: 0,
            position: said.position.parse().unwrap_or(0),
            record_id: said.id.clone(),
            found_id: None,
        };
        if overdue {
            let what = "the record has no seal, and is of a time up to which all were sealed: it was put there since";
            let mut finding = suspect.finding(FindingKind::RecordInserted, what);
            finding.leaf = None;
            self.find(finding);
        }
        if self.ids.contains(&said.id) {
            let mut finding = suspect.finding(FindingKind::RecordDuplicate, "another record has the same id");
            finding.leaf = None;
            self.find(finding);
        }
    }

    /// The end of the export, with what it says was in it.
    pub fn end(&mut self, entries: u64, unsealed: u64) {
        self.ended = (entries, unsealed) == (self.verdict.entries, self.verdict.unsealed);
    }

    /// What was found.
    pub fn finish(mut self) -> Verdict {
        if self.verdict.entries == 0 {
            self.held_against(0);
        }
        if !self.ended {
            let what = "the export is not whole: its end is not there, or does not say what was in it".to_owned();
            self.find(Finding::of(FindingKind::ExportIncomplete, what));
        }
        // What no checkpoint covers is held against its seal alone.
        self.settle(FindingKind::RecordChanged);
        // Where the record that was sealed at a place stands at another, both were moved. It may come after the next checkpoint.
        for finding in &mut self.verdict.findings {
            let elsewhere = finding.record_id.as_ref().is_some_and(|id| self.moved.contains_key(id));
            if finding.kind == FindingKind::RecordReplaced && elsewhere {
                finding.kind = FindingKind::RecordReordered;
            }
        }
        self.missed();
        let size = self.sealed.size();
        let cut: Vec<Expected> = self.expected.split_off(&size.saturating_add(1)).into_values().flatten().collect();
        for Expected { checkpoint, kept_elsewhere } in cut {
            let whose = if kept_elsewhere { "a checkpoint that was kept elsewhere" } else { "a checkpoint" };
            let what = format!(
                "{whose} says that the log has {} seals, and there are {size}: its end was cut off",
                checkpoint.size
            );
            self.find(Finding { leaf: Some(size), ..Finding::of(FindingKind::LogCut, what) });
        }
        if let Some(log) = self.log.clone() {
            self.said(&log);
        }
        if size > 0 && self.verdict.checkpoints == 0 {
            let what = "no checkpoint is signed by a key that is trusted: nothing shows that this is what was sealed";
            self.find(Finding::of(FindingKind::Unsigned, what.to_owned()));
        }
        self.verdict.size = size;
        self.verdict
    }

    /// Reads a checkpoint, and has it held against the log once that has its size.
    fn take(&mut self, note: &str, kept_elsewhere: bool) {
        let whose = if kept_elsewhere { "the checkpoint that was kept elsewhere" } else { "a checkpoint" };
        let Some(read) = Note::parse(note) else {
            return self.find(Finding::of(FindingKind::CheckpointForged, format!("{whose} is no signed note")));
        };
        let said = Checkpoint::parse(&read.text);
        let place = said.as_ref().map_or_else(String::new, |said| format!(" of size {}", said.size));
        // Said of it whoever signed it: a key has the name of its log.
        let log = self.log.as_ref().map(|log| &log.origin);
        if let Some((said, log)) = said.as_ref().zip(log).filter(|(said, log)| said.origin != **log) {
            let what = format!("{whose}{place} is of the log {:?}, and this one is {log:?}", said.origin);
            return self.find(Finding::of(FindingKind::OriginChanged, what));
        }
        match read.verified(&self.keys, &*self.is_signed) {
            Err(_) => {
                let what = format!("{whose}{place} is not signed by the key that it names");
                return self.find(Finding::of(FindingKind::CheckpointForged, what));
            }
            Ok(None) if kept_elsewhere => {
                let what = format!("{whose}{place} is signed by no key that is trusted");
                return self.find(Finding::of(FindingKind::CheckpointForged, what));
            }
            Ok(None) => {
                self.verdict.unknown_keys = self.verdict.unknown_keys.saturating_add(1);
                return;
            }
            Ok(Some(_)) => {}
        }
        let Some(checkpoint) = said else {
            return self.find(Finding::of(FindingKind::CheckpointForged, format!("{whose} says nothing of a log")));
        };
        self.verdict.took(&checkpoint);
        let size = checkpoint.size;
        let begun = self.verdict.entries > 0;
        self.expected.entry(size).or_default().push(Expected { checkpoint, kept_elsewhere });
        if begun {
            // It was made while the export went on: what it covers beyond that is not to be had here.
            if size > self.sealed.size() {
                self.expected.remove(&size);
            } else {
                self.held_against(self.sealed.size());
                if let Some(late) = self.expected.remove(&size).filter(|_| size < self.sealed.size()) {
                    let what = format!("{} checkpoints{place} come after larger ones", late.len());
                    self.find(Finding::of(FindingKind::CheckpointForged, what));
                }
            }
        }
    }

    /// Holds what was read against the checkpoints of this size.
    fn held_against(&mut self, size: u64) {
        let Some(expected) = self.expected.remove(&size) else { return };
        if self.lost {
            return;
        }
        for Expected { checkpoint, kept_elsewhere } in expected {
            self.until = self.until.max(checkpoint.until);
            if checkpoint.root == self.sealed.root() {
                self.settle(FindingKind::RecordChanged);
            } else if checkpoint.root == self.recorded.root() {
                // The records are what was signed, so it is the seals that are not.
                self.settle(FindingKind::SealChanged);
                self.sealed = self.recorded.clone();
            } else {
                let whose = if kept_elsewhere { "the checkpoint that was kept elsewhere" } else { "the checkpoint" };
                let what = format!(
                    "the seals from leaf {} to {} are not what {whose} of size {size} signed: seals were changed, added, \
                     removed or put in another order",
                    self.good,
                    size.saturating_sub(1)
                );
                self.find(Finding { leaf: Some(self.good), ..Finding::of(FindingKind::LogRewritten, what) });
                self.settle(FindingKind::RecordChanged);
                self.lost = true;
                return;
            }
            self.recorded = self.sealed.clone();
            self.good = size;
            self.verdict.signed = size;
        }
    }

    /// Says of what did not match since the last checkpoint what it is.
    fn settle(&mut self, kind: FindingKind) {
        for suspect in std::mem::take(&mut self.suspects) {
            let (kind, what) = match (&suspect.found_id, kind) {
                (_, FindingKind::SealChanged) => {
                    (kind, "the seal was changed, and the record is as it was signed".to_owned())
                }
                (Some(found), _) if *found != suspect.record_id => {
                    (FindingKind::RecordReplaced, format!("another record stands there: {found}"))
                }
                _ => (FindingKind::RecordChanged, "the record is not what was sealed".to_owned()),
            };
            self.find(suspect.finding(kind, &what));
        }
    }

    /// Says which records are gone that no checkpoint lets be gone.
    fn missed(&mut self) {
        let below = self.verdict.deleted_below();
        for suspect in std::mem::take(&mut self.missing) {
            if suspect.leaf < below {
                self.verdict.deleted = self.verdict.deleted.saturating_add(1);
            } else if let Some(moved) = self.moved.get(&suspect.record_id).cloned() {
                let what = format!("the record stands at position {} now", moved.position);
                self.found(FindingKind::RecordReordered, &suspect, &what);
            } else {
                self.found(FindingKind::RecordMissing, &suspect, "the record was sealed and is not there");
            }
        }
    }

    /// Looks at whose id, position and time it has.
    fn seen(&mut self, said: &LeafSaid, suspect: &Suspect) {
        if !self.ids.insert(said.id.clone()) {
            let what = format!("the id {} was there before", said.id);
            self.found(FindingKind::RecordDuplicate, suspect, &what);
        }
        if !self.positions.insert(suspect.position) {
            self.found(FindingKind::RecordDuplicate, suspect, "the position was there before");
        }
        let late = self.until.zip(said.time).filter(|(until, time)| *time < until.minus(GAP_KEPT));
        if let Some((until, time)) = late {
            let what =
                format!("the record says that it is of {time}, and was sealed after all of up to {until} had been");
            self.found(FindingKind::SealedLate, suspect, &what);
        }
    }

    /// Holds what the sidecar said of its log against what was read.
    fn said(&mut self, log: &LogSaid) {
        let size = self.sealed.size();
        if log.size != size {
            let what = format!("the log says that it has {} seals, and there are {size}", log.size);
            self.find(Finding { leaf: Some(size), ..Finding::of(FindingKind::LogCut, what) });
        } else if !self.lost && log.root.is_some_and(|root| root != self.sealed.root()) {
            let what = "the frontier of the log is not that of its seals".to_owned();
            self.find(Finding::of(FindingKind::FrontierChanged, what));
        }
        // Checkpoints that were made meanwhile may let more be deleted.
        if self.verdict.unknown_keys == 0 && log.deleted_below > self.verdict.deleted_below() {
            let (says, signed) = (log.deleted_below, self.verdict.deleted_below());
            let what = format!("the log says that records below leaf {says} may be deleted, and {signed} was signed");
            self.find(Finding::of(FindingKind::FrontierChanged, what));
        }
        self.verdict.origin = Some(log.origin.clone());
    }

    fn found(&mut self, kind: FindingKind, suspect: &Suspect, what: &str) {
        self.find(suspect.finding(kind, what));
    }

    fn find(&mut self, finding: Finding) {
        if self.verdict.findings.len() < FINDINGS {
            self.verdict.findings.push(finding);
        } else {
            self.verdict.untold = self.verdict.untold.saturating_add(1);
        }
    }
}

impl Suspect {
    fn finding(&self, kind: FindingKind, what: &str) -> Finding {
        Finding {
            kind,
            leaf: Some(self.leaf),
            position: Some(self.position),
            record_id: Some(self.record_id.clone()),
            what: what.to_owned(),
        }
    }
}

/// What a leaf's text says that is looked at. A text that cannot be read says nothing; its hash says all.
fn read(text: &str) -> LeafSaid {
    let said = Canonical::object_from_stored(text).map(|text| Json::read(&text)).ok();
    let member = |name: &str| {
        let value = said.as_ref()?.get(name)?;
        Some(value.as_str().map_or_else(|| value.to_canonical(), str::to_owned))
    };
    LeafSaid {
        id: member("id").unwrap_or_default(),
        position: member("position").unwrap_or_default(),
        time: member("time_us").and_then(|time| time.parse().ok()).map(Timestamp::from_micros),
    }
}
