//! Callers change under a sidecar that serves: who was taken out is refused at the next call, who was put in is let in.

use crate::grpc::harness::*;
use countersign::auth::token::TokenHash;
use countersign::auth::{AgentBounds, Caller, Callers, NewCaller, Powers};
use countersign::domain::pattern::Pattern;
use countersign::domain::text::Identifier;
use countersign::domain::time::Timestamp;
use countersign::proto::*;
use std::sync::Arc;
use std::time::Duration;
use tonic::Code;

pub fn caller(name: &str, powers: Powers, expires: Option<Timestamp>) -> NewCaller {
    let caller = Caller { name: Identifier::parse(name).unwrap(), powers };
    NewCaller { expires, ..NewCaller::bearer(TokenHash::of(token(name).as_bytes()), caller) }
}

pub fn acting_for(principal: &str) -> Powers {
    let patterns = |text: &str| vec![Pattern::new(text)];
    Powers::Agent(Arc::new(AgentBounds { agents: patterns("*"), principals: patterns(principal) }))
}

pub async fn take(sidecar: &Sidecar, callers: Vec<NewCaller>) {
    let mut config = config_in(sidecar.folder());
    config.callers = Callers::expiring(callers);
    sidecar.running().reload().configuration(&config).await;
}

async fn evaluate_as(sidecar: &Sidecar, caller: &str) -> Result<EvaluateResponse, tonic::Status> {
    let request = EvaluateRequest { invocation: Some(email()), explain: false };
    sidecar.agent_as(caller).evaluate(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn who_is_taken_out_is_refused_at_once_and_who_is_put_in_is_let_in() {
    let sidecar = Sidecar::start().await;
    evaluate_as(&sidecar, "runtime").await.unwrap();
    refused(evaluate_as(&sidecar, "newcomer").await, Code::Unauthenticated, "CREDENTIALS_INVALID");
    take(&sidecar, vec![caller("newcomer", acting_for("*"), None), caller("ops", Powers::Operator, None)]).await;
    refused(evaluate_as(&sidecar, "runtime").await, Code::Unauthenticated, "CREDENTIALS_INVALID");
    evaluate_as(&sidecar, "newcomer").await.unwrap();
    let list = ListApprovalsRequest { principal: "olga".to_owned(), ..Default::default() };
    let listed = sidecar.approver().list_approvals(list).await;
    refused(listed, Code::Unauthenticated, "CREDENTIALS_INVALID");
    sidecar.operator().get_policy(GetPolicyRequest {}).await.unwrap();
}

#[tokio::test]
async fn other_bounds_and_another_role_hold_from_the_next_call_on() {
    let sidecar = Sidecar::start().await;
    let (approval, consume_token) = sidecar.approved(email()).await;
    take(&sidecar, vec![caller("runtime", acting_for("somebody-else"), None), caller("ops", Powers::Operator, None)])
        .await;
    refused(sidecar.consume(&consume_token, email()).await, Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS");
    take(&sidecar, vec![caller("runtime", Powers::Person(Identifier::parse("olga").unwrap()), None)]).await;
    refused(sidecar.consume(&consume_token, email()).await, Code::PermissionDenied, "ROLE_NOT_ALLOWED");
    let revoke = RevokeApprovalRequest { approval_id: approval.id.clone(), ..Default::default() };
    let revoked = sidecar.approver_as("runtime").revoke_approval(revoke).await.unwrap().into_inner();
    assert_eq!(revoked.approval.unwrap().state(), ApprovalState::Revoked);
}

#[tokio::test]
async fn a_credential_that_has_expired_opens_nothing_and_says_so_to_its_holder_alone() {
    let sidecar = Sidecar::start().await;
    let expires = START.plus(Duration::from_secs(3_600));
    take(&sidecar, vec![caller("runtime", acting_for("*"), Some(expires))]).await;
    sidecar.advance(Duration::from_secs(3_600) - Duration::from_micros(1));
    evaluate_as(&sidecar, "runtime").await.unwrap();
    sidecar.advance(Duration::from_micros(1));
    refused(evaluate_as(&sidecar, "runtime").await, Code::Unauthenticated, "CREDENTIALS_EXPIRED");
    let bearer = countersign::client::Bearer::new(&token("runtime")).unwrap();
    let operator = countersign::client::operator(sidecar.channel(), bearer).get_policy(GetPolicyRequest {}).await;
    refused(operator, Code::Unauthenticated, "CREDENTIALS_EXPIRED");
    refused(evaluate_as(&sidecar, "runtime-x").await, Code::Unauthenticated, "CREDENTIALS_INVALID");
    take(&sidecar, vec![caller("runtime", acting_for("*"), None)]).await;
    evaluate_as(&sidecar, "runtime").await.unwrap();
}

#[tokio::test]
async fn an_approval_outlives_the_credential_that_asked_for_it() {
    let sidecar = Sidecar::start().await;
    let (_, consume_token) = sidecar.approved(email()).await;
    take(&sidecar, vec![]).await;
    refused(sidecar.consume(&consume_token, email()).await, Code::Unauthenticated, "CREDENTIALS_INVALID");
    sidecar.running().reload().configuration(&config_in(sidecar.folder())).await;
    sidecar.consume(&consume_token, email()).await.unwrap();
}
