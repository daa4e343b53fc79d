//! Doors apart: each is reached through its own listener and through no other.

use crate::certificates::Authority;
use crate::grpc::edge::Bytes;
use crate::grpc::harness::*;
use crate::grpc::health::{SERVICES, check};
use crate::tls::{evaluate, settings, tls};
use countersign::address::Address;
use countersign::client;
use countersign::clock::ManualClock;
use countersign::config::{ClientCertificates, Config, Door, OwnListener};
use prost::Message as _;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

const DOORS: [(Door, &str, &str); 3] = [
    (Door::Agent, "countersign.v1.AgentService", "runtime"),
    (Door::Approver, "countersign.v1.ApproverService", "chat"),
    (Door::Operator, "countersign.v1.OperatorService", "ops"),
];

fn on_a_free_port() -> Option<OwnListener> {
    let address = Address::Tcp(([127, 0, 0, 1], 0).into());
    Some(OwnListener { address, socket_mode: 0o600, tls: None })
}

async fn apart(change: impl FnOnce(&mut Config)) -> Sidecar {
    let mut sidecar = Sidecar::stopped(Folder::new(), Arc::new(ManualClock::at(START)));
    sidecar.restart_with(change).await.unwrap();
    sidecar
}

/// Every method of ours, by its service.
fn methods() -> Vec<(String, String)> {
    let set = prost_types::FileDescriptorSet::decode(countersign::proto::DESCRIPTORS).unwrap();
    let files = set.file.iter().filter(|file| file.package() == "countersign.v1");
    let services = files.flat_map(|file| &file.service);
    let methods = services.flat_map(|service| {
        let service_name = format!("countersign.v1.{}", service.name());
        service.method.iter().map(move |method| (service_name.clone(), method.name().to_owned()))
    });
    methods.collect()
}

/// Calls a method with an empty message; how it is refused, or none if it is not.
async fn called(channel: &Channel, service: &str, method: &str, caller: &str) -> Option<Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let mut request = Request::new(Bytes::default());
    request.metadata_mut().insert("authorization", format!("Bearer {}", token(caller)).parse().unwrap());
    let path = format!("/{service}/{method}").parse().unwrap();
    let codec = tonic_prost::ProstCodec::<Bytes, Bytes>::default();
    let answered = tokio::time::timeout(Duration::from_secs(30), grpc.unary(request, path, codec)).await;
    answered.unwrap_or_else(|_| panic!("{service}/{method} never answers")).err()
}

#[tokio::test]
async fn every_method_is_reached_through_the_listener_of_its_door_and_is_unknown_on_others() {
    let sidecar = apart(|config| {
        config.doors.agent = on_a_free_port();
        config.doors.approver = on_a_free_port();
    })
    .await;
    // The operator's is the one that is left on the common listener.
    let addresses = DOORS.map(|(door, ..)| sidecar.running().address_of(door));
    assert!(addresses[0] != addresses[1] && addresses[1] != addresses[2] && addresses[0] != addresses[2]);
    let methods = methods();
    assert!(methods.len() > 15, "{methods:?}");
    for (door, own_service, _) in DOORS {
        let channel = client::channel(sidecar.running().address_of(door)).unwrap();
        for (service, method) in &methods {
            let (_, _, caller) = DOORS.iter().find(|(_, known, _)| known == service).unwrap();
            let refused = called(&channel, service, method, caller).await;
            let reason = refused.as_ref().and_then(|status| status.get_details_error_info()).map(|info| info.reason);
            let unknown = reason.as_deref() == Some("METHOD_UNKNOWN");
            assert_eq!(unknown, service != own_service, "{service}/{method} through that of {door:?}: {refused:?}");
            if unknown {
                let absent = called(&channel, "countersign.v1.NoService", method, caller).await.unwrap();
                let refused = refused.unwrap();
                assert_eq!((refused.code(), refused.message()), (Code::Unimplemented, absent.message()));
            }
        }
        for service in SERVICES {
            check(channel.clone(), service).await.unwrap();
        }
        let ask = tonic_reflection::pb::v1::ServerReflectionRequest::default();
        let mut reflection = tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient::new(channel);
        reflection.server_reflection_info(tokio_stream::once(ask)).await.unwrap();
    }
}

