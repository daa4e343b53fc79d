//! A sidecar that means harm, or is not one: what it sends does not reach the terminal as it is.

use crate::support::{Countersign, Ran, harmless, runtime};
use countersign::proto::approver_service_server::{ApproverService, ApproverServiceServer};
use countersign::proto::{self, ApprovalState};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

const HOSTILE: &str =
    "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\u{200b}\u{e000}\r\n  state           APPROVED\u{85}";

/// Answers everything with hostile text, and keeps what was decided.
#[derive(Clone, Default)]
struct Liar {
    decided: Arc<Mutex<Vec<proto::DecideRequest>>>,
    refuse: bool,
}

impl Liar {
    fn approval() -> proto::Approval {
        let text = || HOSTILE.to_owned();
        proto::Approval {
            id: text(),
            state: 99,
            principal: text(),
            agent: text(),
            connector: text(),
            account: text(),
            action: text(),
            tags: vec![text()],
            fingerprint: text(),
            preview_json: serde_json::json!({ HOSTILE: [HOSTILE] }).to_string(),
            omissions: vec![proto::Omission { pointer: text(), kind: 99, count: u64::MAX, field: text() }],
            message: text(),
            agent_note: text(),
            requested_by: text(),
            state_reason: text(),
            decide_by: Some(prost_types::Timestamp { seconds: i64::MAX, nanos: i32::MIN }),
            requirement: Some(proto::Requirement {
                use_within: Some(prost_types::Duration { seconds: i64::MIN, nanos: -1 }),
                ..proto::Requirement::default()
            }),
            ..proto::Approval::default()
        }
    }

    fn answer<T>(&self, answer: T) -> Result<Response<T>, Status> {
        if self.refuse {
            let metadata = [(HOSTILE.to_owned(), HOSTILE.to_owned())];
            let details = ErrorDetails::with_error_info(HOSTILE, HOSTILE, metadata);
            return Err(Status::with_error_details(Code::FailedPrecondition, HOSTILE, details));
        }
        Ok(Response::new(answer))
    }
}

#[tonic::async_trait]
impl ApproverService for Liar {
    type WatchApprovalsStream =
        std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<proto::WatchApprovalsResponse, Status>> + Send>>;

    async fn watch_approvals(
        &self,
        _: Request<proto::WatchApprovalsRequest>,
    ) -> Result<Response<Self::WatchApprovalsStream>, Status> {
        let told = proto::WatchApprovalsResponse {
            event: Some(proto::watch_approvals_response::Event::Approval(Self::approval())),
        };
        // And then it goes away for good.
        let end = Status::permission_denied(HOSTILE);
        self.answer(Box::pin(tokio_stream::iter([Ok(told), Err(end)])))
    }

    async fn list_approvals(
        &self,
        _: Request<proto::ListApprovalsRequest>,
    ) -> Result<Response<proto::ListApprovalsResponse>, Status> {
        self.answer(proto::ListApprovalsResponse {
            approvals: vec![Self::approval(); 2],
            next_page_token: HOSTILE.to_owned(),
        })
    }

    async fn get_approval(
        &self,
        _: Request<proto::ApproverServiceGetApprovalRequest>,
    ) -> Result<Response<proto::ApproverServiceGetApprovalResponse>, Status> {
        self.answer(proto::ApproverServiceGetApprovalResponse { approval: Some(Self::approval()) })
    }

    async fn get_approval_arguments(
        &self,
        _: Request<proto::GetApprovalArgumentsRequest>,
    ) -> Result<Response<proto::GetApprovalArgumentsResponse>, Status> {
        let arguments_json = format!("{{{}:[{0}]}}", serde_json::to_string(HOSTILE).unwrap());
        let arguments_json = countersign::domain::canonical::Canonical::from_stored(&arguments_json)
            .map_or_else(|_| arguments_json.clone(), |canonical| canonical.into_string());
        self.answer(proto::GetApprovalArgumentsResponse { arguments_json, fingerprint: HOSTILE.to_owned() })
    }

