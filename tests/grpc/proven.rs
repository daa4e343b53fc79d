//! The audit that can be proven: whatever somebody with the database does to it is found and named, and nothing is found in
//! one that nobody has touched.

use crate::backend::{Connection, intruder, run};
use crate::grpc::harness::*;
use countersign::domain::audit::checkpoint::{Note, VerifierKey};
use countersign::domain::audit::leaf::TEXTS;
use countersign::domain::audit::tree::{is_extended, is_included, leaf_hash};
use countersign::domain::audit::verify::{EntrySaid, FindingKind, LogSaid, Verdict, Verifier};
use countersign::domain::hex::{hex, parse_hex};
use countersign::proto::export_audit_response::Part;
use countersign::proto::*;
use countersign::secrets::is_signed;
use sqlx::{AssertSqlSafe, Row as _};
use std::time::Duration;
use tonic::Code;

const MINUTE: Duration = Duration::from_secs(60);

impl Sidecar {
    /// Seals what there is and signs it.
    pub async fn signs(&self) -> GetAuditCheckpointResponse {
        let request = GetAuditCheckpointRequest { sign_now: true, ..Default::default() };
        self.operator().get_audit_checkpoint(request).await.unwrap().into_inner()
    }

    /// Everything that an export tells.
    pub async fn exported(&self) -> Vec<Part> {
        let mut told = self.operator().export_audit(ExportAuditRequest::default()).await.unwrap().into_inner();
        let mut parts = Vec::new();
        while let Some(answer) = told.message().await.unwrap() {
            parts.push(answer.part.unwrap());
        }
        parts
    }

    /// The seals that an export tells.
    pub async fn entries(&self) -> Vec<AuditEntry> {
        let parts = self.exported().await.into_iter();
        parts.filter_map(|part| if let Part::Entry(entry) = part { Some(entry) } else { None }).collect()
    }

    /// What verifying finds, with the keys that the sidecar names and checkpoints that were kept elsewhere.
    pub async fn verdict(&self, kept: &[String]) -> Verdict {
        verdict_of(self.exported().await, kept)
    }
}

/// What verifying these parts finds.
fn verdict_of(parts: Vec<Part>, kept: &[String]) -> Verdict {
    let mut verifier =
        Verifier::new(Vec::new(), Box::new(|key, message, signature| is_signed(key, message, signature)));
    for part in parts {
        match part {
            Part::Log(log) => {
                log.keys.iter().for_each(|key| verifier.trust(VerifierKey::parse(key).unwrap()));
                verifier.log(LogSaid {
                    origin: log.origin,
                    size: log.size,
                    root: Some(log.root.try_into().unwrap()),
                    deleted_below: log.records_deleted_below,
                });
                kept.iter().for_each(|note| verifier.kept_elsewhere(note));
            }
            Part::Checkpoint(checkpoint) => verifier.checkpoint(&checkpoint.note),
            Part::Entry(entry) => verifier.entry(EntrySaid {
                leaf: entry.leaf,
                position: entry.position,
                record_id: entry.record_id,
                leaf_hash: entry.leaf_hash,
                leaf_text: Some(entry.leaf_text).filter(|text| !text.is_empty()),
            }),
            Part::Unsealed(record) => verifier.unsealed(&record.leaf_text),
            Part::End(end) => verifier.end(end.entries, end.unsealed),
        }
    }
    verifier.finish()
}

