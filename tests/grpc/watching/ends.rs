//! How watching ends: with the sidecar, with the deadline, with a watcher who does not read, and with a client who is gone.

use super::*;
use crate::grpc::reload_callers::{acting_for, caller, take};
use countersign::auth::Powers;
use countersign::domain::limits;
use countersign::domain::pattern::Pattern;
use countersign::domain::text::Identifier;
use tonic::Request;
use tonic::transport::Endpoint;

/// The refusal that ends a stream, whatever was told before.
async fn end<T>(stream: &mut Streaming<T>) -> Status {
    loop {
        match next(stream).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ended well"),
            Err(status) => return status,
        }
    }
}

#[tokio::test]
async fn a_stop_ends_every_stream_and_waits_for_none() {
    let mut sidecar = Sidecar::start().await;
    let (asked, _) = sidecar.ask(email()).await;
    let mut single = Vec::new();
    let mut lists = Vec::new();
    for _ in 0..50 {
        let mut watched = sidecar.watch(&asked).await;
        state(&mut watched).await;
        single.push(watched);
        let mut watched = sidecar.watch_for("olga").await;
        snapshot(&mut watched).await;
        lists.push(watched);
    }
    assert!(sidecar.stop().await, "nothing had to be cut off");
    for watched in &mut single {
        refused(Err::<(), _>(end(watched).await), Code::Unavailable, "STOPPING");
    }
    for watched in &mut lists {
        refused(Err::<(), _>(end(watched).await), Code::Unavailable, "STOPPING");
    }
    // Started again, it is watched again, and nothing is lost.
    sidecar.restart_stopped().await;
    let mut watched = sidecar.watch(&asked).await;
    assert_eq!(state(&mut watched).await, asked);
    let cancelled = sidecar.cancel_as("runtime", &asked).await.unwrap();
    assert_eq!(all(watched).await, [cancelled]);
}

