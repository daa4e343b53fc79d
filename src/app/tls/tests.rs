//! What a call is told of who makes it, and for how long it is so, over real connections.

use super::*;
use crate::app::incoming::{Entrance, Incoming, Listener};
use crate::app::server;
use crate::auth::PeerCertificate;
use crate::config::ClientCertificates;
use certificates::{Authority, Pair, client};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

#[path = "../../../tests/certificates/mod.rs"]
mod certificates;

const ID: &str = "spiffe://acme.example/agents/assistant";

/// Keeps whom each call is from.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<Peer>>>);

impl tower_service::Service<Request<Body>> for Asked {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.lock().unwrap().push(request.extensions().get::<Peer>().unwrap().clone());
        std::future::ready(Ok(Status::aborted("answered").into_http()))
    }
}

/// A listener with its files in a folder of its own.
struct Listening {
    folder: PathBuf,
    watch: TlsWatch,
    address: SocketAddr,
    asked: Asked,
    metrics: Arc<Metrics>,
    authority: Authority,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Listening {
    /// One that asks for certificates that `clients` vouches for, and has taken these back.
    async fn start(clients: &str, revoked: Option<&str>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("countersign-tls-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let authority = Authority::new("servers");
        let own = authority.server(&["localhost"]);
        let write = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).unwrap();
            folder.join(name)
        };
        let settings = TlsSettings {
            certificate_file: write("own.pem", &own.certificate),
            key_file: write("own.key", &own.key),
            client_ca_file: Some(write("clients.pem", clients)),
            client_certificates: ClientCertificates::Optional,
            crl_files: revoked.map(|list| write("revoked.pem", list)).into_iter().collect(),
        };
        let metrics = Arc::<Metrics>::default();
        let (tls, digest) = Tls::open(&settings, ListenerName::Common, &metrics).unwrap();
        let watch = TlsWatch::new(tls.clone(), digest, Duration::from_millis(1));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let entrance = Entrance { metrics: Arc::clone(&metrics), ..Entrance::default() };
        let incoming = Incoming::new(Listener::Tcp(listener), entrance).sealed(Some(tls), Handle::current());
        let asked = Asked::default();
        tokio::spawn(server().serve_with_incoming(asked.clone(), incoming));
        Self { folder, watch, address, asked, metrics, authority }
    }

    fn channel(&self, identity: Option<&Pair>) -> Channel {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.authority.pem()));
        tls = tls.domain_name("localhost");
        if let Some(identity) = identity {
            tls = tls.identity(Identity::from_pem(&identity.certificate, &identity.key));
        }
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address)).unwrap();
        endpoint.tls_config(tls).unwrap().connect_lazy()
    }

    /// Whom a call on this channel is from, or how it failed.
    async fn peer(&self, channel: &Channel) -> Result<Peer, Status> {
        let mut client = tonic_health::pb::health_client::HealthClient::new(channel.clone());
        let status = client.check(tonic_health::pb::HealthCheckRequest::default()).await.unwrap_err();
        if status.code() == Code::Aborted { Ok(self.asked.0.lock().unwrap().pop().unwrap()) } else { Err(status) }
    }

    async fn certificate(&self, channel: &Channel) -> Arc<PeerCertificate> {
        match self.peer(channel).await.unwrap() {
            Peer::Certificate { certificate, .. } => certificate,
            other => panic!("{other:?}"),
        }
    }

    async fn write(&mut self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).unwrap();
        self.watch.look(true).await;
    }

    fn loads(&self) -> (u64, u64) {
        (self.metrics.connections.tls_loaded.get(), self.metrics.connections.tls_refused.get())
    }
}

#[tokio::test]
async fn a_call_carries_what_the_clients_certificate_says() {
    let clients = Authority::new("clients");
    let listening = Listening::start(&clients.pem(), None).await;
    let channel = listening.channel(Some(&clients.client(ID)));
    let certificate = listening.certificate(&channel).await;
    assert_eq!(certificate.uris, [ID]);
    assert!(certificate.trust.holds());
    let again = listening.certificate(&channel).await;
    assert!(Arc::ptr_eq(&certificate, &again), "it is found out once for each connection");
    let nobody = listening.peer(&listening.channel(None)).await.unwrap();
    assert!(matches!(nobody, Peer::Address(_)), "{nobody:?}");
}