/// The kinds of what was found, each once, and where the first of each is.
fn kinds(verdict: &Verdict) -> Vec<FindingKind> {
    let mut kinds: Vec<FindingKind> = verdict.findings.iter().map(|finding| finding.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// A sidecar with a log of ten seals and two checkpoints, of which the first is returned, and what the log was then.
async fn sealed() -> (Sidecar, Connection, String) {
    let sidecar = Sidecar::start().await;
    for conversation in 0..5 {
        sidecar.ask(Invocation { conversation: format!("first {conversation}"), ..email() }).await;
    }
    let first = sidecar.signs().await.checkpoint.unwrap().note;
    let mut other = intruder(&sidecar).await;
    run(&mut other, "CREATE TABLE saved_log AS SELECT * FROM audit_log").await;
    sidecar.advance(2 * MINUTE);
    for conversation in 0..5 {
        sidecar.ask(Invocation { conversation: format!("second {conversation}"), ..email() }).await;
    }
    assert_eq!(sidecar.signs().await.log.unwrap().size, 10);
    (sidecar, other, first)
}

async fn runs(connection: &mut Connection, statement: String) {
    run(connection, statement.leak()).await;
}

#[tokio::test]
async fn nothing_is_found_in_an_audit_that_nobody_has_touched() {
    let mut sidecar = Sidecar::start().await;
    let none = sidecar.verdict(&[]).await;
    assert!(none.is_good() && none.size == 0, "{none:?}");
    crate::grpc::audit::everything(&sidecar).await;
    let records = sidecar.audit().await;
    let unsealed = sidecar.verdict(&[]).await;
    assert!(unsealed.is_good(), "{unsealed:?}");
    assert_eq!((unsealed.size, unsealed.unsealed), (0, u64::try_from(records.len()).unwrap()));
    let signed = sidecar.signs().await;
    let kept = vec![signed.checkpoint.unwrap().note];
    let verdict = sidecar.verdict(&kept).await;
    assert!(verdict.is_good(), "{verdict:?}");
    assert_eq!(verdict.signed, u64::try_from(records.len()).unwrap());
    let entries = sidecar.entries().await;
    assert_eq!(
        entries.iter().map(|entry| &entry.record_id).collect::<Vec<_>>(),
        records.iter().map(|record| &record.id).collect::<Vec<_>>()
    );
    // What is written when it stops is sealed and signed before it has.
    sidecar.ask(Invocation { conversation: "last".to_owned(), ..email() }).await;
    sidecar.restart().await;
    let verdict = sidecar.verdict(&kept).await;
    assert!(verdict.is_good(), "{verdict:?}");
    // The one that was kept elsewhere counts as well.
    assert_eq!((verdict.signed, verdict.checkpoints), (u64::try_from(records.len()).unwrap() + 1, 3));
}

#[tokio::test]
async fn a_record_that_was_changed_is_found_whichever_fact_it_was() {
    let (sidecar, mut other, _) = sealed().await;
    run(&mut other, "CREATE TABLE saved_records AS SELECT * FROM audit_records").await;
    let entries = sidecar.entries().await;
    let (position, id) = (entries[3].position, entries[3].record_id.clone());
    for column in TEXTS.into_iter().chain(["time"]) {
        let value = if column == "time" { "time + 1" } else { "'x'" };
        runs(&mut other, format!("UPDATE audit_records SET {column} = {value} WHERE position = {position}")).await;
        let verdict = sidecar.verdict(&[]).await;
        let kind = if column == "id" { FindingKind::RecordReplaced } else { FindingKind::RecordChanged };
        assert_eq!(kinds(&verdict), [kind], "{column}: {verdict:?}");
        let finding = &verdict.findings[0];
        assert_eq!((finding.leaf, finding.position, finding.record_id.as_ref()), (Some(3), Some(position), Some(&id)));
        let back = format!(
            "UPDATE audit_records SET {column} = (SELECT saved.{column} FROM saved_records saved \
             WHERE saved.position = {position}) WHERE position = {position}"
        );
        runs(&mut other, back).await;
    }
    let verdict = sidecar.verdict(&[]).await;
    assert!(verdict.is_good(), "as it was, it is what was sealed: {verdict:?}");
}

/// A way in which somebody with the database alters the audit.
struct Tampering {
    name: &'static str,
    statements: &'static [&'static str],
    /// What is found, with the checkpoints in the database alone.
    found: &'static [FindingKind],
    /// At which leaf the first of it is.
    leaf: Option<u64>,
    /// Whether the sidecar goes on to sign.
    signs: bool,
}

const TAMPERINGS: &[Tampering] = &[
    Tampering {
        name: "a record is deleted",
        statements: &[
            "DELETE FROM audit_records WHERE position = (SELECT record_position FROM audit_seals WHERE leaf = 3)",
        ],
        found: &[FindingKind::RecordMissing],
        leaf: Some(3),
        signs: true,
    },
    Tampering {
        name: "two records change places",
        statements: &["UPDATE audit_records SET \
             id = (SELECT record_id FROM audit_seals WHERE leaf = (SELECT 6 - leaf FROM audit_seals WHERE record_position = position)), \
             conversation = (SELECT noted.conversation FROM audit_records noted JOIN audit_seals ON record_position = noted.position \
             WHERE leaf = (SELECT 6 - leaf FROM audit_seals WHERE record_position = audit_records.position)) \
             WHERE position IN (SELECT record_position FROM audit_seals WHERE leaf IN (2, 4))"],
        found: &[FindingKind::RecordReordered],
        leaf: Some(2),
        signs: true,
    },
    Tampering {
        name: "a seal is changed",
        statements: &[
            "UPDATE audit_seals SET leaf_hash = (SELECT other.leaf_hash FROM audit_seals other WHERE other.leaf = 4) \
             WHERE leaf = 3",
        ],
        found: &[FindingKind::SealChanged],
        leaf: Some(3),
        signs: false,
    },
    Tampering {
        name: "a seal is removed",
        statements: &["DELETE FROM audit_seals WHERE leaf = 3"],
        found: &[FindingKind::SealMissing, FindingKind::LogCut],
        leaf: Some(3),
        signs: false,
    },
    Tampering {
        name: "two seals change places",
        statements: &[
            "UPDATE audit_seals SET leaf = 100 WHERE leaf = 2",
            "UPDATE audit_seals SET leaf = 2 WHERE leaf = 3",
            "UPDATE audit_seals SET leaf = 3 WHERE leaf = 100",
        ],
        found: &[FindingKind::LogRewritten],
        leaf: Some(0),
        signs: false,
    },
    Tampering {
        name: "the end is cut off, and its seals",
        statements: &[
            "DELETE FROM audit_records WHERE position IN (SELECT record_position FROM audit_seals WHERE leaf >= 5)",
            "DELETE FROM audit_seals WHERE leaf >= 5",
            "DELETE FROM audit_log",
            "INSERT INTO audit_log SELECT * FROM saved_log",
        ],
        found: &[FindingKind::LogCut],
        leaf: Some(5),
        signs: false,
    },
    Tampering {
        name: "the frontier is changed",
        statements: &["UPDATE audit_log SET frontier = replace(replace(frontier, '0', '1'), 'a', 'b')"],
        found: &[FindingKind::FrontierChanged],
        leaf: None,
        signs: false,
    },
    Tampering {
        name: "the log is called otherwise",
        statements: &["UPDATE audit_log SET origin = 'another'"],
        found: &[FindingKind::OriginChanged, FindingKind::Unsigned],
        leaf: None,
        signs: false,
    },
    Tampering {
        name: "a checkpoint is forged",
        statements: &[
            "UPDATE audit_checkpoints SET note = replace(note, 'records-until 1', 'records-until 2') WHERE size = 5",
        ],
        found: &[FindingKind::CheckpointForged],
        leaf: None,
        signs: true,
    },
    Tampering {
        name: "records are deleted as if their time had come",
        statements: &[
            "UPDATE audit_log SET deleted_below = 3",
            "DELETE FROM audit_records WHERE position IN (SELECT record_position FROM audit_seals WHERE leaf < 3)",
        ],
        found: &[FindingKind::RecordMissing, FindingKind::FrontierChanged],
        leaf: Some(0),
        signs: false,
    },
];

#[tokio::test]
async fn whatever_is_done_to_the_audit_is_found_and_named() {
    for tampering in TAMPERINGS {
        let (sidecar, mut other, _) = sealed().await;
        let name = tampering.name;
        assert!(sidecar.verdict(&[]).await.is_good(), "{name}");
        for statement in tampering.statements {
            run(&mut other, statement).await;
        }
        let verdict = sidecar.verdict(&[]).await;
        // Who has no key of this name cannot say that it is forged; that nothing is signed is said.
        let found = kinds(&verdict);
        assert!(tampering.found.iter().all(|kind| found.contains(kind)), "{name}: {verdict:#?}");
        let first = verdict.findings.iter().find(|finding| finding.kind == tampering.found[0]).unwrap();
        assert_eq!(first.leaf, tampering.leaf, "{name}: {first:?}");
        // What is no extension of what was signed is not signed.
        sidecar.ask(Invocation { conversation: "after".to_owned(), ..email() }).await;
        let signed = sidecar.running().sealer().checkpoint_now().await.map(|report| report.checkpoints == 1);
        assert_eq!(signed.unwrap_or(false), tampering.signs, "{name}");
        let refusals =
            sidecar.running().sealer().status().read().refusals + sidecar.running().sealer().status().read().failures;
        assert_eq!(refusals > 0, !tampering.signs, "{name}: it does not keep silent");
    }
}

#[tokio::test]
async fn an_end_that_is_cut_off_with_its_checkpoints_is_found_by_one_that_was_kept_elsewhere() {
    let (sidecar, mut other, first) = sealed().await;
    let kept = vec![first, sidecar.signs().await.checkpoint.unwrap().note];
    for statement in TAMPERINGS.iter().find(|one| one.name.starts_with("the end is cut")).unwrap().statements {
        run(&mut other, statement).await;
    }
    run(&mut other, "DELETE FROM audit_checkpoints WHERE size > 5").await;
    let alone = sidecar.verdict(&kept[..1]).await;
    assert!(alone.is_good(), "the database alone is what it was then: {alone:?}");
    let verdict = sidecar.verdict(&kept).await;
    assert_eq!(kinds(&verdict), [FindingKind::LogCut], "{verdict:?}");
    // The sidecar that signed it knows better.
    assert!(sidecar.running().sealer().checkpoint_now().await.unwrap().refused);
}

#[tokio::test]
async fn a_log_that_was_rewritten_whole_is_found_by_a_checkpoint_of_before() {
    let (sidecar, mut other, first) = sealed().await;
    run(&mut other, "UPDATE audit_records SET principal = 'mallory' WHERE position = 2").await;
    for table in ["audit_seals", "audit_nodes", "audit_checkpoints", "audit_log"] {
        runs(&mut other, format!("DELETE FROM {table}")).await;
    }
    // The one that runs remembers what it has signed.
    assert!(sidecar.running().sealer().checkpoint_now().await.unwrap().refused);
    let mut sidecar = sidecar;
    sidecar.restart().await;
    sidecar.signs().await;
    let alone = sidecar.verdict(&[]).await;
    assert!(alone.is_good(), "a new log of what is there: {alone:?}");
    let verdict = sidecar.verdict(&[first]).await;
    assert_eq!(kinds(&verdict), [FindingKind::OriginChanged], "{verdict:?}");
}

#[tokio::test]
async fn a_record_that_is_put_in_later_is_found_before_and_after_it_is_sealed() {
    let (sidecar, mut other, _) = sealed().await;
    sidecar.advance(10 * MINUTE);
    sidecar.ask(Invocation { conversation: "later".to_owned(), ..email() }).await;
    sidecar.signs().await;
    let insert = "INSERT INTO audit_records (id, time, kind, principal, agent, decision, labels) \
        SELECT '0190b6c0-0000-7000-8000-00000000000a', min(time), 'approval.approved', 'olga', 'assistant', 'APPROVED', '{}' \
        FROM audit_records";
    run(&mut other, insert).await;
    let verdict = sidecar.verdict(&[]).await;
    assert_eq!(kinds(&verdict), [FindingKind::RecordInserted], "{verdict:?}");
    assert_eq!(verdict.findings[0].record_id.as_deref(), Some("0190b6c0-0000-7000-8000-00000000000a"));
    sidecar.signs().await;
    let verdict = sidecar.verdict(&[]).await;
    assert_eq!(kinds(&verdict), [FindingKind::SealedLate], "{verdict:?}");
    assert_eq!(verdict.findings[0].leaf, Some(11));
    // The same record once more, with a time of now.
    run(&mut other, "INSERT INTO audit_records (id, time, kind, principal, agent, decision, labels) \
        SELECT id, (SELECT max(time) FROM audit_records), kind, principal, agent, decision, labels FROM audit_records WHERE position = 1").await;
    sidecar.signs().await;
    let verdict = sidecar.verdict(&[]).await;
    assert_eq!(kinds(&verdict), [FindingKind::RecordDuplicate, FindingKind::SealedLate], "{verdict:?}");
}

#[tokio::test]
async fn a_record_and_its_seal_changed_together_are_found() {
    let (sidecar, mut other, _) = sealed().await;
    let position = sidecar.entries().await[3].position;
    runs(&mut other, format!("UPDATE audit_records SET principal = 'mallory' WHERE position = {position}")).await;
    let text = sidecar.entries().await[3].leaf_text.clone();
    let hash = hex(&leaf_hash(text.as_bytes()));
    runs(&mut other, format!("UPDATE audit_seals SET leaf_hash = '{hash}' WHERE leaf = 3")).await;
    let verdict = sidecar.verdict(&[]).await;
    assert_eq!(kinds(&verdict), [FindingKind::LogRewritten], "{verdict:?}");
    assert!(sidecar.running().sealer().checkpoint_now().await.unwrap().refused);
}

#[tokio::test]
async fn what_no_binary_of_ours_would_write_is_exported_and_sealed_all_the_same() {
    let (sidecar, mut other, _) = sealed().await;
    let insert = "INSERT INTO audit_records (id, time, kind, principal, agent, decision, labels) \
        SELECT 'no id', max(time), 'no kind', '', '', '\"', 'no labels' FROM audit_records";
    run(&mut other, insert).await;
    assert_eq!(sidecar.signs().await.log.unwrap().size, 11);
    let entries = sidecar.entries().await;
    assert!(entries[10].leaf_text.contains("\"kind\":\"no kind\""), "{}", entries[10].leaf_text);
    assert!(sidecar.verdict(&[]).await.is_good());
}

#[tokio::test]
async fn one_record_is_proven_without_the_others_and_one_log_to_be_what_another_began_with() {
    let (sidecar, _, first) = sealed().await;
    let entries = sidecar.entries().await;
    let parsed = |note: &str| {
        let note = Note::parse(note).unwrap();
        countersign::domain::audit::checkpoint::Checkpoint::parse(&note.text).unwrap()
    };
    for entry in &entries {
        let request = ProveAuditRecordRequest { record_id: entry.record_id.to_uppercase() };
        let proof = sidecar.operator().prove_audit_record(request).await.unwrap().into_inner();
        let checkpoint = parsed(&proof.checkpoint.unwrap().note);
        let proven = proof.entry.unwrap();
        assert_eq!((proven.leaf, &proven.leaf_text), (entry.leaf, &entry.leaf_text));
        let path: Vec<[u8; 32]> = proof.path.into_iter().map(|hash| hash.try_into().unwrap()).collect();
        let leaf = leaf_hash(proven.leaf_text.as_bytes());
        assert_eq!(parse_hex(&proven.leaf_hash), Some(leaf));
        assert!(is_included(&leaf, proven.leaf, checkpoint.size, &path, &checkpoint.root));
    }
    let (older, newer) = (parsed(&first), parsed(&sidecar.signs().await.checkpoint.unwrap().note));
    let request = ProveAuditConsistencyRequest { older_size: older.size, newer_size: 0 };
    let proof = sidecar.operator().prove_audit_consistency(request).await.unwrap().into_inner();
    let path: Vec<[u8; 32]> = proof.path.into_iter().map(|hash| hash.try_into().unwrap()).collect();
    assert!(is_extended((older.size, &older.root), (newer.size, &newer.root), &path));
    for (older_size, newer_size) in [(0, 0), (11, 0), (5, 11), (9, 8), (u64::MAX, u64::MAX)] {
        let request = ProveAuditConsistencyRequest { older_size, newer_size };
        refused(sidecar.operator().prove_audit_consistency(request).await, Code::InvalidArgument, "AUDIT_SIZE_UNKNOWN");
    }
    for (record_id, code, why) in [
        ("0190b6c0-0000-7000-8000-00000000000a", Code::NotFound, "AUDIT_RECORD_NOT_SEALED"),
        ("", Code::InvalidArgument, "INVALID_REQUEST"),
        ("'; DROP TABLE audit_seals", Code::InvalidArgument, "INVALID_REQUEST"),
    ] {
        let request = ProveAuditRecordRequest { record_id: record_id.to_owned() };
        refused(sidecar.operator().prove_audit_record(request).await, code, why);
    }
    let request = GetAuditCheckpointRequest { size: 7, sign_now: false };
    refused(sidecar.operator().get_audit_checkpoint(request).await, Code::NotFound, "AUDIT_CHECKPOINT_NOT_FOUND");
    let request = GetAuditCheckpointRequest { size: 5, sign_now: false };
    let told = sidecar.operator().get_audit_checkpoint(request).await.unwrap().into_inner();
    assert_eq!(told.checkpoint.unwrap().note, first);
}

#[tokio::test]
async fn records_are_deleted_below_a_checkpoint_that_says_so_and_never_above_it() {
    let mut sidecar = Sidecar::start().await;
    let kept = Some(Duration::from_secs(24 * 60 * 60));
    sidecar.restart_with(|config| config.retention.audit_records = kept).await.unwrap();
    for conversation in 0..3 {
        sidecar.ask(Invocation { conversation: conversation.to_string(), ..email() }).await;
    }
    let first = sidecar.signs().await.checkpoint.unwrap().note;
    sidecar.advance(Duration::from_secs(25 * 60 * 60));
    assert_eq!(sidecar.sweep().await.deleted, 0, "nothing is deleted that no checkpoint lets go");
    let before = sidecar.audit().await.len();
    sidecar.ask(Invocation { conversation: "new".to_owned(), ..email() }).await;
    let signed = sidecar.signs().await;
    assert_eq!(signed.log.unwrap().records_deleted_below, 3);
    assert!(signed.checkpoint.unwrap().note.contains("\nrecords-deleted-below 3\n"));
    assert!(sidecar.sweep().await.deleted >= 3);
    assert!(sidecar.audit().await.len() < before + 1);
    let verdict = sidecar.verdict(&[first]).await;
    assert!(verdict.is_good() && verdict.deleted == 3, "{verdict:?}");
    // One that is not deleted in its time is missed.
    let mut other = intruder(&sidecar).await;
    run(
        &mut other,
        "DELETE FROM audit_records WHERE position = (SELECT record_position FROM audit_seals WHERE leaf = 3)",
    )
    .await;
    let verdict = sidecar.verdict(&[]).await;
    assert_eq!((kinds(&verdict), verdict.findings[0].leaf), (vec![FindingKind::RecordMissing], Some(3)));
    // Nor is its absence ever signed for.
    sidecar.advance(Duration::from_secs(48 * 60 * 60));
    assert_eq!(sidecar.signs().await.log.unwrap().records_deleted_below, 3);
    assert!(sidecar.running().sealer().status().read().refusals > 0);
}

#[tokio::test]
async fn checkpoints_of_before_a_rotation_are_verified_with_the_old_key() {
    let (mut sidecar, _, first) = sealed().await;
    let new = crate::grpc::rotation::new_secret(&sidecar, "new.secret");
    let files = ["new.secret", SECRET].map(|name| sidecar.folder().join(name));
    let change = |config: &mut countersign::config::Config| {
        config.secret_file = files[0].clone();
        config.further_secret_files = vec![files[1].clone()];
    };
    sidecar.restart_with(change).await.unwrap();
    // What the old one signed the new one signs too, though nothing was written since.
    let signed = sidecar.signs().await;
    assert_eq!(signed.checkpoint.unwrap().key_id, new);
    assert_eq!(signed.log.unwrap().keys.len(), 2);
    let verdict = sidecar.verdict(&[first]).await;
    assert!(verdict.is_good() && verdict.unknown_keys == 0, "{verdict:?}");
}

#[tokio::test]
async fn checkpoints_are_written_to_a_file_that_the_database_says_nothing_of() {
    let mut sidecar = Sidecar::start().await;
    let path = sidecar.folder().join("checkpoints");
    let file = path.clone();
    let change = move |config: &mut countersign::config::Config| config.sealing.checkpoint_file = Some(file);
    sidecar.restart_with(change.clone()).await.unwrap();
    sidecar.ask(email()).await;
    let first = sidecar.signs().await.checkpoint.unwrap().note;
    sidecar.ask(Invocation { conversation: "2".to_owned(), ..email() }).await;
    let second = sidecar.signs().await.checkpoint.unwrap().note;
    let notes = Note::parse_all(&std::fs::read_to_string(&path).unwrap());
    assert_eq!(notes.iter().map(ToString::to_string).collect::<Vec<_>>(), [first, second]);
    // The database alone is set back, while nobody serves it; the file says so.
    sidecar.stop().await;
    let mut other = intruder(&sidecar).await;
    run(&mut other, "DELETE FROM audit_records").await;
    for table in ["audit_seals", "audit_nodes", "audit_checkpoints", "audit_log"] {
        runs(&mut other, format!("DELETE FROM {table}")).await;
    }
    drop(other);
    sidecar.restart_with(change).await.unwrap();
    sidecar.ask(Invocation { conversation: "3".to_owned(), ..email() }).await;
    assert!(sidecar.running().sealer().checkpoint_now().await.unwrap().refused);
}

#[tokio::test]
async fn a_checkpoint_is_signed_once_in_its_interval_and_when_there_is_something_new() {
    let sidecar = Sidecar::start().await;
    let sealer = sidecar.running().sealer();
    let report = sealer.pass().await.unwrap();
    assert_eq!((report.sealed, report.checkpoints), (0, 0), "there is nothing to sign");
    sidecar.ask(email()).await;
    sidecar.advance(MINUTE);
    let report = sealer.pass().await.unwrap();
    assert_eq!((report.sealed, report.checkpoints), (1, 1));
    sidecar.ask(Invocation { conversation: "2".to_owned(), ..email() }).await;
    sidecar.advance(MINUTE - Duration::from_micros(1));
    let report = sealer.pass().await.unwrap();
    assert_eq!((report.sealed, report.checkpoints), (1, 0));
    sidecar.advance(Duration::from_micros(1));
    assert_eq!(sealer.pass().await.unwrap().checkpoints, 1);
    sidecar.advance(MINUTE);
    assert_eq!(sealer.pass().await.unwrap().checkpoints, 0, "nothing is new");
    let read = sealer.status().read();
    assert_eq!((read.sealed, read.checkpoints, read.newest.unwrap().0), (2, 2, 2));
    // How far behind it is, is seen as long as it is.
    sidecar.ask(Invocation { conversation: "3".to_owned(), ..email() }).await;
    sidecar.advance(MINUTE);
    let log = sidecar.running().engine().store().audit_log().await.unwrap();
    assert_eq!(log.now.since(log.row.unwrap().oldest_unsealed.unwrap()), MINUTE);
}

#[tokio::test]
async fn what_turns_up_below_what_is_sealed_is_sealed_late_and_not_lost() {
    let (sidecar, mut other, _) = sealed().await;
    // Below everything, where no position is ever given.
    let insert = "INSERT INTO audit_records (position, id, time, kind, principal, agent, decision, labels) OVERRIDING SYSTEM VALUE \
        SELECT -7, 'below', max(time), 'x', 'x', 'x', 'x', '{}' FROM audit_records";
    let insert = if other.is_file() { insert.replace(" OVERRIDING SYSTEM VALUE", "") } else { insert.to_owned() };
    runs(&mut other, insert).await;
    // Each pass looks at some more of all that there is.
    for _ in 0..4 {
        sidecar.running().sealer().pass().await.unwrap();
    }
    assert_eq!(sidecar.entries().await.len(), 11);
    let found = sqlx::query(AssertSqlSafe("SELECT record_position FROM audit_seals WHERE leaf = 10".to_owned()));
    let position: i64 = found.fetch_one(&mut other).await.unwrap().get(0);
    assert_eq!(position, -7);
}

/// What a connection is to.
trait Kind {
    /// Whether it is to a file.
    fn is_file(&self) -> bool;
}

impl Kind for Connection {
    fn is_file(&self) -> bool {
        std::any::type_name::<Self>().contains("sqlite")
    }
}

/// What a sample of `docs/audit.md` leaves out, since every record has it.
const IN_EVERY_RECORD: [&str; 7] = ["id", "position", "time_us", "principal", "agent", "labels", "v"];

#[tokio::test]
async fn every_kind_of_record_has_a_sample_that_is_one() {
    use crate::grpc::waits::{opening, opening_for, resuming};
    use countersign::domain::audit::{AuditKind, AuditedEvaluations};
    let sidecar = Sidecar::auditing(AuditedEvaluations::All).await;
    crate::grpc::audit::everything(&sidecar).await;
    let opened = sidecar.waiting().await;
    let attempt = new_attempt();
    sidecar.resume_wait(&opened, &attempt).await.unwrap();
    sidecar.resume_wait(&opened, &attempt).await.unwrap();
    sidecar.agent().resume_wait(resuming(&opened, &new_attempt())).await.unwrap_err();
    let reopened = sidecar.waiting().await;
    let updated = OpenWaitRequest { summary: "until she has seen it again".to_owned(), ..opening() };
    sidecar.open_wait(updated).await.unwrap();
    sidecar.open_wait(OpenWaitRequest { replace: true, ..opening_for("input-2", 1) }).await.unwrap();
    drop(reopened);
    sidecar.advance(Duration::from_secs(3_600));
    sidecar.sweep().await;
    let last = sidecar.waiting().await;
    sidecar.close_wait(&last).await.unwrap();
    let waiting = "countersign_evaluation_audit_waiting";
    crate::grpc::metrics::until(&sidecar, "the evaluation is written", |page| page.value(waiting) == 0.0).await;
    while sidecar.running().sealer().pass().await.unwrap().more {}

    let shortened = |text: &str| {
        let all: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).unwrap();
        all.into_iter().filter(|(name, _)| !IN_EVERY_RECORD.contains(&name.as_str())).collect::<serde_json::Map<_, _>>()
    };
    // Which members it has, and what it says where that is a word of ours.
    let of = |sample: &serde_json::Map<String, serde_json::Value>| {
        let names: Vec<String> = sample.keys().cloned().collect();
        (names, ["kind", "decision", "reason"].map(|name| sample.get(name).cloned()))
    };
    let records: Vec<_> = sidecar.entries().await.iter().map(|entry| shortened(&entry.leaf_text)).collect();
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/audit.md")).unwrap();
    let mut wrong = Vec::new();
    for kind in AuditKind::ALL {
        let row =
            page.lines().find(|line| line.starts_with(&format!("| `{kind}` |"))).unwrap_or_else(|| panic!("{kind}"));
        let sample: serde_json::Map<_, _> = serde_json::from_str(row.split('`').nth_back(1).unwrap()).unwrap();
        let real: Vec<_> = records.iter().filter(|record| record["kind"] == kind.as_str()).collect();
        assert!(!real.is_empty(), "{kind} did not happen");
        if !real.iter().any(|record| of(record) == of(&sample)) {
            wrong.push(serde_json::to_string(real[0]).unwrap());
        }
    }
    assert!(wrong.is_empty(), "these are real:\n{}", wrong.join("\n"));
}
