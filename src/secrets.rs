//! The server secrets and the keys derived from them (HKDF-SHA-256, RFC 5869). The consume token is
//! `cs1.<key id>.<approval id>.<mac>`; the database holds nothing from which one could be made.
//!
//! - `keyring`: several secrets at once, of which the first makes what is new; which of them a table may be used with
//! - `sealing`: the arguments of an approval, kept so that the database alone does not show them
//! - `signing`: what others can check without a secret: permits and the audit's checkpoints
//! - `permits`: the tokens that are signed so, and the public keys that check them

mod keyring;
mod permits;
mod sealing;
mod signing;

pub use keyring::{Keyring, SecretProblems, TableKeys, open, read_files};
pub use permits::{JwksProblem, MAX_JWKS_BYTES, PermitKey, PermitKeys, PermitToken};
pub use sealing::SealError;
pub use signing::{PublicKey, Signature, SigningKey, is_signed};

use crate::domain::hex::{self, hex, parse_hex};
use crate::domain::ids::ApprovalId;
use crate::storage::StoredKey;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use zeroize::{Zeroize as _, Zeroizing};

const TOKEN_VERSION: &str = "cs1";
/// `cs1.<16 digits>.<an id of 36>.<64 digits>`.
const TOKEN_BYTES: usize = 3 + 1 + 16 + 1 + 36 + 1 + 64;

/// The file is 64 digits and a line feed; more is not a secret of ours.
const FILE_BYTES: u64 = 4096;
/// The same, and what reading needs to find the end.
const READ_BYTES: usize = 4096 + 64;

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
    /// There is no such file.
    Missing {
        /// Which.
        path: PathBuf,
    },
    /// The first secret's file is not there, and none is made for a table that others use too.
    Required {
        /// Which.
        path: PathBuf,
    },
    /// The secret that makes what is new would be gone while the sidecar serves.
    StillFirst {
        /// Its id.
        id: String,
    },
    /// The file that should have the first secret is not there, and the table was used before.
    FirstMissing {
        /// Where it was looked for.
        path: PathBuf,
        /// The ids that the table knows.
        table: Vec<String>,
    },
    /// Two files have the same secret.
    Duplicate {
        /// The later one.
        path: PathBuf,
        /// The id of both.
        id: String,
    },
    /// The table was used with other secrets than these.
    UnknownToTable {
        /// The ids of the secrets at hand.
        have: Vec<String>,
        /// The ids that the table knows.
        table: Vec<String>,
    },
    /// The table has rows that need a secret which is not at hand.
    InUse {
        /// Its id.
        id: String,
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
            Self::Missing { path } => write!(formatter, "the server secret {} is missing", path.display()),
            Self::Required { path } => write!(
                formatter,
                "the server secret {} does not exist, and none is made for a database that other sidecars use too: make it \
                 once with `countersign secret new --out FILE`, and copy it to every sidecar",
                path.display()
            ),
            Self::StillFirst { id } => write!(
                formatter,
                "the server secret of the key id {id} makes what is new, and is not among these: let another one do so \
                 first and name this one in `store.further_secret_files`, then take it out"
            ),
            Self::FirstMissing { path, table } => write!(
                formatter,
                "the server secret {} is missing, and the database was used with the key id {}: restore that secret. To \
                 bring a new one, make it with `countersign secret new` and name the old one in \
                 `store.further_secret_files`",
                path.display(),
                table.join(", ")
            ),
            Self::Duplicate { path, id } => write!(
                formatter,
                "the server secret {} has the key id {id}, as has another file: name each secret once",
                path.display()
            ),
            Self::UnknownToTable { have, table } => write!(
                formatter,
                "the server secrets have the key id {}, but the database was used with the key id {}: restore that \
                 secret (also beside a new one, in `store.further_secret_files`), or start with an empty database",
                have.join(", "),
                table.join(", ")
            ),
            Self::InUse { id } => write!(
                formatter,
                "the database still needs the server secret of the key id {id}, which seals arguments in it and signed \
                 tokens that are out: name its file in `store.further_secret_files` until they are erased"
            ),
            Self::CheckFailed { id } => write!(
                formatter,
                "the database knows the key id {id} with another check value: it belongs to another secret"
            ),
        }
    }
}