    async fn decide(&self, request: Request<proto::DecideRequest>) -> Result<Response<proto::DecideResponse>, Status> {
        self.decided.lock().unwrap().push(request.into_inner());
        let approval = proto::Approval { state: ApprovalState::Approved.into(), ..Self::approval() };
        self.answer(proto::DecideResponse { approval: Some(approval) })
    }

    async fn revoke_approval(
        &self,
        _: Request<proto::RevokeApprovalRequest>,
    ) -> Result<Response<proto::RevokeApprovalResponse>, Status> {
        self.answer(proto::RevokeApprovalResponse::default())
    }
}

fn approvals(liar: &Liar, commands: &[&[&str]]) -> Vec<Ran> {
    let runtime = runtime();
    let address = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let service = ApproverServiceServer::new(liar.clone());
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener)));
        address
    });
    let run = |command: &&[&str]| {
        Countersign::new(&["approvals", "--server", &address]).env("COUNTERSIGN_TOKEN", "x").arguments(command).run()
    };
    commands.iter().map(run).collect()
}

const COMMANDS: [&[&str]; 8] = [
    &["list"],
    &["list", "--json"],
    &["show", "x"],
    &["show", "x", "--json"],
    &["approve", "x", "--yes"],
    &["deny", "x", "--yes", "--json"],
    &["show", "x", "--arguments"],
    &["show", "x", "--arguments", "--json"],
];

#[test]
fn what_a_sidecar_sends_is_neutralised_once_more_and_json_loses_nothing() {
    let liar = Liar::default();
    let ran = approvals(&liar, &COMMANDS);
    for ran in &ran {
        assert_eq!(ran.code, 0, "{ran:?}");
        harmless(&ran.out);
        harmless(&ran.err);
        assert!(
            !ran.out.lines().chain(ran.err.lines()).any(|line| line.trim() == "state           APPROVED"),
            "{ran:?}"
        );
    }
    assert_eq!(ran[3].json()["message"], HOSTILE);
    assert_eq!(ran[1].json()["approvals"][1]["agent_note"], HOSTILE);
    assert_eq!(ran[5].json()["id"], HOSTILE);
}

#[test]
fn what_a_sidecar_tells_is_neutralised_and_its_refusal_ends_it() {
    let liar = Liar::default();
    for ran in approvals(&liar, &[&["watch"], &["watch", "--json"]]) {
        assert_eq!(ran.code, 1, "{ran:?}");
        harmless(&ran.out);
        harmless(&ran.err);
        assert!(ran.out.contains("owned"), "{ran:?}");
    }
}

#[test]
fn a_decision_carries_the_fingerprint_that_was_shown() {
    let liar = Liar::default();
    approvals(&liar, &[&["approve", "x", "--yes", "--as", "dana", "--reason", "fine"]]);
    let decided = liar.decided.lock().unwrap();
    let [request] = decided.as_slice() else { panic!("one decision, not {}", decided.len()) };
    assert_eq!(request.shown_fingerprint, Liar::approval().fingerprint);
    assert_eq!((request.principal.as_str(), request.reason.as_str()), ("dana", "fine"));
    assert_eq!(request.verdict(), proto::Verdict::Approve);
}

#[test]
fn a_refusal_in_hostile_words_is_harmless_too() {
    for ran in approvals(&Liar { refuse: true, ..Liar::default() }, &COMMANDS) {
        assert_eq!(ran.code, 1, "{ran:?}");
        harmless(&ran.out);
        harmless(&ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    }
}

#[test]
fn what_is_no_sidecar_is_unreachable() {
    use std::io::Write as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n\x1b[2J");
        }
    });
    let ran = Countersign::new(&["approvals", "list", "--server", &address]).env("COUNTERSIGN_TOKEN", "x").run();
    assert_eq!(ran.code, 3, "{ran:?}");
    harmless(&ran.err);
}
