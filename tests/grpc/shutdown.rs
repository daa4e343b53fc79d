//! Starting loudly or not at all, and stopping in order.

use crate::grpc::harness::*;
use crate::grpc::moves::*;
use crate::grpc::wire::{RawCall, http_get};
use countersign::app::{Running, StartError};
use countersign::clock::ManualClock;
use countersign::config::Config;
use countersign::proto::*;
use prost::Message as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const ASK: &str = "/countersign.v1.AgentService/RequestApproval";

pub async fn start(config: &Config) -> Result<Running, StartError> {
    serve(config, Arc::new(ManualClock::at(START))).await
}

/// A folder with a policy in it, and the configuration over it.
pub fn prepared(policy: &str) -> (Folder, Config) {
    let folder = Folder::new();
    std::fs::write(folder.path().join("policy.yaml"), policy).unwrap();
    let config = config_in(folder.path());
    (folder, config)
}

pub async fn refused_start(config: &Config) -> String {
    let error = start(config).await.expect_err("it must not start");
    error.to_string()
}

/// What an in-flight call sends once it is let to.
fn question() -> Vec<u8> {
    RequestApprovalRequest { invocation: Some(email()), ..Default::default() }.encode_to_vec()
}

#[tokio::test]
async fn a_stop_finishes_what_is_in_flight_and_takes_nothing_new() {
    let mut sidecar = Sidecar::start().await;
    let (address, health) = (sidecar.running().address().tcp().unwrap(), sidecar.running().health_address());
    let mut call = RawCall::open(address, ASK, Some(&token("runtime"))).await;
    call.has_arrived().await;
    let mut idle = RawCall::open(address, ASK, Some(&token("runtime"))).await;
    idle.has_arrived().await;
    idle.send(&question()).await;
    assert!(idle.gets_an_answer().await);
    let stopped = tokio::spawn(async move { (sidecar.stop().await, sidecar) });
    call.goes_away().await;
    assert_eq!(http_get(health, "/readyz").await.0, 503, "not ready while it stops");
    assert_eq!(http_get(health, "/healthz").await.0, 200, "and yet alive");
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nothing new");
    call.send(
        &RequestApprovalRequest { invocation: Some(in_conversation("in flight")), ..Default::default() }
            .encode_to_vec(),
    )
    .await;
    assert!(call.gets_an_answer().await);
    let (finished, mut sidecar) = stopped.await.unwrap();
    assert!(finished);
    assert!(tokio::net::TcpStream::connect(health).await.is_err());
    // What was answered was kept.
    sidecar.restart_stopped().await;
    assert_eq!(sidecar.listed("olga", &[ApprovalState::Pending]).await.len(), 2);
}

#[tokio::test]
async fn what_does_not_finish_within_the_grace_period_is_cut_off_and_said_so() {
    let (_folder, mut config) = prepared(POLICY);
    config.grace_period = Duration::from_millis(50);
    let running = start(&config).await.unwrap();
    let mut call = RawCall::open(running.address(), ASK, Some(&token("runtime"))).await;
    call.has_arrived().await;
    assert!(!running.stop().await);
    // And it left nothing behind that keeps the next one from starting.
    assert!(start(&config).await.unwrap().stop().await);
}

#[tokio::test]
async fn a_change_goes_to_its_end_though_the_client_is_gone() {
    let sidecar = Sidecar::start().await;
    let mut call = RawCall::open(sidecar.running().address(), ASK, Some(&token("runtime"))).await;
    call.send(&question()).await;
    call.has_arrived().await;
    drop(call);
    // Asked again it is the same question, recorded once.
    let answer = sidecar.request(email()).await.unwrap();
    assert_eq!(sidecar.audit().await.len(), 1);
    assert_eq!(sidecar.listed("olga", &[]).await, [answer.approval.unwrap().id]);
}

