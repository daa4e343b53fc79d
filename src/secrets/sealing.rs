//! The arguments of an approval, sealed: AES-256-GCM under a key of that approval alone, so that who reads the database
//! reads no arguments, and a sealed text opens in its own row and in no other.
//!
//! ```text
//! key     HKDF-SHA-256 (the secret's key for sealing, "arguments" and the approval's id)
//! bound   "countersign.arguments", the format, the approval's id, the fingerprint
//! sealed  format (one byte, 1) | nonce (12 random bytes) | ciphertext and tag
//! ```

use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::ApprovalId;
use aes_gcm::aead::{Aead as _, KeyInit as _, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use hkdf::Hkdf;
use sha2::Sha256;
use std::fmt;
use zeroize::Zeroizing;

/// The one format that there is. It stands before what is sealed, and is bound by it.
const FORMAT: u8 = 1;
const NONCE_BYTES: usize = 12;

/// Why arguments were not sealed, or do not open. Never their content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealError {
    /// The machine has no randomness to give.
    NoRandomness,
    /// A key could not be derived, or the text is longer than the cipher takes.
    Cipher,
    /// They are sealed under a secret that is not at hand.
    KeyMissing {
        /// Its id.
        id: String,
    },
    /// They are not what was sealed for this approval: changed, cut, moved from another row, or of another secret.
    NotGenuine,
}

impl fmt::Display for SealError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRandomness => formatter.write_str("this machine has no randomness to seal arguments with"),
            Self::Cipher => formatter.write_str("the arguments cannot be sealed"),
            Self::KeyMissing { id } => write!(formatter, "the arguments are sealed under the missing key id {id}"),
            Self::NotGenuine => formatter.write_str("the sealed arguments are not what was sealed for this approval"),
        }
    }
}

impl std::error::Error for SealError {}

/// Seals `arguments` for this approval and no other.
pub(super) fn seal(
    key: &[u8; 32],
    approval: ApprovalId,
    fingerprint: &Fingerprint,
    arguments: &str,
) -> Result<Vec<u8>, SealError> {
    let mut nonce = [0_u8; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|_| SealError::NoRandomness)?;
    let bound = bound(approval, fingerprint);
    let payload = Payload { msg: arguments.as_bytes(), aad: &bound };
    let text = cipher(key, approval)?.encrypt(&Nonce::from(nonce), payload).map_err(|_| SealError::Cipher)?;
    let mut sealed = Vec::with_capacity(1 + NONCE_BYTES + text.len());
    sealed.push(FORMAT);
    sealed.extend(nonce);
    sealed.extend(text);
    Ok(sealed)
}

/// Opens what [`seal`] made under the same key for the same approval and fingerprint.
pub(super) fn unseal(
    key: &[u8; 32],
    approval: ApprovalId,
    fingerprint: &Fingerprint,
    sealed: &[u8],
) -> Result<Zeroizing<String>, SealError> {
    let (format, rest) = sealed.split_first().ok_or(SealError::NotGenuine)?;
    let (nonce, text) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(SealError::NotGenuine)?;
    if *format != FORMAT {
        return Err(SealError::NotGenuine);
    }
    let bound = bound(approval, fingerprint);
    let payload = Payload { msg: text, aad: &bound };
    let opened = cipher(key, approval)?.decrypt(&Nonce::from(*nonce), payload).map_err(|_| SealError::NotGenuine)?;
    match String::from_utf8(opened) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(problem) => {
            drop(Zeroizing::new(problem.into_bytes()));
            Err(SealError::NotGenuine)
        }
    }
}

fn cipher(key: &[u8; 32], approval: ApprovalId) -> Result<Aes256Gcm, SealError> {
    let mut own = Zeroizing::new([0_u8; 32]);
    let derive = Hkdf::<Sha256>::from_prk(key).map_err(|_| SealError::Cipher)?;
    let purpose = format!("arguments{approval}");
    derive.expand(purpose.as_bytes(), own.as_mut()).map_err(|_| SealError::Cipher)?;
    Aes256Gcm::new_from_slice(own.as_ref()).map_err(|_| SealError::Cipher)
}

