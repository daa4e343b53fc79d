//! Every RPC as every kind of caller, in and out of its bounds: the code, the reason, and what is as if it were not there.

use crate::grpc::harness::*;
use crate::grpc::moves::*;
use crate::grpc::tenants::nothing;
use crate::tokens::{Signer, key_set};
use countersign::address::Address;
use countersign::app::Running;
use countersign::auth::Role;
use countersign::client;
use countersign::config::{Config, Overrides};
use countersign::proto::*;
use countersign::service::{ACCESS, Bounds};
use prost::Message as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::LazyLock;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

static SIGNER: LazyLock<Signer> = LazyLock::new(Signer::ed);

const ISSUER: &str = "https://id.example.com";

/// The callers of the harness, and some of each other kind: by tokens of an issuer, and by the user that runs this.
fn with_issuer(folder: &Path, more: &str) -> Config {
    std::fs::write(folder.join("keys.json"), key_set(&[SIGNER.jwk(r#""kid":"k","#)])).unwrap();
    let mut text = format!(
        "[[issuers]]\nname = \"corp\"\nissuer = \"{ISSUER}\"\naudience = \"countersign\"\njwks_file = \"keys.json\"\n\
         groups_claim = \"groups\"\ngroups = {{ \"idp-oncall\" = \"oncall\" }}\n{more}\n"
    );
    let mut caller = |name: &str, role: &str, rest: &str| {
        text.push_str(&format!("[[callers]]\nname = \"{name}\"\nrole = \"{role}\"\n{rest}\n"));
    };
    let hash = |name: &str| countersign::auth::token::TokenHash::of(token(name).as_bytes());
    for (name, role, rest) in [
        ("runtime", "agent", "agents = [\"*\"]\nprincipals = [\"*\"]"),
        ("tenant-a", "agent", "agents = [\"assistant\"]\nprincipals = [\"tenant-a\"]"),
        ("chat", "approver", "asserts_principal = [\"*\"]"),
        ("team", "approver", "asserts_principal = [\"team-*\"]"),
        ("dana", "approver", "principal = \"dana\""),
        ("ops", "operator", ""),
    ] {
        caller(name, role, &format!("token_sha256 = \"{}\"\n{rest}", hash(name)));
    }
    for (name, role, rest) in [
        ("jwt-people", "approver", ""),
        ("jwt-runtime", "agent", "agents = [\"*\"]\nprincipals = [\"*\"]"),
        ("jwt-own", "agent", "agents = [\"*\"]\nprincipals = [\"*\"]\nprincipal_claim = \"sub\""),
        ("jwt-chat", "approver", "asserts_principal = [\"*\"]"),
        ("jwt-team", "approver", "asserts_principal = [\"team-*\"]"),
        ("jwt-ops", "operator", ""),
    ] {
        caller(name, role, &format!("issuer = \"corp\"\nclaims = {{ azp = \"{name}\" }}\n{rest}"));
    }
    let uid = rustix::process::getuid().as_raw();
    caller("by-uid", "agent", &format!("uid = {uid}\nagents = [\"*\"]\nprincipals = [\"olga\"]"));
    let path = folder.join("countersign.toml");
    std::fs::write(&path, text).unwrap();
    let config = Config::load(Some(&path), &Overrides::default()).unwrap();
    Config { callers: config.callers, ..config_in(folder) }
}

/// A token of the issuer for the caller of this name, an hour long from when tests begin, with these further claims.
fn jwt(caller: &str, subject: &str, more: &str) -> String {
    let exp = START.micros() / 1_000_000 + 3_600;
    let claims =
        format!(r#"{{"iss":"{ISSUER}","aud":["countersign"],"exp":{exp},"sub":"{subject}","azp":"{caller}"{more}}}"#);
    SIGNER.token(&SIGNER.header("k"), &claims)
}

async fn start(folder: &Path, config: &Config) -> (Running, Arc<countersign::clock::ManualClock>) {
    std::fs::write(folder.join("policy.yaml"), POLICY).unwrap();
    let clock = Arc::new(countersign::clock::ManualClock::at(START));
    (serve(config, Arc::<countersign::clock::ManualClock>::clone(&clock)).await.unwrap(), clock)
}

/// One call of a method with the bytes of a request, by these credentials.
async fn call<T: prost::Message + Default + 'static>(
    channel: &Channel,
    path: &'static str,
    credentials: &[String],
    message: T,
) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let mut request = Request::new(message);
    for credential in credentials {
        let value: MetadataValue<Ascii> = format!("Bearer {credential}").parse().unwrap();
        request.metadata_mut().append("authorization", value);
    }
    let path = PathAndQuery::from_static(path);
    let mut answers = client.server_streaming(request, path, ProstCodec::<T, ()>::default()).await?.into_inner();
    answers.message().await.map(|_| ())
}

/// For whom a request is.
#[derive(Clone, Copy)]
struct For<'a> {
    principal: &'a str,
    person: &'a str,
    approval: &'a str,
    execution: &'a str,
    wait: &'a str,
}

/// Calls a method with a request that is right but for the ids in it.
async fn ask(channel: &Channel, path: &'static str, credentials: &[String], whose: For<'_>) -> Result<(), Status> {
    let (principal, agent) = (whose.principal.to_owned(), "assistant".to_owned());
    let (approval_id, person) = (whose.approval.to_owned(), whose.person.to_owned());
    let invocation = Some(Invocation { principal: principal.clone(), ..email() });
    let wait_id = whose.wait.to_owned();
    macro_rules! with {
        ($message:expr) => {
            call(channel, path, credentials, $message).await
        };
    }
    match path.rsplit_once("countersign.v1.").unwrap().1 {
        "AgentService/Evaluate" => with!(EvaluateRequest { invocation, explain: false }),
        "AgentService/BatchEvaluate" => {
            with!(BatchEvaluateRequest { requests: vec![EvaluateRequest { invocation, explain: false }] })
        }
        "AgentService/RequestApproval" => with!(RequestApprovalRequest { invocation, ..Default::default() }),
        "AgentService/Consume" => {
            with!(ConsumeRequest { attempt_id: new_attempt(), invocation, ..Default::default() })
        }
        "AgentService/GetApproval" => with!(AgentServiceGetApprovalRequest { principal, agent, approval_id }),
        "AgentService/WatchApproval" => with!(WatchApprovalRequest { principal, agent, approval_id }),
        "AgentService/CancelApproval" => {
            with!(CancelApprovalRequest { principal, agent, approval_id, ..Default::default() })
        }
        "AgentService/ReportOutcome" => with!(ReportOutcomeRequest {
            principal,
            agent,
            execution_id: whose.execution.to_owned(),
            outcome: Outcome::Succeeded.into(),
            ..Default::default()
        }),
        "AgentService/OpenWait" => with!(OpenWaitRequest {
            principal,
            agent,
            objective: email().objective,
            summary: "waits".to_owned(),
            ..Default::default()
        }),
        "AgentService/GetWait" => with!(GetWaitRequest { principal, agent, wait_id }),
        "AgentService/ResumeWait" => with!(ResumeWaitRequest {
            principal,
            agent,
            wait_id,
            transcript: "t1".to_owned(),
            version: 1,
            attempt_id: new_attempt(),
        }),
        "AgentService/CloseWait" => with!(CloseWaitRequest { principal, agent, wait_id, ..Default::default() }),
        "ApproverService/ListApprovals" => with!(ListApprovalsRequest { principal: person, ..Default::default() }),
        "ApproverService/WatchApprovals" => with!(WatchApprovalsRequest { principal: person, ..Default::default() }),
        "ApproverService/GetApproval" => with!(ApproverServiceGetApprovalRequest { principal: person, approval_id }),
        "ApproverService/GetApprovalArguments" => with!(GetApprovalArgumentsRequest { principal: person, approval_id }),
        "ApproverService/Decide" => {
            with!(DecideRequest { principal: person, approval_id, verdict: Verdict::Deny.into(), ..Default::default() })
        }
        "ApproverService/RevokeApproval" => {
            with!(RevokeApprovalRequest { principal: person, approval_id, ..Default::default() })
        }
        // What an operator asks for is in nobody's bounds.
        _ => with!(GetPolicyRequest {}),
    }
}

#[tokio::test]
async fn every_rpc_as_every_kind_of_caller_in_and_out_of_its_bounds() {
    let folder = Folder::new();
    let config = with_issuer(folder.path(), "");
    let (running, _) = start(folder.path(), &config).await;
    let tcp = client::channel(running.address()).unwrap();
    let none = nothing();
    // `olga` asks, and `dana` is nobody to her; ids are of nothing, so that whatever gets through does no harm.
    let ids = For { principal: "olga", person: "olga", approval: &none, execution: &none, wait: &none };
    let refusal = |result: Result<(), Status>| result.err().map(|status| (status.code(), reason(&status)));
    let bad_token = [token("stranger"), jwt("nobody", "olga", ""), format!("{}x", jwt("jwt-runtime", "olga", ""))];
    for access in ACCESS {
        let path = access.path;
        let asked = async |credential: &str, whose| refusal(ask(&tcp, path, &[credential.to_owned()], whose).await);
        // Nobody.
        let missing = refusal(ask(&tcp, path, &[], ids).await);
        assert_eq!(missing, Some((Code::Unauthenticated, "CREDENTIALS_MISSING".to_owned())), "{path}");
        let two = [token("runtime"), jwt("jwt-people", "olga", "")];
        assert_eq!(refusal(ask(&tcp, path, &two, ids).await), missing, "{path}");
        for (bad, why) in bad_token.iter().zip(["CREDENTIALS_INVALID", "CREDENTIALS_INVALID", "JWT_INVALID"]) {
            assert_eq!(asked(bad, ids).await, Some((Code::Unauthenticated, why.to_owned())), "{path}");
        }
        // Of each kind: its role, its credential, and whether it may act or speak for olga.
        let callers = [
            (Role::Agent, token("runtime"), true),
            (Role::Agent, token("tenant-a"), false),
            (Role::Agent, jwt("jwt-runtime", "dana", ""), true),
            (Role::Agent, jwt("jwt-own", "olga", ""), true),
            (Role::Agent, jwt("jwt-own", "dana", ""), false),
            (Role::Agent, jwt("jwt-own", "*", ""), false),
            (Role::Approver, token("chat"), true),
            (Role::Approver, token("team"), false),
            (Role::Approver, token("dana"), false),
            (Role::Approver, jwt("jwt-people", "olga", ""), true),
            (Role::Approver, jwt("jwt-people", "dana", ""), false),
            (Role::Approver, jwt("jwt-people", "*", ""), false),
            (Role::Approver, jwt("jwt-chat", "dana", ""), true),
            (Role::Approver, jwt("jwt-team", "olga", ""), false),
            (Role::Operator, token("ops"), true),
            (Role::Operator, jwt("jwt-ops", "dana", ""), true),
        ];
        for (number, (has, credential, within)) in callers.iter().enumerate() {
            let got = asked(credential, ids).await;
            let why = format!("{path} as {number}: {got:?}");
            if *has != access.role {
                assert_eq!(got, Some((Code::PermissionDenied, "ROLE_NOT_ALLOWED".to_owned())), "{why}");
                continue;
            }
            let out = Some((Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS".to_owned()));
            match access.bounds {
                Bounds::Invocation | Bounds::Pair | Bounds::Person if !within => assert_eq!(got, out, "{why}"),
                // An item that is out of bounds is an answer.
                Bounds::Invocations => assert_eq!(got, None, "{why}"),
                // The message is empty, which some take and some do not, and there may be no checkpoint yet: in any case the
                // caller was let in.
                Bounds::Everything => {
                    let let_in =
                        got.as_ref().is_none_or(|(code, _)| [Code::InvalidArgument, Code::NotFound].contains(code));
                    assert!(let_in, "{why}");
                }
                // Within bounds or not: what is not there is not there.
                Bounds::Record => assert_eq!(got.unwrap().0, Code::NotFound, "{why}"),
                Bounds::Invocation | Bounds::Pair | Bounds::Person => {
                    let let_in = got
                        .as_ref()
                        .is_none_or(|(code, reason)| *code == Code::NotFound || reason == "APPROVAL_REQUIRED");
                    assert!(let_in, "{why}");
                }
            }
        }
    }
    assert!(running.stop().await);
}

#[tokio::test]
async fn what_is_out_of_bounds_is_as_if_it_were_not_there_whatever_the_credential() {
    let folder = Folder::new();
    let config = with_issuer(folder.path(), "");
    let (running, _) = start(folder.path(), &config).await;
    let tcp = client::channel(running.address()).unwrap();
    let mut agent = client::agent(tcp.clone(), client::Bearer::new(&jwt("jwt-runtime", "x", "")).unwrap());
    let asked = RequestApprovalRequest { invocation: Some(email()), ..Default::default() };
    let approval = agent.request_approval(asked).await.unwrap().into_inner().approval.unwrap();
    let fetched = ConsumeRequest { attempt_id: new_attempt(), invocation: Some(fetch()), ..Default::default() };
    let execution = agent.consume(fetched).await.unwrap().into_inner().permit.unwrap().execution_id;
    let opened = OpenWaitRequest {
        principal: "olga".to_owned(),
        agent: "assistant".to_owned(),
        objective: email().objective,
        summary: "waits".to_owned(),
        ..Default::default()
    };
    let wait = agent.open_wait(opened).await.unwrap().into_inner().wait.unwrap().id;
    let none = nothing();
    let theirs = For { principal: "olga", person: "", approval: &approval.id, execution: &execution, wait: &wait };
    let absent = For { approval: &none, execution: &none, wait: &none, ..theirs };
    let (stranger, nobodys) = (jwt("jwt-own", "dana", ""), jwt("jwt-people", "mallory", ""));
    for access in ACCESS {
        let credential = match access.bounds {
            Bounds::Record => &stranger,
            Bounds::Person if !access.path.contains("List") && !access.path.contains("Watch") => &nobodys,
            _ => continue,
        };
        let there = ask(&tcp, access.path, std::slice::from_ref(credential), theirs).await.expect_err(access.path);
        let not = ask(&tcp, access.path, std::slice::from_ref(credential), absent).await.expect_err(access.path);
        assert_eq!(there.code(), Code::NotFound, "{}", access.path);
        assert_eq!(all_of(&there), all_of(&not), "{}", access.path);
    }
    assert!(running.stop().await);
}

#[tokio::test]
async fn a_process_is_who_it_runs_as_unless_it_says_otherwise() {
    let folder = Folder::new();
    let mut config = with_issuer(folder.path(), "");
    config.listen = Address::Unix(folder.path().join("x.sock"));
    let (running, _) = start(folder.path(), &config).await;
    let channel = client::channel(running.address()).unwrap();
    let path = "/countersign.v1.AgentService/Evaluate";
    let of = |principal: &str| EvaluateRequest {
        invocation: Some(Invocation { principal: principal.to_owned(), ..email() }),
        explain: false,
    };
    call(&channel, path, &[], of("olga")).await.unwrap();
    refused(call(&channel, path, &[], of("dana")).await, Code::PermissionDenied, "CALLER_OUT_OF_BOUNDS");
    call(&channel, path, &[token("runtime")], of("dana")).await.unwrap();
    // A bad header never falls back on who the process is; nor do two.
    refused(call(&channel, path, &["x".to_owned()], of("olga")).await, Code::Unauthenticated, "CREDENTIALS_INVALID");
    let two = [token("runtime"), token("runtime")];
    refused(call(&channel, path, &two, of("olga")).await, Code::Unauthenticated, "CREDENTIALS_MISSING");
    let decide = "/countersign.v1.ApproverService/ListApprovals";
    let list = ListApprovalsRequest::default();
    refused(call(&channel, decide, &[], list).await, Code::PermissionDenied, "ROLE_NOT_ALLOWED");
    assert!(running.stop().await);
}

#[tokio::test]
async fn a_stream_ends_with_its_token_and_with_its_issuer() {
    let folder = Folder::new();
    let config = with_issuer(folder.path(), "");
    let (running, clock) = start(folder.path(), &config).await;
    let watch = async |subject: &str| {
        let bearer = client::Bearer::new(&jwt("jwt-people", subject, "")).unwrap();
        let mut approver = client::approver(client::channel(running.address()).unwrap(), bearer);
        let mut told = approver.watch_approvals(WatchApprovalsRequest::default()).await.unwrap().into_inner();
        told.message().await.unwrap().unwrap();
        told
    };
    let mut expiring = watch("dana").await;
    clock.advance(std::time::Duration::from_secs(3_629));
    let mut again = watch("eve").await;
    clock.advance(std::time::Duration::from_secs(1));
    let ended = expiring.message().await.map(drop);
    refused(ended, Code::Unauthenticated, "CREDENTIALS_ENDED");
    refused(again.message().await.map(drop), Code::Unauthenticated, "CREDENTIALS_ENDED");
    clock.set_wall(START);
    let mut removed = watch("dana").await;
    running.reload().configuration(&config_in(folder.path())).await;
    refused(removed.message().await.map(drop), Code::Unauthenticated, "CREDENTIALS_ENDED");
    assert!(running.stop().await);
}

#[tokio::test]
async fn a_group_of_a_token_counts_only_where_the_policy_says_external() {
    let policy = |groups: &str| {
        format!(
            "version: countersign.policy/v1\ngroups: {groups}\nconnectors:\n  gmail:\n    ceiling: write\n    confirm: never\n    actions:\n      \
             GMAIL_SEND_EMAIL: {{ scope: write, curated: true }}\n    rules:\n      - name: two\n        effect: confirm\n        \
             approvers: [{{ any_of: [\"group:oncall\"], quorum: 2 }}]\n"
        )
    };
    for (groups, counts) in
        [("{ oncall: { members: [kim], external: true } }", true), ("{ oncall: [kim, lou] }", false)]
    {
        let folder = Folder::new();
        let config = with_issuer(folder.path(), "");
        std::fs::write(folder.path().join("policy.yaml"), policy(groups)).unwrap();
        let clock = Arc::new(countersign::clock::ManualClock::at(START));
        let running = serve(&config, clock).await.unwrap();
        let channel = client::channel(running.address()).unwrap();
        let agent = client::Bearer::new(&token("runtime")).unwrap();
        let asked = RequestApprovalRequest { invocation: Some(email()), ..Default::default() };
        let asked = client::agent(channel.clone(), agent).request_approval(asked).await.unwrap().into_inner();
        let id = asked.approval.unwrap().id;
        let decide = async |subject: &str, more: &str| {
            let bearer = client::Bearer::new(&jwt("jwt-people", subject, more)).unwrap();
            let request =
                DecideRequest { approval_id: id.clone(), verdict: Verdict::Approve.into(), ..Default::default() };
            let decided = client::approver(channel.clone(), bearer).decide(request).await;
            decided.map(|decided| decided.into_inner().approval.unwrap())
        };
        // A group of the issuer that is called as the policy's is not that one.
        for more in ["", r#","groups":["oncall"]"#, r#","groups":["IDP-oncall"]"#] {
            refused(decide("nia", more).await, Code::NotFound, "APPROVAL_NOT_FOUND");
        }
        let of_token = decide("nia", r#","groups":["x","idp-oncall"]"#).await;
        if counts {
            let approval = of_token.unwrap();
            assert_eq!(
                (approval.state(), &approval.decisions[0].groups),
                (ApprovalState::Pending, &vec!["oncall".to_owned()])
            );
            let approval = decide("kim", "").await.unwrap();
            assert_eq!(approval.state(), ApprovalState::Approved);
        } else {
            refused(of_token, Code::NotFound, "APPROVAL_NOT_FOUND");
        }
        assert!(running.stop().await);
    }
}

#[tokio::test]
async fn one_caller_at_its_limits_disturbs_no_other() {
    let folder = Folder::new();
    let mut config = with_issuer(folder.path(), "");
    std::fs::write(folder.path().join("policy.yaml"), POLICY).unwrap();
    let hash = |name: &str| countersign::auth::token::TokenHash::of(token(name).as_bytes());
    let text = ["slow", "many", "watcher"].map(|name| {
        let limit = match name {
            "slow" => "rate = 2\nburst = 3",
            "many" => "calls = 1",
            _ => "streams = 2",
        };
        let role = if name == "watcher" { "approver" } else { "agent" };
        let bounds =
            if name == "watcher" { "asserts_principal = [\"*\"]" } else { "agents = [\"*\"]\nprincipals = [\"*\"]" };
        format!(
            "[[callers]]\nname = \"{name}\"\nrole = \"{role}\"\ntoken_sha256 = \"{}\"\n{bounds}\n{limit}\n",
            hash(name)
        )
    });
    let others = format!(
        "[[callers]]\nname = \"free\"\nrole = \"agent\"\ntoken_sha256 = \"{}\"\nagents = [\"*\"]\nprincipals = [\"*\"]\n",
        hash("free")
    );
    std::fs::write(folder.path().join("limits.toml"), text.concat() + &others).unwrap();
    config.callers = Config::load(Some(&folder.path().join("limits.toml")), &Overrides::default()).unwrap().callers;
    let clock = Arc::new(countersign::clock::ManualClock::at(START));
    let running = serve(&config, Arc::<countersign::clock::ManualClock>::clone(&clock)).await.unwrap();
    let channel = client::channel(running.address()).unwrap();
    let path = "/countersign.v1.AgentService/Evaluate";
    let evaluate = async |name: &str| {
        call(&channel, path, &[token(name)], EvaluateRequest { invocation: Some(fetch()), explain: false }).await
    };
    for _ in 0..3 {
        evaluate("slow").await.unwrap();
    }
    let status = refused(evaluate("slow").await, Code::ResourceExhausted, "CALLER_RATE_LIMIT");
    assert_eq!((told(&status, "limit_name"), told(&status, "limit")), ("rate_per_caller".to_owned(), "2".to_owned()));
    let retry = tonic_types::StatusExt::get_details_retry_info(&status).unwrap().retry_delay.unwrap();
    evaluate("free").await.unwrap();
    clock.advance(retry);
    evaluate("slow").await.unwrap();

    // A call whose message never ends is under way until it is let go of.
    let mut held = crate::grpc::wire::RawCall::open(running.address(), path, Some(&token("many"))).await;
    held.has_arrived().await;
    let status = refused(evaluate("many").await, Code::ResourceExhausted, "CALLER_CALLS_LIMIT");
    assert_eq!((told(&status, "limit_name"), told(&status, "limit")), ("calls_per_caller".to_owned(), "1".to_owned()));
    evaluate("free").await.unwrap();
    held.send(&EvaluateRequest { invocation: Some(fetch()), explain: false }.encode_to_vec()).await;
    assert!(held.gets_an_answer().await);
    evaluate("many").await.unwrap();

    let watch = async || {
        let bearer = client::Bearer::new(&token("watcher")).unwrap();
        let request = WatchApprovalsRequest { principal: "olga".to_owned(), ..Default::default() };
        client::approver(channel.clone(), bearer).watch_approvals(request).await
    };
    let (mut first, second) = (watch().await.unwrap().into_inner(), watch().await.unwrap());
    first.message().await.unwrap().unwrap();
    let status = refused(watch().await.map(drop), Code::ResourceExhausted, "CALLER_STREAMS_LIMIT");
    assert_eq!(told(&status, "limit_name"), "streams_per_caller");
    drop((first, second));
    // The server hears of it when it hears of it.
    while watch().await.is_err() {
        tokio::task::yield_now().await;
    }
    assert!(running.stop().await);
}

/// A server of a key set on loopback that counts who asks. It answers with whatever it is told to.
struct KeyServer {
    url: String,
    asked: Arc<std::sync::atomic::AtomicU32>,
    answer: Arc<std::sync::Mutex<String>>,
}

impl KeyServer {
    async fn start() -> Self {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let asked = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let answer = Arc::new(std::sync::Mutex::new("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n".to_owned()));
        let (counted, told) = (Arc::clone(&asked), Arc::clone(&answer));
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 4_096]).await;
                let answer = told.lock().unwrap().clone();
                counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { url, asked, answer }
    }

    fn answers(&self, status: &str, headers: &str, body: &str) {
        let length = body.len();
        *self.answer.lock().unwrap() =
            format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}");
    }

    fn asked(&self) -> u32 {
        self.asked.load(std::sync::atomic::Ordering::SeqCst)
    }
}

#[tokio::test]
async fn keys_are_fetched_as_often_as_is_said_whoever_comes_and_the_last_good_ones_stay() {
    let server = KeyServer::start().await;
    let folder = Folder::new();
    let text = format!(
        "[[issuers]]\nname = \"corp\"\nissuer = \"{ISSUER}\"\naudience = \"countersign\"\njwks_url = \"{}\"\n\
         refresh_at_most_every = \"1m\"\nrefresh_at_least_every = \"1h\"\n\
         [[callers]]\nname = \"jwt-people\"\nrole = \"approver\"\nissuer = \"corp\"\nclaims = {{ azp = \"jwt-people\" }}\n",
        server.url
    );
    std::fs::write(folder.path().join("countersign.toml"), text).unwrap();
    let loaded = Config::load(Some(&folder.path().join("countersign.toml")), &Overrides::default()).unwrap();
    let config = Config { callers: loaded.callers, ..config_in(folder.path()) };
    let (running, clock) = start(folder.path(), &config).await;
    let channel = client::channel(running.address()).unwrap();
    let list = async |credential: String| {
        let path = "/countersign.v1.ApproverService/ListApprovals";
        call(&channel, path, &[credential], ListApprovalsRequest::default()).await
    };
    let good = || jwt("jwt-people", "dana", "");
    let unknown = |number: u32| {
        let stranger = Signer::ed();
        stranger.token(&stranger.header(&format!("new-{number}")), &format!(r#"{{"iss":"{ISSUER}"}}"#))
    };
    // The sidecar looks four times a second by the machine's time; what it does then goes by the test's.
    let asked = async |times: u32| {
        while server.asked() < times {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    asked(1).await;
    refused(list(good()).await, Code::Unavailable, "ISSUER_KEYS_MISSING");
    let keys = key_set(&[SIGNER.jwk(r#""kid":"k","#)]);
    server.answers("200 OK", "", &keys);
    clock.advance(std::time::Duration::from_secs(60));
    asked(2).await;
    while list(good()).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    // Whatever it answers from here on, what was good stays so: an error, a redirect, too much, no key set.
    let huge = format!("{{\"keys\":[],\"x\":\"{}\"}}", "x".repeat(300_000));
    let redirect = format!("location: {}/elsewhere\r\n", server.url);
    for (number, (status, headers, body)) in (3..).zip([
        ("500 No", "", ""),
        ("302 Found", redirect.as_str(), ""),
        ("200 OK", "", huge.as_str()),
        ("200 OK", "", "<html>"),
    ]) {
        server.answers(status, headers, body);
        for flood in 0..10 {
            refused(list(unknown(flood)).await, Code::Unauthenticated, "JWT_KEY_UNKNOWN");
        }
        assert_eq!(server.asked(), number - 1, "a minute has not passed");
        clock.advance(std::time::Duration::from_secs(60));
        asked(number).await;
        list(good()).await.unwrap();
    }
    let before = server.asked();
    server.answers("200 OK", "", &key_set(&[Signer::ed().jwk(r#""kid":"other","#)]));
    refused(list(unknown(0)).await, Code::Unauthenticated, "JWT_KEY_UNKNOWN");
    clock.advance(std::time::Duration::from_secs(60));
    asked(before + 1).await;
    while list(good()).await.is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    refused(list(good()).await, Code::Unauthenticated, "JWT_KEY_UNKNOWN");
    assert!(running.stop().await);
}
