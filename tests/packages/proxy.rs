//! The connector's proxy of `examples/connector-proxy`, end to end: a real sidecar lets calls through, and the proxy, which alone
//! has the credential, makes exactly those.

use crate::clients::{Folder, Sidecar, Transport};
use crate::python::PYTHON;
use crate::upstream::Upstream;
use countersign::client::{self, Authenticated, Bearer};
use countersign::domain::permit::{Claims, encode, header};
use countersign::proto::agent_service_client::AgentServiceClient;
use countersign::proto::{ConsumeRequest, Invocation, Permit};
use countersign::secrets::{Keys, PermitKeys, ServerSecret};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use uuid::Uuid;

const ARGUMENTS: &str = r#"{"query":"from:kim","max":10}"#;
const ACTION: &str = "GMAIL_FETCH_EMAILS";
const CREDENTIAL: &str = "upstream-credential-0123456789";

/// Sidecar, proxy and the service behind it.
struct Scene {
    sidecar: Sidecar,
    upstream: Upstream,
    proxy: Option<Proxy>,
    folder: Folder,
}

/// The proxy's process; killed when dropped.
struct Proxy {
    process: Child,
    address: String,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Scene {
    fn set() -> Self {
        let folder = Folder::new();
        let sidecar = Sidecar::start(&folder.0, Transport::Tcp);
        let mut scene = Self { sidecar, upstream: Upstream::start(), proxy: None, folder };
        fs::write(scene.folder.0.join("credential"), format!("{CREDENTIAL}\n")).unwrap();
        let keys = format!("http://{}/.well-known/jwks.json", scene.sidecar.health_address);
        scene.start_proxy(&keys);
        scene
    }

    /// Starts the proxy, also in the place of one that runs; what it remembers is in its file.
    fn start_proxy(&mut self, keys: &str) {
        self.proxy = None;
        let folder = &self.folder.0;
        let mut command = PYTHON.command();
        command.arg("examples/connector-proxy/proxy.py").args(["--listen", "127.0.0.1:0", "--jwks", keys]);
        command.args(["--upstream", &format!("http://{}/v1", self.upstream.address)]);
        command.arg("--credential-file").arg(folder.join("credential")).arg("--used").arg(folder.join("used.db"));
        command.args(["--connector", "gmail", "--account", "work-mailbox-a"]);
        command.args(["--action", ACTION, "--action", "GMAIL_SEND_EMAIL"]);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("the proxy listens").to_owned();
        self.proxy = Some(Proxy { process, address });
    }

    /// A permit from the sidecar, for this account and these arguments.
    fn permit(&self, account: &str, arguments: &str) -> Permit {
        let token = fs::read_to_string(self.folder.dev().join("agent.token")).unwrap();
        let request = ConsumeRequest {
            attempt_id: Uuid::new_v4().to_string(),
            invocation: Some(Invocation {
                principal: "dana".to_owned(),
                agent: "assistant".to_owned(),
                connector: "gmail".to_owned(),
                account: account.to_owned(),
                action: ACTION.to_owned(),
                arguments_json: arguments.to_owned(),
                ..Invocation::default()
            }),
            ..ConsumeRequest::default()
        };
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let channel = client::channel_to(&self.sidecar.address).unwrap();
            let mut agent: AgentServiceClient<Authenticated> =
                client::agent(channel, Bearer::new(token.trim()).unwrap());
            agent.consume(request).await.unwrap().into_inner().permit.unwrap()
        })
    }

    /// The keys of the sidecar's own secret, as somebody has them who can sign whatever the sidecar could.
    fn keys(&self) -> Keys {
        let dev = self.folder.dev();
        let secret = fs::read_dir(&dev).unwrap().map(|entry| entry.unwrap().path());
        let secret = secret.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "secret")).unwrap();
        ServerSecret::read(&secret).unwrap().unwrap().keys().unwrap()
    }

    fn address(&self) -> &str {
        &self.proxy.as_ref().unwrap().address
    }

    fn asks(&self, action: &str, permit: &str, arguments: &str) -> (u16, String) {
        sends(self.address(), action, &[&format!("countersign-permit: {permit}")], arguments)
    }

    #[track_caller]
    fn refused(&self, permit: &str, arguments: &str, status: u16, reason: &str) {
        assert_eq!(self.asks(ACTION, permit, arguments), (status, reason.to_owned()));
    }
}

