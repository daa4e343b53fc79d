//! A person's list: what is on it, as it stands now, page by page.

use crate::grpc::harness::*;
use crate::grpc::moves::*;
use countersign::proto::*;
use std::time::Duration;
use tonic::{Code, Status};

use ApprovalState::{Approved, Cancelled, Consumed, Denied, Expired, Pending, Revoked};

async fn page(sidecar: &Sidecar, request: ListApprovalsRequest) -> Result<ListApprovalsResponse, Status> {
    sidecar.approver().list_approvals(request).await.map(tonic::Response::into_inner)
}

fn of(person: &str, page_size: u32, page_token: &str) -> ListApprovalsRequest {
    ListApprovalsRequest {
        principal: person.to_owned(),
        page_size,
        page_token: page_token.to_owned(),
        ..Default::default()
    }
}

fn ids(approvals: &[Approval]) -> Vec<String> {
    approvals.iter().map(|approval| approval.id.clone()).collect()
}

#[tokio::test]
async fn states_are_those_of_the_store_now_so_that_nothing_overdue_is_listed_as_open() {
    let sidecar = Sidecar::start().await;
    let mut made = Vec::new();
    for state in [Pending, Approved, Denied, Cancelled, Revoked, Consumed] {
        let invocation = in_conversation(state.as_str_name());
        let (approval, token) = sidecar.ask(invocation.clone()).await;
        if matches!(state, Approved | Revoked | Consumed) {
            sidecar.decide("olga", &approval.id, Verdict::Approve).await.unwrap();
        }
        match state {
            Denied => drop(sidecar.decide("olga", &approval.id, Verdict::Deny).await.unwrap()),
            Cancelled => drop(sidecar.cancel_as("runtime", &approval).await.unwrap()),
            Revoked => drop(sidecar.take_back("olga", &approval.id).await.unwrap()),
            Consumed => drop(sidecar.consume(&token, invocation).await.unwrap()),
            _ => {}
        }
        made.push((state, approval));
    }
    let id_of = |state: ApprovalState| made.iter().find(|(made, _)| *made == state).unwrap().1.id.clone();
    let newest_first: Vec<String> = made.iter().rev().map(|(_, approval)| approval.id.clone()).collect();
    assert_eq!(sidecar.listed("olga", &[]).await, newest_first);
    for (state, approval) in &made {
        assert_eq!(sidecar.listed("olga", &[*state]).await, std::slice::from_ref(&approval.id), "{state:?}");
    }
    assert_eq!(sidecar.listed("olga", &[Expired]).await, [""; 0]);
    assert_eq!(sidecar.listed("olga", &[Consumed, Pending]).await, [id_of(Consumed), id_of(Pending)]);
    assert_eq!(sidecar.listed("olga", &[Pending, Pending]).await, [id_of(Pending)]);

    // Nobody has written it down, and yet it is so. Both deadlines are the same here.
    let deadline = &made[0].1.decide_by;
    sidecar.stand_at(deadline, -1);
    assert_eq!(sidecar.listed("olga", &[Expired]).await, [""; 0]);
    sidecar.stand_at(deadline, 0);
    assert_eq!(sidecar.listed("olga", &[Pending, Approved]).await, [""; 0]);
    assert_eq!(sidecar.listed("olga", &[Expired]).await, [id_of(Approved), id_of(Pending)]);
    assert_eq!(sidecar.listed("olga", &[]).await, newest_first);
    let all = page(&sidecar, of("olga", 100, "")).await.unwrap().approvals;
    assert!(all.iter().all(|approval| !matches!(approval.state(), Pending | Approved)));
    for approval in &all {
        assert_eq!(sidecar.seen_by("olga", &approval.id).await.unwrap(), *approval);
    }
    // Once written down it is the same.
    refused(sidecar.decide("olga", &id_of(Pending), Verdict::Deny).await, Code::FailedPrecondition, "APPROVAL_EXPIRED");
    assert_eq!(page(&sidecar, of("olga", 100, "")).await.unwrap().approvals, all);
    assert_eq!(sidecar.listed("olga", &[Expired]).await, [id_of(Approved), id_of(Pending)]);
}

