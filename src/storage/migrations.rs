//! Which migrations a schema still needs, and which schemas a binary cannot serve: decided here for every database.

use crate::domain::hex::hex;
use sha2::{Digest as _, Sha256};

/// One step of a schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Migration {
    /// Its number, from 1 without gaps.
    pub(super) version: i64,
    /// Its file's name.
    pub(super) name: &'static str,
    /// What it does.
    pub(super) sql: &'static str,
    /// The lowest number of a binary's last migration with which that binary can serve the schema that this one leaves.
    pub(super) compatible_from: i64,
}

/// A migration as the database has it noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Applied {
    /// Its number.
    pub(super) version: i64,
    /// Its file's name.
    pub(super) name: String,
    /// SHA-256 over what it did, in hexadecimal digits.
    pub(super) checksum: String,
    /// See [`Migration::compatible_from`].
    pub(super) compatible_from: i64,
}

/// Why a binary cannot serve a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// A newer binary has changed it in a way that this one cannot serve.
    Newer {
        /// The schema's version.
        found: i64,
        /// The lowest version of a binary that can serve it.
        compatible_from: i64,
        /// The version of this binary.
        known: i64,
    },
    /// A migration that was applied is not the one of this binary.
    Changed {
        /// Its number.
        version: i64,
        /// Its name as it was applied.
        name: String,
    },
}

impl Migration {
    /// SHA-256 over what it does, in hexadecimal digits.
    pub(super) fn checksum(&self) -> String {
        hex(&Sha256::digest(self.sql.as_bytes()))
    }
}

/// What of `migrations` is to be applied, in order, to a schema that has had `applied`.
pub(super) fn missing<'m>(migrations: &'m [Migration], applied: &[Applied]) -> Result<Vec<&'m Migration>, Unfit> {
    let known = migrations.last().map_or(0, |migration| migration.version);
    let found = version_of(applied);
    // What one migration closes, a later compatible one does not open.
    let compatible_from = applied.iter().map(|applied| applied.compatible_from).max().unwrap_or(0);
    if found > known && compatible_from > known {
        return Err(Unfit::Newer { found, compatible_from, known });
    }
    let mut missing = Vec::new();
    for migration in migrations {
        match applied.iter().find(|applied| applied.version == migration.version) {
            None => missing.push(migration),
            Some(applied) if applied.checksum == migration.checksum() => {}
            Some(applied) => {
                return Err(Unfit::Changed { version: applied.version, name: applied.name.clone() });
            }
        }
    }
    Ok(missing)
}

/// The version of a schema that has had these; 0 is a new one.
pub(super) fn version_of(applied: &[Applied]) -> i64 {
    applied.iter().map(|applied| applied.version).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Migration = Migration { version: 1, name: "0001_a", sql: "a", compatible_from: 1 };
    const B: Migration = Migration { version: 2, name: "0002_b", sql: "b", compatible_from: 1 };
    const C: Migration = Migration { version: 3, name: "0003_c", sql: "c", compatible_from: 3 };
    const D: Migration = Migration { version: 4, name: "0004_d", sql: "d", compatible_from: 1 };

    fn applied(migrations: &[Migration]) -> Vec<Applied> {
        migrations
            .iter()
            .map(|migration| Applied {
                version: migration.version,
                name: migration.name.to_owned(),
                checksum: migration.checksum(),
                compatible_from: migration.compatible_from,
            })
            .collect()
    }

    fn versions(missing: Result<Vec<&Migration>, Unfit>) -> Vec<i64> {
        missing.unwrap().iter().map(|migration| migration.version).collect()
    }

    #[test]
    fn each_migration_is_missing_until_it_is_applied() {
        assert_eq!(versions(missing(&[A, B], &[])), [1, 2]);
        assert_eq!(versions(missing(&[A, B], &applied(&[A]))), [2]);
        assert_eq!(versions(missing(&[A, B], &applied(&[A, B]))), [0_i64; 0]);
        assert_eq!((version_of(&[]), version_of(&applied(&[A, B]))), (0, 2));
    }

    #[test]
    fn an_older_binary_serves_a_newer_schema_only_if_that_allows_it() {
        assert_eq!(versions(missing(&[A], &applied(&[A, B]))), [0_i64; 0]);
        let newer = |found| Err(Unfit::Newer { found, compatible_from: 3, known: 2 });
        assert_eq!(missing(&[A, B], &applied(&[A, B, C])).map(|_| ()), newer(3));
        assert_eq!(missing(&[A, B], &applied(&[A, B, C, D])).map(|_| ()), newer(4), "whatever came after it");
    }

    #[test]
    fn a_changed_migration_is_refused_by_name() {
        let edited = Migration { sql: "another", ..A };
        let changed = Err(Unfit::Changed { version: 1, name: "0001_a".to_owned() });
        assert_eq!(missing(&[edited, B], &applied(&[A])).map(|_| ()), changed);
    }
}
