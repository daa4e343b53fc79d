//! What is counted: the store wrapped to count, the backlog asked for now and then, and `/metrics`.

use crate::domain::limits;
use crate::metrics::{Format, Metrics, SealerFigures, SweeperFigures, Waiting, WriterFigures};
use crate::proto::DESCRIPTORS;
use crate::sealer::Sealer;
use crate::service;
use crate::storage::metered::Metered;
use crate::storage::postgres::PostgresStore;
use crate::storage::sqlite::SqliteStore;
use crate::storage::{Backlog, Loaded, Store, StoreError};
use crate::sweeper::Sweeper;
use axum::http::{HeaderMap, HeaderName};
use axum::routing::{MethodRouter, get};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How often the store is asked for what waits for people, whoever scrapes how often.
const ASK_BACKLOG: Duration = Duration::from_secs(5);
/// How old what is noted of approvers may become while they look: each note is a commit.
const NOTE_AGAIN: Duration = Duration::from_secs(30);
/// Who does not read the first warning is warned again.
const WARN_AGAIN: Duration = Duration::from_secs(10 * 60);

/// Nothing counted yet, of every method that may be served.
pub(super) fn metrics() -> Result<Arc<Metrics>, String> {
    let sets = [
        DESCRIPTORS,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    let methods = service::methods(&sets).map_err(|cause| cause.to_string())?;
    Ok(Arc::new(Metrics::new(methods)))
}

/// A store that says what was written to it.
pub(super) trait Counting: Store + 'static {
    /// By this process, since it was opened.
    fn figures(&self) -> WriterFigures;
}

impl Counting for SqliteStore {
    fn figures(&self) -> WriterFigures {
        let figures = self.statistics();
        WriterFigures {
            writes: figures.writes,
            commits: figures.commits,
            undone: Some(figures.undone),
            retries: None,
            reconnects: figures.reconnects,
            records: figures.records,
        }
    }
}

impl Counting for PostgresStore {
    fn figures(&self) -> WriterFigures {
        let figures = self.statistics();
        WriterFigures {
            writes: figures.writes,
            commits: figures.commits,
            undone: None,
            retries: Some(figures.retries),
            reconnects: figures.reconnects,
            records: figures.records,
        }
    }
}

/// The same store, counted.
pub(super) fn metered<S: Counting>(store: S, metrics: &Arc<Metrics>) -> Arc<dyn Store> {
    let store = Arc::new(store);
    // Whoever counts does not keep the database open.
    let counted = Arc::downgrade(&store);
    metrics.read_writer(move || Some(counted.upgrade()?.figures()));
    Arc::new(Metered::new(store, Arc::clone(metrics)))
}

/// Has the background work's own figures read at each scrape.
pub(super) fn sweeper(metrics: &Metrics, sweeper: &Sweeper) {
    let status = Arc::clone(sweeper.status());
    metrics.read_sweeper(move || {
        let read = status.read();
        Some(SweeperFigures {
            passes: read.passes,
            failures: read.failures,
            lag: read.lag,
            expired: read.expired,
            timed_out: read.timed_out,
            erased: read.erased,
            deleted: read.deleted,
        })
    });
}

/// Has the figures of whoever seals the audit read at each scrape.
pub(super) fn sealer(metrics: &Metrics, sealer: &Sealer) {
    let status = Arc::clone(sealer.status());
    metrics.read_sealer(move || {
        let read = status.read();
        Some(SealerFigures {
            failures: read.failures,
            sealed: read.sealed,
            checkpoints: read.checkpoints,
            refusals: read.refusals,
            lag: read.lag,
            newest: read.newest,
        })
    });
}

/// Asks what waits for people, again and again until the sidecar stops. Whether anybody who may answer looks is noted in the
/// table, so that one who does so through another sidecar is not missed here.
pub(super) async fn watch_backlog(store: Arc<dyn Store>, metrics: Arc<Metrics>, mut stopped: watch::Receiver<bool>) {
    let mut looked = false;
    let mut warned: Option<Instant> = None;
    loop {
        looked |= metrics.watchers.approver_looks();
        match ask_backlog(&*store, &mut looked).await {
            Ok(Loaded { row: backlog, now }) => {
                let waiting = Waiting {
                    pending: backlog.pending,
                    oldest_age: backlog.oldest.map_or(Duration::ZERO, |oldest| now.since(oldest)),
                    is_unwatched: backlog.is_unwatched(now, limits::UNWATCHED_AFTER),
                };
                metrics.backlog.read(waiting);
                if !waiting.is_unwatched {
                    warned = None;
                } else if warned.is_none_or(|warned| warned.elapsed() >= WARN_AGAIN) {
                    warned = Some(Instant::now());
                    tracing::warn!(
                        pending = waiting.pending,
                        oldest_s = waiting.oldest_age.as_secs(),
                        "approvals wait and nobody looks at them: see that the chat backend or console of the approvers runs \
                         and reaches a sidecar of this table, or answer with `countersign approvals`"
                    );
                }
            }
            Err(_) => metrics.backlog.unknown(),
        }
        tokio::select! {
            () = tokio::time::sleep(ASK_BACKLOG) => {}
            _ = stopped.changed() => return,
        }
    }
}

/// What waits for people. Where somebody has looked and that is not known of late, it is noted first.
async fn ask_backlog(store: &dyn Store, looked: &mut bool) -> Result<Loaded<Backlog>, StoreError> {
    let backlog = store.backlog().await?;
    let is_fresh = |seen| backlog.now.since(seen) < NOTE_AGAIN;
    if !*looked || backlog.row.approver_seen.is_some_and(is_fresh) {
        return Ok(backlog);
    }
    store.note_approver().await?;
    *looked = false;
    store.backlog().await
}

/// `GET /metrics`.
pub(super) fn page<S: Clone + Send + Sync + 'static>(metrics: Arc<Metrics>) -> MethodRouter<S> {
    get(move |headers: HeaderMap| {
        let accept = headers.get("accept").and_then(|accept| accept.to_str().ok());
        let format = Format::accepted(accept);
        let text = metrics.text(format);
        async move { ([(HeaderName::from_static("content-type"), format.content_type())], text) }
    })
}
