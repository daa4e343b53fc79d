//! The server secret and the keys derived from it (HKDF-SHA-256, RFC 5869). The consume token is
//! `cs1.<key id>.<approval id>.<mac>`; the database holds nothing from which one could be made.

use crate::domain::hex::{self, hex, parse_hex};
use crate::domain::ids::ApprovalId;
use crate::storage::StoredKey;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

const TOKEN_VERSION: &str = "cs1";

/// The file is 64 digits and a line feed; more is not a secret of ours.
const FILE_BYTES: u64 = 4096;

/// What everything that this sidecar signs is derived from: 32 random bytes. It has no `Debug` of its content, and its
/// memory is cleared.
pub struct ServerSecret(Zeroizing<[u8; 32]>);

impl fmt::Debug for ServerSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ServerSecret(..)")
    }
}

/// Why there is no usable secret. Never its content.
#[derive(Debug)]
pub enum SecretError {
    /// The file cannot be read or made.
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The file is not 64 lower-case hexadecimal digits.
    NotASecret {
        /// Which.
        path: PathBuf,
    },
    /// The machine has no randomness to give.
    NoRandomness,
    /// A key could not be derived.
    Derivation,
    /// The table was used with other secrets than this one.
    UnknownToTable {
        /// The id of the secret at hand; none if its file is missing.
        have: Option<String>,
        /// The ids that the table knows.
        table: Vec<String>,
        /// Where the secret was looked for.
        path: PathBuf,
    },
    /// The table knows this secret's id with another check value.
    CheckFailed {
        /// The id.
        id: String,
    },
}

impl fmt::Display for SecretError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, cause } => write!(formatter, "the server secret {}: {cause}", path.display()),
            Self::NotASecret { path } => write!(
                formatter,
                "the server secret {}: is not 64 lower-case hexadecimal digits; restore the file from a backup",
                path.display()
            ),
            Self::NoRandomness => formatter.write_str("this machine has no randomness to make a server secret from"),
            Self::Derivation => formatter.write_str("no key could be derived from the server secret"),
            Self::UnknownToTable { have, table, path } => {
                match have {
                    Some(id) => write!(formatter, "the server secret {} has the key id {id}, but ", path.display())?,
                    None => write!(formatter, "the server secret {} is missing, and ", path.display())?,
                }
                write!(
                    formatter,
                    "the database was used with the key id {}: restore that secret, or start with an empty database",
                    table.join(", ")
                )
            }
            Self::CheckFailed { id } => write!(
                formatter,
                "the database knows the key id {id} with another check value: it belongs to another secret"
            ),
        }
    }
}

impl std::error::Error for SecretError {}

impl ServerSecret {
    /// A new secret.
    ///
    /// # Errors
    /// The machine has no randomness to give.
    pub fn generate() -> Result<Self, SecretError> {
        let mut bytes = Zeroizing::new([0_u8; 32]);
        getrandom::fill(bytes.as_mut()).map_err(|_| SecretError::NoRandomness)?;
        Ok(Self(bytes))
    }

    /// The secret in the file, or none if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a secret.
    pub fn read(path: &Path) -> Result<Option<Self>, SecretError> {
        let failed = |cause| SecretError::File { path: path.to_owned(), cause };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(failed(cause)),
        };
        let mut text = Zeroizing::new(String::with_capacity(128));
        file.take(FILE_BYTES).read_to_string(&mut text).map_err(failed)?;
        let bytes =
            parse_hex(text.trim_end_matches('\n')).ok_or_else(|| SecretError::NotASecret { path: path.to_owned() })?;
        Ok(Some(Self(Zeroizing::new(bytes))))
    }

    /// Writes it into a new file of mode 0600, and to the disk: whole or not at all, whenever the power fails.
    ///
    /// # Errors
    /// The file exists or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), SecretError> {
        let failed = |cause| SecretError::File { path: path.to_owned(), cause };
        let mut text = Zeroizing::new(String::with_capacity(65));
        // Writing to a string does not fail.
        let _ = hex::write(&mut *text, self.0.as_ref());
        text.push('\n');
        let mut draft = path.as_os_str().to_owned();
        draft.push(".new");
        // Whoever starts holds the database's lock, so a draft that is there is one that was given up.
        let _ = std::fs::remove_file(&draft);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            // A link, unlike a renaming, never replaces what is there.
            .and_then(|()| std::fs::hard_link(&draft, path))
            .and_then(|()| File::open(folder_of(path)).and_then(|folder| folder.sync_all()));
        let _ = std::fs::remove_file(&draft);
        written.map_err(failed)
    }

    /// Whether others than its owner may read the file, which is worth a warning: a secret that is mounted may have to be.
    pub fn is_readable_by_others(path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
    }

    /// The keys that are derived from it.
    ///
    /// # Errors
    /// None that can happen: HKDF fails only for keys of over 255 blocks.
    pub fn keys(&self) -> Result<Keys, SecretError> {
        let derive = Hkdf::<Sha256>::new(None, self.0.as_ref());
        Ok(Keys {
            id: hex(expand::<8>(&derive, b"id")?.as_ref()),
            check: hex(expand::<32>(&derive, b"check")?.as_ref()),
            consume: expand(&derive, b"consume-token")?,
            page: expand(&derive, b"page-token")?,
        })
    }
}

