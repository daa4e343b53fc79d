//! Several secrets at once: the first mints tokens and seals, all verify and open. So a secret is replaced while what was
//! made with the old one is still good.
//!
//! The table keeps one row for every secret that it was ever used with, and never deletes one: it is how a secret that
//! comes back is told from a stranger's. A secret is *in use* as long as a row is sealed under it. That covers the tokens
//! that are out as well: an approval keeps its sealed arguments for as long as it is open.

use super::{Keys, SealError, SecretError, ServerSecret, sealing};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::ApprovalId;
use crate::storage::{SealedArguments, StoredKey};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The secrets of one sidecar, ready for use.
#[derive(Debug)]
pub struct Keyring {
    first: Keys,
    further: Vec<Keys>,
}

/// What a table says about the secrets that it was used with.
#[derive(Clone, Debug, Default)]
pub struct TableKeys {
    /// Every one that it was ever used with.
    pub known: Vec<StoredKey>,
    /// The ids of those that rows are sealed under.
    pub in_use: Vec<String>,
}

/// Everything that is wrong with the secrets.
#[derive(Debug)]
pub struct SecretProblems(pub Vec<SecretError>);

impl fmt::Display for SecretProblems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problems: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        formatter.write_str(&problems.join("\n"))
    }
}

impl std::error::Error for SecretProblems {}

impl From<SecretError> for SecretProblems {
    fn from(problem: SecretError) -> Self {
        Self(vec![problem])
    }
}

impl Keyring {
    /// The keys of these secrets, of which `first` makes what is new.
    pub fn new(first: Keys, further: Vec<Keys>) -> Self {
        Self { first, further }
    }

    /// What the table is to know of each, the first one first.
    pub fn stored(&self) -> Vec<StoredKey> {
        self.all().map(Keys::stored).collect()
    }

    /// The keys of the one that makes what is new.
    pub fn first(&self) -> &Keys {
        &self.first
    }

    /// The id of the one that makes what is new.
    pub fn first_id(&self) -> &str {
        &self.first.id
    }

    /// The key id that such a token names, if no secret of that id is at hand: only whoever has it can say more.
    pub fn absent_key_of<'token>(&self, token: &'token str) -> Option<&'token str> {
        super::key_id_of(token).filter(|id| self.of(id).is_none())
    }

    /// The secrets in these files, each of which has to be there.
    ///
    /// # Errors
    /// Everything that is wrong with them: missing, unreadable, no secrets, the same secret twice.
    pub fn read(first: &Path, further: &[PathBuf]) -> Result<Self, SecretProblems> {
        let (minting, further, mut problems) = read_files(first, further);
        match minting {
            Some(minting) if problems.is_empty() => return Ok(Self::new(minting, further)),
            Some(_) => {}
            None if problems.iter().any(|problem| problem.is_about(first)) => {}
            None => problems.insert(0, SecretError::Required { path: first.to_owned() }),
        }
        Err(SecretProblems(problems))
    }

    /// What the table knows as another secret of the same id.
    pub fn contradictions(&self, table: &TableKeys) -> Vec<SecretError> {
        self.all().filter_map(|keys| contradiction(keys, table)).collect()
    }

    /// The ids of the secrets that the table wants and that are not at hand: every one in use; and where it knows none of
    /// these at all, those that it knows.
    pub fn missing(&self, table: &TableKeys) -> Vec<String> {
        let absent = |id: &&String| self.of(id).is_none();
        let in_use: Vec<String> = table.in_use.iter().filter(absent).cloned().collect();
        let stranger = !table.known.is_empty() && !table.known.iter().any(|key| self.of(&key.id).is_some());
        if in_use.is_empty() && stranger {
            return table.known.iter().map(|key| key.id.clone()).collect();
        }
        in_use
    }

    /// The token that uses the approval `id`. The same each time, as long as the same secret is the first.
    pub fn consume_token(&self, id: ApprovalId) -> Zeroizing<String> {
        self.first.consume_token(id)
    }

    /// The approval that this token uses; none if it is not exactly a token that one of the secrets makes.
    pub fn approval_of(&self, token: &str) -> Option<ApprovalId> {
        self.of(token.split('.').nth(1)?)?.approval_of(token)
    }

    /// An opaque token for the cursor of a page of the query `query`.
    pub fn page_token(&self, query: &[u8], cursor: &str) -> String {
        self.first.page_token(query, cursor)
    }

    /// The cursor in a page token; none if no secret made it for this very query.
    pub fn page_cursor(&self, query: &[u8], token: &str) -> Option<String> {
        self.of(token.split('.').next()?)?.page_cursor(query, token)
    }

    /// Seals the canonical text of an approval's arguments.
    ///
    /// # Errors
    /// The machine has no randomness to give.
    pub fn seal(
        &self,
        approval: ApprovalId,
        fingerprint: &Fingerprint,
        arguments: &str,
    ) -> Result<SealedArguments, SealError> {
        let bytes = sealing::seal(&self.first.seal, approval, fingerprint, arguments)?;
        Ok(SealedArguments { key_id: self.first.id.clone(), bytes })
    }

    /// Opens what was sealed for this approval and fingerprint.
    ///
    /// # Errors
    /// Its secret is not at hand; it is not what was sealed.
    pub fn unseal(
        &self,
        approval: ApprovalId,
        fingerprint: &Fingerprint,
        sealed: &SealedArguments,
    ) -> Result<Zeroizing<String>, SealError> {
        let keys = self.of(&sealed.key_id).ok_or_else(|| SealError::KeyMissing { id: sealed.key_id.clone() })?;
        sealing::unseal(&keys.seal, approval, fingerprint, &sealed.bytes)
    }

    /// The keys of every secret, the first one first.
    pub fn all(&self) -> impl Iterator<Item = &Keys> {
        std::iter::once(&self.first).chain(&self.further)
    }

    /// The keys of that id. Ids are no secrets, so how long the search takes tells nothing.
    fn of(&self, id: &str) -> Option<&Keys> {
        self.all().find(|keys| keys.id == id)
    }
}

