//! Bearer tokens: 32 random bytes, kept as SHA-256 alone.

use crate::domain::hex;
use sha2::{Digest as _, Sha256};
use std::fmt;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// Marks a token as one of this product's, so that scanners of leaked secrets and previews find it.
const PREFIX: &str = "cst_";

/// SHA-256 of a bearer token. A token is 32 random bytes, so nothing slower is needed to keep it from being guessed.
#[derive(Clone)]
pub struct TokenHash([u8; 32]);

/// In constant time, wherever two are compared.
impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for TokenHash {}

impl TokenHash {
    /// The hash of a token.
    pub fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Reads 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        hex::parse_hex(text).map(Self)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// The hash alone, as configurations carry it.
impl fmt::Display for TokenHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(formatter, &self.0)
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TokenHash(..)")
    }
}

/// A new token.
///
/// # Errors
/// The machine has no randomness to give.
pub fn mint() -> Result<Zeroizing<String>, getrandom::Error> {
    let mut bytes = Zeroizing::new([0_u8; 32]);
    getrandom::fill(bytes.as_mut())?;
    let mut token = Zeroizing::new(String::with_capacity(PREFIX.len() + 64));
    token.push_str(PREFIX);
    // Writing to a string does not fail, and within its capacity it leaves no copy behind.
    let _ = hex::write(&mut *token, bytes.as_ref());
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minted_token_is_new_each_time_and_long_enough() {
        let (first, second) = (mint().unwrap(), mint().unwrap());
        assert_ne!(*first, *second);
        assert_eq!(first.len(), 68);
        assert!(first.starts_with("cst_"));
    }

    #[test]
    fn a_hash_is_read_back_from_its_text_and_from_no_other() {
        let hash = TokenHash::of(b"token");
        let text = hash.to_string();
        assert_eq!(TokenHash::parse(&text), Some(hash));
        for wrong in ["", "00", &text.to_uppercase(), &format!("{text}0"), &format!("g{}", &text[1..])] {
            assert!(TokenHash::parse(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn a_hash_does_not_print_itself_in_debug() {
        assert_eq!(format!("{:?}", TokenHash::of(b"token")), "TokenHash(..)");
    }
}
