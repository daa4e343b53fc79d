//! The policy changes under a sidecar that serves: every call from then on is answered by the new one, what is open keeps
//! what it was asked with, and files that are wrong change nothing but what is said of them.

use crate::grpc::harness::*;
use crate::grpc::steps::*;
use crate::grpc::wire::http_get;
use countersign::policy_files::load_policy;
use countersign::proto::*;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Far longer than anything takes, also on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// The file of a sidecar that watches one.
pub const FILE: &str = "policy.yaml";

/// Writes a file as careful editors do: beside it, and then in its place.
pub fn put(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, path).unwrap();
}

/// A sidecar that watches one file with this policy.
pub async fn watching(policy: &str) -> Sidecar {
    Sidecar::watching(FILE, |folder| put(&folder.join(FILE), policy)).await
}

impl Sidecar {
    pub fn policy_path(&self) -> PathBuf {
        self.folder().join(FILE)
    }

    /// What the operator is told of the policy now.
    pub async fn told(&self) -> GetPolicyResponse {
        self.operator().get_policy(GetPolicyRequest {}).await.unwrap().into_inner()
    }

    /// Waits until the operator is told this of the policy.
    pub async fn told_that(&self, what: &str, holds: impl Fn(&GetPolicyResponse) -> bool) -> GetPolicyResponse {
        let start = Instant::now();
        loop {
            let told = self.told().await;
            if holds(&told) {
                return told;
            }
            assert!(start.elapsed() < PATIENCE, "not {what}: {told:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until what stands at `path` is in force.
    pub async fn obeys(&self, path: &Path) -> GetPolicyResponse {
        let revision = load_policy(path).unwrap().revision().to_owned();
        self.told_that("in force", |told| told.revision == revision && told.problems.is_empty()).await
    }

    /// Waits until the newest files were refused for a problem with `text` in it.
    pub async fn refuses(&self, text: &str) -> GetPolicyResponse {
        self.told_that(text, |told| told.problems.iter().any(|problem| problem.contains(text))).await
    }

    /// Puts another policy into the watched file, and waits until it is in force.
    pub async fn comes_under(&self, policy: &str) -> GetPolicyResponse {
        put(&self.policy_path(), policy);
        self.obeys(&self.policy_path()).await
    }

    async fn ready(&self) -> (u16, serde_json::Value) {
        let (status, body) = http_get(self.running().health_address(), "/readyz").await;
        (status, serde_json::from_str(&body).unwrap())
    }
}

/// Sends by `gmail` ask two of finance in place of the owner.
fn raised() -> String {
    let rule = "- { name: two, actions: [GMAIL_SEND_EMAIL], effect: confirm, approvers: [{ any_of: [\"group:finance\"], quorum: 2 }] }";
    with_rule(rule)
}

fn with_rule(rule: &str) -> String {
    POLICY.replacen("    rules:\n", &format!("    rules:\n      {rule}\n"), 1)
}

#[tokio::test]
async fn tightened_to_deny_it_denies_from_then_on_what_was_approved_before() {
    let sidecar = watching(POLICY).await;
    let (approval, token) = sidecar.approved(email()).await;
    let before = sidecar.told().await.revision;
    for (denying, why) in [
        (with_rule("- { name: none, effect: deny }"), "DENIED_BY_RULE"),
        (POLICY.replacen("ceiling: admin", "ceiling: read", 1), "SCOPE_EXCEEDS_CEILING"),
        (POLICY.replacen("  gmail:", "  gmail-2:", 1), "CONNECTOR_UNKNOWN"),
        (POLICY.replacen("  gmail:\n", "  gmail:\n    enabled: false\n", 1), "CONNECTOR_DISABLED"),
    ] {
        let revision = sidecar.comes_under(&denying).await.revision;
        let evaluated = sidecar.evaluate(email()).await.unwrap();
        assert_eq!((evaluated.decision(), evaluated.reason.as_str()), (Decision::Deny, why));
        assert_eq!(evaluated.policy_revision, revision);
        let denied = refused(sidecar.consume(&token, email()).await, Code::PermissionDenied, "POLICY_DENIED");
        assert_eq!(told(&denied, "policy_reason"), why);
        refused(sidecar.request(email()).await, Code::PermissionDenied, "POLICY_DENIED");
        let refusal = sidecar.audit_of(&approval.id).await.pop().unwrap();
        assert_eq!((refusal.kind.as_str(), &refusal.policy_revision), ("consume.refused", &revision));
        let stands = sidecar.get(&approval).await;
        assert_eq!((&stands, &stands.policy_revision), (&approval, &before), "as it was asked");
    }
    sidecar.comes_under(POLICY).await;
    sidecar.consume(&token, email()).await.unwrap();
}

#[tokio::test]
async fn raised_it_asks_again_and_what_is_open_is_decided_as_it_was_asked() {
    let sidecar = watching(POLICY).await;
    let (_, token) = sidecar.approved(email()).await;
    let (open, open_token) = sidecar.ask(in_conversation("open", email())).await;
    sidecar.comes_under(&raised()).await;
    refused(sidecar.consume(&token, email()).await, Code::FailedPrecondition, "CONFIRMATION_RAISED");
    // The owner alone was asked, and the owner's answer is all that it takes; it is only not enough today.
    let decided = sidecar.decide("olga", &open.id, Verdict::Approve).await.unwrap();
    assert_eq!((decided.state(), &decided.requirement), (ApprovalState::Approved, &open.requirement));
    let consumed = sidecar.consume(&open_token, in_conversation("open", email())).await;
    refused(consumed, Code::FailedPrecondition, "CONFIRMATION_RAISED");
    let again = sidecar.request(email()).await.unwrap();
    assert!(!again.existing, "another requirement is another question");
    let again_id = again.approval.unwrap().id;
    for person in ["olga", "dana", "eve"] {
        sidecar.decide(person, &again_id, Verdict::Approve).await.unwrap();
    }
    sidecar.consume(&again.consume_token, email()).await.unwrap();
    sidecar.comes_under(POLICY).await;
    sidecar.consume(&token, email()).await.unwrap();
}

#[tokio::test]
async fn loosened_to_allow_it_runs_without_asking() {
    let sidecar = watching(POLICY).await;
    let (approval, token) = sidecar.approved(email()).await;
    refused(sidecar.consume("", email()).await, Code::FailedPrecondition, "APPROVAL_REQUIRED");
    sidecar.comes_under(&POLICY.replacen("ceiling: admin", "ceiling: admin\n    confirm: never", 1)).await;
    let allowed = sidecar.consume("", in_conversation("other", email())).await.unwrap();
    assert_eq!(allowed.decision(), Decision::Allow);
    let used = sidecar.consume(&token, email()).await.unwrap();
    assert_eq!((used.decision(), used.permit.unwrap().approval_id), (Decision::Allow, approval.id));
}

#[tokio::test]
async fn who_leaves_a_group_between_two_decisions_has_no_second_one() {
    let sidecar = watching(POLICY).await;
    let (approval, token) = sidecar.ask(deletion()).await;
    for person in ["olga", "dana"] {
        sidecar.decide(person, &approval.id, Verdict::Approve).await.unwrap();
    }
    sidecar.comes_under(&POLICY.replace("finance: [dana, eve, finn]", "finance: [dana, finn, gil]")).await;
    let left = sidecar.decide("eve", &approval.id, Verdict::Approve).await;
    refused(left, Code::NotFound, "APPROVAL_NOT_FOUND");
    let joined = sidecar.decide("gil", &approval.id, Verdict::Approve).await.unwrap();
    assert_eq!(joined.state(), ApprovalState::Approved);
    assert_eq!(joined.decisions.last().unwrap().groups, ["finance"]);
    sidecar.consume(&token, deletion()).await.unwrap();
}

#[tokio::test]
async fn a_typo_changes_nothing_and_is_told_wherever_somebody_looks() {
    let sidecar = watching(POLICY).await;
    let good = sidecar.told().await;
    let (_, token) = sidecar.approved(email()).await;
    sidecar.advance(Duration::from_secs(60));
    let typo = POLICY.replace("effect: deny", "efect: deny").replace("[dana, eve, finn]", "[dana, \"eve\\u202E\"]");
    put(&sidecar.policy_path(), &typo);
    let told = sidecar.refuses("efect").await;
    assert_eq!((&told.revision, told.load_time), (&good.revision, good.load_time));
    assert_eq!(micros(told.attempt_time), START.micros() + 60_000_000);
    let all = told.problems.join("\n");
    assert!(all.contains("policy.yaml:3:") && all.contains("connectors.gmail.rules[0]"), "{all}");
    assert!(!all.contains('\u{202e}'), "{all}");
    let body = serde_json::json!({ "ready": true, "policy_revision": good.revision, "policy_reload_failed": true, "missing_secrets": [] });
    assert_eq!(sidecar.ready().await, (200, body));
    for service in ["", "liveness", "countersign.v1.AgentService"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        let health = HealthClient::new(sidecar.channel()).check(request).await.unwrap().into_inner();
        assert_eq!(health.status(), ServingStatus::Serving, "{service:?}");
    }
    assert_eq!(sidecar.evaluate(email()).await.unwrap().policy_revision, good.revision);
    sidecar.consume(&token, email()).await.unwrap();
    let press = Invocation { arguments_json: r#"{"to":"x@press.example"}"#.to_owned(), ..email() };
    assert_eq!(sidecar.evaluate(press).await.unwrap().reason, "DENIED_BY_RULE", "the rule with the typo is in force");
    // The fix is taken without a word to the process.
    sidecar.advance(Duration::from_secs(60));
    let fixed = sidecar.comes_under(&typo.replace("efect", "effect").replace("\\u202E", "")).await;
    assert_ne!(fixed.revision, good.revision);
    assert_eq!(micros(fixed.load_time), START.micros() + 120_000_000);
    let body = serde_json::json!({ "ready": true, "policy_revision": fixed.revision, "policy_reload_failed": false, "missing_secrets": [] });
    assert_eq!(sidecar.ready().await, (200, body));
}

#[tokio::test]
async fn files_that_mean_the_same_leave_the_time_since_when_it_is_in_force() {
    let sidecar = watching(POLICY).await;
    let first = sidecar.told().await;
    sidecar.advance(Duration::from_secs(60));
    put(&sidecar.policy_path(), &format!("# a comment\n{POLICY}"));
    let told = sidecar.told_that("read again", |told| told.attempt_time != first.attempt_time).await;
    assert_eq!((&told.revision, told.load_time), (&first.revision, first.load_time));
    assert!(told.problems.is_empty());
}

#[tokio::test]
async fn what_was_refused_before_a_restart_keeps_it_from_starting() {
    let mut sidecar = watching(POLICY).await;
    put(&sidecar.policy_path(), "nonsense");
    sidecar.refuses("nonsense").await;
    sidecar.stop().await;
    let clock = std::sync::Arc::new(countersign::clock::ManualClock::at(START));
    let refused = serve(&config_in(sidecar.folder()), clock).await.unwrap_err();
    assert!(refused.to_string().contains("policy.yaml"), "{refused}");
}

#[tokio::test]
async fn a_batch_is_answered_by_one_policy_however_often_it_changes() {
    let sidecar = watching(POLICY).await;
    let denying = with_rule("- { name: none, effect: deny }");
    let (one, other) = (load_policy(&sidecar.policy_path()).unwrap(), {
        put(&sidecar.policy_path(), &denying);
        load_policy(&sidecar.policy_path()).unwrap()
    });
    let revisions = [one.revision().to_owned(), other.revision().to_owned()];
    let engine = std::sync::Arc::clone(sidecar.running().engine());
    let (folder, stop) =
        (sidecar.folder().to_path_buf(), std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let swapping = {
        let stop = std::sync::Arc::clone(&stop);
        std::thread::spawn(move || {
            let (allow, deny) = (folder.join("allow"), folder.join("deny"));
            std::fs::write(&allow, POLICY).unwrap();
            std::fs::write(&deny, denying).unwrap();
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                for path in [&deny, &allow] {
                    engine.replace_policy(load_policy(path).unwrap());
                }
            }
        })
    };
    let item = EvaluateRequest { invocation: Some(email()), explain: false };
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let request = BatchEvaluateRequest { requests: vec![item.clone(); 100] };
        let answer = sidecar.agent().batch_evaluate(request).await.unwrap().into_inner();
        let of_items: std::collections::BTreeSet<String> = answer
            .results
            .into_iter()
            .map(|result| match result.result.unwrap() {
                batch_evaluate_result::Result::Response(response) => {
                    let denied = response.decision() == Decision::Deny;
                    assert_eq!(denied, response.policy_revision == revisions[1]);
                    response.policy_revision
                }
                batch_evaluate_result::Result::Error(error) => panic!("{error:?}"),
            })
            .collect();
        assert_eq!(of_items.len(), 1);
        seen.extend(of_items);
    }
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    swapping.join().unwrap();
    assert!(seen.iter().all(|revision| revisions.contains(revision)));
}