#[tokio::test]
async fn below_an_authority_there_may_be_another() {
    let clients = Authority::new("clients");
    let listening = Listening::start(&clients.pem(), None).await;
    let between = clients.below("between");
    let mut identity = between.client(ID);
    assert!(listening.peer(&listening.channel(Some(&identity))).await.is_err(), "nobody knows who that is");
    identity.certificate.push_str(&between.pem());
    assert_eq!(listening.certificate(&listening.channel(Some(&identity))).await.uris, [ID]);
}

#[tokio::test]
async fn trust_ends_with_the_authority_and_returns_with_it_while_the_connection_lasts() {
    let (clients, others) = (Authority::new("clients"), Authority::new("others"));
    let mut listening = Listening::start(&clients.pem(), None).await;
    let channel = listening.channel(Some(&clients.client(ID)));
    let certificate = listening.certificate(&channel).await;
    listening.write("clients.pem", &(clients.pem() + &others.pem())).await;
    assert!(certificate.trust.holds(), "it is one of two now");
    listening.write("clients.pem", &others.pem()).await;
    assert!(!certificate.trust.holds());
    assert!(!listening.certificate(&channel).await.trust.holds(), "calls on the old connection say so too");
    assert!(listening.peer(&listening.channel(Some(&clients.client(ID)))).await.is_err(), "and there is no new one");
    listening.write("clients.pem", &clients.pem()).await;
    assert!(certificate.trust.holds());
    assert_eq!(listening.loads(), (4, 0));
}

#[tokio::test]
async fn trust_ends_with_one_certificate_that_is_taken_back() {
    let clients = Authority::new("clients");
    let mut listening = Listening::start(&clients.pem(), Some(&clients.takes_back(&[7], true))).await;
    let (one, other) = (clients.numbered(ID, 1), clients.numbered("spiffe://acme.example/2", 2));
    let (first, second) = (listening.channel(Some(&one)), listening.channel(Some(&other)));
    let (one_says, other_says) = (listening.certificate(&first).await, listening.certificate(&second).await);
    listening.write("revoked.pem", &clients.takes_back(&[7, 1], true)).await;
    assert!(!one_says.trust.holds());
    assert!(other_says.trust.holds());
    assert!(listening.peer(&listening.channel(Some(&one))).await.is_err());
    assert!(listening.peer(&listening.channel(Some(&other))).await.is_ok());
}

#[tokio::test]
async fn a_list_that_is_old_or_anothers_lets_nobody_in_who_shows_a_certificate() {
    let (clients, others) = (Authority::new("clients"), Authority::new("others"));
    let mut listening = Listening::start(&clients.pem(), Some(&clients.takes_back(&[7], false))).await;
    let identity = clients.numbered(ID, 1);
    assert!(
        listening.peer(&listening.channel(Some(&identity))).await.is_err(),
        "nobody knows what was taken back since"
    );
    listening.write("revoked.pem", &others.takes_back(&[7], true)).await;
    assert!(listening.peer(&listening.channel(Some(&identity))).await.is_err(), "nor what this authority took back");
    listening.write("revoked.pem", &clients.takes_back(&[7], true)).await;
    assert!(listening.peer(&listening.channel(Some(&identity))).await.is_ok());
    assert!(listening.peer(&listening.channel(None)).await.is_ok());
}

