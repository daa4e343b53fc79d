//! Sealing the audit, beside the doors and once more when they are shut.

use super::observe;
use crate::config::Config;
use crate::engine::Engine;
use crate::sealer::{Sealer, SealerSettings};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Starts sealing what the engine's store keeps, with the secrets that are in force each time.
pub(super) fn start(
    config: &Config,
    engine: &Arc<Engine>,
    stopped: watch::Receiver<bool>,
) -> (Arc<Sealer>, JoinHandle<()>) {
    let settings = SealerSettings {
        origin: config.sealing.origin.clone(),
        checkpoint_every: config.sealing.checkpoint_every,
        checkpoint_file: config.sealing.checkpoint_file.clone(),
        deleted_after: config.retention.audit_records,
    };
    // The engine holds whoever seals, for who asks for a checkpoint at once.
    let secrets = Arc::downgrade(engine);
    let keys = move || {
        let secrets = secrets.upgrade()?.secrets();
        secrets.makes.then(|| Arc::clone(&secrets.keyring))
    };
    let sealer = Arc::new(Sealer::new(Arc::clone(engine.store()), Box::new(keys), settings));
    observe::sealer(engine.metrics(), &sealer);
    engine.sealed_by(Arc::clone(&sealer));
    let sealing = tokio::spawn(Arc::clone(&sealer).run_until(config.sealing.seal_every, stopped));
    (sealer, sealing)
}

/// Seals and signs what there is, for as long as that may take. What is left is sealed by whoever comes next.
pub(super) async fn finish(sealer: &Sealer, within: Duration) {
    match tokio::time::timeout(within, sealer.finish()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the last records of the audit are sealed after the next start"),
        Err(_) => tracing::warn!("the last records of the audit are sealed after the next start: there was no time"),
    }
}