/// What the proxy at this address answers: its status, and its reason, or the body where it gives none.
fn sends(address: &str, action: &str, head: &[&str], body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head: String = head.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    write!(
        stream,
        "POST /actions/{action} HTTP/1.1\r\nhost: proxy\r\nconnection: close\r\ncontent-length: {length}\r\n{head}\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let told: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let reason = told.and_then(|told| told["reason"].as_str().map(str::to_owned));
    (status, reason.unwrap_or_else(|| body.to_owned()))
}

#[test]
fn a_call_is_made_once_and_only_for_a_permit_of_exactly_this_call() {
    let mut scene = Scene::set();
    let permit = scene.permit("work-mailbox-a", ARGUMENTS);
    let token = permit.permit_jwt.as_str();

    // A good permit, for something else than is asked.
    scene.refused(token, r#"{"query":"from:kim","max":11}"#, 403, "PERMIT_ARGUMENTS_CHANGED");
    scene.refused(token, "", 403, "PERMIT_ARGUMENTS_CHANGED");
    scene.refused(token, r#"{"query":"from:kim","max":10,"max":11}"#, 400, "ARGUMENTS_REFUSED");
    assert_eq!(scene.asks("GMAIL_SEND_EMAIL", token, ARGUMENTS), (403, "PERMIT_ACTION_MISMATCH".to_owned()));
    assert_eq!(scene.asks("GMAIL_DELETE_EMAIL", token, ARGUMENTS), (404, "ACTION_UNKNOWN".to_owned()));
    let other = scene.permit("work-mailbox-b", ARGUMENTS);
    scene.refused(&other.permit_jwt, ARGUMENTS, 403, "PERMIT_ACCOUNT_MISMATCH");

    // No permit at all.
    assert_eq!(sends(scene.address(), ACTION, &[], ARGUMENTS), (401, "PERMIT_MISSING".to_owned()));
    let twice = format!("countersign-permit: {token}");
    assert_eq!(sends(scene.address(), ACTION, &[&twice, &twice], ARGUMENTS), (401, "PERMIT_MISSING".to_owned()));
    scene.refused("", ARGUMENTS, 401, "PERMIT_MALFORMED");
    assert!(scene.upstream.called().is_empty(), "nothing was refused after the call");

    // Equal arguments, however they are written; then never again, also not after a restart.
    let (status, body) = scene.asks(ACTION, token, r#" { "max": 1e1, "query": "from:\u006bim" } "#);
    assert_eq!((status, body.as_str()), (200, r#"{"id":"m-1"}"#));
    scene.refused(token, ARGUMENTS, 403, "PERMIT_ALREADY_USED");
    let keys = format!("http://{}/jwks.json", scene.sidecar.health_address);
    scene.start_proxy(&keys);
    scene.refused(token, ARGUMENTS, 403, "PERMIT_ALREADY_USED");

    let called = scene.upstream.called();
    assert_eq!(called.len(), 1, "{called:?}");
    assert_eq!(called[0].request, format!("POST /v1/{ACTION} HTTP/1.1"));
    assert_eq!(called[0].body, r#"{"max":10,"query":"from:kim"}"#, "what was checked is what is sent");
    for line in [format!("authorization: Bearer {CREDENTIAL}"), format!("idempotency-key: {}", permit.idempotency_key)]
    {
        assert!(called[0].head.contains(&line), "{line} in {called:?}");
    }
    assert!(!format!("{called:?}").contains(token), "the permit ends here");
}

#[test]
fn a_permit_that_is_forged_or_out_of_its_time_is_none() {
    let scene = Scene::set();
    let genuine = scene.permit("work-mailbox-a", ARGUMENTS).permit_jwt;
    let keys = scene.keys();
    let claims =
        PermitKeys::parse(&PermitKeys::of(&countersign::secrets::Keyring::new(scene.keys(), vec![])).to_jwks())
            .unwrap()
            .verify(&genuine)
            .unwrap();
    // Signed with the sidecar's own key: whatever is refused here is refused for what it says.
    let says = |claims: Claims| keys.permit().sign(&claims).unwrap().as_str().to_owned();
    let hour = 3_600;
    let expired = Claims { issued_at: claims.issued_at - hour, expires_at: claims.expires_at - hour, ..claims.clone() };
    scene.refused(&says(expired), ARGUMENTS, 401, "PERMIT_EXPIRED");
    let early = Claims { issued_at: claims.issued_at + hour, expires_at: claims.expires_at + hour, ..claims.clone() };
    scene.refused(&says(early), ARGUMENTS, 401, "PERMIT_NOT_YET_VALID");
    let name = |text: &str| countersign::domain::text::Identifier::parse(text).unwrap();
    let issuer = Claims { issuer: name("other"), ..claims.clone() };
    scene.refused(&says(issuer), ARGUMENTS, 401, "PERMIT_ISSUER_MISMATCH");
    let audience = Claims { audience: name("other"), ..claims.clone() };
    scene.refused(&says(audience), ARGUMENTS, 401, "PERMIT_AUDIENCE_MISMATCH");
    let connector = Claims { connector: name("outlook"), ..claims.clone() };
    scene.refused(&says(connector), ARGUMENTS, 403, "PERMIT_CONNECTOR_MISMATCH");
    scene.refused(&says(Claims { account: None, ..claims.clone() }), ARGUMENTS, 403, "PERMIT_ACCOUNT_MISMATCH");

    // Of another secret, and of another key of the same one.
    let other = ServerSecret::generate().unwrap().keys().unwrap();
    scene.refused(other.permit().sign(&claims).unwrap().as_str(), ARGUMENTS, 401, "PERMIT_KEY_UNKNOWN");
    let signed = format!("{}.{}", encode(header(keys.permit().id())), encode(claims.to_json()));
    let checkpoint = keys.checkpoint().sign(signed.as_bytes()).unwrap();
    scene.refused(&format!("{signed}.{}", encode(checkpoint)), ARGUMENTS, 401, "PERMIT_SIGNATURE_INVALID");

    let payload = encode(claims.to_json());
    let with_header = |header: &str, signature: &str| format!("{}.{payload}.{signature}", encode(header));
    let id = keys.permit().id();
    for (token, reason) in [
        (with_header(r#"{"alg":"none","typ":"JWT"}"#, ""), "PERMIT_ALGORITHM_REFUSED"),
        (
            with_header(&format!(r#"{{"alg":"none","kid":"{id}","typ":"countersign-permit+jwt"}}"#), ""),
            "PERMIT_ALGORITHM_REFUSED",
        ),
        (
            with_header(&format!(r#"{{"alg":"HS256","kid":"{id}","typ":"countersign-permit+jwt"}}"#), "AAAA"),
            "PERMIT_ALGORITHM_REFUSED",
        ),
        (with_header(&format!(r#"{{"alg":"EdDSA","kid":"{id}","typ":"JWT"}}"#), "AAAA"), "PERMIT_TYPE_MISMATCH"),
        (
            with_header(
                &format!(r#"{{"alg":"EdDSA","crit":["x"],"kid":"{id}","typ":"countersign-permit+jwt"}}"#),
                "AAAA",
            ),
            "PERMIT_MALFORMED",
        ),
        (
            with_header(
                &format!(r#"{{"alg":"none","alg":"EdDSA","kid":"{id}","typ":"countersign-permit+jwt"}}"#),
                "AAAA",
            ),
            "PERMIT_MALFORMED",
        ),
        (with_header(&header(id), ""), "PERMIT_SIGNATURE_INVALID"),
        (with_header(&header(id), "AAAA"), "PERMIT_SIGNATURE_INVALID"),
        (format!("{genuine}="), "PERMIT_MALFORMED"),
        (format!("{genuine}.x"), "PERMIT_MALFORMED"),
        ("a.b".to_owned(), "PERMIT_MALFORMED"),
        (format!("{}.{}.{}", "A".repeat(20_000), "B", "C"), "PERMIT_MALFORMED"),
    ] {
        scene.refused(&token, ARGUMENTS, 401, reason);
    }
    assert!(scene.upstream.called().is_empty());
    assert_eq!(scene.asks(ACTION, &genuine, ARGUMENTS).0, 200, "none of that used the genuine one up");
}

#[test]
fn of_many_simultaneous_calls_with_one_permit_one_is_made() {
    let scene = Scene::set();
    let token = scene.permit("work-mailbox-a", ARGUMENTS).permit_jwt;
    let (address, head) = (scene.address(), format!("countersign-permit: {token}"));
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let call = || sends(address, ACTION, &[&head], ARGUMENTS).0;
        let calls: Vec<_> = (0..12).map(|_| scope.spawn(call)).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|status| **status == 403).count(), 11, "{answers:?}");
    assert_eq!(scene.upstream.called().len(), 1);
}

#[test]
fn without_the_sidecars_keys_nothing_is_let_through() {
    let mut scene = Scene::set();
    let token = scene.permit("work-mailbox-a", ARGUMENTS).permit_jwt;
    for keys in ["http://127.0.0.1:1/jwks.json".to_owned(), format!("http://{}/readyz", scene.sidecar.health_address)] {
        scene.start_proxy(&keys);
        scene.refused(&token, ARGUMENTS, 503, "KEYS_UNAVAILABLE");
    }
    assert!(scene.upstream.called().is_empty());
}
