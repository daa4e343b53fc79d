//! The server secrets and the table: which may be used with it at the start, whether it wants one that is not at hand while
//! it is served, and what replaces those in force.
//!
//! A table of many sidecars changes under each of them: one may begin to make things with a secret that another lacks. The
//! one that lacks it is not ready, and says which it is, until it has it or nothing needs it any more. Meanwhile nothing is
//! taken for forged that may be genuine.

use super::StartError;
use super::health::Health;
use crate::config::{Config, StoreSettings};
use crate::engine::{Engine, Secrets};
use crate::secrets::{self, Keyring, SecretError, SecretProblems, ServerSecret, TableKeys};
use crate::storage::{Store, StoreError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};

/// How often the table is asked which secrets it wants.
const ASK_KEYS: Duration = Duration::from_secs(5);

/// The secrets that were read before a table was opened; none if whether one is made depends on the table.
pub(super) fn read(config: &Config) -> Result<Option<Keyring>, StartError> {
    match &config.store {
        StoreSettings::Sqlite(_) => Ok(None),
        StoreSettings::Postgres(_) => {
            let read = Keyring::read(&config.secret_file, &config.further_secret_files);
            read.map(Some).map_err(StartError::Secrets)
        }
    }
}

/// How the secrets stand to the table that they are to be used with. It knows them all before anything is made with them. A
/// file of one process is not served with others than it needs; a table of many is, and is not ready.
pub(super) async fn open(config: &Config, read: Option<Keyring>, store: &dyn Store) -> Result<Secrets, StartError> {
    let table = wanted(store).await.map_err(StartError::Store)?;
    let (first, further) = (&config.secret_file, &config.further_secret_files);
    let keyring = match read {
        Some(keyring) => keyring,
        None => secrets::open(first, further, &table).map_err(StartError::Secrets)?,
    };
    let contradictions = keyring.contradictions(&table);
    if !contradictions.is_empty() {
        return Err(StartError::Secrets(SecretProblems(contradictions)));
    }
    warn_of_readers(first, further);
    let secrets = standing(Arc::new(keyring), &table, false);
    if !secrets.missing.is_empty() {
        say_missing(&secrets.missing);
        return Ok(secrets);
    }
    admitted(secrets, &table, store).await.map_err(StartError::Store)
}

fn warn_of_readers(first: &Path, further: &[PathBuf]) {
    for path in std::iter::once(first).chain(further.iter().map(PathBuf::as_path)) {
        if ServerSecret::is_readable_by_others(path) {
            tracing::warn!(path = %path.display(), "the server secret can be read by others than its owner");
        }
    }
}

fn say_missing(missing: &[String]) {
    let key_ids = missing.join(",");
    tracing::error!(
        key_ids,
        "not ready: the table needs server secrets that this sidecar lacks: name their files in \
         `store.further_secret_files` and send SIGHUP, or restart"
    );
}

async fn wanted(store: &dyn Store) -> Result<TableKeys, StoreError> {
    // In this order: what is in use by the second answer was known by the first, or is missing by either.
    Ok(TableKeys { known: store.keys().await?, in_use: store.keys_in_use().await? })
}

/// How these secrets stand to the table. Where they lack one, the first may make what is new only if the table is known to be
/// used with it: `makes`, or something is sealed under it.
fn standing(keyring: Arc<Keyring>, table: &TableKeys, makes: bool) -> Secrets {
    let missing = keyring.missing(table);
    let makes = makes || table.in_use.iter().any(|id| id == keyring.first_id());
    Secrets { keyring, missing: missing.into(), makes }
}

/// Has the table know secrets that lack nothing; from then on they make what is new.
async fn admitted(secrets: Secrets, table: &TableKeys, store: &dyn Store) -> Result<Secrets, StoreError> {
    for key in secrets.keyring.stored() {
        if !table.known.contains(&key) {
            tracing::info!(key_id = key.id, "a server secret that this database has not seen before");
            store.add_key(key).await?;
        }
    }
    Ok(Secrets { makes: true, ..secrets })
}

/// Watches over the secrets while the sidecar serves.
#[derive(Debug)]
pub struct SecretsWatch {
    engine: Arc<Engine>,
    health: Health,
    /// Held by whoever looks or replaces, so that each begins with what the other has left.
    turn: Mutex<()>,
}

impl SecretsWatch {
    pub(super) fn new(engine: Arc<Engine>, health: Health) -> Self {
        Self { engine, health, turn: Mutex::default() }
    }

    /// Asks the table which secrets it wants, and turns readiness with the answer. It goes on by itself; it may be done at any
    /// time.
    pub async fn look(&self) {
        let _turn = self.turn.lock().await;
        // A table that does not answer wants what it wanted; whether it is lost is asked elsewhere.
        if let Err(cause) = self.compare().await {
            tracing::debug!(%cause, "the table did not say which server secrets it needs");
        }
    }

