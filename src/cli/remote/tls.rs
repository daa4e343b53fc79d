//! Calling a sidecar over TLS: whom to believe, what to show, and what a failed handshake means.

use super::Refused;
use crate::client::{Tls, TlsProblem};
use clap::Args;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use tonic::transport::Channel;
use zeroize::Zeroizing;

/// How an address begins that is called over TLS.
const HTTPS: &str = "https://";
/// A bundle, a certificate or a key; more than this is another file.
const FILE_BYTES: usize = 1024 * 1024;

/// How the sidecar's listener is called, where it speaks TLS.
#[derive(Args, Debug, Default)]
pub(in crate::cli) struct TlsFlags {
    /// Call over TLS, and believe a sidecar that these authorities vouch for (PEM). So does `https://HOST:PORT`, which needs it.
    #[arg(long, global = true, value_name = "FILE", env = "COUNTERSIGN_TLS_CA")]
    tls_ca: Option<PathBuf>,
    /// The certificate to show to a listener that asks for one (PEM, with what is between it and its authority).
    #[arg(long, global = true, value_name = "FILE", env = "COUNTERSIGN_CLIENT_CERTIFICATE")]
    client_certificate: Option<PathBuf>,
    /// The key of that certificate (PEM).
    #[arg(long, global = true, value_name = "FILE", env = "COUNTERSIGN_CLIENT_KEY")]
    client_key: Option<PathBuf>,
    /// The name that the sidecar's certificate has, where that is not the host that is called.
    #[arg(long, global = true, value_name = "NAME", env = "COUNTERSIGN_TLS_SERVER_NAME")]
    tls_server_name: Option<String>,
}

impl TlsFlags {
    /// A channel to what is plaintext unless its address says otherwise, whatever the environment says of other places.
    ///
    /// # Errors
    /// As [`TlsFlags::channel_to`].
    pub(in crate::cli) fn channel_as_written(&self, server: &str) -> Result<Channel, Refused> {
        if server.starts_with(HTTPS) {
            return self.channel_to(server);
        }
        crate::client::channel_to(server).map_err(|cause| Refused::unreachable(&cause))
    }

    /// A channel to this place, over TLS if it is to be.
    ///
    /// # Errors
    /// The flags contradict each other, or a file cannot be used.
    pub(in crate::cli) fn channel_to(&self, server: &str) -> Result<Channel, Refused> {
        let place = server.strip_prefix(HTTPS).unwrap_or(server);
        let Some(authorities) = &self.tls_ca else {
            if server.starts_with(HTTPS) {
                return Err(usage(
                    "over TLS a sidecar is believed that somebody vouches for: say who, with --tls-ca FILE",
                ));
            }
            let flags = [
                ("--client-certificate", self.client_certificate.is_some()),
                ("--client-key", self.client_key.is_some()),
                ("--tls-server-name", self.tls_server_name.is_some()),
            ];
            if let Some((flag, _)) = flags.into_iter().find(|(_, said)| *said) {
                return Err(usage(&format!("{flag} means nothing without TLS: say --tls-ca FILE")));
            }
            return crate::client::channel_to(place).map_err(|cause| Refused::unreachable(&cause));
        };
        if place.starts_with("unix:") {
            return Err(usage("a Unix socket has no TLS: leave out --tls-ca (COUNTERSIGN_TLS_CA)"));
        }
        let identity = match (&self.client_certificate, &self.client_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            (Some(_), None) | (None, Some(_)) => {
                return Err(usage("--client-certificate and --client-key go together"));
            }
        };
        let tls = Tls { authorities: read(authorities)?, identity, server_name: self.tls_server_name.clone() };
        tls.channel_to(place).map_err(|problem| {
            let file = match (&problem, &self.client_certificate) {
                (TlsProblem::Authorities(_), _) => authorities.display().to_string(),
                (TlsProblem::Identity(_), Some(certificate)) => format!("{} with its key", certificate.display()),
                (TlsProblem::Identity(_), None) | (TlsProblem::Place(_), _) => "TLS".to_owned(),
            };
            Refused::without_file(format!("{file}: {problem}"))
        })
    }
}

fn usage(message: &str) -> Refused {
    Refused::asked_wrongly(message.to_owned())
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Refused> {
    let failed = |what: &dyn std::fmt::Display| Refused::without_file(format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|cause| failed(&cause))?;
    // With room for all of it from the start: what grows leaves copies behind.
    let room = file.metadata().map_or(0, |found| usize::try_from(found.len()).unwrap_or(0)).min(FILE_BYTES);
    let mut bytes = Zeroizing::new(Vec::with_capacity(room.saturating_add(64)));
    let limit = u64::try_from(FILE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(|cause| failed(&cause))?;
    if bytes.len() > FILE_BYTES { Err(failed(&format!("is larger than {FILE_BYTES} bytes"))) } else { Ok(bytes) }
}

/// What to do about a connection that failed with this, where that is known.
pub(super) fn advice(message: &str) -> Option<&'static str> {
    const ADVICE: &[(&[&str], &str)] = &[
        (&["UnknownIssuer"], "no authority in --tls-ca vouches for this sidecar: name the file of the one that does"),
        (
            &["not valid for name", "NotValidForName"],
            "the sidecar's certificate is for another name: call it by that, or say it with --tls-server-name",
        ),
        (&["invalid peer certificate"], "the sidecar's certificate is not good: whoever runs it has to replace it"),
        (
            &["CertificateRequired"],
            "this listener wants a client's certificate: --client-certificate FILE --client-key FILE",
        ),
        (
            &[
                "CertificateExpired",
                "CertificateRevoked",
                "UnknownCA",
                "UnsupportedCertificate",
                "BadCertificate",
                "CertificateUnknown",
                "DecryptError",
            ],
            "this listener does not take the client's certificate: its log says why",
        ),
        (
            &["InvalidContentType", "corrupt message"],
            "what answers there speaks no TLS: leave out --tls-ca (COUNTERSIGN_TLS_CA) and https://",
        ),
        (
            &["NoApplicationProtocol", "HTTP/2 was not negotiated"],
            "what answers there speaks TLS, and no HTTP/2 through it",
        ),
        (
            &["frame with invalid size", "FRAME_SIZE_ERROR"],
            "what answers there may speak TLS: say who vouches for it, with --tls-ca FILE",
        ),
        (
            &["connection closed", "Connection reset", "Broken pipe", "broken pipe"],
            "what answers there ended the connection, and its log says why: it may want TLS (--tls-ca FILE), a client's \
             certificate (--client-certificate FILE --client-key FILE) or another one, or have too many connections",
        ),
    ];
    ADVICE.iter().find(|(signs, _)| signs.iter().any(|sign| message.contains(sign))).map(|(_, advice)| *advice)
}