impl std::error::Error for SecretError {}

impl SecretError {
    /// Whether it is a problem of this file.
    fn is_about(&self, file: &Path) -> bool {
        match self {
            Self::File { path, .. }
            | Self::NotASecret { path }
            | Self::Missing { path }
            | Self::Required { path }
            | Self::FirstMissing { path, .. }
            | Self::Duplicate { path, .. } => path == file,
            Self::NoRandomness
            | Self::Derivation
            | Self::UnknownToTable { .. }
            | Self::StillFirst { .. }
            | Self::InUse { .. }
            | Self::CheckFailed { .. } => false,
        }
    }
}

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
        // Room for all that is read: a text that has to move leaves a copy behind.
        let mut text = Zeroizing::new(String::with_capacity(READ_BYTES));
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
        // Whoever starts holds the database's lock, and a person makes one secret at a time: a draft that is there was given up.
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
            seal: expand(&derive, b"seal")?,
            permit: PermitKey::of(SigningKey::of(&expand(&derive, b"permit")?)?),
            checkpoint: SigningKey::of(&expand(&derive, b"checkpoint")?)?,
        })
    }
}

/// The keys of one server secret, each for one purpose.
pub struct Keys {
    id: String,
    check: String,
    consume: Zeroizing<[u8; 64]>,
    page: Zeroizing<[u8; 64]>,
    seal: Zeroizing<[u8; 32]>,
    permit: PermitKey,
    checkpoint: SigningKey,
}

impl fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Keys").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Keys {
    /// The id of the secret, in 16 hexadecimal digits. It is no secret: tokens and rows name it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Signs permits.
    pub fn permit(&self) -> &PermitKey {
        &self.permit
    }

    /// Signs the audit's checkpoints.
    pub fn checkpoint(&self) -> &SigningKey {
        &self.checkpoint
    }

    /// What the table keeps of the secret.
    pub fn stored(&self) -> StoredKey {
        StoredKey { id: self.id.clone(), check: self.check.clone() }
    }

    /// The token that uses the approval `id`. The same each time.
    pub fn consume_token(&self, id: ApprovalId) -> Zeroizing<String> {
        let mut code = mac(&self.consume, id.to_string().as_bytes()).finalize().into_bytes();
        let mut token = Zeroizing::new(String::with_capacity(TOKEN_BYTES));
        // Writing to a string does not fail, and within its capacity it leaves no copy behind.
        let _ = write!(token, "{TOKEN_VERSION}.{}.{id}.", self.id);
        let _ = hex::write(&mut *token, &code);
        code.as_mut_slice().zeroize();
        token
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
        let code = self.page_mac(query, cursor).finalize().into_bytes();
        format!("{}.{}.{}", self.id, hex(cursor.as_bytes()), hex(&code))
    }

    /// The cursor in a page token; none if it was not made for this very query.
    pub fn page_cursor(&self, query: &[u8], token: &str) -> Option<String> {
        let (cursor, code) = token.strip_prefix(&self.id)?.strip_prefix('.')?.split_once('.')?;
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

/// The key id that a token of the form `cs1.<key id>.<approval id>.<mac>` names, whoever made it.
fn key_id_of(token: &str) -> Option<&str> {
    let mut parts = token.split('.');
    let (version, key_id, id, code) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let formed = parts.next().is_none()
        && version == TOKEN_VERSION
        && parse_hex::<8>(key_id).is_some()
        && ApprovalId::parse(id).is_some()
        && parse_hex::<32>(code).is_some();
    formed.then_some(key_id)
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
mod tests;
