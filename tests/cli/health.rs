//! `countersign health`.

use crate::support::{Serving, run, runtime};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;

#[test]
fn a_sidecar_that_serves_is_zero_and_an_unknown_service_one() {
    let serving = Serving::start("health");
    for address in [&serving.health_address, &serving.address] {
        let ran = run(&["health", "--address", address]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "SERVING\n"), "{ran:?}");
    }
    for service in ["liveness", "countersign.v1.AgentService", "countersign.v1.ApproverService"] {
        assert_eq!(run(&["health", "--address", &serving.health_address, "--service", service]).code, 0, "{service}");
    }
    let ran = run(&["health", "--address", &serving.health_address, "--service", "nobody", "--json"]);
    assert_eq!((ran.code, &ran.json()["status"]), (1, &"SERVICE_UNKNOWN".into()));
}

#[test]
fn a_sidecar_that_does_not_serve_is_one() {
    let runtime = runtime();
    let address = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (reporter, service) = tonic_health::server::health_reporter();
        reporter.set_service_status("", ServingStatus::NotServing).await;
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener)));
        address
    });
    let ran = run(&["health", "--address", &address]);
    assert_eq!((ran.code, ran.out.as_str()), (1, "NOT_SERVING\n"), "{ran:?}");
}

#[test]
fn nobody_there_is_three_and_a_place_that_cannot_be_is_two() {
    // Bound and not listened on by anybody afterwards.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ran = run(&["health", "--address", &address, "--json"]);
    assert_eq!((ran.code, &ran.json()["status"]), (3, &"UNREACHABLE".into()));
    assert!(ran.err.contains(&address), "{ran:?}");
    // Accepts and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    assert_eq!(run(&["health", "--address", &address, "--timeout", "200ms"]).code, 3);
    for wrong in
        [&["--address", "localhost"][..], &["--address", "http://a:1"], &["--timeout", "0s"], &["--timeout", "x"]]
    {
        assert_eq!(run(&[&["health"], wrong].concat()).code, 2, "{wrong:?}");
    }
}
