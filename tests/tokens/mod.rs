//! Tokens of an issuer as tests need them: good ones, and whatever must not be taken for one.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// A key of an issuer.
pub enum Signer {
    Ed(Box<Ed25519KeyPair>),
    Ec(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
}

pub fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    pub fn ed() -> Self {
        Self::Ed(Box::new(Ed25519KeyPair::generate().unwrap()))
    }

    pub fn ec() -> Self {
        Self::Ec(Box::new(EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()))
    }

    pub fn rsa() -> Self {
        Self::Rsa(Box::new(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()))
    }

    pub fn algorithm(&self) -> &'static str {
        match self {
            Self::Ed(_) => "EdDSA",
            Self::Ec(_) => "ES256",
            Self::Rsa(_) => "RS256",
        }
    }

    /// The public key as a member of a key set, with these further members, such as `"kid":"a",`.
    pub fn jwk(&self, more: &str) -> String {
        match self {
            Self::Ed(key) => {
                let x = base64url(key.public_key().as_ref());
                format!(r#"{{{more}"kty":"OKP","crv":"Ed25519","x":"{x}"}}"#)
            }
            Self::Ec(key) => {
                // An uncompressed point: 4, x, y.
                let point = key.public_key().as_ref();
                let (x, y) = (base64url(&point[1..33]), base64url(&point[33..65]));
                format!(r#"{{{more}"kty":"EC","crv":"P-256","x":"{x}","y":"{y}"}}"#)
            }
            Self::Rsa(_) => {
                let n = base64url(self.modulus());
                format!(r#"{{{more}"kty":"RSA","n":"{n}","e":"AQAB"}}"#)
            }
        }
    }

    /// The modulus of an RSA key of 2048 bits: in its DER form a sequence of two integers, it is the first.
    fn modulus(&self) -> Vec<u8> {
        let Self::Rsa(key) = self else { panic!("is no RSA key") };
        let der = key.public_key().as_ref();
        let at = der.windows(4).position(|four| four == [2, 130, 1, 1]).unwrap() + 5;
        der[at..at + 256].to_vec()
    }

    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Ed(key) => key.sign(message).as_ref().to_vec(),
            Self::Ec(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Rsa(key) => {
                let mut signed = vec![0; key.public_modulus_len()];
                key.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut signed).unwrap();
                signed
            }
        }
    }

    /// A token of this header and these claims, as they are written.
    pub fn token(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", base64url(header), base64url(claims));
        format!("{signed}.{}", base64url(self.sign(signed.as_bytes())))
    }

    /// The ordinary header of this key.
    pub fn header(&self, id: &str) -> String {
        format!(r#"{{"alg":"{}","kid":"{id}","typ":"at+jwt"}}"#, self.algorithm())
    }
}

/// A key set of these keys.
pub fn key_set(keys: &[String]) -> String {
    format!(r#"{{"keys":[{}]}}"#, keys.join(","))
}
