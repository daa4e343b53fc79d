//! The server secrets in force, which may be replaced while calls go on.

use super::{Engine, EngineError};
use crate::secrets::Keyring;
use std::sync::Arc;

/// So many ids are told at most: a status travels in headers.
const TOLD: usize = 16;

/// The server secrets at hand, and how they stand to the table's.
#[derive(Clone, Debug)]
pub struct Secrets {
    /// Those at hand.
    pub keyring: Arc<Keyring>,
    /// The key ids of those that the table wants and that are not at hand. While there is one, the sidecar is not ready.
    pub missing: Arc<[String]>,
    /// Whether the first of them may make what is new. One that the others may not know may not: they would be not ready.
    pub makes: bool,
}

impl Secrets {
    /// Secrets that lack nothing.
    pub fn whole(keyring: Keyring) -> Self {
        Self { keyring: Arc::new(keyring), missing: Arc::default(), makes: true }
    }

    /// The error of who needs one that is missing.
    fn error(&self) -> EngineError {
        EngineError::SecretMissing(self.missing.iter().take(TOLD).cloned().collect())
    }
}

impl Engine {
    /// The server secrets in force.
    pub fn secrets(&self) -> Arc<Secrets> {
        self.secrets.load_full()
    }

    /// Replaces them. Calls that have begun may end with those of before.
    pub fn replace_secrets(&self, secrets: Secrets) {
        self.metrics.secrets_missing.set(i64::try_from(secrets.missing.len()).unwrap_or(i64::MAX));
        self.secrets.store(Arc::new(secrets));
    }

    /// Those at hand.
    pub(super) fn keys(&self) -> Arc<Keyring> {
        Arc::clone(&self.secrets.load().keyring)
    }

    /// Those at hand, to make something with; refused where the others may not have the first of them.
    pub(super) fn making(&self) -> Result<Arc<Keyring>, EngineError> {
        let secrets = self.secrets.load();
        if secrets.makes { Ok(Arc::clone(&secrets.keyring)) } else { Err(secrets.error()) }
    }

    /// The key id of this token, if it is one that the table needs and that is not at hand. Another sidecar made the token,
    /// and it may be as good as any.
    pub(super) async fn missing_key_of(&self, token: &str) -> Result<Option<String>, EngineError> {
        let keys = self.keys();
        let Some(absent) = keys.absent_key_of(token) else { return Ok(None) };
        // The table is asked at once: what is known of it here may be older than the token.
        Ok(self.store.keys_in_use().await?.into_iter().find(|id| id == absent))
    }
}
