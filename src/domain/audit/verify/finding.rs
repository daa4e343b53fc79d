//! What verifying finds.

use crate::domain::audit::checkpoint::Checkpoint;
use crate::domain::time::Timestamp;
use std::fmt;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// A record is not what was sealed.
    RecordChanged,
    /// Another record stands where one was sealed.
    RecordReplaced,
    /// Records stand in each other's place.
    RecordReordered,
    /// A record that was sealed is not there, and no checkpoint lets it be gone.
    RecordMissing,
    /// A record was put there long after its own time, and is not sealed.
    RecordInserted,
    /// Two records have one id or position.
    RecordDuplicate,
    /// A record was sealed long after its own time.
    SealedLate,
    /// A seal is not what was signed.
    SealChanged,
    /// Seals are not there, or not in their order.
    SealMissing,
    /// Seals are not what a checkpoint signed.
    LogRewritten,
    /// The end of the log is not there.
    LogCut,
    /// The state of the log is not that of its seals.
    FrontierChanged,
    /// A checkpoint is not signed by the key that it names, or is none.
    CheckpointForged,
    /// A checkpoint is of another log.
    OriginChanged,
    /// No checkpoint is signed by a key that is trusted.
    Unsigned,
    /// The export is not whole.
    ExportIncomplete,
}

impl FindingKind {
    /// Every kind.
    pub const ALL: [Self; 16] = [
        Self::RecordChanged,
        Self::RecordReplaced,
        Self::RecordReordered,
        Self::RecordMissing,
        Self::RecordInserted,
        Self::RecordDuplicate,
        Self::SealedLate,
        Self::SealChanged,
        Self::SealMissing,
        Self::LogRewritten,
        Self::LogCut,
        Self::FrontierChanged,
        Self::CheckpointForged,
        Self::OriginChanged,
        Self::Unsigned,
        Self::ExportIncomplete,
    ];

    /// The stable word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RecordChanged => "record_changed",
            Self::RecordReplaced => "record_replaced",
            Self::RecordReordered => "record_reordered",
            Self::RecordMissing => "record_missing",
            Self::RecordInserted => "record_inserted",
            Self::RecordDuplicate => "record_duplicate",
            Self::SealedLate => "sealed_late",
            Self::SealChanged => "seal_changed",
            Self::SealMissing => "seal_missing",
            Self::LogRewritten => "log_rewritten",
            Self::LogCut => "log_cut",
            Self::FrontierChanged => "frontier_changed",
            Self::CheckpointForged => "checkpoint_forged",
            Self::OriginChanged => "origin_changed",
            Self::Unsigned => "unsigned",
            Self::ExportIncomplete => "export_incomplete",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Something that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// At which leaf of the log, or from which on.
    pub leaf: Option<u64>,
    /// At which position of the table.
    pub position: Option<i64>,
    /// The id of the record that was sealed there.
    pub record_id: Option<String>,
    /// What it is, in a sentence.
    pub what: String,
}

impl Finding {
    /// One that is nowhere in particular.
    pub(super) fn of(kind: FindingKind, what: String) -> Self {
        Self { kind, leaf: None, position: None, record_id: None, what }
    }
}

/// What verifying came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What is wrong; empty: nothing.
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub untold: u64,
    /// Which log it is.
    pub origin: Option<String>,
    /// Seals that were read.
    pub size: u64,
    /// Up to which size the seals are what was signed.
    pub signed: u64,
    /// Entries that were read.
    pub entries: u64,
    /// Records that were read with them.
    pub records: u64,
    /// Records that are gone, as a checkpoint lets them be.
    pub deleted: u64,
    /// Records that have no seal yet.
    pub unsealed: u64,
    /// Checkpoints that a trusted key signed.
    pub checkpoints: u64,
    /// Checkpoints that only keys signed that are not trusted.
    pub unknown_keys: u64,
    pub(super) until: Option<Timestamp>,
    pub(super) below: u64,
}

impl Verdict {
    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.findings.is_empty()
    }

    /// Below which leaf records may be gone.
    pub fn deleted_below(&self) -> u64 {
        self.below
    }

    pub(super) fn took(&mut self, checkpoint: &Checkpoint) {
        self.checkpoints = self.checkpoints.saturating_add(1);
        self.until = self.until.max(checkpoint.until);
        self.below = self.below.max(checkpoint.deleted_below);
    }
}
