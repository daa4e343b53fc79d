//! Reading again while the sidecar serves: the policy whenever its files have changed and hold still, and callers and
//! server secrets when they are told to be. What is right is swapped in whole; what is wrong changes nothing and is said.
//!
//! Files are looked at, not watched: names, resolved files, sizes and times, twice a second. That sees renames, links that
//! are led elsewhere (as mounts of container platforms do) and network mounts, and any storm of changes costs one reading
//! for each time that files must hold still.

use super::secrets::SecretsWatch;
use super::tls::Tls;
use crate::auth::SharedCallers;
use crate::config::Config;
use crate::domain::policy::Problem;
use crate::domain::text::{LineBreaks, neutralise};
use crate::engine::Engine;
use crate::policy_files::{Built, CatalogFiles, ContentDigest, PolicyLoadError, Signature, Snapshot, signature};
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How often files are looked at, unless they need not hold still for half as long.
const LOOK: Duration = Duration::from_millis(500);
/// Every so many looks the files are read though nothing says that they changed: two writes may share a time, and some
/// mounts tell times late.
const LOOKS_PER_READING: u64 = 120;
/// So many readings in a row that differ are a problem worth telling.
const RESTLESS: u32 = 100;
/// How often expired credentials are looked for.
const EXPIRY: Duration = Duration::from_millis(500);

/// What reads policy and configuration again. Clones are the same.
#[derive(Clone, Debug)]
pub struct Reload {
    asked: Arc<Notify>,
    callers: SharedCallers,
    secrets: Arc<SecretsWatch>,
    /// Of each listener that has any.
    tls: Arc<[Tls]>,
    /// What the process was started with.
    started: Arc<Config>,
}

impl Reload {
    /// Looks after policy and callers until `stopped`.
    pub(super) fn start(
        config: &Config,
        watched: Watched,
        callers: SharedCallers,
        secrets: Arc<SecretsWatch>,
        engine: Arc<Engine>,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        let asked = Arc::new(Notify::new());
        let reloader = Reloader { watched, engine, asked: Arc::clone(&asked), pace: Timer };
        say_expired(&callers);
        tokio::spawn(until(stopped.clone(), reloader.run()));
        tokio::spawn(until(stopped, end_expired(callers.clone())));
        Self { asked, callers, secrets, tls: Arc::default(), started: Arc::new(config.clone()) }
    }

    /// Has the policy read again now, though nothing says that it changed. It still has to hold still first.
    pub fn policy(&self) {
        self.asked.notify_one();
    }

    /// The same, with TLS of these listeners to be read again.
    pub(super) fn with_tls(self, tls: Vec<Tls>) -> Self {
        Self { tls: tls.into(), ..self }
    }

    /// Has the files of every listener's TLS read again now, though nothing says that they changed. They still have to hold
    /// still first.
    pub fn tls(&self) {
        self.tls.iter().for_each(Tls::read_again);
    }

    /// The callers in force, as the doors share them.
    pub fn callers(&self) -> &SharedCallers {
        &self.callers
    }

    /// Takes what can be taken of a configuration without problems: its callers, and the secrets in the files that it names.
    /// Secrets that may not be taken change nothing, and the log says why. Of what else differs the log says that it needs a
    /// restart.
    pub async fn configuration(&self, config: &Config) {
        let was = self.callers.now();
        self.callers.replace(config.callers.clone());
        for name in was.changed(&config.callers) {
            let (before, after) =
                (was.iter().any(|caller| caller.name == name), config.callers.iter().any(|caller| caller.name == name));
            let what = match (before, after) {
                (false, _) => "added",
                (true, false) => "removed",
                (true, true) => "changed",
            };
            tracing::info!(caller = %name, what, "the callers changed");
        }
        if config.callers.is_empty() {
            tracing::warn!("no callers are configured: nobody can call");
        }
        say_expired(&self.callers);
        for key in self.started.needs_restart(config) {
            tracing::warn!(key, "the configuration changed what is taken at start alone: it needs a restart");
        }
        self.secrets.replace(&config.secret_file, &config.further_secret_files).await;
        tracing::info!(callers = config.callers.iter().count(), "the configuration was read again");
    }
}

fn say_expired(callers: &SharedCallers) {
    for caller in callers.expired() {
        tracing::warn!(caller = %caller.name, "this caller's credential has expired: it opens nothing");
    }
}

async fn end_expired(callers: SharedCallers) {
    loop {
        tokio::time::sleep(EXPIRY).await;
        callers.end_expired();
    }
}

pub(super) async fn until(mut stopped: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        // A sender that is gone has nothing more to tell: the process is ending.
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
}

/// The policy's files, and what was last made of them.
#[derive(Debug)]
pub(super) struct Watched {
    path: PathBuf,
    settle: Duration,
    /// Those that the files name.
    catalogs: CatalogFiles,
    /// What was last loaded, or refused. Refused once, it is not tried again.
    attempted: ContentDigest,
    /// None: not looked at yet.
    signature: Option<Signature>,
    looks: u64,
}

impl Watched {
    /// The policy at `path`, which names these catalogs and was loaded with this digest.
    pub(super) fn new(path: PathBuf, settle: Duration, catalogs: CatalogFiles, attempted: ContentDigest) -> Self {
        Self { path, settle, catalogs, attempted, signature: None, looks: 0 }
    }
}

