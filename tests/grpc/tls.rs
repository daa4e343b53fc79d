//! The doors over TLS: who is let in, and what goes on when files change under open connections.

use crate::certificates::{Authority, Pair};
use crate::grpc::harness::*;
use crate::grpc::health::{check, plaintext};
use crate::grpc::wire::http_get;
use countersign::app::StartError;
use countersign::client::{self, Bearer, Tls};
use countersign::clock::ManualClock;
use countersign::config::{ClientCertificates, Config, TlsSettings};
use countersign::proto::*;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::transport::Channel;
use tonic::{Code, Status};
use zeroize::Zeroizing;

const ID: &str = "spiffe://acme.example/agents/assistant";

/// A sidecar whose doors speak TLS.
pub struct Sealed {
    pub sidecar: Sidecar,
    pub servers: Authority,
    pub clients: Authority,
}

/// Files of TLS in the folder of a sidecar.
pub fn settings(folder: &Path, asked: ClientCertificates) -> TlsSettings {
    TlsSettings {
        certificate_file: folder.join("tls.pem"),
        key_file: folder.join("tls.key"),
        client_ca_file: (asked != ClientCertificates::None).then(|| folder.join("clients.pem")),
        client_certificates: asked,
        crl_files: vec![],
    }
}

impl Sealed {
    pub async fn start(asked: ClientCertificates, change: impl FnOnce(&mut Config)) -> Self {
        let mut sealed = Self {
            sidecar: Sidecar::stopped(Folder::new(), Arc::new(ManualClock::at(START))),
            servers: Authority::new("servers"),
            clients: Authority::new("clients"),
        };
        sealed.shows(&sealed.servers.server(&["localhost", "127.0.0.1"]));
        sealed.write("clients.pem", &sealed.clients.pem());
        let tls = settings(sealed.sidecar.folder(), asked);
        let restarted = sealed.sidecar.restart_with(|config| {
            config.tls = Some(tls);
            config.policy_settle = Duration::from_millis(5);
            change(config);
        });
        restarted.await.unwrap();
        sealed
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.sidecar.folder().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn shows(&self, own: &Pair) {
        self.write("tls.pem", &own.certificate);
        self.write("tls.key", &own.key);
    }

    pub fn address(&self) -> SocketAddr {
        self.sidecar.running().address().tcp().unwrap()
    }

    /// A new connection of somebody who believes this authority and shows this certificate.
    pub fn channel(&self, believes: &Authority, identity: Option<&Pair>) -> Channel {
        tls(believes, identity).channel_to(&self.address().to_string()).unwrap()
    }

    pub async fn evaluate(&self, channel: &Channel) -> Result<EvaluateResponse, Status> {
        evaluate(channel, "runtime").await
    }

    /// What the metrics say under this name.
    pub async fn metric(&self, name: &str) -> String {
        let (_, page) = http_get(self.sidecar.running().health_address(), "/metrics").await;
        page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap_or_default().to_owned()
    }

    /// Waits until the metrics say so, which they do soon.
    async fn says(&self, name: &str, value: &str) {
        let says = async {
            while self.metric(name).await != value {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), says).await.unwrap_or_else(|_| panic!("{name} is never {value}"));
    }
}

pub fn tls(believes: &Authority, identity: Option<&Pair>) -> Tls {
    let bytes = |text: &str| Zeroizing::new(text.as_bytes().to_vec());
    Tls {
        authorities: bytes(&believes.pem()),
        identity: identity.map(|pair| (bytes(&pair.certificate), bytes(&pair.key))),
        server_name: None,
    }
}

pub async fn evaluate(channel: &Channel, caller: &str) -> Result<EvaluateResponse, Status> {
    let mut agent = client::agent(channel.clone(), Bearer::new(&token(caller)).unwrap());
    let request = EvaluateRequest { invocation: Some(email()), explain: false };
    agent.evaluate(request).await.map(tonic::Response::into_inner)
}

/// That nothing was answered by any door.
#[track_caller]
fn not_connected<T: std::fmt::Debug>(result: Result<T, Status>) {
    let status = result.unwrap_err();
    assert!(matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Internal), "{status:?}");
    assert!(status.details().is_empty(), "a door answered: {status:?}");
}

#[tokio::test]
async fn through_tls_a_call_is_what_it_is_in_the_clear_and_health_stays_in_the_clear() {
    let sealed = Sealed::start(ClientCertificates::None, |_| {}).await;
    let channel = sealed.channel(&sealed.servers, None);
    sealed.evaluate(&channel).await.unwrap();
    refused(evaluate(&channel, "unknown").await, Code::Unauthenticated, "CREDENTIALS_INVALID");
    check(channel, "").await.unwrap();
    check(plaintext(&sealed.sidecar), "").await.unwrap();
    assert_eq!(sealed.metric("countersign_tls_loads_total{result=\"loaded\"}").await, "1");
    let ends = sealed.metric("countersign_tls_certificate_end_timestamp_seconds{listener=\"common\"}").await;
    assert!(ends.parse::<i64>().unwrap() > 1_767_225_600, "{ends}");
}

