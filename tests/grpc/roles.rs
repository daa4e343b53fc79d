//! Who opens which door: every RPC of every service, with every kind of caller, however the path is spelt.

use crate::grpc::harness::*;
use crate::grpc::wire::RawCall;
use countersign::proto::{DESCRIPTORS, RequestApprovalRequest};
use prost::Message as _;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

/// Every RPC with the role that it is for. A new one is to be added here.
const RPCS: [(&str, &str); 25] = [
    ("countersign.v1.AgentService/BatchEvaluate", "agent"),
    ("countersign.v1.AgentService/CancelApproval", "agent"),
    ("countersign.v1.AgentService/CloseWait", "agent"),
    ("countersign.v1.AgentService/Consume", "agent"),
    ("countersign.v1.AgentService/Evaluate", "agent"),
    ("countersign.v1.AgentService/GetApproval", "agent"),
    ("countersign.v1.AgentService/GetWait", "agent"),
    ("countersign.v1.AgentService/OpenWait", "agent"),
    ("countersign.v1.AgentService/ReportOutcome", "agent"),
    ("countersign.v1.AgentService/RequestApproval", "agent"),
    ("countersign.v1.AgentService/ResumeWait", "agent"),
    ("countersign.v1.AgentService/WatchApproval", "agent"),
    ("countersign.v1.ApproverService/Decide", "approver"),
    ("countersign.v1.ApproverService/GetApproval", "approver"),
    ("countersign.v1.ApproverService/GetApprovalArguments", "approver"),
    ("countersign.v1.ApproverService/ListApprovals", "approver"),
    ("countersign.v1.ApproverService/RevokeApproval", "approver"),
    ("countersign.v1.ApproverService/WatchApprovals", "approver"),
    ("countersign.v1.OperatorService/ExportAudit", "operator"),
    ("countersign.v1.OperatorService/GetAuditCheckpoint", "operator"),
    ("countersign.v1.OperatorService/GetPolicy", "operator"),
    ("countersign.v1.OperatorService/ListAuditRecords", "operator"),
    ("countersign.v1.OperatorService/ListExecutions", "operator"),
    ("countersign.v1.OperatorService/ProveAuditConsistency", "operator"),
    ("countersign.v1.OperatorService/ProveAuditRecord", "operator"),
];

/// One call with an empty message, to exactly this path, with exactly these `authorization` headers.
async fn call(sidecar: &Sidecar, path: &str, credentials: &[&str]) -> Result<(), Status> {
    send(sidecar, path, credentials, ()).await
}

async fn send<T: prost::Message + 'static>(
    sidecar: &Sidecar,
    path: &str,
    credentials: &[&str],
    message: T,
) -> Result<(), Status> {
    send_on(sidecar.channel(), path, credentials, message).await
}

async fn send_on<T: prost::Message + 'static>(
    channel: tonic::transport::Channel,
    path: &str,
    credentials: &[&str],
    message: T,
) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let mut request = Request::new(message);
    for credential in credentials {
        let value: MetadataValue<Ascii> = credential.parse().unwrap();
        request.metadata_mut().append("authorization", value);
    }
    let path: PathAndQuery = path.parse().unwrap();
    // What answers once is a stream of one.
    let mut answers = client.server_streaming(request, path, ProstCodec::<T, ()>::default()).await?.into_inner();
    answers.message().await.map(|_| ())
}

fn bearer(caller: &str) -> String {
    format!("Bearer {}", token(caller))
}

#[test]
fn every_rpc_of_the_descriptors_has_its_role_here() {
    let set = prost_types::FileDescriptorSet::decode(DESCRIPTORS).unwrap();
    let mut found: Vec<String> = Vec::new();
    for file in set.file.iter().filter(|file| file.package().starts_with("countersign")) {
        for service in &file.service {
            let methods = service.method.iter();
            found.extend(methods.map(|method| format!("{}.{}/{}", file.package(), service.name(), method.name())));
        }
    }
    found.sort();
    assert_eq!(found, RPCS.map(|(rpc, _)| rpc));
}

