//! The keys of issuers: read from files again and again, or fetched, on threads that may wait. No call waits for them. What
//! cannot be had, or is no key set, changes nothing and is said.

use crate::auth::{Issuer, KEY_SET_BYTES, KeySet, KeySource, SharedCallers};
use crate::service::Sparing;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// How often it is looked whether keys are to be had.
const LOOK: Duration = Duration::from_millis(250);
/// How often files of keys are read.
const READ_FILES: Duration = Duration::from_secs(2);
/// For as long a server may take, from its name to its last byte.
const FETCH: Duration = Duration::from_secs(10);
/// What a file of authorities may measure.
const AUTHORITIES_BYTES: u64 = 1024 * 1024;
/// Where systems keep the authorities that they trust.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Keeps the keys of every issuer that there is at the moment, until `stopped`.
pub(super) async fn keep_keys(callers: SharedCallers, mut stopped: watch::Receiver<bool>) {
    let failures = Arc::new(Sparing::new());
    loop {
        let now = callers.clock().elapsed();
        for issuer in callers.now().issuers() {
            let every = match &issuer.settings().source {
                KeySource::File(_) => READ_FILES,
                KeySource::Url { .. } => issuer.settings().refresh_at_least_every,
            };
            if issuer.keys().begin_asking(issuer.settings(), every, now) {
                let (issuer, failures) = (Arc::clone(issuer), Arc::clone(&failures));
                // Each by itself: one that does not answer holds up no other.
                tokio::task::spawn_blocking(move || ask(&issuer, &failures));
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
    }
}

fn ask(issuer: &Issuer, failures: &Sparing) {
    let name = &issuer.settings().name;
    let read = match &issuer.settings().source {
        KeySource::File(path) => read(path, KEY_SET_BYTES as u64),
        KeySource::Url { url, authorities } => fetch(url, authorities.as_deref()),
    };
    match read.and_then(|text| KeySet::parse(&text)) {
        Ok(keys) => {
            if issuer.keys().replace(keys) {
                tracing::info!(issuer = %name, "the issuer's keys are taken");
            }
        }
        Err(problem) => {
            if let Some(unsaid) = failures.say() {
                tracing::warn!(issuer = %name, problem, unsaid, "the issuer's keys could not be had: those before stay");
            }
        }
    }
    issuer.keys().asked();
}

fn read(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    // A pipe that nobody writes to would be waited for, for ever.
    if !std::fs::metadata(path).map_err(|cause| cause.to_string())?.is_file() {
        return Err("is no file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|cause| cause.to_string())?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(|cause| cause.to_string())?;
    if bytes.len() as u64 > most { Err(format!("is larger than {most} bytes")) } else { Ok(bytes) }
}

/// What is at `url`, from whom its name is vouched for, and from nobody whom that one names.
fn fetch(url: &str, authorities: Option<&Path>) -> Result<Vec<u8>, String> {
    let mut config = ureq::Agent::config_builder()
        .max_redirects(0)
        .max_redirects_will_error(true)
        .timeout_global(Some(FETCH))
        // What the environment says of proxies is not this configuration's.
        .proxy(None)
        .user_agent("countersign");
    if url.starts_with("https://") {
        let roots = RootCerts::new_with_certs(&vouching(authorities)?);
        let tls = TlsConfig::builder()
            .root_certs(roots)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .build();
        config = config.tls_config(tls).https_only(true);
    }
    let agent: ureq::Agent = config.build().into();
    let mut response = agent.get(url).call().map_err(|cause| cause.to_string())?;
    // A redirect is an answer too, and no key set.
    if response.status() != 200 {
        return Err(format!("the server answers {}", response.status()));
    }
    response.body_mut().with_config().limit(KEY_SET_BYTES as u64).read_to_vec().map_err(|cause| cause.to_string())
}

fn vouching(authorities: Option<&Path>) -> Result<Vec<Certificate<'static>>, String> {
    let text = match authorities {
        Some(path) => read(path, AUTHORITIES_BYTES).map_err(|cause| format!("{}: {cause}", path.display()))?,
        None => {
            let mut places = SYSTEM_AUTHORITIES.iter().filter_map(|path| read(Path::new(path), AUTHORITIES_BYTES).ok());
            places.next().ok_or("the system has no file of authorities: name one as jwks_ca_file")?
        }
    };
    let certificates = parse_pem(&text).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        Ok(_) | Err(_) => None,
    });
    let certificates: Vec<Certificate<'static>> = certificates.collect();
    if certificates.is_empty() {
        Err("there is no certificate among the authorities".to_owned())
    } else {
        Ok(certificates)
    }
}