/// The keys of one server secret, each for one purpose.
pub struct Keys {
    id: String,
    check: String,
    consume: Zeroizing<[u8; 64]>,
    page: Zeroizing<[u8; 64]>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Keys").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Keys {
    /// What the table keeps of the secret.
    pub fn stored(&self) -> StoredKey {
        StoredKey { id: self.id.clone(), check: self.check.clone() }
    }

    /// The token that uses the approval `id`. The same each time.
    pub fn consume_token(&self, id: ApprovalId) -> Zeroizing<String> {
        let mac = mac(&self.consume, id.to_string().as_bytes()).finalize().into_bytes();
        Zeroizing::new(format!("{TOKEN_VERSION}.{}.{id}.{}", self.id, hex(&mac)))
    }

    /// The approval that this token uses; none if it is not exactly a token that [`Keys::consume_token`] makes.
    pub fn approval_of(&self, token: &str) -> Option<ApprovalId> {
        let mut parts = token.split('.');
        let (version, key_id, id, code) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || version != TOKEN_VERSION || key_id != self.id {
            return None;
        }
        let code = parse_hex::<32>(code)?;
        let approval = ApprovalId::parse(id)?;
        // The text is what was signed: another spelling of the same id is another token.
        mac(&self.consume, id.as_bytes()).verify_slice(&code).ok().map(|()| approval)
    }

    /// An opaque token for the cursor of a page of the query `query`.
    pub fn page_token(&self, query: &[u8], cursor: &str) -> String {
        format!("{}.{}", hex(cursor.as_bytes()), hex(&self.page_mac(query, cursor).finalize().into_bytes()))
    }

    /// The cursor in a page token; none if it was not made for this very query.
    pub fn page_cursor(&self, query: &[u8], token: &str) -> Option<String> {
        let (cursor, code) = token.split_once('.')?;
        let cursor = String::from_utf8(unhex(cursor)?).ok()?;
        self.page_mac(query, &cursor).verify_slice(&parse_hex::<32>(code)?).ok().map(|()| cursor)
    }

    fn page_mac(&self, query: &[u8], cursor: &str) -> Hmac<Sha256> {
        let mut mac = mac(&self.page, &(query.len() as u64).to_be_bytes());
        mac.update(query);
        mac.update(cursor.as_bytes());
        mac
    }
}

