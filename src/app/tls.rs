//! TLS of a listener: what it shows and whom it believes, as its files stand, and what a client's certificate says.
//!
//! Files are read again while the sidecar serves. What holds together is swapped in whole and counts for the next handshake;
//! a connection whose client has shown a certificate asks once more whether the authorities that are trusted now still vouch
//! for it. What does not hold together changes nothing.
//!
//! Sessions are not resumed: who comes back shows its certificate again, and is held against what is trusted then.

mod files;
mod peer;
mod watch;

pub use files::inspect;
pub(super) use watch::TlsWatch;

use crate::auth::{Peer, Trust};
use crate::config::TlsSettings;
use crate::metrics::{ListenerName, Metrics};
use arc_swap::ArcSwap;
use files::{Made, Reading};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The one protocol that is spoken through it.
const HTTP2: &[u8] = b"h2";

/// TLS of one listener. Clones are the same.
#[derive(Clone)]
pub(super) struct Tls(Arc<Shared>);

struct Shared {
    settings: TlsSettings,
    listener: ListenerName,
    metrics: Arc<Metrics>,
    current: ArcSwap<Made>,
    /// Counts what was swapped in.
    generation: AtomicU64,
    /// Whoever wants the files read again now.
    asked: Notify,
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

impl Tls {
    /// That of these settings, with what was read of them.
    ///
    /// # Errors
    /// Everything that is wrong with the files, each named.
    pub(super) fn open(
        settings: &TlsSettings,
        listener: ListenerName,
        metrics: &Arc<Metrics>,
    ) -> Result<(Self, [u8; 32]), Vec<String>> {
        let Reading { digest, made, warnings } = Reading::of(settings);
        let made = made?;
        for warning in warnings {
            tracing::warn!("tls: {warning}");
        }
        metrics.connections.tls_loaded.one();
        metrics.connections.certificate_ends(listener, made.ends);
        let shared = Shared {
            settings: settings.clone(),
            listener,
            metrics: Arc::clone(metrics),
            current: ArcSwap::from_pointee(made),
            generation: AtomicU64::new(1),
            asked: Notify::new(),
        };
        Ok((Self(Arc::new(shared)), digest))
    }

    /// Has the files read again now, though nothing says that they changed.
    pub(super) fn read_again(&self) {
        self.0.asked.notify_one();
    }

    /// Puts this in force.
    fn replace(&self, made: Made) {
        self.0.metrics.connections.certificate_ends(self.0.listener, made.ends);
        self.0.current.store(Arc::new(made));
        // After it: whoever sees the new number sees what it stands for.
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    /// Does a handshake; with who is at the other end.
    ///
    /// # Errors
    /// Why it failed, for the log.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Result<(TlsStream<TcpStream>, Peer), String> {
        // In this order: what is newer than its number is asked once more, and never the reverse.
        let generation = self.0.generation.load(Ordering::Acquire);
        let server = Arc::clone(&self.0.current.load().server);
        let stream = TlsAcceptor::from(server).accept(stream).await.map_err(|cause| cause.to_string())?;
        let (_, session) = stream.get_ref();
        if session.alpn_protocol() != Some(HTTP2) {
            return Err("the client does not say that it speaks HTTP/2 (ALPN h2)".to_owned());
        }
        let peer = match session.peer_certificates() {
            None | Some([]) => Peer::Address(address),
            Some([own, rest @ ..]) => {
                let trust =
                    self.trust(own.clone().into_owned(), rest.iter().map(|one| one.clone().into_owned()), generation);
                let certificate = Arc::new(peer::certificate(own, trust)?);
                Peer::Certificate { address, certificate }
            }
        };
        Ok((stream, peer))
    }

    /// Whether what is trusted at the time still vouches for a chain that was vouched for in this generation.
    fn trust(
        &self,
        own: CertificateDer<'static>,
        rest: impl Iterator<Item = CertificateDer<'static>>,
        generation: u64,
    ) -> Trust {
        let (shared, rest) = (Arc::clone(&self.0), rest.collect::<Vec<_>>());
        // The generation that was asked last, and in the lowest bit what it answered.
        let answered = AtomicU64::new(generation << 1 | 1);
        Trust::new(move || {
            let now = shared.generation.load(Ordering::Acquire);
            let last = answered.load(Ordering::Relaxed);
            if last >> 1 == now {
                return last & 1 == 1;
            }
            let clients = shared.current.load().clients.clone();
            let vouched = clients.is_some_and(|clients| vouches(clients.as_ref(), &own, &rest));
            answered.store(now << 1 | u64::from(vouched), Ordering::Relaxed);
            vouched
        })
    }
}

fn vouches(clients: &dyn ClientCertVerifier, own: &CertificateDer<'_>, rest: &[CertificateDer<'_>]) -> bool {
    clients.verify_client_cert(own, rest, UnixTime::now()).is_ok()
}

#[cfg(test)]
mod tests;
