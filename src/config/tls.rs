//! TLS of a listener: which files it shows, whom it asks for a certificate, and whom it believes.

use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A list of revoked certificates has a file for each authority; more than this is another list.
const MOST_CRL_FILES: usize = 64;

/// `[tls]`, or `[doors.DOOR.tls]`, as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TlsSection {
    certificate_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    client_ca_file: Option<PathBuf>,
    client_certificates: Option<String>,
    crl_files: Vec<PathBuf>,
}

/// TLS of a listener. Its files are read again when they change; which they are is taken at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The listener's own certificate, and those between it and its authority (PEM, its own first).
    pub certificate_file: PathBuf,
    /// The key of that certificate (PEM, not encrypted).
    pub key_file: PathBuf,
    /// The authorities that vouch for clients (PEM).
    pub client_ca_file: Option<PathBuf>,
    /// Whether clients are asked for a certificate; by default where there are authorities, and then each must show one.
    pub client_certificates: ClientCertificates,
    /// What those authorities have taken back (PEM). Where there is any, there must be one of each authority in a chain.
    pub crl_files: Vec<PathBuf>,
}

/// Whether clients are asked for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not.
    None,
    /// They are, and who shows none is let in without one.
    Optional,
    /// They are, and who shows none is not let in.
    Required,
}

impl ClientCertificates {
    /// As the configuration spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
}

/// What the section called `key` comes to; none if it lacks what it needs, which is a problem then.
pub(super) fn resolve(
    section: TlsSection,
    key: &str,
    folder: &Path,
    problems: &mut Vec<String>,
) -> Option<TlsSettings> {
    let TlsSection { certificate_file, key_file, client_ca_file, client_certificates, crl_files } = section;
    let within = |path: PathBuf| folder.join(path);
    let by_default = if client_ca_file.is_some() { ClientCertificates::Required } else { ClientCertificates::None };
    let known = [ClientCertificates::None, ClientCertificates::Optional, ClientCertificates::Required];
    let asked = match client_certificates.as_deref() {
        None => by_default,
        Some(word) => known.into_iter().find(|asked| asked.as_str() == word).unwrap_or_else(|| {
            problems.push(format!("{key}.client_certificates: {word:?} is none of `none`, `optional` and `required`"));
            by_default
        }),
    };
    match (asked, &client_ca_file) {
        (ClientCertificates::Optional | ClientCertificates::Required, None) => problems.push(format!(
            "{key}.client_certificates: {:?} needs client_ca_file: the authorities that vouch for clients",
            asked.as_str()
        )),
        (ClientCertificates::None, Some(_)) => problems.push(format!(
            "{key}.client_certificates: \"none\" beside client_ca_file, which vouches for clients that are not asked"
        )),
        (ClientCertificates::None, None) | (ClientCertificates::Optional | ClientCertificates::Required, Some(_)) => {}
    }
    if client_ca_file.is_none() && !crl_files.is_empty() {
        problems.push(format!("{key}.crl_files: takes back what no client_ca_file vouches for"));
    }
    if crl_files.len() > MOST_CRL_FILES {
        problems.push(format!("{key}.crl_files: names {} files; at most {MOST_CRL_FILES}", crl_files.len()));
    }
    for (name, file) in [("certificate_file", &certificate_file), ("key_file", &key_file)] {
        if file.is_none() {
            problems.push(format!("{key}.{name}: is not said, and there is no TLS without it"));
        }
    }
    Some(TlsSettings {
        certificate_file: within(certificate_file?),
        key_file: within(key_file?),
        client_ca_file: client_ca_file.map(within),
        client_certificates: asked,
        crl_files: crl_files.into_iter().map(within).collect(),
    })
}