    async fn compare(&self) -> Result<(), StoreError> {
        let now = self.engine.secrets();
        let store = self.engine.store().as_ref();
        let admitted_before = now.makes && now.missing.is_empty();
        let table = if admitted_before {
            // They are known to the table: what is in use is all that can be missing.
            TableKeys { known: now.keyring.stored(), in_use: store.keys_in_use().await? }
        } else {
            wanted(store).await?
        };
        let mut secrets = standing(Arc::clone(&now.keyring), &table, now.makes);
        if secrets.missing.is_empty() && !admitted_before {
            secrets = admitted(secrets, &table, store).await?;
        }
        self.put(&now, secrets).await;
        Ok(())
    }

    /// Puts these in force, and says what that changes.
    async fn put(&self, was: &Secrets, secrets: Secrets) {
        let missing = !secrets.missing.is_empty();
        if secrets.missing != was.missing {
            if missing {
                say_missing(&secrets.missing);
            } else {
                tracing::info!("every server secret that the table needs is at hand");
            }
        }
        self.engine.replace_secrets(secrets);
        self.health.secrets_missing(missing).await;
    }

    /// Takes the secrets in these files in place of those in force, whole or not at all; of what is wrong with them the log
    /// tells.
    pub(super) async fn replace(&self, first: &Path, further: &[PathBuf]) {
        let _turn = self.turn.lock().await;
        match self.taken(first, further).await {
            Ok(true) => warn_of_readers(first, further),
            Ok(false) => {}
            Err(Refused::Problems(problems)) => {
                for problem in &problems.0 {
                    tracing::warn!("server secrets: {problem}");
                }
                tracing::error!(problems = problems.0.len(), "the server secrets are refused: those in force stay");
            }
            Err(Refused::Store(cause)) => {
                tracing::error!(%cause, "the table does not answer for the server secrets: those in force stay");
            }
        }
    }

    /// Whether they are others than before.
    async fn taken(&self, first: &Path, further: &[PathBuf]) -> Result<bool, Refused> {
        let was = self.engine.secrets();
        let (first, further) = (first.to_owned(), further.to_owned());
        let read = tokio::task::spawn_blocking(move || Keyring::read(&first, &further)).await;
        let keyring = read.map_err(|_| SecretProblems::from(SecretError::Derivation))??;
        if keyring.stored() == was.keyring.stored() {
            self.compare().await?;
            return Ok(false);
        }
        let store = self.engine.store().as_ref();
        let table = wanted(store).await?;
        let problems = unfit(&was, &keyring, &table);
        if !problems.is_empty() {
            return Err(Refused::Problems(SecretProblems(problems)));
        }
        let makes = was.makes && was.keyring.first_id() == keyring.first_id();
        let mut secrets = standing(Arc::new(keyring), &table, makes);
        if secrets.missing.is_empty() {
            secrets = admitted(secrets, &table, store).await?;
        }
        let ids: Vec<String> = secrets.keyring.stored().into_iter().map(|key| key.id).collect();
        tracing::info!(key_ids = ids.join(","), "the server secrets were replaced; the first makes what is new");
        self.put(&was, secrets).await;
        Ok(true)
    }

    /// Looks again and again until the sidecar stops.
    pub(super) async fn run(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(ASK_KEYS) => {}
                _ = stopped.changed() => return,
            }
            self.look().await;
        }
    }
}

/// Why secrets were not taken.
enum Refused {
    Problems(SecretProblems),
    Store(StoreError),
}

impl From<SecretProblems> for Refused {
    fn from(problems: SecretProblems) -> Self {
        Self::Problems(problems)
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What keeps `newer` from taking the place of `was` while the sidecar serves: it is none of the table's; or it lacks one that
/// is in use and at hand, or with which calls in flight are about to make something.
fn unfit(was: &Secrets, newer: &Keyring, table: &TableKeys) -> Vec<SecretError> {
    let mut problems = newer.contradictions(table);
    let ids = |keyring: &Keyring| keyring.stored().into_iter().map(|key| key.id).collect::<Vec<_>>();
    let (had, have) = (ids(&was.keyring), ids(newer));
    if !have.iter().any(|id| table.known.iter().any(|key| key.id == *id)) {
        let table = table.known.iter().map(|key| key.id.clone()).collect();
        problems.push(SecretError::UnknownToTable { have, table });
        return problems;
    }
    let gone = table.in_use.iter().filter(|id| had.contains(id) && !have.contains(id));
    problems.extend(gone.map(|id| SecretError::InUse { id: id.clone() }));
    let first = was.keyring.first_id();
    if was.makes && !have.iter().any(|id| id == first) && !table.in_use.iter().any(|id| id == first) {
        problems.push(SecretError::StillFirst { id: first.to_owned() });
    }
    problems
}