#[tokio::test]
async fn who_speaks_in_the_clear_to_tls_or_the_reverse_is_not_understood() {
    let sealed = Sealed::start(ClientCertificates::None, |_| {}).await;
    not_connected(sealed.evaluate(&client::channel(sealed.address()).unwrap()).await);
    let plain = Sidecar::start().await;
    let address = plain.running().address().to_string();
    not_connected(evaluate(&tls(&sealed.servers, None).channel_to(&address).unwrap(), "runtime").await);
    // The health listener has no TLS, whatever the doors have.
    let health = sealed.sidecar.running().health_address().to_string();
    not_connected(check(tls(&sealed.servers, None).channel_to(&health).unwrap(), "").await);
}

#[tokio::test]
async fn who_believes_another_authority_or_means_another_name_does_not_call() {
    let sealed = Sealed::start(ClientCertificates::None, |_| {}).await;
    not_connected(sealed.evaluate(&sealed.channel(&Authority::new("servers"), None)).await);
    let mut named = tls(&sealed.servers, None);
    named.server_name = Some("sidecar.example".to_owned());
    not_connected(sealed.evaluate(&named.channel_to(&sealed.address().to_string()).unwrap()).await);
    named.server_name = Some("localhost".to_owned());
    sealed.evaluate(&named.channel_to(&sealed.address().to_string()).unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_certificate_is_asked_for_as_the_configuration_says() {
    let others = Authority::new("clients");
    for asked in [ClientCertificates::None, ClientCertificates::Optional, ClientCertificates::Required] {
        let sealed = Sealed::start(asked, |_| {}).await;
        let call =
            async |identity: Option<Pair>| sealed.evaluate(&sealed.channel(&sealed.servers, identity.as_ref())).await;
        let (nobody, good) = (call(None).await, call(Some(sealed.clients.client(ID))).await);
        let (another, expired) = (call(Some(others.client(ID))).await, call(Some(sealed.clients.expired(ID))).await);
        match asked {
            ClientCertificates::None => assert!(nobody.and(good).and(another).and(expired).is_ok(), "{asked:?}"),
            ClientCertificates::Optional => {
                assert!(nobody.and(good).is_ok());
                not_connected(another);
                not_connected(expired);
            }
            ClientCertificates::Required => {
                good.unwrap();
                [nobody, another, expired].into_iter().for_each(not_connected);
            }
        }
        // A credential is still wanted: a certificate alone opens no door of these callers.
        let identity = sealed.clients.client(ID);
        let channel = sealed.channel(&sealed.servers, Some(&identity));
        refused(evaluate(&channel, "nobody-knows").await, Code::Unauthenticated, "CREDENTIALS_INVALID");
    }
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_who_comes_next_and_who_is_there_stays() {
    let sealed = Sealed::start(ClientCertificates::None, |_| {}).await;
    let before = sealed.channel(&sealed.servers, None);
    sealed.evaluate(&before).await.unwrap();
    let newer = Authority::new("newer");
    let own = newer.server(&["localhost", "127.0.0.1"]);
    // A key without its end, as a program leaves it that is still writing.
    let (half, _) = own.key.split_at(own.key.len() / 2);
    sealed.write("tls.key", half);
    sealed.says("countersign_tls_loads_total{result=\"refused\"}", "1").await;
    sealed.evaluate(&sealed.channel(&sealed.servers, None)).await.unwrap();
    sealed.shows(&own);
    sealed.says("countersign_tls_loads_total{result=\"loaded\"}", "2").await;
    sealed.evaluate(&sealed.channel(&newer, None)).await.unwrap();
    not_connected(sealed.evaluate(&sealed.channel(&sealed.servers, None)).await);
    sealed.evaluate(&before).await.unwrap();
}

#[tokio::test]
async fn files_are_read_at_once_when_that_is_asked_for() {
    let sealed = Sealed::start(ClientCertificates::Required, |_| {}).await;
    sealed.sidecar.running().reload().tls();
    sealed.says("countersign_tls_loads_total{result=\"loaded\"}", "2").await;
    let identity = sealed.clients.client(ID);
    sealed.evaluate(&sealed.channel(&sealed.servers, Some(&identity))).await.unwrap();
}

#[tokio::test]
async fn a_hundred_who_say_nothing_keep_nobody_out() {
    for asked in [None, Some(ClientCertificates::None)] {
        let sealed = Sealed::start(ClientCertificates::None, |config| {
            if asked.is_none() {
                config.tls = None;
            }
        });
        let sealed = sealed.await;
        let mut silent = Vec::new();
        for _ in 0..100 {
            silent.push(TcpStream::connect(sealed.address()).await.unwrap());
        }
        // The beginning of a record, or of a preface, and then nothing.
        let begins = if asked.is_some() { &[22, 3, 1, 1, 0, 1][..] } else { b"PRI * HTTP" };
        silent[0].write_all(begins).await.unwrap();
        let channel = match asked {
            Some(_) => sealed.channel(&sealed.servers, None),
            None => client::channel(sealed.address()).unwrap(),
        };
        sealed.evaluate(&channel).await.unwrap();
        sealed.says("countersign_connections_open{listener=\"common\"}", "101").await;
    }
}

#[tokio::test]
async fn who_says_nothing_is_not_waited_for() {
    for plain in [true, false] {
        let short = |config: &mut Config| {
            config.handshake_timeout = Duration::from_millis(100);
            if plain {
                config.tls = None;
            }
        };
        let sealed = Sealed::start(ClientCertificates::None, short).await;
        let health = sealed.sidecar.running().health_address();
        for (address, begins) in [(sealed.address(), &b""[..]), (sealed.address(), b"PRI * HTTP/2.0"), (health, b"")] {
            let mut silent = TcpStream::connect(address).await.unwrap();
            silent.write_all(begins).await.unwrap();
            let ended = tokio::time::timeout(Duration::from_secs(30), silent.read_to_end(&mut Vec::new())).await;
            assert!(ended.is_ok(), "it is waited for for ever: {begins:?} at {address}");
        }
        let refused = sealed.metric("countersign_connections_refused_total{reason=\"timeout\"}").await;
        assert!(refused.parse::<u32>().unwrap() >= 2, "{refused}");
        sealed.says("countersign_connections_open{listener=\"common\"}", "0").await;
    }
}

#[tokio::test]
async fn above_its_limit_a_listener_turns_connections_away_and_below_it_takes_them_again() {
    for plain in [true, false] {
        let few = |config: &mut Config| {
            config.connections = 3;
            if plain {
                config.tls = None;
            }
        };
        let sealed = Sealed::start(ClientCertificates::None, few).await;
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(TcpStream::connect(sealed.address()).await.unwrap());
        }
        sealed.says("countersign_connections_open{listener=\"common\"}", "3").await;
        let mut fourth = TcpStream::connect(sealed.address()).await.unwrap();
        let read = fourth.read(&mut [0; 1]).await;
        assert!(matches!(read, Ok(0) | Err(_)), "it is closed at once: {read:?}");
        assert_eq!(sealed.metric("countersign_connections_refused_total{reason=\"limit\"}").await, "1");
        held.pop();
        sealed.says("countersign_connections_open{listener=\"common\"}", "2").await;
        let channel =
            if plain { client::channel(sealed.address()).unwrap() } else { sealed.channel(&sealed.servers, None) };
        sealed.evaluate(&channel).await.unwrap();
    }
}

#[tokio::test]
async fn through_tls_only_http2_is_spoken_and_no_session_is_taken_up_again() {
    use rustls::ClientConfig;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    let sealed = Sealed::start(ClientCertificates::None, |_| {}).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(sealed.servers.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let speaking = |versions: &[&'static rustls::SupportedProtocolVersion], protocols: &[&[u8]]| {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions);
        let mut config = builder.unwrap().with_root_certificates(roots.clone()).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        tokio_rustls::TlsConnector::from(Arc::new(config))
    };
    let name = || ServerName::try_from("localhost").unwrap();
    let both = [&rustls::version::TLS12, &rustls::version::TLS13];
    for (versions, protocols, served) in [
        (&both[..], &[&b"h2"[..]][..], true),
        (&both[..1], &[&b"h2"[..]][..], true),
        (&both[1..], &[&b"http/1.1"[..], b"h2"], true),
        (&both[..], &[&b"http/1.1"[..]], false),
        (&both[..], &[], false),
    ] {
        let connector = speaking(versions, protocols);
        for _ in 0..2 {
            let stream = TcpStream::connect(sealed.address()).await.unwrap();
            let connected = connector.connect(name(), stream).await;
            let begins = async {
                let mut stream = connected.map_err(|_| ())?;
                let resumed = stream.get_ref().1.handshake_kind();
                assert_eq!(resumed, Some(rustls::HandshakeKind::Full));
                stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.map_err(|_| ())?;
                // The server's settings.
                stream.read_exact(&mut [0; 9]).await.map(|_| ()).map_err(|_| ())
            };
            assert_eq!(begins.await.is_ok(), served, "{versions:?} {protocols:?}");
        }
    }
}

#[tokio::test]
async fn with_files_that_do_not_hold_together_it_does_not_start_and_names_each() {
    let mut sidecar = Sidecar::stopped(Folder::new(), Arc::new(ManualClock::at(START)));
    let folder = sidecar.folder().to_owned();
    let (one, other) = (Authority::new("a").server(&["localhost"]), Authority::new("a").server(&["localhost"]));
    std::fs::write(folder.join("tls.pem"), one.certificate).unwrap();
    std::fs::write(folder.join("tls.key"), other.key).unwrap();
    let started = sidecar
        .restart_with(|config| config.tls = Some(settings(&folder, ClientCertificates::Required)))
        .await
        .unwrap_err();
    let StartError::Tls(problems) = started else { panic!("{started}") };
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].contains("tls.key: is not the key of the certificate in"), "{problems:?}");
    assert!(problems[1].ends_with("clients.pem: does not exist"), "{problems:?}");
}
