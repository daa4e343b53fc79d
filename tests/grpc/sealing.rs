//! All of an approval's arguments: for whom, on record, sealed in the file, and never anything but what was asked about.

use crate::backend::{intruder, kept, refuse_records, take_records};
use crate::grpc::harness::*;
use crate::grpc::moves::*;
use countersign::domain::canonical::{Limits, MAX_BYTES, Top, canonicalise};
use countersign::proto::*;
use sqlx::{Connection as _, Row as _};
use std::time::Duration;
use tonic::{Code, Status};

const SECRETS: &str = r#"{"to":"a@example.com","password":"SENTINEL-MASKED","n":9007199254740993,"t":[1.0,1e2]}"#;
const SECRETS_CANONICAL: &str =
    r#"{"n":9007199254740993,"password":"SENTINEL-MASKED","t":[1,100],"to":"a@example.com"}"#;

fn secrets_in(conversation: &str) -> Invocation {
    Invocation { arguments_json: SECRETS.to_owned(), ..in_conversation(conversation) }
}

/// What the background work does once an approval has been final for long enough.
pub async fn erase(sidecar: &Sidecar, approval: &str) {
    statement(sidecar, "DELETE FROM approval_arguments WHERE approval_id = $1", approval).await;
}

async fn statement(sidecar: &Sidecar, statement: &'static str, approval: &str) {
    let mut other = intruder(sidecar).await;
    sqlx::query(statement).bind(approval).execute(&mut other).await.unwrap();
    other.close().await.unwrap();
}

async fn sealed(sidecar: &Sidecar, approval: &str) -> Vec<u8> {
    let mut other = intruder(sidecar).await;
    let row = sqlx::query("SELECT sealed FROM approval_arguments WHERE approval_id = $1").bind(approval);
    let bytes = row.fetch_one(&mut other).await.unwrap().get(0);
    other.close().await.unwrap();
    bytes
}

async fn put_sealed(sidecar: &Sidecar, approval: &str, bytes: Vec<u8>) {
    let mut other = intruder(sidecar).await;
    let update = sqlx::query("UPDATE approval_arguments SET sealed = $2 WHERE approval_id = $1");
    update.bind(approval).bind(bytes).execute(&mut other).await.unwrap();
    other.close().await.unwrap();
}

/// Each record about the arguments of an approval: kind, person, caller, reason.
async fn readings(sidecar: &Sidecar, approval: &str) -> Vec<[String; 4]> {
    let records = sidecar.audit_of(approval).await.into_iter();
    let about = records.filter(|record| record.kind.starts_with("arguments."));
    about.map(|record| [record.kind, record.person, record.caller, record.reason]).collect()
}

fn reading(kind: &str, person: &str, caller: &str, reason: &str) -> [String; 4] {
    [kind, person, caller, reason].map(str::to_owned)
}

#[tokio::test]
async fn the_owner_and_who_may_decide_read_all_of_them_and_each_reading_is_on_record() {
    let sidecar = Sidecar::start().await;
    let invocation = Invocation { action: "GMAIL_DELETE_EMAIL".to_owned(), ..secrets_in("whole") };
    let (approval, _) = sidecar.ask(invocation).await;
    for person in ["olga", "dana", "eve", "finn", "dana"] {
        let whole = sidecar.arguments_for(person, &approval.id).await.unwrap();
        assert_eq!(whole.arguments_json, SECRETS_CANONICAL);
        assert_eq!(whole.fingerprint, approval.fingerprint);
        assert_eq!(format!("{whole:?}"), "GetApprovalArgumentsResponse { .. }");
    }
    // A person's own credential needs no name.
    let request = GetApprovalArgumentsRequest { approval_id: approval.id.clone(), ..Default::default() };
    let mut dana = sidecar.approver_as("dana");
    assert_eq!(dana.get_approval_arguments(request).await.unwrap().into_inner().arguments_json, SECRETS_CANONICAL);
    let read = |person, caller| reading("arguments.read", person, caller, "");
    assert_eq!(
        readings(&sidecar, &approval.id).await,
        [
            read("olga", "chat"),
            read("dana", "chat"),
            read("eve", "chat"),
            read("finn", "chat"),
            read("dana", "chat"),
            read("dana", "dana")
        ]
    );
}

