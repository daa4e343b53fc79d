//! Signing permits, the public keys that check them (a JWK Set, RFC 7517), and checking itself.

use super::signing::{PublicKey, SigningKey, is_signed};
use super::{Keyring, SecretError};
use crate::domain::canonical::{Canonical, Limits, Top};
use crate::domain::json::Json;
use crate::domain::permit::{self, Claims, Parts, PermitRefusal};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use zeroize::Zeroizing;

/// The most bytes of a set of keys: far more than those of sixteen secrets.
pub const MAX_JWKS_BYTES: usize = 64 * 1024;

/// A signed permit. Who has it can have the one call made that it is for, so it does not print itself.
pub struct PermitToken(Zeroizing<String>);

impl PermitToken {
    /// The token itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PermitToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PermitToken(..)")
    }
}

/// The key that signs permits, with what is the same in all of them.
#[derive(Debug)]
pub struct PermitKey {
    key: SigningKey,
    id: String,
    header: String,
}

impl PermitKey {
    pub(super) fn of(key: SigningKey) -> Self {
        let id = thumbprint(key.public());
        let header = permit::encode(permit::header(&id));
        Self { key, id, header }
    }

    /// The id of the key: the thumbprint (RFC 7638) of its public half.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The half that everybody may know.
    pub fn public(&self) -> &PublicKey {
        self.key.public()
    }

    /// The permit that says this. The same claims have the same permit each time.
    ///
    /// # Errors
    /// None that can happen.
    pub fn sign(&self, claims: &Claims) -> Result<PermitToken, SecretError> {
        let payload = permit::encode(claims.to_json());
        // In one piece from the start, so that no copy of it stays behind.
        let mut token = Zeroizing::new(String::with_capacity(self.header.len() + payload.len() + 88));
        token.push_str(&self.header);
        token.push('.');
        token.push_str(&payload);
        let signature = self.key.sign(token.as_bytes())?;
        token.push('.');
        token.push_str(&permit::encode(signature));
        Ok(PermitToken(token))
    }
}

/// The public keys that check permits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermitKeys(BTreeMap<String, PublicKey>);

/// Why a text is no set of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwksProblem(String);

impl fmt::Display for JwksProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "this is no set of keys for permits: {}", self.0)
    }
}

impl std::error::Error for JwksProblem {}

impl PermitKeys {
    /// The keys of every secret at hand.
    pub fn of(keyring: &Keyring) -> Self {
        Self(keyring.all().map(|keys| (keys.permit().id().to_owned(), *keys.permit().public())).collect())
    }

    /// The keys in a JWK Set. Keys of other kinds in it are passed over.
    ///
    /// # Errors
    /// It is no JWK Set, has no key that could check a permit, or one id for two keys.
    pub fn parse(text: &str) -> Result<Self, JwksProblem> {
        let limits = Limits { max_bytes: MAX_JWKS_BYTES, top: Top::Object };
        let set = Canonical::of(text, limits).map_err(|refusal| JwksProblem(refusal.to_string()))?;
        let set = Json::read(&set);
        let members = set.get("keys").and_then(Json::as_array).ok_or_else(|| problem("it has no `keys`"))?;
        let mut keys = BTreeMap::new();
        for (id, key) in members.iter().filter_map(usable) {
            if keys.insert(id, key).is_some_and(|other| other != key) {
                return Err(problem("two keys in it have one id"));
            }
        }
        if keys.is_empty() { Err(problem("no Ed25519 key is in it")) } else { Ok(Self(keys)) }
    }

    /// The JWK Set of these keys.
    pub fn to_jwks(&self) -> String {
        let keys = self.0.iter().map(|(id, key)| {
            let text = |name: &str, value: &str| (name.to_owned(), Json::String(value.to_owned()));
            Json::Object(vec![
                text("alg", permit::ALGORITHM),
                text("crv", "Ed25519"),
                text("kid", id),
                text("kty", "OKP"),
                text("use", "sig"),
                text("x", &permit::encode(key)),
            ])
        });
        Json::Object(vec![("keys".to_owned(), Json::Array(keys.collect()))]).to_canonical()
    }

    /// What a permit says, if one of these keys signed it. Whether it is for what is about to be done is the next question:
    /// [`Claims::check`].
    ///
    /// # Errors
    /// It is no permit, of no key that is known, or not genuine.
    pub fn verify(&self, token: &str) -> Result<Claims, PermitRefusal> {
        let parts = Parts::of(token)?;
        let key = self.0.get(&parts.key_id).ok_or(PermitRefusal::KeyUnknown)?;
        if !is_signed(key, parts.signed.as_bytes(), &parts.signature) {
            return Err(PermitRefusal::SignatureInvalid);
        }
        parts.claims()
    }
}

fn problem(text: &str) -> JwksProblem {
    JwksProblem(text.to_owned())
}

/// A key that can check permits, if this is one.
fn usable(member: &Json) -> Option<(String, PublicKey)> {
    let text = |name: &str| member.get(name).and_then(Json::as_str);
    let says = |name: &str, value: &str| member.get(name).is_none_or(|said| said.as_str() == Some(value));
    if text("kty") != Some("OKP") || text("crv") != Some("Ed25519") || !says("use", "sig") || !says("alg", "EdDSA") {
        return None;
    }
    Some((text("kid")?.to_owned(), permit::bytes(text("x")?).ok()?.try_into().ok()?))
}

/// RFC 7638, of a public key as RFC 8037 writes it.
fn thumbprint(key: &PublicKey) -> String {
    let jwk = format!("{{\"crv\":\"Ed25519\",\"kty\":\"OKP\",\"x\":\"{}\"}}", permit::encode(key));
    permit::encode(Sha256::digest(jwk))
}

#[cfg(test)]
mod tests;
