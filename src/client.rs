//! A client of the sidecar: what the command line and the demonstration call it with.

use crate::address::Address;
use crate::proto::agent_service_client::AgentServiceClient;
use crate::proto::approver_service_client::ApproverServiceClient;
use crate::proto::operator_service_client::OperatorServiceClient;
use std::fmt;
use std::time::Duration;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

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
    let endpoint = Endpoint::from_shared(uri)?;
    let endpoint = endpoint.http2_keep_alive_interval(STILL_THERE).keep_alive_timeout(STILL_THERE);
    Ok(endpoint.connect_timeout(CONNECT).timeout(ANSWER).connect_lazy())
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