#[tokio::test]
async fn to_anybody_else_they_are_as_absent_as_their_approval() {
    let sidecar = Sidecar::start().await;
    let (approval, _) = sidecar.ask(secrets_in("foreign")).await;
    let before = sidecar.audit().await.len();
    let none = uuid::Uuid::now_v7().to_string();
    for person in ["pia", "dana", "assistant", "Olga", "owner"] {
        let theirs = sidecar.arguments_for(person, &approval.id).await.unwrap_err();
        let absent = sidecar.arguments_for(person, &none).await.unwrap_err();
        assert_eq!(reason(&theirs), "APPROVAL_NOT_FOUND");
        assert_eq!(all_of(&theirs), all_of(&absent));
    }
    assert_eq!(sidecar.audit().await.len(), before);
    let of_team = GetApprovalArgumentsRequest { approval_id: approval.id.clone(), principal: "olga".to_owned() };
    let refusal = sidecar.approver_as("team").get_approval_arguments(of_team).await;
    refused(refusal, Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS");
    for id in ["", "x", "0190b6c0-0000-7000-8000-00000000000", "../etc"] {
        wrong(sidecar.arguments_for("olga", id).await, "approval_id");
    }
}

/// What is not loaded cannot take time: a foreign row that no code can read is absent, not an error.
#[tokio::test]
async fn a_foreign_row_is_not_even_read() {
    let sidecar = Sidecar::start().await;
    let (approval, _) = sidecar.ask(secrets_in("broken")).await;
    statement(&sidecar, "UPDATE approvals SET reason = 'nonsense' WHERE id = $1", &approval.id).await;
    let as_other = Approval { agent: "other-1".to_owned(), ..approval.clone() };
    for refusal in [
        sidecar.read_as("runtime", &as_other).await,
        sidecar.read_as("tenant-a", &approval).await,
        sidecar.cancel_as("runtime", &as_other).await,
        sidecar.seen_by("dana", &approval.id).await,
        sidecar.decide("dana", &approval.id, Verdict::Approve).await,
        sidecar.take_back("dana", &approval.id).await,
    ] {
        refused(refusal, Code::NotFound, "APPROVAL_NOT_FOUND");
    }
    refused(sidecar.arguments_for("dana", &approval.id).await, Code::NotFound, "APPROVAL_NOT_FOUND");
    refused(sidecar.read_as("runtime", &approval).await, Code::Internal, "INTERNAL");
    refused(sidecar.seen_by("olga", &approval.id).await, Code::Internal, "INTERNAL");
}

#[tokio::test]
async fn who_decided_reads_them_after_leaving_the_group_and_who_did_not_does_not() {
    let mut sidecar = Sidecar::start().await;
    let invocation = Invocation { action: "GMAIL_DELETE_EMAIL".to_owned(), ..secrets_in("groups") };
    let (approval, _) = sidecar.ask(invocation).await;
    sidecar.decide("dana", &approval.id, Verdict::Approve).await.unwrap();
    sidecar.restart_under(&POLICY.replace("finance: [dana, eve, finn]", "finance: [eve, gil]")).await;
    for person in ["dana", "eve", "gil", "olga"] {
        assert_eq!(sidecar.arguments_for(person, &approval.id).await.unwrap().arguments_json, SECRETS_CANONICAL);
    }
    refused(sidecar.arguments_for("finn", &approval.id).await, Code::NotFound, "APPROVAL_NOT_FOUND");
}

#[tokio::test]
async fn they_are_there_whatever_became_of_the_approval_until_they_are_erased() {
    let sidecar = Sidecar::start().await;
    let (approval, token) = sidecar.approved(secrets_in("erased")).await;
    sidecar.consume(&token, secrets_in("erased")).await.unwrap();
    assert_eq!(sidecar.arguments_for("olga", &approval.id).await.unwrap().arguments_json, SECRETS_CANONICAL);
    sidecar.advance(Duration::from_secs(24 * 60 * 60));
    assert_eq!(sidecar.sweep().await.erased, 1);
    let refusal = sidecar.arguments_for("olga", &approval.id).await;
    let status = refused(refusal, Code::FailedPrecondition, "ARGUMENTS_ERASED");
    assert_eq!(told(&status, "approval_id"), approval.id);
    assert_eq!(
        readings(&sidecar, &approval.id).await,
        [
            reading("arguments.read", "olga", "chat", ""),
            reading("arguments.refused", "olga", "chat", "ARGUMENTS_ERASED")
        ]
    );
    assert_eq!(sidecar.seen_by("olga", &approval.id).await.unwrap().state(), ApprovalState::Consumed);
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_handed_out() {
    let sidecar = Sidecar::start().await;
    let (approval, _) = sidecar.ask(secrets_in("unrecorded")).await;
    let mut other = intruder(&sidecar).await;
    refuse_records(&mut other, None).await;
    let status = sidecar.arguments_for("olga", &approval.id).await.unwrap_err();
    assert!(matches!(status.code(), Code::Internal | Code::Unavailable), "{status:?}");
    assert!(!format!("{status:?}").contains("SENTINEL"));
    take_records(&mut other).await;
    other.close().await.unwrap();
    assert!(readings(&sidecar, &approval.id).await.is_empty());
    sidecar.arguments_for("olga", &approval.id).await.unwrap();
}

#[track_caller]
fn corrupt(result: Result<GetApprovalArgumentsResponse, Status>) {
    let status = refused(result, Code::Internal, "INTERNAL");
    for word in ["SENTINEL", "seal", "sqlite", "postgres", "approval_arguments", "key"] {
        assert!(!status.message().contains(word), "{}", status.message());
    }
}

#[tokio::test]
async fn what_is_not_what_was_asked_about_is_never_shown() {
    let sidecar = Sidecar::start().await;
    let (one, _) = sidecar.ask(secrets_in("one")).await;
    let (other, _) = sidecar.ask(secrets_in("other")).await;
    assert_eq!(one.fingerprint, other.fingerprint, "one call, asked for two conversations");
    let (of_one, of_other) = (sealed(&sidecar, &one.id).await, sealed(&sidecar, &other.id).await);
    // Moved from a row to another, changed, cut, emptied of its text.
    put_sealed(&sidecar, &one.id, of_other).await;
    corrupt(sidecar.arguments_for("olga", &one.id).await);
    for place in [0, 1, 12, 13, of_one.len() / 2, of_one.len() - 1] {
        let mut changed = of_one.clone();
        changed[place] ^= 0x40;
        put_sealed(&sidecar, &one.id, changed).await;
        corrupt(sidecar.arguments_for("olga", &one.id).await);
    }
    for length in [1, 13, 28, of_one.len() - 1] {
        put_sealed(&sidecar, &one.id, of_one[..length].to_vec()).await;
        corrupt(sidecar.arguments_for("olga", &one.id).await);
    }
    put_sealed(&sidecar, &one.id, of_one).await;
    sidecar.arguments_for("olga", &one.id).await.unwrap();
    // An approval that says it is about another call than its arguments are of.
    for broken in [
        "UPDATE approvals SET account = 'work-mailbox-b' WHERE id = $1",
        "UPDATE approvals SET arguments_digest = replace(arguments_digest, '1', '2') WHERE id = $1",
        "UPDATE approvals SET objective_revision = 7 WHERE id = $1",
        "DELETE FROM approval_arguments WHERE approval_id = $1",
    ] {
        let (approval, _) = sidecar.ask(secrets_in(broken)).await;
        sidecar.arguments_for("olga", &approval.id).await.unwrap();
        statement(&sidecar, broken, &approval.id).await;
        corrupt(sidecar.arguments_for("olga", &approval.id).await);
    }
    // Sealed with a secret that this sidecar does not have: there may be another that has it.
    let (approval, _) = sidecar.ask(secrets_in("elsewhere")).await;
    let elsewhere = "UPDATE approval_arguments SET key_id = '0000000000000000' WHERE approval_id = $1";
    statement(&sidecar, elsewhere, &approval.id).await;
    refused(sidecar.arguments_for("olga", &approval.id).await, Code::Unavailable, "SECRET_MISSING");
    let refusals = readings(&sidecar, &one.id).await.into_iter().filter(|record| record[0] == "arguments.refused");
    assert_eq!(refusals.map(|record| record[3].clone()).collect::<Vec<_>>(), vec!["INTERNAL"; 11]);
}

#[tokio::test]
async fn the_largest_hostile_arguments_come_back_byte_for_byte_in_canonical_form() {
    let sidecar = Sidecar::start().await;
    let hostile = "\\u0000\\u001b[2J\u{202e}\u{200b}\u{feff}e\u{301}\u{10ffff}\\ud83d\\ude00\\\"\\\\/\u{7f}\u{85}";
    let filler = "x\u{1F600}\\n".repeat(28_000);
    let text = format!(
        r#" {{ "{hostile}" : ["{hostile}", -0.0, 1E3, 123456789012345678901234567890.10, null, true],
           "b": "{filler}", "\uFB33": 1, "\ud83d\ude00": 2, "": {{"a":{{}},"":[]}} }} "#
    );
    assert!((190_000..=256 * 1024).contains(&text.len()), "{}", text.len());
    let canonical = canonicalise(&text, Limits { max_bytes: MAX_BYTES, top: Top::Object }).unwrap();
    let (approval, _) = sidecar.ask(Invocation { arguments_json: text, ..email() }).await;
    let whole = sidecar.arguments_for("olga", &approval.id).await.unwrap();
    assert!(whole.arguments_json == canonical, "they differ");
    // Numbers whose canonical form is much longer than what was sent, up to the limit of what is sent.
    let numbers = format!("{{\"n\":[{}1e20]}}", "1e20,".repeat(256 * 1024 / 5 - 4));
    let canonical = canonicalise(&numbers, Limits { max_bytes: MAX_BYTES, top: Top::Object }).unwrap();
    assert!(canonical.len() > 1024 * 1024);
    let (approval, _) = sidecar.ask(Invocation { arguments_json: numbers, ..email() }).await;
    assert!(sidecar.arguments_for("olga", &approval.id).await.unwrap().arguments_json == canonical, "they differ");
    let (approval, _) = sidecar.ask(Invocation { arguments_json: String::new(), ..in_conversation("none") }).await;
    assert_eq!(sidecar.arguments_for("olga", &approval.id).await.unwrap().arguments_json, "{}");
}