#[tokio::test]
async fn the_common_listener_is_not_opened_where_no_door_is_on_it() {
    let sidecar = apart(|config| {
        // An address of which no machine has any: opening it would fail.
        config.listen = Address::Tcp(([192, 0, 2, 1], 7400).into());
        config.doors.agent = on_a_free_port();
        config.doors.approver = on_a_free_port();
        config.doors.operator = on_a_free_port();
    })
    .await;
    let listeners = sidecar.running().listeners();
    assert_eq!(
        listeners.iter().map(|listener| listener.doors.clone()).collect::<Vec<_>>(),
        Door::ALL.map(|door| vec![door])
    );
    evaluate(&client::channel(sidecar.running().address()).unwrap(), "runtime").await.unwrap();
}

#[tokio::test]
async fn two_doors_may_share_a_listener_that_is_not_the_common_one() {
    let mut sidecar = Sidecar::stopped(Folder::new(), Arc::new(ManualClock::at(START)));
    let shared = Address::Unix(sidecar.folder().join("people.sock"));
    let own = Some(OwnListener { address: shared.clone(), socket_mode: 0o660, tls: None });
    sidecar
        .restart_with(|config| {
            config.doors.approver.clone_from(&own);
            config.doors.operator.clone_from(&own);
        })
        .await
        .unwrap();
    let running = sidecar.running();
    assert_eq!(running.listeners().len(), 2);
    assert_eq!(
        (running.address_of(Door::Approver), running.address_of(Door::Operator)),
        (shared.clone(), shared.clone())
    );
    let people = client::channel(shared.clone()).unwrap();
    for (service, method, caller, reached) in [
        (DOORS[0].1, "GetWait", "runtime", false),
        (DOORS[1].1, "GetApproval", "chat", true),
        (DOORS[2].1, "GetPolicy", "ops", true),
    ] {
        let refused = called(&people, service, method, caller).await;
        assert_eq!(refused.is_none_or(|status| status.code() != Code::Unimplemented), reached, "{method}");
    }
    assert!(sidecar.stop().await);
    assert!(!sidecar.folder().join("people.sock").exists());
}

#[tokio::test]
async fn a_door_has_tls_of_its_own() {
    let mut sidecar = Sidecar::stopped(Folder::new(), Arc::new(ManualClock::at(START)));
    let servers = Authority::new("servers");
    let own = servers.server(&["localhost", "127.0.0.1"]);
    std::fs::write(sidecar.folder().join("tls.pem"), own.certificate).unwrap();
    std::fs::write(sidecar.folder().join("tls.key"), own.key).unwrap();
    let settings = settings(sidecar.folder(), ClientCertificates::None);
    sidecar
        .restart_with(|config| {
            config.doors.approver = on_a_free_port().map(|own| OwnListener { tls: Some(settings), ..own });
        })
        .await
        .unwrap();
    let running = sidecar.running();
    let sealed = |door: Door| tls(&servers, None).channel_to(&running.address_of(door).to_string()).unwrap();
    check(sealed(Door::Approver), "").await.unwrap();
    assert!(check(sealed(Door::Agent), "").await.is_err());
    assert!(check(client::channel(running.address_of(Door::Approver)).unwrap(), "").await.is_err());
    evaluate(&client::channel(running.address_of(Door::Agent)).unwrap(), "runtime").await.unwrap();
    let unknown = called(&sealed(Door::Approver), DOORS[0].1, "Evaluate", "runtime").await.unwrap();
    assert_eq!(unknown.code(), Code::Unimplemented);
}

#[tokio::test]
async fn one_that_cannot_be_opened_keeps_all_from_starting() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut sidecar = Sidecar::stopped(Folder::new(), Arc::new(ManualClock::at(START)));
    let socket = sidecar.folder().join("x.sock");
    let refused = sidecar
        .restart_with(|config| {
            config.listen = Address::Unix(socket.clone());
            config.doors.operator = Some(OwnListener { address: address.into(), socket_mode: 0o600, tls: None });
        })
        .await
        .unwrap_err();
    assert!(refused.to_string().starts_with(&format!("cannot listen on {address}")), "{refused}");
    assert!(!socket.exists(), "what was opened is closed");
}
