//! Doors on a Unix socket: a place in the file system that one sidecar hands to the next.

use crate::grpc::harness::{Folder, POLICY, config_in, email, serve, token};
use crate::grpc::wire::RawCall;
use countersign::address::Address;
use countersign::app::Running;
use countersign::client::{self, Bearer};
use countersign::clock::SystemClock;
use countersign::proto::{EvaluateRequest, EvaluateResponse};
use prost::Message as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tonic::transport::Channel;

async fn start(folder: &Path, socket: PathBuf) -> Running {
    std::fs::write(folder.join("policy.yaml"), POLICY).unwrap();
    let mut config = config_in(folder);
    config.listen = Address::Unix(socket);
    serve(&config, Arc::new(SystemClock::new())).await.unwrap()
}

async fn evaluate(channel: Channel) -> Result<EvaluateResponse, tonic::Status> {
    let mut agent = client::agent(channel, Bearer::new(&token("runtime")).unwrap());
    let request = EvaluateRequest { invocation: Some(email()), explain: false };
    agent.evaluate(request).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn a_path_of_any_text_is_called_as_it_is_written() {
    for name in ["x.sock", "a b%41é?#[]@:1.sock", "-"] {
        let folder = Folder::new();
        let running = start(folder.path(), folder.path().join(name)).await;
        evaluate(client::channel(running.address()).unwrap()).await.unwrap();
        let text = running.address().to_string();
        evaluate(client::channel_to(&text).unwrap()).await.unwrap();
        assert!(running.stop().await);
        assert!(!folder.path().join(name).exists(), "{name}");
    }
}

#[tokio::test]
async fn a_successor_takes_the_place_while_the_first_finishes() {
    let (folder, successors) = (Folder::new(), Folder::new());
    let socket = folder.path().join("x.sock");
    let first = start(folder.path(), socket.clone()).await;
    let rpc = "/countersign.v1.AgentService/Evaluate";
    let mut in_flight = RawCall::open(first.address(), rpc, Some(&token("runtime"))).await;
    in_flight.has_arrived().await;

    let stopping = tokio::spawn(first.stop());
    while socket.exists() {
        tokio::task::yield_now().await;
    }
    let second = start(successors.path(), socket.clone()).await;
    evaluate(client::channel(second.address()).unwrap()).await.unwrap();
    assert!(!stopping.is_finished(), "a call is in flight");
    in_flight.send(&EvaluateRequest { invocation: Some(email()), explain: false }.encode_to_vec()).await;
    assert!(in_flight.gets_an_answer().await);
    assert!(stopping.await.unwrap());
    evaluate(client::channel(second.address()).unwrap()).await.unwrap();
    assert!(socket.exists(), "the first took away only what was its own");
    assert!(second.stop().await);
    assert!(!socket.exists());
}

#[tokio::test]
async fn what_is_no_http_costs_its_own_connection_and_no_other() {
    let folder = Folder::new();
    let socket = folder.path().join("x.sock");
    let running = start(folder.path(), socket.clone()).await;
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\0\0\0\0", b""] {
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        stream.write_all(nonsense).await.unwrap();
        stream.shutdown().await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    evaluate(client::channel(running.address()).unwrap()).await.unwrap();
    assert!(running.stop().await);
}