fn contradiction(keys: &Keys, table: &TableKeys) -> Option<SecretError> {
    let other = table.known.iter().any(|key| key.id == keys.id && key.check != keys.check);
    other.then(|| SecretError::CheckFailed { id: keys.id.clone() })
}

/// The keys of the secrets in these files: of the first one none if its file is not there, which is no problem by itself,
/// and of the others those that can be read.
pub fn read_files(first: &Path, further: &[PathBuf]) -> (Option<Keys>, Vec<Keys>, Vec<SecretError>) {
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    let mut read = |path: &Path, problems: &mut Vec<SecretError>| {
        let keys = ServerSecret::read(path).and_then(|secret| secret.map(|secret| secret.keys()).transpose());
        match keys {
            Ok(Some(keys)) if !seen.insert(keys.id.clone()) => {
                problems.push(SecretError::Duplicate { path: path.to_owned(), id: keys.id });
                None
            }
            Ok(keys) => Some(keys),
            Err(problem) => {
                problems.push(problem);
                None
            }
        }
    };
    let minting = read(first, &mut problems).flatten();
    let mut others = Vec::new();
    for path in further {
        match read(path, &mut problems) {
            Some(Some(keys)) => others.push(keys),
            Some(None) => problems.push(SecretError::Missing { path: path.clone() }),
            None => {}
        }
    }
    (minting, others, problems)
}

/// The secrets that a table may be used with. A table that was never used may be used with any, and a first one is made
/// for it where there is none. One that was needs a secret that it knows, and every secret that is in use.
///
/// # Errors
/// Everything that is wrong: files that are missing, unreadable, or no secrets; the same secret twice; secrets that the
/// table does not know, or needs.
pub fn open(first: &Path, further: &[PathBuf], table: &TableKeys) -> Result<Keyring, SecretProblems> {
    let (minting, further, mut problems) = read_files(first, further);
    let known: Vec<String> = table.known.iter().map(|key| key.id.clone()).collect();
    let has_first = minting.is_some() || problems.iter().any(|problem| problem.is_about(first));
    if !has_first && !known.is_empty() {
        problems.push(SecretError::FirstMissing { path: first.to_owned(), table: known.clone() });
    }
    let have: Vec<&Keys> = minting.iter().chain(&further).collect();
    problems.extend(have.iter().filter_map(|keys| contradiction(keys, table)));
    if have.iter().any(|keys| known.contains(&keys.id)) {
        let missing = table.in_use.iter().filter(|id| !have.iter().any(|keys| keys.id == **id));
        problems.extend(missing.map(|id| SecretError::InUse { id: id.clone() }));
    } else if !have.is_empty() && !known.is_empty() {
        let have = have.iter().map(|keys| keys.id.clone()).collect();
        problems.push(SecretError::UnknownToTable { have, table: known });
    }
    if !problems.is_empty() {
        return Err(SecretProblems(problems));
    }
    let minting = match minting {
        Some(keys) => keys,
        None => {
            let secret = ServerSecret::generate()?;
            secret.write(first)?;
            secret.keys()?
        }
    };
    Ok(Keyring::new(minting, further))
}

#[cfg(test)]
mod tests;
