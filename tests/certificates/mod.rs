//! Certificates of a minute ago: authorities, and what they vouch for and take back.

// Each who includes it uses its own part.
#![allow(dead_code, clippy::unwrap_used)]

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
    date_time_ymd,
};

/// An authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key (PEM).
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        Self(CertifiedIssuer::self_signed(authority(name), KeyPair::generate().unwrap()).unwrap())
    }

    /// One that this vouches for, and its certificate.
    pub fn below(&self, name: &str) -> Self {
        Self(CertifiedIssuer::signed_by(authority(name), KeyPair::generate().unwrap(), &self.0).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A sidecar's, under these names.
    pub fn server(&self, names: &[&str]) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.vouches_for(&params)
    }

    /// A client's, with this URI.
    pub fn client(&self, uri: &str) -> Pair {
        self.vouches_for(&client(uri))
    }

    /// The same, by this number.
    pub fn numbered(&self, uri: &str, number: u64) -> Pair {
        let mut params = client(uri);
        params.serial_number = Some(SerialNumber::from(number));
        self.vouches_for(&params)
    }

    /// The same, whose time is over.
    pub fn expired(&self, uri: &str) -> Pair {
        let mut params = client(uri);
        params.not_after = date_time_ymd(2001, 1, 1);
        self.vouches_for(&params)
    }

    pub fn vouches_for(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        Pair { certificate: params.signed_by(&key, &self.0).unwrap().pem(), key: key.serialize_pem() }
    }

    /// What it has taken back, by number; good for a long time, or over long ago.
    pub fn takes_back(&self, numbers: &[u64], good: bool) -> String {
        let revoked = numbers.iter().map(|number| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(if good { 2990 } else { 2021 }, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.0).unwrap().pem().unwrap()
    }
}

/// What a client's certificate says, with this URI.
pub fn client(uri: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}
