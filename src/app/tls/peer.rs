//! What a client's certificate says, whose chain has been found good.

use crate::auth::{PeerCertificate, Trust};
use crate::domain::time::Timestamp;
use sha2::{Digest as _, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

/// How an id of SPIFFE begins.
const SPIFFE: &str = "spiffe://";

/// Reads a certificate. One that cannot be read whole says nothing, and lets nobody in.
///
/// # Errors
/// What is wrong with it.
pub(super) fn certificate(der: &[u8], trust: Trust) -> Result<PeerCertificate, String> {
    let unreadable = |what: &str| format!("the client's certificate cannot be read: {what}");
    let (rest, read) = X509Certificate::from_der(der).map_err(|cause| unreadable(&cause.to_string()))?;
    if !rest.is_empty() {
        return Err(unreadable("something follows it"));
    }
    let (mut dns_names, mut uris) = (Vec::new(), Vec::new());
    let names = read.subject_alternative_name().map_err(|cause| unreadable(&cause.to_string()))?;
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        match name {
            GeneralName::DNSName(name) => dns_names.push(name.to_ascii_lowercase()),
            GeneralName::URI(uri) => uris.push((*uri).to_owned()),
            GeneralName::Invalid(..) => return Err(unreadable("one of its names")),
            GeneralName::OtherName(..)
            | GeneralName::RFC822Name(_)
            | GeneralName::X400Address(_)
            | GeneralName::DirectoryName(_)
            | GeneralName::EDIPartyName(_)
            | GeneralName::IPAddress(_)
            | GeneralName::RegisteredID(_) => {}
        }
    }
    // X.509-SVID, section 2: of two one does not know whose it is.
    if uris.len() > 1 && uris.iter().any(|uri| uri.to_ascii_lowercase().starts_with(SPIFFE)) {
        return Err("the client's certificate has another URI beside a SPIFFE id".to_owned());
    }
    // It is good until the end of that second.
    let ends = read.validity().not_after.timestamp().saturating_add(1).saturating_mul(1_000_000);
    Ok(PeerCertificate {
        dns_names,
        uris,
        digest: Sha256::digest(der).into(),
        not_after: Timestamp::from_micros(ends),
        trust,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SanType};

    fn read(names: Vec<SanType>) -> Result<PeerCertificate, String> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        params.not_after = rcgen::date_time_ymd(2031, 2, 3);
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        certificate(made.der(), Trust::new(|| true))
    }

    fn dns(name: &str) -> SanType {
        SanType::DnsName(name.try_into().unwrap())
    }

    fn uri(uri: &str) -> SanType {
        SanType::URI(uri.try_into().unwrap())
    }

    #[test]
    fn a_certificate_says_its_names_its_end_and_which_it_is() {
        let address = SanType::IpAddress([10, 0, 0, 1].into());
        let read = read(vec![dns("Agent.Example"), uri("spiffe://acme/ns/Agents"), address]).unwrap();
        assert_eq!(
            (read.dns_names, read.uris),
            (vec!["agent.example".to_owned()], vec!["spiffe://acme/ns/Agents".to_owned()])
        );
        assert_eq!(read.not_after.to_string(), "2031-02-03T00:00:01.000000Z");
        assert_ne!(read.digest, [0; 32]);
    }

    #[test]
    fn a_spiffe_id_stands_alone() {
        for other in ["https://agents.example", "spiffe://acme/other"] {
            for scheme in ["spiffe", "SPIFFE"] {
                let names = vec![uri(&format!("{scheme}://acme/agent")), uri(other)];
                assert!(read(names).unwrap_err().contains("SPIFFE"), "{scheme} {other}");
            }
        }
        assert_eq!(read(vec![uri("https://a"), uri("https://b")]).unwrap().uris.len(), 2);
        assert!(read(vec![]).unwrap().uris.is_empty());
    }

    #[test]
    fn what_is_no_certificate_or_more_than_one_says_nothing() {
        let made = CertificateParams::default().self_signed(&KeyPair::generate().unwrap()).unwrap();
        let mut longer = made.der().to_vec();
        longer.push(0);
        for bytes in [&[][..], b"\x30\x00", b"certificate", &longer] {
            assert!(certificate(bytes, Trust::new(|| true)).is_err(), "{bytes:?}");
        }
    }
}