#[tokio::test]
async fn no_rpc_is_served_without_a_credential_of_its_role() {
    let sidecar = Sidecar::start().await;
    let (runtime, dana, ops) = (bearer("runtime"), bearer("dana"), bearer("ops"));
    let missing: Vec<Vec<String>> = [
        vec![],
        vec![""],
        vec!["Bearer"],
        vec!["Bearer "],
        vec!["Basic cnVudGltZTp4"],
        vec![token("runtime").as_str()],
        vec![&runtime.replace("Bearer ", "Bearer  ")],
        vec![&format!("{runtime} {}", token("dana"))],
        vec![&format!("{runtime}, {dana}")],
        vec![&format!("{runtime},{dana}")],
        // Two credentials are ambiguous, also where both would do, or are one.
        vec![&runtime, &dana],
        vec![&dana, &runtime],
        vec![&runtime, &runtime],
        vec![&dana, &dana],
        vec![&ops, &ops],
        vec![&ops, ""],
    ]
    .into_iter()
    .map(|headers| headers.into_iter().map(str::to_owned).collect())
    .collect();
    for (rpc, _) in RPCS {
        for headers in &missing {
            let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
            let result = call(&sidecar, &format!("/{rpc}"), &headers).await;
            refused(result, Code::Unauthenticated, "CREDENTIALS_MISSING");
        }
        for unknown in [
            "Bearer x".to_owned(),
            format!("{runtime}0"),
            runtime.to_uppercase(),
            bearer("stranger"),
            format!("{runtime},{}", token("dana")),
        ] {
            let result = call(&sidecar, &format!("/{rpc}"), &[&unknown]).await;
            refused(result, Code::Unauthenticated, "CREDENTIALS_INVALID");
        }
    }
    assert!(sidecar.audit().await.is_empty());
}

#[tokio::test]
async fn each_role_opens_its_own_door_and_no_other() {
    let sidecar = Sidecar::start().await;
    let callers = [
        ("runtime", "agent"),
        ("tenant-a", "agent"),
        ("nobody", "agent"),
        ("dana", "approver"),
        ("chat", "approver"),
        ("team", "approver"),
        ("ops", "operator"),
    ];
    for (rpc, needs) in RPCS {
        for (caller, has) in callers {
            for credential in [bearer(caller), format!("bEARER {}", token(caller))] {
                let result = call(&sidecar, &format!("/{rpc}"), &[&credential]).await;
                if has == needs {
                    // An empty message is an answer, or lacks something: it was read in any case.
                    let served = match &result {
                        Ok(()) => true,
                        // A checkpoint is signed now and then, and there may be none yet.
                        Err(status) => {
                            status.code() == Code::InvalidArgument || reason(status) == "AUDIT_CHECKPOINT_NOT_FOUND"
                        }
                    };
                    assert!(served, "{rpc} as {caller}: {result:?}");
                } else {
                    let status = refused(result, Code::PermissionDenied, "ROLE_NOT_ALLOWED");
                    assert_eq!((told(&status, "role").as_str(), told(&status, "needed_role").as_str()), (has, needs));
                    assert!(status.message().contains(has) && status.message().contains(needs));
                }
            }
        }
    }
    assert!(sidecar.audit().await.is_empty());
}

#[tokio::test]
async fn an_agent_cannot_decide_its_own_question() {
    let sidecar = Sidecar::start().await;
    let (approval, _) = sidecar.ask(email()).await;
    let request = countersign::proto::DecideRequest {
        approval_id: approval.id.clone(),
        principal: "olga".to_owned(),
        verdict: countersign::proto::Verdict::Approve.into(),
        ..Default::default()
    };
    for caller in ["runtime", "runtime-2", "tenant-a", "nobody"] {
        let result = sidecar.approver_as(caller).decide(request.clone()).await;
        refused(result, Code::PermissionDenied, "ROLE_NOT_ALLOWED");
    }
    let result = sidecar.approver_as("ops").decide(request).await;
    refused(result, Code::PermissionDenied, "ROLE_NOT_ALLOWED");
    assert_eq!(sidecar.read(&approval).await, approval);
}

/// Spellings of a path that a router or a check in front of it might read differently.
fn oddities(rpc: &str) -> Vec<String> {
    let (service, method) = rpc.split_once('/').unwrap();
    vec![
        format!("//{rpc}"),
        format!("/{service}//{method}"),
        format!("/{service}/{method}/"),
        format!("/{service}/{method}//"),
        format!("/{}", rpc.to_uppercase()),
        format!("/{}", rpc.to_lowercase()),
        format!("/{service}/{}", method.to_lowercase()),
        format!("/./{rpc}"),
        format!("/x/../{rpc}"),
        format!("/{service}/x/../{method}"),
        format!("/{service}/./{method}"),
        format!("/{service}/%{:02x}{}", method.as_bytes()[0], &method[1..]),
        format!("/{service}%2f{method}"),
        format!("/{service}%2F{method}"),
        format!("/{service};x/{method}"),
        format!("/{service}/{method};x"),
        format!("/{service}/{method}%00"),
        format!("/{service}/{method}%20"),
        format!("/{service}/"),
        format!("/{service}"),
        format!("/{method}"),
        format!("/grpc.health.v1.Health/../{rpc}"),
        format!("/grpc.health.v1.Health/{method}"),
        format!("/countersign.v2.{}", rpc.split_at("countersign.v1.".len()).1),
        "/".to_owned(),
    ]
}

