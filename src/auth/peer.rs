//! What a connection itself says of who is at its other end. The listener finds it out once, when the connection is made;
//! every call on it carries it along, beside whatever credential the call brings of its own.

use crate::domain::time::Timestamp;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Who is at the other end, as far as the connection tells. Each call carries it as an extension of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Somebody at this address.
    Address(SocketAddr),
    /// Somebody who has shown a client's certificate that the listener's authorities vouch for.
    Certificate {
        /// Where from.
        address: SocketAddr,
        /// What it says.
        certificate: Arc<PeerCertificate>,
    },
    /// A process of this machine, on a Unix socket, as the system says.
    Process {
        /// Its effective user id when it connected.
        uid: u32,
        /// Its process id; none where the system does not say.
        pid: Option<i32>,
    },
    /// Nothing is known.
    Unknown,
}

/// For logs. A name in a certificate is whoever made it to say: it is shown as a quoted text.
impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) | Self::Certificate { address, .. } => address.fmt(formatter),
            Self::Process { uid, pid: Some(pid) } => write!(formatter, "uid {uid} (process {pid})"),
            Self::Process { uid, pid: None } => write!(formatter, "uid {uid}"),
            Self::Unknown => Ok(()),
        }
    }
}

/// What a client's certificate says, once its chain has been found good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// Its subject alternative names of the kind DNS, lower-cased.
    pub dns_names: Vec<String>,
    /// Its subject alternative names of the kind URI, as they are written. A SPIFFE id is one of them, and then the only one.
    pub uris: Vec<String>,
    /// SHA-256 of the certificate: which one it is.
    pub digest: [u8; 32],
    /// From this instant on, by the wall clock, it is not good any more.
    pub not_after: Timestamp,
    /// Whether the listener's authorities, as they are read again, still vouch for it.
    pub trust: Trust,
}

/// Whether the authorities of a listener still vouch for a certificate, which may change while its connection lasts.
#[derive(Clone)]
pub struct Trust(Arc<dyn Fn() -> bool + Send + Sync>);

impl Trust {
    /// What `vouched` answers, at the moment at which it is asked. It is asked for every call, so it has to be quick.
    pub fn new(vouched: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(vouched))
    }

    /// Whether they do.
    pub fn holds(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Trust(..)")
    }
}

/// The same trust in the same certificate, of one connection.
impl PartialEq for Trust {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Trust {}