/// Which secret a table may be used with: the one in the file, or a new one for a table that has never seen any.
///
/// # Errors
/// The table was used with another secret; the file cannot be read or made.
pub fn open(path: &Path, table: &[StoredKey]) -> Result<Keys, SecretError> {
    let ids = || table.iter().map(|key| key.id.clone()).collect();
    let secret = match ServerSecret::read(path)? {
        Some(secret) => secret,
        None if table.is_empty() => {
            let secret = ServerSecret::generate()?;
            secret.write(path)?;
            secret
        }
        None => return Err(SecretError::UnknownToTable { have: None, table: ids(), path: path.to_owned() }),
    };
    let keys = secret.keys()?;
    match table.iter().find(|known| known.id == keys.id) {
        Some(known) if known.check == keys.check => Ok(keys),
        Some(_) => Err(SecretError::CheckFailed { id: keys.id }),
        None if table.is_empty() => Ok(keys),
        None => Err(SecretError::UnknownToTable { have: Some(keys.id), table: ids(), path: path.to_owned() }),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn expand<const N: usize>(derive: &Hkdf<Sha256>, purpose: &[u8]) -> Result<Zeroizing<[u8; N]>, SecretError> {
    let mut key = Zeroizing::new([0_u8; N]);
    derive.expand(purpose, key.as_mut()).map_err(|_| SecretError::Derivation)?;
    Ok(key)
}

/// HMAC-SHA-256 under a key of one block.
fn mac(key: &[u8; 64], message: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new(key.into());
    mac.update(message);
    mac
}

/// Reads what [`hex`] wrote; nothing longer than a cursor can be.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() || text.len() > 1024 {
        return None;
    }
    pairs.iter().map(|pair| parse_hex::<1>(std::str::from_utf8(pair).ok()?).map(|[byte]| byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(byte: u8) -> Keys {
        ServerSecret(Zeroizing::new([byte; 32])).keys().unwrap()
    }

    fn id(last: u8) -> ApprovalId {
        ApprovalId::parse(&format!("0190b6c0-0000-7000-8000-0000000000{last:02x}")).unwrap()
    }

    #[test]
    fn a_consume_token_names_its_own_approval_and_no_other() {
        let keys = keys(1);
        let token = keys.consume_token(id(1));
        assert_eq!(keys.approval_of(&token), Some(id(1)));
        let other = token.replace(&id(1).to_string(), &id(2).to_string());
        assert_eq!(keys.approval_of(&other), None);
    }

    #[test]
    fn a_token_changed_in_any_byte_is_none() {
        let keys = keys(1);
        let token = keys.consume_token(id(0xab));
        for index in 0..token.len() {
            let mut bytes = token.as_bytes().to_vec();
            bytes[index] ^= 1;
            assert_eq!(keys.approval_of(&String::from_utf8(bytes).unwrap()), None, "byte {index}");
        }
        for hostile in ["", ".", "...", "cs1...", "cs1.x.y.z", &token.to_uppercase(), &format!("{}.", *token)] {
            assert_eq!(keys.approval_of(hostile), None, "{hostile:?}");
        }
        assert_eq!(keys.approval_of(&token[..token.len() - 2]), None);
        assert_eq!(keys.approval_of(&"a.".repeat(1 << 16)), None);
    }

    #[test]
    fn another_secret_does_not_know_the_token() {
        assert_eq!(keys(2).approval_of(&keys(1).consume_token(id(1))), None);
        assert_ne!(keys(1).stored(), keys(2).stored());
    }

    #[test]
    fn each_purpose_has_a_key_of_its_own() {
        let keys = keys(1);
        assert_ne!(*keys.consume, *keys.page);
        assert_ne!(hex(keys.consume.as_ref()), keys.check);
        assert!(!keys.check.starts_with(&keys.id));
    }

    #[test]
    fn a_page_token_is_for_the_very_query_it_was_made_for() {
        let keys = keys(1);
        let token = keys.page_token(b"query", "12|x.y");
        assert_eq!(keys.page_cursor(b"query", &token).as_deref(), Some("12|x.y"));
        assert_eq!(keys.page_cursor(b"quer", &token), None);
        assert_eq!(keys.page_cursor(b"", &token), None);
        for hostile in ["", ".", "zz.zz", "00.00", "\u{e9}.x", &token[1..]] {
            assert_eq!(keys.page_cursor(b"query", hostile), None, "{hostile:?}");
        }
    }

    #[test]
    fn a_secret_is_made_once_kept_private_and_refused_where_the_table_knows_another() {
        let folder = std::env::temp_dir().join(format!("countersign-secret-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("secret");
        let _ = std::fs::remove_file(&path);
        let made = open(&path, &[]).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(open(&path, &[made.stored()]).unwrap().stored(), made.stored());
        let stranger = StoredKey { id: "0011223344556677".to_owned(), check: "x".to_owned() };
        let refused = open(&path, std::slice::from_ref(&stranger)).unwrap_err().to_string();
        assert!(refused.contains("0011223344556677") && refused.contains(&made.stored().id), "{refused}");
        std::fs::remove_file(&path).unwrap();
        let missing = open(&path, &[stranger]).unwrap_err();
        assert!(matches!(missing, SecretError::UnknownToTable { have: None, .. }));
        assert!(!path.exists(), "no new secret for a table that has one");
        std::fs::write(&path, "not a secret").unwrap();
        assert!(matches!(open(&path, &[]), Err(SecretError::NotASecret { .. })));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