/// What the sealed text is bound to. Ids and fingerprints each have one length, so that no two bindings read the same.
fn bound(approval: ApprovalId, fingerprint: &Fingerprint) -> Vec<u8> {
    format!("countersign.arguments|{FORMAT}|{approval}|{fingerprint}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fingerprint::Digest;
    use proptest::prelude::*;
    use uuid::Uuid;

    proptest! {
        #[test]
        fn what_is_sealed_is_bound_to_one_approval_and_fingerprint_and_to_no_other(
            (one, other) in any::<(u128, u128)>(),
            (call, another) in any::<([u8; 32], [u8; 32])>(),
            (same_approval, same_call) in any::<(bool, bool)>(),
        ) {
            let approval = |number| ApprovalId::new(Uuid::from_u128(number));
            let of = |call| Fingerprint::from_digest(Digest::from_bytes(call));
            let (other, another) = (if same_approval { one } else { other }, if same_call { call } else { another });
            let (a, b) = (bound(approval(one), &of(call)), bound(approval(other), &of(another)));
            prop_assert_eq!(a.len(), b.len(), "each part has one length");
            prop_assert_eq!(a == b, (one, call) == (other, another));
        }
    }

    const KEY: [u8; 32] = [7; 32];
    const ARGUMENTS: &str = r#"{"body":"Hello","password":"hunter2"}"#;

    fn approval(last: u8) -> ApprovalId {
        ApprovalId::parse(&format!("0190b6c0-0000-7000-8000-0000000000{last:02x}")).unwrap()
    }

    fn fingerprint(of: &str) -> Fingerprint {
        Fingerprint::from_digest(Digest::of(of.as_bytes()))
    }

    fn sealed(arguments: &str) -> Vec<u8> {
        seal(&KEY, approval(1), &fingerprint("call"), arguments).unwrap()
    }

    #[test]
    fn what_was_sealed_opens_as_it_was() {
        let large = format!("{{\"a\":\"{}\"}}", "\u{1F600}".repeat(65_536));
        for arguments in ["", "{}", ARGUMENTS, &large] {
            let opened = unseal(&KEY, approval(1), &fingerprint("call"), &sealed(arguments)).unwrap();
            assert_eq!(*opened, arguments);
        }
    }

    #[test]
    fn nothing_of_the_arguments_and_nothing_twice_stands_in_what_is_sealed() {
        let (one, other) = (sealed(ARGUMENTS), sealed(ARGUMENTS));
        assert_eq!(one.len(), 1 + NONCE_BYTES + ARGUMENTS.len() + 16);
        assert!(!one.windows(7).any(|window| window == b"hunter2"));
        assert_ne!(one[1..=NONCE_BYTES], other[1..=NONCE_BYTES], "each nonce is new");
        assert_ne!(one[1 + NONCE_BYTES..], other[1 + NONCE_BYTES..]);
    }

    #[test]
    fn a_change_of_any_bit_of_any_byte_opens_nothing() {
        let genuine = sealed(ARGUMENTS);
        for place in 0..genuine.len() {
            for bit in 0..8 {
                let mut changed = genuine.clone();
                changed[place] ^= 1 << bit;
                let opened = unseal(&KEY, approval(1), &fingerprint("call"), &changed);
                assert_eq!(opened.unwrap_err(), SealError::NotGenuine, "bit {bit} of byte {place}");
            }
        }
    }

    #[test]
    fn what_is_cut_or_longer_opens_nothing() {
        let genuine = sealed(ARGUMENTS);
        for length in 0..genuine.len() {
            let opened = unseal(&KEY, approval(1), &fingerprint("call"), &genuine[..length]);
            assert_eq!(opened.unwrap_err(), SealError::NotGenuine, "{length} bytes");
        }
        for more in [vec![0], vec![0; 16], genuine.clone()] {
            let longer = [genuine.clone(), more].concat();
            assert!(unseal(&KEY, approval(1), &fingerprint("call"), &longer).is_err());
        }
    }

    #[test]
    fn it_opens_for_its_own_approval_fingerprint_and_key_alone() {
        let genuine = sealed(ARGUMENTS);
        assert!(unseal(&KEY, approval(1), &fingerprint("call"), &genuine).is_ok());
        for (key, approval, fingerprint) in [
            (KEY, approval(2), fingerprint("call")),
            (KEY, approval(1), fingerprint("another call")),
            ([8; 32], approval(1), fingerprint("call")),
        ] {
            assert_eq!(unseal(&key, approval, &fingerprint, &genuine).unwrap_err(), SealError::NotGenuine);
        }
    }

    #[test]
    fn each_approval_has_a_key_of_its_own() {
        // The same key under another binding would refuse too: here the binding is the same, and the key alone differs.
        let (nonce, aad) = (Nonce::from([0; NONCE_BYTES]), b"same");
        let text = |approval| {
            let payload = Payload { msg: ARGUMENTS.as_bytes(), aad };
            cipher(&KEY, approval).unwrap().encrypt(&nonce, payload).unwrap()
        };
        assert_eq!(text(approval(1)), text(approval(1)));
        assert_ne!(text(approval(1))[..16], text(approval(2))[..16]);
    }
}
