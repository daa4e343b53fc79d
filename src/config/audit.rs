//! What is audited, and how that is sealed: `[audit]`.

use super::span;
use crate::domain::audit::AuditedEvaluations;
use crate::domain::audit::checkpoint::is_name;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `[audit]`, as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AuditSection {
    evaluations: Option<String>,
    origin: Option<String>,
    seal_every: Option<String>,
    checkpoint_every: Option<String>,
    checkpoint_file: Option<PathBuf>,
}

/// How the audit is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealingSettings {
    /// What the log is called in checkpoints; none: a name that is made once, when the log is begun.
    pub origin: Option<String>,
    /// How long whoever seals waits between two passes. Default: 1 s.
    pub seal_every: Duration,
    /// How often a checkpoint is signed, if the log has grown. Default: 1 min.
    pub checkpoint_every: Duration,
    /// A file that each checkpoint is added to as well; none: they are in the database alone.
    pub checkpoint_file: Option<PathBuf>,
}

/// What the section comes to.
pub(super) struct Resolved {
    pub(super) audited_evaluations: AuditedEvaluations,
    pub(super) sealing: SealingSettings,
}

/// What the section says, with a problem for whatever says nothing.
pub(super) fn resolve(section: AuditSection, folder: &Path, problems: &mut Vec<String>) -> Resolved {
    let audited_evaluations = match section.evaluations.as_deref() {
        None => AuditedEvaluations::default(),
        Some(word) => AuditedEvaluations::parse(word).unwrap_or_else(|| {
            problems.push(format!("audit.evaluations: {word:?} is none of `acting`, `all` and `none`"));
            AuditedEvaluations::default()
        }),
    };
    let origin = section.origin.filter(|origin| {
        let named = is_name(origin);
        if !named {
            problems.push(format!(
                "audit.origin: {origin:?} is no name of a log: 1 to 256 bytes without white space or a plus sign, such as \
                 `example.org/countersign`"
            ));
        }
        named
    });
    let spans = |most: u64| (Duration::from_millis(10), Duration::from_secs(most));
    let sealing = SealingSettings {
        origin,
        seal_every: span("audit.seal_every", section.seal_every, Duration::from_secs(1), spans(60 * 60), problems),
        checkpoint_every: span(
            "audit.checkpoint_every",
            section.checkpoint_every,
            Duration::from_secs(60),
            spans(24 * 60 * 60),
            problems,
        ),
        checkpoint_file: section.checkpoint_file.map(|path| folder.join(path)),
    };
    Resolved { audited_evaluations, sealing }
}
