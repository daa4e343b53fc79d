//! The files of a listener's TLS, read whole at one moment, and what they come to if they hold together.

use crate::config::{ClientCertificates, TlsSettings};
use rustls::crypto::{CryptoProvider, aws_lc_rs as library};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::time::ASN1Time;
use zeroize::{Zeroize as _, Zeroizing};

/// A key, or a chain of certificates, is a few kilobytes.
const SMALL: usize = 64 * 1024;
/// Bundles of authorities and lists of what they took back may be long.
const LARGE: usize = 4 * 1024 * 1024;

/// What a listener goes by.
pub(super) struct Made {
    /// What it shows.
    pub(super) server: Arc<ServerConfig>,
    /// Whom it believes; none where no client is asked.
    pub(super) clients: Option<Arc<dyn ClientCertVerifier>>,
    /// When its own certificate ends, in seconds of Unix time.
    pub(super) ends: i64,
}

/// What the files came to at one moment.
pub(super) struct Reading {
    /// SHA-256 over the files' contents, and over what kept any from being read.
    pub(super) digest: [u8; 32],
    /// What they come to, or everything that is wrong, each by the name of its file.
    pub(super) made: Result<Made, Vec<String>>,
    /// What is hardly meant.
    pub(super) warnings: Vec<String>,
}

/// What is wrong with the files of a listener, and what is hardly meant, each by the name of its file.
pub fn inspect(settings: &TlsSettings) -> (Vec<String>, Vec<String>) {
    let reading = Reading::of(settings);
    (reading.made.err().unwrap_or_default(), reading.warnings)
}

/// One file with what it has.
struct Content<'s>(&'s Path, Result<Zeroizing<Vec<u8>>, String>);

impl<'s> Content<'s> {
    fn of(path: &'s Path, most: usize) -> Self {
        Self(path, read(path, most))
    }

    /// Its bytes; without them a problem.
    fn bytes(&self, problems: &mut Vec<String>) -> Option<&[u8]> {
        match &self.1 {
            Ok(bytes) => Some(bytes),
            Err(problem) => {
                problems.push(named(self.0, problem));
                None
            }
        }
    }
}

impl Reading {
    /// What the files of these settings come to now.
    pub(super) fn of(settings: &TlsSettings) -> Self {
        let certificate = Content::of(&settings.certificate_file, SMALL);
        let key = Content::of(&settings.key_file, SMALL);
        let authorities = settings.client_ca_file.as_deref().map(|path| Content::of(path, LARGE));
        let revoked: Vec<Content<'_>> = settings.crl_files.iter().map(|path| Content::of(path, LARGE)).collect();
        let digest = digest([&certificate, &key].into_iter().chain(&authorities).chain(&revoked));
        let (mut problems, mut warnings) = (Vec::new(), Vec::new());
        if let Ok(found) = fs::metadata(key.0) {
            let mode = found.permissions().mode() & 0o777;
            if mode & 0o077 != 0 {
                warnings.push(named(key.0, &format!("others than its owner may read the TLS key (mode {mode:04o})")));
            }
        }
        let provider = Arc::new(library::default_provider());
        let own = certified(&certificate, &key, &mut problems, &mut warnings);
        let clients = authorities.and_then(|authorities| {
            let roots = roots(&authorities, &mut problems)?;
            let optional = settings.client_certificates == ClientCertificates::Optional;
            verifier(roots, &revoked, optional, &provider, &mut problems, &mut warnings)
        });
        let made = match own {
            Some((own, ends)) if problems.is_empty() => {
                server(own, clients.clone(), provider).map(|server| Made { server, clients, ends })
            }
            Some(_) | None => Err(problems),
        };
        Self { digest, made, warnings }
    }
}

/// What the file system says of files without reading them; it differs whenever they may have changed.
pub(super) type Signature = Vec<Option<[i128; 8]>>;

/// That of the files of these settings.
pub(super) fn signature(settings: &TlsSettings) -> Signature {
    let stamp = |path: &PathBuf| {
        let found = fs::metadata(path).ok()?;
        Some([
            found.dev().into(),
            found.ino().into(),
            found.mode().into(),
            found.size().into(),
            found.mtime().into(),
            found.mtime_nsec().into(),
            found.ctime().into(),
            found.ctime_nsec().into(),
        ])
    };
    let own = [&settings.certificate_file, &settings.key_file];
    own.into_iter().chain(&settings.client_ca_file).chain(&settings.crl_files).map(stamp).collect()
}

fn named(path: &Path, what: &str) -> String {
    format!("{}: {what}", path.display())
}

fn read(path: &Path, most: usize) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |cause: io::Error| match cause.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        _ => format!("cannot be read: {cause}"),
    };
    // Asked before it is opened: opening a pipe would wait for somebody to write.
    let found = fs::metadata(path).map_err(failed)?;
    if !found.is_file() {
        return Err("is no regular file".to_owned());
    }
    // With room for all of it from the start: what grows leaves copies behind.
    let room = usize::try_from(found.len()).unwrap_or(most).min(most).saturating_add(64);
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() > most {
        return Err(format!("is larger than {most} bytes"));
    }
    Ok(bytes)
}