#[tokio::test]
async fn arguments_up_to_the_largest_limit_fit_into_an_answer() {
    let mut sidecar = Sidecar::start().await;
    sidecar.restart_with(|config| config.arguments_bytes = MAX_BYTES).await.unwrap();
    let numbers = format!("{{\"n\":[{}1e20]}}", "1e20,".repeat(MAX_BYTES / 5 - 4));
    let (approval, _) = sidecar.ask(Invocation { arguments_json: numbers, ..email() }).await;
    let whole = sidecar.arguments_for("olga", &approval.id).await.unwrap();
    assert!((4 * MAX_BYTES..8 * MAX_BYTES).contains(&whole.arguments_json.len()), "{}", whole.arguments_json.len());
}

#[tokio::test]
async fn what_is_masked_is_nowhere_in_the_database_before_or_after_it_is_read() {
    let mut sidecar = Sidecar::start().await;
    let mut ids = Vec::new();
    for conversation in ["a", "b", "c"] {
        let (approval, token) = sidecar.approved(secrets_in(conversation)).await;
        sidecar.arguments_for("olga", &approval.id).await.unwrap();
        sidecar.consume(&token, secrets_in(conversation)).await.unwrap();
        ids.push(approval.id);
    }
    for running in [true, false] {
        if !running {
            assert!(sidecar.stop().await);
        }
        let mut looked_at = 0;
        for (place, bytes) in kept(&sidecar).await {
            assert!(!bytes.windows(8).any(|window| window == b"SENTINEL"), "{place}");
            looked_at += usize::from(bytes.windows(36).any(|window| window == ids[0].as_bytes()));
        }
        assert!(looked_at > 0, "the approvals are in what was looked at");
    }
    sidecar.restart_stopped().await;
    assert_eq!(sidecar.arguments_for("olga", &ids[2]).await.unwrap().arguments_json, SECRETS_CANONICAL);
}