#[tokio::test]
async fn a_deadline_ends_a_stream_that_is_under_way() {
    let sidecar = Sidecar::start().await;
    let (asked, _) = sidecar.ask(email()).await;
    let mut request = Request::new(request_of(&asked));
    request.set_timeout(Duration::from_secs(2));
    let mut watched = sidecar.agent().watch_approval(request).await.unwrap().into_inner();
    refused(Err::<(), _>(end(&mut watched).await), Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
    let mut request = Request::new(request_for("olga"));
    request.set_timeout(Duration::from_secs(2));
    let mut watched = sidecar.approver().watch_approvals(request).await.unwrap().into_inner();
    refused(Err::<(), _>(end(&mut watched).await), Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
    sidecar.has_watchers(0).await;
}

#[tokio::test]
async fn clients_that_are_gone_leave_nothing_behind() {
    let sidecar = Sidecar::start().await;
    let (asked, _) = sidecar.ask(email()).await;
    for round in 0..3 {
        let channel = sidecar.another_channel();
        let bearer = |caller: &str| countersign::client::Bearer::new(&token(caller)).unwrap();
        let mut agent = countersign::client::agent(channel.clone(), bearer("runtime"));
        let mut approver = countersign::client::approver(channel.clone(), bearer("chat"));
        let mut held = Vec::new();
        for _ in 0..30 {
            held.push((
                agent.watch_approval(request_of(&asked)).await.unwrap(),
                approver.watch_approvals(request_for("olga")).await.unwrap(),
            ));
        }
        sidecar.has_watchers(60).await;
        if round == 0 {
            // One by one, the connection staying.
            held.truncate(10);
            sidecar.has_watchers(20).await;
        }
        drop((held, agent, approver, channel));
        sidecar.has_watchers(0).await;
    }
    sidecar.still_tells_the_story().await;
}

#[tokio::test]
async fn who_does_not_read_is_ended_and_the_others_go_on() {
    let sidecar = Sidecar::with(POLICY, (10_000, 10_000)).await;
    let address = format!("http://{}", sidecar.running().address());
    // What a client takes without being asked for it is small here.
    let channel = Endpoint::from_shared(address).unwrap().initial_stream_window_size(65_535).connect_lazy();
    let bearer = countersign::client::Bearer::new(&token("chat")).unwrap();
    let mut slow = countersign::client::approver(channel, bearer);
    let mut slow = slow.watch_approvals(request_for("olga")).await.unwrap().into_inner();
    assert_eq!(snapshot(&mut slow).await, []);
    let mut quick = sidecar.watch_for("olga").await;
    assert_eq!(snapshot(&mut quick).await, []);
    let long = "x".repeat(3_000);
    let changes = limits::WATCH_QUEUE_BYTES / 4_000 + 200;
    for number in 0..changes {
        let arguments_json = serde_json::json!({ "to": "a@example.com", "body": long }).to_string();
        let (asked, _) = sidecar.ask(Invocation { arguments_json, ..in_conversation(&number.to_string()) }).await;
        assert_eq!(change(&mut quick).await, asked);
    }
    refused(Err::<(), _>(end(&mut slow).await), Code::Unavailable, "WATCH_TOO_SLOW");
    drop(slow);
    let (asked, _) = sidecar.ask(in_conversation("after")).await;
    assert_eq!(change(&mut quick).await, asked);
    sidecar.has_watchers(1).await;
}

#[tokio::test]
async fn a_caller_has_only_so_many_streams_and_keeps_nobody_else_from_theirs() {
    let sidecar = Sidecar::start().await;
    let (asked, _) = sidecar.ask(email()).await;
    let mut held = Vec::new();
    let mut client = None;
    for number in 0..limits::WATCHERS_PER_CALLER {
        if number % 200 == 0 {
            let bearer = countersign::client::Bearer::new(&token("runtime")).unwrap();
            client = Some(countersign::client::agent(sidecar.another_channel(), bearer));
        }
        held.push(client.as_mut().unwrap().watch_approval(request_of(&asked)).await.unwrap());
    }
    let status =
        refused(sidecar.watch_as("runtime", &asked).await.map(|_| ()), Code::ResourceExhausted, "CALLER_STREAMS_LIMIT");
    assert_eq!((told(&status, "per"), told(&status, "limit")), ("caller".to_owned(), "1024".to_owned()));
    sidecar.watch_as("runtime-2", &asked).await.unwrap();
    sidecar.watch_for("olga").await;
    held.pop();
    sidecar.has_watchers(limits::WATCHERS_PER_CALLER - 1).await;
    sidecar.watch(&asked).await;
}

#[tokio::test]
async fn streams_end_with_the_credential_that_they_were_opened_with_and_no_others_do() {
    let sidecar = Sidecar::start().await;
    let (asked, _) = sidecar.ask(email()).await;
    let mut single = sidecar.watch(&asked).await;
    state(&mut single).await;
    let mut list = sidecar.watch_for("olga").await;
    snapshot(&mut list).await;
    let asserts = || Powers::Asserts(vec![Pattern::new("*")]);
    // The agent's caller may do less than before; the chat's is as it was.
    take(&sidecar, vec![caller("runtime", acting_for("somebody-else"), None), caller("chat", asserts(), None)]).await;
    refused(Err::<(), _>(end(&mut single).await), Code::Unauthenticated, "CREDENTIALS_ENDED");
    let answer = sidecar.decide("olga", &asked.id, Verdict::Deny).await.unwrap();
    assert_eq!(change(&mut list).await, answer);
    // Now nobody is left who may be told.
    take(&sidecar, vec![caller("chat", Powers::Person(Identifier::parse("olga").unwrap()), None)]).await;
    refused(Err::<(), _>(end(&mut list).await), Code::Unauthenticated, "CREDENTIALS_ENDED");
    sidecar.has_watchers(0).await;
}

#[tokio::test]
async fn who_is_told_is_asked_of_the_policy_of_the_moment() {
    let without_dana = POLICY.replace("finance: [dana, eve, finn]", "finance: [eve, finn, sam]");
    let sidecar = crate::grpc::reload::watching(POLICY).await;
    let mut of_dana = sidecar.watch_for("dana").await;
    let mut of_sam = sidecar.watch_for("sam").await;
    assert_eq!((snapshot(&mut of_dana).await, snapshot(&mut of_sam).await), (vec![], vec![]));
    let ask = async |name: &str| sidecar.ask(Invocation { conversation: name.to_owned(), ..deletion() }).await.0;
    let before = ask("before").await;
    assert_eq!(change(&mut of_dana).await, before);
    sidecar.comes_under(&without_dana).await;
    let after = ask("after").await;
    assert_eq!(change(&mut of_sam).await, after, "sam was told of nothing before, and is told now");
    sidecar.comes_under(POLICY).await;
    let again = ask("again").await;
    assert_eq!(change(&mut of_dana).await, again, "and dana of nothing in between");
}
