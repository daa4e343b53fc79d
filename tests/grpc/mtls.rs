//! Callers that are known by their certificates, over real TLS.

use crate::certificates::Authority;
use crate::grpc::harness::*;
use crate::grpc::watching::request_of;
use crate::tls::Sealed;
use countersign::auth::{
    AgentBounds, Caller, CallerLimits, Callers, CertificateName, KnownBy, NewCaller, Powers, SpiffePattern,
};
use countersign::client::{self, Bearer};
use countersign::config::ClientCertificates;
use countersign::domain::pattern::Pattern;
use countersign::domain::text::Identifier;
use countersign::proto::agent_service_client::AgentServiceClient;
use countersign::proto::operator_service_client::OperatorServiceClient;
use countersign::proto::*;
use std::sync::Arc;
use tonic::transport::Channel;
use tonic::{Code, Status};

fn by_certificate(name: &str, powers: Powers, id: &str) -> NewCaller {
    let known_by = KnownBy::Certificate(CertificateName::Spiffe(SpiffePattern::parse(id).unwrap()));
    let caller = Caller { name: Identifier::parse(name).unwrap(), powers };
    NewCaller { known_by, caller, expires: None, limits: CallerLimits::default() }
}

/// Agents of any name that act for olga, and an operator.
fn certified() -> Vec<NewCaller> {
    let patterns = |text: &str| vec![Pattern::new(text)];
    let agents = Powers::Agent(Arc::new(AgentBounds { agents: patterns("*"), principals: patterns("olga") }));
    let runtime = Powers::Agent(Arc::new(AgentBounds { agents: patterns("*"), principals: patterns("*") }));
    vec![
        by_certificate("mesh", agents, "spiffe://acme.example/agents/*"),
        by_certificate("ops", Powers::Operator, "spiffe://acme.example/ops"),
        crate::grpc::reload_callers::caller("runtime", runtime, None),
    ]
}

async fn evaluate(channel: &Channel, principal: &str) -> Result<EvaluateResponse, Status> {
    let invocation = Some(Invocation { principal: principal.to_owned(), ..email() });
    let answer =
        AgentServiceClient::new(channel.clone()).evaluate(EvaluateRequest { invocation, explain: false }).await;
    answer.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn a_certificate_is_a_credential_within_its_bounds_until_its_authority_is_gone() {
    let sealed = Sealed::start(ClientCertificates::Optional, |config| {
        config.callers = Callers::expiring(certified());
    })
    .await;
    let of = |id: &str| sealed.channel(&sealed.servers, Some(&sealed.clients.client(id)));
    let agent = of("spiffe://acme.example/agents/assistant");
    evaluate(&agent, "olga").await.unwrap();
    refused(evaluate(&agent, "dana").await, Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS");
    let policy = OperatorServiceClient::new(agent.clone()).get_policy(GetPolicyRequest {}).await;
    refused(policy, Code::PermissionDenied, "ROLE_NOT_ALLOWED");
    let ops = of("spiffe://acme.example/ops");
    OperatorServiceClient::new(ops.clone()).get_policy(GetPolicyRequest {}).await.unwrap();
    refused(evaluate(&ops, "olga").await, Code::PermissionDenied, "ROLE_NOT_ALLOWED");
    for stranger in ["spiffe://acme.example/agents/a/b", "spiffe://other.example/agents/a", "spiffe://acme.example/op"]
    {
        refused(evaluate(&of(stranger), "olga").await, Code::Unauthenticated, "CREDENTIALS_INVALID");
    }
    let nobody = sealed.channel(&sealed.servers, None);
    refused(evaluate(&nobody, "olga").await, Code::Unauthenticated, "CREDENTIALS_MISSING");

    // A header decides alone.
    let with = |name: &str| client::agent(agent.clone(), Bearer::new(&token(name)).unwrap());
    let request =
        || EvaluateRequest { invocation: Some(Invocation { principal: "dana".to_owned(), ..email() }), explain: false };
    with("runtime").evaluate(request()).await.unwrap();
    refused(with("stranger").evaluate(request()).await, Code::Unauthenticated, "CREDENTIALS_INVALID");

    // A stream and a connection outlive nothing that vouched for them.
    let mut runtime = AgentServiceClient::new(agent.clone());
    let asked = RequestApprovalRequest { invocation: Some(email()), ..Default::default() };
    let asked = runtime.request_approval(asked).await.unwrap().into_inner().approval.unwrap();
    let mut watch = runtime.watch_approval(request_of(&asked)).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();
    sealed.write("clients.pem", &Authority::new("others").pem());
    refused(watch.message().await.map(drop), Code::Unauthenticated, "CREDENTIALS_ENDED");
    refused(evaluate(&agent, "olga").await, Code::Unauthenticated, "CERTIFICATE_NOT_TRUSTED");
}