/// How time passes between two readings.
trait Pace: Send + Sync {
    /// Waits for `span`.
    fn wait(&self, span: Duration) -> impl Future<Output = ()> + Send;
}

/// As it does.
struct Timer;

impl Pace for Timer {
    fn wait(&self, span: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(span)
    }
}

struct Reloader<P> {
    watched: Watched,
    engine: Arc<Engine>,
    asked: Arc<Notify>,
    pace: P,
}

impl<P: Pace> Reloader<P> {
    async fn run(mut self) {
        let between = LOOK.min(self.watched.settle.saturating_mul(2));
        loop {
            let asked = tokio::select! {
                () = self.pace.wait(between) => false,
                () = self.asked.notified() => true,
            };
            self.look(asked).await;
        }
    }

    /// Looks whether anything has changed, and if so loads or refuses it once it holds still.
    async fn look(&mut self, asked: bool) {
        let watched = &mut self.watched;
        watched.looks = watched.looks.wrapping_add(1);
        let (path, catalogs) = (watched.path.clone(), watched.catalogs.clone());
        let Some(seen) = blocking(move || signature(&path, &catalogs)).await else { return };
        let unchanged = watched.signature.as_ref() == Some(&seen);
        if unchanged && !asked && !watched.looks.is_multiple_of(LOOKS_PER_READING) {
            return;
        }
        let catalogs = watched.catalogs.clone();
        let Some((_, first)) = self.read(&catalogs).await else { return };
        if first == self.watched.attempted && !asked {
            return;
        }
        if let Some(built) = self.settled(catalogs, first).await {
            self.take(built, asked);
        }
    }

    /// What the files are once two readings in a row are equal; built from the last of them.
    async fn settled(&mut self, mut catalogs: CatalogFiles, mut last: ContentDigest) -> Option<Built> {
        let mut readings: u32 = 1;
        loop {
            self.pace.wait(self.watched.settle).await;
            let (snapshot, digest) = self.read(&catalogs).await?;
            readings = readings.saturating_add(1);
            if digest == last {
                let Some(built) = blocking(|| snapshot.build()).await else {
                    return Some(could_not_be_built(catalogs, digest));
                };
                if !built.read_late {
                    return Some(built);
                }
                // A catalog that nobody knew of has to hold still as well.
                (catalogs, last) = (built.catalogs, built.digest);
            } else {
                last = digest;
            }
            if readings == RESTLESS {
                let message = "the files keep changing, and are loaded once they hold still";
                let problem = Problem::of_file(&self.watched.path.display().to_string(), message);
                tracing::warn!("policy: {}", shown(&problem));
                self.engine.keep_policy(&[problem]);
            }
        }
    }

    /// Reads everything. The signature is taken first, so that what changes later is seen by the next look.
    async fn read(&mut self, catalogs: &CatalogFiles) -> Option<(Snapshot, ContentDigest)> {
        let (path, catalogs) = (self.watched.path.clone(), catalogs.clone());
        let read = move || {
            let signature = signature(&path, &catalogs);
            let snapshot = Snapshot::read(&path, &catalogs);
            let digest = snapshot.digest();
            (signature, snapshot, digest)
        };
        let (signature, snapshot, digest) = blocking(read).await?;
        self.watched.signature = Some(signature);
        Some((snapshot, digest))
    }

    /// Puts a policy in force, or says why not.
    fn take(&mut self, built: Built, asked: bool) {
        let again = built.digest == self.watched.attempted;
        self.watched.attempted = built.digest;
        self.watched.catalogs = built.catalogs;
        match built.policy {
            Ok(policy) => {
                for warning in policy.warnings() {
                    tracing::warn!("policy: {}", shown(warning));
                }
                let (was, is) = (self.engine.policy().revision().to_owned(), policy.revision().to_owned());
                self.engine.replace_policy(policy);
                if was == is {
                    tracing::info!(policy_revision = is, asked, again, "the policy was read again and means the same");
                } else {
                    tracing::info!(policy_revision = is, was, asked, "another policy is in force");
                }
            }
            Err(error) => {
                for problem in &error.problems {
                    tracing::warn!("policy: {}", shown(problem));
                }
                self.engine.keep_policy(&error.problems);
                let (problems, policy) = (error.problems.len(), self.engine.policy());
                tracing::error!(
                    problems,
                    policy_revision = policy.revision(),
                    "the policy's files are refused: the policy in force stays"
                );
            }
        }
    }
}

fn could_not_be_built(catalogs: CatalogFiles, digest: ContentDigest) -> Built {
    let problems = vec![Problem::of_file("", "the policy could not be built: this is a fault of the sidecar")];
    Built { policy: Err(PolicyLoadError { problems }), catalogs, digest, read_late: false }
}

/// As one line of a log.
fn shown(problem: &Problem) -> String {
    neutralise(&problem.to_string(), LineBreaks::Escape).text.into_owned()
}

/// Runs what waits for disks or takes long where no call waits for it. None if it panicked or the process ends.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

#[cfg(test)]
mod tests;
