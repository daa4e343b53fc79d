//! What others can check without a secret: Ed25519 (RFC 8032), under keys that are derived from a server secret as all the
//! others are. A permit and a checkpoint each have their own, so that neither can pass for the other.

use super::SecretError;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use std::fmt;
use zeroize::Zeroizing;

/// A public key, as RFC 8032 writes it.
pub type PublicKey = [u8; 32];
/// A signature, as RFC 8032 writes it. The same message has the same one each time.
pub type Signature = [u8; 64];

/// Signs for one purpose. It prints its public half alone.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SigningKey({})", crate::domain::hex::hex(&self.public))
    }
}

impl SigningKey {
    /// The key of this seed.
    ///
    /// # Errors
    /// The library has no such key.
    pub(super) fn of(seed: &Zeroizing<[u8; 32]>) -> Result<Self, SecretError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed.as_ref()).map_err(|_| SecretError::Derivation)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| SecretError::Derivation)?;
        Ok(Self { pair, public })
    }

    /// The half that everybody may know.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The signature of `message`.
    ///
    /// # Errors
    /// None that can happen: an Ed25519 signature has 64 bytes.
    pub fn sign(&self, message: &[u8]) -> Result<Signature, SecretError> {
        self.pair.sign(message).as_ref().try_into().map_err(|_| SecretError::Derivation)
    }
}

/// Whether `signature` is the one of `message` under the secret half of `key`.
pub fn is_signed(key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::hex::parse_hex;

    #[test]
    fn a_signature_is_that_of_rfc_8032() {
        // Section 7.1, test 2.
        let seed = parse_hex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb").unwrap();
        let key = SigningKey::of(&Zeroizing::new(seed)).unwrap();
        assert_eq!(
            key.public(),
            &parse_hex::<32>("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c").unwrap()
        );
        let signature = key.sign(&[0x72]).unwrap();
        assert_eq!(
            crate::domain::hex::hex(&signature),
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
             085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        );
        assert!(is_signed(key.public(), &[0x72], &signature));
    }

    #[test]
    fn what_was_changed_is_not_what_was_signed() {
        let key = SigningKey::of(&Zeroizing::new([7; 32])).unwrap();
        let other = SigningKey::of(&Zeroizing::new([8; 32])).unwrap();
        let signature = key.sign(b"message").unwrap();
        assert!(!is_signed(key.public(), b"messagf", &signature));
        assert!(!is_signed(other.public(), b"message", &signature));
        assert!(!is_signed(key.public(), b"message", &signature[..63]));
        let mut bent = signature;
        bent[0] ^= 1;
        assert!(!is_signed(key.public(), b"message", &bent));
    }
}
