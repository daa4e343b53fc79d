//! Health: `grpc.health.v1` on the doors' listener and, with `/healthz` and `/readyz`, on a plaintext listener of its own,
//! since orchestrators' probes dial without TLS or token. That listener serves nothing else.

use crate::storage::Store;
use axum::http::StatusCode;
use axum::routing::get;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

/// What turns with the store; `liveness` does not.
const READY_FOR: [&str; 4] =
    ["", "countersign.v1.AgentService", "countersign.v1.ApproverService", "countersign.v1.OperatorService"];
/// A process whose store is away is alive: restarting it would not bring the store back.
const LIVENESS: &str = "liveness";
/// How often the store is asked.
const ASK_STORE: Duration = Duration::from_secs(1);
/// A store that has not answered once for this long is lost.
const STORE_LOST: Duration = Duration::from_secs(10);

/// What orchestrators are told.
#[derive(Clone)]
pub(super) struct Health {
    /// For the doors' listener: clients watch it on the connection of their calls.
    doors: HealthReporter,
    /// For the plaintext listener.
    probes: HealthReporter,
    ready: Arc<AtomicBool>,
    stopping: Arc<AtomicBool>,
}

impl std::fmt::Debug for Health {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Health").field("ready", &self.ready).finish_non_exhaustive()
    }
}

impl Health {
    /// With the services of the doors' listener and of the plaintext one.
    pub(super) fn new() -> (Self, HealthServer<HealthService>, HealthServer<HealthService>) {
        let (doors, probes) = (HealthReporter::new(), HealthReporter::new());
        let service = |of: &HealthReporter| HealthServer::new(HealthService::from_health_reporter(of.clone()));
        let services = (service(&doors), service(&probes));
        (Self { doors, probes, ready: Arc::default(), stopping: Arc::default() }, services.0, services.1)
    }

    pub(super) async fn serving(&self) {
        for reporter in [&self.doors, &self.probes] {
            reporter.set_service_status(LIVENESS, ServingStatus::Serving).await;
        }
        self.set(true).await;
    }

    pub(super) async fn stopping(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.set(false).await;
    }

    /// Ends every watch on the doors' listener, once the last status is told: a watch ends with its client alone, and the
    /// doors wait for what is in flight.
    pub(super) async fn end_watches(mut self) {
        for service in READY_FOR.into_iter().chain([LIVENESS]) {
            self.doors.clear_service_status(service).await;
        }
    }

    async fn set(&self, ready: bool) {
        self.ready.store(ready, Ordering::SeqCst);
        let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for reporter in [&self.doors, &self.probes] {
            for service in READY_FOR {
                reporter.set_service_status(service, status).await;
            }
        }
    }

    /// Asks the store again and again, and turns readiness with it.
    pub(super) async fn watch_store(self, store: Arc<dyn Store>, mut stopped: watch::Receiver<bool>) {
        let mut last = Instant::now();
        loop {
            tokio::select! {
                () = tokio::time::sleep(ASK_STORE) => {}
                _ = stopped.changed() => return,
            }
            let answered = store.time().await.is_ok();
            if answered {
                last = Instant::now();
            }
            let (was, is) = (self.ready.load(Ordering::SeqCst), answered || last.elapsed() < STORE_LOST);
            // A store that answers turns readiness on at once; one that fails turns it off only when it is lost.
            if self.stopping.load(Ordering::SeqCst) || was == is || (!was && !answered) {
                continue;
            }
            if is {
                tracing::info!("the store answers again");
            } else {
                tracing::error!(lost_ms = STORE_LOST.as_millis(), "the store is lost: not ready");
            }
            self.set(is).await;
        }
    }
}

/// Serves the plaintext listener until `end`.
pub(super) async fn serve(
    listener: TcpListener,
    service: HealthServer<HealthService>,
    health: Health,
    policy_revision: String,
    end: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let ready = health.ready;
    let router = Routes::new(service).prepare().into_axum_router().route("/healthz", get(|| async { "ok\n" })).route(
        "/readyz",
        get(move || {
            let ready = ready.load(Ordering::SeqCst);
            let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            let body = format!("{{\"ready\":{ready},\"policy_revision\":\"{policy_revision}\"}}\n");
            async move { (status, [("content-type", "application/json")], body) }
        }),
    );
    axum::serve(listener, router).with_graceful_shutdown(end).await
}