fn digest<'c, 's: 'c>(contents: impl Iterator<Item = &'c Content<'s>>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for Content(_, read) in contents {
        // Each behind its kind and length, so that no two readings share their bytes.
        let (kind, bytes) = match read {
            Ok(bytes) => (b'c', bytes.as_slice()),
            Err(problem) => (b'p', problem.as_bytes()),
        };
        hash.update([kind]);
        hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(bytes);
    }
    hash.finalize().into()
}

/// Every part of this kind in a PEM file, of which there has to be one.
fn parts<T: pem::PemObject>(content: &Content<'_>, what: &str, problems: &mut Vec<String>) -> Option<Vec<T>> {
    let bytes = content.bytes(problems)?;
    match T::pem_slice_iter(bytes).collect::<Result<Vec<T>, _>>() {
        Ok(parts) if parts.is_empty() => {
            problems.push(named(content.0, &format!("has no {what} (PEM)")));
            None
        }
        Ok(parts) => Some(parts),
        Err(cause) => {
            problems.push(named(content.0, &format!("is no PEM that can be read: {cause}")));
            None
        }
    }
}

/// The listener's own certificate with its key, and when it ends.
fn certified(
    certificate: &Content<'_>,
    key: &Content<'_>,
    problems: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> Option<(CertifiedKey, i64)> {
    let chain = parts::<CertificateDer<'static>>(certificate, "certificate", problems);
    let signing = signing_key(key, problems);
    let chain = chain?;
    let ends = match chain.first().map(|own| X509Certificate::from_der(own)) {
        Some(Ok((_, own))) => {
            let (now, validity) = (ASN1Time::now(), own.validity());
            if validity.not_after < now {
                warnings.push(named(certificate.0, &format!("has expired: {}", validity.not_after)));
            } else if validity.not_before > now {
                warnings.push(named(certificate.0, &format!("is not good before {}", validity.not_before)));
            }
            if !matches!(own.subject_alternative_name(), Ok(Some(_))) {
                warnings.push(named(certificate.0, "names no server: it needs a subject alternative name"));
            }
            validity.not_after.timestamp()
        }
        Some(Err(_)) | None => {
            problems.push(named(certificate.0, "its first certificate cannot be read"));
            return None;
        }
    };
    let own = CertifiedKey::new(chain, signing?);
    match own.keys_match() {
        // What the library cannot compare shows itself in the first handshake.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Some((own, ends)),
        Err(rustls::Error::InconsistentKeys(_)) => {
            let other = certificate.0.display();
            problems.push(named(key.0, &format!("is not the key of the certificate in {other}")));
            None
        }
        Err(cause) => {
            problems.push(named(certificate.0, &format!("its first certificate cannot be used: {cause}")));
            None
        }
    }
}

fn signing_key(key: &Content<'_>, problems: &mut Vec<String>) -> Option<Arc<dyn rustls::sign::SigningKey>> {
    let mut der = match PrivateKeyDer::from_pem_slice(key.bytes(problems)?) {
        Ok(der) => der,
        Err(pem::Error::NoItemsFound) => {
            problems.push(named(key.0, "has no private key (PEM; an encrypted one is not taken)"));
            return None;
        }
        Err(cause) => {
            problems.push(named(key.0, &format!("is no PEM that can be read: {cause}")));
            return None;
        }
    };
    let signing = library::sign::any_supported_type(&der);
    der.zeroize();
    signing.map_err(|_| problems.push(named(key.0, "is no private key that can be used: RSA, ECDSA or Ed25519"))).ok()
}

fn roots(authorities: &Content<'_>, problems: &mut Vec<String>) -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let read = parts::<CertificateDer<'static>>(authorities, "certificate of an authority", problems)?;
    for (index, authority) in read.into_iter().enumerate() {
        if let Err(cause) = roots.add(authority) {
            let number = index.saturating_add(1);
            problems.push(named(authorities.0, &format!("its certificate {number} is no authority's: {cause}")));
            return None;
        }
    }
    Some(roots)
}

fn verifier(
    roots: RootCertStore,
    revoked: &[Content<'_>],
    optional: bool,
    provider: &Arc<CryptoProvider>,
    problems: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> Option<Arc<dyn ClientCertVerifier>> {
    let mut lists = Vec::new();
    for content in revoked {
        for list in parts::<CertificateRevocationListDer<'static>>(content, "list of revoked certificates", problems)? {
            let Ok((_, read)) = CertificateRevocationList::from_der(&list) else {
                problems.push(named(content.0, "is no list of revoked certificates that can be read"));
                return None;
            };
            if read.next_update().is_some_and(|next| next < ASN1Time::now()) {
                warnings.push(named(content.0, "is past its next update: until it is replaced nobody is let in by it"));
            }
            lists.push(list.clone());
        }
    }
    // Unknown is not allowed: without a list of each authority in a chain, or with an old one, nobody knows.
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = builder.with_crls(lists).enforce_revocation_expiration();
    let built = if optional { builder.allow_unauthenticated().build() } else { builder.build() };
    let named_all = || revoked.iter().map(|content| content.0.display().to_string()).collect::<Vec<_>>().join(", ");
    built.map_err(|cause| problems.push(format!("{}: {cause}", named_all()))).ok()
}

fn server(
    own: CertifiedKey,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<ServerConfig>, Vec<String>> {
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|cause| vec![format!("tls: {cause}")])?;
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(clients),
        None => builder.with_no_client_auth(),
    };
    let mut server = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
    server.alpn_protocols = vec![super::HTTP2.to_vec()];
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok(Arc::new(server))
}
