//! What is counted: the store wrapped to count, the backlog asked for now and then, and `/metrics`.

use crate::metrics::{Format, Metrics, SealerFigures, SweeperFigures, WriterFigures};
use crate::proto::DESCRIPTORS;
use crate::sealer::Sealer;
use crate::service;
use crate::storage::Store;
use crate::storage::metered::Metered;
use crate::storage::postgres::PostgresStore;
use crate::storage::sqlite::SqliteStore;
use crate::sweeper::Sweeper;
use axum::http::{HeaderMap, HeaderName};
use axum::routing::{MethodRouter, get};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often the store is asked for what waits for people, whoever scrapes how often.
const ASK_BACKLOG: Duration = Duration::from_secs(5);

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

/// Asks what waits for people, again and again until the sidecar stops.
pub(super) async fn watch_backlog(store: Arc<dyn Store>, metrics: Arc<Metrics>, mut stopped: watch::Receiver<bool>) {
    loop {
        match store.backlog().await {
            Ok(loaded) => {
                let age = loaded.row.oldest.map_or(Duration::ZERO, |oldest| loaded.now.since(oldest));
                metrics.backlog.read(loaded.row.pending, age);
            }
            Err(_) => metrics.backlog.unknown(),
        }
        tokio::select! {
            () = tokio::time::sleep(ASK_BACKLOG) => {}
            _ = stopped.changed() => return,
        }
    }
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