#[tokio::test]
async fn who_shows_what_is_not_good_is_not_let_in_though_none_is_required() {
    let (clients, others) = (Authority::new("clients"), Authority::new("others"));
    let listening = Listening::start(&clients.pem(), None).await;
    let mut for_servers = client(ID);
    for_servers.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let mut two_ids = client(ID);
    two_ids.subject_alt_names.push(rcgen::SanType::URI("spiffe://acme.example/admin".try_into().unwrap()));
    for (what, identity) in [
        ("another authority's", others.client(ID)),
        ("expired", clients.expired(ID)),
        ("a server's", clients.vouches_for(&for_servers)),
        ("of two ids", clients.vouches_for(&two_ids)),
    ] {
        assert!(listening.peer(&listening.channel(Some(&identity))).await.is_err(), "{what}");
    }
    assert!(listening.asked.0.lock().unwrap().is_empty(), "nobody called");
}

#[tokio::test]
async fn what_does_not_hold_together_changes_nothing_and_is_tried_once() {
    let clients = Authority::new("clients");
    let mut listening = Listening::start(&clients.pem(), None).await;
    let channel = listening.channel(Some(&clients.client(ID)));
    let certificate = listening.certificate(&channel).await;
    let newer = listening.authority.server(&["localhost"]);
    let half = newer.key.get(..newer.key.len() / 2).unwrap().to_owned();
    let (mut refused, wrong) = (0, Authority::new("x").server(&["x"]));
    for (name, text) in [
        ("own.key", half.as_str()),
        ("own.key", ""),
        ("own.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
        ("own.key", &wrong.key),
        ("own.pem", "nonsense"),
        ("clients.pem", ""),
        ("clients.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
    ] {
        let before = std::fs::read_to_string(listening.folder.join(name)).unwrap();
        listening.write(name, text).await;
        refused += 1;
        assert_eq!(listening.loads(), (1, refused), "{name}: {text}");
        listening.watch.look(false).await;
        assert_eq!(listening.loads(), (1, refused), "it is not tried again");
        assert!(certificate.trust.holds());
        assert!(listening.peer(&listening.channel(None)).await.is_ok(), "the last good ones serve");
        std::fs::write(listening.folder.join(name), before).unwrap();
    }
    // The certificate without its key, and then with it.
    listening.write("own.pem", &newer.certificate).await;
    assert_eq!(listening.loads(), (1, refused + 1));
    listening.write("own.key", &newer.key).await;
    assert_eq!(listening.loads(), (2, refused + 1));
    assert!(listening.peer(&listening.channel(None)).await.is_ok());
    assert!(certificate.trust.holds());
}

#[tokio::test]
async fn every_problem_of_every_file_is_named() {
    let folder = std::env::temp_dir().join(format!("countersign-tls-problems-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("folder")).unwrap();
    std::fs::write(folder.join("empty"), "").unwrap();
    let at = |name: &str| folder.join(name);
    let settings = TlsSettings {
        certificate_file: at("absent"),
        key_file: at("empty"),
        client_ca_file: Some(at("folder")),
        client_certificates: ClientCertificates::Required,
        crl_files: vec![],
    };
    let (problems, _) = inspect(&settings);
    let prefix = format!("{}/", folder.display());
    let problems: Vec<String> = problems.iter().map(|problem| problem.replace(&prefix, "")).collect();
    assert_eq!(
        problems,
        [
            "absent: does not exist",
            "empty: has no private key (PEM; an encrypted one is not taken)",
            "folder: is no regular file",
        ]
    );
    let own = Authority::new("a").vouches_for(&client(ID));
    std::fs::write(at("own.pem"), own.certificate).unwrap();
    std::fs::write(at("own.key"), own.key).unwrap();
    std::fs::write(at("authority"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let settings = TlsSettings {
        certificate_file: at("own.pem"),
        key_file: at("own.key"),
        client_ca_file: Some(at("authority")),
        crl_files: vec![at("empty"), at("absent")],
        ..settings
    };
    let (problems, warnings) = inspect(&settings);
    assert!(problems.len() == 1 && problems[0].contains("authority: its certificate 1"), "{problems:?}");
    assert!(warnings.iter().any(|warning| warning.contains("own.key: others")), "{warnings:?}");
    std::fs::remove_dir_all(folder).unwrap();
}