#[tokio::test]
async fn states_that_are_none_are_refused() {
    let sidecar = Sidecar::start().await;
    for states in [vec![0], vec![8], vec![-1], vec![1, 0], vec![i32::MAX], vec![i32::MIN]] {
        let request = ListApprovalsRequest { states: states.clone(), ..of("olga", 10, "") };
        wrong(page(&sidecar, request).await, "states");
    }
    let many = ListApprovalsRequest { states: [1, 2, 3, 4, 5, 6, 7].repeat(10_000), ..of("olga", 10, "") };
    assert!(page(&sidecar, many).await.unwrap().approvals.is_empty());
    let wrong_many = ListApprovalsRequest { states: vec![99; 100_000], ..of("olga", 10, "") };
    let status = page(&sidecar, wrong_many).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(wrong_fields(&status).len(), 8, "the rest is counted");
}

#[tokio::test]
async fn pages_are_stable_while_new_ones_arrive_and_old_ones_change() {
    let sidecar = Sidecar::start().await;
    let mut asked = Vec::new();
    for index in 0..23 {
        asked.push(sidecar.ask(in_conversation(&format!("{index}"))).await.0.id);
        // Some of one microsecond, some not.
        if index % 3 == 0 {
            sidecar.advance(Duration::from_micros(1));
        }
    }
    asked.reverse();
    for size in [1, 2, 7, 22, 23, 24] {
        let (mut seen, mut token, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let answer = page(&sidecar, of("olga", size, &token)).await.unwrap();
            assert!(answer.approvals.len() <= size as usize);
            seen.extend(ids(&answer.approvals));
            pages += 1;
            // What comes now is newer than the page before, so it belongs to no page that follows.
            sidecar.ask(in_conversation(&format!("{size} {pages}"))).await;
            sidecar.advance(Duration::from_micros(1));
            token = answer.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        let mine: Vec<String> = seen.into_iter().filter(|id| asked.contains(id)).collect();
        assert_eq!(mine, asked, "each once and in order, {size} a page");
    }
    // A page token is no place in a count: what left the filter meanwhile is left out, and nothing is repeated.
    let first =
        page(&sidecar, ListApprovalsRequest { states: vec![Pending.into()], ..of("olga", 5, "") }).await.unwrap();
    for id in ids(&first.approvals) {
        sidecar.decide("olga", &id, Verdict::Deny).await.unwrap();
    }
    let second = ListApprovalsRequest { states: vec![Pending.into()], ..of("olga", 5, &first.next_page_token) };
    let second = page(&sidecar, second).await.unwrap();
    assert_eq!(second.approvals.len(), 5);
    assert!(ids(&second.approvals).iter().all(|id| !ids(&first.approvals).contains(id)));
}

#[tokio::test]
async fn a_page_token_is_good_for_its_very_query_person_and_caller() {
    let sidecar = Sidecar::start().await;
    for index in 0..4 {
        sidecar.ask(in_conversation(&format!("{index}"))).await;
        sidecar.ask(Invocation { conversation: format!("{index}"), ..deletion() }).await;
    }
    let first = page(&sidecar, of("olga", 2, "")).await.unwrap();
    let token = first.next_page_token;
    assert!(!token.is_empty());
    // Of another size it is still the same query.
    assert_eq!(page(&sidecar, of("olga", 3, &token)).await.unwrap().approvals.len(), 3);
    let invalid = |result: Result<ListApprovalsResponse, Status>| {
        let status = refused(result, Code::InvalidArgument, "PAGE_TOKEN_INVALID");
        assert_eq!(wrong_fields(&status), ["page_token"]);
    };
    invalid(page(&sidecar, of("dana", 2, &token)).await);
    invalid(page(&sidecar, of("pia", 2, &token)).await);
    for states in [vec![Pending.into()], vec![Pending.into(), Denied.into()]] {
        invalid(page(&sidecar, ListApprovalsRequest { states, ..of("olga", 2, &token) }).await);
    }
    let of_dana = page(&sidecar, of("dana", 2, "")).await.unwrap().next_page_token;
    assert!(!of_dana.is_empty());
    let own = ListApprovalsRequest { page_size: 2, page_token: of_dana, ..Default::default() };
    let other_caller = sidecar.approver_as("dana").list_approvals(own).await;
    invalid(other_caller.map(tonic::Response::into_inner));
    // The audit's are another kind, both ways.
    let audit = |page_token: &str| ListAuditRecordsRequest {
        page_size: 1,
        page_token: page_token.to_owned(),
        ..Default::default()
    };
    let of_audit = sidecar.operator().list_audit_records(audit("")).await.unwrap().into_inner().next_page_token;
    invalid(page(&sidecar, of("olga", 2, &of_audit)).await);
    let crossed = sidecar.operator().list_audit_records(audit(&token)).await;
    refused(crossed, Code::InvalidArgument, "PAGE_TOKEN_INVALID");
    for index in 0..token.len() {
        let mut forged = token.clone().into_bytes();
        forged[index] = if forged[index] == b'0' { b'1' } else { b'0' };
        invalid(page(&sidecar, of("olga", 2, &String::from_utf8(forged).unwrap())).await);
    }
    for forged in [
        "x",
        ".",
        "0",
        "1|",
        "\0",
        "٠.٠",
        &token[1..],
        &token[..token.len() - 1],
        &format!("{token}0"),
        &token.to_uppercase(),
        &format!(" {token}"),
        &"0".repeat(1 << 20),
    ] {
        invalid(page(&sidecar, of("olga", 2, forged)).await);
    }
}

#[tokio::test]
async fn page_tokens_outlive_a_restart() {
    let mut sidecar = Sidecar::start().await;
    for index in 0..3 {
        sidecar.ask(in_conversation(&format!("{index}"))).await;
    }
    let first = page(&sidecar, of("olga", 2, "")).await.unwrap();
    sidecar.restart().await;
    let second = page(&sidecar, of("olga", 2, &first.next_page_token)).await.unwrap();
    assert_eq!((second.approvals.len(), second.next_page_token.as_str()), (1, ""));
}

#[tokio::test]
async fn a_page_is_bounded_and_has_a_size_of_its_own_where_none_is_said() {
    let sidecar = Sidecar::with(POLICY, (1_000, 1_000)).await;
    for index in 0..103 {
        sidecar.ask(in_conversation(&format!("{index}"))).await;
    }
    for (size, want) in [(0, 50), (1, 1), (99, 99), (100, 100), (101, 100), (1_000_000, 100), (u32::MAX, 100)] {
        let answer = page(&sidecar, of("olga", size, "")).await.unwrap();
        assert_eq!(answer.approvals.len(), want, "{size}");
        assert!(!answer.next_page_token.is_empty());
        let rest = page(&sidecar, of("olga", 100, &answer.next_page_token)).await.unwrap();
        assert_eq!(rest.approvals.len(), (103 - want).min(100));
    }
}

#[tokio::test]
async fn a_person_sees_their_own_and_what_they_may_or_might_have_decided_and_nothing_else() {
    let sidecar = Sidecar::start().await;
    let (own, _) = sidecar.ask(Invocation { principal: "dana".to_owned(), ..in_conversation("own") }).await;
    let (may, _) = sidecar.ask(deletion()).await;
    let (might, _) = sidecar.ask(Invocation { conversation: "over".to_owned(), ..deletion() }).await;
    sidecar.decide("eve", &might.id, Verdict::Deny).await.unwrap();
    let (foreign, _) = sidecar.ask(in_conversation("foreign")).await;
    let sees: [(&str, Vec<&Approval>); 6] = [
        ("dana", vec![&might, &may, &own]),
        ("eve", vec![&might, &may]),
        ("finn", vec![&might, &may]),
        ("olga", vec![&foreign, &might, &may]),
        ("sam", vec![]),
        ("finance", vec![]),
    ];
    for (person, approvals) in sees {
        let want: Vec<String> = approvals.iter().map(|approval| approval.id.clone()).collect();
        assert_eq!(sidecar.listed(person, &[]).await, want, "{person}");
        // The list and the record agree on who sees what.
        for approval in [&own, &may, &might, &foreign] {
            assert_eq!(sidecar.seen_by(person, &approval.id).await.is_ok(), want.contains(&approval.id), "{person}");
        }
    }
    let mine = sidecar.approver_as("dana").list_approvals(ListApprovalsRequest::default()).await.unwrap().into_inner();
    assert_eq!(ids(&mine.approvals), [might.id, may.id, own.id]);
}

/// What a client of any language takes of one answer unless it is told otherwise.
const CLIENTS_TAKE: usize = 4 * 1024 * 1024;

#[tokio::test]
async fn a_page_of_the_largest_approvals_is_one_that_clients_take() {
    use prost::Message as _;
    let sidecar = std::sync::Arc::new(Sidecar::with(POLICY, (1_000, 1_000)).await);
    // Everything that a person is shown, at its largest.
    let members: Vec<String> = (0..90)
        .map(|index| {
            format!("\"{index} password {}\":{{\"a\u{430}\":\"\\u202e{}\"}}", "n".repeat(90), "\\u202e".repeat(9))
        })
        .collect();
    let mut asked = tokio::task::JoinSet::new();
    for index in 0..100 {
        let long = |text: &str| format!("{text}{index}{}", "\u{1F600}".repeat(60));
        let request = RequestApprovalRequest {
            invocation: Some(Invocation {
                conversation: long("conversation"),
                account: long("account"),
                connection: long("connection"),
                arguments_json: format!("{{\"z\":\"{}\",{}}}", "\u{1F600}".repeat(5_000), members.join(",")),
                objective: Some(Objective { transcript: long("transcript"), id: long("id"), revision: 1 }),
                ..deletion()
            }),
            agent_note: "\u{202e}".repeat(500),
            ..Default::default()
        };
        // Some at once: on a busy machine a hundred of this size could wait longer than a write may.
        while asked.len() >= 16 {
            asked.join_next().await.unwrap().unwrap();
        }
        let sidecar = std::sync::Arc::clone(&sidecar);
        asked.spawn(async move {
            let approval = sidecar.request_as("runtime", request).await.unwrap().approval.unwrap();
            for person in ["dana", "olga"] {
                let decide = DecideRequest {
                    approval_id: approval.id.clone(),
                    principal: person.to_owned(),
                    verdict: Verdict::Approve.into(),
                    reason: "\u{202e}".repeat(500),
                    ..Default::default()
                };
                sidecar.approver().decide(decide).await.unwrap();
            }
        });
    }
    asked.join_all().await;
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let answer = page(&sidecar, of("olga", 100, &token)).await.unwrap();
        assert!(answer.encoded_len() < CLIENTS_TAKE, "{}", answer.encoded_len());
        assert!(!answer.approvals.is_empty(), "each page gets further");
        seen.extend(ids(&answer.approvals));
        token = answer.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    seen.dedup();
    assert_eq!(seen.len(), 100);
}

#[tokio::test]
async fn a_page_of_previews_as_large_as_they_may_be_configured_is_one_that_clients_take() {
    use prost::Message as _;
    let folder = Folder::new();
    std::fs::write(folder.path().join("policy.yaml"), POLICY).unwrap();
    let mut config = config_in(folder.path());
    config.arguments_bytes = 1 << 20;
    config.preview.max_total_bytes = 1 << 20;
    config.preview.max_string_bytes = 262_144;
    config.preview.max_string_graphemes = 100_000;
    let clock = std::sync::Arc::new(countersign::clock::ManualClock::at(START));
    let running = serve(&config, clock).await.unwrap();
    let channel = countersign::client::channel(running.address()).unwrap();
    let bearer = |caller: &str| countersign::client::Bearer::new(&token(caller)).unwrap();
    let mut agent = countersign::client::agent(channel.clone(), bearer("runtime"));
    for index in 0..12 {
        let texts: Vec<String> = (0..9).map(|name| format!("\"{name}\":\"{}\"", "x".repeat(90_000))).collect();
        let arguments_json = format!("{{{}}}", texts.join(","));
        let invocation = Invocation { arguments_json, ..in_conversation(&index.to_string()) };
        let request = RequestApprovalRequest { invocation: Some(invocation), ..Default::default() };
        let approval = agent.request_approval(request).await.unwrap().into_inner().approval.unwrap();
        assert!(approval.preview_json.len() > 800_000);
    }
    let mut approver = countersign::client::approver(channel, bearer("chat"));
    let (mut seen, mut page_token) = (0, String::new());
    loop {
        let answer = approver.list_approvals(of("olga", 100, &page_token)).await.unwrap().into_inner();
        assert!(!answer.approvals.is_empty() && answer.encoded_len() < CLIENTS_TAKE);
        seen += answer.approvals.len();
        page_token = answer.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, 12);
    assert!(running.stop().await);
}
