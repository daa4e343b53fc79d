//! Reads the files of a listener's TLS again when they have changed and hold still, and when told to.

use super::Tls;
use super::files::{Reading, Signature, signature};
use std::time::Duration;

/// How often files are looked at, unless they need not hold still for half as long.
const LOOK: Duration = Duration::from_millis(500);
/// Every so many looks they are read though nothing says that they changed.
const LOOKS_PER_READING: u64 = 120;
/// Files that still change after so many readings are tried as they are: a key that fits no certificate is refused.
const RESTLESS: u32 = 100;

/// Watches over one listener's files.
#[derive(Debug)]
pub(in crate::app) struct TlsWatch {
    tls: Tls,
    settle: Duration,
    /// Of what is in force.
    in_force: [u8; 32],
    /// Of what was last tried. Refused once, it is not tried again.
    attempted: [u8; 32],
    signature: Option<Signature>,
    looks: u64,
}

impl TlsWatch {
    /// One over the files that were loaded with this digest, which must hold still for so long.
    pub(in crate::app) fn new(tls: Tls, digest: [u8; 32], settle: Duration) -> Self {
        Self { tls, settle, in_force: digest, attempted: digest, signature: None, looks: 0 }
    }

    /// Looks again and again.
    pub(in crate::app) async fn run(mut self) {
        let between = LOOK.min(self.settle.saturating_mul(2));
        loop {
            let asked = tokio::select! {
                () = tokio::time::sleep(between) => false,
                () = self.tls.0.asked.notified() => true,
            };
            self.look(asked).await;
        }
    }

    /// Looks whether anything has changed, and if so takes it or says why not, once it holds still.
    pub(super) async fn look(&mut self, asked: bool) {
        self.looks = self.looks.wrapping_add(1);
        let settings = self.tls.0.settings.clone();
        let Some(seen) = blocking(move || signature(&settings)).await else { return };
        if self.signature.as_ref() == Some(&seen) && !asked && !self.looks.is_multiple_of(LOOKS_PER_READING) {
            return;
        }
        // Taken first, so that what changes from here on is seen by the next look.
        self.signature = Some(seen);
        let Some(mut last) = self.read().await else { return };
        if last.digest == self.attempted && !asked {
            return;
        }
        for _ in 0..RESTLESS {
            tokio::time::sleep(self.settle).await;
            let Some(again) = self.read().await else { return };
            let still = again.digest == last.digest;
            last = again;
            if still {
                break;
            }
        }
        self.take(last);
    }

    async fn read(&self) -> Option<Reading> {
        let settings = self.tls.0.settings.clone();
        blocking(move || Reading::of(&settings)).await
    }

    /// Puts what was read in force, or says why not.
    fn take(&mut self, Reading { digest, made, warnings }: Reading) {
        self.attempted = digest;
        let shared = &self.tls.0;
        let (listener, counts) = (shared.listener, &shared.metrics.connections);
        match made {
            Ok(made) => {
                for warning in warnings {
                    tracing::warn!("tls: {warning}");
                }
                counts.tls_loaded.one();
                if digest == self.in_force {
                    tracing::info!(?listener, "the files of TLS were read again and are the same");
                    return;
                }
                self.in_force = digest;
                self.tls.replace(made);
                tracing::info!(?listener, "other files of TLS are in force");
            }
            Err(problems) => {
                counts.tls_refused.one();
                for problem in &problems {
                    tracing::warn!("tls: {problem}");
                }
                tracing::error!(
                    ?listener,
                    problems = problems.len(),
                    "the files of TLS are refused: those in force stay"
                );
            }
        }
    }
}

/// Runs what waits for disks where no call waits for it. None if it panicked or the process ends.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