#[tokio::test]
async fn an_odd_spelling_of_a_path_is_never_served_whoever_calls() {
    let sidecar = Sidecar::start().await;
    for (rpc, role) in RPCS {
        let owner = bearer(match role {
            "agent" => "runtime",
            "approver" => "dana",
            _ => "ops",
        });
        // A connection on which a thousand calls were answered before they were read is ended by its protocol.
        let channel = sidecar.another_channel();
        for path in oddities(rpc) {
            let anonymous = send_on(channel.clone(), &path, &[], ()).await.expect_err(&path);
            assert!(matches!(anonymous.code(), Code::Unauthenticated | Code::Unimplemented), "{path}: {anonymous:?}");
            let known = send_on(channel.clone(), &path, &[&owner], ()).await.expect_err(&path);
            assert_eq!(known.code(), Code::Unimplemented, "{path}: {known:?}");
        }
        // What follows a question mark is no part of the path: the check holds.
        let queried = call(&sidecar, &format!("/{rpc}?x=/grpc.health.v1.Health/Check"), &[]).await;
        refused(queried, Code::Unauthenticated, "CREDENTIALS_MISSING");
    }
}

#[tokio::test]
async fn an_odd_spelling_of_a_path_records_nothing() {
    let sidecar = Sidecar::start().await;
    let request = RequestApprovalRequest { invocation: Some(email()), ..Default::default() };
    let rpc = "countersign.v1.AgentService/RequestApproval";
    for path in oddities(rpc).into_iter().chain([format!("/{rpc}")]) {
        send(&sidecar, &path, &[], request.clone()).await.expect_err(&path);
        send(&sidecar, &path, &[&bearer("dana")], request.clone()).await.expect_err(&path);
    }
    // No client library sends these.
    for path in
        [rpc, "", "*", "countersign.v1.AgentService", "http://sidecar/countersign.v1.AgentService/RequestApproval"]
    {
        for credential in [None, Some(token("dana"))] {
            let mut call = RawCall::open(sidecar.running().address(), path, credential.as_deref()).await;
            call.send(&request.encode_to_vec()).await;
            assert!(!call.gets_an_answer().await, "{path:?}");
        }
    }
    assert!(sidecar.audit().await.is_empty());
    // The same by hand with everything right: what is checked above can be seen.
    let mut call = RawCall::open(sidecar.running().address(), &format!("/{rpc}"), Some(&token("runtime"))).await;
    call.send(&request.encode_to_vec()).await;
    assert!(call.gets_an_answer().await);
    assert_eq!(sidecar.audit().await.len(), 1);
    sidecar.still_tells_the_story().await;
}

#[tokio::test]
async fn health_needs_no_credential_and_minds_none() {
    let sidecar = Sidecar::start().await;
    let path = "/grpc.health.v1.Health/Check";
    for headers in [vec![], vec!["nonsense"], vec!["Bearer x"], vec!["Bearer x", "Bearer y"]] {
        call(&sidecar, path, &headers).await.unwrap();
    }
    call(&sidecar, path, &[&bearer("dana")]).await.unwrap();
}

async fn reflected(channel: tonic::transport::Channel) -> Result<Vec<String>, Status> {
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers =
        ServerReflectionClient::new(channel).server_reflection_info(tokio_stream::once(ask)).await?.into_inner();
    let answer: ServerReflectionResponse = answers.message().await?.unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else { panic!("{answer:?}") };
    Ok(list.service.into_iter().map(|service| service.name).collect())
}

#[tokio::test]
async fn reflection_is_served_only_where_it_is_switched_on() {
    let sidecar = Sidecar::start().await;
    let services = reflected(sidecar.channel()).await.unwrap();
    for service in ["AgentService", "ApproverService", "OperatorService"] {
        assert!(services.contains(&format!("countersign.v1.{service}")), "{services:?}");
    }
    assert!(services.contains(&"grpc.health.v1.Health".to_owned()), "{services:?}");

    let folder = Folder::new();
    std::fs::write(folder.path().join("policy.yaml"), POLICY).unwrap();
    let mut config = config_in(folder.path());
    config.reflection = false;
    let clock = std::sync::Arc::new(countersign::clock::ManualClock::at(START));
    let running = serve(&config, clock).await.unwrap();
    let channel = countersign::client::channel(running.address()).unwrap();
    assert_eq!(reflected(channel.clone()).await.unwrap_err().code(), Code::Unimplemented);
    let mut client = tonic::client::Grpc::new(channel);
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo").parse().unwrap();
        client.ready().await.unwrap();
        let result = client.unary(Request::new(()), path, ProstCodec::<(), ()>::default()).await;
        assert_eq!(result.unwrap_err().code(), Code::Unimplemented, "{version}");
    }
    assert!(running.stop().await);
}