#[tokio::test]
async fn a_sidecar_that_does_not_start_leaves_nothing_behind() {
    let (folder, config) = prepared(POLICY);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for listener in ["doors", "health"] {
        let mut config = config.clone();
        let address = taken.local_addr().unwrap();
        if listener == "doors" {
            config.listen = address.into();
        } else {
            config.health_listen = address;
        }
        let told = refused_start(&config).await;
        assert!(told.contains(&address.to_string()), "{told}");
    }
    // The lock was given back each time.
    assert!(start(&config).await.unwrap().stop().await);
    drop(folder);
}

#[tokio::test]
async fn a_broken_policy_refuses_the_start_and_names_every_problem() {
    let (folder, config) = prepared(POLICY);
    std::fs::remove_file(folder.path().join("policy.yaml")).unwrap();
    let told = refused_start(&config).await;
    assert!(told.contains("policy.yaml") && told.contains("does not exist"), "{told}");
    let broken = "version: countersign.policy/v1\nconnectors:\n  gmail:\n    celling: admin\n    actions:\n      A: { scope: readd }\n      B: { scope: write, curated: maybe }\n    rules:\n      - { name: r, effect: confirm, approvers: [{ any_of: [\"group:nobody\"] }] }\n";
    std::fs::write(folder.path().join("policy.yaml"), broken).unwrap();
    let told = refused_start(&config).await;
    for (line, word) in [(4, "celling"), (6, "readd"), (7, "maybe"), (9, "nobody")] {
        let named = told.lines().any(|one| one.contains(&format!("policy.yaml:{line}")) && one.contains(word));
        assert!(named, "line {line}, {word}: {told}");
    }
    for empty in ["", "---\n", "[]", "version: countersign.policy/v2\n", "\0", "a: *b"] {
        std::fs::write(folder.path().join("policy.yaml"), empty).unwrap();
        refused_start(&config).await;
    }
    assert!(!Path::new(&folder.path().join("countersign.db")).exists(), "a database is made only under a policy");
    let mut nowhere = config.clone();
    nowhere.policy = folder.path().to_owned();
    std::fs::remove_file(folder.path().join("policy.yaml")).unwrap();
    let told = refused_start(&nowhere).await;
    assert!(told.contains("has no `*.yaml`"), "{told}");
}

#[tokio::test]
async fn whoever_only_watches_does_not_hold_up_a_stop() {
    use tonic_health::pb::health_check_response::ServingStatus;
    let (_folder, mut config) = prepared(POLICY);
    config.grace_period = Duration::from_secs(5);
    let running = start(&config).await.unwrap();
    // Clients that check health watch it on the very connection of their calls, for as long as they live.
    let mut watching = Vec::new();
    for service in ["", "liveness", "countersign.v1.AgentService"] {
        let channel = countersign::client::channel(running.address()).unwrap();
        let request = tonic_health::pb::HealthCheckRequest { service: service.to_owned() };
        let mut client = tonic_health::pb::health_client::HealthClient::new(channel);
        let mut watched = client.watch(request).await.unwrap().into_inner();
        assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
        watching.push((service, watched, client));
    }
    let stopped = tokio::spawn(running.stop());
    for (service, watched, _) in &mut watching {
        if *service != "liveness" {
            assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::NotServing, "{service}");
        }
        assert!(!matches!(watched.message().await, Ok(Some(_))), "{service}: the watch ends");
    }
    assert!(stopped.await.unwrap(), "nothing had to be cut off");
}

#[tokio::test]
async fn who_is_connected_and_asks_nothing_does_not_hold_up_a_stop() {
    let mut sidecar = Sidecar::start().await;
    sidecar.still_tells_the_story().await;
    // One connection that says nothing at all, and one channel that has had its answers and stays.
    let silent = tokio::net::TcpStream::connect(sidecar.running().address().tcp().unwrap()).await.unwrap();
    let channel = sidecar.channel();
    assert!(sidecar.stop().await, "there was nothing in flight that could be cut off");
    drop((silent, channel));
}
