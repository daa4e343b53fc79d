//! A client of the sidecar: what the command line and the demonstration call it with.

use crate::address::Address;
use crate::proto::agent_service_client::AgentServiceClient;
use crate::proto::approver_service_client::ApproverServiceClient;
use crate::proto::operator_service_client::OperatorServiceClient;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::fmt;
use std::time::Duration;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};
use zeroize::Zeroizing;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take: longer than the sidecar waits for its store.
const ANSWER: Duration = Duration::from_secs(20);

/// How often, while a call is open, it is asked whether anybody is still there, and how long that may take.
const STILL_THERE: Duration = Duration::from_secs(30);
/// What one answer at the approver's door may measure: all of an approval's arguments, in canonical form.
const ARGUMENTS_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// A bearer token that goes with every call. It does not print itself.
#[derive(Clone)]
pub struct Bearer(MetadataValue<Ascii>);

impl fmt::Debug for Bearer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Bearer(..)")
    }
}

impl Bearer {
    /// The credential of this token; none if it has characters that no token has.
    pub fn new(token: &str) -> Option<Self> {
        let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

/// A channel whose calls carry a token.
pub type Authenticated = InterceptedService<Channel, Bearer>;

/// A channel to the sidecar at `address`; it connects with the first call.
///
/// # Errors
/// The address has no form that can be called.
pub fn channel(address: impl Into<Address>) -> Result<Channel, tonic::transport::Error> {
    match address.into() {
        Address::Tcp(address) => open(format!("http://{address}")),
        // Of this form tonic takes the rest for the path, whatever it is.
        Address::Unix(path) => open(format!("unix://{}", path.display())),
    }
}

/// As [`channel`], to a `host:port`, whose name is looked up with the first call, or to `unix:/path`.
///
/// # Errors
/// The text has no form that can be called.
pub fn channel_to(server: &str) -> Result<Channel, tonic::transport::Error> {
    match Address::unix(server) {
        Some(Ok(address)) => channel(address),
        Some(Err(_)) | None => open(format!("http://{server}")),
    }
}

fn open(uri: String) -> Result<Channel, tonic::transport::Error> {
    Ok(endpoint(uri)?.connect_lazy())
}

fn endpoint(uri: String) -> Result<Endpoint, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(uri)?;
    let endpoint = endpoint.http2_keep_alive_interval(STILL_THERE).keep_alive_timeout(STILL_THERE);
    Ok(endpoint.connect_timeout(CONNECT).timeout(ANSWER))
}

/// The content of a PEM file, cleared when dropped.
pub type Pem = Zeroizing<Vec<u8>>;

/// What a client goes by that calls over TLS. It prints nothing of its key.
#[derive(Clone)]
pub struct Tls {
    /// The authorities that may vouch for the sidecar (PEM).
    pub authorities: Pem,
    /// The client's own certificate, with what is between it and its authority, and its key (PEM).
    pub identity: Option<(Pem, Pem)>,
    /// The name in the sidecar's certificate; none: the host that is called.
    pub server_name: Option<String>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl Tls {
    /// A channel to a `host:port`, over TLS; it connects with the first call.
    ///
    /// # Errors
    /// What cannot be used of it, or the place has no form that can be called.
    pub fn channel_to(&self, server: &str) -> Result<Channel, TlsProblem> {
        // The library passes over what it cannot use, and then believes nobody.
        let mut authorities = CertificateDer::pem_slice_iter(&self.authorities).peekable();
        let unusable = |what: String| TlsProblem::Authorities(what);
        if authorities.peek().is_none() {
            return Err(unusable("has no certificate (PEM)".to_owned()));
        }
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            let authority = authority.map_err(|cause| unusable(format!("is no PEM that can be read: {cause}")))?;
            roots.add(authority).map_err(|cause| unusable(format!("is no authority's certificate: {cause}")))?;
        }
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.authorities));
        if let Some((certificate, key)) = &self.identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &self.server_name {
            tls = tls.domain_name(name);
        }
        let endpoint =
            endpoint(format!("https://{server}")).map_err(|cause| TlsProblem::Place(with_sources(&cause)))?;
        let sealed = endpoint.tls_config(tls).map_err(|cause| {
            let cause = with_sources(&cause);
            // The authorities have been looked at.
            if self.identity.is_some() { TlsProblem::Identity(cause) } else { TlsProblem::Place(cause) }
        });
        Ok(sealed?.connect_lazy())
    }
}

/// What keeps a client from calling over TLS at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsProblem {
    /// Of the authorities that are to vouch for the sidecar.
    Authorities(String),
    /// Of the client's own certificate and key.
    Identity(String),
    /// Of the place that is to be called, or its name.
    Place(String),
}

impl fmt::Display for TlsProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authorities(problem) | Self::Identity(problem) | Self::Place(problem) => formatter.write_str(problem),
        }
    }
}

impl std::error::Error for TlsProblem {}

/// A failure with what lies below it.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// The agent's door.
pub fn agent(channel: Channel, token: Bearer) -> AgentServiceClient<Authenticated> {
    AgentServiceClient::with_interceptor(channel, token)
}

/// The approver's door.
pub fn approver(channel: Channel, token: Bearer) -> ApproverServiceClient<Authenticated> {
    ApproverServiceClient::with_interceptor(channel, token).max_decoding_message_size(ARGUMENTS_ANSWER_BYTES)
}

/// The operator's door.
pub fn operator(channel: Channel, token: Bearer) -> OperatorServiceClient<Authenticated> {
    OperatorServiceClient::with_interceptor(channel, token)
}
