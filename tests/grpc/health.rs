//! What orchestrators ask, without credentials, and what else the plaintext listener serves: nothing.

use crate::grpc::harness::*;
use crate::grpc::wire::http_get;
use countersign::proto::agent_service_client::AgentServiceClient;
use countersign::proto::approver_service_client::ApproverServiceClient;
use countersign::proto::operator_service_client::OperatorServiceClient;
use countersign::proto::*;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

pub const SERVICES: [&str; 5] =
    ["", "liveness", "countersign.v1.AgentService", "countersign.v1.ApproverService", "countersign.v1.OperatorService"];

pub async fn check(channel: Channel, service: &str) -> Result<ServingStatus, Status> {
    let request = HealthCheckRequest { service: service.to_owned() };
    Ok(HealthClient::new(channel).check(request).await?.into_inner().status())
}

pub fn plaintext(sidecar: &Sidecar) -> Channel {
    countersign::client::channel(sidecar.running().health_address()).unwrap()
}

#[tokio::test]
async fn health_is_told_on_both_listeners_for_each_service() {
    let sidecar = Sidecar::start().await;
    for channel in [sidecar.channel(), plaintext(&sidecar)] {
        for service in SERVICES {
            assert_eq!(check(channel.clone(), service).await.unwrap(), ServingStatus::Serving, "{service:?}");
        }
        for unknown in
            ["countersign.v1.Nothing", "Liveness", " ", "countersign.v1.AgentService/Evaluate", &"x".repeat(10_000)]
        {
            assert_eq!(check(channel.clone(), unknown).await.unwrap_err().code(), Code::NotFound, "{unknown:.40}");
        }
    }
}

#[tokio::test]
async fn health_is_watched_until_the_sidecar_stops() {
    let mut sidecar = Sidecar::start().await;
    let request = HealthCheckRequest { service: String::new() };
    let mut watched = HealthClient::new(plaintext(&sidecar)).watch(request).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let stopped = tokio::spawn(async move { sidecar.stop().await });
    assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert!(stopped.await.unwrap(), "a probe that stays connected holds nobody up");
}

#[tokio::test]
async fn plain_http_answers_on_its_own_paths_alone() {
    let sidecar = Sidecar::start().await;
    let address = sidecar.running().health_address();
    assert_eq!(http_get(address, "/healthz").await, (200, "ok\n".to_owned()));
    let (status, body) = http_get(address, "/readyz").await;
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    let revision = sidecar.operator().get_policy(GetPolicyRequest {}).await.unwrap().into_inner().revision;
    assert_eq!(status, 200);
    assert_eq!(
        body,
        serde_json::json!({ "ready": true, "policy_revision": revision, "policy_reload_failed": false, "missing_secrets": [] })
    );
    for path in ["/", "/healthz/", "/healthz/x", "/HEALTHZ", "/../healthz", "/policy", "/favicon.ico"] {
        let (_, body) = http_get(address, path).await;
        assert!(!body.contains("ok") && !body.contains("ready"), "{path}: {body}");
    }
}

#[tokio::test]
async fn the_plaintext_listener_serves_no_door_even_to_who_has_the_key() {
    let sidecar = Sidecar::start().await;
    let channel = plaintext(&sidecar);
    let unimplemented = |code: Code| assert_eq!(code, Code::Unimplemented);
    let bearer = |caller: &str| countersign::client::Bearer::new(&token(caller)).unwrap();
    let request = || RequestApprovalRequest { invocation: Some(email()), ..Default::default() };
    let mut agent = countersign::client::agent(channel.clone(), bearer("runtime"));
    unimplemented(agent.request_approval(request()).await.unwrap_err().code());
    let evaluate = EvaluateRequest { invocation: Some(email()), explain: false };
    unimplemented(agent.evaluate(evaluate).await.unwrap_err().code());
    unimplemented(AgentServiceClient::new(channel.clone()).request_approval(request()).await.unwrap_err().code());
    let list = ListApprovalsRequest { principal: "olga".to_owned(), ..Default::default() };
    let mut approver = countersign::client::approver(channel.clone(), bearer("chat"));
    unimplemented(approver.list_approvals(list.clone()).await.unwrap_err().code());
    unimplemented(ApproverServiceClient::new(channel.clone()).list_approvals(list).await.unwrap_err().code());
    let mut operator = countersign::client::operator(channel.clone(), bearer("ops"));
    unimplemented(operator.get_policy(GetPolicyRequest {}).await.unwrap_err().code());
    unimplemented(
        OperatorServiceClient::new(channel.clone()).get_policy(GetPolicyRequest {}).await.unwrap_err().code(),
    );
    let ask = tonic_reflection::pb::v1::ServerReflectionRequest::default();
    let reflected = tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient::new(channel)
        .server_reflection_info(tokio_stream::once(ask))
        .await;
    unimplemented(reflected.unwrap_err().code());
    assert!(sidecar.audit().await.is_empty());
}

#[tokio::test]
async fn a_probe_with_a_slip_gets_no_answer_that_looks_like_one() {
    let sidecar = Sidecar::start().await;
    let address = sidecar.running().health_address();
    for path in ["/", "/health", "/livez", "/metrics/", "/healthz/", "/readyz/", "/Healthz", "//healthz"] {
        assert_eq!(http_get(address, path).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn who_asks_about_health_without_a_credential_cannot_fill_the_memory() {
    let sidecar = Sidecar::start().await;
    for channel in [sidecar.channel(), plaintext(&sidecar)] {
        let error = check(channel, &"x".repeat(1 << 20)).await.unwrap_err();
        assert!(matches!(error.code(), Code::ResourceExhausted | Code::OutOfRange), "{error:?}");
    }
}
